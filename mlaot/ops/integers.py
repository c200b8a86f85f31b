"""Integer arithmetic that is never undefined: the NumPy reference of its rules.

Results wrap around in two's complement: the largest number plus 1 is the smallest. The smallest has no positive
counterpart, so ``-smallest``, ``abs(smallest)`` and ``smallest // -1`` are the smallest itself. ``x // 0``,
``remainder(x, 0)`` and ``fmod(x, 0)`` are 0. A power with a negative exponent is the truncated reciprocal: 1 for 1, 1
or -1 for -1, and else 0. A shift by the width or more, or by a negative count, shifts out every bit. The result is 0,
or -1 for a negative number shifted to the right.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def floor_divide(x: Array, y: Array) -> Array:
    """Divide and round down."""
    return np.asarray(np.where(y == 0, _zero(x), np.floor_divide(x, _one_for_zero(y))))


def remainder(x: Array, y: Array) -> Array:
    """Return the remainder of a quotient rounded down, which has the sign of ``y``."""
    return np.asarray(np.where(y == 0, _zero(x), np.remainder(x, _one_for_zero(y))))


def fmod(x: Array, y: Array) -> Array:
    """Return the remainder of a quotient rounded towards 0, which has the sign of ``x``."""
    return np.asarray(np.where(y == 0, _zero(x), np.fmod(x, _one_for_zero(y))))


def power(x: Array, y: Array) -> Array:
    """Raise ``x`` to the power ``y``."""
    product = np.power(x, np.maximum(y, _zero(y)))
    if x.dtype.kind == "u":
        return np.asarray(product)
    parity = np.where(y & y.dtype.type(1), x, x * x)  # of 1 and -1
    reciprocal = np.where(np.abs(x) == 1, parity, _zero(x))
    return np.asarray(np.where(y < 0, reciprocal, product))


def left_shift(x: Array, count: Array) -> Array:
    """Multiply ``x`` by 2 to the ``count``."""
    inside, safe = _split_count(x, count)
    return np.asarray(np.where(inside, np.left_shift(x, safe), _zero(x)))


def right_shift(x: Array, count: Array) -> Array:
    """Divide ``x`` by 2 to the ``count`` and round down."""
    inside, safe = _split_count(x, count)
    sign = np.right_shift(x, x.dtype.type(8 * x.dtype.itemsize - 1)) if x.dtype.kind == "i" else _zero(x)
    return np.asarray(np.where(inside, np.right_shift(x, safe), sign))


def _split_count(x: Array, count: Array) -> tuple[Array, Array]:
    """Return a mask of counts in range, and the counts with 0 in place of others."""
    inside = np.asarray((count >= 0) & (count < 8 * x.dtype.itemsize))
    return inside, np.where(inside, count, _zero(count))


def _one_for_zero(y: Array) -> Array:
    return np.where(y == 0, y.dtype.type(1), y)


def _zero(x: Array) -> Any:
    return x.dtype.type(0)
