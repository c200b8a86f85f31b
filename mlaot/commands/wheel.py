"""``mlaot wheel``: wheels for other platforms."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from mlaot.build.cache import OFF, VARIABLE
from mlaot.build.platforms import EVERYWHERE, parse_platform
from mlaot.commands.build import show_made
from mlaot.commands.project import FOLDER, add_build
from mlaot.errors import MlaotError
from mlaot.settings import FILE, load_settings

HELP = "make wheels for other platforms"
DESCRIPTION = """\
Make wheels for other platforms with zig, a cross-compiler (pip install ziglang).
The model is traced once. The first wheel for a system takes longer, up to two
minutes: zig compiles the system's C library.
"""
EXAMPLES = """\
  mlaot wheel --platform all                     Linux, macOS and Windows on x86-64 and ARM
  mlaot wheel --platform win_amd64,win_arm64     some of them, by the tags of their wheels
"""


def add(parser: argparse.ArgumentParser) -> None:
    """The arguments."""
    parser.add_argument("project", nargs="?", default=".", help=FOLDER)
    tags = ", ".join(EVERYWHERE)
    parser.add_argument("--platform", required=True, metavar="TAG,..", help=f"tags of wheels, or all: {tags}")
    add_build(parser)


def run(options: argparse.Namespace) -> int:
    """One after the other."""
    from mlaot.build import build_wheels

    out = Path(options.out).resolve()
    tags = EVERYWHERE if options.platform == "all" else options.platform.split(",")
    platforms = [parse_platform(tag.strip()) for tag in tags]
    backend = load_settings(Path(options.project)).backend
    if backend != "mlaot.build":
        expected = "mlaot wheel makes wheels of projects with build-backend = 'mlaot.build'"
        raise MlaotError(f"{expected}; {FILE} has {backend!r}")
    out.mkdir(parents=True, exist_ok=True)
    if not options.cache:
        os.environ[VARIABLE] = OFF
    os.chdir(options.project)
    begun = time.perf_counter()
    for number, name in enumerate(build_wheels(str(out), platforms), 1):
        print(f"{number}/{len(platforms)}  ", end="")
        show_made(out / name, begun)
        begun = time.perf_counter()
    return 0
