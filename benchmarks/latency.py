"""What one call costs from Python: XOR, the MNIST network frozen in float32, and a fresh process to its first answer.

    python benchmarks/latency.py

One core. ``pass`` is ``python -c pass``, the yardstick of the cold start; an empty C function of one argument costs
some 6 ns, a Python function 13 ns.
"""

from __future__ import annotations

import array
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from common import build, load, one_core, out
from seed import declared

from mlaot.micrograd import MLP, Value, declare


def nanoseconds(call: Callable[[], object], count: int = 20000, rounds: int = 9) -> float:
    """The best round's time of a call, less an empty loop."""
    loop = range(count)
    best = empty = float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        for _ in loop:
            pass
        empty = min(empty, time.perf_counter() - started)
        started = time.perf_counter()
        for _ in loop:
            call()
        best = min(best, time.perf_counter() - started)
    return (best - empty) / count * 1e9


def cold_start(code: str, rounds: int = 41) -> list[float]:
    """Milliseconds of fresh interpreters, in turn with bare ones."""
    times: dict[str, list[float]] = {code: [], "pass": []}
    for _ in range(rounds):
        for text, found in times.items():
            started = time.perf_counter()
            subprocess.run([sys.executable, "-S", "-c", text], check=True)
            found.append((time.perf_counter() - started) * 1e3)
    return [statistics.median(found) for found in times.values()]


def main() -> None:
    one_core()
    random.seed(1)
    net = MLP(2, [4, 1])
    x = [Value(0.0), Value(0.0)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        xor = load(build(declare(net(x), inputs={"x": x}, parameters=net, dtype="float32"), "xor", folder / "xor"))
        point = array.array("f", [0.0, 1.0])
        out(
            f"xor forward: {nanoseconds(lambda: xor.forward(point)):.0f} ns, "
            f"an empty lambda in it {nanoseconds(lambda: None):.0f} ns"
        )
        library = build(declared("float32", loss=False, pixels=False), "mnist", folder / "mnist")
        mnist = load(library)
        image = array.array("f", [random.random() * (random.random() < 0.2) for _ in range(784)])
        answer = mnist.forward(image)
        out(f"mnist forward, batch 1: {nanoseconds(lambda: mnist.forward(image), 5000) / 1000:.2f} us")
        out(f"mnist forward into out=: {nanoseconds(lambda: mnist.forward(image, out=answer), 5000) / 1000:.2f} us")
        code = (
            f"import sys; sys.path.insert(0, {str(library.parent)!r}); import mnist; "
            "mnist.forward(memoryview(bytes(3136)).cast('f'))"
        )
        ours, bare = cold_start(code)
        out(f"cold start: {ours:.1f} ms, bare Python {bare:.1f} ms, difference {ours - bare:.1f} ms")


if __name__ == "__main__":
    main()
