"""Conversion between dtypes: the reference of ``cast`` and its C.

A float becomes an integer without its fraction; beyond the range it becomes the nearest integer there is, and nan
becomes 0. An integer becomes a shorter one by its low bits. Numbers become bool by ``x != 0`` (nan is not 0), and bools
the numbers 0 and 1. What a float cannot hold is rounded to the nearest, halves to even; for bfloat16 it is rounded to
f32 first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlaot.ir import DType
from mlaot.ir.types import DTYPES

Array = np.ndarray[Any, Any]

# Numbers as computed with; halves are bits in uint16_t, and float everywhere else.
C_NAMES = {
    **{"f32": "float", "f64": "double", "bool": "int"},
    **{
        f"{kind}{bits}": f"{prefix}{bits}_t"
        for bits in (8, 16, 32, 64)
        for kind, prefix in (("i", "int"), ("u", "uint"))
    },
}
HALVES = ("f16", "bf16")


def convert(x: Array, dtype: DType) -> Array:
    """``x`` as ``dtype``."""
    with np.errstate(all="ignore"):
        if dtype.kind in "iu" and x.dtype.kind == "f":
            return _saturated(x, np.dtype(dtype.numpy))
        return dtype.array(x)


def _saturated(x: Array, dtype: np.dtype[Any]) -> Array:
    info = np.iinfo(dtype)
    whole = np.trunc(x.astype(np.float64))
    low, end = float(info.min), float(info.max // 2 + 1) * 2  # both powers of two, so exact
    inside = (whole >= low) & (whole < end)
    result = np.where(inside, whole, 0.0).astype(dtype)
    result = np.where(whole < low, dtype.type(info.min), result)
    return np.asarray(np.where(whole >= end, dtype.type(info.max), result))


def conversion(args: Sequence[str], t: str, dtype: DType, source: str | None = None) -> str:
    """The C of ``cast``: ``t`` is the suffix of the argument, or in vector code of the kernel, whose masks are bools.

    ``source`` is the dtype of the argument in vector code.
    """
    (x,) = args
    if t.endswith("v"):
        return _vector_conversion(x, t, dtype.name, source or t[:-1])
    return _scalar_conversion(x, t, dtype.name)


def _vector_conversion(x: str, t: str, target: str, source: str) -> str:
    if source == target:
        return x
    if target == "bool":
        return f"{x} != splat_{t}(0)"
    assert source == "bool" and target == t[:-1], f"bug in mlaot: a vector of {source} cast to {target}"
    return f"select_{t}({x}, splat_{t}(1), splat_{t}(0))"


def _scalar_conversion(x: str, source: str, target: str) -> str:
    if source == target:
        return x
    if source in HALVES:
        if target == "bool":
            return f"({x} & 0x7FFF) != 0"
        return _scalar_conversion(f"f32_from_{source}({x})", "f32", target)
    if target == "bool":
        return f"{x} != 0"
    if target == "f16" and source == "f64":
        return f"f16_from_f64({x})"
    if target in HALVES:
        return f"{target}_from_f32({_scalar_conversion(x, source, 'f32')})"
    if source in ("f32", "f64") and DTYPES[target].kind in "iu":
        return f"{target}_from_{source}({x})"
    return f"({C_NAMES[target]}){x}"
