"""A tape of numbered records, each a value and its parents, with gradients by the rules of the ops.

``mlaot.eager`` calls them ``Trace`` and ``Node``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from mlaot.errors import MlaotError, did_you_mean
from mlaot.evaluate import evaluate
from mlaot.frontend.trace.declaration import Declaration, Traced
from mlaot.ir import Graph, Node, Type
from mlaot.ir.types import BY_NUMPY
from mlaot.ops import OPS
from mlaot.transforms.differentiate import pullback

T = TypeVar("T")
Array = np.ndarray[Any, Any]
VJP = Callable[[Array], Iterable[tuple[int, Array]]]


@dataclass(frozen=True, eq=False)
class Record:
    """A value and its parents. ``vjp`` computes the cotangents of the parents; an op has its own.

    A record without parents is a leaf. A record without op and ``vjp`` passes no gradient on.
    """

    value: Array
    parents_id: tuple[int, ...] = ()
    vjp: VJP | None = None
    op: str = ""
    attrs: Mapping[str, Any] = field(default_factory=dict)


class Tape:
    """Records by number, in the order in which they were pushed; ``params_id`` are the trained leaves."""

    def __init__(self) -> None:
        self.nodes: list[Record] = []
        self.params_id: list[int] = []

    def __len__(self) -> int:
        return len(self.nodes)

    def push(self, node: Record) -> int:
        """Append a record after its parents, and return its number."""
        if any(not 0 <= parent < len(self.nodes) for parent in node.parents_id):
            raise MlaotError(f"push: expected parents among the {len(self)} nodes so far, got {list(node.parents_id)}")
        self.nodes.append(node)
        return len(self.nodes) - 1

    def input(self, value: Any) -> int:
        """Push a leaf."""
        return self.push(Record(np.asarray(value)))

    def param(self, value: Any) -> int:
        """Push a leaf that is trained."""
        self.params_id.append(self.input(value))
        return self.params_id[-1]

    def apply(self, op: str, *parents: int, **attrs: Any) -> int:
        """Push the op ``op`` of ``mlaot.ops.OPS``, applied to earlier nodes."""
        if op not in OPS:
            raise MlaotError(f"there is no op {op!r}{did_you_mean(op, OPS)}")
        values = [self.get_tensor(i) for i in parents]
        OPS[op].type_rule(*map(_type, values), **attrs)
        return self.push(Record(reference(op, values, attrs), parents, None, op, attrs))

    def get_tensor(self, node: int) -> Array:
        """Return the value of a node."""
        if not 0 <= node < len(self.nodes):
            raise MlaotError(f"expected a node out of 0..{len(self) - 1}, got {node}")
        return self.nodes[node].value

    def order(self, root: int) -> list[int]:
        """Return the nodes that ``root`` needs, ``root`` first, each before its parents."""
        return topological_sort(root, lambda i: self.nodes[i].parents_id, key=lambda i: i)[::-1]

    def vjp(self, node: int, cotangent: Array) -> list[tuple[int, Array]]:
        """Return the cotangents of the parents of ``node`` from its own. A parent that is used twice has two."""
        record = self.nodes[node]
        if record.vjp is not None:
            return list(record.vjp(cotangent))
        if not record.op:
            return []
        values = [self.get_tensor(i) for i in record.parents_id]
        graph = _vjp_graph(record.op, tuple(map(_type, values)), tuple(record.attrs.items()))
        inputs = {str(i): value for i, value in enumerate(values)} | {"cotangent": cotangent}
        return [(record.parents_id[int(i)], part) for i, part in evaluate(graph, inputs).items()]

    def backward(self, root: int) -> dict[int, Array]:
        """Return the gradient of the sum of ``root`` with respect to each node that it depends on."""
        order = self.order(root)
        gradients = {i: np.zeros_like(self.get_tensor(i)) for i in order}
        gradients[root] = np.ones_like(self.get_tensor(root))
        for i in order:
            for parent, part in self.vjp(i, gradients[i]):
                gradients[parent] = gradients[parent] + part
        return gradients

    def graph(self, root: int) -> Graph:
        """Convert the nodes that ``root`` depends on to a graph of the compiler; leaf 3 is its input ``x3``."""
        graph = Graph("model")
        nodes: dict[int, Node] = {}
        for i in sorted(self.order(root)):
            node = self.nodes[i]
            if node.op:
                nodes[i] = graph.add(OPS[node.op], [nodes[parent] for parent in node.parents_id], node.attrs)
            elif node.parents_id:
                raise MlaotError(f"node {i} was pushed with a vjp of its own and is no op; only ops can be compiled")
            else:
                notes = {"parameter": True} if i in self.params_id else {}
                nodes[i] = graph.input(f"x{i}", _type(node.value), **notes)
        graph.outputs = {"out": nodes[root]}
        return graph

    def declare(self, root: int) -> Declaration:
        """Declare a model with the output ``root``.

        If there are parameters, ``root`` must be a scalar and is the loss.
        """

        def traced() -> Traced:
            graph = self.graph(root)
            parameters = {f"x{i}": self.get_tensor(i) for i in self.params_id if f"x{i}" in graph.inputs}
            if parameters:
                graph.outputs["loss"] = graph.outputs["out"]
            arguments = tuple(name for name in graph.inputs if name not in parameters)
            return Traced(graph, parameters, per_example=False, arguments=arguments)

        return Declaration(traced)


def _type(value: Array) -> Type:
    return Type(BY_NUMPY[str(value.dtype)], value.shape)


def reference(op: str, values: Sequence[Array], attrs: Mapping[str, Any]) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(OPS[op].reference(*values, **attrs))


@lru_cache(maxsize=1024)
def _vjp_graph(op: str, types: tuple[Type, ...], attrs: tuple[tuple[str, Any], ...]) -> Graph:
    """Return the graph of an op's VJP, from arguments and a cotangent to the arguments' cotangents."""
    graph = Graph(op)
    arguments = [graph.input(str(i), type_) for i, type_ in enumerate(types)]
    out = graph.add(OPS[op], arguments, dict(attrs))
    cotangents = pullback([out], [graph.input("cotangent", out.type)], arguments)
    graph.outputs = {str(i): node for i, node in enumerate(cotangents) if node is not None}
    return graph


def topological_sort(start: T, children: Callable[[T], Iterable[T]], key: Callable[[T], Hashable] = id) -> list[T]:
    """Return everything that ``start`` reaches, each once, children first and ``start`` last, without recursion."""
    order: list[T] = []
    visited = {key(start)}
    stack = [(start, iter(children(start)))]
    while stack:
        node, rest = stack[-1]
        child = next((c for c in rest if key(c) not in visited), None)
        if child is None:
            order.append(node)
            stack.pop()
        else:
            visited.add(key(child))
            stack.append((child, iter(children(child))))
    return order
