"""Record which files a trace reads.

A build tool must watch them, and an extension module is stale once one of them was edited.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mlaot.build import checksums


@contextmanager
def record_reads(project: Path, out: Path) -> Iterator[list[Path]]:
    """Yield a list that collects the project's files read meanwhile: modules, and files that ``mlaot.load`` reads."""
    read: dict[str, None] = {}
    written: set[str] = set()
    active = True

    def listen(event: str, arguments: tuple[Any, ...]) -> None:
        if not active or event not in ("open", "mlaot.load") or not isinstance(arguments[0], str | os.PathLike):
            return
        path = os.path.abspath(arguments[0])
        if event == "mlaot.load":
            read[path] = None
        elif arguments[2] & (os.O_WRONLY | os.O_RDWR):
            written.add(path)
        elif is_users(Path(path), project) and not Path(path).is_relative_to(out.resolve()):
            read[path] = None

    sys.addaudithook(listen)
    reads: list[Path] = []
    try:
        yield reads
    finally:
        active = False
        reads += [path for path in map(Path, sorted(read)) if str(path) not in written and path.is_file()]


def depfile(target: str, read: Iterable[Path]) -> str:
    """Return a dependency file, as compilers write it with -MF: ``target`` depends on the files."""
    return " \\\n  ".join([f"{escape(target)}:", *(escape(str(path)) for path in read)]) + "\n"


def escape(path: str) -> str:
    """Escape a path for Make and Ninja, as a depfile needs it."""
    return path.replace("$", "$$").replace("#", "\\#").replace(" ", "\\ ")


def drop_bystanders(read: Iterable[Path], models: Iterable[str]) -> list[Path]:
    """Drop the modules that only a package's ``__init__`` imports, as an edit of those makes no model stale."""
    origins = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    files = {name: Path(file) for name, file in origins.items() if isinstance(file, str)}
    read, todo = list(read), list(models)
    needed = set(todo)
    while todo:
        name = todo.pop()
        if files.get(name) in read:
            imports = imported_modules(ast.parse(files[name].read_bytes()), sys.modules[name].__package__, files.keys())
            todo += imports - needed
            needed |= imports
    bystanders = {path for name, path in files.items() if name not in needed}
    return [path for path in read if path not in bystanders]


def imported_modules(code: ast.AST, package: str | None, modules: Set[str]) -> set[str]:
    """Return those of ``modules`` that the code imports anywhere."""
    names: set[str] = set()
    for node in ast.walk(code):
        match node:
            case ast.Import(aliases):
                names |= {alias.name for alias in aliases}
            case ast.ImportFrom(module, aliases, level):
                base = importlib.util.resolve_name("." * (level or 0) + (module or ""), package)
                names |= {part if (part := f"{base}.{alias.name}") in modules else base for alias in aliases}
    return names & modules


def digest(path: Path, since: int) -> str:
    """Return the SHA-256 of a file, or the empty string if the file was edited after ``since``.

    In that case it is unknown which text was read. No file has the empty digest.
    """
    if path.stat().st_mtime_ns >= since:
        return ""
    return checksums.digest(path)


def is_users(path: Path, project: Path) -> bool:
    """Tell whether a file is the project's code: not that of a virtual environment inside it, nor mlaot's own."""
    inside = path.is_absolute() and path.is_relative_to(project.resolve())
    return inside and "site-packages" not in path.parts and not is_own(path)


def is_own(path: Path) -> bool:
    """Tell whether a file is mlaot's own code."""
    return path.is_relative_to(Path(__file__).parents[1])
