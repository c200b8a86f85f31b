"""Quantized arrays: to and from numbers, and products of them.

Products of integers are 32-bit integers and therefore exact. Scales are applied in float32.
"""

from __future__ import annotations

import math
from functools import partial, reduce
from itertools import pairwise
from typing import Any

import numpy as np
import onnx

from mlaot.errors import MlaotError
from mlaot.frontend import numpy as F
from mlaot.frontend.trace.protocols import is_traced
from mlaot.ir.types import f32, i32
from mlaot.nn.functional.convolution import correlate, pad_spatial
from mlaot.onnx.codes import INTEGERS, any_coded, as_coded, decode, elem_type_of, encode, is_coded_dtype
from mlaot.onnx.importer import Use
from mlaot.onnx.ops.elementwise import convert
from mlaot.onnx.ops.shaping import weight_of
from mlaot.onnx.ops.windows import window_options, window_pads
from mlaot.onnx.registry import operator
from mlaot.onnx.values import Unsupported, along, constant_value, numpy_dtype

EXACT = 2**24  # whole numbers below it are float32
BLOCK = 16  # channels that lie together in convolutions, which parts of them keep whole where they can


@operator("DequantizeLinear", coded=True)
def dequantize_linear(use: Use, x: Any, scale: Any, zero: Any = None, *, output_dtype: int = 0) -> Any:
    to = output_dtype or elem_type_of(scale)
    factor = _along(use, _as_float32(scale), x.shape)
    offset = _along(use, _zero_point(zero), x.shape)
    is_wide = str(x.dtype) == "int32"  # more than float32 holds
    y = (_as_float32(_integers(x, offset)) if is_wide else _exact(x, offset)) * factor
    y = convert(y, to)
    return weight_of(use, y) if isinstance(y, np.ndarray) else y


@operator("QuantizeLinear", coded=True)
def quantize_linear(
    use: Use, x: Any, scale: Any, zero: Any = None, *, output_dtype: int = 0, saturate: bool = True
) -> Any:
    to = elem_type_of(zero) if zero is not None else output_dtype or onnx.TensorProto.UINT8
    if output_dtype and output_dtype != to:
        raise MlaotError("its output_dtype is not that of the zero point")
    precision = use.attribute("precision", 0) or elem_type_of(scale)
    factor = _along(use, _round(scale, precision), x.shape)
    quotient = _round(_round(x, precision) / factor, precision)
    return quantize(quotient, _along(use, _zero_point(zero), x.shape), to, saturate)


def quantize(x: Any, zero: Any, to: int, saturate: bool = True) -> Any:
    """Return float32 numbers divided by their scale, rounded to a quantized type."""
    dtype = numpy_dtype(to)
    if is_coded_dtype(dtype) and str(dtype) not in INTEGERS:
        return encode(x if zero is None else x + _as_float32(zero), to, saturate)
    rounded = np.rint(x)
    rounded = rounded if zero is None else rounded + _as_float32(zero)
    if str(dtype) in ("int8", "uint8") and is_traced(rounded):
        return F.quantize(rounded, dtype)
    low, high = _range(dtype)
    inside = F.astype(np.minimum(np.maximum(rounded, low), high), i32)  # compilers know vectors of this conversion
    if str(dtype) in INTEGERS:
        return as_coded(F.astype(inside, INTEGERS[str(dtype)][1]), to)
    return F.astype(inside, dtype)


def _range(dtype: Any) -> tuple[float, float]:
    name = str(dtype)
    if name not in (*INTEGERS, "int8", "uint8", "int16", "uint16"):
        raise MlaotError(f"{name} is no type of quantized numbers")
    bits = INTEGERS[name][0] if name in INTEGERS else dtype.itemsize * 8
    return (0.0, 2.0**bits - 1) if name.startswith("u") else (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1)


def _as_float32(x: Any) -> Any:
    """Return numbers in float32."""
    return F.astype(decode(x), f32)


def _round(x: Any, precision: int) -> Any:
    """Return numbers in float32, rounded to an element type."""
    return _as_float32(convert(_as_float32(x), precision)) if precision != onnx.TensorProto.FLOAT else _as_float32(x)


def _zero_point(zero: Any) -> Any:
    """Return a zero point, or None if it is known to be 0."""
    number = constant_value(zero)
    if number is None or is_traced(zero):
        return None if zero is None else decode(zero)
    return None if not np.any(decode(number)) else decode(number)


def _integers(x: Any, zero: Any) -> Any:
    """Return quantized numbers less their zero point, in i32."""
    return F.astype(x, i32) if zero is None else F.astype(x, i32) - F.astype(zero, i32)


def _exact(x: Any, zero: Any) -> Any:
    """Return quantized numbers less their zero point, in f32, which represents numbers of up to 16 bits exactly."""
    return _as_float32(x) if zero is None else _as_float32(x) - _as_float32(zero)


def _along(use: Use, value: Any, shape: Any) -> Any:
    """Spread a scale or zero point over ``shape``: one for all, one for each place along an axis, or for a block."""
    if value is None or value.ndim == 0:
        return value
    if math.prod(e if isinstance(e, int) else 2 for e in value.shape) == 1:
        return np.reshape(value, ())
    axis, block = use.attribute("axis", 1), use.attribute("block_size", 0)
    if not -len(shape) <= axis < len(shape):
        raise MlaotError(f"there is no axis {axis} in an array of {len(shape)} dimensions")
    axis %= len(shape)
    if value.ndim == 1 and not block:
        return along(value, axis, len(shape))
    if block <= 0 or value.ndim != len(shape):
        raise MlaotError(f"a scale of shape {list(value.shape)} does not fit an array of shape {list(shape)}")
    if not isinstance(shape[axis], int):
        raise Unsupported(f"blocks along the open dimension {shape[axis]}; pin it in [..dims]")
    if -(-shape[axis] // block) != value.shape[axis]:
        raise MlaotError(f"{value.shape[axis]} blocks of {block} do not make {shape[axis]} elements")
    return np.repeat(value, block, axis=axis)[(*[slice(None)] * axis, slice(0, shape[axis]))]


# Products.


def _rows(value: Any) -> Any:
    """Return a zero point or scale of a matrix's rows, as a column."""
    return value if value is None or value.ndim != 1 else np.reshape(value, (-1, 1))


def _scalar(value: Any) -> Any:
    """Return one number, which may be the element of a vector."""
    return value if value is None or value.ndim == 0 or value.shape != (1,) else np.reshape(value, ())


def _reach(x: Any, zero: Any) -> int:
    """Return the largest distance of quantized numbers from zero; 255 for 8 bits, which may be signed or unsigned."""
    info = np.iinfo(str(x.dtype))
    if info.bits == 8:
        return 255
    if zero is None:
        return max(-int(info.min), int(info.max))
    numbers = constant_value(zero)
    if numbers is None:
        return int(info.max) - int(info.min)
    return max(int(info.max) - int(numbers.min()), int(numbers.max()) - int(info.min))


def _parts(a_reach: int, b: Any, b_zero: Any, terms: Any, limit: int = EXACT) -> list[slice] | None:
    """Return ranges of the terms of products, ``b`` [terms, results], so short that float32 sums are exact.

    The sum of all magnitudes is then below ``limit``, which is 2 to the 24th or less, so no order of the sum rounds.
    Return None if there are no such ranges, or if they are not known.
    """
    if not isinstance(terms, int):
        return None
    numbers = _constant_integers(b, b_zero)
    sizes = np.full(terms, _reach(b, b_zero)) if numbers is None else np.abs(numbers)
    for parts in range(1, max(terms, 1) + 1):
        unit = BLOCK if parts * BLOCK <= terms and terms % BLOCK == 0 else 1
        ends = [terms // unit * i // parts * unit for i in range(parts + 1)]
        cuts = [slice(low, high) for low, high in pairwise(ends)]
        if all(a_reach * int(sizes[cut].sum(axis=0).max(initial=0)) < limit for cut in cuts):
            return cuts
    return None


def _constant_integers(x: Any, zero: Any) -> Any:
    """Return the numbers less their zero point, or None if one of them is not constant."""
    numbers, less = constant_value(x), constant_value(zero)
    if numbers is None or (zero is not None and less is None):
        return None
    return numbers.astype(np.int64) - (0 if zero is None else np.asarray(less).astype(np.int64))


def _matmul(a: Any, b: Any, a_zero: Any, b_zero: Any) -> Any:
    """Multiply quantized matrices as integers: in i32, or in f32 where that is exact."""
    a_zero, b_zero = _rows(_scalar(_zero_point(a_zero))), _scalar(_zero_point(b_zero))
    cuts = _parts(_reach(a, a_zero), b, b_zero, a.shape[-1]) if b.ndim == 2 else None
    if cuts is None:
        return np.matmul(_integers(a, a_zero), _integers(b, b_zero))
    left, right = _exact(a, a_zero), _exact(b, b_zero)
    return _total([np.matmul(left[..., cut], right[cut]) for cut in cuts])


def _total(parts: list[Any]) -> Any:
    return parts[0] if len(parts) == 1 else reduce(np.add, [F.astype(part, i32) for part in parts])


@operator("MatMulInteger")
def matmul_integer(a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    return F.astype(_matmul(a, b, a_zero, b_zero), i32)


@operator("QLinearMatMul", coded=True)
def qlinear_matmul(
    a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, y_scale: Any, y_zero: Any
) -> Any:
    is_float = any_coded([a, b])
    product = np.matmul(_as_float32(a), _as_float32(b)) if is_float else _as_float32(_matmul(a, b, a_zero, b_zero))
    scale = _rows(_scalar(_as_float32(a_scale))) * _scalar(_as_float32(b_scale)) / _rows(_scalar(_as_float32(y_scale)))
    return quantize(product * scale, _rows(_scalar(_zero_point(y_zero))), elem_type_of(y_zero))


def _conv(use: Use, x: Any, w: Any, x_zero: Any, w_zero: Any, bias: Any = None) -> Any:
    """Convolve quantized arrays as integers: in i32, or in f32 where that is exact."""
    numbers = constant_value(bias)
    more = 0 if bias is None else EXACT if numbers is None else int(np.abs(numbers.astype(np.int64)).max())
    groups = use.attribute("group", 1)
    _, strides, dilations = window_options(use, x.ndim - 2, w.shape[2:])
    pads = window_pads(use, x.shape[2:], w.shape[2:], strides, dilations)
    convolve = partial(correlate, strides=strides, dilations=dilations, groups=groups)
    x_zero, w_zero = _scalar(_zero_point(x_zero)), _channels(_zero_point(w_zero), w.ndim, 0)
    channels, taps = w.shape[1], math.prod(w.shape[2:])
    table, limit = _constant_integers(w, w_zero), max(EXACT - more, EXACT // 2)
    if table is not None:  # [terms, results]: by channels, whose taps stay together
        table = np.abs(table).reshape(w.shape[0], channels, -1).sum(axis=2).T
        cuts = _parts(_reach(x, x_zero), table, None, channels, limit)
    else:
        cuts = _parts(_reach(x, x_zero) * taps, w, w_zero, channels, limit)
    if cuts is None or (groups > 1 and len(cuts) > 1):
        return convolve(pad_spatial(_integers(x, x_zero), pads), _integers(w, w_zero), bias)
    image, weight = _exact(x, x_zero), _exact(w, w_zero)
    if len(cuts) == 1 and more <= EXACT // 2:
        return convolve(pad_spatial(image, pads), weight, None if bias is None else _as_float32(bias))
    pairs = [(image, weight)] if len(cuts) == 1 else [(image[:, cut], weight[:, cut]) for cut in cuts]
    total = reduce(np.add, [F.astype(convolve(pad_spatial(a, pads), b, None), i32) for a, b in pairs])
    return total if bias is None else total + _channels(bias, x.ndim, 1)


def _channels(value: Any, rank: int, axis: int) -> Any:
    """Return one number for each index along an axis."""
    value = _scalar(value)
    return value if value is None or value.ndim == 0 else along(value, axis, rank)


@operator("ConvInteger")
def conv_integer(use: Use, x: Any, w: Any, x_zero: Any = None, w_zero: Any = None) -> Any:
    return F.astype(_conv(use, x, w, x_zero, w_zero), i32)


@operator("QLinearConv")
def qlinear_conv(
    use: Use,
    x: Any,
    x_scale: Any,
    x_zero: Any,
    w: Any,
    w_scale: Any,
    w_zero: Any,
    y_scale: Any,
    y_zero: Any,
    bias: Any = None,
) -> Any:
    product = _as_float32(_conv(use, x, w, x_zero, w_zero, bias))
    scale = _scalar(_as_float32(x_scale)) * _channels(_as_float32(w_scale), x.ndim, 1) / _scalar(_as_float32(y_scale))
    return quantize(product * scale, _scalar(_zero_point(y_zero)), elem_type_of(y_zero))
