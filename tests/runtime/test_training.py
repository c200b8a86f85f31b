"""Training by compiled modules: gradients accumulated over calls, and training that goes on from a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import nn, optim
from mlaot.nn import functional as F

from .. import projects

Array = np.ndarray[Any, Any]
Build = Callable[[str, Any], ModuleType]
BATCH = mlaot.dim("batch")


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """``build(name, declared)`` is the extension module."""
    site = tmp_path_factory.mktemp("training") / "site"
    return lambda name, declared: projects.load(projects.build_module(declared, name, site, ("base",)))


def classifier(net: nn.Module, optimizer: optim.Optimizer) -> Any:
    """A network that tells three classes of six numbers apart."""

    def loss(scores: Any, label: mlaot.i64[BATCH]) -> Any:  # type: ignore[valid-type]
        return F.cross_entropy(scores, label)

    def forward(x: mlaot.f64[BATCH, 6]) -> Any:  # type: ignore[valid-type]
        return net(x)

    return mlaot.model(forward, loss=loss, optimizer=optimizer, parameters=net)


def examples(count: int, seed: int) -> tuple[Array, Array]:
    x = np.random.default_rng(seed).normal(size=(count, 6))
    return x, x[:, :3].argmax(1)


def test_accumulated_gradients_are_one_big_step(build: Build) -> None:
    """Four quarters of a batch, a fourth of the rate: to the last digits what the whole batch does."""
    layers = nn.Linear(6, 12, dtype="float64", rng=0), nn.Tanh(), nn.Linear(12, 3, dtype="float64", rng=1)
    module = build("quarters", classifier(nn.Sequential(*layers), optim.SGD(lr=0.05, momentum=0.9)))
    whole, quarters = module.Model(), module.Model()
    for step in range(5):
        x, label = examples(32, step)
        expected = whole.train_step(x, label)
        losses = []
        quarters.zero_grad()
        for i in range(0, 32, 8):
            quarters.set_input(x[i : i + 8], label[i : i + 8])
            quarters.forward()
            losses.append(quarters.loss())
            quarters.backward()
        quarters.update(lr=0.05 / 4)
        assert np.mean(losses) == pytest.approx(expected, rel=1e-12)
        for name, value in whole.parameters.items():
            np.testing.assert_allclose(quarters.parameters[name], value, rtol=1e-11, atol=1e-13, err_msg=name)


def test_training_goes_on_from_a_file(build: Build, tmp_path: Path) -> None:
    """Parameters, Adam's state, running statistics and the random state come back: the same bits as without a stop."""
    net = nn.Sequential(
        nn.Linear(6, 16, dtype="float64", rng=0),
        nn.BatchNorm1d(16, dtype="float64"),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(16, 3, dtype="float64", rng=1),
    )
    adam = optim.Adam(lr=0.01, amsgrad=True, schedule=optim.cosine_annealing_lr(100))
    module = build("checkpoint", classifier(net, adam))
    model, fresh = module.Model(), module.Model()
    losses = [model.train_step(*examples(16, step)) for step in range(50)]
    model.save(tmp_path / "half.safetensors")
    losses += [model.train_step(*examples(16, step)) for step in range(50, 100)]
    fresh.load(tmp_path / "half.safetensors")
    assert [fresh.train_step(*examples(16, step)) for step in range(50, 100)] == losses[50:]
    assert np.mean(losses[90:]) < 0.7 * np.mean(losses[:10])
    for kind in ("parameters", "buffers"):
        kept, found = getattr(model, kind), getattr(fresh, kind)
        assert {k: v.tolist() for k, v in kept.items()} == {k: v.tolist() for k, v in found.items()}
    assert np.asarray(fresh.buffers["random"])[-1] == 100
    model.save(tmp_path / "a")
    fresh.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
