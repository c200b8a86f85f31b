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
            losses.append(quarters.accumulate(x[i : i + 8], label[i : i + 8]))
        quarters.update(lr=0.05 / 4)
        assert np.mean(losses) == pytest.approx(expected, rel=1e-12)
        for name, value in whole.parameters.items():
            np.testing.assert_allclose(quarters.parameters[name], value, rtol=1e-11, atol=1e-13, err_msg=name)


def regularized() -> nn.Module:
    """A network with running statistics and a random state."""
    return nn.Sequential(
        nn.Linear(6, 16, dtype="float64", rng=0),
        nn.BatchNorm1d(16, dtype="float64"),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(16, 3, dtype="float64", rng=1),
    )


def of_images() -> Any:
    """A network that slides a window over one example, and so trains in microbatches. One parameter is not used."""
    net = nn.Sequential(
        nn.Conv2d(1, 3, 3, dtype="float64", rng=0), nn.ReLU(), nn.Flatten(0), nn.Linear(48, 3, dtype="float64", rng=1)
    )

    def loss(scores: Any, label: mlaot.i64) -> Any:
        return F.cross_entropy(scores, label)

    def forward(x: mlaot.f64[1, 6, 6]) -> Any:
        return net(x)

    return mlaot.model(forward, loss=loss, optimizer=optim.Adam(lr=0.01), parameters={"net": net, "spare": np.ones(2)})


@pytest.mark.parametrize("count", [1, 16, 37])
@pytest.mark.parametrize("name", ["regularized", "of_images"])
def test_accumulate_is_all_of_its_phases(build: Build, name: str, count: int) -> None:
    """The same loss, gradients, statistics and random numbers as in single steps; then the update of train_step."""
    adam, rng = optim.Adam(lr=0.01), np.random.default_rng(count)
    module = build(f"{name}_{count}", of_images() if name == "of_images" else classifier(regularized(), adam))
    x, label = rng.normal(size=(count, *((1, 6, 6) if name == "of_images" else (6,)))), rng.integers(0, 3, count)
    one, phases, whole = module.Model(), module.Model(), module.Model()
    for _ in range(2):  # the second gradient is added to the first
        phases.set_input(x, label)
        phases.forward()
        phases.backward()
        assert one.accumulate(x, label=label) == pytest.approx(phases.loss(), rel=1e-12)
        np.testing.assert_allclose(one.flat_gradients, phases.flat_gradients, rtol=1e-11, atol=1e-13)
    for key, value in getattr(one, "buffers", {}).items():
        np.testing.assert_allclose(value, phases.buffers[key], rtol=1e-12, err_msg=key)
    assert bytes(one.flat_parameters) == bytes(whole.flat_parameters)
    step = module.Model()
    assert step.accumulate(x, label) == pytest.approx(whole.train_step(x, label), rel=1e-12)
    step.update()
    np.testing.assert_allclose(step.flat_parameters, whole.flat_parameters, rtol=1e-9, atol=1e-12)
    kept = bytes(one.flat_gradients)
    for inputs, message in (((x, label + 3), "label.* 0 to 2"), ((x[:0], label[:0]), "at least 1, got 0")):
        with pytest.raises((ValueError, IndexError), match=message):
            one.accumulate(*inputs)
    assert bytes(one.flat_gradients) == kept


def test_training_goes_on_from_a_file(build: Build, tmp_path: Path) -> None:
    """Parameters, Adam's state, running statistics and the random state come back: the same bits as without a stop."""
    adam = optim.Adam(lr=0.01, amsgrad=True, schedule=optim.cosine_annealing_lr(100))
    module = build("checkpoint", classifier(regularized(), adam))
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
