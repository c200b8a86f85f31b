"""Loops around kernels whose rounds threads may share, each thread with memory of its own."""

from __future__ import annotations

from math import prod

from mlaot.lower.program import Loop, kernels_of
from mlaot.schedule.tuning import SHARED_OPERATIONS, SHARED_STEPS


def work_of_round(loop: Loop) -> int | None:
    """Return the operations of one round of a loop that threads share, or None for a loop too short to share."""
    if loop.private is None or not isinstance(loop.extent, int) or loop.extent < SHARED_STEPS:
        return None
    contractions = [c for kernel in kernels_of(loop.steps) if (c := kernel.contraction) is not None]
    work = sum(prod(axis.size for axis in (*c.out, *c.summed) if isinstance(axis.size, int)) for c in contractions)
    return work if work >= SHARED_OPERATIONS else None
