"""Strings as inputs and outputs of a model, which computes with their indices in a list of known strings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mlaot.errors import MlaotError
from mlaot.ir.types import Type, i64


class Strings:
    """The strings that a model knows, indexed from 0.

    ``Strings(["no", "yes"])[n]`` annotates an argument for which callers pass strings: a str, bytes in UTF-8, or a
    list, array or column of these. The function gets their indices ``i64[n]``, and ``len(strings)`` for any other
    string. ``strings.at(places)`` is an output of strings, with None for an index out of range.
    """

    def __init__(self, known: Iterable[str]) -> None:
        self.known = (known,) if isinstance(known, str) else tuple(known)
        for text in self.known:
            if not isinstance(text, str):
                raise MlaotError(f"Strings: expected strings, got {text!r}")
            if not text.isascii() and text != text.encode(errors="replace").decode():
                raise MlaotError(f"Strings: expected text, got {text!r}, which has half a surrogate")
        if len(set(self.known)) < len(self.known) or not self.known:
            raise MlaotError(f"Strings: expected different strings, and at least one, got {list(self.known)!r:.60}")

    def __len__(self) -> int:
        return len(self.known)

    def __getitem__(self, shape: Any) -> StringsType:
        return StringsType(self.known, i64[shape])

    def at(self, places: Any) -> Labels:
        """Return the strings at the integer indices ``places`` as an output."""
        return Labels(self.known, places)


@dataclass(frozen=True)
class StringsType:
    """The annotation of an argument for which callers pass strings; ``type`` is the type of their indices."""

    known: tuple[str, ...]
    type: Type


@dataclass(frozen=True)
class Labels:
    """An output that callers get as strings: those at the indices ``places``."""

    known: tuple[str, ...]
    places: Any
