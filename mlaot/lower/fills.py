"""Elements that are made of their indices: numbers along an axis, one-hot rows, random bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mlaot.lower.builder import place
from mlaot.lower.target import Target, dense
from mlaot.nest.expressions import HALVES, Call, Const, Index, ValueType, cast, compare, const, select
from mlaot.nest.statements import Body


def _one_hot(t: Target) -> Body:
    label = t.read(0, t.at[:-1])
    if t.dtype not in HALVES:
        return t.fill(t.builder.computed(t.node, [label], t.at), parallel=True)
    is_here = compare("eq", cast(label, "i64"), cast(t.at[-1], "i64"))
    one, zero = (Const(value, ValueType(t.dtype)) for value in (1.0, 0.0))
    return t.fill(select(is_here, one, zero), parallel=True)


def _iota(t: Target) -> Body:
    return t.fill(cast(t.at[t.attrs["axis"]], t.dtype), parallel=True)


def _random_bits(t: Target) -> Body:
    keys = [t.read(0, [Index(i)]) for i in (0, 1)]
    number = cast(place(t.at, dense(t.shape)), "u64")
    site = const(t.attrs["site"], ValueType("u32"))
    return t.fill(Call("threefry", (*keys, number, site), ValueType(t.dtype)), parallel=True)


FILLS: Mapping[str, Callable[[Target], Body]] = {"one_hot": _one_hot, "iota": _iota, "random_bits": _random_bits}
