"""mlaot beside what a user would ship a model with instead: writes the figures of ``docs/comparison.md``.

    pip install -e ".[comparison]"
    python benchmarks/comparison.py --write            # what is not installed is left out, with a line that says so
    python benchmarks/comparison.py --only forest      # prints the table of one model

Two networks and a forest. Each peer answers what the reference answers, or is left out. A call is NumPy in, NumPy out,
on one thread, all peers in turns, and the least median of the rounds counts. One answer is a program that loads the
model and asks it once. Nothing else should run meanwhile. For Linux and macOS.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import runtimes
from common import compile_program, one_core, out
from peers import AHEAD, FOREST, MAKERS, PEERS

from mlaot.generate import compile_model
from mlaot.schedule.machine import MACHINES
from mlaot.settings.options import Options

PAGE = Path(__file__).resolve().parents[1] / "docs" / "comparison.md"
NETWORKS = {"mlp": "w2_mnist_b1", "lenet": "w4_lenet_b1"}
# What a program needs installed beside the file; for emlearn nothing but a C compiler.
INSTALLED = {
    "mlaot": (),
    "ort": ("onnxruntime",),
    "aoti": ("torch",),
    "executorch": ("executorch", "torch"),
    "iree": ("iree-base-runtime",),
    "tvm": ("apache-tvm",),
    "sklearn": ("scikit-learn",),
    "tl2cgen": ("tl2cgen",),
    "emlearn": (),
}
NAMES = {
    "ort": "onnxruntime",
    "aoti": "AOTInductor",
    "executorch": "ExecuTorch",
    "iree": "IREE",
    "tvm": "TVM",
    "sklearn": "scikit-learn",
}
# A program of mlaot's needs no NumPy; the other ones import it in any case.
ALONE = """\
import array, sys
sys.path.insert(0, {folder!r})
import nn
numbers = array.array("f", open({inputs!r}, "rb").read())
nn.{function}(memoryview(numbers).cast("B").cast("f", {shape}))
"""


def make_forest(folder: Path) -> list[Any]:
    """A fitted forest in a folder, ready for its peers; the answers of scikit-learn."""
    import joblib
    import skl2onnx
    from sklearn.datasets import make_friedman1
    from sklearn.ensemble import RandomForestRegressor

    import mlaot.sklearn

    folder.mkdir(parents=True)
    # emlearn compares by <, not by <=, and with six decimals: no number here is that near to a threshold.
    features, target = make_friedman1(500, random_state=0)
    rows = (100 * features).astype(np.float32)
    fitted = RandomForestRegressor(100, max_depth=6, random_state=0).fit(rows, target)
    joblib.dump(fitted, folder / "forest.joblib")
    np.savez(folder / "inputs.npz", rows)
    (folder / "model.onnx").write_bytes(skl2onnx.to_onnx(fitted, rows[:1]).SerializeToString())
    (folder / "workload.json").write_text(json.dumps({"network": "forest", "batch": 0, "rows": True}))
    declared = mlaot.sklearn.load(fitted, rows[:1])
    compile_program(compile_model(declared, "nn.nn", Options(isas=tuple(MACHINES))), "nn", folder)
    return [np.stack([fitted.predict(rows[i : i + 1]) for i in range(len(rows))])]


def one_answer(command: Sequence[str], rounds: int) -> float:
    """The least CPU seconds of a whole process, which are the same however busy the machine is."""
    least = float("inf")
    environ = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    for _ in range(rounds):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environ)
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            raise SystemExit(f"{' '.join(command[:4])} failed")
        least = min(least, usage.ru_utime + usage.ru_stime)
    return least


def alone(folder: Path, function: str, rounds: int) -> float:
    """The same for mlaot's module in a program without NumPy."""
    given = next(iter(np.load(folder / "inputs.npz").values()))[:1]
    raw = folder / "inputs.raw"
    raw.write_bytes(given.tobytes())
    program = ALONE.format(folder=str(folder), inputs=str(raw), function=function, shape=given.shape)
    return one_answer([sys.executable, "-c", program], rounds)


def installed(names: Sequence[str]) -> float:
    """The megabytes of distributions and of all that they need; ``packaging`` reads what that is."""
    from packaging.requirements import Requirement

    found: dict[str, int] = {}
    left = list(names)
    while left:
        name = left.pop().lower().replace("_", "-")
        if name in found:
            continue
        distribution = importlib.metadata.distribution(name)
        files = [Path(str(file.locate())) for file in distribution.files or ()]
        found[name] = sum(file.stat().st_size for file in files if file.exists())
        needs = [Requirement(text) for text in distribution.requires or ()]
        left += [need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    return sum(found.values()) / 1e6


def figures(folder: Path, reference: list[Any], peers: Sequence[str], rounds: int, ms: float) -> Iterator[list[str]]:
    """A line for each peer: a call, beside mlaot's, a program with one, the file, what is installed."""
    needs = {peer: PEERS[peer][1] for peer in peers}
    needs |= {package: package for _, package in MAKERS.values()}
    pythons = {name: sys.executable for name, package in needs.items() if find_spec(package)}
    for peer in peers:
        if peer not in pythons:
            out(f"  {folder.name}: {peer} is left out: {needs[peer]} is not installed")
    started = {peer: runtimes.start_in(folder, peer, pythons, reference) for peer in peers if peer in pythons}
    times = runtimes.take_turns({p: runtime for p, runtime in started.items() if runtime}, rounds, ms, min)
    script = str(Path(__file__).with_name("peers.py"))
    for peer, seconds in times.items():
        first = one_answer([sys.executable, script, "--first", peer, str(folder)], rounds)
        yield [
            NAMES.get(peer, peer),
            f"{seconds * 1e6:,.2f}",
            f"{seconds / times['mlaot']:,.1f}",
            f"{first:.3f}",
            f"{(folder / PEERS[peer][2]).stat().st_size / 1000:,.0f}",
            f"{installed(INSTALLED[peer]):,.0f}",
        ]
    without = alone(folder, "predict" if folder.name == "forest" else "forward", rounds)
    yield ["mlaot, a program without NumPy", "", "", f"{without:.3f}", "", "0"]


def table(lines: Sequence[Sequence[str]]) -> str:
    """The lines in Markdown."""
    heads = ["shipped with", "a call, us", "mlaot = 1", "one answer, CPU s", "file, KB", "installed, MB"]
    rows = [heads, ["---", *["--:"] * (len(heads) - 1)], *lines]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def versions(peers: Sequence[str]) -> str:
    """The machine, and the versions of what was measured on it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    model = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())
    isa = "with AVX-512" if any("avx512f" in line for line in lines) else "without AVX-512"
    names = sorted({name for peer in peers for name in INSTALLED[peer]} | {"emlearn", "mlaot", "numpy", "treelite"})
    there = [f"{name} {importlib.metadata.version(name)}" for name in names if is_installed(name)]
    bare = one_answer([sys.executable, "-c", ""], 10)
    text = (
        f"One core of: {model}, {isa}; {platform.system()}, Python {platform.python_version()}, of which an empty "
        f"program takes {bare:.3f} CPU s. Versions: {', '.join(there)}."
    )
    return textwrap.fill(text, 118, break_on_hyphens=False) + "\n"


def is_installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def replaced(text: str, name: str, made: str) -> str:
    """The page with what stands between two marks."""
    before, _, rest = text.partition(f"<!-- {name} -->\n")
    return f"{before}<!-- {name} -->\n{made}<!-- end -->{rest.partition('<!-- end -->')[2]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=[*NETWORKS, "forest"], help="one of the models")
    parser.add_argument("--write", action="store_true", help=f"write the tables of {PAGE.name}")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--ms", type=float, default=60, help="milliseconds of a peer's turn")
    options = parser.parse_args()
    made: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as temporary:
        built: dict[str, list[Any]] = {}
        for name in [options.only] if options.only else [*NETWORKS, "forest"]:
            out(f"{name}: building")
            folder = Path(temporary, name)
            if name == "forest":
                built[name] = make_forest(folder)
            else:
                built[name] = runtimes.build(NETWORKS[name], folder, None).reference
        one_core()
        for name, reference in built.items():
            peers = FOREST if name == "forest" else AHEAD
            lines = list(figures(Path(temporary, name), reference, peers, options.rounds, options.ms))
            made[name] = table(lines)
            out(f"{name}\n{made[name]}")
    made["machine"] = versions([*AHEAD, *FOREST])
    out(made["machine"])
    if options.write:
        text = PAGE.read_text(encoding="utf-8")
        for name, lines_of_it in made.items():
            text = replaced(text, name, lines_of_it)
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
