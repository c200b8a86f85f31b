"""Run a pass over the subgraphs of a graph's control flow, then over the graph.

v2 = scan(v0, v1, body=<body: 9 nodes>)    =>    v2 = scan(v0, v1, body=<body: 7 nodes>)
"""

from __future__ import annotations

from collections.abc import Callable

from mlaot.ir import Graph, Subgraph
from mlaot.ir.subgraph import subgraphs


def everywhere(graph_pass: Callable[[Graph], None], graph: Graph) -> None:
    """Run ``graph_pass`` on copies of the subgraphs, then on ``graph``."""
    for node in graph.nodes():
        bodies = subgraphs(node.attrs)
        if bodies:
            better = {name: _run_on_copy(graph_pass, body) for name, body in bodies.items()}
            graph.forward(node, graph.add(node.op, node.args, {**node.attrs, **better}))
    graph_pass(graph)


def _run_on_copy(graph_pass: Callable[[Graph], None], body: Subgraph) -> Subgraph:
    copy = body.copy()
    everywhere(graph_pass, copy)
    return Subgraph(copy)
