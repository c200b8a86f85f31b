"""``mlaot check``: check that a wheel's files are unchanged, and that its modules compute correctly on this machine."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from mlaot.commands.modules import modules_of
from mlaot.commands.output import Data, add_json, report, table
from mlaot.commands.record import wrong_files
from mlaot.probe import ask
from mlaot.stages import CHECKING, stage

HELP = "check a wheel's files, and replay the golden vectors of its modules"
DESCRIPTION = """\
Hold the files of a wheel against its RECORD: each one is there, with the digest
and the size that it had when it was packed, and no other. Nothing of a wheel
where that is not so is run.

Call a built module with the inputs that its golden vectors name, on each
instruction set that this CPU has, and hold the answers against those that were
computed in float64 when it was made. The table has the largest error as a share
of what is allowed. The exit status is 1 if an answer is further off than that,
or a file is not as it should be.
"""
EXAMPLES = """\
  mlaot check digits-1.0.0-cp311-abi3-linux_x86_64.whl    a wheel, also one that another machine made
  mlaot check digits.nn                                   an installed module
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("target", help="a wheel, an extension module's file, or a module's name")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Check the files of a wheel, then all modules of the target on all instruction sets."""
    path = Path(options.target)
    if wrong := wrong_files(path) if path.suffix == ".whl" and not path.is_dir() else []:
        report({"wrong": [{"file": file, "what": what} for file, what in wrong]}, show_wrong, options)
        return 1
    with modules_of(options.target, required=True) as modules:
        answers: dict[str, Any] = {}
        with stage(CHECKING, len(modules)) as advance:
            for module in modules:
                advance(module.name)
                answers[module.name] = ask(module, "selftest")
    report(answers, show, options)
    return 0 if all("missed" not in answer for answer in answers.values()) else 1


def show(data: Data) -> None:
    """Print a line for each module and instruction set, and a line for each answer outside of its bound."""
    rows = [
        (name, isa, f"{100 * share:.1f} % of the bound")
        for name, answer in data.items()
        for isa, share in answer.get("shares", {}).items()
    ]
    rows += [(name, "", f"MISSED: {answer['missed']}") for name, answer in data.items() if "missed" in answer]
    rows += [(name, "", "has no golden vectors") for name, answer in data.items() if answer.get("shares") == {}]
    table(("module", "instruction set", "largest error"), rows)


def show_wrong(data: Data) -> None:
    """Print a line for each file that is wrong."""
    for row in data["wrong"]:
        print(f"{row['file']}: {row['what']}")
