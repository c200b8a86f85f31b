"""Every dtype that goes in and out, dims that are solved for, and the user's own entries."""

from __future__ import annotations

import array
import ctypes
import math
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mlaot.binding.interface import render_interface
from mlaot.errors import MlaotError
from mlaot.lower.program import Entry, Port

from .kinds import DTYPES, SHAPES, vector

NAMES = [name for name, _, _ in DTYPES.values()]
INTEGERS = [name for name in NAMES if "int" in name]
F = np.float32


def sample(name: str) -> Any:
    """Numbers of a dtype, the extremes among them."""
    if name == "bool":
        return np.array([True, False, True])
    if "int" in name:
        info = np.iinfo(name)
        return np.array([info.min, info.max, 1, 0, 100], name)
    info_f = np.finfo(name)
    return np.array([0, -0.0, 1.5, -2, info_f.max, info_f.tiny, info_f.smallest_subnormal, np.inf, np.nan], name)


@pytest.mark.parametrize("name", NAMES)
def test_dtypes_in_and_out(dtypes: ModuleType, name: str) -> None:
    """Buffers, lists and DLPack carry every dtype to the bit; tolist() gives Python's numbers."""
    x = sample(name)
    y = getattr(dtypes, f"same_{name}")(x)
    assert (y.dtype, y.nbytes, y.shape) == (name, x.nbytes, x.shape)
    assert memoryview(y).format == next(letter for n, _, letter in DTYPES.values() if n == name)
    for seen in (np.asarray(y), np.from_dlpack(y)):
        assert (seen.dtype, seen.tobytes()) == (x.dtype, x.tobytes())
    assert repr(y.tolist()) == repr(x.tolist())
    listed = getattr(dtypes, f"same_{name}")(x.tolist())
    assert np.asarray(listed).view(np.uint8)[: x.itemsize].tobytes() == x[:1].tobytes()
    assert repr(listed.tolist()) == repr(x.tolist())
    assert getattr(dtypes, f"same_{name}")(x[::-1]).tolist()[-1] == x[0]
    assert getattr(dtypes, f"same_{name}")(x[:0]).tolist() == getattr(dtypes, f"same_{name}")([]).tolist() == []
    y[0] = x[2].item()
    assert y[0] == x[2]


@pytest.mark.parametrize("name", NAMES)
def test_scalar_entries(dtypes: ModuleType, name: str) -> None:
    """An entry of the user's own with one number as its result returns a float, an int or a bool."""
    one = getattr(dtypes, f"one_{name}")
    for value in sample(name)[:6]:
        result = one(value)
        assert result == value.item()
        assert type(result) is type(value.item()) is type(one(value.item()))
    with pytest.raises(TypeError, match="unexpected keyword argument 'out'"):
        one(sample(name)[0], out=np.zeros(1))


@pytest.mark.parametrize("name", NAMES)
def test_no_dtype_is_taken_for_another(dtypes: ModuleType, name: str) -> None:
    """The message names both."""
    for other in NAMES:
        if other != name:
            with pytest.raises(TypeError) as info:
                getattr(dtypes, f"same_{name}")(np.zeros(2, other))
            is_sure = name.startswith("float") or not other.startswith("float")
            mend = f"; pass x.astype('{name}')" if is_sure else ""
            assert str(info.value) == f"same_{name}: x: expected {name}[n], got {other}[2]{mend}"
            with pytest.raises(TypeError, match=f"same_{name}: out: expected a writable {name}"):
                getattr(dtypes, f"same_{name}")(sample(name), out=np.zeros(sample(name).size, other))


def test_buffer_letters(dtypes: ModuleType) -> None:
    """Letters of native size, and standard ones with a prefix."""
    for letter in "hHiIlLqQfdbB":
        values = array.array(letter, [1, 2, 3])
        kind = "float" if letter in "fd" else "int" if letter.islower() else "uint"
        name = f"{kind}{8 * values.itemsize}"
        assert getattr(dtypes, f"same_{name}")(values).tolist() == [1, 2, 3]
    for c_type in (ctypes.c_int8, ctypes.c_uint16, ctypes.c_long, ctypes.c_ulonglong, ctypes.c_float, ctypes.c_bool):
        view = memoryview((c_type * 2)(1, 1))  # in the form "<h"
        letter = view.format[1:]
        kind = {"f": "float", "?": "bool"}.get(letter, "int" if letter.islower() else "uint")
        name = kind if kind == "bool" else f"{kind}{8 * view.itemsize}"
        assert getattr(dtypes, f"same_{name}")(view).tolist() == [1, 1]
    assert dtypes.same_int16(memoryview(bytes([1, 0, 2, 0])).cast("@h")).tolist() == [1, 2]
    with pytest.raises(TypeError, match=r"same_uint16: x: expected uint16\[n\], got big-endian uint16\[2\]"):
        dtypes.same_uint16(np.zeros(2, ">u2"))


@pytest.mark.parametrize("name", INTEGERS)
def test_integer_ranges(dtypes: ModuleType, name: str) -> None:
    """Lists hold integers in range only; labels are checked in every integer type."""
    info = np.iinfo(name)
    for wrong in (info.min - 1, info.max + 1, 2**64, -(2**63) - 1, 2**200):
        with pytest.raises(ValueError) as error:
            getattr(dtypes, f"same_{name}")([0, wrong])
        assert str(error.value) == f"same_{name}: x: expected {name}, got {wrong}"
    for other in (1.0, "1", None):
        with pytest.raises(TypeError, match=f"same_{name}: x: expected {name}, got"):
            getattr(dtypes, f"same_{name}")([0, other])
    rest = getattr(dtypes, f"rest_{name}")
    assert rest([0, 1, 2]).tolist() == [0, 1, 2]
    for bad in {info.min or 3, info.max, 3}:
        with pytest.raises(ValueError, match=rf"rest_{name}: x\[\d\]: expected values from 0 to 2, got {bad}"):
            rest(np.array([0, bad], name))


def test_float_ranges(dtypes: ModuleType) -> None:
    """A finite number beyond a format's range is refused; rounding goes to the nearest, halves to even."""
    for name, wrong in (("float16", 65520.0), ("float16", -1e300), ("float32", 1e39), ("float32", 2**128)):
        with pytest.raises(ValueError) as error:
            getattr(dtypes, f"same_{name}")([wrong])
        assert str(error.value) == f"same_{name}: x: expected {name}, got {wrong}"
    assert dtypes.same_float16([math.inf, -math.inf]).tolist() == [math.inf, -math.inf]
    assert math.isnan(dtypes.same_float16([math.nan])[0])
    rng = np.random.default_rng(0)
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    halves = halves[np.isfinite(halves)]
    doubles = halves.astype(np.float64)
    between = (np.sort(doubles)[:-1] + np.sort(doubles)[1:]) / 2
    near = rng.normal(size=2000) * 2.0 ** rng.integers(-30, 15, 2000)
    values = np.concatenate([doubles, between, np.nextafter(between, 1), np.nextafter(between, -1), near])
    np.testing.assert_array_equal(np.asarray(dtypes.same_float16(values.tolist())), values.astype(np.float16))


def test_several_dims(shapes: ModuleType) -> None:
    """Inputs must agree on each dim by itself."""
    assert shapes.dot([1, 2, 3], [4, 5, 6]) == 32
    x, y = np.zeros(4, F), np.zeros(3, F)
    with pytest.raises(ValueError, match=r"^dot: y: n is 3 here, but 4 in x$"):
        shapes.dot(x, y)
    assert shapes.tail(x, y).shape == (1,)


def test_solved_dims(shapes: ModuleType) -> None:
    """A dim that stands only in an expression is solved for; one that is known is checked."""
    assert shapes.odd([9, 1, 9, 2, 9]).tolist() == [1, 2]
    assert shapes.odd([9]).tolist() == []
    assert shapes.both([1, 1, 1, 1, 1], [1, 2]).tolist() == [2, 3, 1, 1, 1]
    assert shapes.join([1, 2, 3, 4, 5], [0, 0]).tolist() == [3, 4, 5]
    assert shapes.grid([1, 2, 3, 4, 5, 6], [10, 20]).tolist() == [[11, 12, 13], [24, 25, 26]]
    assert shapes.trace(np.arange(9, dtype=F).reshape(3, 3)) == 12
    assert shapes.cut([[1, 2, 3], [4, 5, 6]]).tolist() == [[1, 2], [4, 5]]
    assert shapes.cut([1, 2, 3]).tolist() == [1, 2]  # without the batch axis


BAD_EXTENTS: list[tuple[Callable[[Any], object], str]] = [
    (lambda m: m.odd([1, 2, 3, 4]), "odd: x: expected an extent of 2 * n + 1, got 4"),
    (lambda m: m.odd([]), "odd: x: expected an extent of 2 * n + 1, got 0"),
    (lambda m: m.odd([[1]]), "odd: x: expected float32[2 * n + 1], got list[1, 1]"),
    (lambda m: m.both([1] * 8, [1, 2, 3]), "both: y: expected an extent of 2 * n + 1 = 7, got 8"),
    (lambda m: m.join([1], [1, 2]), "join: x: expected an extent of m + n, got 1"),
    (lambda m: m.grid([1] * 5, [1, 2]), "grid: x: expected an extent of m * n, got 5"),
    (lambda m: m.grid([], []), "grid: x: expected an extent of m * n that tells m, got 0"),
    (lambda m: m.grid([1], []), "grid: x: expected an extent of m * n, got 1"),
    (lambda m: m.trace(np.zeros((2, 3), F)), "trace: x: n is 3 here, but 2 in x"),
    (lambda m: m.windows([1]), "windows: expected n of at least 2, got 1"),
    (lambda m: m.tail([1], [1, 2, 3]), "tail: expected n - m of at least 0, got -2"),
    (lambda m: m.inner([1, 2, 3, 4]), "inner: expected n of at least 5, got 4"),
    (lambda m: m.cut(np.zeros((2, 0), F)), "cut: x: expected an extent of n + 1, got 0"),
    (lambda m: m.loss(np.zeros((0, 2), F)), "loss: expected batch of at least 1, got 0"),
    (lambda m: m.loss(np.zeros((2, 0), F)), "loss: expected n of at least 1, got 0"),
]


@pytest.mark.parametrize(("call", "message"), BAD_EXTENTS)
def test_bad_extents(shapes: ModuleType, call: Callable[[Any], object], message: str) -> None:
    """The message names the expression and both numbers, or the dim and the least that works."""
    with pytest.raises(ValueError) as info:
        call(shapes)
    assert str(info.value) == message


def test_empty_dims(shapes: ModuleType) -> None:
    """Dims of size 0: a sum over nothing is 0, and what is empty stays empty."""
    assert shapes.dot([], []) == 0
    assert shapes.trace(np.zeros((0, 0), F)) == 0
    assert shapes.forward(np.zeros((0, 2), F)).item() == 0
    assert shapes.Forward(np.zeros((0, 2), F)).shape == (0, 2)
    assert shapes.tail([1, 2], []).tolist() == [1, 2]
    assert shapes.tail([1, 2], [1, 2]).tolist() == []
    assert [part.tolist() for part in shapes.windows([1, 2])] == [[], []]
    assert [part.tolist() for part in shapes.windows([1, 2, 4])] == [[7], [7]]
    assert shapes.grid([], [1, 2]).shape == (2, 0)
    total, y, negative = shapes.three([])
    assert (total, y.tolist(), negative.tolist()) == (0, [], [])
    assert shapes.inner(np.arange(5, dtype=F)) == 0


def test_huge_dims(shapes: ModuleType) -> None:
    """Expressions of dims beyond all memory do not overflow."""
    none = np.lib.stride_tricks.as_strided(np.zeros(1, F), (2**30,), (0,))[: 2**20]
    for n in (2**14, 2**20):
        with pytest.raises(MemoryError):
            shapes.power(none[:n], none)
    assert shapes.power(none[:4], none[:2]).shape == (128, 0)


def test_entries_of_the_user(shapes: ModuleType) -> None:
    """Any number of entries, of any types, whose names may differ by case only."""
    total, y, negative = shapes.three([1, -2, 3])
    assert (total, type(total), y.tolist(), negative.tolist()) == (2, int, [-1, 2, -3], [False, True, False])
    assert shapes.Model().three(np.array([5], np.int32))[0] == 5
    assert shapes.largest(np.array([1, 2**64 - 1], np.uint64)) == 2**64 - 1
    assert shapes.any_of([False, True]) is True
    assert (shapes.answer(), type(shapes.answer())) == (42, int)
    assert type(shapes.forward([[1, 2]])) is shapes.Array  # forward's result is always an Array
    np.testing.assert_array_equal(shapes.Forward(np.ones((11, 2), F)), np.full((11, 2), 10, F))
    outs = np.zeros((), np.int64), np.zeros(1, np.int32), np.zeros(1, bool)
    assert shapes.three([-3], out=outs) is outs
    assert outs[0] == -3 and outs[2][0]


def test_shape_info(shapes: ModuleType) -> None:
    """info() and docstrings write expressions as Python does."""
    info = shapes.info()
    assert info["dims"] == ["batch", "m", "n"]
    assert info["entries"]["odd"] == {"inputs": {"x": "float32[2 * n + 1]"}, "outputs": {"y": "float32[n]"}}
    outputs = info["entries"]["windows"]["outputs"]
    assert outputs == {"y": "float32[n - 2]", "z": "float32[(n + 1) // 2 - 1]"}
    assert shapes.odd.__doc__ == "x: float32[2 * n + 1] -> y: float32[n]"
    assert shapes.answer.__doc__ == "-> y: int32"
    assert (info["parameters"], info["buffers"]) == ({}, {})


def refused(*entries: Entry) -> str:
    """Why a module with these entries cannot be made."""
    with pytest.raises(MlaotError) as info:
        render_interface(replace(SHAPES, entries=entries))
    return str(info.value)


def test_refused_modules() -> None:
    """Names that cannot be, and dims that no input tells."""
    y = vector("y", 2)
    for name in ("buffers", "Array", "save", "int", "Sequence"):
        assert f"an entry cannot be called '{name}'" in refused(Entry(name, (), (y,), "0", "0"))
    for name in ("class", "größe", "__doc__", "a-b"):
        assert "expected an identifier of ASCII letters" in refused(Entry(name, (), (y,), "0", "0"))
    half = Entry("f", (vector("x", "n / 2"),), (y,), "0", "0")
    assert refused(half) == (
        "f: expected inputs whose shapes give n, got n // 2 as axis 0 of x, which does not; "
        "add an input with an axis of that dimension alone"
    )
    for shape in ("n * n", "n + m", "n * m"):
        assert "expected inputs whose shapes give" in refused(replace(half, inputs=(vector("x", shape),)))
    assert "several entries lead to a kernel called 'f'" in refused(
        replace(half, inputs=()), replace(half, inputs=(Port("z", "f32", ("n",)),))
    )
    for name in ("out", "self", "module"):
        assert f"cannot be called '{name}'" in refused(replace(half, inputs=(vector(name, "n"),)))
