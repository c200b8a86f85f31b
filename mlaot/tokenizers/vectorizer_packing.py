"""The vectorizers of an input for C in one block of bytes, which C reads in place.

A block begins with the number of vectorizers and the start of each, in words of 64 bits. A vectorizer begins with the
numbers of ``NUMBERS``, then the start and the size in bytes of each table of ``TABLES``. All places count from the
beginning of the block, and are multiples of 8. ``templates/runtime/vectorizer.c`` has the same lists.
"""

from __future__ import annotations

import struct
import unicodedata
from functools import cache

import numpy as np

from mlaot.tokenizers import python_patterns, unicode
from mlaot.tokenizers.packing import lay_out, packed_automaton, word_table
from mlaot.tokenizers.vectorizer import Vectorizer

NUMBERS = ("bits", "least", "most", "size")
TABLES = (
    *("terms", "ends", "bytes", "stops", "stop_ends", "stop_bytes", "pattern"),
    *("change_pages", "changes", "sequences", "kind_pages", "kinds"),
)
CHARACTERS, WITHIN_WORDS, HASHED, SIGNED, BINARY, LOWER, CHANGES, BOUNDARY = (1 << bit for bit in range(8))
# Bits of a character.
WORD, SPACE, CASED, IGNORED = (1 << bit for bit in range(4))
DROPPED, SEQUENCE, LENGTH_BITS = 1, 1 << 31, 5
PAGE = 256


@cache
def pack_vectorizers(vectorizers: tuple[Vectorizer, ...]) -> bytes:
    """Return the block of the vectorizers of an input."""
    places, body = list[int](), list[bytes]()
    place = 8 * (1 + len(vectorizers))
    for vectorizer in vectorizers:
        places.append(place)
        body.append(_pack(vectorizer, place))
        place += len(body[-1])
    return struct.pack(f"<{1 + len(places)}q", len(places), *places) + b"".join(body)


def _pack(v: Vectorizer, place: int) -> bytes:
    tables = dict[str, bytes]()
    bits = {CHARACTERS: v.kind == "char", WITHIN_WORDS: v.kind == "char_wb", HASHED: not v.places, SIGNED: v.signed}
    bits |= {BINARY: v.binary, LOWER: v.lower, CHANGES: v.lower or v.accents != "", BOUNDARY: False}
    tables["kind_pages"], tables["kinds"] = paged(_kinds())
    if v.places:
        tables |= _strings(v.places, "terms", "")
    if v.kind == "word":
        if v.stop_words:
            tables |= _strings({word: i for i, word in enumerate(sorted(v.stop_words))}, "stops", "stop_")
        automaton, bits[BOUNDARY] = python_patterns.words(v.pattern)
        tables["pattern"] = packed_automaton(automaton)
    if bits[CHANGES]:
        changes, tables["sequences"] = _changes(v.lower, v.accents)
        tables["change_pages"], tables["changes"] = paged(changes)
    numbers = [sum(bit for bit, value in bits.items() if value), v.least, v.most, v.size]
    places, body = lay_out(place + 8 * (len(NUMBERS) + 2 * len(TABLES)), TABLES, tables)
    numbers += places
    return struct.pack(f"<{len(numbers)}q", *numbers) + body


def _strings(texts: dict[str, int], table: str, prefix: str) -> dict[str, bytes]:
    """Return the hash tables of strings, whose places are 0 and so on."""
    places = {text.encode(errors="surrogatepass"): place for text, place in texts.items()}
    ordered = sorted(places, key=places.__getitem__)
    ends = np.cumsum([0, *map(len, ordered)]).astype("<u4").tobytes()
    return {table: word_table(places), f"{prefix}ends": ends, f"{prefix}bytes": b"".join(ordered)}


def paged(values: np.ndarray[tuple[int], np.dtype[np.generic]]) -> tuple[bytes, bytes]:
    """Return a number for each character in pages, with equal pages stored once: pages' numbers, and the pages."""
    pages = dict[bytes, int]()
    numbers = [pages.setdefault(values[i : i + PAGE].tobytes(), len(pages)) for i in range(0, len(values), PAGE)]
    return np.array(numbers, "<u2").tobytes(), b"".join(pages)


@cache
def _kinds() -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Return the property bits of each character. Those of case decide the lower case of a capital sigma after it."""
    found = np.zeros(unicode.CODES, np.uint8)
    found[python_patterns.known("word")] |= WORD
    found[python_patterns.known("space")] |= SPACE
    for code in range(unicode.CODES):
        if f"a{chr(code)}Σ".lower()[-1] == "ς":  # it is cased, or not seen
            found[code] |= CASED if f"{chr(code)}Σ".lower()[-1] == "ς" else IGNORED
    return found


@cache
def _changes(lower: bool, accents: str) -> tuple[np.ndarray[tuple[int], np.dtype[np.uint32]], bytes]:
    """Return the replacement of each character, 0 if it does not change, and the sequences that replace some."""
    found, sequences = np.zeros(unicode.CODES, "<u4"), list[int]()
    for code in range(unicode.CODES):
        text = chr(code).lower() if lower else chr(code)
        if accents:
            text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
            text = text.encode("ascii", "ignore").decode() if accents == "ascii" else text
        if text == chr(code):
            continue
        if len(text) < 2:
            found[code] = ord(text) if text else DROPPED
        else:
            found[code] = SEQUENCE | len(sequences) << LENGTH_BITS | len(text)
            sequences += map(ord, text)
    return found, np.array(sequences, "<u4").tobytes()
