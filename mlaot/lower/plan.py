"""The workspace plan: an offset for each buffer, so that two buffers that are live at once never overlap.

kernel   0 1 2 3 4 5
a: 64    x x            at 0
b: 32      x x x        at 64
c: 64        x x x      at 0, as a is dead
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.ir import Dim
from mlaot.ir.dims import largest, nominal, nonnegative, polynomial, terms
from mlaot.ir.dims import most as most_of
from mlaot.lower.program import Bind, Branch, Buffer, Loop, Param, Step, Steps, most_of_steps

Ints = np.ndarray[Any, np.dtype[np.int64]]

LARGEST = 1 << 47  # bytes of a value for nominal dims, more than machines can address; sums of offsets then fit 64 bits


def plan(steps: Sequence[Step]) -> tuple[list[tuple[Buffer, Dim]], Dim]:
    """Return the offsets of the work buffers and the bytes that they take in all, as expressions in the dims."""
    return pack(*_lifetimes(steps), most_of_steps(steps))


def pack(
    first: Mapping[Buffer, int], last: Mapping[Buffer, int], most: Mapping[str, Dim] = MappingProxyType({})
) -> tuple[list[tuple[Buffer, Dim]], Dim]:
    """Return offsets of buffers that live from one kernel to another, and the bytes that they take in all.

    ``most`` has the bounds of dims that are counted in between, for which there is room.

    The largest buffers come first. Each takes the first gap between the buffers live with it that is large enough for
    every value of the dims (Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net Inference, 2020, section
    5.2). Sizes are compared by their ``nominal`` values.
    """
    sizes = {buffer: largest(buffer.bytes, most) for buffer in first}
    for size in sizes.values():
        if sum(abs(coefficient) * nominal(polynomial({m: 1})) for m, coefficient in terms(size).items()) > LARGEST:
            raise MlaotError(
                f"a value inside takes {size} bytes, which no machine can address: its axes must be shorter"
            )
    order = sorted(first, key=lambda b: (-nominal(sizes[b]), first[b]))
    packing = _Packing([sizes[b] for b in order])
    alive = _LiveRanges()
    for i, buffer in enumerate(order):
        live = alive.overlapping(first[buffer], last[buffer])
        packing.place(i, live)
        alive.add(i, first[buffer], last[buffer])
    return [(buffer, packing.start(i)) for i, buffer in enumerate(order)], packing.total


class _LiveRanges:
    """The life times of buffers. Most are short, so they are indexed by spans of kernels."""

    SPAN = 32  # kernels

    def __init__(self) -> None:
        self.spans: dict[int, array[int]] = {}
        self.first, self.last = array("q"), array("q")

    def add(self, i: int, first: int, last: int) -> None:
        self.first.append(first)
        self.last.append(last)
        for span in range(first // self.SPAN, last // self.SPAN + 1):
            self.spans.setdefault(span, array("q")).append(i)

    def overlapping(self, first: int, last: int) -> Ints:
        """Return the buffers that are alive between two kernels."""
        spans = [self.spans.get(span, array("q")) for span in range(first // self.SPAN, last // self.SPAN + 1)]
        near = np.unique(np.concatenate(spans)).astype(np.int64)
        starts, ends = (np.frombuffer(times, np.int64)[near] for times in (self.first, self.last))
        overlapping: Ints = near[(starts <= last) & (first <= ends)]
        return overlapping


class _Packing:
    """The places of buffers, as coefficients of the monomials in their sizes.

    With sizes ``8 * batch`` and ``64``, a place at ``8 * batch + 64`` is the row (8, 64). Monomials are not negative,
    so one place is before another for all dims if no coefficient of its end exceeds that of the other's start.
    Otherwise the expressions are compared with the bounds of their quotients.
    """

    def __init__(self, sizes: Sequence[Dim]) -> None:
        self.monomials = list(dict.fromkeys(m for size in sizes for m in terms(size))) or [()]
        shape = (len(sizes), len(self.monomials))
        self.sizes = np.array([[terms(s).get(m, 0) for m in self.monomials] for s in sizes], np.int64).reshape(shape)
        self.weights = np.array([nominal(polynomial({m: 1})) for m in self.monomials], np.int64)
        self.starts, self.ends = np.zeros_like(self.sizes), np.zeros_like(self.sizes)
        self.low, self.high = np.zeros(len(sizes), np.int64), np.zeros(len(sizes), np.int64)
        self.total: Dim = 0

    def place(self, i: int, live: Ints) -> None:
        """Put a buffer into the first gap between the buffers that are alive with it, or behind them."""
        self.starts[i] = self._gap(i, live[np.argsort(self.low[live], kind="stable")])
        self.ends[i] = self.starts[i] + self.sizes[i]
        self.low[i], self.high[i] = self.starts[i] @ self.weights, self.ends[i] @ self.weights
        self.total = most_of(self.total, self._dim(self.ends[i]))

    def start(self, i: int) -> Dim:
        return self._dim(self.starts[i])

    def _gap(self, i: int, live: Ints) -> Ints:
        """Return the first start at which a buffer fits: 0, or the end of one of the ``live`` buffers.

        Gaps are first tried with numbers for nominal dims: ``reached[k]`` is the highest end before the k-th buffer.
        """
        size: Ints = self.sizes[i]
        start: Ints = np.zeros_like(size)
        if not len(live):
            return start
        reached = np.maximum.accumulate(np.concatenate(([0], self.high[live])))
        wide_enough = np.flatnonzero(reached[:-1] + int(size @ self.weights) <= self.low[live])
        for gap in (*wide_enough.tolist(), len(live)):
            if gap:
                start = self.ends[live[np.argmax(self.high[live[:gap]])]]
            if self._fits(start, start + size, live):
                return start
        for end in self.ends[live]:  # no buffer is known to end last, so the start is behind all of them
            start = np.maximum(start, end)
        return start

    def _fits(self, start: Ints, end: Ints, live: Ints) -> bool:
        starts, ends = self.starts[live], self.ends[live]
        open_ = live[~((ends <= start).all(1) | (end <= starts).all(1))]
        if not len(open_) or len(self.monomials) == 1:
            return not len(open_)
        from_, to = self._dim(start), self._dim(end)
        return all(self._is_clear(from_, to, int(other)) for other in open_)

    def _is_clear(self, start: Dim, end: Dim, other: int) -> bool:
        low, high = int(nominal(start)), int(nominal(end))
        if high <= self.low[other] and at_least(self._dim(self.starts[other]), end):
            return True
        return bool(self.high[other] <= low) and at_least(start, self._dim(self.ends[other]))

    def _dim(self, coefficients: Ints) -> Dim:
        return polynomial(dict(zip(self.monomials, coefficients.tolist(), strict=True)))


def _lifetimes(steps: Sequence[Step]) -> tuple[dict[Buffer, int], dict[Buffer, int]]:
    """Return the first and the last kernel that uses each work buffer, in order of first use.

    A buffer that is also used outside of a loop, or carried from one round to the next, is live as long as the loop. If
    threads share the rows of a loop, all its buffers are, as each thread is in a round and a kernel of its own.
    """
    uses: dict[Buffer, list[int]] = {}
    spans: list[tuple[int, int, set[Buffer], bool]] = []
    position = 0

    def use(params: Iterable[Param]) -> None:
        for param in params:
            if param.buffer.root.where == "work":
                uses.setdefault(param.buffer.root, []).append(position)

    def walk(steps: Iterable[Step]) -> None:
        nonlocal position
        for step in steps:
            if isinstance(step, Steps):
                walk(step.inner)
            elif isinstance(step, Branch):
                use((step.condition,))
                walk((*step.then, *step.otherwise))
            elif isinstance(step, Bind):
                use((step.count,))
                walk(step.inner)
            elif isinstance(step, Loop):
                start = position
                walk(step.tested)
                use(() if step.condition is None else (step.condition,))
                walk(step.steps)
                spans.append((start, position, set(step.carried), bool(step.rows)))
            else:
                use(step.params)
                position += 1

    walk(steps)
    first = {buffer: min(at) for buffer, at in uses.items()}
    last = {buffer: max(at) for buffer, at in uses.items()}
    for start, end, carried, is_shared in spans:  # inner loops come before the loops around them
        for buffer in uses:
            touched = first[buffer] <= end and last[buffer] >= start
            if touched and (is_shared or buffer in carried or first[buffer] < start or last[buffer] >= end):
                first[buffer], last[buffer] = min(first[buffer], start), max(last[buffer], end)
    return first, last


def at_least(a: Dim, b: Dim) -> bool:
    """Tell whether ``a >= b`` is certain for all values of the dims."""
    return nonnegative(a - b)
