"""The order of the loops around a contraction's tiles, and the cycles of loading its operands from farther caches.

    for i in parallel(0, 64, 6):            for j in parallel(0, 512, 16):      a block of w stays in the first level
        for j in parallel(0, 512, 16):          for i in parallel(0, 64, 6):    while all rows of x go by: w comes
            sum of x[i, k] * w[k, j]                sum of x[i, k] * w[k, j]    from afar once, not 11 times

A loop along which an operand does not move reads the same elements in each round. A cache still holds them if all data
of a round fit the cache (Wolf and Lam, A Data Locality Optimizing Algorithm, 1991, section 3).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from mlaot.ir import DTYPES
from mlaot.ir.dims import nominal as nominal_stride
from mlaot.schedule import tuning
from mlaot.schedule.contraction import Axis, Contraction, Operand, column_names, lanes_of, nominal, row_names
from mlaot.schedule.machine import LINE, Machine


@dataclass(frozen=True)
class Access:
    """An array that tiles read or write: bytes of an element, and each variable's stride in elements, ascending.

    ``width`` is the number of elements of a row of a panel, for an array in panels; the first variable is along the
    rows.
    """

    itemsize: int
    strides: tuple[tuple[int, str], ...]
    width: int = 0

    def lines(self, extents: Mapping[str, int]) -> float:
        """Return the cache lines of the elements at all points of variables' ``extents``."""
        if self.width:
            across, *down = (extents[name] for _, name in self.strides)
            return -(-across // self.width) * prod(down) * self._share(min(across, self.width), self.width)
        pieces = [(1, 1)]  # strides and numbers of them; windows that overlap are one
        for stride, name in self.strides:
            (last, count), points = pieces[-1], extents[name]
            if stride % last == 0 and stride <= last * count:
                pieces[-1] = last, count + (points - 1) * (stride // last)
            elif points > 1:
                pieces.append((stride, points))
        (_, run), *others = pieces
        return prod(count for _, count in others) * self._share(run, others[0][0] if others else run)

    def _share(self, run: int, step: int) -> float:
        """Return the cache lines of ``run`` adjacent elements, of which the next run begins ``step`` elements later."""
        return max(run * self.itemsize, min(step * self.itemsize, LINE)) / LINE


def accesses(kernel: Contraction) -> list[Access]:
    """Return the accesses of a contraction to its operands and to its result, which is assumed in loop order."""
    axes = sorted(kernel.out, key=lambda axis: axis.name == kernel.lanes)  # the lanes last
    strides, stride = list[tuple[int, str]](), 1
    for axis in reversed(axes):
        strides.append((stride, axis.name))
        stride *= nominal(axis.size)
    result = Access(DTYPES[kernel.dtype].itemsize, tuple(strides))
    return [*(_access(kernel, operand) for operand in kernel.operands), result]


def _access(kernel: Contraction, operand: Operand) -> Access:
    strides = [(abs(nominal_stride(stride)), name) for name, stride in operand.strides]
    width = operand.panels.width if operand.panels else 0
    strides.sort(key=lambda each: (each[1] != kernel.lanes and width > 0, each[0]))
    return Access(DTYPES[operand.dtype].itemsize, tuple(strides), width)


def loop_orders(kernel: Contraction, counts: Mapping[str, int], *, rows_inside: bool) -> Iterator[list[Axis]]:
    """Yield the orders of loops around tiles of ``counts`` points, from the outermost loop.

    First come the variables along which both operands move, then rows and columns, or columns and rows, with tiled ones
    inside. All or some of the rows that are not tiled may be outside of the columns.
    """
    rows = [axis for axis in kernel.out if axis.name in row_names(kernel)]
    columns = [axis for axis in kernel.out if axis.name in (*column_names(kernel), kernel.lanes)]
    both = [axis for axis in kernel.out if axis not in rows and axis not in columns]
    whole, tiled = ([axis for axis in rows if (axis.name in counts) == is_tiled] for is_tiled in (False, True))
    columns.sort(key=lambda axis: axis.name in counts)
    if not rows_inside:
        yield [*both, *whole, *tiled, *columns]
        return
    most = len(whole) if tiled or not whole else len(whole) - 1  # one row axis is inside
    for outside in range(most, -1, -1):
        yield [*both, *whole[:outside], *columns, *whole[outside:], *tiled]


def best_order(
    kernel: Contraction, counts: Mapping[str, int], machine: Machine, *, rows_inside: bool
) -> tuple[list[Axis], float]:
    """Return the order of ``loop_orders`` with the fewest cycles of waiting for loads, and these cycles."""
    found = accesses(kernel)
    orders = list(loop_orders(kernel, counts, rows_inside=rows_inside))
    cycles = [stream_cycles(kernel, counts, order, machine, found) for order in orders]
    best = min(range(len(orders)), key=cycles.__getitem__)
    return orders[best], cycles[best]


def stream_cycles(
    kernel: Contraction,
    counts: Mapping[str, int],
    order: Sequence[Axis],
    machine: Machine,
    found: Sequence[Access],
) -> float:
    """Estimate the cycles of loading operands to the first-level cache; ``found`` is ``accesses(kernel)``."""
    lanes = lanes_of(kernel.dtype, machine)
    summed = {axis.name: nominal(axis.size) for axis in kernel.summed}
    sizes = [max(nominal(axis.size), 1) for axis in order]
    blocks = [counts.get(axis.name, 1) * (lanes if axis.name == kernel.lanes else 1) for axis in order]
    blocks = [min(block, size) for block, size in zip(blocks, sizes, strict=True)]
    rounds = [-(-size // block) for block, size in zip(blocks, sizes, strict=True)]
    names = [axis.name for axis in order]
    lines = []  # of each access, in a round of the loop around each depth
    for depth in range(len(order) + 1):
        extents = dict(zip(names, [*blocks[:depth], *sizes[depth:]], strict=True)) | summed
        lines.append([access.lines(extents) for access in found])
    touched = [sum(each) * LINE for each in lines]
    cycles, before = 0.0, 0
    for room, cost in (
        (first_level_bytes(machine), machine.from_second),
        (second_level_bytes(machine), machine.from_third),
        (third_level_bytes(machine), machine.from_third * machine.memory),
    ):
        for at, access in enumerate(found[:-1]):
            moving = {name for _, name in access.strides}
            read, inside = lines[-1][at], len(order)  # inside of loops whose rounds all read the same
            for depth in reversed(range(len(order))):
                if rounds[depth] > 1 and names[depth] in moving:
                    read = lines[depth][at] if touched[depth] <= room else read * rounds[depth]
                    inside = depth
                elif touched[inside] > room:
                    read *= rounds[depth]
            if lines[0][at] * LINE <= room:  # it is there from the start
                read -= lines[0][at]
            cycles += max(read, 0) * (cost - before)
        before = cost
    return cycles


def first_level_bytes(machine: Machine) -> int:
    """Return how many bytes stay in the first-level cache while loops run."""
    return int(machine.caches.first * tuning.NEAR_SHARE)


def second_level_bytes(machine: Machine) -> int:
    """Return how many bytes stay in the second-level cache while loops run."""
    return int(machine.caches.second * tuning.NEXT_SHARE)


def third_level_bytes(machine: Machine) -> int:
    """Return how many bytes stay in a core's share of the third-level cache while loops run."""
    return int(machine.caches.third * tuning.NEXT_SHARE)
