"""Golden vectors: what a module's functions must give on any machine, computed by the oracle in float64.

Inputs are numbers made from a seed, the same in Python and in C, and exact in their dtype; so a module carries only
some elements of each output, and how far from them it may be. That bound is not measured on compiled code: it is a
multiple of what the optimized graph loses when NumPy evaluates it in the model's own dtypes.
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

SAMPLES = 32  # elements of an output that are kept
MARGIN = 16  # times the error of NumPy's arithmetic: other orders of sums, fused multiply-adds, own functions
ROUNDINGS = 64  # of the largest element, where NumPy's own error happens to be small
LONG = 2_000_000_000  # operations: NumPy takes seconds for them, so that one row must do
FAR = 1e-2  # of the largest element: beyond the rounding of any dtype but float16's


def golden_vectors(module: Module, lowered: ExtensionModule) -> tuple[Golden, ...]:
    """A call of each function that can be replayed: by the graphs that ``module`` was optimized from."""
    found: list[Golden] = []
    for entry in lowered.entries:
        graph = module.declared.get(entry.name)
        # Where inputs can be refused, those made here would be.
        if (
            graph is None
            or entry.refusals
            or not entry.outputs
            or entry.name in HIDDEN
            or any(map(draws, graph.nodes()))
        ):
            continue
        # Gradients are there only after another call.
        if graph.inputs.keys() <= module.declared_slots.keys() | {port.name for port in entry.inputs}:
            found += _call(entry, graph, module, lowered.dims)
    return tuple(found)


def _call(entry: Entry, graph: Graph, module: Module, dims: tuple[str, ...]) -> Iterator[Golden]:
    """The entry's answers for some small values of its dims, if any suit it."""
    for size in (2, 1, 3, 4, 8):
        known = dict.fromkeys(dims, size)
        if size == 2 and substitute(parse(entry.work), known) > LONG:
            continue
        try:
            given = {port.name: numbers(port, number, known) for number, port in enumerate(entry.inputs)}
            exact = evaluate(graph, {**module.declared_slots, **given}, wide=True, dims=known)
            rounded = evaluate(module.graphs[entry.name], {**module.slots, **given}, dims=known)
            declared = exact
            if module.narrow or module.quantized:  # the yardstick is the model with the weights that it is given
                exact = evaluate(module.graphs[entry.name], {**module.slots, **given}, wide=True, dims=known)
        except (MlaotError, ValueError, IndexError):  # these dims do not go together
            continue
        # A number near the middle between two bytes may be rounded to either, which moves the answers far less than
        # bytes do in all.
        spare = {
            p.name: 2 * _apart(declared[p.name], exact[p.name]) if module.quantized else 0.0 for p in entry.outputs
        }
        outputs = tuple(_expected(exact[p.name], rounded[p.name], p, spare[p.name]) for p in entry.outputs)
        if all(outputs):
            drift = max(_drift(declared[port.name], exact[port.name]) for port in entry.outputs)
            yield Golden(entry.name, tuple(known[name] for name in dims), outputs, drift)
        return


def compared(
    references: Mapping[str, Reference], module: Module, lowered: ExtensionModule, vectors: Iterable[Golden]
) -> Iterator[str]:
    """A line for each of ``references``, others that compute ``forward``: how far the model's answers are from theirs.

    The inputs are the first rows of the sample, else those of the golden vectors. Others err, too; so it is an error
    only where several agree on another answer.
    """
    entry = next(entry for entry in lowered.entries if entry.name == "forward")
    graph = module.declared["forward"]
    for vector in vectors:
        if not references or vector.entry != "forward":
            continue
        known: dict[str, int] = {}
        if module.sample is not None:
            given = split_sample(module.sample, graph)[0]
        else:
            known = dict(zip(lowered.dims, vector.dims, strict=True))
            given = {port.name: numbers(port, number, known) for number, port in enumerate(entry.inputs)}
        ours = evaluate(graph, {**module.declared_slots, **given}, wide=True, dims=known)
        found: dict[str, float] = {}
        for name, reference in references.items():
            try:
                theirs = reference(given)
            except Exception as error:  # it need not know all that we do
                yield f"{name} cannot compute it ({' '.join(str(error).split())[:120]})"
                continue
            found[name] = max(_off(ours[port.name], theirs[port.name]) for port in entry.outputs)
            far = "another answer, off by" if found[name] > FAR else "the same answer to"
            yield f"{name} gives {far} {max(found[name], 1e-9):.1g} of the largest element"
        if len(found) > 1 and min(found.values()) > FAR:
            raise MlaotError(f"{' and '.join(found)} give other answers than the model has here: a bug in mlaot")


def _off(ours: Any, theirs: Any) -> float:
    """The largest difference as a share of the largest element; of whole numbers, the share that differ."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    if ours.shape != theirs.shape:
        return float("inf")
    if theirs.dtype.kind in "iub":
        return float(np.mean(ours != theirs)) if ours.size else 0.0
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.abs(ours - theirs))
    finite = np.abs(theirs[np.isfinite(theirs)])
    return float(np.nan_to_num(apart, nan=np.inf).max(initial=0) / max(finite.max(initial=0), np.finfo(float).tiny))


def _drift(declared: Any, exact: Any) -> float:
    """The largest change of an output's elements, as a share of the largest one."""
    largest = np.abs(np.asarray(declared, np.float64)).max(initial=0)
    return _apart(declared, exact) / float(max(largest, np.finfo(float).tiny))


def _apart(some: Any, others: Any) -> float:
    """The largest difference of elements."""
    return float(np.abs(np.asarray(some, np.float64) - np.asarray(others, np.float64)).max(initial=0))


def _expected(exact: Any, rounded: Any, port: Port, spare: float) -> tuple[float, ...]:
    """The bound of an output, then some of its elements; nothing where it cannot be compared."""
    exact, rounded = np.asarray(exact, np.float64), np.asarray(rounded, np.float64)
    if not np.isfinite(exact).all() or not np.isfinite(rounded).all():
        return ()
    bound = 0.0
    if DTYPES[port.dtype].kind == "f":
        epsilon = 2.0 ** -{"f64": 52, "f32": 23, "f16": 10, "bf16": 7}[port.dtype]
        lost, largest = np.abs(exact - rounded).max(initial=0), np.abs(exact).max(initial=0)
        bound = float(MARGIN * lost + ROUNDINGS * epsilon * largest) + spare
    elif (exact != rounded).any():  # decided by a rounding
        return ()
    flat = exact.ravel()
    count = min(SAMPLES, flat.size)
    return bound, *(float(flat[i * flat.size // count]) for i in range(count))
