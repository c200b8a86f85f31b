"""A vectorizer, which counts the terms of a text that have a place.

This slow implementation is the reference for C. A term is a word, a character, or a sequence of some. Callers of a
model pass texts, and the model computes with rows of numbers ``count << 32 | place``, with ascending places and ``PAD``
at the end.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

PAD = 0x7FFFFFFF  # no place, and no count
MOST = 64  # words or characters of a term
LIMIT = 0xFFFFFFFF


@dataclass(frozen=True, eq=False)
class Vectorizer:
    """The options of a vectorizer. ``places`` are those of known terms; without any, the hash of a term is its place.

    ``size`` is the number of places. With ``signed`` half of the terms with hashed places count negatively. With
    ``binary`` counts are 1. ``accents`` is the way of removing accents, "unicode" or "ascii".
    """

    kind: str  # of terms: "word", "char", or "char_wb", characters within words
    least: int  # of these in a term
    most: int
    size: int
    places: dict[str, int] = field(repr=False)
    pattern: str = ""  # what words are
    stop_words: frozenset[str] = field(default=frozenset(), repr=False)
    lower: bool = True
    accents: str = ""
    signed: bool = False
    binary: bool = False

    def row(self, text: str, first: int) -> list[int]:
        """Return the numbers of a text; places begin at ``first``."""
        counts = dict[int, int]()
        for term in self.terms(text):
            place, count = self.places.get(term, -1), 1
            if not self.places:
                value = murmur(term.encode(errors="surrogatepass"))
                place, count = abs(value) % self.size, -1 if self.signed and value < 0 else 1
            if place >= 0:
                counts[place] = counts.get(place, 0) + count
        return [(1 if self.binary else counts[place]) << 32 | first + place for place in sorted(counts)]

    def terms(self, text: str) -> Iterator[str]:
        """Yield the terms of a text."""
        text = text.lower() if self.lower else text
        if self.accents and not text.isascii():
            text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
            text = text.encode("ascii", "ignore").decode() if self.accents == "ascii" else text
        if self.kind == "word":
            words = [word for word in re.findall(self.pattern, text) if word not in self.stop_words]
            for n in range(self.least, min(self.most, len(words)) + 1):
                yield from (" ".join(words[i : i + n]) for i in range(len(words) - n + 1))
            return
        text = re.sub(r"\s\s+", " ", text)
        for part in [text] if self.kind == "char" else [f" {word} " for word in text.split()]:
            for n in range(self.least, min(self.most, len(part)) + 1):
                yield from (part[i : i + n] for i in range(len(part) - n + 1))
            if self.kind == "char_wb" and len(part) < self.least:
                yield part


def rows(vectorizers: Sequence[Vectorizer], texts: Sequence[str]) -> list[list[int]]:
    """Return the numbers of texts; places of each vectorizer follow those of the one before."""
    found = [list[int]() for _ in texts]
    first = 0
    for vectorizer in vectorizers:
        for row, text in zip(found, texts, strict=True):
            row += vectorizer.row(text, first)
        first += vectorizer.size
    longest = max([1, *map(len, found)])
    return [row + [PAD] * (longest - len(row)) for row in found]


def murmur(data: bytes) -> int:
    """Return the hash of bytes, signed and of 32 bits: MurmurHash3 (Appleby, 2011) with the seed 0."""
    value = 0
    for i in range(0, len(data), 4):
        word = int.from_bytes(data[i : i + 4], "little") * 0xCC9E2D51 & LIMIT
        word = (word << 15 | word >> 17) * 0x1B873593 & LIMIT
        value ^= word
        if i + 4 <= len(data):
            value = ((value << 13 | value >> 19) & LIMIT) * 5 + 0xE6546B64 & LIMIT
    value ^= len(data)
    value = (value ^ value >> 16) * 0x85EBCA6B & LIMIT
    value = (value ^ value >> 13) * 0xC2B2AE35 & LIMIT
    value ^= value >> 16
    return value - (value >> 31 << 32)
