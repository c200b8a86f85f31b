"""Trace a function of arrays and evaluate its graph: what the tests of this folder compare with NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mlaot.evaluate import evaluate
from mlaot.frontend.trace import tree
from mlaot.frontend.trace.context import Trace, tracing
from mlaot.frontend.trace.promotion import as_node
from mlaot.frontend.trace.tensor import Tensor
from mlaot.ir import Graph, Type, verify
from mlaot.ir.types import BY_NUMPY

Array = np.ndarray[Any, Any]


def graph_of(function: Callable[..., Any], *types: Type) -> tuple[Graph, Any]:
    """The graph of ``function`` for arguments of ``types``, and the structure of its result."""
    trace = Trace(Graph("test"), temporary=True)
    with tracing(trace):
        arguments = [Tensor(trace.graph.input(f"x{i}", t)) for i, t in enumerate(types)]
        leaves, structure = tree.flatten(function(*arguments))
        trace.graph.outputs = {str(i): as_node(leaf) for i, leaf in enumerate(leaves)}
    verify(trace.graph, "tracing")
    return trace.graph, structure


def run(function: Callable[..., Any], *arrays: Any, types: tuple[Type, ...] = ()) -> Any:
    """``function`` of ``arrays`` by way of its graph. ``types``: others than those of the arrays, with named dims."""
    found = types or tuple(Type(BY_NUMPY[str(np.asarray(a).dtype)], np.shape(a)) for a in arrays)
    graph, structure = graph_of(function, *found)
    return tree.unflatten(structure, list(evaluate(graph, {f"x{i}": a for i, a in enumerate(arrays)}).values()))


def assert_same(function: Callable[..., Any], *arrays: Any, rtol: float = 0, types: tuple[Type, ...] = ()) -> None:
    """Traced and evaluated, ``function`` gives what it gives by NumPy: dtype, shape and values."""
    with np.errstate(all="ignore"):
        expected = tree.flatten(function(*arrays))[0]
    found = tree.flatten(run(function, *arrays, types=types))[0]
    assert len(found) == len(expected)
    for f, e in zip(found, expected, strict=True):
        e = np.asarray(e)
        assert (f.dtype, f.shape) == (e.dtype, e.shape), f"{f.dtype}{f.shape}, expected {e.dtype}{e.shape}"
        default = {"float16": 2e-3, "float32": 1e-5, "float64": 1e-13}.get(str(e.dtype), 0)
        np.testing.assert_allclose(f, e, rtol=rtol or default, atol=default and default / 4)
