"""Compute each form of log(1 + exp(x)) by one function. Reassociates (fewer roundings; no overflow).

v1 = log1p(exp(v0))                                             =>    v1 = softplus(v0)
v1 = log(add(exp(v0), 1))                                       =>    v1 = softplus(v0)
v1 = log(sigmoid(v0))                                           =>    v1 = neg(softplus(neg(v0)))
v1 = add(relu(v0), softplus(neg(abs(v0))))                      =>    v1 = softplus(v0)
v1 = sub(minimum(v0, 0), softplus(neg(abs(v0))))                =>    v1 = neg(softplus(neg(v0)))
v1 = where(v0 > 20, v0, softplus(minimum(v0, 20)))              =>    v1 = softplus(v0)

The last rule applies only if 20, or another threshold, is so large that x + exp(-x) rounds to x.

The tanh of a softplus, as in Mish (Misra, 2019), needs only one exponential: tanh(log(1 + e)) = ((1 + e)^2 - 1) / ((1 +
e)^2 + 1) = n / (n + 2) with n = e (e + 2); beyond 20 it is 1.
"""

from __future__ import annotations

import math

from mlaot.ir import Graph, Node
from mlaot.ops import Op, comparison
from mlaot.ops import elementwise as ew
from mlaot.ops import transcendental as tr
from mlaot.ops.base import full_like
from mlaot.passes.algebra.simplify import double_negative, number
from mlaot.passes.base import pass_over
from mlaot.passes.rewrite import Rule, rewrite

LARGEST = 20.0  # from here on the tanh is 1


def log1p_of_exp(node: Node) -> Node | None:
    """log1p(exp(x)) => softplus(x)"""
    x = _inside(node, tr.log1p, ew.exp)
    return None if x is None else tr.softplus(x)


def log_of_sum(node: Node) -> Node | None:
    """log(exp(x) + 1) => softplus(x)"""
    total = node.arg(0)
    if total.op is ew.add and len(total.args) == 2 and number(total.arg(1)) == 1:
        x = _inside(total.arg(0), ew.exp)
        return None if x is None else tr.softplus(x)
    return None


def log_of_sigmoid(node: Node) -> Node | None:
    """log(sigmoid(x)) => -softplus(-x)"""
    x = _inside(node, ew.log, tr.sigmoid)
    return None if x is None else ew.neg(tr.softplus(ew.neg(x)))


def sum_of_branches(node: Node) -> Node | None:
    """relu(x) + softplus(-abs(x)) => softplus(x)"""
    if len(node.args) != 2:
        return None
    for i in (0, 1):
        x = _inside(node.arg(i), ew.relu)
        if x is not None and _inside(node.arg(1 - i), tr.softplus, ew.neg, ew.abs_) is x:
            return tr.softplus(x)
    return None


def difference_of_branches(node: Node) -> Node | None:
    """minimum(x, 0) - softplus(-abs(x)) => -softplus(-x)"""
    first, x = node.arg(0), _inside(node.arg(1), tr.softplus, ew.neg, ew.abs_)
    is_negative_part = first.op is ew.minimum and len(first.args) == 2 and number(first.arg(1)) == 0
    return ew.neg(tr.softplus(ew.neg(x))) if x is not None and is_negative_part and first.arg(0) is x else None


def beyond_threshold(node: Node) -> Node | None:
    """where(x > t, x, softplus(x)) => softplus(x), where exp(-t) is nothing beside t"""
    found = _cut(node)
    if found is None:
        return None
    x, threshold = found
    # Halves are computed in f32.
    last_place = 2.0**-53 if x.type.dtype.name == "f64" else 2.0**-24
    return tr.softplus(x) if math.exp(-threshold) < threshold * last_place / 4 else None


def tanh_of_softplus(node: Node) -> Node | None:
    """tanh(softplus(x)) => n / (n + 2) with n = e (e + 2), e = exp(minimum(x, 20))"""
    inner = node.arg(0)
    x, threshold = _cut(inner) or (_inside(inner, tr.softplus), LARGEST)
    if x is None or threshold < LARGEST:
        return None
    e = ew.exp(ew.minimum(x, full_like(x, LARGEST)))
    n = ew.mul(e, ew.add(e, full_like(x, 2.0)))
    return ew.div(n, ew.add(n, full_like(x, 2.0)))


def _cut(node: Node) -> tuple[Node, float] | None:
    """Return x and t of ``where(x > t, x, softplus(x))``; its argument may be ``minimum(x, t)``. The threshold t must
    be positive.
    """
    if node.op is not comparison.where or node.arg(0).op is not comparison.greater:
        return None
    x, limit = (a.find() for a in node.arg(0).args)
    threshold, inner = number(limit), _inside(node.arg(2), tr.softplus)
    if threshold is None or not threshold > 0 or inner is None or node.arg(1) is not x:
        return None
    if inner.op is ew.minimum and len(inner.args) == 2 and number(inner.arg(1)) == threshold:
        inner = inner.arg(0)
    return (x, threshold) if inner is x else None


def _inside(node: Node, *ops: Op) -> Node | None:
    """Return the argument of a chain of these ops, the outermost first, or None for any other node."""
    for op in ops:
        if node.op is not op:
            return None
        node = node.arg(0)
    return node


RULES: dict[Op | None, tuple[Rule, ...]] = {
    tr.log1p: (log1p_of_exp,),
    ew.log: (log_of_sum, log_of_sigmoid),
    ew.add: (sum_of_branches,),
    ew.sub: (difference_of_branches,),
    comparison.where: (beyond_threshold,),
    ew.tanh: (tanh_of_softplus,),
    ew.neg: (double_negative,),
}


@pass_over("graphs", after=("simplify",))
def softplus(graph: Graph) -> None:
    """Apply the rules of this file to a fixed point."""
    rewrite(graph, RULES)
