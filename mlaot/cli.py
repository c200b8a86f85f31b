"""The ``mlaot`` command: look at what a build makes, without building."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from mlaot.build import child
from mlaot.settings import FILE, Settings, load_settings, settings_of

EXAMPLES = """\
examples:
  mlaot emit . --out c          write the C files and the CMakeLists.txt that a wheel of this project is made of
  mlaot passes .                how many nodes the graph has after each pass, for each model of the project
  mlaot passes model:digits     the same for one function, without a pyproject.toml

To build a wheel, use pip: pip wheel --no-deps .
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of ``mlaot`` and ``python -m mlaot``; the exit status."""
    options = parser().parse_args(arguments)
    status: int = options.run(options)
    return status


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="mlaot",
        description="Compile machine-learning models into Python extension modules.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    emit = commands.add_parser("emit", help="write the generated C files", description="Write the generated C files.")
    emit.add_argument("project", nargs="?", default=".", help=f"folder with a {FILE} (default: this one)")
    emit.add_argument("--out", required=True, help="folder for the files")
    emit.set_defaults(run=run_emit)
    passes = commands.add_parser(
        "passes",
        help="print node counts per pass",
        description="Print the number of nodes of the graph after each pass.",
    )
    passes.add_argument(
        "target", nargs="?", default=".", help=f"folder with a {FILE} (default: this one), or module:attribute"
    )
    passes.set_defaults(run=run_passes)
    return top


def run_emit(options: argparse.Namespace) -> int:
    """``mlaot emit PROJECT --out DIR``."""
    return child.main([options.project, options.out])


def run_passes(options: argparse.Namespace) -> int:
    """``mlaot passes PROJECT|module:attribute``."""
    project, settings = Path(), None
    try:
        project, settings = find_target(options.target)
        with child.tracing(settings, project):
            from mlaot.generate import pass_report

            print(pass_report(settings, project).rstrip())
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        child.complain(error, project, settings)
        return 1
    return 0


def find_target(target: str) -> tuple[Path, Settings]:
    """A project folder, or else module:attribute in the current folder."""
    project = Path(target)
    if project.is_dir() or ":" not in target:
        return project, load_settings(project)
    return Path(), settings_of(target)


if __name__ == "__main__":
    sys.exit(main())
