"""Errors and warnings for users of mlaot, which name a line of the user's code."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType


@dataclass(frozen=True)
class BuildContext:
    """The project's folder, and the warnings that were printed so far."""

    folder: Path
    warned: set[str] = field(default_factory=set)


_build: ContextVar[BuildContext | None] = ContextVar("build", default=None)


class MlaotError(Exception):
    """An error in the user's project, whose message says where, what was expected and got, and how to mend it.

    The build hooks print its text as the last line on stderr, without a traceback. A broken invariant of the compiler
    itself raises an ``AssertionError`` that says "bug in mlaot". ``place`` is the line of the user's code, such as
    ``model.py:12: ``, if tracing that line raised the error.
    """

    place = ""

    @property
    def message(self) -> str:
        """Return the text without the place."""
        return super().__str__()

    def __str__(self) -> str:
        return f"{self.place}{self.message}"


class VariableError(MlaotError):
    """An environment variable has a value that mlaot does not know. The error names no line of the user's code."""


def warn(message: str, place: str = "") -> None:
    """Warn once in the build of a project of code that compiles but is likely a mistake.

    ``place`` is a line of the user's code in the form of ``line_of``.
    """
    build, line = _build.get(), f"mlaot: {place}warning: {message}"
    if build is not None and line not in build.warned:
        build.warned.add(line)
        print(line, file=sys.stderr, flush=True)


def line_of(file: str, line: int | None) -> str:
    """Return ``src/model.py:12: `` with the path in the project that is being built, or the name of any other file."""
    build, path = _build.get(), Path(file)
    inside = build is not None and path.is_absolute() and path.is_relative_to(build.folder)
    return f"{path.relative_to(build.folder).as_posix() if build and inside else path.name}:{line}: "


def place_in_project() -> Callable[[FrameType], str]:
    """Return a function that finds the project's line, ``src/model.py:12``, in a frame or its callers."""
    build = _build.get()

    def place(frame: FrameType | None) -> str:
        while build is not None and frame is not None:
            path = Path(frame.f_code.co_filename)
            is_module = path.suffix == ".py" and "site-packages" not in path.parts  # not a script of an environment
            if is_module and path.is_absolute() and path.is_relative_to(build.folder):
                return f"{path.relative_to(build.folder).as_posix()}:{frame.f_lineno}"
            frame = frame.f_back
        return ""

    return place


def is_building() -> bool:
    """Tell whether a project is being built, or examined by a command."""
    return _build.get() is not None


@contextmanager
def building(project: Path) -> Iterator[None]:
    """In the context, name lines of the user's code by paths relative to the project's folder, and print warnings."""
    token = _build.set(BuildContext(project.resolve()))
    try:
        yield
    finally:
        _build.reset(token)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an error of writing, such as a full disk or a read-only folder, into a ``MlaotError``."""
    try:
        yield
    except OSError as error:
        raise MlaotError(f"cannot write {error.filename or path}: {error.strerror}") from None


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Return ``; did you mean 'model'?`` if one of ``names`` is similar to ``word``, else nothing."""
    names = list(names)
    similar = [name for name in names if name.lower() == word.lower()] or difflib.get_close_matches(word, names)
    similar.sort(key=lambda name: sorted(name) != sorted(word))  # swapped letters are the likeliest slip
    return f"; did you mean {similar[0]!r}?" if similar else ""
