"""Floats of 16, 8 and 4 bits, integers of 4 and 2 bits: conversions, bits, moves, and arithmetic in bfloat16."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from mlaot.onnx import Backend

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(5)
FLOAT, BF16 = TensorProto.FLOAT, TensorProto.BFLOAT16
bfloat16 = np.dtype(ml_dtypes.bfloat16)
SHORT = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float4_e2m1fn")


def kind(dtype: Any) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def run(
    nodes: list[Any], inputs: dict[str, Array], outputs: dict[str, Any], weights: dict[str, Array] | None = None
) -> list[Array]:
    """The outputs of a model, given by their dtypes."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, kind(a.dtype), a.shape) for name, a in inputs.items()],
        [helper.make_tensor_value_info(name, kind(dtype), None) for name, dtype in outputs.items()],
        [numpy_helper.from_array(a, name) for name, a in (weights or {}).items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 26)])
    found = Backend.run_model(onnx.shape_inference.infer_shapes(made), list(inputs.values()))
    for array, dtype in zip(found, outputs.values(), strict=True):
        assert array.dtype == dtype
    return list(found)


def cast(x: Array, *targets: Any, **options: Any) -> list[Array]:
    nodes = [helper.make_node("Cast", ["x"], [f"y{i}"], to=kind(t), **options) for i, t in enumerate(targets)]
    return run(nodes, {"x": x}, {f"y{i}": np.dtype(t) for i, t in enumerate(targets)})


def same_bits(found: Array, expected: Array) -> None:
    """All but the payload and sign of nan."""
    assert found.dtype == expected.dtype
    nan = np.isnan(expected.astype(np.float32))
    assert (np.isnan(found.astype(np.float32)) == nan).all()
    bits = f"uint{8 * found.dtype.itemsize}"
    assert (found.view(bits) == expected.view(bits))[~nan].all()


def awkward(dtype: Any) -> Array:
    """All numbers of a short float, the halves between them and the neighbours of these; random bits, inf and nan."""
    grid = np.unique(np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32))
    grid = grid[np.isfinite(grid)]
    halves = (grid[1:] + grid[:-1]) / 2
    near = np.concatenate([np.nextafter(halves, np.float32(s)) for s in (-np.inf, np.inf)])
    bits = RNG.integers(0, 2**32, 5000, np.uint32).view(np.float32)
    beyond = np.abs(grid).max() * np.array([1.03125, 1.0625, 1.25, 1.5, 2], np.float32)
    return np.concatenate([grid, halves, near, bits, beyond, -beyond, np.array([np.inf, -np.inf, np.nan], np.float32)])


@pytest.mark.parametrize("name", SHORT)
def test_floats_become_short(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name))
    x = awkward(dtype)
    with np.errstate(all="ignore"):
        exact, largest = x.astype(dtype), float(ml_dtypes.finfo(dtype).max)
        saturated = np.clip(x, -largest, largest).astype(dtype)
    if name != "float4_e2m1fn":  # which has nothing beyond its largest number
        same_bits(cast(x, dtype, saturate=0)[0], exact)
    (found,) = cast(x, dtype)
    if name == "float4_e2m1fn":
        found, saturated = found[~np.isnan(x)], saturated[~np.isnan(x)]
    same_bits(found, saturated)


@pytest.mark.parametrize("name", (*SHORT, "float8_e8m0fnu"))
def test_short_floats_become_numbers(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name))
    codes = np.arange(16 if name == "float4_e2m1fn" else 256, dtype=np.uint8).view(dtype)
    targets = (np.float32, np.float16, np.float64, bfloat16, bool)
    with np.errstate(all="ignore"):
        for found, target in zip(cast(codes, *targets), targets, strict=True):
            expected = codes.astype(np.float32).astype(target)
            np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))


def test_doubles_are_rounded_once() -> None:
    """A double next to a half is not the half that float32 would make of it."""
    halves = np.array([1.0625, 1.1875, 17.0, 0.017578125])  # between neighbours of e4m3
    x = np.concatenate([halves, halves * (1 + 2.0**-40), halves * (1 - 2.0**-40), [1e300, -1e-300]])
    (found,) = cast(x, ml_dtypes.float8_e4m3fn)
    expected = [1, 1.25, 16, 0.017578125, 1.125, 1.25, 18, 0.01953125, 1, 1.125, 16, 0.015625, 448, -0.0]
    grid = np.arange(127, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    for value, got in zip(x[:12], found[:12].astype(np.float64), strict=True):
        assert abs(got - value) == np.abs(grid - value).min(), value
    assert found[12:].astype(np.float64).tolist() == expected[12:]


@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
def test_powers_of_two(mode: str) -> None:
    """The exponent: rounded as asked for, also where float32 has no normal numbers."""
    dtype = np.dtype(ml_dtypes.float8_e8m0fnu)
    powers = 2.0 ** np.arange(-127, 128, dtype=np.float64)
    x = np.concatenate([powers, powers[:-1] * 1.25, powers[:-1] * 1.5, powers[:-1] * 1.75]).astype(np.float32)
    low = np.repeat(np.arange(255)[None], 4, axis=0)[:, :-1]
    more = {"up": [1, 1, 1], "down": [0, 0, 0], "nearest": [0, 1, 1]}[mode]
    expected = np.concatenate([np.arange(255), *[row + m for row, m in zip(low, more, strict=False)]])
    (found,) = cast(x, dtype, round_mode=mode)
    assert found.view(np.uint8).tolist() == expected.tolist()
    edges = np.array([0, 1e-45, np.inf, np.nan], np.float32)
    assert cast(edges, dtype, round_mode=mode)[0].view(np.uint8).tolist() == [0, 0, 254, 255]
    assert cast(edges, dtype, round_mode=mode, saturate=0)[0].view(np.uint8).tolist() == [255, 255, 255, 255]


def test_small_integers() -> None:
    """The low bits; and all that there are become numbers."""
    x = np.arange(-20, 20)
    for name, bits in (("int4", 4), ("uint4", 4), ("int2", 2), ("uint2", 2)):
        dtype = np.dtype(getattr(ml_dtypes, name))
        low = x & (2**bits - 1)
        expected = low - 2**bits * (low >> (bits - 1)) if name.startswith("i") else low
        for source in (np.int64, np.float32, np.float16):
            assert cast(x.astype(source), dtype)[0].astype(int).tolist() == expected.tolist()
        back = cast(expected.astype(dtype), np.float32, np.int8, np.uint8, bool, ml_dtypes.float8_e4m3fn)
        for found in back:
            wanted = expected.astype(found.dtype) if found.dtype != np.uint8 else expected & 255
            np.testing.assert_array_equal(found.astype(np.float32), wanted.astype(np.float32))


def test_floats_become_integers() -> None:
    """Without the fraction; beyond the range by the low bits, as most runtimes have it."""
    x = np.array([1.9, -1.9, 255.0, 256.0, -1.0, 300.5, -129.0, 70000.0], np.float32)
    found = cast(x, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.int64, np.uint32)
    for got in found:
        np.testing.assert_array_equal(got, np.trunc(x).astype(np.int64).astype(got.dtype))
    assert cast(np.array([0.0, -0.0, 0.1, np.nan], np.float32), bool)[0].tolist() == [False, False, True, True]


BITS = {
    "float32": ("int32", "uint32"),
    "float64": ("int64", "uint64"),
    "float16": ("int16", "uint16", "bfloat16"),
    "bfloat16": ("uint16", "float16"),
    "int16": ("bfloat16", "float16", "uint16"),
    "int8": ("uint8", "float8_e5m2", "bool"),
    "float8_e4m3fn": ("uint8", "int8", "float8_e5m2"),
}


def named(name: str) -> Any:
    return np.dtype(getattr(ml_dtypes, name, name))


def test_bits() -> None:
    for name, targets in BITS.items():
        source = named(name)
        x = RNG.integers(0, 120, 8 * source.itemsize, np.uint8).view(source)  # no nan, whose bits may change
        outputs = {f"y{i}": named(t) for i, t in enumerate(targets)}
        nodes = [helper.make_node("BitCast", ["x"], [y], to=kind(dtype)) for y, dtype in outputs.items()]
        for found, dtype in zip(run(nodes, {"x": x}, outputs), outputs.values(), strict=True):
            assert found.tobytes() == (x.view(dtype) if dtype.kind != "b" else x != 0).tobytes(), (name, dtype)
    with pytest.raises(NotImplementedError, match="the bits of INT4 cannot be taken for another type"):
        run(
            [helper.make_node("BitCast", ["x"], ["y"], to=kind(ml_dtypes.uint4))],
            {"x": np.zeros(2, ml_dtypes.int4)},
            {"y": np.dtype(ml_dtypes.uint4)},
        )


@pytest.mark.parametrize("name", ["float8_e5m2", "int4", "uint2", "float4_e2m1fn"])
def test_codes_are_moved(name: str) -> None:
    dtype = named(name)
    x = RNG.integers(0, 2, (2, 6)).astype(np.float32).astype(dtype)
    w = RNG.integers(0, 2, (1, 6)).astype(np.float32).astype(dtype)
    weights = {
        "w": w,
        "shape": np.array([3, -1]),
        "pads": np.array([0, 1, 1, 0]),
        "rows": np.array([2, 0]),
        "mask": np.array([True, False] * 3),
        "axis": np.array([0]),
        "one": np.array(1.0, np.float32).astype(dtype),
    }
    nodes = [
        helper.make_node("Concat", ["x", "w"], ["a"], axis=0),
        helper.make_node("Reshape", ["a", "shape"], ["b"]),
        helper.make_node("Transpose", ["b"], ["c"]),
        helper.make_node("Pad", ["b", "pads", "one"], ["d"]),
        helper.make_node("Gather", ["a", "rows"], ["e"]),
        helper.make_node("Where", ["mask", "x", "w"], ["f"]),
        helper.make_node("Unsqueeze", ["w", "axis"], ["g"]),
        helper.make_node("Identity", ["x"], ["h"]),
        helper.make_node("Shape", ["x"], ["i"]),
        helper.make_node("Split", ["a"], ["j", "k"], axis=1, num_outputs=2),
    ]
    a = np.concatenate([x, w])
    expected = [
        *(a.T, np.concatenate([np.ones((3, 1), dtype), a], axis=1), a[[2, 0]], np.where(weights["mask"], x, w)),
        *(w[None], x, np.array(x.shape), a[:, :3], a[:, 3:]),
    ]
    expected[1] = np.concatenate([expected[1], np.ones((1, 7), dtype)])
    names = "cdefghijk"
    outputs = {y: v.dtype for y, v in zip(names, expected, strict=True)}
    for found, value in zip(run(nodes, {"x": x}, outputs, weights), expected, strict=True):
        assert found.shape == value.shape
        np.testing.assert_array_equal(found.astype(np.float32), value.astype(np.float32))


def test_what_is_not_done_with_codes() -> None:
    x, y = np.zeros(3, ml_dtypes.float8_e5m2), {"y": np.dtype(ml_dtypes.float8_e5m2)}
    said = "arrays of FLOAT8E5M2 are only moved, quantized and cast here; cast to FLOAT before it"
    with pytest.raises(NotImplementedError, match=said):
        run([helper.make_node("TopK", ["x", "k"], ["z", "y"])], {"x": x}, {"y": np.int64}, {"k": np.array([1])})
    with pytest.raises(NotImplementedError, match=said):
        run([helper.make_node("Max", ["x", "x"], ["y"])], {"x": x}, y)
    with pytest.raises(Exception, match="arrays of FLOAT8E4M3FN and FLOAT8E5M2 have no common type"):
        weights = {"w": np.zeros(3, ml_dtypes.float8_e4m3fn)}
        run([helper.make_node("Concat", ["x", "w"], ["y"], axis=0)], {"x": x}, y, weights)


def test_cast_like_takes_the_type() -> None:
    x = (RNG.normal(size=(3, 4)) * 100).astype(np.float32)
    likes = {name: np.zeros(1, named(name)) for name in ("float8_e4m3fnuz", "int4", "bfloat16", "float16", "uint8")}
    nodes = [helper.make_node("CastLike", ["x", name], [f"y_{name}"]) for name in likes]
    found = run(nodes, {"x": x, **likes}, {f"y_{name}": a.dtype for name, a in likes.items()})
    for got, like in zip(found, likes.values(), strict=True):
        (expected,) = cast(x, like.dtype)
        np.testing.assert_array_equal(got.astype(np.float32), expected.astype(np.float32))


def test_bfloat16() -> None:
    """Constants, weights and arguments in it; results are rounded once."""
    x, w = RNG.normal(size=(4, 8)).astype(bfloat16), RNG.normal(size=(8, 3)).astype(bfloat16)
    weights = {"w": w, "half": np.array(0.5, bfloat16), "some": RNG.normal(size=3).astype(bfloat16)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Mul", ["h", "half"], ["g"]),
        helper.make_node("Add", ["g", "some"], ["f"]),
        helper.make_node("Relu", ["f"], ["y"]),
        helper.make_node("Clip", ["f", "", "half"], ["z"]),
        helper.make_node("Pow", ["x", "two"], ["p"]),
        helper.make_node("Div", ["x", "half"], ["d"]),
        helper.make_node("Erf", ["half"], ["e"]),
        helper.make_node("Cast", ["half"], ["c"], to=FLOAT),
        helper.make_node("Transpose", ["x"], ["t"]),
    ]
    weights["two"] = np.array(2, bfloat16)
    outputs = dict.fromkeys("yzpdect", bfloat16) | {"c": np.dtype(np.float32)}
    y, z, p, d, e, c, t = run(nodes, {"x": x}, outputs, weights)
    wide = (x.astype(np.float64) @ w.astype(np.float64)) * 0.5 + weights["some"].astype(np.float64)
    np.testing.assert_allclose(y.astype(float), np.maximum(wide, 0), rtol=0.01, atol=1e-2)
    np.testing.assert_allclose(z.astype(float), np.minimum(wide, 0.5), rtol=0.01, atol=1e-2)
    same_bits(p, (x.astype(np.float32) ** 2).astype(bfloat16))
    same_bits(d, (x.astype(np.float32) * 2).astype(bfloat16))
    assert float(e) == float(np.float32(0.5204999).astype(bfloat16))
    assert float(c) == 0.5
    same_bits(t, x.T.copy())


def test_ports_are_checked() -> None:
    node = helper.make_node("Identity", ["x"], ["y"])
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", BF16, [2])],
        [helper.make_tensor_value_info("y", BF16, [2])],
    )
    compiled = Backend.prepare(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]))
    with pytest.raises(TypeError, match="x: expected bfloat16, got float32"):
        compiled.run([np.zeros(2, np.float32)])


def test_half_precision_is_rounded_after_every_operator() -> None:
    """But not within one: a softmax and a product of matrices round once."""
    x = (RNG.normal(size=(8, 50)) * 3).astype(np.float16)
    nodes = [helper.make_node("Softmax", ["x"], ["y"], axis=1), helper.make_node("MatMul", ["y", "w"], ["z"])]
    w = RNG.normal(size=(50, 4)).astype(np.float16)
    (z,) = run(nodes, {"x": x}, {"z": np.dtype(np.float16)}, {"w": w})
    e = np.exp(x.astype(float) - x.astype(float).max(axis=1, keepdims=True))
    exact = (e / e.sum(axis=1, keepdims=True)).astype(np.float16).astype(float) @ w.astype(float)
    assert (np.abs(z - exact) <= np.spacing(np.abs(exact).astype(np.float16)) * 0.75).all()
