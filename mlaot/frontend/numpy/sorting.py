"""Sorting, and NumPy's functions that build on it: medians, quantiles, searches."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.numpy.conversion import as_array
from mlaot.frontend.numpy.reductions import count, flat_or, kept, mean, mean_type, reduced_shape
from mlaot.frontend.trace.promotion import as_node, cast, full, normal_axes, normal_axis, promote
from mlaot.frontend.trace.protocols import implements
from mlaot.frontend.trace.tensor import Tensor, as_tensor, compute
from mlaot.ir import Dim, Node
from mlaot.ir.dims import Expr
from mlaot.ops import sorting as sorts
from mlaot.ops import structure as st

# Sorting.


@implements("argsort")
def argsort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    x, at = flat_or(as_node(a), axis)
    return Tensor(sorts.argsort(x, axis=at))


@implements("sort")
def sort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    x, at = flat_or(as_node(a), axis)
    return np.take_along_axis(as_tensor(Tensor(x)), as_tensor(Tensor(sorts.argsort(x, axis=at))), at)


@implements("lexsort")
def lexsort(keys: Any, axis: Any = -1) -> Any:
    """Return the order by the last key, and among equal elements by the key before it, and so on."""
    order: Any = None
    for key in (as_tensor(k) for k in (keys if isinstance(keys, list | tuple) else as_tensor(keys))):
        if order is None:
            order = argsort(key, axis)
        else:
            order = np.take_along_axis(order, argsort(np.take_along_axis(key, order, axis), axis), axis)
    return order


@implements("partition")
def partition(a: Any, kth: Any, axis: Any = -1, kind: Any = None, order: Any = None) -> Any:
    """Sort, which is a valid partition. Only elements that are read later are sorted in the end."""
    _check_places("partition", a, kth, axis)
    return sort(a, axis)


@implements("argpartition")
def argpartition(a: Any, kth: Any, axis: Any = -1, kind: Any = None, order: Any = None) -> Any:
    _check_places("argpartition", a, kth, axis)
    return argsort(a, axis)


def _check_places(name: str, a: Any, kth: Any, axis: Any) -> None:
    """Raise an error for a ``kth`` that is out of range for ``axis``."""
    x, at = flat_or(as_node(a), axis)
    size, places = x.type.shape[at], np.asarray(kth)
    if places.dtype.kind not in "iu":
        raise MlaotError(f"{name}: expected integers for kth, got {kth!r}")
    if isinstance(size, int) and not np.all((places >= -size) & (places < size)):
        raise MlaotError(
            f"{name}: expected kth from {-size} to {size - 1}, as axis {axis} has {size} elements, got {kth!r}"
        )


@implements("median")
def median(a: Any, axis: Any = None, overwrite_input: bool = False, keepdims: bool = False) -> Any:
    """Compute the median, the mean of the one or two middle elements. It is nan if an element is nan."""
    x = as_node(a)
    if count(x, axis) == 0:
        return Tensor(full(reduced_shape(x, axis, keepdims), np.nan, mean_type(x.type.dtype, None)))
    row, size = row_over("median", x, axis)
    middle = mean(_sorted(row, (size - 1) // 2, size // 2 + 1), axis=-1)
    return axes_first(_keep_nan(row, middle), (), x, axis, keepdims)


@implements("percentile")
def percentile(a: Any, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False) -> Any:
    return quantile(
        a, q / 100 if type(q) in (float, int) else np.asarray(q) / 100, axis, method=method, keepdims=keepdims
    )


@implements("quantile")
def quantile(a: Any, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False) -> Any:
    """Compute a quantile by linear interpolation between sorted elements; nan if an element is nan.

    Integers are converted to float64.
    """
    if method != "linear":
        raise MlaotError(f"quantile with method={method!r} cannot be traced; only 'linear' can")
    if not np.all((np.asarray(q) >= 0) & (np.asarray(q) <= 1)):
        raise MlaotError(f"quantile: expected shares from 0 to 1, got {q!r}")
    x = as_node(a)
    row, size = row_over("quantile", x, axis)
    places = np.asarray(q) * (size - 1)
    low = np.clip(np.floor(places), 0, size - 1).astype(np.int64)
    share: Any = places - low
    share = float(share) if type(q) in (float, int) else share
    high = np.minimum(low + 1, size - 1)
    first = int(low.min(initial=size - 1))
    ordered = _sorted(row, first, int(high.max(initial=first)) + 1)
    low, high = low - first, high - first
    if places.dtype.kind in "iu":  # the first or the last element, whatever its dtype
        return axes_first(_keep_nan(row, ordered[..., low]), places.shape, x, axis, keepdims)
    wide = Tensor(cast(as_node(ordered), mean_type(x.type.dtype, None)))
    values = between(wide[..., low], wide[..., high], share)
    return axes_first(_keep_nan(row, values), places.shape, x, axis, keepdims)


def between(low: Any, high: Any, share: Any) -> Any:
    """Compute ``low + (high - low) * share``, rounded as by NumPy: from the nearer end."""
    step = high - low
    upwards, downwards = low + step * share, high - step * (1 - share)
    if isinstance(share, float):
        return downwards if share >= 0.5 else upwards
    return np.where(share >= 0.5, downwards, upwards)


def row_over(name: str, x: Node, axis: Any) -> tuple[Any, int]:
    """Return the array with the axes ``axis`` merged into a last axis, and the size of that axis."""
    axes, size = normal_axes(axis, x.type.rank), count(x, axis)
    if not isinstance(size, int):
        raise MlaotError(f"{name} of {x.type} over a named dim cannot be traced")
    if size == 0:
        raise MlaotError(f"{name} of {x.type} over axis {axis}: there are no elements")
    rest = tuple(i for i in range(x.type.rank) if i not in axes)
    last = st.transpose(x, perm=(*rest, *axes))
    return Tensor(st.reshape(last, shape=(*[x.type.shape[i] for i in rest], size))), size


def _sorted(row: Any, first: int, stop: int) -> Any:
    """Return the elements that sorting puts at the places ``first`` to ``stop - 1`` of the last axis."""
    return np.take_along_axis(row, argsort(row)[..., first:stop], -1)


def _keep_nan(row: Any, values: Any) -> Any:
    """Return ``values``, with nan where the last axis of ``row`` has a nan."""
    if as_node(row).type.dtype.kind != "f":
        return values
    largest = np.reshape(np.max(row, axis=-1), (*row.shape[:-1], *[1] * (values.ndim - row.ndim + 1)))
    return np.where(np.isnan(largest), np.nan, values)


def axes_first(values: Any, shape: tuple[int, ...], x: Node, axis: Any, keepdims: bool) -> Any:
    """Move the last axes, those of ``shape``, to the front."""
    result = np.moveaxis(values, range(-len(shape), 0), range(len(shape))) if shape else values
    return np.reshape(result, (*shape, *kept(x, normal_axes(axis, x.type.rank)))) if keepdims else result


@implements("searchsorted")
def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    """Return the number of elements before each element of ``v``; nan is after all numbers."""
    if sorter is not None:
        raise MlaotError("searchsorted with sorter= cannot be traced; use np.take(a, sorter) first")
    x, y = promote(a, v)
    row, wide = Tensor(x), np.reshape(Tensor(y), (*y.type.shape, 1))
    before = np.less(row, wide) if side == "left" else np.less_equal(row, wide)
    if x.type.dtype.kind == "f":
        before = before | (np.isnan(wide) & (~np.isnan(row) if side == "left" else True))
    return np.sum(before, axis=-1)


def top_k(x: Any, k: Dim, axis: int = -1, largest: bool = True) -> tuple[Any, Any]:
    """Return the ``k`` largest (or smallest) elements along ``axis``, sorted, and their indices.

    A nan counts as the largest element.
    """
    x = as_array(x)
    at = normal_axis(axis, x.ndim)
    size = x.shape[at]
    is_number = isinstance(k, int | np.integer)
    if not isinstance(k, Expr) and (not is_number or k < 0 or (isinstance(size, int) and k > size)):
        most = f"{size}, the extent of axis {axis}" if isinstance(size, int) else f"the extent of axis {axis}"
        raise MlaotError(f"top_k: expected an integer k from 0 to {most}, got {k!r}")
    cut = slice(0, k if isinstance(k, Expr) else int(k))
    first = compute(sorts.argsort, x, axis=at, descending=largest)[(*[slice(None)] * at, cut)]
    return np.take_along_axis(x, first, at), first
