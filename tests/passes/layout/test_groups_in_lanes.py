"""Narrow groups of convolutions as parts of blocks of channels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import nn
from mlaot.evaluate import evaluate
from mlaot.lower.lower import lower
from tests.compiled import AVAILABLE, Library

from .test_blocked_layout import BATCH, body, chain, check, conv, randomized, served
from .test_widen_groups import Residual, products, strided


class Branches(nn.Module):
    """Two convolutions with groups of one value, added to a third one before a function."""

    def __init__(self) -> None:
        self.first, self.second = conv(2, 3, 48, 3), conv(2, 48, 48, 1, stride=2)
        self.fours, self.eights = (strided(2, 48, 48, 3, padding=1, groups=n) for n in (12, 6))

    def forward(self, x: Any) -> Any:
        y = mlaot.relu(self.first(x))
        return mlaot.gelu(self.fours(y) * 2 + self.eights(y) - self.second(y))


class Inverse(nn.Module):
    """Makes infinities of the zeros in channels that were added."""

    def forward(self, x: Any) -> Any:
        return 1 / x


NETS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "of 8": (lambda: chain(conv(2, 3, 32, 3), strided(2, 32, 32, 3, groups=4), conv(2, 32, 5, 1)), (3, 9, 9)),
    "of 4": (lambda: chain(conv(2, 3, 48, 3), strided(2, 48, 48, 3, padding=1, groups=12), nn.SiLU()), (3, 9, 9)),
    "of 2": (lambda: chain(conv(2, 3, 32, 3), strided(2, 32, 32, 3, groups=16), conv(2, 32, 32, 3)), (3, 11, 11)),
    "three": (
        lambda: chain(conv(2, 3, 24, 3), strided(2, 24, 24, 3, groups=3), nn.Sigmoid(), conv(2, 24, 16, 1)),
        (3, 9, 9),
    ),
    "seven of 4": (lambda: chain(conv(2, 3, 28, 1), strided(2, 28, 28, 3, groups=7), nn.GELU()), (BATCH, 3, 8, 8)),
    "short rows": (lambda: chain(conv(2, 3, 40, 3), conv(2, 40, 40, 3, padding=1, groups=5), nn.ReLU()), (3, 9, 9)),
    "open": (lambda: chain(conv(2, 3, 32, 3), strided(2, 32, 32, 3, groups=4), nn.ReLU()), (BATCH, 3, 11, 11)),
    "along one axis": (lambda: chain(conv(1, 3, 32, 3), strided(1, 32, 32, 5, dilation=2, groups=4)), (3, 19)),
    "along three": (lambda: chain(conv(3, 3, 32, 1), strided(3, 32, 32, (1, 3, 2), groups=4)), (3, 2, 5, 5)),
    "other taps": (lambda: chain(conv(2, 3, 32, 1), strided(2, 32, 32, (1, 5), padding=(0, 2), groups=8)), (3, 6, 9)),
    "one after another": (
        lambda: chain(strided(2, 48, 48, 3, groups=6), nn.ReLU(), strided(2, 48, 48, 3, groups=12), nn.ReLU()),
        (48, 15, 15),
    ),
    "plain input": (lambda: strided(2, 24, 24, 3, groups=3), (24, 6, 6)),
    "residual": (lambda: chain(conv(2, 3, 40, 1), Residual(40, 5), Residual(40, 10)), (BATCH, 3, 8, 8)),
    "branches": (Branches, (BATCH, 3, 10, 10)),
    "flat": (
        lambda: chain(strided(2, 24, 24, 3, groups=3), nn.Tanh(), nn.Flatten(), nn.Linear(24 * 4, 3)),
        (BATCH, 24, 5, 5),
    ),
    "infinities": (lambda: chain(conv(2, 3, 28, 3), Inverse(), strided(2, 28, 28, 3, groups=7)), (3, 9, 9)),
}  # fmt: skip


@pytest.mark.parametrize("name", NETS)
def test_values(name: str) -> None:
    make, shape = NETS[name]
    check(make(), *shape)


def test_form() -> None:
    """Three groups of 8 channels are two blocks of two; the bias and what follows are in the product's form."""
    net = chain(nn.Conv2d(3, 24, 3), nn.Conv2d(24, 24, 3, stride=2, groups=3), nn.ReLU(), nn.Conv2d(24, 32, 1))
    text = body(net, BATCH, 3, 21, 21)
    assert text.count("transpose(") == 1, "of the result"
    assert "slice(" not in text and text.count("pad(") == 0
    assert "f32[2,2,3,3,8,8]" in text and text.count("relu(") == 1
    (line,) = [line for line in text.splitlines() if "relu(" in line]
    assert line.endswith("f32[n,2,9,9,2,8]"), line


@pytest.mark.parametrize(
    ("size", "stride", "width", "is_part"),
    [(8, 1, 13, False), (8, 1, 8, True), (4, 1, 8, False), (4, 2, 13, True), (2, 2, 13, True), (1, 2, 13, False)],
)
def test_which_are_parts(size: int, stride: int, width: int, is_part: bool) -> None:
    """Those of strides, and of 8 channels where rows are short; single channels are depthwise convolutions."""
    net = chain(conv(2, 3, 32, 3, padding=1), conv(2, 32, 32, 3, padding=1, stride=stride, groups=32 // size))
    graph = served(randomized(net), 3, stride * width, stride * width)[0].graphs["forward"]
    assert (products(graph)[-1][-2:] == (2, 8)) == is_part


@pytest.mark.parametrize("isa", AVAILABLE)
@pytest.mark.parametrize("name", ["three", "open", "branches", "along one axis", "one after another", "residual"])
def test_compiled(name: str, isa: str, tmp_path: Path) -> None:
    make, shape = NETS[name]
    module, graph, weights = served(randomized(make()), *shape)
    x = np.random.default_rng(2).normal(size=(3, *(d for d in shape if d is not BATCH)))
    inputs = [x] if BATCH in shape else list(x)
    answers = [evaluate(graph, {"x": each, **weights})["out"] for each in inputs]
    expected = answers[0] if BATCH in shape else np.stack(answers)
    dims = {"n" if BATCH in shape else "batch": 3}
    found = Library({"m": lower(module)}, isa, tmp_path).call("m", "forward", {"x": x}, dims)["out"]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
