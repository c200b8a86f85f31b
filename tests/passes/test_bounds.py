"""What is known of values without a sample: in a graph, and in every round of a loop."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import nn
from mlaot.frontend.numpy import sigmoid
from mlaot.loading import trace
from mlaot.ops.control import scan
from mlaot.passes import run
from mlaot.passes.bounds import ANY, Range, bounds, carry_bounds, is_finite
from mlaot.passes.subgraphs import Loop

BATCH = mlaot.dim("batch")
S = sigmoid

VALUES: dict[str, tuple[Any, Range]] = {
    "input": (lambda x: x * 2, ANY),
    "function": (np.tanh, (-1, 1)),
    "sum": (lambda x: np.tanh(x) + S(x), (-1, 2)),
    "difference": (lambda x: np.tanh(x) - S(x), (-2, 1)),
    "product": (lambda x: np.tanh(x) * (S(x) - 3), (-3, 3)),
    "constant": (lambda x: S(x) * 0.5 - 0.25, (-0.25, 0.25)),
    "nothing of it": (lambda x: (S(x) - S(2 * x)) * 0.0, (0, 0)),
    "moved": (lambda x: S(x).T[1:], (0, 1)),
    "chosen": (lambda x: np.where(x > 0, S(x), np.tanh(x)), (-1, 1)),
    "between": (lambda x: (1 - S(x)) * np.tanh(x) + S(x) * np.tanh(2 * x), (-1, 1)),
    "between, turned": (lambda x: np.tanh(2 * x) * S(x) + np.tanh(x) * (1 - S(x)), (-1, 1)),
    "not between": (lambda x: (1 - S(2 * x)) * np.tanh(x) + S(x) * np.tanh(2 * x), (-2, 2)),
    "beyond": (lambda x: (1 - np.tanh(x)) * S(3 * x) + np.tanh(x) * S(2 * x), (-1, 3)),
}


@pytest.mark.parametrize("name", VALUES)
def test_values(name: str) -> None:
    function, expected = VALUES[name]

    @mlaot.model
    def model(x: mlaot.f32[3, 4]):
        return function(x)

    graph = trace(model).graph
    (out,) = graph.outputs.values()
    assert bounds(graph.nodes(), {})[out.find()] == expected


FINITE: dict[str, tuple[Any, bool]] = {
    "bytes": (lambda x, n: np.transpose(n.astype(mlaot.f32))[1:] - 3.5, True),
    "padded": (lambda x, n: np.pad(n.astype(mlaot.f32), 1) + n.astype(mlaot.f32)[0, 0], True),
    "in 16 bits": (lambda x, n: n.astype(mlaot.f16), False),
    "floats": (lambda x, n: n.astype(mlaot.f32) - x, False),
    "an infinity": (lambda x, n: n.astype(mlaot.f32) + np.inf, False),
    "a product": (lambda x, n: n.astype(mlaot.f32) * x, False),
    "of nan": (lambda x, n: np.tanh(x), False),
}


@pytest.mark.parametrize("name", FINITE)
def test_finite(name: str) -> None:
    function, expected = FINITE[name]

    @mlaot.model
    def model(x: mlaot.f32[3, 4], n: mlaot.i32[3, 4]):
        return function(x, n)

    (out,) = trace(model).graph.outputs.values()
    assert is_finite(out) == expected


def state(layer: Any, *initial: Any) -> list[Range]:
    """The bounds of the carries of a layer."""

    @mlaot.model(parameters=layer)
    def model(x: mlaot.f32[5, BATCH, 16], h: mlaot.f32[1, BATCH, 16]):
        return layer(x, *[h * scale for scale in initial])[0]

    graph = run("nn", trace(model)).graphs["forward"]
    loop = Loop.of(next(node for node in graph.nodes() if node.op is scan))
    found = carry_bounds(loop)
    return [found[n] for n in list(loop.others)[: loop.node.attrs["carries"]]]


def test_states() -> None:
    """An LSTM's h is bounded and its cell grows; what a caller gives may be anything."""
    assert state(nn.LSTM(16, 16)) == [(-1, 1), ANY]
    assert state(nn.GRU(16, 16)) == [(-1, 1)]
    assert state(nn.RNN(16, 16)) == [(-1, 1)]
    assert state(nn.RNN(16, 16, nonlinearity="relu")) == [ANY]
    assert state(nn.LSTM(16, 16, proj_size=16))[0] == (-inf, inf)
    assert state(nn.GRU(16, 16), 1.0) == [ANY]
