"""ONNX files as wheels, beside onnxruntime: answers, time of a call, size, time to the first answer.

    python benchmarks/onnx_files.py model.onnx other.onnx        # needs the packages onnx and onnxruntime

Each file becomes a wheel by ``pip wheel``, which is unpacked into an empty folder. Both sides run on one core, take
turns, and get the same NumPy arrays: those of ``model.npz`` beside the file, under ``case0/in/NAME``, ``case1/in/NAME``
and so on, or seeded ones with open dimensions of 1. All cases are compared, the first is timed. ``noise`` is the
difference that onnxruntime's own optimizations make. A file that cannot be built says why in its row.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from common import one_core, table

from mlaot.onnx.declare import port_name
from mlaot.probe.beside import load_file

PROJECT = """\
[build-system]
requires = ["mlaot"]
build-backend = "mlaot.build"

[project]
name = "shipped"
version = "1.0"

[tool.mlaot.models.nn]
onnx = "model.onnx"
"""
FIRST = """\
import sys, time
begun = time.perf_counter()
sys.path.insert(0, sys.argv[1])
from shipped import nn
nn.forward(*[memoryview(bytearray(open(p, "rb").read())).cast("B").cast(f, s) for p, f, s in eval(sys.argv[2])])
print(time.perf_counter() - begun)
"""
DTYPES = {"tensor(float)": "f", "tensor(int32)": "i", "tensor(int64)": "q", "tensor(double)": "d"}
DTYPES |= {"tensor(float16)": "e", "tensor(bool)": "?", "tensor(uint8)": "B"}


class Failed(Exception):
    """A file cannot be built: why."""


def build(file: Path, folder: Path) -> tuple[Path, Path, float, int]:
    """The wheel of a file, where it is unpacked, the seconds and the most kilobytes of memory of its build."""
    project = folder / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text(PROJECT)
    (project / "model.onnx").write_bytes(file.read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", str(folder)]
    said = folder / "said"
    begun = time.perf_counter()
    with said.open("w") as log:
        env = os.environ | {"MLAOT_CACHE": "off"}
        process = subprocess.Popen([*command, str(project)], env=env, stdout=log, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
    taken = time.perf_counter() - begun
    if status:
        lines = said.read_text().splitlines()
        raise Failed(next((line.strip() for line in lines if "model.onnx:" in line), lines[-1] if lines else "?"))
    (wheel,) = folder.glob("*.whl")
    site = folder / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return wheel, site, taken, usage.ru_maxrss


def load(site: Path) -> Any:
    """The module of an unpacked wheel."""
    (library,) = (site / "shipped").glob("nn.*.so")
    return load_file("shipped.nn", library)


def first_answer(site: Path, inputs: list[Any], folder: Path) -> float:
    """Seconds from before the import to the first answer, in a Python of its own, the least of five."""
    given = []
    for i, array in enumerate(inputs):
        path = folder / f"input{i}"
        path.write_bytes(array.tobytes())
        given.append((str(path), array.dtype.char.replace("l", "q"), array.shape))
    command = [sys.executable, "-I", "-c", FIRST, str(site), repr(given)]
    runs = [subprocess.run(command, check=True, capture_output=True, text=True).stdout for _ in range(5)]
    return min(map(float, runs))


def cases(file: Path, session: Any) -> list[dict[str, Any]]:
    """The inputs of each case: those beside the file, or seeded ones."""
    if file.with_suffix(".npz").exists():
        found: dict[str, dict[str, Any]] = {}
        for key, array in np.load(file.with_suffix(".npz")).items():
            case, kind, name = key.split("/", 2)
            if kind == "in":
                found.setdefault(case, {})[name] = array
        return list(found.values())
    rng = np.random.default_rng(0)
    feeds = {}
    for info in session.get_inputs():
        shape = [extent if isinstance(extent, int) else 1 for extent in info.shape]
        dtype = np.dtype(DTYPES[info.type])
        values = rng.uniform(0, 1, shape) if dtype.kind == "f" else rng.integers(0, 256, shape)
        feeds[info.name] = values.astype(dtype)
    return [feeds]


def opened(file: Path, level: Any) -> Any:
    """A session of onnxruntime on one core."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = level
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def difference(found: list[Any], expected: list[Any]) -> float:
    """The largest difference of an output, relative to its largest number."""
    pairs = [(np.asarray(f, np.float64), np.asarray(e, np.float64)) for f, e in zip(found, expected, strict=True)]
    if any(f.shape != e.shape or not np.array_equal(np.isfinite(f), np.isfinite(e)) for f, e in pairs):
        return float("inf")
    both = [(f[np.isfinite(f)], e[np.isfinite(e)]) for f, e in pairs]
    return max((float(np.abs(f - e).max() / max(np.abs(e).max(), 1e-30)) for f, e in both if e.size), default=0.0)


def taking_turns(sides: dict[str, Callable[[], Any]], rounds: int = 15) -> dict[str, float]:
    """The median microseconds of each side."""
    times: dict[str, list[float]] = {side: [] for side in sides}
    begun = time.perf_counter()
    next(iter(sides.values()))()
    repeat = max(1, int(0.05 / (time.perf_counter() - begun)))
    for _ in range(rounds):
        for side, call in sides.items():
            begun = time.perf_counter()
            for _ in range(repeat):
                call()
            times[side].append((time.perf_counter() - begun) / repeat)
    return {side: statistics.median(some) * 1e6 for side, some in times.items()}


def measure(file: Path, folder: Path) -> list[str]:
    """The row of a file."""
    wheel, site, taken, memory = build(file, folder)
    module = load(site)
    levels = onnxruntime.GraphOptimizationLevel
    session, plain = opened(file, levels.ORT_ENABLE_ALL), opened(file, levels.ORT_DISABLE_ALL)
    given = cases(file, session)
    answers = [(session.run(None, feeds), plain.run(None, feeds), module.run(None, feeds)) for feeds in given]
    off = max(difference(got, expected) for expected, _, got in answers)
    noise = max(difference(other, expected) for expected, other, _ in answers)
    feeds = given[0]
    ours = {port_name(name): array for name, array in feeds.items()}
    found = taking_turns({"ort": lambda: session.run(None, feeds), "mlaot": lambda: module.forward(**ours)})
    cold = first_answer(site, list(feeds.values()), folder) * 1e3
    sizes = [f"{path.stat().st_size / 1e3:.0f}" for path in (file, wheel)]
    times = [f"{found['ort']:.1f}", f"{found['mlaot']:.1f}", f"{found['mlaot'] / found['ort']:.2f}"]
    return [
        file.stem,
        *times,
        f"{off:.1e}",
        f"{noise:.1e}",
        *sizes,
        f"{taken:.1f}",
        f"{memory / 1e3:.0f}",
        f"{cold:.1f}",
    ]


def main(files: list[str]) -> None:
    one_core()
    heads = ["model", "onnxruntime us", "mlaot us", "ratio", "difference", "noise"]
    heads += ["file KB", "wheel KB", "build s", "build MB", "first ms"]
    rows = []
    for file in map(Path, files):
        with tempfile.TemporaryDirectory(prefix="mlaot-") as name:
            try:
                rows.append(measure(file, Path(name)))
            except Failed as error:
                rows.append([file.stem, *[""] * (len(heads) - 2), str(error)])
    table(heads, rows)


if __name__ == "__main__":
    main(sys.argv[1:])
