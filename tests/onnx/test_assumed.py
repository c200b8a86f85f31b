"""Inputs that decide a shape: compiled for the declared one; other values are refused by each call."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from mlaot.build.toolchain import compile_module, find_toolchain
from mlaot.errors import MlaotError
from mlaot.files import program_files, write
from mlaot.generate import compile_model
from mlaot.onnx import Backend
from mlaot.onnx.declare import declare
from mlaot.onnx.values import Unsupported
from mlaot.report.metadata import golden_calls
from mlaot.settings.options import Options

from .. import projects
from ..runtime.models import FLAGS, WARNINGS, load

KINDS = {"f": TensorProto.FLOAT, "i": TensorProto.INT64}
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def model(op: str, inputs: list[Any], shapes: list[list[int]], **attributes: Any) -> onnx.ModelProto:
    """One node, all its inputs given by the call."""
    names = [f"in{i}" for i in range(len(inputs))]
    outputs = [f"out{i}" for i in range(len(shapes))]
    infos = [
        helper.make_tensor_value_info(name, KINDS[np.asarray(value).dtype.kind], np.shape(value))
        for name, value in zip(names, inputs, strict=True)
    ]
    results = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in zip(outputs, shapes, strict=True)
    ]
    given = [*names[:2], "", *names[2:]] if op == "STFT" else names  # without a window
    graph = helper.make_graph([helper.make_node(op, given, outputs, name="n", **attributes)], "g", infos, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def of(*values: int) -> Any:
    return np.array(values, np.int64)


# The operator, its further inputs, what it gives; further inputs of another shape, and what is said of them.
CASES: dict[str, tuple[str, tuple[Any, ...], list[Any], tuple[Any, ...], str]] = {
    "reshape": ("Reshape", (of(4, -1),), [X.reshape(4, 6)], (of(6, 4),), r"must make \[4, 6\]"),
    "expand": ("Expand", (of(5, 1, 3, 1),), [np.broadcast_to(X, (5, 2, 3, 4))], (of(4, 1, 1, 1),), "must make"),
    "tile": ("Tile", (of(1, 2, 1),), [np.tile(X, (1, 2, 1))], (of(2, 1, 1),), r"must be \[1, 2, 1\]"),
    "unsqueeze": ("Unsqueeze", (of(-5, 3),), [X.reshape(1, 2, 3, 1, 4)], (of(0, 4),), "must make"),
    "sum": ("ReduceSum", (of(-1),), [X.sum(axis=2, keepdims=True)], (of(1),), "must be what the file's"),
    "split": ("Split", (of(1, 2),), [X[:, :1], X[:, 1:]], (of(2, 1),), r"must be \[1, 2\]"),
    "slice": (
        "Slice",
        (of(-1, 3), of(-9, 99), of(1, 2), of(-1, 9)),
        [X[:, ::-1, 3:]],
        (of(1, 3), of(-9, 99), of(1, 2), of(-1, 9)),
        "axis 1 must have 3 elements",
    ),
    "pad axes": (
        "Pad",
        (of(0, 1, 0, 2), np.float32(5), of(-3, 2)),
        [np.pad(X, ((0, 0), (0, 0), (1, 2)), constant_values=5)],
        (of(0, 1, 0, 2), np.float32(5), of(0, 1)),
        "axis 1 must have 3 elements",
    ),
    "pad": ("Pad", (of(0, 1, 0, 0, 0, 2),), [np.pad(X, ((0, 0), (1, 0), (0, 2)))], (of(*[0] * 6),), "must have 4"),
}


@pytest.mark.parametrize("name", CASES)
def test_declared(name: str) -> None:
    op, given, wanted, other, message = CASES[name]
    options = {"axis": 1} if op == "Split" else {}
    compiled = Backend.prepare(model(op, [X, *given], [list(w.shape) for w in wanted], **options))
    for found, expected in zip(compiled.run([X, *given]), wanted, strict=True):
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(ValueError, match=message):
        compiled.run([X, *other])


def test_where_it_begins_is_computed() -> None:
    compiled = Backend.prepare(model("Slice", [X, of(0), of(2), of(2)], [[2, 3, 2]]))
    for begin in range(3):
        (found,) = compiled.run([X, of(begin), of(begin + 2), of(2)])
        np.testing.assert_array_equal(found, X[:, :, begin : begin + 2])


def test_equal_axes_are_told_apart() -> None:
    x = np.arange(9, dtype=np.float32).reshape(3, 3)
    compiled = Backend.prepare(model("ReduceMax", [x, of(0)], [[3]], keepdims=0))
    for axis in (0, 1, -1):
        np.testing.assert_array_equal(compiled.run([x, of(axis)])[0], x.max(axis=axis))


@pytest.mark.parametrize("onesided", [1, 0])
def test_lengths_of_frames(onesided: int) -> None:
    """One-sided spectra of 4 and of 5 elements have 3 rows; two-sided ones tell how long the frames are."""
    x, lengths = np.sin(np.arange(13, dtype=np.float32)).reshape(1, 13, 1), (4, 5) if onesided else (5,)
    rows = 3 if onesided else 5
    compiled = Backend.prepare(model("STFT", [x, np.int64(2), np.int64(4)], [[1, 5, rows, 2]], onesided=onesided))
    for length in lengths:
        frames = np.stack([x[0, at : at + length, 0] for at in range(0, 10, 2)])
        wanted = (np.fft.rfft if onesided else np.fft.fft)(frames)
        (found,) = compiled.run([x, np.int64(2), np.int64(length)])
        np.testing.assert_allclose(found[0, ..., 0] + 1j * found[0, ..., 1], wanted, atol=1e-6)
    for step, length in ((2, 6), (1, lengths[0])):
        with pytest.raises(ValueError, match="must"):
            compiled.run([x, np.int64(step), np.int64(length)])


def test_shapes_of_blocks() -> None:
    """Blocks of 1 x 4 and of 4 x 1 elements fill the same image; 2 x 2 do not."""
    x, image = np.arange(16, dtype=np.float32).reshape(1, 4, 4), of(4, 4)
    compiled = Backend.prepare(model("Col2Im", [x, image, of(1, 4)], [[1, 1, 4, 4]]))
    np.testing.assert_array_equal(compiled.run([x, image, of(1, 4)])[0][0, 0], x[0].T)
    np.testing.assert_array_equal(compiled.run([x, image, of(4, 1)])[0][0, 0], x[0])
    for other in ((of(4, 4), of(2, 2)), (of(2, 8), of(1, 4))):
        with pytest.raises(ValueError, match="must be"):
            compiled.run([x, *other])


def test_through_operators_that_keep_the_shape() -> None:
    """ONNX's own ReduceL2 ends in CastLike, and the file says nothing of what comes before."""
    ops = [("ReduceSum", ["x", "axes"], "a"), ("Sqrt", ["a"], "b"), ("CastLike", ["b", "x"], "y")]
    nodes = [helper.make_node(op, inputs, [output]) for op, inputs, output in ops]
    infos = [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)]
    infos.append(helper.make_tensor_value_info("axes", TensorProto.INT64, [1]))
    graph = helper.make_graph(nodes, "g", infos, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 1, 4])])
    compiled = Backend.prepare(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8))
    np.testing.assert_allclose(compiled.run([X, of(1)])[0], np.sqrt(X.sum(axis=1, keepdims=True)), rtol=1e-6)
    with pytest.raises(ValueError, match="must be what the file's shapes need"):
        compiled.run([X, of(2)])


def test_without_a_declared_shape() -> None:
    nodes = [helper.make_node("Reshape", ["x", "s"], ["r"], name="n"), helper.make_node("Size", ["r"], ["y"])]
    infos = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [6])]
    infos.append(helper.make_tensor_value_info("s", TensorProto.INT64, [2]))
    graph = helper.make_graph(nodes, "g", infos, [helper.make_tensor_value_info("y", TensorProto.INT64, [])])
    file = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    with pytest.raises(Unsupported, match="the file gives its output no shape; make it constant"):
        declare(file, {}).trace()


def test_module_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The extension module itself, and not only its kernels."""
    program = compile_model(
        declare(model("Reshape", [X, of(0, 0)], [[4, 6]]), {}), "shipped.nn", Options(isas=("base",)), golden=True
    )
    assert program.module.golden == ()
    why = "forward refuses generated inputs: its second input, the shape, must make [4, 6] (node 'n')"
    assert capsys.readouterr().out == f"mlaot: shipped.nn has no golden vectors: {why}\n"
    write(program_files(program), tmp_path)
    checked = [*find_toolchain().command, *FLAGS.split(), *WARNINGS.split(), "-fsyntax-only", str(tmp_path / "nn.c")]
    subprocess.run(checked, check=True)
    compile_module(tmp_path, "nn", ("base",), tmp_path / "nn.abi3.so", find_toolchain())
    nn = load(tmp_path / "nn.abi3.so")
    np.testing.assert_array_equal(nn.forward(X, of(4, 6)), X.reshape(4, 6))
    out = np.zeros((4, 6), np.float32)
    for shape in (of(6, 4), of(-1, -1)):
        with pytest.raises(ValueError, match=r"forward: its second input, the shape, must make \[4, 6\] \(node 'n'\)"):
            nn.forward(X, shape, out=out)
    np.testing.assert_array_equal(nn.forward(X, of(-1, 6), out=out), X.reshape(4, 6))
    assert nn.selftest() == {}
    with pytest.raises(MlaotError, match="an input decides a shape, which functions for C cannot refuse"):
        program_files(replace(program, module=replace(program.module, options=Options(c_library=True))))


def test_golden_vectors_of_inputs_that_are_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shape is generated as [7, 4], which fits only where x has 4 columns; the model is evaluated for no other."""
    monkeypatch.setattr("mlaot.report.golden.EVALUATIONS", 1)
    infos = [helper.make_tensor_value_info("s", TensorProto.INT64, [2])]
    infos.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, [7, "n"]))
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [7, "n"])
    graph = helper.make_graph([helper.make_node("Reshape", ["x", "s"], ["y"], name="node")], "g", infos, [out])
    file = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    declared = declare(file, {})
    module = projects.load(projects.build_module(declared, "accepts", tmp_path, ("base",), golden=True))
    assert module.selftest() == {"base": 0}
    printed = capsys.readouterr().out
    assert printed == "mlaot: accepts.nn: onnx.reference gives the same answer to 1e-09 of the largest element\n"
    program = compile_model(declared, "accepts.nn", Options(isas=("base",)), golden=True)
    assert [call.dims for call in program.module.golden] == [(5,)]
    assert [len(call["outputs"]) for call in golden_calls(program.module)] == [1]
    python = projects.plain_module(declared, "accepts_python", tmp_path / "python", golden=True)
    assert python.selftest() == {"python": 0}


def test_dropout_that_drops_nothing() -> None:
    """Whether it is in training, and the ratio, are inputs; what would draw random numbers is refused."""
    texts = [
        "m (float[3] x, float ratio, bool training) => (float[3] y) { y = Dropout(x, ratio, training) }",
        'm (float[3] x, bool training) => (float[3] y) { y = Dropout(x, "", training) }',
    ]
    x = np.arange(3, dtype=np.float32)
    both, one = (
        Backend.prepare(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> {t}')) for t in texts
    )
    for ratio, training in ((0.0, True), (0.5, False), (0.0, False)):
        np.testing.assert_array_equal(both.run([x, np.float32(ratio), np.array(training)])[0], x)
    np.testing.assert_array_equal(one.run([x, np.array(False)])[0], x)
    for run in (lambda: both.run([x, np.float32(0.5), np.array(True)]), lambda: one.run([x, np.array(True)])):
        with pytest.raises(ValueError, match="its ratio must be 0"):
            run()


def test_dropout_of_a_seed() -> None:
    """It drops what NumPy draws for the seed, if the shape is known: all that it is asked for by inputs, too."""
    head = '<ir_version: 8, opset_import: ["": 18]>'
    node = (
        "(float[40] x, R bool training) => (float[40] y, bool[40] mask) { y, mask = Dropout<seed=7>(x, r, training) }"
    )
    x = np.arange(40, dtype=np.float32)
    x[3] = np.inf
    uniform = np.random.RandomState(7).uniform(0, 1, 40)
    for text, ratio in ((node.replace("R", "float r,"), 0.25), (node.replace("R", "").replace("r,", ","), 0.5)):
        text = text.replace("(x, ,", '(x, "",')
        model = Backend.prepare(onnx.parser.parse_model(f"{head} m {text}"))
        given = [np.float32(ratio)] if "float r" in text else []
        with np.errstate(invalid="ignore"):
            dropped = (uniform >= ratio) * x * np.float32(1 / (1 - ratio))
        for training, values, kept in ((True, dropped, uniform >= ratio), (False, x, np.ones(40, bool))):
            y, mask = model.run([x, *given, np.array(training)])
            np.testing.assert_array_equal(y, values)
            np.testing.assert_array_equal(mask, kept)


def test_dropout_of_a_seed_where_nobody_knows_what_is_dropped() -> None:
    """Of an open shape NumPy can draw nothing in advance; nor of a seed that it does not take, or of too much."""
    head = '<ir_version: 8, opset_import: ["": 18]>'
    known = "<bool t = {1}, float r = {0.5}>"
    for text, message in (
        (
            f"(float[n] x) => (float[n] y) {known} {{ y = Dropout<seed=7>(x, r, t) }}",
            "random numbers of another generator",
        ),
        (f"(float[3] x) => (float[3] y) {known} {{ y = Dropout<seed=-1>(x, r, t) }}", "Seed must be between"),
        (f"(float[65536,4096] x) => (float[n,m] y) {known} {{ y = Dropout<seed=7>(x, r, t) }}", "of another generator"),
        (f"(float[3] x) => (float[3] y) {known} {{ y = Dropout(x, r, t) }}", "random numbers of another generator"),
    ):
        with pytest.raises(MlaotError, match=message):
            declare(onnx.parser.parse_model(f"{head} m {text}"), {}).trace()
    open_one = "(float[n] x, bool t) => (float[n] y) { y = Dropout<seed=7>(x, , t) }".replace(", ,", ', "",')
    with pytest.raises(ValueError, match="its ratio must be 0"):
        Backend.prepare(onnx.parser.parse_model(f"{head} m {open_one}")).run([np.ones(3, np.float32), np.array(True)])
