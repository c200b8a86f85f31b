"""One order for the arguments of commutative ops, so that equal computations become one node. Bit-exact.

    add(v1, v0)    =>    add(v0, v1)

The argument with the longer chain of ops comes first: the branch of a residual layer before its shortcut. Ties are
broken by the expressions, near ops before distant ones, and last by the names of inputs. So the order does not depend
on how the graph was built, and it is the same in all layers of a stack of equal layers, which then share their kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

from mlaot.ir import Graph, Literal, Node, Subgraph
from mlaot.ops.structure import const, input_
from mlaot.passes.algebra.simplify import number
from mlaot.passes.base import pass_over
from mlaot.passes.rewrite import rewrite

NEAR = 4  # the length of chains of ops, from a node on, that are compared before full expressions


@dataclass(frozen=True)
class _Digests:
    """Digests of a node's expression.

    ``near[i]`` is the digest of its ops up to the distance i. ``anonymous`` leaves out the names of inputs and the
    values of constants, and ``full`` is of everything.
    """

    steps: int
    near: tuple[bytes, ...]
    anonymous: bytes
    full: bytes

    @property
    def order(self) -> tuple[int, tuple[bytes, ...], bytes]:
        return -self.steps, self.near, self.anonymous


@pass_over("graphs", after=("simplify",))
def canonical_order(graph: Graph) -> None:
    """Order the arguments of every commutative op of two arguments."""
    memo: dict[Node, _Digests] = {}

    def digests(node: Node) -> _Digests:
        if node not in memo:
            memo[node] = _digests(node, [digests(a.find()) for a in node.args])
        return memo[node]

    def is_before(a: Node, b: Node) -> bool:
        first, second = digests(a), digests(b)
        if first.order != second.order:
            return first.order < second.order
        while first.full != second.full and a.args:  # names alone differ: go down to the first that do
            pairs = [(a.arg(i), b.arg(i)) for i in range(len(a.args))]
            a, b = next((p, q) for p, q in pairs if digests(p).full != digests(q).full)
        return _own(a) < _own(b)

    def order_arguments(node: Node) -> Node | None:
        """f(y, x) => f(x, y)"""
        if not node.op.commutative or len(node.args) != 2:
            return None
        a, b = node.arg(0), node.arg(1)
        if a is b or number(a) is not None or number(b) is not None or not is_before(b, a):
            return None
        return node.op(b, a, **node.attrs)

    rewrite(graph, {None: (order_arguments,)})


def _digests(node: Node, args: list[_Digests]) -> _Digests:
    exact, form = _own(node).encode(), _form(node).encode()
    near = [_digest(form)]
    for i in range(NEAR - 1):
        near.append(_digest(form, *[a.near[i] for a in args]))
    steps = 1 + max([a.steps for a in args], default=-1)
    anonymous, full = _digest(form, *[a.anonymous for a in args]), _digest(exact, *[a.full for a in args])
    return _Digests(steps, tuple(near), anonymous, full)


def _own(node: Node) -> str:
    """Format a node's op and attributes."""
    attrs = [v.key if isinstance(v, Literal | Subgraph) else (k, str(v)) for k, v in node.attrs.items()]
    return repr((node.op.name, attrs))


def _form(node: Node) -> str:
    """Format a node without the parts that differ between equal layers: names, and constants that may be weights."""
    is_weight = node.op is const and node.attrs["value"].array.size > 1
    return repr((node.op.name, str(node.type))) if node.op is input_ or is_weight else _own(node)


def _digest(*parts: bytes) -> bytes:
    return blake2b(b"".join(parts), digest_size=12).digest()
