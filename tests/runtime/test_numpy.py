"""NumPy's arrays, which a compiled module reads where they lie, without their buffers."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

W = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
B = np.array([0.5, 0.25, 0.125], np.float32)
X = np.arange(10, dtype=np.float32).reshape(5, 2)
NOTES = 80  # where a NumPy from 1.20 on keeps what it wrote down for buffers of an array, in bytes from its start
HAS_NOTES = sys.maxsize > 2**32 and np.lib.NumpyVersion(np.__version__) >= "1.20.0"


def has_notes(x: np.ndarray) -> bool:
    """Whether a buffer of the array was ever asked for."""
    return ctypes.c_void_p.from_address(id(x) + NOTES).value not in (None, 2)  # 2: NumPy's tag of an empty list


@pytest.mark.skipif(not HAS_NOTES, reason="where NumPy keeps its notes is known for 64 bits and 1.20 only")
def test_no_buffer_is_asked_for(affine: ModuleType) -> None:
    """Once the module has seen an array it asks the later ones for nothing."""
    affine.forward(X)
    x = X.copy()
    assert not has_notes(x)
    np.testing.assert_array_equal(affine.forward(x), X @ W + B)
    assert not has_notes(x)
    assert x.data is not None
    assert has_notes(x)


class Own(np.ndarray[Any, Any]):
    """An array of a class of its own."""


@pytest.mark.parametrize(
    "make",
    [
        lambda: X.view(Own),
        lambda: np.ma.masked_array(X),
        lambda: X.astype(np.dtype(np.float32, metadata={"unit": "m"})),
        lambda: X.data,
        lambda: np.array(X[0]),
        lambda: X[::-2, ::-1],
        lambda: np.lib.stride_tricks.sliding_window_view(X.ravel(), 2),
        lambda: np.frombuffer(X.tobytes(), np.float32).reshape(5, 2),  # read-only
    ],
)
def test_all_kinds(affine: ModuleType, make: Callable[[], Any]) -> None:
    """Whatever is no plain array of the plain dtype goes through its buffer; the answer is the same."""
    affine.forward(X)
    x = make()
    np.testing.assert_array_equal(affine.forward(x), np.asarray(x) @ W + B)


def test_references(affine: ModuleType) -> None:
    """A call holds its arrays while it lasts and no longer, whether it succeeds or not."""
    x, wrong = X.copy(), np.zeros((2, 3), np.float32)
    affine.forward(x)
    counts = [sys.getrefcount(x), sys.getrefcount(wrong)]
    for _ in range(10):
        affine.forward(x, out=np.empty((5, 3), np.float32))
        with pytest.raises(ValueError, match=r"got float32\[2, 3\]"):
            affine.forward(wrong)
        with pytest.raises(TypeError, match="takes 1 positional"):
            affine.forward(x, x)
        with pytest.raises(TypeError, match="expected int64"):
            affine.pick(np.zeros((1, 3)), x, True)
    assert [sys.getrefcount(x), sys.getrefcount(wrong)] == counts


def test_overlap(affine: ModuleType) -> None:
    """``out`` must not overlap an array that is read in place."""
    memory = np.zeros(30, np.float32)
    affine.forward(X)
    with pytest.raises(ValueError, match="one that overlaps an input"):
        affine.forward(memory[:10].reshape(5, 2), out=memory[8:23].reshape(5, 3))


class Reshapes:
    """A number whose conversion gives an array another shape."""

    def __init__(self, x: np.ndarray) -> None:
        self.x = x

    def __float__(self) -> float:
        self.x.shape = (1, 1, 1, 1, 3)
        self.others = [np.empty(1) for _ in range(1000)]  # where the old shape was
        return 0.25


@pytest.mark.filterwarnings("ignore:Setting the shape:DeprecationWarning")
def test_an_array_that_changes_its_shape(fit: ModuleType) -> None:
    """What a call has seen of an array stays, even if code that it runs for another argument changes the array."""
    numbers = [3.0, 2.0, 1.0]
    expected = fit.Model().train_step(numbers, 1, lr=0.25)
    fit.train_step(np.array(numbers), 1)
    x = np.array(numbers[::-1])[::-1]
    assert fit.Model().train_step(x, 1, lr=Reshapes(x)) == expected
    assert x.shape == (1, 1, 1, 1, 3)


def test_numpy_may_come_later(libraries: dict[str, Path]) -> None:
    """A module that served other buffers takes arrays from the first one on, and NumPy is not imported for it."""
    code = f"""
import sys
sys.path.insert(0, {str(libraries["affine"].parent)!r})
import affine, array
x = array.array("f", [1, 2])
first = [affine.forward(x).tolist() for _ in range(3)]
assert "numpy" not in sys.modules
import numpy
for _ in range(3):
    first.append(affine.forward(numpy.array([1, 2], "f")).tolist())
    first.append(affine.forward(x).tolist())
assert first == [[9.5, 12.25, 15.125]] * 9, first
del affine, sys.modules["affine"]
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_no_numpy_that_is_another(libraries: dict[str, Path]) -> None:
    """A module that only calls itself numpy, or a NumPy of a later major version, is left to its buffers."""
    code = f"""
import sys, types
sys.path.insert(0, {str(libraries["affine"].parent)!r})
import numpy
import affine
x = numpy.array([1, 2], "f")
fake = types.ModuleType("numpy")
sys.modules["numpy"] = fake
assert affine.forward(x).tolist() == [9.5, 12.25, 15.125]
fake.ndarray, fake.__version__ = type(x), "3.0.0"
fake.dtype = lambda name: 1 / 0
assert affine.Model().forward(x).tolist() == [9.5, 12.25, 15.125]
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
