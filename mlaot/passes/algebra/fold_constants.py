"""Compute at build time nodes that depend only on constants, in the arithmetic of their type.

The pass is bit-exact up to the accuracy of the ops.

    v0 = const(value=2.0)
    v1 = const(value=3.0)    =>    v2 = const(value=6.0)
    v2 = mul(v0, v1)

A broadcast is kept, as it costs nothing, while a folded one would be stored. A part whose size is open is kept too.
"""

from __future__ import annotations

import numpy as np

from mlaot.ir import Graph, Node, Type
from mlaot.ir.dims import product
from mlaot.ops import Op
from mlaot.ops import structure as st
from mlaot.passes.base import pass_over
from mlaot.passes.rewrite import Rule, rewrite


def fold(node: Node) -> Node | None:
    """f(constant, constant) => constant"""
    if not node.args or not isinstance(node.type, Type) or node.op is st.broadcast or node.op.draws:
        return None
    if any(a.find().op is not st.const for a in node.args) or not isinstance(product(node.type.shape), int):
        return None
    values = [a.find().attrs["value"].array for a in node.args]
    with np.errstate(all="ignore"):
        return node.graph.constant(node.op.reference(*values, **node.attrs), node.type.dtype)


RULES: dict[Op | None, tuple[Rule, ...]] = {None: (fold,)}


@pass_over("graphs")
def fold_constants(graph: Graph) -> None:
    """Fold constants to a fixed point."""
    rewrite(graph, RULES)
