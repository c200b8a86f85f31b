"""Select once: inside of a selection, the result of an inner selection by the same condition is known. Bit-exact.

    v1 = greater(x, 0.0)                         v1 = greater(x, 0.0)
    v2 = where(v1, 0.0, x)               =>      v2 = expm1(x)
    v3 = where(v1, x, expm1(v2))                 v3 = where(v1, x, v2)

The inner selection keeps the gradient finite where the outer one selects the other value. After differentiation it is
no longer needed.
"""

from __future__ import annotations

from mlaot.ir import Graph, Node, users
from mlaot.ops.comparison import where
from mlaot.passes.base import pass_over
from mlaot.passes.subgraphs import everywhere
from mlaot.schedule.tuning import CHOICE_STEPS


@pass_over("graphs", after=("entries",))
def nested_choices(graph: Graph) -> None:
    """Apply the rule of this file to every selection."""
    everywhere(_choose_once, graph)


def _choose_once(graph: Graph) -> None:
    used, kept = users(graph.nodes()), set(graph.roots())

    def chosen(x: Node, condition: Node, side: int, left: int = CHOICE_STEPS) -> Node:
        """Return a value that equals ``x`` wherever ``condition`` selects this side."""
        x = x.find()
        if not x.op.elementwise or len(used.get(x, ())) != 1 or x in kept or not left:
            return x
        if x.op is where and x.arg(0) is condition:
            return chosen(x.args[side], condition, side, left - 1)
        args = [chosen(a, condition, side, left - 1) for a in x.args]
        return x if args == [a.find() for a in x.args] else graph.copy(x, args)

    for node in graph.nodes():
        if node.op is where:
            condition, *sides = (a.find() for a in node.args)
            better = [chosen(x, condition, side) for side, x in enumerate(sides, 1)]
            if better != sides:
                graph.forward(node, graph.copy(node, [condition, *better]))
