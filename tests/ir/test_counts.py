"""Counted dims: what waits for them, in which order, and how large they are at most."""

from __future__ import annotations

import pytest

from mlaot.errors import MlaotError
from mlaot.evaluate import evaluate
from mlaot.ir import Graph, dim
from mlaot.ir.counts import counts, dims_in, levels, most_of
from mlaot.ir.types import TupleType, f32, i64
from mlaot.lower.counts import needs_of, nest_counts
from mlaot.ops import structure as st
from mlaot.ops.base import sum_
from mlaot.ops.counting import count, counted
from mlaot.transforms.batch import batch

N, FOUND, KEPT = dim("n"), dim("found"), dim("kept")


def nested() -> Graph:
    """``kept`` is counted of ``found`` rows but comes first; an iota has no argument that it could wait for."""
    graph = Graph("g")
    number, x = graph.input("number", i64[()]), graph.input("x", f32[N, 3])
    found = graph.add(count, (number,), {"dim": FOUND, "most": N + 1})
    numbers = graph.add(st.iota, (), {"shape": (FOUND,), "axis": 0, "dtype": i64})
    kept = graph.add(count, (sum_(numbers, axes=(0,)),), {"dim": KEPT, "most": 2 * FOUND})
    pairs = graph.add(st.iota, (), {"shape": (KEPT, FOUND), "axis": 0, "dtype": i64})
    graph.outputs = {"kept": kept, "pairs": pairs, "found": found, "x": sum_(x, axes=(1,)), "numbers": numbers}
    return graph


def test_order() -> None:
    graph = nested()
    found = counts(graph)
    assert [c.name for c in found] == ["found", "kept"]
    assert most_of(found) == {"found": N + 1, "kept": 2 * N + 2}
    level = levels(graph, found)
    expected = {"kept": 1, "pairs": 2, "found": 0, "x": 0, "numbers": 1}
    assert {name: level[node.find()] for name, node in graph.outputs.items()} == expected


def test_evaluation_waits_for_counts() -> None:
    results = evaluate(nested(), {"number": 3, "x": [[1.0, 2, 3]] * 2})
    assert results["pairs"].shape == (3, 3) and results["numbers"].tolist() == [0, 1, 2]
    with pytest.raises(MlaotError, match="expected found of at most 2, got 3"):
        evaluate(nested(), {"number": 3, "x": [[1.0, 2, 3]]})


def test_nest() -> None:
    """Each dim has a subgraph for what waits for it; a number that is computed before it is none that kernels know."""
    nest = nest_counts(nested())
    (outer,) = [node for node in nest.nodes() if node.op is counted]
    body = outer.attrs["body"].graph
    (inner,) = [node for node in body.nodes() if node.op is counted]
    assert (outer.attrs["dim"], inner.attrs["dim"]) == (FOUND, KEPT)
    assert outer.arg(0) is nest.outputs["found"].find() and nest.outputs["pairs"].type == i64[KEPT, FOUND]
    assert not any(dims_in(node.type) & {"kept"} for node in body.nodes() if node.op.name == "iota")
    plain = Graph("plain")
    plain.outputs["y"] = plain.input("x", f32[N])
    assert nest_counts(plain) is plain


def test_needs() -> None:
    """What is certain by the bounds of the dims is no need, and others are those of the last dim in them."""
    graph = nested()
    x = graph.input("x", f32[N, 3])
    for name, length in {"fits": N + 1 - FOUND, "may not": FOUND - 2, "neither": KEPT - FOUND}.items():
        graph.outputs[name] = graph.add(st.iota, (), {"shape": (length,), "axis": 0, "dtype": i64})
    graph.outputs["x"] = x
    assert needs_of(graph, counts(graph)) == [(FOUND - 2,), (KEPT - FOUND,)]


def test_circle() -> None:
    graph = Graph("g")
    for name, other in (("a", dim("b")), ("b", dim("a"))):
        number = graph.add(st.size, (), {"dim": other, "dtype": i64})
        graph.outputs[name] = graph.add(count, (number,), {"dim": dim(name), "most": 9})
    with pytest.raises(MlaotError, match="the lengths a and b cannot be counted, as each depends on the others"):
        counts(graph)


def test_dims_in() -> None:
    types = TupleType((f32[N, 2 * KEPT], i64[()]))
    assert dims_in((types, (FOUND // 2, 3), "n", None)) == {"n", "kept", "found"}


def test_examples_have_no_common_length() -> None:
    """Neither is there a batch of counts, nor does an evaluator see what lowering makes."""
    with pytest.raises(
        MlaotError, match="found is counted from the data, and would differ between the examples of a batch"
    ):
        batch(nested(), dim("batch"), ())
    with pytest.raises(MlaotError, match=r"a dimension is counted by i64\[\], got f32"):
        graph = Graph("g")
        graph.add(count, (graph.input("x", f32[()]),), {"dim": FOUND, "most": 3})
