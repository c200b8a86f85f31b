"""Golden vectors: what a module's functions must return on any machine, computed by the oracle in float64.

Inputs are generated from a seed, the same in Python and in C, and exact in their dtype. So a module carries only some
elements of each output, and a bound on their errors. That bound is not measured on compiled code: it is a multiple of
the error of the optimized graph when NumPy evaluates it in the model's own dtypes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np

from mlaot.binding.methods import HIDDEN
from mlaot.errors import MlaotError
from mlaot.evaluate import evaluate, learn_dims
from mlaot.frontend.trace.declaration import Reference
from mlaot.ir import Dim, Graph, TupleType
from mlaot.ir.dims import names, parse, substitute
from mlaot.ir.module import SEEN, Module
from mlaot.ir.ports import Port, numbers
from mlaot.ir.types import DTYPES
from mlaot.lower.program import Entry, ExtensionModule, Golden
from mlaot.ops.base import conditions
from mlaot.passes.frozen.quantize import split_sample
from mlaot.passes.training.entries import copy_into
from mlaot.report.sizes import EQUAL, SINGLE, Sizes, fitting_sizes
from mlaot.transforms.batch import draws

SAMPLES = 32  # elements of an output that a golden vector keeps
MARGIN = 16  # times the error of NumPy's arithmetic: other orders of sums, fused multiply-adds, own functions
ROUNDINGS = 64  # epsilons of the largest element, in case NumPy's own error happens to be small
MAX_OPERATIONS = 2_000_000_000  # operations of all calls: NumPy takes seconds for more, the smallest call must do
TRIES = 100  # sizes of the dims whose inputs are made, of which an entry may refuse most
EVALUATIONS = 5  # of an entry, with other sizes where answers cannot be compared
ROUNDING_SHARE = 1e-2  # of the largest element: more than rounding in any dtype but float16 explains


def golden_vectors(module: Module, lowered: ExtensionModule) -> tuple[tuple[Golden, ...], str]:
    """Make a call of each function that can be replayed, by the graphs that ``module`` was optimized from.

    Where there is none, say why.
    """
    if module.options.unchecked:
        return (), module.options.unchecked
    vectors: list[Golden] = []
    reasons: list[str] = []
    for entry in lowered.entries:
        graph = module.declared.get(entry.name)
        if graph is None or not entry.results or entry.name in HIDDEN:
            continue
        # Gradients exist only after another call.
        if not graph.inputs.keys() <= module.declared_slots.keys() | {port.name for port in entry.inputs}:
            continue
        made = _golden_call(entry, graph, module, lowered.dims)
        if isinstance(made, str):
            reasons.append(f"{entry.name} {made}")
        else:
            vectors.append(made)
    return tuple(vectors), "" if vectors else next(iter(reasons), "no function gives answers of its inputs alone")


def _golden_call(entry: Entry, graph: Graph, module: Module, dims: tuple[str, ...]) -> Golden | str:
    """Compute the entry's answers for some small values of its dims, or say why there are none."""
    if any(map(draws, graph.nodes())):
        return "draws random numbers"
    reason, evaluations, spent = "", 0, 0
    refusal = _refusal_graph(entry, graph)
    for sizes in _light_first(entry, _sizes(entry, graph, module, dims)):
        try:
            inputs = {port.name: numbers(port, number, sizes) for number, port in enumerate(entry.inputs)}
            if refusal and (refused := _refused(entry, evaluate(refusal, module.declared_slots | inputs, dims=sizes))):
                reason = reason or f"refuses generated inputs: {refused}"
                continue
            evaluations, spent = evaluations + 1, spent + substitute(parse(entry.work), sizes)
            exact = evaluate(graph, {**module.declared_slots, **inputs}, wide=True, dims=sizes)
            rounded = evaluate(module.graphs[entry.name], {**module.slots, **inputs}, dims=sizes)
            declared = exact
            if (
                module.narrow or module.grouped or module.quantized
            ):  # the reference is the model with its rounded weights
                exact = evaluate(module.graphs[entry.name], {**module.slots, **inputs}, wide=True, dims=sizes)
        except (MlaotError, ValueError, IndexError) as error:  # the sizes of these dims do not fit
            reason = reason or ("" if dims else " ".join(str(error).split()))
        else:
            refused = _refused(entry, exact) or _refused(entry, rounded)
            reason = f"refuses generated inputs: {refused}" if refused else _unusable(entry, exact, rounded)
            if not reason:
                return _golden(entry, sizes, dims, declared, exact, rounded, quantized=bool(module.quantized))
        if evaluations == EVALUATIONS or spent > MAX_OPERATIONS:
            break
    return reason or f"fits no sizes of {' and '.join(dims)} up to {SINGLE[-1]:,} that were tried; give a `sample`"


def _golden(
    entry: Entry,
    sizes: Sizes,
    dims: tuple[str, ...],
    declared: Mapping[str, Any],
    exact: Mapping[str, Any],
    rounded: Mapping[str, Any],
    *,
    quantized: bool,
) -> Golden:
    """Return the vector of the answers to a call."""
    # A number near the midpoint of two bytes may be rounded to either, which moves answers far less than quantization
    # does.
    spare = {
        p.name: 2 * _largest_difference(declared[p.name], exact[p.name]) if quantized else 0.0 for p in entry.results
    }
    outputs = tuple(_bound_and_elements(exact[p.name], rounded[p.name], p, spare[p.name]) for p in entry.results)
    drift = max(_drift(declared[port.name], exact[port.name]) for port in entry.results)
    return Golden(entry.name, tuple(sizes[name] for name in dims), outputs, drift)


def _sizes(entry: Entry, graph: Graph, module: Module, dims: tuple[str, ...]) -> Iterator[Sizes]:
    """Yield sizes of the dims to try: those of the sample, first with two of its rows, then small ones."""
    equal = [dict.fromkeys(dims, size) for size in EQUAL]
    if SEEN in dims:  # as many as there are tokens, which are not changed apart
        yield from equal
        return
    arrays = {name: array for name, array in (module.sample or {}).items() if name in graph.inputs}
    shapes = {name: (graph.inputs[name].type, array.shape) for name, array in arrays.items()}
    sample = equal[0] | learn_dims({name: pair for name, pair in shapes.items() if pair[0].rank == len(pair[1])}, {})
    rows = {str(port.shape[0]) for port in entry.inputs if port.shape}
    few = sample | {name: min(sample[name], EQUAL[0]) for name in rows & sample.keys() if len(rows) == 1}
    needed = dict.fromkeys((*conditions(graph), *conditions(module.graphs[entry.name])))
    known = [condition for condition in needed if names(condition) <= sample.keys()]
    filled = [d - 1 for d in _open_extents(graph) if names(d) <= sample.keys()]
    tried: list[Sizes] = []
    for wanted in ([*known, *filled], known):  # of values without elements little can be proven
        for sizes in islice(fitting_sizes([few, sample, *equal], wanted), TRIES):
            if sizes not in tried:
                tried.append(sizes)
                yield sizes


def _open_extents(graph: Graph) -> list[Dim]:
    """List the extents of a graph's values that have named dims."""
    types = [
        t for node in graph.nodes() for t in (node.type.items if isinstance(node.type, TupleType) else (node.type,))
    ]
    return list(dict.fromkeys(d for t in types for d in t.shape if names(d)))


def _light_first(entry: Entry, candidates: Iterable[Sizes]) -> Iterator[Sizes]:
    """Yield the sizes whose calls do not take long; if none is taken, those whose call is the shortest of the rest."""
    work, heavy = parse(entry.work), list[tuple[int, Sizes]]()
    for sizes in candidates:
        if (operations := substitute(work, sizes)) <= MAX_OPERATIONS:
            yield sizes
        else:
            heavy.append((operations, sizes))
    if heavy:
        yield min(heavy, key=lambda pair: pair[0])[1]


def _refusal_graph(entry: Entry, graph: Graph) -> Graph | None:
    """Return what computes whether inputs are refused, and no more of the graph; None where none are."""
    if not entry.refusals:
        return None
    hidden = {port.name: graph.outputs[port.name].find() for port in entry.outputs[len(entry.results) :]}
    part, copies = copy_into(graph, hidden.values(), entry.name, keep=graph.inputs)
    part.outputs = {name: copies[node] for name, node in hidden.items()}
    return part


def _refused(entry: Entry, answers: Mapping[str, Any]) -> str:
    """Return why inputs are refused, if they are."""
    number = int(answers[entry.outputs[-1].name]) if entry.refusals else 0
    return entry.refusals[number - 1] if number else ""


def _unusable(entry: Entry, exact: Mapping[str, Any], rounded: Mapping[str, Any]) -> str:
    """Return why answers cannot be compared, if so."""
    if not any(np.size(exact[port.name]) for port in entry.results):
        return "gives nothing for generated inputs"
    for port in entry.results:
        if not (np.isfinite(exact[port.name]).all() and np.isfinite(rounded[port.name]).all()):
            return f"gives numbers that are not finite for generated inputs ({port.name})"
        if DTYPES[port.dtype].kind != "f" and (exact[port.name] != rounded[port.name]).any():
            return f"gives integers that a rounding decides ({port.name})"
    return ""


def compare_references(
    references: Mapping[str, Reference], module: Module, lowered: ExtensionModule, vectors: Iterable[Golden]
) -> Iterator[str]:
    """Yield a line for each reference of ``forward``: how far its answers are from the model's.

    The inputs are the first rows of the sample, else those of the golden vectors. A reference may err, too, so it is an
    error only if several of them disagree with the model.
    """
    entry = next(entry for entry in lowered.entries if entry.name == "forward")
    graph = module.declared["forward"]
    for vector in vectors:
        if not references or vector.entry != "forward":
            continue
        sizes: dict[str, int] = {}
        if module.sample is not None:
            inputs = split_sample(module.sample, graph)[0]
        else:
            sizes = dict(zip(lowered.dims, vector.dims, strict=True))
            inputs = {port.name: numbers(port, number, sizes) for number, port in enumerate(entry.inputs)}
        ours = evaluate(graph, {**module.declared_slots, **inputs}, wide=True, dims=sizes)
        errors: dict[str, float] = {}
        for name, reference in references.items():
            try:
                theirs = reference(inputs)
            except Exception as error:  # a reference may lack an op
                yield f"{name} cannot compute it ({' '.join(str(error).split())[:120]})"
                continue
            errors[name] = max(_relative_error(ours[port.name], theirs[port.name]) for port in entry.results)
            verdict = "another answer, off by" if errors[name] > ROUNDING_SHARE else "the same answer to"
            yield f"{name} gives {verdict} {max(errors[name], 1e-9):.1g} of the largest element"
        if len(errors) > 1 and min(errors.values()) > ROUNDING_SHARE:
            raise MlaotError(f"{' and '.join(errors)} give other answers than the model has here: a bug in mlaot")


def _relative_error(ours: Any, theirs: Any) -> float:
    """Return the largest difference as a share of the largest element; of integers, the share that differ."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    if ours.shape != theirs.shape:
        return float("inf")
    if theirs.dtype.kind in "iub":
        return float(np.mean(ours != theirs)) if ours.size else 0.0
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    with np.errstate(invalid="ignore"):
        differences = np.where(same, 0.0, np.abs(ours - theirs))
    finite = np.abs(theirs[np.isfinite(theirs)])
    largest = max(finite.max(initial=0), np.finfo(float).tiny)
    return float(np.nan_to_num(differences, nan=np.inf).max(initial=0) / largest)


def _drift(declared: Any, exact: Any) -> float:
    """Return the largest change of an output's elements, as a share of the largest one."""
    largest = np.abs(np.asarray(declared, np.float64)).max(initial=0)
    return _largest_difference(declared, exact) / float(max(largest, np.finfo(float).tiny))


def _largest_difference(array: Any, other: Any) -> float:
    """Return the largest difference of elements."""
    return float(np.abs(np.asarray(array, np.float64) - np.asarray(other, np.float64)).max(initial=0))


def _bound_and_elements(exact: Any, rounded: Any, port: Port, spare: float) -> tuple[float, ...]:
    """Return the bound of an output, then some of its elements."""
    exact, rounded = np.asarray(exact, np.float64), np.asarray(rounded, np.float64)
    bound = 0.0
    if DTYPES[port.dtype].kind == "f":
        epsilon = 2.0 ** -{"f64": 52, "f32": 23, "f16": 10, "bf16": 7}[port.dtype]
        error, largest = np.abs(exact - rounded).max(initial=0), np.abs(exact).max(initial=0)
        bound = float(MARGIN * error + ROUNDINGS * epsilon * largest) + spare
    flat = exact.ravel()
    count = min(SAMPLES, flat.size)
    return bound, *(float(flat[i * flat.size // count]) for i in range(count))
