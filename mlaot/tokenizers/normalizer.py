"""The normalization of a text before the search for tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import dropwhile

from mlaot.tokenizers.steps import MARK, Change, mapped


@dataclass(frozen=True)
class Normalizer:
    """A normalizer: changes, and then the steps of SentencePiece.

    With ``marks`` spaces are ``MARK`` in pieces, so that a ``MARK`` in a text is a space.
    """

    changes: tuple[Change, ...] = ()
    charsmap: Mapping[bytes, bytes] = field(default_factory=dict)  # of the longest key that a text goes on with
    kept: tuple[bytes, ...] = ()  # pieces that stay as they are
    strips: bool = False  # spaces at both ends and double ones
    prefixes: bool = False  # puts a space in front
    marks: bool = False

    def apply(self, text: str) -> str:
        """Normalize a text between special tokens."""
        for change in self.changes:
            text = change.apply(text)
        changes = self.charsmap or self.strips or self.kept
        parts = mapped(text.encode(), self.charsmap, self.kept) if changes else [text.encode()]
        if self.strips:
            parts, after, given = [], True, dropwhile(lambda part: part == b" ", parts)
            for part in given:
                parts.append(part.lstrip(b" ") if after else part)
                after = parts[-1].endswith(b" ") if parts[-1] else after
        result = b"".join(parts).decode()
        if self.marks:
            result = result.replace(MARK, " ")
        if self.prefixes and parts and parts != [b""]:
            result = " " + result
        return result.rstrip(" ") if self.strips else result
