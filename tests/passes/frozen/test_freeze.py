"""What depends on frozen weights alone is computed at build; a normalization with fixed statistics costs nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import nn, passes
from mlaot.evaluate import evaluate
from mlaot.ir import DType, Graph

BATCH = mlaot.dim("batch")
RNG = np.random.default_rng(3)


def normalized(*layers: Any) -> Any:
    """The layers with statistics as after some training."""
    net = nn.Sequential(*layers)
    for _, buffer in net.named_buffers():
        if buffer.array.dtype.kind == "f":
            buffer.array = np.abs(RNG.normal(size=buffer.array.shape) + 1).astype(buffer.array.dtype)
    return net


def frozen(net: Any, *shape: int, dtype: DType = mlaot.f64) -> tuple[Graph, float]:
    """The graph of a net that serves, and its largest difference from the NumPy function."""

    def function(x: Any) -> Any:
        return net(x)

    function.__annotations__ = {"x": dtype[BATCH, *shape]}
    model = mlaot.model(function, parameters=net)
    module = passes.run("m", model.trace())
    x = RNG.normal(size=(4, *shape)).astype(dtype.numpy)
    found = evaluate(module.graphs["forward"], {"x": x, **module.slots})["out"]
    return module.graphs["forward"], float(np.abs(found - model(x)).max())


def count(graph: Graph) -> dict[str, int]:
    """How many nodes of arithmetic there are."""
    names = [node.op.name for node in graph.nodes()]
    return {name: names.count(name) for name in ("contract", "add", "sub", "mul", "div", "sqrt") if name in names}


@pytest.mark.parametrize("bias", [True, False])
def test_batch_norm_vanishes_behind_a_convolution(bias: bool) -> None:
    net = normalized(nn.Conv2d(3, 8, 3, padding=1, bias=bias, dtype=mlaot.f64), nn.BatchNorm2d(8, dtype=mlaot.f64))
    graph, error = frozen(net, 3, 6, 6)
    assert count(graph) == {"contract": 1, "add": 1}
    assert error < 1e-13


def test_batch_norm_vanishes_behind_a_linear_layer() -> None:
    net = normalized(nn.Linear(7, 5, dtype=mlaot.f64), nn.BatchNorm1d(5, dtype=mlaot.f64), nn.ReLU())
    graph, error = frozen(net, 7)
    assert count(graph) == {"contract": 1, "add": 1}
    assert error < 1e-13


def test_what_has_no_weights_before_it_keeps_its_arithmetic() -> None:
    """One product and one sum; the root and the quotient are gone."""
    graph, error = frozen(normalized(nn.BatchNorm1d(5, dtype=mlaot.f64)), 5)
    assert "sqrt" not in count(graph) and "div" not in count(graph)
    assert error < 1e-13


def test_a_scale_of_each_example_stays() -> None:
    w = mlaot.Parameter("w", RNG.normal(size=(4, 3)))

    @mlaot.model
    def model(x: mlaot.f64[BATCH, 4], s: mlaot.f64[BATCH]):  # type: ignore[no-untyped-def,valid-type]
        return (x @ w) * s[:, None]

    graph = passes.run("m", model.trace()).graphs["forward"]
    assert count(graph) == {"contract": 1, "mul": 1}


def test_larger_values_are_not_stored() -> None:
    """An outer product of two weight vectors is computed when it is needed."""
    a, b = (mlaot.Parameter(name, RNG.normal(size=50)) for name in "ab")

    @mlaot.model
    def model(x: mlaot.f64[BATCH, 50]):  # type: ignore[no-untyped-def,valid-type]
        return x @ np.tanh(a[:, None] * b[None, :])

    module = passes.run("m", model.trace())
    assert all(value.size <= 50 for value in module.parameters.values())


def test_training_keeps_its_weights() -> None:
    net = nn.Linear(3, 2)

    @mlaot.model(parameters=net, loss=lambda out: (out * out).mean())
    def model(x: mlaot.f32[BATCH, 3]):  # type: ignore[no-untyped-def,valid-type]
        return net(x) * 2.0

    assert set(passes.run("m", model.trace()).parameters) == {"weight", "bias"}


@pytest.mark.parametrize(
    "before",
    [(), (nn.LayerNorm(7, dtype=mlaot.f64),), (nn.Linear(7, 7, dtype=mlaot.f64), nn.BatchNorm1d(7, dtype=mlaot.f64))],
)
def test_a_product_that_two_nodes_read_is_computed_once(before: tuple[Any, ...]) -> None:
    """Scales that differ do not go into two copies of the weights, whatever else is folded before them."""
    net = normalized(*before, nn.Linear(7, 5, bias=False, dtype=mlaot.f64), nn.GELU())
    graph, error = frozen(net, 7)
    assert count(graph)["contract"] == 1 + isinstance(net[0], nn.Linear) * (len(before) > 0)
    assert error < 1e-13
