"""onnxruntime's own operators, against onnxruntime."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from mlaot.errors import MlaotError
from mlaot.onnx import Backend
from mlaot.onnx.declare import trace_model

DRAW = np.random.default_rng(0)


def floats(*shape: int) -> Any:
    return DRAW.standard_normal(shape, np.float32)


def codes(*shape: int, dtype: type = np.uint8) -> Any:
    info = np.iinfo(dtype)
    return DRAW.integers(info.min, info.max + 1, shape).astype(dtype)


def steps(*shape: int) -> Any:
    return (0.01 + np.abs(DRAW.standard_normal(shape)) / 50).astype(np.float32)


SCALE, OTHER, RESULT = (np.float32(s) for s in (0.1037, 0.0489, 0.2111))
ZERO, MIDDLE, END = (np.uint8(z) for z in (3, 128, 60))
NONE = np.zeros(1, np.int8)
NONE5, SUMS = np.zeros(5, np.int8), DRAW.integers(-3000, 3000, 5).astype(np.int32)
LSTM = (
    *(codes(1, 6, 20, dtype=np.int8), codes(1, 5, 20, dtype=np.int8), floats(1, 40), None, None, None, None),
    *(steps(1), NONE, steps(1), NONE),
)

# The operator, its attributes, its inputs of which the first so many are given by the call, how many outputs.
CASES: dict[str, tuple[dict[str, Any], tuple[Any, ...], int, int]] = {
    "DynamicQuantizeMatMul": ({}, (floats(3, 8), codes(8, 5, dtype=np.int8), steps(5), None, floats(5)), 1, 1),
    "MatMulIntegerToFloat": (
        {},
        (codes(3, 8), codes(8, 5, dtype=np.int8), SCALE, steps(5), MIDDLE, None, floats(5)),
        1,
        1,
    ),
    "QGemm": (
        {"alpha": 0.5, "transA": 1, "transB": 1},
        (codes(8, 3), SCALE, MIDDLE, codes(5, 8, dtype=np.int8), steps(5), NONE5, SUMS, RESULT, END),
        1,
        1,
    ),
    "DynamicQuantizeLSTM": ({"hidden_size": 5}, (floats(4, 3, 6), *LSTM), 1, 3),
    "QLinearAdd": ({}, (codes(3, 4), SCALE, ZERO, codes(3, 4), OTHER, MIDDLE, RESULT, END), 1, 1),
    "QLinearMul": ({}, (codes(3, 4), SCALE, ZERO, codes(3, 4), OTHER, MIDDLE, np.float32(3), END), 1, 1),
    "QLinearSigmoid": ({}, (codes(3, 4), OTHER, MIDDLE, np.float32(1 / 256), np.uint8(0)), 1, 1),
    "QLinearLeakyRelu": ({"alpha": 0.1}, (codes(3, 4), OTHER, MIDDLE, OTHER, END), 1, 1),
    "QLinearGlobalAveragePool": ({}, (codes(2, 3, 4, 4), OTHER, MIDDLE, np.float32(0.02), END), 1, 1),
    "FusedMatMul": ({"transA": 1, "transB": 1, "alpha": 0.5}, (floats(2, 5, 3), floats(2, 4, 5)), 2, 1),
    "FusedConv": (
        {"activation": "LeakyRelu", "activation_params": [0.2], "kernel_shape": [3, 3]},
        (floats(1, 2, 5, 5), floats(3, 2, 3, 3), floats(3)),
        1,
        1,
    ),
    "FusedGemm": ({"activation": "Relu"}, (floats(2, 3), floats(3, 4), floats(4)), 1, 1),
    "Gelu": ({}, (floats(3, 4),), 1, 1),
    "BiasGelu": ({}, (floats(3, 4), floats(4)), 1, 1),
    "FastGelu": ({}, (floats(3, 4), floats(4)), 1, 1),
    "QuickGelu": ({"alpha": 1.5}, (floats(3, 4),), 1, 1),
    "SkipLayerNormalization": ({}, (floats(2, 3, 4), floats(2, 3, 4), floats(4), floats(4), floats(4)), 2, 1),
    "QLinearConcat": ({"axis": 1}, (SCALE, ZERO, codes(2, 3), OTHER, MIDDLE, codes(2, 2), SCALE, END), 0, 1),
}


def gelu(x: Any) -> Any:
    return x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def standardized(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)


# The operator, its attributes, its inputs, all of which the call gives, and what its first output is.
FORMULAS: dict[str, tuple[dict[str, Any], tuple[Any, ...], Callable[..., Any]]] = {
    "QGemm": (
        {"transB": 1},
        (codes(3, 8), SCALE, MIDDLE, codes(5, 8, dtype=np.int8), OTHER, np.int8(0), SUMS),
        lambda a, s, z, b, t, _, sums: ((a - z) @ b.T + sums) * (s * t),
    ),
    "FusedMatMul": ({"transB": 1, "alpha": 0.5}, (floats(2, 5), floats(4, 5)), lambda a, b: a @ b.T / 2),
    "BiasGelu": ({}, (floats(3, 4), floats(4)), lambda x, bias: gelu(x + bias)),
    "QuickGelu": ({}, (floats(3, 4),), lambda x: x / (1 + np.exp(-1.702 * x))),
    "SkipLayerNormalization": (
        {},
        (floats(2, 3, 4), floats(2, 3, 4), floats(4)),
        lambda x, skip, scale: standardized(x + skip) * scale,
    ),
}


HEADS, GROUPS, SIZE = 4, 2, 16


def decoder(is_shared: bool) -> Any:
    """Attention with a cache, as the builder of language models writes it: lengths by the mask, all sizes open.

    ``is_shared``: the cache has room for the longest text, and keys are written into it.
    """
    room = ("room", "room") if is_shared else ("past", "total")
    width = (HEADS + 2 * GROUPS) * SIZE
    waves = np.outer(np.arange(32), 1 / 100 ** (np.arange(SIZE // 2) / 8))
    held = {
        **{"one": np.array([1], np.int64), "second": np.array(1, np.int64)},
        **{"cos": np.cos(waves).astype(np.float32), "sin": np.sin(waves).astype(np.float32)},
    }
    inputs = ["qkv", "", "", "keys", "values", "lengths", "longest", "cos", "sin"]
    form = {"num_heads": HEADS, "kv_num_heads": GROUPS, "do_rotary": 1}
    nodes = [
        helper.make_node("ReduceSum", ["mask", "one"], ["sum"], keepdims=0),
        helper.make_node("Sub", ["sum", "one"], ["less"]),
        helper.make_node("Cast", ["less"], ["lengths"], to=6),
        helper.make_node("Shape", ["mask"], ["shape"]),
        helper.make_node("Gather", ["shape", "second"], ["size"]),
        helper.make_node("Cast", ["size"], ["longest"], to=6),
        helper.make_node("GroupQueryAttention", inputs, ["y", "k", "v"], domain="com.microsoft", **form),
    ]
    shapes = {
        **{"qkv": ["batch", "time", width], "mask": ["batch", "total"]},
        **{name: ["batch", GROUPS, room[0], SIZE] for name in ("keys", "values")},
    }
    made = {"y": ["batch", "time", HEADS * SIZE], **{n: ["batch", GROUPS, room[1], SIZE] for n in "kv"}}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, 7 if n == "mask" else 1, s) for n, s in shapes.items()],
        [helper.make_tensor_value_info(n, 1, s) for n, s in made.items()],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return Backend.prepare(helper.make_model(graph, opset_imports=opsets, ir_version=10))


@pytest.mark.parametrize("is_shared", [False, True])
def test_cache(is_shared: bool) -> None:
    """A text read at once, one token after the other, or beside a longer one: the same answers, keys and values."""
    compiled, rows, room = decoder(is_shared), 5, 8
    qkv = floats(2, rows, (HEADS + 2 * GROUPS) * SIZE)
    empty = np.zeros((2, GROUPS, room if is_shared else 0, SIZE), np.float32)
    whole, *kept = compiled.run([qkv, np.ones((2, rows), np.int64), empty, empty])
    cache: Any = (empty, empty)
    for i in range(rows):
        step, *cache = compiled.run([qkv[:, i : i + 1], np.ones((2, i + 1), np.int64), *cache])
        np.testing.assert_allclose(step[:, 0], whole[:, i], rtol=1e-5, atol=1e-6)
    for a, b in zip(cache, kept, strict=True):
        assert a.shape == (2, GROUPS, room if is_shared else rows, SIZE)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    short = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], np.int64)
    padded = compiled.run([qkv, short, empty, empty])[0]
    np.testing.assert_allclose(padded[0], whole[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(padded[1, :3], whole[1, :3], rtol=1e-5, atol=1e-6)
    last = qkv[:, :1], np.ones((2, room + 1), np.int64), *cache
    with pytest.raises(ValueError, match="the longest text must have at most room tokens" if is_shared else "expected"):
        compiled.run(last)


def test_layouts_of_one_machine() -> None:
    """What onnxruntime writes for one machine is refused with the way out."""
    model, given = node("Gelu", {}, (floats(2, 3),), 1, 1)
    model.graph.node[0].domain, model.opset_import[1].domain = "com.microsoft.nchwc", "com.microsoft.nchwc"
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("out0", 1, [2, 3]))
    with pytest.raises(NotImplementedError, match="save the model at the level ORT_ENABLE_EXTENDED"):
        Backend.prepare(model).run(list(given.values()))


@pytest.mark.parametrize(
    ("op", "attributes", "inputs", "message"),
    [
        ("BiasAdd", {}, (floats(2, 3), floats(3)), "BiasAdd"),
        ("FusedMatMul", {}, (floats(2, 3), None), "an input that it needs is left out"),
        ("MultiHeadAttention", {"num_heads": 0}, (floats(1, 2, 4),) * 3, "num_heads must be positive, got 0"),
        ("MultiHeadAttention", {"num_heads": 2}, (floats(1, 2, 4),), "it needs keys and values"),
        (
            "Attention",
            {"num_heads": 2, "do_rotary": 1},
            (floats(1, 2, 4), floats(4, 12)),
            "it has the attribute do_rotary",
        ),
        ("Attention", {"num_heads": 2}, (floats(1, 2, 4), floats(4, 13)), "13 columns are not parts of"),
        (
            "GroupNorm",
            {"groups": 3, "activation": 0},
            (floats(1, 2, 2, 4), floats(4), floats(4)),
            "4 channels are not 3",
        ),
        ("GatherND", {}, (floats(2, 3), np.zeros((2, 3), np.int64)), "3 indices for 2 axes"),
        ("CausalConvWithState", {}, (floats(1, 1, 2), floats(1, 1, 300)), "a kernel of 300 places"),
        (
            "MoE",
            {"k": 5},
            (floats(2, 4), floats(2, 3), floats(3, 5, 4), None, floats(3, 4, 5)),
            "an integer k from 0 to 3",
        ),
        (
            "MatMulNBits",
            {"K": 32, "N": 2, "bits": 3, "block_size": 32},
            (floats(1, 32), floats(2, 1), floats(2)),
            "of 3 bits",
        ),
    ],
)
def test_refused(op: str, attributes: dict[str, Any], inputs: Any, message: str) -> None:
    """In one line, which names the node and what is wrong."""
    model, _ = node(op, attributes, inputs, len(inputs), 1)
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("out0", 1, [None]))
    with pytest.raises(MlaotError, match=message) as raised:
        trace_model(model, {})
    assert "\n" not in str(raised.value) and "node 'out0'" in str(raised.value)


def node(op: str, attributes: dict[str, Any], inputs: Any, count: int, outputs: int) -> tuple[Any, dict[str, Any]]:
    """A model of one node, and what a call gives it."""
    names = ["" if value is None else f"in{i}" for i, value in enumerate(inputs)]
    arrays = {name: np.asarray(value) for name, value in zip(names, inputs, strict=True) if name}
    given = {name: arrays[name] for name in (names[:count] if count else ["in2", "in5"]) if name}
    made = [f"out{i}" for i in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op, names, made, domain="com.microsoft", **attributes)],
        "g",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in given.items()],
        [helper.make_empty_tensor_value_info(name) for name in made],
        [numpy_helper.from_array(array, name) for name, array in arrays.items() if name not in given],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), given


@pytest.mark.parametrize("op", CASES)
def test_operator(op: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    model, given = node(op, *CASES[op])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # with more, DynamicQuantizeLSTM takes the range of each thread's rows
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    expected = session.run(None, given)
    for output, value in zip(model.graph.output, expected, strict=True):
        kind = helper.np_dtype_to_tensor_dtype(value.dtype)
        output.CopyFrom(helper.make_tensor_value_info(output.name, kind, value.shape))
    for got, want in zip(Backend.prepare(model).run(list(given.values())), expected, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-6 * np.abs(want).max())


@pytest.mark.parametrize("op", FORMULAS)
def test_formula(op: str) -> None:
    attributes, inputs, formula = FORMULAS[op]
    expected = formula(*[x.astype(np.float64) for x in inputs])
    model, given = node(op, attributes, inputs, len(inputs), 1)
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("out0", 1, expected.shape))
    (got,) = Backend.prepare(model).run(list(given.values()))
    np.testing.assert_allclose(got, expected, rtol=2e-6, atol=2e-6)
