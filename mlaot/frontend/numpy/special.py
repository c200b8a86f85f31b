"""The ufuncs of ``scipy.special``, composed of ops: functions of floating-point nodes of one shape."""

from __future__ import annotations

import numpy as np

from mlaot.frontend.numpy.gamma import gamma, gammaln, i0, psi
from mlaot.frontend.numpy.polynomials import horner
from mlaot.frontend.trace.control import Function
from mlaot.frontend.trace.promotion import like
from mlaot.ir import Node
from mlaot.ops import bits as bitwise
from mlaot.ops import comparison as cmp
from mlaot.ops import elementwise as ew
from mlaot.ops import transcendental as trans
from mlaot.ops.random import WICHURA


def zero_times(log: Function) -> Function:
    """Compute ``x * log(y)``, which is 0 where x is 0 and y is not nan."""

    def product(x: Node, y: Node) -> Node:
        nothing = bitwise.bitwise_and(cmp.equal(x, like(x, 0)), bitwise.bitwise_not(cmp.isnan(y)))
        safe = cmp.where(nothing, like(y, 1), y)  # the gradient of what is not taken stays finite
        return cmp.where(nothing, like(x, 0), ew.mul(x, log(safe)))

    return product


def entr(x: Node) -> Node:
    """Compute ``-x * log(x)``, which is 0 at 0 and -inf below."""
    below = cmp.where(cmp.less(x, like(x, 0)), like(x, -np.inf), ew.neg(zero_times(ew.log)(x, x)))
    return cmp.where(cmp.equal(x, like(x, 0)), like(x, 0), below)


def rel_entr(x: Node, y: Node) -> Node:
    """Compute ``x * log(x / y)`` of positive numbers; 0 for x = 0 and y >= 0, and inf for all others."""
    zero = like(x, 0)
    positive = bitwise.bitwise_and(cmp.greater(x, zero), cmp.greater(y, zero))
    value = ew.mul(x, log_ratio(*[cmp.where(positive, v, like(v, 1)) for v in (x, y)]))
    nothing = bitwise.bitwise_and(cmp.equal(x, zero), cmp.greater_equal(y, zero))
    value = cmp.where(positive, value, cmp.where(nothing, zero, like(x, np.inf)))
    return cmp.where(cmp.isnan(x), x, cmp.where(cmp.isnan(y), y, value))


def log_ratio(x: Node, y: Node) -> Node:
    """Compute ``log(x / y)`` of positive numbers.

    It is accurate for close numbers, and where the quotient would overflow or underflow.
    """
    ratio = ew.div(x, y)
    close = bitwise.bitwise_and(cmp.greater(ratio, like(x, 0.5)), cmp.less(ratio, like(x, 2)))
    limits = np.finfo("float32" if x.type.dtype.itemsize < 4 else x.type.dtype.numpy)
    inside = bitwise.bitwise_and(cmp.greater(ratio, like(x, float(limits.tiny))), cmp.isfinite(ratio))
    near = trans.log1p(cmp.where(close, ew.div(ew.sub(x, y), y), like(x, 0)))
    far = ew.sub(ew.log(x), ew.log(y))
    return cmp.where(close, near, cmp.where(inside, ew.log(cmp.where(inside, ratio, like(x, 1))), far))


def kl_div(x: Node, y: Node) -> Node:
    """Compute ``x * log(x / y) - x + y`` of positive numbers; y for x = 0 and y >= 0, and inf for all others."""
    zero = like(x, 0)
    positive = bitwise.bitwise_and(cmp.greater(x, zero), cmp.greater(y, zero))
    ratio = ew.div(*[cmp.where(positive, v, like(v, 1)) for v in (x, y)])
    value = ew.add(ew.sub(ew.mul(x, ew.log(ratio)), x), y)
    nothing = bitwise.bitwise_and(cmp.equal(x, zero), cmp.greater_equal(y, zero))
    value = cmp.where(positive, value, cmp.where(nothing, y, like(x, np.inf)))
    return cmp.where(cmp.isnan(x), x, cmp.where(cmp.isnan(y), y, value))


def logit(x: Node) -> Node:
    return ew.sub(ew.log(x), trans.log1p(ew.neg(x)))


def log_expit(x: Node) -> Node:
    """Compute ``log(sigmoid(x))`` without underflow."""
    return ew.neg(trans.softplus(ew.neg(x)))


def ndtr(x: Node) -> Node:
    """Compute the distribution function of the normal distribution."""
    return ew.mul(like(x, 0.5), trans.erfc(ew.mul(x, like(x, -(0.5**0.5)))))


def ndtri(p: Node) -> Node:
    """Compute the inverse of ``ndtr``.

    In the tails, where ``2 p - 1`` loses digits, it uses the rational functions of Wichura (1988).
    """
    middle = ew.mul(like(p, 2**0.5), trans.erfinv(ew.sub(ew.mul(p, like(p, 2)), like(p, 1))))
    below = cmp.less(p, like(p, 0.5))
    nearest = cmp.where(below, p, ew.sub(like(p, 1), p))
    tail = bitwise.bitwise_and(cmp.greater(nearest, like(p, 0)), cmp.less(nearest, like(p, 0.075)))
    r = ew.sqrt(ew.neg(ew.log(cmp.where(tail, nearest, like(p, 0.075)))))
    size = cmp.where(cmp.less_equal(r, like(p, 5)), quotient("tail", r), quotient("far", r))
    return cmp.where(
        cmp.less(p, like(p, 0)), like(p, np.nan), cmp.where(tail, cmp.where(below, ew.neg(size), size), middle)
    )


def quotient(part: str, r: Node) -> Node:
    """Evaluate one of Wichura's rational functions."""
    shift, above, below = WICHURA[part]
    return ew.div(*[horner(coefficients, ew.sub(r, like(r, shift))) for coefficients in (above, below)])


def exprel(x: Node) -> Node:
    """Compute ``(exp(x) - 1) / x``, which is 1 at 0."""
    zero, most = cmp.equal(x, like(x, 0)), cmp.equal(x, like(x, np.inf))
    safe = cmp.where(bitwise.bitwise_or(zero, most), like(x, 1), x)
    return cmp.where(zero, like(x, 1), cmp.where(most, x, ew.div(trans.expm1(safe), safe)))


def exp10(x: Node) -> Node:
    return trans.power(like(x, 10), x)


def huber(delta: Node, r: Node) -> Node:
    size = ew.abs_(r)
    outside = ew.mul(delta, ew.sub(size, ew.mul(like(r, 0.5), delta)))
    value = cmp.where(cmp.less_equal(size, delta), ew.mul(like(r, 0.5), ew.pow_(r, exponent=2.0)), outside)
    return cmp.where(cmp.less(delta, like(delta, 0)), like(r, np.inf), value)


def pseudo_huber(delta: Node, r: Node) -> Node:
    """Compute ``delta**2 * (sqrt(1 + (r / delta)**2) - 1)``, also accurately for small r.

    Inf for negative delta.
    """
    nothing = bitwise.bitwise_or(cmp.equal(delta, like(delta, 0)), cmp.equal(r, like(r, 0)))
    ratio = ew.div(cmp.where(nothing, like(r, 1), r), cmp.where(nothing, like(r, 1), delta))
    growth = trans.expm1(ew.mul(like(r, 0.5), trans.log1p(ew.pow_(ratio, exponent=2.0))))
    value = cmp.where(nothing, like(r, 0), ew.mul(ew.pow_(delta, exponent=2.0), growth))
    return cmp.where(cmp.less(delta, like(delta, 0)), like(r, np.inf), value)


SPECIAL_UFUNCS: dict[str, Function] = {
    "erf": trans.erf,
    "erfc": trans.erfc,
    "erfinv": trans.erfinv,
    "expit": trans.sigmoid,
    "logit": logit,
    "log_expit": log_expit,
    "xlogy": zero_times(ew.log),
    "xlog1py": zero_times(trans.log1p),
    "entr": entr,
    "rel_entr": rel_entr,
    "kl_div": kl_div,
    "exprel": exprel,
    "exp10": exp10,
    "ndtr": ndtr,
    "ndtri": ndtri,
    "huber": huber,
    "pseudo_huber": pseudo_huber,
    "gamma": gamma,
    "gammaln": gammaln,
    "psi": psi,
    "digamma": psi,
    "i0": i0,
}
