"""Golden vectors: the results that a module's functions must return on any machine, computed by the oracle in float64.

Inputs are those of a sample, or generated from a seed, the same in Python and in C, and exact in their dtype. A module
contains the elements of each output, or ``SUMS`` sums of them if there are more, and a bound of their errors. The bound
is not measured on compiled code. It is a multiple of the larger of two errors. One is the error of the optimized graph
when NumPy evaluates it in the model's own dtypes. The other is the change of the answers when inputs and weights change
by one rounding. Of several calls, the one is chosen whose answers depend on most weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlaot.binding.extents import MEANS
from mlaot.binding.methods import HIDDEN
from mlaot.errors import MlaotError
from mlaot.evaluate import evaluate
from mlaot.ir import Graph
from mlaot.ir.module import Module
from mlaot.ir.ports import SUMS, Port, numbers, signed_sums
from mlaot.ir.types import DTYPES
from mlaot.lower.program import Entry, ExtensionModule, Golden
from mlaot.ops.base import Array
from mlaot.passes.training.entries import copy_into
from mlaot.report.candidates import LIGHT, MAX_OPERATIONS, Draws, candidates, cost
from mlaot.report.sizes import SINGLE, Sizes
from mlaot.stages import GOLDEN, stage
from mlaot.transforms.batch import draws

MARGIN = 8  # times the error of NumPy's arithmetic: other orders of sums, fused multiply-adds, own functions
ROUNDINGS = 32  # epsilons of the largest element, in case NumPy's own error happens to be small
EPSILONS = {"f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}
CEILING = 2.0**-4  # the largest bound, as a share of the largest answer: of more nothing can be proven
EVALUATIONS = 5  # of an entry, where answers cannot be compared, or others may tell more
CHOOSING = MAX_OPERATIONS // 16  # operations that it may take to find out which call tells most
PLANTED = 64  # rows of each array of weights that are made wrong to find out
MOST_MOVED = 1 << 24  # elements of a weight that is moved, as more would take too much memory


def golden_vectors(module: Module, lowered: ExtensionModule) -> tuple[tuple[Golden, ...], str]:
    """Return golden vectors of each function that can be replayed, from the graphs that ``module`` was optimized from.

    For any other function, return the reason.
    """
    if module.options.unchecked:
        return (), module.options.unchecked
    vectors: list[Golden] = []
    reasons: list[str] = []
    with stage(GOLDEN, len(lowered.entries)) as advance:
        for entry in lowered.entries:
            advance(entry.name)
            graph = module.declared.get(entry.name)
            if graph is None or not entry.results or entry.name in HIDDEN:
                continue
            # Gradients exist only after another call.
            if not graph.inputs.keys() <= module.declared_slots.keys() | {port.name for port in entry.inputs}:
                continue
            made = _golden_calls(entry, graph, module, lowered.dims)
            if isinstance(made, str):
                reasons.append(f"{entry.name} {made}")
            else:
                vectors += made
    return tuple(vectors), "" if vectors else next(iter(reasons), "no function gives answers of its inputs alone")


@dataclass(frozen=True)
class Answers:
    """The answers of a call: declared, exact, rounded, and with inputs and weights changed by one rounding.

    ``declared`` and ``exact`` differ if weights are stored in fewer bits. For long calls the last answers are None.
    """

    declared: Mapping[str, Any]
    exact: Mapping[str, Any]
    rounded: Mapping[str, Any]
    moved: Mapping[str, Any] | None


def _golden_calls(entry: Entry, graph: Graph, module: Module, dims: tuple[str, ...]) -> list[Golden] | str:
    """Compute the entry's answers for some values of its dims and inputs, or return the reason why there are none."""
    if any(map(draws, graph.nodes())):
        return "draws random numbers"
    reason, evaluations, spent = "", 0, 0
    found: list[tuple[Golden, Array]] = []
    refusal = _refusal_graph(entry, graph)
    for sizes, drawn in candidates(entry, graph, module, dims):
        if found and found[0][0].dims != tuple(sizes[name] for name in dims):
            continue
        try:
            inputs = call_inputs(entry, sizes, drawn)
            if refusal and (refused := _refused(entry, evaluate(refusal, module.declared_slots | inputs, dims=sizes))):
                reason = reason or f"refuses generated inputs: {refused}"
                continue
            operations = cost(entry, graph, sizes)
            evaluations, spent = evaluations + 1, spent + operations
            answers = _answers(entry, graph, module, inputs, sizes, moves=operations <= MAX_OPERATIONS)
        except (MlaotError, ValueError, IndexError) as error:  # the sizes of these dims do not fit
            reason = reason or ("" if dims else " ".join(str(error).split()))
        else:
            refused = _refused(entry, answers.exact) or _refused(entry, answers.rounded)
            unusable = f"refuses generated inputs: {refused}" if refused else _unusable(entry, answers)
            if unusable:
                reason = unusable
            else:
                made = _golden(entry, sizes, dims, drawn, answers, quantized=bool(module.quantized))
                others = _wrong_weights(graph, module, EVALUATIONS * operations)
                found.append((made, _shown(entry, graph, {**module.declared_slots, **inputs}, sizes, made, others)))
                is_known = bool(found[0][1].size)  # else two are taken
                if operations > LIGHT or entry.name in MEANS or (found[-1][1].all() if is_known else found[1:]):
                    break
        if evaluations == EVALUATIONS or spent > MAX_OPERATIONS:
            break
    if found:
        return _most_telling(found)
    return reason or f"fits no sizes of {' and '.join(dims)} up to {SINGLE[-1]:,} that were tried; give a `sample`"


def _wrong_weights(graph: Graph, module: Module, operations: int) -> list[tuple[str, Array]] | None:
    """List arrays of weights with one row set to zero, as many as there is time to evaluate; None without weights."""
    rng = np.random.default_rng(0)
    named = {name: np.atleast_1d(array) for name, array in module.declared_slots.items() if name in graph.inputs}
    floats = {name: array for name, array in named.items() if array.dtype.kind == "f" and np.any(array)}
    if not floats:
        return None
    rows = min(PLANTED, CHOOSING // (operations * len(floats)))
    used = {name: np.flatnonzero(array.reshape(len(array), -1).any(axis=1)) for name, array in floats.items()}
    return [(name, _without(floats[name], i)) for name in floats for i in rng.permutation(used[name])[:rows]]


def _without(array: Array, row: int) -> Array:
    """Return an array with one row set to zero, which has no effect on answers if nothing activates the row."""
    wrong = array.copy()
    wrong[row] = 0
    return wrong


def _shown(
    entry: Entry,
    graph: Graph,
    slots: Mapping[str, Any],
    sizes: Sizes,
    made: Golden,
    others: Iterable[tuple[str, Array]] | None,
) -> Array:
    """Return for each array of wrong weights whether the answers change; for None, that everything is detected."""
    if others is None:
        return np.ones(1, bool)
    shown: list[bool] = []
    for name, wrong in others:
        wrong = wrong.reshape(np.shape(slots[name]))
        answers = evaluate(graph, {**slots, name: wrong}, wide=True, dims=sizes)
        pairs = zip(entry.results, made.outputs, strict=True)
        shown.append(any((np.abs(signed_sums(answers[port.name]) - sums) > b).any() for port, (b, *sums) in pairs))
    return np.array(shown, bool)


def _most_telling(found: Sequence[tuple[Golden, Array]]) -> list[Golden]:
    """Return the call that detects most wrong weights, then further calls as long as they detect more.

    If there are no wrong weights to detect, return two calls.
    """
    seen = np.zeros_like(found[0][1])
    if not seen.size:
        return [made for made, _ in found[:2]]
    chosen: list[Golden] = []
    while True:
        made, shown = max(found, key=lambda pair: int((pair[1] & ~seen).sum()))
        if chosen and not (shown & ~seen).any():
            return chosen
        chosen.append(made)
        seen |= shown


def call_inputs(entry: Entry, sizes: Sizes, drawn: Draws) -> dict[str, Any]:
    """Return the inputs of a call by name."""
    pairs = zip(entry.inputs, drawn, strict=True)
    return {port.name: numbers(port, number, sizes, draw) for number, (port, draw) in enumerate(pairs)}


def _answers(
    entry: Entry, graph: Graph, module: Module, inputs: Mapping[str, Any], sizes: Sizes, *, moves: bool
) -> Answers:
    """Evaluate a call."""
    exact = declared = evaluate(graph, {**module.declared_slots, **inputs}, wide=True, dims=sizes)
    rounded = evaluate(module.graphs[entry.name], {**module.slots, **inputs}, dims=sizes)
    compiled, slots = graph, module.declared_slots
    if module.narrow or module.grouped or module.quantized:  # the reference is the model with its rounded weights
        compiled, slots = module.graphs[entry.name], module.slots
        exact = evaluate(compiled, {**slots, **inputs}, wide=True, dims=sizes)
    moved = evaluate(compiled, _moved(compiled, {**slots, **inputs}), wide=True, dims=sizes) if moves else None
    return Answers(declared, exact, rounded, moved)


def _moved(graph: Graph, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs of a graph with each number changed up or down by one rounding of its dtype."""
    rng = np.random.default_rng(0)
    moved: dict[str, Any] = {}
    for name in graph.inputs.keys() & arrays.keys():
        moved[name] = array = np.asarray(arrays[name])
    for name in sorted(moved):
        array, dtype = moved[name], graph.inputs[name].type.dtype.name
        if dtype in EPSILONS and array.size <= MOST_MOVED:
            signs = rng.integers(0, 2, array.shape) * 2 - 1
            moved[name] = array.astype(np.float64) * (1 + signs * (EPSILONS[dtype] / 2))
    return moved


def _golden(
    entry: Entry, sizes: Sizes, dims: tuple[str, ...], drawn: Draws, answers: Answers, *, quantized: bool
) -> Golden:
    """Return the vector of the answers to a call."""
    # A number near the midpoint of two bytes may be rounded to either, which moves answers far less than quantization
    # does.
    names = [port.name for port in entry.results]
    spare = {
        name: 2 * _largest_difference(answers.declared[name], answers.exact[name]) if quantized else 0.0
        for name in names
    }
    outputs = tuple(
        (_bound(answers, port) + spare[port.name], *map(float, signed_sums(answers.exact[port.name])))
        for port in entry.results
    )
    largest = tuple(_largest(answers.exact[name]) for name in names)
    drift = max(_drift(answers.declared[name], answers.exact[name]) for name in names)
    return Golden(entry.name, tuple(sizes[name] for name in dims), drawn, outputs, largest, drift)


def _refusal_graph(entry: Entry, graph: Graph) -> Graph | None:
    """Return the part of the graph that computes whether inputs are invalid, or None."""
    if not entry.refusals:
        return None
    hidden = {port.name: graph.outputs[port.name].find() for port in entry.outputs[len(entry.results) :]}
    part, copies = copy_into(graph, hidden.values(), entry.name, keep=graph.inputs)
    part.outputs = {name: copies[node] for name, node in hidden.items()}
    return part


def _refused(entry: Entry, answers: Mapping[str, Any]) -> str:
    """Return the reason why inputs are invalid, if they are."""
    number = int(answers[entry.outputs[-1].name]) if entry.refusals else 0
    return entry.refusals[number - 1] if number else ""


def _unusable(entry: Entry, answers: Answers) -> str:
    """Return the reason why answers cannot be compared, if they cannot."""
    every = [found for found in (answers.exact, answers.rounded, answers.moved) if found is not None]
    if not any(np.size(answers.exact[port.name]) for port in entry.results):
        return "gives nothing for generated inputs"
    for port in entry.results:
        exact, *others = (np.asarray(found[port.name]) for found in every)
        if not all(np.isfinite(found).all() for found in (exact, *others)):
            return f"gives numbers that are not finite for generated inputs ({port.name})"
        if DTYPES[port.dtype].kind != "f":
            if any((exact != other).any() for other in others):
                return f"gives integers that a rounding decides ({port.name})"
        elif (spread := _spread(answers, port.name)) > max(CEILING * _size(exact), _least_bound(exact, port)):
            return f"amplifies rounding: {port.name} may be off by {100 * spread / _size(exact):.2g} % of its size"
    return ""


def _drift(declared: Any, exact: Any) -> float:
    """Return the largest change of an output's elements, relative to the largest element."""
    largest = np.abs(np.asarray(declared, np.float64)).max(initial=0)
    return _largest_difference(declared, exact) / float(max(largest, np.finfo(float).tiny))


def _largest_difference(array: Any, other: Any) -> float:
    """Return the largest difference of elements."""
    return _largest(np.asarray(array, np.float64) - np.asarray(other, np.float64))


def _largest(array: Any) -> float:
    """Return the largest element, of any sign."""
    return float(np.abs(np.asarray(array, np.float64)).max(initial=0))


def _bound(answers: Answers, port: Port) -> float:
    """Return the bound of the errors of an output's sums."""
    if port.dtype not in EPSILONS:
        return 0.0
    return _spread(answers, port.name) + _least_bound(answers.exact[port.name], port)


def _spread(answers: Answers, name: str) -> float:
    """Return the bound of the errors of an output's sums that follows from the effect of rounding."""
    sums = signed_sums(answers.exact[name])
    error = _largest(signed_sums(answers.rounded[name]) - sums)
    moved = 2 * error if answers.moved is None else _largest(signed_sums(answers.moved[name]) - sums)
    return MARGIN * max(error, moved)


def _least_bound(exact: Array, port: Port) -> float:
    """Return the least bound of the errors of an output's sums."""
    return ROUNDINGS * EPSILONS[port.dtype] * _size(exact)


def _size(exact: Array) -> float:
    """Return the size of an output's sums, estimated from its largest element, as addends have random signs."""
    return float(np.sqrt(-(-np.size(exact) // SUMS))) * _largest(exact)
