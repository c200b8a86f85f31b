"""Conversion between dtypes: the reference of ``cast``.

A float is truncated to an integer. Beyond the range it becomes the nearest integer of the dtype, and nan becomes 0. A
shorter integer keeps the low bits. Numbers become bool by ``x != 0`` (nan is not 0), and bools become 0 and 1. A number
that a float dtype cannot hold is rounded to the nearest, ties to even; for bfloat16 it is rounded to f32 first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mlaot.ir import DType

Array = np.ndarray[Any, Any]


def convert(x: Array, dtype: DType) -> Array:
    """Convert ``x`` to ``dtype``."""
    with np.errstate(all="ignore"):
        if dtype.kind in "iu" and x.dtype.kind == "f":
            return _saturate(x, np.dtype(dtype.numpy))
        return dtype.array(x)


def _saturate(x: Array, dtype: np.dtype[Any]) -> Array:
    info = np.iinfo(dtype)
    truncated = np.trunc(x.astype(np.float64))
    low, end = float(info.min), float(info.max // 2 + 1) * 2  # both powers of two, so exact
    inside = (truncated >= low) & (truncated < end)
    result = np.where(inside, truncated, 0.0).astype(dtype)
    result = np.where(truncated < low, dtype.type(info.min), result)
    return np.asarray(np.where(truncated >= end, dtype.type(info.max), result))
