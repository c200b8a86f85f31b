"""The epilogue of a micro-kernel: the work on the accumulators when the sums are complete.

    c0_0, c0_1             y[i * 512 + j:16] = relu(c0_0 + bias[j:16])
    c1_0, c1_1     =>      y[i * 512 + j + 16:16] = relu(c0_1 + bias[j + 16:16]), ..

A short epilogue is unrolled for each accumulator. A long one is written once, in loops over the tile's points, which
index an array of the accumulators. If vectors run along the sum, a point is a single number. Expensive functions then
get a vector of several points:

    dots: f32[8] = ..                                  dots: f32[8] = ..
    for d_i: for d_j:                           =>     for d_i: for d_j: e0[..] = x[..]
        y[..] = exp(dots[..] + x[..])                  r0[0:8] = exp(dots[0:8] + e0[0:8])
                                                       for d_i: for d_j: y[..] = r0[..]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

from mlaot.ir import Dim
from mlaot.ir.dims import dim
from mlaot.ir.types import DTYPES
from mlaot.nest.expressions import (
    CHEAP_CALLS,
    COMPARISONS,
    INDEX,
    Array,
    Call,
    Expr,
    Index,
    Load,
    ValueType,
    Var,
    least,
    subexpressions,
    variables,
)
from mlaot.nest.statements import (
    Alloc,
    Block,
    Body,
    Let,
    Statement,
    Store,
    expressions,
    free_variables,
    loop,
    substitute_body,
)
from mlaot.schedule.contraction import nominal
from mlaot.schedule.microkernel import Point, Tile
from mlaot.schedule.tuning import EPILOGUE_STATEMENTS, LONG_EPILOGUE_STATEMENTS, LONG_STEPS
from mlaot.schedule.vectorize import CannotVectorizeError, vectorize

LANE = Index(dim("lane"))


def epilogue(tile: Tile, *, are_stored: bool = False) -> Iterator[Statement]:
    """Yield the epilogue of every accumulator, or of the gates of every vector.

    ``are_stored`` if sums are in ``sums_of``.
    """
    kernel, vectors = tile.kernel, len(tile.columns) // tile.gates
    cells = [(r, c) for r in range(len(tile.rows)) for c in range(vectors)]
    has_long_sum = prod(nominal(axis.size) for axis in kernel.summed) >= LONG_STEPS
    limit = LONG_EPILOGUE_STATEMENTS if has_long_sum else EPILOGUE_STATEMENTS
    is_long = len(kernel.epilogue) * len(cells) > limit
    if tile.along_sum or is_long or (kernel.gates and len(cells) > 1):
        if not (tile.along_sum or are_stored or len(cells) == 1):
            yield Alloc(sums_of(tile))
            yield from store_sums(tile, [name for row in tile.names for name in row])
        yield from _in_loops(tile, is_single=len(cells) == 1)
        return
    for r, c in cells:
        partial = tile.segment.partial if tile.segment is not None and tile.is_last_vector[c] else None
        at = tile.point({}, {**tile.rows[r], **tile.columns[c]})
        sums = [tile.accumulator(name) for name in tile.names[r][c::vectors]]
        body = _at_point(tile, sums, at, None if partial is None else Index(partial))
        yield from (body if len(body) < 2 else [Block(body)])


def sums_of(tile: Tile) -> Array:
    """Return the array that has the sums of a tile, accumulator by accumulator."""
    return Array("sums", tile.type.dtype, len(tile.rows) * len(tile.columns) * tile.lanes, "local")


def store_sums(tile: Tile, names: Sequence[str]) -> Iterator[Statement]:
    """Yield the stores of some accumulators in the array of all sums of a tile."""
    order = [name for row in tile.names for name in row]
    yield from (Store(sums_of(tile), Index(order.index(n) * tile.lanes), tile.accumulator(n)) for n in names)


def _at_point(tile: Tile, sums: Sequence[Expr], at: Point, count: Expr | None) -> Body:
    """Return the epilogue for the sums of a vector, or for one number, at a point."""
    names = [f"acc{g}" for g in range(len(sums))] if tile.kernel.gates else ["acc"]
    values = dict(zip(names, sums, strict=True))
    places = {name: Index(place) for name, place in at.items()}
    if tile.along_sum:
        return substitute_body(tile.kernel.epilogue, {**values, **places})
    body = vectorize(tile.kernel.epilogue, tile.kernel.lanes, tile.lanes, count, values)
    return substitute_body(body, places)


def _in_loops(tile: Tile, *, is_single: bool) -> Iterator[Statement]:
    """Yield the epilogue in loops ``d_<axis>`` over the points of the tile along each axis."""
    names = [name for row in tile.names for name in row]
    axes = [(n, count) for n, count in zip(tile.axes, tile.counts, strict=True) if count > 1 and n != tile.kernel.gates]
    at = dict(tile.at)
    for name, _ in axes:
        at[name] = at[name] + dim(f"d_{name}") * (tile.lanes if name == tile.kernel.lanes else 1)
    lets: Body = ()
    sums: list[Expr] = [tile.accumulator(name) for name in names]
    if tile.along_sum and is_single:
        dot = Var("dot", ValueType(tile.kernel.dtype))
        lets = (Let(dot, Call("sum_lanes", (sums[0],), dot.type)),)
        sums = [dot]
    elif tile.along_sum:
        dots, stores = _fold_lanes(tile, names)
        yield from stores
        in_vectors = _points_in_vectors(tile, dots, at, axes)
        if in_vectors is not None:
            yield from in_vectors
            return
        sums = [dots[Index(_number(tile))]]
    elif not is_single:
        array = sums_of(tile)
        sums = [Load(array, Index(_number(tile, g) * tile.lanes), tile.type) for g in range(tile.gates)]
    body = (*lets, *_with_count(tile, sums, at))
    yield from _over_points(axes, body) if axes or len(body) < 2 else (Block(body),)


def _over_points(axes: Sequence[tuple[str, int]], body: Body) -> Body:
    """Return the loops over the points of a tile, by the counts along its axes."""
    for name, count in reversed(axes):
        body = (loop(f"d_{name}", count, body),)
    return body


def _points_in_vectors(tile: Tile, dots: Array, at: Point, axes: Sequence[tuple[str, int]]) -> Body | None:
    """Return the epilogue of numbers in ``dots`` in vectors of points, or None if that is not faster or not possible.

    The values that points read are gathered before, and the values that they store are scattered after.
    """
    places = {name: Index(place) for name, place in at.items()}
    body = substitute_body(tile.kernel.epilogue, places)
    calls = {x.name for s in body for e in expressions(s) for x in subexpressions(e) if isinstance(x, Call)}
    if calls <= {*CHEAP_CALLS, *COMPARISONS}:
        return None
    number, steps = Index(_number(tile)), {f"d_{name}" for name, _ in axes}
    before, read, inside, stored = list[Statement](), list[Statement](), list[Statement](), list[Statement]()
    arrays: list[Array] = []

    def array_of(letter: str, count: int) -> Array:
        arrays.append(Array(f"{letter}{count}", dots.dtype, dots.size, "local"))
        return arrays[-1]

    for s in body:
        if not isinstance(s, Let | Store) or s.value.type.dtype != dots.dtype:
            return None
        are_loads = any(isinstance(x, Load) for x in subexpressions(s.value))
        if isinstance(s, Store):
            result = array_of("r", len(stored))
            inside.append(Store(result, LANE, s.value))
            stored.append(replace(s, value=result[number]))
        elif are_loads and not variables(s.value) & steps:
            before.append(s)
        elif are_loads:
            array = array_of("e", len(read))
            read.append(Store(array, number, s.value))
            inside.append(Let(s.var, array[LANE]))
        else:
            inside.append(s)
    work = substitute_body(tuple(inside), {"acc": dots[LANE]})
    assert isinstance(dots.size, int)
    try:
        starts = range(0, dots.size, tile.lanes)
        width = 8 * DTYPES[dots.dtype].itemsize
        vectors = vectorize(work, "lane", tile.lanes, width=width)
        blocks = [Block(substitute_body(vectors, {"lane": Index(start)})) for start in starts]
    except CannotVectorizeError:
        return None
    allocs = map(Alloc, arrays)
    return (*allocs, *before, *_over_points(axes, tuple(read)), *blocks, *_over_points(axes, tuple(stored)))


def _with_count(tile: Tile, sums: Sequence[Expr], at: Point) -> Body:
    """Return the epilogue of one of several vectors, of which the last may be partial."""
    if tile.along_sum or tile.segment is None or tile.segment.partial is None:
        return _at_point(tile, sums, at, None)
    body = _at_point(tile, sums, at, Index(dim("rest")))
    if "rest" not in free_variables(body):
        return body
    size = next(axis.size for axis in tile.kernel.out if axis.name == tile.kernel.lanes)
    left = Index(at[tile.kernel.lanes] * -1 + size)
    return (Let(Var("rest", INDEX), least(left, tile.lanes)), *body)


def _fold_lanes(tile: Tile, names: Sequence[str]) -> tuple[Array, list[Statement]]:
    """Return an array with the sum of the lanes of each accumulator, and the statements that fill it.

    ``fold<h>`` of two vectors adds neighbouring groups of h lanes of each. So four accumulators of four lanes become
    one vector of their sums in two rounds, with half as many instructions as four separate sums::

        a0 a1 a2 a3 | b0 b1 b2 b3  --fold2-->  a0+a2 a1+a3 b0+b2 b1+b3 = h0
        c0 c1 c2 c3 | d0 d1 d2 d3  --fold2-->  c0+c2 c1+c3 d0+d2 d1+d3 = h1
        h0 | h1                    --fold1-->  sum(a) sum(b) sum(c) sum(d)
    """
    groups = [names[i : i + tile.lanes] for i in range(0, len(names), tile.lanes)]
    dots = Array("dots", tile.kernel.dtype, len(groups) * tile.lanes, "local")
    statements: list[Statement] = [Alloc(dots)]
    count = 0
    for number, group in enumerate(groups):
        size = 1 << (len(group) - 1).bit_length()
        vectors = [tile.accumulator(name) for name in (*group, *[group[0]] * (size - len(group)))]
        half = tile.lanes // 2
        while half:
            pairs = zip(vectors[::2], vectors[1::2], strict=True) if len(vectors) > 1 else [(vectors[0], vectors[0])]
            folds: dict[tuple[Var, Var], Var] = {}
            vectors = [folds.setdefault(pair, Var(f"h{count + len(folds)}", tile.type)) for pair in pairs]
            statements += [Let(var, Call(f"fold{half}", pair, tile.type)) for pair, var in folds.items()]
            count += len(folds)
            half //= 2
        statements.append(Store(dots, Index(number * tile.lanes), vectors[0]))
    return dots, statements


def _number(tile: Tile, gate: int = 0) -> Dim:
    """Return the number of an accumulator in the array of all, as a polynomial in the loops over the tile's points."""
    total: Dim = 0
    step = 1
    for name, count in reversed([*zip(tile.axes, tile.counts, strict=True)]):
        if name == tile.kernel.gates:
            total = total + gate * step
        elif count > 1:
            total = total + dim(f"d_{name}") * step
        step *= count
    return total
