"""One order for the arguments of commutative ops, so that equal computations are one node however written. Bit-exact.

    add(v1, v0)    =>    add(v0, v1)

The order is that of digests of the arguments' whole expressions: it does not depend on how the graph came about.
"""

from __future__ import annotations

from hashlib import blake2b

from mlaot.ir import Graph, Literal, Node, Subgraph
from mlaot.passes.rewrite import rewrite
from mlaot.passes.simplify import number


def canonical(graph: Graph) -> None:
    """Order the arguments of every commutative op of two arguments."""
    digests: dict[Node, bytes] = {}

    def digest(node: Node) -> bytes:
        known = digests.get(node)
        if known is None:
            attrs = [v.key if isinstance(v, Literal | Subgraph) else (k, str(v)) for k, v in node.attrs.items()]
            parts = b"".join(digest(a.find()) for a in node.args)
            known = digests[node] = blake2b(repr((node.op.name, attrs)).encode() + parts, digest_size=12).digest()
        return known

    def ordered(node: Node) -> Node | None:
        """f(y, x) => f(x, y)"""
        if not node.op.commutative or len(node.args) != 2:
            return None
        a, b = node.arg(0), node.arg(1)
        if number(a) is not None or number(b) is not None or digest(a) <= digest(b):
            return None
        return node.op(b, a, **node.attrs)

    rewrite(graph, {None: (ordered,)})
