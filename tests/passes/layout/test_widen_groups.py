"""Narrow groups of convolutions as ones that fill blocks of channels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import nn
from mlaot.evaluate import evaluate
from mlaot.ir import Graph
from mlaot.lower.lower import lower
from tests.compiled import AVAILABLE, Library

from .test_blocked_layout import BATCH, F64, body, chain, check, conv, randomized, served, trained


def products(graph: Graph) -> list[tuple[Any, ...]]:
    """The shapes of the results of products."""
    return [node.type.shape for node in graph.nodes() if node.op.name == "contract"]


def strided(*args: Any, **kwargs: Any) -> Any:
    return conv(*args, stride=2, **kwargs)


class Residual(nn.Module):
    """A bottleneck whose middle has groups."""

    def __init__(self, channels: int, groups: int) -> None:
        self.inner = chain(conv(2, channels, channels, 1), nn.BatchNorm2d(channels, **F64), nn.ReLU())
        self.middle = strided(2, channels, channels, 3, padding=1, groups=groups)
        self.norm = nn.BatchNorm2d(channels, **F64)

    def forward(self, x: Any) -> Any:
        return mlaot.relu(x[:, :, ::2, ::2] + self.norm(self.middle(self.inner(x))))


NETS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "of 12": (lambda: chain(conv(2, 3, 48, 1), strided(2, 48, 48, 3, groups=4), nn.GELU()), (3, 6, 6)),
    "three of 12": (lambda: chain(conv(2, 3, 36, 3), strided(2, 36, 36, 3, groups=3), conv(2, 36, 16, 1)), (3, 9, 9)),
    "seven of 12": (lambda: chain(conv(2, 3, 84, 1), nn.Sigmoid(), strided(2, 84, 84, 3, groups=7)), (3, 6, 6)),
    "of 24": (lambda: chain(conv(2, 3, 48, 1), strided(2, 48, 48, 3, groups=2), conv(2, 48, 48, 1)), (3, 6, 6)),
    "more are made": (lambda: chain(conv(2, 3, 32, 1), strided(2, 32, 64, 3, groups=4)), (3, 6, 6)),
    "fewer are made": (lambda: chain(conv(2, 3, 64, 1), strided(2, 64, 32, 3, groups=8)), (3, 6, 6)),
    "one image": (lambda: chain(conv(2, 3, 48, 1), strided(2, 48, 48, 3, groups=4)), (BATCH, 3, 6, 6)),
    "along one axis": (lambda: chain(conv(1, 3, 48, 1), strided(1, 48, 48, 5, dilation=2, groups=4)), (3, 19)),
    "along three": (lambda: chain(conv(3, 3, 48, 1), strided(3, 48, 48, (1, 3, 2), groups=4)), (3, 2, 5, 5)),
    "residual": (lambda: chain(conv(2, 3, 36, 1), Residual(36, 3), Residual(36, 3)), (BATCH, 3, 8, 8)),
    "plain input": (lambda: strided(2, 48, 48, 3, groups=4), (48, 6, 6)),
    "of 40": (lambda: chain(conv(2, 3, 80, 1), conv(2, 80, 80, 3, groups=2)), (3, 6, 6)),
}


@pytest.mark.parametrize("name", NETS)
def test_values(name: str) -> None:
    make, shape = NETS[name]
    check(make(), *shape)


def test_form() -> None:
    """Two groups of 24 channels become three blocks of 16; nothing is put back between."""
    net = chain(nn.Conv2d(3, 96, 3), nn.Conv2d(96, 96, 3, stride=2, groups=4), nn.ReLU(), nn.Conv2d(96, 32, 1))
    text = body(net, BATCH, 3, 21, 21)
    assert text.count("transpose(") == 1, "of the result"
    assert "slice(" not in text and text.count("pad(") == 0
    assert "f32[2,3,3,3,3,16,16]" in text


@pytest.mark.parametrize(("groups", "stride"), [(4, 1), (2, 1)])
def test_other_groups_stay(groups: int, stride: int) -> None:
    """Of 8, rows are vectors; of 16, they fill a block."""
    net = chain(conv(2, 3, 32, 3), conv(2, 32, 32, 3, stride=stride, groups=groups))
    graph = served(randomized(net), 3, 13, 13)[0].graphs["forward"]
    size = {4: (4, 8, 9, 9), 2: (2, 1, 9, 9, 16)}[groups]
    assert products(graph)[-1][1:] == size


def test_zeros_make_nothing_of_channels_that_are_left_out() -> None:
    """A sigmoid makes 1/2 of the zeros that were added; the next convolution must not see it."""
    net = chain(conv(2, 3, 36, 1), strided(2, 36, 36, 3, groups=3), nn.Sigmoid(), conv(2, 36, 16, 3), nn.Flatten())
    check(net, 3, 11, 11)


def test_training_keeps_its_groups() -> None:
    module = trained(chain(conv(2, 3, 32, 1), strided(2, 32, 32, 3, groups=4)), BATCH, 3, 6, 6)
    shapes = {node.type.shape for graph in module.graphs.values() for node in graph.nodes() if node.op.name != "const"}
    assert (4, 8, 8, 3, 3) in shapes and (2, 2, 3, 3, 8, 8) not in shapes


@pytest.mark.parametrize("isa", AVAILABLE)
def test_compiled(isa: str, tmp_path: Path) -> None:
    net = randomized(chain(conv(2, 3, 36, 3), nn.ReLU(), conv(2, 36, 36, 3, stride=2, groups=3), conv(2, 36, 16, 1)))
    module, graph, weights = served(net, BATCH, 3, 12, 12)
    x = np.random.default_rng(2).normal(size=(3, 3, 12, 12))
    expected = evaluate(graph, {"x": x, **weights})["out"]
    found = Library({"m": lower(module)}, isa, tmp_path).call("m", "forward", {"x": x}, {"n": 3})["out"]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
