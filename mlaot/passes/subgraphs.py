"""Rewrite the subgraphs of a graph's control flow, by a pass over each subgraph, or as a loop with its operands.

v2 = scan(v0, v1, body=<body: 9 nodes>)    =>    v2 = scan(v0, v1, body=<body: 7 nodes>)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mlaot.ir import Graph, Node, Subgraph
from mlaot.ir.subgraph import inline, subgraphs
from mlaot.ops.control import results, scan


def everywhere(graph_pass: Callable[[Graph], None], graph: Graph) -> None:
    """Run ``graph_pass`` on copies of the subgraphs, then on ``graph``."""
    for node in graph.nodes():
        bodies = subgraphs(node.attrs)
        if bodies:
            better = {name: rewritten(graph_pass, body) for name, body in bodies.items()}
            graph.forward(node, graph.add(node.op, node.args, {**node.attrs, **better}))
    graph_pass(graph)


def rewritten(graph_pass: Callable[[Graph], None], body: Subgraph) -> Subgraph:
    """Apply ``graph_pass`` to a copy of a subgraph, after the subgraphs inside of it, and return the result."""
    copy = body.copy()
    everywhere(graph_pass, copy)
    return Subgraph(copy)


@dataclass(frozen=True)
class Loop:
    """A scan to rewrite: ``body`` is a copy, and ``consts`` and ``others`` have the operand of each of its inputs."""

    node: Node
    body: Graph
    consts: dict[Node, Node]
    others: dict[Node, Node]

    @classmethod
    def of(cls, node: Node) -> Loop:
        """Copy the body of a scan."""
        body, consts = node.attrs["body"].copy(), node.attrs["consts"]
        pairs = list(zip(body.inputs.values(), [a.find() for a in node.args], strict=True))
        return cls(node, body, dict(pairs[:consts]), dict(pairs[consts:]))

    def add(self, operand: Node) -> Node:
        """Add a constant, and return its input in the body."""
        new = self.body.input(f"c{len(self.body.inputs)}", operand.type)
        self.consts[new] = operand
        return new

    def rounds(self, nodes: Sequence[Node]) -> list[Node]:
        """Return nodes of the body, each stacked over all rounds, in the graph around the loop."""
        whole, types = Graph(self.body.name), [n.type for n in self.body.inputs.values()]
        whole.inputs = self.body.inputs
        whole.outputs = {**self.body.outputs, **{f"s{i}": n for i, n in enumerate(nodes)}}
        body = Subgraph.of(whole.name, types, lambda to, args: inline(whole, args, to))
        operands = (*self.consts.values(), *self.others.values())
        stacked = results(self.node.graph.add(scan, operands, {**self.node.attrs, "body": body}))
        return stacked[len(self.body.outputs) :]

    def rebuild(self) -> Node:
        """Return the scan with the current body, without constants that it no longer reads."""
        read = set(self.body.nodes())
        consts = {n: a for n, a in self.consts.items() if n in read}
        operands = {**consts, **self.others}
        self.body.inputs = {f"a{i}": n for i, n in enumerate(operands)}
        types = [n.type for n in operands]
        body = Subgraph.of(self.body.name, types, lambda to, args: inline(self.body, args, to))
        return self.node.graph.add(scan, operands.values(), {**self.node.attrs, "body": body, "consts": len(consts)})
