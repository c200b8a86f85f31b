"""An optimizer's step, a Python function of arrays, traced into a graph."""

from __future__ import annotations

from collections.abc import Mapping

from mlaot.frontend.trace.context import Trace, tracing
from mlaot.frontend.trace.declaration import Optimizer
from mlaot.frontend.trace.promotion import as_node
from mlaot.frontend.trace.tensor import Tensor
from mlaot.ir import Graph, Node

Nodes = Mapping[str, Node]


def update_traced(
    optimizer: Optimizer, graph: Graph, parameters: Nodes, gradients: Nodes, state: Nodes, rate: Node
) -> tuple[dict[str, Node], dict[str, Node]]:
    """Return the new parameters and the new state, as nodes of ``graph``."""

    def tensors(nodes: Nodes) -> dict[str, Tensor]:
        return {name: Tensor(node) for name, node in nodes.items()}

    with tracing(Trace(graph)):
        arguments = (tensors(parameters), tensors(gradients), tensors(state), Tensor(rate))
        updated, kept = optimizer.update(*arguments)
        return {k: as_node(v) for k, v in updated.items()}, {k: as_node(v) for k, v in kept.items()}
