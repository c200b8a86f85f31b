"""Compute the tanh of a softplus, as in Mish (Misra, 2019), from one exponential. Reassociates (fewer roundings).

    v1 = add(relu(v0), log1p(exp(neg(abs(v0)))))            v1 = exp(minimum(v0, 20))
    v2 = tanh(v1)                                    =>     v2 = mul(v1, add(v1, 2))
                                                            v3 = div(v2, add(v2, 2))

tanh(log(1 + e)) = ((1 + e)^2 - 1) / ((1 + e)^2 + 1) = n / (n + 2) with n = e (e + 2); beyond 20 it is 1. A softplus is
also written as ``where(x > t, x, log1p(exp(minimum(x, t))))``.
"""

from __future__ import annotations

from mlaot.ir import Graph, Node
from mlaot.ops import Op, comparison
from mlaot.ops import elementwise as ew
from mlaot.ops import transcendental as tr
from mlaot.ops.base import full_like
from mlaot.passes.algebra.simplify import number
from mlaot.passes.base import pass_over
from mlaot.passes.rewrite import rewrite

LARGEST = 20.0  # from here on the result is 1


def from_one_exponential(node: Node) -> Node | None:
    """tanh(softplus(x)) => n / (n + 2) with n = e (e + 2), e = exp(minimum(x, 20))"""
    x = _softplus_of(node.arg(0))
    if x is None:
        return None
    e = ew.exp(ew.minimum(x, full_like(x, LARGEST)))
    n = ew.mul(e, ew.add(e, full_like(x, 2.0)))
    return ew.div(n, ew.add(n, full_like(x, 2.0)))


def _softplus_of(node: Node) -> Node | None:
    """Return what a value is the softplus of, None where it is none."""
    if node.op is ew.add and len(node.args) == 2:
        for first, second in ((0, 1), (1, 0)):
            x = _inside(node.arg(first), ew.relu)
            if x is not None and _inside(node.arg(second), tr.log1p, ew.exp, ew.neg, ew.abs_) is x:
                return x
    if node.op is comparison.where and node.arg(0).op is comparison.greater:
        (x, limit), least = node.arg(0).args, _inside(node.arg(2), tr.log1p, ew.exp)
        value = number(limit.find())
        is_cut = least is not None and least.op is ew.minimum and least.arg(0) is x.find()
        if value is not None and value >= LARGEST and node.arg(1) is x.find() and is_cut:
            return x.find()
    return None


def _inside(node: Node, *ops: Op) -> Node | None:
    """Return what these ops are applied to, the outermost first, None where they are not."""
    for op in ops:
        if node.op is not op:
            return None
        node = node.arg(0)
    return node


@pass_over("graphs", after=("simplify",))
def tanh_of_softplus(graph: Graph) -> None:
    """Apply the rule of this file to a fixed point."""
    rewrite(graph, {ew.tanh: (from_one_exponential,)})
