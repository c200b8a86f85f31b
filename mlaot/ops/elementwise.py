"""Elementwise ops: the arguments and the result have one type. Ops such as ``maximum`` pass nan on, as NumPy does.

Integers follow the rules of ``mlaot/ops/integers.py``. In C they use functions where floats use operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.ir import DType, Node, Type
from mlaot.nest.expressions import Const, Expr, call, compare, const, is_float, mask_of, select
from mlaot.nest.expressions import cast as converted
from mlaot.ops import integers
from mlaot.ops.axes import ELEMENTWISE
from mlaot.ops.base import Array, Op, full_like, no_gradient
from mlaot.ops.conversion import convert
from mlaot.ops.dtypes import ANY, FLOATS, NUMBERS, one_type
from mlaot.ops.views import copy_parts

C = Callable[..., Expr]
VJP = Callable[..., tuple[Node | None, ...]]


def function(name: str) -> C:
    """Return the C call ``name(a, b)``; calls for more arguments nest to the left."""

    def expression(args: Sequence[Expr]) -> Expr:
        return call(name, *args)

    return expression


def _extreme(name: str, bounded: str) -> C:
    """Return the C call ``name(a, b)``, which checks for nan, or ``bounded(b, a)`` for a constant b.

    The latter is ``a`` if a is nan.
    """

    def expression(args: Sequence[Expr]) -> Expr:
        bounds = [x for x in args if isinstance(x, Const) and is_float(x.type.dtype) and not np.isnan(x.value)]
        first, *others = [x for x in args if x not in bounds] or [bounds.pop()]
        values = call(name, first, *others) if others else first
        return reduce(lambda x, bound: call(bounded, bound, x), bounds, values)

    return expression


def elementwise(name: str, reference: Callable[..., Array], vjp: VJP, c: C, kinds: str = FLOATS, **more: Any) -> Op:
    """Return an op on the dtypes of ``kinds``."""
    return Op(name, one_type(name, kinds), reference, vjp, ELEMENTWISE, c, **more)


def _power_type(x: Type, exponent: float) -> Type:
    type_ = one_type("pow", NUMBERS)(x)
    if x.dtype.kind != "f" and not (exponent == int(exponent) and 0 <= exponent <= np.iinfo(x.dtype.numpy).max):
        raise MlaotError(f"pow of {x} takes an exponent that {x.dtype} can hold and not a negative one, got {exponent}")
    return type_


def _power(args: Sequence[Expr], exponent: float) -> Expr:
    """Return a power in C: products for small integers, roots for halves, and else the power function.

    Negative integers are products of the reciprocal. Halves above 1 are the root times x. For exponent -1.5 the root's
    reciprocal is divided by x, as x times its root may overflow. The root of -0 and -inf is positive.
    """
    (x,) = args
    one = const(1, x.type)
    if exponent in (2, 3, 4):
        return call("mul", *[x] * int(exponent))
    if is_float(x.type.dtype) and exponent == 0.5:
        return _root(x)
    if exponent == -0.5:
        return call("div", one, _root(x))
    if is_float(x.type.dtype) and exponent == 1.5:
        return call("mul", _root(x), call("abs", x))
    if exponent == -1.5:
        return call("div", call("div", one, _root(x)), call("abs", x))
    if exponent in (-1, -2, -3):
        return reduce(lambda a, b: call("mul", a, b), [call("div", one, x)] * -int(exponent))
    return call("pow", x, const(exponent, x.type))


def _root(x: Expr) -> Expr:
    """Compute ``x`` to the power 0.5: 0 for -0 and inf for -inf, where the square root is -0 and nan."""
    infinite = const(float("inf"), x.type)
    root = call("sqrt", call("add", x, const(0.0, x.type)))
    return select(compare("eq", x, const(float("-inf"), x.type)), infinite, root)


def _vjp_max(ct: Node, out: Node, *args: Node) -> tuple[Node, ...]:
    """Pass the cotangent to the selected argument; equal ones share it evenly, as in PyTorch and JAX."""
    masks = [is_equal(a, out) for a in args]
    share = div(ct, add(*masks))
    return tuple(mul(share, m) for m in masks)


def _step(x: Array) -> Array:
    return np.asarray(x > 0).astype(x.dtype)


def _sum(*args: Array) -> Array:
    return reduce(np.add, args)


def float_power(x: Array, y: Array) -> Array:
    """Compute C's ``pow``. For y = 0.5 NumPy may compute the square root, which differs for -inf and -0."""
    base = np.where((y == 0.5) & ((x == 0) | np.isinf(x)), np.abs(x), x)
    return np.asarray(np.power(base, y))


def _power_reference(x: Array, exponent: float) -> Array:
    if x.dtype.kind == "f":
        return float_power(x, np.asarray(exponent, x.dtype))
    return integers.power(x, np.asarray(int(exponent), x.dtype))


def _vjp_power(ct: Node, out: Node, x: Node, exponent: float) -> tuple[Node | None, ...]:
    """Multiply by the exponent times the power by one less."""
    if exponent == 0:
        return (None,)
    below = pow_(x, exponent=exponent - 1) if exponent != 1 else full_like(x, 1.0)
    return (mul(ct, mul(full_like(x, exponent), below)),)


def _cast_c(args: Sequence[Expr], dtype: DType) -> Expr:
    """Return a conversion in C. In lanes, a truth value is a mask of the lanes' width."""
    (x,) = args
    in_lanes = dtype.name == "bool" and x.type.lanes != 1
    return converted(x, mask_of(x.type).dtype if in_lanes else dtype.name)


def _vjp_cast(ct: Node, out: Node, x: Node, dtype: DType) -> tuple[Node | None, ...]:
    """Cast the cotangent back; integers and bools have none."""
    smooth = x.type.dtype.kind == out.type.dtype.kind == "f"
    return (cast(ct, dtype=x.type.dtype) if smooth else None,)


add: Op = elementwise(
    "add",
    _sum,
    lambda ct, out, *args: (ct,) * len(args),
    function("add"),
    NUMBERS,
    commutative=True,
    cheap=True,
    doc="the sum of all arguments",
)
sub: Op = elementwise(
    "sub", np.subtract, lambda ct, out, a, b: (ct, neg(ct)), function("sub"), NUMBERS, cheap=True, doc="a - b"
)
mul: Op = elementwise(
    "mul",
    np.multiply,
    lambda ct, out, a, b: (mul(ct, b), mul(ct, a)),
    function("mul"),
    NUMBERS,
    commutative=True,
    cheap=True,
    doc="a * b",
)
div: Op = elementwise(
    "div", np.divide, lambda ct, out, a, b: (div(ct, b), neg(mul(ct, div(out, b)))), function("div"), doc="a / b"
)
copy: Op = elementwise(
    "copy",
    lambda x: x,
    lambda ct, out, x: (ct,),
    lambda args: args[0],
    ANY,
    moves=True,
    parts=copy_parts,
    exact=True,
    doc="x, in memory of its own",
)
rounded: Op = elementwise(
    "rounded",
    lambda x: x,
    lambda ct, out, x: (ct,),
    function("rounded"),
    cheap=True,
    doc="x, rounded before anything is computed from it",
)
neg: Op = elementwise(
    "neg",
    np.negative,
    lambda ct, out, x: (neg(ct),),
    function("neg"),
    NUMBERS,
    cheap=True,
    exact=True,
    linear=True,
    doc="-x",
)
pow_: Op = Op("pow", _power_type, _power_reference, _vjp_power, ELEMENTWISE, _power, doc="x to a constant exponent")
exp: Op = elementwise("exp", np.exp, lambda ct, out, x: (mul(ct, out),), function("exp"), doc="e to the x")
log: Op = elementwise("log", np.log, lambda ct, out, x: (div(ct, x),), function("log"), doc="the natural logarithm")
tanh: Op = elementwise(
    "tanh",
    np.tanh,
    lambda ct, out, x: (mul(ct, sub(full_like(x, 1.0), mul(out, out))),),
    function("tanh"),
    doc="the hyperbolic tangent",
)
sqrt: Op = elementwise(
    "sqrt", np.sqrt, lambda ct, out, x: (div(mul(full_like(x, 0.5), ct), out),), function("sqrt"), doc="the square root"
)
abs_: Op = elementwise(
    "abs", np.abs, lambda ct, out, x: (mul(ct, sign(x)),), function("abs"), NUMBERS, exact=True, doc="the size of x"
)
sign: Op = elementwise(
    "sign", np.sign, no_gradient, function("sign"), NUMBERS, exact=True, doc="-1, 0 or 1 by the sign of x"
)
relu: Op = elementwise(
    "relu",
    lambda x: np.maximum(x, x.dtype.type(0)),
    lambda ct, out, x: (mul(ct, step(out)),),
    function("relu"),
    NUMBERS,
    cheap=True,
    exact=True,
    doc="max(x, 0)",
)
# The masks of gradients: 1 where x > 0, or where a == b, else 0.
step: Op = elementwise(
    "step",
    _step,
    no_gradient,
    function("step"),
    NUMBERS,
    cheap=True,
    exact=True,
    doc="1 where x > 0, else 0, of x's dtype",
)
is_equal: Op = elementwise(
    "is_equal",
    lambda a, b: np.asarray(a == b).astype(a.dtype),
    no_gradient,
    function("is_equal"),
    NUMBERS,
    commutative=True,
    doc="1 where a == b, else 0, of their dtype",
)
maximum: Op = elementwise(
    "maximum",
    lambda *args: reduce(np.maximum, args),
    _vjp_max,
    _extreme("max", "greater"),
    NUMBERS,
    commutative=True,
    cheap=True,
    exact=True,
    doc="the largest of the arguments; nan where one is",
)
minimum: Op = elementwise(
    "minimum",
    lambda *args: reduce(np.minimum, args),
    _vjp_max,
    _extreme("min", "lesser"),
    NUMBERS,
    commutative=True,
    cheap=True,
    exact=True,
    doc="the smallest of the arguments; nan where one is",
)
cast: Op = Op(
    "cast",
    lambda x, dtype: Type(dtype, x.shape),
    convert,
    _vjp_cast,
    ELEMENTWISE,
    _cast_c,
    cheap=True,
    linear=True,
    doc="x in another dtype; from float to integer saturates, nan becomes 0",
)
