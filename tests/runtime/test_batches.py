"""One module for every batch: its answers are the function's, and its workspace grows at most as the batch does."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

import mlaot
from mlaot import nn
from mlaot.files import program_files, write
from mlaot.generate import compile_model
from mlaot.lower.program import Program
from mlaot.nn import functional as F
from mlaot.settings.options import Options

from .. import projects
from ..compiled import entry_of, evaluate_dim

BATCH = mlaot.dim("batch")
BATCHES = (0, 1, 7, 64, 10_000)


class Net(NamedTuple):
    """A declared model, the shape of one example, its program and its module."""

    declared: Any
    shape: tuple[int, ...]
    program: Program
    module: ModuleType


def conv_net() -> tuple[Any, tuple[int, ...]]:
    """Two convolutions, pooling, a linear layer."""
    layers = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, rng=0),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3, rng=1),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(24, 5, rng=2),
    )

    def conv(x: mlaot.f32[BATCH, 1, 8, 8]) -> Any:  # type: ignore[valid-type]
        return F.softmax(layers(x))

    return mlaot.model(conv, parameters=layers), (1, 8, 8)


def mlp() -> tuple[Any, tuple[int, ...]]:
    """Two linear layers."""
    layers = nn.Sequential(nn.Linear(20, 33, rng=3), nn.GELU(), nn.Linear(33, 7, rng=4))

    def mlp(x: mlaot.f32[BATCH, 20]) -> Any:  # type: ignore[valid-type]
        return layers(x)

    return mlaot.model(mlp, parameters=layers), (20,)


@pytest.fixture(scope="module", params=[conv_net, mlp], ids=["conv", "mlp"])
def net(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Net:
    declared, shape = request.param()
    folder = tmp_path_factory.mktemp("batches")
    program = compile_model(declared, "batches.nn", Options(isas=("base",)))
    write(program_files(program), folder)
    projects.compile_quickly(folder, "nn", ("base",), folder / "nn.abi3.so", False)
    return Net(declared, shape, program, projects.load(Path(folder, "nn.abi3.so")))


@pytest.mark.parametrize("batch", BATCHES)
def test_answers_are_the_functions(net: Net, batch: int) -> None:
    x = np.random.default_rng(batch).normal(size=(batch, *net.shape)).astype(np.float32)
    expected = net.declared(x)
    found = np.asarray(net.module.forward(x))
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_an_example_has_one_answer(net: Net) -> None:
    """Whatever batch it is part of."""
    x = np.random.default_rng(1).normal(size=(10_000, *net.shape)).astype(np.float32)
    whole = np.asarray(net.module.forward(x))
    for start, stop in ((0, 1), (3, 10), (9_930, 9_994), (9_999, 10_000)):
        np.testing.assert_array_equal(np.asarray(net.module.forward(x[start:stop])), whole[start:stop])


def test_workspace_grows_as_the_batch_does(net: Net) -> None:
    """At most in proportion to the batch, or to a tile of it."""
    entry = entry_of(net.program, "forward")

    def workspace(batch: int) -> int:
        return evaluate_dim(entry.workspace, {"batch": min(batch, entry.tile) if entry.tile else batch})

    slack = 64 * 20  # of each array, up to the next cache line
    per_example = workspace(64) / 64
    assert workspace(10_000) <= 10_000 * per_example + slack
    assert workspace(1) <= workspace(7) <= workspace(64) <= workspace(10_000)
    assert workspace(0) <= slack
    assert per_example <= 64 * 1024
