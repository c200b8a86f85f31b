"""What a frozen module holds: its weights almost without gaps, and as the kernels of their products read them best.

``MLAOT_ONNX_FILES`` names a folder with ONNX files that must keep to it, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import mlaot
import mlaot.onnx
from mlaot import nn
from mlaot.generate import compile_model
from mlaot.ir.types import Literal
from mlaot.loading import trace
from mlaot.lower.program import Kernel, Program
from mlaot.settings.options import Options

from ..examples.test_examples import load_model
from ..projects import build_module, load

Array = np.ndarray[Any, Any]
MOST = 1.3  # bytes of constants for one of weights
RNG = np.random.default_rng(0)
N, H, W = mlaot.dim("n"), mlaot.dim("h"), mlaot.dim("w")


def reads(layer: Any, *shape: Any, before: Callable[[Any], Any] = lambda x: x) -> Any:
    """A model that gives a layer's first result."""

    def model(x: Any) -> Any:
        found = layer(before(x))
        return found[0] if isinstance(found, tuple) else found

    model.__annotations__ = {"x": mlaot.f32[shape]}
    return mlaot.model(parameters=layer)(model)


def normal(*shape: int) -> Array:
    return RNG.normal(size=shape).astype(np.float32)


def layers() -> Iterator[tuple[str, Any]]:
    """Layers of sizes that no vector divides, and of axes that are 1 long."""
    for i, o in ((10, 20), (1000, 20), (1000, 24), (784, 10), (512, 5), (3, 512), (300, 1), (128, 40)):
        yield f"linear {i} {o}", reads(nn.Linear(i, o), N, i)
    for i, o, k in ((512, 256, 1), (48, 1152, 1), (20, 20, 3), (40, 20, (3, 1)), (1, 6, 5), (64, 64, 3), (3, 5, 3)):
        layer, size = nn.Conv2d(i, o, k), k if isinstance(k, tuple) else (k, k)
        for at, shape in {"window": size, "9x9": (9, 9), "open": (H, W)}.items():
            yield f"conv2d {i} {o} {k} on {at}", reads(layer, N, i, *shape)
    for channels, groups in ((17, 17), (32, 32), (68, 4), (400, 4)):
        layer = nn.Conv2d(channels, channels, 3, groups=groups)
        yield f"conv2d {channels} by {groups}", reads(layer, N, channels, 9, 9)
    yield "conv1d", reads(nn.Conv1d(512, 256, 1), 1, 512, 1)
    yield "conv1d of 3", reads(nn.Conv1d(40, 40, 3), N, 40, 30)
    yield "conv3d", reads(nn.Conv3d(4, 8, 3), N, 4, 7, 7, 7)
    yield "transposed", reads(nn.ConvTranspose2d(30, 20, 4, 2), N, 30, 9, 9)
    yield "attention", reads(SelfAttention(), N, 10, 48)
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        for options in ({}, {"bidirectional": True}, {"num_layers": 2}):
            layer = kind(24, 20, **options)
            turned = reads(layer, N, 24, 10, before=lambda x: np.transpose(x, (2, 0, 1)))
            yield f"{kind.__name__} {options} turned", turned


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        self.attention = nn.MultiheadAttention(48, 4, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.attention(x, x, x)


BLOCKS, CUBE = normal(40, 24), normal(4, 6, 24)
# Weights that are plain arrays, and read through views.
ARRAYS: dict[str, Callable[[Any], Any]] = {
    "matrix times vector": lambda x: BLOCKS @ x[0],
    "turned": lambda x: BLOCKS @ x.T,
    "in parts": lambda x: x @ BLOCKS[:20].T + x @ BLOCKS[20:].T,
    "backwards": lambda x: x @ BLOCKS[:, ::-1].T,
    "every other": lambda x: x[:, ::2] @ BLOCKS[:, ::2].T,
    "three axes": lambda x: np.einsum("bi,kji->bkj", x, CUBE),
    "in another order": lambda x: np.einsum("bi,kji->bjk", x, CUBE),
    "reshaped": lambda x: x @ np.reshape(BLOCKS, (24, 40)),
    "a batch of products": lambda x: np.matmul(np.transpose(np.reshape(x, (-1, 4, 6)), (1, 0, 2)), CUBE),
}


def arrays() -> Iterator[tuple[str, Any]]:
    for name, function in ARRAYS.items():
        for rows in (N, 1, 7):

            def model(x: Any, function: Callable[[Any], Any] = function) -> Any:
                return function(x)

            model.__annotations__ = {"x": mlaot.f32[rows, 24]}
            yield f"{name}, {rows} rows", mlaot.model(model)


def recurrent(folder: Path) -> Iterator[tuple[str, Any]]:
    """ONNX files as exporters write them: all gates and directions in one weight, behind a transpose."""
    for op, gates in (("GRU", 3), ("LSTM", 4), ("RNN", 1)):
        for directions in (1, 2):
            for batch in (1, "n"):
                yield f"{op} {directions} {batch}", mlaot.onnx.load(_file(folder, op, gates, directions, batch))


def _file(folder: Path, op: str, gates: int, directions: int, batch: Any) -> Path:
    size, hidden = 48, 32
    weights = {
        "w": normal(directions, gates * hidden, size),
        "r": normal(directions, gates * hidden, hidden),
        "b": normal(directions, 2 * gates * hidden),
    }
    direction = "bidirectional" if directions == 2 else "forward"
    graph = helper.make_graph(
        [
            helper.make_node("Transpose", ["x"], ["t"], perm=[2, 0, 1]),
            helper.make_node(op, ["t", "w", "r", "b"], ["y"], hidden_size=hidden, direction=direction),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, size, 20])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [20, directions, batch, hidden])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / f"{op}{directions}{batch}.onnx"
    onnx.save(model, path)
    return path


def held(model: Any) -> tuple[int, int]:
    """The bytes of a model's arrays, and how many there are."""
    traced = trace(model)
    found = [np.asarray(value).nbytes for value in (*traced.parameters.values(), *traced.buffers.values())]
    literals: dict[Literal, None] = {}
    for graph in (traced.graph, *traced.entries.values()):
        values = [node.attrs["value"] for node in graph.nodes() if node.op.name == "const"]
        literals |= dict.fromkeys(value for value in values if value.array.ndim)
    found += [literal.array.nbytes for literal in literals]
    return sum(found), len(found)


def kernels_of_products(program: Program) -> Iterator[Kernel]:
    for procedure in program.procedures:
        for kernel in procedure.kernels:
            if any("= contract(" in line for line in kernel.doc):
                yield kernel


def check(name: str, model: Any) -> None:
    program = compile_model(model, "m", Options(isas=("v3",)))
    size, count = held(model)
    constants = len(program.module.constants)
    assert constants <= MOST * size + 64 * count, f"{name}: {constants} bytes of constants for {size}"
    for kernel in kernels_of_products(program):
        assert kernel.template != "plain", f"{name}: {kernel.doc}"


def test_layers() -> None:
    for name, model in layers():
        check(name, model)


def test_arrays() -> None:
    for name, model in arrays():
        check(name, model)


def test_recurrent_files(tmp_path: Path) -> None:
    for name, model in recurrent(tmp_path):
        check(name, model)


def test_examples() -> None:
    check("examples/c", load_model("c").fixed)


def test_weights_that_train() -> None:
    """A weight and its gradient, without gaps: axes of 1, and rows that are no whole vectors."""
    for name, layer, shape in (
        ("conv1d", nn.Conv1d(128, 64, 1), (N, 128, 9)),
        ("conv2d", nn.Conv2d(12, 20, 3), (N, 12, 9, 9)),
        ("linear", nn.Linear(200, 20), (N, 200)),
    ):
        model = reads(layer, *shape)
        model = mlaot.model(parameters=layer, loss=lambda out: np.mean(out * out))(model.function)
        program = compile_model(model, "m", Options(isas=("v3",)))
        weights = sum(p.array.nbytes for p in layer.parameters())
        assert program.module.state_bytes <= 2 * (MOST * weights + 64 * 2), name


@pytest.mark.skipif("MLAOT_ONNX_FILES" not in os.environ, reason="MLAOT_ONNX_FILES names no folder")
def test_files() -> None:
    for path in sorted(Path(os.environ["MLAOT_ONNX_FILES"]).glob("*.onnx")):
        check(path.name, mlaot.onnx.load(path))


def test_an_operand_that_others_read_is_not_held_twice() -> None:
    """An embedding that is also the last layer, as in a GPT: one copy, for the table."""
    table = nn.Embedding(512, 64)

    @mlaot.model(parameters=table)
    def tied(tokens: mlaot.i64[8]) -> Any:
        return table(tokens) @ table.weight.T

    program = compile_model(tied, "m", Options(isas=("v3",)))
    assert len(program.module.constants) <= MOST * table.weight.array.nbytes


def test_short_sums_run_along_rows_of_the_result() -> None:
    """Panels of weights would scatter them; where the weights' columns are innermost in the result, nothing is."""
    for layer, shape, are_panels in (
        (nn.Conv2d(20, 48, 1), (N, 20, 9, 9), False),
        (nn.Conv2d(200, 48, 1), (N, 200, 9, 9), True),
        (nn.Conv2d(10, 48, 3), (N, 10, 12, 12), False),
        (nn.Conv2d(20, 48, 3), (N, 20, 12, 12), True),
        (nn.Conv2d(20, 48, 1), (N, 20, 3, 2), True),
        (nn.Linear(20, 48), (N, 9, 20), True),
    ):
        program = compile_model(reads(layer, *shape), "m", Options(isas=("v3",)))
        (kernel,) = kernels_of_products(program)
        assert any(array.panels for array in kernel.nest.params) == are_panels, (layer.weight.array.shape, shape)


I = mlaot.dim("i")


@pytest.mark.parametrize(("columns", "dtype"), [(64, "float32"), (130, "float32"), (200, "float64")])
def test_rows_of_a_table_are_read_from_the_panels_of_a_product(columns: int, dtype: str, tmp_path: Path) -> None:
    """The table is there once."""
    table = np.random.default_rng(columns).normal(size=(columns, 24)).astype(dtype)
    weight = mlaot.Parameter("table", table)

    @mlaot.model(parameters={"table": weight})
    def tied(places: mlaot.i64[I]) -> Any:
        x = mlaot.take(weight, places, axis=0)
        return x, nn.functional.linear(np.tanh(x), weight)

    library = build_module(tied, "tied", tmp_path / "site")
    assert "in panels of" in (tmp_path / "site-c" / "tied.nn" / "nn_base.c").read_text()
    places = np.array([0, 1, 15, 16, 17, columns - 2, columns - 1, 40])
    found, scores = load(library).forward(places)
    np.testing.assert_array_equal(np.asarray(found), table[places])
    exact = np.tanh(table[places].astype(np.float64)) @ table.T
    np.testing.assert_allclose(np.asarray(scores), exact, rtol=0, atol=1e-5 * np.abs(exact).max())
