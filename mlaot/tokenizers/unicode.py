"""Properties of characters for tokenizers: categories, scripts, lower case, normal forms, of one version of Unicode.

The tables are in ``unicode.json``, and do not depend on the Python that runs, so that a text has the same tokens
everywhere.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

SPACES = (*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000)
CODES = sys.maxunicode + 1
HANGUL, LEADING, VOWEL, TRAILING = 0xAC00, 0x1100, 0x1161, 0x11A7  # where they begin
VOWELS, TRAILINGS, SYLLABLES = 21, 28, 11172


@cache
def _content() -> Mapping[str, Any]:
    content: Mapping[str, Any] = json.loads(Path(__file__).with_name("unicode.json").read_text())
    return content


def _ranges(name: str) -> Iterator[tuple[int, int, int]]:
    """Yield the ranges of a table: begin, end, value."""
    numbers, end = iter(_content()[name]), 0
    for gap, length, value in zip(numbers, numbers, numbers, strict=True):
        begin, end = end + gap, end + gap + length
        yield begin, end, value


def _values(name: str) -> bytes:
    """Return the value of each character."""
    values = bytearray(CODES)
    for begin, end, value in _ranges(name):
        values[begin:end] = bytes([value]) * (end - begin)
    return bytes(values)


def _changes(name: str) -> dict[str, str]:
    """Return the replacements of characters."""
    numbers, found, code = iter(_content()[name]), dict[str, str](), 0
    for gap in numbers:
        code += gap
        found[chr(code)] = "".join(chr(next(numbers)) for _ in range(next(numbers)))
    return found


@cache
def names() -> tuple[str, ...]:
    """Return the names of the categories, in the order of their numbers, which begin at 1."""
    return tuple(_content()["names"])


@cache
def categories() -> bytes:
    """Return the number of each character's category, or 0 if it is unassigned."""
    return _values("categories")


@cache
def script_names() -> Mapping[str, int]:
    """Return the numbers of scripts by their names in lower case."""
    return {name.lower(): i for i, names in enumerate(_content()["script names"], 1) for name in names.split()}


@cache
def scripts() -> bytes:
    """Return the number of each character's script, or 0 for another script or none."""
    return _values("scripts")


@cache
def later() -> bytes:
    """Return for each character the older tables of Hugging Face's library that lack it.

    The bit 1 is for the table of categories, and 2 for that of accents.
    """
    return _values("later")


@cache
def combining() -> bytes:
    """Return the combining class of each character."""
    return _values("combining")


def compatible() -> dict[str, str]:
    """Return the compatibility decompositions of characters, without canonical ones."""
    return _changes("compatible")


def lower() -> dict[str, str]:
    """Return the lower case of characters."""
    return _changes("lower")


@cache
def decompositions() -> dict[int, tuple[int, ...]]:
    """Return the full decompositions of characters, except Hangul, which is computed."""
    numbers = iter(_content()["decompositions"])
    once = {code: (first, second) for code, first, second in zip(numbers, numbers, numbers, strict=True)}

    def whole(code: int) -> tuple[int, ...]:
        return sum((whole(part) for part in once[code] if part), ()) if code in once else (code,)

    return {code: whole(code) for code in once}


@cache
def compositions() -> dict[tuple[int, int], int]:
    """Return the compositions of two characters, except Hangul, which is computed."""
    numbers, excluded = iter(_content()["decompositions"]), set(_content()["not composed"])
    found = zip(numbers, numbers, numbers, strict=True)
    return {(first, second): code for code, first, second in found if second and code not in excluded}


def changing() -> set[int]:
    """Return the characters that NFC never contains, and those that may be composed with an earlier one."""
    jamo = {*range(VOWEL, VOWEL + VOWELS), *range(TRAILING + 1, TRAILING + TRAILINGS)}
    return {*_content()["not composed"], *(second for _, second in compositions()), *jamo}


def decompose(text: str) -> str:
    """Return the decomposed normal form (NFD)."""
    return "".join(map(chr, _ordered(text)))


def _ordered(text: str) -> list[int]:
    classes_of, codes = combining(), [part for c in text for part in _parts_of(ord(c))]
    begin = 0
    for i in range(len(codes) + 1):  # marks between two starters, in the order of their classes
        if i == len(codes) or classes_of[codes[i]] == 0:
            codes[begin:i] = sorted(codes[begin:i], key=lambda code: classes_of[code])
            begin = i + 1
    return codes


def compose(text: str) -> str:
    """Return the composed normal form (NFC)."""
    classes_of, codes = combining(), _ordered(text)
    result, starter, last = list[int](), -1, 0  # last: the class of what was put behind the starter
    for code in codes:
        kind = classes_of[code]
        both = _composed(result[starter], code) if starter >= 0 and (last < kind or len(result) - 1 == starter) else 0
        if both:
            result[starter] = both
            continue
        if kind == 0:
            starter = len(result)
        last = kind
        result.append(code)
    return "".join(map(chr, result))


def _parts_of(code: int) -> tuple[int, ...]:
    if 0 <= (syllable := code - HANGUL) < SYLLABLES:
        vowel, trailing = divmod(syllable % (VOWELS * TRAILINGS), TRAILINGS)
        parts = (LEADING + syllable // (VOWELS * TRAILINGS), VOWEL + vowel)
        return (*parts, TRAILING + trailing) if trailing else parts
    return decompositions().get(code, (code,))


def _composed(first: int, second: int) -> int:
    """Return the character that two compose to, or 0."""
    if 0 <= (lead := first - LEADING) < 19 and 0 <= (vowel := second - VOWEL) < VOWELS:
        return HANGUL + (lead * VOWELS + vowel) * TRAILINGS
    syllable = 0 <= first - HANGUL < SYLLABLES and (first - HANGUL) % TRAILINGS == 0
    if syllable and 0 < second - TRAILING < TRAILINGS:
        return first + second - TRAILING
    return compositions().get((first, second), 0)
