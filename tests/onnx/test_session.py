"""The module of an ONNX file answers as a session of onnxruntime does."""

from __future__ import annotations

import array
import gc
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from mlaot.build.toolchain import find_toolchain
from mlaot.files import program_files, write
from mlaot.generate import compile_model
from mlaot.onnx.declare import declare
from mlaot.settings.options import Options

from .. import instrumented, projects
from ..runtime.models import FLAGS, WARNINGS, load


def model() -> onnx.ModelProto:
    """Two outputs of two inputs, with names that are none in Python; the batch is open."""
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Add", ["in:0", "class"], ["sum/out"]),
        helper.make_node("ReduceMax", ["sum/out"], ["größte"], axes=[1], keepdims=0),
    ]
    inputs = [info("in:0", TensorProto.FLOAT, ["N", 3]), info("class", TensorProto.FLOAT, [3])]
    outputs = [info("sum/out", TensorProto.FLOAT, ["N", 3]), info("größte", TensorProto.FLOAT, ["N"])]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.fixture(scope="module")
def nn(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    folder = tmp_path_factory.mktemp("session")
    program = compile_model(declare(model(), {}), "shipped.nn", Options(isas=("base",)))
    write(program_files(program), folder)
    source = str(folder / "nn.c")
    options = [*FLAGS.split(), *WARNINGS.split(), f"-I{instrumented.TEMPLATES}", "-fsyntax-only"]
    warned = [*find_toolchain().command, *options, source]
    subprocess.run(warned, check=True)
    projects.compile_quickly(folder, "nn", ("base",), folder / "nn.abi3.so", False)
    return load(folder / "nn.abi3.so")


X = np.array([[1, 5, 2], [7, 0, 3]], np.float32)
C = np.array([1, 2, 3], np.float32)
FEED = {"in:0": X, "class": C}


def test_ports(nn: ModuleType) -> None:
    inputs = [(i.name, i.shape, i.type) for i in nn.get_inputs()]
    assert inputs == [("in:0", ["N", 3], "tensor(float)"), ("class", [3], "tensor(float)")]
    assert [o.name for o in nn.get_outputs()] == ["sum/out", "größte"]
    assert nn.get_providers() == ["CPUExecutionProvider"]
    np.testing.assert_array_equal(nn.forward(in_0=X, class_=C)[0], X + C)


def test_run(nn: ModuleType) -> None:
    """Arrays of NumPy where it is used, this module's own where it is not; all outputs or some, in any order."""
    session = nn.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    both = session.run(None, FEED)
    assert all(type(value) is np.ndarray for value in both)
    np.testing.assert_array_equal(both[0], X + C)
    np.testing.assert_array_equal(both[1], (X + C).max(axis=1))
    turned = session.run(output_names=["größte", "sum/out"], input_feed=FEED)
    np.testing.assert_array_equal(turned[0], both[1])
    np.testing.assert_array_equal(turned[1], both[0])
    (plain,) = nn.run(["größte"], {"in:0": X.tolist(), "class": array.array("f", C)}, None)
    assert type(plain) is nn.Array
    assert plain.tolist() == both[1].tolist()
    assert len(nn.run([], FEED)) == 2


@pytest.mark.parametrize(
    ("names", "feed", "error", "message"),
    [
        (None, {"in:0": X}, ValueError, "run: input_feed: no value for the input 'class'"),
        (None, FEED | {"x": X}, ValueError, "run: input_feed: expected 2 values, got 3: it has names of no input"),
        (["out"], FEED, ValueError, "run: output_names: the model has no output 'out'"),
        ([1], FEED, ValueError, "run: output_names: the model has no output 1"),
        (1, FEED, TypeError, "run: output_names: expected a list of names or None"),
        (None, FEED | {"class": C[:2]}, ValueError, "forward: class_: expected float32[3], got float32[2]"),
        (
            None,
            FEED | {"class": C.astype(float)},
            TypeError,
            "forward: class_: expected float32[3], got float64[3]; pass class_.astype('float32')",
        ),
    ],
)
def test_mistakes(nn: ModuleType, names: Any, feed: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as raised:
        nn.run(names, feed)
    assert str(raised.value) == message


def test_missing_arguments(nn: ModuleType) -> None:
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: nn.run(), "output_names"),
        (lambda: nn.run(None), "input_feed"),
    ]
    for call, name in calls:
        with pytest.raises(TypeError, match=f"run\\(\\) is missing the argument '{name}'"):
            call()


def test_references(nn: ModuleType) -> None:
    """Nothing is kept of what goes in and comes out."""
    gc.collect()  # errors of other tests refer to what they were given
    before = [sys.getrefcount(value) for value in (X, C, FEED)]
    for _ in range(100):
        nn.run(None, FEED)
        nn.get_inputs()
        with pytest.raises(ValueError):
            nn.run(["x"], FEED)
    assert [sys.getrefcount(value) for value in (X, C, FEED)] == before
