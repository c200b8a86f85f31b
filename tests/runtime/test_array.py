"""Array: the module's own result type."""

from __future__ import annotations

import copy
import gc
import re
import weakref
import zlib
from types import ModuleType
from typing import Any

import numpy as np
import pytest


def test_attributes(affine: ModuleType) -> None:
    """Shape, kind and size."""
    y = affine.forward([[1, 2], [3, 4]])
    assert (y.shape, y.dtype, y.ndim, y.size, y.nbytes, len(y)) == ((2, 3), "float32", 2, 6, 24, 2)
    assert repr(affine.forward([0, 0])) == "Array([0.5, 0.25, 0.125], float32)"


def test_indexing(affine: ModuleType) -> None:
    """Ints give numbers or views, which look into the same memory."""
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
    for bad in ((0, 3), (2, 0), 2, -3, (0, 0, 0), (0,) * 9, 2**70, (..., ...), (0, ..., 0, 0)):
        with pytest.raises(IndexError):
            y[bad]
    for wrong in ("a", 1.0, None, (0, "a"), [0], np.array([True, False]), slice("a"), slice(None, None, 1.0)):
        with pytest.raises(TypeError):
            y[wrong]
    with pytest.raises(ValueError, match="step cannot be zero"):
        y[::0]
    with pytest.raises(TypeError, match="nothing of an Array can be deleted"):
        del y[0, 0]
    with pytest.raises(TypeError, match="expected float32, got str"):
        y[0, 0] = "a"


def indices(shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    """An index for an array of some shape: ints, slices with any steps, an ellipsis."""
    ends = [None, 0, 1, -1, *map(int, rng.integers(-9, 9, 4)), 2**70, -(2**70)]
    steps = [None, 1, 2, -1, -2, 3, -(2**63), 2**63]

    def pick(options: list[Any]) -> Any:
        return options[rng.integers(len(options))]

    items = [
        int(rng.integers(-n, n)) if n and rng.random() < 0.3 else slice(pick(ends), pick(ends), pick(steps))
        for n in shape[: rng.integers(0, len(shape) + 1)]
    ]
    if rng.random() < 0.3:
        items.insert(int(rng.integers(len(items) + 1)) if len(items) == len(shape) else len(items), ...)
    return items[0] if len(items) == 1 and rng.random() < 0.5 else tuple(items)


def arrays(affine: ModuleType, fit: ModuleType, cache: ModuleType) -> list[Any]:
    """Dense and strided ones, of all ranks and some dtypes, empty ones too."""
    xs = [np.arange(2.0 * n).reshape(n, 2).astype("f") for n in (7, 1, 0)]
    results = [affine.forward(x) for x in [*xs, [1, 2]]]
    model = fit.Model()
    dense = [affine.pick([[1.0, 2.0, 3.0]] * 4, [0, 1, 2, 0], True)[1], model.parameters["scale"]]
    return [*results, *dense, model.parameters["w"], cache.Model().buffers["half"]]


def test_slices(affine: ModuleType, fit: ModuleType, cache: ModuleType) -> None:
    """Views as NumPy's: the same numbers, strides and memory, by every way in."""
    rng = np.random.default_rng(3)
    for array in arrays(affine, fit, cache):
        for _ in range(200):
            seen, key = np.asarray(array), indices(array.shape, rng)
            view, expected = array[key], seen[key]
            if not isinstance(expected, np.ndarray):
                assert type(view) in (int, float) and view == expected
                continue
            again = indices(expected.shape, rng)
            view, expected = (view[again], expected[again]) if rng.random() < 0.3 else (view, expected)
            if not isinstance(expected, np.ndarray):
                assert view == expected
                continue
            assert (view.shape, view.size, view.nbytes) == (expected.shape, expected.size, expected.nbytes), key
            assert view.tolist() == expected.tolist(), key
            assert np.array_equal(np.asarray(view), expected) and np.shares_memory(np.asarray(view), seen) == bool(
                view.size
            )
            assert np.array_equal(np.from_dlpack(view), expected)
            assert bytes(memoryview(view)) == expected.tobytes()
            assert copy.copy(view).tolist() == expected.tolist()
            contiguous = expected.flags.c_contiguous
            assert memoryview(view).c_contiguous == contiguous or not view.size
            if contiguous:
                assert zlib.crc32(view) == zlib.crc32(expected)
            else:
                with pytest.raises(BufferError):
                    zlib.crc32(view)
            if view.ndim:
                assert [np.asarray(row).tolist() for row in view] == expected.tolist() and len(view) == len(expected)


def test_slices_keep_the_memory_alive(fit: ModuleType) -> None:
    """A slice of a slice holds what it looks into, and nothing between."""
    part = fit.Model().parameters["w"][1:][::-1][:, 1]
    gc.collect()
    spoil = [fit.Model() for _ in range(10)]
    assert part.tolist() == [0.6, 0.5]
    del spoil


def test_assignment(affine: ModuleType, fit: ModuleType, cache: ModuleType) -> None:
    """To any part: a number, an array that broadcasts, a list, a view of the same memory; as NumPy does it."""
    rng = np.random.default_rng(4)
    for array in arrays(affine, fit, cache):
        mirror = np.asarray(array).copy()
        for _ in range(200):
            key = indices(array.shape, rng)
            part = mirror[key]
            drawn = rng.integers(0, 100, np.shape(part)).astype(array.dtype)
            first = drawn[:1] if np.ndim(drawn) and len(drawn) else drawn
            values = [
                7,
                drawn,
                drawn.tolist() if np.size(drawn) else drawn,
                list(drawn) if np.size(drawn) > 1 else 3,
                part[..., ::-1] if np.ndim(part) else part,
                first,
            ]
            value = values[rng.integers(5 if np.ndim(part) else 3) if rng.random() < 0.8 else -1]
            array[key] = value
            mirror[key] = value
            assert array.tolist() == mirror.tolist(), (key, value)
    w = fit.Model().parameters["w"]
    w[1:] = w[:-1]
    assert w.tolist() == [[0.1, 0.4], [0.1, 0.4], [0.2, 0.5]]
    w[:2] = w[0]
    w[..., 1] = np.float32(3)
    w[2, 0] = np.int8(1)
    assert w.tolist() == [[0.1, 3], [0.1, 3], [1, 3]]


WRONG = [
    (np.s_[:], [1, 2], ValueError, "expected float64[3, 2], got a list of 2"),
    (np.s_[:], [[1, 2], [3, 4], [5, "x"]], TypeError, "expected float64, got str"),
    (np.s_[:], [[1, 2], [3, 4], [5]], ValueError, "expected float64[2], got a list of 1"),
    (np.s_[:], [[1, 2], 3, [[4], 5]], ValueError, "expected float64, got a list of 1"),
    (np.s_[0], np.zeros(2, "f"), TypeError, "expected float64[2], got float32[2]"),
    (np.s_[0], np.zeros(3), ValueError, "expected float64[2], got float64[3]"),
    (np.s_[0], np.zeros((1, 2)), ValueError, "expected float64[2], got float64[1, 2]"),
    (np.s_[0], np.zeros((2,) * 20), ValueError, "expected float64[2], got float64[2, 2"),
    (np.s_[0, 0], [1], ValueError, "expected float64, got a list of 1"),
    (np.s_[0, 0], 10**400, ValueError, "integer too large for float64"),
    (np.s_[0, 0], None, TypeError, "expected float64, got NoneType"),
    (np.s_[::2], 1j, TypeError, "expected float64, got complex"),
]


@pytest.mark.parametrize(("key", "value", "error", "message"), WRONG)
def test_refused_assignment(fit: ModuleType, key: Any, value: Any, error: type[Exception], message: str) -> None:
    """It changes nothing."""
    w = fit.Model().parameters["w"]
    before = w.tolist()
    with pytest.raises(error) as info:
        w[key] = value
    assert str(info.value).startswith("Array: item: ") and message in str(info.value)
    assert w.tolist() == before


def test_a_number_too_large_is_not_written(affine: ModuleType) -> None:
    """float32 would hold inf."""
    y = affine.forward([1, 2])
    with pytest.raises(ValueError, match=r"expected float32, got 1e\+300"):
        y[0] = 1e300
    assert y[0] == 9.5


def test_repr(affine: ModuleType, fit: ModuleType, cache: ModuleType) -> None:
    """The fewest digits that tell a number from its neighbours; of many numbers the ends, and the shape."""
    y = affine.forward(np.zeros((1000, 2), "f"))
    assert (
        repr(y) == "Array([[0.5, 0.25, 0.125], [0.5, 0.25, 0.125], ..., [0.5, 0.25, 0.125], [0.5, 0.25, 0.125]], "
        "float32[1000, 3])"
    )
    assert repr(y[:, 0]) == "Array([0.5, 0.5, 0.5, ..., 0.5, 0.5, 0.5], float32[1000])"
    assert repr(y[:2, ::2]) == "Array([[0.5, 0.125], [0.5, 0.125]], float32)"
    assert repr(y[:0]) == "Array([], float32[0, 3])"
    both = "{'w': Array([[0.1, 0.4], [0.2, 0.5], [0.3, 0.6]], float64), 'scale': Array(1.0, float64)}"
    assert str(fit.Model().parameters) == both
    rng = np.random.default_rng(5)
    bits = np.concatenate([rng.integers(0, 2**32, 300, np.uint32), np.arange(20, dtype=np.uint32), [0x7F7FFFFF]])
    floats = bits.astype(np.uint32).view("f")
    part = y[:1, :1][0]
    for number in [*floats[np.isfinite(floats)], *np.float32([0.1, 2.040919, 1e10, -0.0, 16777216, 1e-45])]:
        part[0] = float(number)
        text = repr(part)[len("Array([") : -len("], float32)")]
        assert np.float32(text) == number and len(re.sub(r"e.*|\D", "", text).strip("0")) <= len(
            re.sub(r"e.*|\D", "", np.format_float_scientific(number, unique=True)).strip("0")
        )
    half = cache.Model().buffers["half"]
    half[0] = [0.1, 65504]
    assert repr(half) == "Array([[0.1, 65500.0], [3.0, 4.0]], float16)"


def test_weak_references(affine: ModuleType, fit: ModuleType) -> None:
    """A Model can be referred to weakly."""
    for module in (affine, fit):
        gone: list[str] = []
        model = module.Model()
        reference = weakref.ref(model)
        weakref.finalize(model, gone.append, "gone")
        assert reference() is model
        del model
        gc.collect()
        assert reference() is None and gone == ["gone"]


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
