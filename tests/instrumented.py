"""The runtime's C with a sanitizer, or with counters of its lines.

``MLAOT_RUNTIME_FLAGS`` has the flags of the compiler. With them, a module's C includes ``templates/runtime`` instead of
containing it, so that reports name these files. Objects stay beside the C, with what gcc notes of them.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from mlaot.binding import interface
from mlaot.printing.cmake import unit_flags

from . import projects

TEMPLATES = Path(__file__).parents[1] / "templates"
FLAGS = os.environ.get("MLAOT_RUNTIME_FLAGS", "").split()
# For tests of what the compiler made, of memory, and of what a process may do.
unless = pytest.mark.skipif(bool(FLAGS), reason="instrumented code has and takes more")


def install() -> None:
    """Have all modules that tests build from here on compiled with ``FLAGS``, if there are any."""
    if FLAGS:
        interface.with_runtime = lambda text: text
        projects.compile_quickly = compile_here


def options() -> list[str]:
    """What the compiler of a module's C is told besides."""
    return [*FLAGS, "-g", f"-I{TEMPLATES}"] if FLAGS else []


def compile_here(folder: Path, stem: str, isas: Sequence[str], library: Path, deterministic: bool) -> None:
    """Compile ``folder/<stem>*.c``, and leave the objects there; the kernels are none of the runtime's."""
    compiler, objects = os.environ.get("CC", "cc"), []
    for unit, flags in unit_flags(stem, isas, deterministic).items():
        own = ["-O1", *options()] if unit == stem else []
        objects.append(str(folder / f"{unit}.o"))
        source = str(folder / f"{unit}.c")
        command = [compiler, "-fPIC", "-w", *flags, *own, f"-Wa,-I{folder}", "-c", source, "-o", objects[-1]]
        subprocess.run(command, check=True)
    library.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([compiler, "-shared", *FLAGS, *objects, "-o", str(library)], check=True)
