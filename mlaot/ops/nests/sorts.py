"""Sort along an axis. Elements, and indices by keys of up to 32 bits, are sorted as integers by a function in C.

An index and its key are then one word (keys.py). For keys of 64 bits, a quicksort in the memory of the result moves
indices, without branches that depend on the elements' order:

    pivot = the median of three elements
    for each element: swap it with the first one that is not before the pivot; if it is, that place moves on
    then the same for the elements on each side, the larger side later; few elements are put in order by their ranks
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

from mlaot.ir import Dim, Type
from mlaot.nest.expressions import (
    BOOL,
    INDEX,
    Array,
    Call,
    Const,
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
from mlaot.nest.statements import Alloc, Assign, Body, Break, For, If, Let, Mutable, Sort, Store, While, index_var, loop
from mlaot.ops.nests.heaps import heap_nest
from mlaot.ops.nests.insertions import are_inserted, insertion_nest
from mlaot.ops.nests.keys import I64, LARGEST, has_words, index_of, order_key, order_word
from mlaot.ops.nests.target import ZERO, Target
from mlaot.schedule.tuning import CHOSEN_SHARE, HEAP_COST, RANKED_ELEMENTS, RANKED_WORDS, SEARCH_START

U32 = ValueType("u32")
START, STOP, SPLIT, DEPTH, PART = (Var(name, INDEX) for name in ("start", "stop", "split", "depth", "part"))
FIRST, SECOND, THIRD, PIVOT = (Var(f"{name}_place", INDEX) for name in ("first", "second", "third", "pivot"))
UP, FURTHER, OVER = (Var(f"is_{name}", BOOL) for name in ("up", "further", "over"))
RANK, PLACE, DRAW = Var("rank", I64), Var("place", INDEX), Var("draw", U32)
PENDING = Array("pending", "i64", 128, "local")  # starts and ends of parts: the larger side waits, so they are 64


def ranked_elements(x: Type) -> int:
    """Return the most elements that are sorted by their ranks; only longer rows are sorted as words."""
    return RANKED_WORDS if has_words(x) else RANKED_ELEMENTS


def are_chosen(x: Type, axis: int, count: int) -> bool:
    """Tell whether the first elements are selected one by one, which is faster for a few of many than a search.

    In a row in random order, the i-th element is selected with probability ``min(1, count / i)``.
    """
    extent = x.shape[axis]
    assert isinstance(extent, int), f"bug in mlaot: the first {count} of {extent}"
    chosen = count * (1 + log(extent / count))
    share = CHOSEN_SHARE if has_words(x) else 2 * CHOSEN_SHARE
    most = share * (extent + SEARCH_START) / (1 if are_inserted(x, count) else HEAP_COST)
    return extent > RANKED_WORDS and chosen <= most


def sort_nest(t: Target) -> Body:
    """Sort the elements along the last axis, all of them or those at some places."""
    axis, places = t.attrs["axis"], t.attrs.get("places")
    assert axis == len(t.shape) - 1, "bug in mlaot: a sort of what is no row"
    row, first, extent = t.element(t.along(axis, ZERO)), t.row(0, axis), t.shape[axis]
    source, index, step = first
    low, high = map(Index, places or (0, extent))
    is_descending = bool(t.attrs.get("descending"))
    sort = Sort(row.array, row.index, source, index, Index(step), Index(extent), low, high, is_descending)
    return t.around(range(axis), (sort, *_clear(t, places)))


def argsort_nest(t: Target) -> Body:
    """Sort the indices along an axis: all of them, those at some places, or the first ones."""
    axis = t.attrs["axis"]
    if t.shape[axis] != t.arg(0).type.shape[axis]:
        return insertion_nest(t) if are_inserted(t.arg(0).type, t.shape[axis]) else heap_nest(t)
    return t.around([i for i in range(len(t.shape)) if i != axis], _Sort(t).body())


@dataclass(frozen=True, slots=True)
class _Element:
    """An element, which is an index, and its key."""

    value: Var
    key: Var


class _Sort:
    """The sort of one row."""

    def __init__(self, t: Target) -> None:
        self.t = t
        self.axis: int = t.attrs["axis"]
        self.extent = t.shape[self.axis]
        self.places: tuple[int, int] | None = t.attrs.get("places")
        self.ranked = ranked_elements(t.arg(0).type)
        self.few = min(self.extent, self.ranked) if isinstance(self.extent, int) else self.ranked
        self.keys, self.elements = (Array(name, "i64", self.few, "local") for name in ("keys", "elements"))

    def body(self) -> Body:
        """Put the elements in their places, sort them, and leave their indices."""
        if isinstance(self.extent, int) and self.extent <= self.ranked:
            return (*self.sort_by_keys(), *_clear(self.t, self.places))
        if has_words(self.t.arg(0).type):
            return self.sort_words()
        k = as_index(index_var("k"))
        is_long = compare("gt", as_index(STOP) - as_index(START), Index(RANKED_ELEMENTS))
        step = If(is_long, self.split(), (*self.sort_few(), *self.next_part()))
        return (
            *map(Alloc, (PENDING, self.keys, self.elements)),
            loop("k", self.extent, (self.put(k, cast(k, "i64")),)),
            *[Mutable(var, value) for var, value in ((START, ZERO), (STOP, Index(self.extent)), (DEPTH, ZERO))],
            Mutable(DRAW, const(1, U32)),
            While(Const(1, BOOL), (step,)),
            *_clear(self.t, self.places),
        )

    def sort_words(self) -> Body:
        """Sort words, which are integers, and leave their indices."""
        low, high = self.places or (0, self.extent)
        k, row = as_index(index_var("k")), self.get(ZERO)
        place, extent = row.index, Index(self.extent)
        words = Sort(row.array, place, row.array, place, Index(1), extent, Index(low), Index(high))
        lets, word = order_word(self.t, "now", k)
        return (
            loop("k", self.extent, (*lets, self.put(k, word))),
            words,
            *self.unpack(low, high),
            *_clear(self.t, self.places),
        )

    def unpack(self, low: Dim, high: Dim) -> Body:
        """Leave the indices of words."""
        k = as_index(index_var("k"))
        return (For(index_var("k"), Index(low), Index(high), (self.put(k, index_of(self.get(k))),)),)

    # Elements.

    def get(self, place: Expr) -> Load:
        return self.t.element(self.t.along(self.axis, place))

    def put(self, place: Expr, element: Expr) -> Store:
        return self.t.store(self.t.along(self.axis, place), element)

    def bind(self, name: str, place: Expr) -> tuple[Body, _Element]:
        """Bind the element at a place and its key to variables."""
        value = Var(name, I64)
        index, key = Var(f"{name}_index", INDEX), Var(f"{name}_key", I64)
        lets, key_of_index = order_key(self.t, name, as_index(index))
        bound = Let(value, self.get(place)), Let(index, cast(value, "index")), *lets, Let(key, key_of_index)
        return bound, _Element(value, key)

    def is_before(self, a: _Element, b: _Element) -> Expr:
        """Return whether an element comes before another: by the key, then by the index."""
        less = compare("lt", a.key, b.key)
        return call("or", less, call("and", compare("eq", a.key, b.key), compare("lt", a.value, b.value)))

    # Many elements.

    def split(self) -> Body:
        """Partition the elements from ``start`` to ``stop`` by a pivot, and continue with one side."""
        start, split, k = as_index(START), as_index(SPLIT), as_index(index_var("k"))
        last = as_index(STOP) - 1
        bind_pivot, pivot = self.bind("pivot", as_index(PIVOT))
        bind_now, now = self.bind("now", k)
        moved = split + cast(self.is_before(now, pivot), "index")
        swap = self.put(k, self.get(split)), self.put(split, now.value)
        return (
            *self.choose_pivot(),
            *bind_pivot,
            self.put(as_index(PIVOT), self.get(last)),
            Mutable(SPLIT, start),
            For(index_var("k"), start, last, (*bind_now, *swap, Assign(SPLIT, moved))),
            self.put(last, self.get(split)),
            self.put(split, pivot.value),
            *self.choose_side(),
        )

    def choose_pivot(self) -> Body:
        """Find the median of one element of each third.

        The elements are random, so that no usual order is a slow case.
        """
        start, part, first, second, third = map(as_index, (START, PART, FIRST, SECOND, THIRD))
        drawn = call("add", call("mul", DRAW, const(69069, U32)), const(1, U32))
        offset = Call("mod", (cast(call("right_shift", DRAW, const(8, U32)), "index"), part), INDEX)
        names = ("one", "two", "three")
        bound, elements = zip(*map(self.bind, names, (first, second, third)), strict=True)
        one, two, three = elements
        median = select(compare("eq", UP, FURTHER), second, select(compare("eq", UP, OVER), third, first))
        return (
            Let(PART, Call("div", (as_index(STOP) - start, Index(3)), INDEX)),
            Assign(DRAW, drawn),
            Let(FIRST, call("add", start, offset)),
            Let(SECOND, first + part),
            Let(THIRD, second + part),
            *[let for lets in bound for let in lets],
            Let(UP, self.is_before(one, two)),
            Let(FURTHER, self.is_before(two, three)),
            Let(OVER, self.is_before(one, three)),
            Let(PIVOT, median),
        )

    def choose_side(self) -> Body:
        """Continue with the side that is needed, or with the smaller one, and keep the other for later."""
        start, stop, split = as_index(START), as_index(STOP), as_index(SPLIT)
        to_left, to_right = Assign(STOP, split), Assign(START, split + 1)
        is_left_smaller = compare("lt", split - start, stop - split)
        left, right = (start, split), (split + 1, stop)
        both = If(is_left_smaller, (*_wait(*right), to_left), (*_wait(*left), to_right))
        if self.places is None:
            return (both,)
        low, high = self.places
        is_left_in_vain, is_right_in_vain = compare("le", split, Index(low)), compare("ge", split + 1, Index(high))
        return (If(is_left_in_vain, (to_right,), (If(is_right_in_vain, (to_left,), (both,)),)),)

    def next_part(self) -> Body:
        """Continue with the elements that were kept last."""
        depth = as_index(DEPTH)
        ends = [Assign(x, cast(PENDING[depth + i], "index")) for i, x in enumerate((START, STOP))]
        return If(compare("eq", depth, ZERO), (Break(),)), Assign(DEPTH, depth - 2), *ends

    # Few elements.

    def sort_few(self) -> Body:
        """Put each element at its rank, the number of elements before it."""
        start, k, j = as_index(START), as_index(index_var("k")), as_index(index_var("j"))
        count: Expr = as_index(STOP) - start
        lets, now = self.bind("now", start + k)
        other, other_key = Var("other", I64), Var("other_key", I64)
        kept, others = (
            [(self.keys, now.key), (self.elements, now.value)],
            [Let(other_key, self.keys[j]), Let(other, self.elements[j])],
        )
        copied = [Store(array, k, var) for array, var in kept]
        padded = [Store(array, k, LARGEST) for array, _ in kept]
        again = [Let(var, array[k]) for array, var in kept]
        is_before = self.is_before(_Element(other, other_key), now)
        rank = _count(ZERO, RANKED_ELEMENTS, is_before, *others)
        return (
            loop("k", count, (*lets, *copied)),
            For(index_var("k"), count, Index(RANKED_ELEMENTS), tuple(padded)),
            loop("k", count, (*again, *self.put_by_rank((rank,), start, now.value))),
        )

    def sort_by_keys(self) -> Body:
        """Put each index at its rank: after indices with smaller keys, and earlier ones with an equal key."""
        k, j, now = as_index(index_var("k")), as_index(index_var("j")), Var("now", I64)
        lets, key = order_key(self.t, "now", k)
        key_before = self.keys[j]
        counts = _count(ZERO, k, compare("le", key_before, now)), _count(k, self.few, compare("lt", key_before, now))
        return (
            Alloc(self.keys),
            loop("k", self.few, (*lets, Store(self.keys, k, key))),
            loop("k", self.few, (Let(now, self.keys[k]), *self.put_by_rank(counts, ZERO, cast(k, "i64")))),
        )

    def put_by_rank(self, counts: Body, start: Expr, element: Expr) -> Body:
        put = self.put(start + as_index(PLACE), element)
        return Mutable(RANK, const(0, I64)), *counts, Let(PLACE, cast(RANK, "index")), put


def _clear(t: Target, places: tuple[int, int] | None) -> Body:
    """Write 0 at places that are not needed."""
    if places is None:
        return ()
    axis, k = t.attrs["axis"], index_var("k")
    put = t.store(t.along(axis, as_index(k)), const(0, ValueType(t.dtype)))
    ranges = ((0, places[0]), (places[1], t.shape[axis]))
    return tuple([For(k, Index(first), Index(stop), (put,)) for first, stop in ranges if first != stop])


def _wait(start: Expr, stop: Expr) -> Body:
    """Keep a part for later."""
    depth = as_index(DEPTH)
    ends = [Store(PENDING, depth + i, cast(x, "i64")) for i, x in enumerate((start, stop))]
    return *ends, Assign(DEPTH, depth + 2)


def _count(first: Expr, stop: int | Expr, is_before: Expr, *lets: Let) -> For:
    """Add the number of elements that come before to the rank."""
    added = Assign(RANK, call("add", RANK, cast(is_before, "i64")))
    return For(index_var("j"), first, as_index(stop), (*lets, added))
