"""Reductions, searches and scans along axes, and what is normalized by them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend import numpy as F
from mlaot.frontend.trace.protocols import is_traced
from mlaot.ir.dims import product
from mlaot.onnx import assumed
from mlaot.onnx.importer import Use
from mlaot.onnx.registry import operator
from mlaot.onnx.values import integers, known

Reduction = Callable[..., Any]


def _sum_square(x: Any, **options: Any) -> Any:
    return np.sum(x * x, **options)


REDUCTIONS: dict[str, Reduction] = {
    "ReduceSum": np.sum,
    "ReduceMean": np.mean,
    "ReduceMax": np.max,
    "ReduceMin": np.min,
    "ReduceProd": np.prod,
    "ReduceL1": lambda x, **o: np.sum(np.abs(x), **o),
    "ReduceL2": lambda x, **o: np.sqrt(_sum_square(x, **o)),
    "ReduceSumSquare": _sum_square,
    "ReduceLogSum": lambda x, **o: np.log(np.sum(x, **o)),
    "ReduceLogSumExp": lambda x, **o: F.logsumexp(x, **o),
}


@operator(*REDUCTIONS)
def reduction(use: Use, x: Any, axes: Any = None) -> Any:
    if axes is not None and known(axes) is None and axes.shape != (0,):
        return _over_computed(use, x, axes)
    if axes is not None and axes.shape == (0,):
        axes = np.zeros(0, np.int64)
    found = use.attribute("axes") if axes is None else integers(axes, "its second input, the axes,")
    if not found and use.attribute("noop_with_empty_axes", 0):
        name = use.node.op_type  # as if over an axis of one element
        return REDUCTIONS[name](np.expand_dims(x, -1), axis=-1, keepdims=False)
    if found is not None and len({a % x.ndim for a in found}) < len(found):
        raise MlaotError(f"an axis is named twice in {found}")
    where = tuple(a % x.ndim if -x.ndim <= a < x.ndim else a for a in found) if found else tuple(range(x.ndim))
    keep = bool(use.attribute("keepdims", 1))
    if x.ndim == 0:
        return REDUCTIONS[use.node.op_type](np.reshape(x, (1,)), axis=0, keepdims=False)
    kind = np.dtype("float32" if str(x.dtype) in ("bf16", "bfloat16") else x.dtype)
    y = REDUCTIONS[use.node.op_type](_never_empty(use, x, where), axis=where, keepdims=keep)
    return y if kind.kind == "f" or y.dtype == x.dtype else F.astype(y, x.dtype)


def _over_computed(use: Use, x: Any, axes: Any) -> Any:
    """By axes that are computed: all that make the declared shape are."""
    what = "its second input, the axes,"
    target, keep = assumed.declared_shape(use, what), bool(use.attribute("keepdims", 1))

    def over(some: tuple[int, ...]) -> Any:
        y = REDUCTIONS[use.node.op_type](_never_empty(use, x, some), axis=some, keepdims=keep)
        return y if y.dtype == x.dtype else F.astype(y, x.dtype)

    def shape(some: tuple[int, ...]) -> tuple[Any, ...]:
        return tuple(1 if i in some else e for i, e in enumerate(x.shape) if keep or i not in some)

    choices = [(holds, partial(over, some)) for some, holds in assumed.subsets(axes, x.ndim) if shape(some) == target]
    return assumed.chosen(use, what, choices)


def _never_empty(use: Use, x: Any, axes: tuple[int, ...]) -> Any:
    """The extremes of nothing are what does not change others."""
    fill = {"ReduceMax": -np.inf, "ReduceMin": np.inf, "ReduceLogSumExp": -np.inf}.get(use.node.op_type)
    if fill is None or all(x.shape[a] != 0 for a in axes):
        return x
    kind = np.dtype(x.dtype)
    least = fill if kind.kind == "f" else fill < 0 if kind.kind == "b" else None
    if kind.kind == "b":
        least = fill > 0
    elif least is None:
        least = np.iinfo(kind).max if fill > 0 else np.iinfo(kind).min
    shape = tuple(1 if i in axes and e == 0 else e for i, e in enumerate(x.shape))
    return np.full(shape, least, kind)


@operator("ArgMax", "ArgMin")
def arg_extreme(use: Use, x: Any) -> Any:
    axis, keep = use.attribute("axis", 0), bool(use.attribute("keepdims", 1))
    search = np.argmax if use.node.op_type == "ArgMax" else np.argmin
    if not use.attribute("select_last_index", 0):
        return search(x, axis=axis, keepdims=keep)
    return x.shape[axis] - 1 - search(np.flip(x, axis), axis=axis, keepdims=keep)


@operator("CumSum", "CumProd")
def cumulative(use: Use, x: Any, axis: Any) -> Any:
    if known(axis) is None:
        place = np.remainder(np.reshape(axis, ()), x.ndim)
        choices = [(np.equal(place, a), partial(_cumulative, use, x, a)) for a in range(x.ndim)]
        return assumed.chosen(use, "the axis", choices)
    return _cumulative(use, x, int(integers(axis, "the axis")[0]))


def _cumulative(use: Use, x: Any, at: int) -> Any:
    backwards, exclusive = use.attribute("reverse", 0), use.attribute("exclusive", 0)
    y = np.flip(x, at) if backwards else x
    if exclusive:
        start: list[Any] = [slice(None)] * x.ndim
        start[at] = slice(0, 1)
        first = F.filled(y[tuple(start)].shape, int(use.node.op_type == "CumProd"), x.dtype)
        start[at] = slice(None, -1)
        y = np.concatenate([first, y[tuple(start)]], axis=at)
    y = np.cumsum(y, axis=at) if use.node.op_type == "CumSum" else np.cumprod(y, axis=at)
    y = F.astype(y, x.dtype) if y.dtype != x.dtype else y
    return np.flip(y, at) if backwards else y


@operator("Softmax", "LogSoftmax", "Hardmax")
def normalized(use: Use, x: Any) -> Any:
    function = {"Softmax": F.softmax, "LogSoftmax": _log_softmax, "Hardmax": _hardmax}[use.node.op_type]
    if use.opset >= 13:
        return function(x, axis=use.attribute("axis", -1))
    axis = use.attribute("axis", 1)  # all axes from there on are one
    axis = axis + x.ndim if axis < 0 else axis
    if axis == x.ndim - 1:
        return function(x, axis=-1)
    flat = np.reshape(x, (product(tuple(x.shape[:axis])), product(tuple(x.shape[axis:]))))
    return np.reshape(function(flat, axis=-1), x.shape)


def _log_softmax(x: Any, axis: int) -> Any:
    """By what is largest, be it infinite: no difference of infinities is a number, so all along the axis are nan."""
    shifted = x - np.max(x, axis=axis, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))


def _hardmax(x: Any, axis: int) -> Any:
    places = np.arange(x.shape[axis]).reshape([-1 if i == axis % x.ndim else 1 for i in range(x.ndim)])
    return F.astype(np.equal(places, np.argmax(x, axis=axis, keepdims=True)), x.dtype)


@operator("TopK")
def top_k(use: Use, x: Any, k: Any = None) -> Any:
    what, axis = "how many elements it gives", use.attribute("axis", -1)

    def extent() -> list[Any]:
        return [assumed.declared_shape(use, what)[axis]]

    count = use.attribute("k") if k is None else int(assumed.settled_integers(use, k, what, extent)[0])
    axis, largest = use.attribute("axis", -1), bool(use.attribute("largest", 1))
    if known(x) is not None and not is_traced(x):
        ranks = np.unique(x, return_inverse=True)[1].reshape(x.shape)  # nan has the largest
        order = np.argsort(-ranks if largest else ranks, axis=axis, kind="stable")
        chosen = np.take(order, np.arange(count), axis=axis)
        return np.take_along_axis(x, chosen, axis=axis), chosen
    return F.top_k(x, count, axis=axis, largest=largest)
