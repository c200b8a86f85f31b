"""What nobody reads of loops and branches is dropped, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mlaot.evaluate import evaluate
from mlaot.ir import Graph, Node, Subgraph, Type, verify
from mlaot.ir.types import boolean, f64, i64
from mlaot.ops import comparison as cmp
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops.base import fill
from mlaot.ops.control import cond, results, save_carries, scan, while_
from mlaot.passes.algebra.dead_code import dead_code
from mlaot.transforms.differentiate import differentiate

SCALAR = Type(f64)


def body(types: Sequence[Type], made: Callable[[list[Node]], Sequence[Node]]) -> Subgraph:
    return Subgraph.of("body", types, lambda graph, args: made(args))


def pruned(graph: Graph, inputs: dict[str, Any]) -> str:
    """The text after the pass, which changes no value."""
    before = evaluate(graph, inputs)
    dead_code(graph)
    verify(graph, "prune")
    after = evaluate(graph, inputs)
    assert all(np.array_equal(after[name], value) for name, value in before.items())
    return str(graph)


def loop() -> tuple[Graph, list[Node], dict[str, Any]]:
    """Carries a, b, c: a is its own, b reads a, c reads all; a y of each."""
    types = (SCALAR, SCALAR, SCALAR, SCALAR, SCALAR, SCALAR)

    def step(v: list[Node]) -> list[Node]:
        k, _, a, b, c, x = v
        return [ew.mul(a, k), ew.add(b, a), ew.add(ew.add(a, b), ew.add(c, x)), ew.exp(x), b]

    graph = Graph("f")
    args = [graph.input(name, t) for name, t in zip("kuabcx", (*types[:5], f64[3]), strict=True)]
    attrs = {"consts": 2, "carries": 3, "length": 3, "reverse": False}
    found = results(scan(*args, body=save_carries(body(types, step), 2, 3), **attrs))
    return graph, found, dict.fromkeys("kuabc", 0.5) | {"x": np.arange(3.0)}


def test_carries_that_nobody_reads() -> None:
    graph, found, inputs = loop()
    graph.outputs = {"b": found[1]}
    assert (
        pruned(graph, inputs)
        == """\
graph f:
  v0 = input(name=k) : f64[]
  v1 = input(name=a) : f64[]
  v2 = input(name=b) : f64[]
  v3 = scan(v0, v1, v2, body=<body 1: 5 nodes>, consts=1, carries=2, length=3, reverse=False) : (f64[], f64[])
  v4 = result(v3, index=1) : f64[]
  return b=v4
    graph body 1(a0, a2, a3):
      v0 = input(name=a2) : f64[]
      v1 = input(name=a0) : f64[]
      v2 = mul(v0, v1) : f64[]
      v3 = input(name=a3) : f64[]
      v4 = add(v3, v0) : f64[]
      return r0=v2, r1=v4"""
    )


def test_a_result_of_each_round_alone() -> None:
    graph, found, inputs = loop()
    graph.outputs = {"e": found[3]}
    assert "scan(v0, body=<body 1: 2 nodes>, consts=0, carries=0, length=3, reverse=False) : (f64[3])" in pruned(
        graph, inputs
    )


def test_what_is_read_stays() -> None:
    graph, found, inputs = loop()
    graph.outputs = {f"r{i}": node for i, node in enumerate(found)}
    line = pruned(graph, inputs).splitlines()[6]
    assert line.endswith("consts=1, carries=3, length=3, reverse=False) : (" + ", ".join(map(str, [SCALAR] * 3)) + (
        ", f64[3], f64[3], f64[3], f64[3])"
    )), line  # fmt: skip


def test_gradients_that_were_not_asked_for() -> None:
    """Only the sum for w is carried backward, not that for x; the saved carries of the loop that uses them stay."""
    types = (f64[3, 3], f64[3], f64[3], f64[3])

    def step(v: list[Node]) -> list[Node]:
        w, shift, h, x = v
        return [ew.tanh(ew.add(red.contract(w, h, spec="ab,b->a"), ew.add(x, shift)))]

    graph = Graph("f")
    args = [graph.input(name, t) for name, t in zip("wshx", (*types[:3], f64[4, 3]), strict=True)]
    attrs = {"consts": 2, "carries": 1, "length": 4, "reverse": False}
    last = results(scan(*args, body=save_carries(body(types, step), 2, 1), **attrs))[0]
    graph.outputs["dw"] = differentiate(red.sum_(last, axes=(0,)), args[:1])[0]
    rng = np.random.default_rng(0)
    scans = [line for line in pruned(graph, {n.attrs["name"]: rng.normal(size=n.type.shape) for n in args}).splitlines()
             if "scan(" in line]  # fmt: skip
    assert len(scans) == 2
    assert scans[0].endswith(": (f64[3], f64[4,3])")
    assert scans[1].endswith(": (f64[3], f64[3,3])")


def test_while_keeps_what_its_condition_reads() -> None:
    types = (SCALAR, Type(i64), SCALAR, SCALAR)
    graph = Graph("f")
    args = [graph.input(name, t) for name, t in zip("knab", types, strict=True)]
    few = body(types, lambda v: [cmp.less(v[1], fill(v[1], 4, v[1].type))])
    step = body(types, lambda v: [ew.add(v[1], fill(v[1], 1, v[1].type)), ew.mul(v[2], v[0]), ew.add(v[3], v[2])])
    found = results(while_(*args, condition=few, body=step, consts=1, bound=9))
    graph.outputs = {"a": found[1]}
    assert (
        "while(v0, v1, v2, condition=<body 1: 3 nodes>, body=<body 2: 6 nodes>, consts=1, bound=9) : (i64[], f64[])"
        in (pruned(graph, {"k": 2.0, "n": 1, "a": 3.0, "b": 1.0}))
    )


def test_branches_and_what_they_hold() -> None:
    """A result that only an unread result of a cond needs goes as well, within and before."""
    graph, found, inputs = loop()
    types = (SCALAR, SCALAR, f64[3])

    def inner(v: list[Node]) -> list[Node]:
        add = body(types[:2], lambda w: [ew.add(w[0], w[1]), ew.mul(w[0], w[1])])
        made = results(cond(graph_true(v[0]), v[0], v[1], then=add, otherwise=add))
        return [made[0], made[1]]

    swap = body(types, lambda v: [v[1], v[0]])
    p = graph.input("p", Type(boolean))
    made = results(cond(p, found[0], found[1], found[4], then=body(types, inner), otherwise=swap))
    graph.outputs = {"y": made[0]}
    text = pruned(graph, inputs | {"p": True})
    assert "cond(v4, v5, v6, then=" not in text
    lines = [line.strip() for line in text.splitlines() if "cond(" in line or "scan(" in line]
    assert lines[0].endswith(": (f64[], f64[])") and lines[1].endswith(": (f64[])") and lines[2].endswith(": (f64[])")


def graph_true(like: Node) -> Node:
    return like.graph.constant(True, boolean)
