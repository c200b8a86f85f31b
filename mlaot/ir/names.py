"""Check the names that users choose. ``lower/identifiers.py`` makes identifiers of C from them."""

from __future__ import annotations

import keyword
import reprlib

from mlaot.errors import MlaotError

LONGEST = 1000  # characters; each stands in error messages, file heads and tables


def identifier(name: object, what: str) -> str:
    """Check a name that a caller uses as a keyword; ``what`` says of what it is, such as ``an input``."""
    if isinstance(name, str) and name.isidentifier() and len(name) <= LONGEST:
        return name
    raise MlaotError(f"{what}'s name must be an identifier, got {reprlib.repr(name)}{too_long(name)}")


def argument(name: object, what: str) -> str:
    """Check the name of an argument. A keyword of Python is an error, as no call could pass it."""
    if isinstance(name, str) and keyword.iskeyword(name):
        raise MlaotError(f"{what} cannot be called {name!r}, a keyword of Python; choose another name")
    return identifier(name, what)


def printable(name: object, what: str) -> str:
    """Check a name that is a key of a dict or a file; ``what`` says of what it is, such as ``a parameter``."""
    if isinstance(name, str) and name and name.isprintable() and len(name) <= LONGEST:
        return name
    raise MlaotError(f"{what}'s name must be a printable string, got {reprlib.repr(name)}{too_long(name)}")


def too_long(name: object) -> str:
    """Return the hint for a name that is too long, or an empty string."""
    is_long = isinstance(name, str) and len(name) > LONGEST
    return f"; expected at most {LONGEST} characters" if is_long else ""
