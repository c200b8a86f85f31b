"""Which files a trace reads: what a build tool must watch, and what makes an extension module stale when edited."""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlaot
from mlaot.build import sums


@contextmanager
def watched(project: Path, out: Path) -> Iterator[list[Path]]:
    """The files of the project that are read meanwhile, also its modules, and what ``mlaot.load`` reads anywhere."""
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
    found: list[Path] = []
    try:
        yield found
    finally:
        active = False
        found += [path for path in map(Path, sorted(read)) if str(path) not in written and path.is_file()]


def depfile(target: str, read: Iterable[Path]) -> str:
    """What compilers write with -MF: ``target`` is out of date when one of the files is newer."""
    return " \\\n  ".join([f"{escaped(target)}:", *(escaped(str(path)) for path in read)]) + "\n"


def escaped(path: str) -> str:
    """A path as Make and Ninja read it in a depfile."""
    return path.replace("$", "$$").replace("#", "\\#").replace(" ", "\\ ")


def without_bystanders(read: Iterable[Path], models: Iterable[str]) -> list[Path]:
    """``read`` without the modules that only a package's ``__init__`` imports: their edits make no model stale."""
    origins = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    files = {name: Path(file) for name, file in origins.items() if isinstance(file, str)}
    read, todo = list(read), list(models)
    needed = set(todo)
    while todo:
        name = todo.pop()
        if files.get(name) in read:
            found = imported(ast.parse(files[name].read_bytes()), sys.modules[name].__package__, files.keys())
            todo += found - needed
            needed |= found
    bystanders = {path for name, path in files.items() if name not in needed}
    return [path for path in read if path not in bystanders]


def imported(code: ast.AST, package: str | None, known: Set[str]) -> set[str]:
    """Those of the ``known`` modules that a module's code imports, somewhere."""
    names: set[str] = set()
    for node in ast.walk(code):
        match node:
            case ast.Import(aliases):
                names |= {alias.name for alias in aliases}
            case ast.ImportFrom(module, aliases, level):
                base = importlib.util.resolve_name("." * (level or 0) + (module or ""), package)
                names |= {part if (part := f"{base}.{alias.name}") in known else base for alias in aliases}
    return names & known


def digest(path: Path, since: int) -> str:
    """The SHA-256 of a file; nothing, which no file has, if it was edited ``since`` then: which text was read?"""
    if path.stat().st_mtime_ns >= since:
        return ""
    return sums.digest(path)


def is_users(path: Path, project: Path) -> bool:
    """Code of the project; not of a virtual environment inside it, nor of mlaot where that is a part of it."""
    inside = path.is_absolute() and path.is_relative_to(project.resolve())
    return inside and "site-packages" not in path.parts and not is_own(path)


def is_own(path: Path) -> bool:
    """Code of mlaot."""
    return path.is_relative_to(Path(mlaot.__file__).parent)
