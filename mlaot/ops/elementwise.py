"""Elementwise ops: arguments of one type, the result of the same type. ``max``-like ops pass nan on, as NumPy does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from mlaot.ir import DType, Node, Type
from mlaot.ops.base import Array, Op, batch_elementwise, full_like, same_type

C = Callable[..., str]


def operator(symbol: str) -> C:
    """``a + b + c`` for any number of arguments."""
    return lambda args, t, **_: f" {symbol} ".join(args)


def function(name: str) -> C:
    """``name_f64v(a, b)``; more arguments nest to the left."""

    def expression(args: Sequence[str], t: str, **_: Any) -> str:
        if len(args) < 3:
            return f"{name}_{t}({', '.join(args)})"
        return reduce(lambda a, b: f"{name}_{t}({a}, {b})", args)

    return expression


def elementwise(
    name: str, reference: Callable[..., Array], vjp: Callable[..., tuple[Node | None, ...]] | None, c: C, **more: Any
) -> Op:
    return Op(name, same_type, reference, vjp, batch_elementwise, c, **more)


def _power(args: Sequence[str], t: str, exponent: float) -> str:
    """Small integer exponents as products; square root and reciprocal as such; else the power function."""
    (x,) = args
    if exponent == 0.5:
        return f"sqrt_{t}({x})"
    if exponent in (2, 3, 4):
        return " * ".join([x] * int(exponent))
    if exponent in (-1, -2, -3):
        return f"{splat(1.0, t)} / ({' * '.join([x] * -int(exponent))})"
    return f"pow_{t}({x}, {splat(exponent, t)})"


def splat(value: float, t: str) -> str:
    """A C constant of type suffix ``t``."""
    literal = c_literal(value, t.rstrip("v"))
    return f"splat_{t}({literal})" if t.endswith("v") else literal


def c_literal(value: float, dtype: str) -> str:
    """A number as C text, exact to the last bit and as short as can be."""
    if dtype in ("i32", "i64", "u8", "bool"):
        return str(int(value))
    if np.isnan(value):
        return '__builtin_nan("")' if dtype == "f64" else '__builtin_nanf("")'
    if np.isinf(value):
        sign = "-" if value < 0 else ""
        return f"{sign}__builtin_inf()" if dtype == "f64" else f"{sign}__builtin_inff()"
    if dtype == "f32":
        short = str(np.float32(value))
        return (short if any(c in short for c in ".e") else short + ".0") + "f"
    return repr(float(value))


def _vjp_max(ct: Node, out: Node, *args: Node) -> tuple[Node, ...]:
    """To the largest; equal ones share evenly, as in PyTorch and JAX."""
    masks = [is_equal(a, out) for a in args]
    share = div(ct, add(*masks))
    return tuple(mul(share, m) for m in masks)


def _step(x: Array) -> Array:
    return (x > 0).astype(x.dtype)


def _sum(*args: Array) -> Array:
    return reduce(np.add, args)


add: Op = elementwise("add", _sum, lambda ct, out, *args: (ct,) * len(args), operator("+"), commutative=True)
sub: Op = elementwise("sub", np.subtract, lambda ct, out, a, b: (ct, neg(ct)), operator("-"))
mul: Op = elementwise(
    "mul", np.multiply, lambda ct, out, a, b: (mul(ct, b), mul(ct, a)), operator("*"), commutative=True
)
div: Op = elementwise("div", np.divide, lambda ct, out, a, b: (div(ct, b), neg(mul(ct, div(out, b)))), operator("/"))
copy: Op = elementwise("copy", lambda x: x, lambda ct, out, x: (ct,), lambda args, t: args[0])
neg: Op = elementwise(
    "neg",
    np.negative,
    lambda ct, out, x: (neg(ct),),
    lambda args, t: f"-({args[0]})" if args[0].startswith("-") else f"-{args[0]}",
)
pow_: Op = elementwise(
    "pow",
    lambda x, exponent: np.power(x, np.asarray(exponent, x.dtype)),
    lambda ct, out, x, exponent: (
        None
        if exponent == 0
        else mul(
            ct, mul(full_like(x, exponent), pow_(x, exponent=exponent - 1) if exponent != 1 else full_like(x, 1.0))
        ),
    ),
    _power,
)
exp: Op = elementwise("exp", np.exp, lambda ct, out, x: (mul(ct, out),), function("exp"))
log: Op = elementwise("log", np.log, lambda ct, out, x: (div(ct, x),), function("log"))
tanh: Op = elementwise(
    "tanh",
    np.tanh,
    lambda ct, out, x: (mul(ct, sub(full_like(x, 1.0), mul(out, out))),),
    function("tanh"),
)
sqrt: Op = elementwise("sqrt", np.sqrt, lambda ct, out, x: (div(mul(full_like(x, 0.5), ct), out),), function("sqrt"))
abs_: Op = elementwise("abs", np.abs, lambda ct, out, x: (mul(ct, sign(x)),), function("abs"))
sign: Op = elementwise("sign", np.sign, lambda ct, out, x: (None,), function("sign"))
relu: Op = elementwise("relu", lambda x: np.maximum(x, 0), lambda ct, out, x: (mul(ct, step(out)),), function("relu"))
step: Op = elementwise("step", _step, lambda ct, out, x: (None,), function("step"))
is_equal: Op = elementwise(
    "is_equal",
    lambda a, b: (a == b).astype(a.dtype),
    lambda ct, out, a, b: (None, None),
    function("eq"),
    commutative=True,
)
maximum: Op = elementwise(
    "maximum", lambda *args: reduce(np.maximum, args), _vjp_max, function("max"), commutative=True
)
minimum: Op = elementwise(
    "minimum", lambda *args: reduce(np.minimum, args), _vjp_max, function("min"), commutative=True
)


def _cast_type(x: Type, dtype: DType) -> Type:
    return Type(dtype, x.shape)


def _vjp_cast(ct: Node, out: Node, x: Node, dtype: DType) -> tuple[Node | None, ...]:
    return (cast(ct, dtype=x.type.dtype) if x.type.dtype.kind == "f" else None,)


cast: Op = Op(
    "cast",
    _cast_type,
    lambda x, dtype: x.astype(dtype.numpy),
    _vjp_cast,
    batch_elementwise,
    lambda args, t, dtype: f"cast_{t}({args[0]})",
)
