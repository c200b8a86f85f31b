"""Measure an engine: rows a second, memory, and whether each row is scored once where workers are killed."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import random
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from examples.scale import job as jobs
from examples.scale.job import ROOT, TASKS, Job
from examples.scale.workers import Memory, cpu_seconds, memory, repeated, workers_of

HEADS = (
    *("model", "runtime", "engine", "workers", "rows/s", "of linear", "by CPU seconds", "µs of CPUs a row"),
    *("start, s", "one file, s", "memory, MB", "weights, MB"),
)
FILES_FOR_MEMORY = 4  # of each worker: enough for each to have its share
# Starts the engine with so many workers of one thread; the function scores files into a folder.
Engine = Callable[[Job, int], AbstractContextManager[Callable[[Sequence[Path], Path], None]]]


@dataclass(frozen=True)
class Measured:
    """Of one engine, model, runtime and number of workers: seconds, those of all CPUs, and the workers' memory."""

    start: float
    one_file: float
    seconds: float
    cpu: float
    memory: Memory


@contextmanager
def plain(job: Job, workers: int) -> Iterator[Callable[[Sequence[Path], Path], None]]:
    """No engine: calls in one process."""
    sys.path.insert(0, str(job.site))

    def run(parts: Sequence[Path], out: Path) -> None:
        for part in parts:
            jobs.score_file(job, part, out)

    yield run


def measured(engine: Engine, job: Job, workers: int, rounds: int, out: Path) -> Measured:
    """Start the engine on as many CPUs as workers. Score some files for memory, then all for the best of ``rounds``."""
    prepare_process(workers)
    begun = time.perf_counter()
    with engine(job, workers) as run:
        start = time.perf_counter() - begun
        with watched(job) as seen:
            timed(run, job.parts[: FILES_FOR_MEMORY * workers], out / "some")
        one_file, _ = timed(run, job.parts[:1], out / "one")
        seconds, cpu = map(min, zip(*(timed(run, job.parts, out / "all") for _ in range(rounds)), strict=True))
        return Measured(start, one_file, seconds, cpu, max(seen, key=lambda m: (m.workers, m.total)))


def killed(engine: Engine, job: Job, workers: int, seconds: float, times: int, out: Path, good: Path) -> list[float]:
    """Score all files until so many runs had a SIGKILL for a worker at a random moment; return the seconds of these."""
    prepare_process(workers)
    rng, took = random.Random(7), list[float]()
    with engine(job, workers) as run:
        timed(run, job.parts, out / "all")
        for _ in range(3 * times):
            stop, hit = threading.Event(), list[int]()
            moment = rng.uniform(0.05, 0.8) * seconds
            thread = threading.Thread(target=kill_one, args=(job, moment, rng.random(), stop, hit))
            thread.start()
            spent, _ = timed(run, job.parts, out / "all")
            stop.set()
            thread.join()
            check(job, out / "all", good / "all")
            took += [spent] * len(hit)
            if len(took) == times:
                return took
    raise SystemExit(f"only {len(took)} of {3 * times} runs had a worker to kill: take more rows")


def kill_one(job: Job, moment: float, which: float, stop: threading.Event, hit: list[int]) -> None:
    """At a moment of the run kill one of the workers, which ``which`` in 0..1 chooses."""
    stop.wait(moment)
    while not stop.is_set():
        if found := [process for process in workers_of(job) if process != os.getpid()]:
            victim = found[int(which * len(found))]
            with suppress(ProcessLookupError):  # it may have ended
                os.kill(victim, signal.SIGKILL)
                hit.append(victim)
                return
        stop.wait(0.01)


def prepare_process(workers: int) -> None:
    """Keep this process, and all that it starts, on as many CPUs as there are workers."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:workers])
    os.environ["PYTHONPATH"] = str(ROOT)  # the engines' workers import this package; the wheel comes by the engine


def timed(run: Callable[[Sequence[Path], Path], None], parts: Sequence[Path], out: Path) -> tuple[float, float]:
    """The seconds of one run into an empty folder, and those of all CPUs together."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with cpu_seconds() as cpu:
        begun = time.perf_counter()
        run(parts, out)
        seconds = time.perf_counter() - begun
    return seconds, cpu[0]


@contextmanager
def watched(job: Job) -> Iterator[list[Memory]]:
    """Look at the workers' memory some times a second."""
    seen = [memory(job, [])]
    with repeated(lambda: seen.append(memory(job, workers_of(job))), 0.2):
        yield seen


def check(job: Job, out: Path, good: Path) -> None:
    """Compare the answers with the plain ones, row by row: each id once, and mlaot's scores to the bit."""
    got, wanted = jobs.answers(out), jobs.answers(good)
    ids = got["id"].to_numpy()
    if not np.array_equal(ids, wanted["id"].to_numpy()):
        raise SystemExit(f"{job.model}: {len(ids)} rows with {len(np.unique(ids))} ids, expected {len(wanted)}")
    scores, right = (np.asarray(x["scores"].combine_chunks().flatten()) for x in (got, wanted))
    if not (np.array_equal(scores, right) if job.runtime == "mlaot" else np.allclose(scores, right, 1e-4, 1e-4)):
        raise SystemExit(f"{job.model}: {np.count_nonzero(scores != right)} scores differ from those of plain calls")


def alone(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a call in a new process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def main(engines: Mapping[str, Engine], packages: Sequence[str], arguments: list[str]) -> None:
    """Make the wheel and the rows, then print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "scale", help="for all that is made")
    parser.add_argument("--model", choices=(*TASKS, "all"), default="all")
    parser.add_argument("--rows", type=int, help="how many rows (default: some 10 s of plain calls)")
    parser.add_argument("--rounds", type=int, default=3, help="the best of how many runs counts")
    parser.add_argument("--runtime", choices=("mlaot", "onnxruntime", "all"), default="all")
    parser.add_argument("--kill", type=int, default=0, metavar="N", help="kill a worker in N runs instead of timing")
    options = parser.parse_args(arguments)
    folder = options.folder.absolute()
    models = list(TASKS) if options.model == "all" else [options.model]
    os.environ["PYTHONPATH"] = str(ROOT)
    jobs.prepare(folder, {model: options.rows or TASKS[model].rows for model in models})
    print(", ".join([f"Python {platform.python_version()}", *(f"{name} {version(name)}" for name in packages)]))
    if not options.kill:
        print(f"\n| {' | '.join(HEADS)} |\n|---|---|---|{'--:|' * (len(HEADS) - 3)}")
    runtimes = ("mlaot", "onnxruntime") if options.runtime == "all" else (options.runtime,)
    for model, runtime in product(models, runtimes):
        report(engines, Job(folder, model, runtime, options.rows or TASKS[model].rows), options.rounds, options.kill)


def report(engines: Mapping[str, Engine], job: Job, rounds: int, kills: int) -> None:
    """Print what was measured with a model and a runtime: rows of a table, or what kills did."""
    rows, out = len(job.parts) * job.task.file_rows, job.folder / "out"
    good = job.folder / "plain" / job.runtime
    base = alone(measured, plain, job, 1, rounds, good)
    if not kills:
        print_row(job, "plain calls", 1, rows, base, base)
    for name, engine in engines.items():
        if kills:
            once = alone(measured, engine, job, 2, 1, out).seconds
            took = alone(killed, engine, job, 2, once, kills, out, good)
            print(f"{name}, {job.model} by {job.runtime}: {kills} runs of {rows:,} rows, a worker killed in each;")
            print(f"  all rows were scored exactly once, in {min(took):.1f} to {max(took):.1f} s", end=" ")
            print(f"({once:.1f} s without a kill)", flush=True)
            continue
        for workers in (1, 2):
            it = alone(measured, engine, job, workers, rounds, out)
            check(job, out / "all", good / "all")
            print_row(job, name, workers, rows, it, base)


def print_row(job: Job, name: str, workers: int, rows: int, it: Measured, base: Measured) -> None:
    """Print a row of the table that ``HEADS`` begins."""
    share, cpu = base.seconds / it.seconds / workers, base.cpu / it.cpu
    speed = [f"{rows / it.seconds:,.0f}", f"{share:.2f}", f"{cpu:.2f}", f"{it.cpu / rows * 1e6:,.1f}"]
    size = [f"{it.memory.total:,.0f}", f"{it.memory.weights:,.1f}"]
    cells = [job.model, job.runtime, name, str(workers), *speed, f"{it.start:.1f}", f"{it.one_file:.1f}", *size]
    print(f"| {' | '.join(cells)} |", flush=True)
