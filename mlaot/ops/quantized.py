"""Products of bytes, four at a time, and products with weights of 8 or 4 bits that have a scale for each group.

Products of bytes have operands in the form of instructions (``vpdpbusd`` of AVX-512 VNNI): one unsigned and one signed,
with four neighbours of a sum in a word of 32 bits. Sums of 32 bits are exact.

Grouped weights are fields of words. With weights of 8 bits, the other operand has 16 bits. Instructions (``pmaddwd`` of
SSE2) add two products of signed 16-bit numbers. So the fields of both halves of a word are neighbours, and two shifts
convert them to numbers::

    x0 w0 + x1 w1 + x2 w2 + x3 w3 = dot2((x0, x1), word << 8 >> 8) + dot2((x2, x3), word >> 8),   word = w3 w1 | w2 w0

With weights of 4 bits, the other operand has 8 bits, whose rounding error is smaller than that of the weights. Fields
are stored plus 8, without a sign, so that the halves of the bytes of a word can be an operand of products of bytes. The
sum of a group begins with the correction for this, -8 times the sum of the other operand::

    -8 (x0 + .. + x7) + dot4(word & 0x0f0f0f0f, (x0, x1, x2, x3)) + dot4(word >> 4 & 0x0f0f0f0f, (x4, x5, x6, x7))

The sum of a group of weights is also exact. It is scaled to a float, and added to those of other groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.ir import Dim, DType, Type
from mlaot.ir.dims import product
from mlaot.ir.indices import IndexRange
from mlaot.ir.types import f32, f64, i8, i16, i32, u8
from mlaot.nest.expressions import WORD, Call, Expr, ValueType, call, const
from mlaot.nest.expressions import Index as IndexExpr
from mlaot.ops.axes import ELEMENTWISE, contraction, grouped_contraction, grouped_gather, listed_contraction, parse_spec
from mlaot.ops.base import Array, Index, Op, no_gradient
from mlaot.ops.indexing import gather
from mlaot.ops.nests.entries import contract_entries_nest
from mlaot.ops.nests.gathers import field_flips, field_ups, gather_groups_nest

LARGEST = 255 * 128  # of a product of an unsigned and a signed byte
LARGEST_PAIR = (2**15 - 1) // 255  # the sum of two weights of one sign whose products 16 bits hold
LONGEST = (2**31 - 1) // LARGEST  # products whose sum a 32-bit number holds


def _quantize_type(x: Type, dtype: DType, zero: int = 0) -> Type:
    if x.dtype not in (f32, f64) or dtype not in (u8, i8, i16):
        raise MlaotError(f"cannot round {x} to {dtype}; floats are rounded to u8, i8 or i16")
    return Type(dtype, x.shape)


def _quantize_reference(x: Array, dtype: DType, zero: int = 0) -> Array:
    info = np.iinfo(dtype.numpy)
    numbers = np.nan_to_num(np.asarray(x), nan=info.min - zero)
    return np.asarray((np.clip(np.rint(numbers), info.min - zero, info.max - zero) + zero).astype(dtype.numpy))


def _quantize(args: Sequence[Expr], dtype: DType, zero: int = 0) -> Expr:
    (x,) = args
    info = np.iinfo(dtype.numpy)
    inside: Expr = Call("nearest_inside", (x, IndexExpr(int(info.min) - zero), IndexExpr(int(info.max) - zero)), x.type)
    inside = call("add", inside, const(float(zero), x.type)) if zero else inside
    return Call("convert", (inside,), ValueType(dtype.name, x.type.lanes))


quantize: Op = Op(
    "quantize",
    _quantize_type,
    _quantize_reference,
    no_gradient,
    ELEMENTWISE,
    _quantize,
    doc="the nearest number of 8 or 16 bits, of a half the even one, for nan the smallest; zero: is added to what is"
    " rounded",
)


def pack_words(weights: Array, axis: int) -> Array:
    """Pack every four neighbours along ``axis``, whose length is a multiple of four, in one int32."""
    last = np.moveaxis(weights, axis, -1)
    words = np.ascontiguousarray(last).view("<i4").astype(np.int32, copy=False)
    return np.ascontiguousarray(np.moveaxis(words, -1, axis))


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
    doc="a sum of products, exact in 32 bits, of bytes x, whose last axis is 4 long, and words y of 4 signed bytes;"
    " with pairs, 16 bits hold the sum of two neighbours' products",
)


def pairs_split(codes: Array, axis: int) -> tuple[Array, Array]:
    """Split signed bytes, packed along ``axis``, into two parts so that sums of two products fit 16 bits.

    In the first part, the sum of the products of two neighbours with any unsigned bytes fits 16 bits. The second part
    has the excess of the larger weight of a pair, which is 0 nearly everywhere for trained weights.
    """
    last = np.moveaxis(codes.astype(np.int16), axis, -1)
    pairs = last.reshape(*last.shape[:-1], -1, 2)
    excess = np.maximum(np.abs(pairs.sum(axis=-1)) - LARGEST_PAIR, 0)  # no more than one of them if signs differ
    is_larger = np.argmax(np.abs(pairs), axis=-1)[..., None] == np.arange(2)
    rest = (np.sign(pairs) * excess[..., None] * is_larger).reshape(last.shape)
    rest = np.moveaxis(rest, -1, axis).astype(codes.dtype)
    return codes - rest, rest


def _contract_entries_type(x: Type, spec: str, sizes: tuple[int, ...], entries: tuple[int, ...]) -> Type:
    labels, weight_labels, out = parse_spec(spec)
    extents: dict[str, Dim] = dict(zip(weight_labels, sizes, strict=True))
    fits = x.dtype is u8 and x.shape[-1:] == (4,) and x.rank == len(labels) + 1
    for label, size in zip(labels, x.shape, strict=False):
        fits = fits and extents.setdefault(label, size) == size
    if not fits or not set(out) <= extents.keys() or len(entries) % (len(sizes) + 2):
        raise MlaotError(f"contract_entries '{spec}' of {list(sizes)} does not fit {x}")
    return Type(f32, tuple(extents[label] for label in out))


def _contract_entries_reference(x: Array, spec: str, sizes: tuple[int, ...], entries: tuple[int, ...]) -> Array:
    _, weight_labels, _ = parse_spec(spec)
    *at, values = np.array(entries, np.int64).reshape(-1, len(weight_labels) + 2).T
    w = np.zeros((*sizes, 4), np.int8)
    np.add.at(w, tuple(at), values.astype(np.int8))
    return _contract_bytes_reference(x, pack_words(w, -1)[..., 0], spec, False)


contract_entries: Op = Op(
    "contract_entries",
    _contract_entries_type,
    _contract_entries_reference,
    no_gradient,
    listed_contraction,
    nest=contract_entries_nest,
    doc="contract_bytes of x and words that are zeros but for some bytes: entries, of each the indices and the value",
)


def pack_fields(weights: Array, bits: int) -> Array:
    """Pack signed integers of few bits, neighbours along the first axis of a matrix, in the fields of int32 words."""
    fields = weights.astype(np.int64).reshape(-1, WORD // bits, weights.shape[1]) & ((1 << bits) - 1)
    places = WORD - bits - np.array(field_ups(bits))[:, None]
    return np.asarray((fields << places).sum(axis=1).astype(np.uint32).view(np.int32) ^ np.int32(field_flips(bits)))


def unpack_fields(words: Array, bits: int) -> Array:
    """Invert ``pack_fields``: return for each word along the last axis but one all of its fields."""
    signed = words[..., None, :] ^ np.int32(field_flips(bits))
    fields = np.asarray(signed << np.array(field_ups(bits), np.int32)[:, None]) >> (WORD - bits)
    return fields.reshape(*words.shape[:-2], words.shape[-2] * (WORD // bits), words.shape[-1])


def _contract_groups_type(x: Type, words: Type, scales: Type, row_scales: Type, *starts: Type, bits: int) -> Type:
    rows, groups, columns = x.shape[:-3], x.shape[-3:-2], words.shape[-1:]
    fits = x.rank >= 3 and x.shape[-1] == WORD // bits and words.dtype is i32
    fits = fits and words.shape[:-1] == x.shape[-3:-1] and scales.dtype is row_scales.dtype is f32
    fits = fits and (x.dtype, *starts) == ((i8, Type(i32, (*rows, *groups))) if bits == 4 else (i16,))
    if not fits or scales.shape != (*groups, *columns) or row_scales.shape != (*rows, *groups):
        got = ", ".join(map(str, (x, words, scales, row_scales, *starts)))
        raise MlaotError(f"contract_groups of {bits} bits does not fit {got}")
    return Type(f32, (*rows, *columns))


def _contract_groups_reference(
    x: Array, words: Array, scales: Array, row_scales: Array, *starts: Array, bits: int
) -> Array:
    groups, columns = scales.shape
    fields = unpack_fields(words, bits).astype(np.float64)  # in which sums are exact and products fast
    rows = np.moveaxis(x.reshape(-1, groups, fields.shape[1]), 1, 0)
    sums = np.matmul(rows.astype(np.float64), fields + 8 if starts else fields)
    for start in starts:
        sums += np.moveaxis(start.reshape(-1, groups, 1), 1, 0)
    factors = scales[:, None] * np.moveaxis(row_scales.reshape(-1, groups, 1), 1, 0)
    return np.asarray((sums.astype(scales.dtype) * factors).sum(axis=0).reshape(*x.shape[:-3], columns))


contract_groups: Op = Op(
    "contract_groups",
    _contract_groups_type,
    _contract_groups_reference,
    no_gradient,
    grouped_contraction,
    doc="the sum over groups (an axis of all arguments) of exact sums of x by fields of y, times both scales, from the"
    " last argument on; fields of 4 bits are stored plus 8",
)


def _gather_groups_type(words: Type, scales: Type, indices: Type, bits: int) -> Type:
    fits = words.rank == 3 and words.dtype is i32 and scales.dtype is f32 and indices.dtype.kind in "iu"
    if not fits or scales.shape != (words.shape[0], words.shape[2]) or 0 in words.shape:
        raise MlaotError(f"gather_groups of {bits} bits does not fit {words}, {scales} and {indices}")
    return Type(f32, (*indices.shape, product(words.shape[:2]) * (WORD // bits)))


def _gather_groups_reference(words: Array, scales: Array, indices: Array, bits: int) -> Array:
    at = gather.reference(np.arange(scales.shape[1]), indices, lead=0).reshape(-1)
    fields = np.moveaxis(unpack_fields(words[..., at], bits), -1, 0)
    values = fields.astype(scales.dtype) * scales[:, at].T[..., None]
    return np.asarray(values.reshape(*indices.shape, words.shape[0] * words.shape[1] * (WORD // bits)))


gather_groups: Op = Op(
    "gather_groups",
    _gather_groups_type,
    _gather_groups_reference,
    no_gradient,
    grouped_gather,
    index=Index(2, lambda words, scales, indices, bits: IndexRange(scales.shape[1], wraps=True), "clamped"),
    nest=gather_groups_nest,
    doc="the columns of fields of x, groups times scales, that indices name: each becomes a row",
)
