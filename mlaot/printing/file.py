"""Print a program: the C file of all entries for one instruction set, with each distinct kernel once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from mlaot.ir.dims import NOMINAL
from mlaot.lower.program import Kernel, Program
from mlaot.printing.entries import entries
from mlaot.printing.functions import Function, Functions
from mlaot.printing.helpers import callers, definitions
from mlaot.printing.parts import ENTRIES, bit_of, count_of, digest, symbol
from mlaot.printing.printer import print_nest
from mlaot.printing.spelling import MEMORY
from mlaot.printing.vectors import seconds_of_calls, vector_types
from mlaot.render import render
from mlaot.schedule.contraction import contraction_of, description
from mlaot.schedule.machine import Machine, condition
from mlaot.schedule.nests import schedule_nest
from mlaot.schedule.tuning import KERNELS_SECONDS

LONG_KERNELS = '#pragma GCC optimize("O1")'  # stands in a file that would take long to compile


def kernels_file(program: Program, prefix: str, machine: Machine, called: dict[int, str] | None = None) -> str:
    """Return the C file of ``program`` for ``machine``; the names of its entries begin with ``prefix``.

    The entries of a module with a profile call ``mark`` after each kernel, to time it. With ``called`` those of any
    module do so, on one thread. ``called`` gets the name of each kernel's function, by the id of the kernel.
    """
    tuned = tuple(program.module.tuned.get(machine.name, {}).items())
    machine = replace(machine, deterministic=program.module.options.deterministic, tuned=tuned)
    ends = ("", "_forward", "_backward")
    taken = [f"{prefix}_{p.entry.name}{end}_{machine.name}" for p in program.procedures for end in ends]
    is_timed = called is not None
    functions = Functions(machine, taken, threads=not is_timed)
    marks = program.numbers if is_timed or program.module.options.profile else None
    docs: list[str] = []
    entry_functions: list[Function] = []
    for procedure in program.procedures:
        own = entries(program.module, procedure, prefix, functions, marks)
        docs += [procedure.entry.doc.rstrip("\\ ")] * len(own)  # a backslash would continue the comment
        entry_functions += own
    if called is not None:
        called |= functions.called
    kernels = [*functions.kernels.values()]
    unplaced = [a.name for kernel in kernels for a in kernel.nest.params if a.panels is not None]
    assert not unplaced, f"bug in mlaot: no schedule has said where elements of {unplaced} lie"
    seconds = sum(map(seconds_of, (*kernels, *functions.tasks, *entry_functions)))
    count = 1 if is_timed else count_of(seconds)
    if count > 1:
        digests = [digest(kernel.content) for kernel in kernels]
        bits = [bit_of(each, count) for each in digests]
        symbols = [symbol(prefix, each, machine.name) for each in digests]
    else:
        bits, symbols = [ENTRIES] * len(kernels), [kernel.name for kernel in kernels]
    entry_calls = [(function.printed.calls, ENTRIES) for function in (*functions.tasks, *entry_functions)]
    calls = [*zip((kernel.printed.calls for kernel in kernels), bits, strict=True), *entry_calls]
    helpers = definitions(_in_order(calls), machine, prefix)
    undefined = {name for names, _ in calls for name in names} - helpers.keys()
    assert not undefined, f"bug in mlaot: nothing defines {sorted(undefined)}, which kernels call"
    parts = callers(helpers, calls)
    is_long = seconds > KERNELS_SECONDS
    return render(
        "kernels.c.j2",
        module=program.module,
        isa=machine,
        condition=condition(machine.name, program.module.isas),
        stem=program.module.stem,
        types=vector_types(machine, is_long=is_long),
        helpers=[(text, hex(parts[name])) for name, text in helpers.items()],
        kernels=[*zip(kernels, symbols, map(hex, bits), strict=True)],
        tasks=functions.tasks,
        entries=[*zip(entry_functions, docs, strict=True)],
        parts=count if count > 1 else 0,
        long_kernels=LONG_KERNELS if is_long else "",
        has_loops=any(kernel.printed.is_scalar for kernel in kernels),
    )


def seconds_of(function: Function) -> float:
    """Estimate gcc's time for a function at -O2: 0.06 ms for a line, 15 ms for a transcendental function."""
    return 6e-5 * function.printed.lines.count("\n") + seconds_of_calls(function.printed.calls)


def _in_order(calls: Iterable[tuple[Mapping[str, int], int]]) -> list[str]:
    """Return the names of all functions that are called."""
    return list(dict.fromkeys(name for names, _ in calls for name in names))


def candidates_file(kernel: Kernel, schedules: list[str], machine: Machine) -> str:
    """Return a C file that computes a contraction by each of some ``schedules``, to time them.

    Its ``run(i, times, p)`` uses the i-th; named dims are nominal, and ``p`` points to the arrays.
    """
    dims, contraction = kernel.nest.dims, description(contraction_of(kernel.nest))
    tuned = [replace(machine, tuned=((contraction, schedule),)) for schedule in schedules]
    kernels = [print_nest(schedule_nest(kernel.nest, each), dims, machine.bytes) for each in tuned]
    helpers = definitions(_in_order((printed.calls, ENTRIES) for printed in kernels), machine)
    return render(
        "candidates.c.j2",
        types=vector_types(machine),
        helpers=helpers.values(),
        kernels=kernels,
        arrays=[MEMORY[p.buffer.dtype] for p in kernel.params],
        dims=[NOMINAL] * len(dims),
    )
