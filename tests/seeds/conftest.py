"""The compiled models of the rows, each built once for the whole run, side by side in one folder for ``sys.path``."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from ..projects import build_module as build
from ..projects import load
from . import declarations

Modules = Callable[[str], ModuleType]


@pytest.fixture(scope="session")
def site(shared_folder: Path) -> Path:
    """The folder with the compiled packages."""
    folder = shared_folder / "seeds" / "site"
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
