"""Make bfloat16 arguments and results of entries float32, as bfloat16 has no buffer format. Bit-exact.

v0 = input(name=x) : bf16[4]    =>    v0 = input(name=x) : f32[4]
                                      v1 = cast(v0) : bf16[4]
"""

from __future__ import annotations

from mlaot.ir import Graph, Type
from mlaot.ir.types import bf16, f32
from mlaot.ops import elementwise as ew
from mlaot.passes.base import pass_over


@pass_over("entries", after=("entries", "keep_declared"))
def port_dtypes(graph: Graph) -> None:
    """Make bfloat16 arguments and results float32."""
    inputs, graph.inputs = graph.inputs, {}  # made anew, so that their order stays
    for name, node in inputs.items():
        if node.type.dtype is not bf16 or node.attrs.get("parameter"):
            graph.inputs[name] = node
            continue
        attrs = {k: v for k, v in node.attrs.items() if k not in ("name", "type")}
        graph.forward(node, ew.cast(graph.input(name, Type(f32, node.type.shape), **attrs), dtype=bf16))
    for name, node in graph.outputs.items():
        if node.find().type.dtype is bf16:
            graph.outputs[name] = ew.cast(node.find(), dtype=f32)
