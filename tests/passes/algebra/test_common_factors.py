"""Sums of products with a factor in common."""

from __future__ import annotations

from typing import Any

import numpy as np

import mlaot.nn
from mlaot import passes
from mlaot.evaluate import evaluate
from mlaot.ir import Graph, Node, dim
from mlaot.ir.types import f64
from mlaot.loading import trace
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.passes.algebra.common_factors import common_factors

SHAPE = f64[dim("batch"), 5]


def factored(make: Any) -> Graph:
    """Return the graph of a function of four inputs after the pass, which must compute the same."""
    graph = Graph("f")
    graph.outputs = dict(enumerate_outputs(make(*[graph.input(name, SHAPE) for name in "gabc"])))
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal((3, 5)) for name in "gabc"}
    expected = evaluate(graph, arrays)
    common_factors(graph)
    for name, value in evaluate(graph, arrays).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-12)
    return graph


def enumerate_outputs(nodes: Node | tuple[Node, ...]) -> list[tuple[str, Node]]:
    return [(f"y{i}", node) for i, node in enumerate(nodes if isinstance(nodes, tuple) else (nodes,))]


def products(graph: Graph) -> int:
    return sum(node.op is ew.mul for node in graph.nodes())


def test_a_factor_is_taken_out() -> None:
    graph = factored(lambda g, a, b, c: ew.add(ew.mul(ew.mul(g, a), c), ew.mul(b, g)))
    assert products(graph) == 2 and graph.outputs["y0"].find().op is ew.mul


def test_products_that_are_read_elsewhere_are_factors_themselves() -> None:
    def twice(g: Node, a: Node, b: Node, c: Node) -> tuple[Node, ...]:
        first = ew.mul(g, a)
        return ew.add(ew.mul(first, c), ew.mul(b, g)), first

    graph = factored(twice)
    assert products(graph) == 3 and graph.outputs["y0"].find().op is ew.add


def test_a_sum_with_the_factor_alone_stays() -> None:
    graph = factored(lambda g, a, b, c: ew.add(ew.mul(g, a), g))
    assert graph.outputs["y0"].find().op is ew.add


def test_a_square_keeps_one_factor() -> None:
    graph = factored(lambda g, a, b, c: ew.add(ew.mul(ew.mul(g, g), a), ew.mul(g, b)))
    assert products(graph) == 2


def test_the_derivative_of_gelu_is_one_value_of_the_forward_pass() -> None:
    """What multiplies the gradient that comes in does not depend on it."""
    w = mlaot.Parameter("w", np.ones((8, 8), np.float32))

    def model(x: Any) -> Any:
        return mlaot.nn.functional.gelu(x @ w) @ w

    model.__annotations__ = {"x": mlaot.f32[dim("batch"), 8]}
    module = passes.run("m", trace(mlaot.model(loss=lambda y: np.sum(y * y, axis=1), parameters=[w])(model)))
    muls = [n for n in module.graphs["train_step"].nodes() if n.op is ew.mul]
    assert any({a.find().op for a in n.args} == {red.contract, ew.add} for n in muls)
