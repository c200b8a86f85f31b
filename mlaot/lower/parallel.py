"""Which loop of a kernel threads may share: one whose rounds write elements of their own.

    for (ptrdiff_t i = 0; i < batch; i++) {        =>        for (ptrdiff_t i = begin; i < end; i++) {

A tile of several rounds belongs to the part of the range in which it starts. So each element is computed by the same
statements however the range is cut, and the results do not depend on the number of threads, to the last bit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from mlaot.lower.program import Contraction, Kernel, Loop, NestKernel, Plain, Sparse, Trees, kernels_of
from mlaot.schedule.machine import Machine as Isa
from mlaot.schedule.tuning import (
    LIGHT_OPERATIONS,
    SHARED_OPERATIONS,
    SHARED_ROUNDS,
    SHARED_STEPS,
)

LOOP = re.compile(r"for \(ptrdiff_t (\w+) = (.+); \1 < (.+); \1(?:\+\+| \+= (\d+))\) \{")  # and no other form

Loops = Sequence[tuple[str, str]]  # variable and extent, outermost first


@dataclass(frozen=True)
class Split:
    """The loop over ``variable`` from 0 to ``extent``, in parts of multiples of ``step`` rounds.

    ``work``: operations of one round, a C expression in the dims as ``extent`` is.
    """

    variable: str
    extent: str
    step: int
    work: str


def split(kernel: Kernel, isa: Isa) -> Split | None:
    """The loop of ``kernel`` that threads share, or None where there is none or it is short."""
    if isinstance(
        kernel, Trees | Sparse | NestKernel
    ):  # what they make of a row lies in memory that threads have in common
        return None
    assert isinstance(kernel, Plain)
    found = _of_plain(kernel)
    if found is None or found.extent == "1":
        return None
    if not found.work.isdigit():
        return found
    work = int(found.work)
    is_short = found.extent.isdigit() and int(found.extent) * work < SHARED_OPERATIONS
    is_light = work < LIGHT_OPERATIONS
    return None if is_short or is_light else found


def work_of_round(loop: Loop) -> int | None:
    """Operations of one round of a loop whose rounds threads share, or None where they do not: where it is short."""
    if loop.apart is None or not isinstance(loop.extent, int) or loop.extent < SHARED_STEPS:
        return None
    sizes = [[a.size for a in (*k.out, *k.summed)] for k in kernels_of(loop.steps) if isinstance(k, Contraction)]
    work = sum(prod(s for s in some if isinstance(s, int)) for some in sizes)
    return work if work >= SHARED_OPERATIONS else None


def part_of(text: str, found: Split) -> str:
    """The text of a kernel with the shared loops from ``begin`` to ``end`` only."""

    def part(match: re.Match[str]) -> str:
        variable, start, end, step = match.groups()
        if variable != found.variable:
            return match[0]
        if (start, end, step) == ("0", found.extent, None):
            return f"for (ptrdiff_t {variable} = begin; {variable} < end; {variable}++) {{"
        first, last = f"first_from({start}, {step or 1}, begin)", f"least({end}, end)"
        return f"for (ptrdiff_t {variable} = {first}; {variable} < {last}; {variable} += {step or 1}) {{"

    return LOOP.sub(part, text)


def _of_loops(loops: Loops, work: Iterable[str]) -> Split | None:
    """The outermost loop that is known to be long, else the outermost one of unknown length."""
    long = [v for v, extent in loops if extent.isdigit() and int(extent) >= SHARED_ROUNDS]
    unknown = [v for v, extent in loops if not extent.isdigit()]
    chosen = next(iter(long or unknown), None)
    if chosen is None:
        return None
    others = [extent for v, extent in loops if v != chosen]
    return Split(chosen, dict(loops)[chosen], 1, _product([*others, *work]))


def _of_plain(kernel: Plain) -> Split | None:
    inner = [match[3] for match in LOOP.finditer("\n".join(kernel.body))]
    return _of_loops(kernel.loops, [*inner, str(8 * len(kernel.body))])  # slower than vectors


def _product(factors: Iterable[str]) -> str:
    """C text of a product, its numbers in one."""
    texts = [*factors]
    number = prod(int(text) for text in texts if text.isdigit())
    others = [text if text.isidentifier() else f"({text})" for text in texts if not text.isdigit()]
    return " * ".join(others + ([str(number)] if number != 1 or not others else []))
