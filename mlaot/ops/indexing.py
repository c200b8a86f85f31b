"""Ops that read and write where indices say: gather and scatter along one axis, and ``index``, a note on integers.

    x [lead.., n, rest..]    indices [lead.., m..]    updates and results [lead.., m.., rest..]

The ``lead`` leading axes of x and of its indices are the same. A negative index counts from the end. If the index is
then out of range, gather clamps it and scatter drops it; gather from an axis without elements gives zeros. This applies
to indices that a model computes, and defines the ops: references, nests and VJPs follow it.

Integers that a caller of the module passes raise an error if they are out of range. ``passes/algebra/index_ranges.py``
finds the ranges from ``index=`` of the ops that read them, and from the op ``index``. That op computes and checks
nothing, and the pass removes it.

``x[i]``, ``np.take`` and so on are composed of these ops in ``mlaot/frontend/numpy/indexing.py``.
"""

from __future__ import annotations

from math import prod

import numpy as np

from mlaot.errors import MlaotError
from mlaot.ir import Dim, Node, Type
from mlaot.ir import dims as dims_
from mlaot.ir.indices import IndexRange
from mlaot.ir.types import boolean, i64
from mlaot.ops import elementwise as ew
from mlaot.ops.axes import ELEMENTWISE, GATHER, SCATTER
from mlaot.ops.base import Array, Index, Op, accumulator, fill, full_like, no_gradient
from mlaot.ops.bits import bitwise_and
from mlaot.ops.comparison import equal, greater_equal, less, where
from mlaot.ops.nests.gathers import gather_nest, scatter_nest
from mlaot.ops.structure import broadcast, iota, reshape, size

MODES = ("set", "add", "max", "min")
Cotangents = tuple[Node, None, Node]


def _check(op: str, x: Type, indices: Type, lead: int) -> None:
    if indices.dtype.kind not in "iu":
        raise MlaotError(f"{op} needs integer indices, got {indices}")
    if not 0 <= lead < x.rank or x.shape[:lead] != indices.shape[:lead]:
        raise MlaotError(f"{op} needs the same {lead} leading axes in {x} and its indices {indices}, and one more")


def _result_shape(x: Type, indices: Type, lead: int) -> tuple[Dim, ...]:
    return (*indices.shape, *x.shape[lead + 1 :])


def _gather_type(x: Type, indices: Type, lead: int) -> Type:
    _check("gather", x, indices, lead)
    shape = _result_shape(x, indices, lead)
    if x.shape[lead] == 0 and 0 not in shape:
        raise MlaotError(f"cannot gather {list(shape)} from {x}, which has no elements")
    return x.with_shape(shape)


def _places(indices: Array, n: int) -> Array:
    """Return NumPy indices as int64, counted from the start."""
    largest = min(np.iinfo(indices.dtype).max, np.iinfo(np.int64).max)
    places: Array = np.minimum(indices, indices.dtype.type(largest)).astype(np.int64)
    from_start: Array = np.where(places < 0, places + n, places)
    return from_start


def _rows(x: Array, lead: int) -> Array:
    """Merge the leading axes into one."""
    return x.reshape((prod(x.shape[:lead]), *x.shape[lead:]))


def _gather_reference(x: Array, indices: Array, lead: int) -> Array:
    n, shape = x.shape[lead], (*indices.shape, *x.shape[lead + 1 :])
    if n == 0:
        return np.zeros(shape, x.dtype)
    rows = _rows(x, lead)
    places = np.clip(_places(indices, n), 0, n - 1).reshape(len(rows), prod(indices.shape[lead:]))
    return np.asarray(rows[np.arange(len(rows))[:, None], places]).reshape(shape)


def _extent(like: Node, n: Dim) -> Node:
    """Return an i64 value of the shape of ``like`` filled with ``n``."""
    if isinstance(n, int):
        return fill(like, n, Type(i64, like.type.shape))
    number = like.graph.add(size, (), {"dim": n, "dtype": i64})
    return broadcast(number, shape=like.type.shape, axes=())


def _from_start(indices: Node, n: Dim) -> Node:
    """Return indices as i64, counted from the start."""
    if indices.type.dtype.name == "u64":
        indices = ew.minimum(indices, full_like(indices, np.iinfo(np.int64).max))
    signed = indices if indices.type.dtype is i64 else ew.cast(indices, dtype=i64)
    return where(less(signed, full_like(signed, 0)), ew.add(signed, _extent(signed, n)), signed)


def _clamp(indices: Node, n: Dim) -> Node:
    last = ew.sub(_extent(indices, n), fill(indices, 1, Type(i64, indices.type.shape)))
    places = _from_start(indices, n)
    return ew.maximum(ew.minimum(places, last), full_like(places, 0))


def _valid(indices: Node, n: Dim) -> Node:
    """Return a mask of the indices that are within an axis of ``n`` elements."""
    places = _from_start(indices, n)
    return bitwise_and(greater_equal(places, full_like(places, 0)), less(places, _extent(indices, n)))


def _vjp_gather(ct: Node, out: Node, x: Node, indices: Node, lead: int) -> tuple[Node, None]:
    """Add each cotangent to the row that was read."""
    noted = index(indices, size=x.type.shape[lead], wraps=True, ignored=None)  # the gather may be dead
    places = _clamp(noted, x.type.shape[lead])
    return scatter(full_like(x, 0.0), places, ct, lead=lead, mode="add"), None


gather: Op = Op(
    "gather",
    _gather_type,
    _gather_reference,
    _vjp_gather,
    GATHER,
    index=Index(1, lambda x, indices, lead: IndexRange(x.shape[lead], wraps=True), "clamped"),
    moves=True,
    exact=True,
    nest=gather_nest,
    doc="the rows that computed indices name",
)


def _scatter_type(x: Type, indices: Type, updates: Type, lead: int, mode: str) -> Type:
    _check("scatter", x, indices, lead)
    expected = x.with_shape(_result_shape(x, indices, lead))
    if updates != expected:
        raise MlaotError(f"scatter into {x} at {indices} needs updates {expected}, got {updates}")
    if mode not in MODES:
        raise MlaotError(f"scatter has the modes {', '.join(MODES)}, got {mode!r}")
    if mode == "add" and x.dtype is boolean:
        raise MlaotError(f"cannot add to {x}; scatter with the mode 'max' is a logical or")
    return x


def _scatter_reference(x: Array, indices: Array, updates: Array, lead: int, mode: str) -> Array:
    n, count = x.shape[lead], prod(indices.shape[lead:])
    out = _rows(x, lead).astype(accumulator(x.dtype) if mode == "add" else x.dtype)
    places = _places(indices, n).reshape(len(out), count)
    values = updates.reshape((len(out), count, *x.shape[lead + 1 :]))
    row, column = np.nonzero((places >= 0) & (places < n))
    if mode == "set":
        last = np.full(out.shape[:2], -1)
        np.maximum.at(last, (row, places[row, column]), column)
        kept = last[row, places[row, column]] == column
        row, column = row[kept], column[kept]
        out[row, places[row, column]] = values[row, column]
    else:
        combine = {"add": np.add, "max": np.maximum, "min": np.minimum}[mode]
        combine.at(out, (row, places[row, column]), values[row, column].astype(out.dtype))
    return out.reshape(x.shape).astype(x.dtype)


def _over_updates(mask: Node, updates: Node) -> Node:
    """Broadcast a value for each index over the elements of its update."""
    return broadcast(mask, shape=updates.type.shape, axes=tuple(range(mask.type.rank)))


def _select_cotangents(mask: Node, ct: Node, indices: Node, lead: int) -> Node:
    """Gather the cotangents at the indices, or 0 where ``mask`` is false."""
    rows = gather(ct, indices, lead=lead)
    return where(_over_updates(mask, rows), rows, full_like(rows, 0.0))


def _winners(x: Node, indices: Node, lead: int) -> Node:
    """Return a mask of the indices that are the last of their value, in row-major order; none out of range is."""
    many = indices.type.shape[lead:]
    numbers = indices.graph.add(iota, (), {"shape": (dims_.product(many),), "axis": 0, "dtype": i64})
    shape, axes = indices.type.shape, tuple(range(lead, indices.type.rank))
    number = broadcast(reshape(numbers, shape=many), shape=shape, axes=axes)
    nobody = fill(x, -1, Type(i64, x.type.shape[: lead + 1]))
    last = gather(scatter(nobody, indices, number, lead=lead, mode="set"), indices, lead=lead)
    return equal(last, number)


def _vjp_extreme(ct: Node, out: Node, x: Node, indices: Node, updates: Node, lead: int, mode: str) -> Cotangents:
    """Share the cotangent evenly between all that equal the result, as the reductions ``max`` and ``min`` do."""
    mine, there = ew.is_equal(x, out), ew.is_equal(updates, gather(out, indices, lead=lead))
    share = ew.div(ct, scatter(mine, indices, there, lead=lead, mode="add"))
    valid = _valid(indices, x.type.shape[lead])
    return ew.mul(share, mine), None, ew.mul(_select_cotangents(valid, share, indices, lead), there)


def _vjp_scatter(ct: Node, out: Node, x: Node, indices: Node, updates: Node, lead: int, mode: str) -> Cotangents:
    """Pass the cotangent to the elements in the result: the last of several updates; equal extremes share it."""
    if mode == "add":
        return ct, None, _select_cotangents(_valid(indices, x.type.shape[lead]), ct, indices, lead)
    if mode == "set":
        kept = scatter(ct, indices, full_like(updates, 0.0), lead=lead, mode="set")
        return kept, None, _select_cotangents(_winners(x, indices, lead), ct, indices, lead)
    return _vjp_extreme(ct, out, x, indices, updates, lead, mode)


# "set": the last of several updates of one place stays, in row-major order. "max" and "min" pass nan on.
scatter: Op = Op(
    "scatter",
    _scatter_type,
    _scatter_reference,
    _vjp_scatter,
    SCATTER,
    index=Index(1, lambda x, indices, updates, lead, mode: IndexRange(x.shape[lead], wraps=True), "dropped"),
    exact=True,
    nest=scatter_nest,
    doc="rows set to updates at computed indices, or to their sum, maximum, minimum",
)


def _index_type(x: Type, size: Dim | None, wraps: bool, ignored: int | None) -> Type:
    if x.dtype.kind not in "iu":
        raise MlaotError(f"an index is an integer, got {x}")
    return x


def mark_unchecked(x: Node) -> Node:
    """Mark integers that may be out of range, so that callers are not asked for a range whatever reads them."""
    return index(x, size=None, wraps=False, ignored=None) if x.type.dtype.kind in "iu" else x


def _index_range(x: Type, size: Dim | None, wraps: bool, ignored: int | None) -> IndexRange | None:
    return None if size is None else IndexRange(size, wraps, ignored)


# A note of the front end on integers that no op above reads as indices, or as other ones: labels of classes.
# Without a size they may be anything, whatever reads them.
index: Op = Op(
    "index",
    _index_type,
    lambda x, size, wraps, ignored: x,
    no_gradient,
    ELEMENTWISE,
    lambda args, **_: args[0],
    index=Index(0, _index_range, "kept as they are"),
    doc="x, noted to be indices into an axis, such as labels of classes",
)
