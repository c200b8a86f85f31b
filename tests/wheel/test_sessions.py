"""The package that stands in for onnxruntime, by every way that it gets into a wheel."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from .conftest import Project, Python, last_words, make_environment
from .test_doors import content
from .test_stubs import checked

PYPROJECT = """\
[build-system]
requires = ["mlaot"]
build-backend = "mlaot.build"

[project]
name = "shop"
version = "1.0"

[tool.mlaot]
isa = ["base"]

[tool.mlaot.onnxruntime]
files = ["nets/*.onnx"]

[tool.scikit-build]
sdist.exclude = ["nets/*"]
"""
USE = """
from shop import ort
for name in ("plus", "times"):
    session = ort.InferenceSession(f"no/where/{name}.onnx")
    print(name, session.run(["y"], {"x": [[1, 2]]})[0].tolist())
"""
USED = "plus [[4.0, 6.0]]\ntimes [[3.0, 8.0]]\n"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """The test's own."""
    return write_project(tmp_path / "project")


@pytest.fixture(scope="module")
def wheel(builder: Python, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of such a project."""
    folder = tmp_path_factory.mktemp("sessions")
    return built(builder, write_project(folder / "project"), folder / "wheel")


@pytest.fixture(scope="module")
def site(wheel: Path) -> Path:
    """The wheel as it is installed."""
    return unpacked(wheel)


def write_project(folder: Path) -> Project:
    """Two files, of which no wheel and no sdist holds any."""
    made = Project(folder)
    made.write("pyproject.toml", PYPROJECT)
    (made.path / "nets").mkdir()
    for name, op in (("plus", "Add"), ("times", "Mul")):
        weight = numpy_helper.from_array(np.array([3, 4], np.float32), "weight")
        ports = [helper.make_tensor_value_info(port, TensorProto.FLOAT, ["n", 2]) for port in "xy"]
        graph = helper.make_graph([helper.make_node(op, ["x", "weight"], ["y"])], name, ports[:1], ports[1:], [weight])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(model, made.path / "nets" / f"{name}.onnx")
    return made


def unpacked(wheel: Path) -> Path:
    """The wheel as it is installed."""
    with zipfile.ZipFile(wheel) as file:
        file.extractall(wheel.parent / "site")
    return wheel.parent / "site"


def built(python: Python, project: Project, out: Path, *options: object) -> Path:
    """The wheel of a project."""
    result = python.hook(project, "build_wheel", str(out), *options)
    assert result.returncode == 0, result.stdout + result.stderr
    return out / result.stdout.splitlines()[-1].removeprefix("returned ")


def test_wheel(builder: Python, wheel: Path, site: Path, tmp_path: Path) -> None:
    """What is in it, and what commands say of it."""
    names = sorted(content(wheel))
    assert [name for name in names if not name.startswith("shop/ort/")] == [
        "shop/__init__.py",
        *("shop/ort_plus.abi3.so", "shop/ort_plus.pyi", "shop/ort_times.abi3.so", "shop/ort_times.pyi"),
        "shop/py.typed",
    ]
    assert [name for name in names if name.startswith("shop/ort/")] == [
        "shop/ort/__init__.py",
        *(f"shop/ort/capi/{name}.py" for name in ("__init__", "_pybind_state", "files")),
        *(f"shop/ort/capi/onnxruntime_{name}.py" for name in ("inference_collection", "pybind11_state")),
    ]
    assert builder.check("-c", USE, cwd=tmp_path, PYTHONPATH=str(site)) == USED
    said = builder.check("-m", "mlaot", "check", wheel, cwd=tmp_path)
    assert "shop.ort_plus" in said
    assert "shop.ort_times" in said
    assert "nets/plus.onnx, nets/times.onnx" in builder.check("-m", "mlaot", "inspect", wheel, cwd=tmp_path)


def test_ways_to_a_wheel(builder: Python, project: Project, wheel: Path, tmp_path: Path) -> None:
    """An sdist without the ONNX files and setuptools make the same; plain Python computes the same."""
    builder.hook(project, "build_sdist", str(tmp_path))
    with tarfile.open(tmp_path / "shop-1.0.tar.gz") as file:
        file.extractall(tmp_path, filter="data")
    assert not list((tmp_path / "shop-1.0").rglob("*.onnx"))
    assert built(builder, Project(tmp_path / "shop-1.0"), tmp_path / "sdist").read_bytes() == wheel.read_bytes()

    text = PYPROJECT.replace('["mlaot"]', '["setuptools>=77", "mlaot"]').replace("mlaot.build", "setuptools.build_meta")
    project.write("pyproject.toml", text)
    assert content(built(builder, project, tmp_path / "setuptools")) == content(wheel)
    refused = builder.hook(project, "build_editable", str(tmp_path))
    assert last_words(refused) == "an editable install with setuptools cannot hold what [tool.mlaot.onnxruntime] makes"

    project.write("pyproject.toml", PYPROJECT)
    plain = unpacked(built(builder, project, tmp_path / "plain", {"mlaot.platform": "any"}))
    assert not list(plain.rglob("*.so"))
    assert builder.check("-c", USE, cwd=tmp_path, PYTHONPATH=str(plain)) == USED


def test_editable_install(own_wheel: Path, project: Project, tmp_path: Path) -> None:
    """Files are not watched that are added; those that models were made of are."""
    project.write("shop/__init__.py", "")
    python = make_environment(tmp_path / "venv", own_wheel)
    python.install_editable(project)
    assert python.check("-c", USE, cwd=tmp_path) == USED
    assert not (project.path / "shop" / "ort").exists()
    (project.path / "nets" / "plus.onnx").write_bytes(b"")
    result = python.run("-c", USE, cwd=tmp_path)
    assert result.stdout == USED
    assert "shop.ort_plus is older than" in result.stderr


PROGRAM = """
import os
import pathlib
import shop.ort as onnxruntime
from shop.ort import GraphOptimizationLevel, InferenceSession, SessionOptions
from shop.ort.capi import _pybind_state
from shop.ort.capi.onnxruntime_pybind11_state import InvalidArgument

options = SessionOptions()
options.intra_op_num_threads = 1
options.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
session: InferenceSession = onnxruntime.InferenceSession(pathlib.Path("a"), options, providers=["x", ("y", {"a": 1})])
names: list[str] = [port.name for port in session.get_inputs()]
try:
    session.run(None, {"x": [[1]]})
except (InvalidArgument, _pybind_state.Fail):
    pass
metadata: dict[str, str] = session.get_modelmeta().custom_metadata_map
session.run("x")  # wrong
session.forward()  # wrong
onnxruntime.InferenceSession(1)  # wrong
"""


def test_types(site: Path, tmp_path: Path) -> None:
    """The package has no stubs but types, which are strict."""
    pytest.importorskip("mypy")
    (tmp_path / "program.py").write_text(PROGRAM)
    said = checked("mypy", "--strict", "-m", "program", "-p", "shop", folder=site, cwd=tmp_path, status=1)
    lines = [line.partition(":")[2].partition(":")[0] for line in said.splitlines()[:-1]]
    wrong = [str(n) for n, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# wrong")]
    assert lines == wrong, said
