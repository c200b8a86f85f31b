"""Check the invariants of a graph after every pass. A failure is a bug in mlaot, and names the pass."""

from __future__ import annotations

from mlaot.ir.graph import Graph, Node
from mlaot.ir.subgraph import subgraphs


def verify(graph: Graph, after: str) -> None:
    """Assert that a graph and its subgraphs are valid.

    The graph must be acyclic, also through ``forwarded``. Each type must be the result of the op's type rule, and all
    nodes must belong to the graph.
    """
    where = f"bug in mlaot: after {after}, graph {graph.name}"
    for root in (*graph.outputs.values(), *graph.writes.values()):
        _check_links(root, where)
    seen: set[Node] = set()
    for node in graph.nodes():
        assert node.graph is graph, f"{where}: {node} belongs to another graph"
        for a in node.args:
            if a.forwarded is not None:
                _check_links(a, where)
                a = a.find()
            assert a in seen, f"{where}: {node} uses {a} before it is made (a cycle)"
        seen.add(node)
        if node not in graph.verified:
            expected = node.op.type_rule(*[a.find().type for a in node.args], **node.attrs)
            assert node.type is expected or node.type == expected, f"{where}: {node} should be {expected}"
            for inner in subgraphs(node.attrs).values():
                verify(inner.graph, f"{after}, in graph {graph.name}")
            graph.verified.add(node)
    for slot, value in graph.writes.items():
        target = graph.inputs.get(slot)
        assert target is not None, f"{where}: a write to {slot!r}, which is no input"
        assert target.type == value.find().type, f"{where}: {value.find()} is written to {slot!r}, a {target.type}"


def _check_links(node: Node, where: str) -> None:
    seen = {node}
    while node.forwarded is not None:
        node = node.forwarded
        assert node not in seen, f"{where}: a cycle through forwarded at {node}"
        seen.add(node)
