"""The workspace: an offset for each buffer, so that two that are alive at once never overlap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mlaot.ir import Dim
from mlaot.ir.dims import Expr, Monomial
from mlaot.lower.program import Buffer, Kernel


def plan(kernels: Sequence[Kernel]) -> tuple[list[tuple[Buffer, Dim]], Dim]:
    """Offsets of the work buffers, and the bytes they take in all, as expressions in the dims.

    First fit by liveness over blocks: a buffer takes the first free block that is large enough for every value of the
    dims, or opens a new one.
    """
    first: dict[Buffer, int] = {}
    last: dict[Buffer, int] = {}
    for position, kernel in enumerate(kernels):
        for param in kernel.params:
            if param.buffer.where == "work":
                first.setdefault(param.buffer, position)
                last[param.buffer] = position
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


def at_least(a: Dim, b: Dim) -> bool:
    """Whether ``a >= b`` for all values of the dims: certain where each coefficient is."""
    left: Mapping[Monomial, int] = dict(a.terms) if isinstance(a, Expr) else {(): a}
    right: Mapping[Monomial, int] = dict(b.terms) if isinstance(b, Expr) else {(): b}
    return all(left.get(key, 0) >= value for key, value in right.items()) and all(v >= 0 for v in left.values())
