"""Dtypes that only ONNX has: floats of 8, 6 and 4 bits, and integers of 4 and 2 bits, as codes of one byte each.

Floats are u8: the bits of the number. They are decoded by a table, and encoded by arithmetic on the bits of a float32.
Small integers are the numbers themselves, as i8 or u8. Operators that only move values move the codes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import onnx

from mlaot.errors import MlaotError
from mlaot.frontend import numpy as F
from mlaot.frontend.trace.promotion import as_node
from mlaot.frontend.trace.protocols import is_traced
from mlaot.frontend.trace.tensor import Tensor
from mlaot.ir import DType
from mlaot.ir.types import bf16, f32, f64, i8, i32, u8, u32
from mlaot.onnx.values import Coded, Unsupported, as_traced, constant_value, dtype_of, kind_of, numpy_dtype
from mlaot.ops import bits

E8M0 = onnx.TensorProto.FLOAT8E8M0
INTEGERS = {"int4": (4, i8), "uint4": (4, u8), "int2": (2, i8), "uint2": (2, u8)}  # bits and codes


@dataclass(frozen=True)
class Format:
    """A float of few bits: sign, exponent, mantissa.

    ``largest`` is the code of the largest number, and ``beyond`` that of larger numbers, if they do not saturate. In
    formats ``with_minus_zero`` nan has a sign too.
    """

    exponent: int
    mantissa: int
    bias: int
    largest: int
    beyond: int
    nan: int
    with_minus_zero: bool = True


FORMATS = {
    "float8_e4m3fn": Format(4, 3, 7, 0x7E, 0x7F, 0x7F),
    "float8_e4m3fnuz": Format(4, 3, 8, 0x7F, 0x80, 0x80, False),
    "float8_e5m2": Format(5, 2, 15, 0x7B, 0x7C, 0x7E),
    "float8_e5m2fnuz": Format(5, 2, 16, 0x7F, 0x80, 0x80, False),
    "float6_e2m3fn": Format(2, 3, 1, 0x1F, 0x1F, 0x20),
    "float6_e3m2fn": Format(3, 2, 3, 0x1F, 0x1F, 0x20),
    "float4_e2m1fn": Format(2, 1, 1, 0x7, 0x7, 0x8),
}
NAMES = (*FORMATS, *INTEGERS, "float8_e8m0fnu")

# Operators that only move values, and which of their inputs hold these.
MOVES: dict[str, tuple[int, ...] | None] = {
    **dict.fromkeys(("Identity", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Split", "Slice"), (0,)),
    **dict.fromkeys(("Expand", "Tile", "Gather", "GatherElements", "GatherND", "DepthToSpace", "SpaceToDepth"), (0,)),
    **dict.fromkeys(("ReverseSequence", "Compress", "Trilu"), (0,)),
    **dict.fromkeys(("Scatter", "ScatterElements", "ScatterND", "TensorScatter"), (0, 2)),
    "Concat": None,
    "Pad": (0, 2),
    "Where": (1, 2),
}
SHAPES = ("Shape", "Size")  # these look at no value at all


def is_coded_dtype(dtype: Any) -> bool:
    return str(dtype) in NAMES


def any_coded(values: Sequence[Any]) -> bool:
    """Tell whether one of the values has a dtype that only ONNX has."""
    return any(isinstance(v, Coded) or (isinstance(v, np.ndarray) and is_coded_dtype(v.dtype)) for v in values)


def carrier(elem_type: int) -> DType:
    """Return the dtype of arrays of ``elem_type`` in a module, which is the dtype of codes if mlaot lacks the type."""
    name = str(numpy_dtype(elem_type))
    if name in NAMES:
        return INTEGERS[name][1] if name in INTEGERS else u8
    return dtype_of(elem_type)


def as_coded(codes: Any, elem_type: int) -> Any:
    """Convert codes to an array of ``elem_type``, constants to the dtype of ``ml_dtypes``.

    Return other arrays unchanged.
    """
    dtype = numpy_dtype(elem_type)
    if not is_coded_dtype(dtype):
        return codes
    return Coded(codes, elem_type) if constant_value(codes) is None else to_ml_dtype(constant_value(codes), dtype)


def codes_of(value: Any) -> Any:
    """Return an array by its codes, if it has any."""
    if isinstance(value, Coded):
        return value.codes
    return from_ml_dtype(value) if isinstance(value, np.ndarray) and is_coded_dtype(value.dtype) else value


def from_ml_dtype(array: Any) -> Any:
    """Convert an array of a dtype of ``ml_dtypes`` for computation: to codes, or bfloat16 to float32."""
    name = str(array.dtype)
    if name == "bfloat16":
        return array.astype(np.float32)
    if name in INTEGERS:
        return array.astype(INTEGERS[name][1].numpy)
    return np.ascontiguousarray(array).view(np.uint8).reshape(array.shape) if name in NAMES else array


def to_ml_dtype(array: Any, dtype: Any) -> Any:
    """Invert ``from_ml_dtype``. If ``dtype`` is not of ``ml_dtypes``, the array is returned unchanged."""
    name = str(dtype)
    if name == "bfloat16" or name in INTEGERS:
        return array.astype(dtype)
    return array.view(dtype) if name in NAMES else array


def elem_type_of(value: Any) -> int:
    """Return ONNX's element type of an array."""
    if isinstance(value, Coded):
        return value.elem_type
    array = constant_value(value)
    is_weight = array is not None and is_traced(value)  # whose numbers stand in float32, if they are bfloat16
    dtype = value.dtype if is_weight or array is None else array.dtype
    if dtype is bf16:
        return int(onnx.TensorProto.BFLOAT16)
    return int(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def move_codes(node: onnx.NodeProto, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of an operator that moves values, for codes."""

    def run(use: Any, *inputs: Any) -> Any:
        if node.domain in ("", "ai.onnx") and node.op_type in SHAPES:
            return use.call(function, *inputs)
        places = MOVES.get(node.op_type, ()) if node.domain in ("", "ai.onnx") else ()
        places = tuple(range(len(inputs))) if places is None else places
        coded = [v for i, v in enumerate(inputs) if i in places and v is not None and any_coded([v])]
        misplaced = [v for i, v in enumerate(inputs) if i not in places and any_coded([v])]
        is_sum = use.attribute("reduction", "none") != "none"
        if not coded or misplaced or is_sum:
            kind = onnx.TensorProto.DataType.Name(elem_type_of((misplaced or coded)[0]))
            raise Unsupported(f"arrays of {kind} are only moved, quantized and cast here; cast to FLOAT before it")
        kinds = {elem_type_of(v) for i, v in enumerate(inputs) if i in places and v is not None}
        if len(kinds) > 1:
            names = sorted(onnx.TensorProto.DataType.Name(kind) for kind in kinds)
            raise MlaotError(f"arrays of {' and '.join(names)} have no common type")
        result = use.call(function, *[codes_of(v) for v in inputs])
        (kind,) = kinds
        return tuple(as_coded(r, kind) for r in result) if isinstance(result, tuple) else as_coded(result, kind)

    return run


# Numbers as codes, and back.


def decode(value: Any) -> Any:
    """Decode an array of codes to numbers of dtype i8, u8 or f32; return other arrays unchanged."""
    if not any_coded([value]):
        return value
    codes, name = codes_of(value), str(value.dtype)
    if name in INTEGERS:
        return codes
    return _table(name)[codes] if constant_value(codes) is not None else np.take(as_traced(_table(name)), codes)


@cache
def _table(name: str) -> Any:
    """Return the number of every code, in float32."""
    return np.arange(256, dtype=np.uint8).view(getattr(ml_dtypes, name)).astype(np.float32)


def encode(x: Any, elem_type: int, saturate: bool = True, round_mode: str = "up") -> Any:
    """Encode numbers as codes of ``elem_type``: floats are rounded, and integers keep their low bits."""
    name = str(numpy_dtype(elem_type))
    if name in INTEGERS:
        return as_coded(_low_bits(x, name), elem_type)
    single = _as_float32(x)
    if elem_type == E8M0:
        return as_coded(_power_of_two(single, saturate, round_mode), elem_type)
    return as_coded(_short_float(single, FORMATS[name], saturate), elem_type)


def _low_bits(x: Any, name: str) -> Any:
    bits, dtype = INTEGERS[name]
    kind = kind_of(x)
    integer = F.astype(x, i32) if kind == "f" else x
    low = F.astype(integer, u8) & (2**bits - 1)
    if dtype is u8:
        return low
    sign = 2 ** (bits - 1)
    return F.astype(low ^ sign, i8) - sign


def _as_float32(x: Any) -> Any:
    """Convert numbers to float32, doubles by rounding to odd.

    An inexact double becomes the neighbour whose last bit is 1, so that a second rounding gives the result of a single
    one.
    """
    if str(x.dtype) not in ("float64", "int64", "uint64", "int32", "uint32"):
        return F.astype(x, f32)
    wide = F.astype(x, f64)
    near = F.astype(wide, f32)
    bits, back = bitcast(near, u32), F.astype(near, f64)
    is_even = np.equal(bits & 1, 0) & np.not_equal(back, wide) & np.equal(wide, wide)
    other = np.where(np.abs(back) > np.abs(wide), bits - 1, bits + 1)
    return bitcast(np.where(is_even, other, bits), f32)


def _short_float(x: Any, form: Format, saturate: bool) -> Any:
    """Return the codes of float32 numbers, rounded to the nearest, ties to even."""
    bits = bitcast(x, u32)
    size, cut = bits & 0x7FFFFFFF, 23 - form.mantissa
    to_even = size + (2 ** (cut - 1) - 1) + (size >> cut & 1)
    normal = (to_even >> cut) - ((127 - form.bias) << form.mantissa)
    shifted = np.abs(x) * 2.0 ** (form.bias - 1 + form.mantissa) + 2.0**23  # the sum is rounded as the code is to be
    subnormal = bitcast(shifted, u32) - 0x4B000000
    code = np.where(size < ((128 - form.bias) << 23), subnormal, normal)
    code = np.where(code > form.largest, form.largest if saturate else form.beyond, code)
    code = np.where(size > 0x7F800000, form.nan, code)
    sign = bits >> 31 << (form.exponent + form.mantissa)
    if not form.with_minus_zero:
        sign = np.where(np.equal(code, 0), 0, sign)
    return F.astype(code | sign, u8)


def _power_of_two(x: Any, saturate: bool, round_mode: str) -> Any:
    """Return the codes of the powers of two nearest to the size of float32 numbers: the exponent plus 127.

    The smallest power, 2 to the -127, is half of the smallest normal float32.
    """
    if round_mode not in ("up", "down", "nearest"):
        raise MlaotError(f"unknown round_mode {round_mode!r}; expected 'up', 'down' or 'nearest'")
    size = bitcast(x, u32) & 0x7FFFFFFF
    is_tiny = size < 0x800000
    more = {"up": 0x7FFFFF, "nearest": 0x400000, "down": 0}[round_mode]
    tiny = size >= {"up": 0x400001, "nearest": 0x600000, "down": 0x800000}[round_mode]
    code = np.where(is_tiny, F.astype(tiny, u32), (size + more) >> 23)
    code = np.where(code > 0xFE, 0xFE, code) if saturate else np.where(size < 0x400000, 0xFF, code)
    return F.astype(np.where(size > 0x7F800000, 0xFF, code), u8)


def bitcast(x: Any, dtype: DType) -> Any:
    """Reinterpret the bits of an array as another dtype of the same size."""
    if constant_value(x) is None or is_traced(x):
        return Tensor(bits.bitcast(as_node(x), dtype=dtype))
    return np.ascontiguousarray(x).view(dtype.numpy).reshape(np.shape(x))
