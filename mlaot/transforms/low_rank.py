"""Add products of two thin matrices to weights wherever they are read: W becomes W + scale left right. Reassociates.

    v1 = input(name=w) : f32[8,4]             v1 = input(name=w) : f32[8,4]
    v2 = transpose(v1) : f32[4,8]             v2 = transpose(v1) : f32[4,8]
    v3 = contract(v0, v2) : f32[b,8]    =>    v3 = contract(v0, v2) : f32[b,8]
                                              v4 = contract(v0, right) : f32[b,2]
                                              v5 = contract(v4 * scale, left) : f32[b,8]
                                              v6 = add(v3, v5) : f32[b,8]

No matrix of the weight's size is computed. So a weight must be a factor of products whose other factor is no weight, or
a table of rows. There may only be transposes, slices and casts to floats in between. (Hu et al., LoRA: Low-Rank
Adaptation of Large Language Models, 2021, section 4.1.)
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from string import ascii_letters

from mlaot.ir import Graph, Node, topological
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.base import fill
from mlaot.ops.indexing import gather

Factors = tuple[Node, Node]  # matrices [rows, rank] and [rank, columns]


def uses_of(graph: Graph, weights: Container[str]) -> Iterator[tuple[str, Node | None, int | None]]:
    """Yield the uses of these weights, which are matrices: the name, the node, and the axis that a product sums.

    The node is None for a use in which nothing can be added to the weight.
    """
    views = _views(graph, weights)
    roots = set(graph.roots())
    for node in graph.nodes():
        read = [(i, a.find()) for i, a in enumerate(node.args) if a.find() in views]
        if node in views:
            if node in roots:
                yield views[node][0], None, None
            continue
        for i, view in read:
            name, axes = views[view]
            if node.op is gather and i == 0 and node.attrs["lead"] == 0:
                yield name, node, None
            elif node.op is red.contract and len(read) == 1:
                first, second, out = red.parse_spec(node.attrs["spec"])
                summed = [axes[k] for k, c in enumerate((first, second)[i]) if c not in out]
                yield name, node, summed[0] if len(summed) == 1 else None
            else:
                yield name, None, None


def _views(graph: Graph, weights: Container[str]) -> dict[Node, tuple[str, tuple[int, ...]]]:
    """Map the inputs of these names, and views of them, to the name and the order of the weight's axes."""
    views: dict[Node, tuple[str, tuple[int, ...]]] = {}
    for node in graph.nodes():
        if node.op is st.input_ and node.attrs["name"] in weights:
            views[node] = node.attrs["name"], (0, 1)
        elif _is_look(node) and node.arg(0) in views:
            name, axes = views[node.arg(0)]
            perm = node.attrs["perm"] if node.op is st.transpose else (0, 1)
            views[node] = name, tuple(axes[k] for k in perm)
    return views


def add_low_rank(
    graph: Graph, weights: Mapping[str, Callable[[Graph], Factors]], scale: float, also: Iterable[Node] = ()
) -> tuple[Graph, dict[Node, Node]]:
    """Copy a graph, with ``scale`` times the product of its factors added to each of ``weights``.

    Return the copy, and the copy of each node that a root or a node of ``also`` depends on. ``uses_of`` must know all
    uses of the weights.
    """
    new = Graph(graph.name)
    changed: dict[Node, Node] = {}
    factors: dict[Node, Factors] = {}
    for name, node in graph.inputs.items():
        changed[node] = new.input(name, node.type, **{k: v for k, v in node.attrs.items() if k not in ("name", "type")})
        if name in weights:
            factors[node] = weights[name](new)
    for node in topological([*graph.roots(), *also]):
        if node in changed:
            continue
        result = new.copy(node, [changed[a.find()] for a in node.args])
        i = next((i for i, a in enumerate(node.args) if a.find() in factors), -1)
        with new.like(node):
            if i >= 0 and _is_look(node):
                factors[node] = _look(node, *factors[node.arg(i)])
            elif i >= 0:
                others = [changed[a.find()] for k, a in enumerate(node.args) if k != i]
                part = _product(node, i, others[0], *factors[node.arg(i)], scale)
                result = ew.add(result, part)
        changed[node] = result
    new.outputs = {name: changed[node.find()] for name, node in graph.outputs.items()}
    new.writes = {name: changed[node.find()] for name, node in graph.writes.items()}
    return new, changed


def _is_look(node: Node) -> bool:
    """Tell whether a node has the numbers of its argument, in another order or dtype; integers are other numbers."""
    return node.op in (st.transpose, st.slice_) or (node.op is ew.cast and node.type.dtype.kind == "f")


def _look(node: Node, left: Node, right: Node) -> Factors:
    """Return the factors of a node's view of a matrix."""
    if node.op is ew.cast:
        return ew.cast(left, **node.attrs), ew.cast(right, **node.attrs)
    if node.op is st.transpose:
        swapped = (1, 0)
        if tuple(node.attrs["perm"]) != swapped:
            return left, right
        return st.transpose(right, perm=swapped), st.transpose(left, perm=swapped)
    (row, column), (rows, columns), (down, along) = (node.attrs[key] for key in ("start", "size", "step"))
    rank = left.type.shape[1]
    return (
        st.slice_(left, start=(row, 0), size=(rows, rank), step=(down, 1)),
        st.slice_(right, start=(0, column), size=(rank, columns), step=(1, along)),
    )


def _product(node: Node, i: int, x: Node, left: Node, right: Node, scale: float) -> Node:
    """Compute a product, or a look-up of rows, with ``scale`` times a product of factors in place of the weight."""
    if node.op is gather:
        rows = gather(left, x, **node.attrs)
        labels = ascii_letters[: x.type.rank]
        return red.contract(_scaled(rows, scale), right, spec=f"{labels}Y,YZ->{labels}Z")
    *operands, out = red.parse_spec(node.attrs["spec"])
    labels, row, column = operands[1 - i], operands[i][0], operands[i][1]
    rank = next(c for c in ascii_letters if c not in node.attrs["spec"])
    sides = [(left, row + rank), (right, rank + column)]
    if column in labels and column not in out:  # the sum that makes it thin comes first
        sides.reverse()
    (first, first_labels), (second, second_labels) = sides
    kept = "".join(c for c in dict.fromkeys(labels + first_labels) if c in out or c in second_labels)
    thin = red.contract(x, first, spec=f"{labels},{first_labels}->{kept}")
    return red.contract(_scaled(thin, scale), second, spec=f"{kept},{second_labels}->{out}")


def _scaled(x: Node, scale: float) -> Node:
    return x if scale == 1 else ew.mul(x, fill(x, scale, x.type))
