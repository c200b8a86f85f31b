"""The oracle: run a graph with the NumPy references, in float64 where asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mlaot.ir import Graph, Node
from mlaot.ir import dims as dims_
from mlaot.ir.types import f64
from mlaot.ops.base import Array
from mlaot.ops.elementwise import cast


def evaluate(graph: Graph, inputs: Mapping[str, Any], *, wide: bool = False) -> dict[str, Array]:
    """Every output and write of ``graph`` by name, for ``inputs`` by name.

    With ``wide`` every floating-point value is computed in float64, whatever its type says: the yardstick for errors.
    """
    values: dict[Node, Array] = {}
    known: dict[str, int] = {}
    for name, node in graph.inputs.items():
        if name not in inputs:
            continue
        value = np.asarray(inputs[name])
        assert value.ndim == node.type.rank, f"{name}: expected {node.type}, got shape {value.shape}"
        values[node] = value.astype(_dtype(node, wide))
        for size, d in zip(value.shape, node.type.shape, strict=True):
            if not isinstance(d, int):
                for only in dims_.names(d):
                    known.setdefault(only, size)
    with np.errstate(all="ignore"):
        for node in graph.nodes():
            if node in values:
                continue
            attrs = {k: _concrete(k, v, known) for k, v in node.attrs.items()}
            if wide and node.op is cast and node.type.dtype.kind == "f":
                attrs["dtype"] = f64
            result = node.op.reference(*[values[a.find()] for a in node.args], **attrs)
            values[node] = np.asarray(result).astype(_dtype(node, wide))
    roots = {**graph.outputs, **{f"write {k}": v for k, v in graph.writes.items()}}
    return {name: values[node.find()] for name, node in roots.items()}


def _dtype(node: Node, wide: bool) -> str:
    return "float64" if wide and node.type.dtype.kind == "f" else node.type.dtype.numpy


def _concrete(key: str, value: Any, known: Mapping[str, int]) -> Any:
    if key == "shape":
        return tuple(dims_.substitute(d, known) for d in value)
    return dims_.substitute(value, known) if key == "dim" else value
