"""Batch a model that is declared on one example: its arrays get the first axis ``batch``. Bit-exact.

    model:                                      model:
    v0 = input(name=x) : f32[64]                v0 = input(name=x) : f32[batch,64]
    v1 = contract(v0, w) : f32[10]        =>    v1 = contract(v0, w) : f32[batch,10]

A graph without inputs has no batch. Training in microbatches uses a separate graph with a batch of fixed size, and
training on one example at a time a graph without a batch.
"""

from __future__ import annotations

from mlaot.frontend.trace.declaration import Traced
from mlaot.ir import Graph, dim, topological
from mlaot.ir.module import FIT_STEP, Module
from mlaot.passes.base import pass_over
from mlaot.passes.training import delayed_updates, microbatch
from mlaot.schedule.tuning import EXAMPLES_TILE
from mlaot.transforms.batch import batch


@pass_over("declaration", after=("raise_tensors", "split_parameters"))
def add_batch(module: Module, traced: Traced) -> None:
    """Batch every graph of a model that is declared on one example."""
    module.per_example = traced.per_example and any(_arguments(module, graph) for graph in module.graphs.values())
    if module.per_example:
        training = module.graphs.get("training", module.graphs["model"])
        has_tiles = module.trains and microbatch.fits(training)
        tiles = {"tile": batch(training, EXAMPLES_TILE, module.slots)} if has_tiles else {}
        ones = {FIT_STEP: training} if module.trains and delayed_updates.fits(training) else {}
        single = () if traced.arguments else _single_results(module, module.graphs["model"])
        batched = {
            name: batch(graph, dim("batch"), module.slots, single) if _arguments(module, graph) else graph
            for name, graph in module.graphs.items()
        }
        module.graphs = batched | tiles | ones


def _arguments(module: Module, graph: Graph) -> list[str]:
    """Return the inputs of a graph that a caller passes."""
    return [name for name in graph.inputs if name not in module.slots]


def _single_results(module: Module, model: Graph) -> list[str]:
    """Return the results that do not depend on inputs, if all are such: ``forward`` then takes no inputs."""
    results = {name: node.find() for name, node in model.outputs.items() if name != "loss"}
    nodes = set(topological(results.values()))
    return [] if any(model.inputs[name] in nodes for name in _arguments(module, model)) else list(results)
