"""Known places along an axis are read where they lie, with no copies, and the values are the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import passes
from mlaot.ir.module import Module
from mlaot.loading import trace
from mlaot.lower.lower import lower

from ...compiled import AVAILABLE, Library

N = mlaot.dim("n")
PLACES = np.array([3, -1, 0, 0, 2, 5, -6])
CASES: dict[str, Any] = {
    "last": lambda x: np.take(x, PLACES, axis=3),
    "middle": lambda x: np.take(x, PLACES, axis=2),
    "both": lambda x: np.take(np.take(x, PLACES, axis=3), PLACES, axis=2),
    "the other way": lambda x: np.take(np.take(x, PLACES, axis=2), PLACES, axis=3),
    "all": lambda x: np.take(np.take(np.take(x, [1, 0, 2], axis=1), PLACES, axis=2), PLACES, axis=3),
    "moved": lambda x: np.take(np.transpose(x, (0, 3, 1, 2)), PLACES, axis=1) * 2.0,
}


def module_of(function: Any) -> Module:
    function.__annotations__ = {"x": mlaot.f32[N, 3, 6, 6]}
    return passes.run("m", trace(mlaot.model(function)))


@pytest.mark.parametrize("name", ["last", "middle", "both", "the other way"])
def test_nothing_is_moved(name: str) -> None:
    assert "transpose" not in {node.op.name for node in module_of(CASES[name]).graphs["forward"].nodes()}


@pytest.mark.parametrize("isa", AVAILABLE[-1:])
def test_values_stay(isa: str, tmp_path: Path) -> None:
    modules = {f"m{i}": module_of(function) for i, function in enumerate(CASES.values())}
    library = Library({stem: lower(module) for stem, module in modules.items()}, isa, tmp_path)
    x = np.random.default_rng(0).normal(size=(2, 3, 6, 6)).astype(np.float32)
    for stem, function in zip(modules, CASES.values(), strict=True):
        (found,) = library.call(stem, "forward", {"x": x}, {"n": 2}).values()
        np.testing.assert_array_equal(found, function(x), err_msg=stem)
