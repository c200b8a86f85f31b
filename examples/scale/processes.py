"""Score with Python alone: threads, ``multiprocessing.Pool``, and ``concurrent.futures`` with another try."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
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
def threads(job: Job, workers: int) -> Iterator[Callable[[Sequence[Path], Path], None]]:
    """Threads of one process: neither Arrow nor a call of the model holds Python's global lock."""
    add_path(job.site)
    with ThreadPoolExecutor(workers) as executor:

        def run(parts: Sequence[Path], out: Path) -> None:
            list(executor.map(partial(score_file, job, out=out), parts))

        yield run


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

    def start() -> ProcessPoolExecutor:
        return ProcessPoolExecutor(workers, SPAWN, add_path, (job.site,))

    executor = start()

    def run(parts: Sequence[Path], out: Path) -> None:
        nonlocal executor
        executor = score_all(executor, start, partial(score_file, job, out=out), parts)

    try:
        yield run
    finally:
        executor.shutdown()


def score_all(
    executor: ProcessPoolExecutor,
    start: Callable[[], ProcessPoolExecutor],
    score: Callable[[Path], None],
    parts: Sequence[Path],
) -> ProcessPoolExecutor:
    """Score files, those that a broken executor leaves with a new one; return the executor that is whole."""
    left = list(parts)
    for _ in range(TRIES):
        left = unfinished(executor, score, left)
        if not left:
            return executor
        executor = start()
    executor.shutdown()
    raise RuntimeError(f"workers were killed {TRIES} times; {len(left)} files are left, such as {left[0]}")


def unfinished(executor: ProcessPoolExecutor, score: Callable[[Path], None], parts: Sequence[Path]) -> list[Path]:
    """Score files, and return those that a broken executor leaves. An error of ``score`` itself is raised."""
    calls: dict[Path, Future[None]] = {}
    try:
        for part in parts:
            calls[part] = executor.submit(score, part)
        for call in calls.values():
            call.result()
    except BrokenProcessPool:
        executor.shutdown()  # waits, so that each call has an end
    except BaseException:
        executor.shutdown(cancel_futures=True)
        raise
    return [part for part in parts if part not in calls or calls[part].exception() is not None]


def main(arguments: list[str]) -> None:
    """Measure all of them; only the last survives a kill."""
    engines: dict[str, measure.Engine] = {"concurrent.futures": futures}
    if "--kill" not in arguments:
        engines = {"threads": threads, "multiprocessing": pool, **engines}
    measure.main(engines, ("pyarrow",), arguments)
