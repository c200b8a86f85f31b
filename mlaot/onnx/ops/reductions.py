"""Reductions, searches and scans along axes, and the normalizations that use them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend import numpy as F
from mlaot.frontend.trace.protocols import is_traced
from mlaot.onnx import assumed
from mlaot.onnx.counting import counted
from mlaot.onnx.importer import Use
from mlaot.onnx.ops.shaping import flatten
from mlaot.onnx.registry import Function, operator
from mlaot.onnx.values import along, constant_value, extent_value, integers, kind_of, limits

AXES = "its second input, the axes,"
REDUCTIONS: dict[str, Function] = {
    "ReduceSum": np.sum,
    "ReduceMean": np.mean,
    "ReduceMax": np.max,
    "ReduceMin": np.min,
    "ReduceProd": np.prod,
    "ReduceL1": lambda x, **o: np.sum(np.abs(x), **o),
    "ReduceL2": lambda x, **o: np.sqrt(np.sum(x * x, **o)),
    "ReduceSumSquare": lambda x, **o: np.sum(x * x, **o),
    "ReduceLogSum": lambda x, **o: np.log(np.sum(x, **o)),
    "ReduceLogSumExp": F.logsumexp,
}


@operator(*REDUCTIONS)
def reduction(use: Use, x: Any, axes: Any = None, *, noop_with_empty_axes: bool = False, keepdims: bool = True) -> Any:
    reduce, rank = REDUCTIONS[use.op], x.ndim
    if axes is not None and axes.shape == (0,):
        axes = np.zeros(0, np.int64)
    if axes is not None and constant_value(axes) is None:
        return _over_computed(use, x, axes, keepdims)
    named = use.attribute("axes") if axes is None else integers(axes, AXES)
    if not named and noop_with_empty_axes:  # as if over an axis of one element
        return reduce(np.expand_dims(x, -1), axis=-1, keepdims=False)
    if named is not None and len({a % rank for a in named}) < len(named):
        raise MlaotError(f"an axis is named twice in {named}")
    if rank == 0:
        return reduce(np.reshape(x, (1,)), axis=0, keepdims=False)
    over = tuple(a % rank if -rank <= a < rank else a for a in named or range(rank))
    y = reduce(_never_empty(use, x, over), axis=over, keepdims=keepdims)
    return y if kind_of(x) == "f" or y.dtype == x.dtype else F.astype(y, x.dtype)


def _over_computed(use: Use, x: Any, axes: Any, keepdims: bool) -> Any:
    """Reduce over computed axes: compile a branch for each set of axes that makes the declared shape."""
    target = assumed.declared_shape(use, AXES)

    def reduce(over: tuple[int, ...]) -> Any:
        return F.astype(REDUCTIONS[use.op](_never_empty(use, x, over), axis=over, keepdims=keepdims), x.dtype)

    def shape(over: tuple[int, ...]) -> tuple[Any, ...]:
        return tuple(1 if i in over else e for i, e in enumerate(x.shape) if keepdims or i not in over)

    subsets = assumed.subsets(axes, x.ndim)
    return assumed.choose(use, AXES, [(holds, partial(reduce, a)) for a, holds in subsets if shape(a) == target])


def _never_empty(use: Use, x: Any, axes: tuple[int, ...]) -> Any:
    """Return the input with one neutral element along each empty axis that is reduced."""
    neutral = {"ReduceMax": 0, "ReduceMin": 1, "ReduceLogSumExp": 0}.get(use.op)
    if neutral is None or all(x.shape[a] != 0 for a in axes):
        return x
    shape = tuple(1 if i in axes and e == 0 else e for i, e in enumerate(x.shape))
    return np.full(shape, limits(x.dtype)[neutral], x.dtype)


@operator("ArgMax", "ArgMin")
def arg_extreme(use: Use, x: Any, *, axis: int = 0, select_last_index: bool = False, keepdims: bool = True) -> Any:
    search = np.argmax if use.op == "ArgMax" else np.argmin
    if not select_last_index:
        return search(x, axis=axis, keepdims=keepdims)
    return x.shape[axis] - 1 - search(np.flip(x, axis), axis=axis, keepdims=keepdims)


@operator("CumSum", "CumProd")
def cumulative(use: Use, x: Any, axis: Any, *, reverse: bool = False, exclusive: bool = False) -> Any:
    accumulate, first = (np.cumsum, 0) if use.op == "CumSum" else (np.cumprod, 1)

    def along_axis(at: int) -> Any:
        y = np.flip(x, at) if reverse else x
        if exclusive:
            before: tuple[Any, ...] = (slice(None),) * (at % x.ndim)
            start = F.filled(y[(*before, slice(0, 1))].shape, first, x.dtype)
            y = np.concatenate([start, y[(*before, slice(None, -1))]], axis=at)
        y = accumulate(y, axis=at)
        y = F.astype(y, x.dtype) if y.dtype != x.dtype else y
        return np.flip(y, at) if reverse else y

    if constant_value(axis) is not None:
        return along_axis(int(integers(axis, "the axis")[0]))
    place = np.remainder(np.reshape(axis, ()), x.ndim)
    return assumed.choose(use, "the axis", [(np.equal(place, a), partial(along_axis, a)) for a in range(x.ndim)])


def _log_softmax(x: Any, axis: int) -> Any:
    """Subtract the largest element first. Its difference with itself is nan if it is infinite, and so is the result."""
    shifted = x - np.max(x, axis=axis, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))


def _hardmax(x: Any, axis: int) -> Any:
    places = along(np.arange(x.shape[axis]), axis, x.ndim)
    return F.astype(np.equal(places, np.argmax(x, axis=axis, keepdims=True)), x.dtype)


NORMALIZED: dict[str, Function] = {"Softmax": F.softmax, "LogSoftmax": _log_softmax, "Hardmax": _hardmax}


@operator(*NORMALIZED)
def normalize(use: Use, x: Any) -> Any:
    function = NORMALIZED[use.op]
    if use.opset >= 13:
        return function(x, axis=use.attribute("axis", -1))
    axis = use.attribute("axis", 1)  # all axes from there on are one
    if axis in (-1, x.ndim - 1):
        return function(x, axis=-1)
    return np.reshape(function(flatten(x, axis=axis), axis=-1), x.shape)


@operator("TopK")
def top_k(use: Use, x: Any, k: Any = None, *, axis: int = -1, largest: bool = True) -> Any:
    what = "how many elements it gives"

    def extent() -> list[Any]:
        return [assumed.declared_shape(use, what)[axis]]

    if use.importer.is_counting and k is not None and constant_value(k) is None:
        number = np.minimum(np.maximum(np.reshape(k, ()), 0), extent_value(x.shape[axis]))
        return F.top_k(x, counted(use, number, x.shape[axis], axis % x.ndim, "elements"), axis=axis, largest=largest)
    count = use.attribute("k") if k is None else int(assumed.integers_or_declared(use, k, what, extent)[0])
    if constant_value(x) is not None and not is_traced(x):
        ranks = np.unique(x, return_inverse=True)[1].reshape(x.shape)  # nan has the largest
        order = np.argsort(-ranks if largest else ranks, axis=axis, kind="stable")
        places = np.take(order, np.arange(count), axis=axis)
        return np.take_along_axis(x, places, axis=axis), places
    return F.top_k(x, count, axis=axis, largest=largest)
