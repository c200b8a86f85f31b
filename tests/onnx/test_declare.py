"""Files as models: what is read, what is refused, and how it is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, external_data_helper, helper, numpy_helper

import mlaot
import mlaot.onnx
from mlaot.errors import MlaotError
from mlaot.evaluate import evaluate
from mlaot.onnx import Backend, declare_from_settings
from mlaot.settings import ModelSettings, Settings

RNG = np.random.default_rng(0)
W = RNG.standard_normal((3, 4)).astype(np.float32)
info = helper.make_tensor_value_info


def product(batch: str | int = "batch", **options: object) -> onnx.ModelProto:
    """y = x W, for any batch."""
    weight = numpy_helper.from_array(W, "w.weight")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w.weight"], ["y"], name="product")],
        "g",
        [info("x", TensorProto.FLOAT, [batch, 3])],
        [info("y", TensorProto.FLOAT, [batch, 4])],
        [weight],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def saved(model: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_load(tmp_path: Path) -> None:
    traced = mlaot.onnx.load(saved(product(), tmp_path)).trace()
    assert str(traced.graph.inputs["x"].type) == "f32[batch,3]"
    assert traced.file_names == {"x": "x", "y": "y"}
    np.testing.assert_array_equal(traced.parameters["w.weight"], W)
    x = RNG.standard_normal((5, 3)).astype(np.float32)
    found = evaluate(traced.graph, {"x": x, "w.weight": W})
    np.testing.assert_allclose(found["y"], x @ W, rtol=1e-6)


def test_pinned_dims(tmp_path: Path) -> None:
    traced = mlaot.onnx.load(saved(product(), tmp_path), {"batch": 2}).trace()
    assert str(traced.graph.inputs["x"].type) == "f32[2,3]"


def test_an_axis_without_a_name_gets_one(tmp_path: Path) -> None:
    model = product()
    model.graph.input[0].type.tensor_type.shape.dim[0].ClearField("dim_param")
    assert str(mlaot.onnx.load(saved(model, tmp_path)).trace().graph.inputs["x"].type) == "f32[x_0,3]"


def external(folder: Path, location: str) -> Path:
    """A file whose weight lies elsewhere."""
    model = product()
    tensor = model.graph.initializer[0]
    external_data_helper.set_external_data(tensor, location)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    return saved(model, folder)


def test_external_data(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "w.bin").write_bytes(W.tobytes())
    traced = mlaot.onnx.load(external(tmp_path, "parts/w.bin")).trace()
    np.testing.assert_array_equal(traced.parameters["w.weight"], W)


@pytest.mark.parametrize("location", ["../w.bin", "/etc/hostname", "parts/../../w.bin", "linked/w.bin"])
def test_no_data_from_elsewhere(tmp_path: Path, location: str) -> None:
    folder, outside = tmp_path / "project", tmp_path / "outside"
    for path in (folder / "parts", outside):
        path.mkdir(parents=True)
    for path in (tmp_path, outside):
        (path / "w.bin").write_bytes(W.tobytes())
    (folder / "linked").symlink_to(outside)
    with pytest.raises(MlaotError, match=r"the tensor 'w.weight' lies in .*, outside of its folder"):
        mlaot.onnx.load(external(folder, location))


def of_a_project(name: str, project: Path) -> object:
    return declare_from_settings(
        Settings("p", ".", (), project=project), ModelSettings("nn", module="p.nn", model="", onnx=name)
    )


@pytest.mark.parametrize(
    "name", ["../up.onnx", "sub/../../up.onnx", "linked.onnx", "linked/up.onnx", "{outside}/up.onnx"]
)
def test_no_file_from_outside_of_the_project(tmp_path: Path, name: str) -> None:
    project = tmp_path / "project"
    (project / "sub").mkdir(parents=True)
    path = saved(product(), tmp_path).rename(tmp_path / "up.onnx")
    (project / "linked.onnx").symlink_to(path)
    (project / "linked").symlink_to(tmp_path)
    with pytest.raises(MlaotError, match=r"lies outside of .*project; the key 'onnx' names a file of the project"):
        of_a_project(name.format(outside=tmp_path), project)


def test_links_within_the_project_and_names_that_no_file_has(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    saved(product(), tmp_path / "sub")
    (tmp_path / "linked.onnx").symlink_to("sub/model.onnx")
    (tmp_path / "loop.onnx").symlink_to("loop.onnx")
    assert of_a_project("linked.onnx", tmp_path)
    for name in ("no.onnx", "a\0.onnx", "x" * 5000 + ".onnx", "loop.onnx"):
        with pytest.raises(MlaotError, match=r"no file .*; the key 'onnx' names a file of the project"):
            of_a_project(name, tmp_path)


def test_missing_data(tmp_path: Path) -> None:
    with pytest.raises(MlaotError, match=r"model.onnx: the tensor 'w.weight'"):
        mlaot.onnx.load(external(tmp_path, "w.bin"))


@pytest.mark.parametrize("content", [b"", b"no such thing", b"\x08\x08\x12"])
def test_damaged_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(MlaotError, match=r"no ONNX file|not a valid ONNX model"):
        mlaot.onnx.load(path).trace()


def test_a_pointer_in_place_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n", encoding="utf-8")
    with pytest.raises(MlaotError, match=r"model.onnx is a pointer of Git LFS, not the file itself; fetch it: git lfs"):
        mlaot.onnx.load(path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(MlaotError, match=r"cannot read .*: No such file"):
        mlaot.onnx.load(tmp_path / "model.onnx")


def test_everything_that_is_unsupported_is_said_at_once() -> None:
    nodes = [
        helper.make_node("ImageDecoder", ["s"], ["t"], name="picture"),
        helper.make_node("RandomNormalLike", ["x"], ["r"], name="noise"),
        helper.make_node("Add", ["x", "r"], ["y"], name="sum"),
    ]
    file = helper.make_tensor("s", TensorProto.UINT8, [2], [1, 2])
    graph = helper.make_graph(
        nodes,
        "g",
        [info("x", TensorProto.FLOAT, [2])],
        [info("y", TensorProto.FLOAT, [2]), info("t", TensorProto.UINT8, [1, 1, 3])],
        [file],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=8)
    with pytest.raises(NotImplementedError) as raised:
        Backend.prepare(model)
    for part in (
        "2 nodes cannot be compiled: ",
        "node 'picture' (ImageDecoder): ",
        "node 'noise' (RandomNormalLike): ",
    ):
        assert part in str(raised.value)
    assert "'sum'" not in str(raised.value)


def test_names_that_python_does_not_have() -> None:
    x, y = "model/in:0", "1+1"
    graph = helper.make_graph(
        [helper.make_node("Relu", [x], [y])],
        "g",
        [info(x, TensorProto.FLOAT, [2])],
        [info(y, TensorProto.FLOAT, [2])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    traced = mlaot.onnx.declare.declare(model, {}).trace()
    assert traced.file_names == {"model_in_0": x, "x1_1": y}


def test_a_function_of_the_model() -> None:
    """Inlined, its attributes given at the call or their defaults."""
    body = helper.make_function(
        "mine",
        "Scaled",
        ["a"],
        ["b"],
        [
            helper.make_node("Constant", [], ["k"]),
            helper.make_node("Mul", ["a", "k"], ["b"]),
        ],
        [helper.make_opsetid("", 17)],
        ["factor"],
    )
    attribute = body.node[0].attribute.add()
    attribute.name, attribute.ref_attr_name, attribute.type = "value_float", "factor", onnx.AttributeProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Scaled", ["x"], ["y"], domain="mine", factor=3.0)],
        "g",
        [info("x", TensorProto.FLOAT, [2])],
        [info("y", TensorProto.FLOAT, [2])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=[body])
    (found,) = Backend.prepare(model).run([np.array([1, 2], np.float32)])
    assert found.tolist() == [3.0, 6.0]


def test_backend_refuses_wrong_arrays() -> None:
    compiled = Backend.prepare(product())
    with pytest.raises(TypeError, match="x: expected float32, got float64"):
        compiled.run([np.zeros((1, 3))])
    with pytest.raises(ValueError, match=r"x: expected the shape \[1, 3\], got \[1, 4\]"):
        compiled.run([np.zeros((1, 4), np.float32)])
    with pytest.raises(ValueError, match="expected 1 inputs, got 2"):
        compiled.run([np.zeros((1, 3), np.float32)] * 2)
    with pytest.raises(NotImplementedError, match="there is no device 'CUDA'"):
        Backend.prepare(product(), "CUDA")


def test_a_dimension_with_the_name_of_an_input() -> None:
    """Or with one that C code uses."""
    for name in ("x", "k", "n", "NULL"):
        traced = mlaot.onnx.declare.declare(product(name), {}).trace()
        assert str(traced.graph.inputs["x"].type) == f"f32[{name},3]"
        (found,) = Backend.prepare(product(name)).run([np.eye(3, dtype=np.float32)[:2]])
        np.testing.assert_array_equal(found, W[:2])
