"""Compiled models, built once for the whole run."""

from __future__ import annotations

import fcntl
from pathlib import Path
from types import ModuleType

import pytest

from .. import projects
from . import kinds, models


def made(name: str, folder: Path) -> Path:
    """A model's library, compiled unless it is there."""
    module, kernels = (models.MODELS | kinds.MODELS)[name]
    library = models.library(module, folder / name)
    return library if library.exists() else models.build(module, kernels, folder / name)


@pytest.fixture(scope="session")
def libraries(shared_folder: Path) -> dict[str, Path]:
    """The shared libraries of the hand-made models."""
    folder = shared_folder / "hand-made"
    folder.mkdir(exist_ok=True)
    with open(folder / "lock", "w") as lock:  # the first process that wants them compiles
        fcntl.flock(lock, fcntl.LOCK_EX)
        return {name: made(name, folder) for name in models.MODELS | kinds.MODELS}


@pytest.fixture(scope="session")
def affine(libraries: dict[str, Path]) -> ModuleType:
    """An inference module."""
    return models.load(libraries["affine"])


@pytest.fixture
def fit(libraries: dict[str, Path]) -> ModuleType:
    """A training module at its start."""
    return models.load(libraries["fit"])


@pytest.fixture(scope="session")
def large(libraries: dict[str, Path]) -> ModuleType:
    """A module with embedded weights."""
    return models.load(libraries["large"])


@pytest.fixture(scope="session")
def dtypes(libraries: dict[str, Path]) -> ModuleType:
    """A module with entries of every dtype."""
    return models.load(libraries["dtypes"])


@pytest.fixture(scope="session")
def shapes(libraries: dict[str, Path]) -> ModuleType:
    """A module with shapes of every form."""
    return models.load(libraries["shapes"])


@pytest.fixture(scope="module", params=["compiled", "plain"])
def build(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> projects.Build:
    """What makes modules: compiled ones, and those in plain Python."""
    folder = tmp_path_factory.mktemp("modules")
    if request.param == "plain":
        return lambda name, model: projects.plain_module(model, name, folder)
    return lambda name, model: projects.load(projects.build_module(model, name, folder, ("base",)))


@pytest.fixture
def cache(libraries: dict[str, Path]) -> ModuleType:
    """A frozen module with buffers, at its start."""
    return models.load(libraries["cache"])


@pytest.fixture
def momentum(libraries: dict[str, Path]) -> ModuleType:
    """A training module with a buffer and an optimizer that keeps state, at its start."""
    return models.load(libraries["momentum"])
