"""Each pass by its text before and after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlaot import passes
from mlaot.errors import MlaotError
from mlaot.evaluate import evaluate
from mlaot.ir import Graph, Node, Type, dim, verify
from mlaot.ir.module import Module, gradient_of
from mlaot.ir.types import f32, f64, i64
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.base import Op, fill, full_like
from mlaot.ops.rounding import floor, round_
from mlaot.passes.algebra.canonical_order import canonical_order
from mlaot.passes.algebra.fold_constants import fold_constants
from mlaot.passes.algebra.legalize import legalize
from mlaot.passes.algebra.reciprocal import reciprocal
from mlaot.passes.base import Pass
from mlaot.passes.raising.contract import contract
from mlaot.passes.raising.flatten_sums import flatten_sums
from mlaot.passes.raising.raise_tensors import raise_tensors
from mlaot.passes.raising.split_parameters import split
from mlaot.passes.training.entries import derive
from mlaot.transforms.batch import batch
from mlaot.transforms.differentiate import differentiate

BATCH = dim("batch")


def body(graph: Graph) -> str:
    """The text of a graph without its name."""
    return "\n".join(line.strip() for line in str(graph).splitlines()[1:])


def after(graph_pass: Pass[[Graph]], graph: Graph) -> str:
    graph_pass(graph)
    verify(graph, graph_pass.name)
    return body(graph)


def items(graph: Graph, name: str, count: int, **notes: Any) -> list[Node]:
    """The scalars of a vector input."""
    x = graph.input(name, f64[count], **notes)
    return [st.item(x, index=i) for i in range(count)]


def test_fold() -> None:
    graph = Graph("f")
    x = graph.input("x", f64[2])
    two, three = graph.constant([2.0, 2.0], f64), graph.constant([3.0, 4.0], f64)
    graph.outputs["y"] = ew.add(ew.mul(two, three), x)
    assert (
        after(fold_constants, graph)
        == """\
v0 = const(value=[6.0, 8.0]) : f64[2]
v1 = input(name=x) : f64[2]
v2 = add(v0, v1) : f64[2]
return y=v2"""
    )


def test_fold_uses_the_types_own_arithmetic() -> None:
    graph = Graph("f")
    graph.outputs["y"] = ew.add(graph.constant(16777216.0, f32), graph.constant(1.0, f32))
    assert "value=16777216.0" in after(fold_constants, graph)
    graph = Graph("f")
    graph.outputs["y"] = ew.div(graph.constant(1.0, f64), graph.constant(0.0, f64))
    assert "value=inf" in after(fold_constants, graph)


def test_fold_leaves_broadcasts() -> None:
    graph = Graph("f")
    graph.outputs["y"] = fill(graph.input("x", f64[1]), 2.0, f64[1000])
    assert "broadcast" in after(fold_constants, graph)


def test_fold_leaves_parts_of_open_size() -> None:
    graph, n = Graph("f"), dim("n")
    table = graph.constant(np.arange(6.0).reshape(3, 2), f64)
    graph.outputs["y"] = ew.add(graph.input("x", f64[n, 2]), st.part(table, 0, 0, n))
    assert "slice" in after(fold_constants, graph)


def test_canonical_order_does_not_depend_on_how_it_was_written() -> None:
    texts = set()
    for swap in (False, True):
        graph = Graph("f")
        x, y = graph.input("x", f64[2]), graph.input("y", f64[2])
        a, b = ew.exp(x), ew.tanh(y)
        graph.outputs["r"] = ew.add(b, a) if swap else ew.add(a, b)
        texts.add(after(canonical_order, graph))
    assert len(texts) == 1


def test_canonical_keeps_subtraction_and_constants() -> None:
    graph = Graph("f")
    x, y = graph.input("x", f64[2]), graph.input("y", f64[2])
    graph.outputs = {"a": ew.sub(y, x), "b": ew.sub(x, y), "c": ew.mul(x, full_like(x, 2.0))}
    before = body(graph)
    assert after(canonical_order, graph) == before


def test_flatten_sums() -> None:
    graph = Graph("f")
    a, b, c, d = items(graph, "x", 4)
    graph.outputs["y"] = ew.add(ew.add(a, b), ew.add(c, d))
    assert after(flatten_sums, graph).splitlines()[-2:] == ["v5 = add(v1, v2, v3, v4) : f64[]", "return y=v5"]


def test_flatten_sums_drops_zero_and_keeps_shared_sums() -> None:
    graph = Graph("f")
    a, b, c = items(graph, "x", 3)
    shared = ew.add(a, b)
    graph.outputs = {"y": ew.add(ew.add(graph.constant(0.0, f64), shared), c), "z": ew.exp(shared)}
    text = after(flatten_sums, graph)
    assert "const" not in text and text.count(" = add(") == 2, text


def test_flatten_sums_keeps_sibling_sums_apart() -> None:
    """Two dots over one vector, summed: two sums of three terms, not one of six."""
    graph = Graph("f")
    x, w = items(graph, "x", 3), items(graph, "w", 6, parameter=True)
    dots = []
    for row in (w[:3], w[3:]):
        total = ew.mul(row[0], x[0])
        for wi, xi in zip(row[1:], x[1:], strict=True):
            total = ew.add(total, ew.mul(wi, xi))
        dots.append(total)
    graph.outputs["y"] = ew.add(dots[0], dots[1])
    adds = [line for line in after(flatten_sums, graph).splitlines() if " = add(" in line]
    assert [line.count("v") - 1 for line in adds] == [3, 3, 2], adds


def test_flatten_sums_leaves_tensors() -> None:
    graph = Graph("f")
    x, y = graph.input("x", f64[2]), graph.input("y", f64[2])
    graph.outputs["r"] = ew.add(ew.add(x, y), ew.exp(x))
    before = body(graph)
    assert after(flatten_sums, graph) == before


def test_raise_tensors() -> None:
    graph = Graph("f")
    x, w, b = items(graph, "x", 2), items(graph, "w", 4, parameter=True), items(graph, "b", 2, parameter=True)
    rows = [ew.relu(ew.add(ew.mul(w[2 * i], x[0]), ew.mul(w[2 * i + 1], x[1]), b[i])) for i in range(2)]
    graph.outputs["y"] = graph.add(st.stack, rows)
    assert (
        after(raise_tensors, graph)
        == """\
v0 = input(name=w, parameter=True) : f64[4]
v1 = reshape(v0, shape=(2, 2)) : f64[2,2]
v2 = input(name=x) : f64[2]
v3 = broadcast(v2, shape=(2, 2), axes=(1,)) : f64[2,2]
v4 = mul(v1, v3) : f64[2,2]
v5 = sum(v4, axes=(1,)) : f64[2]
v6 = input(name=b, parameter=True) : f64[2]
v7 = add(v5, v6) : f64[2]
v8 = relu(v7) : f64[2]
return y=v8"""
    )


def test_raise_tensors_leaves_what_has_no_equal() -> None:
    graph = Graph("f")
    a, b = items(graph, "x", 2)
    graph.outputs["y"] = ew.add(ew.exp(a), ew.tanh(b))
    text = after(raise_tensors, graph)
    assert "exp" in text and "tanh" in text and "stack" not in text and "concat" not in text


def test_raise_tensors_leaves_stacks_of_tensors() -> None:
    graph = Graph("f")
    x = graph.input("x", f64[2])
    graph.outputs["y"] = st.stack(x, ew.exp(x), x, axis=1)
    before = body(graph)
    assert after(raise_tensors, graph) == before


def test_split_parameters() -> None:
    graph = Graph("f")
    flat = graph.input("parameters", f64[6], parameter=True)
    matrix = st.take(flat, indices=st.indices([[0, 1], [3, 4]]), lead=0)
    vector = st.take(flat, indices=st.indices([2, 5]), lead=0)
    graph.outputs["y"] = red.contract(matrix, vector, spec="ab,b->a")
    declared = {"n.w": np.array([[0, 1], [3, 4]]), "n.b": np.array([2, 5])}
    members = split(graph, "parameters", declared)
    verify(graph, "split_parameters")
    assert {k: v.tolist() for k, v in members.items()} == {"n.w": [[0, 1], [3, 4]], "n.b": [2, 5]}
    assert (
        body(graph)
        == """\
v0 = input(name=n.w, parameter=True) : f64[2,2]
v1 = input(name=n.b, parameter=True) : f64[2]
v2 = contract(v0, v1, spec=ab,b->a) : f64[2]
return y=v2"""
    )


def test_split_parameters_of_the_whole_vector() -> None:
    """The vector itself is computed with, and read by items too; one more scalar is read by nothing."""
    graph = Graph("f")
    flat = graph.input("parameters", f64[3], parameter=True)
    graph.outputs["y"] = ew.mul(ew.exp(flat), st.broadcast(st.item(flat, index=1), shape=(3,), axes=()))
    members = split(graph, "parameters", {name: np.array(i) for i, name in enumerate("abc")})
    verify(graph, "split_parameters")
    assert [v.tolist() for v in members.values()] == [[0, 1, 2]]
    (name,) = members
    found = evaluate(graph, {name: [0.0, 1.0, 2.0]})["y"]
    np.testing.assert_allclose(found, np.exp([0.0, 1.0, 2.0]))


def test_split_parameters_keeps_the_unread() -> None:
    graph = Graph("f")
    flat = graph.input("parameters", f64[3], parameter=True)
    graph.outputs["y"] = st.item(flat, index=1)
    members = split(graph, "parameters", {name: np.array(i) for i, name in enumerate("abc")})
    assert sorted(int(i) for v in members.values() for i in np.ravel(v)) == [0, 1, 2]
    assert set(graph.inputs) == set(members)


def test_batch() -> None:
    graph = Graph("f")
    w, x = graph.input("w", f32[3, 4], parameter=True), graph.input("x", f32[4])
    graph.outputs = {"y": red.contract(w, x, spec="ab,b->a"), "n": red.sum_(w, axes=(0, 1))}
    batched = batch(graph, BATCH, {"w"})
    verify(batched, "batch")
    assert (
        body(batched)
        == """\
v0 = input(name=w, parameter=True) : f32[3,4]
v1 = input(name=x) : f32[batch,4]
v2 = contract(v0, v1, spec=ab,nb->na) : f32[batch,3]
v3 = sum(v0, axes=(0, 1)) : f32[]
v4 = broadcast(v3, shape=(batch,), axes=()) : f32[batch]
return y=v2, n=v4"""
    )


def test_batch_names_an_op_without_a_rule() -> None:
    graph = Graph("f")
    strange = Op.__new__(Op)  # past the registry
    for key, value in {**vars(ew.exp), "name": "strange", "axes": None}.items():
        object.__setattr__(strange, key, value)
    graph.outputs["y"] = graph.add(strange, [graph.input("x", f32[4])])
    with pytest.raises(MlaotError, match="op 'strange' has no batching rule"):
        batch(graph, BATCH, ())


def test_contract_finds_sums_of_products() -> None:
    graph = Graph("f")
    x, w = graph.input("x", f64[BATCH, 4]), graph.input("w", f64[3, 4])
    wide = (BATCH, 3, 4)
    product = ew.mul(st.broadcast(w, shape=wide, axes=(1, 2)), st.broadcast(x, shape=wide, axes=(0, 2)))
    graph.outputs["y"] = red.sum_(product, axes=(2,))
    assert (
        after(contract, graph)
        == """\
v0 = input(name=x) : f64[batch,4]
v1 = input(name=w) : f64[3,4]
v2 = contract(v0, v1, spec=ac,bc->ab) : f64[batch,3]
return y=v2"""
    )


def test_contract_leaves_row_work() -> None:
    """Both factors vary along every kept axis: that is no matrix product."""
    graph = Graph("f")
    x, y = graph.input("x", f64[3, 4]), graph.input("y", f64[3, 4])
    graph.outputs["r"] = red.sum_(ew.mul(x, y), axes=(1,))
    before = body(graph)
    assert after(contract, graph) == before


def test_contract_absorbs_transposes_and_orders_labels() -> None:
    texts = set()
    for written in range(3):
        graph = Graph("f")
        x, w = graph.input("x", f64[5, 4]), graph.input("w", f64[3, 4])
        if written == 0:
            y = red.contract(x, st.transpose(w, perm=(1, 0)), spec="ab,bc->ac")
        elif written == 1:
            y = red.contract(w, x, spec="qz,bz->bq")
        else:
            y = st.transpose(red.contract(w, x, spec="ab,cb->ac"), perm=(1, 0))
        graph.outputs["y"] = y
        texts.add(after(contract, graph).split("contract")[1])
    assert len(texts) == 1 and "spec=ac,bc->ab" in texts.pop()


def test_reciprocal() -> None:
    graph = Graph("f")
    x, y = graph.input("x", f64[3, 4]), graph.input("y", f64[3])
    graph.outputs["r"] = ew.div(x, st.broadcast(y, shape=(3, 4), axes=(0,)))
    assert (
        after(reciprocal, graph)
        == """\
v0 = input(name=x) : f64[3,4]
v1 = const(value=1.0) : f64[]
v2 = broadcast(v1, shape=(3,), axes=()) : f64[3]
v3 = input(name=y) : f64[3]
v4 = div(v2, v3) : f64[3]
v5 = broadcast(v4, shape=(3, 4), axes=(0,)) : f64[3,4]
v6 = mul(v0, v5) : f64[3,4]
return r=v6"""
    )
    graph = Graph("f")
    x, y = graph.input("x", f64[3]), graph.input("y", f64[3])
    graph.outputs["r"] = ew.div(x, y)
    before = body(graph)
    assert after(reciprocal, graph) == before


def test_quotients_that_become_whole_numbers_stay() -> None:
    """x * (1 / y) may be on the other side of a half."""
    for whole in (round_, floor, lambda q: ew.cast(q, dtype=i64), lambda q: round_(ew.cast(q, dtype=f32))):
        graph = Graph("f")
        x, y = graph.input("x", f64[3]), graph.input("y", f64[()])
        graph.outputs["r"] = whole(ew.div(x, st.broadcast(y, shape=(3,), axes=())))
        before = body(graph)
        assert after(reciprocal, graph) == before


def test_legalize_splits_reductions_and_copies_roots() -> None:
    graph = Graph("f")
    x = graph.input("x", f64[2, 3])
    turned, two = st.transpose(x, perm=(1, 0)), graph.constant(2.0, f64)
    graph.outputs = {"s": red.sum_(x, axes=(0, 1)), "x": x, "t": turned, "c": two}
    assert (
        after(legalize, graph)
        == """\
v0 = input(name=x) : f64[2,3]
v1 = sum(v0, axes=(1,)) : f64[2]
v2 = sum(v1, axes=(0,)) : f64[]
v3 = copy(v0) : f64[2,3]
v4 = transpose(v0, perm=(1, 0)) : f64[3,2]
v5 = copy(v4) : f64[3,2]
v6 = const(value=2.0) : f64[]
v7 = copy(v6) : f64[]
return s=v2, x=v3, t=v5, c=v7"""
    )


def test_legalize_stores_what_kernels_read() -> None:
    graph = Graph("f")
    x = graph.input("x", f64[3])
    graph.outputs["y"] = red.contract(x, full_like(x, 2.0), spec="a,b->ab")
    text = after(legalize, graph)
    assert "copy(" in text


def test_differentiate() -> None:
    graph = Graph("f")
    x = graph.input("x", f64[3])
    loss = red.sum_(ew.relu(x), axes=(0,))
    graph.outputs["d"] = differentiate(loss, [x])[0]
    assert (
        body(graph)
        == """\
v0 = const(value=1.0) : f64[]
v1 = broadcast(v0, shape=(3,), axes=()) : f64[3]
v2 = input(name=x) : f64[3]
v3 = relu(v2) : f64[3]
v4 = step(v3) : f64[3]
v5 = mul(v1, v4) : f64[3]
return d=v5"""
    )


def test_differentiate_gives_zeros_and_adds_shared_uses() -> None:
    graph = Graph("f")
    x, y, z = (graph.input(n, f64[2]) for n in "xyz")
    loss = red.sum_(ew.add(ew.mul(x, x), ew.mul(x, y)), axes=(0,))
    gradients = differentiate(loss, [x, y, z, loss])
    graph.outputs = {f"d{i}": g for i, g in enumerate(gradients)}
    found = evaluate(graph, {"x": [1.0, 2.0], "y": [3.0, 4.0], "z": [0.0, 0.0]})
    assert [v.tolist() for v in found.values()] == [[5.0, 8.0], [1.0, 2.0], [0.0, 0.0], 1.0]


def test_differentiate_refuses() -> None:
    graph = Graph("f")
    x = graph.input("x", f64[2])
    with pytest.raises(MlaotError, match=r"a loss must be a scalar, got f64\[2\]"):
        differentiate(x, [x])


def trained() -> Module:
    graph = Graph("model")
    w, x = graph.input("w", f64[2], parameter=True), graph.input("x", f64[BATCH, 2])
    out = red.contract(x, w, spec="ab,b->a")
    graph.outputs = {"out": out, "loss": ew.mul(out, out)}
    module = Module("m", {"model": graph}, {"w": np.zeros(2)}, True)
    derive(module)
    for entry in module.graphs.values():
        verify(entry, "entries")
    return module


def test_entries_of_a_training_model() -> None:
    module = trained()
    assert list(module.graphs) == ["forward", "loss", "train_step", "accumulate", "phases", "update"]
    assert {k: (list(g.inputs), list(g.outputs), list(g.writes)) for k, g in module.graphs.items()} == {
        "forward": (["w", "x"], ["out"], []),
        "loss": (["w", "x"], ["loss"], []),
        "train_step": (["w", "x", "lr"], ["loss"], ["w"]),
        "accumulate": (["w", "x", gradient_of("w")], ["loss"], [gradient_of("w")]),
        "phases": (["w", "x", gradient_of("w")], ["out", "loss"], [gradient_of("w")]),
        "update": (["w", gradient_of("w"), "lr"], [], ["w"]),
    }
    w, x = np.array([0.5, -1.0]), np.array([[1.0, 2.0], [3.0, 1.0], [0.0, 1.0]])
    out = x @ w
    gradient = 2 * out @ x / 3
    given = {"w": w, "x": x, "lr": 0.25, gradient_of("w"): np.ones(2)}
    found = {k: evaluate(g, given) for k, g in module.graphs.items()}
    np.testing.assert_allclose(found["loss"]["loss"], (out**2).mean())
    np.testing.assert_allclose(found["train_step"]["write w"], w - 0.25 * gradient)
    np.testing.assert_allclose(found["accumulate"]["loss"], (out**2).mean())
    for name in ("accumulate", "phases"):
        np.testing.assert_allclose(found[name]["write gradient(w)"], 1 + gradient)
    np.testing.assert_allclose(found["update"]["write w"], w - 0.25)


def test_entries_of_a_frozen_model() -> None:
    graph = Graph("model")
    graph.outputs["y"] = ew.exp(graph.input("x", f64[BATCH]))
    module = Module("m", {"model": graph}, {}, False)
    derive(module)
    assert list(module.graphs) == ["forward"]


def test_entries_refuse_a_loss_that_is_no_number() -> None:
    graph = Graph("model")
    x, w = graph.input("x", f64[BATCH, 3]), graph.input("w", f64[3], parameter=True)
    graph.outputs = {"y": x, "loss": ew.mul(x, st.broadcast(w, shape=(BATCH, 3), axes=(1,)))}
    with pytest.raises(MlaotError, match=r"one number an example, got f64\[batch,3\]"):
        derive(Module("m", {"model": graph}, {"w": np.zeros(3)}, True))


def test_scalar_types_are_shared() -> None:
    graph = Graph("f")
    a, b = items(graph, "x", 2)
    assert a.type is b.type and a.type == Type(f64)


FILES = [path.stem for path in Path(passes.__file__).parent.rglob("*.py")]
STAGES = passes.names()
NO_PASSES = {"__init__", "base", "bounds", "microbatch", "rewrite", "subgraphs"}
NO_PASSES |= {"blocks", "groups", "groups_in_lanes", "arrays", "chains", "places", "positions", "roles"}


@pytest.mark.parametrize("name", ["all", "trace", *STAGES, *sorted({*FILES} - NO_PASSES)])
def test_a_pass_can_be_printed_by_its_name_which_is_its_file_s(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLAOT_DUMP", name)
    assert passes.stages_to_print() <= {"trace", *STAGES}
    assert passes.stages_to_print()
