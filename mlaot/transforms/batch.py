"""Give a graph for one example a leading dimension, by each op's batching rule. Bit-exact.

    x : f32[784]                                  x : f32[batch,784]
    v1 = contract(w, x, spec=ab,b->a)      =>     v1 = contract(w, x, spec=ab,cb->ca)

Shared inputs (parameters) stay as they are, and so does what depends on them alone.
"""

from __future__ import annotations

from collections.abc import Container

from mlaot.errors import MlaotError
from mlaot.ir import Dim, Graph, Node
from mlaot.ops.base import lift


def batch(graph: Graph, dim: Dim, shared: Container[str]) -> Graph:
    """A new graph in which every input not in ``shared``, and every output, leads with ``dim``."""
    new = Graph(graph.name)
    values: dict[Node, tuple[Node, bool]] = {}
    for name, node in graph.inputs.items():
        attrs = {k: v for k, v in node.attrs.items() if k not in ("name", "type")}
        type_ = node.type if name in shared else node.type.with_shape((dim, *node.type.shape))
        values[node] = new.input(name, type_, **attrs), name not in shared
    for node in graph.nodes():
        if node in values:
            continue
        args = [values[a.find()][0] for a in node.args]
        flags = [values[a.find()][1] for a in node.args]
        if not any(flags):
            values[node] = new.add(node.op, args, node.attrs), False
        elif node.op.batch is None:
            raise MlaotError(f"op '{node.op.name}' has no batching rule")
        else:
            values[node] = node.op.batch(node, args, flags, dim), True
    for name, node in graph.outputs.items():
        value, batched = values[node.find()]
        new.outputs[name] = value if batched else lift(value, dim)
    return new
