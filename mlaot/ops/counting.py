"""Ops for dims that are counted while a model runs (``mlaot/ir/counts.py``).

    count(x, dim, most)               x, from which a dim of the graph gets its value
    counted(x, *operands; body)       body(operands) -> results, computed when the dim is known

``counted`` is what lowering makes of all that waits for a count: no other graph has one.
"""

from __future__ import annotations

from typing import Any

from mlaot.errors import MlaotError
from mlaot.ir import Dim, Node, Subgraph, TupleType, Type
from mlaot.ir.counts import COUNT
from mlaot.ir.types import i64
from mlaot.ops.base import Array, Op, no_gradient
from mlaot.ops.nests.target import Target


def _count_type(x: Type, dim: Dim, most: Dim) -> Type:
    if x != Type(i64):
        raise MlaotError(f"a dimension is counted by i64[], got {x}")
    return x


def _count_nest(t: Target) -> Any:
    return (t.store_part((), t.read(0, ())),)


count: Op = Op(
    COUNT,
    _count_type,
    lambda x, dim, most: x,
    no_gradient,
    nest=_count_nest,
    doc="x, which a named dim of the graph is from there on",
)


def _counted_type(x: Type, *types: Type, body: Subgraph, dim: Dim, most: Dim, needs: tuple[Dim, ...]) -> TupleType:
    if types != body.inputs:
        raise MlaotError(f"counted: expected operands {body.inputs}, got {types}")
    return TupleType(body.outputs)


def _no_reference(*_: Array, **__: Any) -> Array:
    raise AssertionError("bug in mlaot: a lowered graph is evaluated")


counted: Op = Op(
    "counted",
    _counted_type,  # type: ignore[arg-type]
    _no_reference,
    doc="a subgraph once a named dim is counted, unless that is too large",
)


def counted_body(node: Node) -> Subgraph:
    """Return what a node ``counted`` computes."""
    body: Subgraph = node.attrs["body"]
    return body
