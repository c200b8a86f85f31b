"""Quantization to 8 bits, and sums of products of bytes, four at a time.

Operands have the form that instructions take (``vpdpbusd`` of AVX-512 VNNI): one unsigned, the other signed, four
neighbours of a sum in a word of 32 bits. Sums of 32 bits are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.ir import Dim, DType, Type
from mlaot.ir.types import f32, f64, i8, i32, u8
from mlaot.nest.expressions import Call, Expr, Index, ValueType
from mlaot.ops.axes import ELEMENTWISE, contraction, parse_spec
from mlaot.ops.base import Array, Op, no_gradient

LARGEST = 255 * 128  # of a product of an unsigned and a signed byte
LARGEST_PAIR = (2**15 - 1) // 255  # the sum of two weights of one sign whose products 16 bits hold
LONGEST = (2**31 - 1) // LARGEST  # products whose sum a 32-bit number holds


def _quantize_type(x: Type, dtype: DType) -> Type:
    if x.dtype not in (f32, f64) or dtype not in (u8, i8):
        raise MlaotError(f"cannot round {x} to {dtype}; floats are rounded to u8 or i8")
    return Type(dtype, x.shape)


def _quantize_reference(x: Array, dtype: DType) -> Array:
    info = np.iinfo(dtype.numpy)
    numbers = np.nan_to_num(np.asarray(x), nan=info.min)
    return np.asarray(np.clip(np.rint(numbers), info.min, info.max).astype(dtype.numpy))


def _quantize(args: Sequence[Expr], dtype: DType) -> Expr:
    (x,) = args
    info = np.iinfo(dtype.numpy)
    inside = Call("nearest_inside", (x, Index(int(info.min)), Index(int(info.max))), x.type)
    return Call("convert", (inside,), ValueType(dtype.name, x.type.lanes))


quantize: Op = Op(
    "quantize",
    _quantize_type,
    _quantize_reference,
    no_gradient,
    ELEMENTWISE,
    _quantize,
    doc="the nearest number of 8 bits, of a half the even one; for nan the smallest",
)


def pack_words(weights: Array, axis: int) -> Array:
    """Pack every four neighbours along ``axis``, whose length is a multiple of four, in one int32."""
    last = np.moveaxis(weights, axis, -1)
    words = np.ascontiguousarray(last).view("<i4").astype(np.int32, copy=False)
    return np.ascontiguousarray(np.moveaxis(words, -1, axis))


def pairs_fit(words: Array) -> bool:
    """Whether the products of two neighbours in weights and any unsigned bytes have a sum of 16 bits."""
    pairs = np.ascontiguousarray(words).astype("<i4", copy=False).view(np.int8).astype(np.int16).reshape(-1, 2)
    return all(int(np.maximum(sign * pairs, 0).sum(axis=1).max(initial=0)) <= LARGEST_PAIR for sign in (1, -1))


def _contract_bytes_type(x: Type, w: Type, spec: str, pairs: bool) -> Type:
    labels, weight_labels, out = parse_spec(spec)
    sizes: dict[str, Dim] = {}
    fits = x.dtype is u8 and w.dtype is i32 and x.shape[-1:] == (4,) and x.rank == len(labels) + 1
    fits = fits and w.rank == len(weight_labels) and set(out) <= {*labels, *weight_labels}
    for label, size in (*zip(labels, x.shape, strict=False), *zip(weight_labels, w.shape, strict=False)):
        fits = fits and sizes.setdefault(label, size) == size
    if not fits:
        raise MlaotError(f"contract_bytes '{spec}' does not fit {x} and {w}")
    return Type(f32, tuple(sizes[label] for label in out))


def _contract_bytes_reference(x: Array, w: Array, spec: str, pairs: bool) -> Array:
    labels, weight_labels, out = parse_spec(spec)
    byte = next(c for c in "zyxwvutsrqpZYX" if c not in spec)
    signed = np.ascontiguousarray(w).astype("<i4", copy=False).view(np.int8).reshape(*w.shape, 4)
    # Sums of these are exact in float64, for which NumPy has fast products.
    operands = x.astype(np.float64), signed.astype(np.float64)
    sums: Any = np.einsum(f"{labels}{byte},{weight_labels}{byte}->{out}", *operands, optimize=True)
    return np.asarray(sums).astype(np.float32)


contract_bytes: Op = Op(
    "contract_bytes",
    _contract_bytes_type,
    _contract_bytes_reference,
    no_gradient,
    contraction("byte"),
    doc="a sum of products by labels of bytes x, a last axis of 4, and y, words of 4 signed bytes; exact in 32 bits;"
    " pairs: two neighbours in y have products whose sum 16 bits hold",
)
