"""A closed graph as an attribute of a node: the body of a loop, or a branch. Captured values are operands of the node.

Inputs and outputs are identified by position; their names mean nothing. Two subgraphs of equal structure, constants'
bits included, are equal, so that nodes with subgraphs are hash-consed like any other. The graph of a ``Subgraph`` never
changes: to rewrite it, rewrite its ``copy`` and make a new ``Subgraph``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from mlaot.ir.graph import Graph, Node
from mlaot.ir.types import Literal, Type


class Subgraph:
    """A ``graph`` that is compared by structure; ``inputs`` and ``outputs`` are its types."""

    __slots__ = ("graph", "inputs", "key", "outputs")

    def __init__(self, graph: Graph) -> None:
        assert not graph.writes, f"bug in mlaot: {graph.name} writes to a slot"
        self.graph = graph
        self.inputs = tuple(node.type for node in graph.inputs.values())
        self.outputs = tuple(node.find().type for node in graph.outputs.values())
        self.key = _digest(graph)

    @classmethod
    def of(cls, name: str, inputs: Sequence[Type], results: Callable[[Graph, list[Node]], Sequence[Node]]) -> Subgraph:
        """Return the subgraph of arguments of the types ``inputs`` with the outputs ``results(graph, arguments)``."""
        graph = Graph(name)
        arguments = [graph.input(f"a{i}", type_) for i, type_ in enumerate(inputs)]
        graph.outputs = {f"r{i}": node.find() for i, node in enumerate(results(graph, arguments))}
        return cls(graph)

    def inline(self, graph: Graph, args: Sequence[Node]) -> list[Node]:
        """Copy this subgraph into ``graph`` on ``args``; return its outputs."""
        return inline(self.graph, args, graph)

    def copy(self) -> Graph:
        """Return a copy of the graph, which may be rewritten."""
        return Subgraph.of(self.graph.name, self.inputs, self.inline).graph

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Subgraph) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"<{self.graph.name}: {len(self.graph.nodes())} nodes>"


def inline(graph: Graph, args: Sequence[Node], into: Graph) -> list[Node]:
    """Copy ``graph`` into ``into``, with ``args`` for its inputs in their order; return its outputs."""
    copies = dict(zip(graph.inputs.values(), args, strict=True))
    for node in graph.nodes():
        if node not in copies:
            copies[node] = into.copy(node, [copies[a.find()] for a in node.args])
    return [copies[node.find()] for node in graph.outputs.values()]


def subgraphs(attrs: Mapping[str, Any]) -> dict[str, Subgraph]:
    """Return the attributes that are subgraphs."""
    return {name: value for name, value in attrs.items() if isinstance(value, Subgraph)}


def _digest(graph: Graph) -> bytes:
    """Return a hash of the types of the inputs, the nodes in their order, and the positions of the outputs."""
    place = {node: i for i, node in enumerate(graph.inputs.values())}
    parts: list[object] = [str(node.type) for node in place]
    for node in graph.nodes():
        if node not in place:
            place[node] = len(place)
            attrs = [(k, v.key if isinstance(v, Literal | Subgraph) else str(v)) for k, v in node.attrs.items()]
            parts.append((node.op.name, attrs, [place[a.find()] for a in node.args]))
    parts.append([place[node.find()] for node in graph.outputs.values()])
    return blake2b(repr(parts).encode(), digest_size=16).digest()
