"""Division by a broadcast value becomes one division and many products, if the setting ``fast_division`` allows it.

The pass reassociates (one more rounding). If the reciprocal overflows, the product overflows too.

v2 = broadcast(v1, shape=(b, 10), axes=(0,))           v2 = div(1.0, v1)
v3 = div(v0, v2)                                 =>    v3 = mul(v0, broadcast(v2))

Quotients that an op rounds to whole numbers are kept, as the last bit of a number close to a half decides.
"""

from __future__ import annotations

from mlaot.ir import Graph, Node
from mlaot.ops import elementwise as ew
from mlaot.ops import rounding
from mlaot.ops import structure as st
from mlaot.ops.base import full_like
from mlaot.passes.algebra.simplify import number
from mlaot.passes.base import pass_over

ROUNDINGS = (rounding.round_, rounding.floor, rounding.ceil, rounding.trunc)


def divide_once(node: Node) -> Node | None:
    """x / broadcast(y) => x * broadcast(1 / y)"""
    below = node.arg(1)
    if below.op is not st.broadcast or number(node.arg(0)) is not None:
        return None
    inverse = ew.div(full_like(below.arg(0), 1.0), below.arg(0))
    return ew.mul(node.arg(0), st.broadcast(inverse, **below.attrs))


def is_rounding(node: Node) -> bool:
    """Tell whether a node rounds floats to whole numbers."""
    return node.op in ROUNDINGS or (node.op is ew.cast and node.type.dtype.kind in "iu")


def rounded_nodes(graph: Graph) -> set[Node]:
    """Return the nodes whose values are rounded to whole numbers."""
    nodes = set()
    for node in graph.nodes():
        if is_rounding(node):
            below = node.arg(0)
            while below.op is ew.cast:
                below = below.arg(0)
            nodes.add(below)
    return nodes


@pass_over("graphs", after=("raise_tensors",), when=lambda o: o.fast_division and not o.deterministic)
def reciprocal(graph: Graph) -> None:
    """Apply the rule of this file to every quotient."""
    rounded = rounded_nodes(graph)
    for node in graph.nodes():
        if node.op is ew.div and node not in rounded and (product := divide_once(node)) is not None:
            graph.forward(node, product)
