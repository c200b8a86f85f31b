"""Random bits from a key: Threefry-2x32 with 20 rounds (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3).

Element e (row-major) of the draw ``site`` is the first output word for the counter words ``e mod 2**32`` and ``site +
2**16 * (e // 2**32)``. So a draw depends only on its key, its site and the element's place. Every machine and every
order of computation gives the same numbers. Sites below 2**16 never share a counter, and drawing for each example of a
batch gives the same numbers as one draw for the whole batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from mlaot.errors import MlaotError
from mlaot.ir import Dim, Node, Type
from mlaot.ir.types import u32
from mlaot.nest.expressions import Expr, call, cast
from mlaot.ops import elementwise as ew
from mlaot.ops.axes import ELEMENTWISE
from mlaot.ops.base import Array, Op, full_like, no_gradient
from mlaot.ops.dtypes import FLOATS, one_type
from mlaot.ops.nests.fills import random_bits_nest

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
SITES = 1 << 16


def threefry(key: Sequence[int] | Array, first: Array, second: Array) -> tuple[Array, Array]:
    """Return the two output words for arrays of counter words (uint32)."""
    k0, k1 = (np.uint32(k) for k in key)
    schedule = np.array([k0, k1, k0 ^ k1 ^ np.uint32(PARITY)])
    x, y = first + schedule[0:1], second + schedule[1:2]
    for group in range(5):
        for bits in ROTATIONS[group % 2]:
            x = x + y
            y = (y << np.uint32(bits) | y >> np.uint32(32 - bits)) ^ x
        i, j = (group + 1) % 3, (group + 2) % 3
        x = x + schedule[i : i + 1]
        y = y + schedule[j : j + 1] + np.uint32(group + 1)
    return x, y


def _random_bits_type(key: Type, shape: tuple[Dim, ...], site: int) -> Type:
    if key != u32[2]:
        raise MlaotError(f"a random key must be {u32[2]}, got {key}")
    if not 0 <= site < SITES:
        raise MlaotError(f"an entry draws at most {SITES} times, got draw number {site}")
    return Type(u32, shape)


def _random_bits_reference(key: Array, shape: tuple[int, ...], site: int) -> Array:
    element = np.arange(prod(shape), dtype=np.uint64)
    high = np.uint64(site) + (element >> np.uint64(32) << np.uint64(16))
    return threefry(key, element.astype(np.uint32), high.astype(np.uint32))[0].reshape(shape)


def _batch_random_bits(node: Node, args: Sequence[Node], batched: Sequence[bool], dim: Dim) -> Node:
    if batched[0]:
        raise MlaotError("the examples of a batch draw from one key, got a key for each example")
    return random_bits(args[0], shape=(dim, *node.attrs["shape"]), site=node.attrs["site"])


random_bits: Op = Op(
    "random_bits",
    _random_bits_type,
    _random_bits_reference,
    no_gradient,
    batch=_batch_random_bits,
    draws=True,
    nest=random_bits_nest,
    doc="32 random bits an element, by Threefry-2x32 from a key and a counter",
)


# Rational approximations p(r) / q(r), coefficients from the highest power down, with the shift of r.
WICHURA = {
    "middle": (
        0.0,
        (
            *(2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4),
            *(1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0),
        ),
        (
            *(5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4),
            *(5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0),
        ),
    ),
    "tail": (
        1.6,
        (
            *(7.74545014278341407640e-4, 2.27238449892691845833e-2),
            *(2.41780725177450611770e-1, 1.27045825245236838258e0),
            *(3.64784832476320460504e0, 5.76949722146069140550e0, 4.63033784615654529590e0, 1.42343711074968357734e0),
        ),
        (
            *(1.05075007164441684324e-9, 5.47593808499534494600e-4),
            *(1.51986665636164571966e-2, 1.48103976427480074590e-1),
            *(6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0, 1.0),
        ),
    ),
    "far": (
        5.0,
        (
            *(2.01033439929228813265e-7, 2.71155556874348757815e-5),
            *(1.24266094738807843860e-3, 2.65321895265761230930e-2),
            *(2.96560571828504891230e-1, 1.78482653991729133580e0, 5.46378491116411436990e0, 6.65790464350110377720e0),
        ),
        (
            *(2.04426310338993978564e-15, 1.42151175831644588870e-7),
            *(1.84631831751005468180e-5, 7.86869131145613259100e-4),
            *(1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0),
        ),
    ),
}
LOG_SERIES = tuple(2.0 / (2 * k + 1) for k in reversed(range(12)))  # log((1 + s) / (1 - s)) / s in powers of s^2


def _horner(coefficients: Sequence[float], x: Array) -> Array:
    total = np.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        total = total * x + c
    return total


def _log(x: Array) -> Array:
    """Compute the logarithm with only sums, products and quotients, which every machine rounds in the same way."""
    mantissa, exponent = np.frexp(x)
    small = mantissa < SQRT_HALF
    mantissa, exponent = np.where(small, 2 * mantissa, mantissa), exponent - small
    s = (mantissa - 1) / (mantissa + 1)
    result: Array = exponent * LN2 + s * _horner(LOG_SERIES, s * s)
    return result


SQRT_HALF = 0.7071067811865476
LN2 = 0.6931471805599453


def _normal_quantile_reference(x: Array) -> Array:
    p = np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        q = p - 0.5
        nearest = np.where(q > 0, 1 - p, p)
        r = np.sqrt(-_log(nearest))
        result = q * _ratio("middle", 0.180625 - q * q)
        tails = np.where(r <= 5, _ratio("tail", r), _ratio("far", r))
        return np.asarray(np.where(np.abs(q) <= 0.425, result, np.where(q < 0, -tails, tails)), x.dtype)


def _ratio(part: str, r: Array) -> Array:
    shift, above, below = WICHURA[part]
    result: Array = _horner(above, r - shift) / _horner(below, r - shift)
    return result


def _normal_quantile_c(args: Sequence[Expr]) -> Expr:
    return cast(call("normal_quantile", cast(args[0], "f64")), args[0].type.dtype)


def _vjp_normal_quantile(ct: Node, out: Node, p: Node) -> tuple[Node]:
    """Multiply by the reciprocal of the density: sqrt(2 pi) exp(x^2 / 2)."""
    half = ew.mul(full_like(out, 0.5), ew.mul(out, out))
    return (ew.mul(ct, ew.mul(full_like(out, 2.5066282746310002), ew.exp(half))),)


# Where the normal distribution function is p, for 2**-64 < p < 1 - 2**-53: Wichura, The Percentage Points of the Normal
# Distribution (Applied Statistics 37, 1988), in operations that every machine rounds alike.
normal_quantile: Op = Op(
    "normal_quantile",
    one_type("normal_quantile", FLOATS),
    _normal_quantile_reference,
    _vjp_normal_quantile,
    ELEMENTWISE,
    _normal_quantile_c,
    doc="where the standard normal distribution function has a value",
)
