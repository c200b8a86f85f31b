"""Layers of onnxruntime's own domain: operators that its optimizer fuses, and its variants of ONNX's operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend import numpy as F
from mlaot.frontend.numpy.indexing import in_range
from mlaot.onnx.importer import Use
from mlaot.onnx.ops import sampling, search, shaping, windows
from mlaot.onnx.ops.indexing import gather_nd
from mlaot.onnx.ops.microsoft import fused_conv, plus
from mlaot.onnx.ops.normalization import per_channel, standardize
from mlaot.onnx.ops.quantization import dequantize_linear
from mlaot.onnx.registry import MICROSOFT, Function, operator, operators
from mlaot.onnx.values import Unsupported, constant_value, integers, require_constant

# Normalization.


@operator("SimplifiedLayerNormalization")
@operator("SimplifiedLayerNormalization", domain=MICROSOFT)
def simplified_layer_normalization(x: Any, scale: Any, *, axis: int = -1, epsilon: float = 1e-5) -> Any:
    y, inverse = by_root(x, tuple(range(axis % x.ndim, x.ndim)), epsilon)
    return y * scale, inverse


def by_root(x: Any, axes: tuple[int, ...], epsilon: float) -> tuple[Any, Any]:
    """Return ``x`` divided by its root mean square, and the reciprocal of the root mean square."""
    inverse = 1.0 / np.sqrt(np.mean(x * x, axis=axes, keepdims=True) + epsilon)
    return x * inverse, inverse


@operator("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(
    x: Any, skip: Any, scale: Any, beta: Any = None, bias: Any = None, *, epsilon: float = 1e-12
) -> Any:
    total = plus(x + skip, bias)
    y, mean, inverse = standardize(total, (total.ndim - 1,), epsilon)
    return plus(y * scale, beta), mean, inverse, total


@operator("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified_layer_normalization(
    x: Any, skip: Any, scale: Any, bias: Any = None, *, epsilon: float = 1e-12
) -> Any:
    total = plus(x + skip, bias)
    y, inverse = by_root(total, (total.ndim - 1,), epsilon)
    return y * scale, np.mean(total, axis=-1, keepdims=True), inverse, total


@operator("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(
    words: Any,
    segments: Any,
    word_table: Any,
    place_table: Any,
    segment_table: Any,
    scale: Any,
    bias: Any,
    mask: Any = None,
    places: Any = None,
    *,
    epsilon: float = 1e-12,
) -> Any:
    """Return the sum of the embeddings of words, positions and segments, and the number of words of each text.

    The mask selects the words that count.
    """
    places = np.expand_dims(F.arange(words.shape[1]), 0) if places is None else places
    total = _rows(word_table, words) + _rows(place_table, places)
    total = total if segments is None else total + _rows(segment_table, segments)
    y, _, _ = standardize(total, (2,), epsilon)
    kept = F.zeros(words.shape, dtype=np.int32) if mask is None else F.astype(np.equal(mask, 1), np.int32)
    return y * scale + bias, F.astype(np.sum(kept, axis=1), np.int32), total


def _rows(table: Any, indices: Any) -> Any:
    return np.take(table, in_range(indices, table.shape[0]), axis=0)


@operator("QEmbedLayerNormalization", domain=MICROSOFT)
def quantized_embed_layer_normalization(use: Use, *inputs: Any) -> Any:
    words, segments, *codes, mask = inputs[:8]
    scales, zeros = inputs[8:13], inputs[13:18]
    tables = [
        None if code is None else use.call(dequantize_linear, code, scale, zero)
        for code, scale, zero in zip(codes, scales, zeros, strict=True)
    ]
    y, kept, _ = use.call(embed_layer_normalization, words, segments, *tables, mask)
    return y, kept


@operator("GroupNorm", domain=MICROSOFT)
def group_norm(
    use: Use, x: Any, scale: Any, bias: Any, *, channels_last: bool = True, epsilon: float = 1e-5, activation: int = 0
) -> Any:
    groups = use.attribute("groups", 1)
    x = np.moveaxis(x, -1, 1) if channels_last else x
    if groups < 1 or x.shape[1] % groups:
        raise MlaotError(f"{x.shape[1]} channels are not {groups} groups")
    split = np.reshape(x, (x.shape[0], groups, x.shape[1] // groups, *x.shape[2:]))
    y, _, _ = standardize(split, tuple(range(2, split.ndim)), epsilon)
    y = np.reshape(y, x.shape) * per_channel(scale, x.ndim) + per_channel(bias, x.ndim)
    y = F.silu(y) if activation else y
    return np.moveaxis(y, 1, -1) if channels_last else y


@operator("SkipGroupNorm", domain=MICROSOFT)
def skip_group_norm(
    use: Use, x: Any, scale: Any, bias: Any, skip: Any, more: Any = None, *, channels_last: bool = True
) -> Any:
    if skip.ndim == 2:
        skip = np.expand_dims(skip, (1, 2) if channels_last else (2, 3))
    more = more if more is None or channels_last else per_channel(more, x.ndim)
    total = plus(x + skip, more)
    return use.call(group_norm, total, scale, bias), total


# Of a few operators one.


def halves(x: Any) -> tuple[Any, Any]:
    """Cut the last axis in two."""
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half:]


def _split_gelu(x: Any, bias: Any) -> Any:
    left, right = halves(x + bias)
    return left * F.gelu(right)


def _finite(*values: Any, isinf_only: bool = False, isnan_only: bool = False) -> Any:
    good: list[Callable[[Any], Any]] = []
    good += [] if isinf_only else [lambda x: np.equal(x, x)]
    good += [] if isnan_only else [lambda x: np.logical_not(np.isinf(x))]
    y: Any = np.array(True)
    for holds in good:
        for x in values:
            y = np.logical_and(y, np.all(holds(x)))
    return y


def _bias_dropout(use: Use, x: Any, bias: Any, skip: Any = None, ratio: Any = None, training: Any = None) -> Any:
    if training is not None and require_constant(training, "whether it is training"):
        raise Unsupported("dropout in training draws random numbers of another generator; export for inference")
    y = plus(x + bias, skip)
    return (y, np.equal(x, x) | True) if use.has(1) else y


def swiglu(
    gate: Any, up: Any = None, *, activation_alpha: float = 1.0, activation_beta: float = 0.0, limit: float = 0.0
) -> Any:
    gate, up = halves(gate) if up is None else (gate, up)
    gate, up = (np.minimum(gate, limit), np.clip(up, -limit, limit)) if limit > 0 else (gate, up)
    return gate * F.sigmoid(gate * activation_alpha) * (up + activation_beta)


def _complex_product(a: Any, b: Any, sign: int = 1) -> Any:
    """Multiply complex numbers whose parts are a last axis of 2; with ``sign`` -1, by conjugates."""
    (ar, ai), (br, bi) = ((x[..., 0], x[..., 1]) for x in (a, b))
    return np.stack([ar * br - sign * ai * bi, ai * br + sign * ar * bi], axis=-1)


operators(
    {
        "BiasAdd": lambda x, bias, skip: x + bias + skip,
        "BiasDropout": _bias_dropout,
        "BiasSplitGelu": _split_gelu,
        "ComplexMul": _complex_product,
        "ComplexMulConj": lambda a, b: _complex_product(a, b, -1),
        "IsAllFinite": _finite,
        "ScaledSiLU": lambda x, scale=None, *, alpha=1.0: F.silu(x * (alpha if scale is None else scale)),
        "SwiGLU": swiglu,
        "TorchEmbedding": lambda table, indices, *_: _rows(table, indices),
    },
    domain=MICROSOFT,
)


# Channels last.


def _channels_last(function: Function, count: int = 1) -> Function:
    """Return an operator of images with the channels last, which applies to the first ``count`` inputs."""

    def run(use: Use, x: Any, w: Any = None, bias: Any = None, other: Any = None) -> Any:
        front = [None if image is None else np.moveaxis(image, -1, 1) for image in (x, other)]
        operands = [front[0], w, bias, front[1]]
        return np.moveaxis(use.call(function, *operands[:count]), 1, -1)

    return run


operators(
    {
        "NhwcConv": _channels_last(windows.conv, 3),
        "NhwcFusedConv": _channels_last(fused_conv, 4),
        "NhwcMaxPool": _channels_last(windows.max_pool),
    },
    domain=MICROSOFT,
)


# Forms of ONNX's operators.

operators(
    {
        "GatherND": gather_nd,
        "GridSample": sampling.grid_sample,
        "SampleOp": lambda x: x,
        "Trilu": shaping.trilu,
    },
    domain=MICROSOFT,
)


@operator("ExpandDims", domain=MICROSOFT)
def expand_dims(x: Any, axis: Any) -> Any:
    (at,) = integers(axis, "the axis")
    return np.expand_dims(x, at)


@operator("Pad", domain=MICROSOFT)
def pad(use: Use, x: Any, pads: Any, value: Any = None, *, mode: str = "constant") -> Any:
    return shaping.pad(use, x, np.reshape(pads, (-1,)), value, mode=mode)


@operator("Range", domain=MICROSOFT, symbolic=True)
def range_(use: Use, first: Any, last: Any, step: Any = None) -> Any:
    step = np.ones((), first.dtype if constant_value(first) is not None else last.dtype) if step is None else step
    return shaping.range_(use, *[np.reshape(end, ()) for end in (first, last, step)])


@operator("Unique", domain=MICROSOFT)
def unique(x: Any) -> Any:
    y, _, places, counts = search.constant_unique(require_constant(x, "its input"), None, False)
    return y, places, counts


@operator("CDist", domain=MICROSOFT)
def distances(a: Any, b: Any, *, metric: str = "sqeuclidean") -> Any:
    if metric not in ("sqeuclidean", "euclidean"):
        raise Unsupported(f"the metric {metric!r}; there are sqeuclidean and euclidean")
    difference = np.expand_dims(a, 1) - np.expand_dims(b, 0)
    square = np.sum(difference * difference, axis=2)
    return square if metric == "sqeuclidean" else np.sqrt(square)


@operator("ConvTransposeWithDynamicPads", domain=MICROSOFT)
def conv_transpose(use: Use, x: Any, w: Any, pads: Any = None, bias: Any = None) -> Any:
    amounts = None if pads is None else integers(pads, "its third input")
    return use.with_attributes(pads=amounts).call(windows.conv_transpose, x, w, bias)


@operator("UnfoldTensor", domain=MICROSOFT)
def unfold(use: Use, x: Any, *, dim: int = -1, step: int = 1) -> Any:
    return F.window(x, (dim % x.ndim,), (use.attribute("size"),), (step,), (1,))


@operator("Inverse", domain=MICROSOFT)
def inverse(x: Any) -> Any:
    return np.linalg.inv(require_constant(x, "the matrix"))
