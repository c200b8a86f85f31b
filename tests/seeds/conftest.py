"""The compiled models of the rows, each built once for the whole run, side by side in one folder for ``sys.path``."""

from __future__ import annotations

import fcntl
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mlaot.build.toolchain import compile_module, find_compiler
from mlaot.generate import compile_model, program_files, write

from . import declarations

Modules = Callable[[str], ModuleType]
ISAS = ("base", "v4")  # what no CPU lacks, and what is furthest from it; the module takes what this machine has


def build(declared: Any, name: str, site: Path, isas: tuple[str, ...] = ISAS) -> Path:
    """The extension module ``<name>.nn`` of a declared model, below ``site``; its C is in ``<site>-c/<name>.nn``."""
    folder = site.with_name(f"{site.name}-c") / f"{name}.nn"
    write(program_files(compile_model(declared, f"{name}.nn", isas)), folder)
    library = site / name / "nn.abi3.so"
    compile_module(folder, "nn", isas, library, find_compiler())
    return library


def load(library: Path) -> ModuleType:
    """A new module object of a compiled model, without a trace in ``sys.modules``."""
    spec = importlib.util.spec_from_file_location(f"{library.parent.name}.nn", library)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the compiled packages; the processes of one run share it."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "seeds" / "site"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def compiled(site: Path) -> Modules:
    """``compiled("xor")`` is the extension module of ``declarations.xor()``."""

    def get(name: str) -> ModuleType:
        library = site / name / "nn.abi3.so"
        with open(site / f"{name}.lock", "w") as lock:  # the first process that wants it compiles
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not library.exists():
                build(getattr(declarations, name)(), name, site)
        return load(library)

    return get
