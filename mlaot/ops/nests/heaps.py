"""Sort the first elements along an axis by a heap sort of indices, for few of many elements.

    heap = the first k indices, the one that comes last at the root
    for each further element: if it comes before the root's, it takes its place
    then the heap is sorted

Even fewer elements are inserted into a sorted row instead (insertions.py).
"""

from __future__ import annotations

from mlaot.nest.expressions import BOOL, INDEX, Const, Expr, Index, Var, as_index, call, cast, compare, select
from mlaot.nest.statements import Assign, Body, Break, If, Let, Mutable, Store, While, index_var, loop
from mlaot.ops.nests.passing import NEXT, seek_earlier
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
        self.is_descending = bool(t.attrs.get("descending"))

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
        larger, smaller = ("lt", "gt") if self.is_descending else ("gt", "lt")
        tie = compare("gt", as_index(ONE), as_index(TWO))
        if self.t.arg(0).type.dtype.kind == "f":
            is_nan = [compare("ne", x, x) for x in (left, right)]
            tie = select(compare("ne", *is_nan), is_nan[self.is_descending], tie)
        is_after = select(compare(larger, left, right), TRUE, select(compare(smaller, left, right), FALSE, tie))
        lets = [Let(ONE, self.get(first)), Let(TWO, self.get(second))]
        return (*lets, *[Let(var, key) for var, key in zip((left, right), keys, strict=True)], Let(IS_AFTER, is_after))

    def take_next(self, extent: int) -> Body:
        """Find the next element that comes before the root's, and put its index at the root."""
        here = as_index(NEXT)
        put = If(compare("lt", here, Index(extent)), (self.put(ZERO, here), Assign(NEXT, here + 1)))
        return *seek_earlier(self.t, self.get(ZERO)), put

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


def heap_nest(t: Target) -> Body:
    """Build a heap of the first indices, replace the root by better indices, then move each root behind the heap."""
    heap, axis = _Heap(t), t.attrs["axis"]
    extent, count = t.arg(0).type.shape[axis], t.shape[axis]
    start, rest, last = as_index(START), as_index(REST), Var("behind", INDEX)
    k = as_index(index_var("k"))
    fill = loop("k", count, (heap.put(k, k),))
    taken: Body = (
        Assign(REST, rest - 1),
        Let(last, heap.get(rest)),
        heap.put(rest, heap.get(ZERO)),
        heap.put(ZERO, as_index(last)),
    )
    begin: Body = (Mutable(START, Index(count // 2)), Mutable(REST, Index(count)), Mutable(NEXT, Index(count)))
    further = Index(extent) - as_index(NEXT)
    smaller = If(compare("gt", further, ZERO), heap.take_next(extent), taken)
    smaller = If(compare("gt", start, ZERO), (Assign(START, start - 1),), (smaller,))
    sort = While(compare("gt", rest + further, Index(1)), (smaller, *heap.sift()))
    return t.around([i for i in range(len(t.shape)) if i != axis], (fill, *begin, sort))
