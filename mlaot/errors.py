"""The one error that a user of mlaot can mend, and the one warning."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
    """Something that a user wrote is legal, and probably not what was meant: values that tracing loses without a word.

    Given by ``warnings.warn(message, MlaotWarning, stacklevel=..)``, or by ``warnings.warn_explicit`` for the user's
    line; a build prints it in one line, ``mlaot: model.py:12: warning: ..``, and goes on.
    """


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A full disk, a folder that is read-only, a file in the way: what hinders writing is the user's to mend."""
    try:
        yield
    except OSError as error:
        raise MlaotError(f"cannot write {error.filename or path}: {error.strerror}") from None
