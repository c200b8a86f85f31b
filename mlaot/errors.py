"""The one error that a user of mlaot can mend."""

from __future__ import annotations


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
