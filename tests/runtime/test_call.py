"""Calls of a compiled module: what goes in, what comes out, and what is refused."""

from __future__ import annotations

import array
import collections
import ctypes
import inspect
import re
import struct
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from . import models

W = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
B = np.array([0.5, 0.25, 0.125], np.float32)
X = np.arange(10, dtype=np.float32).reshape(5, 2)


def test_forward_takes_any_buffer(affine: ModuleType) -> None:
    """array, memoryview, bytes views, ctypes and NumPy give the same answer."""
    x = array.array("f", [1, 2])
    expected = [9.5, 12.25, 15.125]
    assert affine.forward(x).tolist() == expected
    assert affine.forward(memoryview(x)).tolist() == expected
    assert affine.forward(memoryview(struct.pack("2f", 1, 2)).cast("f")).tolist() == expected
    assert affine.forward(np.array([1, 2], np.float32)).tolist() == expected
    assert affine.forward((ctypes.c_float * 2)(1, 2)).tolist() == expected
    rows = ((ctypes.c_float * 2) * 1)((ctypes.c_float * 2)(1, 2))
    assert affine.forward(rows).tolist() == [expected]
    assert affine.forward(x=x).tolist() == expected


def test_arrays_of_its_own(affine: ModuleType, libraries: dict[str, Path]) -> None:
    """Read where they lie, as NumPy's are; views, those of other modules, other numbers and shapes as any buffer."""
    rows = affine.take(X, np.zeros(5, np.int16))[0]
    assert isinstance(rows, affine.Array)
    np.testing.assert_array_equal(affine.forward(rows), X @ W + B)
    np.testing.assert_array_equal(affine.forward(rows[::-2]), X[::-2] @ W + B)
    np.testing.assert_array_equal(affine.forward(rows[1:1]), np.empty((0, 3), np.float32))
    assert affine.forward(rows[3]).tolist() == affine.forward(X[3]).tolist()
    for other in (models.load(libraries["affine"]).forward, affine.Model().forward):
        np.testing.assert_array_equal(other(rows), X @ W + B)
    with pytest.raises(TypeError, match=r"forward: x: expected float32\[batch, 2\], got int16\[5\]; pass x\.tolist"):
        affine.forward(affine.take(X, np.zeros(5, np.int16))[1])
    with pytest.raises(ValueError, match=r"forward: x: expected float32\[batch, 2\], got float32\[5, 3\]"):
        affine.forward(affine.forward(X))
    with pytest.raises(ValueError, match=r"slow: out: .* got one that overlaps an input"):
        affine.slow(rows, out=rows)


def test_forward_takes_numbers(affine: ModuleType) -> None:
    """Lists and tuples of numbers are converted; integers stay exact."""
    assert affine.forward([1, 2.0]).tolist() == [9.5, 12.25, 15.125]
    assert affine.forward(((1, 2), [3, 4])).tolist() == affine.forward(np.array([[1, 2], [3, 4]], "f")).tolist()
    assert affine.forward([np.float32(1), True]).shape == (3,)
    assert affine.half([1, 2, np.int64(4)]) == 3
    assert affine.half((2**31 - 1, -(2**31), 5)) == 2


def test_batch_axis(affine: ModuleType) -> None:
    """A missing batch axis means one example, and the result lacks it too."""
    assert affine.forward(X[0]).shape == (3,)
    assert affine.forward(X[:1]).shape == (1, 3)
    np.testing.assert_array_equal(affine.forward(X), X @ W + B)
    picked, narrow = affine.pick([1.0, 2.0, 3.0], 2, False)
    assert (picked.shape, picked.item(), narrow.tolist()) == ((), 3.0, [2, 3])
    picked, narrow = affine.pick([[1.0, 2.0, 3.0]], 2, True)  # one axis is enough to say that there is a batch
    assert (picked.tolist(), narrow.tolist()) == ([-3.0], [[2, 3]])


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[::2],
        lambda x: x[::-1],
        lambda x: x[:, ::-1],
        lambda x: x.T.copy().T,
        lambda x: np.broadcast_to(x[0], (5, 2)),
        lambda x: np.broadcast_to(x[:, :1], (5, 2)),
        lambda x: np.asfortranarray(x),
        lambda x: np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(5, 2),
        lambda x: x[3:3],
        lambda x: x[2:3, ::-1],
    ],
)
def test_any_strides(affine: ModuleType, view: Callable[[Any], Any]) -> None:
    """Strided, reversed, broadcast, misaligned and empty views are read as NumPy reads them."""
    x = view(X)
    np.testing.assert_array_equal(affine.forward(x), x @ W + B)


def test_large_strided(affine: ModuleType) -> None:
    """A gather copy larger than the stack's scratch, next to a workspace."""
    x = np.arange(40000, dtype=np.float32).reshape(20000, 2)[::-2]
    np.testing.assert_array_equal(affine.forward(x), x @ W + B)


def test_empty_batch(affine: ModuleType) -> None:
    """No rows in, no rows out."""
    result = affine.forward(np.empty((0, 2), np.float32))
    assert (result.shape, result.tolist(), len(result)) == ((0, 3), [], 0)
    picked, narrow = affine.pick(np.empty((0, 7)), np.empty(0, np.int64), False)
    assert (picked.shape, narrow.shape) == ((0,), (0, 2))
    picked, narrow = affine.pick(np.empty((0, 0)), np.empty(0, np.int64), False)
    assert (picked.shape, narrow.shape) == ((0,), (0, 2))


class Tensor:
    """What makes an array of itself, as tensors do."""

    def __init__(self, array: Any = ((1.0, 2.0), (3.0, 4.0))) -> None:
        self.array = array if isinstance(array, str) else np.asarray(array)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.array if dtype is None else self.array.astype(dtype)


class Frame(Tensor):
    """And as DataFrames do."""

    def to_numpy(self) -> Any:
        return self.array


BAD_TYPES = [
    (np.zeros((10, 784)), "forward: x: expected float32[batch, 2], got float64[10, 784]; pass x.astype('float32')"),
    (np.zeros((1, 2), np.int32), "got int32[1, 2]; pass x.astype('float32')"),
    (np.zeros((1, 2), np.uint32), "got uint32[1, 2]; pass x.astype('float32')"),
    (np.zeros((1, 2), np.int64), "got int64[1, 2]; pass x.astype('float32')"),
    (np.zeros((1, 2), np.float16), "got float16[1, 2]; pass x.astype('float32')"),
    (np.zeros((1, 2), np.complex64), "got buffer format 'Zf'[1, 2]"),
    (np.zeros((1, 2), ">f4"), "got big-endian float32[1, 2]; pass x.astype('float32')"),
    (np.zeros(2, [("a", "f4")]), "got buffer format 'T{f:a:}'[2]"),
    (array.array("d", [1, 2]), "got float64[2]; pass x.tolist(), whose numbers are converted"),
    (memoryview(array.array("i", [1, 2])), "got int32[2]; pass x.tolist(), whose numbers are converted"),
    (b"12345678", "got uint8[8]"),
    (np.float32(3), "got float32"),
    ("12", "got str"),
    (None, "got NoneType"),
    (1.5, "got float"),
    (object(), "got object"),
    ({1: 2}, "got dict"),
    (range(2), "got range; pass list(x)"),
    (collections.deque([1, 2]), "got deque; pass list(x)"),
    (Frame(), "got Frame; pass x.to_numpy().astype('float32')"),
    (Tensor(), "got Tensor; pass numpy.asarray(x, 'float32')"),
    ([np.zeros(2, "f")], "got a list of arrays; pass numpy.stack(x)"),
    ((np.zeros(2), np.zeros(2)), "got a list of arrays; pass numpy.stack(x)"),
    ([[memoryview(b"12")]], "got a list of arrays; pass numpy.stack(x)"),
    ([b"1", b"2"], "forward: x: expected float32, got bytes"),
    (iter([1, 2]), "got list_iterator"),
    ([1, "2"], "forward: x: expected float32, got str"),
    ([None, 1], "expected float32, got NoneType"),
    ([1j, 1], "expected float32, got complex"),
]


@pytest.mark.parametrize(("x", "message"), BAD_TYPES)
def test_wrong_type(affine: ModuleType, x: object, message: str) -> None:
    """Nothing is cast in silence: the message names the argument, what was expected and what came."""
    with pytest.raises((TypeError, ValueError)) as info:
        affine.forward(x)
    assert str(info.value).endswith(message)
    assert isinstance(info.value, ValueError if isinstance(x, np.float32) else TypeError)
    if "; pass " not in message:
        return
    mended = eval(message.partition("; pass ")[2].partition(", whose")[0], {"x": x, "numpy": np})
    try:  # what it says is taken, where the shape is right
        affine.forward(mended)
    except ValueError as error:
        assert "expected float32[batch, 2], got float32[" in str(error)
    except TypeError as error:  # there may be more to mend
        assert re.search(r"got (float64|uint8)\[.*\]; pass x\.astype", str(error))


def test_numbers_among_several_results(affine: ModuleType) -> None:
    """Results without axes are Python numbers, alone or among others, in a tuple or in a dict; `out=` gets arrays."""
    several, named = affine.several([1, 2, 6]), affine.named([1, 2, 6])
    assert type(several) is tuple and type(named) is dict and list(named) == ["total", "n2", "mean", "odd"]
    for total, n, mean, odd in (several, named.values()):
        assert (total, n.tolist(), mean, odd) == (9, [1, 2, 6], 3.0, True)
        assert (type(total), type(n), type(mean), type(odd)) == (int, affine.Array, float, bool)
    out = np.zeros((), np.int32), np.zeros(3, np.int32), np.zeros(()), np.zeros((), bool)
    assert affine.several([3, 3, 3], out=out) is out and out[0] == 9 and out[2] == 3 and out[3]
    given = dict(zip(named, out, strict=True))
    assert affine.named([0, 1, 2], out=given) is given and [x.tolist() for x in out] == [3, [0, 1, 2], 1, False]


LOSSY = [
    (lambda m: m.half(np.zeros(3)), "half: n: expected int32[3], got float64[3]"),
    (lambda m: m.half(array.array("d", [1, 2, 3])), "half: n: expected int32[3], got float64[3]"),
    (lambda m: m.half(np.zeros(3, np.int64)), "half: n: expected int32[3], got int64[3]; pass n.astype('int32')"),
    (lambda m: m.half(np.zeros(3, bool)), "half: n: expected int32[3], got bool[3]; pass n.astype('int32')"),
]


@pytest.mark.parametrize(("call", "message"), LOSSY)
def test_nobody_is_told_to_cut_off_digits(affine: ModuleType, call: Callable[[Any], Any], message: str) -> None:
    """An integer is no better float, and 0.5 no integer."""
    with pytest.raises(TypeError) as info:
        call(affine)
    assert str(info.value) == message


KINDS = ("float16", "float32", "float64", *(f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)), "bool")


@pytest.mark.parametrize("kind", KINDS)
def test_converted_arrays(affine: ModuleType, kind: str) -> None:
    """An input that converts takes all numbers, in all forms of arrays, and rounds as NumPy does."""
    rng = np.random.default_rng(6)
    values = (
        rng.normal(size=(40, 8)) if kind.startswith("f") else rng.integers(0, 2 if kind == "bool" else 127, (40, 8))
    )
    for x in (forms := values.astype(kind))[:, 3:5], forms[::-2, :2], forms[3, 6:], forms[:0, :2], forms.T[:2].T:
        n = np.zeros(x.shape[:-1], np.int16)
        for given in (x, np.ascontiguousarray(x), memoryview(x), Tensor(x)):
            y, _ = affine.take(given, n)
            assert y.shape == x.shape and y.tolist() == x.astype("f").tolist()
        out = np.empty_like(n, "f", shape=x.shape), np.empty_like(n)
        affine.take(x, n, out=out)
        assert out[0].tolist() == x.astype("f").tolist()
    if kind in ("int64", "uint64"):
        large = np.iinfo(kind).max
        assert affine.take(np.full((1, 2), large), [0])[0].tolist() == [[float(large)] * 2]


def test_what_is_not_converted(affine: ModuleType) -> None:
    """What would not come out as the number it was: too large ones, fractions for integers, no numbers at all."""
    n = np.zeros(1, np.int16)
    for x, wrong in (
        (np.array([[1, 1e300]]), ValueError),
        (np.array([[1, "2"]]), TypeError),
        (np.array([[1, 2]], object), TypeError),
        (np.array([[1, 2j]]), TypeError),
        (np.zeros((1, 3)), ValueError),
        (Tensor(np.zeros((1, 3))), ValueError),
        (Tensor("no array"), TypeError),
    ):
        with pytest.raises(wrong, match=r"^take: x: expected float32"):
            affine.take(x, n)
    assert affine.take([[np.inf, np.nan]], n)[0].tolist()[0][0] == np.inf
    assert affine.take(np.array([[np.inf, -np.inf]]), n)[0].tolist() == [[np.inf, -np.inf]]
    x = np.zeros((3, 2), "f")
    for kind in KINDS[3:]:
        assert affine.take(x, np.array([0, 1, 1], kind))[1].tolist() == [0, 1, 1]
    for given, wrong in (
        (np.zeros(3), TypeError),
        (np.array([0, 0, 2**15]), ValueError),
        ([0, 0, 2**64 - 1], ValueError),
    ):
        with pytest.raises(wrong, match=r"^take: n: expected int16"):
            affine.take(x, given)
    with pytest.raises(ValueError, match=r"^take: n: expected int16, got 18446744073709551615$"):
        affine.take(x, np.array([0, 0, 2**64 - 1], np.uint64))


BAD_VALUES = [
    (np.zeros(3, "f"), "forward: x: expected float32[batch, 2], got float32[3]"),
    (np.zeros((2, 3), "f"), "got float32[2, 3]"),
    (np.zeros((1, 1, 2), "f"), "got float32[1, 1, 2]"),
    (np.zeros((1,) * 20, "f"), "got float32[1, 1, 1"),
    ([1, 2, 3], "got list[3]"),
    ([], "got list[0]"),
    ([[1, 2], [3]], "lists of unequal length"),
    ([[1, 2], 3], "lists of unequal length"),
    ([[[1, 2]]], "lists nested too deep"),
    ([10**400, 1], "integer too large for float32"),
    (np.broadcast_to(np.float32(1), (2**40 + 1, 2)), "batch is too large"),
    (np.broadcast_to(np.float32(1), (2**40, 2)), "a broadcast view of 8796093022208 bytes"),
    (np.broadcast_to(np.float32(1), (2**29, 2)), "a broadcast view of 4294967296 bytes"),
]


@pytest.mark.parametrize(("x", "message"), BAD_VALUES)
def test_wrong_value(affine: ModuleType, x: object, message: str) -> None:
    """Shapes that do not fit, and views that would blow up."""
    with pytest.raises(ValueError) as info:
        affine.forward(x)
    assert message in str(info.value)


def test_self_containing_list(affine: ModuleType) -> None:
    """A list inside itself ends."""
    x: list[Any] = []
    x.append(x)
    with pytest.raises(ValueError, match="nested too deep"):
        affine.forward(x)


def test_integers_are_exact(affine: ModuleType) -> None:
    """Integer ports take integers in range only, bool ports only bools."""
    for wrong, error in (
        ([1, 2, 3.0], "half: n: expected int32, got float"),
        ([1, 2, 2**31], "half: n: expected int32, got 2147483648"),
        ([1, 2, 2**80], "half: n: expected int32, got 1208925819614629174706176"),
    ):
        with pytest.raises((TypeError, ValueError)) as info:
            affine.half(wrong)
        assert str(info.value) == error
    for flag in (1, 0.0, "x", None):
        with pytest.raises(TypeError, match="pick: flag: expected bool"):
            affine.pick([1.0], 0, flag)


def test_labels_are_checked(affine: ModuleType) -> None:
    """Indices out of range are refused before the kernel sees them."""
    for index in (4, -1, 2**62, np.array(4, np.int64)):
        with pytest.raises(ValueError, match=r"pick: index: expected values from 0 to 3, got"):
            affine.pick(np.ones(4), index, False)
    with pytest.raises(ValueError, match=r"pick: index\[2\]: expected values from 0 to 3, got -7"):
        affine.pick(np.ones((3, 4)), array.array("q", [0, 1, -7]), False)


def test_dims_agree(affine: ModuleType) -> None:
    """A named dim has one value in a call."""
    with pytest.raises(ValueError, match=r"^pick: index: batch is 3 here, but 2 in table$"):
        affine.pick(np.ones((2, 4)), [1, 2, 3], False)


def test_arguments(affine: ModuleType) -> None:
    """Missing, doubled and unknown arguments."""
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: affine.forward(), r"forward\(\) is missing argument 'x'"),
        (lambda: affine.forward(X, X), r"forward\(\) takes 1 positional arguments, got 2"),
        (lambda: affine.forward(X, x=X), r"forward\(\) got more than one argument 'x'"),
        (lambda: affine.forward(X, y=X), r"forward\(\) got an unexpected keyword argument 'y'"),
        (lambda: affine.Model(1), r"Model\(\) takes no arguments"),
        (lambda: affine.Model(x=1), r"Model\(\) takes no arguments"),
        (lambda: affine.Array(), r"cannot create .*Array"),
    ]
    for call, message in cases:
        with pytest.raises(TypeError, match=message):
            call()


def test_frozen_modules_have_no_state(affine: ModuleType) -> None:
    """Nothing to load into; a pickle with a state, of a module that has one, is refused in one line."""
    for name in ("load", "save", "parameters"):
        assert not hasattr(affine, name) and not hasattr(affine.Model, name)
    message = (
        r"^the weights of shop\.affine are frozen; for others build it with frozen = false in its table "
        r"\[tool\.mlaot\.models\.<name>\]$"
    )
    with pytest.raises(TypeError, match=message):
        affine.Model().__setstate__(b"weights")


def test_out(affine: ModuleType) -> None:
    """out= is written and returned; None means no out."""
    y = np.empty((5, 3), np.float32)
    assert affine.forward(X, out=y) is y
    np.testing.assert_array_equal(y, X @ W + B)
    one = array.array("f", [0, 0, 0])
    assert affine.forward([1, 2], out=one) is one
    assert list(one) == [9.5, 12.25, 15.125]
    assert affine.forward([1, 2], out=None).shape == (3,)
    result = affine.forward([1, 2])
    assert affine.forward([0, 0], out=result).tolist() == [0.5, 0.25, 0.125]
    pair = (np.empty(2), np.empty((2, 2), np.uint8))
    assert affine.pick(np.eye(4)[:2], [0, 1], False, out=pair) is pair
    assert pair[0].tolist() == [1, 1]


def test_wrong_out(affine: ModuleType) -> None:
    """An out= that cannot be written as it stands is refused, and nothing is written."""
    read_only = np.zeros((5, 3), np.float32)
    read_only.flags.writeable = False
    memory = np.zeros(25, np.float32)
    shared = memory[:10].reshape(5, 2)
    for out, error, message in (
        (np.zeros((5, 3)), TypeError, "forward: out: expected a writable float32[5, 3] of its own, got float64[5, 3]"),
        (np.zeros((5, 4), "f"), ValueError, "got float32[5, 4]"),
        (np.zeros((6, 3), "f"), ValueError, "got float32[6, 3]"),
        (np.zeros(15, "f"), ValueError, "got float32[15]"),
        (read_only, ValueError, "a read-only one"),
        (np.zeros((5, 6), "f")[:, ::2], ValueError, "one that is not C-contiguous"),
        (np.zeros(61, np.uint8)[1:].view("f").reshape(5, 3), ValueError, "one that is not aligned"),
        (memory[8:23].reshape(5, 3), ValueError, "one that overlaps an input"),
        ([0] * 15, TypeError, "forward: out: expected float32[5, 3], got list"),
        (b"", TypeError, "got uint8[0]"),
    ):
        with pytest.raises(error) as info:
            affine.forward(shared, out=out)
        assert message in str(info.value)
    assert not memory.any()
    y = np.zeros(2)
    for pair in (y, [y, y], (y,), (y, y, y)):
        with pytest.raises(TypeError, match="pick: out: expected a tuple of 2 buffers"):
            affine.pick(np.eye(4)[:2], [0, 1], False, out=pair)
    both = np.zeros(16, np.uint8)
    with pytest.raises(ValueError, match="one that overlaps another output"):
        affine.pick(np.eye(4)[:2], [0, 1], False, out=(both.view(float), both[4:8].reshape(2, 2)))


def test_odd_float_objects(affine: ModuleType) -> None:
    """Errors raised by a number's own code come through, and lists that change meanwhile do no harm."""

    class Angry:
        def __float__(self) -> float:
            raise KeyError("no")

    class Shrinks:
        def __float__(self) -> float:
            rows.clear()
            return 1.0

    with pytest.raises(KeyError):
        affine.forward([1, Angry()])
    rows: list[list[object]] = [[Shrinks(), 1], [2, 3]]
    with pytest.raises(ValueError, match="unequal length"):
        affine.forward(rows)


def test_huge_batch_is_memory_error(affine: ModuleType) -> None:
    """More than the machine has: MemoryError, no crash."""
    x = np.broadcast_to(np.zeros(1), (1, 2**39))
    with pytest.raises((MemoryError, ValueError)):
        affine.pick(x, 0, False)
    with pytest.raises((MemoryError, ValueError)):
        affine.forward(np.broadcast_to(np.zeros((1, 2), "f"), (2**38, 2)))


def test_info(affine: ModuleType) -> None:
    """info() says what the model is."""
    info = affine.info()
    assert info["name"] == "shop.affine"
    assert info["version"] == affine.__version__ == "1.2.3"
    assert info["note"] == 'quote " and \\ and é'
    assert info["entries"]["forward"] == {"inputs": {"x": "float32[batch, 2]"}, "outputs": {"y": "float32[batch, 3]"}}
    assert info["isa"] in info["isas"]


def test_signatures(affine: ModuleType, fit: ModuleType) -> None:
    """inspect and help() know the arguments."""
    assert str(inspect.signature(affine.forward)) == "(x, *, out=None)"
    assert str(inspect.signature(affine.Model().pick)) == "(table, index, flag, *, out=None)"
    assert str(inspect.signature(fit.train_step)) == "(x, label, lr=0.1)"
    assert str(inspect.signature(fit.forward)) == "(x=Ellipsis, *, out=None)"
    assert affine.forward.__doc__ == 'Affine: "x @ w + b".\n\nx: float32[batch, 2] -> y: float32[batch, 3]'


def test_model_instances_of_inference(affine: ModuleType) -> None:
    """A Model of an inference module is another set of scratch memory."""
    model = affine.Model()
    np.testing.assert_array_equal(model.forward(X), X @ W + B)
    assert not hasattr(model, "parameters")
    with pytest.raises(TypeError):
        type("Sub", (affine.Model,), {})


def test_large_weights(large: ModuleType) -> None:
    """Weights embedded by the assembler."""
    assert [large.forward(i).item() for i in (0, 1, 29999)] == [0, 1, 29999]
