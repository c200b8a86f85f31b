"""Lowering: fusion groups, the workspace plan, slots written in place, awkward outputs, golden C."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import passes
from mlaot.errors import MlaotError
from mlaot.evaluate import evaluate
from mlaot.frontend.trace.declaration import Declaration
from mlaot.frontend.trace.tensor import parameters
from mlaot.generate import compile_model
from mlaot.ir import Graph, Node, dim
from mlaot.ir.dims import parse, substitute
from mlaot.ir.indices import IndexRange
from mlaot.ir.module import Module
from mlaot.ir.types import f32, f64, i64, u8
from mlaot.lower.fuse import fuse
from mlaot.lower.lower import lower
from mlaot.lower.plan import plan
from mlaot.lower.program import Buffer, Kernel, Param, Procedure, Program
from mlaot.micrograd import MLP, Value, declare
from mlaot.nest.statements import Nest
from mlaot.ops import OPS
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.base import full_like
from mlaot.passes.algebra.legalize import legalize
from mlaot.printing.file import kernels_file
from mlaot.schedule.machine import MACHINES
from mlaot.settings.options import Options

from ..compiled import AVAILABLE, Library, State
from ..fuzz.random_graphs import compile_case, make_case

Array = np.ndarray[Any, Any]
BATCH = dim("batch")


def program_of(graph: Graph, weights: dict[str, Array] | None = None, *, trains: bool = False) -> Program:
    """One graph as a whole module."""
    legalize(graph)
    return lower(Module("m", {graph.name: graph}, weights or {}, trains))


def run(
    program: Program, entry: str, inputs: dict[str, Any], folder: Path, state: State | None = None
) -> dict[str, Array]:
    dims = {"batch": next((len(v) for v in inputs.values() if np.ndim(v)), 1)}
    return Library({"m": program}, AVAILABLE[-1], folder).call("m", entry, inputs, dims, state)


# Fusion.


def groups(graph: Graph) -> list[tuple[str, list[str]]]:
    """Kind and op names of each group, in order."""
    return [(g.kind, [n.op.name for n in g.nodes]) for g in fuse(graph)[0]]


def dense(graph: Graph) -> Node:
    x, w = graph.input("x", f32[BATCH, 64]), graph.input("w", f32[10, 64], parameter=True)
    b = graph.input("b", f32[10], parameter=True)
    product = red.contract(x, w, spec="ac,bc->ab")
    return ew.add(product, st.broadcast(b, shape=(BATCH, 10), axes=(1,)))


def test_the_sum_of_two_products_is_the_epilogue_of_one() -> None:
    graph = Graph("f")
    x, h = graph.input("x", f32[BATCH, 64]), graph.input("h", f32[BATCH, 64])
    w = graph.input("w", f32[10, 64], parameter=True)
    products = [red.contract(v, w, spec="ac,bc->ab") for v in (x, h)]
    graph.outputs["y"] = ew.relu(ew.add(*products))
    assert groups(graph) == [("contraction", ["contract"]), ("contraction", ["contract", "add", "relu"])]


def test_row_groups_of_one_space_are_one_before_what_reads_them() -> None:
    graph = Graph("f")
    gates = red.contract(graph.input("x", f32[BATCH, 8]), graph.input("w", f32[32, 8]), spec="ac,bc->ab")
    a, b = (st.slice_(gates, start=(0, i), size=(BATCH, 16), step=(1, 1)) for i in (0, 16))
    graph.outputs["y"] = ew.mul(ew.tanh(a), ew.exp(b))
    assert groups(graph) == [("contraction", ["contract"]), ("rows", ["tanh", "exp", "mul"])]


def test_elementwise_work_joins_its_contraction() -> None:
    graph = Graph("f")
    graph.outputs["y"] = ew.relu(dense(graph))
    assert groups(graph) == [("contraction", ["contract", "add", "relu"])]


def softmax_gradient(*, read_twice: bool) -> Graph:
    """Return what follows a product in a transformer's backward pass: (g - sum(g * y)) * y."""
    graph = Graph("f")
    y, g = graph.input("y", f32[BATCH, 10]), dense(graph)
    weighted = ew.mul(g, y)
    total = st.broadcast(red.sum_(weighted, axes=(1,)), shape=(BATCH, 10), axes=(0,))
    graph.outputs["dx"] = ew.mul(ew.sub(g, total), y)
    if read_twice:
        graph.outputs["columns"] = red.sum_(weighted, axes=(0,))
    return graph


def test_an_epilogue_sinks_into_the_rows_that_read_it_where_fewer_values_are_stored() -> None:
    rows = ["mul", "sum", "sub", "mul"]
    assert groups(softmax_gradient(read_twice=False)) == [("contraction", ["contract", "add"]), ("rows", rows)]


def test_an_epilogue_that_others_read_stays() -> None:
    found = groups(softmax_gradient(read_twice=True))
    assert found[0] == ("contraction", ["contract", "add", "mul"]) and ("rows", ["sum", "sub", "mul"]) in found


def softmax(x: Node) -> Node:
    kept = tuple(range(x.type.rank - 1))

    def spread(n: Node) -> Node:
        return st.broadcast(n, shape=x.type.shape, axes=kept)

    e = ew.exp(ew.sub(x, spread(red.max_(x, axes=(x.type.rank - 1,)))))
    return ew.div(e, spread(red.sum_(e, axes=(x.type.rank - 1,))))


def test_softmax_is_one_kernel() -> None:
    graph = Graph("f")
    graph.outputs["y"] = softmax(graph.input("x", f32[BATCH, 10]))
    assert groups(graph) == [("rows", ["max", "sub", "exp", "sum", "div"])]


def test_keepdims_splits_no_kernel() -> None:
    """Layer norm as NumPy writes it: two reductions, each with arithmetic on an axis of one element."""

    def norm(x: mlaot.f32[BATCH, 384]) -> Any:  # type: ignore[valid-type]
        centred = x - x.mean(axis=-1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)

    program = compile_model(mlaot.model(norm), "m.nn", Options(isas=("base",)))
    assert [kernel.template for procedure in program.procedures for kernel in procedure.kernels] == ["rows"]


@pytest.mark.parametrize("isa", MACHINES)
def test_a_long_sum_has_several_accumulators(isa: str) -> None:
    """Additions that wait for each other take four times as long; a short row and one of exp have no use for more."""

    def sums(x: mlaot.f32[BATCH, 1000], y: mlaot.f32[BATCH, 10], z: mlaot.f32[BATCH, 999]) -> Any:  # type: ignore[valid-type]
        return x.sum(axis=-1), y.sum(axis=-1), np.exp(z).sum(axis=-1)

    text = kernels_file(compile_model(mlaot.model(sums), "m.nn", Options(isas=("base",))), "nn", MACHINES[isa])
    counts = [len(set(re.findall(r"v\d+_all\d*", kernel))) for kernel in text.split("static void ")[1:]]
    assert sorted(filter(None, counts)) == [1, 1, 4]


def test_softmax_over_a_dense_layer_is_two() -> None:
    graph = Graph("f")
    graph.outputs["y"] = softmax(dense(graph))
    assert [kind for kind, _ in groups(graph)] == ["contraction", "rows"]


def test_two_contractions_are_two_kernels() -> None:
    graph = Graph("f")
    h = dense(graph)
    graph.outputs["y"] = red.contract(h, graph.input("v", f32[3, 10], parameter=True), spec="ac,bc->ab")
    assert [kind for kind, _ in groups(graph)] == ["contraction", "contraction"]


def test_a_group_reads_only_lower_levels() -> None:
    for seed in range(40):
        case = make_case(seed)
        graph = case.traced.graph
        legalize(graph)
        found, home = fuse(graph)
        for group in found:
            for node in group.nodes:
                for arg in node.args:
                    base = arg.find()
                    if base in home and base not in group.members:
                        assert home[base].level < group.level, case.name


# The plan.


def buffers(procedure: Procedure) -> dict[int, tuple[Buffer, int, int]]:
    """The work buffers with the first and last kernel that uses them."""
    found: dict[int, tuple[Buffer, int, int]] = {}
    for at, kernel in enumerate(procedure.kernels):
        for param in kernel.params:
            if param.buffer.where == "work":
                _, first, _ = found.get(id(param.buffer), (param.buffer, at, at))
                found[id(param.buffer)] = param.buffer, first, at
    return found


def overlaps(procedure: Procedure, dims: dict[str, int]) -> list[str]:
    """Pairs of buffers that are alive at once and share bytes, and buffers that stick out of the workspace."""
    offsets = {id(b): substitute(offset, dims) for b, offset in procedure.offsets}
    total = substitute(parse(procedure.entry.workspace), dims)
    bad = []
    used = list(buffers(procedure).values())
    for buffer, _, _ in used:
        end = offsets[id(buffer)] + substitute(buffer.bytes, dims)
        if end > total or offsets[id(buffer)] % 64:
            bad.append(f"{buffer} ends at {end} of {total}")
    for (a, first_a, last_a), (b, first_b, last_b) in combinations(used, 2):
        if last_a < first_b or last_b < first_a:
            continue
        start_a, start_b = offsets[id(a)], offsets[id(b)]
        if start_a < start_b + substitute(b.bytes, dims) and start_b < start_a + substitute(a.bytes, dims):
            bad.append(f"{a} and {b}")
    return bad


@pytest.mark.parametrize("first", range(0, 120, 30))
def test_live_buffers_never_overlap(first: int) -> None:
    """In random programs, for several batches; the checker shares no code with the planner."""
    checked = 0
    for seed in range(first, first + 30):
        try:
            program = compile_case(make_case(seed), passes.PIPELINE, "m")
        except MlaotError:
            continue
        for procedure in program.procedures:
            for batch in (0, 1, 2, 7, 8, 1000):
                assert not overlaps(procedure, {"batch": batch}), f"seed {seed}"
                checked += 1
    assert checked


def test_the_checker_sees_an_overlap() -> None:
    one, two = (Buffer(n, "f32", (4,), (1,), "work") for n in ("one", "two"))
    kernel = Kernel(Nest("nothing", (), ()), (Param("a", one, True), Param("b", two, True)))
    program = program_of(_identity())
    good = Procedure(program.procedures[0].entry, (kernel,), tuple(plan([kernel])[0]), 1, {})
    wide = replace(good, entry=replace(good.entry, workspace="128"))
    assert not overlaps(wide, {})
    assert overlaps(Procedure(wide.entry, (kernel,), ((one, 0), (two, 0)), 1, {}), {})
    assert overlaps(good, {"batch": 1})


def _identity() -> Graph:
    graph = Graph("forward")
    graph.outputs["y"] = graph.input("x", f64[BATCH, 3])
    return graph


def test_buffers_are_used_again() -> None:
    graph = Graph("forward")
    node = graph.input("x", f64[8, 8])
    for i in range(6):
        node = red.contract(node, graph.input(f"w{i}", f64[8, 8], parameter=True), spec="ab,bc->ac")
    graph.outputs["y"] = node
    program = program_of(graph, {f"w{i}": np.eye(8) for i in range(6)})
    assert program.procedures[0].entry.workspace == str(2 * 8 * 8 * 8)


# Awkward outputs.


def test_outputs_that_are_inputs_views_constants_or_twice_the_same(tmp_path: Path) -> None:
    graph = Graph("forward")
    x, w = graph.input("x", f64[BATCH, 3]), graph.input("w", f64[3], parameter=True)
    y = ew.exp(x)
    graph.outputs = {
        "same": x,
        "turned": st.transpose(x, perm=(1, 0)),
        "y": y,
        "again": y,
        "weights": w,
        "wide": st.broadcast(w, shape=(BATCH, 3), axes=(1,)),
        "one": graph.constant(1.5, f64),
        "table": graph.constant([1.0, 2.0, 3.0], f64),
        "filled": full_like(x, 7.0),
        "column": st.take(x, indices=st.scalar_index(1), lead=1),
        "size": graph.add(st.size, (), {"dim": BATCH, "dtype": f64}),
    }
    value = np.arange(6.0).reshape(2, 3)
    found = run(program_of(graph, {"w": np.array([1.0, -1.0, 2.0])}), "forward", {"x": value}, tmp_path)
    assert found["same"].tolist() == value.tolist() and found["turned"].tolist() == value.T.tolist()
    np.testing.assert_allclose(found["y"], np.exp(value))
    assert found["again"].tolist() == found["y"].tolist()
    assert found["weights"].tolist() == [1.0, -1.0, 2.0] and found["wide"].tolist() == [[1.0, -1.0, 2.0]] * 2
    assert found["one"] == 1.5 and found["table"].tolist() == [1.0, 2.0, 3.0] and found["size"] == 2.0
    assert found["filled"].tolist() == [[7.0] * 3] * 2 and found["column"].tolist() == [1.0, 4.0]


def test_a_reshape_moves_elements_axis_by_axis(tmp_path: Path) -> None:
    graph, h, w = Graph("forward"), dim("h"), dim("w")
    x = graph.input("x", f32[BATCH, h, 2, w, 4, 3])
    moved = st.transpose(x, perm=(0, 4, 5, 1, 2, 3))
    graph.outputs = {
        "y": st.reshape(moved, shape=(BATCH, 12, h * 2, w)),
        "z": st.reshape(moved, shape=(BATCH * 12, h, w * 2)),
    }
    program = program_of(graph)
    value = np.arange(2 * 3 * 2 * 5 * 4 * 3, dtype=np.float32).reshape(2, 3, 2, 5, 4, 3)
    library = Library({"m": program}, AVAILABLE[-1], tmp_path)
    found = library.call("m", "forward", {"x": value}, {"batch": 2, "h": 3, "w": 5})
    expected = value.transpose(0, 4, 5, 1, 2, 3)
    assert (found["y"] == expected.reshape(2, 12, 6, 5)).all() and (found["z"] == expected.reshape(24, 3, 10)).all()
    text = kernels_file(program, "m", MACHINES["base"])
    assert " % " not in text.split("static void")[1]  # no index of y is a quotient


def test_an_empty_batch_is_served(tmp_path: Path) -> None:
    graph = Graph("forward")
    x = graph.input("x", f64[BATCH, 3])
    graph.outputs = {"y": softmax(x), "total": red.sum_(x, axes=(0,))}
    program = program_of(graph)
    library = Library({"m": program}, AVAILABLE[-1], tmp_path)
    found = library.call("m", "forward", {"x": np.zeros((0, 3))}, {"batch": 0})
    assert found["y"].shape == (0, 3) and found["total"].tolist() == [0.0] * 3


def test_a_dim_that_no_input_has_is_refused() -> None:
    graph = Graph("forward")
    graph.outputs["y"] = st.broadcast(graph.input("w", f64[3], parameter=True), shape=(BATCH, 3), axes=(1,))
    with pytest.raises(MlaotError, match="forward: no input that the result depends on has the dimension batch"):
        program_of(graph, {"w": np.zeros(3)})


def test_an_unread_weight_of_a_frozen_module_is_left_out(tmp_path: Path) -> None:
    graph = _identity()
    found = run(program_of(graph, {"unread": np.zeros(5)}), "forward", {"x": np.ones((2, 3))}, tmp_path)
    assert found["y"].tolist() == [[1.0] * 3] * 2


NAMES = "x0 v1 i j k n p t0 a0 b0 c0 s0 r0 acc dot rest double f64v splat_f64v"


@pytest.mark.parametrize("name", NAMES.split())
def test_any_name_of_an_input_will_do(name: str, tmp_path: Path) -> None:
    graph = Graph("forward")
    x = graph.input(name, f64[BATCH, 5])
    w = graph.input("table0", f64[4, 5], parameter=True)
    graph.outputs = {"work": softmax(x), "exp_f64v": red.contract(x, w, spec="ac,bc->ab")}
    value = np.random.default_rng(0).normal(size=(3, 5))
    found = run(program_of(graph, {"table0": np.ones((4, 5))}), "forward", {name: value}, tmp_path)
    np.testing.assert_allclose(found["work"].sum(1), 1.0)
    np.testing.assert_allclose(found["exp_f64v"], value @ np.ones((5, 4)))


# Shapes of graphs that random ones found wrong.


def test_cheap_values_behind_a_view(tmp_path: Path) -> None:
    """The columns of scaled bytes, each used on its own and stacked with what is computed of them."""
    graph = Graph("forward")
    x = ew.cast(graph.input("x", u8[BATCH, 2]), dtype=f64)
    scaled = ew.mul(x, full_like(x, 0.5))
    a, b = (st.take(scaled, indices=st.scalar_index(i), lead=1) for i in (0, 1))
    total = ew.add(ew.mul(a, full_like(a, 3.0)), b)
    graph.outputs["y"] = st.stack(total, a, total, axis=1)
    value = np.array([[1, 2], [3, 4], [200, 7]], np.uint8)
    found = run(program_of(graph), "forward", {"x": value}, tmp_path)["y"]
    wanted = value[:, 0] * 1.5 + value[:, 1] * 0.5
    np.testing.assert_allclose(found, np.stack([wanted, value[:, 0] * 0.5, wanted], 1))


def test_constants_where_kernels_read_memory(tmp_path: Path) -> None:
    graph = Graph("forward")
    x = graph.input("x", f64[BATCH, 3])
    two = full_like(x, 2.0)
    graph.outputs = {
        "stack": st.stack(x, two, axis=2),
        "concat": st.concat(two, x, axis=1),
        "product": red.contract(x, two, spec="ab,cb->ac"),
        "column": red.sum_(two, axes=(0,)),
        "take": st.take(two, indices=st.indices([2, 0]), lead=1),
        "put": st.put_add(two, indices=st.indices([1, 1, 0]), lead=1, shape=(2,)),
        "scalars": st.stack(graph.constant(1.0, f64), graph.constant(-1.0, f64), axis=0),
    }
    value = np.arange(6.0).reshape(2, 3)
    found = run(program_of(graph), "forward", {"x": value}, tmp_path)
    expected = evaluate(graph, {"x": value})
    for name, wanted in expected.items():
        np.testing.assert_allclose(found[name], wanted, err_msg=name)


def test_a_value_computed_again_where_it_is_also_stored(tmp_path: Path) -> None:
    graph = Graph("forward")
    x = graph.input("x", f64[BATCH, 8])
    mask = ew.step(ew.abs_(ew.exp(x)))
    total = ew.add(mask, ew.exp(x))
    graph.outputs["y"] = st.concat(total, mask, axis=1)
    value = np.random.default_rng(0).normal(size=(3, 8))
    found = run(program_of(graph), "forward", {"x": value}, tmp_path)["y"]
    np.testing.assert_allclose(found, np.concatenate([1 + np.exp(value), np.ones((3, 8))], 1))


def test_a_batch_along_the_columns(tmp_path: Path) -> None:
    graph = Graph("forward")
    x = st.transpose(graph.input("x", f64[BATCH, 3]), perm=(1, 0))
    graph.outputs = {"y": softmax(x), "z": red.max_(ew.exp(x), axes=(0,)), "w": red.contract(x, x, spec="ab,cb->ac")}
    value = np.random.default_rng(0).normal(size=(13, 3))
    found = run(program_of(graph), "forward", {"x": value}, tmp_path)
    for name, wanted in evaluate(graph, {"x": value}).items():
        np.testing.assert_allclose(found[name], wanted, rtol=1e-13, err_msg=name)


def test_negative_constants_are_negated(tmp_path: Path) -> None:
    graph = Graph("forward")
    x = graph.input("x", f64[BATCH])
    graph.outputs["y"] = ew.add(x, st.broadcast(ew.neg(graph.constant(-1.0, f64)), shape=(BATCH,), axes=()))
    assert run(program_of(graph), "forward", {"x": np.ones(3)}, tmp_path)["y"].tolist() == [2.0] * 3


# Slots written in place.


def updated(
    build: Callable[[dict[str, Node]], dict[str, Node]], start: dict[str, Array], folder: Path
) -> tuple[dict[str, Array], Program]:
    """The slots after one call of an entry that writes them."""
    graph = Graph("train_step")
    nodes = {k: graph.input(k, f64[v.shape], parameter=True) for k, v in start.items()}
    x = graph.input("x", f64[BATCH])
    graph.writes = build(nodes)
    graph.outputs["loss"] = red.sum_(x, axes=(0,))
    program = program_of(graph, start, trains=True)
    state = State(program)
    run(program, "train_step", {"x": np.ones(2)}, folder, state)
    return {k: np.array(state.slot(k)) for k in start}, program


def test_two_slots_trade_places(tmp_path: Path) -> None:
    a, b = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    found, _ = updated(lambda n: {"a": n["b"], "b": n["a"]}, {"a": a, "b": b}, tmp_path)
    assert found["a"].tolist() == b.tolist() and found["b"].tolist() == a.tolist()


def test_each_slots_new_value_needs_the_others_old_one(tmp_path: Path) -> None:
    a, b = np.arange(4.0).reshape(2, 2), np.arange(4.0, 8).reshape(2, 2)

    def build(n: dict[str, Node]) -> dict[str, Node]:
        return {
            "a": ew.add(n["a"], red.contract(n["a"], n["b"], spec="ab,bc->ac")),
            "b": ew.sub(n["b"], red.contract(n["b"], n["a"], spec="ab,bc->ac")),
        }

    found, _ = updated(build, {"a": a, "b": b}, tmp_path)
    np.testing.assert_allclose(found["a"], a + a @ b)
    np.testing.assert_allclose(found["b"], b - b @ a)


def test_a_slot_is_transposed_in_place(tmp_path: Path) -> None:
    a = np.arange(9.0).reshape(3, 3)
    found, _ = updated(lambda n: {"a": st.transpose(n["a"], perm=(1, 0))}, {"a": a}, tmp_path)
    assert found["a"].tolist() == a.T.tolist()


def test_a_slot_is_written_after_its_last_reader(tmp_path: Path) -> None:
    """b's new value reads a's old one, through a chain of kernels; so does a's own, element by element."""
    a, b = np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0, 1.0])

    def build(n: dict[str, Node]) -> dict[str, Node]:
        total = red.sum_(ew.exp(n["a"]), axes=(0,))
        wide = st.broadcast(total, shape=(3,), axes=())
        return {"a": ew.mul(n["a"], full_like(n["a"], 2.0)), "b": ew.mul(n["b"], wide)}

    found, _ = updated(build, {"a": a, "b": b}, tmp_path)
    assert found["a"].tolist() == [2.0, 4.0, 6.0]
    np.testing.assert_allclose(found["b"], np.exp(a).sum() * b)


def test_both_slots_get_one_value(tmp_path: Path) -> None:
    def build(n: dict[str, Node]) -> dict[str, Node]:
        total = ew.add(n["a"], n["b"])
        return {"a": total, "b": total}

    found, _ = updated(build, {"a": np.array([1.0, 2.0]), "b": np.array([3.0, 4.0])}, tmp_path)
    assert found["a"].tolist() == found["b"].tolist() == [4.0, 6.0]


def test_a_reversed_slot(tmp_path: Path) -> None:
    """A gather of a slot into itself must not read what it has written."""
    found, _ = updated(
        lambda n: {"a": st.take(n["a"], indices=st.indices([3, 2, 1, 0]), lead=0)}, {"a": np.arange(4.0)}, tmp_path
    )
    assert found["a"].tolist() == [3.0, 2.0, 1.0, 0.0]


def test_a_slot_is_multiplied_by_itself(tmp_path: Path) -> None:
    a = np.arange(25.0).reshape(5, 5)
    found, _ = updated(lambda n: {"a": red.contract(n["a"], n["a"], spec="ab,bc->ac")}, {"a": a}, tmp_path)
    np.testing.assert_allclose(found["a"], a @ a)


def test_slots_of_one_update_cross_over(tmp_path: Path) -> None:
    """One kernel may write several slots; each reads the other's old element, and a third slot is made of both."""
    a, b = np.arange(4.0).reshape(2, 2), np.arange(4.0, 8).reshape(2, 2)

    def build(n: dict[str, Node]) -> dict[str, Node]:
        new = ew.add(n["a"], ew.mul(red.contract(n["c"], n["a"], spec="ab,bc->ac"), n["b"]))
        third = red.contract(n["a"], n["b"], spec="ab,bc->ac")
        return {"a": new, "b": ew.sub(n["b"], ew.mul(new, n["a"])), "c": third}

    found, _ = updated(build, {"a": a, "b": b, "c": a + 1}, tmp_path)
    new = a + (a + 1) @ a * b
    np.testing.assert_allclose(found["a"], new)
    np.testing.assert_allclose(found["b"], b - new * a)
    np.testing.assert_allclose(found["c"], a @ b)


def test_a_slot_is_updated_in_another_shape(tmp_path: Path) -> None:
    """An axis is split, as into heads: the kernel of the gradient writes the slots, and nothing is copied."""
    rng = np.random.default_rng(0)
    start = {"a": rng.normal(size=(6, 4)), "m": rng.normal(size=(6, 4))}
    start |= {"u": rng.normal(size=(5, 2, 3)), "v": rng.normal(size=(5, 4))}

    def build(n: dict[str, Node]) -> dict[str, Node]:
        gradient = red.contract(n["u"], n["v"], spec="dab,dc->abc")
        old, moment = (st.reshape(n[name], shape=(2, 3, 4)) for name in "am")
        new = ew.add(ew.mul(moment, full_like(moment, 0.5)), gradient)
        return {"a": st.reshape(ew.sub(old, new), shape=(6, 4)), "m": st.reshape(new, shape=(6, 4))}

    found, program = updated(build, start, tmp_path)
    moment = 0.5 * start["m"] + np.einsum("dab,dc->abc", start["u"], start["v"]).reshape(6, 4)
    np.testing.assert_allclose(found["m"], moment)
    np.testing.assert_allclose(found["a"], start["a"] - moment)
    assert len(program.procedures[0].kernels) == 2  # of the loss, and of both slots


def test_a_product_that_others_read_writes_no_slot() -> None:
    """It would have to wait for the slot's last reader, and they for it."""
    graph = Graph("train_step")
    a = graph.input("a", f32[5, 7], parameter=True)
    gradient = red.contract(graph.input("x", f32[BATCH, 5]), graph.input("y", f32[BATCH, 7]), spec="ca,cb->ab")
    graph.writes["a"] = ew.sub(a, gradient)
    assert [nodes for _, nodes in groups(graph)] == [["contract", "sub"]]
    graph.outputs["norm"] = red.sum_(ew.exp(gradient), axes=(0, 1))
    assert not any({"contract", "sub"} <= {*nodes} for _, nodes in groups(graph))


@pytest.mark.parametrize("transposed", [False, True])
def test_an_optimizers_update_is_one_kernel(transposed: bool) -> None:
    """That of the gradient; its state lies in memory as the parameter does, whose order the products choose."""
    w = mlaot.parameters({"w": np.ones((20, 12), np.float32)})

    def loss(y: Any, target: Any) -> Any:
        return ((y - target) ** 2).sum()

    def forward(x: Any) -> Any:
        return x @ w["w"].T if transposed else x @ w["w"]

    width = 12 if transposed else 20
    forward.__annotations__ = {"x": f32[BATCH, width]}
    loss.__annotations__ = {"target": f32[BATCH, 32 - width]}
    declared = mlaot.model(forward, parameters=w, loss=loss, optimizer=mlaot.optim.Adam(lr=0.1))
    program = compile_model(declared, "nn", Options(isas=("base",)))
    slots = [slot for slot in program.module.slots if slot.shape == (20, 12)]
    assert len(slots) == 3 and len({slot.strides for slot in slots}) == 1
    assert (slots[0].strides[0] == 1) == transposed
    (step,) = (p for p in program.procedures if p.entry.name == "train_step")
    stores = [
        [p for p in kernel.params if p.written and p.buffer.where == "state" and p.buffer.shape == (20, 12)]
        for kernel in step.kernels
    ]
    assert sorted(map(len, filter(None, stores))) == [3]


# Text.


def xor() -> Declaration:
    random.seed(0)
    net = MLP(2, [4, 1])
    x, y = [Value(0.0), Value(0.0)], Value(0.0)
    out = net(x)
    assert isinstance(out, Value)
    return declare(out, inputs={"x": x, "y": y}, parameters=net, loss=(out - y) ** 2)


def dense_layer() -> Declaration:
    w = parameters({"w": np.full((50, 784), 0.1, np.float32), "b": np.zeros(50, np.float32)})

    @mlaot.model
    def layer(x: f32[784]):  # type: ignore[no-untyped-def,valid-type]
        return np.maximum(w["w"] @ x + w["b"], 0)

    assert isinstance(layer, Declaration)
    return layer


def softmax_layer() -> Declaration:
    @mlaot.model
    def layer(x: f64[10]):  # type: ignore[no-untyped-def,valid-type]
        return mlaot.softmax(x)

    assert isinstance(layer, Declaration)
    return layer


@pytest.mark.parametrize(
    ("name", "make", "isa"), [("xor", xor, "base"), ("dense", dense_layer, "v4"), ("softmax", softmax_layer, "v3")]
)
def test_golden_c(name: str, make: Callable[[], Declaration], isa: str, golden: Callable[[str, str], None]) -> None:
    """Read by people: does it look hand-written?"""
    program = lower(passes.run(name, make().trace(), Options(isas=(isa,))))
    golden(f"{name}_{isa}.c", kernels_file(program, name, MACHINES[isa]))


def test_a_program_prints() -> None:
    graph = Graph("forward")
    graph.outputs["y"] = ew.relu(dense(graph))
    text = str(program_of(graph, {"w": np.zeros((10, 64)), "b": np.zeros(10)}))
    assert (
        text
        == """\
program m
entry forward: workspace 0
  y: f32[batch,10] strides [10, 1] in output
  x: f32[batch,64] strides [64, 1] in input
  w: f32[10,64] strides [1, 10] in constant
  b: f32[10] strides [1] in constant
  contraction y=y!, x=x, w=w, b=b
    v0 = contract(x, w, spec=ac,bc->ab) : f32[batch,10]
    v1 = add(v0, b) : f32[batch,10]
    v2 = relu(v1) : f32[batch,10]
"""
    )


def test_inputs_carry_the_ranges_of_indices() -> None:
    graph = Graph("forward")
    label, x = graph.input("label", i64[BATCH]), graph.input("x", f64[BATCH, 7])
    graph.outputs["y"] = red.sum_(ew.mul(x, st.one_hot(label, classes=7, dtype=f64)), axes=(1,))
    module = Module("m", {"forward": graph}, {}, False, ranges={"forward": {"label": (IndexRange(7),)}})
    ports = lower(module).procedures[0].entry.inputs
    assert {p.name: p.ranges for p in ports} == {"label": (IndexRange(7),), "x": ()}


def test_equal_kernels_are_written_once() -> None:
    graphs = {}
    for name in ("forward", "again"):
        graphs[name] = Graph(name)
        graphs[name].outputs["y"] = softmax(graphs[name].input("x", f64[BATCH, 10]))
    text = kernels_file(lower(Module("m", graphs, {}, False)), "m", MACHINES["v3"])
    assert text.count("static void div_part_v3(") == 1 and text.count("    div_v3(threads, ") == 2


def test_an_input_may_be_called_batch() -> None:
    def double(batch):  # type: ignore[no-untyped-def]
        return batch * 2.0

    double.__annotations__ = {"batch": mlaot.f64[3]}
    program = compile_model(mlaot.model(double), "names.nn", Options(isas=("base",)))
    assert "x_batch" in kernels_file(program, "nn", MACHINES["base"])


AWKWARD = (
    "x",
    "y",
    "a",
    "b",
    "c",
    "r",
    "row",
    "column",
    "acc",
    "best",
    "now",
    "one",
    "left",
    "k",
    "e",
    "i",
    "end",
    "sums",
    "rest",
    "t0",
)


def test_inputs_may_be_called_anything(tmp_path: Path) -> None:
    """Kernels have variables of their own."""

    def graph_over(name: str) -> Graph:
        graph = Graph("forward")
        x = graph.input(name, f64[BATCH, 5])
        rows = st.slice_(x, start=(0, 0), size=(BATCH, 4), step=(1, 1))
        graph.outputs = {
            "largest": OPS["argmax"](x, axis=1),
            "order": OPS["argsort"](x, axis=1),
            "running": OPS["cumsum"](rows, axis=1),
            "picked": OPS["gather"](x, OPS["argmin"](x, axis=1), lead=1),
            "square": red.contract(x, x, spec="ac,bc->ab"),
            "shifted": ew.add(red.sum_(ew.exp(x), axes=(1,)), red.max_(x, axes=(1,))),
        }
        return graph

    programs = {f"g_{name}": program_of(graph_over(name)) for name in AWKWARD}
    library = Library(programs, AVAILABLE[-1], tmp_path)
    x = np.random.default_rng(0).normal(size=(3, 5))
    for name in AWKWARD:
        found = library.call(f"g_{name}", "forward", {name: x}, {"batch": 3})
        for key, expected in evaluate(graph_over(name), {name: x}).items():
            np.testing.assert_allclose(found[key], expected, rtol=1e-12, err_msg=f"{key} of {name}")
