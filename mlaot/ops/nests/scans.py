"""Scans along an axis: running sums and products, and linear recurrences.

Each element is computed from the one before it. If elements are adjacent along another axis, a scan computes row after
row, in vectors along the rows. Otherwise it computes number after number, with the last one in a variable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mlaot.ir import Dim, dim
from mlaot.nest.expressions import Expr, Index, Var, as_index, call, compare
from mlaot.nest.reductions import combine, identity
from mlaot.nest.statements import Assign, Body, For, If, Mutable, Store, index_var, loop, substitute_body
from mlaot.ops.nests.target import ZERO, Target, adjacent_axis

ROWS = 4  # scanned at a time: each element waits for the one before it, but rows do not wait for each other
Next = Callable[[Expr, Expr, Expr], Expr]  # the result at an index, from the one before it and both indices


def cumulate_nest(reduction: str, t: Target) -> Body:
    """Compute a running ``reduction``, sums or products, from either end, with or without the element itself."""
    axis = t.attrs["axis"]
    is_exclusive = bool(t.attrs.get("exclusive"))

    def element(index: Expr) -> Expr:
        return t.read(0, t.along(axis, index))

    def following(result: Expr, before: Expr, here: Expr) -> Expr:
        return combine(reduction, result, element(before if is_exclusive else here))

    return _scan(t, lambda index: identity(reduction, t.dtype) if is_exclusive else element(index), following)


def recurrence_nest(t: Target) -> Body:
    """Compute ``y[k] = a[k] * y[k - 1] + b[k]``."""
    axis = t.attrs["axis"]

    def element(i: int, index: Expr) -> Expr:
        return t.read(i, t.along(axis, index))

    def following(result: Expr, before: Expr, here: Expr) -> Expr:
        return call("add", element(1, here), call("mul", element(0, here), result))

    return _scan(t, lambda index: element(1, index), following)


def _scan(t: Target, first: Callable[[Expr], Expr], following: Next) -> Body:
    """Return the loops of a scan: its ``first`` result, then each ``following`` one from the one before."""
    axis, reverse = t.attrs["axis"], bool(t.attrs.get("reverse"))
    extent = t.shape[axis]
    k = as_index(index_var("k"))
    start, before = (Index(extent - 1), k + 1) if reverse else (ZERO, k - 1)
    low, high = (0, extent - 1) if reverse else (1, extent)
    outer = [i for i in range(len(t.shape)) if i != axis]
    row = adjacent_axis(t.out.strides, t.shape)
    beside = None
    if row is None or row == axis:
        acc = Var("acc", t.element(t.at).type)
        step: Body = (Assign(acc, following(acc, before, k)), t.store(t.along(axis, k), acc))
        begin: Body = (Mutable(acc, first(start)), t.store(t.along(axis, start), acc))
        beside = next((i for i in outer if _divides_rows(t.shape[i])), None)
        if beside is not None:
            begin, step = (_interleave(body, acc, t.names[beside]) for body in (begin, step))
    else:
        outer.remove(row)
        last = t.element(t.along(axis, before))
        step = _in_row(t, row, t.store(t.along(axis, k), following(last, before, k)))
        begin = _in_row(t, row, t.store(t.along(axis, start), first(start)))
    body = (*begin, *_steps(low, high, step, down=reverse))
    if not isinstance(extent, int):
        body = (If(compare("gt", Index(extent), ZERO), body),)
    if beside is not None:
        outer.remove(beside)
        body = (For(index_var(t.names[beside]), ZERO, Index(t.shape[beside]), body, ROWS, parallel=True),)
    elif row is not None and row != axis and t.is_alone(row, axis):
        body = t.blocks(row, body)
    return t.around(outer, body)


def _divides_rows(extent: Dim) -> bool:
    return isinstance(extent, int) and extent % ROWS == 0


def _interleave(body: Body, acc: Var, name: str) -> Body:
    """Return a body for ``ROWS`` rows of an axis, each with an accumulator of its own.

    Unlike the elements of a row, the rows do not depend on each other.
    """
    copies: Body = ()
    for i in range(ROWS):
        own = Var(f"{acc.name}{i}", acc.type)
        copy = substitute_body(body, {name: Index(dim(name) + i), acc.name: own})
        copies += tuple(replace(s, var=own) if isinstance(s, Mutable | Assign) else s for s in copy)
    return copies


def _in_row(t: Target, row: int, statement: Store) -> Body:
    """Run a statement for each element of a row, or of the columns of a block."""
    if t.is_alone(row, t.attrs["axis"]):
        return t.columns(row, (statement,))
    return (loop(t.names[row], t.shape[row], (statement,), vector=True),)


def _steps(low: int, high: Dim, body: Body, *, down: bool) -> Body:
    """Return the loop over the rounds after the first one, if there are any."""
    return () if high == low else (For(index_var("k"), Index(low), Index(high), body, down=down),)
