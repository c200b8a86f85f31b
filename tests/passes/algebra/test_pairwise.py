"""Distances of all pairs: found however they are written, and computed like products."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import passes
from mlaot.evaluate import evaluate
from mlaot.ir import Graph, Node
from mlaot.loading import trace
from mlaot.lower.lower import lower
from mlaot.lower.program import Program
from mlaot.ops import reduction as red
from mlaot.schedule.contraction import contraction_of, description

from ...compiled import AVAILABLE, Library

batch = mlaot.dim("batch")
POINTS, FEATURES = 37, 11
DRAWN = np.random.default_rng(0).normal(size=(POINTS, FEATURES))
Array = np.ndarray[Any, Any]


def last(x: Any, y: Any) -> Any:
    return np.sum((x[:, None, :] - y) ** 2, -1)


def middle(x: Any, y: Any) -> Any:
    return np.sum(np.square(y.T - x[:, :, None]), 1)


def manhattan(x: Any, y: Any) -> Any:
    return np.sum(np.abs(x[:, None, :] - y), -1)


def turned(x: Any, y: Any) -> Any:
    return np.sum(np.abs(y[:, None, :] - x), -1)


def kernel_of_points(x: Any, y: Any) -> Any:
    return np.exp(-0.1 * last(x, y))


WAYS = (last, middle, manhattan, turned, kernel_of_points)


def declared(way: Callable[[Any, Any], Any], dtype: str, frozen: bool) -> Any:
    kind = {"f32": mlaot.f32, "f64": mlaot.f64}[dtype]
    points = DRAWN.astype(kind.numpy)

    def to_weights(x: Any) -> Any:
        return way(x, points)

    def to_inputs(x: Any, y: Any) -> Any:
        return way(x, y)

    model = to_weights if frozen else to_inputs
    model.__annotations__ = {"x": kind[batch, FEATURES]} | ({} if frozen else {"y": kind[POINTS, FEATURES]})
    return mlaot.model(model)


def distances(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes() if node.op is red.contract_differences]


def graph_of(model: Any) -> Graph:
    return passes.run("m", trace(model)).graphs["forward"]


CASES = {
    f"{way.__name__}_{dtype}_{'frozen' if frozen else 'given'}": (way, dtype, frozen)
    for way in WAYS
    for dtype in ("f32", "f64")
    for frozen in (True, False)
}


@pytest.fixture(scope="module")
def programs() -> dict[str, Program]:
    """Each case, which has one node for its distances."""
    modules = {name: passes.run("m", trace(declared(*case))) for name, case in CASES.items()}
    for name, (way, _, _) in CASES.items():
        (node,) = distances(modules[name].graphs["forward"])
        assert node.attrs["power"] == (1 if way in (manhattan, turned) else 2)
    return {name: lower(module) for name, module in modules.items()}


@pytest.mark.parametrize("isa", AVAILABLE)
def test_it_computes_the_same(isa: str, programs: dict[str, Program], tmp_path: Path) -> None:
    library = Library(programs, isa, tmp_path)
    for name, (way, dtype, frozen) in CASES.items():
        kind, bound = (np.float32, 2e-6) if dtype == "f32" else (np.float64, 1e-14)
        rows = np.random.default_rng(1).normal(size=(13, FEATURES)).astype(kind)
        points = DRAWN.astype(kind)
        given = {"x": rows} if frozen else {"x": rows, "y": points}
        expected = way(rows.astype(np.float64), points.astype(np.float64))
        found = library.call(name, "forward", given, {"batch": 13})["out"]
        np.testing.assert_allclose(found, expected, rtol=bound, atol=bound, err_msg=name)


@pytest.mark.parametrize("isa", AVAILABLE)
def test_one_row_and_stacks_of_rows(isa: str, tmp_path: Path) -> None:
    """One row has distances to all points; a stack of points has some of its own for each stack of rows."""

    @mlaot.model
    def one(x: mlaot.f32[FEATURES]) -> Any:
        return np.sum((DRAWN.astype(np.float32) - x) ** 2, -1)

    @mlaot.model
    def stacks(x: mlaot.f32[2, 6, 3, 4], y: mlaot.f32[2, 9, 3, 4]) -> Any:
        return np.sum(np.abs(x[:, :, None] - y[:, None]), (-2, -1))

    rng = np.random.default_rng(2)
    modules = {name: passes.run("m", trace(model)) for name, model in (("one", one), ("stacks", stacks))}
    assert all(len(distances(module.graphs["forward"])) == 1 for module in modules.values())
    library = Library({name: lower(module) for name, module in modules.items()}, isa, tmp_path)
    row = rng.normal(size=(1, FEATURES)).astype(np.float32)
    found = library.call("one", "forward", {"x": row}, {"batch": 1})["out"]
    np.testing.assert_allclose(found, last(row.astype(np.float64), DRAWN), rtol=1e-5)
    x, y = (rng.normal(size=(1, 2, n, 3, 4)).astype(np.float32) for n in (6, 9))
    expected = np.abs(x[:, :, :, None].astype(np.float64) - y[:, :, None]).sum((-2, -1))
    found = library.call("stacks", "forward", {"x": x, "y": y}, {"batch": 1})["out"]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_pairs_lie_along_the_lanes() -> None:
    program = lower(passes.run("m", trace(declared(kernel_of_points, "f64", True))))
    (kernel,) = [kernel for p in program.procedures for kernel in p.kernels]
    found = contraction_of(kernel.nest)
    assert found.lanes == "j" and found.power == 2
    assert description(found).startswith("f64 differences^2 i=batch j=37 : k=11 | i:11 k:1 | lanes")


def test_differences_of_far_points_do_not_cancel() -> None:
    model = declared(last, "f32", False)
    points = (1e4 + DRAWN).astype(np.float32)
    exact = last(points[:5].astype(np.float64), points.astype(np.float64))
    found = evaluate(graph_of(model), {"x": points[:5], "y": points})["out"]
    np.testing.assert_allclose(found, exact, rtol=1e-5)


def test_what_reads_the_differences_changes_no_sum() -> None:
    """The sums are the same node; of equal rows there is no pair."""

    @mlaot.model
    def both(x: mlaot.f32[batch, FEATURES]) -> Any:
        difference = x[:, None, :] - DRAWN.astype(np.float32)
        return np.sum(difference**2, -1), difference

    @mlaot.model
    def rows(x: mlaot.f32[batch, FEATURES], y: mlaot.f32[batch, FEATURES]) -> Any:
        return np.sum((x - y) ** 2, -1)

    assert len(distances(graph_of(both))) == 1 and not distances(graph_of(rows))
