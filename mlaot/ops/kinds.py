"""What kind of node a node is: a view, a stored value, a scalar that costs nothing, elementwise, a move."""

from __future__ import annotations

from collections.abc import Sequence

from mlaot.ir import Dim, Node
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.base import batch_elementwise

REDUCTIONS = (red.sum_, red.max_, red.min_)
MOVES = (st.take, st.put_add, st.stack, st.concat, st.reshape)


def is_view(node: Node) -> bool:
    """Whether a node only looks at its argument differently."""
    if node.op in (st.broadcast, st.transpose, st.item):
        return True
    if node.op is st.take:
        return bool(node.attrs["indices"].array.ndim == 0)
    if node.op is st.reshape:
        return _without_ones(node.type.shape) == _without_ones(node.arg(0).type.shape)
    return False


def _without_ones(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    return tuple(d for d in shape if d != 1)


def base_of(node: Node) -> Node:
    """The value that a chain of views looks at."""
    node = node.find()
    while is_view(node):
        node = node.arg(0)
    return node


def is_free(node: Node) -> bool:
    """Scalars that every kernel computes for itself: constants, dims, scalar arguments and arithmetic on them."""
    node = base_of(node)
    if node.op in (st.const, st.size):
        return node.type.shape == ()
    if node.op is st.input_:
        return node.type.shape == () and not node.attrs.get("parameter", False)
    return (
        node.type.shape == () and is_elementwise(node) and node.op is not ew.copy and all(is_free(a) for a in node.args)
    )


def is_elementwise(node: Node) -> bool:
    return node.op.batch is batch_elementwise or node.op is st.one_hot


def is_stored(node: Node) -> bool:
    """Values that lie in memory before any kernel runs."""
    return node.op is st.input_ or (node.op is st.const and node.type.shape != ())
