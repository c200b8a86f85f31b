"""Flatten nested ``add`` (``maximum``, ``minimum``) of scalars to one of many arguments. Reassociates; drops ``0 +``.

    v3 = add(v0, v1)
    v4 = add(v3, v2)      =>    v4 = add(v0, v1, v2)

Sums are flattened from their root only, as flattening every prefix would be quadratic. Sibling sums are kept: if a sum
has several inner sums of equal structure that share operands (``h @ w2`` summed over its ten outputs), each remains a
value. Greedy flattening would merge ten dots of 50 terms to one of 500, and the matrix product would be lost. Structure
is compared by a hash of the multiset of terms, so that shuffled terms, and the unmarked first of several siblings, are
recognized.

A sum that starts from 0 and has one further term is kept as a sum of one argument, as its neighbours may have more.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from math import inf

from mlaot.ir import Graph, Node, TupleType, users
from mlaot.ops import Op
from mlaot.ops import elementwise as ew
from mlaot.ops import structure as st
from mlaot.passes.base import pass_over
from mlaot.schedule.tuning import SHARED_TERMS

Signature = tuple[int, int]
IDENTITIES = {ew.add: 0.0, ew.maximum: -inf, ew.minimum: inf}


@pass_over("scalars", after=("simplify",))
def flatten_sums(graph: Graph) -> None:
    """Flatten every chain of scalar ``add``, ``maximum`` and ``minimum`` from its root."""
    for op in IDENTITIES:
        nodes = graph.nodes()
        sums = [node for node in nodes if node.op is op and node.type.rank == 0]
        if not sums:
            continue
        uses = {node: len(readers) for node, readers in users(nodes).items()}
        for root in graph.roots():
            uses[root] += 2
        interior = {a.find() for node in sums for a in node.args if a.find().op is op and uses[a.find()] == 1}
        if op is not ew.add:
            interior = _unlike_shared(interior, sums, uses)
        if interior:
            _flatten(graph, op, nodes, interior)


def _unlike_shared(interior: set[Node], all_: Sequence[Node], uses: Mapping[Node, int]) -> set[Node]:
    """Leave out nodes of a kind that mostly has several readers, such as the last cells of a table."""

    def kind(node: Node) -> frozenset[str]:
        return frozenset(a.find().op.name for a in node.args)

    read_once, shared = Counter(map(kind, interior)), Counter(kind(node) for node in all_ if uses.get(node, 0) > 1)
    return {node for node in interior if read_once[kind(node)] >= shared[kind(node)]}


class Classes:
    """Numbers of structural classes: the same op on the same classes, for any items of a tensor."""

    def __init__(self) -> None:
        self.numbers: dict[object, int] = {}
        self.of: dict[Node, int] = {}

    def number(self, key: object) -> int:
        return self.numbers.setdefault(key, len(self.numbers))

    def leaf(self, node: Node) -> int | None:
        """Number the class of an item, a constant or a tensor; None for computed scalars."""
        if node.op is st.item:
            return self.number(("item", node.arg(0)))
        if node.op is st.const and node.type.rank == 0:
            return self.number(("const", node.type))
        if isinstance(node.type, TupleType) or node.type.rank or not node.args:
            return self.number(("tensor", node))
        return None

    def composite(self, node: Node, args: list[int]) -> int:
        """Number the class of a scalar by its op and the classes of its arguments."""
        if len(args) == 2 and node.op.commutative:
            a, b = sorted(args)
            return self.number((node.op, ((a, 2),) if a == b else ((a, 1), (b, 1))))
        if len(args) > 2:
            return self.number((node.op, tuple(sorted(Counter(args).items()))))
        return self.number((node.op, tuple(node.attrs.items()), tuple(args)))


def _flatten(graph: Graph, op: Op, nodes: list[Node], interior: set[Node]) -> None:
    classes = Classes()
    weights: dict[int, int] = {}
    numbers = random.Random(0)
    signature: dict[Node, Signature] = {}
    for node in nodes:
        class_ = classes.leaf(node)
        if class_ is None and node.op is op:
            count = total = 0
            for a in (x.find() for x in node.args):
                if a in interior:
                    n, h = signature[a]
                else:
                    weight = weights.get(classes.of[a])
                    if weight is None:
                        weight = weights[classes.of[a]] = numbers.getrandbits(64)
                    n, h = 1, weight
                count, total = count + n, (total + h) & 0xFFFFFFFFFFFFFFFF
            signature[node] = count, total
            class_ = classes.number((op, count, total))
        elif class_ is None:
            class_ = classes.composite(node, [classes.of[a.find()] for a in node.args])
        classes.of[node] = class_
    for node in nodes:
        if node.op is op and node.type.rank == 0 and node not in interior:
            _flatten_root(graph, op, node, interior, signature)


def _flatten_root(graph: Graph, op: Op, root: Node, interior: set[Node], signature: dict[Node, Signature]) -> None:
    """Make the node of many arguments for ``root``, and one for each sibling sum inside it."""
    siblings = _siblings(root, interior, signature) if op is ew.add else set()
    sums: dict[Node, Node] = {}
    for top in [*sorted(siblings, key=lambda n: signature[n][0]), root]:
        terms: list[Node] = []
        stack = [a.find() for a in reversed(top.args)]
        while stack:
            node = stack.pop()
            if node in sums:
                terms.append(sums[node])
            elif node in interior:
                stack.extend(a.find() for a in reversed(node.args))
            else:
                terms.append(node)
        terms = [t for t in terms if not _is_identity(op, t)] or terms[:1]
        sums[top] = graph.add(op, terms)
    if sums[root].find() is not root:
        graph.forward(root, sums[root])


def _is_identity(op: Op, node: Node) -> bool:
    return node.op is st.const and node.type.rank == 0 and node.attrs["value"].array == IDENTITIES[op]


def _siblings(root: Node, interior: set[Node], signature: dict[Node, Signature]) -> set[Node]:
    """Find the inner sums to keep: equal structure, shared operands, the largest first, then those inside them."""
    kept: set[Node] = set()
    inside: set[Node] = set()
    by_signature: dict[Signature, list[Node]] = {}
    for node in _inner(root, interior):
        by_signature.setdefault(signature[node], []).append(node)
    for key in sorted((k for k, members in by_signature.items() if len(members) > 1 and k[0] > 1), reverse=True):
        members = [m for m in by_signature[key] if m not in inside]
        if len(members) < 2:
            continue
        first, second = (_operands(m, interior) for m in members[:2])
        if len(first & second) >= SHARED_TERMS * len(first):
            kept.update(members)
            for member in members:
                inside.update(_inner(member, interior))
                kept |= _siblings(member, interior, signature)
    return kept


def _inner(root: Node, interior: set[Node]) -> list[Node]:
    """List the inner sums below ``root``."""
    inner: list[Node] = []
    stack = [root]
    while stack:
        for a in stack.pop().args:
            if (node := a.find()) in interior:
                inner.append(node)
                stack.append(node)
    return inner


def _operands(node: Node, interior: set[Node]) -> set[Node]:
    """Return the arguments of an inner sum's terms."""
    operands: set[Node] = set()
    stack = [node]
    while stack:
        top = stack.pop()
        for a in (x.find() for x in top.args):
            if a in interior:
                stack.append(a)
            elif a.op is st.item or not a.args:
                operands.add(a)
            else:
                operands.update(x.find() for x in a.args)
    return operands
