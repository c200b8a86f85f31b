"""Store transposed those operands of products whose summed axis is adjacent, where many rows read them. Bit-exact.

    q : f32[256,64], k : f32[256,64]                     v1 = transpose(k, perm=(1, 0)) : f32[64,256]
                                                  =>     v2 = copy(v1) : f32[64,256]
    v1 = contract(q, k, spec=ac,bc->ab)                  v3 = contract(q, v2, spec=ac,cb->ab)

The columns of the result then run along the lanes, as in a product with weights, and no sum ends by adding up lanes.
Weights need no copy: they are packed at build.
"""

from __future__ import annotations

from mlaot.ir import Dim, Graph, Node
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.kinds import VECTORS, adjacent, base_of, is_free, is_stored
from mlaot.passes.base import pass_over
from mlaot.passes.rewrite import rewrite
from mlaot.schedule.tuning import TRANSPOSED_EXTENT


@pass_over("graphs", after=("contract",))
def transposed_operands(graph: Graph) -> None:
    """Store transposed the computed operands of products that lie along the sum."""
    rewrite(graph, {red.contract: (columns_last,)})


def columns_last(node: Node) -> Node | None:
    """contract(a, b, spec=ac,bc->ab) => contract(a, copy(transpose(b)), spec=ac,cb->ab)"""
    *labels, out = red.parse_spec(node.attrs["spec"])
    for i in (0, 1):
        x, other = node.arg(i), node.arg(1 - i)
        along, names = adjacent(x), labels[i]
        computed = not is_stored(base_of(x)) and not is_free(x) and x.type.dtype.name in VECTORS
        if not computed or along is None or not out or out[-1] not in names or out[-1] in labels[1 - i]:
            continue
        rows = [d for c, d in zip(labels[1 - i], other.type.shape, strict=True) if c not in names]
        extents = dict(zip(names, x.type.shape, strict=True))
        step = names[along]
        if step in out or not all(_is_many(d) for d in ([extents[out[-1]]], [extents[step]], rows)):
            continue
        order = [*[c for c in names if c not in (step, out[-1])], step, out[-1]]
        stored = ew.copy(st.transpose(x, perm=tuple(names.index(c) for c in order)))
        labels[i] = "".join(order)
        operands = (other, stored) if i else (stored, other)
        return red.contract(*operands, spec=f"{labels[0]},{labels[1]}->{out}")
    return None


def _is_many(extents: list[Dim]) -> bool:
    """Tell whether the product of extents is large enough; a named one counts as one."""
    count = 1
    for d in extents:
        count *= d if isinstance(d, int) else 1
    return count >= TRANSPOSED_EXTENT
