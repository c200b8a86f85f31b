"""Elementwise operators: arithmetic, comparisons, bits, casts and activations."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import onnx

from mlaot.frontend import numpy as F
from mlaot.frontend.numpy.elementwise import clip as _clip
from mlaot.frontend.trace.protocols import is_traced
from mlaot.ir.dims import Expr
from mlaot.ir.types import boolean, i32, i64
from mlaot.nn.functional import activations as A
from mlaot.onnx.codes import (
    INTEGERS,
    bitcast,
    carrier,
    coded_as,
    decoded,
    elem_type_of,
    encoded,
    is_coded_dtype,
    plain,
    whether_coded,
)
from mlaot.onnx.importer import Use
from mlaot.onnx.registry import operator
from mlaot.onnx.values import Unsupported, dtype_of, extents, is_symbolic, kind_of, known, lifted, numpy_dtype

UNARY: dict[str, Callable[[Any], Any]] = {
    "Abs": np.abs,
    "Acos": np.arccos,
    "Acosh": np.arccosh,
    "Asin": np.arcsin,
    "Asinh": np.arcsinh,
    "Atan": np.arctan,
    "Atanh": np.arctanh,
    "BitwiseNot": np.invert,
    "Ceil": np.ceil,
    "Cos": np.cos,
    "Cosh": np.cosh,
    "Erf": F.erf,
    "Exp": np.exp,
    "Floor": np.floor,
    "IsNaN": np.isnan,
    "Log": np.log,
    "Neg": np.negative,
    "Not": np.logical_not,
    "Relu": F.relu,
    "Round": np.rint,
    "Sigmoid": F.sigmoid,
    "Sign": np.sign,
    "Sin": np.sin,
    "Sinh": np.sinh,
    "Softplus": F.softplus,
    "Softsign": A.softsign,
    "Sqrt": np.sqrt,
    "Tan": np.tan,
    "Tanh": np.tanh,
    "Mish": A.mish,
}
LARGEST = float(np.finfo(np.float32).max)
BINARY: dict[str, Callable[[Any, Any], Any]] = {
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
ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {"Add": np.add, "Mul": np.multiply, "Sub": np.subtract}


def _enter_tables() -> None:
    def unary(function: Callable[[Any], Any]) -> Callable[[Use, Any], Any]:
        return lambda use, x: function(x)

    def binary(function: Callable[[Any, Any], Any]) -> Callable[[Use, Any, Any], Any]:
        return lambda use, x, y: function(x, _placed(use, x, y))

    for name, function in UNARY.items():
        operator(name)(unary(function))
    for name, pair in BINARY.items():
        operator(name)(binary(pair))
    for name, pair in ARITHMETIC.items():
        operator(name, symbolic=True)(binary(pair))


def _placed(use: Use, x: Any, y: Any) -> Any:
    """The second argument, moved to where the attributes of opsets before 7 say that it is to be broadcast."""
    if use.opset >= 7 or not use.attribute("broadcast", 0):
        return y
    axis = use.attribute("axis")
    if axis is None:
        return y
    behind = x.ndim - axis - y.ndim
    return np.reshape(y, (*y.shape, *[1] * behind))


_enter_tables()


@operator("Equal", symbolic=True)
def equal(use: Use, x: Any, y: Any) -> Any:
    if is_symbolic(x) or is_symbolic(y):
        return _equal_extents(x, y)
    return np.equal(x, _placed(use, x, y))


def _equal_extents(x: Any, y: Any) -> Any:
    """Expressions of dims, as numbers that the module computes where nothing else can be said of them."""
    a, b = known(x), known(y)
    found = [None] if a is None or b is None else [_same_extent(p, q) for p, q in np.broadcast(a, b)]
    if a is None or b is None or None in found:
        return np.equal(lifted(x), lifted(y))
    return np.array(found, bool).reshape(np.broadcast_shapes(a.shape, b.shape))


def _same_extent(p: Any, q: Any) -> bool | None:
    """Whether two extents are the same, if that is known: no extent is negative."""
    if p == q:
        return True
    for one, other in ((p, q), (q, p)):
        if isinstance(one, Expr) and (isinstance(other, Expr) or other >= 0):
            return None
    return False


@operator("Div", symbolic=True)
def div(use: Use, x: Any, y: Any) -> Any:
    y = _placed(use, x, y)
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


@operator("Mod")
def mod(use: Use, x: Any, y: Any) -> Any:
    return np.fmod(x, y) if use.attribute("fmod", 0) else np.remainder(x, y)


@operator("Pow")
def power(use: Use, x: Any, y: Any) -> Any:
    y = _placed(use, x, y)
    exponent = known(y)
    if exponent is not None and exponent.size == 1 and y.ndim <= x.ndim and kind_of(x) == "f":
        return x ** float(exponent.reshape(()))
    if y.dtype == x.dtype:
        return np.power(x, y)
    if kind_of(x) == "f":
        return np.power(x, y.astype(x.dtype))
    return np.power(x.astype(np.float64), y.astype(np.float64)).astype(x.dtype)


@operator("BitShift")
def bit_shift(use: Use, x: Any, y: Any) -> Any:
    return np.left_shift(x, y) if use.string("direction", "") == "LEFT" else np.right_shift(x, y)


@operator("Where", symbolic=True)
def where(use: Use, condition: Any, x: Any, y: Any) -> Any:
    if (is_symbolic(x) or is_symbolic(y)) and known(condition) is None:
        raise Unsupported("a dimension depends on what is computed when the model runs")
    return np.where(condition, x, y)


@operator("Identity", symbolic=True)
def identity(use: Use, x: Any) -> Any:
    return x


@operator("IsInf")
def is_inf(use: Use, x: Any) -> Any:
    positive, negative = use.attribute("detect_positive", 1), use.attribute("detect_negative", 1)
    if positive and negative:
        return np.isinf(x)
    found = np.isinf(x) & ((x > 0) if positive else (x < 0))
    return found if positive or negative else np.isinf(x) & False


@operator("Reciprocal")
def reciprocal(use: Use, x: Any) -> Any:
    return 1.0 / x


@operator("Sum", "Max", "Min", "Mean")
def variadic(use: Use, *values: Any) -> Any:
    together = {"Sum": np.add, "Mean": np.add, "Max": np.maximum, "Min": np.minimum}[use.node.op_type]
    found = reduce(together, values)
    return found / float(len(values)) if use.node.op_type == "Mean" else found


@operator("Clip")
def clip(use: Use, x: Any, low: Any = None, high: Any = None) -> Any:
    if use.opset < 11:
        most = LARGEST if use.opset >= 6 else None
        low, high = use.attribute("min", -most if most else None), use.attribute("max", most)
    if high is not None:
        return np.minimum(x if low is None else np.maximum(x, low), high)
    return x if low is None else np.maximum(x, low)


@operator("Gelu")
def gelu(use: Use, x: Any) -> Any:
    return F.gelu(x, use.string("approximate", "none") == "tanh")


@operator("LeakyRelu")
def leaky_relu(use: Use, x: Any) -> Any:
    return A.leaky_relu(x, use.attribute("alpha", 0.01))


@operator("Elu")
def elu(use: Use, x: Any) -> Any:
    return A.elu(x, use.attribute("alpha", 1.0))


@operator("Celu")
def celu(use: Use, x: Any) -> Any:
    return A.celu(x, use.attribute("alpha", 1.0))


@operator("Selu")
def selu(use: Use, x: Any) -> Any:
    alpha = use.attribute("alpha", 1.67326319217681884765625)
    return use.attribute("gamma", 1.05070102214813232421875) * A.elu(x, alpha)


@operator("ThresholdedRelu")
def thresholded_relu(use: Use, x: Any) -> Any:
    return np.where(x > use.attribute("alpha", 1.0), x, _like(0.0, x))


@operator("HardSigmoid")
def hard_sigmoid(use: Use, x: Any) -> Any:
    return _clip(use.attribute("alpha", 0.2) * x + use.attribute("beta", 0.5), 0, 1)


@operator("HardSwish")
def hard_swish(use: Use, x: Any) -> Any:
    return x * _clip(x * float(np.float32(1 / 6)) + 0.5, 0, 1)


@operator("Shrink")
def shrink(use: Use, x: Any) -> Any:
    bias, edge = use.attribute("bias", 0.0), use.attribute("lambd", 0.5)
    low, high = x < -edge, x > edge
    return np.where(low, x + _like(bias, x), np.where(high, x - _like(bias, x), _like(0.0, x)))


def _like(value: float, x: Any) -> Any:
    """A number of the file in the dtype of an array of integers."""
    return int(value) if kind_of(x) in "iu" else value


@operator("Swish")
def swish(use: Use, x: Any) -> Any:
    alpha = use.attribute("alpha", 1.0)
    return A.silu(x) if alpha == 1.0 else x * F.sigmoid(alpha * x)


@operator("PRelu")
def prelu(use: Use, x: Any, slope: Any) -> Any:
    if use.opset < 7 and slope.ndim == 1 and slope.shape[0] != 1:  # one a channel
        slope = np.reshape(slope, (-1, *[1] * (x.ndim - 2)))
    return np.where(x < 0, slope * x, x)


@operator("Cast", symbolic=True, coded=True)
def cast(use: Use, x: Any) -> Any:
    to = use.attribute("to")
    if isinstance(to, bytes):  # opset 1 to 5
        to = onnx.TensorProto.DataType.Value(to.decode("ascii", "replace"))
    return convert(x, to, bool(use.attribute("saturate", 1)), use.string("round_mode", "up"))


@operator("CastLike", coded=True)
def cast_like(use: Use, x: Any, target: Any) -> Any:
    kind = elem_type_of(target)
    return convert(x, kind, bool(use.attribute("saturate", 1)), use.string("round_mode", "up"))


def convert(x: Any, to: int, saturate: bool = True, round_mode: str = "up") -> Any:
    """``x`` in another element type.

    What a float becomes beyond the range of integers is left open by ONNX: short integers are the low bits, which is
    what most runtimes give, and cheap.
    """
    wanted = numpy_dtype(to)
    if is_symbolic(x):
        if wanted.kind == "i":
            return x
        x = lifted(x)
    if is_coded_dtype(wanted):
        return x if whether_coded([x]) and elem_type_of(x) == to else encoded(decoded(x), to, saturate, round_mode)
    x = decoded(x)
    array = known(x)
    if array is not None and not is_traced(x):
        return _cast_known(array, wanted)
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


def _cast_known(array: Any, wanted: Any) -> Any:
    if array.dtype.kind == "U" and wanted.kind in "fiu":
        return array.astype(np.float64).astype(wanted)
    if wanted.kind == "U" and array.dtype.kind == "f":
        return np.array([np.format_float_positional(v) for v in array.ravel()]).reshape(array.shape)
    return array.astype(wanted)


@operator("BitCast", coded=True)
def bit_cast(use: Use, x: Any) -> Any:
    to = use.attribute("to")
    for kind in (elem_type_of(x), to):
        if kind == onnx.TensorProto.STRING or str(numpy_dtype(kind)) in INTEGERS:
            raise Unsupported(f"the bits of {onnx.TensorProto.DataType.Name(kind)} cannot be taken for another type")
    if carrier(to) is boolean:
        return np.not_equal(plain(x), 0)
    return coded_as(bitcast(plain(x), carrier(to)), to)
