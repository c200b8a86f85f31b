"""Convolutions over elements with zeros between them: phase by phase, with the values of the graph as it was traced."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import nn
from mlaot.evaluate import evaluate
from mlaot.frontend.numpy.padding import pad
from mlaot.ir import Graph
from mlaot.nn import functional as F

from .test_blocked_layout import BATCH, Net, randomized, served

WIDTH = mlaot.dim("w")
SIZES = [(k, s, p, e) for k, s, p, e in product((2, 3, 4, 5), (2, 3), (0, 1, 2), (0, 1)) if p < k]


def converted(net: Any, *shape: Any, forward: Net | None = None) -> Graph:
    """The graph of a net through all passes, which gives what it gave."""
    module, graph, weights = served(randomized(net), *shape, forward=forward)
    x = np.random.default_rng(1).normal(size=[d if isinstance(d, int) else 5 if d is WIDTH else 3 for d in shape])
    expected = evaluate(graph, {"x": x, **weights})["out"]
    made = module.graphs["forward"]
    found = evaluate(made, {"x": x, **module.slots})["out"]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())
    return made


def has_zeros_between(graph: Graph) -> bool:
    return any(node.op.name == "pad" and any(node.attrs["interior"]) for node in graph.nodes())


def transposed(*args: Any, n: int = 2, **kwargs: Any) -> Any:
    return (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[n - 1](*args, **kwargs, dtype=mlaot.f64)


@pytest.mark.parametrize(("kernel", "stride", "padding", "extra"), SIZES)
@pytest.mark.parametrize(("inner", "outer", "groups"), [(3, 5, 1), (16, 32, 1), (32, 32, 2)])
def test_no_product_with_zeros(
    kernel: int, stride: int, padding: int, extra: int, inner: int, outer: int, groups: int
) -> None:
    options = {"stride": stride, "padding": padding, "output_padding": extra, "groups": groups}
    graph = converted(transposed(inner, outer, kernel, **options), BATCH, inner, 4, WIDTH)
    windows = [node for node in graph.nodes() if node.op.name == "window"]
    taps = [node.attrs["sizes"] for node in windows if node.arg(0).op.name != "window"]
    assert not has_zeros_between(graph) and len(windows) <= 2
    if -(-kernel // stride) == 1:  # a window of one element is none
        assert taps in ([], [(2, 2)])
    else:
        assert taps == [(-(-kernel // stride),) * 2]


def test_no_result_is_cut_off_where_every_other_is_of_a_phase() -> None:
    """As in most decoders; of an odd number of results, one more is computed, in front of the first."""
    for kernel, padding, extra, is_cut in ((4, 1, 0, False), (5, 2, 1, False), (5, 2, 0, True), (3, 1, 1, False)):
        graph = converted(transposed(4, 6, kernel, stride=2, padding=padding, output_padding=extra), BATCH, 4, 5, 5)
        (product,) = [node for node in graph.nodes() if node.op.name == "contract"]
        assert product.type.shape[-2:] == (5, 5)
        assert is_cut == any(node.op.name == "slice" for node in graph.nodes())


def test_a_single_element_meets_each_tap_once() -> None:
    """Nothing of the padding is multiplied, as in the first layer of a generator; of one result, nothing is gained."""
    graph = converted(transposed(8, 16, 4), BATCH, 8, 1, 1)
    assert not any(node.op.name in ("pad", "window") for node in graph.nodes())
    graph = converted(nn.Conv2d(4, 4, 3, padding=1, dtype=mlaot.f64), BATCH, 4, 1, 1)
    assert any(node.op.name == "window" for node in graph.nodes())


def test_other_numbers_of_axes() -> None:
    for n, stride in ((1, 4), (3, 2), (2, (1, 2)), (2, (3, 1))):
        net = transposed(4, 6, 3, n=n, stride=stride)
        assert not has_zeros_between(converted(net, BATCH, 4, *[5] * n))


def test_work_behind_it_is_its_epilogue() -> None:
    """The bias, an activation and a sum of two: nothing is computed of values that lie apart."""
    first, second = (transposed(8, 4, 4, stride=2, padding=1) for _ in range(2))

    def forward(x: Any) -> Any:
        return F.relu(np.tanh(first(x)) + second(x) * 2)

    graph = converted(nn.Sequential(first, second), BATCH, 8, 6, 6, forward=forward)
    ranks = {node.op.name: node.type.rank for node in graph.nodes() if node.op.elementwise}
    assert set(ranks) == {"add", "tanh", "relu"} and set(ranks.values()) == {6}


def test_what_varies_with_places_is_added_behind() -> None:
    net = transposed(8, 4, 2, stride=2)
    places = np.arange(64.0).reshape(8, 8)
    assert not has_zeros_between(converted(net, BATCH, 8, 4, 4, forward=lambda x: net(x) + places))


def test_in_blocks_of_channels() -> None:
    """The phases of a place lie next to each other, each with its lanes: the reshape is a view."""
    net = nn.Sequential(*(nn.Conv2d(3, 16, 3, dtype=mlaot.f64), transposed(16, 32, 2, stride=2)))
    net = nn.Sequential(*net, nn.Conv2d(32, 16, 1, dtype=mlaot.f64))
    graph = converted(net, BATCH, 3, 8, 8)
    assert any(node.type.shape[1:] == (2, 6, 2, 6, 2, 16) for node in graph.nodes() if node.op.name == "contract")


def test_others_stay() -> None:
    """With dilations, with other numbers than zeros between, and where there is no window."""
    assert has_zeros_between(converted(transposed(4, 4, 1, stride=2), BATCH, 4, 5, 5))
    assert has_zeros_between(converted(transposed(4, 4, 3, stride=2, dilation=2), BATCH, 4, 5, 5))
    w = np.random.default_rng(0).normal(size=(4, 4, 3))

    def forward(x: Any) -> Any:
        spread = pad(x, (0, 0, 0), (0, 0, 0), (0, 0, 1), 1.0)
        return np.einsum("nchk,ock->noh", mlaot.window(spread, (2,), (3,)), w)

    assert has_zeros_between(converted(nn.Sequential(), BATCH, 4, 5, forward=forward))
