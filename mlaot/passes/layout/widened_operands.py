"""Products that read each element once convert float32 to float64 as they load it. Bit-exact.

    v1 = cast(v0) : f64[b,30]                             v1 = widen(v0) : f64[b,30]
    v2 = contract(v1, w, spec=ab,b->a) : f64[b]    =>     v2 = contract(v1, w, spec=ab,b->a) : f64[b]

The cast would write twice the bytes that the product reads. An element that is read several times, for each column of a
matrix, is converted once instead.
"""

from __future__ import annotations

from mlaot.ir import Graph, Node, users
from mlaot.ir.types import f32, f64
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.axes import parse_spec
from mlaot.ops.kinds import is_free
from mlaot.passes.base import pass_over


@pass_over("graphs", after=("legalize", "half_weights"))
def widened_operands(graph: Graph) -> None:
    """Replace casts by views if one product is their only reader, and reads each element once."""
    used = users(graph.nodes())
    for node in graph.nodes():
        if node.op is red.contract:
            first, second, _ = parse_spec(node.attrs["spec"])
            for x, own, others in ((node.arg(0), first, second), (node.arg(1), second, first)):
                if _is_widened(x) and used[x] == [node] and set(others) <= set(own):
                    graph.forward(x, st.widen(x.arg(0)))


def _is_widened(x: Node) -> bool:
    return x.op is ew.cast and (x.arg(0).type.dtype, x.type.dtype) == (f32, f64) and not is_free(x)
