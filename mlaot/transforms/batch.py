"""Add a leading dimension to a graph for one example, by each op's batching rule. Bit-exact.

    x : f32[784]                                  x : f32[batch,784]
    v1 = contract(w, x, spec=ab,b->a)      =>     v1 = contract(w, x, spec=ab,cb->ca)

Shared inputs (parameters), and nodes that depend only on these, are not batched.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from mlaot.errors import MlaotError
from mlaot.ir import Dim, Graph, Node, TupleType
from mlaot.ir.subgraph import subgraphs
from mlaot.ops.base import Transforms, lift
from mlaot.ops.control import result
from mlaot.ops.relayout import Laid, lay_out

BATCH = "batch"  # the label of the new axis
Value = tuple[Node, bool]  # a node of the new graph, and whether it leads with the new dimension


def batch(graph: Graph, dim: Dim, shared: Container[str], single: Container[str] = ()) -> Graph:
    """Copy a graph so that inputs not in ``shared`` and outputs not in ``single`` have the first axis ``dim``."""
    new = Graph(graph.name)
    inputs: list[Value] = []
    for name, node in graph.inputs.items():
        attrs = {k: v for k, v in node.attrs.items() if k not in ("name", "type")}
        type_ = node.type if name in shared else node.type.with_shape((dim, *node.type.shape))
        inputs.append((new.input(name, type_, **attrs), name not in shared))
    values = batch_into(new, graph, inputs, dim)
    for name, (value, batch_node) in zip(graph.outputs, values, strict=False):
        new.outputs[name] = value if batch_node or name in single else lift(value, dim)
    for name, (value, batch_node) in zip(graph.writes, values[len(graph.outputs) :], strict=True):
        if batch_node and name in shared:
            raise MlaotError(f"{name!r} cannot be written by each example of a batch; reduce over the batch first")
        new.writes[name] = value if batch_node or name in shared else lift(value, dim)
    return new


def batch_into(new: Graph, graph: Graph, inputs: Sequence[Value], dim: Dim) -> list[Value]:
    """Copy ``graph`` into ``new`` on ``inputs``; return its outputs, then its writes."""
    values: dict[Node, Any] = dict(zip(graph.inputs.values(), inputs, strict=True))  # a list of values where it is many
    for node in graph.nodes():
        if node in values:
            continue
        if node.op is result and isinstance(values[node.arg(0)], list):
            values[node] = values[node.arg(0)][node.attrs["index"]]
            continue
        args = [values[a.find()][0] for a in node.args]
        flags = [values[a.find()][1] for a in node.args]
        if not any(flags) and not draws(node):
            values[node] = new.copy(node, args), False
            continue
        with new.like(node):
            if isinstance(node.type, TupleType):
                assert node.op.batch is not None, f"bug in mlaot: no batching rule of {node.op}"
                values[node] = node.op.batch(node, args, flags, dim)
            else:
                values[node] = batch_node(node, args, flags, dim), True
    return [values[node] for node in graph.roots()]


def batch_node(node: Node, args: Sequence[Node], flags: Sequence[bool], dim: Dim) -> Node:
    """Copy a node with a first axis ``dim``, by its op's axes; ``flags`` says which of ``args`` have this axis."""
    if node.op.axes is not None:
        axes = node.op.axes.of(node)
        lead = [(BATCH, *labels) if flag else labels for labels, flag in zip(axes.args, flags, strict=True)]
        result = lay_out(node, list(map(Laid, args, lead)), (BATCH, *axes.result))
        if result is not None:
            return result.node
    if node.op.batch is None:
        raise MlaotError(f"op '{node.op.name}' has no batching rule")
    return node.op.batch(node, args, flags, dim)


def draws(node: Node) -> bool:
    """Tell whether a node, or one in its subgraphs, has a value of its own for each example."""
    return node.op.draws or any(draws(n) for inner in subgraphs(node.attrs).values() for n in inner.graph.nodes())


Transforms.batch_into = batch_into
