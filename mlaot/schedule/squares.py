"""Read across rows in squares: as many rows as a vector has lanes are loaded along the row, and transposed in
registers.

    for i in parallel(0, 64):                    for i in parallel(0, 64, 4):
        for j in vector(0, 32):                      for j in range(0, 32, 4):
            y[i * 32 + j] = x[j * 64 + i]    =>          square0 = transpose(x[j * 64 + i:4], x[j * 64 + i + 64:4], ..)
                                                         y[i * 32 + j:4] = square0_0
                                                         y[i * 32 + j + 32:4] = square0_1
                                                         ..

Without squares, a vector along ``j`` is gathered from one cache line for each lane, again for every ``i``. If the lanes
do not divide the rounds, a last square overlaps the one before, or if threads share these rounds, the rest is gathered.
Every element is computed as before, so the result is bit-exact.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial

from mlaot.ir import DTYPES
from mlaot.ir.dims import dim, names, step_of
from mlaot.nest.expressions import (
    CHEAP_CALLS,
    COMPARISONS,
    Call,
    Const,
    Expr,
    Index,
    Load,
    Var,
    is_float,
    map_parts,
    substitute,
    variables,
)
from mlaot.nest.statements import (
    Block,
    Body,
    For,
    Let,
    Statement,
    Store,
    Transpose,
    all_expressions,
    index_var,
    loop,
    map_bodies,
    map_expressions,
    rounds_of,
    substitute_body,
    written_arrays,
)
from mlaot.schedule.machine import Machine
from mlaot.schedule.tuning import SQUARE_STATEMENTS
from mlaot.schedule.vectorize import CannotVectorizeError, vectorize, width_of

ROW = "k"  # of a square, where the rest of lanes is computed


@dataclass(frozen=True)
class _Squares:
    """The loops of squares: ``chain`` from the outer one to the innermost loop.

    ``along`` is the loop whose rounds are the lanes, and ``rows`` the loop along which the elements that are read
    across rows are adjacent. ``body`` has the innermost statements in ``lanes``, and ``reads`` the loads across rows.
    With ``can_repeat`` a round may be computed twice.
    """

    chain: tuple[For, ...]
    along: For
    rows: For
    lanes: int
    body: Body
    reads: tuple[Load, ...]
    can_repeat: bool

    @property
    def inner(self) -> For:
        return self.rows if self.along is self.chain[0] else self.along

    @property
    def between(self) -> tuple[For, ...]:
        return self.chain[1 : self.chain.index(self.inner)]

    @property
    def inside(self) -> tuple[For, ...]:
        return self.chain[self.chain.index(self.inner) + 1 :]


def read_squares(body: Body, machine: Machine, *, is_shared: bool = False) -> Body:
    """Return a body that reads squares where vectors would be gathered across rows.

    With ``is_shared`` threads share the rounds of a loop around the body.
    """
    result: list[Statement] = []
    for s in body:
        squares = _squares_from(s, machine) if isinstance(s, For) else None
        if squares is not None:
            result += _in_squares(squares, is_shared)
        else:
            is_inside = is_shared or (isinstance(s, For) and s.parallel)
            result.append(map_bodies(s, partial(read_squares, machine=machine, is_shared=is_inside)))
    return tuple(result)


def _squares_from(outer: For, machine: Machine) -> _Squares | None:
    """Return the squares with ``outer`` as the outer loop, or None."""
    chain = [outer]
    while len(chain[-1].body) == 1 and isinstance(chain[-1].body[0], For):
        chain.append(chain[-1].body[0])
    innermost, vectors = chain[-1].body, [s for s in chain if s.vector]
    is_regular = not any(s.down or s.tiled or s.step != 1 for s in chain)
    if len(chain) == 1 or len(vectors) != 1 or len(innermost) > SQUARE_STATEMENTS // 2 or not is_regular:
        return None
    (along,) = vectors
    try:
        width = width_of(along)
        lanes = machine.bytes * 8 // width if width in (32, 64) else 1
        body = vectorize(innermost, along.var.name, lanes, width=width)
    except CannotVectorizeError:
        return None
    if lanes == 1 or not _is_light(body, lanes):
        return None
    loads = dict.fromkeys(x for x in all_expressions(body) if isinstance(x, Load))
    can_repeat = written_arrays(body).isdisjoint(x.array.name for x in loads)
    for rows in chain[1:] if along is outer else chain[:1]:
        # Only full vectors are transposed: doubles that are cast to floats fill two.
        reads = tuple([x for x in loads if _is_full(x, width) and _is_across(x, along, rows, lanes)])
        squares = _Squares(tuple(chain), along, rows, lanes, body, reads, can_repeat)
        if reads and _is_regular(squares) and _may_reorder(squares):
            return squares
    return None


def _is_full(load: Load, width: int) -> bool:
    """Tell whether loaded elements have this many bits."""
    return DTYPES[load.array.dtype].itemsize * 8 == width


def _is_light(body: Body, lanes: int) -> bool:
    """Tell whether a body is small enough to unroll for every lane."""
    calls = {x.name for x in all_expressions(body) if isinstance(x, Call)}
    is_plain = all(isinstance(s, Let | Store) for s in body)
    return is_plain and len(body) * lanes <= SQUARE_STATEMENTS and calls <= {*CHEAP_CALLS, *COMPARISONS}


def _is_across(x: Load, along: For, rows: For, lanes: int) -> bool:
    """Tell whether a vector is read across rows: lanes are not adjacent, but elements are along ``rows``."""
    is_plain = x.type == (x.array.dtype, lanes) and is_float(x.array.dtype) and x.array.panels is None
    is_apart = x.step != 1 and not names(x.step) & {along.var.name, rows.var.name}
    return is_plain and is_apart and isinstance(x.index, Index) and step_of(x.index.value, rows.var.name) == 1


def _is_regular(squares: _Squares) -> bool:
    """Tell whether there is a whole square, and no inner loop depends on the place of a square."""
    places = {squares.along.var.name, squares.rows.var.name}
    rounds = [rounds_of(s) for s in (squares.along, squares.rows)]
    is_known = squares.along.low == Index(0) and isinstance(squares.along.high, Index)
    is_known = is_known and isinstance(squares.rows.low, Index)
    is_long = all(n is None or n >= squares.lanes for n in rounds)
    return is_known and is_long and not any((variables(s.low) | variables(s.high)) & places for s in squares.chain[1:])


def _may_reorder(squares: _Squares) -> bool:
    """Tell whether squares may be computed one after another. Rounds along lanes are independent of each other."""
    stores = [s for s in squares.body if isinstance(s, Store)]
    if {x.array.name for x in squares.reads} & {s.array.name for s in stores}:
        return False
    if squares.rows.parallel or squares.along is squares.chain[0]:
        return True
    count = rounds_of(squares.along)
    steps = [step_of(s.index.value, squares.rows.var.name) if isinstance(s.index, Index) else 0 for s in stores]
    is_apart = count is not None and all(
        s.step == 1 and isinstance(step, int) and step >= count for s, step in zip(stores, steps, strict=True)
    )
    return squares.can_repeat and is_apart and not squares.between and not squares.inside


def _in_squares(squares: _Squares, is_shared: bool) -> Body:
    """Return the loops over squares, and over the remaining elements."""
    outer, along, rows, lanes = squares.chain[0], squares.along, squares.rows, squares.lanes
    name = along.var.name
    square = _around(squares.inside, _square(squares))
    short = vectorize(squares.chain[-1].body, name, lanes, along.high - Index(dim(name)), width=width_of(along))
    is_inner_shared = is_shared or any(s.parallel for s in (outer, *squares.between))
    if squares.inner is along:
        row = substitute_body(short, {rows.var.name: Index(dim(rows.var.name) + dim(ROW))})
        rest: Body = (loop(ROW, lanes, _around(squares.inside, row)),)
        body = _blocks(along, squares, square, rest, is_inner_shared)
        outer_rest = outer.body
    else:
        body = _blocks(rows, squares, square, _around(squares.inside, squares.body), is_inner_shared)
        outer_rest = _around((*squares.between, rows), _around(squares.inside, short))
    return _blocks(outer, squares, _around(squares.between, body), outer_rest, is_shared)


def _blocks(s: For, squares: _Squares, body: Body, rest: Body, is_shared: bool) -> Body:
    """Return a loop in blocks, with ``body`` for each, and with ``rest`` or a last block for the remainder."""
    lanes, low, before = squares.lanes, s.low, tuple[Statement, ...]()
    if not isinstance(s.high, Index):
        end = index_var(f"{s.var.name}_end")
        before, s = (Let(end, s.high),), replace(s, high=Index(dim(end.name)))
    assert isinstance(low, Index) and isinstance(s.high, Index)
    high = s.high.value
    whole = low.value + (high + low.value * -1) // lanes * lanes
    blocks = replace(s, high=Index(whole), step=lanes, vector=False, body=body)
    if whole == high:
        return (blocks,)
    if squares.can_repeat and isinstance(whole, int) and (is_shared or not s.parallel):
        last = Block(substitute_body(body, {s.var.name: Index(high + -lanes)}))
        return replace(blocks, parallel=False), last
    step = lanes if s.var == squares.along.var else 1
    return *before, blocks, replace(s, low=Index(whole), step=step, vector=False, body=rest)


def _square(squares: _Squares) -> Body:
    """Return the reads of a square, and the statements for each of its rows."""
    lanes, along = squares.lanes, squares.along.var.name
    result: list[Statement] = []
    columns: dict[Expr, str] = {}
    for x in squares.reads:
        columns[x] = name = f"square{len(columns)}"
        places = [substitute(x.index, {along: Index(dim(along) + k)}) for k in range(lanes)]
        result.append(Transpose(name, tuple(Load(x.array, place, x.type) for place in places)))
    for k in range(lanes):

        def in_row(x: Expr, k: int = k) -> Expr:
            return Var(f"{columns[x]}_{k}", x.type) if x in columns else map_parts(x, in_row)

        row = map_expressions(squares.body, in_row)
        row = _without_copies(substitute_body(row, {squares.rows.var.name: Index(dim(squares.rows.var.name) + k)}))
        result += row if len(row) == 1 else (Block(row),)
    return tuple(result)


def _without_copies(body: Body) -> Body:
    """Return a body without variables that are copies of others, or numbers."""
    values: dict[str, Expr] = {}
    result: list[Statement] = []
    for s in body:
        (s,) = substitute_body((s,), values)
        if isinstance(s, Let) and isinstance(s.value, Var | Const):
            values[s.var.name] = s.value
        else:
            result.append(s)
    return tuple(result)


def _around(loops: Iterable[For], body: Body) -> Body:
    """Put loops around another body, the outermost first."""
    for s in reversed([*loops]):
        body = (replace(s, body=body),)
    return body
