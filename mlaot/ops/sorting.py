"""The order of the elements along an axis. Sorted values are a gather by it."""

from __future__ import annotations

import numpy as np

from mlaot.errors import MlaotError
from mlaot.ir import Node, Type
from mlaot.ir.types import i64
from mlaot.ops.axes import along
from mlaot.ops.base import Array, Op, full_like, no_gradient
from mlaot.ops.indexing import scatter
from mlaot.ops.nests.sorts import argsort_nest, sort_nest
from mlaot.ops.structure import in_order, slice_

Places = tuple[int, int]  # from the first to behind the last


def _argsort_type(
    x: Type, axis: int, descending: bool = False, count: int | None = None, places: Places | None = None
) -> Type:
    if not 0 <= axis < x.rank:
        raise MlaotError(f"cannot sort {x} along axis {axis}")
    extent = x.shape[axis]
    if places is not None and not (isinstance(extent, int) and count is None and 0 <= places[0] < places[1] <= extent):
        raise MlaotError(f"cannot find what comes at the places {places} along axis {axis} of {x}")
    if count is None:
        return Type(i64, x.shape)
    if not isinstance(extent, int) or not 0 < count <= extent:
        raise MlaotError(f"cannot choose the first {count} along axis {axis} of {x}")
    return Type(i64, (*x.shape[:axis], count, *x.shape[axis + 1 :]))


def _argsort_reference(
    x: Array, axis: int, descending: bool = False, count: int | None = None, places: Places | None = None
) -> Array:
    """Sort by ranks, which can be negated where numbers cannot. The rank of nan is the largest."""
    ranks = np.unique(x, return_inverse=True)[1].reshape(x.shape)
    order = np.argsort(-ranks if descending else ranks, axis=axis, kind="stable").astype(np.int64)
    if places is not None:
        found = np.zeros_like(order)
        there = (*[slice(None)] * axis, slice(*places))
        found[there] = order[there]
        return found
    return order[(*[slice(None)] * axis, slice(0, count))]


def _sort_type(x: Type, axis: int, descending: bool = False, places: Places | None = None) -> Type:
    _argsort_type(x, axis, descending, None, places)
    return x


def _sort_reference(x: Array, axis: int, descending: bool = False, places: Places | None = None) -> Array:
    ordered = np.take_along_axis(x, _argsort_reference(x, axis, descending), axis)
    if places is None:
        return ordered
    found = np.zeros_like(ordered)
    there = (*[slice(None)] * axis, slice(*places))
    found[there] = ordered[there]
    return found


def _vjp_sort(
    ct: Node, out: Node, x: Node, axis: int, descending: bool = False, places: Places | None = None
) -> tuple[Node]:
    """The cotangents where the elements came from."""
    rank, last = x.type.rank, x.type.rank - 1
    to_last = [*range(axis), *range(axis + 1, rank), axis]
    order, back = argsort(x, axis=axis, descending=descending), [*range(axis), last, *range(axis, last)]
    zeros, *read = [in_order(node, to_last) for node in (full_like(x, 0.0), order, ct)]
    if places is not None:
        size = (*zeros.type.shape[:-1], places[1] - places[0])
        attrs = {"start": (*[0] * last, places[0]), "size": size, "step": (1,) * rank}
        read = [slice_(node, **attrs) for node in read]
    return (in_order(scatter(zeros, *read, lead=last, mode="add"), back),)


# Passes write it, in place of a gather, when gradients are there. Equal numbers keep their order, so bits are the same.
sort: Op = Op(
    "sort",
    _sort_type,
    _sort_reference,
    _vjp_sort,
    along("axis"),
    exact=True,
    nest=sort_nest,
    doc="the elements in the order of `argsort`, or those at some `places`, with 0 at all others",
)


# Stable: equal elements (0 and -0 too) keep their order, also when descending. nan is larger than all numbers.
argsort: Op = Op(
    "argsort",
    _argsort_type,
    _argsort_reference,
    no_gradient,
    along("axis"),
    nest=argsort_nest,
    doc="the indices that sort an axis, or the first `count` of them, or those at some `places`, with 0 at all others:"
    " stable, ascending or descending, nan above all numbers",
)
