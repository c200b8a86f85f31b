"""Elementwise operators: arithmetic, comparisons, bits, casts and activations."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import onnx

from mlaot.frontend import numpy as F
from mlaot.frontend.numpy.elementwise import clip as clip_to
from mlaot.frontend.trace.protocols import is_traced
from mlaot.ir.dims import Expr
from mlaot.ir.types import boolean, i32, i64
from mlaot.nn.functional import activations as A
from mlaot.onnx.codes import (
    INTEGERS,
    any_coded,
    as_coded,
    bitcast,
    carrier,
    codes_of,
    decode,
    elem_type_of,
    encode,
    is_coded_dtype,
)
from mlaot.onnx.columns import make
from mlaot.onnx.importer import Use
from mlaot.onnx.registry import Function, operator, operators
from mlaot.onnx.texts import is_text
from mlaot.onnx.values import (
    Computed,
    Entries,
    Maps,
    Unsupported,
    constant_value,
    dtype_of,
    extents,
    is_constant,
    is_symbolic,
    kind_of,
    lift,
    numpy_dtype,
)
from mlaot.tokenizers.text_steps import TextStep

LARGEST = float(np.finfo(np.float32).max)
UNARY: dict[str, Function] = {
    "Abs": np.abs,
    "Acos": np.arccos,
    "Acosh": np.arccosh,
    "Asin": np.arcsin,
    "Asinh": np.arcsinh,
    "Atan": np.arctan,
    "Atanh": np.arctanh,
    "BitwiseNot": np.invert,
    "Ceil": np.ceil,
    "Celu": lambda x, *, alpha=1.0: A.celu(x, alpha),
    "Cos": np.cos,
    "Cosh": np.cosh,
    "Elu": lambda x, *, alpha=1.0: A.elu(x, alpha),
    "Erf": F.erf,
    "Exp": np.exp,
    "Floor": np.floor,
    "Gelu": lambda x, *, approximate="none": F.gelu(x, approximate == "tanh"),
    "HardSigmoid": lambda x, *, alpha=0.2, beta=0.5: clip_to(alpha * x + beta, 0, 1),
    "HardSwish": lambda x: x * clip_to(x * float(np.float32(1 / 6)) + 0.5, 0, 1),
    "IsNaN": np.isnan,
    "LeakyRelu": lambda x, *, alpha=0.01: A.leaky_relu(x, alpha),
    "Log": np.log,
    "Mish": A.mish,
    "Neg": np.negative,
    "Not": np.logical_not,
    "Reciprocal": lambda x: 1.0 / x,
    "Relu": F.relu,
    "Round": np.rint,
    "Selu": lambda x, *, alpha=1.67326319217681884765625, gamma=1.05070102214813232421875: gamma * A.elu(x, alpha),
    "Sigmoid": F.sigmoid,
    "Sign": np.sign,
    "Sin": np.sin,
    "Sinh": np.sinh,
    "Softplus": F.softplus,
    "Softsign": A.softsign,
    "Sqrt": np.sqrt,
    "Swish": lambda x, *, alpha=1.0: A.silu(x) if alpha == 1.0 else x * F.sigmoid(alpha * x),
    "Tan": np.tan,
    "Tanh": np.tanh,
    "ThresholdedRelu": lambda x, *, alpha=1.0: np.where(x > alpha, x, _like(0.0, x)),
}
BINARY: dict[str, Function] = {
    "And": np.logical_and,
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Or": np.logical_or,
    "Xor": np.logical_xor,
}
ARITHMETIC: dict[str, Function] = {"Add": np.add, "Mul": np.multiply, "Sub": np.subtract}
VARIADIC: dict[str, Function] = {
    "Max": lambda *values: reduce(np.maximum, values),
    "Mean": lambda *values: reduce(np.add, values) / float(len(values)),
    "Min": lambda *values: reduce(np.minimum, values),
    "Sum": lambda *values: reduce(np.add, values),
}


def _broadcasting(function: Function) -> Function:
    return lambda use, x, y: function(x, _align(use, x, y))


def _with_extents(function: Function) -> Function:
    """Compute with expressions of dims while importing, or with traced integers in the module."""
    return lambda use, x, y: function(use, x, y) if is_constant(x, y) else function(use, lift(x), lift(y))


def _align(use: Use, x: Any, y: Any) -> Any:
    """Return the second operand with the axes that the broadcasting attributes of opsets before 7 give it."""
    axis = use.attribute("axis")
    if use.opset >= 7 or not use.attribute("broadcast", 0) or axis is None:
        return y
    return np.reshape(y, (*y.shape, *[1] * (x.ndim - axis - y.ndim)))


operators(UNARY | VARIADIC)
operators({name: _broadcasting(function) for name, function in BINARY.items()})
operators({name: _with_extents(_broadcasting(function)) for name, function in ARITHMETIC.items()}, symbolic=True)
operators({"Identity": lambda x: x}, symbolic=True)


@operator("Equal", symbolic=True)
def equal(use: Use, x: Any, y: Any) -> Any:
    if is_symbolic(x) or is_symbolic(y):
        return _equal_extents(x, y)
    return np.equal(x, _align(use, x, y))


def _equal_extents(x: Any, y: Any) -> Any:
    """Compare expressions of dims: while importing if that is decidable, and else in the module."""
    a, b = constant_value(x), constant_value(y)
    answers = [None] if a is None or b is None else [_same_extent(p, q) for p, q in np.broadcast(a, b)]
    if a is None or b is None or None in answers:
        return np.equal(lift(x), lift(y))
    return np.array(answers, bool).reshape(np.broadcast_shapes(a.shape, b.shape))


def _same_extent(p: Any, q: Any) -> bool | None:
    """Tell whether two extents are equal, or return None if that is unknown. No extent is negative."""
    if p == q:
        return True
    for one, other in ((p, q), (q, p)):
        if isinstance(one, Expr) and (isinstance(other, Expr) or other >= 0):
            return None
    return False


@operator("Div", symbolic=True)
def div(use: Use, x: Any, y: Any) -> Any:
    y = _align(use, x, y)
    if is_symbolic(x) or is_symbolic(y):
        return x // y
    kind = kind_of(x)
    if kind == "u":
        return np.floor_divide(x, y)
    if kind == "i":  # rounds towards zero
        quotient = np.floor_divide(x, y)
        inexact = np.not_equal(quotient * y, x) & np.not_equal(x < 0, y < 0)
        return np.where(inexact, quotient + 1, quotient)
    return np.divide(x, y)


@operator("Mod", symbolic=True)
def mod(x: Any, y: Any, *, fmod: bool = False) -> Any:
    if is_symbolic(x) and constant_value(y) is not None and not is_symbolic(y) and not fmod and np.all(y > 0):
        return x - x // y * y
    x, y = lift(x), lift(y)
    return np.fmod(x, y) if fmod else np.remainder(x, y)


@operator("Pow")
def power(use: Use, x: Any, y: Any) -> Any:
    y = _align(use, x, y)
    exponent = constant_value(y)
    if exponent is not None and exponent.size == 1 and y.ndim <= x.ndim and kind_of(x) == "f":
        return x ** float(exponent.reshape(()))
    if y.dtype == x.dtype:
        return np.power(x, y)
    if kind_of(x) == "f":
        return np.power(x, y.astype(x.dtype))
    return np.power(x.astype(np.float64), y.astype(np.float64)).astype(x.dtype)


@operator("BitShift")
def bit_shift(x: Any, y: Any, *, direction: str = "") -> Any:
    return np.left_shift(x, y) if direction == "LEFT" else np.right_shift(x, y)


@operator("Where", symbolic=True)
def where(condition: Any, x: Any, y: Any) -> Any:
    if (is_symbolic(x) or is_symbolic(y)) and constant_value(condition) is None:
        raise Computed("a dimension depends on what is computed when the model runs")
    return np.where(condition, x, y)


@operator("IsInf")
def is_inf(x: Any, *, detect_positive: bool = True, detect_negative: bool = True) -> Any:
    if detect_positive and detect_negative:
        return np.isinf(x)
    infinite = np.isinf(x) & ((x > 0) if detect_positive else (x < 0))
    return infinite if detect_positive or detect_negative else np.isinf(x) & False


@operator("Clip")
def clip(use: Use, x: Any, low: Any = None, high: Any = None) -> Any:
    if use.opset < 11:
        most = LARGEST if use.opset >= 6 else None
        low, high = use.attribute("min", -most if most else None), use.attribute("max", most)
    if high is not None:
        return np.minimum(x if low is None else np.maximum(x, low), high)
    return x if low is None else np.maximum(x, low)


@operator("Shrink")
def shrink(x: Any, *, bias: float = 0.0, lambd: float = 0.5) -> Any:
    low, high = x < -lambd, x > lambd
    return np.where(low, x + _like(bias, x), np.where(high, x - _like(bias, x), _like(0.0, x)))


def _like(value: float, x: Any) -> Any:
    """Return a number of the file in the dtype of an array of integers."""
    return int(value) if kind_of(x) in "iu" else value


@operator("PRelu")
def prelu(use: Use, x: Any, slope: Any) -> Any:
    if use.opset < 7 and slope.ndim == 1 and slope.shape[0] != 1:  # one a channel
        slope = np.reshape(slope, (-1, *[1] * (x.ndim - 2)))
    return np.where(x < 0, slope * x, x)


@operator("Cast", symbolic=True, coded=True, labels=True)
def cast(use: Use, x: Any, *, round_mode: str = "up", saturate: bool = True) -> Any:
    to = use.attribute("to")
    if isinstance(to, str):  # opset 1 to 5
        to = onnx.TensorProto.DataType.Value(to)
    return _cast_strings(use, x, to) if _has_strings(x, to) else convert(x, to, saturate, round_mode)


@operator("CastLike", coded=True, labels=True)
def cast_like(use: Use, x: Any, target: Any, *, round_mode: str = "up", saturate: bool = True) -> Any:
    to = onnx.TensorProto.STRING if is_text(target) else elem_type_of(target)
    return _cast_strings(use, x, to) if _has_strings(x, to) else convert(x, to, saturate, round_mode)


def _has_strings(x: Any, to: int) -> bool:
    if isinstance(x, Entries | Maps):
        raise Unsupported("it takes maps that are computed when the model runs")
    return is_text(x) or to == onnx.TensorProto.STRING


def _cast_strings(use: Use, x: Any, to: int) -> Any:
    """Convert strings to numbers, or numbers to strings."""
    if is_text(x):
        return x if to == onnx.TensorProto.STRING else make(use, TextStep("number", (), dtype=dtype_of(to).name), x)
    x = decode(lift(x))
    if elem_type_of(x) == onnx.TensorProto.BFLOAT16:
        x = F.astype(x, np.float32)
    return make(use, TextStep("text", (), dtype=dtype_of(elem_type_of(x)).name), x)


def convert(x: Any, to: int, saturate: bool = True, round_mode: str = "up") -> Any:
    """Convert to another element type.

    ONNX does not define the conversion of a float beyond the range of integers. Here short integers keep the low bits,
    as in most runtimes, which is cheap.
    """
    wanted = numpy_dtype(to)
    if is_symbolic(x):
        if wanted.kind == "i":
            return x
        x = lift(x)
    if is_coded_dtype(wanted):
        return x if any_coded([x]) and elem_type_of(x) == to else encode(decode(x), to, saturate, round_mode)
    x = decode(x)
    array = constant_value(x)
    if array is not None and not is_traced(x):
        return array.astype(wanted)
    if kind_of(x) == "f":
        shape = extents(x) if wanted.kind == "i" else None
        if shape is not None:
            return shape
        kind = dtype_of(to)
        if kind.kind in "iu" and kind.itemsize < 4:
            x = F.astype(x, i32)
        elif kind.name == "u32":
            x = F.astype(x, i64)
    return F.astype(x, dtype_of(to))


@operator("BitCast", coded=True)
def bit_cast(x: Any, *, to: Any = None) -> Any:
    for kind in (elem_type_of(x), to):
        if kind == onnx.TensorProto.STRING or str(numpy_dtype(kind)) in INTEGERS:
            raise Unsupported(f"the bits of {onnx.TensorProto.DataType.Name(kind)} cannot be taken for another type")
    if carrier(to) is boolean:
        return np.not_equal(codes_of(x), 0)
    return as_coded(bitcast(codes_of(x), carrier(to)), to)
