"""Reductions that skip nan: the identity element replaces nan, and the other elements are counted."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlaot.frontend.numpy.reductions import (
    argmax,
    argmin,
    count,
    cumprod,
    cumsum,
    mean_type,
    prod,
    reduce_over,
    reduced_shape,
    sum_,
    var,
)
from mlaot.frontend.numpy.sorting import axes_first, between, median, quantile, row_over
from mlaot.frontend.trace.promotion import as_node, cast, full, like
from mlaot.frontend.trace.protocols import implements
from mlaot.frontend.trace.tensor import Tensor, as_tensor
from mlaot.ir import Node
from mlaot.ir.types import boolean
from mlaot.ops import Op
from mlaot.ops import bits as bitwise
from mlaot.ops import comparison as cmp
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red


def _numbers(a: Any, value: float) -> tuple[Node, Node]:
    """Return the array with ``value`` in place of nan, and a mask of the elements that are not nan."""
    x = as_node(a)
    if x.type.dtype.kind != "f":
        return x, like(cast(x, boolean), True)
    missing = cmp.isnan(x)
    return cmp.where(missing, like(x, value), x), bitwise.bitwise_not(missing)


@implements("nansum")
def nansum(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
    return sum_(Tensor(_numbers(a, 0)[0]), axis, dtype, keepdims=keepdims)


@implements("nanprod")
def nanprod(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
    return prod(Tensor(_numbers(a, 1)[0]), axis, dtype, keepdims=keepdims)


@implements("nanmax")
def nanmax(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return _nan_extreme(red.max_, a, axis, keepdims, -np.inf)


@implements("nanmin")
def nanmin(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return _nan_extreme(red.min_, a, axis, keepdims, np.inf)


def _nan_extreme(op: Op, a: Any, axis: Any, keepdims: bool, worst: float) -> Any:
    x, is_number = _numbers(a, worst)
    best = reduce_over(op, x, axis, keepdims)
    if x.type.dtype.kind != "f":
        return Tensor(best)
    any_number = reduce_over(red.max_, is_number, axis, keepdims)
    return Tensor(cmp.where(any_number, best, like(best, np.nan)))


@implements("nanmean")
def nanmean(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
    x, is_number = _numbers(a, 0)
    kind = mean_type(x.type.dtype, dtype)
    total = reduce_over(red.sum_, cast(x, kind), axis, keepdims)
    return Tensor(ew.div(total, reduce_over(red.sum_, cast(is_number, kind), axis, keepdims)))


@implements("nanvar")
def nanvar(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
    mean: Any = None,
    correction: float = 0,
) -> Any:
    """Compute the variance of the elements that are not nan; nan if no more than ``ddof`` are left."""
    options: dict[str, Any] = {"ddof": ddof or correction, "keepdims": keepdims, "mean": mean}
    x = as_tensor(a)
    if as_node(a).type.dtype.kind != "f":
        return var(a, axis, dtype, **options)
    is_number = ~np.isnan(x)
    few = np.sum(is_number, axis=axis, keepdims=keepdims) <= (ddof or correction)
    return np.where(few, np.nan, var(a, axis, dtype, **options, where=is_number))


@implements("nanstd")
def nanstd(a: Any, axis: Any = None, dtype: Any = None, **options: Any) -> Any:
    return np.sqrt(nanvar(a, axis, dtype, **options))


@implements("nanargmax")
def nanargmax(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Return the index of the largest element that is not nan; 0 if all are nan, where NumPy raises an error."""
    return argmax(Tensor(_numbers(a, -np.inf)[0]), axis, keepdims=keepdims)


@implements("nanargmin")
def nanargmin(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Return the index of the smallest element that is not nan; 0 if all are nan, where NumPy raises an error."""
    return argmin(Tensor(_numbers(a, np.inf)[0]), axis, keepdims=keepdims)


@implements("nancumsum")
def nancumsum(a: Any, axis: Any = None, dtype: Any = None) -> Any:
    return cumsum(Tensor(_numbers(a, 0)[0]), axis, dtype)


@implements("nancumprod")
def nancumprod(a: Any, axis: Any = None, dtype: Any = None) -> Any:
    return cumprod(Tensor(_numbers(a, 1)[0]), axis, dtype)


@implements("nanmedian")
def nanmedian(a: Any, axis: Any = None, overwrite_input: bool = False, keepdims: bool = False) -> Any:
    """Compute the median of the elements that are not nan; nan if there are none."""
    x = as_node(a)
    if x.type.dtype.kind != "f":
        return median(a, axis, keepdims=keepdims)
    if count(x, axis) == 0:
        return Tensor(full(reduced_shape(x, axis, keepdims), np.nan, x.type.dtype))
    row, _ = row_over("nanmedian", x, axis)
    ordered, size = _ordered(row)
    low, high = _at(ordered, (size - 1) // 2), _at(ordered, size // 2)
    middle = np.where(size % 2 == 1, low, np.mean(np.stack([low, high]), axis=0))
    return axes_first(np.where(size == 0, np.nan, middle)[..., 0], (), x, axis, keepdims)


@implements("nanpercentile")
def nanpercentile(a: Any, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False) -> Any:
    shares = q / 100 if type(q) in (float, int) else np.asarray(q) / 100
    return nanquantile(a, shares, axis, method=method, keepdims=keepdims)


@implements("nanquantile")
def nanquantile(a: Any, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False) -> Any:
    """Compute a quantile by linear interpolation between the sorted elements that are not nan.

    Nan if there are none.
    """
    x = as_node(a)
    if x.type.dtype.kind != "f" or method != "linear" or not np.all((np.asarray(q) >= 0) & (np.asarray(q) <= 1)):
        return quantile(a, q, axis, method=method, keepdims=keepdims)
    row, _ = row_over("nanquantile", x, axis)
    ordered, size = _ordered(row)
    shares = np.asarray(q, np.float64)
    places = np.maximum(size - 1, 0) * shares.ravel()
    low = np.floor(places)
    share = (places - low).astype(row.dtype if type(q) in (float, int) else np.float64)
    values = between(_at(ordered, low), _at(ordered, np.ceil(places)), share)
    values = np.where(size == 0, np.nan, values)
    return axes_first(np.reshape(values, (*row.shape[:-1], *shares.shape)), shares.shape, x, axis, keepdims)


def _ordered(row: Any) -> tuple[Any, Any]:
    """Sort the elements of the last axis, nan last, and count those that are not nan: [.., 1]."""
    return np.sort(row), np.sum(~np.isnan(row), axis=-1, keepdims=True)


def _at(ordered: Any, places: Any) -> Any:
    return np.take_along_axis(ordered, np.maximum(places, 0).astype(np.int64), -1)
