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
from mlaot.passes.algebra.transposed_convolution import transposed_convolution
from mlaot.passes.raising.contract import contract
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


def test_strides_stay() -> None:
    """With strides most of the new windows would be zeros."""
    graph = gradient((2, 3, 9, 9), (4, 3, 3, 3), 2, 1)
    before = str(graph)
    transposed_convolution(graph)
    assert str(graph) == before


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
