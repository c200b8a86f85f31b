"""What weights in fewer bits give: time of a call, size of the module and answers, by those of float32.

    python benchmarks/quantized.py            (the MLP 784-512-512-10 with 1 and 64 rows, ResNet-18, a GPT's next
                                              token, an LSTM of 50 steps)
    python benchmarks/quantized.py w3
    MLAOT_ISA=v3 python benchmarks/quantized.py net    (the networks of families.py, random weights, through PyTorch)
    python benchmarks/quantized.py 'net bert'

One core. The modules of a workload run in turn, so that all meet the same machine; medians of rounds. ``calibrated``:
``quantize = "int8"`` with ranges that a sample shows; ``dynamic``: with those of each call. ``float16``, ``int8`` and
``int4`` are values of ``weights_dtype``.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import workloads
from common import chosen_isas, compile_program, load, one_core, out, table

from mlaot.generate import compile_model
from mlaot.settings.options import Options

ROUNDS = 15
WORKLOADS = ("w3_mlp_b1", "w3_mlp_b64", "w5_resnet18_b1", "w6_gpt_decode", "w8_lstm_b1")
WEIGHTS = ("float16", "int8", "int4")


def names() -> list[str]:
    """The networks: workloads, and families if PyTorch is here."""
    if not find_spec("torch"):
        return [*WORKLOADS]
    from families import FAMILIES

    return [*WORKLOADS, *[f"net {name}" for name in FAMILIES]]


def inputs(name: str, seed: int, rows: int) -> list[workloads.Array]:
    """Made-up inputs of a network: pixels between 0 and 1, normal numbers or indices; or a workload's own tokens."""
    rng = np.random.default_rng(seed)
    if name.startswith("net "):
        from families import FAMILIES

        family = FAMILIES[name.removeprefix("net ")]
        made = rng.standard_normal(family.shape, np.float32)
        return [rng.integers(0, family.integers, family.shape) if family.integers else made]
    if workloads.WORKLOADS[name].tokens:
        return workloads.inputs(name)
    shape = (rows, *workloads.WORKLOADS[name].shapes[0][1:])
    return [rng.random(shape, np.float32) if len(shape) == 2 else rng.standard_normal(shape, np.float32)]


def declare(name: str) -> Any:
    """The model of a network."""
    if not name.startswith("net "):
        return workloads.declare(name)
    import torch
    from families import FAMILIES

    import mlaot.torch

    torch.manual_seed(0)
    family = FAMILIES[name.removeprefix("net ")]
    shape = tuple(mlaot.dim(f"d{i}") if i in family.open else n for i, n in enumerate(family.shape))
    return mlaot.torch.load(family.make().eval(), (mlaot.i64 if family.integers else mlaot.f32)[shape])


def make(name: str, folder: Path) -> list[str]:
    """The modules of a network: float32, quantized in two ways, and those with weights of fewer bits."""
    declared, options = declare(name), Options(isas=chosen_isas())
    sample = tuple(inputs(name, 1, 64 if name.startswith("w3") else 2))
    kinds: dict[str, tuple[dict[str, str], object]] = {"float32": ({}, None), "dynamic": ({"quantize": "int8"}, None)}
    if name.startswith(("net ", "w3", "w5")):  # whose inputs have rows
        kinds["calibrated"] = {"quantize": "int8"}, sample
    if name.startswith(("w3", "w6")):  # whose weights are of dense layers
        kinds |= {dtype: ({"weights_dtype": dtype}, None) for dtype in WEIGHTS}
    found = []
    for kind, (settings, given) in kinds.items():
        program = compile_model(declared, f"{kind}.{kind}", replace(options, **settings), sample=given)
        found.append(str(compile_program(program, kind, folder / kind)))
    return found


def compare(name: str, *libraries: str) -> None:
    """Print for each module the median time of a call, and how far its answers are from the first one's."""
    one_core()
    modules = [load(Path(library)) for library in libraries]
    arrays = inputs(name, 2, 0 if name.startswith("net ") else workloads.WORKLOADS[name].shapes[0][0])
    given = [module.forward(*arrays) for module in modules]
    answers = [np.asarray(answer[0] if isinstance(answer, tuple) else answer) for answer in given]
    times: list[list[float]] = [[] for _ in modules]
    for _ in range(ROUNDS):
        for module, found in zip(modules, times, strict=True):
            count, started = 0, time.perf_counter()
            while time.perf_counter() - started < 0.05:
                module.forward(*arrays)
                count += 1
            found.append((time.perf_counter() - started) / count)
    for found, answer in zip(times, answers, strict=True):
        largest = np.abs(answers[0]).max()
        same = np.mean(answer.argmax(-1) == answers[0].argmax(-1))
        out(f"{statistics.median(found) * 1e6:.2f} {np.abs(answer - answers[0]).max() / largest:.3g} {same:.3g}")


def main(wanted: str = "") -> None:
    rows = []
    for name in (n for n in names() if n.startswith(wanted or WORKLOADS)):
        with tempfile.TemporaryDirectory() as folder:
            libraries = make(name, Path(folder))
            made = ("*.abi3.so", "*.weights")
            sizes = [sum(f.stat().st_size for p in made for f in Path(path).parent.glob(p)) for path in libraries]
            for isa in [isa for isa in chosen_isas() if isa == os.environ.get("MLAOT_ISA", isa)]:
                command = [sys.executable, __file__, "--compare", name, *libraries]
                done = subprocess.run(
                    command, env=os.environ | {"MLAOT_ISA": isa}, capture_output=True, text=True, check=False
                )
                if done.returncode:
                    continue  # not on this CPU
                measured = [line.split() for line in done.stdout.splitlines()]
                first = float(measured[0][0])
                for path, size, (us, off, same) in zip(libraries, sizes, measured, strict=True):
                    kind, ratio = Path(path).parent.name, f"{float(us) / first:.2f}"
                    moved = "" if kind == "float32" else f"{100 * float(off):.2g} %"
                    kept = "" if kind == "float32" else f"{100 * float(same):.4g} %"
                    rows.append([f"{name} {isa} {kind}", us, ratio, f"{size / 1000:,.0f}", moved, kept])
                    print(*rows[-1], file=sys.stderr)
    table(["", "us", "ratio", "KB", "largest difference", "same largest"], rows)


if __name__ == "__main__":
    compare(*sys.argv[2:]) if sys.argv[1:2] == ["--compare"] else main(*sys.argv[1:])
