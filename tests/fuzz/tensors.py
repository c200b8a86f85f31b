"""Random graphs of tensor ops, compiled, against the NumPy references in float64 by a derived error bound.

    python -m tests.fuzz.tensors --count 2000 --seed 0
    python -m tests.fuzz.tensors --count 2000 --seed 0 --torch

Every op on every dtype (``tensor_graphs.py``), with and without named dims, with slots that are written, and with
gradients of a loss. Each graph is compiled twice, by the whole pipeline and by the least that lowering needs, and run
on three inputs, one with special values. Numbers must be within the bounds of ``bounds.py``; integers and bools must
be equal, where no rounding can tip what they stand for. What cannot be compared is counted. A graph that fails is made
smaller and printed: as text, for ``mlaot passes --only``, and as Python that makes it again. With ``--torch`` it is
PyTorch that results are compared with.
"""

from __future__ import annotations

import argparse
import faulthandler
import itertools
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from mlaot import passes
from mlaot.errors import MlaotError
from mlaot.evaluate import evaluate
from mlaot.frontend.trace.declaration import Traced
from mlaot.ir import Graph, Node, verify
from mlaot.ir.module import Module
from mlaot.ir.text import text
from mlaot.ir.types import bf16, f16
from mlaot.lower.lower import lower
from mlaot.lower.program import Program
from mlaot.lower.storage import in_memory
from mlaot.ops import elementwise as ew
from mlaot.ops.base import fill
from mlaot.passes.algebra.canonical_order import canonical_order
from mlaot.passes.training.entries import copy_into
from mlaot.transforms.differentiate import differentiate

from ..compiled import AVAILABLE, Library, State, effort, entry_of
from .bounds import Analysis, Bounded, difference
from .shrink import shrunk, source
from .tensor_graphs import Arrays, Made, make, trials
from .with_torch import evaluated, expressible

Array = np.ndarray[Any, Any]
Judge = Callable[[Graph, Arrays, dict[str, int]], dict[str, Bounded]]  # what outputs and writes should be

PER_FILE = 100
RUN = subprocess.run
RATE = 0.25
KINDS = ("full", "least")
LEAST = ("entries", "upcast", "legalize")
OF_MODELS = ("split_parameters", "entries")  # passes that a graph on its own does not need
FLAGS = ("-Wno-tautological-compare", "-Wno-type-limits")  # x == x and, of unsigned numbers, x < 0 may be asked for
SECONDS = 60  # a batch of graphs computes for a fraction of one


@dataclass
class Case:
    """A random graph, what it should compute, inputs for it, and what went wrong."""

    seed: int
    made: Made
    reference: Graph
    trials: list[tuple[dict[str, int], Arrays]]
    entry: str = "forward"
    isa: str = "base"
    failures: list[str] = field(default_factory=list)
    kinds: tuple[str, ...] = KINDS

    @property
    def name(self) -> str:
        return f"g{self.seed}"


def make_case(seed: int) -> Case:
    """The random graph of a seed."""
    made = make(seed)
    entry = "forward" if not made.trains else ("phases", "train_step", "accumulate")[seed % 3]
    return Case(seed, made, trained(made, entry) if made.trains else made.graph, trials(made, seed), entry)


def trained(made: Made, entry: str) -> Graph:
    """The loss, and what training writes, by the VJPs on the graph as it was made."""
    graph = copied(made.graph, entry)
    canonical_order(graph)
    loss = graph.outputs["loss"].find()
    slots = [graph.inputs[name] for name in made.parameters]
    for name, slot, gradient in zip(made.parameters, slots, differentiate(loss, slots), strict=True):
        step = ew.mul(gradient, fill(gradient, RATE, slot.type))
        graph.writes[name] = ew.sub(slot, step) if entry == "train_step" else gradient
    return graph


def copied(graph: Graph, name: str) -> Graph:
    new, copies = copy_into(graph, graph.roots(), name, keep=graph.inputs)
    new.outputs = {key: copies[node.find()] for key, node in graph.outputs.items()}
    new.writes = {key: copies[node.find()] for key, node in graph.writes.items()}
    return new


# Compiling.


def compile_case(case: Case, kind: str, name: str) -> Program:
    """The program of a case; its graph is left as it is."""
    made, first = case.made, "model" if case.made.trains else "forward"
    traced = Traced(copied(made.graph, first), made.parameters, per_example=False)
    module = Module(name, {first: traced.graph}, dict(made.parameters), made.trains, RATE)
    module.state = dict(made.state)
    for stage in passes.PIPELINE:
        if stage.name in (OF_MODELS if not made.trains else ()) or (kind == "least" and stage.name not in LEAST):
            continue
        stage.run(module, traced)
        if stage.name == "entries":
            module.graphs = {case.entry: module.graphs[case.entry]}
        for graph in module.graphs.values():
            verify(graph, stage.name)
    return lower(module)


def run_cases(cases: Sequence[Case], isa: str, counts: Counter[str], judge: Judge | None = None) -> None:
    """Compile all into one library and compare; failures are noted in each case."""
    programs: dict[str, Program] = {}
    for case in cases:
        case.isa = isa
        for kind in case.kinds:
            try:
                programs[f"{kind}{case.name}"] = compile_case(case, kind, f"{kind}{case.name}")
            except MlaotError as error:
                case.failures.append(f"{kind}: refused: {error}")
            except Exception:
                case.failures.append(f"{kind}: {traceback.format_exc(limit=-3)}")
    with tempfile.TemporaryDirectory() as folder:
        libraries = _libraries(cases, programs, isa, Path(folder))
        _in_children(cases, libraries, counts, judge or expectation)


class Warned(Library):
    """A library that is kept although the compiler warned of something in it."""

    def _compile(self, library: Path, flags: Sequence[str]) -> None:
        with patch.object(subprocess, "run", partial(_keeping, self)):
            super()._compile(library, flags)

    def blamed(self) -> dict[str, str]:
        """The warnings by the stem of the program whose entry calls the function that they are about."""
        found: dict[str, str] = {}
        text = self.source.read_text()
        for function, warning in re.findall(r"In function .(\w+).:\n[^\n]*?(warning: [^\n]*)", self.warnings):
            entries = re.finditer(
                r"^void graphs_(\w+?)_(?:forward|train_step|accumulate|phases)\w*\(.*?^}", text, re.M | re.S
            )
            for entry in entries:
                if f"{function}(" in entry[0]:
                    found.setdefault(entry[1], warning)
        return found

    warnings = ""


def _keeping(library: Warned, command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    done = RUN([*command, "-Wno-error"], **options)
    library.warnings = done.stderr
    return done


def _libraries(cases: Sequence[Case], programs: dict[str, Program], isa: str, folder: Path) -> dict[str, Library]:
    """One library for all; where it does not compile, halves, until the culprits are known."""
    if not programs:
        return {}
    by_stem = {f"{kind}{case.name}": case for case in cases for kind in KINDS}
    try:
        flags = (*FLAGS, effort(cases[0].seed // PER_FILE))
        library = Warned(programs, isa, Path(tempfile.mkdtemp(dir=folder)), flags)
    except Exception as error:
        stems = list(programs)
        if len(stems) == 1:
            text = str(error) if isinstance(error, AssertionError) else traceback.format_exc(limit=-3)
            by_stem[stems[0]].failures.append(f"{stems[0]} on {isa}: {text}")
            return {}
        middle = len(stems) // 2
        parts = [{s: programs[s] for s in some} for some in (stems[:middle], stems[middle:])]
        return _libraries(cases, parts[0], isa, folder) | _libraries(cases, parts[1], isa, folder)
    for stem, warning in library.blamed().items():
        by_stem[stem].failures.append(f"{stem} on {isa}: {warning}")
    return dict.fromkeys(programs, library)


# Running: in a child process, for a kernel may crash or never end.


def _in_children(cases: Sequence[Case], libraries: dict[str, Library], counts: Counter[str], judge: Judge) -> None:
    done = 0
    while done < len(cases):
        with tempfile.TemporaryFile() as file:
            child = os.fork()
            if not child:
                _child(cases[done:], libraries, file, judge)
            status = os.waitpid(child, 0)[1]
            file.seek(0)
            for failures, found in _records(file):
                cases[done].failures += failures
                counts.update(found)
                done += 1
        if done < len(cases):
            number = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"exit {status}"
            cases[done].failures.append(f"crash: {number}")
            done += 1


def _child(cases: Sequence[Case], libraries: dict[str, Library], file: Any, judge: Judge) -> None:
    try:
        faulthandler.disable()  # a crash is told by the parent
        signal.alarm(SECONDS)
        for case in cases:
            counts: Counter[str] = Counter()
            failures: list[str] = []
            try:
                failures = run_case(case, libraries, counts, judge)
            except Exception:
                failures.append(traceback.format_exc(limit=-4))
            pickle.dump((failures, counts), file)
            file.flush()
    finally:
        os._exit(0)


def _records(file: Any) -> list[tuple[list[str], Counter[str]]]:
    found = []
    while True:
        try:
            found.append(pickle.load(file))
        except (EOFError, pickle.UnpicklingError):
            return found


def run_case(case: Case, libraries: dict[str, Library], counts: Counter[str], judge: Judge) -> list[str]:
    """What is wrong with the results of a case."""
    failures = check_gradients(case, counts) if case.made.trains and case.trials else []
    for trial, (dims, inputs) in enumerate(case.trials):
        expected = judge(case.reference, inputs, dims)
        for kind in case.kinds:
            library = libraries.get(f"{kind}{case.name}")
            if library is not None:
                found = results(case, library, f"{kind}{case.name}", inputs, dims)
                for name, wanted in expected.items():
                    failures += compare(f"{kind} on {library.isa}, trial {trial}: {name}", found[name], wanted, counts)
    return failures


def check_gradients(case: Case, counts: Counter[str]) -> list[str]:
    """The VJPs against central differences of the loss along one random direction, in float64."""
    if "stop_gradient" in str(case.made.graph):
        return []
    dims, given = case.trials[0]
    numbers, graph, slots = np.random.default_rng(case.seed), case.made.graph, case.made.parameters
    inputs = {k: numbers.normal(size=v.shape) if v.dtype.kind == "f" else v for k, v in given.items()}
    direction = {name: numbers.normal(size=array.shape) for name, array in slots.items()}
    written = evaluate(case.reference, inputs, wide=True, dims=dims)
    gradient = 0.0
    for name, d in direction.items():
        moved = written[f"write {name}"]
        along = (inputs[name] - moved) / RATE if case.entry == "train_step" else moved
        gradient += float((along * d).sum())

    def at(step: float) -> float:
        there = inputs | {name: inputs[name] + step * d for name, d in direction.items()}
        return float(evaluate(graph, there, wide=True, dims=dims)["loss"])

    slopes = [(at(h) - at(-h)) / (2 * h) for h in (1e-5, 0.5e-5, 1e-6)]
    scale = max(1.0, abs(gradient), *map(abs, slopes))
    if not np.isfinite(scale) or max(slopes) - min(slopes) > 1e-5 * scale or abs(at(0.0)) > 1e6:
        counts["no difference quotient"] += 1  # a kink or a jump nearby
        return []
    counts["gradients"] += 1
    narrow = any(getattr(node.type, "dtype", None) in (f16, bf16) for node in case.reference.nodes())
    if abs(gradient - slopes[1]) > (5e-3 if narrow else 1e-4) * scale:  # constants of VJPs are of the values' dtype
        return [f"gradient along a direction: {gradient!r} by the VJPs, {slopes} by differences"]
    return []


def expectation(graph: Graph, inputs: Arrays, dims: dict[str, int]) -> dict[str, Bounded]:
    """Outputs and writes with their bounds."""
    analysis = Analysis(inputs, dims, grained=True)
    analysis.run(graph.roots())
    return {name: analysis.of(node) for name, node in roots(graph).items()}


def roots(graph: Graph) -> dict[str, Node]:
    return {**graph.outputs, **{f"write {name}": node for name, node in graph.writes.items()}}


def results(case: Case, library: Library, stem: str, inputs: Arrays, dims: dict[str, int]) -> Arrays:
    """What the compiled entry gives and writes."""
    program = library.programs[stem]
    ports = {port.name: port.dtype for port in entry_of(program, case.entry).inputs}
    given = {k: in_memory(v, bf16) if ports.get(k) == "bf16" else v for k, v in inputs.items()}
    state = State(program)
    outputs = library.call(stem, case.entry, {**given, "lr": RATE}, dims, state)
    read = state.gradient if case.entry in ("accumulate", "phases") else state.slot
    found = outputs | {f"write {name}": np.array(read(name)) for name in case.reference.writes}
    for name, node in roots(case.reference).items():
        if node.find().type.dtype is bf16 and found[name].dtype == np.uint16:
            found[name] = (found[name].astype(np.uint32) << np.uint32(16)).view(np.float32)
    return found


def compare(what: str, actual: Array, wanted: Bounded, counts: Counter[str]) -> list[str]:
    """The elements that are out of their bounds, as text."""
    if actual.shape != wanted.value.shape:
        return [f"{what}: shape {actual.shape}, expected {wanted.value.shape}"]
    counts["numbers"] += actual.size
    counts["not comparable"] += int(np.isinf(wanted.error).sum())
    with np.errstate(all="ignore"):
        loose = np.isfinite(wanted.error) & (wanted.error > 0.02 * np.abs(wanted.value) + 0.01)
    counts["loosely bound"] += int(np.sum(loose))
    off = difference(actual, wanted)
    if not off.any():
        return []
    at = np.unravel_index(int(np.argmax(off)), off.shape)
    return [
        f"{what}{list(map(int, at))}: got {actual[at]!r}, expected {wanted.value[at]!r} within"
        f" {2 * wanted.error[at]:.3g}; {int((off > 0).sum())} of {off.size} numbers are off"
    ]


# Many of them.


def failures(graph: Graph, inputs: Arrays, dims: dict[str, int], isa: str = "base") -> list[str]:
    """What is wrong with the compiled ``graph`` for these inputs."""
    case = Case(0, Made(graph), graph, [(dims, inputs)])
    run_cases([case], isa, Counter())
    return case.failures


def run(first: int, count: int, isas: tuple[str, ...] = AVAILABLE) -> tuple[list[Case], Counter[str]]:
    """The cases of ``count`` seeds from ``first`` on that failed, and what was compared."""
    counts: Counter[str] = Counter()
    failed: list[Case] = []
    for start in range(first, first + count, PER_FILE):
        cases = []
        for seed in range(start, min(start + PER_FILE, first + count)):
            try:
                cases.append(make_case(seed))
            except Exception:
                failed.append(
                    Case(seed, Made(Graph("forward")), Graph("none"), [], failures=[traceback.format_exc(limit=-4)])
                )
        counts["graphs"] += len(cases)
        run_cases(cases, isas[start // PER_FILE % len(isas)], counts)
        failed += [case for case in cases if case.failures]
    return failed, counts


def smallest(case: Case, isa: str) -> Case:
    """A smaller case that fails in the same way."""
    return shrunk(case, lambda cases: run_cases(cases, isa, Counter()))  # type: ignore[no-any-return]


def compare_with_torch(first: int, count: int) -> tuple[list[Case], Counter[str]]:
    """Compiled graphs against PyTorch: ``count`` of those, from the seed ``first`` on, that it can express."""
    counts: Counter[str] = Counter()
    failed: list[Case] = []
    seeds = itertools.count(first)
    while counts["graphs"] < count:
        cases: list[Case] = []
        while len(cases) < min(PER_FILE, count - counts["graphs"]):
            case = make_case(next(seeds))
            if case.entry == "forward" and not case.made.state and expressible(case.made.graph):
                cases.append(case)
        counts["graphs"] += len(cases)
        run_cases(cases, AVAILABLE[-1], counts, judge=by_torch)
        failed += [case for case in cases if case.failures]
    return failed, counts


def by_torch(graph: Graph, inputs: Arrays, dims: dict[str, int]) -> dict[str, Bounded]:
    """What PyTorch says, with twice the bounds of the references: it rounds too."""
    bounds, found = expectation(graph, inputs, dims), evaluated(graph, inputs, dims)
    return {name: Bounded(wide(found[name]), b.size, 2 * b.error) for name, b in bounds.items()}


def wide(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def report(failed: list[Case], counts: Counter[str], *, most: int = 6, narrow: bool = True) -> str:
    """A summary, and the graphs that failed."""
    lines = [", ".join(f"{n:,} {what}" for what, n in counts.items())]
    for case in failed[:most]:
        small = smallest(case, case.isa) if case.trials and narrow else case
        lines += [f"\nseed {case.seed}, {case.entry} on {case.isa}", *case.failures[:2], "made smaller:"]
        lines += [*small.failures[:2], "", text(small.reference, inline=None), "", source(small)]
    return "\n".join([*lines, f"{len(failed)} graphs failed: {[case.seed for case in failed]}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--isa", choices=AVAILABLE, action="append", help="default: all of this machine, in turn")
    parser.add_argument("--torch", action="store_true", help="compare with PyTorch, where it can express a graph")
    options = parser.parse_args()
    started = time.monotonic()
    if options.torch:
        failed, counts = compare_with_torch(options.seed, options.count)
    else:
        failed, counts = run(options.seed, options.count, tuple(options.isa or AVAILABLE))
    print(report(failed, counts, narrow=not options.torch), f"in {time.monotonic() - started:.0f} s")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
