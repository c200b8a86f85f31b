"""``mlaot wheel``: make wheels for other platforms and Pythons."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from mlaot.build.cache import CACHE_VARIABLE, OFF
from mlaot.build.platforms import ABIS, EVERYWHERE, parse_abi, parse_platform, targets_of
from mlaot.commands.build import show_file
from mlaot.commands.project import FOLDER, add_build, output_folder
from mlaot.errors import MlaotError
from mlaot.settings import FILE
from mlaot.settings.reading import load_settings
from mlaot.stages import BUILD

STAGES = BUILD
HELP = "make wheels for other platforms and Pythons"
DESCRIPTION = """\
Make wheels for other platforms with zig, a cross-compiler (pip install ziglang),
and for Python with and without its global lock. The model is traced once. The
first wheel for a system takes longer, up to two minutes: zig compiles the
system's C library. The wheel for the platform any holds the model as plain
Python: it runs everywhere and is slow, and pip takes it where no other fits.
"""
EXAMPLES = """\
  mlaot wheel --platform all                     Linux, macOS and Windows on x86-64 and ARM
  mlaot wheel --platform win_amd64,win_arm64     some of them, by the tags of their wheels
  mlaot wheel --platform all,any                 these, and one in plain Python for all others
  mlaot wheel --abi cp311-abi3,cp315-abi3t       this machine, also for free-threaded Python
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("project", nargs="?", default=".", help=FOLDER)
    tags = ", ".join(EVERYWHERE)
    platform = f"tags of wheels, or all: {tags}; any: plain Python (default: this machine)"
    parser.add_argument("--platform", metavar="TAG,..", help=platform)
    abi = f"stable ABIs of Python: {', '.join(ABIS)} (default: that of this Python)"
    parser.add_argument("--abi", metavar="TAG,..", help=abi)
    add_build(parser)


def run(options: argparse.Namespace) -> int:
    """Make the wheels one after the other."""
    from mlaot.build.hooks import build_wheels
    from mlaot.build.toolchain import own_abi

    out = Path(options.out).resolve()
    given = [tag.strip() for tag in (options.platform or "").split(",")]
    tags = [tag for each in given for tag in (EVERYWHERE if each == "all" else [each])]
    platforms = [parse_platform(tag) for tag in tags] if options.platform else [None]
    abis = [parse_abi(tag.strip()) for tag in options.abi.split(",")] if options.abi else [own_abi()]
    backend = load_settings(Path(options.project)).backend
    if backend != "mlaot.build":
        expected = "mlaot wheel makes wheels of projects with build-backend = 'mlaot.build'"
        raise MlaotError(f"{expected}; {FILE} has {backend!r}")
    if not options.cache:
        os.environ[CACHE_VARIABLE] = OFF
    os.chdir(options.project)
    targets = targets_of(platforms, abis)
    count, begun = len(targets), time.perf_counter()
    with output_folder(out):
        for number, name in enumerate(build_wheels(str(out), targets), 1):
            print(f"{number}/{count}  ", end="")
            show_file(out / name, begun)
            begun = time.perf_counter()
    return 0
