"""The data for C of an input of texts whose tokens a model reads, in one block.

A block begins with words of 64 bits: the start of the tokenizer's own block, the largest length of a row, and a flag
for cutting texts at their beginnings. Then come the lengths of the frames of one and of two texts, and the frames.
``templates/runtime/token_rows.c`` has the same list.
"""

from __future__ import annotations

import struct
from functools import cache

from mlaot.tokenizers.packing import pack
from mlaot.tokenizers.rows import Rows

HEAD = 5


@cache
def pack_rows(rows: Rows) -> bytes:
    """Return the block of an input."""
    frame = rows.frame
    numbers = (*frame.single, *frame.pair)
    head = (8 * (HEAD + len(numbers)), frame.most, int(frame.cuts_begin), len(frame.single), len(frame.pair))
    return struct.pack(f"<{HEAD + len(numbers)}q", *head, *numbers) + pack(rows.tokenizer)
