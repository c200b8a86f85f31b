"""A cache that one call leaves for the next: a step of attention over what came before, against the NumPy function."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import mlaot

from .. import projects

LENGTH, WIDTH = 8, 4


def declared() -> tuple[Any, Any]:
    """The model, and its entry ``step`` as a NumPy function."""
    rng = np.random.default_rng(0)
    w = mlaot.parameters({name: rng.normal(size=(WIDTH, WIDTH)).astype(np.float32) for name in "qkv"})
    keys, values = (mlaot.Buffer(np.zeros((LENGTH, WIDTH), np.float32), name) for name in ("keys", "values"))
    count = mlaot.Buffer(np.array(0), "count")

    def project(x: Any) -> Any:
        return x @ w["q"]

    def step(x: Any) -> Any:
        keys.assign(keys.at[count].set(x @ w["k"]))
        values.assign(values.at[count].set(x @ w["v"]))
        count.assign(count + 1)
        scores = keys @ project(x) / np.sqrt(WIDTH)
        return mlaot.softmax(np.where(np.arange(LENGTH) < count, scores, -np.inf)) @ values

    def restart() -> None:
        count.assign(count * 0)

    project.__annotations__ = {"x": mlaot.f32[mlaot.dim("batch"), WIDTH]}
    step.__annotations__ = {"x": mlaot.f32[WIDTH]}
    model = mlaot.model(project)
    model.entry(step)
    model.entry(restart)
    return model, step


@pytest.fixture(scope="module")
def cached(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModuleType, Any]:
    model, step = declared()
    return projects.load(projects.build_module(model, "cached", tmp_path_factory.mktemp("cache") / "site")), step


def test_each_step_sees_those_before(cached: tuple[ModuleType, Any]) -> None:
    nn, step = cached
    model, rng = nn.Model(), np.random.default_rng(1)
    for i in range(LENGTH):
        x = rng.normal(size=WIDTH).astype(np.float32)
        np.testing.assert_allclose(model.step(x), step(x), rtol=1e-5, atol=1e-6)
        assert model.buffers["count"].tolist() == i + 1
    assert nn.Model().buffers["count"].tolist() == 0  # of its own
    model.restart()
    assert model.buffers["count"].tolist() == 0


def test_a_cache_is_saved_and_loaded(cached: tuple[ModuleType, Any], tmp_path: Path) -> None:
    nn, _ = cached
    first, second = nn.Model(), nn.Model()
    x = np.ones(WIDTH, np.float32)
    for _ in range(3):
        first.step(x)
    first.save(tmp_path / "cache.safetensors")
    second.load(tmp_path / "cache.safetensors")
    assert np.array_equal(first.step(2 * x), second.step(2 * x)) and second.buffers["count"].tolist() == 4


def test_frozen_weights_are_no_state(cached: tuple[ModuleType, Any]) -> None:
    nn, _ = cached
    assert set(nn.info()["buffers"]) == {"keys", "values", "count"} and not nn.info()["parameters"]
    assert not hasattr(nn, "zero_grad") and not hasattr(nn.Model(), "gradients")
