"""``mlaot tune``: choose schedules by measurement; ``mlaot/tune.py`` measures."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from mlaot.commands.project import FOLDER, find_folder, project_of
from mlaot.settings import Settings
from mlaot.settings.tuned import TUNED, read_tuned, write_tuned
from mlaot.stages import GENERATE, TIMING, stage

if TYPE_CHECKING:
    from mlaot.lower.program import Program
    from mlaot.schedule.machine import Machine
    from mlaot.tune import Measurement

STAGES = (*GENERATE, TIMING)
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
    """Add the arguments of the command."""
    parser.add_argument("project", nargs="?", default=".", help=FOLDER)


def run(options: argparse.Namespace) -> int:
    """Measure and store the schedules."""
    with project_of(options.project, find_folder) as (project, settings):
        tune(project, settings)
    return 0


def tune(project: Path, settings: Settings) -> None:
    """Measure the products of a project's models, and store the schedules that were faster."""
    from mlaot.build.toolchain import find_compiler
    from mlaot.generate import compile_for
    from mlaot.schedule.machine import MACHINES
    from mlaot.tune import group_by_machine

    command = find_compiler()
    programs = [compile_for(settings, model, lambda program: program) for model in settings.models]
    for name, programs_ in group_by_machine(programs, settings.isas, command).items():
        tune_for(MACHINES[name], programs_, project, command)


def tune_for(isa: Machine, programs: list[Program], project: Path, command: list[str]) -> None:
    """Measure the products of programs on one instruction set of this machine."""
    from mlaot.tune import contractions, measure

    kernels = contractions(programs)
    tuned = dict(read_tuned(project).get(isa.name, {}))
    with stage(TIMING, len(kernels)) as advance:
        for number, kernel in enumerate(kernels, 1):
            advance(isa.name)
            result = measure(kernel, isa, command)
            tuned.pop(result.description, None)
            if result.best != result.chosen:
                tuned[result.description] = result.best
            print(f"{number}/{len(kernels)}  {result.what}\n    {tuned_line(result)}", flush=True)
    write_tuned(project, {**read_tuned(project), isa.name: tuned})
    print(f"{project / TUNED}: {len(tuned)} of {len(kernels)} products are faster so, with {isa.name}")


def tuned_line(result: Measurement) -> str:
    """Format a result: ``i=6 j=4: 812.1 us``, with the schedule that it replaces if it is faster."""
    best, chosen = (f"{s}: {1e6 * result.seconds[s]:.1f} us" for s in (result.best, result.chosen))
    return best if result.best == result.chosen else f"{best} instead of {chosen} ({result.gain:.2f})"
