"""Rounding to whole numbers, division with it, and the parts of a float.

``floor_divide`` and ``remainder`` are Python's ``//`` and ``%``, and ``fmod`` is C's. A rounded number is constant
almost everywhere, so its gradient is 0. The gradient of a remainder with respect to its divisor is minus the whole
quotient.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mlaot.errors import MlaotError
from mlaot.ir import DType, Node, Type
from mlaot.ir.types import bf16, f16
from mlaot.ops import integers
from mlaot.ops.axes import ELEMENTWISE
from mlaot.ops.base import Array, Op, full_like, no_gradient
from mlaot.ops.dtypes import NUMBERS, one_type
from mlaot.ops.elementwise import div, elementwise, function, mul, neg, sign


def _on_integers(on_floats: Callable[..., Array], on_integers: Callable[..., Array]) -> Callable[..., Array]:
    return lambda x, y: (on_floats if x.dtype.kind == "f" else on_integers)(x, y)


def _vjp_remainder(ct: Node, out: Node, x: Node, y: Node) -> tuple[Node, ...]:
    return ct, neg(mul(ct, floor_divide(x, y)))


def _vjp_fmod(ct: Node, out: Node, x: Node, y: Node) -> tuple[Node, ...]:
    return ct, neg(mul(ct, trunc(div(x, y))))


def _vjp_copysign(ct: Node, out: Node, x: Node, y: Node) -> tuple[Node | None, ...]:
    """Multiply by the sign of x and that of y; 0 at x = 0."""
    return mul(ct, mul(sign(x), copysign(full_like(x, 1.0), y))), None


def _nextafter_type(x: Type, y: Type) -> Type:
    if x.dtype.name in ("f16", "bf16"):  # these are computed as f32, whose next number is another one
        raise MlaotError(f"nextafter takes f32 or f64, got {x}; cast it first")
    return one_type("nextafter", "f")(x, y)


floor: Op = elementwise(
    "floor", np.floor, no_gradient, function("floor"), exact=True, doc="the largest whole number that is not above x"
)
ceil: Op = elementwise(
    "ceil", np.ceil, no_gradient, function("ceil"), exact=True, doc="the smallest whole number that is not below x"
)
trunc: Op = elementwise("trunc", np.trunc, no_gradient, function("trunc"), exact=True, doc="x without its fraction")
round_: Op = elementwise(
    "round", np.rint, no_gradient, function("round"), exact=True, doc="the nearest whole number; halves to the even one"
)


def _rounding(dtype: DType, digits: int, least: int, limit: float) -> Op:
    """Return an op that rounds to ``digits`` binary digits after the first, as in half precision."""

    def reference(x: Array) -> Array:
        exponent = np.maximum(np.frexp(x)[1] - 1, least)
        unit = np.ldexp(np.ones_like(x), exponent - digits)
        rounded = np.where(np.isfinite(x), np.rint(x / unit) * unit, x)
        return np.asarray(np.where(np.abs(x) >= limit, np.copysign(np.inf, x), rounded), x.dtype)

    doc = f"the nearest number that {dtype} holds; halves to even"
    return elementwise(f"round_{dtype}", reference, no_gradient, function(f"round_{dtype}"), doc=doc)


round_f16: Op = _rounding(f16, 10, -14, 65520.0)
round_bf16: Op = _rounding(bf16, 7, -126, float.fromhex("0x1.ffp127"))
floor_divide: Op = elementwise(
    "floor_divide",
    _on_integers(np.floor_divide, integers.floor_divide),
    no_gradient,
    function("floor_divide"),
    NUMBERS,
    doc="x / y rounded down; of integers 0 where y is 0",
)
remainder: Op = elementwise(
    "remainder",
    _on_integers(np.remainder, integers.remainder),
    _vjp_remainder,
    function("remainder"),
    NUMBERS,
    doc="what x / y rounded down leaves, with the sign of y",
)
fmod: Op = elementwise(
    "fmod",
    _on_integers(np.fmod, integers.fmod),
    _vjp_fmod,
    function("fmod"),
    NUMBERS,
    exact=True,
    doc="what x / y rounded towards 0 leaves, with the sign of x",
)
copysign: Op = elementwise(
    "copysign", np.copysign, _vjp_copysign, function("copysign"), exact=True, doc="the size of x with the sign of y"
)
nextafter: Op = Op(
    "nextafter",
    _nextafter_type,
    np.nextafter,
    lambda ct, out, x, y: (ct, None),
    ELEMENTWISE,
    function("nextafter"),
    doc="the number beside x, towards y",
)
