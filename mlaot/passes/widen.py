"""float16 and bfloat16 are stored narrow and computed in float32. Changes results: fewer roundings than asked for.

    v2 = mul(v0, v1) : f16[4]           v2 = cast(v0) : f32[4]
    v3 = add(v2, v0) : f16[4]    =>     v3 = cast(v1) : f32[4]
                                        v4 = mul(v2, v3) : f32[4]
                                        v5 = add(v4, v2) : f32[4]
                                        v6 = cast(v5) : f16[4]

What is computed is handed on in float32; it is rounded where it is stored, moved, or cast by the model itself, and
before it is compared: a maximum is then equal to the element that it is. Ops that only move values leave them narrow,
unless what they move was computed and is computed with; what is repeated or padded is widened before that.
"""

from __future__ import annotations

from mlaot.ir import Graph, Node, TupleType, Type
from mlaot.ir.types import bf16, f16, f32
from mlaot.ops import elementwise as ew
from mlaot.ops.comparison import where
from mlaot.ops.kinds import is_view

NARROW = (f16, bf16)
COMPARING = (
    *("is_equal", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
    *("argmax", "argmin", "argsort", "step", "sign"),
)
MOVES = ("copy", "cast", "bitcast", "where", "take", "stack", "concat", "reshape", "pad", "gather", "const", "input")
LOOKS = ("broadcast", "transpose", "reshape", "slice", "window", "pad")


def widen(graph: Graph) -> None:
    """Rewrite arithmetic on float16 and bfloat16."""
    wide: dict[Node, Node] = {}  # what a narrow node was before it was rounded
    for node in graph.nodes():
        if isinstance(node.type, TupleType) or not (_is_arithmetic(node) or _is_choice(node, wide)):
            continue
        known = {} if node.op.name in COMPARING else wide
        args = [_widened(a.find(), known) for a in node.args]
        attrs = {k: f32 if v in NARROW else v for k, v in node.attrs.items()} if node.op.name != "cast" else node.attrs
        result = graph.add(node.op, args, attrs)
        if node.type.dtype in NARROW:
            narrow = ew.cast(result, dtype=node.type.dtype)
            graph.forward(node, narrow)
            wide[narrow] = result
        else:
            graph.forward(node, result)


def widen_ports(graph: Graph) -> None:
    """bfloat16 arguments and results of an entry are float32 there: no buffer format is known for them.

    v0 = input(name=x) : bf16[4]    =>    v0 = input(name=x) : f32[4]
                                          v1 = cast(v0) : bf16[4]
    """
    given, graph.inputs = graph.inputs, {}  # made anew, so that their order stays
    for name, node in given.items():
        if node.type.dtype is not bf16 or node.attrs.get("parameter"):
            graph.inputs[name] = node
            continue
        attrs = {k: v for k, v in node.attrs.items() if k not in ("name", "type")}
        graph.forward(node, ew.cast(graph.input(name, Type(f32, node.type.shape), **attrs), dtype=bf16))
    for name, node in graph.outputs.items():
        if node.find().type.dtype is bf16:
            graph.outputs[name] = ew.cast(node.find(), dtype=f32)


def _is_arithmetic(node: Node) -> bool:
    if is_view(node) or node.op.name in MOVES or node.op.name == "result":
        return False
    if node.op.name == "scatter" and node.attrs["mode"] == "set":
        return False
    types = [node.type, *(a.find().type for a in node.args)]
    return any(getattr(t, "dtype", None) in NARROW for t in types) and not any(isinstance(t, TupleType) for t in types)


def _is_choice(node: Node, wide: dict[Node, Node]) -> bool:
    """Whether a node chooses among values of which one was computed."""
    return node.op is where and node.type.dtype in NARROW and any(_base(a.find()) in wide for a in node.args)


def _base(node: Node) -> Node:
    """What views look at."""
    while node.op.name in LOOKS:
        node = node.arg(0)
    return node


def _widened(node: Node, wide: dict[Node, Node]) -> Node:
    if node in wide:
        return wide[node]
    if node.type.dtype not in NARROW:
        return node
    if node.op.name in LOOKS and (node.op.name != "slice" or _base(node) in wide):
        args = [_widened(a.find(), wide) for a in node.args]
        return wide.setdefault(node, node.graph.add(node.op, args, node.attrs))
    return wide.setdefault(node, ew.cast(node, dtype=f32))
