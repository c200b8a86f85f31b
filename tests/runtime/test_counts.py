"""Outputs whose shapes a kernel counts: they are learnt behind it, and what does not fit is refused."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from . import models

X = np.array([1, -2, 3, 0, 5], np.float32)


@pytest.fixture(scope="session")
def counted(libraries: dict[str, Path]) -> ModuleType:
    """A module that counts the numbers over 0, and a rest that the first of them says."""
    return models.load(libraries["counted"])


def buffers(found: int, rest: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    return np.full((2, found), 7, np.float32), np.zeros(()), np.full(found - 2 + rest, 7, np.int16)


def test_shapes_are_learnt(counted: ModuleType) -> None:
    twice, total, behind = counted.forward(X)
    assert (twice.shape, twice.tolist(), total.item(), behind.tolist()) == ((2, 3), [[1, 3, 5]] * 2, 9, [0, 1])
    twice, total, behind = counted.forward(np.full(4000, 3, np.float32))
    assert (twice.shape, total.item(), behind.tolist()) == ((2, 4000), 12000, [*range(4001)])
    assert counted.info()["entries"]["forward"]["outputs"]["behind"] == "int16[found + rest - 2]"
    assert counted.plain(X).tolist() == X.tolist()


REFUSED = {
    "none": ([], "expected found - 2 of at least 0, got -2"),
    "too few": ([0, 3, 0], "expected found - 2 of at least 0, got -1"),
    "too much rest": ([4, 1], "expected rest of at most 3, got 4"),
    "wrong": ([2, 13], "a number is 13"),
    "too much rest of what is wrong": ([4, 13], "expected rest of at most 3, got 4"),
}


@pytest.mark.parametrize(("x", "why"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused(counted: ModuleType, x: list[float], why: str) -> None:
    out = buffers(2, 1)
    for _ in range(3):
        for more in ({}, {"out": out}):
            with pytest.raises(ValueError, match=f"^forward: {why}$"):
                counted.forward(x, **more)
        assert out[0].tolist() == [[7, 7]] * 2 and out[2].tolist() == [7]
        assert counted.forward([1, 2])[0].tolist() == [[1, 2]] * 2


def test_buffers_of_the_callers(counted: ModuleType) -> None:
    out = buffers(3, 1)
    assert counted.forward(X, out=out) is out
    assert (out[0].tolist(), out[1].item(), out[2].tolist()) == ([[1, 3, 5]] * 2, 9, [0, 1])
    for i, wrong in enumerate((buffers(2, 1)[0], None, buffers(2, 3)[2])):
        if wrong is not None:
            given = [*buffers(3, 1)]
            given[i] = wrong
            expected = r"float32\[2, 3\]" if i == 0 else r"int16\[2\]"
            with pytest.raises(ValueError, match=f"expected a writable {expected} of its own, got"):
                counted.forward(X, out=tuple(given))
            assert given[0].ravel()[0] == 7 and given[2][0] == 7
    shared = np.zeros(64, np.int8)
    overlapping = shared[:24].view(np.float32).reshape(2, 3), np.zeros(()), shared[20:24].view(np.int16)
    with pytest.raises(ValueError, match="one that overlaps another output"):
        counted.forward(X, out=overlapping)
    with pytest.raises(TypeError, match="expected a tuple of 3 buffers"):
        counted.forward(X, out=out[:2])
