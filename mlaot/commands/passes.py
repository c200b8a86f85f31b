"""``mlaot passes``: how the graph shrinks."""

from __future__ import annotations

import argparse

from mlaot.commands.project import TARGET, project_of

HELP = "print node counts per pass"
DESCRIPTION = "Print the number of nodes of the graph after each pass that changed it."
EXAMPLES = """\
  mlaot passes                                 each model of the project in this folder
  mlaot passes model:digits                    one function, without a pyproject.toml
  MLAOT_DUMP=raise_tensors mlaot passes        the graphs after that pass as well
"""


def add(parser: argparse.ArgumentParser) -> None:
    """The arguments."""
    parser.add_argument("target", nargs="?", default=".", help=TARGET)


def run(options: argparse.Namespace) -> int:
    """One block of lines for a model."""
    with project_of(options.target) as (project, settings):
        from mlaot.generate import pass_report

        print(pass_report(settings, project).rstrip())
    return 0
