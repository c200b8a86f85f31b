"""Drop weights that nothing reads after other weights were computed from them at build time. Bit-exact.

v0 = input(name=w) : f32[64,10]
v1 = input(name=folded0) : f32[64,10]    =>    v1 = input(name=folded0) : f32[64,10]
v2 = contract(x, v1)                           v2 = contract(x, v1)
"""

from __future__ import annotations

from mlaot.ir.module import Module
from mlaot.passes.base import pass_over


@pass_over("module", after=("one_hot_gather", "freeze", "blocked_layout", "quantize", "winograd", "split_gates"))
def unused_weights(module: Module) -> None:
    """Drop unread weights from the inputs of every entry of a module with frozen weights."""
    for graph in module.graphs.values() if module.is_frozen else ():
        kept = {*graph.nodes(), *[graph.inputs[name] for name in graph.writes]}
        graph.inputs = {k: node for k, node in graph.inputs.items() if k not in module.slots or node.find() in kept}
