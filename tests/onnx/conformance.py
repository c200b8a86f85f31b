"""ONNX's own tests, of which the package ``onnx`` brings two thousand, compiled and run.

    python -m tests.onnx.conformance                  # all, against the list of those that pass
    python -m tests.onnx.conformance --select lstm    # those whose name matches
    python -m tests.onnx.conformance --write          # all, and add to the list what passes now

Each model is compiled to C; nothing but that computes its outputs, which must be of the right dtype and shape, within
the test's own tolerance; a second run must give the same bits and leave the inputs alone. What cannot be compiled must
say so (``unsupported``); anything else is a failure. The list in passing.txt may only grow. Why a test is not in it,
reasons.txt says; what both have passes on some machines.
"""

from __future__ import annotations

import argparse
import glob
import multiprocessing
import os
import re
import sys
import time
import unittest
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx.backend.test import loader, runner

PASSING = Path(__file__).parent / "passing.txt"
REASONS = Path(__file__).parent / "reasons.txt"
KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "real")
LIMIT = 300.0  # seconds that one test may take
Sets = list[tuple[list[Any], list[Any]]]


class Verdict(NamedTuple):
    """``pass``, ``unsupported``, ``fail`` (a wrong answer), ``error``, ``crash`` or ``timeout``, and why."""

    kind: str
    message: str = ""


@cache
def cases() -> dict[str, Any]:
    """Every test by its name, as ``kind/name``."""
    return {f"{kind}/{case.name}": case for kind in KINDS for case in loader.load_model_tests(kind=kind)}


def model_and_sets(case: Any) -> tuple[onnx.ModelProto, Sets]:
    """A test's model, and its inputs with the outputs that they must give."""
    if case.model is not None:
        return case.model, [(list(map(array, i)), list(map(array, o))) for i, o in case.data_sets]
    if case.model_dir is None:  # a network with weights of one value, whose answers lie beside it
        path = Path(loader.DATA_DIR, "light", os.path.basename(case.url))
        model = onnx.load(path)
        known = {tensor.name for tensor in model.graph.initializer}
        inputs = [
            runner.Runner.generate_dummy_data(info, seed=0, name=case.name)
            for info in model.graph.input
            if info.name not in known
        ]
        names = [f"{path.with_suffix('')}_output_{i}.pb" for i in range(len(model.graph.output))]
        outputs = [onnx.numpy_helper.to_array(onnx.TensorProto.FromString(Path(name).read_bytes())) for name in names]
        return model, [(inputs, outputs)]
    model = onnx.load(os.path.join(case.model_dir, "model.onnx"))
    sets = []
    for folder in sorted(glob.glob(os.path.join(case.model_dir, "test_data_set*"))):
        sets.append((_read(folder, "input", model.graph.input), _read(folder, "output", model.graph.output)))
    return model, sets


def _read(folder: str, kind: str, infos: Sequence[onnx.ValueInfoProto]) -> list[Any]:
    found: list[Any] = []
    for i in range(len(glob.glob(os.path.join(folder, f"{kind}_*.pb")))):
        path = os.path.join(folder, f"{kind}_{i}.pb")
        runner.Runner._load_proto(None, path, found, infos[i].type)  # type: ignore[arg-type]
    return found


def array(value: Any) -> Any:
    """A tensor or a number of NumPy's as an array."""
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def bits(values: Any) -> list[Any]:
    """What tells values apart to the last bit."""
    return [v.tobytes() if isinstance(v, np.ndarray) and v.dtype != object else repr(v) for v in values]


def check_similar(case: Any, wanted: Sequence[Any], got: Sequence[Any]) -> None:
    """Compare outputs as ONNX's runner does, which by itself takes no sequences of single numbers."""
    assert len(got) == len(wanted), f"{len(got)} values, {len(wanted)} expected"
    for one, other in zip(wanted, got, strict=True):
        if isinstance(one, list):
            assert isinstance(other, list), f"{type(other).__name__}, a list expected"
            check_similar(case, one, other)
        else:
            runner.Runner.assert_similar_outputs([one], [other], case.rtol, case.atol, model_dir=case.name)


def verdict(name: str) -> Verdict:
    """Run one test in this process."""
    from mlaot.onnx import Backend

    case = cases()[name]
    try:
        model, sets = model_and_sets(case)
        compiled = Backend.prepare(model)
        assert sets, "the test has no data"
        for inputs, wanted in sets:
            before = bits(inputs)
            got = compiled.run(inputs)
            try:
                check_similar(case, wanted, got)
            except Exception as error:
                return Verdict("fail", f"{type(error).__name__}: {error}")
            if bits(inputs) != before:
                return Verdict("fail", "the inputs were changed")
            if bits(compiled.run(inputs)) != bits(got):
                return Verdict("fail", "a second run gave other bits")
    except (NotImplementedError, unittest.SkipTest) as error:
        return Verdict("unsupported", str(error))
    except Exception as error:
        return Verdict("error", f"{type(error).__name__}: {error}")
    return Verdict("pass")


def _work(pipe: Connection) -> None:
    np.seterr(all="ignore")
    while (name := pipe.recv()) is not None:
        pipe.send(verdict(name))


def run(names: Sequence[str], jobs: int) -> Iterator[tuple[str, Verdict]]:
    """Run tests in worker processes; one that dies costs only its test."""
    context = multiprocessing.get_context("fork")
    left = list(reversed(names))
    busy: dict[Connection, tuple[Any, str, float]] = {}

    def start() -> None:
        if left:
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            give(ours, process)

    def give(pipe: Connection, process: Any) -> None:
        if left:
            name = left.pop()
            pipe.send(name)
            busy[pipe] = process, name, time.monotonic()
        else:
            pipe.send(None)
            process.join()

    for _ in range(jobs):
        start()
    while busy:
        for pipe in wait(list(busy), timeout=1.0):
            assert isinstance(pipe, Connection)
            process, name, _ = busy.pop(pipe)
            try:
                yield name, pipe.recv()
                give(pipe, process)
            except EOFError:
                process.join()
                yield name, Verdict("crash", f"exit status {process.exitcode}")
                start()
        for pipe, (process, name, begun) in list(busy.items()):
            if time.monotonic() - begun > LIMIT:
                process.kill()
                del busy[pipe]
                yield name, Verdict("timeout", f"no answer in {LIMIT:g} s")
                start()


def passing() -> set[str]:
    """The tests that are known to pass."""
    return set(PASSING.read_text().split()) if PASSING.exists() else set()


def reasons() -> dict[str, str]:
    """Why tests do not pass, or not on every machine, by the regular expressions of their names."""
    lines = [line for line in REASONS.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split(": ", 1) for line in lines)


def excused(names: Iterable[str]) -> set[str]:
    """Those of some tests for which there is a reason."""
    return {name for name in names if any(re.fullmatch(pattern, name) for pattern in reasons())}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--select", default="", help="a regular expression that names must match")
    parser.add_argument("--write", action="store_true", help="add what passes to passing.txt")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    options = parser.parse_args(arguments)
    names = [name for name in cases() if re.search(options.select, name)]
    found: dict[str, Verdict] = {}
    for name, said in run(names, options.jobs):
        found[name] = said
        if len(found) % 100 == 0:
            print(f"{len(found)} of {len(names)}", file=sys.stderr, flush=True)
    for kind in KINDS:
        tally = Counter(said.kind for name, said in found.items() if name.startswith(f"{kind}/"))
        if tally:
            print(f"{kind:18} {tally.total():5}  " + "  ".join(f"{k} {n}" for k, n in sorted(tally.items())))
    because = defaultdict(list)
    for name, said in found.items():
        if said.kind != "pass":
            because[said.kind, " ".join(said.message.split())[:160]].append(name)
    for (kind, message), which in sorted(
        because.items(), key=lambda item: (item[0][0] != "unsupported", -len(item[1]))
    ):
        print(f"{kind}: {len(which)}: {message}: {', '.join(which[:3])}")
    passed = {name for name, said in found.items() if said.kind == "pass"}
    known = excused(found)
    lost = sorted((passing() & found.keys()) - passed - known)
    for name in lost:
        print(f"LOST {name}: {found[name].kind}: {found[name].message}")
    if options.write:
        PASSING.write_text("".join(f"{name}\n" for name in sorted(passing() | passed)))
    wrong = [n for n, said in found.items() if said.kind not in ("pass", "unsupported") and n not in known]
    unexplained = sorted(found.keys() - passing() - known)
    for name in unexplained:
        print(f"NO REASON why {name} is in no list")
    stale = [
        pattern for pattern in reasons() if (own := {n for n in found if re.fullmatch(pattern, n)}) and own <= passed
    ]
    for pattern in stale:
        print(f"NO NEED for the reason of {pattern} on this machine")
    print(f"{len(passed)} of {len(found)} pass, {len(wrong)} are wrong, {len(lost)} are lost")
    return int(bool(lost or wrong or unexplained))


if __name__ == "__main__":
    sys.exit(main())
