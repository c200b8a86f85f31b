"""Skip the elements along an axis that come after the last of those selected so far.

Whole blocks are skipped at once. For few of many elements nearly all blocks are.
"""

from __future__ import annotations

from collections.abc import Callable

from mlaot.nest.expressions import BOOL, INDEX, Const, Expr, Index, ValueType, Var, as_index, call, compare, select
from mlaot.nest.statements import Assign, Body, Break, If, Let, Mutable, While, index_var, loop
from mlaot.ops.nests.target import Target

NEXT = Var("next", INDEX)
BLOCK = 16  # elements that are passed over at once


def comes_first(t: Target, place: Expr, last: Var) -> Expr:
    """Return whether an element after all selected ones in memory comes before the last of them in the order."""
    is_descending = bool(t.attrs.get("descending"))
    x = t.read(0, t.along(t.attrs["axis"], place))
    if t.arg(0).type.dtype.kind != "f":
        return compare("gt" if is_descending else "lt", x, last)
    # The opposite holds for no nan, which is the largest.
    is_number, later = (last, "le") if is_descending else (x, "ge")
    earlier = call("not", compare(later, x, last))
    return select(compare("eq", is_number, is_number), earlier, Const(0, BOOL))


def seek_earlier(t: Target, index: Expr) -> Body:
    """Advance ``next`` to the first element that comes before the one at an index, or past the end."""
    element = t.read(0, t.along(t.attrs["axis"], index))
    last = Var("last", element.type)
    return (Let(last, element), *seek(t, lambda place: comes_first(t, place, last)))


def seek(t: Target, holds: Callable[[Expr], Expr]) -> Body:
    """Advance ``next`` to the first place along the axis where a condition holds, or past the end."""
    extent = t.arg(0).type.shape[t.attrs["axis"]]
    here, b = as_index(NEXT), index_var("b")
    # Counted in integers as wide as the elements: a vector of comparisons is one of these already.
    found = Var("found", ValueType("i64" if t.arg(0).type.dtype.itemsize == 8 else "i32"))
    none, one = (Const(value, found.type) for value in (0, 1))
    count = select(holds(here + as_index(b)), one, none)
    blocks: Body = (
        Mutable(found, none),
        loop("b", BLOCK, (Assign(found, call("add", found, count)),)),
        If(compare("ne", found, none), (Break(),)),
        Assign(NEXT, here + BLOCK),
    )
    return (
        While(compare("le", here + BLOCK, Index(extent)), blocks),
        While(compare("lt", here, Index(extent)), (If(holds(here), (Break(),)), Assign(NEXT, here + 1))),
    )
