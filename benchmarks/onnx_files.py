"""ONNX files as wheels, beside onnxruntime: answers, time of a call, size, time to the first answer.

    python benchmarks/onnx_files.py model.onnx other.onnx        # needs the packages onnx and onnxruntime

Each file becomes a wheel by ``pip wheel``, which is unpacked into an empty folder. Both sides run on one core, take
turns, and get the same NumPy arrays. Open dimensions are 1.
"""

from __future__ import annotations

import importlib.util
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


def build(file: Path, folder: Path) -> tuple[Path, Path, float]:
    """The wheel of a file, where it is unpacked, and the seconds of its build."""
    project = folder / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text(PROJECT)
    (project / "model.onnx").write_bytes(file.read_bytes())
    begun = time.perf_counter()
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", str(folder)]
    subprocess.run([*command, str(project)], check=True, env=os.environ | {"MLAOT_CACHE": "off"})
    taken = time.perf_counter() - begun
    (wheel,) = folder.glob("*.whl")
    site = folder / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return wheel, site, taken


def load(site: Path) -> Any:
    """The module of an unpacked wheel."""
    (library,) = (site / "shipped").glob("nn.*.so")
    spec = importlib.util.spec_from_file_location("shipped.nn", library)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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


def feed(session: Any) -> dict[str, Any]:
    """Seeded inputs."""
    rng = np.random.default_rng(0)
    feeds = {}
    for info in session.get_inputs():
        shape = [extent if isinstance(extent, int) else 1 for extent in info.shape]
        dtype = np.dtype(DTYPES[info.type])
        values = rng.uniform(0, 1, shape) if dtype.kind == "f" else rng.integers(0, 256, shape)
        feeds[info.name] = values.astype(dtype)
    return feeds


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
    wheel, site, taken = build(file, folder)
    module = load(site)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    feeds = feed(session)
    ours = {port_name(name): array for name, array in feeds.items()}
    expected, got = session.run(None, feeds), module.run(None, feeds)
    off = max(float(np.abs(g - e).max() / max(np.abs(e).max(), 1e-30)) for g, e in zip(got, expected, strict=True))
    found = taking_turns({"ort": lambda: session.run(None, feeds), "mlaot": lambda: module.forward(**ours)})
    cold = first_answer(site, list(feeds.values()), folder) * 1e3
    sizes = [f"{path.stat().st_size / 1e3:.0f}" for path in (file, wheel)]
    times = [f"{found['ort']:.1f}", f"{found['mlaot']:.1f}", f"{found['mlaot'] / found['ort']:.2f}"]
    return [file.stem, *times, f"{off:.1e}", *sizes, f"{taken:.1f}", f"{cold:.1f}"]


def main(files: list[str]) -> None:
    one_core()
    heads = ["model", "onnxruntime us", "mlaot us", "ratio", "difference", "file KB", "wheel KB", "build s", "first ms"]
    rows = []
    for file in map(Path, files):
        with tempfile.TemporaryDirectory(prefix="mlaot-") as name:
            rows.append(measure(file, Path(name)))
    table(heads, rows)


if __name__ == "__main__":
    main(sys.argv[1:])
