"""Programs of scalars that repeat: their graphs do not grow with their length, and compute what the scalars do."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from mlaot import passes
from mlaot.evaluate import evaluate
from mlaot.frontend.scalar.parameters import parameter_arrays
from mlaot.frontend.trace.declaration import Declaration
from mlaot.ir import Graph
from mlaot.ir.module import Module
from mlaot.ir.subgraph import subgraphs
from mlaot.ir.types import f64
from mlaot.loading import trace
from mlaot.lower.lower import lower
from mlaot.micrograd import declare
from mlaot.ops import elementwise as ew
from mlaot.passes.raising import chains
from mlaot.passes.raising.arrays import HOLE, column_ranks, filled, invariant, split
from mlaot.passes.raising.positions import take_as_view

from ...compiled import Library, State
from .programs import PROGRAMS, Program, attention, flat, kalman, lstm, recurrent, side_by_side, table

LENGTHS = 24, 32


def declared(program: Program, loss: bool = False) -> Declaration:
    total = sum(v * v for v in program.outputs) if loss else None
    return declare(program.outputs, inputs={"x": flat(program.inputs)}, parameters=program.parameters, loss=total)


def size(graph: Graph) -> int:
    """The number of nodes, those of loops included."""
    inner = [body for node in graph.nodes() for body in subgraphs(node.attrs).values()]
    return len(graph.nodes()) + sum(size(body.graph) for body in inner)


@cache
def raised(program: Callable[[int], Program], n: int) -> Module:
    return passes.run("m", declared(program(n)).trace())


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_graphs_do_not_grow(program: Callable[[int], Program]) -> None:
    graphs = [raised(program, n).graphs["forward"] for n in LENGTHS]
    assert abs(size(graphs[0]) - size(graphs[1])) <= 3, graphs[1]
    found = {node.op.name for node in graphs[1].nodes()}
    assert PROGRAMS[program] <= found, graphs[1]


def test_a_filter_is_one_loop_of_all_rounds_but_the_first() -> None:
    """What it knows after the last step is not read by anybody, and what it knows does not depend on what it sees."""
    graph = passes.run("m", declared(kalman(20)).trace()).graphs["forward"]
    assert [node.attrs["length"] for node in graph.nodes() if node.op.name == "scan"] == [19]


def test_rows_of_a_table_are_loops_in_a_loop() -> None:
    graph = passes.run("m", declared(table(24)).trace()).graphs["forward"]
    loops = [node for node in graph.nodes() if node.op.name == "scan"]
    inner = [n for loop in loops for n in loop.attrs["body"].graph.nodes() if n.op.name == "scan"]
    assert len(inner) == 1


def test_no_value_is_made_in_two_rounds() -> None:
    """exp(a) is read in its own round and in the next one: a cut in front of it is none between rounds."""
    graph = Graph("f")
    a, b = graph.input("a", f64[()]), graph.input("b", f64[()])
    rows = [[a, b]]
    for _ in range(20):
        a = ew.tanh(ew.exp(a))
        b = ew.tanh(ew.add(ew.exp(a), ew.exp(b)))
        rows.append([a, b])
    assert chains._chain(rows[-2], rows[-1]) is None
    assert chains._chain(rows[-2][:1], rows[-1][:1]) is not None


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_results_stay(program: Callable[[int], Program]) -> None:
    written = program(LENGTHS[0])
    plain, module = trace(declared(written)), raised(program, LENGTHS[0])
    rows = np.random.default_rng(0).normal(size=(3, len(flat(written.inputs))))
    graph = module.graphs["forward"]
    held = {name: module.parameters[name] for name in graph.inputs if name != "x"}
    (found,) = evaluate(graph, {"x": rows, **held}).values()
    expected = [evaluate(plain.graph, {"x": row, **plain.parameters})["out"] for row in rows]
    np.testing.assert_allclose(found, np.reshape(expected, found.shape), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(
    "program", [attention, recurrent, lstm, side_by_side, table], ids=lambda program: program.__name__
)
def test_they_train(program: Callable[[int], Program], tmp_path: Path) -> None:
    """The compiled gradient is that of the engine."""
    written = program(12 if program is table else 6)
    leaves = flat(written.inputs)
    row = np.random.default_rng(1).normal(size=len(leaves))
    for leaf, number in zip(leaves, row, strict=True):
        leaf.data = float(number)
    loss = sum(v * v for v in written.outputs)
    loss.forward()  # type: ignore[union-attr]
    loss.backward()  # type: ignore[union-attr]
    module = passes.run("m", declared(written, loss=True).trace())
    program = lower(module)
    state = State(program)
    values, arrays = parameter_arrays(written.parameters)
    start = {name: state.slot(name).copy() for name in arrays}
    inputs = {"x": row[None], "lr": 1.0}
    found = Library({"m": program}, "base", tmp_path).call("m", "train_step", inputs, {"batch": 1}, state)
    np.testing.assert_allclose(found["loss"], loss.data, rtol=1e-12)  # type: ignore[union-attr]
    for name, numbers in arrays.items():
        moved = start[name].reshape(-1) - state.slot(name).reshape(-1)
        np.testing.assert_allclose(moved, [values[i].grad for i in numbers.flat], rtol=1e-9, atol=1e-12)


def test_exploding_values_of_later_positions_do_no_harm() -> None:
    """What attention has no term for would overflow: neither it nor its gradient is computed."""
    written = attention(6)
    row = np.ones(len(flat(written.inputs)))
    row[-4:] = 1e6
    module = passes.run("m", declared(written, loss=True).trace())
    graph = module.graphs["train_step"]
    inputs = {"x": row[None], "lr": 0.0, **module.parameters}
    with np.errstate(all="ignore"):
        found = evaluate(graph, {name: inputs[name] for name in graph.inputs if name in inputs}, dims={"batch": 1})
    assert all(np.isfinite(value).all() for value in found.values())


def test_arrays_with_holes() -> None:
    ids = np.array([[4, HOLE, HOLE], [4, 7, HOLE], [4, 7, 9]])
    core, axes = invariant(ids)
    assert core.tolist() == [4, 7, 9] and axes == (1,)
    assert filled(ids).tolist() == [[4, 4, 4], [4, 7, 4], [4, 7, 9]]
    ranks, families = column_ranks(np.array([[9, HOLE], [7, 9]]), np.arange(10))  # type: ignore[misc]
    assert ranks[0, 0] == 1 and ranks[1].tolist() == [0, 1] and families == 1
    assert column_ranks(np.array([[1, 2], [2, 3], [3, 4]]), np.arange(10)) is None


def test_pairs_get_an_axis_each() -> None:
    rows, columns = np.array([5, 5, 5, 6, 6, 6]), np.array([1, 2, 3, 1, 2, 3])
    ids, _, read = split(np.arange(6), [], [rows, columns])
    assert ids.tolist() == [[0, 1, 2], [3, 4, 5]] and read[0].shape == (2, 3)
    shuffled = np.array([4, 0, 2, 5, 1, 3])
    ids, _, read = split(shuffled, [], [rows[shuffled], columns[shuffled]])
    assert (read[0] == read[0][:, :1]).all()


VIEWS = {
    "a slice": np.arange(3, 9),
    "every third": np.arange(1, 20, 3),
    "a block": np.arange(24).reshape(4, 6)[1:3, 2:5],
    "a transpose": np.arange(24).reshape(4, 6).T,
    "three axes in another order": np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1),
    "windows": np.arange(0, 20)[:, None] + np.arange(5),
    "windows with stride and dilation": np.arange(0, 12, 3)[:, None] + np.arange(0, 8, 4),
    "windows of an image": (np.arange(3)[:, None, None, None] * 6 + np.arange(4)[:, None, None]
                            + np.arange(2)[:, None] * 6 + np.arange(3)),
    "windows of channels, one after the other": (np.arange(10)[:, None]
                                                 + (np.arange(2)[:, None] * 12 + np.arange(3)).reshape(-1)),
}  # fmt: skip


@pytest.mark.parametrize("positions", VIEWS.values(), ids=VIEWS)
def test_positions_that_follow_strides_are_views(positions: np.ndarray) -> None:  # type: ignore[type-arg]
    graph = Graph("f")
    graph.outputs["y"] = take_as_view(graph.input("x", f64[24]), positions)
    x = np.random.default_rng(0).normal(size=24)
    assert not any(node.op.name == "take" for node in graph.nodes())
    np.testing.assert_array_equal(evaluate(graph, {"x": x})["y"], x[positions])


@pytest.mark.parametrize("positions", [np.array([3, 1, 2]), np.array([0, 1, 3, 4, 5]), np.array([[0, 1], [1, 3]])])
def test_others_are_taken(positions: np.ndarray) -> None:  # type: ignore[type-arg]
    graph = Graph("f")
    graph.outputs["y"] = take_as_view(graph.input("x", f64[24]), positions)
    assert [node.op.name for node in graph.nodes()][-1] == "take"
