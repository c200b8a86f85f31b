"""The e-graph: the cheapest of all forms, a proof of each, an end, and the same numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import passes
from mlaot.evaluate import evaluate
from mlaot.ir import Graph, Node, parse
from mlaot.ir.graph import topological
from mlaot.ir.types import f64
from mlaot.ops import Op
from mlaot.ops import elementwise as ew
from mlaot.ops import transcendental as tr
from mlaot.passes.algebra import egraph
from mlaot.passes.algebra.fold_constants import fold
from mlaot.passes.algebra.simplify import number
from mlaot.passes.rewrite import Rule, rewrite
from mlaot.passes.training.entries import copy_into
from mlaot.settings.options import Options

from ...fuzz.tensor_graphs import make, trials

Rules = Mapping[Op | None, Sequence[Rule]]


def times_two(node: Node) -> Node | None:
    """x * 2 => x + x"""
    return ew.add(node.arg(0), node.arg(0)) if number(node.arg(1)) == 2 else None


def times_and_over(node: Node) -> Node | None:
    """x * y / y => x"""
    top = node.arg(0)
    return top.arg(0) if top.op is ew.mul and top.arg(1) is node.arg(1) else None


def negated_twice(node: Node) -> Node | None:
    """x => -(-x), without end"""
    return ew.neg(ew.neg(node))


def short_cut(node: Node) -> Node | None:
    """-exp(exp(x)) => sin(x), which is false, and no cheaper where exp(exp(x)) is computed all the same"""
    inner = node.arg(0)
    return tr.sin(inner.arg(0).arg(0)) if inner.op is ew.exp and inner.arg(0).op is ew.exp else None


HALVES: Rules = {ew.mul: (times_two,), ew.div: (times_and_over,)}


def halves() -> Graph:
    """-(x * 2 / 2)"""
    graph = Graph("f")
    two = graph.constant(2.0, f64)
    graph.outputs["y"] = ew.neg(ew.div(ew.mul(graph.input("x", f64[()]), two), two))
    return graph


def proves(steps: Sequence[egraph.Step], rules: Rules, old: Node, new: Node) -> bool:
    """Whether the rules do what the steps say, and ``old`` is ``new`` by them and equal ops of equal arguments."""
    by_name = {rule.__name__: rule for some in rules.values() for rule in some}
    same: dict[Node, Node] = {}

    def find(node: Node) -> Node:
        while node in same:
            node = same[node]
        return node

    def join(a: Node, b: Node) -> bool:
        a, b = find(a), find(b)
        if a is not b:
            same[a] = b
        return a is not b

    for step in steps:
        assert by_name[step.rule](step.old) is step.new
        join(step.old, step.new)
    nodes = topological([old, new, *(node for step in steps for node in (step.old, step.new))])
    joined = True
    while joined:
        joined, known = False, dict[object, Node]()
        for node in nodes:
            key = (node.op, tuple(node.attrs.items()), tuple(map(find, node.args)))
            joined |= join(node, known.setdefault(key, node))
    return find(old) is find(new)


def test_row_62_egraph() -> None:
    """x * 2 becomes x + x, of which the half is not seen any more; of both forms it is."""
    graph = halves()
    rewrite(graph, HALVES)
    assert [node.op.name for node in graph.nodes()] == ["input", "add", "const", "div", "neg"]
    graph = halves()
    proof = egraph.take_cheapest(graph, HALVES)
    assert proof == ["f: cost 13 => 2 by times_and_over 1", "times_and_over: div(mul(x, 2), 2) => x"]
    assert [node.op.name for node in graph.nodes()] == ["input", "neg"]


def test_a_chain_of_rules_is_printed_in_its_order() -> None:
    body = """graph f:
      v0 = input(name=x) : f32[4]
      v1 = const(value=1.0) : f32[]
      v2 = broadcast(v1, shape=(4,), axes=()) : f32[4]
      v3 = exp(v0) : f32[4]
      v4 = add(v2, v3) : f32[4]
      v5 = log(v4) : f32[4]
      v6 = neg(v5) : f32[4]
      v7 = neg(v6) : f32[4]
      return y=v7
    """
    graph = parse(body.replace("\n    ", "\n"))
    assert egraph.take_cheapest(graph)[1:] == [
        "constant_on_the_right: add(broadcast(1), exp(x)) => add(exp(x), broadcast(1))",
        "double_negative: neg(neg(log(..))) => log(add(exp(..), broadcast(..)))",
        "log_of_sum: log(add(exp(..), broadcast(..))) => softplus(x)",
    ]
    assert [node.op.name for node in graph.nodes()] == ["input", "softplus"]


def test_a_proof_with_a_step_less_proves_nothing() -> None:
    graph = halves()
    classes, copies = egraph.saturate(graph, HALVES)
    root = copies[graph.outputs["y"]]
    (best,) = classes.extract([root]).values()
    steps = classes.explain(root, best)
    assert proves(steps, HALVES, root, best)
    assert not any(proves([*steps[:i], *steps[i + 1 :]], HALVES, root, best) for i in range(len(steps)))


def test_random_graphs_compute_the_same_and_are_proved() -> None:
    """All rules but ``fold``, whose constants are rounded to their dtype; in float64, where nothing else is."""
    rules = {op: tuple(rule for rule in own if rule is not fold) for op, own in egraph.RULES.items()}
    changed, fired = 0, set[str]()
    for seed in range(250):
        made = make(seed)
        graph, copies = copy_into(made.graph, made.graph.roots(), "forward", keep=made.graph.inputs)
        graph.outputs = {name: copies[node.find()] for name, node in made.graph.outputs.items()}
        graph.writes = {name: copies[node.find()] for name, node in made.graph.writes.items()}
        classes, same = egraph.saturate(graph, rules)
        for old, new in classes.extract([same[root] for root in graph.roots()]).items():
            steps = classes.explain(old, new)
            assert proves(steps, rules, old, new)
            fired |= {step.rule for step in steps}
        if not egraph.take_cheapest(graph, rules):
            continue
        changed += 1
        assert egraph.total_cost(graph.nodes()) < egraph.total_cost(made.graph.nodes())
        for dims, inputs in trials(made, seed):
            slots = {**made.parameters, **made.state, **inputs}
            expected = evaluate(made.graph, slots, wide=True, dims=dims)
            for name, found in evaluate(graph, slots, wide=True, dims=dims).items():
                scale = max(1.0, np.max(np.abs(np.where(np.isfinite(found), found, 0)), initial=0))
                np.testing.assert_allclose(found, expected[name], 1e-9, 1e-10 * scale, err_msg=f"{seed} {name}")
    assert changed > 50 and len(fired) > 15, (changed, fired)


def test_rules_without_end_end() -> None:
    graph = halves()
    classes, _ = egraph.saturate(graph, {None: (negated_twice,)})
    assert len(classes.order) <= len(graph.nodes()) * (2 * egraph.GROWTH + 1) + 2 * egraph.LEAST
    assert egraph.take_cheapest(graph, {None: (negated_twice,)}) == []


def test_what_is_shared_is_paid_once() -> None:
    """The cost of a tree says that the rule pays; the graph, which has exp(exp(x)) anyway, stays as it is."""
    graph = Graph("f")
    inner = ew.exp(ew.exp(graph.input("x", f64[()])))
    graph.outputs = {"y": ew.neg(inner)}
    assert egraph.take_cheapest(graph, {ew.neg: (short_cut,)})
    graph.outputs = {"y": ew.neg(inner), "z": inner}
    assert egraph.take_cheapest(graph, {ew.neg: (short_cut,)}) == []
    assert graph.outputs["y"].op is ew.neg


def test_long_and_shared_chains_are_no_matter() -> None:
    """5,000 sums of a value and itself are a tree of 2**5,000 nodes; nothing recurses."""
    graph = Graph("f")
    node = ew.mul(graph.input("x", f64[()]), graph.constant(1.0, f64))
    for _ in range(5_000):
        node = ew.add(node, node)
    graph.outputs["y"] = ew.neg(ew.neg(node))
    rules = sorted(line.partition(":")[0] for line in egraph.take_cheapest(graph)[1:])
    assert rules == ["by_one", "double_negative"]
    assert len(graph.nodes()) == 5_001


@mlaot.model
def recurrent(x: mlaot.f64[5, 3]) -> Any:  # type: ignore[no-untyped-def, valid-type]
    return mlaot.scan(lambda carry, row: (np.log(np.exp(carry + row) + 1), ()), np.zeros(3), x)[0]


@pytest.mark.parametrize("wanted", [False, True])
def test_the_pass_runs_where_it_is_asked_for(wanted: bool) -> None:
    """In the bodies of loops as well."""
    module = passes.run("t.nn", recurrent.trace(), Options(egraph=wanted))
    assert any(line.startswith("body: cost ") for line in module.proof) == wanted
    assert any(line.startswith("log_of_sum: ") for line in module.proof) == wanted
    x = np.linspace(-1.0, 1.0, 15).reshape(1, 5, 3)
    np.testing.assert_allclose(evaluate(module.graphs["forward"], {"x": x})["out"], [recurrent(x[0])])
