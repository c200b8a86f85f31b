"""Mark inputs that are arrays of callers, whose rows have no gaps between them. Bit-exact.

    v0 = input(name=x) : f32[4,28,28]                      v0 = input(name=x, gapless=True) : f32[4,28,28]
    v1 = reshape(v0, shape=(4, 784)) : f32[4,784]    =>    v1 = reshape(v0, shape=(4, 784)) : f32[4,784]

A reshape that merges axes of such an input is then a view, which copies nothing. Weights and values that kernels
compute have padded rows, and an argument of a subgraph may be a part of such a value.
"""

from __future__ import annotations

from mlaot.ir.module import Module
from mlaot.ops import structure as st
from mlaot.ops.kinds import merges
from mlaot.passes.base import pass_over


@pass_over("module", after=("freeze", "quantize", "unused_weights", "delayed_updates"))
def gapless_inputs(module: Module) -> None:
    """Mark the inputs of every entry that are not slots, and whose axes a reshape merges."""
    for graph in module.graphs.values():
        merged = {node.arg(0) for node in graph.nodes() if node.op is st.reshape and merges(node)}
        for name, node in graph.inputs.items():
            if name not in module.slots and node in merged:
                graph.inputs[name] = graph.add(node.op, (), {**node.attrs, "gapless": True})
                graph.forward(node, graph.inputs[name])
