"""A perceptron of n inputs, n times, from 2x2 to 2048x2048: compiled, by NumPy, and by eager tensors.

    python benchmarks/perceptron.py [--largest 2048] [--json report.json]

The bench of ndesmic/mljs, whose other columns are GPUs: ``tanh((x * w).sum(-1) + b)`` in float32. One compiled module
serves every size. Microseconds a call, the best of five rounds, on one core.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import build, load, one_core, out

import mlaot
from mlaot.eager import Tensor

n = mlaot.dim("n")


@mlaot.model
def perceptron(x: mlaot.f32[n, n], w: mlaot.f32[n, n], b: mlaot.f32[n]) -> Any:
    return np.tanh((x * w).sum(axis=-1) + b)


def microseconds(call: Callable[[], object], seconds: float = 0.05, rounds: int = 5) -> float:
    """The best round's time of a call."""
    best = float("inf")
    for _ in range(rounds):
        count, started = 0, time.perf_counter()
        while count == 0 or time.perf_counter() - started < seconds / rounds:
            call()
            count += 1
        best = min(best, (time.perf_counter() - started) / count)
    return best * 1e6


def eager(x: np.ndarray[Any, Any], w: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> Tensor:
    size = len(b)
    left, right = (Tensor(v.ravel(), shape=[size, size]) for v in (x, w))
    return left.mul(right).sum(dimension=0).add(Tensor(b, shape=[size])).tanh()


def measure(module: Any, size: int) -> dict[str, float]:
    draw = np.random.default_rng(size)
    x, w, b = (draw.normal(size=shape).astype(np.float32) for shape in ((size, size), (size, size), (size,)))
    np.testing.assert_allclose(module.forward(x, w, b), np.tanh((x * w).sum(-1) + b), rtol=0, atol=1e-3)
    result = module.forward(x, w, b)
    return {
        "size": size,
        "compiled": microseconds(lambda: module.forward(x, w, b, out=result)),
        "numpy": microseconds(lambda: np.tanh((x * w).sum(-1) + b)),
        "eager": microseconds(lambda: eager(x, w, b)),
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--largest", type=int, default=2048)
    options.add_argument("--json", type=Path)
    given = options.parse_args()
    one_core()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        module = load(build(perceptron, "perceptron", Path(folder)))
        out(f"{'size':>10} {'compiled':>10} {'NumPy':>10} {'eager':>10}   microseconds a call")
        for size in (2**i for i in range(1, 12) if 2**i <= given.largest):
            rows.append(measure(module, size))
            times = " ".join(f"{rows[-1][kind]:10.1f}" for kind in ("compiled", "numpy", "eager"))
            out(f"{f'{size}x{size}':>10} {times}")
    if given.json:
        given.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
