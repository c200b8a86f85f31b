"""Ops that move elements: take, put_add, stack, concat, reshape, pad, and fold, the inverse of windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mlaot.ir import Dim, dim
from mlaot.nest.expressions import INDEX, Expr, Index, Load, ValueType, Var, as_index, cast
from mlaot.nest.reductions import combine, identity
from mlaot.nest.statements import Body, Let, Store, around, loop
from mlaot.ops.axes import regroup
from mlaot.ops.nests.target import ZERO, Target, dense, indices, is_wide, loop_names, place, rows, unravel
from mlaot.ops.views import is_side_by_side

Offsets = np.ndarray[Any, Any]


def take_nest(t: Target) -> Body:
    """Copy the elements at constant indices, in loops over runs of regular offsets."""
    lead = t.attrs.get("lead", 0)
    target = _offsets(t.shape[lead:], t.out.strides[lead:])
    source, read = _reader(t, lead, t.attrs["indices"].array.reshape(-1))
    runs = _Runs(t, (source, target), t.shape[lead:])
    source_offset, target_offset = runs.offsets
    lets, value = read(source_offset)
    body = (*lets, Store(t.array, place(t.at[:lead], t.out.strides[:lead]) + target_offset, value))
    return t.around(range(lead), runs.around(body, parallel=True))


def put_add_nest(t: Target) -> Body:
    """Add elements in their order.

    A row of elements with different destinations may be added at once, in vectors.
    """
    lead, shape = t.attrs["lead"], t.arg(0).type.shape
    target = _offsets(t.shape[lead:], t.out.strides[lead:])[t.attrs["indices"].array.reshape(-1)]
    clear = t.fill(identity("sum", t.dtype), lead)
    if not target.size:
        return t.around(range(lead), clear)
    source, read = _reader(t, lead, np.arange(target.size))
    runs = _Runs(t, (source, target), shape[lead:])
    source_offset, target_offset = runs.offsets
    lets, value = read(source_offset)
    index = place(t.at[:lead], t.out.strides[:lead]) + target_offset
    body = (*lets, Store(t.array, index, combine("sum", Load(t.array, index, ValueType(t.dtype)), value)))
    add = runs.around(body, vector=runs.are_disjoint)
    return t.around(range(lead), (*clear, *add))


def _offsets(shape: Sequence[Dim], strides: Sequence[Dim]) -> Offsets:
    """Return the element offset of each element of the static axes of a buffer, in row-major order."""
    total = np.zeros(1, np.int64)
    for extent, stride in zip(shape, strides, strict=True):
        assert isinstance(extent, int) and isinstance(stride, int), "bug in mlaot: a table along a named dim"
        total = (total[:, None] + np.arange(extent) * stride).reshape(-1)
    return total


def _reader(t: Target, lead: int, flat: Offsets) -> tuple[Offsets, Callable[[Expr], tuple[Body, Expr]]]:
    """Return a number for each element that ``flat`` selects after the leading axes, and a function that reads by it.

    The number is the offset in memory, or the number of the element if a stride is a named dim.
    """
    access, shape = t.builder.access(t.arg(0)), t.arg(0).type.shape[lead:]
    strides = access.strides[lead:]

    def by_offset(offset: Expr) -> tuple[Body, Expr]:
        first = t.builder.element(access, [*t.at[:lead], *[ZERO] * len(strides)])
        return (), Load(first.array, first.index + offset, first.type)

    def by_number(number: Expr) -> tuple[Body, Expr]:
        lets, at = unravel(number, shape, "e0")
        return lets, t.read(0, [*t.at[:lead], *at])

    if all(isinstance(stride, int) for stride in strides):
        return _offsets(shape, strides)[flat], by_offset
    return flat, by_number  # a view whose strides depend on a named dim


class _Runs:
    """Lists of offsets as loops: over all of one list, over rows in which all lists are regular, or one by one.

    ``offsets`` has the offset of each list inside of the loops. The offset of row r is affine in r, or else read from a
    table.
    """

    def __init__(self, t: Target, lists: Sequence[Offsets], shape: Sequence[Dim]) -> None:
        size = len(lists[0])
        lengths = [size, *[d for d in shape[-1:] if isinstance(d, int)], _first_run(lists), 1]
        self.length = next(n for n in lengths if all(_step(values, n) is not None for values in lists))
        self.count = size // self.length
        self.lets: list[Let] = []
        self.row = "row" if self.length > 1 else "e"
        self.offsets = [self._offset(t, values) for values in lists]
        self.are_disjoint = self.length > 1 and _step(lists[-1], self.length) != 0

    def _offset(self, t: Target, values: Offsets) -> Expr:
        """Return one list's offset in the current round; rows at irregular distances are read from a table."""
        starts = values[:: self.length]
        step = _step(starts, len(starts))
        along = dim("e") * (_step(values, self.length) or 0) if self.length > 1 else 0
        if step is not None:
            return Index((dim(self.row) * step if self.count > 1 else 0) + int(starts[0]) + along)
        start = Load(t.table(starts), Index(dim(self.row)), ValueType("i32"))
        var = Var(f"e{len(self.lets) + 1}", INDEX)
        self.lets.append(Let(var, cast(start, "index")))
        return as_index(var) + Index(along)

    def around(self, body: Body, *, parallel: bool = False, vector: bool = True) -> Body:
        """Run ``body`` for each offset."""
        if self.length == 1:
            flags = {"parallel": parallel, "vector": vector}
            return (loop("e", self.count, (*self.lets, *body), **flags),) if self.count > 1 else (*self.lets, *body)
        is_vector = vector and is_wide(self.length)
        innermost = loop("e", self.length, body, vector=is_vector, parallel=parallel and self.count == 1)
        if self.count == 1:
            return (innermost,)
        return (loop("row", self.count, (*self.lets, innermost), parallel=parallel),)


def _first_run(lists: Sequence[Offsets]) -> int:
    """Return the number of first elements with equal distances in all lists, such as repeats of one element."""
    runs = [np.flatnonzero(np.diff(values, 2)) for values in lists]
    return min([int(run[0]) + 2 for run in runs if len(run)], default=1)


def _step(values: Offsets, length: int) -> int | None:
    """Return the distance between neighbours in rows of ``length``, or None if it varies."""
    if not length or len(values) % length:
        return None
    steps = np.unique(np.diff(values.reshape(-1, length), axis=1))
    return None if len(steps) > 1 else int(steps[0]) if len(steps) else 0


def stack_nest(t: Target) -> Body:
    """Copy the parts side by side, inside of loops over their axes."""
    axis = t.attrs.get("axis", 0)
    axes = [i for i in range(len(t.shape)) if i != axis]
    names = loop_names([t.shape[i] for i in axes])
    at = indices(names)
    element = [*at[:axis], ZERO, *at[axis:]]
    arguments = [i for i in range(len(t.node.args)) if i not in t.placed]
    body = tuple(t.store_part(element, t.read(i, at), t.out.strides[axis] * i) for i in arguments)
    return rows(names, [t.shape[i] for i in axes], body, [t.out.strides[i] for i in axes], parallel=True)


def concat_nest(t: Target) -> Body:
    """Copy the parts one after the other, inside of loops over the axes before the one along which they are joined."""
    axis: int = t.attrs.get("axis", 0)
    offset: Dim = 0
    body: Body = ()
    for i in range(len(t.node.args)):
        shape = t.arg(i).type.shape
        names = [*t.names[:axis], *loop_names(shape)[axis:]]
        at = indices(names)
        if i not in t.placed:
            copy = t.store_part(at, t.read(i, at), t.out.strides[axis] * offset)
            body += rows(names[axis:], shape[axis:], (copy,), t.out.strides[axis:])
        offset = shape[axis] + offset
    return t.around(range(axis), body)


def reshape_nest(t: Target) -> Body:
    """Walk both sides along the shape with more axes, and compute the other side's indices.

    For merged axes these are sums of indices, and in the worst case quotients of a flat index.
    """
    source, target = t.arg(0).type.shape, t.shape
    is_spread = len(target) >= len(source)
    walked, other = (target, source) if is_spread else (source, target)
    names = loop_names(walked)
    at = indices(names)
    split: list[Expr] = [ZERO] * len(other)
    lets: Body = ()
    for group in regroup(source, target) or [([*range(len(source))], [*range(len(target))])]:
        walked_axes, other_axes = reversed(group) if is_spread else group
        flat = place([at[i] for i in walked_axes], dense([walked[i] for i in walked_axes]))
        if len(other_axes) == 1:
            split[other_axes[0]] = flat
            continue
        var = Var(f"e{walked_axes[0]}", INDEX)
        more, split_indices = unravel(as_index(var), [other[i] for i in other_axes], var.name)
        lets += (Let(var, flat), *more)
        for i, index in zip(other_axes, split_indices, strict=True):
            split[i] = index
    if is_spread:
        return rows(names, walked, (*lets, t.store(at, t.read(0, split))), t.out.strides, parallel=True)
    return rows(names, walked, (*lets, t.store_part(split, t.read(0, at))), parallel=True)


def pad_nest(t: Target) -> Body:
    """Fill the border, and copy the elements unless their kernel writes them here.

    Leading axes that are not padded are loops around both.
    """
    low, high, interior = (t.attrs[key] for key in ("low", "high", "interior"))
    changed = [i for i in range(len(low)) if (low[i], high[i], interior[i]) != (0, 0, 0)]
    lead = changed[0] if changed else 0
    value = t.builder.value(t.arg(1), ())
    body = t.fill(value, lead) if any(interior) else _border(t, low, high, value, lead)
    if 0 not in t.placed:
        shape = t.arg(0).type.shape
        at = [*t.at[:lead], *indices(loop_names(shape))[lead:]]
        element = _slice(t, at, low, [n + 1 for n in interior])
        copy = Store(t.array, element, t.read(0, at))
        body += rows(loop_names(shape)[lead:], shape[lead:], (copy,), t.out.strides[lead:])
    return t.around(range(lead), body)


def _slice(t: Target, at: Sequence[Expr], low: Sequence[Dim], steps: Sequence[int]) -> Expr:
    """Return the index of the element at ``low + at * step``."""
    indices = [a * Index(step) + Index(start) for a, start, step in zip(at, low, steps, strict=True)]
    return place(indices, t.out.strides)


def _border(t: Target, low: Sequence[Dim], high: Sequence[Dim], value: Expr, lead: int) -> Body:
    """Fill the padding before and after the elements of each axis, as far as earlier axes have not filled it.

    0 0 0 0 0
    1 . . . 1    axis 0 fills the rows 0, axis 1 the rest of the columns 1
    0 0 0 0 0
    """
    shape = t.arg(0).type.shape
    body: Body = ()
    for i in range(lead, len(shape)):
        for start, size in ((0, low[i]), (low[i] + shape[i], high[i])):
            if size == 0:
                continue
            starts = (*low[:i], start, *[0] * (len(shape) - i - 1))
            sizes = (*shape[:i], size, *t.shape[i + 1 :])
            names = loop_names(sizes)
            at = [*t.at[:lead], *indices(names)[lead:]]
            fill = Store(t.array, _slice(t, at, starts, [1] * len(shape)), value)
            body += rows(names[lead:], sizes[lead:], (fill,), t.out.strides[lead:])
    return body


def fold_nest(t: Target) -> Body:
    """Add up the elements of windows, inside of loops over the axes before the first one with windows."""
    shape, axes = t.arg(0).type.shape, t.attrs["axes"]
    names = loop_names(shape)
    at = indices(names)
    index = place(at[: len(t.shape)], [_stride(t, i) for i in range(len(t.shape))])
    for axis, inside, dilation in zip(axes, at[len(t.shape) :], t.attrs["dilations"], strict=True):
        index = index + inside * Index(t.out.strides[axis] * dilation)
    value = t.read(0, at)
    if is_side_by_side(t.node):
        return rows(names, shape, (Store(t.array, index, value),), parallel=True)
    lead = min(axes, default=0)
    add = Store(t.array, index, combine("sum", Load(t.array, index, value.type), value))
    body = (*t.fill(identity("sum", t.dtype), lead), *rows(names[lead:], shape[lead:], (add,)))
    return around([*zip(names[:lead], shape[:lead], strict=True)], body, parallel=True)


def _stride(t: Target, axis: int) -> Dim:
    """Return the distance between the first elements of neighbouring windows."""
    steps: dict[int, int] = dict(zip(t.attrs["axes"], t.attrs["strides"], strict=True))
    strides: Sequence[Dim] = t.out.strides
    return strides[axis] * steps.get(axis, 1)
