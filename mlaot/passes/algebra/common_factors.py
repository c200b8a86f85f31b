"""Take common factors out of sums of products. Reassociates (one rounding fewer).

    v4 = mul(mul(g, a), c)                         v4 = add(mul(a, c), b)
    v5 = mul(g, b)                          =>     v5 = mul(g, v4)
    v6 = add(v4, v5)

The gradient of a value that is used twice is such a sum, as in gelu(x) = x * cdf(x). The remaining sum does not depend
on the incoming gradient. So the kernel of the forward pass computes it, and stores one derivative for all terms.
"""

from __future__ import annotations

from mlaot.ir import Graph, Node, users
from mlaot.ops import elementwise as ew
from mlaot.passes.algebra.simplify import number
from mlaot.passes.base import pass_over


@pass_over("graphs", after=("contract",))
def common_factors(graph: Graph) -> None:
    """Apply the rule of this file to every sum."""
    used = users(graph.nodes())
    kept = set(graph.roots())

    def factors(node: Node) -> list[Node]:
        """Return the factors of a product. An inner product that something else reads is one factor."""
        if node.op is not ew.mul or len(used.get(node, ())) > 1 or node in kept:
            return [node]
        return [factor for a in node.args for factor in factors(a.find())]

    for node in graph.nodes():
        if node.op is not ew.add or node.type.dtype.kind != "f" or not node.type.shape:
            continue
        terms = [factors(a.find()) for a in node.args]
        shared = next((f for f in terms[0] if number(f) is None and all(f in term for term in terms)), None)
        if shared is None or len(terms) < 2 or any(len(term) < 2 for term in terms):
            continue
        for term in terms:
            term.remove(shared)
        graph.forward(node, ew.mul(shared, ew.add(*map(_product, terms))))


def _product(factors: list[Node]) -> Node:
    first, *rest = factors
    for factor in rest:
        first = ew.mul(first, factor)
    return first
