"""Copies of graphs with other names or values of dims."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlaot.ir.dims import Dim, Expr, assign
from mlaot.ir.graph import Graph, Node
from mlaot.ir.subgraph import Subgraph
from mlaot.ir.types import TupleType, Type


def rename_dims(value: Any, dims: Mapping[str, Dim]) -> Any:
    """Replace dims in an attribute of a node by other names or values."""
    if isinstance(value, Expr):
        return assign(value, dims)
    if isinstance(value, Type):
        return value.with_shape(rename_dims(value.shape, dims))
    if isinstance(value, TupleType):
        return TupleType(rename_dims(value.items, dims))
    if isinstance(value, tuple):
        return tuple(rename_dims(each, dims) for each in value)
    if isinstance(value, Subgraph):
        return Subgraph(copy_graph(value.graph, dims))
    return value


def copy_graph(graph: Graph, dims: Mapping[str, Dim]) -> Graph:
    """Copy a graph with dims replaced by other names or values."""
    new = Graph(graph.name)
    copies: dict[Node, Node] = {}
    for key, node in graph.inputs.items():
        notes = {note: value for note, value in node.attrs.items() if note not in ("name", "type")}
        copies[node] = new.input(key, rename_dims(node.type, dims), **notes)
    for node in graph.nodes():
        if node not in copies:
            attrs = {key: rename_dims(value, dims) for key, value in node.attrs.items()}
            copies[node] = new.copy(node, [copies[a.find()] for a in node.args], attrs)
    new.outputs = {key: copies[node.find()] for key, node in graph.outputs.items()}
    new.writes = {key: copies[node.find()] for key, node in graph.writes.items()}
    return new
