"""Compiled models, built once for the whole run."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from . import models


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The shared libraries of the hand-made models."""
    folder = tmp_path_factory.mktemp("runtime")
    return {name: models.build(module, kernels, folder / name) for name, (module, kernels) in models.MODELS.items()}


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
