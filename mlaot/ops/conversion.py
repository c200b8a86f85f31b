"""Conversion between dtypes: the reference of ``cast``.

A float becomes an integer without its fraction; beyond the range it becomes the nearest integer there is, and nan
becomes 0. An integer becomes a shorter one by its low bits. Numbers become bool by ``x != 0`` (nan is not 0), and bools
the numbers 0 and 1. What a float cannot hold is rounded to the nearest, halves to even; for bfloat16 it is rounded to
f32 first.
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
