"""Remove ``stop_gradient``, which is an identity once gradients are derived. Bit-exact.

v1 = stop_gradient(v0)
v2 = exp(v1)              =>    v2 = exp(v0)
"""

from __future__ import annotations

from mlaot.ir import Graph, Node
from mlaot.ops.barrier import stop_gradient
from mlaot.passes.base import pass_over
from mlaot.passes.rewrite import rewrite


def remove_barrier(node: Node) -> Node | None:
    """stop_gradient(x) => x"""
    return node.arg(0)


@pass_over("graphs", after=("entries",))
def remove_barriers(graph: Graph) -> None:
    """Remove every ``stop_gradient``."""
    rewrite(graph, {stop_gradient: (remove_barrier,)})
