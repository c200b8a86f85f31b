"""The workspace: an offset for each buffer, so that two that are alive at once never overlap."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from mlaot.ir import Dim
from mlaot.ir.dims import assumed, most, nonnegative
from mlaot.lower.program import Branch, Buffer, Loop, Param, Step
from mlaot.lower.program import Sequence as Sequence_


def plan(steps: Sequence[Step]) -> tuple[list[tuple[Buffer, Dim]], Dim]:
    """Offsets of the work buffers, and the bytes they take in all, as expressions in the dims."""
    return pack(*_lifetimes(steps))


def pack(first: Mapping[Buffer, int], last: Mapping[Buffer, int]) -> tuple[list[tuple[Buffer, Dim]], Dim]:
    """The same for buffers that live from one kernel to another.

    The largest ones come first, and each takes the first gap, large enough for every value of the dims, between those
    that are alive with it (Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net Inference, 2020, section
    5.2). Which is larger or comes first is decided by what their sizes are ``assumed`` to be.
    """
    sizes = {buffer: buffer.bytes for buffer in first}
    places: dict[Buffer, _Place] = {}
    total: Dim = 0
    for buffer in sorted(first, key=lambda b: (-assumed(sizes[b]), first[b])):
        others = [place for b, place in places.items() if first[b] <= last[buffer] and first[buffer] <= last[b]]
        start = _gap(sizes[buffer], others)
        places[buffer] = place = _place(start, sizes[buffer])
        total = most(total, place.end)
    return [(buffer, place.start) for buffer, place in places.items()], total


class _Place(NamedTuple):
    """From where to where a buffer lies, and what both are assumed to be."""

    start: Dim
    end: Dim
    low: int
    high: int

    def is_before(self, other: _Place) -> bool:
        return self.high <= other.low and at_least(other.start, self.end)  # the quick look first


def _place(start: Dim, size: Dim) -> _Place:
    return _Place(start, start + size, assumed(start), assumed(start + size))


def _gap(size: Dim, taken: Iterable[_Place]) -> Dim:
    """Where so many bytes lie first between or behind those that are ``taken``."""
    parts = sorted(taken, key=lambda part: part.low)
    start: Dim = 0
    for part in parts:
        place = _place(start, size)
        if place.is_before(part) and all(place.is_before(other) or other.is_before(place) for other in parts):
            break
        start = most(start, part.end)
    return start


def _lifetimes(steps: Sequence[Step]) -> tuple[dict[Buffer, int], dict[Buffer, int]]:
    """The first and the last kernel that uses each work buffer, in order of first use.

    What is used outside of a loop too, or carried from one round to the next, lives as long as the loop.
    """
    uses: dict[Buffer, list[int]] = {}
    spans: list[tuple[int, int, set[Buffer]]] = []
    position = 0

    def use(params: Iterable[Param]) -> None:
        for param in params:
            if param.buffer.whole.where == "work":
                uses.setdefault(param.buffer.whole, []).append(position)

    def walk(some: Iterable[Step]) -> None:
        nonlocal position
        for step in some:
            if isinstance(step, Sequence_):
                walk(step.steps)
            elif isinstance(step, Branch):
                use((step.condition,))
                walk((*step.then, *step.otherwise))
            elif isinstance(step, Loop):
                start = position
                walk(step.tested)
                use(() if step.condition is None else (step.condition,))
                walk(step.steps)
                spans.append((start, position, set(step.carried)))
            else:
                use(step.params)
                position += 1

    walk(steps)
    first = {buffer: min(at) for buffer, at in uses.items()}
    last = {buffer: max(at) for buffer, at in uses.items()}
    for start, end, carried in spans:  # inner loops come before the loops around them
        for buffer in uses:
            touched = first[buffer] <= end and last[buffer] >= start
            if touched and (buffer in carried or first[buffer] < start or last[buffer] >= end):
                first[buffer], last[buffer] = min(first[buffer], start), max(last[buffer], end)
    return first, last


def at_least(a: Dim, b: Dim) -> bool:
    """Whether ``a >= b`` for all values of the dims, as far as can be told."""
    return nonnegative(a - b)
