"""The passes.

The docstring of each file shows a graph before and after, and ``PIPELINE`` has the order of the passes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from mlaot import stages
from mlaot.errors import MlaotError, VariableError, did_you_mean
from mlaot.frontend.trace.declaration import Traced
from mlaot.frontend.trace.sample import arrays
from mlaot.ir import Graph, dim, verify
from mlaot.ir.dims import nominal
from mlaot.ir.module import INTERMEDIATES, PHASES, Module
from mlaot.ir.text import text
from mlaot.passes.algebra.canonical_order import canonical_order
from mlaot.passes.algebra.causal_blocks import causal_blocks
from mlaot.passes.algebra.common_factors import common_factors
from mlaot.passes.algebra.concat_products import concat_products
from mlaot.passes.algebra.dead_code import dead_code
from mlaot.passes.algebra.egraph import egraph
from mlaot.passes.algebra.fold_constants import fold_constants
from mlaot.passes.algebra.hoist_invariants import hoist_invariants
from mlaot.passes.algebra.index_ranges import index_ranges
from mlaot.passes.algebra.legalize import legalize
from mlaot.passes.algebra.nested_choices import nested_choices
from mlaot.passes.algebra.pairwise import pairwise
from mlaot.passes.algebra.port_dtypes import port_dtypes
from mlaot.passes.algebra.products_of_parts import products_of_parts
from mlaot.passes.algebra.quotient_gradients import quotient_gradients
from mlaot.passes.algebra.reciprocal import reciprocal
from mlaot.passes.algebra.simplify import simplify
from mlaot.passes.algebra.softplus import softplus
from mlaot.passes.algebra.sorted_values import sorted_values
from mlaot.passes.algebra.sparse_products import sparse_products
from mlaot.passes.algebra.sums_of_parts import sums_of_parts
from mlaot.passes.algebra.transposed_convolution import transposed_convolution
from mlaot.passes.algebra.upcast import upcast
from mlaot.passes.base import Pass, check_order
from mlaot.passes.frozen.freeze import freeze
from mlaot.passes.frozen.group_weights import group_weights
from mlaot.passes.frozen.half_weights import half_weights
from mlaot.passes.frozen.one_hot_gather import one_hot_gather
from mlaot.passes.frozen.quantize import quantize
from mlaot.passes.frozen.split_gates import split_gates
from mlaot.passes.frozen.unused_weights import unused_weights
from mlaot.passes.frozen.winograd import winograd
from mlaot.passes.layout.batch_innermost import batch_innermost
from mlaot.passes.layout.blocked_layout import blocked_layout
from mlaot.passes.layout.gapless_inputs import gapless_inputs
from mlaot.passes.layout.sink_reshapes import sink_reshapes
from mlaot.passes.layout.split_batches import split_batches
from mlaot.passes.layout.spread_convolution import spread_convolution
from mlaot.passes.layout.transposed_gather import transposed_gather
from mlaot.passes.layout.transposed_operands import transposed_operands
from mlaot.passes.layout.widen_groups import widen_groups
from mlaot.passes.layout.widened_operands import widened_operands
from mlaot.passes.raising.add_batch import add_batch
from mlaot.passes.raising.batch_texts import batch_texts
from mlaot.passes.raising.contract import contract
from mlaot.passes.raising.flatten_sums import flatten_sums
from mlaot.passes.raising.raise_tensors import raise_tensors
from mlaot.passes.raising.roll_chains import roll_chains
from mlaot.passes.raising.shaped_constants import shaped_constants
from mlaot.passes.raising.split_parameters import split_parameters
from mlaot.passes.training.delayed_updates import delayed_updates
from mlaot.passes.training.entries import copy_into, entries
from mlaot.passes.training.keep_declared import keep_declared
from mlaot.passes.training.remove_barriers import remove_barriers
from mlaot.passes.training.unroll_windows import unroll_windows
from mlaot.settings.options import DEFAULTS, Options

Passes = tuple[Pass[...], ...]
LOWERING = "lower"  # the stage that makes a program of the graphs

# From scalars, if the model has them, to a graph of tensors with a batch dimension and contractions.
RAISING: Passes = (
    *(simplify, flatten_sums, roll_chains, raise_tensors, shaped_constants, split_parameters, egraph, simplify),
    fold_constants,
    *(add_batch, reciprocal, softplus, contract),
    *(products_of_parts, hoist_invariants, simplify, canonical_order),
)
# From the graph of a model to the entries of its module; gradients are derived here.
ENTRIES: Passes = (entries, batch_texts, index_ranges, keep_declared, remove_barriers, dead_code, port_dtypes, upcast)
# Products in the form that kernels compute best, whatever they are products of. Gradients bring new ones.
PRODUCTS: Passes = (
    *(egraph, nested_choices, sums_of_parts, contract, pairwise, hoist_invariants, dead_code, transposed_convolution),
    contract,
    *(concat_products, split_batches, sink_reshapes, contract, transposed_operands, causal_blocks, sparse_products),
    *(quotient_gradients, common_factors),
)
# Values that depend on constants and weights are computed at build; weights are laid out as kernels read them.
FROZEN: Passes = (
    *(one_hot_gather, freeze, widen_groups, sink_reshapes, blocked_layout, spread_convolution, transposed_gather),
    *(reciprocal, fold_constants, simplify, canonical_order, sorted_values, quantize, winograd, split_gates),
    unused_weights,
)
# Training on a few examples at a time.
TRAINING: Passes = (delayed_updates, unroll_windows, batch_innermost)
# The forms that lowering expects.
LEGAL: Passes = (gapless_inputs, legalize, group_weights, half_weights, widened_operands)
PIPELINE: Passes = (*RAISING, *ENTRIES, *PRODUCTS, *FROZEN, *TRAINING, *LEGAL)

# Passes over the graph that is declared, before there are entries.
BEFORE_ENTRIES = (
    flatten_sums,
    roll_chains,
    raise_tensors,
    shaped_constants,
    split_parameters,
    add_batch,
    entries,
    batch_texts,
)


Watch = Callable[[str, Module], None]  # what is called after each pass


def unwatched(step: str, module: Module) -> None:
    """Watch nothing."""


def run(
    name: str,
    traced: Traced,
    options: Options = DEFAULTS,
    *,
    sample: Any = None,
    watch: Watch = unwatched,
) -> Module:
    """Run ``PIPELINE`` on a traced model, and verify graphs after each pass.

    ``sample`` has inputs of ``forward``, from which ranges are measured. ``watch`` is called with the name of each pass
    and the module after it. ``MLAOT_DUMP=<pass>`` (or ``all``) prints the graphs after that pass.
    """
    check_order(PIPELINE)
    module, printed = declare_module(name, traced, options, sample), stages_to_print()

    def look(step: str) -> None:
        for graph in module.graphs.values():
            verify(graph, step)
            if step in printed:
                print(f"# after {step}\n{text(graph)}\n", file=sys.stderr)
        watch(step, module)

    look("trace")
    with stages.stage(stages.PASSES, len(PIPELINE)) as advance:
        for step in PIPELINE:
            advance(step.name)
            step.run(module, traced)
            look(step.name)
    return module


def declare_module(name: str, traced: Traced, options: Options, sample: Any) -> Module:
    """Return the module of a traced model before the first pass."""
    if traced.constants and not options.frozen:
        raise MlaotError(f"{name}: lora keeps the model's own weights as they are; leave out the key 'frozen'")
    graphs = {"model": traced.graph, **({"training": traced.training} if traced.training else {}), **traced.entries}
    if options.intermediates:
        graphs[INTERMEDIATES] = _intermediates(traced)
    module = Module(
        name,
        graphs,
        traced.parameters | traced.constants,
        traced.trains,
        traced.learning_rate,
        per_example=traced.per_example,
        info={**traced.info, **({"file_names": dict(traced.file_names)} if traced.file_names else {})},
        state=dict(traced.buffers),
        docs=dict(traced.docs),
        refusals=traced.refusals,
        dicts=traced.dicts | {INTERMEDIATES} | ({PHASES} if "forward" in traced.dicts else set()),
        options=options,
        generation=traced.generation,
        adapters=frozenset(traced.parameters) if traced.constants else frozenset(),
        labels=traced.labels,
        steps=traced.steps,
    )
    if sample is not None:
        lead = (dim("batch"),) if traced.per_example else ()
        types = {name: traced.graph.inputs[name].type for name in traced.arguments}
        module.sample = arrays(sample, {name: t.with_shape((*lead, *t.shape)) for name, t in types.items()})
    return module


def _intermediates(traced: Traced) -> Graph:
    """Make the entry that returns the values that the model's function has tapped. It writes no state."""
    if not traced.taps:
        raise MlaotError("intermediates = true, but the model has none; name some by mlaot.tap(name, array)")
    if INTERMEDIATES in traced.entries:
        raise MlaotError(f"with intermediates = true no entry can be called {INTERMEDIATES!r}; rename it")
    taps = {name: node.find() for name, node in traced.taps.items()}
    graph, copies = copy_into(traced.graph, taps.values(), INTERMEDIATES, keep=traced.arguments)
    graph.outputs = {name: copies[node] for name, node in taps.items()}
    return graph


def names() -> list[str]:
    """List the passes in the order in which they run first."""
    return list(dict.fromkeys(step.name for step in PIPELINE))


def stages_to_print() -> set[str]:
    """Return the stages that ``MLAOT_DUMP`` asks to print: one by its name, or all passes."""
    every = {"trace", *names()}
    variable = os.environ.get("MLAOT_DUMP", "")
    if variable not in ("", "all", LOWERING, *every):
        hint = _hint(variable, ["all", "trace", *names(), LOWERING])
        raise VariableError(f"the environment variable MLAOT_DUMP is {variable!r}, which is no pass{hint}")
    return every if variable == "all" else {variable} - {""}


def _hint(name: str, candidates: list[str]) -> str:
    """Return a hint: a name that is similar to a name, or all names."""
    return did_you_mean(name, candidates) or f"; they are {', '.join(candidates)}"


def run_one(name: str, graph: Graph) -> dict[str, Graph]:
    """Run one pass on a single graph, whose parameters are random numbers, and return the resulting graphs.

    Inputs with the note ``parameter`` are frozen weights, and the other inputs are those of the model.
    """
    step = next((step for step in PIPELINE if step.name == name), None)
    if step is None:
        raise MlaotError(f"there is no pass {name!r}{_hint(name, [*names(), LOWERING])}")
    module, traced = module_of(graph, "model" if step in BEFORE_ENTRIES else graph.name)
    step.run(module, traced)
    for result in module.graphs.values():
        verify(result, name)
    return module.graphs


def module_of(graph: Graph, entry: str) -> tuple[Module, Traced]:
    """Return a module of one graph with random parameters, and a traced model that it could come from."""
    types = {key: node.type for key, node in graph.inputs.items() if node.attrs.get("parameter")}
    numbers = np.random.default_rng(0)
    parameters = {
        key: type_.dtype.array(numbers.standard_normal([nominal(d) for d in type_.shape]))
        for key, type_ in types.items()
    }
    arguments = tuple(key for key in graph.inputs if key not in types)
    traced = Traced(graph, parameters, per_example=False, arguments=arguments, counts={"": len(graph.nodes())})
    module = Module(
        "text", {entry: graph}, dict(parameters), traced.trains, options=Options(fast_division=True, egraph=True)
    )
    verify(graph, "reading")
    return module, traced
