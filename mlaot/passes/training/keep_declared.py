"""Keep a copy of each entry as it was derived, which the oracle evaluates, also for golden vectors.

    module.graphs["forward"]    =>    module.graphs["forward"], module.declared["forward"]

The pass is bit-exact, as it does not change the entries themselves.
"""

from __future__ import annotations

from mlaot.ir.module import Module
from mlaot.passes.base import pass_over
from mlaot.passes.training.entries import copy_into


@pass_over("module", after=("entries", "index_ranges"))
def keep_declared(module: Module) -> None:
    """Copy the entries, and note the parameters and the state that they read."""
    for name, graph in module.graphs.items():
        roots = [node.find() for node in (*graph.outputs.values(), *graph.writes.values())]
        copy, copies = copy_into(graph, roots, name, keep=graph.inputs)
        copy.outputs = {key: copies[node.find()] for key, node in graph.outputs.items()}
        copy.writes = {key: copies[node.find()] for key, node in graph.writes.items()}
        module.declared[name] = copy
    module.declared_slots = module.slots
