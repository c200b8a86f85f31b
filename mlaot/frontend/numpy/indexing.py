"""Indexing ``x[...]``, and functional updates of the indexed elements, by NumPy's rules.

Slices, integers, ``None`` and ``...`` are views. Integer arrays, traced or constant, gather. A constant boolean mask is
converted to the integer arrays of its true positions. An index out of range is an error if it is constant, and an error
of the call if it is an input of the module. An index that the model computes is clamped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.numpy.elementwise import where
from mlaot.frontend.numpy.shaping import moveaxis
from mlaot.frontend.trace.context import current
from mlaot.frontend.trace.promotion import apply, as_node, broadcast_node, broadcast_shape, normal_axis
from mlaot.frontend.trace.protocols import ARRAY_METHODS, any_traced, implements, is_traced, plain, run
from mlaot.frontend.trace.tensor import Tensor, as_tensor, compute
from mlaot.ir import Dim, Node
from mlaot.ir import dims as dims_
from mlaot.ir.dims import Expr
from mlaot.ir.indices import outside, refusal
from mlaot.ir.types import boolean, i64
from mlaot.ops import indexing as ix
from mlaot.ops import structure as st

NEW, GAP = object(), object()  # a new axis; where an ellipsis was, which parts arrays even if it is empty


@dataclass
class Plan:
    """An index into ``x``.

    ``view`` is ``x`` after the slices and integers. ``arrays`` index its axes ``axes``, and the axes that result come
    at axis ``place`` of the result. ``shape`` is the result's shape for an index without arrays, which drops the axes
    with integers.
    """

    view: Node
    shape: tuple[Dim, ...]
    axes: tuple[int, ...]
    arrays: list[Any]
    place: int


def get(x: Any, index: Any) -> Any:
    """Return ``x[index]``."""
    if not (is_traced(x) or any_traced(index)):
        return plain(x)[plain(index)]
    return run("x[...]", lambda: _get(as_node(x), index), (), {})


def _get(x: Node, index: Any) -> Any:
    plan = plan_index(x, index)
    if not plan.arrays:
        return Tensor(plan.view if plan.view.type.shape == plan.shape else st.reshape(plan.view, shape=plan.shape))
    rows, indices = _rows_and_indices(plan)
    picked = Tensor(ix.gather(rows, indices, lead=0))
    rank = indices.type.rank
    return moveaxis(picked, range(rank), range(plan.place, plan.place + rank)) if plan.place and rank else picked


def plan_index(x: Node, index: Any) -> Plan:
    """Resolve an index into a plan."""
    parts = _expand(index, x.type)
    starts, sizes, steps = [], [], []
    axis = 0
    kinds: list[tuple[str, Any]] = []
    for part in parts:
        if part is NEW or part is GAP:
            kinds.append(("new" if part is NEW else "gap", None))
            continue
        extent = x.type.shape[axis]
        start, size, step = _span(part, extent, axis) if isinstance(part, slice | int) else (0, extent, 1)
        starts.append(start)
        sizes.append(size)
        steps.append(step)
        kinds.append(("slice" if isinstance(part, slice) else "int" if isinstance(part, int) else "array", part))
        axis += 1
    advanced = any(kind == "array" for kind, _ in kinds)
    view = x
    if any(s != 0 for s in starts) or any(t != 1 for t in steps) or tuple(sizes) != x.type.shape:
        view = st.slice_(x, start=tuple(starts), size=tuple(sizes), step=tuple(steps))
    shape: list[Dim] = []  # with the axes that arrays index, and without those that integers took
    axes, arrays, places, outside = [], [], [], []
    dims = iter(view.type.shape)
    for position, (kind, part) in enumerate(kinds):
        if kind in ("new", "gap"):
            shape += [1] * (kind == "new")
            continue
        d = next(dims)
        if kind == "int" and advanced:
            places.append(position)  # beside arrays an integer is an array too: it decides where their axes go
        if kind == "array":
            axes.append(len(shape))
            arrays.append(part)
            places.append(position)
        if kind != "int":
            shape.append(d)
    outside = [i for i in range(len(shape)) if i not in axes]
    together = not places or places == list(range(places[0], places[-1] + 1))
    first = sum(1 for kind, _ in kinds[: places[0]] if kind in ("new", "slice")) if together and places else 0
    if arrays and view.type.shape != tuple(shape):
        view = st.reshape(view, shape=tuple(shape))
    assert len(outside) + len(axes) == len(shape)
    return Plan(view, tuple(shape), tuple(axes), arrays, first)


def _expand(index: Any, type_: Any) -> list[Any]:
    """Return the parts of an index: one for each axis, ``NEW`` for each new axis, ``GAP`` for an ellipsis."""
    parts = [part for one in (index if isinstance(index, tuple) else (index,)) for part in _part(one)]
    taken = sum(1 for p in parts if p is not NEW and p is not Ellipsis)
    if taken > type_.rank:
        raise MlaotError(f"too many indices for {type_}: {taken}")
    rest = [slice(None)] * (type_.rank - taken)
    where = [i for i, p in enumerate(parts) if p is Ellipsis]
    if len(where) > 1:
        raise MlaotError("an index can have a single ... only")
    return [*parts[: where[0]], GAP, *rest, *parts[where[0] + 1 :]] if where else parts + rest


def _part(part: Any) -> list[Any]:
    """Normalize one part of an index to NEW, ..., a slice, an int, or an integer array."""
    if part is None:
        return [NEW]
    if part is Ellipsis or isinstance(part, slice):
        return [part]
    if is_traced(part) or (isinstance(part, list) and any_traced(part)):
        node = as_node(part)
        if node.type.dtype is boolean:
            raise MlaotError(
                f"a mask {node.type}: the shape of the result depends on the data; use mlaot.where(mask, x, other)"
            )
        if node.type.dtype.kind not in "iu":
            raise MlaotError(f"an index must be made of integers, got {node.type}")
        return [Tensor(node)]
    if isinstance(part, Expr):
        return [as_tensor(part)]
    array = np.asarray(plain(part))
    if array.dtype == bool:
        return list(_mask(array))
    if array.size == 0:
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise MlaotError(f"an index must be made of integers, slices, None, ..., or arrays of integers, got {part!r}")
    return [int(array)] if array.ndim == 0 else [array]


def _mask(mask: Any) -> Sequence[Any]:
    if mask.ndim == 0:
        raise MlaotError("x[True] and x[False] cannot be traced; use x[None] or mlaot.where")
    return np.nonzero(mask)


def _span(part: slice | int, extent: Dim, axis: int) -> tuple[Dim, Dim, int]:
    """Return the start, count and step of the elements that a slice or an integer selects."""
    if isinstance(part, int):
        if isinstance(extent, int) and not -extent <= part < extent:
            raise MlaotError(f"index {part} is out of bounds for axis {axis} with {extent} elements")
        return (part if part >= 0 else part + extent), 1, 1
    for bound in (part.start, part.stop, part.step):
        if is_traced(bound):
            raise MlaotError(
                "a slice with a traced bound: its size is not known; a window of fixed size is "
                "x[start + np.arange(size)]"
            )
    if isinstance(extent, int) and not isinstance(part.start, Expr) and not isinstance(part.stop, Expr):
        elements = range(*part.indices(extent))
        return (elements.start if len(elements) else 0), len(elements), (elements.step if len(elements) else 1)
    return _named_span(part, extent)


def _named_span(part: slice, extent: Dim) -> tuple[Dim, Dim, int]:
    """Return a slice of a named dim. The dim is assumed to be long enough, which the module checks in a call."""
    step = 1 if part.step is None else int(part.step)
    if step == 0:
        raise MlaotError("a slice's step cannot be zero")

    def bound(value: Any, otherwise: Dim) -> Dim:
        if value is None:
            return otherwise
        position: Dim = value if isinstance(value, Expr) or value >= 0 else value + extent
        return position

    if step > 0:
        start, stop = bound(part.start, 0), bound(part.stop, extent)
        size: Dim = stop - start
    else:
        start = bound(part.start, -1 + extent)
        size = start + 1 if part.stop is None else start - bound(part.stop, 0)
    if isinstance(size, int):
        size = max(size, 0)
    return start, (size if abs(step) == 1 else (size + (abs(step) - 1)) // abs(step)), step


def _rows_and_indices(plan: Plan) -> tuple[Node, Node]:
    """Return the view with its indexed axes merged to one first axis, and one array of indices into that axis."""
    rest = tuple(i for i in range(len(plan.shape)) if i not in plan.axes)
    extents = [plan.shape[i] for i in plan.axes]
    perm = (*plan.axes, *rest)
    rows = plan.view if perm == tuple(range(len(perm))) else st.transpose(plan.view, perm=perm)
    if len(extents) > 1:
        kept = tuple(plan.shape[i] for i in rest)
        rows = st.reshape(rows, shape=(dims_.product(tuple(extents)), *kept))
    return rows, _flat_index(plan.arrays, extents, plan.axes)


def _flat_index(arrays: list[Any], extents: list[Dim], axes: Sequence[int]) -> Node:
    """Return row-major positions from the indices of several axes."""
    if len(arrays) == 1 and (is_traced(arrays[0]) or not isinstance(extents[0], int)):
        return as_node(arrays[0])
    checked = [_check_index(a, n, axis) for a, n, axis in zip(arrays, extents, axes, strict=True)]
    if not any(is_traced(a) for a in checked):
        positions = checked[0]
        for a, n in zip(checked[1:], extents[1:], strict=True):
            positions = positions * n + a
        return as_node(np.asarray(positions, np.int64))
    nodes = [as_node(a, i64) for a in checked]
    shape = broadcast_shape([n.type.shape for n in nodes])
    flat = Tensor(broadcast_node(nodes[0], shape))
    for node, n in zip(nodes[1:], extents[1:], strict=True):
        flat = flat * as_tensor(n) + Tensor(node)
    return as_node(flat)


def in_range(x: Any, size: Dim, *, wraps: bool = False, ignored: int | None = None) -> Any:
    """Return ``x`` as indices into an axis of ``size`` elements.

    With ``wraps``, negative indices count from its end.

    Any index out of range except ``ignored`` is an error: an ``IndexError`` for a plain array, and a ``ValueError`` of
    the call for an input of a module. Indices that the model computes are returned unchanged.
    """
    indices = x
    if is_traced(x):
        node = as_node(x)
        if node.op.name != "const":
            return Tensor(ix.index(node, size=size, wraps=wraps, ignored=ignored))
        indices = node.attrs["value"].array
    array = np.asarray(plain(indices))
    if isinstance(size, int):
        bad = outside(array, size, wraps=wraps, ignored=ignored)
        if message := refusal(array, bad, size, wraps, ignored):
            raise IndexError(f"index{message}") if current() is None else MlaotError(f"index{message}")
    return x


def _check_index(index: Any, extent: Dim, axis: int) -> Any:
    """Return an index counted from the front; raise an error if it is out of range."""
    if not is_traced(index) and isinstance(extent, int):
        if index.size and (index.min() < -extent or index.max() >= extent):
            worst = index.max() if index.max() >= extent else index.min()
            raise MlaotError(f"index {worst} is out of bounds for axis {axis} with {extent} elements")
        return np.where(index < 0, index + extent, index)
    i, n = Tensor(as_node(in_range(index, extent, wraps=True), i64)), as_tensor(extent)
    return np.maximum(np.minimum(np.where(i < 0, i + n, i), n - 1), 0)


def update(x: Any, index: Any, values: Any, mode: str) -> Any:
    """Return a copy of ``x`` with ``values`` at ``x[index]``, or their sum, maximum or minimum with what is there."""
    if not any_traced(x, values, index):
        return _update_plain(np.array(plain(x)), plain(index), plain(values), mode)
    return run(f"x.at[...].{mode}", lambda: _update(as_node(x), index, values, mode), (), {})


WRITERS = {"add": np.add, "max": np.maximum, "min": np.minimum}


def _update_plain(x: Any, index: Any, values: Any, mode: str) -> Any:
    if mode == "set":
        x[index] = values
    else:
        WRITERS[mode].at(x, index, values)
    return x


def _update(x: Node, index: Any, values: Any, mode: str) -> Any:
    """Update by rows if the index is of one axis, and otherwise by positions of elements.

    The positions are ``x[index]`` of an array that holds the position of each element.
    """
    if mode not in ("set", *WRITERS):
        raise MlaotError(f"expected set, add, max or min, got {mode!r}")
    shape = x.type.shape
    rows = _one_axis(x, index)
    if rows is not None:
        axis, places = rows
        new = broadcast_node(as_node(values, x.type.dtype), (*shape[:axis], *places.type.shape, *shape[axis + 1 :]))
        lead = tuple(range(axis, axis + places.type.rank))
        places = st.broadcast(places, shape=(*shape[:axis], *places.type.shape), axes=lead) if axis else places
        return Tensor(ix.scatter(x, places, new, lead=axis, mode=mode))
    total = dims_.product(shape)
    positions = apply(st.iota, shape=(total,), axis=0, dtype=i64)
    places = as_node(_get(st.reshape(positions, shape=shape), index))
    new = broadcast_node(as_node(values, x.type.dtype), places.type.shape)
    flat = st.reshape(x, shape=(total,))
    return Tensor(st.reshape(ix.scatter(flat, places, new, lead=0, mode=mode), shape=shape))


def _one_axis(x: Node, index: Any) -> tuple[int, Node] | None:
    """Return the axis and the indices on it, for an index that selects all of every other axis."""
    parts = _expand(index, x.type)
    if any(part is NEW for part in parts):
        return None
    axes_parts = [part for part in parts if part is not GAP]
    named = [i for i, part in enumerate(axes_parts) if not (isinstance(part, slice) and part == slice(None))]
    if len(named) != 1 or isinstance(axes_parts[named[0]], slice):
        return None
    (axis,) = named
    part, extent = axes_parts[axis], x.type.shape[axis]
    if isinstance(part, int):
        part = _span(part, extent, axis)[0]
    return axis, as_node(_check_index(part if is_traced(part) else np.asarray(part), extent, axis), i64)


# Functions of NumPy that index.


@implements("take")
def take(a: Any, indices: Any, axis: Any = None, *, mode: str = "raise") -> Any:
    x = as_tensor(a)
    if axis is None:
        x, axis = np.ravel(x), 0
    lead = (slice(None),) * normal_axis(axis, x.ndim)
    if mode == "wrap":
        indices = np.remainder(indices, x.shape[len(lead)])
    elif mode == "clip":
        indices = np.clip(
            indices, 0, as_tensor(x.shape[len(lead)] - 1) if is_traced(indices) else x.shape[len(lead)] - 1
        )
    part = indices if is_traced(indices) else np.asarray(indices)
    return x[(*lead, part)]


@implements("take_along_axis")
def take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> Any:
    x, i = as_node(arr), as_node(indices)
    if axis is None:
        x, axis = st.reshape(x, shape=(dims_.product(x.type.shape),)), 0
    rows, places, at = _along(x, i, axis)
    return moveaxis(Tensor(ix.gather(rows, places, lead=rows.type.rank - 1)), -1, at)


def _along(x: Node, indices: Node, axis: int) -> tuple[Node, Node, int]:
    """Return an array and its indices with ``axis`` moved last and the other axes broadcast to each other."""
    at = normal_axis(axis, x.type.rank)
    if indices.type.rank != x.type.rank:
        raise MlaotError(f"{x.type} and its indices {indices.type} must have the same rank")
    rows, places = (as_node(moveaxis(Tensor(n), at, -1)) for n in (x, indices))
    lead = broadcast_shape([rows.type.shape[:-1], places.type.shape[:-1]])
    return (
        broadcast_node(rows, (*lead, rows.type.shape[-1])),
        broadcast_node(places, (*lead, places.type.shape[-1])),
        at,
    )


@implements("put_along_axis")
def refuse_put_along_axis(arr: Any, indices: Any, values: Any, axis: Any) -> Any:
    raise MlaotError("put_along_axis writes in place, which cannot be traced; use x = mlaot.put_along_axis(x, ...)")


def put_along(x: Node, indices: Node, values: Any, axis: Any) -> Tensor:
    """Return ``x`` with ``values`` at the elements that ``take_along_axis`` reads."""
    shape = x.type.shape
    if axis is None:
        x, axis = st.reshape(x, shape=(dims_.product(shape),)), 0
    rows, places, at = _along(x, indices, axis)
    new = broadcast_node(as_node(values, x.type.dtype), indices.type.shape)
    new = as_node(moveaxis(Tensor(new), at, -1))
    new = broadcast_node(new, places.type.shape)
    written = ix.scatter(rows, places, new, lead=rows.type.rank - 1, mode="set")
    return Tensor(st.reshape(as_node(moveaxis(Tensor(written), -1, at)), shape=shape))


@implements("delete")
def delete(arr: Any, obj: Any, axis: Any = None) -> Any:
    x = as_tensor(arr)
    if axis is None:
        x, axis = np.ravel(x), 0
    at = normal_axis(axis, x.ndim)
    size = x.shape[at]
    if is_traced(obj) or not isinstance(size, int):
        raise MlaotError("the shape of its result depends on the data: what to delete must be constant")
    return x[(slice(None),) * at + (np.delete(np.arange(size), obj),)]


@implements("insert")
def insert(arr: Any, obj: Any, values: Any, axis: Any = None) -> Any:
    x = as_tensor(arr)
    if axis is None:
        x, axis = np.ravel(x), 0
    at = normal_axis(axis, x.ndim)
    if not isinstance(obj, int):
        raise MlaotError("insert at more than one place cannot be traced; use np.concatenate")
    size = x.shape[at]
    place = obj if obj >= 0 else obj + size
    value = Tensor(as_node(values, x.node.type.dtype))
    value = moveaxis(np.reshape(value, (1,) * (x.ndim - value.ndim) + value.shape), 0, at)
    shape = (*x.shape[:at], value.shape[at], *x.shape[at + 1 :])
    lead = (slice(None),) * at
    middle = np.broadcast_to(value, shape)
    return np.concatenate([x[(*lead, slice(None, place))], middle, x[(*lead, slice(place, None))]], at)


def gather(x: Any, indices: Any, lead: int = 0) -> Any:
    """Return the rows of ``x`` at ``indices``, after ``lead`` axes that both have.

    An index out of range is clamped, but is an error if a caller passes it to a module.
    """
    return compute(ix.gather, x, indices, lead=lead)


def scatter(x: Any, indices: Any, updates: Any, lead: int = 0, mode: str = "set") -> Any:
    """Return ``x`` with the rows at ``indices`` set to ``updates``.

    ``mode`` is "set", or "add", "max" or "min" for the sum, maximum or minimum with the row. The last of several
    updates of a row wins. An update out of range is dropped, but is an error if a caller passes the index to a module.
    """
    if not any_traced(x, indices, updates):
        array = np.asarray(plain(x))
        return compute(ix.scatter, array, indices, np.asarray(plain(updates), array.dtype), lead=lead, mode=mode)
    node, places = as_node(x), as_node(indices)
    new = as_node(updates, node.type.dtype)
    shape = (*places.type.shape, *node.type.shape[lead + 1 :])
    return compute(ix.scatter, Tensor(node), Tensor(places), Tensor(broadcast_node(new, shape)), lead=lead, mode=mode)


def put_along_axis(arr: Any, indices: Any, values: Any, axis: Any) -> Any:
    """Return a copy of ``arr`` with ``values`` at the elements that ``np.take_along_axis`` reads."""
    if not any_traced(arr, indices, values):
        new = np.array(plain(arr))
        np.put_along_axis(new, plain(indices), plain(values), axis)
        return new
    return run("put_along_axis", lambda: put_along(as_node(arr), as_node(indices), values, axis), (), {})


@implements("choose")
def choose(a: Any, choices: Any, mode: str = "raise") -> Any:
    """Select from ``choices`` by index.

    An index out of range selects the last or the first choice, or with ``mode`` "wrap" counts modulo the number of
    choices. With "raise" it is an error if a caller passes it.
    """
    if mode not in ("raise", "clip", "wrap"):
        raise MlaotError(f"choose: expected the mode raise, clip or wrap, got {mode!r}")
    if mode != "clip":
        a = np.remainder(as_tensor(a), len(choices)) if mode == "wrap" else in_range(a, len(choices))
    result = choices[-1]
    for i in reversed(range(len(choices) - 1)):
        result = where(np.less_equal(as_tensor(a), i), choices[i], result)
    return result


ARRAY_METHODS |= {"get": get, "update": update}
