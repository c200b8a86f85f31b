"""Integers that have the order of the elements to sort along an axis.

A key has as many bits as the element, and nan is above all numbers. A word, of 64 bits, is a key of up to 32 bits over
the element's index. No two words are equal, so their order is stable.
"""

from __future__ import annotations

from mlaot.ir import Type
from mlaot.nest.expressions import Call, Const, Expr, ValueType, Var, call, cast, compare, const, select
from mlaot.nest.statements import Body, Let
from mlaot.ops.nests.target import Target

INDEX_BITS = 32  # of a word; the key has the bits above
I64 = ValueType("i64")
LARGEST = Const(2**63 - 1, I64)


def order_key(t: Target, name: str, index: Expr) -> tuple[Body, Expr]:
    """Return the key of the element at an index, and statements for it, whose variables begin with ``name``."""
    x = t.read(0, t.along(t.attrs["axis"], index))
    dtype = t.arg(0).type.dtype
    lets: Body = ()
    if dtype.kind == "f":
        value, bits = Var(f"{name}_value", x.type), Var(f"{name}_bits", ValueType(f"i{x.type.dtype[1:]}"))
        unsigned_zero = call("add", value, const(0, x.type))
        lets = Let(value, x), Let(bits, Call("bitcast", (unsigned_zero,), bits.type))
        x = _in_order(value, bits)
    elif dtype.name == "u64":
        x = call("xor", Call("bitcast", (x,), I64), Const(-(2**63), I64))
    key = cast(x, "i64")
    if dtype.name == "u32":
        key = call("sub", key, Const(2**31, I64))
    return lets, call("not", key) if t.attrs.get("descending") else key


def order_word(t: Target, name: str, index: Expr) -> tuple[Body, Expr]:
    """Return the word of the element at an index, and statements for it."""
    lets, key = order_key(t, name, index)
    return lets, call("or", call("left_shift", key, Const(INDEX_BITS, I64)), cast(index, "i64"))


def index_of(word: Expr) -> Expr:
    """Return the index in a word."""
    return call("and", word, Const(2**INDEX_BITS - 1, I64))


def has_words(x: Type) -> bool:
    """Tell whether keys leave room for an index in a word."""
    return x.dtype.itemsize <= 4


def _in_order(x: Var, bits: Var) -> Expr:
    """Return the bits of a float as an integer of the same order; that of nan is the largest."""
    width = int(x.type.dtype[1:])
    largest = Const(2 ** (width - 1) - 1, bits.type)
    sign = call("right_shift", bits, const(width - 1, bits.type))
    return select(compare("eq", x, x), call("xor", bits, call("and", sign, largest)), largest)
