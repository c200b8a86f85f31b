"""Reshapes of callers' arrays are views; what else may have gaps is copied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import passes
from mlaot.evaluate import evaluate
from mlaot.loading import trace
from mlaot.lower.lower import lower
from mlaot.settings.options import Options

from ...compiled import AVAILABLE, Library

batch = mlaot.dim("batch")


@mlaot.model
def rows(x: mlaot.f32[batch, 5, 7]) -> Any:
    return np.mean(np.reshape(x, (-1, 35)), -1)


@mlaot.model
def whole(x: mlaot.f32[batch, 5, 7]) -> Any:
    return np.exp(np.reshape(x, (-1,)))


@mlaot.model
def inner(x: mlaot.f32[batch, 3, 5, 7]) -> Any:
    return np.max(np.reshape(x, (-1, 3, 35)), -1) + np.sum(x)


@mlaot.model
def split(x: mlaot.f32[batch, 6, 7]) -> Any:
    return np.tanh(np.reshape(x, (-1, 3, 14)))[:, :, ::3]


MODELS = {"rows": rows, "whole": whole, "inner": inner, "split": split}
SHAPES = {"rows": (5, 7), "whole": (5, 7), "inner": (3, 5, 7), "split": (6, 7)}


@pytest.mark.parametrize("isa", AVAILABLE)
def test_they_compute_the_same_without_copies(isa: str, tmp_path: Path) -> None:
    modules = {name: passes.run("m", trace(model)) for name, model in MODELS.items()}
    library = Library({name: lower(module) for name, module in modules.items()}, isa, tmp_path)
    for name, module in modules.items():
        (x,) = module.graphs["forward"].inputs.values()
        assert x.attrs.get("gapless"), name
        given = {"x": np.random.default_rng(0).normal(size=(3, *SHAPES[name])).astype(np.float32)}
        (expected,) = evaluate(module.graphs["forward"], given, wide=True).values()
        (found,) = library.call(name, "forward", given, {"batch": 3}).values()
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6, err_msg=name)
        kernels = [kernel for p in library.programs[name].procedures for kernel in p.kernels]
        assert not any("reshape" in line for kernel in kernels for line in kernel.nest.doc), name


def test_other_values_may_have_gaps() -> None:
    """Weights and what kernels compute have padded rows; the note is for nothing else than merged axes."""
    w = mlaot.Parameter("w", np.ones((5, 7), np.float32))

    @mlaot.model(parameters={"w": w})
    def weights(x: mlaot.f32[batch, 35]) -> Any:
        return np.exp(np.reshape(w, (35,))) + x

    graph = passes.run("m", trace(weights), Options(frozen=False)).graphs["forward"]
    assert any(node.attrs.get("parameter") for node in graph.inputs.values())
    assert not any(node.attrs.get("gapless") for node in graph.inputs.values())
