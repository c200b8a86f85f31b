"""Training one example at a time: each step also starts the next one, with the weights that it leaves. Reassociates.

    fit_next: x, label, lr -> loss            fit_begin: x -> ahead = contract(w, x)
    v1 = contract(w, x, spec=ab,b->a)   =>    fit_next: x, label, lr, ahead, next_x -> loss, next_ahead
    ...                                       ... with ahead for v1 ...
    v9 = sub(w, mul(g, x))                    v9 = sub(w, mul(g, x))
    writes w=v9                               next_ahead = sum(mul(v9, next_x), axes=(1,)); writes w=v9

One kernel then updates the rows of a weight and multiplies them with the next example: a weight is read and written
once a step, where it would be read twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from mlaot.ir import Graph, Node, topological, users
from mlaot.ir.module import FIT_BEGIN, FIT_NEXT, Module
from mlaot.ir.subgraph import subgraphs
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.kinds import VECTORS, is_elementwise
from mlaot.ops.sparse import sparse
from mlaot.passes.entries import copy_into
from mlaot.passes.rewrite import rewrite

LARGE = 8 * 1024  # elements of a weight from which on it costs to read it twice


def fits(graph: Graph) -> bool:
    """Whether the training of a model on one example may have a large product of weights with what it is given."""
    plain = not graph.writes and not any(n.op.draws or n.op is sparse or subgraphs(n.attrs) for n in graph.nodes())
    given = _given(graph)
    return plain and any(
        n.op in (red.contract, ew.mul) and any(a.find() in given for a in n.args) and any(map(_is_large, n.args))
        for n in graph.nodes()
    )


def lookahead(module: Module) -> None:
    """Make the two entries of the graph ``fit_next``, a step on one example; none where nothing is gained."""
    graph = module.graphs.pop(FIT_NEXT, None)
    if graph is None:
        return
    rewrite(graph, {red.contract: (outer,), ew.mul: (scale_first,)})
    used = users(graph.nodes())
    products = [
        (product, weight, x)
        for product, weight, x in _products(graph)
        if weight.attrs["name"] in graph.writes and all(u is product or is_elementwise(u) for u in used[weight])
    ]
    if not products:
        return
    begin, copies = copy_into(graph, [product for product, _, _ in products], FIT_BEGIN)
    names = [_free(graph, f"ahead{k}") for k in range(len(products))]
    begin.outputs = {name: copies[product] for name, (product, _, _) in zip(names, products, strict=True)}
    ahead = [graph.input(name, product.type) for name, (product, _, _) in zip(names, products, strict=True)]
    read = [node for name, node in graph.inputs.items() if name in begin.inputs and not node.attrs.get("parameter")]
    following = {node: graph.input(_free(graph, f"next_{node.attrs['name']}"), node.type) for node in read}
    for node in topological([x for _, _, x in products]):
        if node not in following:
            following[node] = graph.add(node.op, [following[a.find()] for a in node.args], node.attrs)
    for name, node, (product, weight, x) in zip(names, ahead, products, strict=True):
        new = graph.writes[weight.attrs["name"]].find()
        row = st.broadcast(following[x], shape=weight.type.shape, axes=(1,))
        graph.outputs[f"next_{name}"] = red.sum_(ew.mul(new, row), axes=(1,))
        graph.forward(product, node)
    vectors = {n for _, _, x in products for n in (x, following[x]) if n.op is not st.input_}

    def store(node: Node) -> Node | None:
        """broadcast(x) => broadcast(copy(x)): rather than computed again for each row of the weights"""
        return st.broadcast(ew.copy(node.arg(0)), **node.attrs) if node.arg(0) in vectors else None

    rewrite(graph, {st.broadcast: (store,)})
    module.graphs |= {FIT_BEGIN: begin, FIT_NEXT: graph}


def _given(graph: Graph) -> set[Node]:
    """What depends on no parameter."""
    found: set[Node] = set()
    for node in graph.nodes():
        is_leaf = not node.args and not node.attrs.get("parameter")
        if is_leaf or (node.args and all(a.find() in found for a in node.args)):
            found.add(node)
    return found


def _is_large(node: Node) -> bool:
    """Whether a value is a matrix that is too large for the nearest cache."""
    shape = node.find().type.shape
    return len(shape) == 2 and all(isinstance(d, int) for d in shape) and bool(prod(shape) >= LARGE)


def _products(graph: Graph) -> Iterator[tuple[Node, Node, Node]]:
    """The products of a large parameter's rows with a vector that depends on none; the parameter, the vector."""
    given = _given(graph)
    for node in graph.nodes():
        if node.op is red.contract:
            *labels, out = red.parse_spec(node.attrs["spec"])
            rows, vector = sorted(labels, key=lambda names: -len(names))
            weight, x = node.arg(labels.index(rows)), node.arg(labels.index(vector))
            is_parameter = weight.op is st.input_ and weight.attrs.get("parameter")
            suits = _is_large(weight) and weight.type.dtype.name in VECTORS and rows == out + vector
            if is_parameter and suits and x in given:
                yield node, weight, x


def outer(node: Node) -> Node | None:
    """contract(g, x, spec=a,b->ab) => mul(broadcast(g), broadcast(x)): work on rows, which other work can join"""
    *labels, out = red.parse_spec(node.attrs["spec"])
    if any(c not in out for names in labels for c in names):
        return None
    args = zip(labels, (node.arg(0), node.arg(1)), strict=True)
    return ew.mul(
        *[st.broadcast(a, shape=node.type.shape, axes=tuple(out.index(c) for c in names)) for names, a in args]
    )


def scale_first(node: Node) -> Node | None:
    """mul(broadcast(s), mul(broadcast(g), broadcast(x))) => mul(broadcast(mul(broadcast(s), g)), broadcast(x))

    Of a scalar, a number for each row, and a row: so the rows' numbers are scaled, not every element.
    """
    for s, product in ((node.arg(0), node.arg(1)), (node.arg(1), node.arg(0))):
        if product.op is ew.mul and _spreads(s) == ():
            for g, x in ((product.arg(0), product.arg(1)), (product.arg(1), product.arg(0))):
                if _spreads(g) == (0,) and _spreads(x) == (1,):
                    scale = st.broadcast(s.arg(0), shape=g.arg(0).type.shape, axes=())
                    scaled = st.broadcast(ew.mul(scale, g.arg(0)), shape=g.type.shape, axes=(0,))
                    return ew.mul(scaled, x)
    return None


def _spreads(node: Node) -> tuple[int, ...] | None:
    """The axes that a matrix has from a smaller value."""
    return tuple(node.attrs["axes"]) if node.op is st.broadcast and node.type.rank == 2 else None


def _free(graph: Graph, name: str) -> str:
    """A name that no input of ``graph`` has."""
    while name in graph.inputs:
        name += "_"
    return name
