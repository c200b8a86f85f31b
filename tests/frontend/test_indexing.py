"""``x[...]`` and ``x.at[...]``: what NumPy's indexing gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlaot
from mlaot.errors import MlaotError

from .tracing import assert_same, run

X = np.arange(3 * 4 * 5, dtype=np.float32).reshape(3, 4, 5)
I, J = np.array([2, 0, -1]), np.array([[1], [-2]])
MASK = np.array([True, False, True])

BASIC: list[Any] = [
    *(
        0,
        -1,
        slice(1, None),
        slice(None, None, 2),
        slice(None, None, -1),
        slice(-2, None),
        slice(5, 1),
        slice(2, 0, -1),
    ),
    *(None, ..., (0, 1, 2), (..., 0), (slice(None), 1), (None, ..., None), (1, None, slice(None, None, -2), -1)),
    *((slice(1, 2), ..., slice(0, 3)), np.int64(1), (0, ..., None, 2)),
]
ADVANCED: list[Any] = [
    *(I, [0, 2], np.array(1), J, (slice(None), I), (..., I), (I, I), (I, J), (slice(None), I, J), (I, slice(None), J)),
    *((I, 0), (0, I), (0, slice(None), I), (I, None, J), (..., I, None), (None, I, slice(None), 1), (I, ..., J)),
    *(MASK, (MASK, 0), (slice(None), np.array([True, False, True, True])), X[:, :, 0] > 20, X > 30),
    *((MASK, slice(None), I[:2]), np.array([], int), (slice(0, 2), I[:2], slice(None, None, -1))),
]


@pytest.mark.parametrize("index", [*BASIC, *ADVANCED], ids=str)
def test_constant_indices(index: Any) -> None:
    assert_same(lambda x: x[index], X)


@pytest.mark.parametrize("index", [i for i in ADVANCED if not isinstance(i, list)], ids=str)
def test_traced_indices(index: Any) -> None:
    """The integer arrays of an index may be traced, all or one of them."""
    parts = index if isinstance(index, tuple) else (index,)
    if any(isinstance(p, np.ndarray) and (p.dtype == bool or not p.size) for p in parts):
        pytest.skip("a mask is constant")
    arrays = [p for p in parts if isinstance(p, np.ndarray)]

    def pick(x: Any, *traced: Any) -> Any:
        rest = iter(traced)
        new = [next(rest) if isinstance(p, np.ndarray) else p for p in parts]
        return x[tuple(new) if isinstance(index, tuple) else new[0]]

    assert_same(pick, X, *arrays)
    if len(arrays) > 1:
        assert_same(lambda x, a: pick(x, a, *arrays[1:]), X, arrays[0])


@st.composite
def indices(draw: st.DrawFn) -> Any:
    """A random index into ``X``: slices, integers, new axes, an ellipsis, arrays that broadcast."""
    shape = draw(st.sampled_from([(2,), (1,), (2, 1), ()]))
    parts: list[Any] = []
    for extent in X.shape[: draw(st.integers(0, 3))]:
        kind = draw(st.sampled_from(["slice", "slice", "int", "array", "new"]))
        if kind == "new":
            parts.append(None)
        if kind == "int":
            parts.append(draw(st.integers(-extent, extent - 1)))
        elif kind == "array":
            values = draw(st.lists(st.integers(-extent, extent - 1), min_size=2, max_size=2))
            parts.append(np.array(values[: int(np.prod(shape))]).reshape(shape))
        else:
            bounds = st.one_of(st.none(), st.integers(-7, 7))
            parts.append(slice(draw(bounds), draw(bounds), draw(st.sampled_from([None, 1, 2, -1, -2]))))
    if draw(st.booleans()):
        parts.insert(draw(st.integers(0, len(parts))), ...)
    return tuple(parts)


@settings(max_examples=300, deadline=None)
@given(indices())
def test_any_index(index: Any) -> None:
    assert_same(lambda x: x[index], X)


@settings(max_examples=150, deadline=None)
@given(indices(), st.sampled_from(["set", "add", "max", "min"]))
def test_any_update(index: Any, mode: str) -> None:
    """Traced and plain agree, and both do what NumPy's assignment does."""
    value = np.float32(31)
    assert_same(lambda x: getattr(mlaot.Parameter("x", X).at if x is None else _at(x, index), mode)(value), X)
    expected = X.copy()
    if mode == "set":
        expected[index] = value
    else:
        {"add": np.add, "max": np.maximum, "min": np.minimum}[mode].at(expected, index, value)
    np.testing.assert_array_equal(getattr(_at(X, index), mode)(value), expected)


def _at(x: Any, index: Any) -> Any:
    from mlaot.frontend.trace.protocols import At

    return At(x)[index]


def test_updates_of_a_shape() -> None:
    rows = np.arange(5, dtype=np.float32)
    assert_same(lambda x, v: _at(x, (0, I)).set(v), X, np.stack([rows] * 3))
    assert_same(lambda x, v: _at(x, (..., 1)).add(v), X, X[..., 0])
    found = run(lambda x, i: x.at[i].add(1.0), np.zeros(4), np.array([0, 0, 3]))
    np.testing.assert_array_equal(found, [2, 0, 0, 1])


def test_a_constant_array_at_a_traced_index() -> None:
    table = X[0]
    assert_same(lambda i: mlaot.take(table, i, axis=0), np.array([[1, 0], [-1, 3]]))
    assert_same(lambda i: mlaot.full_like(table, i), np.array(2))


def test_a_traced_index_out_of_range_is_clamped() -> None:
    found = run(lambda x, i: (x[i], x[i, i]), X[:, :3, 0], np.array([-9, 9]))
    np.testing.assert_array_equal(found[0], X[[0, 2], :3, 0])
    np.testing.assert_array_equal(found[1], X[[0, 2], [0, 2], 0])


def test_named_dims() -> None:
    """Slices of a named dim, whose length the compiled function checks."""
    n = mlaot.dim("n")
    types = (mlaot.f32[n, 5],)
    x = X[0]

    def cuts(x: Any) -> Any:
        return x[1:], x[:-1], x[::2], x[::-1], x[0], x[-1], x[-2:], x[:2], x[1::3], x[::-2], x[3:1:-1], x[1:-1, None]

    assert_same(cuts, x, types=types)
    assert_same(lambda x: (x[[0, -1]], x[np.array([1, 2]), 0], np.take(x, [0, -1], axis=0)), x, types=types)
    assert_same(
        lambda x: (np.roll(x, 1, axis=0), np.flip(x, 0), np.diff(x, axis=0), np.tile(x, (2, 1))), x, types=types
    )
    assert_same(lambda x: (x.reshape(-1), x.reshape(-1, 5), np.repeat(x, 2, axis=0)), x, types=types)
    assert_same(lambda x: (x.mean(0), x.var(0), x.std(), np.mean(x, axis=1)), x, types=types)
    assert_same(lambda x: (np.sort(x, 0), np.cumsum(x, 0), np.argmax(x, 0), x @ x.T), x, types=types)
    assert_same(lambda x: (np.tril(x), np.concatenate([x, x]), np.stack([x, x]), np.pad(x, 1)), x, types=types)
    assert_same(lambda x: (np.einsum("ij,kj->ik", x, x), np.atleast_3d(x), x[None]), x, types=types)
    assert_same(lambda x: np.pad(x, 2, mode="reflect"), x, types=(mlaot.f32[n, 5],))


def test_shapes_of_named_dims() -> None:
    n = mlaot.dim("n")

    def f(x: Any) -> Any:
        rows = x.shape[0]
        return (
            mlaot.arange(rows),
            mlaot.arange(1, rows),
            x.reshape(rows * 5),
            mlaot.zeros((rows, 2)),
            mlaot.full((rows,), 3, mlaot.i32),
            mlaot.eye(rows, dtype=mlaot.f32),
            x * rows,
        )

    found = run(f, X[0], types=(mlaot.f32[n, 5],))
    expected = [np.arange(4), np.arange(1, 4), X[0].ravel(), np.zeros((4, 2)), [3] * 4, np.eye(4)]
    for f_, e in zip(found, [*expected, X[0] * 4], strict=True):
        np.testing.assert_array_equal(f_, e)
    assert [str(v.dtype) for v in found] == ["int64", "int64", "float32", "float64", "int32", "float32", "float32"]


def test_a_border_of_nothing_is_refused() -> None:
    def bordered(x: mlaot.f32[0, 3]) -> Any:  # type: ignore[valid-type]
        return np.pad(x, 2, mode="reflect")

    with pytest.raises(MlaotError, match="axis 0 has no elements"):
        mlaot.model(bordered).trace()
