"""Build a flagship both ways, run its sample in both, and measure."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from examples import run as steps
from examples.flagships.patch import MODELS, apply, dependencies, write_project
from examples.flagships.table import Flagship

HERE = Path(__file__).parent
MAKERS = ("numpy", "onnx", "pillow")  # what samples make their inputs with
FIRSTS = 3


@dataclass
class Side:
    """One way to run a package: its Python and the variables of its processes, and what was measured.

    ``beside``: the title of the side that its times are compared with.
    """

    title: str
    python: Path
    runtime: str
    environ: dict[str, str] = field(default_factory=dict)
    beside: str = ""
    first: list[float] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Comparison:
    """What there is to tell of a flagship. ``sizes`` are of the environments, by title and by package."""

    flagship: Flagship
    sides: list[Side]
    wheels: dict[str, float]
    sizes: dict[str, dict[str, float]]
    build_seconds: float


def compare(flagship: Flagship, tools: Path, own_wheel: Path, folder: Path, rounds: int) -> Comparison:
    """Download, patch, build, install and run a flagship; all of it lies in ``folder``."""
    folder.mkdir(parents=True)
    with steps.step(f"downloading {flagship.name} {flagship.version}"):
        released = download(flagship, tools, folder / "released")
        print(f"  {steps.size(released)}")
    with steps.step("making the inputs of its sample"):
        inputs = folder / "inputs"
        inputs.mkdir()
        work(tools, "make", flagship, inputs)
    project = folder / "project"
    with steps.step("patching it"):
        write_project(flagship, released, project, lambda line: print(f"  {line}"))
        for path in inputs.glob("*.onnx"):  # what programs bring is compiled with the package
            shutil.copy(path, project / MODELS)
    begun = os.times()
    with steps.step("building its wheel: trace, generate C, compile"):
        wheel = steps.build_wheel(tools, project, own_wheel)
    done = os.times()
    seconds = done.children_user + done.children_system - begun.children_user - begun.children_system
    with steps.step("installing both"):
        before = environment(
            tools, folder / "with-onnxruntime", [released, *dependencies(released, flagship), "onnxruntime"]
        )
        apply((edit for edit in flagship.edits if edit.both), site_packages(before))
        after = environment(tools, folder / "with-mlaot", [wheel, *dependencies(released, flagship)])
    own = f"{flagship.package}.ort"
    sides = [Side("onnxruntime", before, "onnxruntime"), Side("mlaot", after, own, beside="onnxruntime")]
    if hidden := without_avx512(folder):
        sides.append(Side("onnxruntime, AVX2", before, "onnxruntime", hidden))
        sides.append(Side("mlaot, AVX2", after, own, {"MLAOT_ISA": "v3"}, beside="onnxruntime, AVX2"))
    with steps.step("running the sample in turns, on one core"):
        measure(flagship, sides, inputs, rounds)
    environments = {"onnxruntime": before, "mlaot": after}
    sizes = {title: installed(site_packages(python)) for title, python in environments.items()}
    wheels = {"onnxruntime": released.stat().st_size / 1e6, "mlaot": wheel.stat().st_size / 1e6}
    return Comparison(flagship, sides, wheels, sizes, seconds)


def without_avx512(folder: Path) -> dict[str, str]:
    """Return the variables with which a process believes that the CPU has AVX2 alone; none where that cannot be."""
    cpu = Path("/proc/cpuinfo")
    words = set(cpu.read_text().split()) if cpu.exists() else set[str]()
    if not {"avx512f", "cpuid_fault"} <= words:
        return {}
    source, library = steps.ROOT / "benchmarks" / "without_avx512.c", folder / "without_avx512.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", source, "-o", library], check=True)
    return {"LD_PRELOAD": str(library)}


def download(flagship: Flagship, tools: Path, folder: Path) -> Path:
    """Return the released wheel."""
    what = f"{flagship.name}=={flagship.version}"
    steps.run(tools, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", folder, what)
    (wheel,) = folder.glob("*.whl")
    return wheel


def environment(tools: Path, folder: Path, packages: Iterable[str | Path]) -> Path:
    """Return the Python of an environment with these and what they depend on; wheels come without."""
    python = steps.make_environment(folder, with_pip=False)
    wheels = [package for package in packages if isinstance(package, Path)]
    needed = [package for package in packages if not isinstance(package, Path)]
    install = (tools, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile")
    if needed:
        steps.run(*install, *needed)
    steps.run(*install, "--no-deps", *wheels)
    return python


def site_packages(python: Path) -> Path:
    """Return where an environment has its packages."""
    (found,) = python.parent.parent.glob("lib/python*/site-packages")
    return found


def installed(site: Path) -> dict[str, float]:
    """Return how many MB each package takes, but for compiled Python."""
    sizes: dict[str, float] = {}
    for path in site.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.suffix != ".pyc":
            top = path.relative_to(site).parts[0].removesuffix(".libs").removesuffix(".py")
            sizes[top] = sizes.get(top, 0.0) + path.stat().st_size / 1e6
    return sizes


def work(
    python: Path,
    job: str,
    flagship: Flagship,
    inputs: Path,
    runtime: str = "",
    rounds: int = 1,
    environ: Mapping[str, str] | None = None,
) -> Any:
    """Return what the worker says of a job; where it fails, its own last lines are the explanation."""
    sample = HERE / "samples" / f"{flagship.sample}.py"
    words = [str(word) for word in (python, "-P", HERE / "worker.py", job, sample, inputs, runtime, rounds)]
    variables = os.environ | dict(environ or {})
    done = subprocess.run(words, env=variables, cwd=inputs, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the sample of {flagship.name} failed with {runtime or 'what it makes'}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(flagship: Flagship, sides: Iterable[Side], inputs: Path, rounds: int) -> None:
    """Run the sample on each side in turns."""
    for _ in range(FIRSTS):
        for side in sides:
            side.first.append(work(side.python, "first", flagship, inputs, side.runtime, 1, side.environ)["first"])
    for i in range(rounds):
        for side in sides:
            side.runs.append(work(side.python, "whole", flagship, inputs, side.runtime, 2, side.environ))
            print(f"  {side.title}, round {i + 1} of {rounds}: {side.runs[-1]['whole']:.2f} s", flush=True)
