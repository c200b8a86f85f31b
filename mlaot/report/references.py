"""Compare a model's answers with those of other implementations of the same declaration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.evaluate import evaluate
from mlaot.frontend.trace.declaration import Reference
from mlaot.ir.module import Module
from mlaot.lower.program import ExtensionModule, Golden
from mlaot.report.golden import call_inputs

COUNTS = "onnxruntime"  # whose answer counts where references differ
ROUNDING_SHARE = 1e-2  # of the largest element: more than rounding in any dtype but float16 explains


def compare_references(
    references: Mapping[str, Reference], module: Module, lowered: ExtensionModule, vectors: Iterable[Golden]
) -> Iterator[str]:
    """Yield a line for each reference of ``forward``: the difference of its answers from the model's.

    The inputs are those of the first golden vector, and so is the bound if that is larger than rounding. References may
    be wrong. It is an error if the reference ``COUNTS`` differs, or if there are several and all differ.
    """
    vector = next((vector for vector in vectors if vector.entry == "forward"), None)
    if not references or vector is None:
        return
    entry, graph = next(entry for entry in lowered.entries if entry.name == "forward"), module.declared["forward"]
    sizes = dict(zip(lowered.dims, vector.dims, strict=True))
    inputs = call_inputs(entry, sizes, vector.draws)
    ours = evaluate(graph, {**module.declared_slots, **inputs}, wide=True, dims=sizes)
    shares = [bound / largest for (bound, *_), largest in zip(vector.outputs, vector.largest, strict=True) if largest]
    allowed = max([ROUNDING_SHARE, *shares])
    errors: dict[str, float] = {}
    for name, reference in references.items():
        try:
            theirs = reference(inputs)
        except Exception as error:  # a reference may lack an op
            yield f"{name} cannot compute it ({' '.join(str(error).split())[:120]})"
            continue
        errors[name] = max(_relative_error(ours[port.name], theirs[port.name]) for port in entry.results)
    other = [name for name, off in errors.items() if off > allowed]
    if COUNTS in other or (len(other) == len(errors) > 1):
        raise MlaotError(
            f"{' and '.join(other)} give{'s' * (len(other) == 1)} another answer than the compiled model, off by"
            f" {errors[other[-1]]:.1g} of the largest element: a bug in mlaot, or the model amplifies rounding; give"
            " typical inputs with the key `sample`, or skip the comparison with the key `unchecked`"
        )
    for name, off in errors.items():
        verdict = "another answer, off by" if name in other else "the same answer to"
        whose = f"; {COUNTS}'s counts, which is the same" if name in other and COUNTS in errors else ""
        yield f"{name} gives {verdict} {max(off, 1e-9):.1g} of the largest element{whose}"


def _relative_error(ours: Any, theirs: Any) -> float:
    """Return the largest difference relative to the largest element; for integers, the share that differ."""
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
