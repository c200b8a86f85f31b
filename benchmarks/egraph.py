"""What the e-graph gains: nodes, cost, seconds of all passes and of a call, without the pass ``egraph`` and with it.

    MLAOT_ISA=v3 python benchmarks/egraph.py [--only w2,attention]

The timed entry is ``forward`` of workloads that serve, and ``train_step`` of those that train and of programs of
scalars. ``first cost`` is the cost of all graphs when the pass first sees them, before and after it. ``cost`` is the
cost of the timed entry after all passes. ``us`` are the microseconds of a call where the two programs' C differs: the
best of rounds in turns, on one core. A ratio below 1 is a gain.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scalar_programs
import workloads
from common import chosen_isas, compile_program, load, one_core, out, table

from mlaot.files import program_files
from mlaot.generate import compile_model
from mlaot.ir.module import Module
from mlaot.lower.program import Program
from mlaot.passes import run
from mlaot.passes.algebra.egraph import total_cost
from mlaot.settings.options import Options

WORKLOADS = ("w2_mnist_b1", "w4_lenet_b1", "w8_lstm_b1", "w6_gpt_full", "t1_mlp_b64", "t2_lenet_b64")
PROGRAMS = ("LSTM 50 steps", "convolution 8 channels", "attention 16 positions", "edit distance 8 letters")


def subject(name: str) -> tuple[Any, str, Callable[[Any], Callable[[], Any]]]:
    """A declared model, the entry that is timed, and a call of it in a module."""
    if name in WORKLOADS:
        arrays, work = workloads.inputs(name), workloads.WORKLOADS[name]
        if work.examples:
            batch = [array[: work.batch] for array in arrays]
            return workloads.declare(name), "train_step", lambda nn: lambda: nn.train_step(*batch, lr=0.0)
        return workloads.declare(name), "forward", lambda nn: lambda: nn.forward(*arrays)
    case, rng = scalar_programs.CASES[name](), np.random.default_rng(0)
    held = {key: np.asarray(rng.normal(size=shape) * 0.3) for key, shape in case.parameters.items()}
    row = rng.normal(size=(1, int(np.prod(case.shape)))) * 0.5
    declared, _ = scalar_programs.in_scalars(case, held)
    return declared, "train_step", lambda nn: lambda: nn.train_step(row, lr=0.0)


def first_costs(module: Module) -> tuple[int, int]:
    """The cost of the graphs that the pass has made cheaper where it saw them first, before and after it."""
    lines = [re.match(r"model: cost ([\d,]+) => ([\d,]+)", line) for line in module.proof]
    found = [[int(cost.replace(",", "")) for cost in line.groups()] for line in lines if line]
    return sum(cost for cost, _ in found), sum(cost for _, cost in found)


def passed(declared: Any, options: Options) -> tuple[Module, float]:
    """The module after all passes, and the least CPU seconds that they took."""
    seconds = []
    for _ in range(3):
        traced = declared.trace()
        start = time.process_time()
        module = run("nn.nn", traced, options)
        seconds.append(time.process_time() - start)
    return module, min(seconds)


def measure(name: str, folder: Path) -> list[str]:
    """A row of the table."""
    declared, entry, call = subject(name)
    choices = [Options(isas=chosen_isas(), egraph=wanted) for wanted in (False, True)]
    (plain, without), (rewritten, with_it) = (passed(declared, options) for options in choices)
    nodes = [scalar_programs.size(module.graphs[entry]) for module in (plain, rewritten)]
    costs = [total_cost(module.graphs[entry].nodes()) for module in (plain, rewritten)]
    before, after = first_costs(rewritten)
    return [
        name,
        *(f"{count:,}" for count in nodes),
        f"{after / before:.4f}" if before else "1",
        f"{costs[1] / costs[0]:.6f}",
        *(f"{seconds:.2f}" for seconds in (without, with_it)),
        *times([compile_model(declared, "nn.nn", options) for options in choices], call, folder),
    ]


def times(programs: list[Program], call: Callable[[Any], Callable[[], Any]], folder: Path) -> list[str]:
    """Microseconds of a call of each program and their ratio; none where their C is the same."""
    first, second = map(program_files, programs)
    if first == second:
        return ["", "", "same C"]
    modules = [load(compile_program(program, "nn", folder / str(i))) for i, program in enumerate(programs)]
    calls = [call(module) for module in modules]
    np.testing.assert_allclose(*[np.asarray(each()) for each in calls], rtol=1e-4, atol=1e-4)
    best = scalar_programs.microseconds(*calls)
    return [*(f"{us:,.2f}" for us in best), f"{best[1] / best[0]:.2f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="subjects by the starts of their names", default="")
    options = parser.parse_args()
    one_core()
    rows = []
    for name in (*WORKLOADS, *PROGRAMS):
        if name.startswith(tuple(options.only.split(","))):
            with tempfile.TemporaryDirectory() as folder:
                rows.append(measure(name, Path(folder)))
            out(*rows[-1])
    pairs = [f"{what}{suffix}" for what in ("nodes", "passes s", "us") for suffix in ("", ", with")]
    table(["subject", *pairs[:2], "first cost", "cost", *pairs[2:], "ratio"], rows)


if __name__ == "__main__":
    main()
