"""Reshapes sink, axes of one element vanish, and convolutions of one element are products of matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import nn, passes
from mlaot.evaluate import evaluate
from mlaot.ir import Graph, Node, dim, verify
from mlaot.ir.types import f32, f64
from mlaot.lower.lower import lower
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.axes import regroup
from mlaot.passes.algebra.simplify import simplify
from mlaot.passes.base import Pass
from mlaot.passes.layout.sink_reshapes import sink_reshapes
from mlaot.passes.raising.contract import contract

BATCH = dim("b")
RNG = np.random.default_rng(0)


def graph_of(make: Callable[[Graph], Node]) -> Graph:
    graph = Graph("f")
    graph.outputs["y"] = make(graph)
    return graph


def after(graph: Graph, *graph_passes: Pass[[Graph]]) -> str:
    """The text of a graph after some passes, which must not change what it computes."""
    inputs = {
        name: RNG.normal(size=[3 if d == BATCH else int(d) for d in node.type.shape])  # type: ignore[arg-type]
        for name, node in graph.inputs.items()
    }
    expected = evaluate(graph, inputs, wide=True)["y"]
    for graph_pass in graph_passes:
        graph_pass(graph)
        verify(graph, graph_pass.name)
    np.testing.assert_allclose(evaluate(graph, inputs, wide=True)["y"], expected, rtol=1e-12, atol=1e-12)
    return "\n".join(line.strip() for line in str(graph).splitlines()[1:])


def test_a_reshape_sinks_below_elementwise_work() -> None:
    def make(graph: Graph) -> Node:
        x, w, s = graph.input("x", f32[BATCH, 2, 3, 5]), graph.input("w", f32[2, 4, 3]), graph.input("s", f32[8])
        y = st.reshape(red.contract(x, w, spec="bgci,goc->bgoi"), shape=(BATCH, 8, 5))
        return ew.relu(ew.mul(y, st.broadcast(s, shape=(BATCH, 8, 5), axes=(1,))))

    assert (
        after(graph_of(make), sink_reshapes)
        == """\
v0 = input(name=x) : f32[b,2,3,5]
v1 = input(name=w) : f32[2,4,3]
v2 = contract(v0, v1, spec=bgci,goc->bgoi) : f32[b,2,4,5]
v3 = input(name=s) : f32[8]
v4 = reshape(v3, shape=(2, 4)) : f32[2,4]
v5 = broadcast(v4, shape=(b, 2, 4, 5), axes=(1, 2)) : f32[b,2,4,5]
v6 = mul(v2, v5) : f32[b,2,4,5]
v7 = relu(v6) : f32[b,2,4,5]
v8 = reshape(v7, shape=(b, 8, 5)) : f32[b,8,5]
return y=v8"""
    )


def test_what_varies_within_a_merged_axis_holds_it_back() -> None:
    """The residual would have to be copied instead."""

    def make(graph: Graph) -> Node:
        x, y = graph.input("x", f32[BATCH, 2, 3]), graph.input("y", f32[BATCH, 3, 2])
        return ew.add(st.reshape(ew.exp(x), shape=(BATCH, 6)), st.reshape(ew.exp(y), shape=(BATCH, 6)))

    graph = graph_of(make)
    before = str(graph)
    sink_reshapes(graph)
    assert str(graph) == before


def test_axes_of_one_element_vanish() -> None:
    """Padding, windows, reductions, transposes, slices, broadcasts and concatenations do not see them."""

    def make(graph: Graph) -> Node:
        x, zero = graph.input("x", f32[BATCH, 1, 6, 1]), graph.constant(0.0, f32)
        y = st.pad(x, zero, low=(0, 0, 1, 0), high=(0, 0, 1, 0), interior=(0,) * 4)
        y = st.window(y, axes=(2, 3), sizes=(3, 1), strides=(1, 1), dilations=(1, 1))
        y = red.max_(y, axes=(4, 5))
        y = st.concat(y, st.broadcast(zero, shape=(BATCH, 1, 2, 1), axes=()), axis=2)
        y = st.transpose(y, perm=(1, 2, 3, 0))
        y = st.slice_(y, start=(0, 1, 0, 0), size=(1, 4, 1, BATCH), step=(1, 1, 1, 1))
        return st.broadcast(y, shape=(1, 4, 1, 7, BATCH), axes=(0, 1, 2, 4))

    assert (
        after(graph_of(make), simplify, sink_reshapes)
        == """\
v0 = input(name=x) : f32[b,1,6,1]
v1 = reshape(v0, shape=(b, 6)) : f32[b,6]
v2 = const(value=0.0) : f32[]
v3 = pad(v1, v2, low=(0, 1), high=(0, 1), interior=(0, 0)) : f32[b,8]
v4 = window(v3, axes=(1,), sizes=(3,), strides=(1,), dilations=(1,)) : f32[b,6,3]
v5 = max(v4, axes=(2,)) : f32[b,6]
v6 = broadcast(v2, shape=(b, 1, 2, 1), axes=()) : f32[b,1,2,1]
v7 = reshape(v6, shape=(b, 2)) : f32[b,2]
v8 = concat(v5, v7, axis=1) : f32[b,8]
v9 = transpose(v8, perm=(1, 0)) : f32[8,b]
v10 = slice(v9, start=(1, 0), size=(4, b), step=(1, 1)) : f32[4,b]
v11 = broadcast(v10, shape=(1, 4, 1, 7, b), axes=(1, 4)) : f32[1,4,1,7,b]
return y=v11"""
    )


def test_padding_along_an_axis_of_one_element_stays() -> None:
    def make(graph: Graph) -> Node:
        x, zero = graph.input("x", f32[BATCH, 1]), graph.constant(0.0, f32)
        return st.pad(x, zero, low=(0, 1), high=(0, 0), interior=(0, 0))

    assert "pad(v0" in after(graph_of(make), sink_reshapes)


def test_labels_of_one_element() -> None:
    """A depthwise convolution, and a dense one of one image with one channel."""

    def depthwise(graph: Graph) -> Node:
        x, w = graph.input("x", f64[BATCH, 4, 1, 5, 3]), graph.input("w", f64[4, 1, 1, 3])
        return red.contract(x, w, spec="ncgpk,cdgk->ncdp")

    assert "spec=abcd,bd->abc" in after(graph_of(depthwise), sink_reshapes, contract)

    def one_channel(graph: Graph) -> Node:
        x, w = graph.input("x", f64[1, 1, 5]), graph.input("w", f64[4, 1])
        return red.contract(x, w, spec="nci,oc->noi")

    assert "spec=ci,oc->oi" in after(graph_of(one_channel), sink_reshapes), "one summed label stays"


def test_windows_of_one_element() -> None:
    def make(graph: Graph) -> Node:
        x = graph.input("x", f32[BATCH, 7, 8])
        return st.window(x, axes=(1, 2), sizes=(1, 3), strides=(2, 1), dilations=(1, 1))

    assert (
        after(graph_of(make), simplify)
        == """\
v0 = input(name=x) : f32[b,7,8]
v1 = slice(v0, start=(0, 0, 0), size=(b, 4, 8), step=(1, 2, 1)) : f32[b,4,8]
v2 = window(v1, axes=(2,), sizes=(3,), strides=(1,), dilations=(1,)) : f32[b,4,6,3]
v3 = reshape(v2, shape=(b, 4, 6, 1, 3)) : f32[b,4,6,1,3]
return y=v3"""
    )


def test_pads_go_together() -> None:
    def make(graph: Graph, value: float = 0.0, interior: int = 0) -> Node:
        x, zero, other = graph.input("x", f32[BATCH, 3]), graph.constant(0.0, f32), graph.constant(value, f32)
        inner = st.pad(x, zero, low=(0, 1), high=(0, 2), interior=(0, 1))
        return st.pad(inner, other, low=(0, 3), high=(1, 0), interior=(0, interior))

    assert "pad(v0, v1, low=(0, 4), high=(1, 2), interior=(0, 1))" in after(graph_of(make), simplify)
    for changed in ({"value": 1.0}, {"interior": 1}):
        assert after(graph_of(lambda graph, c=changed: make(graph, **c)), simplify).count("pad(") == 2  # type: ignore[misc]


def test_means_go_together() -> None:
    """A mean of means over axes of one extent each is one reduction."""

    def make(graph: Graph) -> Node:
        x = graph.input("x", f64[BATCH, 4, 5])
        part = st.broadcast(graph.constant(0.25, f64), shape=(BATCH, 5), axes=())
        first = ew.mul(part, red.sum_(x, axes=(1,)))
        return red.max_(red.max_(ew.exp(red.sum_(first, axes=(1,))), axes=(0,)), axes=())

    text = after(graph_of(make), simplify, contract)
    assert "sum(v0, axes=(1, 2))" in text and text.count("sum(") == 1


@pytest.mark.parametrize(
    ("source", "target", "groups"),
    [
        ((2, 3), (6,), [([0, 1], [0])]),
        ((1, 6), (2, 1, 3), [([1], [0, 2])]),
        ((BATCH, 4), (BATCH, 2, 2), [([0], [0]), ([1], [1, 2])]),
        ((BATCH * 4,), (BATCH, 4), [([0], [0, 1])]),
        ((2, BATCH, 3), (BATCH * 2, 3), [([0, 1], [0]), ([2], [1])]),
        ((4, 6), (6, 4), [([0, 1], [0, 1])]),
        ((0, 3), (3, 0), None),
        ((1,), (), []),
    ],
)
def test_regrouped(source: Any, target: Any, groups: Any) -> None:
    assert regroup(source, target) == groups


def programs(net: Any, *shape: int) -> str:
    def function(x: Any) -> Any:
        return net(x)

    function.__annotations__ = {"x": mlaot.f32[shape]}
    return str(lower(passes.run("m", mlaot.model(function, parameters=net).trace())))


def kernels(text: str) -> list[str]:
    names = ("loops", "rows", "contraction")
    return [line.split()[0] for line in text.splitlines() if line.startswith("  ") and line.split()[0] in names]


def test_normalization_behind_a_depthwise_convolution_is_its_epilogue() -> None:
    """One kernel, which writes the caller's array, though the model's shapes have axes of one element."""
    net = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8, bias=False), nn.BatchNorm2d(8), nn.ReLU())
    assert kernels(programs(net, 1, 8, 9, 9)) == ["contraction"]


def test_grouped_convolution_has_its_bias_inside() -> None:
    net = nn.Sequential(nn.Conv2d(8, 16, 3, groups=2), nn.ReLU())
    assert kernels(programs(net, 2, 8, 9, 9)) == ["contraction"]


def test_a_slot_behind_a_reshape_is_written_in_place() -> None:
    """The gradient of a kernel for one channel has no axis for it; the weights do."""
    net = nn.Conv2d(1, 4, 3, bias=False)

    @mlaot.model(parameters=net, loss=lambda out: (out * out).mean())
    def model(x: mlaot.f32[BATCH, 1, 9, 9]):  # type: ignore[no-untyped-def,valid-type]
        return net(x)

    program = lower(passes.run("m", model.trace()))
    step = next(p for p in program.procedures if p.entry.name == "train_step")
    assert str(step).count("copy(") == 0 and str(step).count("weight=weight!") == 1
