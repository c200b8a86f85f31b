"""Which loops around kernels threads may share, each with memory of its own."""

from __future__ import annotations

from math import prod

from mlaot.lower.program import Contraction, Loop, kernels_of
from mlaot.schedule.tuning import SHARED_OPERATIONS, SHARED_STEPS


def work_of_round(loop: Loop) -> int | None:
    """Operations of one round of a loop whose rounds threads share, or None where they do not: where it is short."""
    if loop.apart is None or not isinstance(loop.extent, int) or loop.extent < SHARED_STEPS:
        return None
    sizes = [[a.size for a in (*k.out, *k.summed)] for k in kernels_of(loop.steps) if isinstance(k, Contraction)]
    work = sum(prod(s for s in some if isinstance(s, int)) for some in sizes)
    return work if work >= SHARED_OPERATIONS else None
