"""Sort along an axis: a heap sort of indices in place."""

from __future__ import annotations

from mlaot.nest.expressions import BOOL, INDEX, Const, Expr, Index, Var, as_index, call, cast, compare, select
from mlaot.nest.statements import Assign, Body, Break, If, Let, Mutable, Store, While, index_var, loop
from mlaot.ops.nests.target import ZERO, Target

TRUE, FALSE = Const(1, BOOL), Const(0, BOOL)
START, REST, ROOT, CHILD = (Var(name, INDEX) for name in ("start", "rest", "root", "child"))
ONE, TWO, IS_AFTER = Var("one", INDEX), Var("two", INDEX), Var("is_after", BOOL)


class _Heap:
    """The indices along an axis as a heap whose root, the largest, comes last in the order."""

    def __init__(self, t: Target) -> None:
        self.t = t
        self.axis: int = t.attrs["axis"]
        self.dtype = t.node.type.dtype.name

    def get(self, place: Expr) -> Expr:
        """Load the index at a place of the heap."""
        return cast(self.t.element(self.t.along(self.axis, place)), "index")

    def put(self, place: Expr, index: Expr) -> Store:
        return self.t.store(self.t.along(self.axis, place), cast(index, self.dtype))

    def compare(self, first: Expr, second: Expr) -> Body:
        """Bind ``is_after``: whether the element of the index at one place comes after that at another.

        Equal elements are ordered by index, so the order is stable; nan is the largest.
        """
        keys = [self.t.read(0, self.t.along(self.axis, as_index(var))) for var in (ONE, TWO)]
        left, right = (Var(name, key.type) for name, key in zip(("left", "right"), keys, strict=True))
        is_descending = bool(self.t.attrs.get("descending"))
        larger, smaller = ("lt", "gt") if is_descending else ("gt", "lt")
        tie = compare("gt", as_index(ONE), as_index(TWO))
        if self.t.arg(0).type.dtype.kind == "f":
            is_nan = [compare("ne", x, x) for x in (left, right)]
            tie = select(compare("ne", *is_nan), is_nan[is_descending], tie)
        is_after = select(compare(larger, left, right), TRUE, select(compare(smaller, left, right), FALSE, tie))
        lets = [Let(ONE, self.get(first)), Let(TWO, self.get(second))]
        return (*lets, *[Let(var, key) for var, key in zip((left, right), keys, strict=True)], Let(IS_AFTER, is_after))

    def sift(self) -> Body:
        """Move the index at ``start`` down among the first ``rest`` places, below those that come after it."""
        root, child, rest = map(as_index, (ROOT, CHILD, REST))
        is_right = (*self.compare(child + 1, child), If(IS_AFTER, (Assign(CHILD, child + 1),)))
        swap = (self.put(child, as_index(TWO)), self.put(root, as_index(ONE)), Assign(ROOT, child))
        step: Body = (
            Mutable(CHILD, root * 2 + 1),
            If(compare("lt", child + 1, rest), is_right),
            *self.compare(child, root),
            If(call("not", IS_AFTER), (Break(),)),
            *swap,
        )
        return Mutable(ROOT, as_index(START)), While(compare("lt", root * 2 + 1, rest), step)


def argsort_nest(t: Target) -> Body:
    """Build a heap of all indices, then move its root behind the heap again and again."""
    heap, extent = _Heap(t), t.shape[t.attrs["axis"]]
    start, rest, last = as_index(START), as_index(REST), Var("last", INDEX)
    k = as_index(index_var("k"))
    fill = loop("k", extent, (heap.put(k, k),))
    taken = (
        Assign(REST, rest - 1),
        Let(last, heap.get(rest)),
        heap.put(rest, heap.get(ZERO)),
        heap.put(ZERO, as_index(last)),
    )
    smaller = If(compare("gt", start, ZERO), (Assign(START, start - 1),), taken)
    sort = While(compare("gt", rest, Index(1)), (smaller, *heap.sift()))
    body = (fill, Mutable(START, Index(extent // 2)), Mutable(REST, Index(extent)), sort)
    return t.around([i for i in range(len(t.shape)) if i != heap.axis], body)
