"""Weights of few bits in blocks with a scale each, as quantizers of language models write them."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend import numpy as F
from mlaot.frontend.numpy.indexing import in_range
from mlaot.frontend.trace.promotion import as_node
from mlaot.frontend.trace.tensor import Tensor
from mlaot.onnx.codes import codes_of
from mlaot.onnx.importer import Use
from mlaot.onnx.ops.attention import wide
from mlaot.onnx.ops.microsoft import plus
from mlaot.onnx.ops.shaping import pad_by, weight_of
from mlaot.onnx.registry import MICROSOFT, operator
from mlaot.onnx.values import Array, Unsupported, as_traced, is_constant, require_constant
from mlaot.ops.grouped import grouped_product
from mlaot.ops.quantized import pack_fields
from mlaot.schedule.tuning import GROUPED_COLUMNS, GROUPED_ELEMENTS

# The numbers that codes of 4 bits stand for, in bitsandbytes' format of floats and in its quantiles of a normal
# distribution.
FP4 = np.array([0, 5.208333333e-03, 0.66666667, 1, 0.33333333, 0.5, 0.16666667, 0.25], np.float32)
NF4 = np.array(
    [
        *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635),
        *(-0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725),
        *(0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
    ],
    np.float32,
)
TABLES = (np.concatenate([FP4, -FP4]), NF4)
EXACT, BYTES = 1, 4  # levels of accuracy: the other operand stays float32, or is rounded to 8 bits


def unpack(packed: Any, bits: int) -> Any:
    """Return the codes in bytes, the lowest bits first, along the last axis."""
    if bits == 8:
        return packed
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = np.bitwise_and(np.right_shift(np.expand_dims(packed, -1), shifts), np.uint8(2**bits - 1))
    return np.reshape(codes, (*packed.shape[:-1], packed.shape[-1] * len(shifts)))


def _size(use: Use, name: str) -> int:
    size: int = use.attribute(name, 0)
    if size < 1:
        raise MlaotError(f"{name} must be positive, got {size}")
    return size


def _bits(use: Use) -> int:
    bits: int = use.attribute("bits", 4)
    if bits not in (2, 4, 8):
        raise Unsupported(f"weights of {bits} bits; there are 2, 4 and 8")
    return bits


@operator("MatMulNBits", domain=MICROSOFT)
def matmul_n_bits(
    use: Use, x: Any, packed: Any, scales: Any, zeros: Any = None, order: Any = None, bias: Any = None
) -> Any:
    """Multiply by a matrix with codes ``packed`` [columns, blocks, bytes]."""
    rows, columns, size, bits = _size(use, "K"), _size(use, "N"), _size(use, "block_size"), _bits(use)
    if use.attribute("weight_prepacked", 0):
        raise Unsupported("its weight is packed for one device; quantize without prepacking it")
    codes, blocks = require_constant(packed, "the weight"), -(-rows // size)
    if codes.size == 0:
        return plus(F.zeros((*x.shape[:-1], columns), dtype=np.float32), bias)
    if codes.shape != (columns, blocks, size * bits // 8) or codes.dtype != np.uint8:
        raise MlaotError(f"a weight {codes.dtype}{list(codes.shape)} does not fit {columns} columns of {rows} numbers")
    factors = _of_blocks(scales, (columns, blocks), "the scales")
    offsets = _zero_points(zeros, (columns, blocks), bits)
    numbers = unpack(codes, bits).reshape(columns, blocks * size)
    at = np.arange(rows) // size
    if order is not None:
        given = require_constant(order, "g_idx")[:rows]
        if given.shape != at.shape or given.min() < 0 or given.max() >= blocks:
            raise MlaotError(f"g_idx names no block of the {blocks} for each of {rows} rows")
        at = given
    level, in_order = use.attribute("accuracy_level", 0), np.array_equal(at, np.arange(rows) // size)
    is_large = columns >= GROUPED_COLUMNS and rows * columns >= GROUPED_ELEMENTS
    if level != EXACT and is_large and in_order and np.isfinite(factors).all() and np.isfinite(offsets).all():
        kept = 4 if level == BYTES and bits <= 4 else 8
        return F.astype(plus(_in_groups(wide(x), numbers, factors, offsets, bits, kept), bias), x.dtype)
    weights = (numbers[:, :rows].astype(np.float32) - offsets[:, at]) * factors[:, at]
    matrix = weight_of(use, np.ascontiguousarray(weights.T).astype(require_constant(scales, "the scales").dtype))
    return plus(np.matmul(x, matrix), bias)


def _in_groups(x: Any, codes: Array, factors: Array, offsets: Array, bits: int, kept: int) -> Any:
    """Return the product with codes [columns, rows] that stay integers of ``kept`` bits.

    If these have no room for codes minus their zero point, the difference is added as a product with the blocks' sums
    of ``x``. A row that is not finite gives nan, as its largest number scales the others.
    """
    columns, blocks = factors.shape
    size = codes.shape[1] // blocks
    less = codes.reshape(columns, blocks, size) - offsets[:, :, None]
    middle, most = 2 ** (bits - 1), 2 ** (kept - 1)
    fits = (np.rint(less) == less).all() and less.min() >= -most and less.max() < most
    fields = (less if fits else codes.astype(np.int16) - middle).reshape(columns, -1).T.astype(np.int8)
    words = pack_fields(fields, kept).reshape(blocks, -1, columns)
    scales = np.ascontiguousarray(factors.T)
    y = Tensor(grouped_product(as_node(x), as_node(as_traced(words)), as_node(as_traced(scales)), kept))
    if not fits:
        rest = blocks * size - x.shape[-1]
        padded = pad_by(x, [0] * x.ndim, [*[0] * (x.ndim - 1), rest], "constant")
        sums = np.sum(np.reshape(padded, (*x.shape[:-1], blocks, size)), axis=-1)
        y = y + np.matmul(sums, as_traced((middle - offsets.T) * scales))
    return y + np.sum(x * np.float32(0), axis=-1, keepdims=True)


def _of_blocks(values: Any, shape: tuple[int, int], what: str) -> Array:
    """Return one number for each block as float32."""
    array = require_constant(values, what)
    if array.size != shape[0] * shape[1]:
        raise MlaotError(f"{what} have the shape {list(array.shape)}, not {list(shape)}")
    return array.reshape(shape).astype(np.float32)


def _zero_points(zeros: Any, shape: tuple[int, int], bits: int) -> Array:
    """Return the code of 0 in each block: the middle code, or that in the file, packed like weights or as numbers."""
    if zeros is None:
        return np.full(shape, 2.0 ** (bits - 1), np.float32)
    array = require_constant(zeros, "the zero points")
    if array.dtype == np.uint8:
        width = -(-shape[1] * bits // 8)
        if array.size != shape[0] * width:
            raise MlaotError(f"the zero points have the shape {list(array.shape)}, not {[shape[0], width]}")
        array = np.ascontiguousarray(unpack(array.reshape(shape[0], width), bits)[:, : shape[1]])
    return _of_blocks(array, shape, "the zero points")


@operator("MatMulBnb4", domain=MICROSOFT)
def matmul_bnb4(use: Use, x: Any, packed: Any, largest: Any, *, transB: bool = True) -> Any:
    """Multiply by a matrix [N, K] of 4-bit numbers, high half first, in blocks along its rows."""
    rows, columns, size = _size(use, "N"), _size(use, "K"), _size(use, "block_size")
    kind = use.attribute("quant_type", 0)
    if kind not in (0, 1):
        raise MlaotError(f"unknown quant_type {kind}; expected 0 or 1")
    codes = require_constant(packed, "the weight").reshape(-1)
    count = rows * columns
    numbers = TABLES[kind][np.stack([codes >> 4, codes & 15], axis=-1).reshape(-1)[:count]]
    if numbers.size != count or codes.dtype != np.uint8:
        raise MlaotError(f"a weight of {codes.size} bytes is not {rows} times {columns} numbers of 4 bits")
    factors = _of_blocks(largest, (1, -(-count // size)), "the scales")[0]
    weights = (numbers * factors[np.arange(count) // size]).reshape(rows, columns)
    matrix = np.ascontiguousarray(weights.T if transB else weights)
    return np.matmul(x, weight_of(use, matrix.astype(require_constant(largest, "the scales").dtype)))


@operator("GatherBlockQuantized", domain=MICROSOFT, coded=True)
def gather_block_quantized(
    use: Use,
    data: Any,
    indices: Any,
    scales: Any,
    zeros: Any = None,
    *,
    gather_axis: int = 0,
    quantize_axis: int = 1,
    block_size: int = 128,
) -> Any:
    """Look up the codes of rows of a table of few bits, and convert them to numbers."""
    axis, along = gather_axis % data.ndim, quantize_axis % data.ndim
    codes, bits = codes_of(data), _bits(use)
    is_packed = str(data.dtype) == "uint8"
    if str(data.dtype) not in ("uint8", "int4", "uint4"):
        raise Unsupported(f"a table of {data.dtype}; there are uint8, int4 and uint4")
    if axis == along or (is_packed and axis):
        raise MlaotError(f"rows are read along axis {axis}, and blocks lie along axis {along}; these must differ")
    size = data.shape[along] * (8 // bits if is_packed and along == data.ndim - 1 else 1)
    if not isinstance(size, int) or block_size < 1 or scales.shape[along] != -(-size // block_size):
        raise MlaotError(f"{scales.shape[along]} blocks of {block_size} do not make {size} elements")

    def rows(table: Any) -> Any:
        table = table if is_constant(table, indices) else as_traced(table)
        return np.take(table, in_range(indices, data.shape[axis], wraps=True), axis=axis)

    def spread(x: Any) -> Any:
        """Repeat the value of each block."""
        at = along if along < axis else along + indices.ndim - 1
        return np.repeat(x, block_size, axis=at)[(*[slice(None)] * at, slice(0, size))]

    def numbers(x: Any) -> Any:
        return F.astype(unpack(rows(x), bits) if is_packed else rows(x), np.float32)

    y = numbers(codes)
    if zeros is not None:
        y = y - spread(numbers(codes_of(zeros))[..., : scales.shape[-1]])
    elif is_packed:
        y = y - np.float32(2 ** (bits - 1))
    return F.astype(y * spread(F.astype(rows(scales), np.float32)), scales.dtype)
