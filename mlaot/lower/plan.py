"""The workspace: an offset for each buffer, so that two that are alive at once never overlap."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mlaot.ir import Dim
from mlaot.ir.dims import Expr, Monomial
from mlaot.lower.program import Branch, Buffer, Loop, Param, Step
from mlaot.lower.program import Sequence as Sequence_


def plan(steps: Sequence[Step]) -> tuple[list[tuple[Buffer, Dim]], Dim]:
    """Offsets of the work buffers, and the bytes they take in all, as expressions in the dims.

    First fit by liveness over blocks: a buffer takes the first free block that is large enough for every value of the
    dims, or opens a new one.
    """
    first, last = _lifetimes(steps)
    blocks: list[tuple[Dim, int]] = []  # bytes, the last kernel that uses it
    placed: list[tuple[Buffer, int]] = []
    for buffer in sorted(first, key=lambda b: first[b]):
        free = (i for i, (size, busy) in enumerate(blocks) if busy < first[buffer] and at_least(size, buffer.bytes))
        i = next(free, len(blocks))
        if i == len(blocks):
            blocks.append((buffer.bytes, -1))
        blocks[i] = (blocks[i][0], last[buffer])
        placed.append((buffer, i))
    starts: list[Dim] = []
    total: Dim = 0
    for size, _ in blocks:
        starts.append(total)
        total = size + total if isinstance(size, Expr) else total + size
    return [(buffer, starts[i]) for buffer, i in placed], total


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
    """Whether ``a >= b`` for all values of the dims: certain where each coefficient is."""
    if a == b:
        return True
    left: Mapping[Monomial, int] = dict(a.terms) if isinstance(a, Expr) else {(): a}
    right: Mapping[Monomial, int] = dict(b.terms) if isinstance(b, Expr) else {(): b}
    return all(left.get(key, 0) >= value for key, value in right.items()) and all(v >= 0 for v in left.values())
