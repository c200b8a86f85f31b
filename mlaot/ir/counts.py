"""Counted dims: named dims that a value of the graph determines by an op ``count``, and no shape of an input.

    v1 = count(v0, dim=found, most=n) : i64[]
    v2 = iota(shape=(found), ..) : i64[found]      computed once v1 is
    return y=v2, found_=v1

A node that has the dim in its type or its attributes depends on the count as if it were an argument. Each count is an
output of the graph, so that no pass drops it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mlaot.errors import MlaotError
from mlaot.ir.dims import Dim, Expr, largest, names
from mlaot.ir.graph import Graph, Node
from mlaot.ir.subgraph import Subgraph
from mlaot.ir.types import TupleType, Type

COUNT = "count"  # the op that notes a counted dim


@dataclass(frozen=True)
class Count:
    """A counted dim: its ``name``, its bound ``most`` in dims that are known before, and the ``node``."""

    name: str
    most: Dim
    node: Node


def counts(graph: Graph) -> list[Count]:
    """List the counted dims of a graph, each after the dims that its count depends on."""
    found = {}
    for node in map(Node.find, graph.outputs.values()):
        if node.op.name == COUNT:
            (name,) = names(node.attrs["dim"])
            found[name] = Count(name, node.attrs["most"], node)
    waiting, ordered = dict(found), list[Count]()
    needs = _needs(graph, found.keys()) if found else {}
    while waiting:
        known = {count.name for count in ordered}
        ready = next((c for c in waiting.values() if needs[c.node] | names(c.most) & found.keys() <= known), None)
        if ready is None:
            raise MlaotError(f"the lengths {' and '.join(waiting)} cannot be counted, as each depends on the others")
        ordered.append(waiting.pop(ready.name))
    return ordered


def most_of(counted: Iterable[Count]) -> dict[str, Dim]:
    """Return the bound of each counted dim in other dims."""
    most: dict[str, Dim] = {}
    for count in counted:
        most[count.name] = largest(count.most, most)
    return most


def levels(graph: Graph, counted: Iterable[Count]) -> dict[Node, int]:
    """Return for each node the number of dims, in their order, that must be counted before it can be computed."""
    number = {count.name: i for i, count in enumerate(counted, 1)}
    return {
        node: max((number[name] for name in needs), default=0) for node, needs in _needs(graph, number.keys()).items()
    }


def _needs(graph: Graph, counted: Iterable[str]) -> dict[Node, frozenset[str]]:
    """Return the counted dims that each node depends on, directly or by an argument.

    A count does not depend on its own dim.
    """
    wanted, needs = frozenset(counted), dict[Node, frozenset[str]]()
    for node in graph.nodes():
        own = frozenset() if node.op.name == COUNT else dims_in((node.type, *node.attrs.values())) & wanted
        needs[node] = own.union(*[needs[a.find()] for a in node.args])
    return needs


def dims_in(value: Any) -> frozenset[str]:
    """Return the named dims in an attribute of a node, or in a type."""
    if isinstance(value, Expr):
        return value.names
    if isinstance(value, Type):
        return dims_in(value.shape)
    if isinstance(value, TupleType):
        return dims_in(value.items)
    if isinstance(value, tuple):
        return frozenset().union(*map(dims_in, value))
    if isinstance(value, Subgraph):
        return frozenset().union(*[dims_in((node.type, *node.attrs.values())) for node in value.graph.nodes()])
    return frozenset()
