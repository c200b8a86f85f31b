"""The one error that a user of mlaot can mend, the one warning, and how both name a line of the user's code."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

_project: ContextVar[Path | None] = ContextVar("project", default=None)


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


class MlaotWarning(UserWarning):
    """Something in the user's project can be compiled, but is likely not what was meant."""


def warn(message: str, place: str = "") -> None:
    """Warn of what is lost, at ``place``, a line of the user's code as ``line_of`` gives it, or at none.

    A build prints it as ``mlaot: model.py:12: warning: ..``; elsewhere Python's ``warnings`` decide.
    """
    file, _, line = place.removesuffix(": ").rpartition(":")
    warnings.warn_explicit(message, MlaotWarning, file or "mlaot", int(line or 0))


def line_of(file: str, line: int | None) -> str:
    """``src/model.py:12: ``: a file of the project that is being built by its path there, any other by its name."""
    project = _project.get()
    path = Path(file)
    inside = project is not None and path.is_absolute() and path.is_relative_to(project)
    return f"{path.relative_to(project).as_posix() if project and inside else path.name}:{line}: "


@contextmanager
def in_project(folder: Path) -> Iterator[None]:
    """Name the lines of the user's code by their files' paths in ``folder``."""
    token = _project.set(folder.resolve())
    try:
        yield
    finally:
        _project.reset(token)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A full disk, a folder that is read-only, a file in the way: what hinders writing is the user's to mend."""
    try:
        yield
    except OSError as error:
        raise MlaotError(f"cannot write {error.filename or path}: {error.strerror}") from None
