"""``mlaot build``: make the wheel for this machine."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from mlaot.commands.hooks import call_hook, unpack
from mlaot.commands.output import size
from mlaot.commands.project import FOLDER, add_build, output_folder
from mlaot.settings.reading import load_settings
from mlaot.stages import BUILD

STAGES = BUILD
HELP = "make the wheel for this machine"
DESCRIPTION = """\
Make the wheel for this machine with the packages of this environment, whatever
the project's build backend is; with --sdist an sdist as well, and the wheel
from that. For wheels that others install, also without this environment, pip
and `python -m build` do the same in one of their own.
"""
EXAMPLES = """\
  mlaot build                    the project in this folder, into dist
  mlaot build digits --sdist     an sdist, and the wheel that it gives
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("project", nargs="?", default=".", help=FOLDER)
    parser.add_argument("-v", "--verbose", action="store_true", help="print a line for each stage, from the start")
    parser.add_argument("--sdist", action="store_true", help="make an sdist too, and the wheel from it")
    add_build(parser)


def run(options: argparse.Namespace) -> int:
    """Make the sdist, if asked for, then the wheel."""
    project = Path(options.project)
    check_project(project)
    with output_folder(Path(options.out)) as out, tempfile.TemporaryDirectory(prefix="mlaot-") as folder:
        if options.sdist:
            project = unpack(make(project, "sdist", out, options.cache), Path(folder))
        make(project, "wheel", out, options.cache)
    return 0


def check_project(project: Path) -> None:
    """Check the settings of a project, whose model may also be declared in a build file of CMake or meson."""
    if not any((project / name).is_file() for name in ("CMakeLists.txt", "meson.build")):
        load_settings(project)


def make(project: Path, kind: str, out: Path, cache: bool) -> Path:
    """Make one file and print a line about it."""
    begun = time.perf_counter()
    path = call_hook(project, f"build_{kind}", out, lambda line: print(line, flush=True), cache=cache)
    show_file(path, begun)
    return path


def show_file(path: Path, begun: float) -> None:
    """Print name, size and seconds."""
    print(f"{path.name}  {size(path.stat().st_size)}  {time.perf_counter() - begun:.1f} s", flush=True)
