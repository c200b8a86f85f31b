"""Write the gradient of a quotient in terms of the quotient, as by hand. Reassociates.

    y = mul(broadcast(r), a)                               y = mul(broadcast(r), a)
    v1 = sum(mul(g, a))                                    v1 = sum(mul(g, y))
    v2 = mul(v1, mul(r, r))                      =>        v2 = mul(v1, r)
    v3 = sub(mul(g, broadcast(r)), broadcast(v2))          v3 = sub(g, broadcast(v1))
    v4 = mul(v3, a)                                        v4 = mul(v3, y)

Here r = 1 / s, with one s for each row. This is the gradient of a softmax with a = exp(x) and its sum s. The gradients
of a layer, batch or RMS normalization have parts of it. The quotient is stored for other products anyway, and the
dividend then need not be stored.
"""

from __future__ import annotations

from collections.abc import Mapping

from mlaot.ir import Graph, Node
from mlaot.ir.module import Module
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.base import full_like
from mlaot.ops.comparison import where
from mlaot.passes.algebra.simplify import number
from mlaot.passes.base import pass_over
from mlaot.passes.rewrite import Rule, rewrite
from mlaot.passes.subgraphs import everywhere

# The quotients of each value a: pairs of broadcast(r) and y = mul(broadcast(r), a).
Quotients = dict[Node, list[tuple[Node, Node]]]


@pass_over("module", after=("reciprocal", "contract"), when=lambda o: not o.deterministic)
def quotient_gradients(module: Module) -> None:
    """Apply the rules of this file to the graphs of a module that trains. Other modules keep their bits."""
    if module.trains:
        for graph in module.graphs.values():
            everywhere(read_quotients, graph)


def read_quotients(graph: Graph) -> None:
    """Use quotients that a graph has in place of their dividends."""
    nodes = graph.nodes()
    inverses = {n.arg(1): n for n in nodes if n.op is ew.div and number(n.arg(0)) == 1.0}
    known = set(inverses.values())
    position = {n: i for i, n in enumerate(nodes)}
    quotients: Quotients = {}
    for node in nodes:
        for by, a in (node.args, node.args[::-1]) if node.op is ew.mul else ():
            by, a = by.find(), a.find()
            if by.op is st.broadcast and by.arg(0) in known and _reads(by, a, position):
                quotients.setdefault(a, []).append((by, node))
    if quotients:
        rewrite(graph, {ew.div: (_use_inverse(inverses),), ew.mul: (_use_sum(quotients), _use_quotient(quotients))})


def _reads(node: Node, a: Node, position: Mapping[Node, int]) -> bool:
    """Tell whether a node is computed from another one, as is the divisor of a softmax."""
    stack, seen = [node], {node}
    while stack:
        args = {b.find() for b in stack.pop().args} - seen
        if a in args:
            return True
        seen |= args
        stack += [b for b in args if position[b] > position[a]]
    return False


def _use_inverse(inverses: dict[Node, Node]) -> Rule:
    def use_inverse(node: Node) -> Node | None:
        """x * r / s => x * r * r"""
        inverse = inverses.get(node.arg(1))
        if inverse is None or _without(node.arg(0), inverse) is None:
            return None
        return ew.mul(node.arg(0), inverse)

    return use_inverse


def _use_sum(quotients: Quotients) -> Rule:
    def use_sum(node: Node) -> Node | None:
        """sum(g * a) * r => sum(g * y)"""
        for total, rest in (node.args, node.args[::-1]):
            total = total.find()
            if total.op is not red.sum_:
                continue
            for a, by, y in _divisible(total.arg(0), quotients):
                kept = tuple(i for i in range(y.type.rank) if i not in total.attrs["axes"])
                divided = _without(rest.find(), by.arg(0)) if by.attrs["axes"] == kept else None
                if divided is not None:
                    return ew.mul(red.sum_(_exchange(total.arg(0), a, y), **total.attrs), divided)
        return None

    return use_sum


def _use_quotient(quotients: Quotients) -> Rule:
    def use_quotient(node: Node) -> Node | None:
        """(g * broadcast(r) + broadcast(q * r)) * a => (g + broadcast(q)) * y"""
        for other, a in (node.args, node.args[::-1]):
            for by, y in quotients.get(a.find(), ()):
                divided = None if other.find() is by else _without(other.find(), by)
                if divided is not None:
                    return ew.mul(divided, y)
        return None

    return use_quotient


def _divisible(product: Node, quotients: Quotients) -> list[tuple[Node, Node, Node]]:
    """Return the factors of a product that have quotients, with broadcast(r) and the quotient."""
    if product in (y for pairs in quotients.values() for _, y in pairs):
        return []
    found = [(product, *pair) for pair in quotients.get(product, ())]
    inner = product.args if product.op is ew.mul else ()
    return found + [entry for a in inner for entry in _divisible(a.find(), quotients)]


def _exchange(product: Node, old: Node, new: Node) -> Node:
    """Return a product with ``new`` in place of its factor ``old``."""
    if product is old:
        return new
    if product.op is not ew.mul or product is new:
        return product
    return ew.mul(*(_exchange(a.find(), old, new) for a in product.args))


def _without(node: Node, factor: Node) -> Node | None:
    """Return a value divided by one of its factors, or None if it does not have the factor.

    If a number for each row is a factor, the number's own factors are factors too.
    """
    if node is factor:
        return full_like(node, 1.0)
    args = [a.find() for a in node.args]
    if node.op is ew.mul:
        for i, a in enumerate(args):
            if a is factor:
                return args[1 - i]
            if (divided := _without(a, factor)) is not None:
                return ew.mul(divided, args[1 - i])
    if node.op is ew.neg or (node.op is ew.div and number(args[1]) is not None):
        divided = _without(args[0], factor)
        return None if divided is None else node.op(divided, *args[1:])
    if node.op in (ew.add, ew.sub):
        both = [d for a in args if (d := _without(a, factor)) is not None]
        return node.op(*both) if len(both) == 2 else None
    if node.op is where and 0.0 in (number(a) for a in args[1:]):
        both = [d for a in args[1:] if (d := a if number(a) == 0.0 else _without(a, factor)) is not None]
        return where(args[0], *both) if len(both) == 2 else None
    if node.op is st.broadcast and factor.op is st.broadcast and node.attrs == factor.attrs:
        divided = _without(args[0], factor.arg(0))
        return None if divided is None else st.broadcast(divided, **node.attrs)
    return None
