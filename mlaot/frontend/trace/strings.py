"""Strings among a model's inputs and outputs: what it computes with are their places among those that it knows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mlaot.errors import MlaotError
from mlaot.ir.types import Type, i64


class Strings:
    """The strings that a model knows, each of which has a place, from 0 on.

    ``Strings(["no", "yes"])[n]`` annotates an argument whose callers pass strings: a str or bytes in UTF-8, lists of
    them, an array or a column. The function gets ``i64[n]``: their places, and ``len(strings)`` for any other string.
    ``strings.at(places)`` is an output of strings; what has no string there is None.
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
        """Return the strings at ``places``, of integers, as an output."""
        return Labels(self.known, places)


@dataclass(frozen=True)
class StringsType:
    """An argument whose callers pass strings; ``type`` is that of their places."""

    known: tuple[str, ...]
    type: Type


@dataclass(frozen=True)
class Labels:
    """An output that callers get as strings: those at ``places``."""

    known: tuple[str, ...]
    places: Any
