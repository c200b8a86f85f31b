"""The ``mlaot`` command: parse the command line, and report errors of all commands."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from mlaot.commands import (
    bench,
    bisect,
    build,
    check,
    completion,
    diff,
    doctor,
    emit,
    init,
    inspect,
    passes,
    report,
    tune,
    verify,
    wheel,
)
from mlaot.errors import MlaotError
from mlaot.stages import report_progress

# In the order of a user's work.
COMMANDS = (
    init,
    doctor,
    build,
    wheel,
    inspect,
    report,
    check,
    verify,
    diff,
    bench,
    emit,
    passes,
    bisect,
    tune,
    completion,
)
EPILOG = """\
`mlaot COMMAND --help` has examples. Wheels are made by pip, too: pip wheel --no-deps .

exit status:
  0    all is well
  1    a model, a project or a module is wrong; the last line on stderr says where and how to mend it
  2    wrong usage
  130  interrupted by Ctrl-C
"""
USAGE = 2
INTERRUPTED, PIPE_CLOSED = 130, 141  # 128 plus the number of the signal, as in a shell


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``mlaot`` or ``python -m mlaot``, and return the exit status."""
    try:
        try:
            options = parser().parse_args(arguments)
            with report_progress(options.stages, verbose=getattr(options, "verbose", False)):
                status: int = options.run(options)
        finally:
            sys.stdout.flush()
    except MlaotError as error:
        print(f"mlaot: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more when it ends
        return PIPE_CLOSED
    except OSError as error:
        print(f"mlaot: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    return status


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = argparse.ArgumentParser(
        prog="mlaot",
        description="Compile machine-learning models into Python extension modules.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    folder = str(Path(__file__).parent / "cmake")
    top.add_argument("--version", action="version", version=f"mlaot {importlib.metadata.version('mlaot')}")
    top.add_argument("--cmake-dir", action="version", version=folder, help="print what CMake wants as mlaot_ROOT")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", dest="command")

    def show_help(options: argparse.Namespace) -> int:
        top.print_help()
        return USAGE

    top.set_defaults(run=show_help, stages=(), parser=parser)
    for command in COMMANDS:
        subparser = commands.add_parser(
            command.__name__.rpartition(".")[2],
            help=command.HELP,
            description=command.DESCRIPTION,
            epilog=f"examples:\n{command.EXAMPLES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add(subparser)
        subparser.set_defaults(run=command.run, stages=getattr(command, "STAGES", ()))
    return top


if __name__ == "__main__":
    sys.exit(main())
