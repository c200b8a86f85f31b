"""The character map of SentencePiece: a double array in the format of Darts, and texts."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mlaot.errors import MlaotError

MAX_KEYS = 1 << 20


def from_base64(path: Path, text: str) -> dict[bytes, bytes]:
    """Return the table of a ``tokenizer.json``."""
    try:
        return decode(path, base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        raise MlaotError(f"{path}: precompiled_charsmap is not base64") from None


def decode(path: Path, blob: bytes) -> dict[bytes, bytes]:
    """Return the replacement of each key.

    A blob is the size of the array, the array, and texts that end with a zero.
    """
    if not blob:
        return {}
    size = int.from_bytes(blob[:4], "little")
    if len(blob) < 4 or size % 4 or not 0 < size <= len(blob) - 4:
        raise MlaotError(f"{path}: the table of characters has {len(blob)} bytes, of which {size} are its array")
    units, texts = np.frombuffer(blob, "<u4", size // 4, 4).tolist(), blob[4 + size :]
    found = dict[bytes, bytes]()
    for key, place in _keys(path, units):
        end = texts.find(0, place)
        if end < 0:
            raise MlaotError(f"{path}: the table of characters has a text at {place} of {len(texts)}")
        found[key] = texts[place:end]
        try:
            key.decode(), found[key].decode()
        except UnicodeDecodeError:
            raise MlaotError(
                f"{path}: the table of characters maps {key!r} to {found[key]!r}, no Unicode text"
            ) from None
    return found


def _keys(path: Path, units: list[int]) -> Iterator[tuple[bytes, int]]:
    """Yield the keys of a double array, and their values."""
    children: dict[int, list[tuple[int, bytes]]] = {}  # by the base of a node
    for place, unit in enumerate(units):
        if 0 < (byte := unit & 0x800000FF) < 256:
            children.setdefault(place ^ byte, []).append((place, bytes([byte])))
    waiting, steps = [(0, b"")], 0
    while waiting:
        node, key = waiting.pop()
        base = node ^ _offset(units[node])
        if key and units[node] >> 8 & 1:  # it has a value, which lies where a zero leads to
            if base >= len(units) or not units[base] >> 31:
                raise MlaotError(f"{path}: the table of characters is damaged at {key!r}")
            yield key, units[base] & 0x7FFFFFFF
        waiting += ((child, key + byte) for child, byte in children.get(base, ()))
        steps += 1
        if steps > MAX_KEYS or len(key) > 255:
            raise MlaotError(f"{path}: the table of characters has keys without end")


def _offset(unit: int) -> int:
    return unit >> 10 << ((unit & 0x200) >> 6)
