"""A ``tokenizer.bin`` of llama2.c: pieces in which spaces are spaces, with the scores by which they are merged."""

from __future__ import annotations

import struct
from pathlib import Path

from mlaot.errors import MlaotError
from mlaot.tokenizers.normalizer import Normalizer
from mlaot.tokenizers.sentencepiece import with_pairs
from mlaot.tokenizers.tokenizer import MAX_TOKEN_BYTES, MAX_TOKENS, Tokenizer

UNKNOWN, BEGIN, END, BYTES = 0, 1, 2, 3  # its tokens; those of the bytes follow


def read_tokenizer_bin(path: Path, data: bytes) -> Tokenizer:
    """Return the tokenizer of a file: the longest piece's length; each piece's score, length and bytes."""
    tokens, scores, place = list[bytes](), list[float](), 4
    while place < len(data):
        score, size = struct.unpack_from("<fi", data, place) if place + 8 <= len(data) else (0.0, -1)
        place += 8
        if not 0 <= size <= MAX_TOKEN_BYTES or place + size > len(data) or len(tokens) == MAX_TOKENS:
            raise MlaotError(f"{path}: expected the pieces of llama2.c's tokenizer, that of {len(tokens)} is damaged")
        tokens.append(data[place : place + size])
        scores.append(score)
        place += size
    if len(tokens) < BYTES + 256:
        raise MlaotError(f"{path}: expected 3 special tokens and 256 bytes of llama2.c's tokenizer, got {len(tokens)}")
    pieces = dict[bytes, int]()
    for i, piece in enumerate(tokens[BYTES + 256 :], BYTES + 256):
        try:
            piece.decode()
        except UnicodeDecodeError:
            raise MlaotError(f"{path}: the piece {i} is not UTF-8: {piece[:40]!r}") from None
        if piece in pieces or scores[i] != scores[i]:
            raise MlaotError(f"{path}: the piece {i}, {piece[:40]!r}, is there twice, or its score is no number")
        if piece:
            pieces[piece] = i
    tokens[:BYTES] = b"", b"", b""
    tokens[BYTES : BYTES + 256] = (bytes([byte]) for byte in range(256))
    found = Tokenizer(
        "bpe",
        tuple(tokens),
        pieces,
        byte_tokens=tuple(range(BYTES, BYTES + 256)),
        unknown=UNKNOWN,
        normalizer=Normalizer(prefixes=True),
        added={b"<s>": BEGIN, b"</s>": END},
        special=frozenset({BEGIN, END}),
        silent=frozenset({UNKNOWN, BEGIN, END}),
        begin=(BEGIN,),
        end=(BEGIN, END),
        drops_space=True,
    )
    return with_pairs(found, scores)
