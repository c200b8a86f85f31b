"""The ``mlaot`` command: look at what a build makes, without building."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mlaot import build
from mlaot.build import child
from mlaot.build.platforms import EVERYWHERE, parse_platform
from mlaot.build.toolchain import ZIG
from mlaot.errors import MlaotError
from mlaot.settings import FILE, TUNED, Settings, load_settings, read_tuned, settings_of, write_tuned

if TYPE_CHECKING:
    from mlaot.tune import Measured

EXAMPLES = """\
examples:
  mlaot emit . --out c          write the C files and the CMakeLists.txt that a wheel of this project is made of
  mlaot passes .                how many nodes the graph has after each pass, for each model of the project
  mlaot passes model:digits     the same for one function, without a pyproject.toml
  mlaot tune .                  try block sizes on this machine; later builds of the project take the fastest
  mlaot wheel . --platform all  wheels for Linux, macOS and Windows on x86-64 and ARM, made on this machine

To build a wheel for this machine, use pip: pip wheel --no-deps .
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
    tune = commands.add_parser(
        "tune",
        help="find the fastest block sizes on this machine",
        description="Time the block sizes of matrix products and convolutions on this machine, and store those that are"
        f" faster than the compiler's choice in {TUNED}. Builds read it where it is there; it is never needed.",
    )
    tune.add_argument("project", nargs="?", default=".", help=f"folder with a {FILE} (default: this one)")
    tune.set_defaults(run=run_tune)
    wheel = commands.add_parser(
        "wheel",
        help="make wheels for other platforms",
        description=f"Make wheels for other platforms with zig, a cross-compiler (pip install '{ZIG}'). The model is"
        " traced once. The first wheel for a system takes longer, up to two minutes: zig compiles its C library.",
    )
    wheel.add_argument("project", nargs="?", default=".", help=f"folder with a {FILE} (default: this one)")
    wheel.add_argument(
        "--platform", required=True, metavar="TAG,..", help=f"tags of wheels, or all: {', '.join(EVERYWHERE)}"
    )
    wheel.add_argument("--out", default="dist", help="folder for the wheels (default: dist)")
    wheel.set_defaults(run=run_wheel)
    return top


def run_emit(options: argparse.Namespace) -> int:
    """``mlaot emit PROJECT --out DIR``."""
    return child.main([options.project, options.out])


def run_passes(options: argparse.Namespace) -> int:
    """``mlaot passes PROJECT|module:attribute``."""

    def show(project: Path, settings: Settings) -> None:
        from mlaot.generate import pass_report

        print(pass_report(settings, project).rstrip())

    return _with_model(Path(), lambda: find_target(options.target), show)


def run_wheel(options: argparse.Namespace) -> int:
    """``mlaot wheel PROJECT --platform TAG,..``."""
    project, out = Path(options.project), Path(options.out).resolve()
    try:
        tags = EVERYWHERE if options.platform == "all" else options.platform.split(",")
        platforms = [parse_platform(tag.strip()) for tag in tags]
        settings = load_settings(project)
        if settings.backend != "mlaot.build":
            raise MlaotError(
                f"mlaot wheel makes wheels of projects with build-backend = 'mlaot.build'; {FILE} has"
                f" {settings.backend!r}"
            )
    except MlaotError as error:
        print(f"mlaot: {error}", file=sys.stderr)
        return 1
    out.mkdir(parents=True, exist_ok=True)
    os.chdir(project)
    begun = time.perf_counter()
    for number, name in enumerate(build.build_wheels(str(out), platforms), 1):
        now = time.perf_counter()
        size = (out / name).stat().st_size / 1000
        print(f"{number}/{len(platforms)}  {name}  {size:.0f} KB  {now - begun:.1f} s", flush=True)
        begun = now
    return 0


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
