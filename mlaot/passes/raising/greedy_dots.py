"""The vectorizer of Max Bernstein's post "Vectorizing ML models for fun", for its counts only; not in the pipeline.

    v4 = mul(x0, w0)
    v5 = mul(x1, w1)               v4 = stack(x0, x1)
    v6 = add(v4, v5)         =>    v5 = stack(w0, w1)
    v7 = add(v6, b)                v6 = contract(v4, v5, spec=a,a->)
                                   v7 = add(b, v6)

Flattens every nested sum greedily, then makes a dot of the products of each sum. A summed output of ten dots of 50
terms becomes one dot of 500: that is why ``flatten_sums`` and ``raise_tensors`` go another way. Reassociates.
"""

from __future__ import annotations

from mlaot.ir import Graph, Node, users
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.passes.rewrite import rewrite


def greedy_dots(graph: Graph) -> None:
    """Flatten sums, then rewrite them to dots; equal arrays are one node by hash-consing."""
    _flatten(graph)
    rewrite(graph, {ew.add: (dot_of_products,)})


def _flatten(graph: Graph) -> None:
    nodes = graph.nodes()
    used = users(nodes)
    inner = {n for n in nodes if n.op is ew.add and len(used[n]) == 1 and used[n][0].op is ew.add}
    for node in nodes:
        if node.op is not ew.add or node in inner:
            continue
        terms: list[Node] = []
        stack = [a.find() for a in reversed(node.args)]
        while stack:
            top = stack.pop()
            if top in inner:
                stack.extend(a.find() for a in reversed(top.args))
            elif not (top.op is st.const and top.attrs["value"].array == 0):
                terms.append(top)
        graph.forward(node, graph.add(ew.add, terms))


def dot_of_products(node: Node) -> Node | None:
    """add(mul(a, b), mul(c, d), rest..) => add(dot(stack(a, c), stack(b, d)), rest..)"""
    args = [a.find() for a in node.args]
    products = [a for a in args if a.op is ew.mul]
    if len(products) < 2:
        return None
    left, right = (st.stack(*[p.arg(i) for p in products]) for i in (0, 1))
    dot = red.contract(left, right, spec="a,a->")
    rest = [a for a in args if a.op is not ew.mul]
    return ew.add(*rest, dot) if rest else dot
