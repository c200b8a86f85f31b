"""Reverse-mode differentiation: append the cotangents of a scalar by each op's VJP. Exact rules, no reassociation.

    v1 = relu(x)              v1 = relu(x)
    loss = sum(v1)      =>    loss = sum(v1)
                              v3 = broadcast(1.0)
                              v4 = mul(v3, step(v1))      the gradient of x

Griewank and Walther, Evaluating Derivatives (2008), section 3.2. Only nodes between the wanted inputs and the loss get
a cotangent; a wanted input that does not reach the loss gets zeros.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlaot.errors import MlaotError
from mlaot.ir import Node, topological
from mlaot.ops import elementwise as ew
from mlaot.ops.base import full_like


def differentiate(loss: Node, wanted: Sequence[Node]) -> list[Node]:
    """The gradient of the scalar ``loss`` by each node of ``wanted``, in their order."""
    loss = loss.find()
    if loss.type.shape != ():
        raise MlaotError(f"a loss must be a scalar, got {loss.type}")
    order = topological([loss])
    active = {w.find() for w in wanted}
    for node in order:
        if any(a.find() in active for a in node.args):
            active.add(node)
    cotangents: dict[Node, list[Node]] = {loss: [full_like(loss, 1.0)]}
    for node in reversed(order):
        if node not in active or node not in cotangents:
            continue
        total = _total(cotangents[node])
        cotangents[node] = [total]
        if not any(a.find() in active for a in node.args):
            continue
        if node.op.vjp is None:
            raise MlaotError(f"op '{node.op.name}' has no gradient")
        args = [a.find() for a in node.args]
        for arg, ct in zip(args, node.op.vjp(total, node, *args, **node.attrs), strict=True):
            if ct is not None and arg in active:
                cotangents.setdefault(arg, []).append(ct.find())
    return [_total(cotangents[w.find()]) if w.find() in cotangents else full_like(w.find(), 0.0) for w in wanted]


def _total(parts: list[Node]) -> Node:
    total = parts[0]
    for part in parts[1:]:
        total = ew.add(total, part)
    return total
