"""All that C needs to know of an input of texts whose tokens a model reads, in one block.

A block begins with words of 64 bits: where the tokenizer's own block begins, how many numbers a row has at most,
whether texts are cut at their begins, how many numbers the frames of a text and of two have, and these.
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
