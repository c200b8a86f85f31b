"""Ops for dims that are counted while a model runs (``mlaot/ir/counts.py``).

    count(x, dim, most)               x, from which a dim of the graph gets its value
    counted(x, *operands; body)       body(operands) -> results, computed when the dim is known

Only lowering makes ``counted``, of all nodes that depend on a count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlaot.errors import MlaotError
from mlaot.ir import Dim, Node, Subgraph, TupleType, Type
from mlaot.ir.counts import COUNT
from mlaot.ir.dims import names
from mlaot.ir.types import i64
from mlaot.ops.base import Op, no_gradient
from mlaot.ops.nests.target import Target


def _count_type(x: Type, dim: Dim, most: Dim) -> Type:
    if x != Type(i64):
        raise MlaotError(f"a dimension is counted by i64[], got {x}")
    return x


def _count_nest(t: Target) -> Any:
    return (t.store_part((), t.read(0, ())),)


def _batch_count(node: Node, args: Sequence[Node], batched: Sequence[bool], dim: Dim) -> Node:
    (length,) = names(node.attrs["dim"])
    raise MlaotError(f"{length} is counted from the data, and would differ between the examples of a batch")


count: Op = Op(
    COUNT,
    _count_type,
    lambda x, dim, most: x,
    no_gradient,
    batch=_batch_count,
    nest=_count_nest,
    doc="x, which a named dim of the graph is from there on",
)


def _counted_type(x: Type, *types: Type, body: Subgraph, dim: Dim, most: Dim, needs: tuple[Dim, ...]) -> TupleType:
    if types != body.inputs:
        raise MlaotError(f"counted: expected operands {body.inputs}, got {types}")
    return TupleType(body.outputs)


def _is_lowered(*_: Any, **__: Any) -> Any:
    raise AssertionError("bug in mlaot: a graph that is lowered is evaluated or transformed")


counted: Op = Op(
    "counted",
    _counted_type,  # type: ignore[arg-type]
    _is_lowered,
    no_gradient,
    batch=_is_lowered,
    doc="a subgraph once a named dim is counted, unless that is too large",
)
