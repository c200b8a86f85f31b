"""Golden vectors: what a module's functions must return on any machine, computed by the oracle in float64.

Inputs are generated from a seed, the same in Python and in C, and exact in their dtype. So a module carries only some
elements of each output, and a bound on their errors. That bound is not measured on compiled code: it is a multiple of
the error of the optimized graph when NumPy evaluates it in the model's own dtypes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from mlaot.binding.methods import HIDDEN
from mlaot.errors import MlaotError
from mlaot.evaluate import evaluate
from mlaot.frontend.trace.declaration import Reference
from mlaot.ir import Graph
from mlaot.ir.dims import parse, substitute
from mlaot.ir.module import Module
from mlaot.ir.ports import Port, numbers
from mlaot.ir.types import DTYPES
from mlaot.lower.program import Entry, ExtensionModule, Golden
from mlaot.passes.frozen.quantize import split_sample
from mlaot.transforms.batch import draws

SAMPLES = 32  # elements of an output that a golden vector keeps
MARGIN = 16  # times the error of NumPy's arithmetic: other orders of sums, fused multiply-adds, own functions
ROUNDINGS = 64  # epsilons of the largest element, in case NumPy's own error happens to be small
MAX_TWO_ROWS = 2_000_000_000  # operations of a call with two rows: NumPy takes seconds for more, one row must do
ROUNDING_SHARE = 1e-2  # of the largest element: more than rounding in any dtype but float16 explains


def golden_vectors(module: Module, lowered: ExtensionModule) -> tuple[Golden, ...]:
    """Make a call of each function that can be replayed, by the graphs that ``module`` was optimized from."""
    vectors: list[Golden] = []
    for entry in lowered.entries:
        graph = module.declared.get(entry.name)
        # An entry that can refuse inputs would refuse generated ones.
        if (
            graph is None
            or entry.refusals
            or not entry.outputs
            or entry.name in HIDDEN
            or any(map(draws, graph.nodes()))
        ):
            continue
        # Gradients exist only after another call.
        if graph.inputs.keys() <= module.declared_slots.keys() | {port.name for port in entry.inputs}:
            vectors += _golden_call(entry, graph, module, lowered.dims)
    return tuple(vectors)


def _golden_call(entry: Entry, graph: Graph, module: Module, dims: tuple[str, ...]) -> Iterator[Golden]:
    """Compute the entry's answers for some small values of its dims, if any suit it."""
    for size in (2, 1, 3, 4, 8):
        sizes = dict.fromkeys(dims, size)
        if size == 2 and substitute(parse(entry.work), sizes) > MAX_TWO_ROWS:
            continue
        try:
            inputs = {port.name: numbers(port, number, sizes) for number, port in enumerate(entry.inputs)}
            exact = evaluate(graph, {**module.declared_slots, **inputs}, wide=True, dims=sizes)
            rounded = evaluate(module.graphs[entry.name], {**module.slots, **inputs}, dims=sizes)
            declared = exact
            if (
                module.narrow or module.grouped or module.quantized
            ):  # the reference is the model with its rounded weights
                exact = evaluate(module.graphs[entry.name], {**module.slots, **inputs}, wide=True, dims=sizes)
        except (MlaotError, ValueError, IndexError):  # the sizes of these dims do not fit
            continue
        # A number near the midpoint of two bytes may be rounded to either, which moves answers far less than
        # quantization does.
        spare = {
            p.name: 2 * _largest_difference(declared[p.name], exact[p.name]) if module.quantized else 0.0
            for p in entry.outputs
        }
        outputs = tuple(_bound_and_elements(exact[p.name], rounded[p.name], p, spare[p.name]) for p in entry.outputs)
        if all(outputs):
            drift = max(_drift(declared[port.name], exact[port.name]) for port in entry.outputs)
            yield Golden(entry.name, tuple(sizes[name] for name in dims), outputs, drift)
        return


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
            errors[name] = max(_relative_error(ours[port.name], theirs[port.name]) for port in entry.outputs)
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
    """Return the bound of an output, then some of its elements; nothing if it cannot be compared."""
    exact, rounded = np.asarray(exact, np.float64), np.asarray(rounded, np.float64)
    if not np.isfinite(exact).all() or not np.isfinite(rounded).all():
        return ()
    bound = 0.0
    if DTYPES[port.dtype].kind == "f":
        epsilon = 2.0 ** -{"f64": 52, "f32": 23, "f16": 10, "bf16": 7}[port.dtype]
        error, largest = np.abs(exact - rounded).max(initial=0), np.abs(exact).max(initial=0)
        bound = float(MARGIN * error + ROUNDINGS * epsilon * largest) + spare
    elif (exact != rounded).any():  # a rounding decides these integers
        return ()
    flat = exact.ravel()
    count = min(SAMPLES, flat.size)
    return bound, *(float(flat[i * flat.size // count]) for i in range(count))
