"""Trace a function into a graph of its own: for gradients, ``vmap`` and control flow.

``trace_function(f, types)`` calls ``f`` with a traced array of each type. Values of the enclosing trace that ``f`` uses
are ``captured``: they become inputs of the new graph, before the arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlaot.evaluate import evaluate
from mlaot.frontend.trace import tree
from mlaot.frontend.trace.context import Tap, Trace, current, tracing
from mlaot.frontend.trace.promotion import as_node
from mlaot.frontend.trace.taps import record
from mlaot.frontend.trace.tensor import Tensor
from mlaot.ir import Graph, Node, Type
from mlaot.ir.subgraph import inline


@dataclass
class Subtrace:
    """A traced function.

    The inputs of ``graph`` are ``captured`` (values of the enclosing graph), then the arguments. Its outputs ``"0"``,
    ``"1"``.. are the leaves of ``structure``, then the new values of the buffers ``writes``, then the ``taps``.
    """

    graph: Graph
    structure: Any
    captured: tuple[Node, ...]
    arguments: tuple[Node, ...]
    trace: Trace
    writes: tuple[str, ...] = ()
    taps: tuple[Tap, ...] = ()

    def taking(self, captured: Sequence[Node]) -> Graph:
        """Return the graph with exactly the inputs ``captured`` before the arguments.

        ``captured`` is a superset of the values that the graph itself captures.
        """
        for outer in captured:
            if outer not in self.trace.captured:
                name = f"captured{len(self.trace.captured)}"
                self.trace.captured[outer] = self.graph.input(name, outer.type)
        self.captured = tuple(captured)
        inner = [self.trace.captured[outer] for outer in captured]
        self.graph.inputs = {node.attrs["name"]: node for node in (*inner, *self.arguments)}
        return self.graph

    @property
    def types(self) -> tuple[Type, ...]:
        """Return the types of the outputs."""
        return tuple(node.find().type for node in self.graph.outputs.values())


def subtrace(
    function: Callable[..., Any], types: Sequence[Type], name: str = "body", *, read_only: str = ""
) -> Subtrace:
    """Trace ``function`` of arrays of ``types`` into a graph. ``read_only`` says why it cannot write buffers, if so."""
    parent = current()
    trace = Trace(Graph(name), parent, read_only=read_only, temporary=True)
    if parent is not None:
        trace.graph.origin, trace.graph.locate = parent.graph.origin, parent.graph.locate
    arguments = tuple(trace.graph.input(f"argument{i}", t) for i, t in enumerate(types))
    with tracing(trace):
        leaves, structure = tree.flatten(function(*map(Tensor, arguments)))
        trace.graph.outputs = {str(i): as_node(leaf) for i, leaf in enumerate(leaves)}
    trace.graph.outputs |= {f"write {name}": node for name, node in trace.writes.items()}
    trace.graph.outputs |= {f"tap {tap.name}": node for tap, node in trace.taps.items()}
    traced = Subtrace(trace.graph, structure, (), arguments, trace, tuple(trace.writes), tuple(trace.taps))
    if parent is not None:
        traced.taking(tuple(trace.captured))
    return traced


def call(traced: Subtrace, arguments: Sequence[Any]) -> list[Any]:
    """Compute the outputs of ``traced`` for ``arguments``: in the current trace, or at once if there is none."""
    trace = current()
    if trace is None:
        inputs = {f"argument{i}": np.asarray(a) for i, a in enumerate(arguments)}
        inputs |= {name: held.array for name, held in traced.trace.held.items()}
        results: list[Any] = [value[()] for value in evaluate(traced.graph, inputs).values()]
    else:
        nodes = [*[trace.local(n) for n in traced.captured], *map(as_node, arguments)]
        results = [Tensor(node) for node in inline(traced.graph, nodes, trace.graph)]
    tapped = len(results) - len(traced.taps)
    outputs = tapped - len(traced.writes)
    for name, value in zip(traced.writes, results[outputs:tapped], strict=True):
        traced.trace.root.held[name].assign(value)
    for tap, value in zip(traced.taps, results[tapped:], strict=True):
        if trace is not None:
            record(trace, tap, value)
    return results[:outputs]
