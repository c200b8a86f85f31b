"""Running error analysis: next to each value in float64, the sum of its terms' sizes and a bound of its error.

A kernel that computes in a type with the rounding error ``eps`` may be off by ``error``, in whatever order it adds:
each op adds ``eps`` times the sum of ``|terms|`` (so that reordered sums are covered) and passes on its arguments'
errors by its derivative's bound, as in Higham, Accuracy and Stability of Numerical Algorithms (2002), chapter 3. Where
an error may tip a comparison, overflow, or leave an op's domain, the bound is infinite and nothing can be said of what
follows. Integers and bools are exact, or have an infinite bound where an error may have tipped what they stand for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlaot.evaluate import concrete
from mlaot.ir import Graph, Node, Subgraph, TupleType, topological
from mlaot.ir.subgraph import subgraphs
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.cumulative import cumprod, cumsum, linear_recurrence
from mlaot.ops.indexing import scatter

Array = np.ndarray[Any, Any]

EPS = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-23, "f64": 2.0**-52}
TINY = {"f16": 2.0**-24, "bf16": 2.0**-133, "f32": 2.0**-146, "f64": 2.0**-1070}
LARGEST = {
    "f16": 65504.0,
    "bf16": float(np.float32(3.3895314e38)),
    "f32": float(np.finfo(np.float32).max),
    "f64": float(np.finfo(np.float64).max),
}
NARROW = ("f16", "bf16")  # computed in f32, and rounded once
SMALL = {
    "f16": 1e-30,
    "bf16": 1e-30,
    "f32": 1e-30,
    "f64": 1e-290,
}  # reciprocals and powers of what is below may overflow
DIGITS = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}
COST = {
    **{"div": 8, "exp": 2, "log": 2, "tanh": 3, "pow": 8, "power": 8, "sqrt": 2, "floor_divide": 2, "nextafter": 2},
    **dict.fromkeys(("add", "sub", "mul", "cast", "size", "sum", "contract", "put_add", "iota", "one_hot"), 1),
    **dict.fromkeys(("cumsum", "cumprod", "prod", "linear_recurrence", "fold", "scatter", "remainder", "fmod"), 1),
    **dict.fromkeys(("exp2", "expm1", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan"), 3),
    **dict.fromkeys(("sinh", "cosh", "asinh", "acosh", "atanh", "sigmoid", "softplus", "erf", "erfc", "erfinv"), 3),
    **dict.fromkeys(("atan2", "hypot"), 3),
    "normal_quantile": 16,
}


@dataclass
class Bounded:
    """``value`` in float64, ``size``: the sum of |terms|, ``error``: how far off a kernel may be."""

    value: Array
    size: Array
    error: Array

    def map(self, function: Callable[[Array], Array]) -> Bounded:
        """The same view of all three."""
        return Bounded(function(self.value), function(self.size), function(self.error))

    def doubtful(self) -> Array:
        """Where an error could change the sign, or the value is anyone's guess."""
        return np.isinf(self.error) | ((self.error > 0) & (np.abs(self.value) <= self.error))

    def is_float(self) -> bool:
        return self.value.dtype.kind == "f"


def exact(value: Any) -> Bounded:
    """An input: no error yet. Integers and bools keep their dtype."""
    array = np.asarray(value)
    array = array.astype(np.float64) if array.dtype.kind == "f" else array
    return Bounded(array, np.abs(array.astype(np.float64)), np.zeros(array.shape))


def unknown(like: Bounded) -> Bounded:
    """A value that nothing can be said of."""
    return Bounded(like.value, like.size, np.full(like.value.shape, np.inf))


Rule = Callable[..., tuple[Array, Array]]  # the size, the error passed on


def _sizes(*args: Bounded) -> Array:
    return np.asarray(np.add.reduce([a.size for a in args]))


def _errors(*args: Bounded) -> Array:
    return np.asarray(np.add.reduce([a.error for a in args]))


def _mul(out: Array, a: Bounded, b: Bounded) -> tuple[Array, Array]:
    error = np.where(a.error > 0, np.abs(b.value) * a.error, 0) + np.where(b.error > 0, np.abs(a.value) * b.error, 0)
    return a.size * b.size, error + a.error * b.error


def _div(out: Array, a: Bounded, b: Bounded, small: float = 1e-30) -> tuple[Array, Array]:
    below = np.abs(b.value)
    error = (np.abs(a.value) * b.error + below * a.error) / (below * (below - b.error))
    sure = (a.error == 0) & (b.error == 0)
    error = np.where(sure, 0, np.where(below > b.error, error, np.inf))
    # The reciprocal may overflow where the quotient does not.
    risky = (below > 0) & (below < small) | (below > 1 / small) & np.isfinite(below)
    return np.where(below > 0, a.size / below, 0), np.where(risky, np.inf, error)


def _pow(out: Array, x: Bounded, exponent: float) -> tuple[Array, Array]:
    low, high = x.value - x.error, x.value + x.error
    steepest = np.maximum(np.abs(low) ** (exponent - 1), np.abs(high) ** (exponent - 1))
    slope = abs(exponent) * steepest if exponent else np.zeros_like(low)
    risky = (low <= 0) if exponent != int(exponent) else (low <= 0) & (high >= 0) & (exponent < 1)
    # Powers are products or a reciprocal of one: either may leave the range before the result does.
    steps = np.abs(x.value) ** abs(exponent)
    error = np.where(x.error == 0, 0, np.where(risky, np.inf, slope * x.error))
    return np.abs(out), np.where((x.value != 0) & ((steps < 1e-30) | (steps > 1e30)), np.inf, error)


def _power(out: Array, x: Bounded, y: Bounded) -> tuple[Array, Array]:
    """|d x^y| <= |x^y| (|y| dx / |x| + |log x| dy), at the worst corner."""
    sure = (x.error == 0) & (y.error == 0)
    low, high, exponents = x.value - x.error, x.value + x.error, (y.value - y.error, y.value + y.error)
    largest = np.maximum.reduce([np.abs(np.power(x_, y_)) for x_ in (low, high) for y_ in exponents])
    logs = np.maximum(np.abs(np.log(low)), np.abs(np.log(high)))
    slope = np.maximum(np.abs(exponents[0]), np.abs(exponents[1])) * x.error / low + logs * y.error
    return np.abs(out), np.where(sure, 0, np.where(low > 0, largest * slope, np.inf))


def _lipschitz(slope: Callable[[Array, Array], Array]) -> Rule:
    """A smooth function of one argument; ``slope`` bounds its derivative for a value and its error."""

    def rule(out: Array, x: Bounded, **_: Any) -> tuple[Array, Array]:
        error = np.where(x.error == 0, 0, slope(x.value, x.error) * x.error)
        return np.abs(out), np.where(np.isnan(error), np.inf, error)

    return rule


def _relu(out: Array, x: Bounded) -> tuple[Array, Array]:
    return np.abs(out), np.where(x.value + x.error <= 0, 0, x.error)


def _extreme(out: Array, *args: Bounded) -> tuple[Array, Array]:
    return np.abs(out), np.maximum.reduce([a.error for a in args])


def _in_order(
    out: Array, x: Bounded, axis: int, descending: bool = False, places: tuple[int, int] | None = None
) -> tuple[Array, Array]:
    """What comes at a place moves no further than the element of its row that moves most."""
    error = np.max(x.error, axis=axis, keepdims=True, initial=0) + np.zeros(out.shape)
    at = np.arange(out.shape[axis]).reshape(-1, *[1] * (out.ndim - 1 - axis))
    return np.abs(out), error if places is None else np.where((at >= places[0]) & (at < places[1]), error, 0)


def _jump(height: float) -> Rule:
    def rule(out: Array, x: Bounded) -> tuple[Array, Array]:
        return np.abs(out), np.where((x.error > 0) & (np.abs(x.value) <= x.error), height, 0.0)

    return rule


def _rounded(reference: Callable[[Array], Array]) -> Rule:
    """A step function that never falls: as far as the ends of the interval are."""

    def rule(out: Array, x: Bounded) -> tuple[Array, Array]:
        error = np.maximum(reference(x.value + x.error) - out, out - reference(x.value - x.error))
        return np.abs(out), np.where(x.error == 0, 0, error)

    return rule


def _quotient(x: Bounded, y: Bounded) -> tuple[Array, Array]:
    """x / y and its error, rounding included."""
    quotient = x.value / y.value
    passed = _div(quotient, x, y)[1]
    return quotient, np.where((x.error == 0) & (y.error == 0), 0, passed + np.abs(quotient) * 2.0**-20)


def _floor_divide(out: Array, x: Bounded, y: Bounded) -> tuple[Array, Array]:
    quotient, error = _quotient(x, y)
    moved = np.maximum(np.floor(quotient + error) - out, out - np.floor(quotient - error))
    return np.abs(out), np.where(error == 0, 0, np.where(np.isfinite(error), moved, np.inf))


def _modulo(whole: Callable[[Array], Array]) -> Rule:
    """x - whole(x / y) y: as errors have it where the whole quotient is certain, else up to one more divisor."""

    def rule(out: Array, x: Bounded, y: Bounded) -> tuple[Array, Array]:
        quotient, error = _quotient(x, y)
        steady = whole(quotient - error) == whole(quotient + error)
        passed = x.error + np.abs(whole(quotient)) * y.error
        sure = (x.error == 0) & (y.error == 0)
        return np.abs(out), np.where(sure, 0, np.where(steady, passed, np.inf))

    return rule


def _copysign(out: Array, x: Bounded, y: Bounded) -> tuple[Array, Array]:
    return np.abs(out), np.where(y.doubtful(), 2 * np.abs(out) + x.error, x.error)


def _atan2(out: Array, y: Bounded, x: Bounded) -> tuple[Array, Array]:
    error, length = x.error + y.error, np.hypot(x.value, y.value)
    branch = (x.value - x.error < 0) & (np.abs(y.value) <= y.error)
    passed = np.where(length > error, error / (length - error), np.inf)
    return np.abs(out), np.where(error == 0, 0, np.where(branch, np.inf, passed))


def _where(out: Array, condition: Bounded, a: Bounded, b: Bounded) -> tuple[Array, Array]:
    size, error = (np.where(condition.value, p, q) for p, q in ((a.size, b.size), (a.error, b.error)))
    either = np.where((a.value == b.value) | (np.isnan(a.value) & np.isnan(b.value)), 0, np.abs(a.value - b.value))
    return size, np.where(np.isinf(condition.error), np.maximum(a.error, b.error) + either, error)


def _log_slope(x: Array, e: Array) -> Array:
    return np.where(np.abs(x) > e, 1 / (np.abs(x) - e), np.inf)


def _sqrt_slope(x: Array, e: Array) -> Array:
    return np.where(x > e, 1 / (np.sqrt(x) + np.sqrt(np.maximum(x - e, 0))), np.where(x < -e, 0, np.inf))


def _tan_slope(x: Array, e: Array) -> Array:
    far = np.abs(np.cos(x)) - e
    return np.where(far > 0, 1 / far**2, np.inf)


def _inside_one(slope: Callable[[Array], Array]) -> Callable[[Array, Array], Array]:
    """For functions of -1..1 that are steepest at the ends: ``slope`` of how large the argument may be."""
    return lambda x, e: np.where(np.abs(x) + e < 1, slope(np.abs(x) + e), np.inf)


def _erfinv_slope(x: Array, e: Array) -> Array:
    """exp(erfinv(x)^2), which is about 1 / (1 - x), times less than the root of its logarithm."""
    room = 1 - np.abs(x) - e
    return np.where(room > 0, 2 / room, np.inf)


def _quantile_slope(p: Array, e: Array) -> Array:
    """That of the normal distribution is at least its smaller tail."""
    room = np.minimum(p, 1 - p) - e
    return np.where(room > 0, 2 / room, np.inf)


def _sum(out: Array, x: Bounded, axes: tuple[int, ...]) -> tuple[Array, Array]:
    count = int(np.prod([x.value.shape[a] for a in axes], dtype=np.int64))
    size = np.sum(x.size, axis=axes)
    return size * max(count, 1), np.sum(x.error, axis=axes)


def _reduced_extreme(out: Array, x: Bounded, axes: tuple[int, ...]) -> tuple[Array, Array]:
    return np.abs(out), np.max(x.error, axis=axes, initial=0)


def _contract(out: Array, a: Bounded, b: Bounded, spec: str) -> tuple[Array, Array]:
    first, second, result = red.parse_spec(spec)
    sizes = dict(zip(first + second, a.value.shape + b.value.shape, strict=True))
    count = int(np.prod([n for c, n in sizes.items() if c not in result], dtype=np.int64))

    def product(x: Array, y: Array) -> Array:
        return np.asarray(np.einsum(spec, x, y))

    error = product(np.abs(a.value), b.error) + product(a.error, np.abs(b.value)) + product(a.error, b.error)
    if not (a.error.any() or b.error.any()):
        error = np.zeros(out.shape)
    return product(a.size, b.size) * (count + 1), error


def _put_add(out: Array, x: Bounded, **attrs: Any) -> tuple[Array, Array]:
    most = np.bincount(attrs["indices"].array.reshape(-1)).max(initial=1) if attrs["indices"].array.size else 1
    reference = st.put_add.reference
    return reference(x.size, **attrs) * most, reference(x.error, **attrs)


def _fold(out: Array, y: Bounded, **attrs: Any) -> tuple[Array, Array]:
    reference = st.fold.reference
    return reference(y.size, **attrs) * int(np.prod(attrs["sizes"])), reference(y.error, **attrs)


def _cumsum(out: Array, x: Bounded, axis: int, reverse: bool = False, exclusive: bool = False) -> tuple[Array, Array]:
    size, error = (cumsum.reference(p, axis=axis, reverse=reverse, exclusive=exclusive) for p in (x.size, x.error))
    return size * max(x.value.shape[axis], 1), error


def _products(along: Callable[[Array], Array], count: int, out: Array, x: Bounded) -> tuple[Array, Array]:
    """Products in any order; where a part of one may leave the range nothing is sure."""
    size = np.where(np.isfinite(x.value), np.abs(x.value), 1.0)
    error = along(size + x.error) - along(size) + np.where(along(np.asarray(x.error > 0, float)) > 0, 1e-16, 0)
    none = along(1.0 + (x.error > 0)) == 1
    parts = along(np.maximum(size, 1)), along(np.where(size > 0, np.minimum(size, 1), 1))
    risky = (parts[0] > 1e30) | (parts[1] < 1e-30)
    return np.abs(out) * count, np.where(risky, np.inf, np.where(none, 0, error))


def _prod(out: Array, x: Bounded, axes: tuple[int, ...]) -> tuple[Array, Array]:
    count = int(np.prod([x.value.shape[a] for a in axes], dtype=np.int64))
    return _products(lambda p: np.prod(p, axis=axes), count, out, x)


def _cumprod(out: Array, x: Bounded, **attrs: Any) -> tuple[Array, Array]:
    along: Callable[[Array], Array] = lambda p: cumprod.reference(p, **attrs)  # noqa: E731
    return _products(along, x.value.shape[attrs["axis"]], out, x)


def _recurrence(out: Array, a: Bounded, b: Bounded, axis: int, reverse: bool = False) -> tuple[Array, Array]:
    run = linear_recurrence.reference
    size = run(a.size, b.size, axis=axis, reverse=reverse)
    moved = np.moveaxis(np.roll(np.moveaxis(out, axis, 0), -1 if reverse else 1, 0), 0, axis)
    fresh = b.error + np.where(a.error > 0, a.error * np.abs(moved), 0) + TINY["f32"]
    error = run(np.abs(a.value) + a.error, fresh, axis=axis, reverse=reverse)
    ahead = np.flip(size, axis) if reverse else size
    beyond = np.maximum.accumulate(ahead > LARGEST["f32"] / 4, axis=axis)  # infinite for a while, then anything
    return size * (2 * out.shape[axis]), np.where(np.flip(beyond, axis) if reverse else beyond, np.inf, error)


def _scatter(out: Array, x: Bounded, indices: Bounded, updates: Bounded, lead: int, mode: str) -> tuple[Array, Array]:
    kind = {"set": "set", "add": "add"}.get(mode, "max")
    run = lambda p, q: scatter.reference(p, indices.value, q, lead=lead, mode=kind)  # noqa: E731
    size, error = run(x.size, updates.size), run(x.error, updates.error)
    if mode == "add":
        size = size * run(np.ones(x.size.shape), np.ones(updates.size.shape))
    if np.isinf(indices.error).any():
        error = np.full(out.shape, np.inf)
    return size, error


RULES: dict[str, Rule] = {
    "add": lambda out, *args: (_sizes(*args) * max(len(args) - 1, 1), _errors(*args)),
    "sub": lambda out, *args: (_sizes(*args), _errors(*args)),
    "mul": _mul,
    "div": _div,
    "pow": _pow,
    "power": _power,
    "exp": _lipschitz(lambda x, e: np.exp(x + e)),
    "exp2": _lipschitz(lambda x, e: np.exp2(x + e)),
    "expm1": _lipschitz(lambda x, e: np.exp(x + e)),
    "log": _lipschitz(_log_slope),
    "log2": _lipschitz(lambda x, e: 1.5 * _log_slope(x, e)),
    "log10": _lipschitz(_log_slope),
    "log1p": _lipschitz(lambda x, e: _log_slope(1 + x, e)),
    "tanh": _lipschitz(lambda x, e: 1 - np.tanh(np.maximum(np.abs(x) - e, 0)) ** 2 + 1e-16),
    "sqrt": _lipschitz(_sqrt_slope),
    "abs": _lipschitz(lambda x, e: np.ones_like(x)),
    "sin": _lipschitz(lambda x, e: np.ones_like(x)),
    "cos": _lipschitz(lambda x, e: np.ones_like(x)),
    "tan": _lipschitz(_tan_slope),
    "asin": _lipschitz(_inside_one(lambda m: 1 / np.sqrt(1 - m * m))),
    "acos": _lipschitz(_inside_one(lambda m: 1 / np.sqrt(1 - m * m))),
    "atanh": _lipschitz(_inside_one(lambda m: 1 / (1 - m * m))),
    "erfinv": _lipschitz(_erfinv_slope),
    "atan": _lipschitz(lambda x, e: 1 / (1 + np.maximum(np.abs(x) - e, 0) ** 2)),
    "sinh": _lipschitz(lambda x, e: np.cosh(np.abs(x) + e)),
    "cosh": _lipschitz(lambda x, e: np.sinh(np.abs(x) + e)),
    "asinh": _lipschitz(lambda x, e: 1 / np.hypot(1, np.maximum(np.abs(x) - e, 0))),
    "acosh": _lipschitz(lambda x, e: np.where(x - e > 1, 1 / np.sqrt((x - e) ** 2 - 1), np.inf)),
    "sigmoid": _lipschitz(lambda x, e: np.minimum(0.25, np.exp(-np.maximum(np.abs(x) - e, 0)))),
    "softplus": _lipschitz(lambda x, e: 1 / (1 + np.exp(-(x + e)))),
    "erf": _lipschitz(lambda x, e: 1.13 * np.exp(-(np.maximum(np.abs(x) - e, 0) ** 2))),
    "erfc": _lipschitz(lambda x, e: 1.13 * np.exp(-(np.maximum(np.abs(x) - e, 0) ** 2))),
    "normal_quantile": _lipschitz(_quantile_slope),
    "hypot": lambda out, x, y: (np.abs(out), x.error + y.error),
    "atan2": _atan2,
    "relu": _relu,
    "sign": _jump(2.0),
    "step": _jump(1.0),
    "floor": _rounded(np.floor),
    "ceil": _rounded(np.ceil),
    "trunc": _rounded(np.trunc),
    "round": _rounded(np.rint),
    "floor_divide": _floor_divide,
    "remainder": _modulo(np.floor),
    "fmod": _modulo(np.trunc),
    "copysign": _copysign,
    "nextafter": lambda out, x, y: (np.abs(x.value), x.error),
    "where": _where,
    "maximum": _extreme,
    "minimum": _extreme,
    "cast": lambda out, x, dtype: (np.abs(out), np.where(np.isinf(x.error), np.inf, x.error if x.is_float() else 0)),
    "sum": _sum,
    "prod": _prod,
    "cumsum": _cumsum,
    "cumprod": _cumprod,
    "linear_recurrence": _recurrence,
    "sort": _in_order,
    "max": _reduced_extreme,
    "min": _reduced_extreme,
    "contract": _contract,
    "put_add": _put_add,
    "fold": _fold,
    "scatter": _scatter,
    "one_hot": lambda out, label, **_: (np.abs(out), np.broadcast_to(label.error[..., None], out.shape)),
    "size": lambda out, **_: (np.abs(out), np.zeros(out.shape)),
    "iota": lambda out, **_: (np.abs(out), np.zeros(out.shape)),
}
# The parts of these are those of the arguments, moved.
VIEWS = (
    *("copy", "neg", "broadcast", "transpose", "reshape", "take", "item", "stack", "concat"),
    *("slice", "pad", "window", "stop_gradient", "sparse"),
)
LEAVES = ("input", "const", "result")
# What passes alone write, and what no random graph draws: tests of their own compare them (tests/ops, tests/lower).
# Those of other passes; and bits, which any rounding makes other ones.
NOT_DRAWN = (
    "index",
    "count",
    "counted",
    "winograd_input",
    "winograd_output",
    "tree_ensemble",
    "sparse_dot",
    "sparse_add",
    "bitcast",
    "quantize",
    "contract_bytes",
    "contract_differences",
    "contract_entries",
    "contract_groups",
    "gather_groups",
    "widen",
    "round_f16",
    "round_bf16",
    "rounded",
)
SUMS = {"sum", "contract", "put_add", "add", "sub", "cumsum", "linear_recurrence", "fold", "scatter"}
# Exact as long as every term is a multiple of 1/8 and no sum of them needs more digits than the type has.
GRAINED = SUMS | {"mul", "cast", "prod", "cumprod", "iota", "size", "one_hot", "pow"}
SIGNED_ZERO = {"div": 1, "copysign": 1, "atan2": 0, "power": 0, "signbit": 0}  # the argument whose zero has a sign


def _is_equal(node: Node, a: Bounded, b: Bounded, values: Mapping[Node, Any]) -> tuple[Array, Array]:
    """1 where equal: certain where the largest of several values is compared with them, and no other comes close."""
    near = (np.abs(a.value - b.value) <= a.error + b.error) & ((a.error > 0) | (b.error > 0))
    equal = a.value == b.value
    x, out = node.arg(0), node.arg(1)
    if out.op.name in ("maximum", "minimum") and any(x is arg.find() for arg in out.args):
        others = [values[o.find()] for o in out.args if o.find() is not x]
        rivals = [(np.abs(o.value - b.value) <= o.error + b.error) & ((o.error > 0) | (b.error > 0)) for o in others]
        unsure = np.where(equal, np.logical_or.reduce([np.zeros(near.shape, bool), *rivals]), near)
    elif out.op is st.broadcast and out.arg(0).op.name in ("max", "min") and out.arg(0).arg(0) is x:
        count = np.sum(near, axis=out.arg(0).attrs["axes"], keepdims=True)
        unsure = np.where(equal, near & (count > 1), near)
    else:
        unsure = near
    return np.ones(near.shape), np.where(unsure, 1.0, 0.0)


# Integers and bools: where an error may have tipped them.


def _loose(x: Bounded) -> Array:
    """Where a value is not known for certain."""
    return x.error > 0 if x.is_float() else np.isinf(x.error)


def _any_loose(node: Node, out: Array, *args: Bounded, **attrs: Any) -> Array:
    """An elementwise op: where any argument is."""
    return np.logical_or.reduce([np.zeros(out.shape, bool), *[_loose(a) for a in args]])


def _compared(node: Node, out: Array, a: Bounded, b: Bounded) -> Array:
    if not a.is_float():
        return _loose(a) | _loose(b)
    error = a.error + b.error
    return (error > 0) & ~(np.abs(a.value - b.value) > 2 * error) & ~np.isnan(a.value) & ~np.isnan(b.value) | np.isinf(
        error
    )


def _asked(node: Node, out: Array, x: Bounded) -> Array:
    """Whether a value is nan or infinite is as certain as the value is bounded at all."""
    return np.isinf(x.error)


def _signed(node: Node, out: Array, x: Bounded) -> Array:
    """A computed nan may have either sign."""
    return x.doubtful() | np.isnan(x.value)


def _discretized(node: Node, out: Array, x: Bounded, dtype: Any) -> Array:
    if not x.is_float():
        return _loose(x)
    if dtype.kind == "b":
        return x.doubtful()
    low, high = (ew.cast.reference(x.value + sign * 1.001 * x.error, dtype=dtype) for sign in (-1, 1))
    return np.isinf(x.error) | (low != high)


def _chosen(node: Node, out: Array, condition: Bounded, a: Bounded, b: Bounded) -> Array:
    other = _loose(condition) & (a.value != b.value)
    return other | np.where(condition.value, _loose(a), _loose(b))


def _picked(node: Node, out: Array, x: Bounded, axis: int) -> Array:
    """Whether another element comes close to the extreme."""
    if not x.value.shape[axis]:
        return np.zeros(out.shape, bool)
    if not x.is_float():
        return np.any(_loose(x), axis=axis)
    place = np.expand_dims(out, axis)
    best, error = (np.take_along_axis(part, place, axis) for part in (x.value, x.error))
    near = ~(np.abs(x.value - best) > 2 * (x.error + error)) & (x.error + error > 0) & ~np.isnan(best)
    np.put_along_axis(near, place, False, axis)
    return np.any(near | np.isinf(x.error), axis=axis)


def _sorted(node: Node, out: Array, x: Bounded, axis: int, descending: bool = False, count: int | None = None) -> Array:
    """Neighbours in the order that are too close to tell."""
    if count is not None:
        whole = node.op.reference(x.value, axis=axis, descending=descending)
        return np.take(_sorted(node, whole, x, axis, descending), range(count), axis)
    value, error = (np.moveaxis(np.take_along_axis(part, out, axis), axis, -1) for part in (x.value, x.error))
    if not x.is_float() or not value.shape[-1]:
        doubt = np.broadcast_to(np.any(np.isinf(error), axis=-1, keepdims=True), value.shape)
        return np.moveaxis(doubt, -1, axis)
    both = error[..., 1:] + error[..., :-1]
    close = ~(np.abs(np.diff(value)) > 2 * both) & (both > 0) & ~np.isnan(value[..., 1:]) & ~np.isnan(value[..., :-1])
    doubt = np.zeros(value.shape, bool)
    doubt[..., 1:] |= close
    doubt[..., :-1] |= close
    return np.moveaxis(doubt | np.any(np.isinf(error), axis=-1, keepdims=True), -1, axis)


def _reduced(node: Node, out: Array, x: Bounded, axes: tuple[int, ...]) -> Array:
    return np.any(_loose(x), axis=axes)


def _anywhere(node: Node, out: Array, *args: Bounded, **attrs: Any) -> Array:
    return np.full(out.shape, any(_loose(a).any() for a in args))


DOUBTS: dict[str, Callable[..., Array]] = {
    **dict.fromkeys(("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"), _compared),
    **dict.fromkeys(("isnan", "isinf", "isfinite"), _asked),
    "signbit": _signed,
    "cast": _discretized,
    "where": _chosen,
    **dict.fromkeys(("argmax", "argmin"), _picked),
    "argsort": _sorted,
    "sort": lambda node, out, x, axis, **_: np.any(_loose(x), axis=axis, keepdims=True) | np.zeros(out.shape, bool),
    **dict.fromkeys(("sum", "prod", "max", "min"), _reduced),
    **dict.fromkeys(
        ("contract", "cumsum", "cumprod", "linear_recurrence", "put_add", "fold", "scatter", "random_bits"), _anywhere
    ),
    "one_hot": lambda node, out, label, **_: np.broadcast_to(_loose(label)[..., None], out.shape),
    **dict.fromkeys(
        ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "left_shift", "right_shift"), _any_loose
    ),
}


class Analysis:
    """Values with their bounds, each computed when it is first asked for."""

    def __init__(self, inputs: Mapping[str, Any], dims: Mapping[str, int] | None = None, *, grained: bool = False):
        """``inputs`` are arrays or ``Bounded``. ``grained``: see ``GRAINED``."""
        self.inputs = inputs
        self.dims = dims or {}
        self.grained = grained
        self.values: dict[Node, Any] = {}

    def of(self, node: Node) -> Any:
        """The value of a node, a tuple of them where it has several."""
        node = node.find()
        if node not in self.values:
            self.run([node])
        return self.values[node]

    def run(self, roots: Iterable[Node]) -> None:
        """Compute what ``roots`` need."""
        with np.errstate(all="ignore"):
            for node in self._missing(roots):
                self.values[node] = self._node(node)

    def _missing(self, roots: Iterable[Node]) -> list[Node]:
        if all(a.find() in self.values for root in roots for a in root.args):
            return [r for r in roots if r not in self.values]
        return [n for n in topological(roots) if n not in self.values]

    def _node(self, node: Node) -> Any:
        if node.op is st.input_:
            given = self.inputs[node.attrs["name"]]
            return given if isinstance(given, Bounded) else exact(given)
        args = [self.values[a.find()] for a in node.args]
        if subgraphs(node.attrs):
            return CONTROLS[node.op.name](self, args, **self._attrs(node, keep=True))
        if node.op.name == "result":
            return args[0][node.attrs["index"]]
        return _node(node, args, self.values, self._attrs(node), self.grained)

    def _attrs(self, node: Node, *, keep: bool = False) -> dict[str, Any]:
        return {
            k: v if keep and isinstance(v, Subgraph) else concrete(v, self.dims, self.grained)
            for k, v in node.attrs.items()
        }

    def body(self, subgraph: Subgraph, args: Sequence[Bounded]) -> list[Bounded]:
        """The results of a subgraph."""
        graph: Graph = subgraph.graph
        inner = Analysis(dict(zip(graph.inputs, args, strict=True)), self.dims, grained=self.grained)
        inner.run(graph.roots())
        return [inner.values[node.find()] for node in graph.outputs.values()]


def analyse(
    roots: Iterable[Node], inputs: Mapping[str, Any], dims: Mapping[str, int] | None = None
) -> dict[Node, Bounded]:
    """Values with their bounds, for every node that ``roots`` need."""
    analysis = Analysis(inputs, dims)
    analysis.run([r.find() for r in roots])
    return analysis.values


def _scan(
    analysis: Analysis,
    args: list[Bounded],
    body: Subgraph,
    consts: int,
    carries: int,
    length: int,
    reverse: bool,
) -> tuple[Bounded, ...]:
    fixed, carry, xs = args[:consts], args[consts : consts + carries], args[consts + carries :]
    rounds: list[list[Bounded]] = []
    for i in reversed(range(length)) if reverse else range(length):
        found = analysis.body(body, [*fixed, *carry, *[x.map(lambda part, i=i: part[i]) for x in xs]])  # type: ignore[misc]
        carry = found[:carries]
        rounds.append(found[carries:])
    if not rounds:
        slices = [x.map(lambda part: np.zeros(part.shape[1:], part.dtype)) for x in xs]
        empty = analysis.body(body, [*fixed, *carry, *slices])[carries:]
        return (*carry, *[y.map(lambda part: np.zeros((0, *part.shape), part.dtype)) for y in empty])
    ordered = rounds[::-1] if reverse else rounds
    return (*carry, *[_stacked(ys) for ys in zip(*ordered, strict=True)])


def _stacked(parts: Sequence[Bounded]) -> Bounded:
    return Bounded(*[np.stack([getattr(p, k) for p in parts]) for k in ("value", "size", "error")])


def _while(
    analysis: Analysis, args: list[Bounded], condition: Subgraph, body: Subgraph, consts: int, bound: int
) -> tuple[Bounded, ...]:
    fixed, carry = args[:consts], args[consts:]
    for _ in range(bound):
        (more,) = analysis.body(condition, [*fixed, *carry])
        if _loose(more).any():
            return tuple(unknown(c) for c in carry)
        if not more.value:
            break
        carry = analysis.body(body, [*fixed, *carry])
    return tuple(carry)


def _cond(analysis: Analysis, args: list[Bounded], then: Subgraph, otherwise: Subgraph) -> tuple[Bounded, ...]:
    pred, *operands = args
    found = analysis.body(then if pred.value else otherwise, operands)
    return tuple(unknown(f) for f in found) if _loose(pred).any() else tuple(found)


CONTROLS: dict[str, Callable[..., tuple[Bounded, ...]]] = {"scan": _scan, "while": _while, "cond": _cond}


def _node(node: Node, args: list[Bounded], values: Mapping[Node, Any], attrs: dict[str, Any], grained: bool) -> Bounded:
    name = node.op.name
    assert not isinstance(node.type, TupleType)
    if name == "const":
        return exact(attrs["value"].array)
    if name == "neg" and args[0].is_float():
        return Bounded(-args[0].value, args[0].size, args[0].error)
    if name in VIEWS and (name != "neg"):
        return Bounded(*[np.asarray(_moved(node, args, part, attrs)) for part in ("value", "size", "error")])
    if name == "gather":
        return _gather(node, args, attrs)
    if node.type.dtype.kind != "f":
        return _discrete(node, args, attrs)
    return _floating(node, args, values, attrs, grained)


def _moved(node: Node, args: list[Bounded], part: str, attrs: dict[str, Any]) -> Array:
    return node.op.reference(*[getattr(a, part) for a in args], **attrs)


def _gather(node: Node, args: list[Bounded], attrs: dict[str, Any]) -> Bounded:
    x, indices = args
    value, size, error = (
        np.asarray(node.op.reference(part, indices.value, **attrs)) for part in (x.value, x.size, x.error)
    )
    doubt = _loose(indices).reshape(indices.value.shape + (1,) * (value.ndim - indices.value.ndim))
    return Bounded(value, size, np.where(np.broadcast_to(doubt, value.shape), np.inf, error))


def _discrete(node: Node, args: list[Bounded], attrs: dict[str, Any]) -> Bounded:
    value = np.asarray(node.op.reference(*[a.value for a in args], **attrs))
    value = value if value.dtype == node.type.dtype.numpy else value.astype(node.type.dtype.numpy)
    doubt = DOUBTS.get(node.op.name, _any_loose)(node, value, *args, **attrs) | _unsigned_zero(node, args, value.shape)
    return Bounded(value, np.zeros(value.shape), np.where(doubt, np.inf, 0.0))


def _unsigned_zero(node: Node, args: list[Bounded], shape: tuple[int, ...]) -> Array:
    """Where the result hangs on the sign of a computed zero: sums in another order may give another."""
    if node.op.name not in SIGNED_ZERO:
        return np.zeros(shape, bool)
    place = SIGNED_ZERO[node.op.name]
    moved = node.arg(place)
    while moved.op.name in (*VIEWS, "gather") and len(moved.args):
        moved = moved.arg(0)
    return (args[place].value == 0) & (moved.op.name not in ("input", "const"))


def _floating(
    node: Node, args: list[Bounded], values: Mapping[Node, Any], attrs: dict[str, Any], grained: bool
) -> Bounded:
    name, dtype = node.op.name, node.type.dtype.name
    if name == "cast" and args[0].is_float():
        out = args[0].value
    elif name == "nextafter":
        out = np.asarray(_next(args, dtype))
    else:
        out = np.asarray(node.op.reference(*[a.value for a in args], **attrs), np.float64)
    if name == "is_equal":
        size, error = _is_equal(node, args[0], args[1], values)
    elif name == "div":
        size, error = _div(out, *args, small=SMALL[dtype])
    else:
        size, error = RULES[name](out, *args, **attrs)
    if grained:
        error = np.where(_unsigned_zero(node, args, out.shape), np.inf, error)
    cost = 0 if name == "cast" and _holds(dtype, node.arg(0).type.dtype.name) else COST.get(name, 0)
    if grained and cost and name in GRAINED and _on_grid(node, out, size, args, dtype):
        cost = 0
    rounding = np.asarray(size) * (EPS["f32" if dtype in NARROW else dtype] * cost)
    if cost and dtype in NARROW:
        rounding = rounding + np.abs(out) * EPS[dtype]
    return _finished(node, out, np.asarray(size), np.asarray(error), args, rounding, cost, grained)


def _holds(target: str, source: str) -> bool:
    """Whether every number of one float type is one of the other."""
    return target == source or (source in EPS and EPS[source] > EPS[target] and target != "f16")


def _next(args: list[Bounded], dtype: str) -> Array:
    x, y = (a.value.astype("float32" if dtype == "f32" else "float64") for a in args)
    return np.asarray(np.nextafter(x, y), np.float64)


def _on_grid(node: Node, out: Array, size: Array, args: list[Bounded], dtype: str) -> bool:
    """Whether all of a result is exact in any order: see ``GRAINED``."""

    def fits(value: Array) -> bool:
        return bool((value * 8 == np.rint(value * 8)).all())

    room = 2.0 ** (DIGITS[dtype] - (3 if dtype in NARROW else 6))
    finite = all(not a.error.any() and np.isfinite(a.value).all() for a in args)
    return finite and bool((np.asarray(size) < room).all()) and fits(out) and all(fits(a.size) for a in args)


def _finished(
    node: Node,
    out: Array,
    size: Array,
    error: Array,
    args: list[Bounded],
    rounding: Array,
    cost: int,
    grained: bool,
) -> Bounded:
    dtype, largest = node.type.dtype.name, LARGEST[node.type.dtype.name]
    raw = np.abs(out)
    out = np.where(raw > largest, np.copysign(np.inf, out), out)
    finite, passed = np.isfinite(out), error
    error = error + rounding + (TINY[dtype] if cost else 0)
    safe = np.isfinite(size) & (size < largest / 16) | (cost == 0)
    error = np.where(finite & safe & ~np.isnan(error), error, np.inf)
    far = np.isinf(raw) if dtype in NARROW and node.op is not ew.cast else raw > 4 * largest
    sure = _sure(node, out, args) & (far | np.isnan(raw) | _from_infinity(node, out, args))
    if node.op.name in ("prod", "cumprod"):  # 0 times infinity, if a part of a product leaves the range
        sure &= ~np.isinf(passed)
    if grained and node.op.name not in SUMS:
        sure &= ~_gathered(node, out, [_loose(a) for a in args]) | _gathered(
            node, out, [~np.isfinite(a.value) for a in args]
        )
    if node.op.name in SUMS:  # terms of a finite sum may be inf and -inf
        sure &= ~(raw > largest) | np.isinf(raw)
        sure &= all(np.abs(a.value[np.isfinite(a.value)]).max(initial=0) < largest**0.45 for a in args if a.is_float())
    if node.op is red.contract:  # a factor outside of the sum may be multiplied before or after it
        first, second, result = red.parse_spec(node.attrs["spec"])
        sure &= set(first) - set(result) == set(second) - set(result)
    error = np.where(~finite, np.where(sure, 0.0, np.inf), error)
    return Bounded(out, np.where(finite, np.minimum(size, largest), raw), error)


def _gathered(node: Node, out: Array, marks: list[Array]) -> Array:
    """Whether any argument's mark is set among what makes up each element of the result."""
    total = np.zeros(out.shape, bool)
    for mark in marks:
        if node.op.name in ("sum", "max", "min", "prod"):
            total |= np.any(mark, axis=node.attrs["axes"])
        elif mark.shape == out.shape and node.op.name not in ("cumsum", "cumprod", "linear_recurrence", "scatter"):
            total |= mark
        else:
            total |= bool(mark.any())
    return total


def _sure(node: Node, out: Array, args: list[Bounded]) -> Array:
    return ~_gathered(node, out, [a.doubtful() for a in args])


def _from_infinity(node: Node, out: Array, args: list[Bounded]) -> Array:
    """An infinity that an argument brought, or that a pole gives (1 / 0, log 0)."""
    brought = _gathered(node, out, [~np.isfinite(a.value) for a in args])
    poles = {"div": 1, **dict.fromkeys(("log", "log2", "log10", "pow", "power"), 0)}
    if node.op.name in poles:
        brought = brought | (args[poles[node.op.name]].value == 0)
    if node.op.name in ("log1p", "atanh", "erfinv"):
        brought = brought | (np.abs(args[0].value) == 1) & (args[0].error == 0)
    return brought


def difference(actual: Array, expected: Bounded, factor: float = 2.0) -> Array:
    """How far outside of the bound each element is: 0 where it is inside."""
    value = expected.value
    if not expected.is_float():
        return np.where(np.isinf(expected.error) | (actual == value), 0.0, np.inf)
    with np.errstate(all="ignore"):
        distance = np.abs(np.asarray(actual, np.float64) - value)
    same = (np.isnan(actual) & np.isnan(value)) | (actual == value)
    inside = same | np.isinf(expected.error) | (distance <= factor * expected.error)
    return np.where(inside, 0.0, np.where(np.isnan(distance), np.inf, distance))
