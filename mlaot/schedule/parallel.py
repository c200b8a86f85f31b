"""Find the loop of a nest that threads may share: one whose rounds write different elements.

    for i in parallel(0, batch):        =>        for i in range(begin, end):

A tile of several rounds belongs to the part of the range in which it starts. So the same statements compute each
element for any division of the range, and no bit of the results depends on the number of threads.

Nested loops may share one range, whose positions are counted as those of one loop:

    for i in parallel(0, batch):        =>        for i in range(begin // 7, (end + 6) // 7):
        for k in parallel(0, 7):                      for k in range(most(begin - 7 * i, 0), least(7, end - 7 * i)):
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from mlaot.ir.dims import NOMINAL, Dim, dim, names, product, step_of
from mlaot.nest.expressions import INDEX, Call, Index, Var, least, most
from mlaot.nest.expressions import Expr as Expression
from mlaot.nest.statements import (
    Alloc,
    Assign,
    Body,
    For,
    If,
    Invoke,
    Let,
    Mutable,
    Nest,
    Sort,
    Statement,
    Store,
    bodies,
    bound_variables,
    walk,
)
from mlaot.schedule.tuning import (
    LIGHT_OPERATIONS,
    LITTLE_OPERATIONS,
    SCALAR_OPERATIONS,
    SHARED_OPERATIONS,
    SHARED_ROUNDS,
    SHARED_TILES,
)

RANGE = ("begin", "end")


@dataclass(frozen=True)
class SharedLoop:
    """The loops over ``variable``, which threads share in multiples of ``step``; ``work`` is that of one round.

    ``extent`` is the end of the range, which begins at 0. ``around`` has the variables of outer loops that are shared
    with these loops, from the outermost, with the number of positions of a round of each, and its step.
    """

    variable: str
    extent: Dim
    step: int
    work: Dim
    around: tuple[tuple[str, int, int], ...] = ()

    @property
    def least_rounds(self) -> int:
        """The number of rounds, or of blocks of rounds, from which on threads get nearly equal shares."""
        return SHARED_TILES if self.step > 1 else SHARED_ROUNDS


def shared_loop(nest: Nest) -> SharedLoop | None:
    """Return the loop of ``nest`` that threads share, or None if there is none that is long enough.

    It is the outermost loop that is known to be long, or else the outermost loop of unknown length. A loop of unknown
    length, such as that over a batch, is preferred if a round has little work. The caches of threads then hold the same
    examples from one kernel to the next, and a batch of one is hardly worth sharing. If a round has much work, the loop
    is shared together with the long loop inside it. If no loop is long, loops are shared together with those around
    them.
    """
    together = {s: joined or s for s, joined in _shareable_loops(nest.body) if s.extent != 1}
    loops = list(together)
    long = [s for s in loops if isinstance(s.extent, int) and s.extent >= s.least_rounds * s.step]
    long = [s if isinstance(together[s].extent, int) else together[s] for s in long]
    unknown = [s for s in loops if not isinstance(s.extent, int)]
    outermost = [s for s in loops[:1] if s in unknown and isinstance(s.work, int) and s.work < LITTLE_OPERATIONS]
    by_rounds = sorted(together.values(), key=lambda s: -s.extent // s.step if isinstance(s.extent, int) else 0)
    chosen = next(iter(outermost or long or unknown or by_rounds), None)
    if chosen is None or not isinstance(chosen.work, int):
        return chosen
    is_short = isinstance(chosen.extent, int) and chosen.extent * chosen.work < SHARED_OPERATIONS
    return None if is_short or chosen.work * chosen.step < LIGHT_OPERATIONS else chosen


def loop_over_rows(nest: Nest, rows: str, strides: Mapping[str, Dim]) -> tuple[SharedLoop, int] | None:
    """Return the loop of ``nest`` over the rows along a dim, and how many of its rounds a row has.

    ``strides`` has the distance of rows in elements in each array that the nest writes.
    """
    stores = [s for s in walk(nest.body) if isinstance(s, Store) and s.array.name in strides]
    others = any(isinstance(s, Invoke | Sort) and s.target.name in strides for s in walk(nest.body))
    if others or {s.array.name for s in stores} != strides.keys():
        return None
    for shared, _ in _shareable_loops(nest.body):
        steps = [s.step for s in walk(nest.body) if isinstance(s, For) and s.var.name == shared.variable]
        count = step_of(shared.extent, rows)
        if not isinstance(count, int) or count <= 0:
            continue
        rest = shared.extent + dim(rows) * -count  # below 0 where the last round of whole vectors ends with the rows
        is_whole = rest == 0 or (isinstance(rest, int) and 0 < -rest < max(steps) and count % max(steps) == 0)
        is_row = all(
            isinstance(s.index, Index) and step_of(s.index.value, shared.variable) * count == strides[s.array.name]
            for s in stores
        )
        if is_whole and is_row:
            return shared, count
    return None


def _shareable_loops(body: Body) -> Iterator[tuple[SharedLoop, SharedLoop | None]]:
    """Yield the loops that may be shared, the outermost first; loops over one variable are segments of one range.

    Each is followed by the same loop together with all loops around it, if these can be shared with it.
    """
    parts: dict[str, list[tuple[For, tuple[For, ...]]]] = {}
    for loop, around in _parallel(body):
        parts.setdefault(loop.var.name, []).append((loop, around))
    variables = {s.var.name for s in walk(body) if isinstance(s, For)}
    for name, segments in parts.items():
        (first, around), (last, _) = segments[0], segments[-1]
        is_range = isinstance(last.high, Index) and not names(last.high.value) & variables
        if is_range and isinstance(last.high, Index) and _covers(body, name):
            inside = work(first.body)
            one = product((*map(rounds, around), inside)) // first.step
            step = max(loop.step for loop, _ in segments)
            if step > 1 and isinstance(one, int):  # a light loop of vectors is cut into parts of many
                step *= -(-LIGHT_OPERATIONS // max(one * step, 1))
            alone = SharedLoop(name, last.high.value, step, one)
            yield alone, _joined(replace(alone, work=inside // first.step), body, around)


def _joined(inner: SharedLoop, body: Body, around: Sequence[For]) -> SharedLoop | None:
    """Return a shared loop of known length together with the loops around it.

    The outermost may have an unknown length.
    """
    if not isinstance(inner.extent, int) or not around:
        return None
    places: Dim = -(-inner.extent // inner.step) * inner.step
    ranges: list[tuple[str, int, int]] = []
    for loop in reversed(around):
        if not isinstance(places, int) or loop.low != Index(0) or not isinstance(loop.high, Index):
            return None
        if loop.step != 1 and not isinstance(loop.high.value, int):
            return None
        ranges.insert(0, (loop.var.name, places, loop.step))
        places = product((places, rounds(loop)))
    is_whole = [(loop,) == outer for loop, outer in zip(around, (body, *(s.body for s in around)), strict=False)]
    if not all(is_whole):
        return None
    return replace(inner, extent=places, around=tuple(ranges))


def _parallel(body: Body, around: tuple[For, ...] = ()) -> Iterator[tuple[For, tuple[For, ...]]]:
    """Yield the loops that are inside of parallel ones only, with those."""
    for s in body:
        if isinstance(s, For) and s.parallel:
            yield s, around
            yield from _parallel(s.body, (*around, s))
        elif isinstance(s, If) and not s.otherwise:
            yield from _parallel(s.body, around)


def _covers(body: Body, name: str) -> bool:
    """Tell whether parallel loops over a variable do all the work of a body.

    Each thread would repeat any other work.
    """
    for s in body:
        is_parallel = isinstance(s, For) and s.parallel
        if is_parallel and isinstance(s, For) and (s.var.name == name or _covers(s.body, name)):
            continue
        if isinstance(s, If) and not s.otherwise and _covers(s.body, name):
            continue
        if not isinstance(s, Let | Mutable | Alloc):
            return False
    return True


def work(body: Body, own: frozenset[str] = frozenset()) -> Dim:
    """Estimate the operations of a body: its statements times the rounds of the loops around them.

    ``own`` are the variables that are bound around it. A loop whose ends depend on these has a nominal number of
    rounds.
    """
    total: Dim = 0
    own |= {var.name for s in body for var in bound_variables(s)}
    for i, s in enumerate(body):
        if isinstance(s, Let | Mutable | Assign | Store):
            lanes = s.value.type.lanes
            total = total + (lanes if lanes > 1 else 0 if s.value.type == INDEX else SCALAR_OPERATIONS)
        elif isinstance(s, For):
            again = any(isinstance(before, For) and before.var == s.var for before in body[:i])
            if s.low == Index(0) or not again:  # others are further parts of a range
                count = rounds(s, _end(s, body[i + 1 :]))
                count = NOMINAL if names(count) & own else count
                total = total + product((count, work(s.body, own | {s.var.name})))
        elif isinstance(s, If):
            total = total + work(s.body, own)
        else:
            total = sum((work(inner, own) for inner in bodies(s)), start=total)
    return total


def _end(loop: For, behind: Body) -> Expression:
    """Return the end of the range that a loop begins, up to which remainder loops after it continue."""
    high = loop.high
    for s in behind:
        if isinstance(s, For) and s.var == loop.var and s.low != Index(0):
            high = s.high
        elif isinstance(s, For):
            break
    return high


def rounds(loop: For, high: Expression | None = None) -> Dim:
    """Return the number of rounds of a loop, a nominal one if its bounds are no polynomials."""
    high = loop.high if high is None else high
    if not (isinstance(loop.low, Index) and isinstance(high, Index)):
        return NOMINAL
    extent = -1 * loop.low.value + high.value
    return (extent + (loop.step - 1)) // loop.step


def part_of_range(nest: Nest, shared: SharedLoop) -> Nest:
    """Return a nest whose shared loops run from ``begin`` to ``end`` only."""
    begin, end = (Index(dim(name)) for name in RANGE)
    return replace(nest, body=_joined_part(nest.body, shared, 0, begin, end))


def _joined_part(body: Body, shared: SharedLoop, depth: int, begin: Index, end: Index) -> Body:
    """Restrict a loop around the shared one, and the loops inside, to the positions from ``begin`` to ``end``."""
    if depth == len(shared.around):
        return _part(body, shared.variable, shared.step, begin, end)
    (loop,) = body
    assert isinstance(loop, For), f"bug in mlaot: {type(loop).__name__} around {shared.variable}"
    v, places, step = shared.around[depth]
    first, last = Var(f"begin{depth + 1}", INDEX), Var(f"end{depth + 1}", INDEX)
    inner = _joined_part(loop.body, shared, depth + 1, Index(dim(first.name)), Index(dim(last.name)))
    lets = (
        Let(first, most(Index(begin.value + -places * (dim(v) // step)), 0)),
        Let(last, least(Index(end.value + -places * (dim(v) // step)), places)),
    )
    low, high = Index(begin.value // places * step), Index((end.value + (places - 1)) // places * step)
    is_known = isinstance(loop.high, Index) and isinstance(loop.high.value, int)
    return (replace(loop, low=low, high=least(loop.high, high) if is_known else high, body=(*lets, *inner)),)


def _part(body: Body, variable: str, step: int, begin: Index, end: Index) -> Body:
    """Restrict the shared loops of a body to the range from ``begin`` to ``end``.

    A loop of steps, or a remainder loop, begins at its first step in the range: ``low + ceil((begin - low) / step) *
    step``.
    """
    result: list[Statement] = []
    for s in body:
        if isinstance(s, For) and s.var.name == variable:
            low: Expression = begin
            high: Expression = end
            if s.low != Index(0) or step % s.step:  # parts begin at whole steps of the longest rounds
                low = Call("first_from", (s.low, Index(s.step), begin), INDEX)
            if s.low != Index(0) or s.step != 1:
                high = least(s.high, end)
            result.append(replace(s, low=low, high=high))
        elif isinstance(s, For | If):
            result.append(replace(s, body=_part(s.body, variable, step, begin, end)))
        else:
            result.append(s)
    return tuple(result)
