"""The loops and register tiles of a contraction on one machine.

    for i in parallel(0, 64):                      for j in parallel(0, 512, 32):          blocks of columns
        for j in parallel(0, 512):                     for i in parallel(0, 60, 6):        blocks of rows
            acc = 0                         =>             c0_0: f32x16 = 0, ..            a variable for each of 6 x 2
            for k: acc = acc + x[i, k] * w[k, j]           for k: b0 = w[k, j:16], a0 = splat(x[i, k]), c0_0 = ..
            y[i, j] = relu(acc + bias[j])                  y[i, j:16] = relu(c0_0 + bias[j:16]), ..

A micro-kernel is made in six steps, each a module:

1. ``cost.py`` chooses the size of a tile by a model of its cycles, ``traffic.py`` the order of the loops around it;
2. ``segments.py`` cuts each axis into blocks, a main loop and remainder loops; the remaining rows of an axis of unknown
   extent are one tile of their number;
3. ``parts.py`` decides whether sums are computed in parts whose data fit the caches, and packs these data;
4. this module writes the loops over blocks, and the loops of the sum, unrolled to hide the latency of accumulators;
5. ``microkernel.py`` writes the steps of a sum in vectors;
6. ``epilogue.py`` applies the epilogue to the accumulators and stores the results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from math import prod

from mlaot.ir import Dim
from mlaot.ir.dims import assign, dim, names
from mlaot.nest.expressions import INDEX, Array, Call, Expr, Index, Load, Var, compare, lanes_left, least, most, splat
from mlaot.nest.statements import (
    Alloc,
    Assign,
    Block,
    Body,
    For,
    If,
    Let,
    Mutable,
    Nest,
    Statement,
    Store,
    eliminate_dead_code,
    index_var,
)
from mlaot.schedule.contraction import (
    Axis,
    Contraction,
    column_names,
    contraction_of,
    is_along_sum,
    lanes_of,
    row_names,
)
from mlaot.schedule.cost import Schedule, operand_bytes, remainder_schedules, schedule
from mlaot.schedule.epilogue import epilogue, store_sums, sums_of
from mlaot.schedule.machine import Machine
from mlaot.schedule.microkernel import Point, Tile
from mlaot.schedule.parts import Packing, elements, part_extents, parts_of
from mlaot.schedule.segments import Panel, Segment, lane_segments, panel_segments, panels_of, row_segments
from mlaot.schedule.traffic import best_order, second_level_bytes
from mlaot.schedule.tuning import PREFETCH_STEPS


def tile(nest: Nest, machine: Machine) -> Nest:
    """Return a contraction with the schedule for ``machine`` that was measured or is estimated to be the fastest."""
    kernel = contraction_of(nest)
    plan = schedule(kernel, machine)
    remainder = remainder_schedules(kernel, plan, machine)
    if remainder is None or names(remainder[0].size) & {axis.name for axis in kernel.out}:
        loops = _Loops(kernel, plan, machine).nest()
    else:
        axis, plans = remainder
        is_far = plan.rows_inside and _is_far(kernel, axis, machine)
        loops = _Loops(kernel, plan, machine, blocked=axis.name, has_rest=is_far).nest()
        loops += (_rest(kernel, axis, plan.counts[axis.name], plans, machine, alone=is_far),)
    params = tuple(replace(a, panels=None) for a in nest.params)
    return replace(nest, params=params, body=eliminate_dead_code((*kernel.once, *loops)))


def _is_far(kernel: Contraction, axis: Axis, machine: Machine) -> bool:
    """Tell whether the operand that rows along an axis share is larger than half of the second-level cache."""
    shared = [operand for operand in kernel.operands if axis.name not in dict(operand.strides)]
    return any(operand_bytes(kernel, operand) > second_level_bytes(machine) for operand in shared)


def _rest(
    kernel: Contraction, axis: Axis, count: int, plans: Sequence[Schedule], machine: Machine, *, alone: bool
) -> For:
    """Return the loop over the rows of an axis after its blocks: one tile of all of them, or a tile for each row.

    With ``alone`` it is only for axes without a block, as otherwise each block of columns includes it.
    """
    v, size = axis.name, axis.size
    nests = [_Loops(kernel, plan, machine, exact=(v, rows)).nest() for rows, plan in enumerate(plans, 1)]
    body = _by_number(size if alone else size + -1 * dim(v), nests) if alone or len(nests) > 1 else nests[0]
    return _loop(v, size // count * count, size, body, len(nests), parallel=True)


def _by_number(left: Dim, nests: Sequence[Body]) -> Body:
    """Select the nest for the number of remaining rows, from 1 on."""
    return tuple(If(compare("eq", Index(left), Index(rows)), nest) for rows, nest in enumerate(nests, 1))


Place = tuple[int, Point, Mapping[str, int], Segment | None]  # the arguments of `_Loops._nest` but the last


@dataclass(frozen=True)
class _Inside:
    """The body of the loops around tiles.

    ``of_tile`` returns the statements of each tile. ``segments`` has the segments of axes that are walked in part.
    ``before`` returns the statements before the innermost loop, for the tile of its first round.
    """

    of_tile: Callable[[Tile], Iterator[Statement]]
    segments: Mapping[str, Sequence[Segment]] = field(default_factory=dict)
    before: Callable[[Tile], Iterator[Statement]] | None = None


class _Loops:
    """The loops of one kernel by one schedule.

    Several schedules walk a variable of unknown extent. The schedule of ``blocked`` blocks leaves out the remaining
    rows, unless it ``has_rest``, a tile of these rows after the blocks. The others have ``exact`` tiles of this many
    rows along that variable. All of them keep loops over a single block, so that threads share the same loops.
    """

    def __init__(
        self,
        kernel: Contraction,
        plan: Schedule,
        machine: Machine,
        *,
        blocked: str | None = None,
        has_rest: bool = False,
        exact: tuple[str, int] | None = None,
    ) -> None:
        self.kernel, self.plan, self.machine = kernel, plan, machine
        self.blocked, self.has_rest, self.exact = blocked, has_rest, exact
        self.keeps_loops = blocked is not None or exact is not None
        self.lanes = lanes_of(kernel.dtype, machine)
        self.rows = [n for n in row_names(kernel) if n in plan.counts]
        self.columns = [n for n in column_names(kernel) if n in plan.counts]
        self.columns += [] if is_along_sum(kernel) else [kernel.lanes]
        self.step = self.lanes if is_along_sum(kernel) else 1  # elements of the innermost sum at a time
        self.order, _ = best_order(kernel, plan.counts, machine, rows_inside=plan.rows_inside)
        self.parts = None if self.keeps_loops else parts_of(kernel, plan, self.order, machine)
        if self.parts is not None:
            self.order = list(self.parts.order)

    def nest(self) -> Body:
        """Return the loops around tiles."""
        return self._nest(0, {}, {}, None, _Inside(self._whole_sum))

    def _nest(self, depth: int, at: Point, counts: Mapping[str, int], along: Segment | None, inside: _Inside) -> Body:
        """Return the loops from ``depth`` on, around ``inside`` for tiles of ``counts`` points along variables.

        ``along`` is the segment of the axis along the lanes that these loops are in.
        """
        if depth == len(self.order):
            return tuple(inside.of_tile(self._tile(at, counts, along)))
        if self.parts is not None and depth == self.parts.depth and inside.of_tile == self._whole_sum:
            return self._panels((depth, at, counts, along), self.order[depth:], {})
        if inside.before is not None and depth == len(self.order) - 1:
            before = tuple(inside.before(self._tile(at, counts, along)))
            return (*before, *self._nest(depth, at, counts, along, replace(inside, before=None)))
        axis = self.order[depth]
        v, result = axis.name, list[Statement]()
        if self.exact and v == self.exact[0]:
            return self._nest(depth + 1, {**at, v: dim(v)}, {**counts, v: self.exact[1]}, along, inside)
        segments = inside.segments.get(v) or self._segments(axis)
        for segment in segments:
            is_once = not self.keeps_loops and len(segments) == 1 and segment.is_one_block
            inner = self._nest(
                depth + 1,
                {**at, v: segment.start if is_once else dim(v)},
                {**counts, v: segment.count},
                segment if v == self.kernel.lanes else along,
                inside,
            )
            is_shared = inside.of_tile == self._whole_sum
            result += inner if is_once else [_loop(v, segment.start, segment.end, inner, segment.step, is_shared)]
        if self.has_rest and v == self.blocked:
            result.append(
                self._rest_behind(axis, partial(self._nest, depth + 1, along=along, inside=inside), at, counts)
            )
        return tuple(result)

    def _rest_behind(self, axis: Axis, nest: Callable[..., Body], at: Point, counts: Mapping[str, int]) -> For:
        """Return the loop over the rows after all blocks of an axis, if there are any: one tile of their number."""
        v, count = axis.name, self.plan.counts[axis.name]
        nests = [nest(at={**at, v: dim(v)}, counts={**counts, v: rows}) for rows in range(1, count)]
        body = (If(compare("gt", Index(dim(v)), Index(0)), _by_number(axis.size + -1 * dim(v), nests)),)
        return _loop(v, axis.size // count * count, axis.size, body, count - 1, parallel=True)

    def _segments(self, axis: Axis) -> list[Segment]:
        """Cut an axis into the segments that these loops walk."""
        count = self.plan.counts.get(axis.name, 1)
        if axis.name != self.kernel.lanes:
            segments = row_segments(axis.size, count)
            return segments[:1] if axis.name == self.blocked else segments
        panels = next((o.panels for o in self.kernel.operands if o.panels), None)
        if panels is not None:
            return panel_segments(panels, count, self.lanes)
        return lane_segments(axis.size, count, self.lanes)

    def _tile(self, at: Point, counts: Mapping[str, int], along: Segment | None) -> Tile:
        """Return the tile of ``counts`` points along variables, from the point ``at`` on."""
        rows, columns = _offsets(self.rows, counts), _offsets(self.columns, counts)
        return Tile(self.kernel, self.plan, self.machine, at, rows, columns, along)

    def _panels(self, place: Place, axes: Sequence[Axis], panels: Mapping[str, Panel]) -> Body:
        """Return the loops over panels of ``axes``, around sums in parts; ``panels`` has the panels of outer axes."""
        if not axes:
            return self._sum_in_parts(place, panels)
        axis, parts = axes[0], self.parts
        v, size = axis.name, parts.panels.get(axis.name) if parts is not None else None
        if size is None or size >= _as_int(axis.size):
            whole = Panel(0, elements(self.kernel, axis, self.lanes), self._segments(axis))
            return self._panels(place, axes[1:], {**panels, v: whole})
        lanes = self.lanes if v == self.kernel.lanes else 0
        return tuple(
            _loop(f"{v}_first", low, high, self._panels(place, axes[1:], {**panels, v: panel}), size, parallel=True)
            for low, high, panel in panels_of(axis, size, self.plan.counts[v], lanes)
        )

    def _sum_in_parts(self, place: Place, panels: Mapping[str, Panel]) -> Body:
        """Return the loop over parts of the sums of all tiles in ``panels``, and the epilogue.

        The tiles inside read the same part of the operands, which fits the caches. Their partial sums are in an array.
        """
        parts, kernel, lanes = self.parts, self.kernel, self.kernel.lanes
        assert parts is not None
        sizes = {name: panel.size for name, panel in panels.items()}
        extents = part_extents(kernel, self.plan, parts.order, sizes, self.lanes)
        size = prod(extents.values())
        array = Array("parts", kernel.dtype, size, "local")

        def places(tile: Tile) -> Iterator[tuple[str, Index]]:
            points = product(enumerate(tile.rows), enumerate(tile.columns))
            for (r, row), (c, column) in points:
                at: Dim = 0
                for name, extent in extents.items():
                    first = tile.at[name] + -1 * panels[name].start if name in panels else 0
                    offset = {**row, **column}.get(name, 0) * (self.lanes if name == lanes else 1)
                    at = at * extent + (first + offset)
                yield tile.names[r][c], Index(at)

        def part(tile: Tile) -> Iterator[Statement]:
            yield from (Mutable(tile.accumulator(name), Load(array, at, tile.type)) for name, at in places(tile))
            yield from packing.products(tile) if packing else self._sum(1, {first.name: dim(first.name)}, tile)
            yield from (Store(array, at, tile.accumulator(name)) for name, at in places(tile))

        def end(tile: Tile) -> Iterator[Statement]:
            yield from (Let(tile.accumulator(name), Load(array, at, tile.type)) for name, at in places(tile))
            yield from epilogue(tile)

        first = kernel.summed[0]
        packing = Packing(parts, self._tile(*place[1:]), panels[parts.order[-1].name]) if parts.panels else None
        segments = {name: panel.segments for name, panel in panels.items()}
        body = self._nest(*place, _Inside(part, segments, packing.panel if packing else None))
        body = packing.around(body) if packing else body
        for axis in reversed(kernel.summed[:-1] if packing else kernel.summed[:1]):
            body = (_loop(axis.name, 0, axis.size, body),)
        arrays = (Alloc(array), *(packing.allocs() if packing else ()))
        clear = Store(array, Index(dim("n_parts")), splat(kernel.start, self.lanes))
        cleared = _loop("n_parts", 0, size, (clear,), self.lanes)
        return (*arrays, cleared, *body, *self._nest(*place, _Inside(end, segments)))

    def _whole_sum(self, tile: Tile) -> Iterator[Statement]:
        """Yield one micro-kernel: accumulators, the loops of the sum, the epilogue."""
        if self.plan.passes > 1 and len(tile.rows) > 1:
            yield from self._sum_in_passes(tile)
            return
        names = [name for row in tile.names for name in row]
        start = splat(self.kernel.start, self.lanes)
        yield from (Mutable(tile.accumulator(name, s), start) for s in range(tile.sets) for name in names)
        yield from self._sum(0, {}, tile) if self.kernel.groups is None else self._sum_of_groups(tile)
        sets = tile.sets
        while sets > 1:  # add the sets in halves
            sets //= 2
            for s, name in product(range(sets), names):
                total, other = tile.accumulator(name, s), tile.accumulator(name, s + sets)
                yield Assign(total, Call("add", (total, other), tile.type))
        yield from epilogue(tile)

    def _sum_in_passes(self, tile: Tile) -> Iterator[Statement]:
        """Yield a micro-kernel for some of the gates at a time, which store their sums in an array."""
        start, sums = splat(self.kernel.start, self.lanes), sums_of(tile)
        yield Alloc(sums)
        count = len(tile.columns) // self.plan.passes
        for first in range(0, len(tile.columns), count):
            part = tile.part(first, count)
            names = [name for row in part.names for name in row]
            yield Block(
                (
                    *[Mutable(part.accumulator(name, s), start) for s in range(part.sets) for name in names],
                    *self._sum(0, {}, part),
                    *store_sums(tile, names),
                )
            )
        yield from epilogue(tile, are_stored=True)

    def _sum_of_groups(self, tile: Tile) -> Iterator[Statement]:
        """Yield the loop over groups of weights around the loop over the words of a group, with unrolled fields."""
        group, word, field = self.kernel.summed
        at = {group.name: dim(group.name), word.name: dim(word.name)}
        steps = tile.steps([{**at, field.name: f} for f in range(_as_int(field.size))], None)
        later = {**at, group.name: dim(group.name) + PREFETCH_STEPS // _as_int(word.size), field.name: 0}
        starts, ends = tile.group_starts(at), tile.group_ends(at)
        words = _loop(word.name, 0, word.size, (*tile.prefetch_panels(later), *steps))
        yield _loop(group.name, 0, group.size, (*starts, words, *ends))

    def _sum(self, depth: int, at: Point, tile: Tile) -> Iterator[Statement]:
        """Yield the loops over the summed variables from ``depth`` on. The innermost ones may be unrolled."""
        summed = self.kernel.summed
        if depth == len(summed) - self.plan.unrolled or not summed:
            axes = summed[depth:]
            points = product(*[range(_as_int(axis.size)) for axis in axes])
            names = [axis.name for axis in axes]
            yield from tile.steps([{**at, **dict(zip(names, point, strict=True))} for point in points], None)
            return
        axis = summed[depth]
        if depth < len(summed) - 1:
            inner = tuple(self._sum(depth + 1, {**at, axis.name: dim(axis.name)}, tile))
            low, high = self._ends(axis, tile)
            yield For(index_var(axis.name), low, high, inner)
        elif isinstance(axis.size, int):
            yield from self._fixed_sum(axis.name, axis.size, at, tile)
        else:
            yield from self._dynamic_sum(axis.name, axis.size, at, tile)

    def _ends(self, axis: Axis, tile: Tile) -> tuple[Expr, Expr]:
        """Return the range of a sum that contains the terms of all points of the tile.

        Results that must not depend on the size of tiles get all terms, since zero times infinity is nan.
        """
        low: Expr = Index(0)
        high: Expr = Index(axis.size)
        inside = next((each for each in self.kernel.inside if each.name == axis.name), None)
        if inside is None or self.machine.deterministic:
            return low, high
        first = tile.at[inside.other]
        last = first + max(point.get(inside.other, 0) for point in (*tile.rows, *tile.columns))
        extent = next(each.size for each in self.kernel.out if each.name == inside.other)
        reached = assign(inside.low, {inside.other: last - first})
        if not (isinstance(reached, int) and reached <= 0):  # nor do tiles behind the first one begin later
            low = most(Index(assign(inside.low, {inside.other: last})), 0)
        reached = assign(inside.high, {inside.other: extent - 1 - (last - first)}) - axis.size
        if not (isinstance(reached, int) and reached >= 0):
            high = least(Index(assign(inside.high, {inside.other: first})), axis.size)
        return low, high

    def _fixed_sum(self, v: str, size: int, at: Point, tile: Tile) -> Iterator[Statement]:
        """Yield a main loop with a step into each set of accumulators, then the remaining steps.

        ``size`` = main * q + (full - main) * q + remainder, for steps of q elements; main is a multiple of the sets.
        """
        q, sets = self.step, tile.sets
        low, high = self._ends(Axis(v, size), tile)
        if q == sets == 1 and (low, high) != (Index(0), Index(size)):
            yield For(index_var(v), low, high, tuple(tile.steps([{**at, v: dim(v)}], None)))
            return
        full, remainder = divmod(size, q)
        main = full // sets * sets
        if main == sets:
            yield from tile.steps([{**at, v: s * q} for s in range(sets)], None)
        elif main:
            steps = [{**at, v: dim(v) + s * q} for s in range(sets)]
            later = [{**at, v: dim(v) + (s * q + PREFETCH_STEPS)} for s in range(sets)]
            yield _loop(v, 0, main * q, (*tile.prefetch(steps, later), *tile.steps(steps, None)), sets * q)
        if full > main:
            yield Block(tuple(tile.steps([{**at, v: s * q} for s in range(main, full)], None)))
        if remainder:
            yield Block(tuple(tile.steps([{**at, v: full * q}], Index(remainder), full - main)))

    def _dynamic_sum(self, v: str, size: Dim, at: Point, tile: Tile) -> Iterator[Statement]:
        """Yield a main loop over full rounds of all sets, and along the lanes a loop of one round for the remainder."""
        q, sets = self.step, tile.sets
        by = q * sets
        places = [dim(v) + s * q for s in range(sets)]
        yield _loop(v, 0, size + (1 - by), tuple(tile.steps([{**at, v: x} for x in places], None)), by)
        if q == 1:
            return
        blocks: list[Body] = []
        for s, place in enumerate(places):
            left: Expr = Index(-1 * place + size)
            if sets > 1:
                left = lanes_left(left, q)
            count = Let(Var("rest", INDEX), left)
            blocks.append((count, *tile.steps([{**at, v: place}], Index(dim("rest")), s)))
        body = blocks[0] if sets == 1 else tuple(map(Block, blocks))
        yield _loop(v, size // by * by, size, body, by)


def _loop(v: str, low: Dim, high: Dim, body: Body, step: int = 1, parallel: bool = False) -> For:
    return For(index_var(v), Index(low), Index(high), body, step, parallel)


def _as_int(size: Dim) -> int:
    assert isinstance(size, int), f"bug in mlaot: tiles along {size}"
    return size


def _offsets(names: Sequence[str], counts: Mapping[str, int]) -> list[dict[str, int]]:
    """Return every point of a tile along some variables, as offsets from its first."""
    ranges = [range(counts.get(name, 1)) for name in names]
    return [dict(zip(names, point, strict=True)) for point in product(*ranges)]
