"""Segments of an axis of a contraction. Each is walked in equal blocks, and the last segments are the remainder loops.

64 rows, at most 6 in a block                 0 .. 54 in blocks of 6, 54 .. 64 in blocks of 5
n rows, 6 in a block                          as many blocks of 6 as fit, then blocks of 2, then single rows
50 columns, blocks of 2 vectors of 16         0 .. 32: 2 vectors; 32 .. 50: 1 vector and 2 lanes of another one
50 columns, in panels of 16                   blocks of whole panels, or ones that divide a panel; 48 .. 50 in the last
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mlaot.ir import Dim
from mlaot.ir.dims import dim
from mlaot.nest.expressions import Panels
from mlaot.schedule.contraction import Axis
from mlaot.schedule.cost import block_sizes


@dataclass(frozen=True)
class Segment:
    """A part of an axis in blocks of ``step`` elements: ``count`` points each, or vectors along the lanes.

    ``partial`` is the number of lanes of the last vector, if it is not full. ``panel`` is the column at which the first
    panel of a block begins.
    """

    start: Dim
    end: Dim
    step: int
    count: int
    partial: Dim | None = None
    panel: Dim | None = None

    @property
    def is_one_block(self) -> bool:
        """Whether the segment is known to be a single block, which needs no loop."""
        return isinstance(self.start, int) and isinstance(self.end, int) and self.start + self.step >= self.end


@dataclass(frozen=True)
class Panel:
    """The elements of an axis from ``start`` on, of which there are at most ``size``, in ``segments``."""

    start: Dim
    size: int
    segments: list[Segment]


def panels_of(axis: Axis, size: int, count: int, lanes: int) -> list[tuple[int, int, Panel]]:
    """Cut an axis into panels of ``size`` elements, whole blocks of ``count`` rows, or of vectors of ``lanes``.

    Return the range of the equal panels, which begin at ``<axis>_first``, and the remainder after them.
    """
    assert isinstance(axis.size, int)
    main, first = axis.size // size * size, dim(f"{axis.name}_first")
    whole = [Segment(first, first + size, count * max(lanes, 1), count)]
    result = [(0, main, Panel(first, size, whole))]
    if lanes:
        rest = _vectors(main, axis.size, count, lanes)
    else:
        rest = [replace(s, start=s.start + main, end=s.end + main) for s in row_segments(axis.size - main, count)]
    return [*result, (main, axis.size, Panel(main, size, rest))] if rest else result


def row_segments(size: Dim, count: int) -> list[Segment]:
    """Cut an axis into blocks of at most ``count`` rows.

    A known number of rows is cut into blocks of nearly equal sizes. An unknown number needs a main loop over full
    blocks, a loop over blocks a third as large, and a loop over single rows.
    """
    if isinstance(size, int):
        segments, start = list[Segment](), 0
        for extent, step in block_sizes(size, count, True):
            segments.append(Segment(start, start + extent, step, step))
            start += extent
        return segments
    if count == 1:
        return [Segment(0, size, 1, 1)]
    third = max(count // 3, 1)
    segments = [Segment(0, size + (1 - count), count, count)]
    if third > 1:
        segments.append(Segment(size // count * count, size + (1 - third), third, third))
    return [*segments, single_rows(size, count)]


def single_rows(size: Dim, count: int) -> Segment:
    """Return the rows that remain after blocks of ``count`` and of a third of that."""
    full, third = size // count * count, max(count // 3, 1)
    start = full if third == 1 else full + (size - full) // third * third
    return Segment(start, size, 1, 1)


def lane_segments(size: Dim, count: int, lanes: int) -> list[Segment]:
    """Cut the axis along the lanes into blocks of at most ``count`` vectors."""
    if isinstance(size, int):
        return _vectors(0, size, count, lanes)
    return [
        Segment(0, size + (1 - lanes), lanes, 1),
        Segment(size // lanes * lanes, size, lanes, 1, size - dim("j")),
    ]


def panel_segments(panels: Panels, count: int, lanes: int) -> list[Segment]:
    """Cut columns in panels into blocks of at most ``count`` vectors: parts of a panel, or whole panels."""
    size, width = panels.columns, panels.width
    each = width // lanes  # the vectors of a panel
    if count > each:
        segments = _vectors(0, size, count, lanes, each)
        return [replace(s, panel=s.start if s.is_one_block else dim("j")) for s in segments]
    full, step = size // width * width, count if each % count == 0 else 1
    segments = []
    if full:
        first: Dim = 0 if full == width else dim("j") if step == each else dim("j") // width * width
        segments.append(Segment(0, full, step * lanes, step, panel=first))
    if size > full:
        segments += [replace(s, panel=full) for s in _vectors(full, size, count, lanes)]
    return segments


def _vectors(begin: int, size: int, count: int, lanes: int, each: int = 1) -> list[Segment]:
    """Cut the elements from ``begin`` to ``size`` into blocks of vectors; the last block has the partial vector.

    Blocks have a multiple of ``each`` vectors, but for the last one.
    """
    vectors, partial = -(-(size - begin) // lanes), (size - begin) % lanes
    segments: list[Segment] = []
    start = begin
    for extent, step in block_sizes(-(-vectors // each), count // each, True):
        segments.append(Segment(start, start + extent * each * lanes, step * each * lanes, step * each))
        start += extent * each * lanes
    missing = (start - size) // lanes  # vectors that the last block has not
    if not partial and not missing:
        return segments
    last = segments.pop()
    block = start - last.step
    if block != last.start:
        segments.append(replace(last, end=block))
    return [*segments, replace(last, start=block, end=size, count=last.count - missing, partial=partial or None)]
