"""Operators of onnxruntime's own domain in many forms; ``make_microsoft.py`` stores what onnxruntime gives for them.

Those that it has no kernel for on CPUs are held against a formula of NumPy's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import TensorProto

from mlaot.onnx.registry import MICROSOFT

from .special_cases import Array, Case, Cases, varied

RNG = np.random.default_rng(11)
NONE: Any = None
BATCH, ROWS, HEADS, SIZE = 2, 3, 2, 4
WIDTH = HEADS * SIZE
HALVES = 16  # a size of heads that onnxruntime turns


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def integers(low: int, high: int, *shape: int, dtype: Any = np.int32) -> Array:
    return RNG.integers(low, high, shape).astype(dtype)


def array(*values: Any, dtype: Any = np.int32) -> Array:
    return np.array(values, dtype)


class Own(Cases):
    """Cases of the domain, and how one is added to them."""

    def own(self, op: str, *inputs: Any, vary: bool = False, domain: str = MICROSOFT, **options: Any) -> None:
        """One node; ``vary``: special numbers in its inputs, too."""
        self.add(op, *inputs, domain=domain, **options)
        if vary:
            case = self.pop()
            self.append(Case(case.name, case.model, tuple(varied(case.sets[0])), case.answer))


# Attention.


def masks(total: int) -> Iterator[Array]:
    """Of each kind: where keys end, where they begin as well, of keys, and of queries and keys; one hides all."""
    yield array(2, total)
    yield array(total, 2, 0, 1)
    keys = integers(0, 2, BATCH, total)
    keys[0], keys[1, 0] = 0, 1
    yield keys
    yield integers(0, 2, BATCH, ROWS, total)


def attention(cases: Own) -> None:
    x, weights, bias = floats(BATCH, ROWS, 6), floats(6, 3 * WIDTH), floats(3 * WIDTH)
    past = floats(2, BATCH, HEADS, 2, SIZE)
    cases.own("Attention", x, weights, bias, num_heads=HEADS, held=[1, 2], vary=True)
    cases.own("Attention", x, weights, NONE, num_heads=HEADS, scale=0.3, outputs=2)
    sizes = {"qkv_hidden_sizes": [WIDTH, WIDTH, 2 * HEADS]}
    cases.own("Attention", x, weights[:, : 2 * WIDTH + 4], bias[: 2 * WIDTH + 4], num_heads=HEADS, **sizes)
    for mask in masks(ROWS):
        cases.own("Attention", x, weights, bias, mask, num_heads=HEADS)
        cases.own("Attention", x, weights, bias, mask, num_heads=HEADS, unidirectional=1, mask_filter_value=-3.4e38)
    for mask in (NONE, *list(masks(ROWS + 2))[2:]):
        kept = {"num_heads": HEADS, "outputs": 2}
        cases.own("Attention", x, weights, bias, mask, past, **kept)
        cases.own("Attention", x, weights, bias, mask, past, unidirectional=1, mask_filter_value=-5.0, **kept)
    added = floats(1, HEADS, ROWS, ROWS)
    cases.own("Attention", x, weights, bias, NONE, NONE, added, num_heads=HEADS, outputs=2)
    codes, kernel = integers(0, 256, BATCH, ROWS, 6, dtype=np.uint8), integers(-128, 128, 6, 3 * WIDTH, dtype=np.int8)
    scales = np.float32(0.01), np.float32(0.02)
    columns = (0.01 + np.abs(floats(3 * WIDTH)) / 50).astype(np.float32)
    zeros = np.uint8(120), np.int8(3)
    cases.own("QAttention", codes, kernel, bias, *scales, NONE, *zeros, num_heads=HEADS, outputs=2)
    cases.own("QAttention", codes, kernel, bias, scales[0], columns, array(2, 3), np.uint8(9), num_heads=HEADS)
    mask = list(masks(ROWS + 2))[2]
    options = {"num_heads": HEADS, "outputs": 2, "unidirectional": 1}
    cases.own("QAttention", codes, kernel, bias, *scales, mask, *zeros, past, held=[1, 2, 3, 4, 6, 7], **options)


def multi_head(cases: Own) -> None:
    outputs = ["y0", "y1", "y2", ("y3", TensorProto.FLOAT, [None] * 4)]
    q, k, v = floats(BATCH, ROWS, WIDTH), floats(BATCH, 5, WIDTH), floats(BATCH, 5, 3 * HEADS)
    bias = floats(2 * WIDTH + 3 * HEADS)
    past = floats(BATCH, HEADS, 2, SIZE), floats(BATCH, HEADS, 2, SIZE)
    options = {"num_heads": HEADS, "outputs": outputs}
    cases.own("MultiHeadAttention", q, k, v, num_heads=HEADS, vary=True)
    cases.own("MultiHeadAttention", q, k, v, bias, scale=0.2, **options)
    for mask in (array(2, 5), integers(0, 2, BATCH, 5), integers(0, 2, BATCH, ROWS, 5)):
        cases.own("MultiHeadAttention", q, k, v, bias, mask, **options)
    same = floats(BATCH, ROWS, WIDTH), floats(BATCH, ROWS, WIDTH)
    for mask in (NONE, integers(0, 2, BATCH, ROWS), array(1, 2)):
        cases.own("MultiHeadAttention", q, *same, NONE, mask, unidirectional=1, **options)
        cases.own("MultiHeadAttention", q, *same, NONE, mask, unidirectional=1, mask_filter_value=-9.0, **options)
    for mask in (NONE, integers(0, 2, BATCH, ROWS + 2)):
        cases.own("MultiHeadAttention", q, *same, NONE, mask, NONE, *past, unidirectional=1, **options)
    for shape in ((1, 1), (BATCH, 1), (1, HEADS), (BATCH, HEADS)):
        added = floats(*shape, ROWS, ROWS + 2)
        added[..., 0, 1] = -np.inf
        cases.own("MultiHeadAttention", q, *same, floats(3 * WIDTH), NONE, added, *past, **options)
    one = q[:, :1], same[0][:, :1], same[1][:, :1]
    cases.own("MultiHeadAttention", *one, NONE, NONE, NONE, *past, unidirectional=1, **options)
    cases.own("MultiHeadAttention", q, floats(BATCH, HEADS, 5, SIZE), floats(BATCH, HEADS, 5, SIZE), num_heads=HEADS)
    packed = floats(BATCH, ROWS, HEADS, 3, SIZE)
    cases.own("MultiHeadAttention", packed, num_heads=HEADS, answer=lambda x0: plain(*np.moveaxis(x0, 3, 0)))
    cases.own(
        *("MultiHeadAttention", q, packed[:, :, :, :2]),
        num_heads=HEADS,
        answer=lambda x0, x1: plain(x0.reshape(BATCH, ROWS, HEADS, SIZE), x1[:, :, :, 0], x1[:, :, :, 1]),
    )


def plain(q: Array, k: Array, v: Array) -> Array:
    """The attention of [batch, time, heads, size]."""
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[3])
    e = np.exp(scores - scores.max(-1, keepdims=True))
    y = np.einsum("bhqk,bkhd->bqhd", e / e.sum(-1, keepdims=True), v)
    return y.reshape(*y.shape[:2], -1).astype(np.float32)


def grouped(cases: Own) -> None:
    heads, groups, size = 4, 2, HALVES
    options = {"num_heads": heads, "kv_num_heads": groups}
    waves = np.cos(floats(32, size // 2)), np.sin(floats(32, size // 2))

    def inputs(batch: int, rows: int, past: int, lengths: Array, total: int, size: int = size) -> list[Any]:
        new = [floats(batch, rows, n * size) for n in (heads, groups, groups)]
        kept = [floats(batch, groups, past, size) for _ in range(2)]
        return [*new, *kept, lengths, array(total)]

    def case(given: list[Any], **more: Any) -> None:
        outputs = ["y0", "y1", "y2", ("y3", TensorProto.FLOAT, [None] * 4)] if more.get("qk_output") else 3
        cases.own("GroupQueryAttention", *given, **options | {"outputs": outputs} | more)

    prompt, chunk, decode = (
        inputs(2, 4, 0, array(3, 3), 4),
        inputs(1, 3, 5, array(7), 8),
        inputs(2, 1, 5, array(5, 5), 6),
    )
    ragged, buffer = inputs(2, 1, 8, array(2, 5), 6), inputs(2, 4, 8, array(3, 3), 4)
    more = {"held": [5, 6]}
    for given in (prompt, chunk, decode, ragged, buffer):
        case(given, held=[6])
        case(given, local_window_size=2, qk_output=1, **more)
        case([*given, *waves], do_rotary=1, held=[5, 6, 7, 8])
    case([*prompt[:3], NONE, NONE, *prompt[5:]], **more)
    case([*prompt[:3], NONE, NONE, *prompt[5:]], outputs=1, **more)
    case([floats(1, 3, (heads + 2 * groups) * size), NONE, NONE, *chunk[3:], *waves], do_rotary=1, **more)
    case([*chunk, *waves], do_rotary=1, rotary_interleaved=1, scale=0.2, **more)
    case([*inputs(1, 3, 5, array(7), 8, 2 * size), *waves], do_rotary=1, **more)
    places = array([9, 4, 6], dtype=np.int64)
    case([*chunk, *waves, places], do_rotary=1, **more)
    case(chunk, softcap=1.5, qk_output=1, **more)
    case(chunk, causal=0, qk_output=2, **more)
    case(chunk, smooth_softmax=1, qk_output=2, **more)
    case([*chunk, NONE, NONE, NONE, NONE, floats(heads)], qk_output=2, **more)
    case([*chunk, NONE, NONE, NONE, floats(1, heads, 3, 8)], softcap=2.0, local_window_size=4, qk_output=2, **more)
    case([*decode, NONE, NONE, NONE, floats(2, 1, 1, 6)], **more)
    cases.own("GroupQueryAttention", *chunk, vary=True, **options, **more, outputs=3)
    # nan in queries and keys can get lost in onnxruntime, as that of other operators can
    kept = tuple(s for s in cases[-1].sets if np.isfinite([*s["x0"].ravel(), *s["x1"].ravel()]).all())
    cases[-1] = replace(cases[-1], sets=kept)


def rotary(cases: Own) -> None:
    waves = np.cos(floats(10, SIZE // 2)), np.sin(floats(10, SIZE // 2))
    flat, split = floats(BATCH, ROWS, WIDTH), floats(BATCH, HEADS, ROWS, SIZE)
    one, each = array(5, dtype=np.int64), integers(0, 10, BATCH, ROWS, dtype=np.int64)
    for x in (flat, split):
        for at in (one, each):
            cases.own("RotaryEmbedding", x, at, *waves, held=[2, 3])
        cases.own("RotaryEmbedding", x, each, *waves, interleaved=1)
    part = [w[:, :1] for w in waves]
    cases.own("RotaryEmbedding", flat, each, *part, num_heads=HEADS, rotary_embedding_dim=2)


# Normalization.


def normalization(cases: Own) -> None:
    x, skip, scale, beta, bias = floats(2, 3, 8), floats(2, 3, 8), floats(8), floats(8), floats(8)
    for domain in ("", MICROSOFT):
        if not domain:
            cases.own("SimplifiedLayerNormalization", x, scale, domain=domain, opset=17, outputs=2, vary=True)
            cases.own("SimplifiedLayerNormalization", x, floats(3, 8), domain=domain, opset=17, axis=1, epsilon=0.1)
        else:
            cases.own(
                "SimplifiedLayerNormalization", x, scale, epsilon=0.1, answer=lambda x0, x1: by_root(x0, 0.1) * x1
            )
    outputs = ["y0", "", "", "y3"]
    cases.own("SkipLayerNormalization", x, skip, scale, outputs=outputs, vary=True)
    cases.own("SkipLayerNormalization", x, skip[:1], scale, beta, bias, outputs=outputs, epsilon=0.1)
    cases.own("SkipLayerNormalization", x, skip[0], scale, NONE, bias)
    cases.own("SkipSimplifiedLayerNormalization", x, skip, scale, outputs=outputs, vary=True)
    cases.own("SkipSimplifiedLayerNormalization", x[0], skip[0], scale, bias, outputs=outputs, epsilon=0.1)
    words, segments = integers(0, 9, 2, 3), integers(0, 2, 2, 3)
    tables = floats(9, 8), floats(5, 8), floats(2, 8)
    mask, places = array([1, 1, 0], [1, 0, 0]), integers(0, 5, 2, 3)
    options: dict[str, Any] = {"outputs": ["y0", "y1", "y2"]}
    cases.own("EmbedLayerNormalization", words, segments, *tables, scale, beta, mask, **options)
    cases.own("EmbedLayerNormalization", words, NONE, *tables[:2], NONE, scale, beta, **options, epsilon=0.1)
    cases.own("EmbedLayerNormalization", words, segments, *tables, scale, beta, NONE, places, outputs=2)
    cases.own("EmbedLayerNormalization", words, segments, *tables, scale, beta, mask, places[:1], outputs=2)
    codes = [integers(0, 256, *t.shape, dtype=np.uint8) for t in (*tables, scale, beta)]
    steps = [np.float32(s) for s in (0.01, 0.02, 0.03, 0.01, 0.02)]
    zeros = [np.uint8(z) for z in (128, 100, 140, 120, 128)]
    cases.own("QEmbedLayerNormalization", words, segments, *codes, mask, *steps, *zeros, outputs=2)
    without = [*codes[:2], NONE, *codes[3:]], [*steps[:2], NONE, *steps[3:]], [*zeros[:2], NONE, *zeros[3:]]
    cases.own("QEmbedLayerNormalization", words, NONE, *without[0], NONE, *without[1], *without[2], outputs=2)
    image, more = floats(2, 3, 2, 8), floats(2, 8)
    for last, silu in ((1, 0), (1, 1), (0, 1)):
        x = image if last else np.ascontiguousarray(np.moveaxis(image, 3, 1))
        form = {"channels_last": last, "activation": silu, "groups": 4, "epsilon": 0.01}
        norm = by_groups(last, silu)
        cases.own("GroupNorm", x, scale, beta, answer=norm, **form)
        cases.own("SkipGroupNorm", x, scale, beta, more, bias, outputs=2, answer=after_sum(last, norm), **form)
    cases.own(
        "SkipGroupNorm",
        image,
        scale,
        beta,
        image,
        activation=0,
        groups=2,
        outputs=2,
        answer=after_sum(1, by_groups(1, 0, 2, 1e-5)),
    )


def by_root(x: Array, epsilon: float) -> Array:
    return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon))


def by_groups(last: int, silu: int, groups: int = 4, epsilon: float = 0.01) -> Callable[..., Array]:
    """The norm of groups of channels, which lie ``last`` or behind the batch."""

    def run(x0: Array, x1: Array, x2: Array) -> Array:
        x = np.moveaxis(x0, 3 if last else 1, 1).astype(np.float64)
        y = x.reshape(x.shape[0], groups, -1)
        y = (y - y.mean(2, keepdims=True)) / np.sqrt(y.var(2, keepdims=True) + epsilon)
        y = y.reshape(x.shape) * x1[:, None, None] + x2[:, None, None]
        y = y / (1 + np.exp(-y)) if silu else y
        return np.moveaxis(y, 1, 3 if last else 1).astype(np.float32)

    return run


def after_sum(last: int, norm: Callable[..., Array]) -> Callable[..., tuple[Array, Array]]:
    """The norm of a sum, and the sum."""

    def run(x0: Array, x1: Array, x2: Array, x3: Array, x4: Any = None) -> tuple[Array, Array]:
        shape = (1, 1, 1, -1) if last else (1, -1, 1, 1)
        skip = x3 if x3.ndim == 4 else x3[:, None, None] if last else x3[:, :, None, None]
        total = x0 + skip + (0 if x4 is None else x4.reshape(shape))
        return norm(total, x1, x2), total

    return run


# Products.


def products(cases: Own) -> None:
    a, b = floats(2, 3, 4), floats(2, 4, 5)
    cases.own("TransposeMatMul", np.swapaxes(a, 1, 2), b, transA=1, alpha=0.5)
    cases.own("FusedMatMul", np.moveaxis(a, 1, 0), b, transBatchA=1)
    cases.own("FusedMatMul", a, np.moveaxis(b, 2, 0), transBatchB=1, transB=1, alpha=2.0)
    cases.own("FusedMatMul", a, np.moveaxis(b, 1, 0), transBatchB=1)
    cases.own("FusedMatMul", a, floats(4), vary=True)
    form = {"activation": "LeakyRelu", "activation_alpha": 0.3, "transB": 1, "alpha": 0.5}
    leaky = lambda x0, x1: np.where(x0 @ x1.T < 0, 0.3, 1) * (x0 @ x1.T) * 0.5  # noqa: E731
    cases.own("FusedMatMulActivation", floats(3, 4), floats(5, 4), answer=as_float(leaky), **form)
    for name, numbers in (("Relu", {}), ("Tanh", {}), ("Sigmoid", {}), ("LeakyRelu", {"activation_alpha": 0.3})):
        cases.own("FusedGemm", floats(3, 4), floats(5, 4), floats(5), activation=name, transB=1, beta=0.5, **numbers)
    x, w, z = floats(1, 2, 5, 5), floats(3, 2, 3, 3), floats(1, 3, 3, 3)
    for name, values in (("Relu", []), ("Sigmoid", []), ("Clip", [-0.5, 0.5]), ("HardSigmoid", [0.3, 0.4])):
        form = {"activation_params": values} if values else {}
        cases.own("FusedConv", x, w, floats(3), activation=name, **form)
    cases.own("FusedConv", x, w, floats(3), z, activation="Relu")
    fast = lambda x: 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))  # noqa: E731
    cases.own("GemmFastGelu", a, b[0], floats(5), answer=as_float(lambda x0, x1, x2: fast(x0 @ x1 + x2)))
    words = integers(-300, 300, 3, 4, dtype=np.int16), integers(-300, 300, 4, 2, dtype=np.int16)
    cases.own("MatMulInteger16", *words)


def as_float(formula: Callable[..., Any]) -> Callable[..., Array]:
    """A formula, computed in doubles, and rounded once."""
    return lambda **given: np.asarray(formula(**{n: x.astype(np.float64) for n, x in given.items()})).astype(np.float32)


def pack(codes: Array, bits: int) -> Array:
    """Codes along the last axis in bytes, the lowest bits first."""
    if bits == 8:
        return codes.astype(np.uint8)
    per = 8 // bits
    more = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, -codes.shape[-1] % per)])
    split = more.reshape(*more.shape[:-1], -1, per).astype(np.uint8)
    return np.bitwise_or.reduce(split << (np.arange(per, dtype=np.uint8) * bits), axis=-1).astype(np.uint8)


def blocks(cases: Own) -> None:
    columns = 6
    for bits in (2, 4, 8):
        for size, rows in ((16, 40), (32, 64), (128, 100)):
            count = -(-rows // size)
            codes = integers(0, 2**bits, columns, count * size, dtype=np.uint8)
            packed = pack(codes.reshape(columns, count, size), bits)
            scales = 0.02 + np.abs(floats(columns, count)) / 20
            zeros = integers(0, 2**bits, columns, count, dtype=np.uint8)
            form = {"K": rows, "N": columns, "block_size": size, "bits": bits}
            x = floats(3, rows)
            cases.own("MatMulNBits", x, packed, scales, held=[1, 2], vary=size == 16 and bits == 4, **form)
            flat, bias = pack(zeros, bits), floats(columns)
            cases.own("MatMulNBits", floats(2, 1, rows), packed, scales, flat, NONE, bias, held=[1, 2, 3, 5], **form)
            number = zeros.astype(np.float32) + 0.5
            if bits == 4:
                cases.own("MatMulNBits", x, packed, scales, number, held=[1, 2, 3], **form)
    missing = np.zeros((columns, 0, 16), np.uint8)
    form = {"K": 40, "N": columns, "block_size": 32, "bits": 4}
    cases.own(
        "MatMulNBits", floats(3, 40), missing, floats(columns, 2), NONE, NONE, floats(columns), held=[1, 2, 5], **form
    )
    for kind in (0, 1):
        codes, largest = integers(0, 256, 6 * 40 // 2, dtype=np.uint8), np.abs(floats(15))
        form = {"K": 40, "N": 6, "block_size": 16, "quant_type": kind}
        cases.own("MatMulBnb4", floats(3, 40), codes, largest, held=[1, 2], **form)
    at = integers(-9, 9, 2, 3, dtype=np.int64)
    for bits in (4, 8):
        codes, zeros = integers(0, 2**bits, 9, 40, dtype=np.uint8), integers(0, 2**bits, 9, 3, dtype=np.uint8)
        form = {"block_size": 16, "bits": bits, "quantize_axis": 1}
        scales = np.abs(floats(9, 3))
        cases.own("GatherBlockQuantized", pack(codes, bits), at, scales, held=[0, 2], **form)
        cases.own("GatherBlockQuantized", pack(codes, bits), at, scales, pack(zeros, bits), held=[0, 2, 3], **form)


# Other layers.


def layers(cases: Own) -> None:
    x, bias = floats(2, 3, 8), floats(8)
    gelu = np.vectorize(lambda v: v / 2 * (1 + math.erf(v / math.sqrt(2))))
    cases.own("BiasAdd", x, bias, floats(2, 3, 8), answer=as_float(lambda x0, x1, x2: x0 + x1 + x2))
    halves = lambda x0, x1: (x0 + x1)[..., :4] * gelu((x0 + x1)[..., 4:])  # noqa: E731
    cases.own("BiasSplitGelu", x, bias, answer=as_float(halves))
    drop = lambda x0, x1, x2: (x0 + x1 + x2, np.ones(x0.shape, bool))  # noqa: E731
    cases.own("BiasDropout", x, bias, floats(2, 3, 8), outputs=2, answer=drop)
    pairs = floats(3, 5, 2), floats(3, 5, 2)
    both = lambda sign: lambda x0, x1: complex_product(x0, x1, sign)  # noqa: E731
    cases.own("ComplexMul", *pairs, answer=both(1))
    cases.own("ComplexMulConj", *pairs, answer=both(-1))
    special = [
        [v, floats(3)] for v in (floats(4), array(1, np.nan, dtype=np.float32), array(1, np.inf, dtype=np.float32))
    ]
    for form, holds in (
        ({}, np.isfinite),
        ({"isnan_only": 1}, lambda v: ~np.isnan(v)),
        ({"isinf_only": 1}, lambda v: ~np.isinf(v)),
    ):
        for given in special:
            cases.own("IsAllFinite", *given, answer=all_of(holds), **form)
    cases.own("ScaledSiLU", x, alpha=0.5)
    cases.own("ScaledSiLU", x, np.float32(1.5))
    silu = lambda v, a: v / (1 + np.exp(-a * v))  # noqa: E731
    two = floats(2, 4), floats(2, 4)
    cases.own("SwiGLU", *two, answer=as_float(lambda x0, x1: silu(x0, 1) * x1))
    form = {"activation_alpha": 1.7, "activation_beta": 1.0, "limit": 0.8}
    clipped = lambda x0: silu(np.minimum(x0[:, :2], 0.8), 1.7) * (np.clip(x0[:, 2:], -0.8, 0.8) + 1)  # noqa: E731
    cases.own("SwiGLU", two[0], answer=as_float(clipped), **form)
    cases.own("TorchEmbedding", floats(5, 3), array([1, 4], [0, 2], dtype=np.int64), answer=lambda x0, x1: x0[x1])
    image, codes = floats(1, 2, 6, 6), integers(0, 256, 1, 5, 6, 3, dtype=np.uint8)
    cases.own("NhwcMaxPool", codes, kernel_shape=[2, 3], strides=[2, 1], pads=[0, 1, 1, 1])
    kernel = floats(3, 2, 3, 3)
    last = np.ascontiguousarray(np.moveaxis(image, 1, 3))
    conv = lambda x0, x1, x2: np.moveaxis(convolved(np.moveaxis(x0, 3, 1), x1), 1, 3) + x2  # noqa: E731
    cases.own("NhwcConv", last, kernel, floats(3), answer=as_float(conv))
    relu = lambda x0, x1, x2, x3: np.maximum(conv(x0, x1, x2) + x3, 0)  # noqa: E731
    cases.own("NhwcFusedConv", last, kernel, floats(3), floats(1, 4, 4, 3), activation="Relu", answer=as_float(relu))
    grid = floats(1, 3, 4, 2)
    for mode, pads in (("bilinear", "zeros"), ("nearest", "border"), ("bicubic", "reflection")):
        cases.own("GridSample", image, grid, mode=mode, padding_mode=pads, align_corners=int(mode == "nearest"))
    cases.own("GatherND", x, array([0, 1], [1, 2]))
    cases.own("SampleOp", x)
    cases.own("Trilu", x, np.int64(1), upper=0, held=[1])
    cases.own("Trilu", x)
    cases.own("ExpandDims", x, np.int32(-2), held=[1])
    cases.own("Pad", x, array([0, 1, 2, 1, 0, -3], dtype=np.int64), np.float32(7), held=[1, 2])
    cases.own("Pad", x, array(0, 1, 2, 1, 0, 3, dtype=np.int64), mode="reflect", held=[1])
    for kind in (np.float32, np.int64):
        cases.own("Range", kind(1), kind(7), kind(2), held=[0, 1, 2])
        cases.own("Range", kind(1), kind(5), held=[0, 1])
    cases.own("Unique", array(2, 1, 1, 3, 4, 3, dtype=np.float32), outputs=3, held=[0])
    for metric in ("sqeuclidean", "euclidean"):
        cases.own("CDist", floats(4, 3), floats(5, 3), metric=metric)
    cases.own("Inverse", floats(2, 3, 3), held=[0])
    for op in ("Gelu", "QuickGelu"):
        cases.own(op, x)


def gated(cases: Own) -> None:
    x, gate, scale = floats(2, 3, 8), floats(2, 3, 8), floats(4)
    cases.own("GatedRMSNorm", x, scale, gate, vary=True)
    cases.own("GatedRMSNorm", x, floats(8), gate, activation="sigmoid", epsilon=0.1)
    cases.own("GatedAdd", x, gate, floats(2, 3, 1))
    for weights in (NONE, floats(4), floats(2, 4), floats(8)):
        cases.own("BranchwiseRMSNorm", x, weights, num_branches=2)
    cases.own("BranchwiseRMSNorm", x.reshape(2, 3, 2, 4), floats(2, 4), epsilon=0.1)
    bias, less = floats(5), -np.abs(floats(5))
    cases.own("LinearAttentionGate", floats(2, 3, 5), bias, less, floats(2, 3, 5), outputs=2)
    cases.own("LinearAttentionGate", floats(2, 3, 5), bias, less)
    q, k, v = floats(2, 3, 8), floats(2, 3, 4), floats(2, 3, 6)
    decay, beta, state = -np.abs(floats(2, 3, 2)), np.abs(floats(2, 3, 2)) / 9, floats(2, 2, 2, 3)
    form = {"q_num_heads": 4, "kv_num_heads": 2, "outputs": 2}
    cases.own("LinearAttention", q, k, v, NONE, decay, beta, **form)
    cases.own("LinearAttention", q, k, v, state, update_rule="linear", scale=0.7, **form)
    cases.own("LinearAttention", q, k, v, state, -np.abs(floats(2, 3, 4)), update_rule="gated", **form)
    signal, kernel = floats(2, 3, 7), floats(3, 1, 4)
    cases.own("CausalConvWithState", signal, kernel, outputs=2)
    cases.own("CausalConvWithState", signal, kernel, floats(3), floats(2, 3, 3), activation="silu", outputs=2)
    waves = np.cos(floats(10, 6)), np.sin(floats(10, 6))
    places = integers(0, 10, 3, 2, 3, dtype=np.int64)
    for layout in (0, 1):
        form = {"mrope_section": [2, 2, 2], "mrope_layout": layout}
        cases.own("MRotaryEmbedding", floats(2, 3, 24), places, *waves, num_heads=2, **form)
        cases.own("MRotaryEmbedding", floats(2, 2, 3, 12), places, *waves, interleaved=1, **form)
    form = {"strides": [2, 1], "kernel_shape": [3, 2]}
    pads = array(1, 0, 0, 1, dtype=np.int64)
    cases.own("ConvTransposeWithDynamicPads", floats(1, 2, 4, 4), floats(2, 3, 3, 2), pads, floats(3), held=[2], **form)
    cases.own("UnfoldTensor", floats(3, 7, 2), dim=1, size=3, step=2)


def experts(cases: Own) -> None:
    router, first, bias = floats(3, 4), floats(4, 6, 8), floats(4, 6)
    second, last = floats(4, 8, 6), floats(4, 8)
    for kind in ("relu", "gelu", "silu", "identity"):
        cases.own("MoE", floats(3, 8), router, first, bias, second, last, k=2, activation_type=kind)
    cases.own("MoE", floats(1, 3, 8), router, first, NONE, second, k=3, normalize_routing_weights=1)
    gated: dict[str, Any] = {"k": 2, "activation_type": "swiglu", "normalize_routing_weights": 1}
    numbers = {"activation_alpha": 1.7, "activation_beta": 1.0}
    for limit in ({}, {"swiglu_limit": 0.5}):
        x, both, more = floats(3, 8), floats(4, 12, 8), floats(4, 12)
        cases.own("MoE", x, router, both, more, second, last, swiglu_fusion=1, **gated, **numbers, **limit)
    x, both = floats(3, 8), floats(4, 12, 8)
    cases.own(
        "MoE", x, router, both, NONE, second, answer=mixture(lambda h, x, e: (h[:6], h[6:])), swiglu_fusion=2, **gated
    )
    third = floats(4, 6, 8)
    halves = lambda h, x, e: (h, third[e] @ x)  # noqa: E731
    cases.own("MoE", x, router, first, NONE, second, NONE, third, held=[6], answer=mixture(halves), **gated)


def mixture(halves: Callable[..., tuple[Array, Array]]) -> Callable[..., Array]:
    """Two experts of each row, with gates, of whose first product ``halves`` makes two."""

    def run(x0: Array, x1: Array, x2: Array, x4: Array) -> Array:
        y = np.zeros((3, 8))
        for row, scores, out in zip(x0.astype(float), np.exp(x1.astype(float)), y, strict=True):
            best = np.argsort(-scores)[:2]
            for e in best:
                gate, up = halves(x2[e] @ row, row, e)
                out += scores[e] / scores[best].sum() * (x4[e] @ (gate / (1 + np.exp(-gate)) * up))
        return y.astype(np.float32)

    return run


def complex_product(a: Array, b: Array, sign: int) -> Array:
    first, second = (x[..., 0] + 1j * x[..., 1] for x in (a, b))
    y = first * (second if sign > 0 else second.conj())
    return np.stack([y.real, y.imag], -1).astype(np.float32)


def all_of(holds: Callable[[Array], Array]) -> Callable[..., Array]:
    return lambda x0, x1: np.array(holds(x0).all() and holds(x1).all())


def convolved(x: Array, w: Array) -> Array:
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))
    return np.asarray(np.einsum("nchwij,mcij->nmhw", windows, w))


# Quantized arrays.


def quantized(cases: Own) -> None:
    for kind in (np.uint8, np.int8):
        info = np.iinfo(kind)
        x = integers(info.min, info.max + 1, 2, 3, 4, 4, dtype=kind)
        one, two, zero, end = np.float32(0.0531), np.float32(0.0317), kind(3), kind(60)
        pool = {"kernel_shape": [2, 3], "strides": [1, 2], "pads": [1, 1, 0, 1]}
        cases.own("QLinearAveragePool", x, one, zero, two, end, **pool)
        cases.own("QLinearAveragePool", x, one, zero, two, end, count_include_pad=1, channels_last=1, **pool)
        cases.own("QLinearGlobalAveragePool", x, one, zero, two, end, channels_last=1)
        for opset, axis in ((13, -1), (13, 1), (12, 2)):
            form = {"opset": opset, "axis": axis}
            add_softmax(cases, x, one, zero, np.float32(1 / 256), kind(info.min), form)
        condition = integers(0, 2, 2, 1, 4, 4).astype(bool)
        cases.own(
            "QLinearWhere", condition, x, one, zero, x[:1], two, end, np.float32(0.07), zero, held=[2, 3, 5, 6, 7, 8]
        )
        mean = lambda x0, x1, x2, x3, x4: ((x0 - x2.astype(float)).mean((2, 3)) * x1 / x3, x4)  # noqa: E731
        cases.own("QLinearReduceMean", x, one, zero, two, end, axes=[2, 3], keepdims=0, answer=rounded(mean))
        w = integers(-128, 128, 5, 3, 3, 3, dtype=np.int8)
        steps, zeros = np.abs(floats(5)) / 50 + np.float32(0.01), np.zeros(5, np.int8)
        sums = integers(-3000, 3000, 5)
        given = (one, zero, w, steps, zeros, np.float32(0.7), end, sums)
        cases.own("QLinearConv", x, *given, held=list(range(1, 9)))
        last = np.ascontiguousarray(np.moveaxis(x, 1, 3))
        cases.own("QLinearConv", last, *given, channels_last=1, pads=[1] * 4, held=list(range(1, 9)))
        product = lambda x0, x1, x2, x3: (wide(x0) - wide(x1)) * (wide(x2) - wide(x3))  # noqa: E731
        cases.own("MulInteger", x, zero, x[:1], end, answer=product)
        total = lambda x0: wide(x0).sum(1, keepdims=True, dtype=np.int32)  # noqa: E731
        cases.own("ReduceSumInteger", x, axes=[1], keepdims=1, answer=total)


def add_softmax(cases: Own, x: Array, scale: Any, zero: Any, step: Any, end: Any, form: dict[str, int]) -> None:
    """The attribute that names an opset is none of ours."""
    cases.own("QLinearSoftmax", x, scale, zero, step, end, axis=form["axis"], held=[1, 2, 3, 4])
    case = cases.pop()
    case.model.graph.node[0].attribute.add(name="opset", i=form["opset"], type=2)
    cases.append(case)


def wide(x: Array) -> Array:
    return x.astype(np.int32)


def rounded(formula: Callable[..., tuple[Any, Any]]) -> Callable[..., Array]:
    """A formula's numbers with the zero point that comes with them, as its type."""

    def run(**given: Array) -> Array:
        y, zero = formula(**given)
        info = np.iinfo(zero.dtype)
        return np.asarray(np.clip(np.rint(y) + zero, info.min, info.max).astype(zero.dtype))

    return run


def halves(cases: Own) -> None:
    """In float16, of what onnxruntime has kernels for."""

    def half(*shape: int) -> Array:
        return floats(*shape).astype(np.float16)

    q, k, v = half(BATCH, ROWS, WIDTH), half(BATCH, 5, WIDTH), half(BATCH, 5, WIDTH)
    cases.own("MultiHeadAttention", q, k, v, half(3 * WIDTH), array(2, 5), num_heads=HEADS, outputs=3)
    form = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "outputs": 3}
    new, kept = [half(1, 3, n * HALVES) for n in (4, 2, 2)], [half(1, 2, 5, HALVES) for _ in range(2)]
    cases.own("GroupQueryAttention", *new, *kept, array(7), array(8), half(9, 8), half(9, 8), held=[5, 6], **form)
    x, skip, scale, bias = half(2, 3, 8), half(2, 3, 8), half(8), half(8)
    outputs = ["y0", "", "", "y3"]
    cases.own("SkipLayerNormalization", x * np.float16(30), skip, scale, bias, bias, outputs=outputs)
    cases.own("SkipSimplifiedLayerNormalization", x, skip, scale, outputs=outputs)
    cases.own("SimplifiedLayerNormalization", x * np.float16(30), scale, domain="", opset=17)
    codes, scales = integers(0, 256, 6, 2, 16, dtype=np.uint8), np.abs(half(6, 2))
    form = {"K": 40, "N": 6, "block_size": 32, "bits": 4, "held": [1, 2, 5]}
    cases.own("MatMulNBits", half(3, 40), codes, scales, NONE, NONE, half(6), **form)
    for op in ("BiasGelu", "FastGelu"):
        cases.own(op, x, bias)


def microsoft_cases() -> list[Case]:
    found = Own()
    for family in (
        attention,
        multi_head,
        grouped,
        rotary,
        normalization,
        products,
        blocks,
        layers,
        gated,
        experts,
        quantized,
        halves,
    ):
        family(found)
    return found
