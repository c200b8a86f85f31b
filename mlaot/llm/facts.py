"""Metadata of a model: entries by name, read from a file that may be damaged or hostile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from reprlib import Repr
from typing import Any

from mlaot.errors import MlaotError

SHORT = Repr()
SHORT.maxstring = SHORT.maxother = 80


def looks(value: object) -> str:
    """Return a value as a short text on one line, however large it is."""
    return " ".join(SHORT.repr(value).split())


def named(name: str) -> str:
    """Return a name, or a short text of an unusual name."""
    return name if name.isprintable() and len(name) <= SHORT.maxstring else looks(name)


@dataclass(frozen=True)
class Facts:
    """The entries of a file. A missing entry, or one of another kind, raises an error that names it.

    ``prefix`` precedes the names of these entries in the file.
    """

    path: Path
    entries: Mapping[str, Any]
    prefix: str = ""

    def take(self, name: str, kind: type, default: Any = None) -> Any:
        """Return an entry, or the default if it is missing or null. Without a default that is an error."""
        value = self.entries.get(name)
        return self.checked(name, default if value is None else value, kind)

    def checked(self, name: str, value: Any, kind: type) -> Any:
        """Return the value of an entry, with whole numbers as floats if these are expected.

        Another kind is an error.
        """
        if kind is float and type(value) is int and abs(value) < 2**53:
            value = float(value)
        if type(value) is not kind:
            got = "nothing" if value is None else looks(value)
            raise MlaotError(f"{self.path}: {self.prefix}{name}: expected {kind.__name__}, got {got}")
        return value

    def refuse(self, name: str, expected: str, *, unless: bool) -> None:
        """Raise ``MlaotError`` for an entry with a feature that is not supported."""
        if not unless:
            got = looks(self.entries.get(name))
            raise MlaotError(f"{self.path}: {self.prefix}{name}: expected {expected}, got {got}")

    def within(self, name: str) -> Facts:
        """Return the entries inside of an entry; none if it is missing."""
        return Facts(self.path, self.take(name, dict, default={}), f"{self.prefix}{name}.")

    def behind(self, prefix: str) -> Facts:
        """Return the entries whose names begin with a prefix, by the names without the prefix."""
        entries = {key.removeprefix(prefix): value for key, value in self.entries.items() if key.startswith(prefix)}
        return Facts(self.path, entries, f"{self.prefix}{prefix}")
