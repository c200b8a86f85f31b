"""Reverse-mode differentiation: append the cotangents of a scalar by each op's VJP. Exact rules, no reassociation.

    v1 = relu(x)              v1 = relu(x)
    loss = sum(v1)      =>    loss = sum(v1)
                              v3 = broadcast(1.0)
                              v4 = mul(v3, step(v1))      the gradient of x

Only nodes between the wanted inputs and the loss get a cotangent. The gradient of a wanted input on which the loss does
not depend is zero. (Griewank and Walther, Evaluating Derivatives, 2008, section 3.2.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlaot.errors import MlaotError
from mlaot.ir import Node, topological
from mlaot.ops import elementwise as ew
from mlaot.ops.base import Transforms, full_like

GRADIENT = "grad"  # how the origins of gradients end
Cotangent = Node | tuple[Node | None, ...]  # a tuple for a node with several results


def differentiate(loss: Node, wanted: Sequence[Node]) -> list[Node]:
    """Derive the gradient of the scalar ``loss`` with respect to each node of ``wanted``, in order."""
    loss = loss.find()
    if loss.type.shape != ():
        raise MlaotError(f"a loss must be a scalar, got {loss.type}")
    cotangents = pullback([loss], [full_like(loss, 1.0)], wanted)
    return [full_like(w.find(), 0.0) if ct is None else ct for w, ct in zip(wanted, cotangents, strict=True)]


def pullback(outputs: Sequence[Node], cotangents: Sequence[Node], wanted: Sequence[Node]) -> list[Node | None]:
    """Derive the cotangents of ``wanted`` from those of ``outputs``; None for nodes without a cotangent."""
    order = topological(outputs)
    active = {w.find() for w in wanted}
    for node in order:
        if any(a.find() in active for a in node.args):
            active.add(node)
    graph = outputs[0].find().graph
    arrived: dict[Node, list[Cotangent]] = {}
    for output, ct in zip(outputs, cotangents, strict=True):
        arrived.setdefault(output.find(), []).append(ct)
    for node in reversed(order):
        if node not in active or node not in arrived:
            continue
        total = _total(arrived[node])
        arrived[node] = [total]
        if not any(a.find() in active for a in node.args):
            continue
        if node.op.vjp is None:
            raise MlaotError(f"op '{node.op.name}' has no gradient")
        args = [a.find() for a in node.args]
        with graph.like(node, gradient_part(node.origin)):
            parts = node.op.vjp(total, node, *args, **node.attrs)
        for arg, part in zip(args, parts, strict=True):
            if part is not None and arg in active:
                arrived.setdefault(arg, []).append(part)
    return [_total(arrived[w.find()]) if w.find() in arrived else None for w in wanted]


def gradient_part(origin: str) -> str:
    """Return the name of the gradient of a part of a model, which is the origin of its nodes."""
    return f"{origin}.{GRADIENT}" if origin and not origin.endswith(f".{GRADIENT}") else origin


def _total(parts: Sequence[Any]) -> Any:
    """Add up cotangents; for a node with several results item by item, with None for results without any."""
    if isinstance(parts[0], tuple):
        items = [[item for item in items_of_one if item is not None] for items_of_one in zip(*parts, strict=True)]
        return tuple(_total(items_of_one) if items_of_one else None for items_of_one in items)
    total = parts[0]
    for part in parts[1:]:
        total = ew.add(total, part)
    return total


Transforms.pullback = pullback
