"""The data of a text step in one block of bytes, which C reads in place.

A block begins with the numbers of a step, which for a constant are its rank and its shape. Then come the numbers of its
texts and patterns, and the start and the size in bytes of each of ``TABLES``. Places count from the beginning of the
block, and are multiples of 8. The rows of patterns have the start of each pattern, and the rows of its table in which a
search begins. ``templates/runtime/pieces.c`` has the same lists.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache

import numpy as np

from mlaot.tokenizers import unicode
from mlaot.tokenizers.packing import lay_out, packed_automaton
from mlaot.tokenizers.text_steps import TextStep, simple_lower, simple_upper
from mlaot.tokenizers.vectorizer_packing import paged

KINDS = (
    *("constant", "lower", "upper", "without", "concat", "pieces", "counts", "match", "tokens", "number", "text"),
    *("join", "values", "image"),
)
NUMBERS = 8
TABLES = ("text", "at", "order", "change_pages", "changes", "rows", "patterns")
CASES: dict[str, Callable[[str], str]] = {"lower": simple_lower, "upper": simple_upper}


@cache
def pack_step(step: TextStep) -> bytes:
    """Return the block of a step, which does not depend on the step's operands."""
    tables = dict[str, bytes]()
    texts = [text.encode(errors="surrogatepass") for text in step.texts]
    tables["text"] = b"".join(texts)
    tables["at"] = np.cumsum([0, *map(len, texts)]).astype("<i4").tobytes()
    tables["order"] = np.array(sorted(range(len(texts)), key=texts.__getitem__), "<i4").tobytes()
    if step.kind in CASES:
        tables["change_pages"], tables["changes"] = paged(_changes(step.kind))
    rows, patterns = list[int](), b""
    for automaton, starts in step.patterns:
        rows += (len(patterns), *starts)
        pattern = packed_automaton(automaton)
        patterns += pattern + bytes(-len(pattern) % 8)
    tables |= {"rows": np.array(rows, "<i8").tobytes(), "patterns": patterns}
    own = (len(step.numbers), *step.numbers) if step.kind == "constant" else step.numbers
    assert len(own) <= NUMBERS, "bug in mlaot: a step with too many numbers"
    numbers = [*own, *[0] * (NUMBERS - len(own)), len(texts), len(step.patterns)]
    places, body = lay_out(8 * (len(numbers) + 2 * len(TABLES)), TABLES, tables)
    numbers += places
    return struct.pack(f"<{len(numbers)}q", *numbers) + body


@cache
def _changes(kind: str) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    """Return the replacement of each character, or 0 if it does not change."""
    found = np.zeros(unicode.CODES, "<u4")
    for code in range(unicode.CODES):
        other = ord(CASES[kind](chr(code)))
        found[code] = other if other != code else 0
    return found
