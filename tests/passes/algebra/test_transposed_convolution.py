"""The gradient of a convolution by its input, as a convolution."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from mlaot.evaluate import evaluate
from mlaot.ir import Graph, Node, dim, verify
from mlaot.ir.types import f64
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.base import Array
from mlaot.passes.algebra.transposed_convolution import transposed_convolution
from mlaot.passes.raising.contract import contract
from mlaot.passes.training import microbatch
from mlaot.transforms.differentiate import pullback


def gradient(shape: tuple[object, ...], kernel: tuple[int, ...], stride: int, dilation: int) -> Graph:
    """A two-dimensional convolution's input gradient, for a cotangent that is an input."""
    graph = Graph("f")
    x, w = graph.input("x", f64[shape]), graph.input("w", f64[kernel])  # type: ignore[index]
    windows = st.window(x, axes=(2, 3), sizes=kernel[2:], strides=(stride,) * 2, dilations=(dilation,) * 2)
    y = red.contract(windows, w, spec="bchwkl,ockl->bohw")
    ct = graph.input("ct", y.type)
    found = pullback([y], [ct], [x])[0]
    assert found is not None
    graph.outputs["dx"] = found
    return graph


def ops_of(graph: Graph) -> set[str]:
    return {node.op.name for node in graph.nodes()}


@pytest.mark.parametrize(("size", "kernel", "dilation"), list(product((5, 9), (1, 3, (2, 3)), (1, 2))))
def test_it_is_a_convolution(size: int, kernel: int | tuple[int, int], dilation: int) -> None:
    taps = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    graph = gradient((2, 3, size, size + 1), (4, 3, *taps), 1, dilation)
    rng = np.random.default_rng(0)
    inputs = {key: rng.normal(size=[int(d) for d in node.type.shape]) for key, node in graph.inputs.items()}  # type: ignore[arg-type]
    expected = evaluate(graph, inputs)["dx"]
    contract(graph)
    transposed_convolution(graph)
    contract(graph)
    verify(graph, "convolution")
    assert "fold" not in ops_of(graph) and "contract" in ops_of(graph)
    np.testing.assert_allclose(evaluate(graph, inputs)["dx"], expected, rtol=1e-13, atol=1e-13)


def test_named_dims() -> None:
    graph = gradient((dim("b"), 3, dim("n"), 8), (4, 3, 3, 3), 1, 1)
    transposed_convolution(graph)
    verify(graph, "convolution")
    assert "fold" not in ops_of(graph)


def inputs_of(graph: Graph) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    return {key: rng.normal(size=[int(d) for d in node.type.shape]) for key, node in graph.inputs.items()}  # type: ignore[arg-type]


def test_strides_are_zeros_between() -> None:
    """But in microbatches, with dilations, and of open sizes, where these zeros would be multiplied."""
    graph = gradient((2, 3, 9, 10), (4, 3, 3, 2), 2, 1)
    expected = evaluate(graph, inputs_of(graph))["dx"]
    transposed_convolution(graph)
    assert "fold" not in ops_of(graph)
    np.testing.assert_allclose(evaluate(graph, inputs_of(graph))["dx"], expected, rtol=1e-13, atol=1e-13)
    for dilation, name, size in ((2, "f", 9), (1, microbatch.NAME, 9), (1, "f", dim("n"))):
        graph = gradient((2, 3, 9, size), (4, 3, 3, 3), 2, dilation)
        graph.name = name
        before = str(graph)
        transposed_convolution(graph)
        assert str(graph) == before


def of_padded(low: int, high: int, interior: int = 0, stride: int = 1) -> Graph:
    """The gradients of a convolution by its padded input and by its weights."""
    graph = Graph("f")
    x, w, zero = graph.input("x", f64[2, 3, 7, 6]), graph.input("w", f64[4, 3, 3, 3]), graph.constant(0, f64)
    pads = {"low": (0, 0, low, low), "high": (0, 0, high, high), "interior": (0, 0, interior, interior)}
    steps = {"strides": (stride, stride), "dilations": (1, 1)}
    windows = st.window(st.pad(x, zero, **pads), axes=(2, 3), sizes=(3, 3), **steps)
    y = red.contract(windows, w, spec="bchwkl,ockl->bohw")
    dx, dw = pullback([y], [graph.input("ct", y.type)], [x, w])
    assert dx is not None and dw is not None
    graph.outputs |= {"dx": dx, "dw": dw}
    return graph


@pytest.mark.parametrize(
    ("low", "high", "interior", "stride"), [(1, 1, 0, 1), (2, 0, 0, 2), (1, 2, 1, 1), (2, 2, 2, 1)]
)
def test_padding_is_not_computed(low: int, high: int, interior: int, stride: int) -> None:
    """The slice that takes it off is gone; between elements, it becomes strides, also of what the weights get."""
    graph = of_padded(low, high, interior, stride)
    expected = evaluate(graph, inputs_of(graph))
    contract(graph)
    transposed_convolution(graph)
    found = evaluate(graph, inputs_of(graph))
    for name in ("dx", "dw"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-13, atol=1e-12)
    parts = [node for node in graph.nodes() if node.op is st.slice_ and min(node.attrs["step"]) > 0]
    assert not parts and "fold" not in ops_of(graph)
    assert graph.outputs["dx"].find().op is red.contract
    windows = [node for node in graph.nodes() if node.op is st.window]
    zeros = [w for w in windows if w.arg(0).op is st.pad and any(w.arg(0).attrs["interior"])]
    assert bool(zeros) == (stride > 1)
    assert {w.attrs["strides"][0] for w in windows} == {1, stride} if interior == 0 else {interior + 1}


def test_what_is_not_padding_is_cut_off() -> None:
    """A part of a convolution that begins behind its padding."""
    graph = of_padded(1, 1)
    dx = graph.outputs["dx"].find()
    graph.outputs = {"part": st.part(dx, 2, 4, 2)}
    expected = evaluate(graph, inputs_of(graph))["part"]
    contract(graph)
    transposed_convolution(graph)
    np.testing.assert_allclose(evaluate(graph, inputs_of(graph))["part"], expected, rtol=1e-13, atol=1e-12)


def test_other_folds_stay() -> None:
    """A fold of what is no product of places and taps."""
    graph = Graph("f")
    x: Node = graph.input("x", f64[2, 5, 3])
    w = graph.input("w", f64[5, 3])
    mixed = red.contract(x, w, spec="bpk,pk->bpk")
    graph.outputs["y"] = st.fold(mixed, axes=(1,), sizes=(3,), strides=(1,), dilations=(1,), shape=(2, 7))
    before = str(graph)
    transposed_convolution(graph)
    assert str(graph) == before
