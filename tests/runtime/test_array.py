"""Array: the module's own result type."""

from __future__ import annotations

import gc
import zlib
from types import ModuleType

import numpy as np
import pytest


def test_attributes(affine: ModuleType) -> None:
    """Shape, kind and size."""
    y = affine.forward([[1, 2], [3, 4]])
    assert (y.shape, y.dtype, y.ndim, y.size, y.nbytes, len(y)) == ((2, 3), "float32", 2, 6, 24, 2)
    assert repr(affine.forward([0, 0])) == "Array([0.5, 0.25, 0.125], float32)"
    assert repr(affine.forward(np.zeros((1000, 2), "f"))) == "Array(float32[1000, 3])"


def test_indexing(affine: ModuleType) -> None:
    """Ints and tuples of ints give numbers or views."""
    y = affine.forward([[1, 2], [3, 4]])
    assert y[1, 2] == 33.125
    assert y[-1, -1] == 33.125
    assert y[0].tolist() == [9.5, 12.25, 15.125]
    assert y[()].tolist() == y.tolist()
    assert [row[0] for row in y] == [9.5, 19.5]
    assert [row[0] for row in reversed(y)] == [19.5, 9.5]
    row = y[1]
    row[0] = 7
    assert y[1, 0] == 7
    y[0, 0] = -1
    assert y.tolist()[0][0] == -1
    for bad in ((0, 3), (2, 0), 2, -3, (0, 0, 0), (0,) * 9, 2**70):
        with pytest.raises(IndexError):
            y[bad]
    for wrong in ("a", 1.0, slice(0, 1), None, (0, "a")):
        with pytest.raises(TypeError):
            y[wrong]
    with pytest.raises(TypeError):
        y[0] = 1
    with pytest.raises(TypeError):
        del y[0, 0]
    with pytest.raises(TypeError, match="expected float32, got str"):
        y[0, 0] = "a"


def test_single_numbers(affine: ModuleType) -> None:
    """float(), int(), bool() and item() of one number."""
    h, _ = affine.pick([6.0], 0, False)
    assert (h.shape, h.item(), float(h), int(h), bool(h), h.tolist(), h[()]) == ((), 6, 6.0, 6, True, 6, 6)
    assert repr(h) == "Array(6.0, float64)"
    for call in (len, iter, list):
        with pytest.raises(TypeError):
            call(h)
    y = affine.forward([1, 2])
    for one in (float, int, bool, lambda a: a.item()):
        with pytest.raises(ValueError, match=r"expected an Array of one number, got float32\[3\]"):
            one(y)


def test_buffer(affine: ModuleType) -> None:
    """memoryview and NumPy share the memory, and keep it alive."""
    y = affine.forward([[1, 2], [3, 4]])
    view = memoryview(y)
    assert (view.format, view.shape, view.strides) == ("f", (2, 3), (12, 4))
    assert view.c_contiguous and not view.readonly
    array = np.asarray(y)
    array[0, 0] = 100
    assert y[0, 0] == 100
    del y, view
    gc.collect()
    assert array.tolist()[0] == [100, 12.25, 15.125]
    assert bytes(affine.forward([0, 0])) == np.array([0.5, 0.25, 0.125], "f").tobytes()


def test_strided_buffer(fit: ModuleType) -> None:
    """Padded and transposed parameters are seen with their strides; contiguous requests are refused."""
    w = fit.parameters["w"]
    view = memoryview(w)
    assert (view.shape, view.strides, view.c_contiguous) == ((3, 2), (8, 32), False)
    assert w.tolist() == [[0.1, 0.4], [0.2, 0.5], [0.3, 0.6]]
    assert w[1].tolist() == [0.2, 0.5]
    assert bytes(view) == np.array([[0.1, 0.4], [0.2, 0.5], [0.3, 0.6]]).tobytes()
    with pytest.raises(BufferError, match="strided"):
        zlib.crc32(w)


def test_views_outlive_models(fit: ModuleType) -> None:
    """A parameter keeps its memory when the Model is gone."""
    w = fit.Model().parameters["w"]
    gc.collect()
    spoil = [fit.Model() for _ in range(10)]
    assert w.tolist() == [[0.1, 0.4], [0.2, 0.5], [0.3, 0.6]]
    del spoil


def test_alignment(affine: ModuleType) -> None:
    """Large results lie on 64-byte boundaries."""
    for n in (22, 100, 1000):
        address = np.asarray(affine.forward(np.zeros((n, 2), "f"))).__array_interface__["data"][0]
        assert address % 64 == 0


def test_dlpack(affine: ModuleType, fit: ModuleType) -> None:
    """np.from_dlpack shares the memory, strides included."""
    y = affine.forward([[1, 2], [3, 4]])
    assert y.__dlpack_device__() == (1, 0)
    array = np.from_dlpack(y)
    assert array.tolist() == y.tolist()
    y[0, 0] = 5
    assert array[0, 0] == 5
    np.testing.assert_array_equal(np.from_dlpack(fit.parameters["w"]), np.asarray(fit.parameters["w"]))
    assert np.from_dlpack(affine.pick([3.0], 0, False)[0]).tolist() == 3
    capsule = affine.forward([1, 2]).__dlpack__()  # never consumed
    del capsule
    assert "dltensor_versioned" in repr(affine.forward([1, 2]).__dlpack__(max_version=(1, 0)))
    with pytest.raises(BufferError):
        affine.forward([1, 2]).__dlpack__(dl_device=(2, 0))
