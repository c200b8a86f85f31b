"""In tiles of examples, these are the last axis of images and windows: vectors along them are always full. Bit-exact.

    v1 = gather(x, rows) : f32[16,6,14,14]                v1 = gather(x, rows) : f32[16,6,14,14]
    v2 = window(v1, axes=(2, 3), ..)                      v2 = window(transpose(v1, perm=(1, 2, 3, 0)), ..)
    v3 = contract(v2, w, spec=aecdfg,befg->abcd)    =>    v3 = contract(v2, w, spec=ecdafg,befg->bcda)
    v4 = relu(v3)                                         v4 = relu(v3) : f32[16,10,10,16]
    v5 = reshape(v4, shape=(16, 1600))                    v5 = reshape(transpose(v4, perm=(3, 0, 1, 2)), ..)

Matrices stay row after row, one for each example: their products are fast so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mlaot.ir import Graph, Node, Type
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.base import batch_elementwise
from mlaot.ops.indexing import gather
from mlaot.ops.kinds import REDUCTIONS
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
            if node in self.copies:
                continue
            if self._leads_with_examples(node):
                self.tiled.add(node)
            rule = RULES.get(node.op) or (_elementwise if node.op.batch is batch_elementwise else None)
            made = rule(self, node) if rule is not None and self._concerns(node) else None
            if made is None:
                self.copies[node] = self.graph.add(node.op, [self.first(a) for a in node.args], node.attrs)
            else:
                self.copies[node] = made
        return [self.first(node) for node in self.graph.outputs.values()]

    def _leads_with_examples(self, node: Node) -> bool:
        if not isinstance(node.type, Type) or node.type.shape[:1] != (EXAMPLES_TILE,):
            return False
        given = [a.find() in self.tiled for a in node.args]
        if node.op is gather:
            return True
        if node.op is red.contract:
            *labels, out = red.parse_spec(node.attrs["spec"])
            return any(g and names[0] == out[0] for g, names in zip(given, labels, strict=True))
        if node.op is st.broadcast:
            return given[0] and node.attrs["axes"][:1] == (0,)
        if node.op is st.transpose:
            return given[0] and node.attrs["perm"][0] == 0
        if node.op in REDUCTIONS:
            return given[0] and 0 not in node.attrs["axes"]
        return any(given)

    def turns(self, node: Node) -> bool:
        """Whether a value is to have the examples last."""
        return node.find() in self.tiled and node.type.rank >= LEAST

    def _concerns(self, node: Node) -> bool:
        return self.turns(node) or any(self.turns(a) for a in node.args)

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

    def turn(self, node: Node, copy: Node) -> Node:
        """Remember that the copy of ``node`` has the examples last."""
        self.turned.add(node)
        return copy


def _axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Where axes are once the first is last."""
    return tuple((a - 1) % rank for a in axes)


def _rotated(values: Sequence[Any]) -> tuple[Any, ...]:
    return (*values[1:], *values[:1])


def _elementwise(body: _Body, node: Node) -> Node | None:
    if node.op is st.one_hot or not body.turns(node):
        return None
    return body.turn(node, node.op(*[body.last(a) for a in node.args], **node.attrs))


def _broadcast(body: _Body, node: Node) -> Node | None:
    axes, shape = node.attrs["axes"], node.attrs["shape"]
    if not body.turns(node) or axes[:1] != (0,):
        return None
    return body.turn(
        node, st.broadcast(body.last(node.arg(0)), shape=_rotated(shape), axes=_rotated(_axes(axes, len(shape))))
    )


def _window(body: _Body, node: Node) -> Node | None:
    """The window's own axes come behind the examples; a view puts these last."""
    inner, count = node.arg(0), len(node.attrs["axes"])
    if not body.turns(node) or 0 in node.attrs["axes"]:
        return None
    rank = inner.type.rank
    found = st.window(body.last(inner), **{**node.attrs, "axes": _axes(node.attrs["axes"], rank)})
    return body.turn(node, st.transpose(found, perm=(*range(rank - 1), *range(rank, rank + count), rank - 1)))


def _fold(body: _Body, node: Node) -> Node | None:
    shape, axes = node.attrs["shape"], node.attrs["axes"]
    rank, whole = len(shape), node.arg(0).type.rank
    if not body.turns(node) or 0 in axes:
        return None
    windows = st.transpose(body.last(node.arg(0)), perm=(*range(rank - 1), whole - 1, *range(rank - 1, whole - 1)))
    return body.turn(node, st.fold(windows, **{**node.attrs, "axes": _axes(axes, rank), "shape": _rotated(shape)}))


def _moved(body: _Body, node: Node) -> Node | None:
    """Slices and padding: numbers for each axis."""
    if not body.turns(node) or not body.turns(node.arg(0)):
        return None
    attrs = {key: _rotated(value) for key, value in node.attrs.items()}
    return body.turn(node, node.op(body.last(node.arg(0)), *[body.first(a) for a in node.args[1:]], **attrs))


def _joined(body: _Body, node: Node) -> Node | None:
    axis = node.attrs.get("axis", 0)
    if not body.turns(node) or axis == 0:
        return None
    return body.turn(node, node.op(*[body.last(a) for a in node.args], axis=axis - 1))


def _transpose(body: _Body, node: Node) -> Node | None:
    perm = node.attrs["perm"]
    if not body.turns(node) or perm[0] != 0:
        return None
    return body.turn(node, st.transpose(body.last(node.arg(0)), perm=_rotated(_axes(perm, len(perm)))))


def _reshape(body: _Body, node: Node) -> Node | None:
    inner, shape = node.arg(0), node.attrs["shape"]
    if not body.turns(node) or inner.find() not in body.tiled:
        return None
    return body.turn(node, st.reshape(body.last(inner), shape=_rotated(shape)))


def _reduction(body: _Body, node: Node) -> Node | None:
    axes, rank = node.attrs["axes"], node.arg(0).type.rank
    if not body.turns(node.arg(0)):
        return None
    found = node.op(body.last(node.arg(0)), axes=tuple(sorted(_axes(axes, rank))))
    return found if 0 in axes or rank - len(axes) < 2 else body.turn(node, found)


def _contract(body: _Body, node: Node) -> Node | None:
    *labels, out = red.parse_spec(node.attrs["spec"])
    operands = []
    for i, a in enumerate(node.args):
        turns = body.turns(a)
        operands.append(body.last(a) if turns else body.first(a))
        labels[i] = labels[i][1:] + labels[i][:1] if turns else labels[i]
    turns = body.turns(node)
    spec = f"{labels[0]},{labels[1]}->{out[1:] + out[:1] if turns else out}"
    found = red.contract(*operands, spec=spec)
    return body.turn(node, found) if turns else found


RULES: dict[Any, Callable[[_Body, Node], Node | None]] = {
    st.broadcast: _broadcast,
    st.window: _window,
    st.fold: _fold,
    st.slice_: _moved,
    st.pad: _moved,
    st.concat: _joined,
    st.stack: _joined,
    st.transpose: _transpose,
    st.reshape: _reshape,
    red.contract: _contract,
    ew.copy: _elementwise,
    **dict.fromkeys(REDUCTIONS, _reduction),
}
