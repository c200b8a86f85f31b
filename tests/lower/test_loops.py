"""Carries without copies: overwritten, by turns in two places, or where all their values are wanted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import passes
from mlaot.evaluate import evaluate
from mlaot.ir import Graph, Node, Subgraph, Type
from mlaot.ir.module import Module
from mlaot.ir.types import f64, i64
from mlaot.loading import trace
from mlaot.lower.lower import lower
from mlaot.lower.program import Loop, Procedure, Program, Step, Steps, kernels_of
from mlaot.ops import comparison as cmp
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.base import full_like
from mlaot.ops.control import results, scan, while_
from mlaot.ops.indexing import gather, scatter
from mlaot.passes.algebra.dead_code import dead_code
from mlaot.passes.algebra.legalize import legalize
from mlaot.passes.subgraphs import everywhere

from ..compiled import AVAILABLE, Library, State

Make = Callable[[list[Node]], Sequence[Node]]
LENGTH, N = 5, 6
V, M, S = f64[N], f64[3, N], Type(f64)
SPREAD = {"shape": (3, N), "axes": (0,)}


def row_sum(x: Node) -> Node:
    return st.broadcast(red.sum_(x, axes=(1,)), **SPREAD)


def rolled(x: Node) -> Node:
    first, rest = (st.slice_(x, start=(0, start), size=(3, size), step=(1, 1)) for start, size in ((0, 1), (1, N - 1)))
    return st.concat(rest, first, axis=1)


def part(x: Node, start: int, size: int) -> Node:
    return st.slice_(x, start=(start, 0), size=(size, N), step=(1, 1))


def rows(x: Node) -> Node:
    """The rows in reverse order."""
    return st.slice_(x, start=(N - 1, 0), size=(N, N), step=(-1, 1))


# The body over carries and slices of xs; their types; how many are carries; the copies that a round makes.
BODIES: dict[str, tuple[Make, tuple[Type, ...], int, int]] = {
    "swapped": (lambda v: [v[1], v[0], v[0]], (V, V), 2, 2),
    "turned around": (lambda v: [v[1], v[2], v[0]], (V, V, V), 3, 3),
    "fibonacci": (lambda v: [v[1], ew.add(v[0], v[1]), v[1]], (M, M), 2, 1),
    "scalars": (lambda v: [v[1], ew.add(v[0], v[1]), v[0]], (S, S), 2, 2),  # their sum is a copy of a scalar
    "elementwise": (lambda v: [ew.add(ew.mul(v[0], v[0]), v[1])], (M, M), 1, 0),
    "and read on": (lambda v: [ew.tanh(ew.add(v[0], v[1])), row_sum(v[0])], (M, M), 1, 0),
    "a view": (
        lambda v: [st.transpose(ew.add(st.transpose(v[0], perm=(1, 0)), v[1]), perm=(1, 0))],
        (M, f64[N, 3]),
        1,
        1,
    ),
    "reversed": (lambda v: [st.slice_(ew.add(v[0], v[1]), start=(2, 0), size=(3, N), step=(-1, 1))], (M, M), 1, 1),
    "of parts": (
        lambda v: [st.concat(ew.exp(part(v[0], 2, 1)), ew.add(part(v[0], 0, 2), v[1]), axis=0)],
        (M, f64[2, N]),
        1,
        0,
    ),
    "turned by its copy": (
        lambda v: [ew.copy(st.transpose(ew.add(rows(v[0]), v[1]), perm=(1, 0)))],
        (f64[N, N], f64[N, N]),
        1,
        1,
    ),
    "transposed": (lambda v: [ew.add(st.transpose(v[0], perm=(1, 0)), v[1])], (f64[N, N], f64[N, N]), 1, 0),
    "rolled": (lambda v: [rolled(v[0]), ew.add(v[0], v[1])], (M, M), 1, 0),
    "product": (lambda v: [ew.tanh(red.contract(v[0], v[1], spec="ab,cb->ac"))], (f64[N, N], f64[N, N]), 1, 0),
    "softmax": (lambda v: [ew.div(ew.exp(v[0]), row_sum(ew.exp(v[0]))), v[1]], (M, M), 1, 0),
    # The first stage could already write what the second one still reads.
    "written early": (lambda v: [ew.mul(v[1], v[1]), ew.mul(v[0], row_sum(ew.mul(v[1], v[0])))], (M, M), 1, 0),
    "read after": (lambda v: [ew.mul(v[1], v[1]), ew.mul(ew.exp(v[0]), row_sum(ew.mul(v[1], v[1])))], (M, M), 1, 0),
    "each other": (
        lambda v: [ew.add(v[0], row_sum(v[1])), ew.sub(v[1], row_sum(v[0])), v[0]],
        (M, M, M),
        2,
        0,
    ),
    "one for two": (lambda v: [ew.add(v[0], v[1]), ew.add(v[0], v[1])], (V, V), 2, 0),
    "constant": (lambda v: [full_like(v[0], 3.0), ew.add(v[0], v[1])], (M, M), 1, 1),
    "old and new": (lambda v: [ew.tanh(ew.add(v[0], v[1])), v[0], ew.tanh(ew.add(v[0], v[1]))], (M, M), 1, 0),
    "history of a product": (
        lambda v: [(h := ew.tanh(red.contract(v[0], v[1], spec="ab,bc->ac"))), h, v[0]],
        (M, f64[N, N]),
        1,
        0,
    ),
    "scattered": (
        lambda v: [scatter(v[0], v[2], v[1], lead=0, mode="set"), ew.exp(v[0])],
        (M, f64[2, N], f64[2]),
        1,
        0,
    ),
    "scattered sums": (
        lambda v: [(c := scatter(v[0], v[2], v[1], lead=0, mode="add")), row_sum(c), gather(c, v[2], lead=0)],
        (M, f64[2, N], f64[2]),
        1,
        0,
    ),
    "scattered over itself": (
        lambda v: [scatter(v[0], v[2], gather(v[0], v[1], lead=0), lead=0, mode="set")],
        (M, f64[2], f64[2]),
        1,
        0,
    ),
}
INDICES = {"scattered": (2,), "scattered sums": (2,), "scattered over itself": (1, 2)}


def graph_of(name: str, length: int, reverse: bool, read: Sequence[int] | None = None) -> Graph:
    made, types, carries, _ = BODIES[name]
    types = tuple(i64[t.shape] if i in INDICES.get(name, ()) else t for i, t in enumerate(types))
    graph = Graph("forward")
    args = [graph.input(f"v{i}", t if i < carries else t.with_shape((length, *t.shape))) for i, t in enumerate(types)]
    body = Subgraph.of("body", types, lambda _, values: made(values))
    attrs = {"consts": 0, "carries": carries, "length": length, "reverse": reverse}
    found = results(scan(*args, body=body, **attrs))
    graph.outputs = {f"r{i}": node for i, node in enumerate(found) if read is None or i in read}
    return graph


def program_of(graph: Graph) -> Program:
    dead_code(graph)
    everywhere(legalize, graph)
    return lower(Module("m", {"forward": graph}, {}, False))


def inputs_of(graph: Graph) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    found = {}
    for name, node in graph.inputs.items():
        made = rng.normal(size=node.type.shape) if node.type.dtype.kind == "f" else rng.integers(-1, 4, node.type.shape)  # type: ignore[arg-type]
        found[name] = made.astype(node.type.dtype.numpy)
    return found


CASES = {
    f"{name.replace(' ', '_')}_{length}_{'backwards' if reverse else 'forwards'}_{'last' if read else 'all'}": (
        name,
        length,
        reverse,
        read,
    )
    for name in BODIES
    for length, reverse, read in (
        (0, False, None),
        (1, True, None),
        (4, False, [0]),
        (LENGTH, True, [0]),
        (LENGTH, False, None),
        (LENGTH, True, None),
    )
}


@pytest.fixture(scope="module")
def programs() -> dict[str, Program]:
    return {name: program_of(graph_of(*case)) for name, case in CASES.items()}


@pytest.mark.parametrize("isa", AVAILABLE)
def test_carries_are_the_oracle(isa: str, programs: dict[str, Program], tmp_path: Path) -> None:
    library = Library(programs, isa, tmp_path)
    for name, case in CASES.items():
        graph = graph_of(*case)
        inputs = inputs_of(graph)
        actual = library.call(name, "forward", inputs)
        for key, expected in evaluate(graph, inputs).items():
            np.testing.assert_allclose(actual[key], expected, rtol=1e-12, atol=1e-12, err_msg=f"{name}: {key}")


def loops(steps: Sequence[Step]) -> list[Loop]:
    found = []
    for step in steps:
        if isinstance(step, Steps):
            found += loops(step.inner)
        elif isinstance(step, Loop):
            found.append(step)
    return found


def copies(procedure: Procedure) -> list[int]:
    """How many kernels of each loop only copy."""
    return [
        sum(all("copy" in line.split("=")[-1].split("(")[0] for line in k.doc) for k in kernels_of(loop.steps))
        for loop in loops(procedure.steps)
    ]


@pytest.mark.parametrize("name", BODIES)
def test_how_many_copies_a_round_makes(name: str) -> None:
    (procedure,) = program_of(graph_of(name, LENGTH, False, [0])).procedures
    assert copies(procedure) == [BODIES[name][3]], str(procedure)


@pytest.mark.parametrize("isa", [AVAILABLE[0], AVAILABLE[-1]])
def test_loops_whose_carries_are_those_of_the_loop_around(isa: str, tmp_path: Path) -> None:
    """An inner loop starts from the outer carry, as it is or moved, and ends as the next one."""

    def inner(v: list[Node]) -> list[Node]:
        return [ew.tanh(ew.add(v[0], v[1]))]

    def outer(start: Make) -> Make:
        def made(v: list[Node]) -> list[Node]:
            c, xs = v
            body = Subgraph.of("inner", [f64[N, N], f64[N, N]], lambda _, values: inner(values))
            (begin,) = start([c])
            found = results(scan(begin, xs, body=body, consts=0, carries=1, length=2, reverse=False))
            return [found[0], ew.exp(c)]

        return made

    starts: dict[str, Make] = {
        "same": lambda v: v,
        "elementwise": lambda v: [ew.mul(v[0], v[0])],
        "turned": lambda v: [ew.neg(st.transpose(v[0], perm=(1, 0)))],
        "moved": lambda v: [
            st.concat(
                *[st.slice_(v[0], start=(i, 0), size=(n, N), step=(1, 1)) for i, n in ((2, N - 2), (0, 2))], axis=0
            )
        ],
    }
    graphs = {}
    for name, start in starts.items():
        graph = graphs[name] = Graph("forward")
        c, xs = graph.input("c", f64[N, N]), graph.input("xs", f64[3, 2, N, N])
        types = [f64[N, N], f64[2, N, N]]
        body = Subgraph.of("outer", types, lambda _, values, start=start: outer(start)(values))  # type: ignore[misc]
        found = results(scan(c, xs, body=body, consts=0, carries=1, length=3, reverse=False))
        graph.outputs = {"c": found[0], "seen": found[1]}
    expected = {name: evaluate(graph, inputs_of(graph)) for name, graph in graphs.items()}
    library = Library({name: program_of(graph) for name, graph in graphs.items()}, isa, tmp_path)
    for name, graph in graphs.items():
        for key, value in library.call(name, "forward", inputs_of(graph)).items():
            np.testing.assert_allclose(value, expected[name][key], rtol=1e-12, err_msg=f"{name}: {key}")


def test_while_overwrites_or_moves(tmp_path: Path) -> None:
    graph = Graph("forward")
    a, b, n = graph.input("a", V), graph.input("b", V), graph.input("n", Type(i64))

    def subgraph(name: str, made: Make) -> Subgraph:
        return Subgraph.of(name, (V, V, Type(i64)), lambda _, v: made(v))

    def step(v: list[Node]) -> list[Node]:
        return [v[1], ew.add(v[0], v[1]), ew.add(v[2], v[2].graph.constant(1, i64))]

    attrs = {
        "condition": subgraph("condition", lambda v: [cmp.less(v[2], v[2].graph.constant(4, i64))]),
        "body": subgraph("body", step),
        "consts": 0,
        "bound": 6,
    }
    graph.outputs = dict(zip("abn", results(while_(a, b, n, **attrs)), strict=True))
    library = Library({"m": program_of(graph)}, AVAILABLE[-1], tmp_path)
    for start in (0, 3, 9, -9):
        inputs = {"a": np.arange(6.0), "b": np.ones(6), "n": np.array(start)}
        found = library.call("m", "forward", inputs)
        for key, expected in evaluate(graph, inputs).items():
            np.testing.assert_array_equal(found[key], expected)


def test_a_slot_that_a_loop_carries_is_overwritten(tmp_path: Path) -> None:
    """Rows set in a cache, round by round, in the memory of the slot."""
    rng = np.random.default_rng(0)
    cache = mlaot.Buffer(rng.normal(size=(8, 4)).astype(np.float32), "cache")

    def fill(at: Any, rows: Any) -> Any:
        def step(kept: Any, now: Any) -> Any:
            i, row = now
            kept = kept.at[i].set(row)
            return kept, np.max(kept)

        kept, largest = mlaot.scan(step, cache, (at, rows))
        cache.assign(kept)
        return largest

    fill.__annotations__ = {"at": mlaot.i64[3], "rows": mlaot.f32[3, 4]}
    model = mlaot.model(lambda x: x)
    model.function.__annotations__ = {"x": mlaot.f32[mlaot.dim("batch"), 2]}
    model.entry(fill)
    program = lower(passes.run("m", trace(model)))
    procedure = next(p for p in program.procedures if p.entry.name == "fill")
    assert not any("copy" in line for k in procedure.kernels for line in k.doc), str(procedure)
    assert not any(p.buffer.where == "work" and p.buffer.shape == (8, 4) for k in procedure.kernels for p in k.params)
    state = State(program)
    before = state.slot("cache").copy()
    at, rows = np.array([1, 6, 1]), rng.normal(size=(3, 4)).astype(np.float32)
    found = Library({"m": program}, AVAILABLE[-1], tmp_path).call("m", "fill", {"at": at, "rows": rows}, state=state)
    largest = []
    for i, row in zip(at, rows, strict=True):
        before[i] = row
        largest.append(before.max())
    np.testing.assert_array_equal(state.slot("cache"), before)
    np.testing.assert_array_equal(next(iter(found.values())), largest)


@pytest.mark.parametrize("layer", [mlaot.nn.LSTM, mlaot.nn.GRU, mlaot.nn.RNN])
def test_a_step_of_a_recurrent_layer_is_a_product_and_its_gates(layer: Any) -> None:
    net = layer(3, 16, rng=0)

    def run(x: Any) -> Any:
        return net(x)[0]

    run.__annotations__ = {"x": mlaot.f32[7, 1, 3]}
    (procedure,) = lower(passes.run("m", trace(mlaot.model(run, parameters=net)))).procedures
    (loop,) = loops(procedure.steps)
    kinds = [k.template for k in kernels_of(loop.steps)]
    assert kinds in (["contraction", "rows"], ["contraction"]), str(procedure)
    assert not any(line.startswith("copy") for k in procedure.kernels for line in k.doc)
