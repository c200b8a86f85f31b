"""Inputs that decide a shape. Operators are compiled for the shape that the file declares, which each call checks.

A shape, a number of tiles or a set of axes that the model computes decides the output's shape. If the file declares
that shape, the operator is compiled for it, and a call whose inputs need another shape raises an error. Values that do
not change the shape, such as the start of a slice, are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from itertools import combinations
from typing import Any

import numpy as np

from mlaot.frontend.numpy import astype
from mlaot.frontend.trace.context import needed
from mlaot.ir import Dim
from mlaot.ir.counts import dims_in
from mlaot.onnx.importer import Use
from mlaot.onnx.values import Computed, Unsupported, along, constant_value, extent_value, integers, lift, shape_vector

MOST = 100  # choices that are compiled


def declared_shape(use: Use, what: str, i: int = 0) -> tuple[Dim, ...]:
    """Return the shape of output ``i``, which the file must give since ``what`` is computed."""
    type_ = use.declared(i)
    if type_ is None:
        raise Computed(
            f"{what} is computed when the model runs, and the file gives its output no shape; make it constant"
        )
    known = dims_in(tuple(node.type for node in needed().root.graph.inputs.values())) | use.importer.counts.keys()
    if unknown := sorted(dims_in(type_) - known):
        raise Computed(f"{what} is computed when the model runs, and nothing tells what {unknown[0]} in its shape is")
    return type_.shape


def declared_extent(use: Use, axis: int, error: Unsupported, i: int = 0) -> int:
    """Return an extent of output ``i``, which the file must give as a number; else ``error`` is raised."""
    type_ = use.declared(i)
    extent = type_.shape[axis] if type_ is not None and type_.rank > axis else None
    if not isinstance(extent, int):
        raise error
    return extent


def require_equal(use: Use, value: Any, wanted: Sequence[Dim], what: str) -> None:
    """Make calls fail in which a computed vector (or number) has another value."""
    flat = np.reshape(astype(value, np.int64), (-1,))
    if flat.shape[0] != len(wanted):
        raise Unsupported(f"{what} has {flat.shape[0]} elements; {len(wanted)} make the declared shape")
    use.require(np.all(np.equal(flat, lift(shape_vector(list(wanted))))), f"{what} must be {list(wanted)}")


def integers_or_declared(use: Use, value: Any, what: str, wanted: Callable[[], Sequence[Dim]]) -> list[Any]:
    """Return a known vector of integers, or for a computed one the integers that give the declared shape."""
    if constant_value(value) is not None:
        return integers(value, what)
    targets = list(wanted())
    require_equal(use, value, targets, what)
    return targets


def choose(use: Use, what: str, choices: Iterable[tuple[Any, Callable[[], Any]]]) -> Any:
    """Select one of several results by its condition. Calls in which no condition holds fail.

    The checks of a result apply only to calls that select it.
    """
    conditions, results = [], []
    for condition, compute in choices:
        conditions.append(condition)
        use.importer.branches.append(condition)
        try:
            results.append(compute())
        finally:
            use.importer.branches.pop()
        if len(results) > MOST:
            raise Computed(f"{what} is computed when the model runs, and can take too many values; make it constant")
    if not results:
        raise Computed(f"{what} is computed when the model runs, and nothing makes the declared shape")
    use.require(reduce(np.logical_or, conditions), f"{what} must be what the file's shapes need")
    best = results[-1]
    for condition, result in zip(conditions[-2::-1], results[-2::-1], strict=True):
        best = np.where(condition, result, best)
    return best


def subsets(axes: Any, rank: int) -> list[tuple[tuple[int, ...], Any]]:
    """Return every set of as many axes as a computed vector has, and the condition that the vector is this set."""
    places = np.reshape(np.remainder(astype(axes, np.int64), rank), (-1, 1)) if rank else axes
    mask = np.any(np.equal(places, np.arange(rank).reshape(1, -1)), axis=0)
    choices = []
    for subset in combinations(range(rank), min(int(axes.shape[0]), rank + 1)):
        wanted = np.isin(np.arange(rank), subset)
        choices.append((subset, np.all(np.equal(mask, wanted))))
    return choices


def reshape(use: Use, x: Any, shape: Any) -> Any:
    """Reshape by a computed shape, which may have -1, and 0 for an extent that is kept."""
    what = "its second input, the shape,"
    target = declared_shape(use, what)
    sizes = astype(shape, np.int64)
    if sizes.shape != (len(target),):
        raise Unsupported(f"{what} has {list(sizes.shape)} elements; {len(target)} make the declared shape")
    wanted = lift(shape_vector(list(target)))
    fits = np.equal(sizes, wanted) | np.equal(sizes, -1)
    if not use.attribute("allowzero", 0):
        kept = [i < x.ndim and x.shape[i] == extent for i, extent in enumerate(target)]
        fits = fits | (np.equal(sizes, 0) & np.array(kept))
    once = np.sum(astype(np.equal(sizes, -1), np.int64)) <= 1
    use.require(np.all(fits) & once, f"{what} must make {list(target)}")
    return np.reshape(x, target)


def expand(use: Use, x: Any, shape: Any) -> Any:
    """Expand to a computed shape, which may have 1 where the input already has the extent."""
    what = "its second input, the shape,"
    target = declared_shape(use, what)
    count = int(shape.shape[0])
    own = ((1,) * len(target) + tuple(x.shape))[-len(target) :] if target else ()
    sizes = astype(shape, np.int64)
    behind = target[len(target) - count :]
    ones = np.array([a == b for a, b in zip(own[len(own) - count :], behind, strict=True)], bool)
    fits = np.equal(sizes, lift(shape_vector(list(behind)))) | (np.equal(sizes, 1) & ones)
    use.require(np.all(fits), f"{what} must make {list(target)}")
    return np.broadcast_to(x, target)  # type: ignore[arg-type]


def slice_(use: Use, x: Any, starts: Any, ends: Any, axes: Any, steps: Any) -> Any:
    """Slice by computed ends. Only the number of elements is fixed."""
    target = declared_shape(use, "where it starts or ends")
    count, rank = int(starts.shape[0]), x.ndim
    places = np.arange(count) if axes is None else np.remainder(astype(axes, np.int64), rank)
    firsts, lasts = astype(starts, np.int64), astype(ends, np.int64)
    strides = np.ones(count, np.int64) if steps is None else astype(steps, np.int64)
    for axis in range(rank):
        length = x.shape[axis]
        here = np.equal(places, axis)
        has = np.any(here)
        first, last, step = (np.sum(np.where(here, values, 0)) for values in (firsts, lasts, strides))
        step = np.where(has, step, 1)
        size = extent_value(length)
        back = step < 0
        low, high = np.where(back, -1, 0), np.where(back, size - 1, size)
        first = np.where(has, np.minimum(np.maximum(np.where(first < 0, first + size, first), 0), high), 0)
        last = np.where(has, np.minimum(np.maximum(np.where(last < 0, last + size, last), low), high), size)
        nonzero = np.where(np.equal(step, 0), 1, step)
        number = np.maximum(-np.floor_divide(first - last, nonzero), 0)
        wanted = extent_value(target[axis])
        use.require(np.equal(number, wanted) & np.not_equal(step, 0), f"axis {axis} must have {target[axis]} elements")
        x = np.take(x, first + np.arange(int(target[axis])) * step, axis=axis)
    return x


def pads_of_all(pads: Any, axes: Any, rank: int) -> Any:
    """Return the amounts for all axes, given amounts for computed axes."""
    places = np.remainder(astype(axes, np.int64), rank)
    here = np.equal(np.arange(rank).reshape(-1, 1), places)
    both = np.reshape(astype(pads, np.int64), (2, 1, -1))
    return np.reshape(np.sum(np.where(here, both, 0), axis=2), (2 * rank,))


def pad(use: Use, x: Any, pads: Any, value: Any, axes: Sequence[int], mode: str) -> Any:
    """Pad by computed amounts."""
    target = declared_shape(use, "its second input")
    amounts = astype(pads, np.int64)
    inside: Any = True
    for i, axis in enumerate(axes):
        length, low, high = x.shape[axis], amounts[i], amounts[i + len(axes)]
        wanted = extent_value(target[axis])
        use.require(np.equal(low + high + length, wanted), f"axis {axis} must have {target[axis]} elements")
        at = np.arange(int(target[axis])) - low
        if mode == "constant":
            row = (at >= 0) & (at < length)
            inside = inside & along(row, axis, x.ndim)
        if mode == "reflect":
            period = max(2 * (length - 1), 1)
            at = np.remainder(at, period)
            at = np.where(at >= length, period - at, at)
        elif mode == "wrap":
            at = np.remainder(at, length)
        x = np.take(x, np.minimum(np.maximum(at, 0), length - 1), axis=axis)
    fill = np.zeros((), x.dtype) if value is None else np.reshape(value, ())
    return np.where(inside, x, fill) if mode == "constant" else x
