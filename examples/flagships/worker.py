"""Runs a sample in an environment that has the package: ``python worker.py JOB SAMPLE FOLDER RUNTIME ROUNDS``.

What is done is one of ``make`` (the sample's inputs), ``first`` (time to the first answer, from the start of Python)
and ``whole`` (all answers, times, memory); the last line printed is JSON. Times are those of the CPU, which do not
depend on what else a machine does. It needs nothing but what the package does.
"""

import importlib
import importlib.util
import json
import os
import sys
from pathlib import Path, PurePath
from time import process_time
from typing import Any


def load(path: Path) -> Any:
    """Return the module of a sample, which may import what lies beside it, but is not found by name itself."""
    spec = importlib.util.spec_from_file_location("flagship_sample", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def keep_to_one_thread(runtime: Any) -> None:
    """Let each session of a runtime have one thread, for the one core: others would only wait, and use its time."""
    begin = runtime.InferenceSession.__init__

    def begin_alone(self: Any, path: Any, sess_options: Any = None, *arguments: Any, **options: Any) -> None:
        sess_options = sess_options or runtime.SessionOptions()
        sess_options.intra_op_num_threads = sess_options.inter_op_num_threads = 1
        begin(self, path, sess_options, *arguments, **options)

    runtime.InferenceSession.__init__ = begin_alone


def watch(runtime: Any) -> dict[str, list[float]]:
    """Let each session of a runtime note how long its calls take, by the name of its file."""
    times: dict[str, list[float]] = {}
    session = runtime.InferenceSession
    begin, run = session.__init__, session.run

    def begin_watched(self: Any, path: Any, *arguments: Any, **options: Any) -> None:
        begin(self, path, *arguments, **options)
        self.watched = times.setdefault("/".join(PurePath(os.fspath(path)).parts[-2:]), [])

    def run_watched(self: Any, *arguments: Any, **options: Any) -> Any:
        begun = process_time()
        results = run(self, *arguments, **options)
        self.watched.append(process_time() - begun)
        return results

    session.__init__, session.run = begin_watched, run_watched
    return times


def peak_memory() -> float:
    """Return the most memory that this process had, in MB."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def whole(sample: Any, folder: Path, runtime: str, rounds: int) -> dict[str, Any]:
    """Run the whole sample some times."""
    times = watch(importlib.import_module(runtime))
    answers: dict[str, Any] = {}
    totals: list[float] = []
    models: dict[str, tuple[int, float]] = {}
    for _ in range(rounds):
        for some in times.values():
            some.clear()
        begun = process_time()
        answers = dict(sample.steps(folder))
        totals.append(process_time() - begun)
        for name, some in times.items():
            if some and sum(some) < models.get(name, (0, float("inf")))[1]:
                models[name] = (len(some), sum(some))
    return {"answers": answers, "whole": min(totals), "models": models, "memory": peak_memory()}


def main() -> None:
    job, path, folder, runtime, rounds = sys.argv[1:]
    sample_folder = Path(path).parent
    if job == "make":
        sys.path.append(str(sample_folder))
        load(Path(path)).make(Path(folder))
        print("{}")
        return
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    sample = load(Path(path))
    keep_to_one_thread(importlib.import_module(runtime))
    if job == "first":
        next(sample.steps(Path(folder)))
        print(json.dumps({"first": process_time()}))
    else:
        print(json.dumps(whole(sample, Path(folder), runtime, int(rounds))))


if __name__ == "__main__":
    main()
