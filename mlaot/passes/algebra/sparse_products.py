"""Products with values that are declared sparse skip their zeros. Reassociates.

    v1 = sparse(mul(cast(x), c))                    v5 = sparse_dot(x, w, axis=1)
    v2 = contract(v1, w, spec=ac,bc->ab)      =>    v2 = mul(v5, c)
    v3 = contract(g, v1, spec=ca,cb->ab)            v6 = neg(mul(mul(g, c), lr))
    v4 = sub(w, mul(v3, lr))                        v4 = sparse_add(w, x, v6, axis=1)

Scalar factors move to the dense operand, so that kernels read the sparse one as the caller passes it. Other ops treat a
sparse value as any other value.
"""

from __future__ import annotations

from functools import reduce

from mlaot.ir import Graph, Node, users
from mlaot.ops import Op
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.base import full_like
from mlaot.ops.kinds import LOADED, VECTORS, is_free
from mlaot.ops.sparse import sparse, sparse_add, sparse_dot
from mlaot.passes.base import pass_over
from mlaot.passes.rewrite import rewrite


@pass_over("graphs", after=("entries", "contract"))
def sparse_products(graph: Graph) -> None:
    """Rewrite the products, then the sums that have them as terms, and remove the remaining declarations."""
    if not any(node.op is sparse for node in graph.nodes()):
        return
    rewrite(graph, {red.contract: (multiply_sparse,)})
    used = users(graph.nodes())

    def accumulate(node: Node) -> Node | None:
        """w - lr * (0 + x g) => w + x (-lr g), in the place of w"""
        if len(node.args) != 2:
            return None
        for base, term in ((node.arg(0), node.arg(1)), (node.arg(1), node.arg(0))):
            inner, factors = term, [] if node.op is ew.add else [_minus_one(node)]
            while (scaled := _split_factor(inner)) is not None and len(used.get(inner, ())) == 1:
                inner, factors = scaled[0], [*factors, scaled[1]]
            if inner.op is sparse_add and is_free(inner.arg(0)) and len(used.get(inner, ())) == 1:
                return sparse_add(base, inner.arg(1), _times(inner.arg(2), factors), axis=inner.attrs["axis"])
            if node.op is ew.sub:
                break
        return None

    rewrite(graph, {ew.add: (accumulate,), ew.sub: (accumulate,)})
    rewrite(graph, {sparse: (forget,)})


def forget(node: Node) -> Node | None:
    """sparse(x) => x"""
    return node.arg(0)


def multiply_sparse(node: Node) -> Node | None:
    """contract(sparse(x), w) => sparse_dot(x, w), or sparse_add(0, x, w) where of x the last axis is kept alone"""
    *labels, out = red.parse_spec(node.attrs["spec"])
    if node.type.dtype.name not in VECTORS:
        return None
    for i in (0, 1):
        x, other = labels[i], labels[1 - i]
        source = _sparse_source(node.arg(i)) if x and len(set(x)) == len(x) else None
        if source is None or not isinstance(node.arg(i).type.shape[-1], int):
            continue
        value, factors = source
        lead, last, dense = x[:-1], x[-1], node.arg(1 - i)
        kept = [c for c in other if c not in x]
        if len(kept) != 1 or kept[0] not in out or len(set(other)) != len(other):
            continue
        if last not in out and set(other) == {last, *kept} and set(out) == {*lead, *kept}:
            result = _times(sparse_dot(value, dense, axis=other.index(last)), factors)
            return st.transpose(result, perm=tuple([*lead, *kept].index(c) for c in out))
        if set(other) == {*lead, *kept} and set(out) == {last, *kept}:
            rows = st.transpose(dense, perm=tuple(other.index(c) for c in (*lead, *kept)))
            return sparse_add(full_like(node, 0.0), value, _times(rows, factors), axis=out.index(last))
    return None


Factor = tuple[Op, Node]  # a scalar that a value is multiplied with, or divided by


def _sparse_source(node: Node) -> tuple[Node, list[Factor]] | None:
    """Return the value that is declared sparse, and its factors; None for other nodes."""
    factors: list[Factor] = []
    declared = False
    while True:
        if node.op is sparse:
            node, declared = node.arg(0), True
        elif (scaled := _split_factor(node)) is not None:
            node, factors = scaled[0], [*factors, scaled[1]]
        elif node.op is ew.cast and node.type.dtype.name in VECTORS and node.arg(0).type.dtype.name in LOADED:
            inner = _sparse_source(node.arg(0))
            if inner is None and not declared:
                return None
            return node.arg(0) if inner is None or inner[1] else inner[0], factors
        elif node.op is st.reshape and (inner := _sparse_source(node.arg(0))) is not None:
            return st.reshape(inner[0], shape=node.type.shape), [*factors, *inner[1]]
        else:
            return (node, factors) if declared else None


def _split_factor(node: Node) -> tuple[Node, Factor] | None:
    """Split x * scalar, x / scalar or -x into ``x`` and the factor."""
    if node.op is ew.neg:
        return node.arg(0), _minus_one(node)
    if node.op in (ew.mul, ew.div):
        pairs = ((node.arg(0), node.arg(1)), (node.arg(1), node.arg(0)))
        for x, scalar in pairs[: 2 if node.op is ew.mul else 1]:
            if scalar.op is st.broadcast and scalar.arg(0).type.rank == 0:
                return x, (node.op, scalar.arg(0))
    return None


def _minus_one(node: Node) -> Factor:
    return ew.mul, node.graph.constant(-1.0, node.type.dtype)


def _times(node: Node, factors: list[Factor]) -> Node:
    """Multiply a value by the product of its factors and divide it by the product of its divisors."""
    for op in (ew.mul, ew.div):
        scalars = [scalar for kind, scalar in factors if kind is op]
        if scalars:
            node = op(node, st.broadcast(reduce(ew.mul, scalars), shape=node.type.shape, axes=()))
    return node
