"""The one error that a user of mlaot can mend, the one warning, and how both name a line of the user's code."""

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
class Build:
    """The project's folder, and the warnings that were given so far."""

    folder: Path
    warned: set[str] = field(default_factory=set)


_build: ContextVar[Build | None] = ContextVar("build", default=None)


class MlaotError(Exception):
    """Something in the user's project is wrong: says where, what was expected, what was found, and how to mend it.

    The build hooks print its text as the last line on stderr, without a traceback. A broken invariant of the compiler
    itself is an ``AssertionError`` that says "bug in mlaot" instead. ``place`` is the line of the user's code, as
    ``model.py:12: ``, where the error was raised while tracing it.
    """

    place = ""

    @property
    def message(self) -> str:
        """The text without the place."""
        return super().__str__()

    def __str__(self) -> str:
        return f"{self.place}{self.message}"


class VariableError(MlaotError):
    """An environment variable says what mlaot does not know: no line of the user's code is to blame."""


def warn(message: str, place: str = "") -> None:
    """Say once, while a project is built, what can be compiled but is likely not what was meant.

    ``place`` is a line of the user's code, as ``line_of`` gives it.
    """
    build, line = _build.get(), f"mlaot: {place}warning: {message}"
    if build is not None and line not in build.warned:
        build.warned.add(line)
        print(line, file=sys.stderr, flush=True)


def line_of(file: str, line: int | None) -> str:
    """``src/model.py:12: ``: a file of the project that is being built by its path there, any other by its name."""
    build, path = _build.get(), Path(file)
    inside = build is not None and path.is_absolute() and path.is_relative_to(build.folder)
    return f"{path.relative_to(build.folder).as_posix() if build and inside else path.name}:{line}: "


def place_in_project() -> Callable[[FrameType], str]:
    """A function that gives the project's line, ``src/model.py:12``, which a frame is in or was called from, if any."""
    build = _build.get()

    def place(frame: FrameType | None) -> str:
        while build is not None and frame is not None:
            path = Path(frame.f_code.co_filename)
            if path.is_absolute() and path.is_relative_to(build.folder) and "site-packages" not in path.parts:
                return f"{path.relative_to(build.folder).as_posix()}:{frame.f_lineno}"
            frame = frame.f_back
        return ""

    return place


def is_building() -> bool:
    """Whether a project is being built, or looked at by a command."""
    return _build.get() is not None


@contextmanager
def building(project: Path) -> Iterator[None]:
    """Name the lines of the user's code by their files' paths in the project's folder, and give warnings."""
    token = _build.set(Build(project.resolve()))
    try:
        yield
    finally:
        _build.reset(token)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A full disk, a folder that is read-only, a file in the way: what hinders writing is the user's to mend."""
    try:
        yield
    except OSError as error:
        raise MlaotError(f"cannot write {error.filename or path}: {error.strerror}") from None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean 'model'?`` where something known is close enough, else nothing."""
    known = list(known)
    close = [name for name in known if name.lower() == word.lower()] or difflib.get_close_matches(word, known)
    close.sort(key=lambda name: sorted(name) != sorted(word))  # swapped letters are the likeliest slip
    return f"; did you mean {close[0]!r}?" if close else ""
