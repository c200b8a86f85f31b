"""Load an extension module from its file, without its package; it may import modules from a wheel's folder."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

SUFFIXES = (".so", ".pyd")
PLAIN_PYTHON = "a model compiled by mlaot to plain Python"  # how the docstring of such a module begins, behind its name


class LibraryFinder:
    """Find extension modules, and nothing else of their packages, in the folder of an unpacked wheel."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        place = self.folder.joinpath(*name.split("."))
        library = next((file for file in place.parent.glob(f"{place.name}.*") if file.suffix in SUFFIXES), None)
        if library is not None:
            return importlib.util.spec_from_file_location(name, library)
        if place.is_dir() and any(file.suffix in SUFFIXES for file in place.rglob("*")):
            return importlib.machinery.ModuleSpec(name, None, is_package=True)
        return None


def is_plain_python(content: bytes) -> bool:
    """Tell whether a file is a model as plain Python."""
    return PLAIN_PYTHON.encode() in content.partition(b"\n")[0]


def load_file(name: str, file: Path) -> ModuleType:
    """Import the module ``name`` from its file; a runtime that it shares is found beside it."""
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file.name} is no extension module of this platform")
    finder = LibraryFinder(file.resolve().parents[name.count(".")])
    sys.meta_path.insert(0, finder)
    try:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.meta_path.remove(finder)
    return module
