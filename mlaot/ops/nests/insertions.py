"""Sort the first elements along an axis by insertion without branches, for a handful of many elements.

    first = [-inf, inf, inf, ..]
    for each element that comes before the last of them: first[i] = min(first[i], max(first[i - 1], element)), from the
        last i to 1

The elements are words, which hold key and index (keys.py), or keys of 64 bits beside indices. There are a few more
places than needed, so that they fill whole vectors.
"""

from __future__ import annotations

from mlaot.ir import Type
from mlaot.nest.expressions import Array, Const, Expr, Index, Var, as_index, call, cast, compare, const, select
from mlaot.nest.statements import Alloc, Assign, Body, Break, For, If, Let, Mutable, Store, While, index_var, loop
from mlaot.ops.nests.keys import I64, LARGEST, has_words, index_of, order_key, order_word
from mlaot.ops.nests.passing import NEXT, seek_earlier
from mlaot.ops.nests.target import ZERO, Target
from mlaot.schedule.tuning import INSERTED_KEYS, INSERTED_WORDS

NOW, NOW_INDEX = Var("now", I64), Var("now_index", I64)
WHOLE = 8  # places that make whole vectors on every machine
LEAST = Const(-(2**63), I64)
BELOW_LARGEST = Const(2**63 - 2, I64)


def are_inserted(x: Type, count: int) -> bool:
    """Tell whether insertion can find the first elements.

    No key may equal that of the free places, as the key of the largest integer would.
    """
    return count <= INSERTED_WORDS if has_words(x) else x.dtype.kind == "f" and count <= INSERTED_KEYS


def insertion_nest(t: Target) -> Body:
    """Insert each element that comes first into a sorted row, and leave the indices."""
    axis = t.attrs["axis"]
    extent, count, here, k = t.arg(0).type.shape[axis], t.shape[axis], as_index(NEXT), as_index(index_var("k"))
    places = -(-count // WHOLE) * WHOLE
    keys, indices = (Array(name, "i64", 1 + places, "local") for name in ("keys", "elements"))
    arrays, now, move = _of_words(t, keys) if has_words(t.arg(0).type) else _of_keys(t, keys, indices)

    def index_at(place: Expr) -> Expr:
        return cast(index_of(keys[place]) if has_words(t.arg(0).type) else indices[place], "index")

    no_further = If(compare("eq", here, Index(extent)), (Break(),))
    look = If(compare("ge", here, Index(count)), (*seek_earlier(t, index_at(Index(count))), no_further))
    insert = For(index_var("k"), Index(1), Index(1 + places), move, down=True)
    return t.around(
        [i for i in range(len(t.shape)) if i != axis],
        (
            *map(Alloc, arrays),
            loop("k", places, [Store(array, k + 1, LARGEST) for array in arrays]),
            Store(keys, ZERO, LEAST),
            *[Store(array, ZERO, const(0, I64)) for array in arrays[1:]],
            Mutable(NEXT, ZERO),
            While(compare("lt", here, Index(extent)), (look, *now, insert, Assign(NEXT, here + 1))),
            loop("k", count, (t.store(t.along(axis, k), cast(index_at(k + 1), t.dtype)),)),
        ),
    )


def _of_words(t: Target, words: Array) -> tuple[list[Array], Body, Body]:
    """Return the memory of the elements, how to read the next one, and the work at a place, for words."""
    k = as_index(index_var("k"))
    lets, word = order_word(t, "now", as_index(NEXT))
    here, before = (Var(name, I64) for name in ("here", "before"))
    moved = select(compare("lt", before, NOW), NOW, before)
    store = Store(words, k, select(compare("lt", here, NOW), here, moved))
    return [words], (*lets, Let(NOW, word)), (Let(here, words[k]), Let(before, words[k - 1]), store)


def _of_keys(t: Target, keys: Array, indices: Array) -> tuple[list[Array], Body, Body]:
    """Return the same as ``_of_words`` for keys and indices. Equal keys are in the order in which they are inserted."""
    k, here = as_index(index_var("k")), as_index(NEXT)
    lets, key = order_key(t, "now", here)
    now: Body = (*lets, Let(NOW, call("min", key, BELOW_LARGEST)), Let(NOW_INDEX, cast(here, "i64")))
    is_kept, is_moved = (Var(name, I64) for name in ("is_kept", "is_moved"))
    masks = [
        Let(mask, call("neg", cast(compare("le", keys[place], NOW), "i64")))
        for mask, place in ((is_kept, k), (is_moved, k - 1))
    ]

    # By bits: gcc makes no vectors of two conditions that choose between numbers of two arrays.
    def chosen(mask: Var, value: Expr, other: Expr) -> Expr:
        return call("or", call("and", mask, value), call("and", call("not", mask), other))

    stores = [
        Store(array, k, chosen(is_kept, array[k], chosen(is_moved, new, array[k - 1])))
        for array, new in ((indices, NOW_INDEX), (keys, NOW))
    ]
    return [keys, indices], now, (*masks, *stores)
