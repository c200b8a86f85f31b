"""In tiles of examples, these are the last axis of images and windows: vectors along them are always full. Bit-exact.

    v1 = gather(x, rows) : f32[16,6,14,14]                v1 = gather(x, rows) : f32[16,6,14,14]
    v2 = window(v1, axes=(2, 3), ..)                      v2 = window(transpose(v1, perm=(1, 2, 3, 0)), ..)
    v3 = contract(v2, w, spec=aecdfg,befg->abcd)    =>    v3 = contract(v2, w, spec=ecdafg,befg->bcda)
    v4 = relu(v3)                                         v4 = relu(v3) : f32[16,10,10,16]
    v5 = reshape(v4, shape=(16, 1600))                    v5 = reshape(transpose(v4, perm=(3, 0, 1, 2)), ..)

Matrices stay row after row, one for each example: their products are fast so.
"""

from __future__ import annotations

from mlaot.ir import Graph, Node, Type
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.axes import Labels, is_kept
from mlaot.ops.indexing import gather
from mlaot.ops.layout import Laid, laid_out
from mlaot.passes.base import pass_over
from mlaot.passes.training import microbatch
from mlaot.schedule.tuning import EXAMPLES_TILE

LEAST = 3  # the rank from which on a value is a signal, an image or windows: examples, channels, places


@pass_over("graphs", after=("contract", "unroll_windows"))
def batch_innermost(graph: Graph) -> None:
    """Rewrite the body of a loop over tiles of examples."""
    if graph.name == microbatch.NAME:
        found = _Body(graph).results()
        graph.outputs = dict(zip(graph.outputs, found, strict=True))


class _Body:
    """A body whose nodes are made again: each has a copy, with the examples first or last."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.tiled: set[Node] = set()  # whose first axis is the examples
        self.copies = {node: node for node in graph.inputs.values()}
        self.turned: set[Node] = set()  # whose copy has the examples last

    def results(self) -> list[Node]:
        """The outputs of the graph, made of copies."""
        for node in self.graph.nodes():
            if node not in self.copies:
                if self._leads_with_examples(node):
                    self.tiled.add(node)
                self.copies[node] = self._with_examples_last(node) or self._with_examples_first(node)
        return [self.first(node) for node in self.graph.outputs.values()]

    def _leads_with_examples(self, node: Node) -> bool:
        """Whether the first axis of a value is the examples: that of an argument, or of the rows gathered for them."""
        if not isinstance(node.type, Type) or node.type.shape[:1] != (EXAMPLES_TILE,):
            return False
        tiled = [i for i, a in enumerate(node.args) if a.find() in self.tiled]
        return node.op is gather or any(is_kept(node, i, 0, as_axis=0) for i in tiled)

    def _with_examples_first(self, node: Node) -> Node:
        return self.graph.add(node.op, [self.first(a) for a in node.args], node.attrs)

    def _with_examples_last(self, node: Node) -> Node | None:
        """The copy of a node with the examples last, where it or what it reads is to have them there."""
        args, turns = [a.find() for a in node.args], self.turns(node)
        if node.op.axes is None or not (turns or any(map(self.turns, args))):
            return None
        axes = node.op.axes.of(node)
        if axes.whole and not turns:  # matrices that images are reshaped to
            return None
        operands = []
        for a, labels in zip(args, axes.args, strict=True):
            is_read_last = self.turns(a) or (turns and a in self.tiled and node.op is not red.contract)
            operands.append(Laid(self.last(a), rotated(labels)) if is_read_last else Laid(self.first(a), labels))
        result = laid_out(node, operands, rotated(axes.result) if turns else None)
        if result is None or result.labels not in (axes.result, rotated(axes.result)):
            return None
        if result.labels != axes.result:
            self.turned.add(node)
        return result.node

    def turns(self, node: Node) -> bool:
        """Whether a value is to have the examples last."""
        return node.find() in self.tiled and node.type.rank >= LEAST

    def first(self, node: Node) -> Node:
        """The copy of a node, examples first."""
        node = node.find()
        copy, rank = self.copies[node], node.type.rank if isinstance(node.type, Type) else 0
        return st.transpose(copy, perm=(rank - 1, *range(rank - 1))) if node in self.turned else copy

    def last(self, node: Node) -> Node:
        """The copy of a node, its first axis last."""
        node = node.find()
        copy, rank = self.copies[node], node.type.rank
        return copy if node in self.turned or rank < 2 else st.transpose(copy, perm=(*range(1, rank), 0))


def rotated(labels: Labels) -> Labels:
    """Labels with the first one last."""
    return (*labels[1:], *labels[:1])
