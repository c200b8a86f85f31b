"""New weights without a new wheel: what one module trains, another one loads that only serves (``frozen = false``)."""

from __future__ import annotations

import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import nn, optim
from mlaot.micrograd import MLP, Value, declare
from mlaot.nn import functional as F

from .. import projects

BATCH = mlaot.dim("batch")
RNG = np.random.default_rng(5)
X = RNG.normal(size=(6, 1, 6, 6)).astype(np.float32)
LABELS = np.array([0, 1, 2, 0, 1, 2])
SLOTS = {"parameters": "0.bias 0.weight 1.bias 1.weight 4.bias 4.weight", "buffers": "1.running_mean 1.running_var"}


def net(seed: int, *, trains: bool) -> Any:
    """A convolution, a normalization, a linear layer: what is folded, cut in tiles and packed where it is frozen."""
    layers = nn.Sequential(
        nn.Conv2d(1, 16, 3, rng=seed),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 16, 3, rng=seed),
    )

    def forward(x: mlaot.f32[BATCH, 1, 6, 6]) -> Any:
        return layers(x)

    def loss(scores: Any, label: mlaot.i64[BATCH]) -> Any:
        return F.cross_entropy(scores, label)

    trained = {"loss": loss, "optimizer": optim.Adam(lr=0.01)} if trains else {}
    return mlaot.model(forward, parameters=layers, **trained)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """A module that has been trained."""
    module = projects.load(
        projects.build_module(net(1, trains=True), "trains", tmp_path_factory.mktemp("t"), ("base",))
    )
    for _ in range(20):
        module.train_step(X, LABELS)
    return module


@pytest.fixture(scope="module")
def weights(trained: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that it saves: parameters, running statistics, and Adam's moments."""
    path = tmp_path_factory.mktemp("weights") / "weights.safetensors"
    trained.save(path)
    return path


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A module that serves other weights, which can be replaced."""
    site = tmp_path_factory.mktemp("r")
    return projects.build_module(net(2, trains=False), "serves", site, ("base",), frozen=False, golden=True)


@pytest.fixture
def serves(library: Path) -> ModuleType:
    """That module at its start."""
    return projects.load(library)


def test_weights_of_another_module(trained: ModuleType, weights: Path, serves: ModuleType) -> None:
    """The answers are those of the module that was trained, running statistics included."""
    before = np.asarray(serves.forward(X))
    model = serves.Model()
    model.load(weights)
    np.testing.assert_allclose(np.asarray(model.forward(X)), np.asarray(trained.forward(X)), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(np.asarray(serves.forward(X)), before)
    assert np.abs(np.asarray(model.forward(X)) - before).max() > 0.1
    for kind, names in SLOTS.items():
        mine, theirs = getattr(model, kind), getattr(trained, kind)
        assert sorted(mine) == names.split() and set(mine) <= set(theirs)
        assert all(mine[name].tolist() == theirs[name].tolist() for name in mine)


def test_no_gradients(serves: ModuleType) -> None:
    """It has weights, and nothing that trains them."""
    for name in ("gradients", "flat_gradients", "flat_parameters", "train_step", "zero_grad", "update", "fit"):
        assert not hasattr(serves, name) and not hasattr(serves.Model, name)
    info = serves.info()
    assert info["parameters"]["4.weight"] == "float32[3, 256]"
    assert info["parameter_count"] == sum(a.size for a in serves.parameters.values())
    assert info["bytes"]["constants"] < 64 * 16 < 4 * info["parameter_count"] <= info["bytes"]["state"]
    assert serves.Model.__doc__ == "An instance with parameters of its own."
    assert serves.load.__doc__ == "Read the parameters and the buffers from safetensors."


def test_weights_are_in_memory(weights: Path, serves: ModuleType, tmp_path: Path) -> None:
    """They can be set in place, saved, and taken along by copies; golden vectors are of those built in."""
    serves.load(weights)
    bias = serves.parameters["4.bias"]
    before = np.asarray(serves.forward(X)).copy()
    np.asarray(bias)[...] += 1
    np.testing.assert_allclose(np.asarray(serves.forward(X)), before + 1, rtol=1e-5, atol=1e-5)
    serves.save(tmp_path / "saved")
    model = serves.Model()
    model.__setstate__((tmp_path / "saved").read_bytes())
    assert model.forward(X).tolist() == serves.forward(X).tolist()
    assert all(share <= 1 for share in serves.selftest().values())


def test_refused_files(weights: Path, serves: ModuleType, tmp_path: Path) -> None:
    """Names, types, shapes and places of its own tensors are checked first; others are passed over."""
    numpy = pytest.importorskip("safetensors.numpy")
    good = numpy.load_file(weights)
    own = {name: good[name] for names in SLOTS.values() for name in names.split()}
    assert sum(name.startswith("optimizer.") for name in good) > 6 and "1.num_batches_tracked" in good.keys() - own
    path, before = tmp_path / "file", serves.forward(X).tolist()
    for change, message in (
        ({"4.bias": np.zeros(4, np.float32)}, r"^load: .*: 4\.bias: expected F32\[3\], got"),
        ({"4.bias": np.zeros(3)}, r"^load: .*: 4\.bias: expected F32\[3\], got"),
    ):
        numpy.save_file(own | change, path)
        with pytest.raises(ValueError, match=message):
            serves.load(path)
    numpy.save_file({name: array for name, array in good.items() if name != "4.bias"}, path)
    with pytest.raises(ValueError, match=r"^load: .*: expected a tensor 4\.bias, got a file without it$"):
        serves.load(path)
    path.write_bytes(weights.read_bytes()[:5000])
    with pytest.raises(ValueError, match=r"^load: .* inside a file with \d+ bytes of data, got"):
        serves.load(path)
    assert serves.forward(X).tolist() == before
    numpy.save_file(own, path)
    model = serves.Model()
    model.load(path), serves.load(weights)
    assert model.forward(X).tolist() == serves.forward(X).tolist() != before


def test_loading_while_serving(weights: Path, serves: ModuleType) -> None:
    """A call sees the old weights or the new ones, never some of both."""
    serves.save(weights.with_name("first"))
    answers = [serves.forward(X).tolist()]
    serves.load(weights)
    answers.append(serves.forward(X).tolist())
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            serves.load(weights.with_name("first")), serves.load(weights)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        seen = [answers.index(serves.forward(X).tolist()) for _ in range(300)]
    finally:
        stop.set()
        thread.join()
    assert set(seen) <= {0, 1}


def test_networks_of_scalars(tmp_path: Path) -> None:
    """The scalars of micrograd are raised to the same tensors, with or without a loss."""

    def scalars(seed: int, *, trains: bool) -> Any:
        import random

        random.seed(seed)
        mlp = MLP(2, [4, 1])
        x, y = [Value(0.0), Value(0.0)], Value(0.0)
        out = mlp(x)
        trained: Any = {"inputs": {"x": x, "y": y}, "loss": (out - y) ** 2} if trains else {"inputs": {"x": x}}
        return declare(out, parameters=mlp, **trained)

    first = projects.load(projects.build_module(scalars(1, trains=True), "one", tmp_path, ("base",)))
    second = projects.load(projects.build_module(scalars(2, trains=False), "two", tmp_path, ("base",), frozen=False))
    assert first.forward([1, 2]).tolist() != second.forward([1, 2]).tolist()
    first.save(tmp_path / "weights")
    second.load(tmp_path / "weights")
    assert second.forward([1, 2]).item() == pytest.approx(first.forward([1, 2]).item(), rel=1e-12)
