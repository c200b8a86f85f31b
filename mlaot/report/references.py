"""Hold a model's answers against those that others compute of the same declaration: a second opinion."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.evaluate import evaluate
from mlaot.frontend.trace.declaration import Reference
from mlaot.ir.module import Module
from mlaot.lower.program import ExtensionModule, Golden
from mlaot.passes.frozen.quantize import split_sample
from mlaot.report.golden import call_inputs

ROUNDING_SHARE = 1e-2  # of the largest element: more than rounding in any dtype but float16 explains


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
            inputs = call_inputs(entry, sizes, vector.draws)
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
