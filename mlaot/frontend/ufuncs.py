"""NumPy's and SciPy's ufuncs over ops: ``UFUNCS`` maps a name to a function of nodes of one shape.

Which dtypes a ufunc computes in is asked of the ufunc itself; the nodes that a function gets are of these dtypes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.promotion import (
    aligned,
    apply,
    as_node,
    cast,
    is_weak,
    like,
    result_type,
    strong_type,
)
from mlaot.frontend.tensor import Tensor
from mlaot.ir import Node
from mlaot.ir.types import BY_NUMPY, DType, bf16, boolean, f32, f64, i32, i64, u8
from mlaot.ops.random import WICHURA

Function = Callable[..., Any]


def named(name: str) -> Function:
    """The op ``name`` as it is."""
    return lambda *args: apply(name, *args)


def for_bool(name: str, logical: str | None) -> Function:
    """The op ``name``, but for booleans ``logical`` (None: the argument itself)."""

    def choose(*args: Node) -> Node:
        if args[0].type.dtype is not boolean:
            return apply(name, *args)
        return args[0] if logical is None else apply(logical, *args)

    return choose


def identity(x: Node) -> Node:
    return x


def for_floats(name: str) -> Function:
    """The op ``name``; integers and booleans stay as they are."""
    return lambda x: apply(name, x) if x.type.dtype.kind == "f" else x


def truth(x: Node) -> Node:
    """``x != 0``."""
    return x if x.type.dtype is boolean else apply("not_equal", x, like(x, 0))


def logical(name: str) -> Function:
    return lambda *args: apply(name, *map(truth, args))


def test(name: str, otherwise: bool) -> Function:
    """A question to floating-point numbers, whose answer for all others is known."""

    def ask(x: Node) -> Node:
        if x.type.dtype.kind == "f":
            return apply(name, x)
        return like(cast(x, boolean), otherwise)

    return ask


def ordered(name: str) -> Function:
    """A comparison of order; false comes before true."""

    def compare(*args: Node) -> Node:
        if args[0].type.dtype is boolean:
            args = tuple(cast(a, u8) for a in args)
        return apply(name, *args)

    return compare


def power(x: Node, y: Node) -> Node:
    """A constant exponent keeps its number: kernels multiply for small integers."""
    exponent = constant(y)
    if exponent is not None and x.type.dtype.kind == "f":
        return apply("pow", x, exponent=float(exponent))
    if exponent is not None and exponent < 0:
        raise MlaotError("integers to negative integer powers are not allowed; use x.astype(np.float32)")
    return apply("power", x, y)


def constant(x: Node) -> Any:
    """The number that every element of ``x`` is, if that is plain to see."""
    while x.op.name in ("broadcast", "cast", "reshape"):
        x = x.arg(0)
    if x.op.name == "const" and x.type.shape == ():
        return x.attrs["value"].array.item()
    return None


def square(x: Node) -> Node:
    return apply("pow", x, exponent=2.0) if x.type.dtype.kind == "f" else apply("mul", x, x)


def where(condition: Node, a: Node, b: Node) -> Node:
    return apply("where", condition, a, b)


def less(a: Node, b: Node) -> Node:
    return apply("less", a, b)


def equal(a: Node, b: Node) -> Node:
    return apply("equal", a, b)


def add(a: Node, b: Node) -> Node:
    return apply("add", a, b)


def sub(a: Node, b: Node) -> Node:
    return apply("sub", a, b)


def mul(a: Node, b: Node) -> Node:
    return apply("mul", a, b)


def div(a: Node, b: Node) -> Node:
    return apply("div", a, b)


def neg(x: Node) -> Node:
    return apply("neg", x)


def scaled(factor: float) -> Function:
    return lambda x: mul(x, like(x, factor))


def reciprocal(x: Node) -> Node:
    if x.type.dtype.kind == "f":
        return div(like(x, 1), x)
    unit = equal(apply("abs", x), like(x, 1))
    return where(unit, x, like(x, 0))


def cbrt(x: Node) -> Node:
    """The real cube root: a power, and one step of Newton's method for the last bits."""
    size = apply("abs", x)
    root = apply("pow", size, exponent=1 / 3)
    better = sub(root, div(sub(root, div(size, mul(root, root))), like(x, 3)))
    finite = apply("bitwise_and", apply("isfinite", better), apply("isfinite", size))
    return apply("copysign", where(finite, better, root), x)


def logaddexp(exp: str, log: str, log1p: Function) -> Function:
    """``log(exp(a) + exp(b))`` in some base, without overflow."""

    def both(a: Node, b: Node) -> Node:
        largest, distance = apply("maximum", a, b), neg(apply("abs", sub(a, b)))
        same = equal(a, b)  # infinities of one sign, whose distance is nan
        distance = where(same, like(a, 0), distance)
        rest: Node = log1p(apply(exp, distance))
        return add(largest, rest)

    return both


def log2_1p(x: Node) -> Node:
    return div(apply("log1p", x), like(x, float(np.log(2))))


def log1p(x: Node) -> Node:
    return apply("log1p", x)


def heaviside(x: Node, at_zero: Node) -> Node:
    step = where(less(x, like(x, 0)), like(x, 0), where(equal(x, like(x, 0)), at_zero, like(x, 1)))
    return where(apply("isnan", x), x, step)


def ignoring_nan(name: str) -> Function:
    """``fmax`` and ``fmin``: nan only where both are."""

    def choose(a: Node, b: Node) -> Node:
        best: Node = for_bool(name, "bitwise_or" if name == "maximum" else "bitwise_and")(a, b)
        if a.type.dtype.kind != "f":
            return best
        return where(apply("isnan", a), b, where(apply("isnan", b), a, best))

    return choose


def divmod_(a: Node, b: Node) -> tuple[Node, Node]:
    return apply("floor_divide", a, b), apply("remainder", a, b)


def modf(x: Node) -> tuple[Node, Node]:
    whole = apply("trunc", x)
    rest = where(apply("isinf", x), like(x, 0), sub(x, whole))
    return apply("copysign", rest, x), whole


# Bits of the fraction, the least and the largest exponent of a normal number, and the integer of as many bits.
BINARY = {f64: (52, -1022, 1023, i64), f32: (23, -126, 127, i32)}


def ldexp(x: Node, exponent: Node) -> Node:
    """``x * 2**exponent``, rounded once: what goes far is scaled in steps, of which only the last can be inexact."""
    if x.type.dtype not in BINARY:
        return cast(ldexp(cast(x, f32), exponent), x.type.dtype)
    digits, least, largest, _ = BINARY[x.type.dtype]
    wide = cast(exponent, i64)
    for _ in range(2):
        for beyond, step in (("greater", largest), ("less", least + digits + 1)):
            far = apply(beyond, wide, like(wide, largest if step == largest else least))
            x = mul(x, where(far, like(x, 2.0**step), like(x, 1)))
            wide = where(far, sub(wide, like(wide, step)), wide)
    wide = apply("maximum", apply("minimum", wide, like(wide, largest)), like(wide, least))
    return mul(x, power_of_two(wide, x.type.dtype))


def power_of_two(exponent: Node, dtype: DType) -> Node:
    """``2**exponent`` for exponents of normal numbers, by its bits."""
    digits, _, largest, bits = BINARY[dtype]
    biased = cast(add(exponent, like(exponent, largest)), bits)
    return apply("bitcast", apply("left_shift", biased, like(biased, digits)), dtype=dtype)


def zero_times(log: Function) -> Function:
    """``x * log(y)``, 0 where x is 0 and y is a number."""

    def product(x: Node, y: Node) -> Node:
        nothing = apply("bitwise_and", equal(x, like(x, 0)), apply("bitwise_not", apply("isnan", y)))
        safe = where(nothing, like(y, 1), y)  # the gradient of what is not taken stays finite
        return where(nothing, like(x, 0), mul(x, log(safe)))

    return product


def entr(x: Node) -> Node:
    """``-x * log(x)``, 0 at 0, -inf below."""
    below = where(less(x, like(x, 0)), like(x, -np.inf), neg(zero_times(named("log"))(x, x)))
    return where(equal(x, like(x, 0)), like(x, 0), below)


def rel_entr(x: Node, y: Node) -> Node:
    """``x * log(x / y)`` of positive numbers, 0 for x = 0 and y >= 0, else inf."""
    zero = like(x, 0)
    positive = apply("bitwise_and", apply("greater", x, zero), apply("greater", y, zero))
    value = mul(x, log_ratio(*[where(positive, v, like(v, 1)) for v in (x, y)]))
    nothing = apply("bitwise_and", equal(x, zero), apply("greater_equal", y, zero))
    value = where(positive, value, where(nothing, zero, like(x, np.inf)))
    return where(apply("isnan", x), x, where(apply("isnan", y), y, value))


def log_ratio(x: Node, y: Node) -> Node:
    """``log(x / y)`` of positive numbers: also where they are close, and where their quotient leaves the range."""
    ratio = div(x, y)
    close = apply("bitwise_and", apply("greater", ratio, like(x, 0.5)), less(ratio, like(x, 2)))
    limits = np.finfo("float32" if x.type.dtype.itemsize < 4 else x.type.dtype.numpy)
    inside = apply("bitwise_and", apply("greater", ratio, like(x, float(limits.tiny))), apply("isfinite", ratio))
    near = apply("log1p", where(close, div(sub(x, y), y), like(x, 0)))
    far = sub(apply("log", x), apply("log", y))
    return where(close, near, where(inside, apply("log", where(inside, ratio, like(x, 1))), far))


def kl_div(x: Node, y: Node) -> Node:
    """``x * log(x / y) - x + y`` of positive numbers, y for x = 0 and y >= 0, else inf."""
    zero = like(x, 0)
    positive = apply("bitwise_and", apply("greater", x, zero), apply("greater", y, zero))
    ratio = div(*[where(positive, v, like(v, 1)) for v in (x, y)])
    value = add(sub(mul(x, apply("log", ratio)), x), y)
    nothing = apply("bitwise_and", equal(x, zero), apply("greater_equal", y, zero))
    value = where(positive, value, where(nothing, y, like(x, np.inf)))
    return where(apply("isnan", x), x, where(apply("isnan", y), y, value))


def logit(x: Node) -> Node:
    return sub(apply("log", x), apply("log1p", neg(x)))


def log_expit(x: Node) -> Node:
    """``log(sigmoid(x))``: ``min(x, 0) - log1p(exp(-|x|))``."""
    return sub(apply("minimum", x, like(x, -0.0)), apply("log1p", apply("exp", neg(apply("abs", x)))))


def ndtr(x: Node) -> Node:
    """The distribution function of the normal distribution."""
    return mul(like(x, 0.5), apply("erfc", mul(x, like(x, -(0.5**0.5)))))


def ndtri(p: Node) -> Node:
    """The inverse of ``ndtr``; in the tails, where ``2 p - 1`` loses digits, Wichura's quotients of polynomials."""
    middle = mul(like(p, 2**0.5), apply("erfinv", sub(mul(p, like(p, 2)), like(p, 1))))
    below = less(p, like(p, 0.5))
    nearest = where(below, p, sub(like(p, 1), p))
    tail = apply("bitwise_and", apply("greater", nearest, like(p, 0)), less(nearest, like(p, 0.075)))
    r = apply("sqrt", neg(apply("log", where(tail, nearest, like(p, 0.075)))))
    size = where(apply("less_equal", r, like(p, 5)), quotient("tail", r), quotient("far", r))
    return where(less(p, like(p, 0)), like(p, np.nan), where(tail, where(below, neg(size), size), middle))


def quotient(part: str, r: Node) -> Node:
    """One of Wichura's quotients of polynomials."""
    shift, above, below = WICHURA[part]
    return div(*[horner(coefficients, sub(r, like(r, shift))) for coefficients in (above, below)])


def horner(coefficients: Sequence[float], x: Node) -> Node:
    """A polynomial, the highest power first."""
    total = like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total = add(mul(total, x), like(x, coefficient))
    return total


def exprel(x: Node) -> Node:
    """``(exp(x) - 1) / x``, 1 at 0."""
    zero, most = equal(x, like(x, 0)), equal(x, like(x, np.inf))
    safe = where(apply("bitwise_or", zero, most), like(x, 1), x)
    return where(zero, like(x, 1), where(most, x, div(apply("expm1", safe), safe)))


def exp10(x: Node) -> Node:
    return apply("power", like(x, 10), x)


def huber(delta: Node, r: Node) -> Node:
    size = apply("abs", r)
    outside = mul(delta, sub(size, mul(like(r, 0.5), delta)))
    value = where(apply("less_equal", size, delta), mul(like(r, 0.5), square(r)), outside)
    return where(less(delta, like(delta, 0)), like(r, np.inf), value)


def pseudo_huber(delta: Node, r: Node) -> Node:
    """``delta**2 * (sqrt(1 + (r / delta)**2) - 1)``, inf below 0; exact to the last bits for small r."""
    nothing = apply("bitwise_or", equal(delta, like(delta, 0)), equal(r, like(r, 0)))
    ratio = div(where(nothing, like(r, 1), r), where(nothing, like(r, 1), delta))
    growth = apply("expm1", mul(like(r, 0.5), apply("log1p", square(ratio))))
    value = where(nothing, like(r, 0), mul(square(delta), growth))
    return where(less(delta, like(delta, 0)), like(r, np.inf), value)


UFUNCS: dict[str, Function] = {
    "add": for_bool("add", "bitwise_or"),
    "subtract": named("sub"),
    "multiply": for_bool("mul", "bitwise_and"),
    "divide": named("div"),
    "true_divide": named("div"),
    "floor_divide": named("floor_divide"),
    "remainder": named("remainder"),
    "mod": named("remainder"),
    "fmod": named("fmod"),
    "divmod": divmod_,
    "modf": modf,
    "power": power,
    "pow": power,
    "float_power": power,
    "square": square,
    "reciprocal": reciprocal,
    "negative": named("neg"),
    "positive": identity,
    "conjugate": identity,
    "conj": identity,
    "absolute": for_bool("abs", None),
    "abs": for_bool("abs", None),
    "fabs": named("abs"),
    "sign": named("sign"),
    "maximum": for_bool("maximum", "bitwise_or"),
    "minimum": for_bool("minimum", "bitwise_and"),
    "fmax": ignoring_nan("maximum"),
    "fmin": ignoring_nan("minimum"),
    "exp": named("exp"),
    "exp2": named("exp2"),
    "expm1": named("expm1"),
    "log": named("log"),
    "log2": named("log2"),
    "log10": named("log10"),
    "log1p": named("log1p"),
    "logaddexp": logaddexp("exp", "log", log1p),
    "logaddexp2": logaddexp("exp2", "log2", log2_1p),
    "sqrt": named("sqrt"),
    "cbrt": cbrt,
    "sin": named("sin"),
    "cos": named("cos"),
    "tan": named("tan"),
    "arcsin": named("asin"),
    "arccos": named("acos"),
    "arctan": named("atan"),
    "arctan2": named("atan2"),
    "asin": named("asin"),
    "acos": named("acos"),
    "atan": named("atan"),
    "atan2": named("atan2"),
    "sinh": named("sinh"),
    "cosh": named("cosh"),
    "tanh": named("tanh"),
    "arcsinh": named("asinh"),
    "arccosh": named("acosh"),
    "arctanh": named("atanh"),
    "asinh": named("asinh"),
    "acosh": named("acosh"),
    "atanh": named("atanh"),
    "hypot": named("hypot"),
    "copysign": named("copysign"),
    "nextafter": named("nextafter"),
    "ldexp": ldexp,
    "heaviside": heaviside,
    "deg2rad": scaled(float(np.pi / 180)),
    "radians": scaled(float(np.pi / 180)),
    "rad2deg": scaled(float(180 / np.pi)),
    "degrees": scaled(float(180 / np.pi)),
    "floor": for_floats("floor"),
    "ceil": for_floats("ceil"),
    "trunc": for_floats("trunc"),
    "rint": for_floats("round"),
    "equal": named("equal"),
    "not_equal": named("not_equal"),
    "less": ordered("less"),
    "less_equal": ordered("less_equal"),
    "greater": ordered("greater"),
    "greater_equal": ordered("greater_equal"),
    "isnan": test("isnan", False),
    "isinf": test("isinf", False),
    "isfinite": test("isfinite", True),
    "signbit": named("signbit"),
    "logical_and": logical("bitwise_and"),
    "logical_or": logical("bitwise_or"),
    "logical_xor": logical("bitwise_xor"),
    "logical_not": logical("bitwise_not"),
    "bitwise_and": named("bitwise_and"),
    "bitwise_or": named("bitwise_or"),
    "bitwise_xor": named("bitwise_xor"),
    "invert": named("bitwise_not"),
    "bitwise_not": named("bitwise_not"),
    "bitwise_invert": named("bitwise_not"),
    "left_shift": named("left_shift"),
    "right_shift": named("right_shift"),
    "bitwise_left_shift": named("left_shift"),
    "bitwise_right_shift": named("right_shift"),
    # scipy.special
    "erf": named("erf"),
    "erfc": named("erfc"),
    "erfinv": named("erfinv"),
    "expit": named("sigmoid"),
    "logit": logit,
    "log_expit": log_expit,
    "xlogy": zero_times(named("log")),
    "xlog1py": zero_times(named("log1p")),
    "entr": entr,
    "rel_entr": rel_entr,
    "kl_div": kl_div,
    "exprel": exprel,
    "exp10": exp10,
    "ndtr": ndtr,
    "ndtri": ndtri,
    "huber": huber,
    "pseudo_huber": pseudo_huber,
}


def ufunc_call(ufunc: np.ufunc, *args: Any) -> Any:
    """``ufunc`` of ``args``, of which one at least is traced."""
    inputs, outputs = loop(ufunc, args)
    nodes = aligned(*[as_node(a, kind) for a, kind in zip(args, inputs, strict=True)])
    if ufunc.__name__ not in ("ldexp",) and len({n.type.dtype for n in nodes}) > 1:
        raise MlaotError(f"{' and '.join(str(n.type.dtype) for n in nodes)} have no common dtype; cast one of them")
    found = UFUNCS[ufunc.__name__](*nodes)
    if isinstance(found, tuple):
        return tuple(Tensor(cast(n, kind)) for n, kind in zip(found, outputs, strict=True))
    return Tensor(cast(found, outputs[0]))


def loop(ufunc: np.ufunc, args: tuple[Any, ...]) -> tuple[list[DType], list[DType]]:
    """The dtypes that ``ufunc`` computes ``args`` in and gives, as NumPy resolves them."""
    if len(args) != ufunc.nin:
        raise MlaotError(f"{ufunc.__name__} takes {ufunc.nin} arrays, got {len(args)}")
    halves = result_type(*args) is bf16
    given: list[Any] = []
    for a in args:
        if is_weak(a):
            given.append(type(a) if isinstance(a, bool | int | float) else int)
        else:
            kind = strong_type(a)
            given.append(np.dtype("float16" if kind is bf16 and halves else kind.numpy))
    weak = [g for g in given if isinstance(g, type)]
    if bool in weak:  # NumPy's resolution knows no weak bool
        given = [np.dtype(bool) if g is bool else g for g in given]
    try:
        found = ufunc.resolve_dtypes((*given, *[None] * ufunc.nout))
    except TypeError:
        types = " and ".join(a.__name__ if isinstance(a, type) else str(a) for a in given)
        raise MlaotError(f"{ufunc.__name__} is not defined for {types}; cast with x.astype(...) first") from None
    kinds = [_kind(dtype, halves) for dtype in found]
    return kinds[: ufunc.nin], kinds[ufunc.nin :]


def _kind(dtype: Any, halves: bool) -> DType:
    if halves and dtype == np.float16:
        return bf16
    return BY_NUMPY.get(str(dtype), f64)


def elementwise(name: str, *args: Any) -> Any:
    """The ufunc of ``UFUNCS`` called ``name``, which NumPy has."""
    return ufunc_call(getattr(np, name), *args)


def _reduction(name: str) -> Function:
    def reduce(x: Any, axis: Any = 0, dtype: Any = None, *, keepdims: bool = False) -> Any:
        from mlaot.frontend.protocols import FUNCTIONS

        options = {} if dtype is None else {"dtype": dtype}
        return FUNCTIONS[name](x, axis=axis, keepdims=keepdims, **options)

    return reduce


def _accumulation(name: str) -> Function:
    def accumulate(x: Any, axis: Any = 0, dtype: Any = None) -> Any:
        from mlaot.frontend.protocols import FUNCTIONS

        return FUNCTIONS[name](x, axis=axis, dtype=dtype)

    return accumulate


def outer(ufunc: np.ufunc) -> Function:
    def every_pair(a: Any, b: Any) -> Any:
        x, y = Tensor(as_node(a)), Tensor(as_node(b))
        new = (*x.shape, *[1] * y.ndim)
        return ufunc(np.reshape(x, new), y)

    return every_pair


METHODS: dict[tuple[str, str], Function] = {
    ("add", "reduce"): _reduction("sum"),
    ("multiply", "reduce"): _reduction("prod"),
    ("maximum", "reduce"): _reduction("max"),
    ("minimum", "reduce"): _reduction("min"),
    ("logical_and", "reduce"): _reduction("all"),
    ("logical_or", "reduce"): _reduction("any"),
    ("add", "accumulate"): _accumulation("cumsum"),
    ("multiply", "accumulate"): _accumulation("cumprod"),
    **{(name, "outer"): outer(getattr(np, name)) for name in UFUNCS if getattr(getattr(np, name, None), "nin", 0) == 2},
}
