"""``mlaot bench``: measure what a call costs."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from mlaot.commands.modules import modules_of
from mlaot.commands.output import Data, add_json, report, table
from mlaot.errors import MlaotError
from mlaot.probe import BuiltModule, ask
from mlaot.schedule.machine import MACHINES
from mlaot.stages import TIMING, stage

HELP = "time the functions of a built module"
DESCRIPTION = """\
Time a call of each function of a built wheel, an extension module's file or an
importable module, on this machine and one thread unless the module says more:
the median, the fastest and the slowest of several rounds, from Python, with
seeded random inputs. Nothing else should run meanwhile.
"""
EXAMPLES = """\
  mlaot bench digits-1.0-cp311-abi3-linux_x86_64.whl
  mlaot bench digits.nn --isa all           an installed module, with each instruction set
  mlaot bench digits.nn --json              in seconds, as data
"""
BATCHES = (1, 16, 256)
TIMES = {"median": "median (us)", "least": "fastest", "most": "slowest"}


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("target", help="wheel, extension module's file, or module's name")
    parser.add_argument("--isa", choices=[*MACHINES, "all"], help="instruction set (default: the best of this machine)")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Time each module in a process for each instruction set."""
    with modules_of(options.target, required=True) as modules:
        pairs = [(module, isa) for module in modules for isa in instruction_sets(module, options.isa)]
        with stage(TIMING, len(pairs)) as advance:
            runs = []
            for module, isa in pairs:
                advance(f"{module.name} {isa or ''}".rstrip())
                runs.append(ask(module, "bench", isa=isa, batches=BATCHES))
    report({"runs": runs}, show, options)
    return 0


def instruction_sets(module: BuiltModule, choice: str | None) -> list[str | None]:
    """Return what ``--isa`` selects: with ``all``, the module's instruction sets that this machine has."""
    return list(available(module)) if choice == "all" else [choice]


def available(module: BuiltModule) -> Iterator[str]:
    """Yield the instruction sets of a module that can be imported on this machine."""
    for isa in ask(module, "info")["isas"]:
        try:
            ask(module, "info", isa=isa)
        except MlaotError:
            continue
        yield isa


def show(data: Data) -> None:
    """Print the times of a module as one table, in microseconds."""
    rows = [
        (run["module"], run["isa"], row["entry"], row["batch"] or "", *[f"{1e6 * row[key]:,.2f}" for key in TIMES])
        for run in data["runs"]
        for row in run["rows"]
    ]
    table(("module", "isa", "function", ">batch", *[f">{key}" for key in TIMES.values()]), rows)
    for run in data["runs"]:
        for entry, why in run["refused"].items():
            print(f"{run['module']}: {entry} was not timed, it refuses random inputs: {why}")
