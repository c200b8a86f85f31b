"""Sums, extremes, means, searches and scans along axes, as NumPy has them."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.promotion import (
    aligned,
    apply,
    as_node,
    cast,
    full,
    like,
    normal_axes,
    normal_axis,
    promote,
    spread,
)
from mlaot.frontend.protocols import implements
from mlaot.frontend.shaping import tensor
from mlaot.frontend.tensor import Tensor, dtype_of
from mlaot.frontend.ufuncs import truth
from mlaot.ir import Dim, Node
from mlaot.ir import dims as dims_
from mlaot.ir.types import DType, boolean, f16, f32, f64, i64, u64


def kept(node: Node, axes: tuple[int, ...]) -> tuple[Dim, ...]:
    """The shape that ``keepdims=True`` gives."""
    return tuple(1 if i in axes else d for i, d in enumerate(node.type.shape))


def reduced(op: str, node: Node, axis: Any, keepdims: bool) -> Node:
    """``op`` over ``axis`` (all where None)."""
    axes = normal_axes(axis, node.type.rank)
    result = apply(op, node, axes=axes) if axes else node
    return apply("reshape", result, shape=kept(node, axes)) if keepdims else result


def count(node: Node, axis: Any) -> Dim:
    """How many elements a reduction over ``axis`` takes together."""
    return dims_.product(tuple(node.type.shape[i] for i in normal_axes(axis, node.type.rank)))


def sum_type(dtype: DType, wanted: Any) -> DType:
    """Small integers are added as 64-bit ones."""
    if wanted is not None:
        return dtype_of(wanted)
    return {"i": i64, "b": i64, "u": u64}.get(dtype.kind, dtype)


def mean_type(dtype: DType, wanted: Any) -> DType:
    if wanted is not None:
        return dtype_of(wanted)
    return dtype if dtype.kind == "f" else f64


@implements("sum")
def sum_(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False, initial: Any = None) -> Any:
    x = as_node(a)
    return _added("sum", cast(x, sum_type(x.type.dtype, dtype)), axis, keepdims, initial)


@implements("prod")
def prod(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False, initial: Any = None) -> Any:
    x = as_node(a)
    return _added("prod", cast(x, sum_type(x.type.dtype, dtype)), axis, keepdims, initial)


def _added(op: str, x: Node, axis: Any, keepdims: bool, initial: Any) -> Tensor:
    """A sum or a product, which begins at ``initial``."""
    result = reduced(op, x, axis, keepdims)
    if initial is None and op == "sum" and not normal_axes(axis, x.type.rank):
        initial = 0  # which no sum is without: that of -0 is 0
    return Tensor(result if initial is None else started({"sum": "add", "prod": "mul"}[op], result, initial))


def started(op: str, result: Node, initial: Any) -> Node:
    """A reduction's result and ``initial`` by the op of two; the dtype stays the reduction's, as in NumPy."""
    ops = {"add": "bitwise_or", "mul": "bitwise_and", "maximum": "bitwise_or", "minimum": "bitwise_and"}
    first = cast(as_node(initial), result.type.dtype)
    return apply(ops[op] if result.type.dtype is boolean else op, *aligned(result, first))


@implements("max", "amax")
def max_(a: Any, axis: Any = None, *, keepdims: bool = False, initial: Any = None) -> Any:
    return _extreme("max", as_node(a), axis, keepdims, initial)


@implements("min", "amin")
def min_(a: Any, axis: Any = None, *, keepdims: bool = False, initial: Any = None) -> Any:
    return _extreme("min", as_node(a), axis, keepdims, initial)


def _extreme(op: str, x: Node, axis: Any, keepdims: bool, initial: Any) -> Tensor:
    if initial is None:
        if _is_empty(x, axis):
            raise MlaotError(f"{op} of {x.type} over axis {axis}: there are no elements; use initial=")
        return Tensor(reduced(op, x, axis, keepdims))
    if _is_empty(x, axis):
        return Tensor(spread(cast(as_node(initial), x.type.dtype), _reduced_shape(x, axis, keepdims)))
    return Tensor(started({"max": "maximum", "min": "minimum"}[op], reduced(op, x, axis, keepdims), initial))


def _is_empty(x: Node, axis: Any) -> bool:
    """Whether a reduction over ``axis`` has nothing to choose from."""
    return any(x.type.shape[i] == 0 for i in normal_axes(axis, x.type.rank))


def _reduced_shape(x: Node, axis: Any, keepdims: bool) -> tuple[Dim, ...]:
    axes = normal_axes(axis, x.type.rank)
    return kept(x, axes) if keepdims else tuple(d for i, d in enumerate(x.type.shape) if i not in axes)


@implements("ptp")
def ptp(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return np.subtract(max_(a, axis, keepdims=keepdims), min_(a, axis, keepdims=keepdims))


@implements("all")
def all_(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return _quantified("min", truth(as_node(a)), axis, keepdims)


@implements("any")
def any_(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return _quantified("max", truth(as_node(a)), axis, keepdims)


def _quantified(op: str, x: Node, axis: Any, keepdims: bool) -> Tensor:
    """Of no elements all are true, and none is."""
    if _is_empty(x, axis):
        return Tensor(full(_reduced_shape(x, axis, keepdims), op == "min", boolean))
    return Tensor(reduced(op, x, axis, keepdims))


@implements("count_nonzero")
def count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return Tensor(reduced("sum", cast(truth(as_node(a)), i64), axis, keepdims))


def number(value: Dim, dtype: DType) -> Node:
    """A size as a number."""
    return as_node(value, dtype)


@implements("mean")
def mean(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
    x = as_node(a)
    kind = mean_type(x.type.dtype, dtype)
    wide = f32 if kind is f16 else kind
    total = reduced("sum", cast(x, wide), axis, keepdims)
    return Tensor(cast(apply("div", *aligned(total, number(count(x, axis), wide))), kind))


@implements("var")
def var(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    *,
    ddof: float = 0,
    correction: float = 0,
    keepdims: bool = False,
    mean: Any = None,
) -> Any:
    x = as_node(a)
    kind = mean_type(x.type.dtype, dtype)
    wide = f32 if kind is f16 else kind
    x = cast(x, wide)
    size = count(x, axis)
    middle = as_node(mean, wide) if mean is not None else None
    if middle is None:
        middle = apply("div", *aligned(reduced("sum", x, axis, True), number(size, wide)))
    centered = apply("sub", x, spread(middle, x.type.shape))
    total = reduced("sum", apply("mul", centered, centered), axis, keepdims)
    # Divide by n - ddof, and by 0 where that is negative, as NumPy does.
    if isinstance(size, int):
        divisor = as_node(max(size - (ddof or correction), 0), wide)
    else:
        rest = apply("sub", number(size, wide), as_node(ddof or correction, wide))
        divisor = apply("maximum", rest, as_node(0, wide))
    return Tensor(cast(apply("div", *aligned(total, divisor)), kind))


@implements("std")
def std(a: Any, axis: Any = None, dtype: Any = None, **options: Any) -> Any:
    return np.sqrt(var(a, axis, dtype, **options))


@implements("average")
def average(a: Any, axis: Any = None, weights: Any = None, *, returned: bool = False, keepdims: bool = False) -> Any:
    if returned:
        raise MlaotError("average with returned=True cannot be traced; compute the sum of the weights yourself")
    if weights is None:
        return mean(a, axis, keepdims=keepdims)
    x, w = tensor(a), tensor(weights)
    if w.shape != x.shape:
        index = [1] * x.ndim
        index[normal_axis(axis, x.ndim)] = -1
        w = np.reshape(w, index)
    total = np.sum(np.broadcast_to(w, x.shape), axis=axis, keepdims=keepdims)
    return np.sum(x * w, axis=axis, keepdims=keepdims) / total


def _search(op: str, a: Any, axis: Any, keepdims: bool) -> Any:
    x = as_node(a)
    if x.type.dtype is boolean:
        x = cast(x, dtype_of("uint8"))
    rank = x.type.rank
    if axis is None:
        flat = apply("reshape", x, shape=(dims_.product(x.type.shape),))
        found = apply(op, flat, axis=0)
        return Tensor(apply("reshape", found, shape=(1,) * rank) if keepdims else found)
    at = normal_axis(axis, rank)
    if x.type.shape[at] == 0:
        raise MlaotError(f"{op} of {x.type} along axis {axis}: there are no elements")
    found = apply(op, x, axis=at)
    return Tensor(apply("reshape", found, shape=kept(x, (at,))) if keepdims else found)


@implements("argmax")
def argmax(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return _search("argmax", a, axis, keepdims)


@implements("argmin")
def argmin(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return _search("argmin", a, axis, keepdims)


def _flat_or(x: Node, axis: Any) -> tuple[Node, int]:
    """The array and axis to work along: the flat array where ``axis`` is None."""
    if axis is None:
        return apply("reshape", x, shape=(dims_.product(x.type.shape),)), 0
    return x, normal_axis(axis, x.type.rank)


@implements("cumsum")
def cumsum(a: Any, axis: Any = None, dtype: Any = None) -> Any:
    x, at = _flat_or(as_node(a), axis)
    return Tensor(apply("cumsum", cast(x, sum_type(x.type.dtype, dtype)), axis=at))


@implements("cumprod")
def cumprod(a: Any, axis: Any = None, dtype: Any = None) -> Any:
    x, at = _flat_or(as_node(a), axis)
    return Tensor(apply("cumprod", cast(x, sum_type(x.type.dtype, dtype)), axis=at))


def _cumulative(name: str, x: Any, axis: Any, dtype: Any, include_initial: bool) -> Any:
    tensor = Tensor(as_node(x))
    if axis is None and tensor.ndim != 1:
        raise MlaotError(f"{name} of {tensor.node.type} needs an axis")
    found = (cumsum if name == "cumulative_sum" else cumprod)(tensor, axis if axis is not None else 0, dtype)
    if not include_initial:
        return found
    at = normal_axis(axis if axis is not None else 0, tensor.ndim)
    shape = tuple(1 if i == at else d for i, d in enumerate(tensor.shape))
    start = full(shape, 0 if name == "cumulative_sum" else 1, found.node.type.dtype)
    return np.concatenate([Tensor(start), found], axis=at)


@implements("cumulative_sum")
def cumulative_sum(x: Any, *, axis: Any = None, dtype: Any = None, include_initial: bool = False) -> Any:
    return _cumulative("cumulative_sum", x, axis, dtype, include_initial)


@implements("cumulative_prod")
def cumulative_prod(x: Any, *, axis: Any = None, dtype: Any = None, include_initial: bool = False) -> Any:
    return _cumulative("cumulative_prod", x, axis, dtype, include_initial)


@implements("diff")
def diff(a: Any, n: int = 1, axis: int = -1) -> Any:
    x = Tensor(as_node(a))
    at = normal_axis(axis, x.ndim)
    before, after = (tuple([slice(None)] * at + [cut]) for cut in (slice(None, -1), slice(1, None)))
    for _ in range(n):
        x = np.not_equal(x[after], x[before]) if x.node.type.dtype is boolean else x[after] - x[before]
    return x


# Without nan: the neutral element stands in its place.


def _numbers(a: Any, value: float) -> tuple[Node, Node]:
    """The array with ``value`` for nan, and whether an element is a number."""
    x = as_node(a)
    if x.type.dtype.kind != "f":
        return x, like(cast(x, boolean), True)
    missing = apply("isnan", x)
    return apply("where", missing, like(x, value), x), apply("bitwise_not", missing)


@implements("nansum")
def nansum(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
    return sum_(Tensor(_numbers(a, 0)[0]), axis, dtype, keepdims=keepdims)


@implements("nanprod")
def nanprod(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
    return prod(Tensor(_numbers(a, 1)[0]), axis, dtype, keepdims=keepdims)


@implements("nanmax")
def nanmax(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return _nan_extreme("max", a, axis, keepdims, -np.inf)


@implements("nanmin")
def nanmin(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return _nan_extreme("min", a, axis, keepdims, np.inf)


def _nan_extreme(op: str, a: Any, axis: Any, keepdims: bool, worst: float) -> Any:
    x, known = _numbers(a, worst)
    best = reduced(op, x, axis, keepdims)
    if x.type.dtype.kind != "f":
        return Tensor(best)
    some = reduced("max", known, axis, keepdims)
    return Tensor(apply("where", some, best, like(best, np.nan)))


@implements("nanmean")
def nanmean(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
    x, known = _numbers(a, 0)
    kind = mean_type(x.type.dtype, dtype)
    total = reduced("sum", cast(x, kind), axis, keepdims)
    return Tensor(apply("div", total, reduced("sum", cast(known, kind), axis, keepdims)))


# Sorting.


@implements("argsort")
def argsort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    x, at = _flat_or(as_node(a), axis)
    return Tensor(apply("argsort", x, axis=at))


@implements("sort")
def sort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    x, at = _flat_or(as_node(a), axis)
    return np.take_along_axis(tensor(Tensor(x)), tensor(Tensor(apply("argsort", x, axis=at))), at)


@implements("median")
def median(a: Any, axis: Any = None, overwrite_input: bool = False, keepdims: bool = False) -> Any:
    """The mean of the one or two elements in the middle; nan where one of all is nan."""
    x = as_node(a)
    if count(x, axis) == 0:
        return Tensor(full(_reduced_shape(x, axis, keepdims), np.nan, mean_type(x.type.dtype, None)))
    ordered, size = _ordered("median", x, axis)
    middle = mean(ordered[..., (size - 1) // 2 : size // 2 + 1], axis=-1)
    return _with_axes(_nan_kept(ordered, middle), (), x, axis, keepdims)


@implements("percentile")
def percentile(a: Any, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False) -> Any:
    return quantile(
        a, q / 100 if type(q) in (float, int) else np.asarray(q) / 100, axis, method=method, keepdims=keepdims
    )


@implements("quantile")
def quantile(a: Any, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False) -> Any:
    """By linear interpolation between the sorted elements, integers in float64; nan where one of them is nan."""
    if method != "linear":
        raise MlaotError(f"quantile with method={method!r} cannot be traced; only 'linear' can")
    if not np.all((np.asarray(q) >= 0) & (np.asarray(q) <= 1)):
        raise MlaotError(f"quantile: expected shares from 0 to 1, got {q!r}")
    x = as_node(a)
    ordered, size = _ordered("quantile", x, axis)
    places = np.asarray(q) * (size - 1)
    if places.dtype.kind in "iu":  # the first or the last element, whatever its dtype
        return _with_axes(_nan_kept(ordered, ordered[..., places]), places.shape, x, axis, keepdims)
    low = np.clip(np.floor(places), 0, size - 1).astype(np.int64)
    share: Any = places - low
    share = float(share) if type(q) in (float, int) else share
    wide = Tensor(cast(as_node(ordered), mean_type(x.type.dtype, None)))
    found = _between(wide[..., low], wide[..., np.minimum(low + 1, size - 1)], share)
    return _with_axes(_nan_kept(ordered, found), places.shape, x, axis, keepdims)


def _between(low: Any, high: Any, share: Any) -> Any:
    """``low + (high - low) * share``, rounded as NumPy's: from the nearer end."""
    step = high - low
    upwards, downwards = low + step * share, high - step * (1 - share)
    if isinstance(share, float):
        return downwards if share >= 0.5 else upwards
    return np.where(share >= 0.5, downwards, upwards)


def _ordered(name: str, x: Node, axis: Any) -> tuple[Any, int]:
    """The elements over ``axis`` sorted along a last axis, which takes its place, and how many they are."""
    axes, size = normal_axes(axis, x.type.rank), count(x, axis)
    if not isinstance(size, int):
        raise MlaotError(f"{name} of {x.type} over a named dim cannot be traced")
    if size == 0:
        raise MlaotError(f"{name} of {x.type} over axis {axis}: there are no elements")
    rest = tuple(i for i in range(x.type.rank) if i not in axes)
    moved = apply("transpose", x, perm=(*rest, *axes))
    return sort(Tensor(apply("reshape", moved, shape=(*[x.type.shape[i] for i in rest], size)))), size


def _nan_kept(ordered: Any, found: Any) -> Any:
    """``found`` of sorted elements, nan where the last of those is."""
    if as_node(ordered).type.dtype.kind != "f":
        return found
    last = np.reshape(ordered[..., -1], (*ordered.shape[:-1], *[1] * (found.ndim - ordered.ndim + 1)))
    return np.where(np.isnan(last), np.nan, found)


def _with_axes(found: Any, shape: tuple[int, ...], x: Node, axis: Any, keepdims: bool) -> Any:
    """The axes of ``shape``, which come last, as the first ones."""
    result = np.moveaxis(found, range(-len(shape), 0), range(len(shape))) if shape else found
    return np.reshape(result, (*shape, *kept(x, normal_axes(axis, x.type.rank)))) if keepdims else result


@implements("searchsorted")
def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    """How many elements stand before each of ``v``; nan stands behind all numbers."""
    if sorter is not None:
        raise MlaotError("searchsorted with sorter= cannot be traced; use np.take(a, sorter) first")
    x, y = promote(a, v)
    row, wide = Tensor(x), np.reshape(Tensor(y), (*y.type.shape, 1))
    before = np.less(row, wide) if side == "left" else np.less_equal(row, wide)
    if x.type.dtype.kind == "f":
        before = before | (np.isnan(wide) & (~np.isnan(row) if side == "left" else True))
    return np.sum(before, axis=-1)
