"""Running error analysis: next to each value in float64, the sum of its terms' sizes and a bound of its error.

A kernel that computes in a type with the rounding error ``eps`` may be off by ``error``, in whatever order it adds:
each op adds ``eps`` times the sum of ``|terms|`` (so that reordered sums are covered) and passes on its arguments'
errors by its derivative's bound, as in Higham, Accuracy and Stability of Numerical Algorithms (2002), chapter 3. Where
an error may tip a comparison, overflow, or leave an op's domain, the bound is infinite and nothing can be said of what
follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlaot.evaluate import concrete
from mlaot.ir import Node, topological
from mlaot.ops import reduction as red
from mlaot.ops import structure as st

Array = np.ndarray[Any, Any]

EPS = {"f32": 2.0**-23, "f64": 2.0**-52}
TINY = {"f32": 2.0**-146, "f64": 2.0**-1070}
LARGEST = {"f32": float(np.finfo(np.float32).max), "f64": float(np.finfo(np.float64).max)}
COST = {"div": 8, "exp": 2, "log": 2, "tanh": 3, "pow": 8, "sqrt": 2} | dict.fromkeys(
    ("add", "sub", "mul", "cast", "size", "sum", "contract", "put_add"), 1
)


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


def exact(value: Any) -> Bounded:
    """An input: no error yet."""
    array = np.asarray(value, np.float64)
    return Bounded(array, np.abs(array), np.zeros(array.shape))


Rule = Callable[..., tuple[Array, Array]]  # the size, the error passed on


def _sizes(*args: Bounded) -> Array:
    return np.asarray(np.add.reduce([a.size for a in args]))


def _errors(*args: Bounded) -> Array:
    return np.asarray(np.add.reduce([a.error for a in args]))


def _mul(out: Array, a: Bounded, b: Bounded) -> tuple[Array, Array]:
    error = np.where(a.error > 0, np.abs(b.value) * a.error, 0) + np.where(b.error > 0, np.abs(a.value) * b.error, 0)
    return a.size * b.size, error + a.error * b.error


def _div(out: Array, a: Bounded, b: Bounded) -> tuple[Array, Array]:
    below = np.abs(b.value)
    error = (np.abs(a.value) * b.error + below * a.error) / (below * (below - b.error))
    sure = (a.error == 0) & (b.error == 0)
    error = np.where(sure, 0, np.where(below > b.error, error, np.inf))
    # The reciprocal may overflow where the quotient does not.
    return np.where(below > 0, a.size / below, 0), np.where((below > 0) & (below < 1e-30), np.inf, error)


def _pow(out: Array, x: Bounded, exponent: float) -> tuple[Array, Array]:
    low, high = x.value - x.error, x.value + x.error
    steepest = np.maximum(np.abs(low) ** (exponent - 1), np.abs(high) ** (exponent - 1))
    slope = abs(exponent) * steepest if exponent else np.zeros_like(low)
    risky = (low <= 0) if exponent != int(exponent) else (low <= 0) & (high >= 0) & (exponent < 1)
    # Powers are products or a reciprocal of one: either may leave the range before the result does.
    steps = np.abs(x.value) ** abs(exponent)
    error = np.where(x.error == 0, 0, np.where(risky, np.inf, slope * x.error))
    return np.abs(out), np.where((x.value != 0) & ((steps < 1e-30) | (steps > 1e30)), np.inf, error)


def _lipschitz(slope: Callable[[Array, Array], Array]) -> Rule:
    """A smooth function of one argument; ``slope`` bounds its derivative for a value and its error."""

    def rule(out: Array, x: Bounded, **_: Any) -> tuple[Array, Array]:
        return np.abs(out), np.where(x.error == 0, 0, slope(x.value, x.error) * x.error)

    return rule


def _relu(out: Array, x: Bounded) -> tuple[Array, Array]:
    return np.abs(out), np.where(x.value + x.error <= 0, 0, x.error)


def _extreme(out: Array, *args: Bounded) -> tuple[Array, Array]:
    return np.abs(out), np.maximum.reduce([a.error for a in args])


def _jump(height: float) -> Rule:
    def rule(out: Array, x: Bounded) -> tuple[Array, Array]:
        return np.abs(out), np.where((x.error > 0) & (np.abs(x.value) <= x.error), height, 0.0)

    return rule


def _log_slope(x: Array, e: Array) -> Array:
    return np.where(np.abs(x) > e, 1 / (np.abs(x) - e), np.inf)


def _sqrt_slope(x: Array, e: Array) -> Array:
    return np.where(x > e, 1 / (np.sqrt(x) + np.sqrt(np.maximum(x - e, 0))), np.where(x < -e, 0, np.inf))


def _sum(out: Array, x: Bounded, axes: tuple[int, ...]) -> tuple[Array, Array]:
    count = int(np.prod([x.value.shape[a] for a in axes], dtype=np.int64))
    size = np.sum(x.size, axis=axes)
    return size * max(count, 1), np.sum(x.error, axis=axes)


def _reduced_extreme(out: Array, x: Bounded, axes: tuple[int, ...]) -> tuple[Array, Array]:
    return np.abs(out), np.max(x.error, axis=axes)


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


RULES: dict[str, Rule] = {
    "add": lambda out, *args: (_sizes(*args) * max(len(args) - 1, 1), _errors(*args)),
    "sub": lambda out, *args: (_sizes(*args), _errors(*args)),
    "mul": _mul,
    "div": _div,
    "pow": _pow,
    "exp": _lipschitz(lambda x, e: np.exp(x + e)),
    "log": _lipschitz(_log_slope),
    "tanh": _lipschitz(lambda x, e: 1 - np.tanh(np.maximum(np.abs(x) - e, 0)) ** 2 + 1e-16),
    "sqrt": _lipschitz(_sqrt_slope),
    "abs": _lipschitz(lambda x, e: np.ones_like(x)),
    "relu": _relu,
    "sign": _jump(2.0),
    "step": _jump(1.0),
    "maximum": _extreme,
    "minimum": _extreme,
    "cast": lambda out, x, dtype: (np.abs(out), x.error),
    "sum": _sum,
    "max": _reduced_extreme,
    "min": _reduced_extreme,
    "contract": _contract,
    "put_add": _put_add,
    "one_hot": lambda out, label, **_: (np.abs(out), np.zeros(out.shape)),
    "size": lambda out, **_: (np.abs(out), np.zeros(out.shape)),
}
VIEWS = ("copy", "neg", "broadcast", "transpose", "reshape", "take", "item", "stack", "concat")  # the parts as they are
LEAVES = ("input", "const")
SUMS = {"sum", "contract", "put_add", "add", "sub"}


def _is_equal(node: Node, a: Bounded, b: Bounded, values: Mapping[Node, Bounded]) -> tuple[Array, Array]:
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


def analyse(
    roots: Iterable[Node], inputs: Mapping[str, Any], dims: Mapping[str, int] | None = None
) -> dict[Node, Bounded]:
    """Values with their bounds, for every node that ``roots`` need."""
    values: dict[Node, Bounded] = {}
    with np.errstate(all="ignore"):
        for node in topological(roots):
            if node.op is st.input_:
                values[node] = exact(inputs[node.attrs["name"]])
            else:
                values[node] = _node(node, [values[a.find()] for a in node.args], values, dims or {})
    return values


def _node(node: Node, args: list[Bounded], values: Mapping[Node, Bounded], dims: Mapping[str, int]) -> Bounded:
    name, dtype = node.op.name, node.type.dtype.name
    attrs = {k: concrete(v, dims) for k, v in node.attrs.items()}
    if name == "const":
        return exact(attrs["value"].array)
    reference = node.op.reference
    if name == "neg":
        return Bounded(-args[0].value, args[0].size, args[0].error)
    if name in VIEWS:
        parts = [reference(*[getattr(a, part) for a in args], **attrs) for part in ("value", "size", "error")]
        return Bounded(*[np.asarray(p) for p in parts])
    if name == "cast":
        out = args[0].value
    elif name in ("one_hot", "size"):
        out = np.asarray(reference(*[a.value for a in args], **attrs), np.float64)
    else:
        out = np.asarray(reference(*[a.value for a in args], **attrs))
    if name == "is_equal":
        size, error = _is_equal(node, args[0], args[1], values)
    else:
        size, error = RULES[name](out, *args, **attrs)
    if dtype not in EPS:
        return Bounded(out, size, error)
    rounding = EPS[dtype] * COST.get(name, 0)
    return _finished(node, out, np.asarray(size), np.asarray(error), args, rounding)


def _finished(node: Node, out: Array, size: Array, error: Array, args: list[Bounded], rounding: float) -> Bounded:
    dtype, largest = node.type.dtype.name, LARGEST[node.type.dtype.name]
    raw = np.abs(out)
    out = np.where(raw > largest, np.copysign(np.inf, out), out)
    finite = np.isfinite(out)
    error = error + rounding * size + (TINY[dtype] if rounding else 0)
    safe = np.isfinite(size) & (size < largest / 16) | (rounding == 0)
    error = np.where(finite & safe & ~np.isnan(error), error, np.inf)
    sure = _sure(node, out, args) & ((raw > 4 * largest) | np.isnan(raw) | _from_infinity(node, out, args))
    if node.op.name in SUMS:  # terms of a finite sum may be inf and -inf
        sure &= ~(raw > largest) | np.isinf(raw)
        sure &= all(np.abs(a.value[np.isfinite(a.value)]).max(initial=0) < largest**0.45 for a in args)
    if node.op is red.contract:  # a factor outside of the sum may be multiplied before or after it
        first, second, result = red.parse_spec(node.attrs["spec"])
        sure &= set(first) - set(result) == set(second) - set(result)
    error = np.where(~finite, np.where(sure, 0.0, np.inf), error)
    return Bounded(out, np.where(finite, np.minimum(size, largest), raw), error)


def _gathered(node: Node, out: Array, marks: list[Array]) -> Array:
    """Whether any argument's mark is set among what makes up each element of the result."""
    total = np.zeros(out.shape, bool)
    for mark in marks:
        if node.op.name in ("sum", "max", "min"):
            total |= np.any(mark, axis=node.attrs["axes"])
        elif mark.shape == out.shape:
            total |= mark
        else:
            total |= bool(mark.any())
    return total


def _sure(node: Node, out: Array, args: list[Bounded]) -> Array:
    return ~_gathered(node, out, [a.doubtful() for a in args])


def _from_infinity(node: Node, out: Array, args: list[Bounded]) -> Array:
    """An infinity that an argument brought, or that a pole gives (1 / 0, log 0)."""
    brought = _gathered(node, out, [~np.isfinite(a.value) for a in args])
    poles = {"div": 1, "log": 0, "pow": 0}
    if node.op.name in poles:
        brought = brought | (args[poles[node.op.name]].value == 0)
    return brought


def difference(actual: Array, expected: Bounded, factor: float = 2.0) -> Array:
    """How far outside of the bound each element is: 0 where it is inside."""
    value = expected.value
    with np.errstate(all="ignore"):
        distance = np.abs(np.asarray(actual, np.float64) - value)
    same = (np.isnan(actual) & np.isnan(value)) | (actual == value)
    inside = same | np.isinf(expected.error) | (distance <= factor * expected.error)
    return np.where(inside, 0.0, np.where(np.isnan(distance), np.inf, distance))
