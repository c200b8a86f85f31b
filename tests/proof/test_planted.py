"""Golden vectors find wrong weights: a small share of what ``python -m tests.proof.planted`` plants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import nn, passes
from mlaot.loading import trace
from mlaot.lower.lower import lower
from mlaot.nn import functional as F
from mlaot.report.golden import golden_vectors

from .. import projects
from .planted import planted, report, visibility

N = mlaot.dim("n")


class Convolutions(nn.Module):
    input = mlaot.f32[N, 3, 9, 7]

    def __init__(self) -> None:
        self.a, self.b, self.c = nn.Conv2d(3, 8, 3, rng=0), nn.BatchNorm2d(8), nn.Linear(8, 300, rng=1)

    def forward(self, x: Any) -> Any:
        return self.c(np.mean(F.relu(self.b(self.a(x))), axis=(2, 3)))


class Recurrent(nn.Module):
    input = mlaot.f32[N, mlaot.dim("length"), 10]

    def __init__(self) -> None:
        self.a, self.b = nn.GRU(10, 12, batch_first=True, rng=0), nn.Linear(12, 3, rng=1)

    def forward(self, x: Any) -> Any:
        return F.softmax(self.b(self.a(x)[0]), -1)


@pytest.mark.parametrize("net", [Convolutions, Recurrent])
def test_wrong_weights_are_found(net: Any) -> None:
    """In each of the arrays, of 300 outputs whose sums are kept, too."""
    model = net()

    def forward(x: Any) -> Any:
        return model(x)

    forward.__annotations__["x"] = net.input
    module = passes.run("nn", trace(mlaot.model(forward, parameters=model)))
    lowered = lower(module).module
    vectors, reason = golden_vectors(module, lowered)
    assert vectors and not reason
    weights = {
        name: np.asarray(module.declared_slots[name])
        for name in module.parameters.keys() & module.declared_slots.keys()
    }
    missed = [what for what, wrong in planted(weights, 20, 0) if visibility(module, lowered, vectors, wrong) <= 1]
    assert not missed
    assert visibility(module, lowered, vectors, weights) < 1e-6


def test_of_an_example() -> None:
    assert [(name, *counts) for name, _, *counts in report(projects.EXAMPLES / "xor", 20, 0)] == [("xor.nn", 20, 20)]
