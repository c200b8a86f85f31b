"""A product with a concatenation becomes a product with each part, if one of them lies in memory. Reassociates.

    v2 = concat(cache, new, axis=0)                   v3 = contract(q, cache, spec=b,ab->a)
    v3 = contract(q, v2, spec=b,ab->a)      =>        v4 = contract(q, new, spec=b,ab->a)
                                                      v5 = concat(v3, v4, axis=0)

    v4 = contract(p, v2, spec=a,ab->b)      =>        contract(slice(p, ..), cache) + contract(slice(p, ..), new)

So attention over a cache and what is new copies no cache. What stays whole:

* a concatenation of computed parts alone: it costs nothing, as they are written where it wants them;
* one whose other operand lies in memory, such as weights: one product with these is better than several;
* one along a label that both operands and the result have.
"""

from __future__ import annotations

from mlaot.ir import Dim, Graph, Node
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.kinds import base_of, is_stored
from mlaot.passes.base import pass_over
from mlaot.passes.rewrite import rewrite


def by_parts(node: Node) -> Node | None:
    """contract(x, concat(a, b)) => concat(contract(x, a), contract(x, b)); along a summed label, the sum of these"""
    *labels, out = red.parse_spec(node.attrs["spec"])
    for i in (1, 0):
        joined, other = node.arg(i), node.arg(1 - i)
        if (
            joined.op is not st.concat
            or not any(is_stored(base_of(a)) for a in joined.args)
            or is_stored(base_of(other))
        ):
            continue
        label = labels[i][joined.attrs.get("axis", 0)]
        if label in out and label in labels[1 - i]:
            continue
        parts = []
        start: Dim = 0
        for a in joined.args:
            part = a.find()
            size = part.type.shape[joined.attrs.get("axis", 0)]
            operands = (_slice_along(other, labels[1 - i], label, start, size), part)
            parts.append(red.contract(*(operands if i else reversed(operands)), spec=node.attrs["spec"]))
            start = size + start
        if label in out:
            return st.concat(*parts, axis=out.index(label))
        total = parts[0]
        for part in parts[1:]:
            total = ew.add(total, part)
        return total
    return None


def _slice_along(x: Node, labels: str, label: str, start: Dim, size: Dim) -> Node:
    """Return the elements from ``start`` on of ``x`` along a label; ``x`` itself if it has not the label."""
    if label not in labels:
        return x
    axis = labels.index(label)
    first = [start if i == axis else 0 for i in range(x.type.rank)]
    shape = x.type.shape
    return st.slice_(x, start=tuple(first), size=(*shape[:axis], size, *shape[axis + 1 :]), step=(1,) * x.type.rank)


@pass_over("graphs", after=("contract",))
def concat_products(graph: Graph) -> None:
    """Apply the rule of this file."""
    rewrite(graph, {red.contract: (by_parts,)})
