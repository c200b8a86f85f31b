"""Pass constants to a loop in the shape in which it reads them. Bit-exact.

    v1 = take(p, indices=<64 numbers>)               v1 = take(p, indices=<8 x 8 numbers>)
    v2 = scan(v1, ..)                          =>    v2 = scan(v1, ..)
      r0 = contract(h, reshape(a0), ..)                r0 = contract(h, a0, ..)

A loop of scalars reads vectors of scalars. The model's parameters become the arrays that the loop reads, and are stored
in the layout that suits kernels, which a matrix can have, but not a vector that is viewed as a matrix.
"""

from __future__ import annotations

from mlaot.ir import Dim, Graph, Literal, Node, users
from mlaot.ir.types import i64
from mlaot.ops import structure as st
from mlaot.ops.control import scan
from mlaot.passes.base import pass_over
from mlaot.passes.subgraphs import Loop


@pass_over("scalars", after=("raise_tensors",))
def shaped_constants(graph: Graph) -> None:
    """Reshape the constants of every loop that the loop reads only in one other shape."""
    for node in graph.nodes():
        if node.op is scan:
            loop = Loop.of(node)
            used = users(loop.body.nodes())
            for constant, operand in list(loop.consts.items()):
                readers = used.get(constant, [])
                if len(readers) == 1 and readers[0].op is st.reshape:
                    loop.body.forward(readers[0], loop.add(_reshaped(operand, readers[0].type.shape)))
            graph.forward(node, loop.rebuild())


def _reshaped(x: Node, shape: tuple[Dim, ...]) -> Node:
    if x.op is st.take and not x.attrs["lead"]:
        return st.take(x.arg(0), indices=Literal(x.attrs["indices"].array.reshape(shape), i64), lead=0)
    return st.reshape(x, shape=shape)
