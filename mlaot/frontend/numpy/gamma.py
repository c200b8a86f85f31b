"""The gamma function, its logarithm, the digamma function, and a Bessel function, composed of ops.

From 7.5 on Stirling's series is used. Below 7.5 the recurrence ``gamma(x + 1) = x gamma(x)`` reduces the argument to
``2 + t`` with t from -0.5 to 0.5, where a polynomial is used. Below -0.5 the reflection ``gamma(x) gamma(1 - x) = pi /
sin(pi x)`` comes first. A branch that is not selected is computed on a harmless argument, so that gradients stay
finite.
"""

from __future__ import annotations

import math

import numpy as np

from mlaot.frontend.numpy.polynomials import horner
from mlaot.frontend.trace.promotion import like
from mlaot.ir import Node
from mlaot.ops import comparison as cmp
from mlaot.ops import elementwise as ew
from mlaot.ops import rounding
from mlaot.ops import transcendental as trans

LARGE = 7.5
# log(gamma(2 + t)) / t for t from -0.5 to 0.5, by Chebyshev's points.
LOG_GAMMA = (
    *(-1.3219945666117874e-07, 2.78740805211359e-07, -4.3252393445604814e-07, 9.200527894968101e-07),
    *(-2.0439048107029907e-06, 4.38470440459836e-06, -9.438715099211532e-06, 2.0505590755833454e-05),
    *(-4.49263133791557e-05, 9.945767355819498e-05, -0.00022315475400520507, 0.0005096695154115458),
    *(-0.0011927539118428156, 0.002890510331034267, -0.0073855510286719986, 0.02058080842778038),
    *(-0.0673523010531981, 0.32246703342411326, 0.42278433509846713),
)
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798)  # B2, B4, ..
STIRLING = tuple(b / (2 * n * (2 * n - 1)) for n, b in enumerate(BERNOULLI, 1))[::-1]
DIGAMMA = tuple(b / (2 * n) for n, b in enumerate(BERNOULLI, 1))[::-1]
# The power series of i0(x) in (x / 2)^2, and sqrt(x) exp(-x) i0(x) from 8 on, of 16 / x - 1, by Chebyshev's points.
BESSEL_SMALL = tuple(1 / math.factorial(k) ** 2 for k in reversed(range(26)))
BESSEL_LARGE = (
    *(4.135870336904037e-11, -1.4445666241808038e-10, -3.0719032844097364e-10, 9.544598596408217e-10),
    *(1.1661396927314527e-09, -2.8927333669603943e-09, -3.21251295103573e-09, 5.1432089858622845e-09),
    *(7.396966587219158e-09, -4.270649721363825e-09, -1.335632771743214e-08, -7.116744499757987e-09),
    *(7.543775238250733e-09, 2.162446034312458e-08, 3.9327123085832934e-08, 8.871293193604678e-08),
    *(2.973597885290274e-07, 1.483848150861771e-06, 1.1143033791893046e-05, 0.00013621607437737268),
    *(0.003360551983667876, 0.40217650944500816),
)
TOP = {"f64": 171.7, "f32": 35.1}  # from where on gamma is infinite


def gammaln(x: Node) -> Node:
    """Compute the logarithm of the absolute value of ``gamma``."""
    reflected, y = _reflected(x)
    t, above, below = _reduced(y)
    small = ew.sub(ew.add(ew.mul(t, horner(LOG_GAMMA, t)), ew.log(above)), ew.log(ew.abs_(below)))
    far = _far(y)
    growth = ew.mul(ew.sub(far, like(x, 0.5)), ew.sub(ew.log(far), like(x, 1)))
    large = ew.add(ew.add(growth, like(x, 0.5 * math.log(2 * math.pi) - 0.5)), _stirling(far))
    positive = cmp.where(_is_large(y), large, small)
    sine = _sine(cmp.where(reflected, x, like(x, -0.75)))
    is_pole = cmp.equal(sine, like(x, 0))
    size = ew.abs_(cmp.where(is_pole, like(x, 1), sine))
    negative = ew.sub(ew.sub(like(x, math.log(math.pi)), ew.log(size)), positive)
    value = cmp.where(reflected, cmp.where(is_pole, like(x, np.inf), negative), positive)
    return cmp.where(cmp.equal(x, like(x, -np.inf)), x, value)


def gamma(x: Node) -> Node:
    """Compute the gamma function. It is nan at negative integers."""
    reflected, y = _reflected(x)
    t, above, below = _reduced(y)
    small = ew.div(ew.mul(ew.exp(ew.mul(t, horner(LOG_GAMMA, t))), above), below)
    far = ew.minimum(_far(y), like(x, TOP[x.type.dtype.name]))
    root = trans.power(far, ew.mul(ew.sub(far, like(x, 0.5)), like(x, 0.5)))  # its square overflows too early
    scale = ew.mul(ew.exp(_stirling(far)), like(x, math.sqrt(2 * math.pi)))
    large = ew.mul(ew.mul(ew.mul(root, ew.exp(ew.neg(far))), root), scale)
    large = cmp.where(cmp.greater(y, like(x, TOP[x.type.dtype.name])), like(x, np.inf), large)
    positive = cmp.where(_is_large(y), large, small)
    sine = _sine(cmp.where(reflected, x, like(x, -0.75)))
    negative = ew.div(ew.div(like(x, math.pi), sine), positive)
    return cmp.where(reflected, cmp.where(cmp.equal(sine, like(x, 0)), like(x, np.nan), negative), positive)


def psi(x: Node) -> Node:
    """Compute the digamma function, the derivative of ``gammaln``. It is nan at negative integers."""
    reflected = cmp.less_equal(x, like(x, 0.5))
    y = cmp.where(reflected, ew.sub(like(x, 1), x), x)
    steps = like(x, 0)
    for _ in range(7):
        near = cmp.less(y, like(x, LARGE))
        steps = ew.add(steps, cmp.where(near, ew.div(like(x, 1), y), like(x, 0)))
        y = cmp.where(near, ew.add(y, like(x, 1)), y)
    inverse = ew.div(like(x, 1), y)
    square = ew.mul(inverse, inverse)
    series = ew.add(ew.mul(like(x, 0.5), inverse), ew.mul(square, horner(DIGAMMA, square)))
    positive = ew.sub(ew.sub(ew.log(y), series), steps)
    r = _rest(cmp.where(reflected, x, like(x, 0.25)))
    value = ew.sub(positive, ew.div(like(x, math.pi), trans.tan(ew.mul(r, like(x, math.pi)))))
    value = cmp.where(cmp.equal(r, like(x, 0)), cmp.where(cmp.less(x, like(x, 0)), like(x, np.nan), value), value)
    return cmp.where(reflected, value, positive)


def i0(x: Node) -> Node:
    """Compute the modified Bessel function of the first kind of order 0."""
    size = ew.abs_(x)
    is_small = cmp.less_equal(size, like(x, 8))
    half = ew.mul(cmp.where(is_small, x, like(x, 0)), like(x, 0.5))
    far = cmp.where(is_small, like(x, 8), size)
    root = ew.exp(ew.mul(far, like(x, 0.5)))  # its square overflows too early
    scaled = ew.div(horner(BESSEL_LARGE, ew.sub(ew.div(like(x, 16), far), like(x, 1))), ew.sqrt(far))
    return cmp.where(is_small, horner(BESSEL_SMALL, ew.mul(half, half)), ew.mul(ew.mul(root, scaled), root))


def _reflected(x: Node) -> tuple[Node, Node]:
    """Tell where x is below -0.5, and return 1 - x there and x elsewhere."""
    reflected = cmp.less(x, like(x, -0.5))
    return reflected, cmp.where(reflected, ew.sub(like(x, 1), x), x)


def _reduced(y: Node) -> tuple[Node, Node, Node]:
    """Return ``t, above, below`` with ``gamma(y) = gamma(2 + t) * above / below``, for y from -0.5 to 7.5."""
    one = like(y, 1)
    near = cmp.where(_is_large(y), one, y)
    t, above = ew.sub(near, like(y, 2)), one
    for _ in range(5):
        high = cmp.greater_equal(t, like(y, 0.5))
        above = cmp.where(high, ew.mul(above, ew.add(t, one)), above)
        t = cmp.where(high, ew.sub(t, one), t)
    low, lower = (cmp.less(near, like(y, bound)) for bound in (1.5, 0.5))
    below = cmp.where(lower, ew.mul(near, ew.add(near, one)), cmp.where(low, near, one))
    t = cmp.where(lower, near, cmp.where(low, ew.sub(near, one), t))
    return t, above, below


def _is_large(y: Node) -> Node:
    return cmp.greater_equal(y, like(y, LARGE))


def _far(y: Node) -> Node:
    return cmp.where(_is_large(y), y, like(y, LARGE))


def _stirling(x: Node) -> Node:
    """Return the difference of ``gammaln(x)`` from Stirling's formula."""
    inverse = ew.div(like(x, 1), x)
    return ew.mul(inverse, horner(STIRLING, ew.mul(inverse, inverse)))


def _rest(x: Node) -> Node:
    """Return the distance of x from the nearest integer."""
    return cmp.where(cmp.less(ew.abs_(x), like(x, 0.5)), x, ew.sub(x, rounding.round_(x)))


def _sine(x: Node) -> Node:
    """Compute ``sin(pi x)`` from the distance to the nearest integer."""
    sine = trans.sin(ew.mul(_rest(x), like(x, math.pi)))
    is_even = cmp.equal(_rest(ew.mul(rounding.round_(x), like(x, 0.5))), like(x, 0))
    return cmp.where(is_even, sine, ew.neg(sine))
