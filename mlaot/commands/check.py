"""``mlaot check``: replay a module's golden vectors on this machine."""

from __future__ import annotations

import argparse
from typing import Any

from mlaot.commands.modules import modules_of
from mlaot.commands.output import Data, add_json, report, table
from mlaot.errors import MlaotError
from mlaot.probe import ask

HELP = "replay the golden vectors of a built wheel or module"
DESCRIPTION = """\
Call a built module with the inputs that its golden vectors name, on each
instruction set that this CPU has, and hold the answers against those that were
computed in float64 when it was made. The table has the largest error as a share
of what is allowed. The exit status is 1 if an answer is further off than that.
"""
EXAMPLES = """\
  mlaot check digits-1.0.0-cp311-abi3-linux_x86_64.whl    a wheel, also one that another machine made
  mlaot check digits.nn                                   an installed module
"""


def add(parser: argparse.ArgumentParser) -> None:
    """The arguments."""
    parser.add_argument("target", help="a wheel, an extension module's file, or a module's name")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """All modules of the target, on all instruction sets."""
    with modules_of(options.target) as modules:
        if not modules:
            raise MlaotError(f"{options.target} holds no extension module")
        found: dict[str, Any] = {module.name: ask(module, "selftest") for module in modules}
    report(found, show, options)
    return 0 if all("missed" not in answer for answer in found.values()) else 1


def show(found: Data) -> None:
    """A line for each module and instruction set; what was missed."""
    rows = [
        (name, isa, f"{100 * share:.1f} % of the bound")
        for name, answer in found.items()
        for isa, share in answer.get("shares", {}).items()
    ]
    rows += [(name, "", f"MISSED: {answer['missed']}") for name, answer in found.items() if "missed" in answer]
    rows += [(name, "", "has no golden vectors") for name, answer in found.items() if answer.get("shares") == {}]
    table(("module", "instruction set", "largest error"), rows)
