"""Products of one value with all parts of a tensor become one product, which is then sliced. Reassociates.

    v2 = slice(w, start=(0, 0), size=(8, 8))         v2 = contract(h, w, spec=ac,bc->ab)
    v3 = slice(w, start=(8, 0), size=(8, 8))         v4 = slice(v2, start=(0, 0), size=(n, 8))
    v4 = contract(h, v2, spec=ac,bc->ab)      =>     v5 = slice(v2, start=(0, 8), size=(n, 8))
    v5 = contract(h, v3, spec=ac,bc->ab)

Such products are the gates of a recurrent unit whose weights are one matrix.
"""

from __future__ import annotations

from collections import defaultdict

from mlaot.ir import Graph, Node
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.passes.base import pass_over

Place = tuple[Node, Node, str, int, int]  # other operand, whole tensor, spec, which operand is the part, its axis


@pass_over("graphs", after=("contract",))
def products_of_parts(graph: Graph) -> None:
    """Join the products of a value with parts that make up a tensor along one axis."""
    found: dict[Place, dict[int, Node]] = defaultdict(dict)
    for node in graph.nodes():
        if node.op is red.contract:
            for i in (0, 1):
                if (placed := _placed(node, i)) is not None:
                    place, start = placed
                    found[place][start] = node
    for (other, whole, spec, i, axis), parts in found.items():
        label = red.parse_spec(spec)[i][axis]
        at = red.parse_spec(spec)[-1].index(label)
        end: object = 0
        for start, node in sorted(parts.items()):
            end = start + node.type.shape[at] if start == end else None
        if len(parts) > 1 and end == whole.type.shape[axis]:
            product = red.contract(*((other, whole) if i else (whole, other)), spec=spec)
            for start, node in parts.items():
                graph.forward(node, st.part(product, at, start, node.type.shape[at]))


def _placed(node: Node, i: int) -> tuple[Place, int] | None:
    """Return the tensor that operand ``i`` is a part of along one axis of the result, and the part's start."""
    part, other, spec = node.arg(i), node.arg(1 - i), node.attrs["spec"]
    if part.op is not st.slice_ or any(step != 1 for step in part.attrs["step"]):
        return None
    whole = part.arg(0)
    cut = [axis for axis, size in enumerate(part.type.shape) if size != whole.type.shape[axis]]
    labels = red.parse_spec(spec)
    if len(cut) != 1 or labels[i][cut[0]] in labels[1 - i] or labels[i][cut[0]] not in labels[-1]:
        return None
    start = part.attrs["start"][cut[0]]
    return ((other, whole, spec, i, cut[0]), start) if isinstance(start, int) else None
