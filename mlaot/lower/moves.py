"""Elements at other places: taken by constant indices, side by side, in another shape, padded, in windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mlaot.ir import Dim, dim
from mlaot.ir.dims import times
from mlaot.lower.builder import ZERO, elements, place
from mlaot.lower.layout import Access
from mlaot.lower.program import Buffer, Kernel, Param
from mlaot.lower.target import Target, dense, indices, is_wide, loop_names, rows, unravel
from mlaot.nest.expressions import INDEX, Array, Expr, Index, Load, ValueType, Var, as_index, cast
from mlaot.nest.reductions import combined, identity
from mlaot.nest.statements import Body, Let, Nest, Store, around, loop
from mlaot.ops.axes import regrouped
from mlaot.ops.views import is_side_by_side

Offsets = np.ndarray[Any, Any]


def _take(t: Target) -> Body:
    lead = t.attrs.get("lead", 0)
    target = _offsets(t.shape[lead:], t.out.strides[lead:])
    source, read = _reader(t, lead, t.attrs["indices"].array.reshape(-1))
    runs = _Runs(t, (source, target), t.shape[lead:])
    there, here = runs.offsets
    lets, value = read(there)
    body = (*lets, Store(t.array, place(t.at[:lead], t.out.strides[:lead]) + here, value))
    return t.around(range(lead), runs.around(body, parallel=True))


def _put_add(t: Target) -> Body:
    """Elements are added in their order; a row of them that goes to different places is as good as one element."""
    lead, shape = t.attrs["lead"], t.arg(0).type.shape
    target = _offsets(t.shape[lead:], t.out.strides[lead:])[t.attrs["indices"].array.reshape(-1)]
    cleared = t.fill(identity("sum", t.dtype), lead)
    if not target.size:
        return t.around(range(lead), cleared)
    source, read = _reader(t, lead, np.arange(target.size))
    runs = _Runs(t, (source, target), shape[lead:])
    there, here = runs.offsets
    lets, value = read(there)
    index = place(t.at[:lead], t.out.strides[:lead]) + here
    body = (*lets, Store(t.array, index, combined("sum", Load(t.array, index, ValueType(t.dtype)), value)))
    added = runs.around(body, vector=runs.are_apart)
    return t.around(range(lead), (*cleared, *added))


def _offsets(shape: Sequence[Dim], strides: Sequence[Dim]) -> Offsets:
    """The element offset of each element of the static axes of a buffer, in row-major order."""
    total = np.zeros(1, np.int64)
    for extent, stride in zip(shape, strides, strict=True):
        assert isinstance(extent, int) and isinstance(stride, int), "bug in mlaot: a table along a named dim"
        total = (total[:, None] + np.arange(extent) * stride).reshape(-1)
    return total


def _reader(t: Target, lead: int, flat: Offsets) -> tuple[Offsets, Callable[[Expr], tuple[Body, Expr]]]:
    """A number for each element of the argument at ``flat`` behind the leading axes, and what reads by this number."""
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
    return flat, by_number  # a view whose rows are as far apart as a named dim says


class _Runs:
    """Lists of offsets as loops: whole, in rows of a shape where all lists are regular along these, or one by one.

    ``offsets``: one of each list, inside of the loops. Where rows begin is in a table, but for regular distances.
    """

    def __init__(self, t: Target, lists: Sequence[Offsets], shape: Sequence[Dim]) -> None:
        size = len(lists[0])
        lengths = [size, *[d for d in shape[-1:] if isinstance(d, int)], _first_run(lists), 1]
        self.length = next(n for n in lengths if all(_step(values, n) is not None for values in lists))
        self.count = size // self.length
        self.lets: list[Let] = []
        self.row = "row" if self.length > 1 else "e"
        self.offsets = [self._offset(t, values) for values in lists]
        self.are_apart = self.length > 1 and _step(lists[-1], self.length) != 0

    def _offset(self, t: Target, values: Offsets) -> Expr:
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
        """``body`` for each offset."""
        if self.length == 1:
            flags = {"parallel": parallel, "vector": vector}
            return (loop("e", self.count, (*self.lets, *body), **flags),) if self.count > 1 else (*self.lets, *body)
        is_vector = vector and is_wide(self.length)
        innermost = loop("e", self.length, body, vector=is_vector, parallel=parallel and self.count == 1)
        if self.count == 1:
            return (innermost,)
        return (loop("row", self.count, (*self.lets, innermost), parallel=parallel),)


def _first_run(lists: Sequence[Offsets]) -> int:
    """How many elements at the start are equally far apart in all lists: each element so many times, for one."""
    runs = [np.flatnonzero(np.diff(values, 2)) for values in lists]
    return min([int(run[0]) + 2 for run in runs if len(run)], default=1)


def _step(values: Offsets, length: int) -> int | None:
    """How far apart neighbours in rows of some length are, if all are that far apart."""
    if not length or len(values) % length:
        return None
    steps = np.unique(np.diff(values.reshape(-1, length), axis=1))
    return None if len(steps) > 1 else int(steps[0]) if len(steps) else 0


def _stack(t: Target) -> Body:
    axis = t.attrs.get("axis", 0)
    others = [i for i in range(len(t.shape)) if i != axis]
    names = loop_names([t.shape[i] for i in others])
    at = indices(names)
    here = [*at[:axis], ZERO, *at[axis:]]
    copied = [i for i in range(len(t.node.args)) if i not in t.placed]
    body = tuple(t.store_part(here, t.read(i, at), times(t.out.strides[axis], i)) for i in copied)
    return rows(names, [t.shape[i] for i in others], body, [t.out.strides[i] for i in others], parallel=True)


def _concat(t: Target) -> Body:
    """The axes before the one along which parts are joined are loops around all parts."""
    axis: int = t.attrs.get("axis", 0)
    offset: Dim = 0
    body: Body = ()
    for i in range(len(t.node.args)):
        shape = t.arg(i).type.shape
        names = [*t.names[:axis], *loop_names(shape)[axis:]]
        at = indices(names)
        if i not in t.placed:
            copied = t.store_part(at, t.read(i, at), times(t.out.strides[axis], offset))
            body += rows(names[axis:], shape[axis:], (copied,), t.out.strides[axis:])
        offset = shape[axis] + offset
    return t.around(range(axis), body)


def _reshape(t: Target) -> Body:
    """Both sides are walked along the shape with more axes; the other side's indices are made of these.

    They are where axes hold the same elements together, and in the worst case quotients of a flat index.
    """
    source, target = t.arg(0).type.shape, t.shape
    is_spread = len(target) >= len(source)
    walked, other = (target, source) if is_spread else (source, target)
    names = loop_names(walked)
    at = indices(names)
    split: list[Expr] = [ZERO] * len(other)
    lets: Body = ()
    for group in regrouped(source, target) or [([*range(len(source))], [*range(len(target))])]:
        mine, theirs = reversed(group) if is_spread else group
        flat = place([at[i] for i in mine], dense([walked[i] for i in mine]))
        if len(theirs) == 1:
            split[theirs[0]] = flat
            continue
        var = Var(f"e{mine[0]}", INDEX)
        more, found = unravel(as_index(var), [other[i] for i in theirs], var.name)
        lets += (Let(var, flat), *more)
        for i, index in zip(theirs, found, strict=True):
            split[i] = index
    if is_spread:
        return rows(names, walked, (*lets, t.store(at, t.read(0, split))), t.out.strides, parallel=True)
    return rows(names, walked, (*lets, t.store_part(split, t.read(0, at))), parallel=True)


def _pad(t: Target) -> Body:
    """The value around the elements; these too, unless the kernel that computes them puts them there.

    Axes that stay as they are and come first are loops around both.
    """
    low, high, interior = (t.attrs[key] for key in ("low", "high", "interior"))
    changed = [i for i in range(len(low)) if (low[i], high[i], interior[i]) != (0, 0, 0)]
    lead = changed[0] if changed else 0
    value = t.builder.value(t.arg(1), ())
    body = t.fill(value, lead) if any(interior) else _border(t, low, high, value, lead)
    if 0 not in t.placed:
        shape = t.arg(0).type.shape
        at = [*t.at[:lead], *indices(loop_names(shape))[lead:]]
        place_ = _slice(t, at, low, [n + 1 for n in interior])
        copied = Store(t.array, place_, t.read(0, at))
        body += rows(loop_names(shape)[lead:], shape[lead:], (copied,), t.out.strides[lead:])
    return t.around(range(lead), body)


def _slice(t: Target, at: Sequence[Expr], low: Sequence[Dim], steps: Sequence[int]) -> Expr:
    """The index of the element at ``low + at * step``."""
    moved = [a * Index(step) + Index(start) for a, start, step in zip(at, low, steps, strict=True)]
    return place(moved, t.out.strides)


def _border(t: Target, low: Sequence[Dim], high: Sequence[Dim], value: Expr, lead: int) -> Body:
    """Along each axis what is before and behind, as far as earlier axes have not covered it."""
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
            filled = Store(t.array, _slice(t, at, starts, [1] * len(shape)), value)
            body += rows(names[lead:], sizes[lead:], (filled,), t.out.strides[lead:])
    return body


def _fold(t: Target) -> Body:
    """Elements of windows, added up where these overlap; the axes before the first of windows are loops around it."""
    shape, axes = t.arg(0).type.shape, t.attrs["axes"]
    names = loop_names(shape)
    at = indices(names)
    index = place(at[: len(t.shape)], [_stride(t, i) for i in range(len(t.shape))])
    for axis, inside, dilation in zip(axes, at[len(t.shape) :], t.attrs["dilations"], strict=True):
        index = index + inside * Index(times(t.out.strides[axis], dilation))
    value = t.read(0, at)
    if is_side_by_side(t.node):
        return rows(names, shape, (Store(t.array, index, value),), parallel=True)
    lead = min(axes, default=0)
    added = Store(t.array, index, combined("sum", Load(t.array, index, value.type), value))
    body = (*t.fill(identity("sum", t.dtype), lead), *rows(names[lead:], shape[lead:], (added,)))
    return around([*zip(names[:lead], shape[:lead], strict=True)], body, parallel=True)


def _stride(t: Target, axis: int) -> Dim:
    """How far apart the first elements of neighbouring windows are."""
    steps = dict(zip(t.attrs["axes"], t.attrs["strides"], strict=True))
    return times(t.out.strides[axis], steps.get(axis, 1))


def copy_kernel(source: Access, target: Buffer) -> Kernel:
    """All elements of a value into a buffer."""
    names = loop_names(target.shape)
    at = indices(names)
    to, x = (Array(name, b.dtype, elements(b)) for name, b in (("to", target), ("x", source.buffer)))
    value = Load(x, place(at, source.strides, source.offset), ValueType(x.dtype))
    body = rows(names, target.shape, (Store(to, place(at, target.strides), value),), target.strides, parallel=True)
    params = Param("to", target, True), Param("x", source.buffer, False)
    return Kernel(Nest("copy", (to, x), body, ("copy",)), params)


MOVES: Mapping[str, Callable[[Target], Body]] = {
    "take": _take,
    "put_add": _put_add,
    "stack": _stack,
    "concat": _concat,
    "reshape": _reshape,
    "pad": _pad,
    "fold": _fold,
}
