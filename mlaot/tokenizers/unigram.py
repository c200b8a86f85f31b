"""The unigram model: of all segmentations of a text into pieces, the one with the largest sum of scores."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from math import inf


def segment(
    text: bytes, pieces: Mapping[bytes, tuple[int, float]], longest: int, unknown: tuple[int, float], single: bool
) -> list[tuple[int, bytes]]:
    """Return the tokens and their bytes. ``unknown`` is the token and the score of a character without a piece.

    With ``single`` sums are in float32, as in SentencePiece.
    """
    best: list[tuple[float, int, int] | None] = [(0.0, 0, 0), *[None] * len(text)]
    begin = 0
    while begin < len(text):
        size = 1 + next(n for n in range(4) if begin + 1 + n == len(text) or text[begin + 1 + n] & 0xC0 != 0x80)
        here = best[begin]
        assert here is not None, "bug in mlaot: no way to a character"
        for length in range(1, min(max(longest, size), len(text) - begin) + 1):
            piece = pieces.get(text[begin : begin + length])
            if piece is None and length == size:
                piece = unknown
            if piece is not None:
                score, old = here[0] + piece[1], best[begin + length]
                score = _single(score) if single else score
                if old is None or score > old[0]:
                    best[begin + length] = score, begin, piece[0]
        begin += size
    found, end = list[tuple[int, bytes]](), len(text)
    while end:
        way = best[end]
        assert way is not None, "bug in mlaot: no way to the end"
        found.append((way[2], text[way[1] : end]))
        end = way[1]
    return found[::-1]


def second(piece: bytes, pieces: Mapping[bytes, tuple[int, float]], unknown: float) -> tuple[float, float]:
    """Return the best score of a piece's text by other pieces, and the largest size of scores at its places."""
    best = [0.0, *[-inf] * len(piece)]
    begin = 0
    while begin < len(piece):
        size = next((n for n in range(1, 4) if begin + n == len(piece) or piece[begin + n] & 0xC0 != 0x80), 4)
        for end in range(begin + 1, len(piece) + (begin > 0)):
            found = pieces.get(piece[begin:end])
            if found is not None:
                best[end] = max(best[end], best[begin] + found[1])
        if piece[begin : begin + size] not in pieces or size == len(piece):
            best[begin + size] = max(best[begin + size], best[begin] + unknown)
        begin += size
    return best[-1], max((abs(score) for score in best if score > -inf), default=0.0)


def _single(value: float) -> float:
    result: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return result
