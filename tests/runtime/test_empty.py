"""Arrays without elements may have any number of rows, and take no time for them."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import mlaot

from .. import projects

N, M = mlaot.dim("n"), mlaot.dim("m")
ROWS = 1 << 40  # a loop over so many would not end while the test waits
FUNCTIONS = {
    "sort": lambda x: np.sort(x, axis=1),
    "argsort": lambda x: np.argsort(x, axis=1),
    "double": lambda x: x * 2,
    "cumsum": lambda x: np.cumsum(x, axis=0),
    "sums": lambda x: np.sum(np.tanh(x), axis=0),
    "softmax": lambda x: mlaot.softmax(x),
    "turned": lambda x: x.T * 1,
    "product": lambda x: np.sort(x, axis=1).T @ np.tanh(x),
    "twice": lambda x: np.concatenate([x, x], axis=1),
    "backwards": lambda x: x[:, ::-1] + 1,
}


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    @mlaot.model
    def model(x: mlaot.f32[N, M]) -> Any:
        return x + 1

    for name, function in FUNCTIONS.items():

        def entry(x: Any, function: Any = function) -> Any:
            return function(x)

        entry.__name__, entry.__annotations__ = name, {"x": mlaot.f32[N, M]}
        model.entry(entry)
    folder: Path = tmp_path_factory.mktemp("empty")
    return projects.load(projects.build_module(model, "empty", folder / "site", ("base",)))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_rows_without_elements(module: ModuleType, name: str) -> None:
    x = np.zeros((ROWS, 0), np.float32)
    expected = {"turned": (0, ROWS), "sums": (0,), "product": (0, 0)}.get(name, (ROWS, 0))
    assert getattr(module, name)(x).shape == expected
