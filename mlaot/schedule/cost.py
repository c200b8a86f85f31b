"""The cost model of contractions: the register tile of one machine that is estimated to take the fewest cycles.

A tile has ``rows x columns`` accumulators. Rows are points of labels that only the broadcast operand has. Columns are
vectors along the lanes, or points of labels that only the last operand has. Each step of the sum loads rows + columns
values for rows * columns multiply-adds. This is the register-blocked micro-kernel of Goto and van de Geijn, Anatomy of
High-Performance Matrix Multiplication (2008).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf, prod

from mlaot.ir import DTYPES
from mlaot.ir.dims import assign
from mlaot.ir.dims import nominal as nominal_extent
from mlaot.schedule import tuning
from mlaot.schedule.contraction import (
    DOTS,
    Axis,
    Contraction,
    Inside,
    Operand,
    column_names,
    description,
    gate_count,
    is_along_sum,
    lanes_of,
    nominal,
    row_names,
)
from mlaot.schedule.machine import LINE, Machine
from mlaot.schedule.traffic import best_order


@dataclass(frozen=True)
class Schedule:
    """A choice of register tiles: ``counts`` points along each variable, along the lanes vectors.

    ``sets`` is the number of sets of accumulators. ``unrolled`` is the number of summed variables, from the innermost,
    whose loops are unrolled. ``passes`` is the number of parts in which the gates of a tile are summed, one after
    another. With ``rows_inside`` all rows are computed for one block of columns before the next, so that columns are
    read from far caches only once.
    """

    counts: dict[str, int] = field(default_factory=dict)
    sets: int = 1
    unrolled: int = 0
    rows_inside: bool = False
    passes: int = 1

    def __str__(self) -> str:
        words = [f"{name}={count}" for name, count in self.counts.items() if count > 1]
        words += [f"sets={self.sets}"] * (self.sets > 1) + [f"unrolled={self.unrolled}"] * (self.unrolled > 0)
        words += [f"passes={self.passes}"] * (self.passes > 1)
        return " ".join([*(words or ["single"]), *["rows-inside"] * self.rows_inside])


def is_light(kernel: Contraction) -> bool:
    """Tell whether a contraction is so small that short code matters more than its full speed."""
    return prod(nominal(axis.size) for axis in (*kernel.out, *kernel.summed)) < tuning.LIGHT_PRODUCTS


def cost(kernel: Contraction, machine: Machine) -> float:
    """Estimate the cycles of the best schedule."""
    return _cycles(kernel, schedule(kernel, machine), machine)


@lru_cache(512)
def schedule(kernel: Contraction, machine: Machine) -> Schedule:
    """Return the schedule that was measured to be the fastest, or else the one that is estimated to be."""
    tuned = dict(machine.tuned).get(description(kernel)) if machine.tuned else None
    candidates = list(_candidates(kernel, machine))
    return next((s for s in candidates if str(s) == tuned), None) or _fastest(kernel, candidates, machine)


def rank_schedules(kernel: Contraction, machine: Machine) -> list[Schedule]:
    """Return all schedules in order of their estimated cycles."""
    return sorted(_candidates(kernel, machine), key=lambda s: _cycles(kernel, s, machine))


def _fastest(kernel: Contraction, candidates: Iterable[Schedule], machine: Machine) -> Schedule:
    """Return the candidate with the fewest estimated cycles.

    Only candidates that may be the fastest are fully estimated.
    """
    least = sorted([(_cycles(kernel, s, machine, near=True), i, s) for i, s in enumerate(candidates)])
    best, fastest = inf, least[0][2]
    for bound, _, candidate in least:
        if bound >= best:
            break
        cycles = _cycles(kernel, candidate, machine)
        if cycles < best:
            best, fastest = cycles, candidate
    return fastest


def remainder_schedules(kernel: Contraction, plan: Schedule, machine: Machine) -> tuple[Axis, list[Schedule]] | None:
    """Return the dynamic axis that ``plan`` walks in blocks, and the best tiles of 1, 2, .. remaining rows.

    A light contraction has only a tile of a single row.
    """
    for axis in kernel.out:
        count = plan.counts.get(axis.name, 1)
        if not isinstance(axis.size, int) and axis.name != kernel.lanes and count > 1:
            by_rows: dict[int, list[Schedule]] = {}
            for candidate in _candidates(kernel, machine):
                by_rows.setdefault(candidate.counts.get(axis.name, 1), []).append(candidate)
            most = 2 if is_light(kernel) else count
            return axis, [_best_of_rest(kernel, axis, rows, by_rows[rows], machine) for rows in range(1, most)]
    return None


def _best_of_rest(
    kernel: Contraction, axis: Axis, rows: int, candidates: Iterable[Schedule], machine: Machine
) -> Schedule:
    """Return the best of ``candidates`` if ``axis`` has only ``rows`` rows."""
    rest = replace(kernel, out=tuple(replace(a, size=rows) if a is axis else a for a in kernel.out))
    return _fastest(rest, candidates, machine)


def _candidates(kernel: Contraction, machine: Machine) -> Iterator[Schedule]:
    """Yield the schedules whose tiles fit the registers.

    A step of an m x n tile needs m * n * sets accumulators, n vectors of the last operand, and one broadcast value of
    the first, or all m if these are vectors. Without fused multiply-add it also needs a product.
    """
    sizes = {axis.name: nominal(axis.size) for axis in kernel.out}
    fixed = {axis.name for axis in kernel.out if isinstance(axis.size, int)}
    unrolled = _unrolled_count(kernel)
    for columns in _column_counts(kernel, sizes, fixed, machine):
        for rows in _row_counts(kernel, sizes, fixed):
            counts = {**rows, **columns}
            n, m = prod(columns.values()), prod(rows.values())
            if is_light(kernel) and m * n > max(tuning.LIGHT_ACCUMULATORS, gate_count(kernel)):
                continue
            sets = _sets(kernel) if not unrolled and not column_names(kernel) else 1
            sets *= machine.parts if is_along_sum(kernel) else 1
            window = _window(kernel, rows) if unrolled else 0
            passes = next((p for p in _passes(kernel, m) if _fits(kernel, m, n // p, sets, window, machine)), 0)
            if passes or m * n == 1:
                yield Schedule(counts, sets, unrolled, passes=max(passes, 1))
                if len(kernel.operands) == 2:
                    yield Schedule(counts, sets, unrolled, True, max(passes, 1))


def _passes(kernel: Contraction, rows: int) -> list[int]:
    """Return the numbers of parts in which the gates of a tile may be summed: one for a single row."""
    gates = gate_count(kernel)
    return [p for p in range(1, gates + 1) if gates % p == 0] if gates and rows > 1 else [1]


def _fits(kernel: Contraction, m: int, n: int, sets: int, window: int, machine: Machine) -> bool:
    """Tell whether a step of m rows and n columns fits the registers, with the values of a ``window`` kept in them."""
    loads = n + (m if kernel.operands[0].vector or machine.loads_first else 1) + ("fma" not in machine)
    if kernel.dot and "vnni" not in machine:
        # The sums of pairs and the ones that add them; or 16-bit numbers, even and odd ones apart.
        loads = loads + 2 if _adds_pairs(kernel, machine) else 2 * loads
    if kernel.groups:  # words; or all products of a step, which compilers compute before they add them
        loads = n + 1 + (n if "vnni" in machine else m * n + (kernel.groups.bits == 4))
    if kernel.gates and m == 1:
        loads -= n - 1  # a multiply-add reads memory
    kept = m * n * sets + window
    return m * n * sets + loads <= machine.registers and kept <= machine.registers * tuning.ACCUMULATORS_SHARE


def _adds_pairs(kernel: Contraction, machine: Machine) -> bool:
    """Tell whether one instruction turns products of bytes into sums of pairs of 16 bits."""
    return kernel.dot == DOTS[1] and "three_operands" in machine


def _column_counts(
    kernel: Contraction, sizes: dict[str, int], fixed: set[str], machine: Machine
) -> Iterator[dict[str, int]]:
    """Yield candidates for the columns of a tile: vectors, and points of the innermost column variable."""
    lanes = kernel.lanes
    names = column_names(kernel)
    if kernel.gates:
        for n in (1, 2):
            yield {lanes: n, kernel.gates: gate_count(kernel)}
        return
    vectors = 1
    if lanes in fixed:
        vectors = -(-sizes[lanes] // lanes_of(kernel.dtype, machine))
        each = panel_vectors(kernel, machine)
        is_sum = kernel.groups and "vnni" not in machine  # that of integers, which waits for nothing
        most = max(each, tuning.GROUP_COLUMNS) if is_sum else tuning.TILE_COLUMNS
        for n in range(1, max(min(vectors, most), 1) + 1):
            if each % n == 0 or n % each == 0:  # blocks of columns divide a panel, or are whole panels
                yield {lanes: n}
    else:
        yield {lanes: 1} if lanes in sizes else {}
    if names and vectors <= 4 and (lanes in fixed or lanes not in sizes):
        start = {lanes: vectors} if lanes in sizes else {}
        for n in range(2 if lanes in sizes else 1, max(min(sizes[names[0]], tuning.TILE_COLUMNS), 1) + 1):
            yield {**start, names[0]: n}


def panel_vectors(kernel: Contraction, machine: Machine) -> int:
    """Return the number of vectors in a row of a panel, or 1 if no operand is in panels."""
    panels = next((o.panels for o in kernel.operands if o.panels), None)
    return panels.width // lanes_of(kernel.dtype, machine) if panels else 1


def _row_counts(kernel: Contraction, sizes: dict[str, int], fixed: set[str]) -> Iterator[dict[str, int]]:
    """Yield the candidates for the rows of a tile: along the innermost row variable; if it is short, along the next."""
    names = row_names(kernel)
    if not names:
        yield {}
        return
    first = names[0]
    for m in range(1, max(min(sizes[first], tuning.TILE_ROWS), 1) + 1):
        yield {first: m}
    if len(names) > 1 and first in fixed and sizes[first] <= tuning.TILE_INNER_ROWS:
        for m in range(2, min(sizes[names[1]], tuning.TILE_INNER_ROWS) + 1):
            yield {first: sizes[first], names[1]: m}
        for m in range(2, min(sizes[names[1]], tuning.TILE_ROWS) + 1):
            yield {names[1]: m}


def _sets(kernel: Contraction) -> int:
    """Return the number of sets of accumulators, which a single row with few lanes needs.

    A multiply-add waits ``latency`` cycles for the previous one into the same accumulator, so that several sets are
    used in turn. If there are always many rows, such as the pixels of an image, rows are used instead. The number is
    the same for every tile and machine, so that a row's sum does not depend on the rows beside it.
    """
    fixed = [axis.size for axis in kernel.out if axis.name in row_names(kernel) and isinstance(axis.size, int)]
    if prod(fixed) >= tuning.NARROW_ROWS:
        return 1
    lanes = next((axis.size for axis in kernel.out if axis.name == kernel.lanes), None)
    steps = kernel.summed[-1].size if kernel.summed else 0
    if not isinstance(lanes, int) or not isinstance(steps, int) or kernel.combine != "add" or kernel.groups:
        return 1
    vectors = -(-lanes * DTYPES[kernel.dtype].itemsize // LINE)
    return tuning.NARROW_SETS.get(vectors, 1) if steps >= tuning.NARROW_STEPS and len(kernel.operands) == 2 else 1


def _unrolled_count(kernel: Contraction) -> int:
    """Return the number of summed variables, the taps of a window that slides along the rows, whose loops are unrolled.

    Neighbouring rows read overlapping windows, and share their loads.
    """
    first = kernel.operands[0]
    if not first.vector or is_along_sum(kernel):
        return 0
    count, steps = 0, 1
    for axis in reversed(kernel.summed):
        if not isinstance(axis.size, int) or steps * axis.size > tuning.UNROLLED_STEPS:
            break
        if len(kernel.operands) == 1 and not _slides(kernel, axis):
            break
        steps *= axis.size
        count += 1
    return count


def _slides(kernel: Contraction, tap: Axis) -> bool:
    """Tell whether the elements along a summed variable touch or overlap those of a neighbouring row."""
    strides = dict(kernel.operands[0].strides)
    along = strides.get(tap.name, 0)
    assert isinstance(tap.size, int)
    steps = [strides.get(name, 0) for name in (*row_names(kernel), kernel.lanes)]
    return isinstance(along, int) and any(isinstance(s, int) and 0 < along <= s <= along * tap.size for s in steps)


def _window(kernel: Contraction, rows: dict[str, int]) -> int:
    """Return the number of values that the rows of a tile read along the innermost summed variable.

    Windows of t taps that begin d taps apart cover (points - 1) * d + t values together, not points * t.
    """
    strides, tap = dict(kernel.operands[0].strides), kernel.summed[-1]
    count = 1
    for name, points in rows.items():
        step, along = strides.get(name, 0), strides.get(tap.name, 0)
        taps = step // along if isinstance(step, int) and isinstance(along, int) and along and step % along == 0 else 0
        count *= (points - 1) * taps + nominal(tap.size) if 0 < taps <= nominal(tap.size) else points
    return count


def _cycles(kernel: Contraction, plan: Schedule, machine: Machine, *, near: bool = False) -> float:
    """Estimate the cycles of all tiles; with ``near``, as if all operands were in the first-level cache.

    Each axis is cut into blocks of few sizes, so there are few shapes of tiles; ``shapes`` counts the tiles of each.
    """
    lanes = lanes_of(kernel.dtype, machine)
    steps = 1.0
    for axis in kernel.summed:
        steps *= units(kernel, axis, lanes) * _share_inside(kernel, axis, plan)
    shapes: list[tuple[int, int, int]] = [(1, 1, 1)]  # how many tiles, rows, columns
    rows = set(row_names(kernel))
    for axis in kernel.out:
        whole = units(kernel, axis, lanes)
        count = plan.counts.get(axis.name, 1)
        each = panel_vectors(kernel, machine) if axis.name == kernel.lanes else 1
        each = each if count > each else 1  # blocks are of whole panels
        blocks = block_sizes(-(-whole // each), count // each, isinstance(axis.size, int))
        parts = [(n // c, c * each) for n, c in blocks]
        is_row = axis.name in rows
        shapes = [
            (tiles * t, m * c if is_row else m, n if is_row else n * c) for tiles, m, n in shapes for t, c in parts
        ]
    streams = 0.0
    if len(kernel.operands) == 2 and not plan.unrolled and not near:
        _, waits = best_order(kernel, plan.counts, machine, rows_inside=plan.rows_inside)
        streams = waits / max(sum(tiles * m * n for tiles, m, n in shapes) * steps, 1)
    cycles = sum(tiles * _tile(kernel, plan, m, n, steps, streams, machine) for tiles, m, n in shapes)
    if plan.rows_inside and not is_along_sum(kernel):
        width = next(nominal(axis.size) for axis in kernel.out if axis.name == kernel.lanes)
        is_long = width * machine.bytes // lanes >= tuning.LONG_ROW_BYTES
        if is_long and width > plan.counts.get(kernel.lanes, 1) * lanes:  # tiles leave one row for the next
            lines = sum(tiles * m * n for tiles, m, n in shapes) * machine.bytes / LINE
            cycles += lines * tuning.ROW_RESULT_CYCLES
    return cycles


def _tile(kernel: Contraction, plan: Schedule, m: int, n: int, steps: float, streams: float, machine: Machine) -> float:
    """Estimate the cycles of one tile of m rows and n columns.

    The time of a step of the sum is the longest of its m * n multiply-adds, its m + n loads, and its traffic from
    farther caches (``streams`` cycles for a multiply-add). With too few accumulators to hide it, the latency of one
    multiply-add may be longer. A share of the loads is added, which overlap, but not fully.
    """
    is_one = "vnni" in machine if kernel.has_integer_sums else "fma" in machine
    rate = machine.arithmetic // (1 if is_one else 2)  # multiply-adds a cycle
    loads, far = (m * plan.passes + n) / machine.loads, m * n * streams
    if len(kernel.operands) == 1:
        loads = n * m / machine.loads
    elif plan.unrolled:
        loads = (n + m / 2) / machine.loads  # neighbours share most of what they load
    waits = machine.latency * tuning.LATENCY_FACTOR * plan.passes / plan.sets
    work = m * n / rate
    if kernel.power:  # a difference, and perhaps its absolute value
        work = m * n * (1 / rate + (3 - kernel.power) / machine.arithmetic)
    if kernel.groups:  # two operations make an operand
        products = m * n if is_one or kernel.groups.bits == 8 else 2 * m * n
        work, waits = (products + 2 * n) / machine.arithmetic, waits if "vnni" in machine else 0
    busy = max(work, loads, far, waits)
    busy += far * tuning.STREAM_CYCLES
    busy += loads * (tuning.GROUP_LOAD_CYCLES if kernel.groups else tuning.LOAD_CYCLES)
    around = (tuning.FOLDED_CYCLES if is_along_sum(kernel) else tuning.RESULT_CYCLES) * m * n + tuning.TILE_CYCLES
    return steps * (busy + tuning.STEP_CYCLES / (plan.sets if not plan.unrolled else tuning.UNROLLED_STEPS)) + around


def _share_inside(kernel: Contraction, axis: Axis, plan: Schedule) -> float:
    """Return the share of a summed variable's rounds that tiles compute, which may leave out padding."""
    inside = next((each for each in kernel.inside if each.name == axis.name), None)
    is_unrolled = axis in kernel.summed[len(kernel.summed) - plan.unrolled :]
    if inside is None or is_unrolled or plan.counts.get(inside.other, 1) > 1:
        return 1.0
    places = next(nominal(each.size) for each in kernel.out if each.name == inside.other)
    return _mean_rounds(inside, places, nominal(axis.size)) / max(nominal(axis.size), 1)


@lru_cache(64)
def _mean_rounds(inside: Inside, places: int, size: int) -> float:
    """Return the mean number of rounds of a summed variable of ``size`` over all values of the other variable."""
    ends = [
        [nominal_extent(assign(end, {inside.other: i})) for end in (inside.low, inside.high)] for i in range(places)
    ]
    return sum(max(min(high, size) - max(low, 0), 0) for low, high in ends) / max(places, 1)


def units(kernel: Contraction, axis: Axis, lanes: int) -> int:
    """Return the number of points of an axis, or of vectors along the lanes."""
    size = nominal(axis.size)
    return -(-size // lanes) if axis.name == kernel.lanes else size


def operand_bytes(kernel: Contraction, operand: Operand) -> int:
    """Return the bytes of all elements of an operand that a contraction reads."""
    axes = [axis for axis in (*kernel.out, *kernel.summed) if _moves(operand, axis)]
    return prod(nominal(axis.size) for axis in axes) * DTYPES[kernel.dtype].itemsize


def _moves(operand: Operand, axis: Axis) -> bool:
    return axis.name in dict(operand.strides)


def block_sizes(size: int, count: int, fixed: bool) -> list[tuple[int, int]]:
    """Cut an axis into blocks of at most ``count``; return pairs of a covered extent and its block size.

    A fixed extent is cut into blocks of nearly equal sizes: 64 rows by at most 6 are 9 blocks of 6 and 2 of 5. A
    dynamic extent is cut into as many full blocks as fit, then blocks of a third, then single rows.
    """
    if not fixed:
        rest = size % count
        third = max(count // 3, 1)
        pieces = [(size - rest, count), (rest - rest % third, third), (rest % third, 1)]
        return [p for p in pieces if p[0]]
    blocks = -(-size // count) if size else 0
    if not blocks:
        return []
    small, larger = divmod(size, blocks)
    pieces = [(larger * (small + 1), small + 1), ((blocks - larger) * small, small)]
    return [p for p in pieces if p[0]]
