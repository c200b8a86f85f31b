"""Random tensor graphs against the references, and whether faults put into the compiler are found that way."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mlaot.evaluate import evaluate
from mlaot.ir import Dim, Graph, Literal, Node, Type, dim, parse
from mlaot.ir.text import text
from mlaot.ir.types import f16, f32, i64, u64
from mlaot.lower import lower as lowering
from mlaot.lower.plan import plan
from mlaot.lower.program import Buffer, Kernel
from mlaot.nest.reductions import REDUCTIONS
from mlaot.ops import OPS
from mlaot.ops import elementwise as ew
from mlaot.ops import structure as st
from mlaot.passes import run_one
from mlaot.passes.algebra import simplify

from ..compiled import AVAILABLE
from . import tensors
from .bounds import NOT_DRAWN, Analysis
from .shrink import source
from .tensor_graphs import make
from .tensors import Case, failures, make_case, report, run, run_cases, smallest

n, m = dim("n"), dim("m")


@pytest.mark.parametrize("isa", AVAILABLE)
def test_compiled_graphs_are_right(isa: str) -> None:
    """The whole pipeline and the least one give what the references give; so do gradients."""
    failed, counts = run(200 * AVAILABLE.index(isa), 60, (isa,))
    assert not failed, report(failed, counts)
    assert counts["numbers"] > 10_000, counts
    assert counts["not comparable"] + counts["loosely bound"] < 0.1 * counts["numbers"], counts


def test_every_op_and_dtype_is_made() -> None:
    graphs = [make(seed).graph for seed in range(1500)]
    nodes = [node for graph in graphs for node in graph.nodes()]
    assert {node.op.name for node in nodes} == set(OPS) - set(NOT_DRAWN)
    assert {d for node in nodes for d in getattr(node.type, "shape", ()) if d in (0, n, m)} == {0, n, m}


@pytest.mark.parametrize("seed", range(0, 60, 2))
def test_bounds_are_around_the_values_of_the_oracle(seed: int) -> None:
    case = make_case(seed)
    for dims, inputs in case.trials:
        values = evaluate(case.reference, inputs, wide=True, dims=dims)
        analysis = Analysis(inputs, dims, grained=True)
        for name, node in case.reference.outputs.items():
            found = analysis.of(node)
            certain = np.isfinite(found.error)
            assert np.allclose(found.value[certain], values[name][certain], 1e-6, 1e-30, equal_nan=True)


# What was once wrong.


def cast_of_a_row_whose_length_is_an_expression() -> tuple[Graph, dict[str, Any], dict[str, int]]:
    g = Graph("forward")
    x = g.input("x", Type(f32, (n * 3 + -2, m * 2 + 1)))
    g.outputs = {"y": g.add(OPS["neg"], [x])}
    return g, {"x": np.arange(12, dtype=np.float32).reshape(4, 3)}, {"n": 2, "m": 1}


def unsigned_indices_above_the_signed_ones() -> tuple[Graph, dict[str, Any], dict[str, int]]:
    g = Graph("forward")
    x, indices = g.input("x", Type(u64, (3,))), g.input("i", Type(u64, (2,)))
    updates = g.add(OPS["gather"], [x, indices], {"lead": 0})
    g.outputs = {"y": g.add(OPS["scatter"], [x, indices, updates], {"lead": 0, "mode": "add"}), "z": updates}
    return g, {"x": np.array([5, 6, 7], "uint64"), "i": np.array([2**64 - 1, 1], "uint64")}, {}


def counting_in_half_precision() -> tuple[Graph, dict[str, Any], dict[str, int]]:
    g = Graph("forward")
    g.input("x", Type(f32, (m,)))
    g.outputs = {"y": g.add(OPS["iota"], [], {"shape": (m,), "axis": 0, "dtype": f16})}
    return g, {"x": np.zeros(5, np.float32)}, {"m": 5}


def a_running_sum_given_out_twice() -> tuple[Graph, dict[str, Any], dict[str, int]]:
    g = Graph("forward")
    x = g.input("x", Type(i64, (3,)))
    y = g.add(OPS["cumsum"], [x], {"axis": 0, "reverse": False, "exclusive": True})
    g.outputs = {"y": y, "z": y}
    return g, {"x": np.array([1, 2, 3])}, {}


def a_maximum_of_halves_is_one_of_them() -> tuple[Graph, dict[str, Any], dict[str, int]]:
    g = Graph("forward")
    products = g.add(OPS["cumprod"], [g.input("x", Type(f16, (3, 5)))], {"axis": 1})
    most = st.broadcast(g.add(OPS["max"], [products], {"axes": (0, 1)}), shape=(3, 5), axes=())
    g.outputs = {"y": g.add(OPS["is_equal"], [products, most])}
    return g, {"x": (np.arange(15).reshape(3, 5) / 7 + 0.1).astype(np.float16)}, {}


def the_largest_of_no_elements() -> tuple[Graph, dict[str, Any], dict[str, int]]:
    g = Graph("forward")
    rest = st.slice_(g.input("x", Type(f32, (n, 3))), start=(0, 0), size=(n - 1, 3), step=(1, 1))
    g.outputs = {"y": g.add(OPS["argmax"], [rest], {"axis": 0})}
    return g, {"x": np.ones((1, 3), np.float32)}, {"n": 1}


def a_table_over_rows_of_a_named_distance() -> tuple[Graph, dict[str, Any], dict[str, int]]:
    g = Graph("forward")
    turned = st.transpose(g.input("x", Type(f32, (3, n))), perm=(1, 0))
    taken = g.add(OPS["take"], [turned], {"indices": Literal([2, 0, 0, 1, 2], i64), "lead": 1})
    g.outputs = {
        "y": taken,
        "z": g.add(OPS["put_add"], [turned], {"indices": Literal([1, 1, 0], i64), "lead": 1, "shape": (2,)}),
    }
    return g, {"x": np.arange(12, dtype=np.float32).reshape(3, 4)}, {"n": 4}


def products_of_nothing() -> tuple[Graph, dict[str, Any], dict[str, int]]:
    g = Graph("forward")
    x, w = g.input("x", Type(f32, (n, 4))), g.input("w", Type(f32, (0, 4)))
    g.outputs = {"y": g.add(OPS["contract"], [x, w], {"spec": "ab,cb->ac"})}
    g.outputs["z"] = g.add(OPS["contract"], [w, x], {"spec": "cb,ab->ca"})
    return g, {"x": np.ones((5, 4), np.float32), "w": np.ones((0, 4), np.float32)}, {"n": 5}


@pytest.mark.parametrize(
    "graph",
    [
        a_maximum_of_halves_is_one_of_them,
        the_largest_of_no_elements,
        a_table_over_rows_of_a_named_distance,
        products_of_nothing,
        cast_of_a_row_whose_length_is_an_expression,
        unsigned_indices_above_the_signed_ones,
        counting_in_half_precision,
        a_running_sum_given_out_twice,
    ],
)
def test_graphs_that_once_failed(graph: Callable[[], tuple[Graph, dict[str, Any], dict[str, int]]]) -> None:
    assert failures(*graph()) == []


# Faults put in.


def wrong_slice(node: Node) -> Node | None:
    """slice that leaves something out at its end => the one that begins one element later"""
    start, size, step = (node.attrs[key] for key in ("start", "size", "step"))
    shape = node.arg(0).type.shape
    if step[:1] == (1,) and isinstance(shape[0], int) and start[0] == 0 and size[0] < shape[0]:
        return st.slice_(node.arg(0), start=(1, *start[1:]), size=size, step=step)
    return None


def wrong_broadcast(node: Node) -> Node | None:
    """broadcast along the first of two equal axes => along the second"""
    shape, axes = node.attrs["shape"], node.attrs["axes"]
    if axes == (0,) and len(shape) == 2 and shape[0] == shape[1]:
        return st.broadcast(node.arg(0), shape=shape, axes=(1,))
    return None


@pytest.mark.parametrize(("op", "rule"), [(st.slice_, wrong_slice), (st.broadcast, wrong_broadcast)])
def test_a_wrong_rule_is_found(monkeypatch: pytest.MonkeyPatch, op: Any, rule: Any) -> None:
    monkeypatch.setitem(simplify.RULES, op, (*simplify.RULES.get(op, ()), rule))
    cases = [case for seed in range(600) if fires(case := make_case(seed), op, rule)][:12]
    run_cases(cases, "base", Counter())
    found = [case for case in cases if case.failures]
    assert any(f.startswith("full") for case in found for f in case.failures), len(cases)


def fires(case: Case, op: Any, rule: Any) -> bool:
    return any(node.op is op and rule(node) is not None for node in case.made.graph.nodes())


def test_a_fault_is_narrowed_down_to_its_op(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REDUCTIONS, "prod", replace(REDUCTIONS["prod"], identity=0.0))
    case = next(c for s in range(600) if (c := make_case(s)).entry == "forward" and uses(c, "prod") and c.trials)
    run_cases([case], "base", Counter())
    assert case.failures
    small = smallest(case, "base")
    assert [node.op.name for node in small.reference.nodes() if node.op is not st.input_] == ["prod"]
    assert "OPS['prod']" in source(small)


def test_a_wrong_rule_is_reduced_to_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text of what is left shows the fault in one pass."""
    monkeypatch.setitem(simplify.RULES, st.slice_, (wrong_slice, *simplify.RULES.get(st.slice_, ())))
    case = next(found for seed in range(600) if (found := failing(seed, st.slice_, wrong_slice)))
    small = smallest(case, "base")
    assert len(small.reference.nodes()) <= 3 < len(case.reference.nodes())
    assert all(value.size <= 50 for _, inputs in small.trials for value in inputs.values())
    printed = text(small.reference, inline=None)
    assert printed in report([case], Counter())
    dims, inputs = small.trials[0]
    (passed,) = run_one("simplify", parse(printed)).values()
    before, after = (evaluate(graph, inputs, dims=dims)["y0"] for graph in (small.reference, passed))
    assert not np.array_equal(before, after, equal_nan=True)


def failing(seed: int, op: Any, rule: Any) -> Case | None:
    """The case of a seed in which a rule fires, where its answer is wrong then."""
    case = make_case(seed)
    if case.entry != "forward" or len(case.made.graph.nodes()) < 10 or not fires(case, op, rule):
        return None
    run_cases([case], "base", Counter())
    return case if case.failures else None


def uses(case: Case, op: str) -> bool:
    """Whether ``op`` reduces something of more than one element in one of the outputs."""
    nodes = case.made.graph.nodes()
    return any(n.op.name == op and n in case.made.graph.roots() and n.attrs["axes"] for n in nodes)


def test_overlapping_buffers_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def overlapping(kernels: Sequence[Kernel]) -> tuple[list[tuple[Buffer, Dim]], Dim]:
        offsets, size = plan(kernels)
        return [(buffer, 0) for buffer, _ in offsets], size

    monkeypatch.setattr(lowering, "plan", overlapping)
    failed, counts = run(0, 25)
    assert failed, counts


def test_a_wrong_gradient_is_found() -> None:
    right = ew.tanh.vjp
    object.__setattr__(ew.tanh, "vjp", lambda ct, out, x: (ew.mul(ct, out),))
    try:
        failed, counts = run(0, 20)
    finally:
        object.__setattr__(ew.tanh, "vjp", right)
    assert any("gradient along a direction" in f for case in failed for f in case.failures), counts


def test_a_crash_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors, "run_case", lambda *_: os.kill(os.getpid(), signal.SIGSEGV))
    assert failures(*counting_in_half_precision()) == ["crash: SIGSEGV"]
