"""``mlaot emit``: the C of a project, without compiling it."""

from __future__ import annotations

import argparse

from mlaot.commands.project import FOLDER

HELP = "write the generated C files"
DESCRIPTION = "Write the C files and the CMakeLists.txt that a wheel of the project is made of."
EXAMPLES = """\
  mlaot emit . --out c        the files of this project, in the folder c
  cmake -S c -B c/build       what to do with them without pip
"""


def add(parser: argparse.ArgumentParser) -> None:
    """The arguments."""
    parser.add_argument("project", nargs="?", default=".", help=FOLDER)
    parser.add_argument("--out", required=True, help="folder for the files")


def run(options: argparse.Namespace) -> int:
    """As a build does it, but in this process."""
    from mlaot.build import child

    return child.main([options.project, options.out])
