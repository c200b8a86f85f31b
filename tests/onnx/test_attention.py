"""Attention and its kin, compiled, against ONNX's reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from mlaot.errors import MlaotError
from mlaot.onnx import Backend
from mlaot.onnx.declare import trace_model

PREVIEW = "ai.onnx.preview"
rng = np.random.default_rng(7)


def some(*shape: int, dtype: Any = np.float32) -> Any:
    return rng.standard_normal(shape).astype(dtype)


def model(
    op: str, names: list[str], given: dict[str, Any], outputs: int, attrs: dict[str, Any], **options: Any
) -> onnx.ModelProto:
    """One node; ``shapes`` replaces those of inputs, ``constant`` names initializers."""
    shapes, constant = options.get("shapes", {}), options.get("constant", "").split()
    made = [f"out{i}" for i in range(outputs)]
    node = helper.make_node(op, [n if n in given else "" for n in names], made, options.get("name"), **attrs)
    node.domain = options.get("domain", "")
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), shapes.get(n, x.shape))
        for n, x in given.items()
        if n not in constant
    ]
    first = next(iter(given.values()))
    element = helper.np_dtype_to_tensor_dtype(first.dtype)
    out = [helper.make_tensor_value_info(n, element, [None] * options.get("rank", 4)) for n in made]
    out[0] = helper.make_tensor_value_info(made[0], element, [None] * first.ndim)
    weights = [onnx.numpy_helper.from_array(given[n], n) for n in constant]
    opsets = [helper.make_opsetid("", options.get("opset", 24)), helper.make_opsetid(PREVIEW, 1)]
    return helper.make_model(helper.make_graph([node], "m", infos, out, weights), ir_version=10, opset_imports=opsets)


def same(made: onnx.ModelProto, given: dict[str, Any], rtol: float = 2e-5, atol: float = 2e-6) -> list[Any]:
    """What the compiled model gives, which is what the reference gives."""
    names = [info.name for info in made.graph.input]
    got = Backend.prepare(made).run([given[n] for n in names])
    want = ReferenceEvaluator(made).run(None, {n: given[n] for n in names})
    for a, b in zip(got, want, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)
    return list(got)


NAMES = ["q", "k", "v", "mask", "past_k", "past_v", "lengths"]


def attention(given: dict[str, Any], outputs: int = 1, **options: Any) -> onnx.ModelProto:
    attrs = {k: v for k, v in options.items() if k not in ("shapes", "constant", "opset")}
    rest = {k: v for k, v in options.items() if k in ("shapes", "constant", "opset")}
    names = NAMES[: 1 + max(NAMES.index(n) for n in given)]
    return model("Attention", names, given, outputs, attrs, **rest)


def qkv(heads: int = 4, shared: int = 4, rows: int = 5, columns: int = 7, dtype: Any = np.float32) -> dict[str, Any]:
    shapes = {"q": (2, heads, rows, 8), "k": (2, shared, columns, 8), "v": (2, shared, columns, 6)}
    return {n: some(*s, dtype=dtype) for n, s in shapes.items()}


@pytest.mark.parametrize("shared", [1, 2, 4])
def test_heads_that_share(shared: int) -> None:
    given = qkv(4, shared)
    made = attention(given, is_causal=1)
    same(made, given)
    graph = trace_model(made, {}).graph
    widest = max(np.prod(node.type.shape) for node in graph.nodes() if node.op.name in ("broadcast", "concat", "take"))
    assert widest <= 2 * 4 * 5 * 7 * 8 // 2, "keys and values are not repeated"


@pytest.mark.parametrize("opset", [23, 24])
@pytest.mark.parametrize("kind", [np.bool_, np.float32])
@pytest.mark.parametrize("shape", [(5, 7), (4, 5, 7), (2, 1, 5, 7)])
def test_masks(shape: tuple[int, ...], kind: Any, opset: int) -> None:
    mask = rng.random(shape) < 0.7 if kind is np.bool_ else some(*shape)
    mask[..., 2, :] = False if kind is np.bool_ else -np.inf  # a query that may attend to nothing
    given = {**qkv(), "mask": mask}
    y, _, _, weights = same(attention(given, 4, opset=opset, is_causal=1, qk_matmul_output_mode=3), given)
    assert (y[..., 2, :] == 0).all() and (weights[..., 2, :] == 0).all()


def test_a_constant_mask_of_zeros_and_infinities_only_chooses() -> None:
    mask = np.where(np.tri(5, 7, 2), 0, -np.inf).astype(np.float32)
    given = {**qkv(), "mask": mask}
    made = attention(given, constant="mask")
    assert "add" not in [node.op.name for node in trace_model(made, {}).graph.nodes()]
    same(made, given)


def test_a_mask_that_is_too_short_hides_the_rest() -> None:
    for mask in (some(5, 4), rng.random((5, 4)) < 0.8):
        mask[:, 0] = True
        given = {**qkv(), "mask": mask}
        same(attention(given, opset=24), given)


def test_keys_and_values_of_steps_before() -> None:
    given = {**qkv(4, 2, 1, 1), "past_k": some(2, 2, 9, 8), "past_v": some(2, 2, 9, 6)}
    _, k, v = same(attention(given, 3, is_causal=1), given)
    assert k.shape[2] == v.shape[2] == 10


def test_steps_before_of_open_number() -> None:
    given = {**qkv(4, 2, 3, 3), "past_k": some(2, 2, 9, 8), "past_v": some(2, 2, 9, 6)}
    shapes = {
        **{"q": ("b", 4, "s", 8), "k": ("b", 2, "s", 8), "v": ("b", 2, "s", 6)},
        **{"past_k": ("b", 2, "past", 8), "past_v": ("b", 2, "past", 6)},
    }
    made = attention(given, 3, is_causal=1, shapes=shapes)
    compiled = Backend.prepare(made)
    for past in (9, 0):
        cut = {n: x[:, :, :past] if n.startswith("past") else x for n, x in given.items()}
        want = ReferenceEvaluator(attention(cut, 3, is_causal=1)).run(None, cut)
        for a, b in zip(compiled.run(list(cut.values())), want, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


def test_lengths_of_a_cache_outside() -> None:
    given = {**qkv(4, 2, 3, 7), "lengths": np.array([7, 2])}
    same(attention(given, is_causal=1), given)
    same(attention(given), given)


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_what_is_shown_of_the_scores(mode: int) -> None:
    given = {**qkv(), "mask": some(5, 7)}
    softcap = 1.5 if mode else 0.0  # the reference caps what it shows in mode 0
    same(attention(given, 4, softcap=softcap, scale=0.4, qk_matmul_output_mode=mode), given)


def test_scores_are_shown_before_they_are_capped() -> None:
    given = qkv()
    shown = Backend.prepare(attention(given, 4, softcap=1.5, scale=0.25)).run(list(given.values()))[3]
    np.testing.assert_allclose(shown, given["q"] @ np.swapaxes(given["k"], -1, -2) / 4, rtol=1e-5, atol=1e-5)


def test_three_axes() -> None:
    given = {"q": some(2, 5, 32), "k": some(2, 7, 16), "v": some(2, 7, 12)}
    same(attention(given, q_num_heads=4, kv_num_heads=2), given)


@pytest.mark.parametrize("precision", [1, 10, 11])
def test_precision_of_the_softmax(precision: int) -> None:
    given = qkv()
    same(attention(given, softmax_precision=precision), given, *((2e-3, 2e-3) if precision == 10 else (2e-5, 2e-6)))


def test_a_window() -> None:
    given = {**qkv(4, 2, 3, 3), "past_k": some(2, 2, 9, 8), "past_v": some(2, 2, 9, 6)}
    made = attention(given, 3, opset=25 + 3, left_window_size=4, right_window_size=1)
    same(made, given)


def test_float16_is_rounded_once() -> None:
    given = qkv(dtype=np.float16)
    (y,) = Backend.prepare(attention(given)).run(list(given.values()))
    q, k, v = (x.astype(np.float64) for x in given.values())
    scale = float(np.float16(8**-0.25)) ** 2
    e = np.exp(q @ np.swapaxes(k, -1, -2) * scale)
    want = (e / e.sum(-1, keepdims=True) @ v).astype(np.float16)
    assert y.dtype == np.float16
    assert np.mean(y == want) > 0.99 and np.abs(y - want).max() <= np.spacing(np.abs(want).max())


def test_float16_softmax_hands_on_what_it_computed() -> None:
    x = some(4, 100, dtype=np.float16)
    made = model("Softmax", ["x"], {"x": x}, 1, {}, opset=13)
    (y,) = Backend.prepare(made).run([x])
    e = np.exp(x.astype(np.float64))
    assert np.mean(y == (e / e.sum(-1, keepdims=True)).astype(np.float16)) > 0.99


@pytest.mark.parametrize(
    ("attrs", "match"),
    [({}, "heads of queries cannot share"), ({"softmax_precision": 99}, "no element type 99")],
)
def test_errors(attrs: dict[str, Any], match: str) -> None:
    given = qkv(4, 4 if attrs else 3)
    with pytest.raises(MlaotError, match=match):
        Backend.prepare(attention(given, **attrs))


def test_three_axes_need_heads() -> None:
    with pytest.raises(MlaotError, match="need q_num_heads"):
        Backend.prepare(attention({"q": some(2, 5, 32), "k": some(2, 7, 16), "v": some(2, 7, 12)}))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_flex_attention(dtype: Any) -> None:
    body = onnx.parser.parse_graph("g (float[b, h, l, s] x) => (float[b, h, l, s] y) { y = Tanh(x) }")
    halves = onnx.parser.parse_graph("g (float[b, h, l, s] x) => (float[b, h, l, s] y) { y = Mul(x, x) }")
    for graph in (body, halves):
        for info in (*graph.input, *graph.output):
            info.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    given = qkv(4, 2, dtype=dtype)
    made = model("FlexAttention", NAMES[:3], given, 1, {"score_mod": body, "prob_mod": halves}, domain=PREVIEW)
    same(made, given)


ROTARY = ["x", "cos", "sin", "positions"]


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("turned", [0, 4])
def test_rotary_embedding(turned: int, interleaved: int) -> None:
    width = (turned or 8) // 2
    given = {"x": some(2, 3, 5, 8), "cos": some(20, width), "sin": some(20, width)}
    given["positions"] = rng.integers(0, 20, (2, 5))
    attrs = {"interleaved": interleaved, "rotary_embedding_dim": turned}
    same(model("RotaryEmbedding", ROTARY, given, 1, attrs), given)


def test_rotary_embedding_of_three_axes() -> None:
    given = {"x": some(2, 5, 24), "cos": some(2, 5, 4), "sin": some(2, 5, 4)}
    same(model("RotaryEmbedding", ROTARY[:3], given, 1, {"num_heads": 3}), given)


LINEAR = ["q", "k", "v", "past", "decay", "beta"]


@pytest.mark.parametrize("steps", [1, 6])
@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_linear_attention(rule: str, steps: int) -> None:
    given = {"q": some(2, steps, 32), "k": some(2, steps, 16), "v": some(2, steps, 12), "past": some(2, 2, 8, 6)}
    if "gated" in rule:
        given["decay"] = -np.abs(some(2, steps, 16 if rule == "gated" else 2))
    if "delta" in rule:
        given["beta"] = np.abs(some(2, steps, 2))
        given["k"] /= 4
    made = model(
        "LinearAttention", LINEAR, given, 2, {"q_num_heads": 4, "kv_num_heads": 2, "update_rule": rule}, opset=27
    )
    same(made, given, 1e-4, 1e-5)


@pytest.mark.parametrize(("kernel", "steps"), [(1, 4), (4, 2), (3, 9)])
def test_causal_convolution(kernel: int, steps: int) -> None:
    given = {"x": some(2, 5, steps), "w": some(5, 1, kernel), "b": some(5), "past": some(2, 5, kernel - 1)}
    made = model("CausalConvWithState", list(given), given, 2, {"activation": "silu"}, opset=27, rank=3)
    same(made, given)
