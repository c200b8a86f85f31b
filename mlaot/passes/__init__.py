"""The passes: a file each, with what they do before and after at their head. ``PIPELINE`` is their order."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from mlaot import stages
from mlaot.errors import MlaotError
from mlaot.frontend.trace.declaration import PARAMETERS, Traced
from mlaot.frontend.trace.sample import arrays
from mlaot.ir import Graph, dim, topological, verify
from mlaot.ir.dims import assumed
from mlaot.ir.module import FIT_STEP, INTERMEDIATES, Module
from mlaot.ir.text import text
from mlaot.passes.algebra import (
    canonical_order,
    causal_blocks,
    concat_products,
    dead_code,
    fold_constants,
    hoist_invariants,
    index_ranges,
    legalize,
    reciprocal,
    simplify,
    sparse_products,
    transposed_convolution,
    upcast,
)
from mlaot.passes.frozen import freeze, half_weights, one_hot_gather, quantize, split_gates, winograd
from mlaot.passes.layout import batch_innermost, blocked_layout, sink_reshapes, transposed_gather, transposed_operands
from mlaot.passes.raising import contract, flatten_sums, raise_tensors, split_parameters
from mlaot.passes.subgraphs import everywhere
from mlaot.passes.training import delayed_updates, entries, microbatch, remove_barriers, unroll_windows
from mlaot.schedule.tuning import EXAMPLES_TILE
from mlaot.settings import did_you_mean
from mlaot.transforms.batch import batch

Stage = Callable[[Module, Traced], None]


def each(graph_pass: Callable[[Graph], None]) -> Stage:
    """A pass over every graph of a module, subgraphs included."""

    def stage(module: Module, traced: Traced) -> None:
        for graph in module.graphs.values():
            everywhere(graph_pass, graph)

    return named(graph_pass.__name__, stage)


def of_scalars(graph_pass: Callable[[Graph], None]) -> Stage:
    """A pass over the graph of a scalar model."""

    def stage(module: Module, traced: Traced) -> None:
        if traced.counts:
            graph_pass(module.graphs["model"])

    return named(graph_pass.__name__, stage)


def whole(module_pass: Callable[[Module], None]) -> Stage:
    """A pass over a module at once."""

    def stage(module: Module, traced: Traced) -> None:
        module_pass(module)

    return named(module_pass.__name__, stage)


def named(name: str, stage: Stage) -> Stage:
    """A stage by the name that a user knows it by: that of its file."""
    stage.__name__ = name
    return stage


def split_scalars(module: Module, traced: Traced) -> None:
    """Parameters of a scalar model as the tensors in which they are read."""
    if not traced.named:
        return
    graph, flat = module.graphs["model"], module.parameters.pop(PARAMETERS)
    members = split_parameters.split_parameters(graph, PARAMETERS, traced.named)
    module.parameters |= {name: flat[ids] for name, ids in members.items()}
    place = {int(scalar): (name, i) for name, ids in members.items() for i, scalar in enumerate(np.ravel(ids))}
    module.scalars, module.named = tuple(place[i] for i in range(len(flat))), dict(traced.named)


def add_batch(module: Module, traced: Traced) -> None:
    """The dimension ``batch`` for a model declared on one example; what takes no inputs has no batch.

    Training in tiles, or on one example after the other, has a model of its own.
    """
    module.per_example = traced.per_example and any(_given(module, graph) for graph in module.graphs.values())
    if module.per_example:
        training = module.graphs.get("training", module.graphs["model"])
        tiled = module.trains and microbatch.fits(training)
        tiles = {"tile": batch(training, EXAMPLES_TILE, module.slots)} if tiled else {}
        ones = {FIT_STEP: training} if module.trains and delayed_updates.fits(training) else {}
        single = () if traced.arguments else _alone(module, module.graphs["model"])
        batched = {
            name: batch(graph, dim("batch"), module.slots, single) if _given(module, graph) else graph
            for name, graph in module.graphs.items()
        }
        module.graphs = batched | tiles | ones


def _given(module: Module, graph: Graph) -> list[str]:
    """The inputs of a graph that a caller gives."""
    return [name for name in graph.inputs if name not in module.slots]


def _alone(module: Module, model: Graph) -> list[str]:
    """The results of a model, where none of them depends on an input: its loss has some, ``forward`` takes none."""
    results = {name: node.find() for name, node in model.outputs.items() if name != "loss"}
    reached = set(topological(results.values()))
    return [] if any(model.inputs[name] in reached for name in _given(module, model)) else list(results)


def divide_fast(module: Module, traced: Traced) -> None:
    """Quotients of many numbers by one as products, where settings ask for it."""
    for graph in module.graphs.values() if module.fast_division else ():
        everywhere(reciprocal.reciprocal, graph)


def forget_weights(module: Module, traced: Traced) -> None:
    """Weights that only others were made of are not shipped."""
    for graph in module.graphs.values() if module.is_frozen else ():
        kept = {*graph.nodes(), *[graph.inputs[name] for name in graph.writes]}
        graph.inputs = {k: node for k, node in graph.inputs.items() if k not in module.slots or node.find() in kept}


def widen_ports(module: Module, traced: Traced) -> None:
    """Arguments and results of entries have dtypes that a caller can hand over."""
    for graph in module.graphs.values():
        upcast.widen_ports(graph)


def make_entries(module: Module, traced: Traced) -> None:
    """Entries of the module: forward, and what training needs."""
    entries.entries(module, traced.arguments, traced.optimizer)


def keep_declared(module: Module, traced: Traced) -> None:
    """Copies of the entries, for the oracle."""
    for name, graph in module.graphs.items():
        roots = [node.find() for node in (*graph.outputs.values(), *graph.writes.values())]
        copy, copies = entries.copy_into(graph, roots, name, keep=graph.inputs)
        copy.outputs = {key: copies[node.find()] for key, node in graph.outputs.items()}
        copy.writes = {key: copies[node.find()] for key, node in graph.writes.items()}
        module.declared[name] = copy
    module.declared_slots = module.slots


PIPELINE: tuple[Stage, ...] = (
    each(simplify.simplify),
    of_scalars(flatten_sums.flatten_sums),
    of_scalars(raise_tensors.raise_tensors),
    named("split_parameters", split_scalars),
    each(simplify.simplify),
    each(fold_constants.fold_constants),
    add_batch,
    named("reciprocal", divide_fast),
    each(contract.contract),
    each(hoist_invariants.hoist_invariants),
    each(simplify.simplify),
    each(canonical_order.canonical_order),
    named("entries", make_entries),
    index_ranges.index_ranges,
    keep_declared,
    each(remove_barriers.remove_barriers),
    each(dead_code.dead_code),
    widen_ports,
    each(upcast.upcast),
    each(contract.contract),
    each(hoist_invariants.hoist_invariants),
    each(dead_code.dead_code),
    each(transposed_convolution.transposed_convolution),
    each(contract.contract),
    each(concat_products.concat_products),
    each(sink_reshapes.sink_reshapes),
    each(contract.contract),
    each(transposed_operands.transposed_operands),
    each(causal_blocks.causal_blocks),
    each(sparse_products.sparse_products),
    whole(one_hot_gather.one_hot_gather),
    whole(freeze.freeze),
    whole(blocked_layout.blocked_layout),
    each(transposed_gather.transposed_gather),
    named("reciprocal", divide_fast),
    each(fold_constants.fold_constants),
    each(simplify.simplify),
    each(canonical_order.canonical_order),
    whole(quantize.quantize),
    whole(winograd.winograd),
    whole(split_gates.split_gates),
    forget_weights,
    whole(delayed_updates.delayed_updates),
    each(unroll_windows.unroll_windows),
    each(batch_innermost.batch_innermost),
    each(legalize.legalize),
    whole(half_weights.half_weights),
)

# Passes over the graph that is declared, before there are entries.
BEFORE_ENTRIES = ("flatten_sums", "raise_tensors", "split_parameters", "add_batch", "entries")

Report = list[tuple[str, dict[str, Counter[str]]]]


def run(
    name: str,
    traced: Traced,
    report: Report | None = None,
    *,
    winograd: str = "F2",
    fast_division: bool = False,
    frozen: bool = True,
    intermediates: bool = False,
    weights_dtype: str = "",
    quantize: str = "",
    sample: Any = None,
    watch: Callable[[str, Module], None] | None = None,
) -> Module:
    """Take a traced model through ``PIPELINE``; graphs are verified after each pass.

    ``MLAOT_DUMP=<pass>`` (or ``all``) prints the graphs after that pass on stderr. ``report`` collects node counts.
    ``winograd``, ``fast_division``, ``frozen``, ``intermediates``, ``weights_dtype`` and ``quantize`` are the settings
    of these names; ``sample``: what that of this name names. ``watch`` is called after each pass with its name.
    """
    graphs = {"model": traced.graph, **({"training": traced.training} if traced.training else {}), **traced.entries}
    if intermediates:
        graphs[INTERMEDIATES] = _tapped(traced)
    module = Module(name, graphs, dict(traced.parameters), traced.trains, traced.learning_rate)
    module.per_example, module.winograd, module.replaceable = traced.per_example, winograd, not frozen
    module.weights_dtype, module.quantize, module.fast_division = weights_dtype, quantize, fast_division
    if sample is not None:
        lead = (dim("batch"),) if traced.per_example else ()
        taken = {name: traced.graph.inputs[name].type for name in traced.arguments}
        module.sample = arrays(sample, {name: t.with_shape((*lead, *t.shape)) for name, t in taken.items()})
    module.state, module.docs = dict(traced.buffers), dict(traced.docs)
    module.refusals, module.info = traced.refusals, dict(traced.info)
    module.dicts = traced.dicts | {INTERMEDIATES} | ({"accumulate"} if "forward" in traced.dicts else set())
    if traced.file_names:
        module.info["file_names"] = dict(traced.file_names)
    printed = dumped()
    watch = watch or (lambda step, module: None)
    _observe("trace", module, printed, report)
    watch("trace", module)
    with stages.stage("passes") as rename:
        for step in PIPELINE:
            rename(f"pass {step.__name__}")
            step(module, traced)
            _observe(step.__name__, module, printed, report)
            watch(step.__name__, module)
    return module


def dumped() -> set[str]:
    """The stages after which ``MLAOT_DUMP`` wants the graphs or the program printed: one by its name, or all passes."""
    every = {"trace", *names()}
    wanted = os.environ.get("MLAOT_DUMP", "")
    if wanted not in ("", "all", LOWERING, *every):
        known = ["all", "trace", *names(), LOWERING]
        hint = did_you_mean(wanted, known) or f"; they are {', '.join(known)}"
        raise MlaotError(f"the environment variable MLAOT_DUMP is {wanted!r}, which is no pass{hint}")
    return every if wanted == "all" else {wanted} - {""}


LOWERING = "lower"  # what makes a program of the graphs


def names() -> list[str]:
    """The passes in the order in which they run first, by their files' names."""
    return list(dict.fromkeys(stage.__name__ for stage in PIPELINE))


def run_one(name: str, graph: Graph) -> dict[str, Graph]:
    """The graphs that a pass makes of one on its own, whose parameters are random numbers.

    Inputs that are parameters are so by their note, and frozen; the pass sees a model that takes the other inputs.
    """
    stages = [stage for stage in PIPELINE if stage.__name__ == name]
    if not stages:
        hint = did_you_mean(name, [*names(), LOWERING]) or f"; they are {', '.join([*names(), LOWERING])}"
        raise MlaotError(f"there is no pass {name!r}{hint}")
    module, traced = module_of(graph, "model" if name in BEFORE_ENTRIES else graph.name)
    stages[0](module, traced)
    for made in module.graphs.values():
        verify(made, name)
    return module.graphs


def module_of(graph: Graph, entry: str) -> tuple[Module, Traced]:
    """A module of a graph alone, whose parameters are random numbers, and what it would have been traced to."""
    held = {key: node.type for key, node in graph.inputs.items() if node.attrs.get("parameter")}
    numbers = np.random.default_rng(0)
    parameters = {
        key: type_.dtype.array(numbers.standard_normal([assumed(d) for d in type_.shape]))
        for key, type_ in held.items()
    }
    arguments = tuple(key for key in graph.inputs if key not in held)
    traced = Traced(graph, parameters, per_example=False, arguments=arguments, counts={"": len(graph.nodes())})
    module = Module("text", {entry: graph}, dict(parameters), traced.trains)
    module.fast_division = True
    verify(graph, "reading")
    return module, traced


def _tapped(traced: Traced) -> Graph:
    """The entry that gives what the model's function has tapped. It writes nothing."""
    if not traced.taps:
        raise MlaotError("intermediates = true, but the model has none; name some by mlaot.tap(name, array)")
    if INTERMEDIATES in traced.entries:
        raise MlaotError(f"with intermediates = true no entry can be called {INTERMEDIATES!r}; rename it")
    taps = {name: node.find() for name, node in traced.taps.items()}
    graph, copies = entries.copy_into(traced.graph, taps.values(), INTERMEDIATES, keep=traced.arguments)
    graph.outputs = {name: copies[node] for name, node in taps.items()}
    return graph


def _observe(stage: str, module: Module, printed: Collection[str], report: Report | None) -> None:
    for graph in module.graphs.values():
        verify(graph, stage)
        if stage in printed:
            print(f"# after {stage}\n{text(graph)}\n", file=sys.stderr)
    if report is not None:
        report.append((stage, {n: Counter(node.op.name for node in g.nodes()) for n, g in module.graphs.items()}))
