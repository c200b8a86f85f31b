"""What the benchmarks share: compile a declared model into a folder, and import it from there."""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from mlaot.build.toolchain import compile_module, find_compiler, find_toolchain
from mlaot.files import program_files, write
from mlaot.generate import compile_model
from mlaot.lower.program import Program
from mlaot.probe.beside import load_file
from mlaot.schedule.machine import MACHINES
from mlaot.settings.options import Options

os.environ["MLAOT_CACHE"] = "off"  # what is measured is made, also by the compiler
# Where mlaot is kept to what CPUs with AVX2 alone have, so are its peers. These read variables as they are imported.
PEERS_INSTRUCTIONS = {
    "v3": {"ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
}
for variable, value in PEERS_INSTRUCTIONS.get(os.environ.get("MLAOT_ISA", ""), {}).items():
    os.environ.setdefault(variable, value)


def hide_avx512() -> None:
    """Make libraries that this process and its children load from now on believe that the CPU has AVX2 alone.

    This reaches onnxruntime, which reads no variable, on Linux where /proc/cpuinfo names cpuid_fault. NumPy, which
    ``without_avx512.c`` comes too late for where it is imported already, keeps what it found.
    """
    library = Path(tempfile.mkdtemp(prefix="mlaot-benchmark-")) / "without_avx512.so"
    atexit.register(shutil.rmtree, library.parent, ignore_errors=True)
    source = Path(__file__).with_name("without_avx512.c")
    subprocess.run([*find_compiler(), "-O2", "-shared", "-fPIC", source, "-o", library], check=True)
    ctypes.CDLL(str(library))
    os.environ["LD_PRELOAD"] = str(library)


if os.environ.get("MLAOT_ISA") == "v3" and "LD_PRELOAD" not in os.environ:
    cpu = Path("/proc/cpuinfo")
    if cpu.exists() and "cpuid_fault" in cpu.read_text() and "avx512f" in cpu.read_text():
        hide_avx512()


def build(
    declared: Any, name: str, folder: Path, isas: tuple[str, ...] = tuple(MACHINES), *, deterministic: bool = False
) -> Path:
    """The path of the extension module ``name`` made of a declared model."""
    return compile_program(
        compile_model(declared, f"{name}.{name}", Options(isas=isas, deterministic=deterministic)), name, folder
    )


def compile_program(program: Program, name: str, folder: Path) -> Path:
    """The same of a program; its C is in ``folder`` too."""
    write(program_files(program), folder)
    library = folder / f"{name}.abi3.so"
    deterministic = program.module.options.deterministic
    compile_module(folder, name, program.module.isas, library, find_toolchain(), deterministic=deterministic)
    return library


def load(library: Path) -> ModuleType:
    """The extension module at ``library``."""
    return load_file(library.name.partition(".")[0], library)


def chosen_isas() -> tuple[str, ...]:
    """The instruction sets that a benchmark builds for: what MLAOT_ISA names, and the one that all have."""
    isa = os.environ.get("MLAOT_ISA")
    return tuple(dict.fromkeys(("base", isa))) if isa else tuple(MACHINES)


def one_core() -> None:
    """Keep this process and its children on one core."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def out(*words: object) -> None:
    """Print at once."""
    print(*words, flush=True)
    sys.stdout.flush()


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table, the first column left-aligned; by rich where that is installed."""
    try:
        from rich.box import SIMPLE
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
        for line in (heads, *rows):
            first, *others = (f"{word:{'<' if i == 0 else '>'}{widths[i]}}" for i, word in enumerate(line))
            out("  ".join([first, *others]))
        return
    shown = Table(box=SIMPLE)
    for i, head in enumerate(heads):
        shown.add_column(head, justify="left" if i == 0 else "right")
    for line in rows:
        shown.add_row(*line)
    Console(width=None if sys.stdout.isatty() else 200).print(shown)
