"""What cannot be traced: the user's file and line, the function, and what to use instead, in one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.signal
import scipy.special
import scipy.stats

import mlaot
from mlaot import MlaotError

Case = Callable[[Any], Any]
W = mlaot.Parameter("w", np.zeros((8, 5), np.float32))
UNKNOWN = "the value of a traced array is not known while tracing"
SHAPE = "the shape of its result depends on the data"
IN_PLACE = "an array of a model cannot be written in place; use x = x.at[...].set(value), mlaot.where or np.concatenate"
BOOL = (
    f"{UNKNOWN}; instead of `if x: ...` use mlaot.cond or mlaot.where, instead of `while x: ...` mlaot.while_loop, "
    "instead of `and`, `or`, `not` the operators & | ~"
)
INDEX = (
    f"i64[] as an index or a size: {UNKNOWN}; a traced index goes alone in x[i] or np.take, "
    "a window of fixed size is x[i + np.arange(size)]"
)
NUMBERS = (
    "needs the numbers of Tensor(f32[8]), which are not known while tracing; x.astype(dtype) casts, a list of traced "
    "arrays becomes one by np.stack, a constant array is indexed by mlaot.take(array, x, axis=0)"
)


def assigned(x: Any) -> Any:
    x[0] = 1


def added_into(x: Any) -> Any:
    total = np.ones(8)
    total += x


CASES: dict[str, tuple[Case, str]] = {
    "branch": (lambda x: x if x.sum() > 0 else -x, f"bool(x) of bool[]: {BOOL}"),
    "not": (lambda x: not x, f"bool(x) of f32[8]: {BOOL}"),
    "float": (
        lambda x: float(x.sum()),
        f"float(x) of f32[]: {UNKNOWN}; compute with the array itself: "
        "instead of math.exp(x) use np.exp(x), instead of `a[i] = x` np.stack",
    ),
    "int": (lambda x: int(x[0]), f"int(x) of f32[]: {UNKNOWN}; use x.astype(int)"),
    "list index": (lambda x: [1, 2][x[0].astype(int)], INDEX),
    "range": (lambda x: range(x[0].astype(int)), INDEX),
    "in": (lambda x: 1 in x, f"`value in x` of f32[8]: {UNKNOWN}; use (x == value).any()"),
    "nonzero": (np.nonzero, f"np.nonzero cannot be traced: {SHAPE}; use mlaot.where(condition, a, b)"),
    "unique": (np.unique, f"np.unique cannot be traced: {SHAPE}; use np.sort"),
    "mask": (
        lambda x: x[x > 0],
        "x[...]: a mask bool[8]: the shape of the result depends on the data; use mlaot.where(mask, x, other)",
    ),
    "where of one": (
        lambda x: np.where(x),
        f"where(condition) alone: {SHAPE}; give three arguments",
    ),
    "repeats": (lambda x: np.repeat(x, x.astype(int)), f"np.repeat: {SHAPE}: `repeats` must be an integer"),
    "traced slice": (
        lambda x: x[x[0].astype(int) :],
        "x[...]: a slice with a traced bound: its size is not known; a window of fixed size is "
        "x[start + np.arange(size)]",
    ),
    "unknown": (np.roots, "np.roots cannot be traced: mlaot has no rule for it"),
    "unknown ufunc": (lambda x: np.gcd(x.astype(int), 2), "np.gcd cannot be traced: mlaot has no rule for it"),
    "unknown special": (scipy.special.j0, "scipy.special.j0 cannot be traced: mlaot has no rule for it"),
    "fft": (
        np.fft.rfft,
        "np.fft.rfft cannot be traced: models have no FFT; it is the product with the constant matrices "
        "np.fft.fft(np.eye(n)).real and .imag",
    ),
    "vectorize": (lambda x: np.vectorize(abs)(x), "numpy.vectorize.__call__ cannot be traced: use mlaot.vmap"),
    "filter": (lambda x: scipy.signal.lfilter([1], [1, 0.5], x), "scipy.lfilter cannot be traced: use mlaot.scan"),
    "distribution": (
        lambda x: scipy.stats.expon.cdf(x),
        "scipy.stats.expon.cdf cannot be traced, only that of norm; write it with scipy.special's functions",
    ),
    "sign of a logarithm": (
        lambda x: scipy.special.logsumexp(x, return_sign=True),
        "scipy.special.logsumexp with return_sign= cannot be traced",
    ),
    "where of an extreme": (
        lambda x: np.max(x, where=x > 0),
        "max with where= needs initial=, the result where nothing is chosen",
    ),
    "where of a ufunc": (
        lambda x: np.sqrt(x, where=x > 0),
        "np.sqrt with where=: it cannot be traced; use mlaot.where",
    ),
    "assignment": (assigned, f"x[...] = value: {IN_PLACE}"),
    "out": (lambda x: np.add(x, 1, out=x), f"np.add with out=: {IN_PLACE}"),
    "out of a function": (lambda x: np.cumsum(x, out=x), f"np.cumsum with out=: {IN_PLACE}"),
    "into an array": (added_into, f"np.add with out=: {IN_PLACE}"),
    "sort in place": (lambda x: x.sort(), "sort: an array of a model cannot be sorted in place; use np.sort(x)"),
    "partition in place": (
        lambda x: x.partition(3),
        "partition: an array of a model cannot be sorted in place; use np.partition(x, kth)",
    ),
    "put_along_axis": (
        lambda x: np.put_along_axis(x, np.array([0]), 1, 0),
        "put_along_axis writes in place, which cannot be traced; use x = mlaot.put_along_axis(x, ...)",
    ),
    "where=": (lambda x: np.add(x, 1, where=x > 0), "np.add with where=: it cannot be traced; use mlaot.where"),
    "at": (
        lambda x: np.add.at(x, 0, 1),
        "np.add.at cannot be traced: it writes in place; use x = x.at[index].add(values), or set, max, min",
    ),
    "array": (np.asarray, f"np.array or np.asarray {NUMBERS}"),
    "tolist": (lambda x: x.tolist(), f"x.tolist() of f32[8]: {UNKNOWN}; compute with the array itself"),
    "matmul": (lambda x: W @ x, "matmul needs (m,k) and (k,n), got f32[8,5] and f32[8]"),
    "broadcasting": (lambda x: x + np.zeros(5), "np.add: shapes [8] and [5] do not broadcast"),
    "reshape": (lambda x: x.reshape(3, 3), "cannot reshape f32[8] to [3, 3]"),
    "rest": (lambda x: x.reshape(-1, 3), "cannot reshape f32[8] to [-1, 3]"),
    "order": (
        lambda x: np.reshape(x, (2, 4), order="F"),
        "reshape with order='F' cannot be traced; only 'C' can; use np.transpose",
    ),
    "axis": (lambda x: x.sum(axis=1), "np.sum: there is no axis 1 in an array of 1 dimensions"),
    "index": (lambda x: x[9], "x[...]: index 9 is out of bounds for axis 0 with 8 elements"),
    "indices": (lambda x: x[0, 0], "x[...]: too many indices for f32[8]: 2"),
    "float index": (
        lambda x: x[1.5],
        "x[...]: an index must be made of integers, slices, None, ..., or arrays of integers, got 1.5",
    ),
    "concatenate": (
        lambda x: np.concatenate([x, x[None]]),
        "cannot concatenate f32[8] and f32[1,8]: their ranks differ",
    ),
    "split": (lambda x: np.split(x, 3), "split of 8 elements into 3 equal parts; use np.array_split"),
    "top_k": (
        lambda x: mlaot.top_k(x, 9),
        "top_k: expected an integer k from 0 to 8, the extent of axis -1, got 9",
    ),
    "negative k": (
        lambda x: mlaot.top_k(x, -1),
        "top_k: expected an integer k from 0 to 8, the extent of axis -1, got -1",
    ),
    "partition": (
        lambda x: np.partition(x, 8),
        "partition: expected kth from -8 to 7, as axis -1 has 8 elements, got 8",
    ),
    "place": (lambda x: np.argpartition(x, 0.5), "argpartition: expected integers for kth, got 0.5"),
    "einsum": (lambda x: np.einsum("ij,j", x, x), "einsum 'ij,j' does not fit an operand f32[8]"),
    "text": (lambda x: x * "a", "np.multiply: a str cannot be part of a model"),
    "complex": (lambda x: x * 1j, "np.multiply: a complex cannot be part of a model"),
    "bits of floats": (
        lambda x: x & 1,
        "bitwise_and is not defined for float32 and int; cast with x.astype(...) first",
    ),
    "minus a bool": (lambda x: -(x > 0), "negative is not defined for bool; cast with x.astype(...) first"),
    "too large": (
        lambda x: x.astype(np.int8) + 300,
        "np.add: 300 does not fit into i8; cast the array to a wider dtype first",
    ),
    "negative power": (
        lambda x: x.astype(int) ** -1,
        "np.power: integers to negative integer powers are not allowed; use x.astype(np.float32)",
    ),
    "gradient of a vector": (
        lambda x: mlaot.grad(lambda v: v * 2)(x),
        "grad needs a function that returns a floating-point scalar, got f32[8]",
    ),
    "gradient by integers": (
        lambda x: mlaot.grad(lambda v: v.sum())(x.astype(int)),
        "grad by an argument i64[8]: only floating-point arguments have a gradient",
    ),
    "argnums": (
        lambda x: mlaot.grad(lambda v: v.sum(), argnums=1)(x),
        "argnums=1: the function was called with 1 positional arguments",
    ),
    "named size": (
        lambda x: np.arange(mlaot.dim("n")),
        "the size of the named dim n is not known while tracing; loop by mlaot.scan or mlaot.fori_loop; mlaot.zeros, "
        "ones, full, arange, eye and random take named dims in shapes",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_messages(name: str) -> None:
    function, message = CASES[name]

    def net(x):  # type: ignore[no-untyped-def]
        return function(x)

    net.__annotations__ = {"x": mlaot.f32[8]}
    with pytest.raises(MlaotError) as caught:
        mlaot.model(net).trace()
    place, _, text = str(caught.value).partition(": ")
    if name == "range" or name == "argnums":
        text = str(caught.value).removeprefix(f"{place}: ")
    assert text == message
    file, line = place.split(":")
    assert file == Path(__file__).name
    assert "\n" not in str(caught.value)
    assert Path(__file__).read_text().splitlines()[int(line) - 1].strip()


def test_the_line_is_the_innermost_of_the_user() -> None:
    def helper(x: Any) -> Any:
        return x + np.zeros(5)  # this line

    def net(x):  # type: ignore[no-untyped-def]
        return helper(x)

    net.__annotations__ = {"x": mlaot.f32[8]}
    with pytest.raises(MlaotError) as caught:
        mlaot.model(net).trace()
    line = next(i for i, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "# this line" in text)
    assert str(caught.value) == f"test_errors.py:{line}: np.add: shapes [8] and [5] do not broadcast"
    assert caught.value.message == "np.add: shapes [8] and [5] do not broadcast"


def test_a_named_dim_cannot_be_iterated() -> None:
    def net(x):  # type: ignore[no-untyped-def]
        return sum(row for row in x)

    net.__annotations__ = {"x": mlaot.f32[mlaot.dim("batch"), 3]}
    with pytest.raises(MlaotError, match=r"iteration over the named dim batch of f32\[batch,3\]: use mlaot.scan$"):
        mlaot.model(net).trace()


def test_a_traced_array_outside_of_its_model() -> None:
    kept = []

    def net(x):  # type: ignore[no-untyped-def]
        kept.append(x)
        return x

    net.__annotations__ = {"x": mlaot.f32[3]}
    mlaot.model(net).trace()
    with pytest.raises(MlaotError, match="a traced array is used outside of the function that it was traced in"):
        kept[0] + 1
    with pytest.raises(MlaotError, match="a traced array is used outside of the function that it was traced in"):
        mlaot.grad(lambda v: (v * kept[0]).sum())(np.ones(3))
