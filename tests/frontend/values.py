"""Special values of every dtype, and how results are compared with those of NumPy."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

FLOATS = ("float64", "float32", "float16")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
DTYPES = (*FLOATS, *SIGNED, *UNSIGNED, "bool")


@cache
def special(dtype: str) -> Array:
    """Zeros, ends, halves that round, infinities, nan and ordinary numbers of a dtype."""
    if dtype == "bool":
        return np.array([False, True])
    if np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        small = [0, 1, 2, 3, 5, 7, 10, 63, *((-1, -2, -3, -7, -64) if info.min else ())]
        return np.array([*small, info.min, info.min + 1, info.max, info.max - 1, info.max // 2], dtype)
    limits = np.finfo(dtype)
    tiny = [float(limits.smallest_subnormal), 8 * float(limits.smallest_subnormal), float(limits.smallest_normal)]
    ordinary = [1e-3, 0.3, 0.5, 1 - float(limits.epsneg), 1.0, 1 + float(limits.eps), 1.5, 2.0, 2.5, 3.0, 10.0, 49.0]
    large = [700.0, 2.0**limits.nmant - 0.5, float(limits.max) / 2, float(limits.max), np.inf, np.nan]
    return np.array([sign * x for x in (0.0, *tiny, *ordinary, *large) for sign in (1, -1)], dtype)


@cache
def pairs(first: str, second: str = "") -> tuple[Array, Array]:
    """Every special value of one dtype with every one of another."""
    a, b = np.meshgrid(special(first), special(second or first), indexing="ij")
    return a.ravel(), b.ravel()


def differences(found: Any, expected: Any, ulps: float = 0, *, zeros: bool = True, scale: Any = 0) -> str:
    """Where two arrays differ, as a line; nothing where they agree.

    dtype and shape are equal; nan stands where nan stands; numbers are within ``ulps`` units in the last place, of
    ``scale`` where that is larger. ``zeros``: whether the sign of a zero counts.
    """
    found, expected = np.asarray(found), np.asarray(expected)
    if (found.dtype, found.shape) != (expected.dtype, expected.shape):
        return f"{found.dtype}{found.shape}, expected {expected.dtype}{expected.shape}"
    if expected.dtype.kind != "f":
        wrong = found != expected
    else:
        with np.errstate(all="ignore"):
            f, e = found.astype(np.float64), expected.astype(np.float64)
            unit = _unit(np.maximum(np.abs(e), np.nan_to_num(np.abs(scale), nan=0, posinf=0)), expected.dtype)
            near = (f == e) | (np.isfinite(e) & np.isfinite(f) & (np.abs(f - e) <= ulps * unit))
            if ulps:  # the largest number and infinity are neighbours
                near |= np.isinf(e + f) & (np.abs(np.clip(f, *_ends(e)) - np.clip(e, *_ends(e))) <= ulps * unit)
            wrong = ~(near | (np.isnan(f) & np.isnan(e)))
            if zeros:
                wrong |= (f == 0) & (e == 0) & (np.signbit(f) != np.signbit(e))
    if not wrong.any():
        return ""
    at = tuple(int(i[0]) for i in np.nonzero(wrong)) if wrong.ndim else ()
    return f"{int(wrong.sum())} of {wrong.size} differ, at {list(at)}: {found[at]!r}, expected {expected[at]!r}"


def _unit(x: Array, dtype: np.dtype[Any]) -> Array:
    """The distance of neighbouring numbers at ``x``."""
    limits = np.finfo(dtype)
    return np.maximum(
        np.exp2(np.floor(np.log2(np.minimum(x, float(limits.max)))) - limits.nmant), float(limits.smallest_subnormal)
    )


def _ends(e: Array) -> tuple[float, float]:
    top = float(np.finfo(np.float64).max)
    return -top, top
