"""Gradients of softmax and of normalizations, in terms of their results."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from mlaot.evaluate import evaluate
from mlaot.ir import Graph, Node, dim
from mlaot.ir.types import f64
from mlaot.ops import comparison as cmp
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.base import full_like
from mlaot.passes.algebra.quotient_gradients import read_quotients
from mlaot.passes.algebra.simplify import simplify
from mlaot.transforms.differentiate import differentiate

SHAPE = f64[dim("batch"), 5]


def over_rows(row: Node, like: Node) -> Node:
    return st.broadcast(row, shape=like.type.shape, axes=(0,))


def inverse(row: Node) -> Node:
    return ew.div(full_like(row, 1.0), row)


def softmax(x: Node) -> Node:
    e = ew.exp(ew.sub(x, over_rows(red.max_(x, axes=(1,)), x)))
    return ew.mul(over_rows(inverse(red.sum_(e, axes=(1,))), x), e)


def masked_softmax(x: Node) -> Node:
    e = ew.exp(cmp.where(cmp.greater(x, full_like(x, 0.0)), x, full_like(x, -np.inf)))
    total = red.sum_(e, axes=(1,))
    safe = cmp.where(cmp.equal(total, full_like(total, 0.0)), full_like(total, 1.0), total)
    return ew.mul(over_rows(inverse(safe), x), e)


def normalized(x: Node) -> Node:
    centered = ew.sub(x, over_rows(ew.div(red.sum_(x, axes=(1,)), full_like(red.sum_(x, axes=(1,)), 5.0)), x))
    variance = red.sum_(ew.mul(centered, centered), axes=(1,))
    return ew.mul(over_rows(inverse(ew.sqrt(ew.add(variance, full_like(variance, 1e-5)))), x), centered)


def gradient(function: Callable[[Node], Node]) -> Graph:
    """Return the graph of a function's value and its gradient after the pass, which must compute the same."""
    graph = Graph("f")
    x, w = graph.input("x", SHAPE), graph.input("w", SHAPE)
    y = function(x)
    (dx,) = differentiate(red.sum_(ew.mul(y, w), axes=(0, 1)), [x])
    graph.outputs = {"y": y, "dx": dx}
    simplify(graph)
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal((3, 5)) for name in "xw"}
    arrays["x"][1] = -abs(arrays["x"][1])  # nothing of it is left by a mask
    expected = evaluate(graph, arrays)
    read_quotients(graph)
    for name, value in evaluate(graph, arrays).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-12, atol=1e-14)
    return graph


def readers(graph: Graph, value: Node) -> list[Node]:
    return [n for n in graph.nodes() if value in (a.find() for a in n.args)]


@pytest.mark.parametrize("function", [softmax, masked_softmax, normalized])
def test_what_was_divided_is_read_by_the_quotient_and_its_sum_alone(function: Callable[[Node], Node]) -> None:
    graph = gradient(function)
    y = graph.outputs["y"].find()
    divided = next(a.find() for a in y.args if a.find().op is not st.broadcast)
    own = {n for n in readers(graph, divided) if n is not y}
    assert all(n.op is red.sum_ or {a.find() for a in n.args} == {divided} for n in own), own
    assert len(readers(graph, y)) >= 2


def test_the_gradient_of_a_softmax_has_no_factor_but_the_softmax() -> None:
    graph = gradient(softmax)
    dx = graph.outputs["dx"].find()
    while dx.op is not ew.mul:  # the maximum has a gradient, too, which is none
        dx = dx.arg(0)
    assert graph.outputs["y"].find() in (a.find() for a in dx.args)


def test_another_quotient_by_the_same_number_stays() -> None:
    """``g`` is multiplied by 1 / s as ``a`` is, but s is no function of it."""
    graph = Graph("f")
    g, a = graph.input("g", SHAPE), graph.input("a", SHAPE)
    r = inverse(red.sum_(a, axes=(1,)))
    scaled = ew.mul(over_rows(r, g), g)
    graph.outputs = {"y": scaled, "z": ew.mul(red.sum_(ew.mul(g, g), axes=(1,)), r)}
    before = len(graph.nodes())
    read_quotients(graph)
    assert len(graph.nodes()) == before and scaled not in graph.outputs["z"].find().arg(0).arg(0).args


def test_a_sum_over_other_axes_stays() -> None:
    graph = Graph("f")
    a = graph.input("a", f64[5, 5])
    r = inverse(red.sum_(a, axes=(1,)))
    y = ew.mul(over_rows(r, a), a)
    graph.outputs = {"y": y, "z": ew.mul(red.sum_(a, axes=(0,)), r)}
    read_quotients(graph)
    assert graph.outputs["z"].find().op is ew.mul and y not in graph.outputs["z"].find().arg(0).args
