"""Reductions of any dtype along any axes, in the order of the elements; the place of the largest or smallest."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mlaot.lower.builder import ZERO, At
from mlaot.lower.target import Target, adjacent_axis, indices, loop_names
from mlaot.nest.expressions import Expr, Index, Var, as_index, call, cast, compare, const
from mlaot.nest.reductions import REDUCTIONS, combined, identity
from mlaot.nest.statements import Assign, Body, If, Let, Mutable, around, index_var, loop
from mlaot.ops.reduction import kept_axes


def _reduce(t: Target) -> Body:
    """One element of the result after the other, or, where elements lie side by side along one of its axes, in rows."""
    shape, axes, name = t.arg(0).type.shape, t.attrs["axes"], t.node.op.name
    kept = dict(zip(kept_axes(len(shape), axes), t.at, strict=True))
    names = loop_names(shape, "k")
    at = [kept.get(i, k) for i, k in enumerate(indices(names))]
    inner = [(names[i], shape[i]) for i in axes]
    row = _row(t)
    if row is not None:
        put = t.store(t.at, combined(name, t.element(t.at), t.read(0, at)))
        start = t.store(t.at, identity(name, t.dtype))
        first, added = (loop(t.names[row], t.shape[row], (s,), vector=True) for s in (start, put))
        return t.around([i for i in range(len(t.shape)) if i != row], (first, *around(inner, (added,))))
    acc = Var("acc", t.element(t.at).type)
    steps = around(inner, (Assign(acc, combined(name, acc, t.read(0, at))),))
    body = (Mutable(acc, identity(name, t.dtype)), *steps, t.store(t.at, acc))
    return t.around(range(len(t.shape)), body)


def _row(t: Target) -> int | None:
    """The axis of the result along which its elements, and those of the argument, lie side by side."""
    x = t.arg(0).find()
    access = t.builder.accesses.get(x)
    if access is None:
        return None
    kept = kept_axes(x.type.rank, t.attrs["axes"])
    axis = adjacent_axis(t.out.strides, t.shape)
    return axis if axis is not None and access.strides[kept[axis]] == 1 else None


def _extreme(t: Target) -> Body:
    """The first of the largest or smallest elements; nan is more extreme than any number."""
    axis, size = t.attrs["axis"], t.arg(0).type.shape[t.attrs["axis"]]

    def element(index: Expr) -> Expr:
        at: At = [*t.at[:axis], index, *t.at[axis:]]
        return t.read(0, at)

    dtype = t.arg(0).type.dtype
    k, first = as_index(index_var("k")), element(ZERO)
    now, best, found = Var("now", first.type), Var("best", first.type), Var("e", t.element(t.at).type)
    taken: Body = (Assign(best, now), Assign(found, cast(k, found.type.dtype)))
    if dtype.kind == "f":  # not less, or nan; none is better than nan
        worse = "le" if t.node.op.name == "argmax" else "ge"
        step = If(call("not", compare(worse, now, best)), (If(compare("eq", best, best), taken),))
    else:
        step = If(compare("gt" if t.node.op.name == "argmax" else "lt", now, best), taken)
    start: Body = (Mutable(best, first),)
    if not isinstance(size, int):
        start = (Mutable(best, const(0, best.type)), If(compare("gt", Index(size), ZERO), (Assign(best, first),)))
    search = loop("k", size, (Let(now, element(k)), step))
    return t.around(range(len(t.shape)), (*start, Mutable(found, const(0, found.type)), search, t.store(t.at, found)))


EXTREMES = ("argmax", "argmin")
REDUCED: Mapping[str, Callable[[Target], Body]] = {
    **dict.fromkeys(REDUCTIONS, _reduce),
    **dict.fromkeys(EXTREMES, _extreme),
}
