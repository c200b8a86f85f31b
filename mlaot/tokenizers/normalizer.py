"""What a tokenizer does to a text before it looks for tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import dropwhile

from mlaot.tokenizers import unicode

MARK = "\N{LOWER ONE EIGHTH BLOCK}"  # that SentencePiece writes for a space
BLANKS = "".join(map(chr, unicode.SPACES))


@dataclass(frozen=True)
class Normalizer:
    """The steps, in their order. ``marks``: spaces are ``MARK`` in pieces, so that a ``MARK`` in a text is a space."""

    composes: bool = False  # to NFC
    charsmap: Mapping[bytes, bytes] = field(default_factory=dict)  # of the longest key that a text goes on with
    kept: tuple[bytes, ...] = ()  # pieces that stay as they are
    strips: bool = False  # spaces at both ends and double ones, as SentencePiece does
    words: bool = False  # whitespace of all kinds becomes a space in front of each word
    prefix: str = ""  # "always" puts a space in front, "unless space" where there is none
    prefixes_first: bool = False  # only at the beginning of a text, not behind special tokens
    marks: bool = False

    def apply(self, text: str, first: bool = True) -> str:
        """Normalize a text between special tokens; ``first``: none stands before it."""
        if self.composes:
            text = unicode.compose(text)
        mapped = self._mapped(text.encode()) if self.charsmap or self.strips or self.kept else [text.encode()]
        if self.words:
            words = [word for word in re.split(f"[{BLANKS}]+", b"".join(mapped).decode()) if word]
            return "".join(word if word.startswith(MARK) else " " + word for word in words).replace(MARK, " ")
        if self.strips:
            mapped, after, given = [], True, dropwhile(lambda part: part == b" ", mapped)
            for part in given:
                mapped.append(part.lstrip(b" ") if after else part)
                after = mapped[-1].endswith(b" ") if mapped[-1] else after
        result = b"".join(mapped).decode()
        if self.marks:
            result = result.replace(MARK, " ")
        if mapped and mapped != [b""] and self.prefix and (first or not self.prefixes_first):
            result = result if self.prefix == "unless space" and result.startswith(" ") else " " + result
        return result.rstrip(" ") if self.strips else result

    def _mapped(self, text: bytes) -> list[bytes]:
        """Return what each step through a text adds: the longest key's value, or a character."""
        longest, parts, i = max(map(len, self.charsmap), default=0), list[bytes](), 0
        while i < len(text):
            kept = max((piece for piece in self.kept if text.startswith(piece, i)), key=len, default=b"")
            if kept:
                size, part = len(kept), kept
            else:
                ends = range(min(longest, len(text) - i), 0, -1)
                size = next((n for n in ends if text[i : i + n] in self.charsmap), 0)
                part = self.charsmap[text[i : i + size]] if size else b""
            if not size:
                size = 1 + next(n for n in range(4) if i + 1 + n == len(text) or text[i + 1 + n] & 0xC0 != 0x80)
                part = text[i : i + size]
            parts.append(part)
            i += size
        return parts
