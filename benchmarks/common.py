"""What the benchmarks share: compile a declared model into a folder, and import it from there."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from mlaot.build.toolchain import compile_module, find_compiler
from mlaot.generate import compile_model, program_files, write
from mlaot.settings import ISAS


def build(declared: Any, name: str, folder: Path, isas: tuple[str, ...] = ISAS) -> Path:
    """The path of the extension module ``name`` made of a declared model."""
    write(program_files(compile_model(declared, f"{name}.{name}", isas)), folder)
    library = folder / f"{name}.abi3.so"
    compile_module(folder, name, isas, library, find_compiler())
    return library


def load(library: Path) -> ModuleType:
    """The extension module at ``library``."""
    name = library.name.partition(".")[0]
    spec = importlib.util.spec_from_file_location(name, library)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def one_core() -> None:
    """Keep this process and its children on one core."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def out(*words: object) -> None:
    """Print at once."""
    print(*words, flush=True)
    sys.stdout.flush()
