"""Division by what is the same in many elements becomes one division and many products. Reassociates (one rounding
more).

v2 = broadcast(v1, shape=(b, 10), axes=(0,))           v2 = div(1.0, v1)
v3 = div(v0, v2)                                 =>    v3 = mul(v0, broadcast(v2))
"""

from __future__ import annotations

from mlaot.ir import Graph, Node
from mlaot.ops import elementwise as ew
from mlaot.ops import structure as st
from mlaot.ops.base import full_like
from mlaot.passes.rewrite import rewrite
from mlaot.passes.simplify import number


def divide_once(node: Node) -> Node | None:
    """x / broadcast(y) => x * broadcast(1 / y)"""
    below = node.arg(1)
    if below.op is not st.broadcast or number(node.arg(0)) is not None:
        return None
    inverse = ew.div(full_like(below.arg(0), 1.0), below.arg(0))
    return ew.mul(node.arg(0), st.broadcast(inverse, **below.attrs))


def reciprocal(graph: Graph) -> None:
    """Apply the rule of this file to a fixed point."""
    rewrite(graph, {ew.div: (divide_once,)})
