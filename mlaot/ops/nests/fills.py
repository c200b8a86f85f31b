"""Elements that are computed from their indices: numbers along an axis, one-hot rows, random bits."""

from __future__ import annotations

from mlaot.nest.expressions import INDEX, Call, Index, ValueType, Var, as_index, cast, compare, const
from mlaot.nest.statements import Body, If, Let
from mlaot.ops.nests.target import ZERO, Target, dense, place


def one_hot_nest(t: Target) -> Body:
    """Write one-hot rows: 1 at the class of a row's label, and 0 elsewhere."""
    lead = len(t.shape) - 1
    zero, one = (const(value, ValueType(t.dtype)) for value in (0, 1))
    label = Var("e", INDEX)
    put: Body = (t.store_part([*t.at[:lead], as_index(label)], one),)
    for is_inside in (compare("lt", label, Index(t.shape[lead])), compare("ge", label, ZERO)):
        put = (If(is_inside, put),)
    rows_ = (*t.fill(zero, lead), Let(label, cast(t.read(0, t.at[:lead]), "index")), *put)
    return t.around(range(lead), rows_)


def iota_nest(t: Target) -> Body:
    """Write the index along an axis."""
    return t.fill(cast(t.at[t.attrs["axis"]], t.dtype), parallel=True)


def random_bits_nest(t: Target) -> Body:
    """Write Threefry's bits for the number of each element, so that every machine draws the same bits."""
    keys = [t.read(0, [Index(i)]) for i in (0, 1)]
    number = cast(place(t.at, dense(t.shape)), "u64")
    site = const(t.attrs["site"], ValueType("u32"))
    return t.fill(Call("threefry", (*keys, number, site), ValueType(t.dtype)), parallel=True)
