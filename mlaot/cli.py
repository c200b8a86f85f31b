"""The ``mlaot`` command: look at what a build makes, without building."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mlaot.build import child
from mlaot.build.cmake import module_files
from mlaot.build.sources import depfile
from mlaot.errors import MlaotError
from mlaot.settings import (
    FILE,
    TUNED,
    Model,
    Settings,
    load_module,
    load_settings,
    read_tuned,
    settings_of,
    write_tuned,
)

if TYPE_CHECKING:
    from mlaot.tune import Measured

EXAMPLES = """\
examples:
  mlaot emit . --out c          write the C files and the CMakeLists.txt that a wheel of this project is made of
  mlaot emit --model digits.model:build --module digits.nn --source-dir src --out c
                                the C of one module, for a build of your own; no [tool.mlaot] needed
  mlaot passes .                how many nodes the graph has after each pass, for each model of the project
  mlaot passes model:digits     the same for one function, without a pyproject.toml
  mlaot tune .                  try block sizes on this machine; later builds of the project take the fastest

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
    folder = str(Path(__file__).parent / "cmake")
    top.add_argument("--cmake-dir", action="version", version=folder, help="print what CMake wants as mlaot_ROOT")
    emit = commands.add_parser(
        "emit",
        help="write the generated C files",
        description="Write the generated C files: of a project, a folder for each module and a CMakeLists.txt; with"
        " --module, those of one module, which [tool.mlaot] need not name.",
    )
    emit.add_argument("project", nargs="?", default=".", help=f"the project's folder, with its {FILE} (default: this)")
    emit.add_argument("--module", help="the one extension module to make, such as digits.nn")
    emit.add_argument("--model", help=f"what it is made from, such as digits.model:build (default: as {FILE} says)")
    emit.add_argument("--source-dir", help="the folder with the model's module (default: src if there is one, or .)")
    emit.add_argument("--deterministic", action="store_true", help="the same bits on every instruction set")
    emit.add_argument("--others", nargs="*", default=[], metavar="MODULE", help="extension modules built beside it")
    emit.add_argument("--depfile", help="write what was read as a rule of Make for FILE to FILE.d", metavar="FILE.d")
    what = emit.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", help="folder for the files")
    what.add_argument("--list", action="store_true", help="print the names of the module's files; trace nothing")
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
    tune = commands.add_parser(
        "tune",
        help="find the fastest block sizes on this machine",
        description="Time the block sizes of matrix products and convolutions on this machine, and store those that are"
        f" faster than the compiler's choice in {TUNED}. Builds read it where it is there; it is never needed.",
    )
    tune.add_argument("project", nargs="?", default=".", help=f"folder with a {FILE} (default: this one)")
    tune.set_defaults(run=run_tune)
    return top


def run_emit(options: argparse.Namespace) -> int:
    """``mlaot emit PROJECT --out DIR``."""
    project = Path(options.project)

    def find() -> tuple[Settings, Model | None]:
        if options.module:
            return load_module(
                project,
                options.module,
                model=options.model,
                source=options.source_dir,
                deterministic=options.deterministic,
                others=options.others,
            )
        if options.model or options.source_dir or options.deterministic or options.others or options.list:
            raise MlaotError("--list and what says how a module is made need --module, such as --module digits.nn")
        return load_settings(project), None

    def write_depfile(read: Sequence[Path]) -> None:
        path = Path(options.depfile)
        path.write_text(depfile(str(path.with_suffix("")), read), encoding="utf-8")

    if options.list:
        return _list_files(project, find)
    return child.emit(project, Path(options.out), find, write_depfile if options.depfile else None)


def _list_files(project: Path, find: Callable[[], tuple[Settings, Model | None]]) -> int:
    """Print the names of the files of a module."""
    try:
        settings, model = find()
        assert model is not None
        print(*module_files(model, settings.isa), sep="\n")
    except MlaotError as error:
        child.complain(error, project, None)
        return 1
    return 0


def run_passes(options: argparse.Namespace) -> int:
    """``mlaot passes PROJECT|module:attribute``."""

    def show(project: Path, settings: Settings) -> None:
        from mlaot.generate import pass_report

        print(pass_report(settings, project).rstrip())

    return _with_model(Path(), lambda: find_target(options.target), show)


def run_tune(options: argparse.Namespace) -> int:
    """``mlaot tune PROJECT``."""
    folder = Path(options.project)
    return _with_model(folder, lambda: (folder, load_settings(folder)), _tune)


def _tune(project: Path, settings: Settings) -> None:
    """Measure the products of a project's models; write down which were faster otherwise."""
    from mlaot.build.toolchain import find_compiler
    from mlaot.generate import compile_for
    from mlaot.tune import contractions, measure, this_machine

    command = find_compiler()
    isa = this_machine(settings.isa, command)
    kernels = contractions([compile_for(settings, model, lambda program: program) for model in settings.models])
    tuned = dict(read_tuned(project).get(isa.name, {}))
    for number, kernel in enumerate(kernels, 1):
        found = measure(kernel, isa, command)
        tuned.pop(found.description, None)
        if found.best != found.chosen:
            tuned[found.description] = found.best
        print(f"{number}/{len(kernels)}  {found.what}\n    {tuned_line(found)}", flush=True)
    write_tuned(project, {**read_tuned(project), isa.name: tuned})
    print(f"{project / TUNED}: {len(tuned)} of {len(kernels)} products are faster so, with {isa.name}")


def _with_model(
    project: Path, find: Callable[[], tuple[Path, Settings]], work: Callable[[Path, Settings], None]
) -> int:
    """Do ``work`` on the project that ``find`` gives, its models within reach of imports; errors become one line."""
    settings = None
    try:
        project, settings = find()
        with child.tracing(settings, project):
            work(project, settings)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        child.complain(error, project, settings)
        return 1
    return 0


def tuned_line(found: Measured) -> str:
    """``i=6 j=4: 812.1 us``, or what it takes instead."""
    best, chosen = (f"{s}: {1e6 * found.seconds[s]:.1f} us" for s in (found.best, found.chosen))
    return best if found.best == found.chosen else f"{best} instead of {chosen} ({found.gain:.2f})"


def find_target(target: str) -> tuple[Path, Settings]:
    """A project folder, or else module:attribute in the current folder."""
    project = Path(target)
    if project.is_dir() or ":" not in target:
        return project, load_settings(project)
    return Path(), settings_of(target)


if __name__ == "__main__":
    sys.exit(main())
