"""The workers of an engine as Linux shows them: processes from this one on that have a model's code in their memory."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from examples.scale.job import Job

KILOBYTES = re.compile(r"^(Rss|Pss): +(\d+) kB", re.MULTILINE)


@dataclass(frozen=True)
class Memory:
    """Of some workers together, in MB: all, and of it the mapped weights; shared pages count once."""

    workers: int
    total: float
    weights: float


def workers_of(job: Job) -> list[int]:
    """Of this process and all that it and its children started, those that have loaded what scores the job."""
    code = f"/scored/{job.model}." if job.runtime == "mlaot" else "/onnxruntime_pybind11_state."
    return [process for process in [os.getpid(), *below(os.getpid())] if code in _read(process, "maps")]


def below(root: int) -> list[int]:
    """All processes that descend from one."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        if stat := _read(int(path.name), "stat"):
            children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(path.name))
    found = list(children.get(root, ()))
    for process in found:  # which grows
        found += children.get(process, ())
    return sorted(found)


def memory(job: Job, processes: Sequence[int]) -> Memory:
    """The proportional set size of processes: a page that several of them share counts as a part in each."""
    total = sum(_pss(_read(process, "smaps_rollup")) for process in processes)
    weights = 0
    for process in processes:
        maps = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", _read(process, "smaps"), flags=re.MULTILINE)
        weights += sum(_pss(part) for part in maps if f"/scored/{job.model}.weights" in part.partition("\n")[0])
    return Memory(len(processes), total / 1000, weights / 1000)


@contextmanager
def repeated(look: Callable[[], None], seconds: float) -> Iterator[None]:
    """Call ``look`` every so many seconds meanwhile, on a thread of its own."""
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(seconds):
            look()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def cpu_seconds() -> Iterator[list[float]]:
    """Append the CPU seconds that this process and all below it take meanwhile.

    It looks at them some times a second, since engines end processes without waiting for them. What a process takes
    after the last look is missing.
    """
    first, last, seconds = _ticks(), dict[int, int](), list[float]()
    try:
        with repeated(lambda: last.update(_ticks()), 0.3):
            yield seconds
    finally:
        last.update(_ticks())
        ticks = sum(taken - first.get(process, 0) for process, taken in last.items())
        seconds.append(ticks / os.sysconf("SC_CLK_TCK"))


def _ticks() -> dict[int, int]:
    """What this process and each below it has taken of CPUs, without its children."""
    stats = {process: _read(process, "stat") for process in [os.getpid(), *below(os.getpid())]}
    return {process: sum(map(int, stat.rpartition(")")[2].split()[11:13])) for process, stat in stats.items() if stat}


def _pss(text: str) -> int:
    return sum(int(size) for kind, size in KILOBYTES.findall(text) if kind == "Pss")


def _read(process: int, name: str) -> str:
    """A file of /proc; empty for a process that is gone."""
    try:
        return Path(f"/proc/{process}/{name}").read_text(errors="replace")
    except OSError:
        return ""
