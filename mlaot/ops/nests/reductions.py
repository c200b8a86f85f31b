"""Reductions of any dtype along any axes, in the order of the elements; argmax and argmin."""

from __future__ import annotations

from mlaot.nest.expressions import (
    Array,
    Call,
    Expr,
    Index,
    Load,
    ValueType,
    Var,
    as_index,
    call,
    cast,
    compare,
    const,
    select,
)
from mlaot.nest.reductions import combine, identity
from mlaot.nest.statements import Alloc, Assign, Body, Let, Mutable, Store, around, index_var, loop
from mlaot.ops.axes import kept_axes
from mlaot.ops.nests.passing import NEXT, seek
from mlaot.ops.nests.target import COLUMNS, START, WIDE, ZERO, Target, adjacent_axis, indices, loop_names
from mlaot.schedule.tuning import SOUGHT_ELEMENTS


def reduce_nest(t: Target) -> Body:
    """Reduce one element of the result after the other, or row by row along an axis where elements are adjacent."""
    shape, axes, name = t.arg(0).type.shape, t.attrs["axes"], t.node.op.name
    kept = dict(zip(kept_axes(len(shape), axes), t.at, strict=True))
    names = loop_names(shape, "k")
    at = [kept.get(i, k) for i, k in enumerate(indices(names))]
    inner = [(names[i], shape[i]) for i in axes]
    row = _row(t)
    if row is not None:
        put = t.store(t.at, combine(name, t.element(t.at), t.read(0, at)))
        start = t.store(t.at, identity(name, t.dtype))
        outer = [i for i in range(len(t.shape)) if i != row]
        if t.is_alone(row):
            body = (*t.columns(row, (start,)), *around(inner, t.columns(row, (put,))))
            return t.around(outer, t.blocks(row, body))
        first, added = (loop(t.names[row], t.shape[row], (s,), vector=True) for s in (start, put))
        return t.around(outer, (first, *around(inner, (added,))))
    acc = Var("acc", t.element(t.at).type)
    steps = around(inner, (Assign(acc, combine(name, acc, t.read(0, at))),))
    body = (Mutable(acc, identity(name, t.dtype)), *steps, t.store(t.at, acc))
    return t.around(range(len(t.shape)), body)


def _row(t: Target) -> int | None:
    """Return the axis of the result along which its elements, and those of the argument, are adjacent."""
    x = t.arg(0).find()
    access = t.builder.accesses.get(x)
    if access is None:
        return None
    kept = kept_axes(x.type.rank, t.attrs["axes"])
    axis = adjacent_axis(t.out.strides, t.shape)
    return axis if axis is not None and access.strides[kept[axis]] == 1 else None


def extreme_nest(name: str, t: Target) -> Body:
    """Find the first of the largest or smallest elements; nan is more extreme than any number."""
    axis = t.attrs["axis"]
    index_dtype = "i32" if isinstance(t.arg(0).type.shape[axis], int) else "i64"
    row = adjacent_axis(t.out.strides, t.shape)
    access = t.builder.accesses.get(t.arg(0).find())
    if row is None or access is None or access.strides[row + (row >= axis)] != 1:
        return t.around(range(len(t.shape)), _extreme_along(name, t, index_dtype))
    return _extremes_of_columns(name, t, row, index_dtype)


def _element_along(t: Target, index: Expr) -> Expr:
    axis = t.attrs["axis"]
    return t.read(0, [*t.at[:axis], index, *t.at[axis:]])


def _extreme_along(name: str, t: Target, index_dtype: str) -> Body:
    """Find the most extreme value of all, then the first element that equals it."""
    size = t.arg(0).type.shape[t.attrs["axis"]]
    k = as_index(index_var("k"))
    x = _element_along(t, k)
    if isinstance(size, int) and size < WIDE:
        return _extreme_of_few(name, t, x, size)
    now, best, e = Var("now", x.type), Var("best", x.type), Var("e", ValueType(index_dtype))
    behind = cast(Index(size), index_dtype)

    def is_best(value: Expr) -> Expr:
        equal = compare("eq", value, best)
        is_float = t.arg(0).type.dtype.kind == "f"
        return Call("or", (equal, compare("ne", value, value)), equal.type) if is_float else equal

    find_best = (
        Mutable(best, identity(name, x.type.dtype)),
        loop("k", size, (Assign(best, combine(name, best, x)),), vector=True),
    )
    if not isinstance(size, int) or size > SOUGHT_ELEMENTS:
        search = seek(t, lambda place: is_best(_element_along(t, place)))
        return (*find_best, Mutable(NEXT, ZERO), *search, t.store(t.at, cast(as_index(NEXT), t.dtype)))
    first = Assign(e, call("min", e, select(is_best(now), cast(k, index_dtype), behind)))
    return (
        *find_best,
        Mutable(e, behind),
        loop("k", size, (Let(now, x), first)),
        t.store(t.at, cast(e, t.dtype)),
    )


def _extreme_of_few(name: str, t: Target, x: Expr, size: int) -> Body:
    """Keep the most extreme value so far and its index, which is cheaper than combining lanes."""
    now, best, e = Var("now", x.type), Var("best", x.type), Var("e", ValueType("i32"))
    taken = Var("taken", ValueType("bool"))
    step = (
        Let(now, x),
        Let(taken, _is_more_extreme(name, t, now, best)),
        Assign(best, select(taken, now, best)),
        Assign(e, select(taken, cast(as_index(index_var("k")), "i32"), e)),
    )
    start = Mutable(best, identity(name, x.type.dtype)), Mutable(e, const(0, e.type))
    return (*start, loop("k", size, step), t.store(t.at, cast(e, t.dtype)))


def _is_more_extreme(name: str, t: Target, now: Expr, best: Expr) -> Expr:
    """Return whether a value replaces the best one so far. nan does, and nothing replaces nan."""
    if t.arg(0).type.dtype.kind != "f":
        return compare("gt" if name == "max" else "lt", now, best)
    worse = compare("le" if name == "max" else "ge", now, best)
    return Call("and", (call("not", worse), compare("eq", best, best)), worse.type)


def _extremes_of_columns(name: str, t: Target, row: int, index_dtype: str) -> Body:
    """Keep the most extreme elements of a block of columns and their indices, row by row."""
    x = _element_along(t, as_index(index_var("k")))
    here = t.at[row] - START
    bests, places = (
        Array(n, dtype, COLUMNS, "local") for n, dtype in (("bests", x.type.dtype), ("places", index_dtype))
    )
    best, place = (Load(a, here, ValueType(a.dtype)) for a in (bests, places))
    now = Var("now", x.type)
    is_better = _is_more_extreme(name, t, now, best)
    taken = Var("taken", is_better.type)
    start = Store(bests, here, identity(name, x.type.dtype)), Store(places, here, const(0, place.type))
    step = (
        Let(now, x),
        Let(taken, is_better),
        Store(bests, here, select(taken, now, best)),
        Store(places, here, select(taken, cast(as_index(index_var("k")), index_dtype), place)),
    )
    search = loop("k", t.arg(0).type.shape[t.attrs["axis"]], t.columns(row, step))
    end = t.columns(row, (t.store(t.at, cast(place, t.dtype)),))
    body = (Alloc(bests), Alloc(places), *t.columns(row, start), search, *end)
    return t.around([i for i in range(len(t.shape)) if i != row], t.blocks(row, body))
