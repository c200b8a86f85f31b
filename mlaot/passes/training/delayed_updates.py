"""In training on one example at a time, update large weights for several examples at once. Reassociates.

    fit_step: x, label, lr -> loss            fit_begin: x[8] -> ahead = contract(x, w), like = contract(x, x)
    v1 = contract(w, x, spec=ab,b->a)   =>    fit_step: label, lr, ahead, like, changes -> loss, change = g
    ...                                       v1 = sub(ahead, contract(like, changes, spec=a,ab->b)) ...
    v9 = sub(w, mul(g, x))                    fit_end: x[8], changes
    writes w=v9                               v9 = sub(w, contract(changes, x, spec=ab,ac->bc)); writes w=v9

A step of gradient descent adds a matrix of rank 1 to a weight. For example j of a block, the weight is that at the
start of the block minus the changes of the earlier examples, and its product with the weight is

    x_j (w - x_1 g_1 - .. - x_i g_i) = x_j w - (x_j x_1) g_1 - .. - (x_j x_i) g_i

So a weight is read and written once for each block, by products of matrices. The same idea delays reflections in matrix
factorizations (Bischof and Van Loan, "The WY Representation for Products of Householder Matrices", 1987).
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from math import prod

from mlaot.ir import Graph, Node, Type, users
from mlaot.ir.module import FIT_BEGIN, FIT_END, FIT_STEP, Module
from mlaot.ir.subgraph import subgraphs
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.kinds import VECTORS
from mlaot.ops.sparse import sparse
from mlaot.passes.base import pass_over
from mlaot.passes.rewrite import rewrite
from mlaot.passes.training.entries import copy_into
from mlaot.schedule.tuning import LATE_EXAMPLES, LATE_WEIGHT
from mlaot.transforms.batch import batch


@dataclass(frozen=True)
class RankOneUpdate:
    """A parameter's product with a vector that depends on no parameter, and its update ``sub(weight, change x)``.

    ``change`` is also a vector, and ``spec`` is that of ``contract(change, x)``.
    """

    product: Node
    weight: Node
    x: Node
    change: Node
    spec: str


def fits(graph: Graph) -> bool:
    """Tell whether training a model on one example may multiply large weights by values independent of parameters."""
    plain = not graph.writes and not any(n.op.draws or n.op is sparse or subgraphs(n.attrs) for n in graph.nodes())
    independent = _independent_of_parameters(graph)
    return plain and any(
        n.op in (red.contract, ew.mul) and any(a.find() in independent for a in n.args) and any(map(_is_large, n.args))
        for n in graph.nodes()
    )


@pass_over("module", after=("entries", "contract"))
def delayed_updates(module: Module) -> None:
    """Split ``fit_step`` into the start of a block, a step on one example, and the end of the block."""
    graph = module.graphs.pop(FIT_STEP, None)
    if graph is None:
        return
    independent = _independent_of_parameters(graph)
    rewrite(graph, {red.contract: (outer,), ew.mul: (lambda node: scale_first(node, independent),)})
    updates = list(_find_updates(graph))
    if not updates:
        return
    begin, copies = copy_into(graph, [n for update in updates for n in (update.product, update.x)], FIT_BEGIN)
    end, rows = copy_into(graph, [n for update in updates for n in (update.weight, update.x)], FIT_END)
    for k, update in enumerate(updates):
        begin.outputs |= {f"ahead{k}": copies[update.product], f"like{k}": copies[update.x]}
        end.outputs[f"x{k}"] = rows[update.x]
    begin, end = (batch(g, LATE_EXAMPLES, module.slots) for g in (begin, end))
    for k, update in enumerate(updates):
        size, dtype = update.change.type.shape[0], update.weight.type.dtype
        x = begin.outputs[f"like{k}"].find()
        begin.outputs[f"like{k}"] = begin.add(red.contract, (x, x), {"spec": "ac,bc->ab"})
        name = _free(graph, f"changes{k}")
        changes = end.input(name, Type(dtype, (LATE_EXAMPLES, size)))
        weight = end.inputs[update.weight.attrs["name"]]
        product = end.add(red.contract, (changes, end.outputs.pop(f"x{k}").find()), {"spec": update.spec})
        end.writes[update.weight.attrs["name"]] = ew.sub(weight, product)
        ahead = graph.input(_free(graph, f"ahead{k}"), update.product.type)
        like = graph.input(_free(graph, f"like{k}"), Type(dtype, (LATE_EXAMPLES,)))
        before = graph.add(red.contract, (like, graph.input(name, changes.type)), {"spec": "a,ab->b"})
        graph.outputs[f"change{k}"] = update.change
        del graph.writes[update.weight.attrs["name"]]
        graph.forward(update.product, ew.sub(ahead, before))
    module.graphs |= {FIT_BEGIN: begin, FIT_STEP: graph, FIT_END: end}


def _independent_of_parameters(graph: Graph) -> set[Node]:
    """Return the nodes that depend on no parameter."""
    nodes: set[Node] = set()
    for node in graph.nodes():
        is_leaf = not node.args and not node.attrs.get("parameter")
        if is_leaf or (node.args and all(a.find() in nodes for a in node.args)):
            nodes.add(node)
    return nodes


def _is_large(node: Node) -> bool:
    """Tell whether a value is a matrix that is too large for the nearest cache."""
    shape = node.find().type.shape
    return len(shape) == 2 and all(isinstance(d, int) for d in shape) and bool(prod(shape) >= LATE_WEIGHT)


def _find_updates(graph: Graph) -> Iterator[RankOneUpdate]:
    """Yield the large parameters whose only use is a product and whose update is a matrix of rank 1."""
    independent, used = _independent_of_parameters(graph), users(graph.nodes())
    for node in graph.nodes():
        if node.op is red.contract:
            *labels, out = red.parse_spec(node.attrs["spec"])
            matrix, vector = sorted(labels, key=lambda names: -len(names))
            weight, x = node.arg(labels.index(matrix)), node.arg(labels.index(vector))
            is_parameter = weight.op is st.input_ and weight.attrs.get("parameter")
            suits = _is_large(weight) and weight.type.dtype.name in VECTORS and sorted(matrix) == sorted(out + vector)
            if not (is_parameter and suits and x in independent and len(vector) == 1):
                continue
            new = graph.writes.get(weight.attrs["name"], weight).find()
            last = not used.get(new) and [n.find() for n in graph.writes.values()].count(new) == 1
            if last and set(used[weight]) == {node, new} and new.op is ew.sub and new.arg(0) is weight:
                change = _change(new.arg(1), x, matrix.index(out))
                if change is not None:
                    yield RankOneUpdate(node, weight, x, change, "ab,ac->bc" if matrix == out + vector else "ac,ab->bc")


def _change(update: Node, x: Node, axis: int) -> Node | None:
    """Return g of an update mul(broadcast(g), broadcast(x)), with g along ``axis`` and x along the other."""
    if update.op is ew.mul:
        for g, row in ((update.arg(0), update.arg(1)), (update.arg(1), update.arg(0))):
            if _spreads(g) == (axis,) and _spreads(row) == (1 - axis,) and row.arg(0) is x:
                return g.arg(0)
    return None


def outer(node: Node) -> Node | None:
    """contract(g, x, spec=a,b->ab) => mul(broadcast(g), broadcast(x))"""
    *labels, out = red.parse_spec(node.attrs["spec"])
    if any(c not in out for names in labels for c in names):
        return None
    args = zip(labels, (node.arg(0), node.arg(1)), strict=True)
    return ew.mul(
        *[st.broadcast(a, shape=node.type.shape, axes=tuple(out.index(c) for c in names)) for names, a in args]
    )


def scale_first(node: Node, independent: Container[Node]) -> Node | None:
    """mul(broadcast(s), mul(broadcast(g), broadcast(x))) => mul(broadcast(mul(broadcast(s), g)), broadcast(x))

    For a scalar s, a vector g, and an x that is ``independent`` of parameters.
    """
    for s, product in ((node.arg(0), node.arg(1)), (node.arg(1), node.arg(0))):
        if product.op is ew.mul and _spreads(s) == ():
            for g, x in ((product.arg(0), product.arg(1)), (product.arg(1), product.arg(0))):
                if all(_spreads(n) in ((0,), (1,)) for n in (g, x)) and x.arg(0) in independent:
                    scale = st.broadcast(s.arg(0), shape=g.arg(0).type.shape, axes=())
                    scaled = st.broadcast(ew.mul(scale, g.arg(0)), shape=g.type.shape, axes=g.attrs["axes"])
                    return ew.mul(scaled, x)
    return None


def _spreads(node: Node) -> tuple[int, ...] | None:
    """Return the axes of a matrix along which the value that it broadcasts varies."""
    return tuple(node.attrs["axes"]) if node.op is st.broadcast and node.type.rank == 2 else None


def _free(graph: Graph, name: str) -> str:
    """Return a name that no input of ``graph`` has."""
    while name in graph.inputs:
        name += "_"
    return name
