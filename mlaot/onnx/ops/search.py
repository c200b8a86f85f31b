"""Operators with a result whose length depends on the data: selected elements, unique ones, non-maximum suppression.

The length is counted when the model runs, and is a dim of later values (``mlaot/onnx/counting.py``). If the file
declares a number, the operator is compiled for it, and calls whose data give another number fail.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import mlaot.frontend.numpy as F
from mlaot.frontend.numpy.indexing import update
from mlaot.frontend.trace.control import scan
from mlaot.ir import Dim
from mlaot.ir.dims import product
from mlaot.onnx.counting import at_most, counted
from mlaot.onnx.importer import Use
from mlaot.onnx.registry import operator
from mlaot.onnx.values import Unsupported, as_traced, constant_value, extent_value, is_constant, is_fixed

PAIRS = 2**26  # comparisons of slices
ROUNDS = 2**12  # boxes of a class that are chosen where an open dimension says how many there are


def _places(use: Use, flags: Any, axis: int, what: str) -> Any:
    """Return the indices of the elements that are true, as many as the length of axis ``axis`` of the output."""
    n, numbers = flags.shape[0], as_traced(flags).astype(np.int64)
    length = counted(use, np.sum(numbers), n, axis, what)
    return _compress(numbers, length, F.arange(n), F.zeros((length,), np.int64))


def _compress(flags: Any, length: Dim, values: Any, blank: Any) -> Any:
    """Write the values whose flags are 1 into ``blank``, which has room for ``length``."""
    places = np.where(flags > 0, np.cumsum(flags, axis=0) - 1, extent_value(length))
    return F.scatter(as_traced(blank), places, as_traced(values), mode="set")


@operator("NonZero")
def non_zero(use: Use, x: Any) -> Any:
    numbers = constant_value(x)
    if numbers is not None:
        return np.array(np.nonzero(numbers), np.int64)
    flat = np.reshape(x, (product(tuple(x.shape)),))
    flags = flat if flat.dtype == np.bool_ else np.not_equal(flat, 0)
    places, rows = _places(use, flags, 1, "elements that are not 0"), []
    for extent in reversed(x.shape):
        rows.append(places % extent_value(extent))
        places = places // extent_value(extent)
    return np.stack(rows[::-1])


@operator("Compress")
def compress(use: Use, x: Any, condition: Any, *, axis: Any = None) -> Any:
    y, axis = (np.reshape(x, (product(tuple(x.shape)),)), 0) if axis is None else (x, axis % x.ndim)
    flags = constant_value(condition)
    if flags is not None:
        return np.take(y, np.flatnonzero(flags), axis=axis)
    return np.take(as_traced(y), _places(use, condition, axis, "elements that are not 0"), axis=axis)


@operator("Unique")
def unique(use: Use, x: Any, *, axis: Any = None, sorted: bool = True) -> Any:
    if is_constant(x):
        return constant_unique(np.asarray(constant_value(x)), axis, sorted)
    rows = np.reshape(x, (product(tuple(x.shape)),)) if axis is None else np.moveaxis(x, axis, 0)
    sizes = {i: 0 for i in (1, 3) if use.has(i)} | ({0: 0 if axis is None else axis % x.ndim} if use.has(0) else {})
    keys = rows if rows.ndim == 1 else _ranks(np.reshape(rows, (rows.shape[0], -1)))
    order, begins = _order(keys)
    output, along = next(iter(sizes.items()), (0, 0))
    length = rows.shape[0]
    if length != 1 and sizes:
        length = counted(use, np.sum(begins), length, along, "unique elements", output)
    first_ones, inverse, counts = _groups(order, begins, length, sorted)
    values = np.take(rows, first_ones, axis=0)
    return values if axis is None else np.moveaxis(values, 0, axis), first_ones, inverse, counts


def constant_unique(x: Any, axis: Any, is_sorted: bool) -> Any:
    values, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis, equal_nan=False
    )
    inverse = inverse.reshape(-1)
    if not is_sorted:
        order = np.argsort(first)
        values, first, counts = np.take(values, order, axis=axis or 0), first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    return values, first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)


def _ranks(rows: Any) -> Any:
    """Return the rank of each row in lexicographic order, the number of rows before it. Equal rows have equal ranks."""
    n, m = rows.shape
    if not is_fixed(n, m):
        raise Unsupported("unique slices of an array with open dimensions; pin them in [..dims]")
    if n * n * m > PAIRS:
        raise Unsupported(f"{n} slices of {m} elements are too many to compare")
    one, other = np.reshape(rows, (n, 1, m)), np.reshape(rows, (1, n, m))
    differs = np.not_equal(one, other)
    at = np.expand_dims(np.argmax(differs.astype(np.int64), axis=-1), -1)
    greater = np.take_along_axis(np.greater(one, other), at, axis=-1)[..., 0]
    return np.sum(greater.astype(np.int64), axis=1)


def _order(keys: Any) -> tuple[Any, Any]:
    """Return the order of keys, and for each in this order 1 if it is the first of equal ones, and else 0."""
    order = np.argsort(keys, axis=0, kind="stable")
    ordered, places = np.take(keys, order, axis=0), F.arange(keys.shape[0])
    before = np.take(ordered, np.maximum(as_traced(places) - 1, 0), axis=0)
    return order.astype(np.int64), (np.equal(places, 0) | np.not_equal(ordered, before)).astype(np.int64)


def _groups(order: Any, begins: Any, length: Dim, is_sorted: bool) -> tuple[Any, Any, Any]:
    """Return the first place of each group of equal keys, the group of each key, and how many keys a group has."""
    n, group = order.shape[0], np.cumsum(begins, axis=0) - 1
    blank = as_traced(F.zeros((length,), np.int64))
    first = _compress(begins, length, order, blank)
    inverse = update(as_traced(F.zeros((n,), np.int64)), (order,), group, "set")
    counts = F.scatter(blank, group, as_traced(F.ones((n,), np.int64)), mode="add")
    if is_sorted:
        return first, inverse, counts
    turn = np.argsort(first, axis=0, kind="stable")
    place = update(blank, (turn,), as_traced(F.arange(length)), "set")
    return np.take(first, turn, axis=0), np.take(place, inverse, axis=0), np.take(counts, turn, axis=0)


@operator("NonMaxSuppression", since=10)
def non_max_suppression(
    use: Use,
    boxes: Any,
    scores: Any,
    most: Any = None,
    overlap: Any = None,
    threshold: Any = None,
    *,
    center_point_box: bool = False,
) -> Any:
    batch, classes, places = scores.shape
    limit = constant_value(most)
    rounds = 0 if most is None else _rounds(places, None if limit is None else int(limit.reshape(())))
    if isinstance(rounds, int) and (bound := at_most(use, 0)) is not None:
        rounds = min(rounds, bound + 1)  # a round more than there is room for tells whether there are too many
    if rounds == 0:
        return np.zeros((0, 3), np.int64)
    corners = _corners(boxes, center_point_box)
    flags, chosen = _select(corners, scores, rounds, _scalar(overlap, 0.0), threshold)
    if limit is None:  # [batch, classes, rounds]
        flags = flags & (F.arange(rounds) < np.reshape(most, ()))
    shape: Any = (batch, classes, rounds)
    rows = [np.reshape(as_traced(F.arange(n)), form) for n, form in ((batch, (-1, 1, 1)), (classes, (-1, 1)))]
    triples = np.stack([*[np.broadcast_to(row, shape) for row in rows], chosen], axis=-1)
    total = product(shape)
    numbers = np.reshape(flags, (total,)).astype(np.int64)
    length = counted(use, np.sum(numbers), total, 0, "boxes")
    return _compress(numbers, length, np.reshape(triples, (total, 3)), F.zeros((length, 3), np.int64))


def _rounds(places: Dim, limit: int | None) -> Dim:
    """Return the largest number of selected boxes of a class."""
    if limit is None:
        return places
    return max(min(limit, places), 0) if isinstance(places, int) else max(limit, 0) if limit <= ROUNDS else places


def _scalar(value: Any, otherwise: float) -> Any:
    return otherwise if value is None else np.reshape(value, ())


def _corners(boxes: Any, is_centered: bool) -> list[Any]:
    """Return both ends of boxes along both axes, the smaller first."""
    a, b, c, d = (boxes[..., i] for i in range(4))
    if is_centered:
        return [a - c / 2, a + c / 2, b - d / 2, b + d / 2]
    return [np.minimum(a, c), np.maximum(a, c), np.minimum(b, d), np.maximum(b, d)]


def _select(corners: list[Any], scores: Any, rounds: Dim, overlap: Any, threshold: Any) -> tuple[Any, Any]:
    """Select the best remaining box in each round.

    Return whether there is one, and its index, [batch, classes, rounds].
    """
    left = as_traced(scores)
    if threshold is not None:
        left = np.where(left > _scalar(threshold, 0.0), left, -math.inf)
    ends = [np.expand_dims(as_traced(c), 1) for c in corners]  # [batch, 1, boxes]
    some = extent_value(left.shape[-1]) > 0
    area = (ends[1] - ends[0]) * (ends[3] - ends[2])

    def step(left: Any, _: Any) -> tuple[Any, Any]:
        best = np.expand_dims(np.argmax(left, axis=-1), -1)
        is_left = (np.take_along_axis(left, best, axis=-1) > -math.inf) & some
        low, high, low2, high2, size = (
            np.take_along_axis(np.broadcast_to(v, left.shape), best, axis=-1) for v in (*ends, area)
        )
        wide = np.maximum(np.minimum(ends[1], high) - np.maximum(ends[0], low), 0)
        tall = np.maximum(np.minimum(ends[3], high2) - np.maximum(ends[2], low2), 0)
        common = wide * tall
        both = area + size - common
        suppressed = (common > overlap * both) & (both > 0)
        itself = np.equal(F.arange(left.shape[-1]), best)
        remaining = np.where((suppressed & is_left) | itself, -math.inf, left)
        return remaining, (is_left[..., 0], best[..., 0].astype(np.int64))

    _, (flags, chosen) = scan(step, left, None, length=rounds)
    return np.moveaxis(flags, 0, -1), np.moveaxis(chosen, 0, -1)
