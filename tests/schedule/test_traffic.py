"""The order of loops around tiles, chosen by what a cache would have to fetch, against a simulated cache."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import pytest

from mlaot.nest.text import parse_nest
from mlaot.schedule.contraction import Axis, Contraction, contraction_of, lanes_of
from mlaot.schedule.machine import LINE, MACHINES, Caches, Machine
from mlaot.schedule.traffic import Access, accesses, best_order, first_level_bytes, loop_orders

# A product of a batch, and a convolution of 3 taps in blocks of 16 channels.
NESTS = {
    "batch": """\
def batch(y: f32[6144], x: f32[3072], w: f32[2048]):
    for b in parallel(0, 4):
        for i in parallel(0, 24):
            for j in parallel_tiled(0, 64):
                acc: f32 = f32(0.0)
                for k in range(0, 32):
                    acc = acc + (x[b * 768 + i * 32 + k] * w[j + k * 64, ...])
                y[b * 1536 + i * 64 + j] = acc
""",
    "convolution": """\
def convolution(y: f32[12288], x: f32[3264], w: f32[3072]):
    for b in parallel(0, 4):
        for c in parallel(0, 4):
            for i in parallel(0, 48):
                for j in parallel_tiled(0, 16):
                    acc: f32 = f32(0.0)
                    for k in range(0, 48):
                        acc = acc + (x[b * 816 + i * 16 + k] * w[c * 768 + k * 16 + j])
                    y[b * 3072 + c * 768 + i * 16 + j] = acc
""",
}
COUNTS = {"i": 4}  # points of a tile


def machine(first: int) -> Machine:
    """One whose first level holds so many bytes, and its second one all; a line from there takes a cycle."""
    return replace(MACHINES["v3"], caches=Caches(first, 1 << 24, 1 << 26), from_second=1)


def tile_lines(kernel: Contraction, order: Sequence[Axis], found: Sequence[Access]) -> Iterator[list[tuple[int, int]]]:
    """Yield the lines that each tile touches, as an array and a line of it, in the order of the sum's steps."""
    lanes, names = lanes_of(kernel.dtype, MACHINES["v3"]), [axis.name for axis in order]
    sizes = [range(int(axis.size)) for axis in order]
    blocks = [lanes if name == kernel.lanes else COUNTS.get(name, 1) for name in names]
    (summed,) = kernel.summed
    for starts in product(*(size[::block] for size, block in zip(sizes, blocks, strict=True))):
        ends = [
            i + (1 if name == kernel.lanes else block) for i, name, block in zip(starts, names, blocks, strict=True)
        ]
        inside = product(*(size[i:end] for size, i, end in zip(sizes, starts, ends, strict=True)))
        points = [dict(zip(names, point, strict=True)) for point in inside]
        touched = OrderedDict[tuple[int, int], None]()
        for step in range(int(summed.size)):
            for array, access in enumerate(found):
                for point in points:
                    place = sum(stride * {**point, summed.name: step}[name] for stride, name in access.strides)
                    touched[array, place * access.itemsize // LINE] = None
        yield list(touched)


def misses(kernel: Contraction, order: Sequence[Axis], size: int) -> int:
    """Count the lines that a cache of ``size`` bytes fetches, which forgets what was used the longest ago."""
    held, count, found = OrderedDict[tuple[int, int], None](), 0, accesses(kernel)
    for lines in tile_lines(kernel, order, found):
        for line in lines:
            count += line not in held and line[0] < len(kernel.operands)
            held[line] = None
            held.move_to_end(line)
            if len(held) > size // LINE:
                held.popitem(last=False)
    return count


@pytest.mark.parametrize("name", NESTS)
@pytest.mark.parametrize("size", [6144, 16384])
def test_the_chosen_order_fetches_little_more_than_the_best(name: str, size: int) -> None:
    kernel, small = contraction_of(parse_nest(NESTS[name])), machine(size)
    orders = list(loop_orders(kernel, COUNTS, rows_inside=True))
    counted = [misses(kernel, order, first_level_bytes(small)) for order in orders]
    chosen, estimated = best_order(kernel, COUNTS, small, rows_inside=True)
    assert counted[orders.index(chosen)] <= 1.35 * min(counted)
    assert counted[orders.index(chosen)] <= 2 * estimated


@pytest.mark.parametrize(
    ("access", "extents", "lines"),
    [
        (Access(4, ((1, "k"), (64, "i"))), {"k": 32, "i": 3}, 6),
        (Access(4, ((1, "k"), (64, "i"))), {"k": 1, "i": 3}, 3),  # of each line one element
        (Access(4, ((1, "k"), (16, "i"))), {"k": 48, "i": 10}, 12),  # windows that overlap
        (Access(4, ((1, "k"), (32, "i"), (32, "t"))), {"k": 16, "i": 5, "t": 3}, 7),
        (Access(8, ((1, "j"), (1, "k")), width=8), {"j": 20, "k": 5}, 15),  # the last panel is padded
        (Access(4, ((1, "j"), (1, "k")), width=16), {"j": 8, "k": 5}, 5),
        (Access(4, ((4, "i"),)), {"i": 8}, 2),
    ],
)
def test_lines_are_those_that_elements_lie_in(access: Access, extents: dict[str, int], lines: int) -> None:
    assert access.lines(extents) == lines
