"""Powers, logarithms, trigonometric and hyperbolic functions and their inverses, and the error function.

Gradients at kinks and poles are those of PyTorch: ``power(0, 0)`` and ``atan2(0, 0)`` have the gradient 0. ``hypot(0,
0)`` has the gradient 0 too, where PyTorch's is nan. The masks come before the division and not after, so that the
second derivative is not 0 times infinity.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from mlaot.ir import Node
from mlaot.ops import integers
from mlaot.ops.base import Array, Op, full_like
from mlaot.ops.bits import bitwise_and
from mlaot.ops.comparison import greater_equal, is_zero, where
from mlaot.ops.dtypes import NUMBERS
from mlaot.ops.elementwise import add, div, elementwise, exp, float_power, function, log, mul, neg, sqrt, sub

HALF_ROOT_PI = math.sqrt(math.pi) / 2


def _smooth(name: str, doc: str, reference: Callable[[Array], Array], slope: Callable[[Node, Node], Node]) -> Op:
    """Return an op of one argument, whose VJP multiplies the cotangent by ``slope(x, out)``."""
    return elementwise(name, reference, lambda ct, out, x: (mul(ct, slope(x, out)),), function(name), doc=doc)


def _inverse(name: str, doc: str, reference: Callable[[Array], Array], steepness: Callable[[Node], Node]) -> Op:
    """Return an op of one argument, whose VJP divides the cotangent by ``steepness(x)``."""
    return elementwise(name, reference, lambda ct, out, x: (div(ct, steepness(x)),), function(name), doc=doc)


def _one(x: Node) -> Node:
    return full_like(x, 1.0)


def _scale(x: Node, factor: float) -> Node:
    return mul(x, full_like(x, factor))


def _one_minus_square(x: Node) -> Node:
    """Compute 1 - x^2, also accurately near 1."""
    return mul(sub(_one(x), x), add(_one(x), x))


def _one_plus_square(x: Node) -> Node:
    return add(_one(x), mul(x, x))


def _power_reference(x: Array, y: Array) -> Array:
    return float_power(x, y) if x.dtype.kind == "f" else integers.power(x, y)


def _vjp_power(ct: Node, out: Node, x: Node, y: Node) -> tuple[Node, ...]:
    """Multiply by y x^(y-1), 0 for 0^0; and by x^y log(x), 0 for the powers of 0 that are finite."""
    zero = is_zero(x)
    exponent = where(bitwise_and(zero, is_zero(y)), _one(y), y)
    by_x = mul(y, power(x, sub(exponent, _one(y))))
    base = where(bitwise_and(zero, greater_equal(y, full_like(y, 0.0))), _one(x), x)
    by_y = mul(out, log(base))
    return mul(ct, by_x), mul(ct, by_y)


def _length(x: Node, y: Node) -> Node:
    """Compute hypot(x, y), 1 at the origin."""
    origin = bitwise_and(is_zero(x), is_zero(y))
    return hypot(where(origin, _one(x), x), y)


def _vjp_hypot(ct: Node, out: Node, x: Node, y: Node) -> tuple[Node, ...]:
    """Multiply by x and y over the length; 0 at the origin."""
    length = _length(x, y)
    return mul(ct, div(x, length)), mul(ct, div(y, length))


def _vjp_atan2(ct: Node, out: Node, y: Node, x: Node) -> tuple[Node, ...]:
    """Multiply by x and -y over the squared length, 0 at the origin. Divide twice, as the square may overflow."""
    length = _length(x, y)
    share = div(ct, length)
    return mul(share, div(x, length)), neg(mul(share, div(y, length)))


def _each(f: Callable[[float], float]) -> Callable[[Array], Array]:
    """Apply a function of Python's floats to every element."""
    on_objects = np.vectorize(f, otypes=[np.float64])
    return lambda x: np.asarray(on_objects(x)).astype(x.dtype)


def _sigmoid(x: Array) -> Array:
    """Compute 1 / (1 + exp(-x)) without overflow."""
    below = np.exp(-np.abs(x))
    return np.asarray(np.where(x < 0, below, x.dtype.type(1)) / (1 + below))


def _softplus(x: Array) -> Array:
    """Compute log(1 + exp(x)) without overflow."""
    return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


def _erfinv(x: float) -> float:
    """Refine Winitzki's approximation (2008) by Halley's method, near 1 on erfc, which is accurate there."""
    if not -1 < x < 1:
        return math.copysign(math.inf, x) if abs(x) == 1 else math.nan
    logarithm = math.log1p(x) + math.log1p(-x)
    half = 2 / (math.pi * 0.147) + logarithm / 2
    z = math.sqrt(max(math.sqrt(half * half - logarithm / 0.147) - half, 0.0))
    size = abs(x)
    for _ in range(3):
        error = math.erf(z) - size if size < 0.5 else (1 - size) - math.erfc(z)
        step = error * HALF_ROOT_PI * math.exp(z * z)
        z -= step / (1 + z * step)
    return math.copysign(z, x)


power: Op = elementwise("power", _power_reference, _vjp_power, function("pow"), NUMBERS, doc="x to the y")
hypot: Op = elementwise("hypot", np.hypot, _vjp_hypot, function("hypot"), doc="sqrt(x^2 + y^2), without overflow")
atan2: Op = elementwise(
    "atan2", np.arctan2, _vjp_atan2, function("atan2"), doc="the angle of the point (x, y), its arguments being y and x"
)

exp2: Op = _smooth("exp2", "2 to the x", np.exp2, lambda x, out: _scale(out, math.log(2)))
expm1: Op = _smooth(
    "expm1", "exp(x) - 1, accurate near 0", np.expm1, lambda x, out: exp(x)
)  # out + 1 would lose the digits of a small one
log2: Op = _inverse("log2", "the logarithm to base 2", np.log2, lambda x: _scale(x, math.log(2)))
log10: Op = _inverse("log10", "the logarithm to base 10", np.log10, lambda x: _scale(x, math.log(10)))
log1p: Op = _inverse("log1p", "log(1 + x), accurate near 0", np.log1p, lambda x: add(_one(x), x))

sin: Op = _smooth("sin", "the sine", np.sin, lambda x, out: cos(x))
cos: Op = _smooth("cos", "the cosine", np.cos, lambda x, out: neg(sin(x)))
tan: Op = _smooth("tan", "the tangent", np.tan, lambda x, out: _one_plus_square(out))
asin: Op = _inverse("asin", "the angle in -pi/2..pi/2 whose sine is x", np.arcsin, lambda x: sqrt(_one_minus_square(x)))
acos: Op = _inverse(
    "acos", "the angle in 0..pi whose cosine is x", np.arccos, lambda x: neg(sqrt(_one_minus_square(x)))
)
atan: Op = _inverse("atan", "the angle in -pi/2..pi/2 whose tangent is x", np.arctan, _one_plus_square)

sinh: Op = _smooth("sinh", "the hyperbolic sine", np.sinh, lambda x, out: cosh(x))
cosh: Op = _smooth("cosh", "the hyperbolic cosine", np.cosh, lambda x, out: sinh(x))
asinh: Op = _inverse("asinh", "the inverse of sinh", np.arcsinh, lambda x: sqrt(_one_plus_square(x)))
acosh: Op = _inverse(
    "acosh",
    "the inverse of cosh, not negative",
    np.arccosh,
    lambda x: mul(sqrt(sub(x, _one(x))), sqrt(add(x, _one(x)))),
)
atanh: Op = _inverse("atanh", "the inverse of tanh", np.arctanh, _one_minus_square)

sigmoid: Op = _smooth("sigmoid", "1 / (1 + exp(-x))", _sigmoid, lambda x, out: mul(out, sub(_one(x), out)))
softplus: Op = _smooth("softplus", "log(1 + exp(x)), without overflow", _softplus, lambda x, out: sigmoid(x))
erf: Op = _smooth(
    "erf", "the error function", _each(math.erf), lambda x, out: _scale(exp(neg(mul(x, x))), 1 / HALF_ROOT_PI)
)
erfc: Op = _smooth(
    "erfc",
    "1 - erf(x), accurate for large x",
    _each(math.erfc),
    lambda x, out: _scale(exp(neg(mul(x, x))), -1 / HALF_ROOT_PI),
)
erfinv: Op = _smooth(
    "erfinv", "the inverse of erf", _each(_erfinv), lambda x, out: _scale(exp(mul(out, out)), HALF_ROOT_PI)
)
