"""Arrays of numbered scalars for ``raise_tensors``: their repetitions, holes and axes.

An element is the number of a scalar, or ``HOLE`` if the array has no scalar there, as in sums of 1, 2, .. terms where
only longer sums have a term. Readers of an array with holes do not depend on the tensor's elements there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Ids = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]
Key = tuple[bytes, tuple[int, ...]]
HOLE = -1


def key(ids: Ids) -> Key:
    """Return a key that equal arrays have in common."""
    return ids.tobytes(), ids.shape


def scalars(ids: Ids) -> Ids:
    """Return the scalars of an array, each once."""
    found = np.unique(ids)
    return found[1:] if found.size and found[0] == HOLE else found


def invariant(ids: Ids) -> tuple[Ids, tuple[int, ...]]:
    """Drop the axes along which an array does not vary, apart from holes; return it and the remaining axes."""
    axes = tuple(range(ids.ndim))
    for axis in reversed(range(ids.ndim)):
        most = ids.max(axis, keepdims=True)
        if ((ids == most) | (ids == HOLE)).all():
            ids = most.squeeze(axis)
            axes = axes[:axis] + axes[axis + 1 :]
    return np.ascontiguousarray(ids).reshape(ids.shape), axes


def stand_ins(is_hole: Mask) -> Ids:
    """Return for each position of a flat array one that is no hole: itself, or the first of its row or column."""
    places = np.arange(is_hole.size).reshape(is_hole.shape)
    known = ~is_hole
    for axis in reversed(range(is_hole.ndim)):
        first = np.expand_dims(known.argmax(axis), axis)
        places = np.where(known, places, np.take_along_axis(places, first, axis))
        known = known | known.any(axis, keepdims=True)
    return places


def filled(ids: Ids) -> Ids:
    """Return an array with other scalars of it in place of holes."""
    is_hole = ids == HOLE
    return ids.reshape(-1)[stand_ins(is_hole)] if is_hole.any() else ids


def clusters(arrays: Sequence[Ids]) -> list[list[Ids]]:
    """Group arrays that share a scalar, directly or through other arrays."""
    owner: dict[int, int] = {}
    group = list(range(len(arrays)))

    def find(i: int) -> int:
        while group[i] != i:
            i = group[i]
        return i

    for i, ids in enumerate(arrays):
        for scalar in scalars(ids).tolist():
            group[find(i)] = find(owner.setdefault(scalar, i))
    result: dict[int, list[Ids]] = {}
    for i, ids in enumerate(arrays):
        result.setdefault(find(i), []).append(ids)
    return list(result.values())


def base(cluster: Sequence[Ids]) -> Ids:
    """Return an array with every scalar of the cluster once: one of its arrays, or a vector of all scalars."""
    union = scalars(np.concatenate([ids.reshape(-1) for ids in cluster]))
    for ids in sorted(cluster, key=lambda ids: ids.size):
        held = ids[ids != HOLE]
        if held.size == union.size and np.unique(held).size == union.size:
            return ids
    return union


def split(ids: Ids, parts: Sequence[Ids], read: Sequence[Ids]) -> tuple[Ids, list[Ids], list[Ids]]:
    """Split axes so that the scalars that are read repeat along one half: pairs of rows and columns then form a matrix.

    ``parts`` are arrays of arguments, and ``read`` the scalars that these depend on; both have the axes of ``ids``
    first. Examples of such pairs are a convolution's results in one list, of windows and filters, and a layer's results
    at several positions.
    """
    axis = 0
    parts, read = list(parts), list(read)
    while axis < ids.ndim:
        found = next(filter(None, (_halves(each, axis) for each in read)), None)
        if found is None:
            axis += 1
            continue
        order, sizes = found
        ids = _in_halves(ids, axis, order, sizes)
        parts, read = ([_in_halves(each, axis, order, sizes) for each in arrays] for arrays in (parts, read))
    return ids, parts, read


def _in_halves(ids: Ids, axis: int, order: Ids, sizes: tuple[int, int]) -> Ids:
    return ids.take(order, axis).reshape(*ids.shape[:axis], *sizes, *ids.shape[axis + 1 :])


def _halves(part: Ids, axis: int) -> tuple[Ids, tuple[int, int]] | None:
    """Return an order of an axis and its two factors, along one of which the part repeats, or None."""
    extent = part.shape[axis]
    rows = np.moveaxis(part, axis, 0).reshape(extent, -1)
    _, first, labels = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    labels = first[labels.reshape(-1)]
    kinds, counts = np.unique(labels, return_counts=True)
    size = extent // len(kinds)
    if len(kinds) in (1, extent) or (counts != size).any():
        return None
    order = np.arange(extent)
    if (labels.reshape(size, len(kinds)) == labels[: len(kinds)]).all():
        return order, (size, len(kinds))
    return np.argsort(labels, kind="stable"), (len(kinds), size)


def column_ranks(rows: Ids, order: Ids) -> tuple[Ids, int] | None:
    """Return the column of each element of ragged rows, with each scalar in one column, and a count.

    Rows that share a scalar, directly or through others, are a family, which has a column for each of its scalars, in
    ``order``. The count is the number of families. The result is None if a family has more scalars than ``rows`` has
    columns.
    """
    held = rows != HOLE
    family = np.arange(len(order))
    while True:
        of_row = np.where(held, family[rows], len(order)).min(1)
        better = family.copy()
        np.minimum.at(better, rows[held], np.broadcast_to(of_row[:, None], rows.shape)[held])
        if (better == family).all():
            break
        family = better
    members = scalars(rows)
    members = members[np.lexsort((order[members], family[members]))]
    starts = np.flatnonzero(np.diff(family[members], prepend=-1))
    sizes = np.diff(starts, append=len(members))
    if sizes.max() > rows.shape[1]:
        return None
    rank = np.zeros(len(order), np.int64)
    rank[members] = np.arange(len(members)) - np.repeat(starts, sizes)
    ranks = rank[rows]
    crowded = [len(np.unique(ranks[i][held[i]])) < held[i].sum() for i in range(len(rows))]
    return None if any(crowded) else (ranks, len(starts))
