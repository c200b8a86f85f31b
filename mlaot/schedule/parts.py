"""Sums in parts: in a part, all tiles of a panel read data that fit the caches, and partial sums are in an array.

    for i in parallel(0, 512, 6):              for i_first in parallel(0, 512, 60):
        for j in range(0, 256, 16):                parts = zeros of 60 x 256
            c = 0                       =>         for k_first in range(0, 2048, 64):
            for k in range(0, 2048):                   block = x[k_first .. + 64, i_first .. + 60]
                c += x[k, i] * y[k, j]                 for j in range(0, 256, 16):
            z[i, j] = c                                    panel = y[k_first .. + 64, j .. + 16]
                                                           for i in range(i_first, i_first + 60, 6):
                                                               parts[i, j] += sum of block[k, i] * panel[k, j]
                                                   z = parts

Rows of a matrix that are a power of two apart share few sets of a cache, and each may be on a separate page. The packed
copies are dense (Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication, 2008, section 4). Each
result is the sum of the same products in the same order as in one loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import gcd, prod

from mlaot.ir import DTYPES, Dim
from mlaot.ir.dims import dim
from mlaot.nest.expressions import Array, Expr, Index, Load, least
from mlaot.nest.statements import Alloc, Body, For, Statement, Store, index_var
from mlaot.schedule import tuning
from mlaot.schedule.contraction import Axis, Contraction, Operand, lanes_of, nominal, row_names
from mlaot.schedule.cost import Schedule, operand_bytes, units
from mlaot.schedule.machine import LINE, Machine
from mlaot.schedule.microkernel import Tile
from mlaot.schedule.segments import Panel
from mlaot.schedule.traffic import second_level_bytes


@dataclass(frozen=True)
class Parts:
    """The parts in which the tiles of a contraction are summed.

    ``order`` has the loops around tiles, from the outermost. Those from ``depth`` on are inside of the loop over parts.
    A part has one value of the outermost summed variable. With ``panels``, these loops are over columns and then over
    rows, with this many elements of each at a time. A part then has one value of all summed variables but the last, and
    ``steps`` values of the last, or all. ``packed`` says which operands are copied.
    """

    order: tuple[Axis, ...]
    depth: int
    panels: Mapping[str, int] = field(default_factory=dict)
    steps: int | None = None
    packed: tuple[bool, bool] = (False, False)


def parts_of(kernel: Contraction, plan: Schedule, order: Sequence[Axis], machine: Machine) -> Parts | None:
    """Return the parts of sums, or None if there are none.

    There are parts if the second-level cache does not hold the data of all loops over known axes, so that each tile
    would read its share from a farther cache.
    """
    is_plain = kernel.combine == "add" and not kernel.gates and not kernel.has_integer_sums and plan.sets == 1
    if len(kernel.operands) < 2 or len(order) < 2 or not is_plain or plan.unrolled == len(kernel.summed):
        return None
    if (found := _parts_of_panels(kernel, plan, order, machine)) is not None:
        return found
    orders = [tuple(order), (*order[:-2], *reversed(order[-2:]))]
    depths = [(d, o) for o in orders if (d := _depth(kernel, plan, o, machine)) is not None]
    if not depths:
        return None
    depth, chosen = min(depths, key=lambda each: each[0])
    return Parts(chosen, depth)


def _parts_of_panels(kernel: Contraction, plan: Schedule, order: Sequence[Axis], machine: Machine) -> Parts | None:
    """Return the parts of a product of matrices that sums along distant rows, or None for any other contraction."""
    inner = {axis.name: axis for axis in order[-2:]}
    rows = [name for name in row_names(kernel) if name in inner]
    if kernel.lanes not in inner or len(rows) != 1 or plan.counts.keys() != inner.keys() or plan.unrolled:
        return None
    (row,), lanes, last, (a, b) = rows, kernel.lanes, kernel.summed[-1], kernel.operands
    are_known = all(isinstance(axis.size, int) for axis in inner.values())
    are_plain = b.vector and all(o.dtype == kernel.dtype and o.panels is None for o in kernel.operands)
    if not are_known or not are_plain or nominal(last.size) < tuning.PART_STEPS or not _waits(kernel, plan, machine):
        return None
    inside = replace(kernel, out=tuple(inner.values()))
    if sum(operand_bytes(inside, operand) for operand in kernel.operands) <= second_level_bytes(machine):
        return None
    itemsize = DTYPES[kernel.dtype].itemsize
    is_packed, is_far = (_row_bytes(o, name, last) >= tuning.FAR_ROW_BYTES for o, name in ((a, row), (b, lanes)))
    steps = _even(nominal(last.size), tuning.COPIED_STEPS if is_packed else tuning.PANEL_STEPS, 1)
    if not is_packed and (not is_far or (steps == last.size and len(kernel.summed) == 1)):
        return None
    size, width = nominal(inner[row].size), nominal(inner[lanes].size)
    height = _even(size, tuning.PANEL_ROW_BYTES // itemsize, plan.counts[row])
    shared = -(-width * -(-size // height) // tuning.SHARED_STEPS)  # columns of as many panels as threads want
    most = min(tuning.PANEL_COLUMN_BYTES // itemsize, max(shared, tuning.SHARED_COLUMN_BYTES // itemsize))
    panels = {row: height, lanes: _even(width, most, plan.counts[lanes] * lanes_of(kernel.dtype, machine))}
    lines = steps * gcd(_row_bytes(b, lanes, last), tuning.WAY_BYTES) / tuning.WAY_BYTES  # in one place of a cache
    is_crowded = is_far and lines > tuning.WAY_LINES
    order = (*order[:-2], inner[lanes], inner[row])
    return Parts(order, len(order) - 2, panels, None if last.size == steps else steps, (is_packed, is_crowded))


def _waits(kernel: Contraction, plan: Schedule, machine: Machine) -> bool:
    """Tell whether the cache lines of a tile's step take longer from the second level than its multiply-adds."""
    columns = plan.counts[kernel.lanes]
    rows = prod(plan.counts.values()) // columns
    lines = -(-rows * DTYPES[kernel.dtype].itemsize // LINE) + -(-columns * machine.bytes // LINE)
    rate = machine.arithmetic / (1 if "fma" in machine else 2)
    return lines * (LINE // machine.bytes) * machine.from_second > rows * columns / rate


def _row_bytes(operand: Operand, along: str, summed: Axis) -> int:
    """Return the distance of rows in bytes of a matrix that is summed along its rows' index, or 0 for any other."""
    strides = dict(operand.strides)
    stride = strides.get(summed.name)
    is_down = strides.get(along) == 1 and isinstance(stride, int) and stride > 1
    return stride * DTYPES[operand.dtype].itemsize if is_down and isinstance(stride, int) else 0


def _even(size: int, most: int, step: int) -> int:
    """Return the number of elements of each of as few panels as possible: about ``most``, in whole steps."""
    blocks = -(-size // step)
    count = -(-blocks // max(most // step, 1))
    return -(-blocks // count) * step


def _depth(kernel: Contraction, plan: Schedule, order: Sequence[Axis], machine: Machine) -> int | None:
    """Return the depth from which on loops are inside of the loop over the first summed variable, or None.

    The sums of all inner tiles must fit the stack. The outer loops must be long enough for threads, or be all but the
    innermost loop.
    """
    steps = prod(nominal(axis.size) for axis in kernel.summed[1:])
    if len(kernel.summed) < 2 or steps < tuning.PART_STEPS:
        return None
    lanes = lanes_of(kernel.dtype, machine)
    for depth in range(1, len(order)):
        if not all(isinstance(axis.size, int) for axis in order[depth:]) or order[-1].name not in plan.counts:
            continue
        sizes = {axis.name: elements(kernel, axis, lanes) for axis in order[depth:]}
        extents = part_extents(kernel, plan, order, sizes, lanes)
        read = {**extents, kernel.lanes: max(extents[kernel.lanes], LINE // DTYPES[kernel.dtype].itemsize)}  # in lines
        inside = replace(kernel, out=tuple(Axis(axis.name, read[axis.name]) for axis in order))
        if sum(operand_bytes(inside, operand) for operand in kernel.operands) <= second_level_bytes(machine):
            return None  # nor do those of fewer loops
        tiles = [-(-units(kernel, axis, lanes) // plan.counts.get(axis.name, 1)) for axis in order]
        are_enough = depth == len(order) - 1 or prod(tiles[:depth]) >= tuning.SHARED_STEPS
        size = prod(extents.values()) * DTYPES[kernel.dtype].itemsize
        if are_enough and prod(tiles[depth:]) > 1 and size <= tuning.PART_BYTES:
            return depth
    return None


def part_extents(
    kernel: Contraction, plan: Schedule, order: Sequence[Axis], sizes: Mapping[str, int], lanes: int
) -> dict[str, int]:
    """Return the extents of the array of partial sums, lanes last: ``sizes`` inside of parts, else those of a tile."""
    extents = {axis.name: plan.counts.get(axis.name, 1) for axis in order if axis.name != kernel.lanes}
    return {**extents, kernel.lanes: plan.counts.get(kernel.lanes, 1) * lanes, **sizes}


def elements(kernel: Contraction, axis: Axis, lanes: int) -> int:
    """Return the number of elements of an axis, rounded up to whole vectors along the lanes."""
    return units(kernel, axis, lanes) * (lanes if axis.name == kernel.lanes else 1)


class Packing:
    """The parts of a panel: a block of rows and a panel of columns, each a copy if it is packed, and their products."""

    def __init__(self, parts: Parts, tile: Tile, rows: Panel) -> None:
        """``tile`` is at the point of the loops outside; ``rows`` are those of the block."""
        kernel = tile.kernel
        self.parts, self.tile, self.rows, self.sum = parts, tile, rows, kernel.summed[-1]
        self.row, self.lanes = parts.order[-1].name, kernel.lanes
        self.first = f"{self.sum.name}_first"
        self.start: Dim = 0 if parts.steps is None else dim(self.first)
        steps = self.sum.size if parts.steps is None else parts.steps
        assert isinstance(steps, int), f"bug in mlaot: a part of {steps} steps"
        is_even = isinstance(self.sum.size, int) and self.sum.size % steps == 0
        self.end: Expr = Index(self.start + steps) if is_even else least(Index(self.start + steps), self.sum.size)
        line = LINE // DTYPES[kernel.dtype].itemsize
        self.widths = -(-rows.size // line) * line, tile.plan.counts[self.lanes] * tile.lanes
        self.arrays = [
            Array(name, kernel.dtype, steps * width, "local")
            for name, width in zip(("block", "panel"), self.widths, strict=True)
        ]

    def allocs(self) -> Iterator[Alloc]:
        """Yield the arrays of the copies."""
        yield from (Alloc(a) for a, is_packed in zip(self.arrays, self.parts.packed, strict=True) if is_packed)

    def around(self, body: Body) -> Body:
        """Return the loop over the parts of the last summed variable, around the loops over tiles."""
        body = (*self._block(), *body)
        if self.parts.steps is None:
            return body
        return (For(index_var(self.first), Index(0), Index(self.sum.size), body, self.parts.steps),)

    def _block(self) -> Iterator[For]:
        if not self.parts.packed[0]:
            return
        operand, lanes = self.tile.kernel.operands[0], self.tile.lanes
        at = {**self.tile.at, **self._at, self.row: self.rows.start}
        count = self.rows.segments[-1].end + -1 * self.rows.start
        assert isinstance(count, int), f"bug in mlaot: a block of {count} rows"
        copies = []
        for n in range(0, count, lanes):  # written out: compilers would call memcpy for each short row
            rest = Index(count - n) if count - n < lanes else None
            index = Index(self.tile.index(operand, at) + n)
            copies.append(self._copy(0, n, Load(operand.array, index, self.tile.type, count=rest)))
        yield self._loop(copies)

    def panel(self, tile: Tile) -> Iterator[For]:
        """Yield the loop that copies the columns of a tile."""
        if self.parts.packed[1]:
            operand = tile.kernel.operands[1]
            indices = (Index(tile.index(operand, tile.point(self._at, column))) for column in tile.columns)
            loads = (tile.load(operand, index, c) for c, index in enumerate(indices))
            yield self._loop([self._copy(1, c * tile.lanes, load) for c, load in enumerate(loads)])

    def products(self, tile: Tile) -> Iterator[For]:
        """Yield the loop that adds the products of a part to the sums of a tile."""
        starts = (self.row, self.rows.start), (self.lanes, tile.at[self.lanes])
        operands = list(tile.kernel.operands)
        for o, (name, start) in enumerate(starts):
            if self.parts.packed[o]:
                strides = (name, 1), (self.sum.name, self.widths[o])
                offset = -1 * start + -1 * self.start * self.widths[o]
                array = self.arrays[o]
                operands[o] = replace(operands[o], array=array, strides=strides, offset=offset, padded=True)
        packed = tile.of(replace(tile.kernel, operands=tuple(operands)))
        yield self._loop(packed.steps([self._at], None))

    @property
    def _at(self) -> dict[str, Dim]:
        return {axis.name: dim(axis.name) for axis in self.tile.kernel.summed}

    def _loop(self, body: Iterable[Statement]) -> For:
        return For(index_var(self.sum.name), Index(self.start), self.end, tuple(body))

    def _copy(self, operand: int, column: int, load: Load) -> Store:
        row = (dim(self.sum.name) + -1 * self.start) * self.widths[operand]
        return Store(self.arrays[operand], Index(row + column), load)
