"""Upcast float16 and bfloat16: store in 16 bits, compute in float32, and round after every op. Bit-exact.

    v2 = mul(v0, v1) : f16[4]           v2 = cast(v0) : f32[4]
    v3 = add(v2, v0) : f16[4]    =>     v3 = cast(v1) : f32[4]
                                        v4 = round_f16(mul(v2, v3)) : f32[4]
                                        v5 = cast(add(v4, v2)) : f16[4]

Computed values are float32, but each op rounds them to a number that 16 bits can hold, as the cast that stores them
does. So no result depends on which values are stored. Sums and contractions accumulate in float32 and round once. Ops
that only move values remain in 16 bits, unless they are between two computations. Repeated or padded values are upcast
before they are repeated or padded.
"""

from __future__ import annotations

from typing import Any

from mlaot.ir import DType, Graph, Node, TupleType
from mlaot.ir.types import bf16, f16, f32
from mlaot.ops import elementwise as ew
from mlaot.ops import structure as st
from mlaot.ops.bits import bitcast
from mlaot.ops.comparison import where
from mlaot.ops.control import result
from mlaot.ops.indexing import scatter
from mlaot.ops.rounding import round_bf16, round_f16
from mlaot.passes.base import pass_over

NARROW = {f16: round_f16, bf16: round_bf16}
LOOKS = (st.broadcast, st.transpose, st.reshape, st.slice_, st.window, st.pad)


@pass_over("graphs", after=("entries", "port_dtypes"))
def upcast(graph: Graph) -> None:
    """Rewrite arithmetic on float16 and bfloat16 to float32, rounded after each op."""
    wide: dict[Node, Node] = {}  # the float32 value of each narrow node
    for node in graph.nodes():
        if isinstance(node.type, TupleType) or not (_is_arithmetic(node) or _is_choice(node, wide)):
            continue
        args = [_upcast(a.find(), wide) for a in node.args]
        attrs = {k: f32 if _is_narrow(v) and node.op is not ew.cast else v for k, v in node.attrs.items()}
        result = graph.add(node.op, args, attrs)
        if node.type.dtype in NARROW:
            narrow = ew.cast(result, dtype=node.type.dtype)
            graph.forward(node, narrow)
            exact = node.op.exact and node.attrs.get("mode") != "add"
            wide[narrow] = result if exact else NARROW[node.type.dtype](result)
        else:
            graph.forward(node, result)


def _is_arithmetic(node: Node) -> bool:
    if node.op.moves or node.op in (st.const, st.input_, ew.cast, bitcast, where, result):
        return False
    if node.op is scatter and node.attrs["mode"] == "set":
        return False
    types = [node.type, *(a.find().type for a in node.args)]
    return not any(isinstance(t, TupleType) for t in types) and any(_is_narrow(t.dtype) for t in types)


def _is_narrow(value: Any) -> bool:
    return isinstance(value, DType) and value in NARROW


def _is_choice(node: Node, wide: dict[Node, Node]) -> bool:
    """Tell whether a node selects between values of which one was computed."""
    return node.op is where and node.type.dtype in NARROW and any(_base(a.find()) in wide for a in node.args)


def _base(node: Node) -> Node:
    """Return the value behind views."""
    while node.op in LOOKS:
        node = node.arg(0)
    return node


def _upcast(node: Node, wide: dict[Node, Node]) -> Node:
    """Return the float32 value of a node; views of computed values are upcast below the view."""
    if node in wide:
        return wide[node]
    if node.type.dtype not in NARROW:
        return node
    if node.op in LOOKS and (node.op is not st.slice_ or _base(node) in wide):
        args = [_upcast(a.find(), wide) for a in node.args]
        return wide.setdefault(node, node.graph.add(node.op, args, node.attrs))
    return wide.setdefault(node, ew.cast(node, dtype=f32))
