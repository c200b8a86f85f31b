"""Operators whose result is as long as the data say: chosen elements, unique ones, boxes that stay.

A compiled model has one shape for its results. Where the file declares how many elements there are, the operator is
compiled for this many, and calls with data that have more or fewer are refused.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import mlaot.frontend.numpy as F
from mlaot.frontend.numpy.indexing import update
from mlaot.frontend.trace.control import scan
from mlaot.onnx import assumed
from mlaot.onnx.importer import Use
from mlaot.onnx.registry import operator
from mlaot.onnx.values import Unsupported, as_traced, constant_value, is_constant, is_fixed

PAIRS = 2**26  # comparisons of slices
OF_DATA = (
    "how many elements it gives depends on the data; declare the output with a fixed shape, or export the "
    "model with a mask instead"
)


def _compress(use: Use, flags: Any, count: int, what: str, values: Any, blank: Any) -> Any:
    """Put the ``count`` values whose flags are true into ``blank``; calls with more or fewer are refused."""
    _require(use, np.sum(flags.astype(np.int64)), count, what)
    places = np.where(flags, np.cumsum(flags.astype(np.int64), axis=0) - 1, count)
    return F.scatter(as_traced(blank), places, values, mode="set")


def _require(use: Use, number: Any, count: int, what: str) -> None:
    use.require(np.equal(number, count), f"the file's shape needs {count} {what}")


def _places(use: Use, flags: Any, count: int) -> Any:
    """Return the places of the ``count`` elements that are true."""
    places = as_traced(np.arange(flags.shape[0]))
    return _compress(use, flags, count, "elements that are not 0", places, np.zeros(count, np.int64))


def _flat(x: Any) -> Any:
    if not is_fixed(*x.shape):
        raise Unsupported(f"a search in an array {list(x.shape)} with open dimensions; pin them in [..dims]")
    return np.reshape(x, (math.prod(x.shape),))


@operator("NonZero")
def non_zero(use: Use, x: Any) -> Any:
    numbers = constant_value(x)
    if numbers is not None:
        return np.array(np.nonzero(numbers), np.int64)
    count, flat = assumed.declared_extent(use, 1, Unsupported(OF_DATA)), _flat(x)
    flags = flat if flat.dtype == np.bool_ else np.not_equal(flat, 0)
    places, rows = _places(use, flags, count), []
    for extent in reversed(x.shape):
        rows.append(places % extent)
        places = places // extent
    return np.stack(rows[::-1])


@operator("Compress")
def compress(use: Use, x: Any, condition: Any, *, axis: Any = None) -> Any:
    y, axis = (np.reshape(x, (-1,)), 0) if axis is None else (x, axis % x.ndim)
    flags = constant_value(condition)
    if flags is not None:
        return np.take(y, np.flatnonzero(flags), axis=axis)
    count = assumed.declared_extent(use, axis, Unsupported(OF_DATA))
    return np.take(as_traced(y), _places(use, condition, count), axis=axis)


@operator("Unique")
def unique(use: Use, x: Any, *, axis: Any = None, sorted: bool = True) -> Any:
    if is_constant(x):
        return constant_unique(np.asarray(constant_value(x)), axis, sorted)
    rows = _flat(x) if axis is None else np.moveaxis(x, axis, 0)
    sizes = {i: 0 for i in (1, 3) if use.has(i)} | ({0: 0 if axis is None else axis % x.ndim} if use.has(0) else {})
    count = rows.shape[0]
    if count != 1 and sizes:
        output, along = next(iter(sizes.items()))
        count = assumed.declared_extent(use, along, Unsupported(OF_DATA), output)
    keys = rows if rows.ndim == 1 else _ranks(np.reshape(rows, (rows.shape[0], -1)))
    first_ones, inverse, counts = _groups(keys, count, sorted)
    _require(use, np.max(inverse) + 1, count, "unique elements")
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
    """Count for each row how many others come before it in lexicographic order: equal rows have equal ones."""
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


def _groups(keys: Any, count: int, is_sorted: bool) -> tuple[Any, Any, Any]:
    """Return the first place of each group of equal keys, the group of each key, and how many keys a group has."""
    n = keys.shape[0]
    order = np.argsort(keys, axis=0, kind="stable")
    ordered = np.take(keys, order, axis=0)
    begins = np.concatenate([as_traced(np.ones(1, bool)), np.not_equal(ordered[1:], ordered[:-1])])
    group = np.cumsum(begins.astype(np.int64), axis=0) - 1
    blank = as_traced(np.zeros(count, np.int64))
    first = F.scatter(blank, np.where(begins, group, count), order.astype(np.int64), mode="set")
    inverse = update(as_traced(np.zeros(n, np.int64)), (order,), group, "set")
    counts = F.scatter(blank, group, as_traced(np.ones(n, np.int64)), mode="add")
    if is_sorted:
        return first, inverse, counts
    turn = np.argsort(first, axis=0, kind="stable")
    place = update(blank, (turn,), as_traced(np.arange(count)), "set")
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
    count = assumed.declared_extent(use, 0, Unsupported(OF_DATA))
    batch, classes, places = scores.shape
    if not is_fixed(batch, classes, places):
        raise Unsupported("boxes with an open dimension; pin it in [..dims]")
    limit = constant_value(most)
    # A round more than there is room for tells whether there are too many.
    rounds = 0 if most is None else min(places, count + 1)
    if limit is not None:
        rounds = max(min(rounds, int(limit.reshape(()))), 0)
    if rounds == 0:
        if count:
            raise Unsupported(f"at most 0 boxes, and an output that is declared with {count}")
        return np.zeros((0, 3), np.int64)
    corners = _corners(boxes, center_point_box)
    flags, chosen = _select(corners, scores, rounds, _scalar(overlap, 0.0), threshold)
    if limit is None:  # [batch, classes, rounds]
        flags = flags & (np.arange(rounds) < np.reshape(most, ()))
    grid = np.stack(np.meshgrid(np.arange(batch), np.arange(classes), np.arange(rounds), indexing="ij")[:2], axis=-1)
    triples = np.concatenate([as_traced(grid.astype(np.int64)), np.expand_dims(chosen, -1)], axis=-1)
    total = batch * classes * rounds
    flags, triples = np.reshape(flags, (total,)), np.reshape(triples, (total, 3))
    return _compress(use, flags, count, "boxes", triples, np.zeros((count, 3), np.int64))


def _scalar(value: Any, otherwise: float) -> Any:
    return otherwise if value is None else np.reshape(value, ())


def _corners(boxes: Any, is_centered: bool) -> list[Any]:
    """Return both ends of boxes along both axes, the smaller first."""
    a, b, c, d = (boxes[..., i] for i in range(4))
    if is_centered:
        return [a - c / 2, a + c / 2, b - d / 2, b + d / 2]
    return [np.minimum(a, c), np.maximum(a, c), np.minimum(b, d), np.maximum(b, d)]


def _select(corners: list[Any], scores: Any, rounds: int, overlap: Any, threshold: Any) -> tuple[Any, Any]:
    """Select the best box that is left, round by round: whether there is one, and which, [batch, classes, rounds]."""
    left = as_traced(scores)
    if threshold is not None:
        left = np.where(left > _scalar(threshold, 0.0), left, -math.inf)
    ends = [np.expand_dims(as_traced(c), 1) for c in corners]  # [batch, 1, boxes]
    area = (ends[1] - ends[0]) * (ends[3] - ends[2])

    def step(left: Any, _: Any) -> tuple[Any, Any]:
        best = np.expand_dims(np.argmax(left, axis=-1), -1)
        is_left = np.take_along_axis(left, best, axis=-1) > -math.inf
        low, high, low2, high2, size = (
            np.take_along_axis(np.broadcast_to(v, left.shape), best, axis=-1) for v in (*ends, area)
        )
        wide = np.maximum(np.minimum(ends[1], high) - np.maximum(ends[0], low), 0)
        tall = np.maximum(np.minimum(ends[3], high2) - np.maximum(ends[2], low2), 0)
        common = wide * tall
        both = area + size - common
        suppressed = (common > overlap * both) & (both > 0)
        itself = np.equal(np.arange(left.shape[-1]), best)
        remaining = np.where((suppressed & is_left) | itself, -math.inf, left)
        return remaining, (is_left[..., 0], best[..., 0].astype(np.int64))

    _, (flags, chosen) = scan(step, left, None, length=rounds)
    return np.moveaxis(flags, 0, -1), np.moveaxis(chosen, 0, -1)
