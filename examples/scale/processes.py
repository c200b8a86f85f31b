"""Score with Python's own processes: ``multiprocessing.Pool``, and ``concurrent.futures`` with another try."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from examples.scale import measure
from examples.scale.job import Job, score_file

SPAWN = multiprocessing.get_context("spawn")  # a fork of a process with threads, such as Arrow's, may deadlock
TRIES = 4  # for a file


def add_path(folder: Path) -> None:
    """Let a worker import the wheel; where it is installed, nothing is to be done."""
    sys.path.insert(0, str(folder))


@contextmanager
def pool(job: Job, workers: int) -> Iterator[Callable[[Sequence[Path], Path], None]]:
    """A ``multiprocessing.Pool``. It waits forever for the file of a worker that was killed."""
    with SPAWN.Pool(workers, add_path, (job.site,)) as made:

        def run(parts: Sequence[Path], out: Path) -> None:
            for _ in made.imap_unordered(partial(score_file, job, out=out), parts):
                pass

        yield run


@contextmanager
def futures(job: Job, workers: int) -> Iterator[Callable[[Sequence[Path], Path], None]]:
    """A ``ProcessPoolExecutor``. A killed worker breaks it: another one takes the files that are left."""
    made: list[ProcessPoolExecutor] = []

    def start() -> ProcessPoolExecutor:
        made.append(ProcessPoolExecutor(workers, SPAWN, add_path, (job.site,)))
        return made[-1]

    start()

    def run(parts: Sequence[Path], out: Path) -> None:
        left = list(parts)
        for _ in range(TRIES):
            left = unfinished(made[-1], job, left, out)
            if not left:
                return
            start()
        raise RuntimeError(f"{len(left)} files break the workers, such as {left[0]}")

    try:
        yield run
    finally:
        made[-1].shutdown()


def unfinished(executor: ProcessPoolExecutor, job: Job, parts: Sequence[Path], out: Path) -> list[Path]:
    """Score files, and return those that a broken executor leaves. An error of the job itself is raised."""
    calls: dict[Path, Future[None]] = {}
    try:
        for part in parts:
            calls[part] = executor.submit(score_file, job, part, out)
        for call in calls.values():
            call.result()
    except BrokenProcessPool:
        executor.shutdown()
    return [part for part in parts if part not in calls or calls[part].exception() is not None]


def main(arguments: list[str]) -> None:
    """Measure both; only the second survives a kill."""
    engines = {"multiprocessing": pool, "concurrent.futures": futures}
    if "--kill" in arguments:
        del engines["multiprocessing"]
    measure.main(engines, ("pyarrow",), arguments)
