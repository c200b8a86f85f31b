"""``mlaot tune``: schedules by measurement; ``mlaot/tune.py`` does the measuring."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from mlaot.commands.project import FOLDER, find_folder, project_of
from mlaot.settings import Settings
from mlaot.settings.tuned import TUNED, read_tuned, write_tuned

if TYPE_CHECKING:
    from mlaot.lower.program import Program
    from mlaot.schedule.machine import Machine
    from mlaot.tune import Measured

HELP = "find the fastest block sizes on this machine"
DESCRIPTION = f"""\
Time the block sizes of matrix products and convolutions on this machine, and
store those that are faster than the compiler's choice in {TUNED}.
Builds read it where it is there; it is never needed.
"""
EXAMPLES = """\
  mlaot tune                  measure the products of the project in this folder
"""


def add(parser: argparse.ArgumentParser) -> None:
    """The arguments."""
    parser.add_argument("project", nargs="?", default=".", help=FOLDER)


def run(options: argparse.Namespace) -> int:
    """Measure, then store."""
    with project_of(options.project, find_folder) as (project, settings):
        tune(project, settings)
    return 0


def tune(project: Path, settings: Settings) -> None:
    """Measure the products of a project's models; write down which were faster otherwise."""
    from mlaot.build.toolchain import find_compiler
    from mlaot.generate import compile_for
    from mlaot.schedule.machine import MACHINES
    from mlaot.tune import by_machine

    command = find_compiler()
    programs = [compile_for(settings, model, lambda program: program) for model in settings.models]
    for name, some in by_machine(programs, settings.isas, command).items():
        tune_for(MACHINES[name], some, project, command)


def tune_for(isa: Machine, programs: list[Program], project: Path, command: list[str]) -> None:
    """Measure the products of programs on one instruction set of this machine."""
    from mlaot.tune import contractions, measure

    kernels = contractions(programs)
    tuned = dict(read_tuned(project).get(isa.name, {}))
    for number, kernel in enumerate(kernels, 1):
        found = measure(kernel, isa, command)
        tuned.pop(found.description, None)
        if found.best != found.chosen:
            tuned[found.description] = found.best
        print(f"{number}/{len(kernels)}  {found.what}\n    {tuned_line(found)}", flush=True)
    write_tuned(project, {**read_tuned(project), isa.name: tuned})
    print(f"{project / TUNED}: {len(tuned)} of {len(kernels)} products are faster so, with {isa.name}")


def tuned_line(found: Measured) -> str:
    """``i=6 j=4: 812.1 us``, or what it takes instead."""
    best, chosen = (f"{s}: {1e6 * found.seconds[s]:.1f} us" for s in (found.best, found.chosen))
    return best if found.best == found.chosen else f"{best} instead of {chosen} ({found.gain:.2f})"
