"""Gather and scatter: rows that computed indices select are read or written (``mlaot/ops/indexing.py``)."""

from __future__ import annotations

from mlaot.ir import Dim
from mlaot.nest.expressions import (
    INDEX,
    WORD,
    Expr,
    Index,
    ValueType,
    Var,
    as_index,
    call,
    cast,
    compare,
    const,
    select,
    variables,
)
from mlaot.nest.reductions import combine
from mlaot.nest.statements import Body, If, Let, around
from mlaot.ops.nests.target import ZERO, At, Target, indices, loop_names, rows

ROW, INSIDE = Var("e", INDEX), Var("inside", INDEX)


def _index(t: Target, at: At, size: Dim, i: int = 1) -> Body:
    """Bind ``e`` to an index of argument ``i``; a negative one counts from the end."""
    x = t.read(i, at)
    if x.type.dtype == "u64":
        return (Let(ROW, cast(call("min", x, cast(Index(size), "u64")), "index")),)
    raw = Var("e0", INDEX)
    e = as_index(raw)
    return Let(raw, cast(x, "index")), Let(ROW, select(compare("lt", e, ZERO), e + Index(size), e))


def _clamped(size: Dim) -> Let:
    """Bind ``inside`` to ``e``, or to the nearest index that is in range."""
    e = as_index(ROW)
    last = select(compare("lt", e, Index(size)), e, Index(size - 1))
    return Let(INSIDE, select(compare("lt", e, ZERO), ZERO, last))


def field_ups(bits: int) -> list[int]:
    """Return the left shift of each field of a word that moves the field to the word's high end.

    Fields of 8 bits: pairs of neighbours are in the two halves of a word. Fields of 4 bits: the first four are the
    lower halves of the word's bytes.
    """
    if bits == 4:
        return [WORD - 4 - 8 * (k % 4) - 4 * (k // 4) for k in range(8)]
    return [WORD - bits - k // 2 * bits - k % 2 * (WORD // 2) for k in range(WORD // bits)]


def field_flips(bits: int) -> int:
    """Return the bits to flip so that the fields of a word have signs, as fields of 4 bits are stored plus 8."""
    return -0x77777778 if bits == 4 else 0


def gather_nest(t: Target) -> Body:
    """Copy the rows that indices choose; one out of range is clamped."""
    lead, rank = t.attrs["lead"], t.arg(1).type.rank
    size = t.arg(0).type.shape[lead]
    lets: Body = ()
    found = t.find_column(0, INSIDE)
    value = t.in_column(0, [*t.at[:lead], *t.at[rank:]], INSIDE, lead)
    if found or INSIDE.name in variables(value):  # not all elements are the same
        lets = (*_index(t, t.at[:rank], size), _clamped(size), *found)

    def copy_row(x: Expr) -> Body:
        return rows(t.names[rank:], t.shape[rank:], (t.store(t.at, x),), t.out.strides[rank:])

    body = copy_row(value)
    if not isinstance(size, int):
        body = (If(compare("gt", Index(size), ZERO), body, copy_row(const(0, value.type))),)
    return t.around(range(rank), (*lets, *body))


def gather_groups_nest(t: Target) -> Body:
    """Convert the fields of a column, which may be in a panel, to numbers, and store them as a row."""
    bits, rank = t.attrs["bits"], t.arg(2).type.rank
    groups, words, columns = t.arg(0).type.shape
    fields, lets = WORD // bits, (*_index(t, t.at[:rank], columns, 2), _clamped(columns))
    group, word = (as_index(Var(name, INDEX)) for name in "gw")
    scale, packed = Var("scale", ValueType("f32")), Var("packed", ValueType("i32"))
    first = (group * Index(words) + word) * Index(fields)

    def field(up: int) -> Expr:
        raised = call("left_shift", packed, const(up, packed.type))
        return cast(call("right_shift", raised, const(WORD - bits, packed.type)), "f32")

    word_bits = t.in_column(0, (group, word), INSIDE, 2)
    if flips := field_flips(bits):
        word_bits = call("xor", word_bits, const(flips, packed.type))
    stores = [t.store([*t.at[:rank], first + Index(k)], field(up) * scale) for k, up in enumerate(field_ups(bits))]
    body = around([("w", words)], (Let(packed, word_bits), *stores))
    row = around([("g", groups)], (Let(scale, cast(t.in_column(1, (group,), INSIDE, 1), "f32")), *body))
    return t.around(range(rank), (*lets, *t.find_column(0, INSIDE), *row))


def scatter_nest(t: Target) -> Body:
    """Copy the old values, unless they are overwritten, and apply one update after the other to them."""
    lead, rank, mode = t.attrs["lead"], t.arg(1).type.rank, t.attrs["mode"]
    update_shape, size, e = t.arg(2).type.shape, t.shape[lead], as_index(ROW)
    names = loop_names(update_shape)
    at = indices(names)
    element = [*t.at[:lead], e, *at[rank:]]
    value = t.read(2, at)
    if mode != "set":
        value = combine({"add": "sum"}.get(mode, mode), t.element(element), value)
    update = rows(names[rank:], update_shape[rank:], (t.store(element, value),), t.out.strides[lead + 1 :])
    in_range = (If(compare("lt", e, Index(size)), update),)
    body = (*_index(t, at[:rank], size), If(compare("ge", e, ZERO), in_range))
    updates_in_order = around([*zip(names[lead:rank], update_shape[lead:rank], strict=True)], body)
    old = t.builder.accesses.get(t.arg(0))
    if old is not None and old.buffer is t.out:
        return t.around(range(lead), updates_in_order)
    copy = rows(t.names[lead:], t.shape[lead:], (t.store(t.at, t.read(0, t.at)),), t.out.strides[lead:])
    return t.around(range(lead), (*copy, *updates_in_order))
