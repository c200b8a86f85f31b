"""Random graphs, lowered and scheduled for every machine, run by the interpreter before and after: without a compiler.

    python -m tests.fuzz.nests --count 2000 --seed 0

The graphs, the yardstick and the error bounds are those of ``random_graphs.py``. Every nest is verified as it was built
and as each machine runs it.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable

from mlaot.frontend.trace.declaration import Traced
from mlaot.ir import Graph
from mlaot.lower.program import Program
from mlaot.nest.statements import Nest
from mlaot.nest.verify import verify
from mlaot.schedule.machine import MACHINES, Machine
from mlaot.schedule.nests import schedule_nest

from ..interpreted import Interpreted
from .random_graphs import Case, make_case, programs_of, report, run_case


def run(seeds: Iterable[int], machines: Iterable[str] = tuple(MACHINES)) -> tuple[list[Case], Counter[str]]:
    """The cases that failed, and what was compared."""
    counts: Counter[str] = Counter()
    failed: list[Case] = []
    for seed in seeds:
        counts["graphs"] += 1
        case = Case(f"g{seed}", Traced(Graph("model"), {}), seed)
        try:
            case = make_case(seed)
            programs = programs_of([case], counts)
            for program in programs.values():
                _verify(program, machines, counts)
            ways = [Interpreted(programs, "base", as_built), *(Interpreted(programs, m) for m in machines)]
            for way in ways:
                run_case(case, dict.fromkeys(programs, way), counts, [seed % 3])
        except Exception:
            case.failures.append(traceback.format_exc(limit=-4))
        failed += [case] if case.failures else []
    return failed, counts


def as_built(nest: Nest, machine: Machine) -> Nest:
    """No schedule."""
    return nest


def _verify(program: Program, machines: Iterable[str], counts: Counter[str]) -> None:
    """Raise an AssertionError for a nest that cannot be right."""
    for kernel in (kernel for procedure in program.procedures for kernel in procedure.kernels):
        for nest in (kernel.nest, *(schedule_nest(kernel.nest, MACHINES[machine]) for machine in machines)):
            verify(nest)
            counts["nests"] += 1


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0],
        epilog="example: python -m tests.fuzz.nests --count 100 --machine v3",
    )
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="of the first graph")
    parser.add_argument("--machine", choices=list(MACHINES), action="append", help="default: all")
    options = parser.parse_args()
    started = time.monotonic()
    seeds = range(options.seed, options.seed + options.count)
    failed, counts = run(seeds, options.machine or tuple(MACHINES))
    print(report(failed, counts), f"in {time.monotonic() - started:.0f} s")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
