"""Lengths that the data decide, against stored answers of onnxruntime (``python -m tests.onnx.make_counted``)."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import TensorProto, helper, numpy_helper

from mlaot.build.toolchain import compile_module, find_toolchain
from mlaot.errors import MlaotError
from mlaot.evaluate import evaluate
from mlaot.files import program_files, write
from mlaot.generate import compile_model
from mlaot.lower.program import Program
from mlaot.onnx import Backend
from mlaot.onnx.declare import declare
from mlaot.settings import AtMost, Size
from mlaot.settings.options import Options
from mlaot.settings.reading import read_dims

from ..compiled import AVAILABLE, Library, Runs
from ..interpreted import Interpreted
from ..printed import Printed
from ..runtime.models import FLAGS, WARNINGS, load
from .counted_cases import ROWS, SEEDS, Inputs, Maker, detector, detector_inputs, inputs_of, random_model
from .make_counted import STORED

ISA = AVAILABLE[-1]
EVALUATED = SEEDS[:4]  # models that are interpreted, too


@cache
def models() -> dict[str, onnx.ModelProto]:
    return {"detector": detector(), **{f"random{seed}": random_model(seed) for seed in SEEDS}}


@cache
def programs() -> dict[str, Program]:
    return {name: compile_model(declare(model, {}), "m.nn", Options()) for name, model in models().items()}


def calls(name: str) -> list[Inputs]:
    return [detector_inputs(rows) for rows in ROWS] if name == "detector" else [*inputs_of(int(name[6:]))]


@pytest.fixture(scope="session")
def answers() -> Mapping[str, Any]:
    return np.load(STORED)  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def library(shared_folder: Path) -> Library:
    return Library(programs(), ISA, shared_folder / "counted", ("-Wno-type-limits",))


def hold(name: str, runs: Runs, answers: Mapping[str, Any]) -> None:
    """Hold what runs a program against the stored answers: elements, shapes and dtypes."""
    entry = programs()[name].procedures[0].entry
    for number, inputs in enumerate(calls(name)):
        dims = {"n": len(next(iter(inputs.values())))}
        found = runs.call(name, "forward", inputs, dims if programs()[name].module.dims.count("n") else {})
        for i, port in enumerate(entry.results):
            wanted = answers[f"{name}/{number}/{i}"]
            assert (found[port.name].shape, found[port.name].dtype) == (wanted.shape, wanted.dtype), (number, port)
            np.testing.assert_allclose(found[port.name], wanted, 1e-4, 1e-4, err_msg=f"{number} {port.name}")


@pytest.mark.parametrize("name", ["detector", *(f"random{seed}" for seed in SEEDS)])
def test_as_onnxruntime(name: str, library: Library, answers: Mapping[str, Any]) -> None:
    """Memory ends at a page that cannot be touched, and threads' parts are as small as can be."""
    hold(name, library, answers)


@pytest.mark.parametrize("name", [f"random{seed}" for seed in EVALUATED])
def test_other_doors(name: str, answers: Mapping[str, Any]) -> None:
    hold(name, Interpreted({name: programs()[name]}, "v4"), answers)
    hold(name, Printed({name: programs()[name]}), answers)


def test_evaluated(answers: Mapping[str, Any]) -> None:
    traced = declare(detector(), {}).trace()
    for number, inputs in enumerate(calls("detector")):
        found = evaluate(traced.graph, {**traced.parameters, **inputs})
        for i, name in enumerate([*found][:3]):
            np.testing.assert_allclose(found[name], answers[f"detector/{number}/{i}"], 1e-4, 1e-4)


def chosen(shape: list[Any], wanted: list[Any], **more: Any) -> onnx.ModelProto:
    """The elements of x that are not 0, and where they are; ``more``: nodes behind these, and what they give."""
    m = Maker()
    places = m.add("NonZero", "x")
    values = m.add("GatherND", "x", m.add("Transpose", places, perm=[1, 0]))
    m.nodes[0].output[0] = m.nodes[1].input[0] = "places"
    m.nodes[2].output[0] = "values"
    assert (places, values) == ("nonzero0", "gathernd2")
    outputs = {"places": (TensorProto.INT64, wanted), "values": (TensorProto.FLOAT, wanted[1:])}
    return m.model({"x": shape}, outputs)


X = np.array([[0, 3, 0], [2, 0, 1]], np.float32)


def module(folder: Path, dims: Mapping[str, Size], model: onnx.ModelProto, **options: Any) -> tuple[Any, Program]:
    program = compile_model(declare(model, dims), "shipped.nn", Options(isas=("base",)), golden=True)
    write(program_files(program), folder)
    checked = [*find_toolchain().command, *FLAGS.split(), *WARNINGS.split(), "-fsyntax-only", str(folder / "nn.c")]
    subprocess.run(checked, check=True)
    compile_module(folder, "nn", ("base",), folder / "nn.abi3.so", find_toolchain())
    return load(folder / "nn.abi3.so"), program


def test_module(tmp_path: Path) -> None:
    """The extension module: shapes, buffers of the caller's, golden vectors, C that cannot take it."""
    nn, program = module(tmp_path, {}, chosen(["n", 3], [2, "found"]))
    assert program.module.golden and nn.selftest()["base"] <= 1
    assert nn.info()["entries"]["forward"]["outputs"] == {"places": "int64[2, found]", "values": "float32[found]"}
    for x in (X, X * 0, X + 1, -X, X[:0]):
        places, values = nn.forward(x)
        np.testing.assert_array_equal(places, np.array(np.nonzero(x)))
        np.testing.assert_array_equal(values, x[np.nonzero(x)])
    out = np.zeros((2, 3), np.int64), np.zeros(3, np.float32)
    assert nn.forward(X, out=out) is out
    np.testing.assert_array_equal(out[1], [3, 2, 1])
    kept = [array.copy() for array in out]
    with pytest.raises(ValueError, match=r"expected a writable int64\[2, 6\] of its own, got int64\[2, 3\]"):
        nn.forward(X + 1, out=out)
    with pytest.raises(ValueError, match=r"expected a writable float32\[3\] of its own, got float32\[2\]"):
        nn.forward(X * 2, out=(out[0], out[1][:2]))
    for array, before in zip(out, kept, strict=True):
        np.testing.assert_array_equal(array, before)
    with pytest.raises(MlaotError, match="the length found is counted in a call, which functions for C cannot tell"):
        program_files(replace(program, module=replace(program.module, options=Options(c_library=True))))


def test_bound(tmp_path: Path) -> None:
    """More than settings allow is refused, and the module goes on."""
    nn, program = module(tmp_path, {"found": AtMost(3)}, chosen(["n", 3], [2, "found"]))
    for _ in range(3):
        assert nn.forward(X)[1].tolist() == [3, 2, 1]
        with pytest.raises(ValueError, match=r"^forward: expected found of at most 3, got 6$"):
            nn.forward(X + 1)
    runs: list[Runs] = [Interpreted({"m": program}, "base"), Printed({"m": program})]
    for one in runs:
        assert one.call("m", "forward", {"x": X}, {"n": 2})["values"].tolist() == [3, 2, 1]
        with pytest.raises(ValueError, match="expected found of at most 3, got 6"):
            one.call("m", "forward", {"x": X + 1}, {"n": 2})
    with pytest.raises(MlaotError, match="expected found of at most 3, got 6"):
        evaluate(declare(chosen([2, 3], [2, "found"]), {"found": AtMost(3)}).trace().graph, {"x": X + 1})


def test_settings() -> None:
    assert read_dims({"found": {"most": 5}, "n": 2}, "nn", kind="onnx") == (("found", AtMost(5)), ("n", 2))
    for table, kind in (({"found": {"most": 5}}, "torch"), ({"found": {"least": 5}}, "onnx"), ({"n": True}, "onnx")):
        with pytest.raises(MlaotError, match="must be a size such as 1"):
            read_dims(table, "nn", kind=kind)


def test_bounds_of_nothing() -> None:
    with pytest.raises(MlaotError, match=r"find.* lengths that are counted.*found"):
        declare(chosen([2, 3], [2, "found"]), {"find": AtMost(3)}).trace()


def test_declared_length() -> None:
    """What the file or the settings say stays: no other length is computed."""
    for model, dims in ((chosen([2, 3], [2, 3]), {}), (chosen([2, 3], [2, "found"]), {"found": 3})):
        compiled = Backend.prepare(model) if not dims else None
        program = compile_model(declare(model, dims), "m.nn", Options())
        assert program.procedures[0].entry.counts == ()
        if compiled is not None:
            assert compiled.run([X])[1].tolist() == [3, 2, 1]
            with pytest.raises(ValueError, match="the file's shape needs 3 elements that are not 0"):
                compiled.run([X + 1])


def test_lengths_that_must_be_equal() -> None:
    """Two counts whose elements are added are one length, and calls in which they differ are refused."""
    m = Maker()
    chosen_of = [m.add("Compress", "x", m.add("Greater", name, np.float32(0)), axis=0) for name in ("s", "t")]
    total = m.add("Add", *chosen_of)
    model = m.model({"x": [4], "s": [4], "t": [4]}, {total: (TensorProto.FLOAT, ["k"])})
    compiled = Backend.prepare(model)
    x, s, t = np.arange(4, dtype=np.float32), np.array([1, 0, 1, 0], np.float32), np.array([0, 0, 1, 1], np.float32)
    assert compiled.run([x, s, t])[0].tolist() == [2, 5]
    with pytest.raises(ValueError, match="must be"):
        compiled.run([x, s, t * 0])


def test_too_few() -> None:
    """What cannot be computed of so few is refused, once they are counted."""
    m = Maker()
    values = m.add("Compress", "x", m.add("Greater", "x", np.float32(0)), axis=0)
    best, _ = m.add("TopK", values, np.array([2]), outputs=2)
    compiled = Backend.prepare(m.model({"x": [5]}, {best: (TensorProto.FLOAT, [2])}))
    assert compiled.run([np.array([3, -1, 7, 5, 0], np.float32)])[0].tolist() == [7, 5]
    with pytest.raises(ValueError, match=r"expected compress\d_0 - 2 of at least 0, got -1"):
        compiled.run([np.array([3, -1, 0, 0, 0], np.float32)])


def test_numbers_from_outside() -> None:
    """A number that is computed before the count is read from memory, alone and in a product."""
    m = Maker()
    total = m.add("ReduceSum", "x", keepdims=0)
    rows = m.add("Compress", "x", m.add("Greater", "s", np.float32(0)), axis=0)
    size = m.add("Mul", total, m.add("Cast", m.add("Size", rows), to=TensorProto.FLOAT))
    product = m.add("MatMul", rows, m.add("Expand", total, np.array([3, 2])))
    outputs = {size: (TensorProto.FLOAT, []), product: (TensorProto.FLOAT, ["k", 2])}
    compiled = Backend.prepare(m.model({"x": [2, 3], "s": [2]}, outputs))
    for s, kept in (([1, -1], X[:1]), ([1, 1], X), ([-1, -1], X[:0])):
        found = compiled.run([X, np.array(s, np.float32)])
        np.testing.assert_allclose(found[0], X.sum() * kept.size)
        np.testing.assert_allclose(found[1], kept @ np.full((3, 2), X.sum()))


def test_weights() -> None:
    """Weights lie as kernels read them, whatever waits for a count: filters that are transformed, panels, vectors."""
    m, rng = Maker(), np.random.default_rng(0)
    shapes = {"filters": (16, 8, 3, 3), "more": (16, 16, 3, 3), "wide": (16 * 36, 96), "bias": (96,), "last": (96, 10)}
    images = m.add("Compress", "x", m.add("Greater", "s", np.float32(0)), axis=0)
    for name in ("filters", "more"):
        images = m.add("Relu", m.add("Conv", images, name, pads=[1, 1, 1, 1]))
    pooled = m.add("MaxPool", images, kernel_shape=[2, 2], strides=[2, 2])
    hidden = m.add("Relu", m.add("Gemm", m.add("Flatten", pooled), "wide", "bias"))
    scores = m.add("Softmax", m.add("MatMul", hidden, "last"), axis=1)
    model = m.model({"x": ["n", 8, 12, 12], "s": ["n"]}, {scores: (TensorProto.FLOAT, ["k", 10])})
    for name, shape in shapes.items():
        weight = rng.normal(size=shape) / np.sqrt(np.prod(shape[1:]) if len(shape) > 2 else shape[0])
        model.graph.initializer.append(numpy_helper.from_array(weight.astype(np.float32), name))
    compiled, reference = Backend.prepare(model), onnx.reference.ReferenceEvaluator(model)
    x = rng.normal(size=(9, 8, 12, 12)).astype(np.float32)
    for s in (np.arange(9) - 4, np.arange(9) - 7, np.ones(9)):
        inputs = {"x": x, "s": s.astype(np.float32)}
        np.testing.assert_allclose(compiled.run([*inputs.values()])[0], reference.run(None, inputs)[0], 1e-4, 1e-5)
    assert compiled.run([x, np.zeros(9, np.float32)])[0].shape == (0, 10)


def test_loop_over_rows(tmp_path: Path) -> None:
    """Threads share the rows of a loop, whose number is counted; so are the rounds of another one."""
    m, rng = Maker(), np.random.default_rng(0)
    rows = m.add("Compress", "x", m.add("Greater", "s", np.float32(0)), axis=1)  # [5, k, 4]
    w, r = (rng.normal(size=(1, 24, n)).astype(np.float32) for n in (4, 8))
    _, last = m.add("GRU", rows, w, r, outputs=2, hidden_size=8)
    rounds = m.add("GRU", m.add("Transpose", rows, perm=[1, 0, 2]), w, r, outputs=2, hidden_size=8)[1]
    outputs = {last: (TensorProto.FLOAT, [1, "k", 8]), rounds: (TensorProto.FLOAT, [1, 5, 8])}
    model = m.model({"x": [5, "n", 4], "s": ["n"]}, outputs)
    program = compile_model(declare(model, {}), "m.nn", Options())
    runs = [Library({"m": program}, ISA, tmp_path, ("-Wno-type-limits",)), Interpreted({"m": program}, ISA)]
    reference = onnx.reference.ReferenceEvaluator(model)
    for n in (40, 6):
        x, s = rng.normal(size=(5, n, 4)).astype(np.float32), rng.normal(size=n).astype(np.float32)
        wanted = reference.run(None, {"x": x, "s": s})
        for one in (*runs, Printed({"m": program})):
            found = one.call("m", "forward", {"x": x, "s": s}, {"n": n})
            for name, array in zip(outputs, wanted, strict=True):
                np.testing.assert_allclose(found[name], array, 1e-4, 1e-5)


def test_settings_bound_what_has_no_bound() -> None:
    m = Maker()
    limit = m.add("Cast", m.add("ReduceMax", "x", keepdims=0), to=TensorProto.INT64)
    numbers = m.add("Range", np.array(0), limit, np.array(1))
    model = m.model({"x": [4]}, {numbers: (TensorProto.INT64, ["k"])})
    with pytest.raises(MlaotError, match=r"or say how many at most: k = \{ most = 100 \}"):
        declare(model, {}).trace()
    program = compile_model(declare(model, {"k": AtMost(6)}), "m.nn", Options())
    run = Interpreted({"m": program}, "base")
    for limit_value in (0, 4, 6):
        x = np.array([0, -3, limit_value, 0], np.float32)
        assert run.call("m", "forward", {"x": x})[numbers].tolist() == [*range(limit_value)]
    with pytest.raises(ValueError, match="expected k of at most 6, got 7"):
        run.call("m", "forward", {"x": np.array([7, 0, 0, 0], np.float32)})


def test_many(monkeypatch: pytest.MonkeyPatch) -> None:
    m, y = Maker(), "x"
    for i in range(5):
        y = m.add("Compress", y, m.add("Greater", y, np.float32(i)), axis=0)
    model = m.model({"x": ["n"]}, {y: (TensorProto.FLOAT, ["k"])})
    program = compile_model(declare(model, {}), "m.nn", Options())
    found = Interpreted({"m": program}, ISA).call("m", "forward", {"x": np.arange(9)}, {"n": 9})
    assert found[y].tolist() == [5, 6, 7, 8]
    monkeypatch.setattr("mlaot.onnx.counting.MOST", 4)
    with pytest.raises(MlaotError, match=r"node 'Compress.*the data decide more than 4 lengths before it"):
        declare(model, {}).trace()


def test_in_a_branch() -> None:
    """What only one branch counts is no length of the whole."""
    empty = helper.make_tensor_value_info("r", TensorProto.INT64, [1, "k"])
    zero = numpy_helper.from_array(np.zeros((1, 0), np.int64))
    then = helper.make_graph([helper.make_node("NonZero", ["x"], ["r"])], "then", [], [empty])
    other = helper.make_graph([helper.make_node("Constant", [], ["r"], value=zero)], "otherwise", [], [empty])
    m = Maker()
    taken = m.add("Greater", m.add("ReduceSum", "x", keepdims=0), np.float32(0))
    found = m.add("If", taken, then_branch=then, else_branch=other)
    with pytest.raises(MlaotError, match="in a loop or branch it cannot be counted"):
        declare(m.model({"x": [4]}, {found: (TensorProto.INT64, [1, "k"])}), {}).trace()
