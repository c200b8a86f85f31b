"""A product with a concatenation becomes a product with each part, if a part is in memory. Reassociates.

    v2 = concat(cache, new, axis=0)                   v3 = contract(q, cache, spec=b,ab->a)
    v3 = contract(q, v2, spec=b,ab->a)      =>        v4 = contract(q, new, spec=b,ab->a)
                                                      v5 = concat(v3, v4, axis=0)

    v4 = contract(p, v2, spec=a,ab->b)      =>        contract(slice(p, ..), cache) + contract(slice(p, ..), new)

So attention over a cache and new values does not copy the cache. Concatenations of computed parts are kept, as kernels
write such parts in place.
"""

from __future__ import annotations

from mlaot.ir import Dim, Graph, Node
from mlaot.ops import Op
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.kinds import base_of, is_stored
from mlaot.passes.base import pass_over
from mlaot.passes.rewrite import Rule, rewrite


def multiply_parts(node: Node) -> Node | None:
    """contract(x, concat(a, b)) => concat(contract(x, a), contract(x, b)), or their sum"""
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
            operands = (_part(other, labels[1 - i], label, start, size), part)
            parts.append(red.contract(*(operands if i else reversed(operands)), spec=node.attrs["spec"]))
            start = size + start
        if label in out:
            return st.concat(*parts, axis=out.index(label))
        total = parts[0]
        for part in parts[1:]:
            total = ew.add(total, part)
        return total
    return None


def _part(x: Node, labels: str, label: str, start: Dim, size: Dim) -> Node:
    """Slice ``x`` along a label; return it unchanged if it has no such label."""
    return st.part(x, labels.index(label), start, size) if label in labels else x


RULES: dict[Op | None, tuple[Rule, ...]] = {red.contract: (multiply_parts,)}


@pass_over("graphs", after=("contract",))
def concat_products(graph: Graph) -> None:
    """Split products with a concatenation of which a part is stored."""
    rewrite(graph, RULES)
