"""What ``deterministic = true`` costs: the ratio of a call's times with and without it, for each instruction set.

    python benchmarks/deterministic.py

One core. The two modules of a model run in turn, so that both meet the same machine; the best times count.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import build, load, one_core, out

import mlaot
from mlaot import nn
from mlaot.nn import functional as F

rng = np.random.default_rng(0)


def weights(*shape: int) -> Any:
    return (rng.normal(size=shape) / shape[0] ** 0.5).astype("f4")


w1, w2 = weights(784, 512), weights(512, 10)
convolution = nn.Conv2d(16, 32, 3, padding=1, rng=rng)
lstm = nn.LSTM(64, 128, rng=rng)


def perceptron(x: mlaot.f32[784]) -> Any:
    return np.maximum(x @ w1, 0) @ w2


def perceptron_64(x: mlaot.f32[64, 784]) -> Any:
    return np.maximum(x @ w1, 0) @ w2


def convolved(x: mlaot.f32[1, 16, 28, 28]) -> Any:
    return convolution(x)


def recurrent(x: mlaot.f32[20, 1, 64]) -> Any:
    return lstm(x)[0]


def softmax(x: mlaot.f32[64, 256]) -> Any:
    return mlaot.softmax(x)


def layer_norm(x: mlaot.f32[256, 384]) -> Any:
    return F.layer_norm(x, (384,))


def gelu(x: mlaot.f32[256, 1536]) -> Any:
    return mlaot.gelu(x)


def total(x: mlaot.f32[8192]) -> Any:
    return x.sum()


MODELS = {
    "perceptron 784-512-10": mlaot.model(perceptron),
    "the same, batch 64": mlaot.model(perceptron_64),
    "convolution 16-32, 28 x 28": mlaot.model(parameters=convolution)(convolved),
    "LSTM 64-128, 20 steps": mlaot.model(parameters=lstm)(recurrent),
    "softmax 64 x 256": mlaot.model(softmax),
    "layer norm 256 x 384": mlaot.model(layer_norm),
    "gelu 256 x 1536": mlaot.model(gelu),
    "sum of 8192": mlaot.model(total),
}


def compare(*libraries: str) -> None:
    """Print the microseconds of a call of each module, the best of many."""
    one_core()
    calls = []
    for library in libraries:
        nn = load(Path(library))
        shape = next(iter(nn.info()["entries"]["forward"]["inputs"].values()))
        sizes = [1 if d == "batch" else int(d) for d in shape.partition("[")[2].rstrip("]").split(",")]
        x = rng.normal(size=sizes).astype("f4")
        y = nn.forward(x)
        scalar = isinstance(y, float)
        calls.append((lambda nn=nn, x=x: nn.forward(x)) if scalar else (lambda nn=nn, x=x, y=y: nn.forward(x, out=y)))
    best = [float("inf")] * len(calls)
    for _ in range(300):
        for i, call in enumerate(calls):
            count = max(1, min(1000, int(2e-4 / best[i]))) if best[i] < 1 else 1
            started = time.perf_counter()
            for _ in range(count):
                call()
            best[i] = min(best[i], (time.perf_counter() - started) / count)
    out(*[f"{seconds * 1e6:.3f}" for seconds in best])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        out(f"{'':28}{'':6}{'us':>9}{'deterministic':>15}{'ratio':>8}")
        for i, (name, declared) in enumerate(MODELS.items()):
            libraries = [
                str(build(declared, f"m{i}", Path(folder, f"{i}{flag}"), deterministic=flag)) for flag in (False, True)
            ]
            for isa in ("base", "v3", "v4"):
                command = [sys.executable, __file__, *libraries]
                done = subprocess.run(
                    command, env=os.environ | {"MLAOT_ISA": isa}, capture_output=True, text=True, check=False
                )
                if done.returncode:
                    continue  # not on this CPU
                plain, same = map(float, done.stdout.split())
                out(f"{name:28}{isa:6}{plain:9.2f}{same:15.2f}{same / plain:8.2f}")


if __name__ == "__main__":
    compare(*sys.argv[1:]) if sys.argv[1:] else main()
