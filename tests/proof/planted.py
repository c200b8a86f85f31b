"""Plant wrong weights in models, and see whether their golden vectors find them.

    python -m tests.proof.planted examples/xor examples/lenet model.onnx --count 20

One element is some percent off, or of the other sign, two neighbouring rows are swapped, or a channel is zero; in one
array of weights after the other. A plant is found where an answer is further off than its bound. Nothing is compiled to
C: the answers are those of the declared graph with the wrong weights, in float64.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mlaot import passes
from mlaot.build.child import tracing
from mlaot.evaluate import evaluate
from mlaot.ir.module import Module
from mlaot.ir.ports import signed_sums
from mlaot.isolation import isolate
from mlaot.loading import open_model, trace
from mlaot.lower.lower import lower
from mlaot.lower.program import ExtensionModule, Golden
from mlaot.report.golden import call_inputs, golden_vectors
from mlaot.settings.reading import load_settings

from .. import projects

Array = np.ndarray[Any, Any]

EXAMPLES = ("xor", "moons", "c", "digits/train", "digits/serve", "wines", "microgpt", "lenet", "mnist")
OFF = 0.1  # of an element that is off
KINDS = ("element", "rows", "channel", "sign")


def planted(weights: Mapping[str, Array], count: int, seed: int) -> Iterator[tuple[str, dict[str, Array]]]:
    """Yield wrong weights with what is wrong: of one array after the other, in ways of which each comes up."""
    rng = np.random.default_rng(seed)
    names = [name for name, array in sorted(weights.items()) if array.dtype.kind == "f" and np.any(array)]
    order = [names[i] for i in rng.permutation(len(names))]
    for number in range(count if names else 0):
        name, kind = order[number % len(order)], KINDS[(number + number // len(order)) % len(KINDS)]
        array = weights[name].copy()
        flat, rows = array.reshape(-1), array.reshape(len(array) if array.ndim > 1 else array.size, -1)
        at = int(rng.choice(np.flatnonzero(np.abs(flat) >= np.median(np.abs(flat)))))
        row = at // rows.shape[1]
        others = np.flatnonzero((rows != rows[row]).any(axis=1))
        if kind == "rows" and others.size:
            other = int(others[np.abs(others - row).argmin()])
            rows[[row, other]] = rows[[other, row]]
        elif kind == "channel":
            rows[row] = 0
        elif kind == "sign":
            flat[at] = -flat[at]
        else:
            kind, flat[at] = "element", flat[at] * (1 + OFF)
        yield f"{kind} {row if kind in ('rows', 'channel') else at} of {name}", {**weights, name: array}


def visibility(
    module: Module, lowered: ExtensionModule, vectors: Sequence[Golden], weights: Mapping[str, Array]
) -> float:
    """Return how many times its bound an answer of the model with these weights is off."""
    entries, slots = {entry.name: entry for entry in lowered.entries}, {**module.declared_slots, **weights}
    most = 0.0
    for call in vectors:
        entry, sizes = entries[call.entry], dict(zip(lowered.dims, call.dims, strict=True))
        inputs = call_inputs(entry, sizes, call.draws)
        answers = evaluate(module.declared[call.entry], {**slots, **inputs}, wide=True, dims=sizes)
        for port, (bound, *sums) in zip(entry.results, call.outputs, strict=True):
            off = float(np.abs(signed_sums(answers[port.name]) - sums).max(initial=0))
            most = max(most, off / bound if bound else np.inf if off else 0.0)
    return most


def modules(path: Path) -> Iterator[tuple[Module, ExtensionModule]]:
    """Yield the models of a project, or that of an ONNX file."""
    if path.suffix == ".onnx":
        from mlaot.onnx import load

        module = passes.run(path.stem, trace(load(path.resolve())))
        yield module, lower(module).module
        return
    settings = load_settings(path)
    with isolate(), tracing(settings, path):
        for model in settings.models:
            with open_model(settings, model) as (declared, options, sample):
                module = passes.run(model.module, trace(declared), options, sample=sample)
                yield module, lower(module).module


def report(path: Path, count: int, seed: int) -> Iterator[tuple[str, str, int, int]]:
    """Yield the name of each model, what was missed or why nothing was planted, how many were found and planted.

    Weights that are constants of the graph are left alone.
    """
    for module, lowered in modules(path):
        vectors, reason = golden_vectors(module, lowered)
        weights = {
            name: np.asarray(module.declared_slots[name])
            for name in module.declared_slots.keys() & module.parameters.keys()
        }
        missed, found = [], 0
        for what, wrong in planted(weights, count if vectors else 0, seed):
            times = visibility(module, lowered, vectors, wrong)
            if times > 1:
                found += 1
            else:
                missed.append(f"{what} ({times:.2g} of the bound)")
        dims = (
            ", ".join(f"{n}={size}" for n, size in zip(lowered.dims, vectors[0].dims, strict=True)) if vectors else ""
        )
        dims += (
            f" {[[(draw.low, draw.width, draw.seed) for draw in v.draws] for v in vectors if v.entry == 'forward']}"
            if vectors
            else ""
        )
        yield module.name, reason or f"{dims}; missed: {', '.join(missed) or 'none'}", found, found + len(missed)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, help="projects, and ONNX files; otherwise the examples")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    paths = options.paths or [projects.EXAMPLES / name for name in EXAMPLES]
    if len(paths) > 1:  # each in a process of its own, since many have a module called model
        command = [
            sys.executable,
            "-m",
            "tests.proof.planted",
            "--count",
            str(options.count),
            "--seed",
            str(options.seed),
        ]
        return max([subprocess.run([*command, str(path)], check=False).returncode for path in paths])
    is_complete = True
    for name, missed, found, count in report(paths[0], options.count, options.seed):
        print(f"{name}: {found} of {count} found; {missed}", flush=True)
        is_complete = is_complete and found == count
    return int(not is_complete)


if __name__ == "__main__":
    sys.exit(main())
