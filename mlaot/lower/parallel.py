"""Which loops around kernels threads may share, each with memory of its own."""

from __future__ import annotations

from math import prod

from mlaot.lower.program import Loop, kernels_of
from mlaot.schedule.tuning import SHARED_OPERATIONS, SHARED_STEPS


def work_of_round(loop: Loop) -> int | None:
    """Operations of one round of a loop whose rounds threads share, or None where they do not: where it is short."""
    if loop.private is None or not isinstance(loop.extent, int) or loop.extent < SHARED_STEPS:
        return None
    found = [c for kernel in kernels_of(loop.steps) if (c := kernel.contraction) is not None]
    work = sum(prod(axis.size for axis in (*c.out, *c.summed) if isinstance(axis.size, int)) for c in found)
    return work if work >= SHARED_OPERATIONS else None
