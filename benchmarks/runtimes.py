"""mlaot beside the runtimes that a user would pick instead: one call on one core, and how far that is from the limit.

    python benchmarks/runtimes.py                                   # all workloads, the peers of this environment
    python benchmarks/runtimes.py --work w3_mlp_b64 --peers ''      # one workload, mlaot alone
    python benchmarks/runtimes.py --peers ort,torch --python ort=/venv/bin/python,torch=/other/bin/python

Every workload is built for all instruction sets and checked against NumPy in float64. Then each runtime has a process
and one thread; they take turns, ``--rounds`` times, and the median of the rounds' medians counts.

``limit`` is the larger of two times, plus that of a call (``limits.c``): the operations at the machine's peak, and the
bytes of weights, inputs and outputs at its bandwidth. ``by`` names the largest of the three. A call of a training
workload is one epoch. The limit of trees is that of their rows: decisions are not counted. ``code`` is the size of the
library without its weights.

The runtimes other than mlaot get the network as PyTorch's export of it. That needs an interpreter with torch
(``torch=``), and for LiteRT one with litert_torch (``litert_torch=``). Without these, ``--data FOLDER`` must hold
``<workload>.onnx``, ``build/litert/<workload>.tflite``, ``weights_<network>.npz`` and ``<workload>.npz`` (inputs
``in0``.., outputs ``out0``..). Trees come from there alone.
"""

import argparse
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from common import compile_program, one_core, out, table
from limits import Cost, Machine, cost, measure
from peers import MAKERS, PEERS, SERVING, TRAINING, TREES
from workloads import LEARNING_RATE, WORKLOADS, Array, chosen, declare, inputs, network, weights_of

from mlaot import passes
from mlaot.evaluate import evaluate
from mlaot.generate import compile_model
from mlaot.ir.dims import parse, substitute
from mlaot.loading import trace
from mlaot.schedule.machine import MACHINES
from mlaot.settings.options import Options

HERE = Path(__file__).resolve().parent
TOLERANCE = 1e-4  # of the largest value of the reference


@dataclass
class Built:
    """A workload in a folder, ready for all runtimes."""

    name: str
    folder: Path
    cost: Cost
    steps: int
    arrays: int
    seconds: float
    code: int
    workspace: int
    reference: list[Array]
    times: dict[str, float] = field(default_factory=dict)


def build(name: str, folder: Path, data: Path | None) -> Built:
    """Compile a workload and write what its runtimes read."""
    work, weights = WORKLOADS[name], weights_of(name, data)
    folder.mkdir(parents=True, exist_ok=True)
    known = dict(np.load(data / f"{work.rows_of or name}.npz")) if data else {}
    arrays = [known[key] for key in sorted(known) if key.startswith("in")] or inputs(name)
    net = network(name, weights)
    description = {
        "network": work.network,
        "batch": work.shapes[0][0] if work.examples else 0,
        "rows": bool(work.rows_of),
        "rate": LEARNING_RATE,
        "parameters": [key for key, _ in net.named_parameters()],
    }
    (folder / "workload.json").write_text(json.dumps(description))
    np.savez(folder / "inputs.npz", *arrays)
    np.savez(folder / "weights.npz", **weights)
    copy_made(name, folder, data)
    declared, dims = declare(name, weights), {"batch": work.batch}
    started = time.perf_counter()
    program = compile_model(declared, "nn.nn", Options(isas=tuple(MACHINES)))
    library = compile_program(program, "nn", folder)
    seconds = time.perf_counter() - started
    entry = next(e for e in program.module.entries if e.name == ("train_step" if work.examples else "forward"))
    price = cost(declared, dims)
    weights_inside = folder / "weights.bin"  # large ones lie in a file beside the library
    inside = weights_inside.stat().st_size if weights_inside.exists() else 0
    reference = [known[f"out{i}"] for i in range(len(known) - len(arrays))] or expected(name, net, declared, arrays)
    moved = sum(array.nbytes for array in [*arrays, *([] if work.examples else reference)])
    return Built(
        name=name,
        folder=folder,
        cost=price,
        steps=max(1, work.examples // work.shapes[0][0]),
        arrays=moved // len(arrays[0]) if work.rows_of else moved,
        seconds=seconds,
        code=library.stat().st_size - inside,
        workspace=substitute(parse(entry.workspace), dims),
        reference=reference,
    )


def copy_made(name: str, folder: Path, data: Path | None) -> None:
    """The network in other runtimes' formats, where ``data`` has it."""
    if data is not None:
        found = {"model.onnx": data / f"{name}.onnx", "model.tflite": data / "build" / "litert" / f"{name}.tflite"}
        for file, source in found.items():
            if source.exists():
                shutil.copy(source, folder / file)


def expected(name: str, net: Any, declared: Any, arrays: list[Array]) -> list[Array]:
    """The outputs in float64, or the parameters after an epoch."""
    work = WORKLOADS[name]
    if not work.examples:
        for held in (*net.parameters(), *net.buffers()):
            held.array = np.asarray(held).astype(np.float64)
        result = net(*[a if a.dtype.kind == "i" else a.astype(np.float64) for a in arrays])
        return list(result) if isinstance(result, tuple) else [result]
    traced, size = trace(declared), work.shapes[0][0]
    step = passes.run("nn.nn", traced).graphs["train_step"]
    values: dict[str, Any] = dict(traced.parameters)
    for i in range(0, work.examples, size):
        given = {"x": arrays[0][i : i + size], "label": arrays[1][i : i + size], "lr": LEARNING_RATE}
        found = evaluate(step, {**values, **given}, wide=True)
        values = {key: found[f"write {key}"] for key in values}
    return list(values.values())


def interpreters(peers: str | None, given: str) -> tuple[list[str], dict[str, str]]:
    """The peers to time, and which Python runs each, and each maker of model files under the name of its package.

    Named peers, or all whose package is in this environment or that ``given``, ``peer=path,..``, names.
    """
    told = dict(part.split("=", 1) for part in given.split(",") if part)
    needs = {name: package for name, (_, package, _) in PEERS.items()}
    unknown = {*(peers or "").split(","), *told} - {"", *needs, *(package for _, package in MAKERS.values())}
    if unknown:
        raise SystemExit(f"no peer is called {', '.join(sorted(unknown))}; there are {', '.join(needs)}")

    def python(name: str, package: str) -> str | None:
        path = told.get(name) or told.get(name.partition("-")[0])
        return path or (sys.executable if importlib.util.find_spec(package) else None)

    names = [*SERVING, *TRAINING] if peers is None else ["mlaot", *(name for name in peers.split(",") if name)]
    found = {name: python(name, needs[name]) for name in names}
    for name, path in found.items():
        if path is None and peers is not None:
            raise SystemExit(f"{name} is not in this environment; say where it is: --python {name}=PATH")
    makers = {package: python(package, package) for _, package in MAKERS.values()}
    pythons = {name: path for name, path in {**makers, **found}.items() if path is not None}
    return [name for name in PEERS if found.get(name)], pythons


class Runtime:
    """The process of one peer on one workload."""

    def __init__(self, peer: str, python: str, folder: Path) -> None:
        environ = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self.log = open(folder / f"{peer}.log", "w")  # noqa: SIM115 - as long as the process
        command = [python, str(HERE / "peers.py"), peer, str(folder)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, env=environ
        )
        self.read()

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            last = Path(self.log.name).read_text().strip().splitlines()[-1:]
            raise RuntimeError(last[0] if last else "it died without a word")
        return dict(json.loads(line))

    def time(self, milliseconds: float) -> float:
        """The median seconds of the calls in that time."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{milliseconds}\n")
        self.process.stdin.flush()
        return float(self.read()["median"]) / 1e9

    def end(self) -> None:
        self.process.communicate()
        self.log.close()


def start(built: Built, peer: str, pythons: dict[str, str]) -> Runtime | None:
    """A runtime whose outputs are right; a line of why where it is not to be had."""
    work = WORKLOADS[built.name]
    if peer not in (TRAINING if work.examples else TREES if work.network == "gb" else SERVING):
        return None
    return start_in(built.folder, peer, pythons, built.reference)


def start_in(folder: Path, peer: str, pythons: dict[str, str], reference: list[Array]) -> Runtime | None:
    """The same in a folder, whose model files are made where they are missing."""
    file = PEERS[peer][2]
    try:
        if not (folder / file).exists():
            make(folder, file, pythons)
        runtime = Runtime(peer, pythons[peer], folder)
    except RuntimeError as error:
        out(f"  {folder.name}: {peer} does not run: {error}")
        return None
    difference = largest_error(np.load(folder / f"{peer}.npz").values(), reference)
    if difference < TOLERANCE:
        return runtime
    out(f"  {folder.name}: {peer} gives other outputs, an error of {difference:.1e} of the largest")
    runtime.end()
    return None


def make(folder: Path, file: str, pythons: dict[str, str]) -> None:
    package = MAKERS[file][1]
    if package not in pythons:
        raise RuntimeError(f"{file} is made by {package}, which is not in this environment; --python {package}=PATH")
    command = [pythons[package], str(HERE / "peers.py"), "--make", file, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{file}: {done.stderr.strip().splitlines()[-1]}")


def largest_error(outputs: Iterable[Array], references: Iterable[Array]) -> float:
    pairs = list(zip(outputs, references, strict=True))
    errors = [np.abs(a.astype(np.float64).reshape(b.shape) - b).max() / max(1.0, np.abs(b).max()) for a, b in pairs]
    return max(float("inf") if np.isnan(e) else float(e) for e in errors)


def compare(built: Built, peers: list[str], pythons: dict[str, str], rounds: int, milliseconds: float) -> None:
    """Fill in the times."""
    started = {peer: start(built, peer, pythons) for peer in peers}
    built.times = take_turns({p: runtime for p, runtime in started.items() if runtime}, rounds, milliseconds)


def take_turns(
    running: dict[str, Runtime],
    rounds: int,
    milliseconds: float,
    pick: Callable[[list[float]], float] = statistics.median,
) -> dict[str, float]:
    """The seconds of a call: all runtimes alive together, in turns, so that a drift of the machine hits all of them."""
    for runtime in running.values():
        runtime.time(milliseconds)
    medians: dict[str, list[float]] = {peer: [] for peer in running}
    for i in range(rounds):
        order = list(running)
        for peer in order[i % max(1, len(order)) :] + order[: i % max(1, len(order))]:
            medians[peer].append(running[peer].time(milliseconds))
    for runtime in running.values():
        runtime.end()
    return {peer: pick(times) for peer, times in medians.items()}


def row(built: Built, peers: list[str], machine: Machine) -> list[str]:
    limit, bound = built.cost.limit(machine, built.arrays, built.steps)
    own = built.times.get("mlaot")
    return [
        built.name,
        "-" if own is None else f"{own * 1e6:,.2f}",
        *(f"{built.times[p] / own:.2f}" if own and p in built.times else "-" for p in peers if p != "mlaot"),
        f"{limit * 1e6:,.2f}",
        bound,
        f"{own / limit:.1f}" if own else "-",
        f"{built.seconds:.1f}",
        f"{built.code / 1000:,.0f}",
        f"{built.workspace / 1000:,.1f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", default="", help="workloads by the start of their names, such as w2,w3_mlp_b64")
    parser.add_argument("--peers", help=f"of {', '.join(list(PEERS)[1:])}; '' for none; all that are there by default")
    parser.add_argument("--python", default="", help="interpreters, such as ort=/venv/bin/python,torch=..")
    parser.add_argument("--data", type=Path, help="folder with weights, inputs, outputs, and models of other formats")
    parser.add_argument("--keep", type=Path, help="folder for the generated C and the libraries, <folder>/<workload>")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--ms", type=float, default=60, help="milliseconds of a runtime's turn")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    names = chosen(options.work)
    peers, pythons = interpreters(options.peers, options.python)
    one_core()
    machine, rows, figures = measure(), [], {}
    with tempfile.TemporaryDirectory() as temporary:
        for i, name in enumerate(names, 1):
            out(f"{i}/{len(names)} {name}")
            folder = Path(options.keep or temporary, name)
            try:
                built = build(name, folder, options.data)
            except Exception as error:
                out(f"  {name} cannot be built: {type(error).__name__}: {error}")
                continue
            compare(built, peers, pythons, options.rounds, options.ms)
            rows.append(row(built, peers, machine))
            limit, bound = built.cost.limit(machine, built.arrays, built.steps)
            figures[name] = {"seconds": built.times, "limit": limit, "by": bound, "compile": built.seconds}
            figures[name] |= {"code": built.code, "workspace": built.workspace}
            if not options.keep:
                shutil.rmtree(folder)
    others = [f"{peer} / mlaot" for peer in peers if peer != "mlaot"]
    heads = ["workload", "mlaot us", *others, "limit us", "by", "mlaot / limit", "compile s", "code KB", "workspace KB"]
    out(f"peak {machine.peak / 1e9:.0f} GFLOP/s, call {machine.call * 1e9:.0f} ns")
    table(heads, rows)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
