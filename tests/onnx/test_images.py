"""Resizing, sampling, pooling, Fourier transforms and searches: compiled, against ONNX's reference and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from mlaot.onnx import Backend

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
F = np.float32


def normal(*shape: int) -> Array:
    return RNG.normal(size=shape).astype(F)


def model(
    op: str, opset: int, inputs: list[Any], constants: dict[int, Any], shapes: list[Any], **attributes: Any
) -> onnx.ModelProto:
    """One node; ``constants`` are inputs that the file has, None those that are left out."""
    names = ["" if i in constants and constants[i] is None else f"i{i}" for i in range(len(inputs) + len(constants))]
    given = iter(inputs)
    infos, initializers = [], []
    for i, name in enumerate(names):
        if i in constants:
            initializers += [numpy_helper.from_array(constants[i], name)] if name else []
        else:
            value = np.asarray(next(given))
            infos.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape))
    kinds = [TensorProto.INT64 if op in ("NonZero", "NonMaxSuppression") or i else None for i in range(len(shapes))]
    first = helper.np_dtype_to_tensor_dtype(np.asarray(inputs[0]).dtype) if inputs else TensorProto.FLOAT
    outs = [helper.make_tensor_value_info(f"o{i}", kinds[i] or first, s) for i, s in enumerate(shapes)]
    node = helper.make_node(op, names, [o.name for o in outs], **attributes)
    graph = helper.make_graph([node], "g", infos, outs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def check(
    op: str, opset: int, inputs: list[Any], constants: dict[int, Any], tolerance: float = 1e-5, **attrs: Any
) -> None:
    """The compiled node gives what ONNX's reference does."""
    rough = model(op, opset, inputs, constants, [None], **attrs)
    names = [info.name for info in rough.graph.input]
    expected: Any = next(iter(ReferenceEvaluator(rough).run(None, dict(zip(names, inputs, strict=True)))))
    (found,) = Backend.prepare(model(op, opset, inputs, constants, [expected.shape], **attrs)).run(inputs)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


SCALES = np.array([1, 1, 1.7, 0.6], F)
RESIZES: dict[str, tuple[int, dict[int, Any], dict[str, Any]]] = {
    **{
        f"{mode} {transform}": (19, {1: None, 2: SCALES}, {"mode": mode, "coordinate_transformation_mode": transform})
        for mode in ("linear", "cubic", "nearest")
        for transform in ("half_pixel", "asymmetric", "half_pixel_symmetric")
    },
    "antialias": (18, {1: None, 2: SCALES}, {"mode": "cubic", "antialias": 1, "cubic_coeff_a": -0.5}),
    "outside": (11, {1: np.zeros(0, F), 2: SCALES}, {"mode": "cubic", "exclude_outside": 1}),
    "sizes": (13, {1: None, 2: None, 3: np.array([2, 3, 9, 5])}, {"mode": "linear"}),
    "axes": (18, {1: None, 2: np.array([2.5, 2], F)}, {"mode": "linear", "axes": [3, 2]}),
    "batch": (13, {1: None, 2: np.array([2, 1, 1, 3], F)}, {"nearest_mode": "ceil"}),
    "ceil": (13, {1: None, 2: SCALES}, {"nearest_mode": "ceil", "coordinate_transformation_mode": "align_corners"}),
    "not_larger": (
        18,
        {1: None, 2: None, 3: np.array([9, 20])},
        {"mode": "linear", "axes": [2, 3], "keep_aspect_ratio_policy": "not_larger"},
    ),
}


@pytest.mark.parametrize("name", RESIZES)
def test_resize(name: str) -> None:
    opset, constants, attributes = RESIZES[name]
    check("Resize", opset, [normal(2, 3, 6, 8)], constants, **attributes)


def test_resize_of_old_opsets() -> None:
    x = np.arange(8, dtype=F).reshape(1, 1, 2, 4)
    (found,) = Backend.prepare(model("Resize", 10, [x], {1: np.array([1, 1, 0.6, 0.6], F)}, [(1, 1, 1, 2)])).run([x])
    np.testing.assert_array_equal(found, [[[[0, 2]]]])
    for opset, constants, attributes in (
        (1, {}, {"height_scale": 2.0, "width_scale": 3.0}),
        (7, {}, {"scales": [1.0, 1.0, 2.0, 3.0]}),
        (9, {1: np.array([1, 1, 2, 3], F)}, {}),
    ):
        node = model("Upsample", opset, [x], constants, [(1, 1, 4, 12)], **attributes)
        np.testing.assert_array_equal(Backend.prepare(node).run([x])[0], x.repeat(2, axis=2).repeat(3, axis=3))
    node = model("Upsample", 9, [x], {1: np.array([1, 1, 1, 2], F)}, [(1, 1, 2, 8)], mode="linear")
    row = np.array([0, 0.5, 1, 1.5, 2, 2.5, 3, 3], F)
    np.testing.assert_allclose(Backend.prepare(node).run([x])[0], [[[row, row + 4]]])


def test_resize_of_integers_and_halves() -> None:
    for dtype in (np.uint8, np.int32, np.float16, np.float64):
        x = (RNG.integers(0, 100, (1, 2, 3, 4))).astype(dtype)
        close = 1.0 if np.dtype(dtype).kind in "iu" else 1e-2  # halves may be rounded to either side
        check("Resize", 19, [x], {1: None, 2: np.array([1, 1, 2, 1.5], F)}, close, mode="linear")


def test_resize_by_what_a_call_gives() -> None:
    x = normal(1, 2, 4, 6)
    node = model("Resize", 19, [x, np.ones(4, F)], {1: None}, [(1, 2, 8, 9)], mode="linear")
    compiled = Backend.prepare(node)
    for scales in (np.array([1, 1, 2, 1.5], F), np.array([1, 1, 2.2, 1.6], F)):
        expected: Any = next(iter(ReferenceEvaluator(node).run(None, {"i0": x, "i2": scales})))
        np.testing.assert_allclose(compiled.run([x, scales])[0], expected, rtol=1e-5, atol=1e-5)


def test_an_open_dimension_is_repeated() -> None:
    x = normal(1, 2, 3, 4)
    node = model("Resize", 19, [x], {1: None, 2: np.array([1, 1, 2, 2], F)}, [(1, 2, "h2", 8)])
    node.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "h"
    np.testing.assert_array_equal(Backend.prepare(node).run([x])[0], x.repeat(2, axis=2).repeat(2, axis=3))


OPEN: dict[str, tuple[dict[int, Any], dict[str, Any]]] = {
    "linear": ({2: np.array([1, 1, 2, 1], F)}, {"mode": "linear"}),
    "cubic": (
        {2: np.array([1, 1, 1.5, 1], F)},
        {"mode": "cubic", "exclude_outside": 1, "coordinate_transformation_mode": "align_corners"},
    ),
    "nearest": (
        {2: np.array([1, 1, 0.5, 1], F)},
        {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    ),
    "size": (
        {2: None, 3: np.array([1, 1, 4, 2])},
        {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"},
    ),
}


@pytest.mark.parametrize("name", OPEN)
def test_an_open_dimension_is_resized(name: str) -> None:
    constants, attributes = OPEN[name]
    x = normal(1, 1, 5, 2)
    node = model("Resize", 19, [x], {1: None, **constants}, [(1, 1, "h2", 2)], **attributes)
    node.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "h"
    compiled = Backend.prepare(node)
    for height in (5, 3):
        given = x[:, :, :height].copy()
        (expected,) = ReferenceEvaluator(node).run(None, {"i0": given})  # type: ignore[misc]
        np.testing.assert_allclose(compiled.run([given])[0], expected, rtol=1e-5, atol=1e-5)
    if name == "size":
        with pytest.raises(ValueError, match="must not be empty"):
            compiled.run([x[:, :, :0]])


@pytest.mark.parametrize("mode", ["linear", "cubic", "nearest"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grid_sample(mode: str, padding: str) -> None:
    grid = (RNG.uniform(-1.6, 1.6, (2, 3, 4, 2))).astype(F)
    attributes = {"mode": mode, "padding_mode": padding}
    check("GridSample", 20, [normal(2, 3, 4, 5), grid], {}, 1e-4, align_corners=int(mode == "linear"), **attributes)


def test_elements_outside_are_passed_over() -> None:
    x = np.full((1, 1, 2, 2), np.inf, F)
    grid = np.full((1, 1, 1, 2), 9.0, F)
    node = model("GridSample", 16, [x, grid], {}, [(1, 1, 1, 1)], mode="bilinear")
    assert Backend.prepare(node).run([x, grid])[0].item() == 0


def test_regions() -> None:
    x, places = normal(2, 3, 7, 8), np.array([[0.5, 1, 6, 5], [-3, 2, 9.5, 12], [2, 2, 2, 2]], F)
    images = np.array([1, 0, 1])
    for ratio, mode, half in ((0, "avg", "half_pixel"), (2, "max", "output_half_pixel"), (0, "max", "half_pixel")):
        attributes = {"sampling_ratio": ratio, "mode": mode, "coordinate_transformation_mode": half}
        size = {"output_height": 2, "output_width": 3, "spatial_scale": 0.9}
        check("RoiAlign", 16, [x, places, images], {}, 1e-4, **attributes, **size)


def test_maxima_of_regions() -> None:
    x = normal(2, 3, 6, 7)
    regions = np.array([[1, 0, 0, 6, 5], [0, 2, 1, 4, 4], [1, 5, 5, 20, 20]], F)
    node = model("MaxRoiPool", 22, [x, regions], {}, [(3, 3, 2, 2)], pooled_shape=[2, 2])
    (found,) = Backend.prepare(node).run([x, regions])
    halves = [(slice(0, 3), slice(3, 6)), (slice(0, 4), slice(3, 7))]
    for i, j in np.ndindex(2, 2):
        np.testing.assert_array_equal(found[0, :, i, j], x[1][:, halves[0][i], halves[1][j]].max(axis=(1, 2)))
        np.testing.assert_array_equal(found[1, 0, 0, 0], x[0, 0, 1:3, 2:4].max())
    np.testing.assert_array_equal(found[2, :, 1, 1], 0)


def test_deformed_convolution_without_offsets_is_one() -> None:
    x, w, bias = normal(2, 4, 6, 7), normal(6, 2, 3, 2), normal(6)
    attributes = {"strides": [2, 1], "pads": [1, 0, 1, 1], "dilations": [1, 2], "group": 2}
    shape = (2, 6, 3, 6)
    offset = np.zeros((2, 2 * 12, 3, 6), F)
    node = model("DeformConv", 19, [x, w, offset, bias], {}, [shape], offset_group=2, **attributes)
    plain = model("Conv", 19, [x, w, bias], {}, [shape], **attributes)
    expected: Any = next(iter(ReferenceEvaluator(plain).run(None, {"i0": x, "i1": w, "i2": bias})))
    np.testing.assert_allclose(Backend.prepare(node).run([x, w, offset, bias])[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [1, 7, 400, 1024, 1030])
def test_fourier_transforms(size: int) -> None:
    x = normal(2, size, 2)
    z = x[..., 0] + 1j * x[..., 1]
    for inverse, onesided in ((0, 0), (1, 0), (0, 1), (1, 1)):
        given = x[..., :1] if onesided and not inverse else x
        if onesided and inverse:
            expected = np.fft.irfft(z, size)[..., None]
        else:
            turned = np.fft.ifft(z) if inverse else np.fft.fft(given[..., 0] if onesided else z)
            turned = turned[:, : size // 2 + 1] if onesided else turned
            expected = np.stack([turned.real, turned.imag], axis=-1)
        constants = {1: np.array(size)}
        node = model("DFT", 20, [given], constants, [expected.shape], inverse=inverse, onesided=onesided)
        (found,) = Backend.prepare(node).run([given])
        assert np.abs(found - expected).max() <= 1e-5 * max(np.abs(expected).max(), 1)


def test_short_time_transforms() -> None:
    x, window = normal(2, 90, 1), np.hanning(32).astype(F)
    check("STFT", 17, [x], {1: np.array(10), 2: window}, 1e-4)
    check("STFT", 17, [x], {1: np.array(7), 2: None, 3: np.array(20)}, 1e-4, onesided=0)


def test_windows_take_the_defaults_of_their_functions() -> None:
    for op, terms in (("HannWindow", (0.5, -0.5)), ("BlackmanWindow", (0.42, -0.5, 0.08))):
        node = model(op, 17, [], {0: np.array(8)}, [(8,)])
        expected = sum(c * np.cos(2 * np.pi * i * np.arange(8) / 8) for i, c in enumerate(terms))
        np.testing.assert_allclose(Backend.prepare(node).run([])[0], expected, atol=1e-6)


def test_pooling() -> None:
    x = normal(2, 3, 9, 10)
    for attributes in (
        {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 0, 1, 1], "ceil_mode": 1},
        {"kernel_shape": [2, 3], "auto_pad": "SAME_LOWER", "strides": [2, 2]},
    ):
        for op, opset in (("AveragePool", 11), ("MaxPool", 12), ("LpPool", 18)):
            if op == "AveragePool" or (op == "MaxPool") == ("ceil_mode" in attributes):
                check(op, opset, [x], {}, 1e-4, **attributes)
    node = model(
        "MaxPool", 12, [x], {}, [(2, 3, 4, 5)], kernel_shape=[2, 2], strides=[2, 2], auto_pad="VALID", ceil_mode=1
    )
    assert Backend.prepare(node).run([x])[0].shape == (2, 3, 4, 5)


def test_searches() -> None:
    x = np.array([3, 0, 3, 1, 0, 2], np.int64)
    node = model("Unique", 11, [x], {}, [(4,), (4,), (6,), (4,)], sorted=0)
    for found, expected in zip(
        Backend.prepare(node).run([x]), ReferenceEvaluator(node).run(None, {"i0": x}), strict=True
    ):
        np.testing.assert_array_equal(found, expected)
    keep = np.array([False, True, True])
    compress = Backend.prepare(model("Compress", 11, [x, keep], {}, [(2,)]))
    np.testing.assert_array_equal(compress.run([x, keep])[0], [0, 3])
    matrix = x.reshape(2, 3)
    nonzero = Backend.prepare(model("NonZero", 13, [matrix], {}, [(2, 4)]))
    np.testing.assert_array_equal(nonzero.run([matrix])[0], np.nonzero(matrix))
    with pytest.raises(ValueError, match="needs 4"):
        nonzero.run([np.ones((2, 3), np.int64)])
    counted = Backend.prepare(model("NonZero", 13, [matrix], {}, [(2, "n")]))
    for values in (matrix, matrix + 1, matrix * 0):
        np.testing.assert_array_equal(counted.run([values])[0], np.nonzero(values))


@pytest.mark.parametrize("n", [3, 5])
def test_determinants(n: int) -> None:
    x = normal(4, n, n)
    x[1, :, 0] = 0
    x[2, 0, 0] = 0
    check("Det", 11, [x], {}, 1e-4)


def test_bits_of_what_is_computed() -> None:
    x = np.array([0.0, -0.0, 1.5, np.inf], F)
    nodes = [helper.make_node("Neg", ["x"], ["n"]), helper.make_node("BitCast", ["n"], ["y"], to=TensorProto.UINT32)]
    infos = [helper.make_tensor_value_info(n, k, [4]) for n, k in (("x", TensorProto.FLOAT), ("y", TensorProto.UINT32))]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:])
    node = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 26)], ir_version=11)
    np.testing.assert_array_equal(Backend.prepare(node).run([x])[0], (-x).view(np.uint32))
