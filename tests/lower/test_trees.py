"""Decision trees in C: against the reference, on every instruction set, for any number of rows, to the same bits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlaot.evaluate import evaluate
from mlaot.ir import DType, Graph, Type, dim
from mlaot.ir.module import Module
from mlaot.ir.types import Literal, f32, f64, i32
from mlaot.lower.forests import Packed, round_down
from mlaot.lower.lower import lower
from mlaot.lower.program import Program
from mlaot.nest.canonical import canonical
from mlaot.nest.text import nest_text, parse_nest
from mlaot.nest.verify import verify
from mlaot.ops import elementwise as ew
from mlaot.ops import structure as st
from mlaot.ops.trees import Forest, forest, tree_ensemble
from mlaot.passes.algebra.legalize import legalize
from mlaot.schedule.machine import MACHINES
from mlaot.schedule.nests import schedule_nest

from ..compiled import AVAILABLE, Library
from ..interpreted import Interpreted
from ..ops.forests import awkward_rows, random_forest

Array = np.ndarray[Any, Any]
BATCH = dim("batch")
ROWS = (0, 1, 7, 64, 1000)
WIDTH = 1 << 19  # features and the places of 8,000 nodes do not fit in a word
RNG = np.random.default_rng(7)


@dataclass(frozen=True)
class Case:
    forest: Forest
    dtype: DType = f32
    aggregate: str = "sum"
    features: int = 300
    result: DType | None = None  # the dtype of the result, where it is not that of the features


def forests() -> dict[str, Forest]:
    """Every layout: one tree and many, shallow and deep, full and not, one target, many, and one of many."""
    return {
        "leaf": random_forest(RNG, [0]),
        "stump": random_forest(RNG, [1], full=True),
        "mixed": random_forest(RNG, [*range(9)] * 3),
        "full": random_forest(RNG, [6] * 33, full=True, mixed_nan=False),
        "eight": random_forest(RNG, [8] * 17, full=True, mixed_nan=False),
        "deep": random_forest(RNG, [14] * 11),
        "both": random_forest(RNG, [3, 12, 4] * 7, mixed_nan=False),
        "targets": random_forest(RNG, [2, 5, 12] * 5, targets=3),
        "one target": random_forest(RNG, [3] * 5, targets=1),
        "own target": random_forest(RNG, [3, 6, 11] * 7, targets=3, own_target=True),
        "few of many features": random_forest(RNG, [4] * 20, features=300, mixed_nan=False),
        "shared": shared_nodes(),
    }


def shared_nodes() -> Forest:
    """Two trees of ten levels, whose node of each level is below both sides of several above, as of sets in ONNX."""
    nodes = np.arange(10)
    left, right = np.minimum(nodes + 1, 9), np.minimum(nodes + 2, 9)
    left[-1], right[-2:] = ~0, (~1, ~2)
    return forest(nodes % 5, RNG.normal(size=10), left, right, nodes % 2 == 0, [0, 3], RNG.normal(size=3))


FORESTS = forests()
MANY_FEATURES = random_forest(RNG, [11] * 4, features=WIDTH, full=True, mixed_nan=False)
CASES = {
    **{name: Case(found) for name, found in FORESTS.items()},
    **{f"{name} f64": Case(FORESTS[name], f64) for name in ("mixed", "targets")},
    **{f"{name} {how}": Case(FORESTS[name], f32, how) for name, how in (("both", "min"), ("targets", "max"))},
    **{f"{name} wider": Case(FORESTS[name], result=f64) for name in ("deep", "full", "both", "targets", "own target")},
    "wide links": Case(MANY_FEATURES, features=WIDTH),
    "wide links wider": Case(MANY_FEATURES, features=WIDTH, result=f64),
}


def graph_of(case: Case) -> Graph:
    graph = Graph("forward")
    x = graph.input("x", Type(case.dtype, (BATCH, case.features)))
    more = {"dtype": case.result} if case.result else {}
    graph.outputs["y"] = tree_ensemble(x, forest=case.forest, aggregate=case.aggregate, **more)
    return graph


def compiled(graph: Graph) -> Program:
    legalize(graph)
    return lower(Module("m", {"forward": graph}, {}, False))


@pytest.fixture(scope="session")
def libraries(shared_folder: Path) -> dict[str, Library]:
    programs = {name.replace(" ", "_"): compiled(graph_of(case)) for name, case in CASES.items()}
    return {isa: Library(programs, isa, shared_folder / f"trees_{isa}") for isa in AVAILABLE}


@pytest.mark.parametrize("name", CASES)
def test_trees_are_the_reference(name: str, libraries: dict[str, Library]) -> None:
    """On every instruction set, to the same bits; so is each row alone."""
    case, graph = CASES[name], graph_of(CASES[name])
    for rows in ROWS if case.features < WIDTH else ROWS[:3]:
        x = awkward_rows(RNG, (rows, case.features), case.dtype.numpy)
        expected = evaluate(graph, {"x": x}, wide=True)["y"]
        found = [
            library.call(name.replace(" ", "_"), "forward", {"x": x}, {"batch": rows})["y"]
            for library in libraries.values()
        ]
        np.testing.assert_allclose(
            found[0], expected, rtol=0, atol=40 * np.finfo((case.result or case.dtype).numpy).eps
        )
        assert len({y.tobytes() for y in found}) == 1, rows
        for i in range(min(rows, 3)):
            alone = libraries[AVAILABLE[-1]].call(name.replace(" ", "_"), "forward", {"x": x[i : i + 1]}, {"batch": 1})
            assert alone["y"].tobytes() == found[0][i : i + 1].tobytes()


def test_features_that_follow_each_other_need_no_table() -> None:
    packed = {
        name: Packed(CASES[name].forest, ("f32", "f32"), "sum", 300, True) for name in ("mixed", "few of many features")
    }
    assert packed["mixed"].gathers and not packed["mixed"].lists_features
    assert packed["few of many features"].gathers and packed["few of many features"].lists_features


@pytest.mark.parametrize("isa", AVAILABLE)
def test_other_ranks_views_and_neighbours(isa: str, tmp_path: Path) -> None:
    """One row, stacks of rows, columns of a transposed array, a value in between, a result that is used twice."""
    found = random_forest(RNG, [4] * 5, targets=2)
    vector, stack, turned = Graph("forward"), Graph("forward"), Graph("forward")
    vector.outputs["y"] = tree_ensemble(vector.input("x", Type(f32, (5,))), forest=found, aggregate="sum")
    stack.outputs["y"] = tree_ensemble(stack.input("x", Type(f32, (3, BATCH, 40, 6))), forest=found, aggregate="sum")
    x = st.transpose(turned.input("x", Type(f32, (6, BATCH))), perm=(1, 0))
    y = tree_ensemble(ew.neg(x), forest=found, aggregate="max")
    z = tree_ensemble(x, forest=found, aggregate="sum")
    turned.outputs |= {"y": y, "z": ew.add(y, z), "again": y, "joined": st.concat(y, z, axis=1)}
    turned.outputs["stacked"] = st.stack(tree_ensemble(x, forest=found, aggregate="min"), z, axis=2)
    graphs = {"vector": (vector, (5,)), "stack": (stack, (3, 2, 40, 6)), "turned": (turned, (6, 50))}
    dims = {"batch": 0}
    library = Library({name: compiled(graph) for name, (graph, _) in graphs.items()}, isa, tmp_path)
    for name, (graph, shape) in graphs.items():
        given = {"x": awkward_rows(RNG, shape, np.float32)}
        dims["batch"] = {"stack": 2, "turned": 50}.get(name, 0)
        actual = library.call(name, "forward", given, dims)
        for key, expected in evaluate(graph, given).items():
            np.testing.assert_allclose(actual[key], expected, rtol=0, atol=1e-5, err_msg=f"{name} {key}")


@pytest.mark.parametrize("isa", AVAILABLE)
def test_features_of_a_value_from_the_second_on(isa: str, tmp_path: Path) -> None:
    """Vectors of them end where the value does; its rows are padded, but less than to a vector behind the features."""
    found = random_forest(RNG, [9] * 3)
    shifted = replace(found, feature=Literal(found.feature.array + 1, i32))
    graph = Graph("forward")
    x = graph.input("x", Type(f32, (7, 16)))
    graph.outputs["y"] = tree_ensemble(ew.neg(x), forest=shifted, aggregate="sum")
    given = {"x": awkward_rows(RNG, (7, 16), np.float32)}
    actual = Library({"m": compiled(graph)}, isa, tmp_path).call("m", "forward", given)
    np.testing.assert_allclose(actual["y"], evaluate(graph, given)["y"], rtol=0, atol=1e-5)


def test_weights_are_stored_once() -> None:
    """A perfect tree of 64 leaves takes 8 bytes a node and 4 a leaf; a node or leaf with links 8, or 16 in float64."""
    full = random_forest(RNG, [6] * 32, full=True, mixed_nan=False)
    program = compiled(graph_of(Case(full, features=5)))
    assert len(program.module.constants) == 32 * (64 * 8 + 64 * 4)
    packed = Packed(full, ("f32", "f32"), "sum", 5, is_row=True)
    assert packed.branching == 0 and [g.trees for g in packed.tree_blocks] == [32]
    deep = FORESTS["deep"]
    leaves, places = len(deep.leaves.array), len(deep.feature.array) + len(deep.leaves.array)
    for case, size in ((Case(deep), places * 8 + leaves * 4), (Case(deep, f64), places * 16 + leaves * 8)):
        assert len(compiled(graph_of(case)).module.constants) < 1.03 * size


def test_thresholds_round_down() -> None:
    """Below every float32 the decision is that of the float64 threshold."""
    thresholds = np.concatenate(
        [RNG.normal(size=200) * 10.0 ** RNG.integers(-45, 45, 200), [0.1, np.inf, -np.inf, 1e300]]
    )
    rounded = round_down(thresholds, np.dtype(np.float32))
    with np.errstate(over="ignore"):
        near = thresholds.astype(np.float32)
    for x in (near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf)), rounded):
        np.testing.assert_array_equal(x <= rounded, x.astype(np.float64) <= thresholds)


def test_equal_forests_share_a_kernel() -> None:
    """Whatever their numbers; another depth, or another number of trees, is another kernel."""
    depths = {"one": [5] * 3, "two": [5] * 3, "deeper": [6] * 3, "more": [5] * 20}
    programs = [
        compiled(graph_of(Case(random_forest(RNG, d, full=True, mixed_nan=False), features=5))) for d in depths.values()
    ]
    found = [canonical(kernel.nest) for p in programs for kernel in p.procedures[0].kernels]  # type: ignore[union-attr]
    assert found[0] == found[1] and len(set(found)) == 3


def test_nests_are_right_and_read_back() -> None:
    for name, case in CASES.items():
        (kernel,) = compiled(graph_of(case)).procedures[0].kernels
        assert nest_text(parse_nest(nest_text(kernel.nest))) == nest_text(kernel.nest), name
        for machine in MACHINES.values():
            verify(schedule_nest(kernel.nest, machine))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", ["targets", "own target", "deep wider"])
def test_nests_compute_the_reference(name: str, machine: str) -> None:
    """Without a compiler."""
    case, graph = CASES[name], graph_of(CASES[name])
    x = awkward_rows(RNG, (16, 300), case.dtype.numpy)
    expected = evaluate(graph, {"x": x}, wide=True)["y"]
    found = Interpreted({"m": compiled(graph)}, machine).call("m", "forward", {"x": x}, {"batch": 16})["y"]
    np.testing.assert_allclose(found, expected, rtol=0, atol=40 * np.finfo(case.dtype.numpy).eps)


def test_a_machine_chooses_how_rows_are_computed() -> None:
    """A block of rows in lanes from as many rows on as are worth it."""
    rows = "def f(y: f32[32], x: f32[32], n: i32[1]):\n"
    rows += "    for e in range(0, 1):\n        if in_lanes[bool](end, 63, 6, 32):\n"
    rows += "            for i in vector(0, 32):\n                for k in range(0, 1):\n"
    rows += "                    y[i] = x[i]\n        else:\n            for i in range(0, end):\n"
    rows += "                y[i] = x[i]\n"
    nest = parse_nest(rows)
    found = {name: nest_text(schedule_nest(nest, machine)) for name, machine in MACHINES.items()}
    assert "if end >= 15:" in found["v3"] and "x[24:8]" in found["v3"]
    assert "if end >= 8:" in found["v4"] and "x[16:16]" in found["v4"]
    assert "if end" not in found["base"] and "for i in range(0, end):" in found["base"]
