"""Layouts of weights in a GGUF file: single numbers, or blocks of numbers of a few bits that share a scale.

The layouts are those of ggml. A block is a record of NumPy, and a function for each type decodes its bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
STEP = 2**17  # numbers at once: what is computed between stays in the cache


@dataclass(frozen=True)
class Type:
    """A type of blocks of ``numbers`` numbers, which ``decode`` converts to float32 [blocks, numbers]."""

    name: str
    numbers: int
    block: np.dtype[Any]
    decode: Callable[[Array], Array]


def decode(blocks: Array, kind: Type) -> Array:
    """Return the numbers [rows, columns] of blocks [rows, blocks of a row] in float32."""
    flat = blocks.reshape(-1)
    numbers = np.empty((flat.size, kind.numbers), np.float32)
    step = STEP // kind.numbers
    with np.errstate(all="ignore"):  # scales may be anything
        for i in range(0, flat.size, step):
            numbers[i : i + step] = kind.decode(flat[i : i + step])
    return numbers.reshape(len(blocks), -1)


def _bits(packed: Array, count: int, run: int) -> Array:
    """Split bytes [n, bytes] into parts of ``count`` bits: the lowest parts of all bytes, then the next higher ones."""
    shifts = np.arange(0, 8, count, dtype=np.uint8)[:, None]
    parts: Array = packed.reshape(len(packed), -1, 1, run) >> shifts & np.uint8(2**count - 1)
    return parts.reshape(len(packed), -1)


def _wide(blocks: Array, field: str) -> Array:
    """Return a field [n, numbers] in float32."""
    return blocks[field].astype(np.float32).reshape(len(blocks), -1)


def _shared(scales: Array, numbers: Array) -> Array:
    """Multiply numbers [n, m] by scales [n, k], each of which m / k consecutive numbers share."""
    count, groups = scales.shape
    product: Array = scales[:, :, None] * numbers.reshape(count, groups, -1)
    return product.reshape(count, -1)


def _signed(numbers: Array, offset: int) -> Array:
    """Return whole numbers minus an offset in float32."""
    return numbers.astype(np.float32) - np.float32(offset)


def _numbers(blocks: Array) -> Array:
    return blocks.astype(np.float32)[:, None]


def _bf16(blocks: Array) -> Array:
    return (blocks.astype(np.uint32) << 16).view(np.float32)[:, None]


def _q4_0(blocks: Array) -> Array:
    return _wide(blocks, "scale") * _signed(_bits(blocks["low"], 4, 16), 8)


def _q4_1(blocks: Array) -> Array:
    return _wide(blocks, "scale") * _bits(blocks["low"], 4, 16) + _wide(blocks, "least")


def _of_5_bits(blocks: Array) -> Array:
    whole: Array = _bits(blocks["low"], 4, 16) | np.unpackbits(blocks["high"], axis=1, bitorder="little") << np.uint8(4)
    return whole


def _q5_0(blocks: Array) -> Array:
    return _wide(blocks, "scale") * _signed(_of_5_bits(blocks), 16)


def _q5_1(blocks: Array) -> Array:
    return _wide(blocks, "scale") * _of_5_bits(blocks) + _wide(blocks, "least")


def _q8_0(blocks: Array) -> Array:
    return _wide(blocks, "scale") * _wide(blocks, "whole")


def _q2_k(blocks: Array) -> Array:
    scales, leasts = blocks["scales"] & 15, blocks["scales"] >> 4
    return _k(blocks, scales, leasts, _bits(blocks["low"], 2, 32))


def _q3_k(blocks: Array) -> Array:
    scales = _bits(blocks["scales"], 4, 8) | _bits(blocks["scales_high"], 2, 4) << np.uint8(4)
    whole = _bits(blocks["low"], 2, 32) | _bits(blocks["high"], 1, 32) << np.uint8(2)
    return _shared(_wide(blocks, "scale") * _signed(scales, 32), _signed(whole, 4))


def _k(blocks: Array, scales: Array, leasts: Array, whole: Array) -> Array:
    """Return whole numbers times their scales, minus the minimum of the numbers that share a scale."""
    least = np.repeat(_wide(blocks, "least") * leasts, whole.shape[1] // leasts.shape[1], axis=1)
    numbers: Array = _shared(_wide(blocks, "scale") * scales, whole) - least
    return numbers


def _of_6_bits(blocks: Array) -> tuple[Array, Array]:
    """Return eight scales and eight minima of six bits. The last four of both are in the unused bits of the others."""
    first, second, third = (blocks["scales"][:, i : i + 4] for i in (0, 4, 8))
    scales = np.concatenate([first & 63, third & 15 | first >> 6 << 4], axis=1)
    return scales, np.concatenate([second & 63, third >> 4 | second >> 6 << 4], axis=1)


def _q4_k(blocks: Array) -> Array:
    return _k(blocks, *_of_6_bits(blocks), _bits(blocks["low"], 4, 32))


def _q5_k(blocks: Array) -> Array:
    whole = _bits(blocks["low"], 4, 32) | _bits(blocks["high"], 1, 32) << np.uint8(4)
    return _k(blocks, *_of_6_bits(blocks), whole)


def _q6_k(blocks: Array) -> Array:
    whole = _bits(blocks["low"], 4, 64) | _bits(blocks["high"], 2, 32) << np.uint8(4)
    return _shared(_wide(blocks, "scale") * blocks["scales"], _signed(whole, 32))


def _block(*fields: tuple[str, str, int]) -> np.dtype[Any]:
    return np.dtype([(name, kind, (count,)) for name, kind, count in fields])


SCALE, LEAST = ("scale", "<f2", 1), ("least", "<f2", 1)
TYPES = {  # by the numbers that files have for them
    0: Type("F32", 1, np.dtype("<f4"), _numbers),
    1: Type("F16", 1, np.dtype("<f2"), _numbers),
    2: Type("Q4_0", 32, _block(SCALE, ("low", "u1", 16)), _q4_0),
    3: Type("Q4_1", 32, _block(SCALE, LEAST, ("low", "u1", 16)), _q4_1),
    6: Type("Q5_0", 32, _block(SCALE, ("high", "u1", 4), ("low", "u1", 16)), _q5_0),
    7: Type("Q5_1", 32, _block(SCALE, LEAST, ("high", "u1", 4), ("low", "u1", 16)), _q5_1),
    8: Type("Q8_0", 32, _block(SCALE, ("whole", "i1", 32)), _q8_0),
    10: Type("Q2_K", 256, _block(("scales", "u1", 16), ("low", "u1", 64), SCALE, LEAST), _q2_k),
    11: Type(
        "Q3_K",
        256,
        _block(("high", "u1", 32), ("low", "u1", 64), ("scales", "u1", 8), ("scales_high", "u1", 4), SCALE),
        _q3_k,
    ),
    12: Type("Q4_K", 256, _block(SCALE, LEAST, ("scales", "u1", 12), ("low", "u1", 128)), _q4_k),
    13: Type("Q5_K", 256, _block(SCALE, LEAST, ("scales", "u1", 12), ("high", "u1", 32), ("low", "u1", 128)), _q5_k),
    14: Type("Q6_K", 256, _block(("low", "u1", 128), ("high", "u1", 64), ("scales", "i1", 16), SCALE), _q6_k),
    30: Type("BF16", 1, np.dtype("<u2"), _bf16),
}
