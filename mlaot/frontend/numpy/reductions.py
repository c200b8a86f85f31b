"""NumPy's sums, extremes, means, searches and scans along axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.numpy.ufuncs import truth
from mlaot.frontend.trace.promotion import (
    as_node,
    broadcast_node,
    broadcast_together,
    cast,
    dtype_of,
    full,
    normal_axes,
    normal_axis,
)
from mlaot.frontend.trace.protocols import implements
from mlaot.frontend.trace.tensor import Tensor, as_tensor
from mlaot.ir import Dim, Node
from mlaot.ir import dims as dims_
from mlaot.ir.types import DType, boolean, f16, f32, f64, i64, u64
from mlaot.ops import Op
from mlaot.ops import bits as bitwise
from mlaot.ops import comparison as cmp
from mlaot.ops import cumulative as cumul
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st


def kept(node: Node, axes: tuple[int, ...]) -> tuple[Dim, ...]:
    """Return the shape of a reduction's result with ``keepdims=True``."""
    return tuple(1 if i in axes else d for i, d in enumerate(node.type.shape))


def reduce_over(op: Op, node: Node, axis: Any, keepdims: bool) -> Node:
    """Return Reduce by ``op`` over ``axis``, or over all axes if it is None."""
    axes = normal_axes(axis, node.type.rank)
    result = op(node, axes=axes) if axes else node
    return st.reshape(result, shape=kept(node, axes)) if keepdims else result


def count(node: Node, axis: Any) -> Dim:
    """Return the number of elements that a reduction over ``axis`` combines."""
    return dims_.product(tuple(node.type.shape[i] for i in normal_axes(axis, node.type.rank)))


def sum_type(dtype: DType, wanted: Any) -> DType:
    """Return the dtype of a sum, which is 64 bits wide for small integers."""
    if wanted is not None:
        return dtype_of(wanted)
    return {"i": i64, "b": i64, "u": u64}.get(dtype.kind, dtype)


def mean_type(dtype: DType, wanted: Any) -> DType:
    if wanted is not None:
        return dtype_of(wanted)
    return dtype if dtype.kind == "f" else f64


@implements("sum")
def sum_(
    a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False, initial: Any = None, where: Any = True
) -> Any:
    x = chosen(as_node(a), where, 0)
    return _accumulate(red.sum_, cast(x, sum_type(x.type.dtype, dtype)), axis, keepdims, initial)


@implements("prod")
def prod(
    a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False, initial: Any = None, where: Any = True
) -> Any:
    x = chosen(as_node(a), where, 1)
    return _accumulate(red.prod, cast(x, sum_type(x.type.dtype, dtype)), axis, keepdims, initial)


def _accumulate(op: Op, x: Node, axis: Any, keepdims: bool, initial: Any) -> Tensor:
    """Compute a sum or a product that starts from ``initial``."""
    result = reduce_over(op, x, axis, keepdims)
    if initial is None and op is red.sum_ and not normal_axes(axis, x.type.rank):
        initial = 0  # which no sum is without: that of -0 is 0
    return Tensor(result if initial is None else join_initial(op, result, initial))


# What joins two results of a reduction: of numbers, and of truth values.
JOINS = {
    red.sum_: (ew.add, bitwise.bitwise_or),
    red.prod: (ew.mul, bitwise.bitwise_and),
    red.max_: (ew.maximum, bitwise.bitwise_or),
    red.min_: (ew.minimum, bitwise.bitwise_and),
}


def join_initial(op: Op, result: Node, initial: Any) -> Node:
    """Combine a reduction's result with ``initial``. The dtype remains that of the reduction, as in NumPy."""
    join, logical = JOINS[op]
    first = cast(as_node(initial), result.type.dtype)
    return (logical if result.type.dtype is boolean else join)(*broadcast_together(result, first))


@implements("max", "amax")
def max_(a: Any, axis: Any = None, *, keepdims: bool = False, initial: Any = None, where: Any = True) -> Any:
    return _extreme(red.max_, as_node(a), axis, keepdims, initial, where)


@implements("min", "amin")
def min_(a: Any, axis: Any = None, *, keepdims: bool = False, initial: Any = None, where: Any = True) -> Any:
    return _extreme(red.min_, as_node(a), axis, keepdims, initial, where)


def _extreme(op: Op, x: Node, axis: Any, keepdims: bool, initial: Any, where: Any) -> Tensor:
    if where is not True:
        if initial is None:
            raise MlaotError(f"{op} with where= needs initial=, the result where nothing is chosen")
        x = chosen(x, where, initial)
    if initial is None:
        if _is_empty(x, axis):
            raise MlaotError(f"{op} of {x.type} over axis {axis}: there are no elements; use initial=")
        return Tensor(reduce_over(op, x, axis, keepdims))
    if _is_empty(x, axis):
        return Tensor(broadcast_node(cast(as_node(initial), x.type.dtype), reduced_shape(x, axis, keepdims)))
    return Tensor(join_initial(op, reduce_over(op, x, axis, keepdims), initial))


def _is_empty(x: Node, axis: Any) -> bool:
    """Tell whether a reduction over ``axis`` has no elements."""
    return any(x.type.shape[i] == 0 for i in normal_axes(axis, x.type.rank))


def reduced_shape(x: Node, axis: Any, keepdims: bool) -> tuple[Dim, ...]:
    axes = normal_axes(axis, x.type.rank)
    return kept(x, axes) if keepdims else tuple(d for i, d in enumerate(x.type.shape) if i not in axes)


@implements("ptp")
def ptp(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return np.subtract(max_(a, axis, keepdims=keepdims), min_(a, axis, keepdims=keepdims))


@implements("all")
def all_(a: Any, axis: Any = None, *, keepdims: bool = False, where: Any = True) -> Any:
    return _quantified(red.min_, chosen(truth(as_node(a)), where, True), axis, keepdims)


@implements("any")
def any_(a: Any, axis: Any = None, *, keepdims: bool = False, where: Any = True) -> Any:
    return _quantified(red.max_, chosen(truth(as_node(a)), where, False), axis, keepdims)


def _quantified(op: Op, x: Node, axis: Any, keepdims: bool) -> Tensor:
    """Compute ``all`` or ``any``; without elements they are True and False."""
    if _is_empty(x, axis):
        return Tensor(full(reduced_shape(x, axis, keepdims), op is red.min_, boolean))
    return Tensor(reduce_over(op, x, axis, keepdims))


@implements("count_nonzero")
def count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return Tensor(reduce_over(red.sum_, cast(truth(as_node(a)), i64), axis, keepdims))


def number(value: Dim, dtype: DType) -> Node:
    """Return a size as a node of ``dtype``; it may be a named dim."""
    return as_node(value, dtype)


def chosen(x: Node, where: Any, otherwise: Any) -> Node:
    """Return the array with ``otherwise`` in place of the elements that ``where=`` leaves out."""
    if where is True:
        return x
    mask = as_node(np.not_equal(as_tensor(where), 0))
    return cmp.where(
        broadcast_node(mask, x.type.shape), x, broadcast_node(as_node(otherwise, x.type.dtype), x.type.shape)
    )


def chosen_count(x: Node, axis: Any, dtype: DType, keepdims: bool, where: Any) -> Node:
    """Return the number of elements that a reduction combines, counting only those that ``where=`` selects."""
    if where is True:
        return number(count(x, axis), dtype)
    ones = broadcast_node(as_node(1, dtype), x.type.shape)
    return reduce_over(red.sum_, chosen(ones, where, 0), axis, keepdims)


@implements("mean")
def mean(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False, where: Any = True) -> Any:
    x = as_node(a)
    kind = mean_type(x.type.dtype, dtype)
    wide = f32 if kind is f16 else kind
    total = reduce_over(red.sum_, cast(chosen(x, where, 0), wide), axis, keepdims)
    return Tensor(cast(ew.div(*broadcast_together(total, chosen_count(x, axis, wide, keepdims, where))), kind))


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
    where: Any = True,
) -> Any:
    x = as_node(a)
    kind = mean_type(x.type.dtype, dtype)
    wide = f32 if kind is f16 else kind
    x = cast(x, wide)
    size = count(x, axis) if where is True else None
    middle = as_node(mean, wide) if mean is not None else None
    if middle is None:
        parts = chosen_count(x, axis, wide, True, where)
        middle = ew.div(*broadcast_together(reduce_over(red.sum_, chosen(x, where, 0), axis, True), parts))
    centered = chosen(ew.sub(x, broadcast_node(middle, x.type.shape)), where, 0)
    total = reduce_over(red.sum_, ew.mul(centered, centered), axis, keepdims)
    # Divide by n - ddof, and by 0 where that is negative, as NumPy does.
    if isinstance(size, int):
        divisor = as_node(max(size - (ddof or correction), 0), wide)
    else:
        rest = Tensor(chosen_count(x, axis, wide, keepdims, where)) - (ddof or correction)
        divisor = as_node(np.maximum(rest, 0))
    return Tensor(cast(ew.div(*broadcast_together(total, divisor)), kind))


@implements("std")
def std(a: Any, axis: Any = None, dtype: Any = None, *, where: Any = True, **options: Any) -> Any:
    return np.sqrt(var(a, axis, dtype, where=where, **options))


@implements("average")
def average(a: Any, axis: Any = None, weights: Any = None, *, returned: bool = False, keepdims: bool = False) -> Any:
    if returned:
        raise MlaotError("average with returned=True cannot be traced; compute the sum of the weights yourself")
    if weights is None:
        return mean(a, axis, keepdims=keepdims)
    x, w = as_tensor(a), as_tensor(weights)
    if w.shape != x.shape:
        index = [1] * x.ndim
        index[normal_axis(axis, x.ndim)] = -1
        w = np.reshape(w, index)
    total = np.sum(np.broadcast_to(w, x.shape), axis=axis, keepdims=keepdims)
    return np.sum(x * w, axis=axis, keepdims=keepdims) / total


def _search(op: Op, a: Any, axis: Any, keepdims: bool) -> Any:
    x = as_node(a)
    if x.type.dtype is boolean:
        x = cast(x, dtype_of("uint8"))
    rank = x.type.rank
    if axis is None:
        flat = st.reshape(x, shape=(dims_.product(x.type.shape),))
        place = op(flat, axis=0)
        return Tensor(st.reshape(place, shape=(1,) * rank) if keepdims else place)
    at = normal_axis(axis, rank)
    if x.type.shape[at] == 0:
        raise MlaotError(f"{op} of {x.type} along axis {axis}: there are no elements")
    place = op(x, axis=at)
    return Tensor(st.reshape(place, shape=kept(x, (at,))) if keepdims else place)


@implements("argmax")
def argmax(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return _search(red.argmax, a, axis, keepdims)


@implements("argmin")
def argmin(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return _search(red.argmin, a, axis, keepdims)


def flat_or(x: Node, axis: Any) -> tuple[Node, int]:
    """Return the array and the axis to work along: for ``axis`` None the flattened array."""
    if axis is None:
        return st.reshape(x, shape=(dims_.product(x.type.shape),)), 0
    return x, normal_axis(axis, x.type.rank)


@implements("cumsum")
def cumsum(a: Any, axis: Any = None, dtype: Any = None) -> Any:
    x, at = flat_or(as_node(a), axis)
    return Tensor(cumul.cumsum(cast(x, sum_type(x.type.dtype, dtype)), axis=at))


@implements("cumprod")
def cumprod(a: Any, axis: Any = None, dtype: Any = None) -> Any:
    x, at = flat_or(as_node(a), axis)
    return Tensor(cumul.cumprod(cast(x, sum_type(x.type.dtype, dtype)), axis=at))


def _cumulative(name: str, x: Any, axis: Any, dtype: Any, include_initial: bool) -> Any:
    tensor = Tensor(as_node(x))
    if axis is None and tensor.ndim != 1:
        raise MlaotError(f"{name} of {tensor.node.type} needs an axis")
    totals = (cumsum if name == "cumulative_sum" else cumprod)(tensor, axis if axis is not None else 0, dtype)
    if not include_initial:
        return totals
    at = normal_axis(axis if axis is not None else 0, tensor.ndim)
    shape = tuple(1 if i == at else d for i, d in enumerate(tensor.shape))
    start = full(shape, 0 if name == "cumulative_sum" else 1, totals.node.type.dtype)
    return np.concatenate([Tensor(start), totals], axis=at)


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
