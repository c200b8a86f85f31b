"""Give microbatches of images and windows the batch-innermost layout, in which examples fill vectors. Bit-exact.

    v1 = gather(x, rows) : f32[16,6,14,14]                v1 = gather(x, rows) : f32[16,6,14,14]
    v2 = window(v1, axes=(2, 3), ..)                      v2 = window(transpose(v1, perm=(1, 2, 3, 0)), ..)
    v3 = contract(v2, w, spec=aecdfg,befg->abcd)    =>    v3 = contract(v2, w, spec=ecdafg,befg->bcda)
    v4 = relu(v3)                                         v4 = relu(v3) : f32[16,10,10,16]
    v5 = reshape(v4, shape=(16, 1600))                    v5 = reshape(transpose(v4, perm=(3, 0, 1, 2)), ..)

Matrices keep one row for each example, as products of these are fast.
"""

from __future__ import annotations

from mlaot.ir import Graph, Node, Type
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.axes import Labels
from mlaot.ops.indexing import gather
from mlaot.ops.kinds import adjacent
from mlaot.ops.relayout import Laid, lay_out
from mlaot.passes.base import pass_over
from mlaot.passes.training import microbatch
from mlaot.schedule.tuning import EXAMPLES_TILE

MIN_RANK = 3  # of signals, images and windows: examples, channels, places


@pass_over("graphs", after=("contract", "unroll_windows"))
def batch_innermost(graph: Graph) -> None:
    """Rewrite the body of a loop over microbatches."""
    if graph.name == microbatch.NAME:
        outputs = _Body(graph).results()
        graph.outputs = dict(zip(graph.outputs, outputs, strict=True))


class _Body:
    """A walk over a loop body that copies each node with the examples first or last."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.tiled: set[Node] = set()  # nodes whose first axis is the examples
        self.copies = {node: node for node in graph.inputs.values()}
        self.innermost: set[Node] = set()  # nodes whose copy has the examples last

    def results(self) -> list[Node]:
        """Make the outputs of the graph from copies."""
        for node in self.graph.nodes():
            if node not in self.copies:
                if self._leads_with_examples(node):
                    self.tiled.add(node)
                with self.graph.like(node):
                    self.copies[node] = self._with_examples_last(node) or self._with_examples_first(node)
        return [self.first(node) for node in self.graph.outputs.values()]

    def _leads_with_examples(self, node: Node) -> bool:
        """Tell whether the first axis is that of the examples: an argument's, or that of rows gathered for them."""
        if not isinstance(node.type, Type) or node.type.shape[:1] != (EXAMPLES_TILE,):
            return False
        if node.op is gather:
            return True
        axes = node.op.axes.of(node) if node.op.axes is not None else None
        tiled = [i for i, a in enumerate(node.args) if a.find() in self.tiled]
        return axes is not None and any(axes.image(i, 0) == 0 for i in tiled)

    def _with_examples_first(self, node: Node) -> Node:
        return self.graph.add(node.op, [self.first(a) for a in node.args], node.attrs)

    def _with_examples_last(self, node: Node) -> Node | None:
        """Copy a node with the examples last, if it or its arguments have them last."""
        args, is_innermost = [a.find() for a in node.args], self.goes_innermost(node)
        if node.op.axes is None or not (is_innermost or any(map(self.goes_innermost, args))):
            return None
        axes = node.op.axes.of(node)
        if axes.whole and not is_innermost:  # matrices that images are reshaped to
            return None
        operands = []
        for a, labels in zip(args, axes.args, strict=True):
            is_read_last = self.goes_innermost(a) or (is_innermost and a in self.tiled and node.op is not red.contract)
            value = self.last(a) if is_read_last else self.first(a)
            if is_read_last and node.op is st.window and adjacent(value) != value.type.rank - 1:
                value = ew.copy(value)  # a view of a matrix, which taps and filters read again and again
            operands.append(Laid(value, rotate(labels) if is_read_last else labels))
        result = lay_out(node, operands, rotate(axes.result) if is_innermost else None)
        if result is None or result.labels not in (axes.result, rotate(axes.result)):
            return None
        if result.labels != axes.result:
            self.innermost.add(node)
        return result.node

    def goes_innermost(self, node: Node) -> bool:
        """Tell whether the copy of a value is to have the examples last."""
        return node.find() in self.tiled and node.type.rank >= MIN_RANK

    def first(self, node: Node) -> Node:
        """Return the copy of a node with the examples first."""
        node = node.find()
        copy, rank = self.copies[node], node.type.rank if isinstance(node.type, Type) else 0
        return st.transpose(copy, perm=(rank - 1, *range(rank - 1))) if node in self.innermost else copy

    def last(self, node: Node) -> Node:
        """Return the copy of a node with its first axis last."""
        node = node.find()
        copy, rank = self.copies[node], node.type.rank
        return copy if node in self.innermost or rank < 2 else st.transpose(copy, perm=(*range(1, rank), 0))


def rotate(labels: Labels) -> Labels:
    """Move the first label to the end."""
    return (*labels[1:], *labels[:1])
