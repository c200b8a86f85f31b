"""Quantized arrays: to and from numbers, and products of them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import mlaot.onnx
from mlaot import passes
from mlaot.loading import trace
from mlaot.onnx import Backend

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(7)
INT8, UINT8, FLOAT = TensorProto.INT8, TensorProto.UINT8, TensorProto.FLOAT


def kind(array: Array) -> int:
    return int(helper.np_dtype_to_tensor_dtype(array.dtype))


def model(
    nodes: list[Any], inputs: dict[str, Array], outputs: dict[str, int], weights: dict[str, Array], opset: int
) -> onnx.ModelProto:
    """A model of nodes; outputs by their element types; their shapes are inferred."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, kind(a), a.shape) for name, a in inputs.items()],
        [helper.make_tensor_value_info(name, to, None) for name, to in outputs.items()],
        [numpy_helper.from_array(a, name) for name, a in weights.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return onnx.shape_inference.infer_shapes(made)


def run(
    nodes: list[Any],
    inputs: dict[str, Array],
    outputs: dict[str, int],
    weights: dict[str, Array] | None = None,
    opset: int = 25,
) -> list[Array]:
    found = Backend.run_model(model(nodes, inputs, outputs, weights or {}, opset), list(inputs.values()))
    for array, to in zip(found, outputs.values(), strict=True):
        assert kind(array) == to
    return list(found)


def reference(
    nodes: list[Any],
    inputs: dict[str, Array],
    outputs: dict[str, int],
    weights: dict[str, Array] | None = None,
    opset: int = 25,
) -> list[Array]:
    return list(ReferenceEvaluator(model(nodes, inputs, outputs, weights or {}, opset)).run(None, inputs))


def same(found: Array, expected: Array) -> None:
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))


INTEGERS = ("int8", "uint8", "int16", "uint16", "int4", "uint4", "int2", "uint2")
FLOATS = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float4_e2m1fn")


def dtype_of(name: str) -> Any:
    return np.dtype(getattr(ml_dtypes, name, name))


def test_quantize_to_every_type() -> None:
    """Rounded halves to even, saturated; by one scale, by one for each row, by one for each block of a row."""
    x = (RNG.normal(size=(4, 7)) * 60).astype(np.float32)
    x[0, :6] = [0.5, 1.5, 2.5, -0.5, 1e9, -1e9]
    weights: dict[str, Array] = {"one": np.array(1.0, np.float32), "rows": np.array([0.5, 1, 2, 8], np.float32)}
    weights["blocks"] = np.abs(RNG.normal(size=(4, 3))).astype(np.float32) + 1
    nodes, outputs = [], {}
    for name in (*INTEGERS, *FLOATS):
        to = int(helper.np_dtype_to_tensor_dtype(dtype_of(name)))
        zero = np.array([0, 1, 0, 1]).astype(dtype_of(name)) if name in INTEGERS else np.zeros(4, dtype_of(name))
        weights[f"zero_{name}"] = zero
        for how, options in (("one", {}), ("rows", {"axis": 0}), ("blocks", {"axis": 1, "block_size": 3})):
            given = ["x", how] if how != "rows" else ["x", how, f"zero_{name}"]
            y = f"{how}_{name}"
            nodes.append(helper.make_node("QuantizeLinear", given, [y], output_dtype=to, **options))
            outputs[y] = to
    args = nodes, {"x": x}, outputs, weights
    for found, expected in zip(run(*args), reference(*args), strict=True):
        same(found, expected)


def test_dequantize_every_type() -> None:
    inputs, weights, nodes, outputs = {}, {}, [], {}
    for name in (*INTEGERS, *FLOATS):
        codes = RNG.integers(-3, 4, (3, 5)).astype(np.float32)
        inputs[name] = np.abs(codes).astype(dtype_of(name)) if name.startswith("u") else codes.astype(dtype_of(name))
        weights[f"zero_{name}"] = np.array([1, 0, 1]).astype(dtype_of(name))
        if name in FLOATS:
            weights[f"zero_{name}"] = np.zeros(3, dtype_of(name))
        nodes.append(helper.make_node("DequantizeLinear", [name, "rows", f"zero_{name}"], [f"rows_{name}"], axis=-2))
        nodes.append(helper.make_node("DequantizeLinear", [name, "blocks"], [f"b_{name}"], axis=-1, block_size=2))
        outputs |= {f"rows_{name}": FLOAT, f"b_{name}": FLOAT}
    weights["rows"] = np.array([0.1, 0.2, 3], np.float32)
    weights["blocks"] = RNG.normal(size=(3, 3)).astype(np.float32)
    args = nodes, inputs, outputs, weights
    for found, expected in zip(run(*args), reference(*args), strict=True):
        same(found, expected)


def test_dequantize_int32() -> None:
    """The difference is taken in integers: float32 does not hold these."""
    x = np.array([2**30 + 1, -(2**30) - 3, 7], np.int32)
    nodes = [helper.make_node("DequantizeLinear", ["x", "scale"], ["y"])]
    (found,) = run(nodes, {"x": x}, {"y": FLOAT}, {"scale": np.array([0.5], np.float32)}, opset=13)
    same(found, x.astype(np.float32) * np.float32(0.5))


def test_scales_and_zero_points_from_inputs() -> None:
    x = (RNG.normal(size=(2, 3, 4)) * 50).astype(np.float32)
    inputs = {"x": x, "scale": np.array([0.3, 1, 7], np.float32), "zero": np.array([3, 0, 255], np.uint8)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
    ]
    args = nodes, inputs, {"q": UINT8, "y": FLOAT}
    for opset in (13, 19, 21, 25):
        for found, expected in zip(run(*args, opset=opset), reference(*args, opset=max(opset, 19)), strict=True):
            same(found, expected)


def test_narrow_scales() -> None:
    """The quotient is rounded to the scale's type, or to the one asked for; the product to the output's."""
    x = (RNG.normal(size=200) * 3).astype(np.float16)
    scale = {"scale": np.array(0.0203, np.float16)}
    quantize = helper.make_node("QuantizeLinear", ["x", "scale"], ["q"])
    exact = helper.make_node("QuantizeLinear", ["x", "scale"], ["p"], precision=FLOAT, output_dtype=INT8)
    back = helper.make_node("DequantizeLinear", ["q", "scale"], ["y"])
    wide = helper.make_node("DequantizeLinear", ["q", "scale"], ["z"], output_dtype=FLOAT)
    found = run(
        [quantize, exact, back, wide], {"x": x}, {"q": UINT8, "p": INT8, "y": TensorProto.FLOAT16, "z": FLOAT}, scale
    )
    q = np.clip(np.rint(x / scale["scale"]), 0, 255).astype(np.uint8)
    same(found[0], q)
    same(found[1], np.clip(np.rint(x.astype(np.float32) / np.float32(scale["scale"])), -128, 127).astype(np.int8))
    product = q.astype(np.float32) * scale["scale"].astype(np.float32)
    same(found[2], product.astype(np.float16))
    same(found[3], product)


def test_dynamic_quantization() -> None:
    """Quotients next to a half are not rounded twice."""
    x = (RNG.normal(size=(64, 33)) * RNG.choice([0.1, 1, 100], (64, 1))).astype(np.float32)
    nodes = [helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])]
    args = nodes, {"x": x}, {"y": UINT8, "s": FLOAT, "z": UINT8}
    for found, expected in zip(run(*args, opset=11), reference(*args, opset=11), strict=True):
        same(found, expected)


def quantized(shape: tuple[int, ...], dtype: Any) -> Array:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize(("left", "right"), [(np.uint8, np.int8), (np.uint8, np.uint8), (np.int8, np.int8)])
def test_matmul_integer_is_exact(fixed: bool, left: Any, right: Any) -> None:
    """However many terms: float32 would not hold the sum of 5000 products."""
    a, b = quantized((3, 5000), left), quantized((5000, 4), right)
    a[0], b[:, 0] = np.iinfo(left).max, np.iinfo(right).min
    b[:, 1] = np.iinfo(right).max
    zeros = {"p": np.array([3, 100, 0], left), "q": np.array([0, 7, 100, 1], right)}
    inputs, weights = {"a": a} | ({} if fixed else {"b": b}), zeros | ({"b": b} if fixed else {})
    nodes = [
        helper.make_node("MatMulInteger", ["a", "b"], ["y"]),
        helper.make_node("MatMulInteger", ["a", "b", "p", "q"], ["z"]),
    ]
    y, z = run(nodes, inputs, {"y": TensorProto.INT32, "z": TensorProto.INT32}, weights, opset=10)
    wide = a.astype(np.int64), b.astype(np.int64)
    np.testing.assert_array_equal(y, wide[0] @ wide[1])
    p, q = (v.astype(np.int64) for v in zeros.values())
    np.testing.assert_array_equal(z, (wide[0] - p[:, None]) @ (wide[1] - q))


def test_matmul_integer_of_stacks() -> None:
    inputs = {"a": quantized((2, 3, 4, 6), np.uint8), "b": quantized((3, 6, 5), np.int8), "p": np.array(9, np.uint8)}
    nodes = [helper.make_node("MatMulInteger", ["a", "b", "p"], ["y"])]
    (y,) = run(nodes, inputs, {"y": TensorProto.INT32}, opset=10)
    np.testing.assert_array_equal(y, (inputs["a"].astype(int) - 9) @ inputs["b"].astype(int))


def test_qlinear_matmul_by_rows_and_columns() -> None:
    a, b = quantized((5, 300), np.uint8), quantized((300, 7), np.int8)
    weights = {
        "b": b,
        "as": np.linspace(0.01, 0.02, 5).astype(np.float32),
        "az": quantized((5,), np.uint8),
        "bs": np.linspace(0.01, 0.03, 7).astype(np.float32),
        "bz": quantized((7,), np.int8),
        "ys": np.array(1.7, np.float32),
        "yz": np.array(-3, np.int8),
    }
    nodes = [helper.make_node("QLinearMatMul", ["a", "as", "az", "b", "bs", "bz", "ys", "yz"], ["y"])]
    (y,) = run(nodes, {"a": a}, {"y": INT8}, weights, opset=10)
    product = (a.astype(int) - weights["az"].astype(int)[:, None]) @ (b.astype(int) - weights["bz"].astype(int))
    scale = weights["as"][:, None] * weights["bs"] / weights["ys"]
    expected = np.rint(product.astype(np.float32) * scale) - 3
    np.testing.assert_array_equal(y, np.clip(expected, -128, 127))


def convolved(x: Array, w: Array, groups: int, pad: int) -> Array:
    """A convolution in int64."""
    n, _, h, k = *x.shape[:3], w.shape[2]
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    size = h + 2 * pad - k + 1
    y = np.zeros((n, w.shape[0], size, size), np.int64)
    inner, outer = w.shape[1], w.shape[0] // groups
    for o in range(w.shape[0]):
        g = o // outer
        for i in range(size):
            for j in range(size):
                part = x[:, g * inner : (g + 1) * inner, i : i + k, j : j + k]
                y[:, o, i, j] = (part * w[o]).sum(axis=(1, 2, 3))
    return y


@pytest.mark.parametrize(("channels", "groups"), [(4, 2), (32, 1), (96, 1)])
def test_qlinear_conv(channels: int, groups: int) -> None:
    """Each output channel has its scale and zero point; pads are zero points; sums that float32 does not hold."""
    x, w = quantized((1, channels, 6, 6), np.uint8), quantized((32, channels // groups, 3, 3), np.int8)
    w[0], x[0, :, :3] = 127, 255
    largest = 2**31 - 1 if channels == 96 else 10**5
    bias = RNG.integers(-largest // 2, largest // 2, 32).astype(np.int32)
    weights = {
        "w": w,
        "xs": np.array(0.02, np.float32),
        "xz": np.array(12, np.uint8),
        "ws": np.linspace(0.001, 0.003, 32).astype(np.float32),
        "wz": RNG.integers(-4, 4, 32).astype(np.int8),
        "ys": np.array([0.1], np.float32),
        "yz": np.array([100], np.uint8),
        "bias": bias,
    }
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "bias"]
    nodes = [
        helper.make_node("QLinearConv", names, ["y"], pads=[1, 1, 1, 1], group=groups),
        helper.make_node("ConvInteger", ["x", "w", "xz", "wz"], ["z"], pads=[1, 1, 1, 1], group=groups),
    ]
    y, z = run(nodes, {"x": x}, {"y": UINT8, "z": TensorProto.INT32}, weights, opset=10)
    moved = w.astype(np.int64) - weights["wz"].astype(np.int64).reshape(-1, 1, 1, 1)
    product = convolved(x.astype(np.int64) - 12, moved, groups, 1)
    np.testing.assert_array_equal(z, product)
    total = (product + bias.reshape(-1, 1, 1)).astype(np.float32)
    scale = weights["xs"] * weights["ws"].reshape(-1, 1, 1) / weights["ys"]
    np.testing.assert_array_equal(y, np.clip(np.rint(total * scale) + 100, 0, 255))


def test_long_sums_are_products_of_bytes_too() -> None:
    """In parts that float32 holds, added as integers: of 16 channels where possible, which lie together."""
    x, w = quantized((1, 128, 5, 5), np.uint8), quantized((32, 128, 3, 3), np.int8)
    a, b, last = quantized((3, 1024), np.uint8), quantized((1024, 16), np.int8), quantized((16, 32, 1, 1), np.int8)
    weights = {"w": w, "b": b, "last": last, "zero": np.uint8(7), "none": np.int8(0)}
    nodes = [
        helper.make_node("ConvInteger", ["x", "w", "zero", "none"], ["y"], pads=[1, 1, 1, 1]),
        helper.make_node("Cast", ["y"], ["low"], to=TensorProto.UINT8),
        helper.make_node("ConvInteger", ["low", "last", "zero", "none"], ["behind"]),
        helper.make_node("MatMulInteger", ["a", "b", "zero", "none"], ["z"]),
    ]
    outputs = dict.fromkeys(("y", "behind", "z"), TensorProto.INT32)
    made = model(nodes, {"x": x, "a": a}, outputs, weights, 10)
    graph = passes.run("nn", trace(mlaot.onnx.load(made))).graphs["forward"]
    products = [node for node in graph.nodes() if "contract" in node.op.name]
    assert {node.op.name for node in products} == {"contract_bytes"} and len(products) == 5
    assert {node.type.shape[-1] for node in products} == {16}
    y, behind, z = run(nodes, {"x": x, "a": a}, outputs, weights, 10)
    np.testing.assert_array_equal(y, convolved(x.astype(np.int64) - 7, w.astype(np.int64), 1, 1))
    np.testing.assert_array_equal(
        behind, convolved(y.astype(np.uint8).astype(np.int64) - 7, last.astype(np.int64), 1, 0)
    )
    np.testing.assert_array_equal(z, (a.astype(np.int64) - 7) @ b)


@pytest.mark.parametrize(("channels", "point"), [(24, 178), (32, 94), (48, (0, 255))])
def test_unsigned_weights(channels: int, point: Any) -> None:
    """Less a zero point they are beyond a signed byte; the zero point of an image is known when it is called."""
    w, second = quantized((channels, channels, 3, 3), np.uint8), quantized((32, channels, 1, 1), np.uint8)
    w[0], w[1], second[0], second[1] = 0, 255, 0, 255
    points = np.full(channels, point, np.uint8) if isinstance(point, int) else RNG.integers(*point, channels, np.uint8)
    weights = {"w": w, "wz": points, "second": second, "sz": np.uint8(119)}
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("ConvInteger", ["q", "w", "z", "wz"], ["y"], pads=[1, 1, 1, 1]),
        helper.make_node("Cast", ["y"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "s"], ["scaled"]),
        helper.make_node("DynamicQuantizeLinear", ["scaled"], ["r", "t", "zr"]),
        helper.make_node("ConvInteger", ["r", "second", "zr", "sz"], ["last"]),
    ]
    x = {"x": RNG.normal(1, 2, (1, channels, 7, 7)).astype(np.float32)}
    integers = dict.fromkeys(("q", "z", "r", "zr"), UINT8) | dict.fromkeys(("y", "last"), TensorProto.INT32)
    made = model(nodes, x, integers, weights, 11)
    graph = passes.run("nn", trace(mlaot.onnx.load(made))).graphs["forward"]
    assert {node.op.name for node in graph.nodes() if "contract" in node.op.name} == {"contract_bytes"}
    q, z, r, zr, y, last = run(nodes, x, integers, weights, 11)
    image, inner = q.astype(np.int64) - z, r.astype(np.int64) - zr
    assert z and zr, "the zero points must do something"
    np.testing.assert_array_equal(y, convolved(image, w.astype(np.int64) - points.reshape(-1, 1, 1, 1), 1, 1))
    np.testing.assert_array_equal(last, convolved(inner, second.astype(np.int64) - 119, 1, 0))


def test_few_large_weights_are_listed() -> None:
    """Two products of all others have a sum of 16 bits, on which AVX2 depends; where large ones abound, none are."""
    w, b = (RNG.integers(-60, 61, shape, np.int8) for shape in ((32, 24, 3, 3), (700, 40)))
    w[7, 2:4, 1, 2], w[31, 22:24, 0, 0], w[0, 22:24, 2, 2] = (127, 126), (5, -128), -128
    b[0:2, 3], b[:, 20], b[696:, 39] = -128, 64, (0, 127, 2, 0)  # 64 + 64 is just not too much,
    b[8, 20], b[2:4, 5] = 63, (65, 64)  # and one more is
    x, a = quantized((1, 24, 7, 7), np.uint8), quantized((3, 700), np.uint8)
    x[...], a[...], a[0] = x | 128, a | 128, 255
    weights = {"w": w, "b": b, "zero": np.uint8(7), "none": np.int8(0)}
    nodes = [
        helper.make_node("ConvInteger", ["x", "w", "zero", "none"], ["y"], pads=[1, 1, 1, 1]),
        helper.make_node("MatMulInteger", ["a", "b", "zero", "none"], ["z"]),
    ]
    outputs = dict.fromkeys(("y", "z"), TensorProto.INT32)
    graph = passes.run("nn", trace(mlaot.onnx.load(model(nodes, {"x": x, "a": a}, outputs, weights, 10)))).graphs
    listed = [node for node in graph["forward"].nodes() if node.op.name == "contract_entries"]
    counts = sorted(len(node.attrs["entries"]) // (len(node.attrs["sizes"]) + 2) for node in listed)
    assert counts == [2, 2]
    products = [node for node in graph["forward"].nodes() if node.op.name == "contract_bytes"]
    assert all(node.attrs["pairs"] for node in products)
    y, z = run(nodes, {"x": x, "a": a}, outputs, weights, 10)
    np.testing.assert_array_equal(y, convolved(x.astype(np.int64) - 7, w.astype(np.int64), 1, 1))
    np.testing.assert_array_equal(z, (a.astype(np.int64) - 7) @ b)
    b[:, ::4] = RNG.integers(90, 128, (700, 10))
    graph = passes.run("nn", trace(mlaot.onnx.load(model(nodes, {"x": x, "a": a}, outputs, weights, 10)))).graphs
    products = [node for node in graph["forward"].nodes() if node.op.name == "contract_bytes"]
    assert sorted(node.attrs["pairs"] for node in products) == [False, False, True]  # a long sum is one of two parts


@pytest.mark.parametrize("point", [0, 119, 255])
def test_unsigned_weights_of_matrices(point: int) -> None:
    a, b = quantized((5, 70), np.uint8), quantized((70, 40), np.uint8)
    weights = {"b": b, "az": np.uint8(7), "bz": np.uint8(point)}
    nodes = [helper.make_node("MatMulInteger", ["a", "b", "az", "bz"], ["y"])]
    made = model(nodes, {"a": a}, {"y": TensorProto.INT32}, weights, 10)
    assert "contract_bytes" in str(passes.run("nn", trace(mlaot.onnx.load(made))).graphs["forward"])
    (y,) = run(nodes, {"a": a}, {"y": TensorProto.INT32}, weights, 10)
    np.testing.assert_array_equal(y, (a.astype(np.int64) - 7) @ (b.astype(np.int64) - point))


def test_bytes_are_rounded_where_products_read_them() -> None:
    """Channels are last there; the image is rounded once, and no bytes are turned."""
    w, x = quantized((16, 32, 1, 1), np.int8), RNG.normal(size=(1, 32, 5, 6)).astype(np.float32)
    weights = {"w": w, "one": np.float32(1), "xs": np.float32(1 / 64), "xz": np.uint8(128)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "xs", "xz"], ["a"]),
        helper.make_node("DequantizeLinear", ["w", "one"], ["b"]),
        helper.make_node("Conv", ["a", "b"], ["y"]),
    ]
    made = model(nodes, {"x": x}, {"y": FLOAT}, weights, 25)
    made.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", FLOAT, (1, 16, 5, 6)))
    text = str(passes.run("nn", trace(mlaot.onnx.load(made))).graphs["forward"])
    assert text.count("quantize(") == text.count("contract_bytes(") == 1 and " = cast(" not in text
    codes = np.clip(np.rint(x * 64) + 128, 0, 255) - 128
    (y,) = run(nodes, {"x": x}, {"y": FLOAT}, weights)
    np.testing.assert_array_equal(y, np.einsum("nchw,oc->nohw", codes, w[:, :, 0, 0].astype(np.float64)) / 64)


def test_quantized_weights_of_a_layer() -> None:
    """What is quantized in the file alone is computed while importing: int8 by columns, 4 bits by blocks."""
    x, w = RNG.normal(size=(5, 16)).astype(np.float32), quantized((16, 8), np.int8)
    short = RNG.integers(-8, 8, (8, 4)).astype(ml_dtypes.int4)
    weights = {"w": w, "v": short, "ws": RNG.random(8).astype(np.float32), "vs": RNG.random((2, 4)).astype(np.float32)}
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "ws"], ["a"]),
        helper.make_node("DequantizeLinear", ["v", "vs"], ["b"], axis=0, block_size=4),
        helper.make_node("MatMul", ["x", "a"], ["h"]),
        helper.make_node("MatMul", ["h", "b"], ["y"]),
    ]
    (y,) = run(nodes, {"x": x}, {"y": FLOAT}, weights)
    a = w * weights["ws"].astype(np.float64)
    b = short.astype(np.float64) * np.repeat(weights["vs"].astype(np.float64), 4, axis=0)
    np.testing.assert_allclose(y, x @ a @ b, rtol=2e-4, atol=0.05)


def test_mistakes() -> None:
    x = {"x": np.zeros((2, 6), np.float32)}
    blocks = [helper.make_node("QuantizeLinear", ["x", "s"], ["y"], axis=1, block_size=2)]
    with pytest.raises(Exception, match="2 blocks of 2 do not make 6 elements"):
        run(blocks, x, {"y": UINT8}, {"s": np.ones((2, 2), np.float32)})
    axis = [helper.make_node("QuantizeLinear", ["x", "s"], ["y"], axis=3)]
    with pytest.raises(Exception, match="there is no axis 3 in an array of 2 dimensions"):
        run(axis, x, {"y": UINT8}, {"s": np.ones(6, np.float32)})
