"""A wheel with 100 MB of weights: what it costs to build, what processes that share it take, how 16 bits change speed.

    python benchmarks/weights.py

The network has layers of 1024 units and is built by the hooks of ``mlaot.build``, with its cache off. It is built three
times: with the weights inside the module, in a file beside it, and in such a file as float16. The first line is the
same network with layers of 32. Seconds are of all processes together; the peak is the largest process's. Then four
processes import the module and call it once; Rss and Pss are those of the pages of the module and its weights. The last
number is the time of a call, best of many.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import zipfile
from functools import partial
from pathlib import Path
from timeit import repeat

import numpy as np
from common import load, one_core, table
from safetensors.numpy import save_file

LAYERS, PROCESSES = 25, 4
PYPROJECT = """\
[build-system]
requires = ["mlaot"]
build-backend = "mlaot.build"

[project]
name = "net"
version = "1.0"

[tool.mlaot.models.nn]
model = "model:net"
"""
MODEL = """\
import mlaot
import numpy as np

weights = mlaot.load("weights.safetensors")
units = weights["w0"].shape[0]


@mlaot.model
def net(x: mlaot.f32[mlaot.dim("batch"), units]):
    for w in weights.values():
        x = np.maximum(x @ w, 0)
    return x
"""
FORMS = {
    "no weights": (32, ""),
    "inside": (1024, 'weights = "inside"\n'),
    "file": (1024, 'weights = "file"\n'),
    "file, float16": (1024, 'weights = "file"\nweights_dtype = "float16"\n'),
}


def make(project: Path, units: int, settings: str) -> None:
    """A project of ``LAYERS`` layers."""
    project.mkdir()
    (project / "pyproject.toml").write_text(PYPROJECT + settings, encoding="utf-8")
    (project / "model.py").write_text(MODEL, encoding="utf-8")
    draw = np.random.default_rng(0)
    scale = np.float32((2 / units) ** 0.5)
    layers = {f"w{i}": draw.standard_normal((units, units), np.float32) * scale for i in range(LAYERS)}
    save_file(layers, project / "weights.safetensors")


def build(project: Path, site: Path) -> None:
    """Build the wheel in this process and its children, and print what it took."""
    os.chdir(project)
    from mlaot.build.hooks import build_wheel

    name = build_wheel(str(site))
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds = sum(each.ru_utime + each.ru_stime for each in both)
    print(f"{name} {seconds} {max(each.ru_maxrss for each in both) / 1024}")


def shared(library: Path) -> tuple[float, float]:
    """MB that some processes at once map of a module and its weights, and their share of it, on average."""
    code = "import sys\nfrom net import nn\nnn.forward([[1.0] * 1024])\nprint(flush=True)\nsys.stdin.read()\n"
    command = [sys.executable, "-c", code]
    environ = os.environ | {"PYTHONPATH": str(library.parents[1])}
    running = [
        subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(PROCESSES)
    ]
    found = []
    for process in running:
        assert process.stdout is not None
        process.stdout.readline()
    for process in running:
        is_ours, sizes = False, {"Rss:": 0, "Pss:": 0}
        for line in Path(f"/proc/{process.pid}/smaps").read_text().splitlines():
            words = line.split()
            if "-" in words[0]:
                is_ours = str(library.parent) in line
            elif is_ours and words[0] in sizes:
                sizes[words[0]] += int(words[1])
        found.append(sizes)
    for process in running:
        process.communicate()
    rss, pss = (sum(sizes[key] for sizes in found) / PROCESSES / 1024 for key in ("Rss:", "Pss:"))
    return rss, pss


def main() -> None:
    costs, shares, speeds = [], [], []
    with tempfile.TemporaryDirectory(prefix="mlaot-") as name:
        for form, (units, settings) in FORMS.items():
            folder = Path(name, form.replace(", ", "-").replace(" ", "-"))
            make(folder, units, settings)
            command = [sys.executable, __file__, str(folder), f"{folder}-wheel"]
            environ = os.environ | {"MLAOT_CACHE": "off"}
            done = subprocess.run(command, check=True, env=environ, stdout=subprocess.PIPE, text=True)
            wheel, spent, peak = done.stdout.splitlines()[-1].split()
            path = Path(f"{folder}-wheel", wheel)
            costs.append((form, f"{float(spent):.1f}", f"{float(peak):.0f}", f"{path.stat().st_size / 1e6:.1f}"))
            if not settings:
                continue
            with zipfile.ZipFile(path) as archive:
                archive.extractall(f"{folder}-site")
            library = Path(f"{folder}-site", "net", "nn.abi3.so")
            shares.append((form, *(f"{size:.1f}" for size in shared(library))))
            module = load(library)
            arrays = [np.ones((rows, units), np.float32) for rows in (1, 64)]
            times = [min(repeat(partial(module.forward, x), number=1, repeat=50)) for x in arrays]
            speeds.append((form, *(f"{1000 * seconds:.2f}" for seconds in times)))
    table(("build", "CPU seconds", "peak MB", "wheel MB"), costs)
    table((f"in each of {PROCESSES} processes", "Rss MB", "Pss MB"), shares)
    table(("a call, ms", "1 row", "64 rows"), speeds)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        build(Path(sys.argv[1]), Path(sys.argv[2]))
    else:
        one_core()
        main()
