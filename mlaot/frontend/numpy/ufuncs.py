"""Trace NumPy's and SciPy's ufuncs: ``UFUNCS`` maps the name of each to a function of nodes, composed of ops.

``np.exp(x)`` of a traced ``x`` calls ``protocols.call_ufunc``, which finds ``trace_ufunc`` in the tables that the last
lines of this file fill. ``trace_ufunc`` asks the ufunc itself for the dtypes in which it computes (``resolve_dtypes``).
Then it calls the function with nodes of these dtypes and of one shape, and casts the results. So a function need not
cast or broadcast anything. To add a ufunc, add a line with its name in NumPy or ``scipy.special`` (``special.py`` has
the functions of the latter). ``tests/frontend/test_one_op.py`` compares the answers with the original, special values
and dtypes included.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.numpy.special import SPECIAL_UFUNCS
from mlaot.frontend.trace import protocols
from mlaot.frontend.trace.control import scan
from mlaot.frontend.trace.promotion import (
    as_node,
    broadcast_together,
    cast,
    is_weak,
    like,
    normal_axis,
    result_type,
    strong_type,
)
from mlaot.frontend.trace.protocols import FUNCTIONS
from mlaot.frontend.trace.tensor import Tensor
from mlaot.ir import Node
from mlaot.ir.types import BY_NUMPY, DType, bf16, boolean, f32, f64, i32, i64, u8
from mlaot.ops import Op, rounding
from mlaot.ops import bits as bitwise
from mlaot.ops import comparison as cmp
from mlaot.ops import elementwise as ew
from mlaot.ops import transcendental as trans

Function = Callable[..., Any]


def for_bool(op: Op, bool_op: Op | None) -> Function:
    """Return a function that computes ``op``, but ``bool_op`` of booleans, or for None returns booleans unchanged."""

    def choose(*args: Node) -> Node:
        if args[0].type.dtype is not boolean:
            return op(*args)
        return args[0] if bool_op is None else bool_op(*args)

    return choose


def identity(x: Node) -> Node:
    return x


def for_floats(op: Op) -> Function:
    """Return a function that computes ``op`` of floats, and returns integers and booleans unchanged."""
    return lambda x: op(x) if x.type.dtype.kind == "f" else x


def truth(x: Node) -> Node:
    """Return ``x != 0``."""
    return x if x.type.dtype is boolean else cmp.not_equal(x, like(x, 0))


def logical(op: Op) -> Function:
    """Return a function that computes ``op`` of truth values."""
    return lambda *args: op(*map(truth, args))


def float_predicate(op: Op, otherwise: bool) -> Function:
    """Return a function that computes the predicate ``op`` of floats, and is ``otherwise`` for all other dtypes."""

    def test(x: Node) -> Node:
        if x.type.dtype.kind == "f":
            return op(x)
        return like(cast(x, boolean), otherwise)

    return test


def ordered(op: Op) -> Function:
    """Return a function that compares by order; false comes before true."""

    def compare(*args: Node) -> Node:
        if args[0].type.dtype is boolean:
            args = tuple(cast(a, u8) for a in args)
        return op(*args)

    return compare


def power(x: Node, y: Node) -> Node:
    """Return ``x ** y``. A constant exponent becomes an attribute, so that kernels multiply for small integers."""
    exponent = constant(y)
    if exponent is not None and x.type.dtype.kind == "f":
        return ew.pow_(x, exponent=float(exponent))
    if exponent is not None and exponent < 0:
        raise MlaotError("integers to negative integer powers are not allowed; use x.astype(np.float32)")
    return trans.power(x, y)


def constant(x: Node) -> Any:
    """Return the number in ``x`` if it is a broadcast constant of rank 0, and otherwise None."""
    while x.op.name in ("broadcast", "cast", "reshape"):
        x = x.arg(0)
    if x.op.name == "const" and x.type.shape == ():
        return x.attrs["value"].array.item()
    return None


def square(x: Node) -> Node:
    return ew.pow_(x, exponent=2.0) if x.type.dtype.kind == "f" else ew.mul(x, x)


def scale_by(factor: float) -> Function:
    return lambda x: ew.mul(x, like(x, factor))


def reciprocal(x: Node) -> Node:
    """Return ``1 / x``. For integers it is the integer part, as in NumPy: 1 and -1 stay, and all others give 0."""
    if x.type.dtype.kind == "f":
        return ew.div(like(x, 1), x)
    unit = cmp.equal(ew.abs_(x), like(x, 1))
    return cmp.where(unit, x, like(x, 0))


def cbrt(x: Node) -> Node:
    """Return the real cube root, computed as a power and one step of Newton's method for the last bits."""
    size = ew.abs_(x)
    root = ew.pow_(size, exponent=1 / 3)
    better = ew.sub(root, ew.div(ew.sub(root, ew.div(size, ew.mul(root, root))), like(x, 3)))
    finite = bitwise.bitwise_and(cmp.isfinite(better), cmp.isfinite(size))
    return rounding.copysign(cmp.where(finite, better, root), x)


def logaddexp(exp: Op, log1p: Function) -> Function:
    """Return a function that computes ``log(exp(a) + exp(b))`` without overflow, in the base of ``exp``."""

    def compute(a: Node, b: Node) -> Node:
        largest, distance = ew.maximum(a, b), ew.neg(ew.abs_(ew.sub(a, b)))
        same = cmp.equal(a, b)  # infinities of one sign, whose distance is nan
        distance = cmp.where(same, like(a, 0), distance)
        rest: Node = log1p(exp(distance))
        return ew.add(largest, rest)

    return compute


def log2_1p(x: Node) -> Node:
    return ew.div(trans.log1p(x), like(x, float(np.log(2))))


def heaviside(x: Node, at_zero: Node) -> Node:
    step = cmp.where(cmp.less(x, like(x, 0)), like(x, 0), cmp.where(cmp.equal(x, like(x, 0)), at_zero, like(x, 1)))
    return cmp.where(cmp.isnan(x), x, step)


def ignoring_nan(op: Op, bool_op: Op) -> Function:
    """Return a function that computes ``fmax`` or ``fmin``, which is nan only where both arguments are nan."""
    best_of = for_bool(op, bool_op)

    def choose(a: Node, b: Node) -> Node:
        best: Node = best_of(a, b)
        if a.type.dtype.kind != "f":
            return best
        return cmp.where(cmp.isnan(a), b, cmp.where(cmp.isnan(b), a, best))

    return choose


def divmod_(a: Node, b: Node) -> tuple[Node, Node]:
    return rounding.floor_divide(a, b), rounding.remainder(a, b)


def modf(x: Node) -> tuple[Node, Node]:
    integer = rounding.trunc(x)
    fraction = cmp.where(cmp.isinf(x), like(x, 0), ew.sub(x, integer))
    return rounding.copysign(fraction, x), integer


# By dtype: bits of the fraction, the least and the largest exponent of a normal number, the integer of its size.
BINARY = {f64: (52, -1022, 1023, i64), f32: (23, -126, 127, i32)}


def ldexp(x: Node, exponent: Node) -> Node:
    """Return ``x * 2**exponent``, rounded once.

    The product may be a normal number although ``2**exponent`` is not. For such exponents two steps first multiply by
    another power of two. Only the last product can be inexact.
    """
    if x.type.dtype not in BINARY:
        return cast(ldexp(cast(x, f32), exponent), x.type.dtype)
    digits, least, largest, _ = BINARY[x.type.dtype]
    wide = cast(exponent, i64)
    for _ in range(2):
        for beyond, step in ((cmp.greater, largest), (cmp.less, least + digits + 1)):
            far = beyond(wide, like(wide, largest if step == largest else least))
            x = ew.mul(x, cmp.where(far, like(x, 2.0**step), like(x, 1)))
            wide = cmp.where(far, ew.sub(wide, like(wide, step)), wide)
    wide = ew.maximum(ew.minimum(wide, like(wide, largest)), like(wide, least))
    return ew.mul(x, power_of_two(wide, x.type.dtype))


def power_of_two(exponent: Node, dtype: DType) -> Node:
    """Return ``2**exponent``, composed of its bits, for exponents of normal numbers."""
    digits, _, largest, bits = BINARY[dtype]
    biased = cast(ew.add(exponent, like(exponent, largest)), bits)
    return bitwise.bitcast(bitwise.left_shift(biased, like(biased, digits)), dtype=dtype)


def frexp(x: Node) -> tuple[Node, Node]:
    """Return the fraction, from 0.5 to below 1, and the exponent. For 0, infinity and nan they are x itself and 0."""
    if x.type.dtype not in BINARY:
        fraction, exponent = frexp(cast(x, f32))
        return cast(fraction, x.type.dtype), exponent
    digits, least, largest, _ = BINARY[x.type.dtype]
    size = ew.abs_(x)
    tiny = cmp.less(size, like(x, 2.0**least))
    normal = cmp.where(tiny, ew.mul(size, like(x, 2.0**digits)), size)
    biased = bitwise.bitcast(normal, dtype=BINARY[x.type.dtype][3])
    exponent = ew.sub(bitwise.right_shift(biased, like(biased, digits)), like(biased, largest - 1))
    exponent = ew.sub(exponent, cmp.where(tiny, like(exponent, digits), like(exponent, 0)))
    regular = bitwise.bitwise_and(cmp.isfinite(x), cmp.not_equal(x, like(x, 0)))
    exponent = cmp.where(regular, exponent, like(exponent, 0))
    return cmp.where(regular, ldexp(x, ew.neg(exponent)), x), cast(exponent, i32)


def spacing(x: Node) -> Node:
    """Return the distance to the next number away from 0, negative where ``x`` is."""
    size = ew.abs_(x)
    step = ew.sub(rounding.nextafter(size, like(x, np.inf)), size)
    return cmp.where(cmp.less(x, like(x, 0)), ew.neg(step), step)


UFUNCS: dict[str, Function] = {
    "add": for_bool(ew.add, bitwise.bitwise_or),
    "subtract": ew.sub,
    "multiply": for_bool(ew.mul, bitwise.bitwise_and),
    "divide": ew.div,
    "true_divide": ew.div,
    "floor_divide": rounding.floor_divide,
    "remainder": rounding.remainder,
    "mod": rounding.remainder,
    "fmod": rounding.fmod,
    "divmod": divmod_,
    "modf": modf,
    "power": power,
    "pow": power,
    "float_power": power,
    "square": square,
    "reciprocal": reciprocal,
    "negative": ew.neg,
    "positive": identity,
    "conjugate": identity,
    "conj": identity,
    "absolute": for_bool(ew.abs_, None),
    "abs": for_bool(ew.abs_, None),
    "fabs": ew.abs_,
    "sign": ew.sign,
    "maximum": for_bool(ew.maximum, bitwise.bitwise_or),
    "minimum": for_bool(ew.minimum, bitwise.bitwise_and),
    "fmax": ignoring_nan(ew.maximum, bitwise.bitwise_or),
    "fmin": ignoring_nan(ew.minimum, bitwise.bitwise_and),
    "exp": ew.exp,
    "exp2": trans.exp2,
    "expm1": trans.expm1,
    "log": ew.log,
    "log2": trans.log2,
    "log10": trans.log10,
    "log1p": trans.log1p,
    "logaddexp": logaddexp(ew.exp, trans.log1p),
    "logaddexp2": logaddexp(trans.exp2, log2_1p),
    "sqrt": ew.sqrt,
    "cbrt": cbrt,
    "sin": trans.sin,
    "cos": trans.cos,
    "tan": trans.tan,
    "arcsin": trans.asin,
    "arccos": trans.acos,
    "arctan": trans.atan,
    "arctan2": trans.atan2,
    "asin": trans.asin,
    "acos": trans.acos,
    "atan": trans.atan,
    "atan2": trans.atan2,
    "sinh": trans.sinh,
    "cosh": trans.cosh,
    "tanh": ew.tanh,
    "arcsinh": trans.asinh,
    "arccosh": trans.acosh,
    "arctanh": trans.atanh,
    "asinh": trans.asinh,
    "acosh": trans.acosh,
    "atanh": trans.atanh,
    "hypot": trans.hypot,
    "copysign": rounding.copysign,
    "nextafter": rounding.nextafter,
    "ldexp": ldexp,
    "frexp": frexp,
    "spacing": spacing,
    "heaviside": heaviside,
    "deg2rad": scale_by(float(np.pi / 180)),
    "radians": scale_by(float(np.pi / 180)),
    "rad2deg": scale_by(float(180 / np.pi)),
    "degrees": scale_by(float(180 / np.pi)),
    "floor": for_floats(rounding.floor),
    "ceil": for_floats(rounding.ceil),
    "trunc": for_floats(rounding.trunc),
    "rint": for_floats(rounding.round_),
    "equal": cmp.equal,
    "not_equal": cmp.not_equal,
    "less": ordered(cmp.less),
    "less_equal": ordered(cmp.less_equal),
    "greater": ordered(cmp.greater),
    "greater_equal": ordered(cmp.greater_equal),
    "isnan": float_predicate(cmp.isnan, False),
    "isinf": float_predicate(cmp.isinf, False),
    "isfinite": float_predicate(cmp.isfinite, True),
    "signbit": cmp.signbit,
    "logical_and": logical(bitwise.bitwise_and),
    "logical_or": logical(bitwise.bitwise_or),
    "logical_xor": logical(bitwise.bitwise_xor),
    "logical_not": logical(bitwise.bitwise_not),
    "bitwise_and": bitwise.bitwise_and,
    "bitwise_or": bitwise.bitwise_or,
    "bitwise_xor": bitwise.bitwise_xor,
    "invert": bitwise.bitwise_not,
    "bitwise_not": bitwise.bitwise_not,
    "bitwise_invert": bitwise.bitwise_not,
    "left_shift": bitwise.left_shift,
    "right_shift": bitwise.right_shift,
    "bitwise_left_shift": bitwise.left_shift,
    "bitwise_right_shift": bitwise.right_shift,
    **SPECIAL_UFUNCS,
}


def trace_ufunc(ufunc: np.ufunc, *args: Any) -> Any:
    """Trace ``ufunc`` of ``args``, of which at least one is traced."""
    inputs, outputs = resolve_dtypes(ufunc, args)
    nodes = broadcast_together(*[as_node(a, dtype) for a, dtype in zip(args, inputs, strict=True)])
    # All nodes have one dtype by now, but for exponents of ldexp, unless NumPy takes a mixture that no op does.
    if ufunc.__name__ not in ("ldexp",) and len({n.type.dtype for n in nodes}) > 1:
        raise MlaotError(f"{' and '.join(str(n.type.dtype) for n in nodes)} have no common dtype; cast one of them")
    results = UFUNCS[ufunc.__name__](*nodes)
    if isinstance(results, tuple):
        return tuple(Tensor(cast(n, dtype)) for n, dtype in zip(results, outputs, strict=True))
    return Tensor(cast(results, outputs[0]))


def resolve_dtypes(ufunc: np.ufunc, args: tuple[Any, ...]) -> tuple[list[DType], list[DType]]:
    """Return the dtypes in which ``ufunc`` computes ``args``, and the dtypes of its results, as NumPy resolves them.

    NumPy has no bfloat16. If it is the common dtype of the arguments, float16 takes its place here.
    """
    if len(args) != ufunc.nin:
        raise MlaotError(f"{ufunc.__name__} takes {ufunc.nin} arrays, got {len(args)}")
    is_bf16 = result_type(*args) is bf16
    arguments: list[Any] = []
    for a in args:
        if is_weak(a):
            arguments.append(type(a) if isinstance(a, bool | int | float) else int)
        else:
            dtype = strong_type(a)
            arguments.append(np.dtype("float16" if dtype is bf16 and is_bf16 else dtype.numpy))
    weak = [a for a in arguments if isinstance(a, type)]
    if bool in weak:  # NumPy's resolution knows no weak bool
        arguments = [np.dtype(bool) if a is bool else a for a in arguments]
    try:
        dtypes = ufunc.resolve_dtypes((*arguments, *[None] * ufunc.nout))
    except TypeError:
        types = " and ".join(a.__name__ if isinstance(a, type) else str(a) for a in arguments)
        raise MlaotError(f"{ufunc.__name__} is not defined for {types}; cast with x.astype(...) first") from None
    resolved = [_from_numpy(dtype, is_bf16) for dtype in dtypes]
    return resolved[: ufunc.nin], resolved[ufunc.nin :]


def _from_numpy(dtype: Any, is_bf16: bool) -> DType:
    """Return mlaot's dtype, which is f64 for a dtype that mlaot lacks."""
    if is_bf16 and dtype == np.float16:
        return bf16
    return BY_NUMPY.get(str(dtype), f64)


def _reduction(name: str) -> Function:
    def reduce(x: Any, axis: Any = 0, dtype: Any = None, *, keepdims: bool = False) -> Any:
        options = {} if dtype is None else {"dtype": dtype}
        return FUNCTIONS[name](x, axis=axis, keepdims=keepdims, **options)

    return reduce


def _accumulation(name: str) -> Function:
    def accumulate(x: Any, axis: Any = 0, dtype: Any = None) -> Any:
        return FUNCTIONS[name](x, axis=axis, dtype=dtype)

    return accumulate


def accumulated(ufunc: np.ufunc) -> Function:
    """Implement ``ufunc.accumulate``: apply the ufunc to the result so far and each element."""

    def accumulate(x: Any, axis: int = 0, dtype: Any = None) -> Any:
        v = Tensor(as_node(x))
        at = normal_axis(axis, v.ndim)
        rows = FUNCTIONS["moveaxis"](v.astype(ufunc(v, v).dtype if dtype is None else dtype), at, 0)

        def step(total: Any, row: Any) -> tuple[Any, Any]:
            new = ufunc(total, row).astype(rows.dtype)
            return new, new

        if rows.shape[0] == 0:
            return FUNCTIONS["moveaxis"](rows, 0, at)
        _, rest = scan(step, rows[0], rows[1:])
        return FUNCTIONS["moveaxis"](FUNCTIONS["concatenate"]([rows[:1], rest]), 0, at)

    return accumulate


def outer(ufunc: np.ufunc) -> Function:
    """Implement ``ufunc.outer``: apply the ufunc to every pair of elements."""

    def every_pair(a: Any, b: Any) -> Any:
        x, y = Tensor(as_node(a)), Tensor(as_node(b))
        new = (*x.shape, *[1] * y.ndim)
        return ufunc(np.reshape(x, new), y)

    return every_pair


ACCUMULATED = [
    *("subtract", "divide", "maximum", "minimum", "fmax", "fmin", "logaddexp"),
    *("logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor"),
]
# np.add.reduce and so on, by the names of the ufunc and of the method.
METHODS: dict[tuple[str, str], Function] = {
    ("add", "reduce"): _reduction("sum"),
    ("multiply", "reduce"): _reduction("prod"),
    ("maximum", "reduce"): _reduction("max"),
    ("minimum", "reduce"): _reduction("min"),
    ("logical_and", "reduce"): _reduction("all"),
    ("logical_or", "reduce"): _reduction("any"),
    ("add", "accumulate"): _accumulation("cumsum"),
    ("multiply", "accumulate"): _accumulation("cumprod"),
    **{(name, "accumulate"): accumulated(getattr(np, name)) for name in ACCUMULATED},
    **{(name, "outer"): outer(getattr(np, name)) for name in UFUNCS if getattr(getattr(np, name, None), "nin", 0) == 2},
}
protocols.UFUNCS |= dict.fromkeys(UFUNCS, trace_ufunc)
protocols.UFUNC_METHODS |= METHODS
