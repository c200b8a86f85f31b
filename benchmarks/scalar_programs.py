"""Programs written in scalars beside the same written with arrays: nodes, compiling, a call, and a step of training.

    MLAOT_ISA=v3 python benchmarks/scalar_programs.py [--only recurrent,attention]

``scalars`` are the operations on single numbers that the program makes. ``nodes`` are those of the final graph of
``forward``, the bodies of loops included. ``CPU s`` is the time from the traced program to the compiled module. The
other columns are microseconds on one core in float64, for one example: of a call of ``forward``, and of ``train_step``
on the mean of squared outputs. Results are compared first.
"""

from __future__ import annotations

import argparse
import random
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common import chosen_isas, compile_program, load, one_core, out, table

import mlaot
import mlaot.nn.functional as F
from mlaot.generate import compile_model
from mlaot.ir import Graph
from mlaot.ir.subgraph import subgraphs
from mlaot.lower.program import Program
from mlaot.micrograd import Value, declare
from mlaot.passes import run
from mlaot.settings.options import Options

ROUNDS, ROUND_SECONDS = 15, 5e-3
Array = np.ndarray[Any, Any]
Rows = list[list[Value]]
Nested = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A program on inputs of ``shape`` and parameters: of nested lists of Values, and of arrays."""

    shape: tuple[int, ...]
    parameters: dict[str, tuple[int, ...]]
    scalars: Callable[[Any, Nested], list[Value]]
    arrays: Callable[[Any, Nested], Any] | None


def nested(array: Array) -> Any:
    """Lists of Values of an array's numbers."""
    return [nested(part) for part in array] if array.ndim else Value(float(array))


def dot(a: list[Value], b: list[Value]) -> Value:
    return sum((x * y for x, y in zip(a, b, strict=True)), Value(0.0))


def sigmoid(x: Value) -> Value:
    return (1 + (-x).exp()) ** -1


def recurrent(length: int) -> Case:
    def scalars(x: Rows, p: Nested) -> list[Value]:
        h = [Value(0.0)] * 8
        for row in x:
            h = [(dot(u, row) + dot(v, h) + b).tanh() for u, v, b in zip(p["u"], p["v"], p["b"], strict=True)]
        return h

    def arrays(x: Any, p: Nested) -> Any:
        return mlaot.scan(lambda h, z: (np.tanh(z + p["v"] @ h), ()), np.zeros(8), x @ p["u"].T + p["b"])[0]

    return Case((length, 4), {"u": (8, 4), "v": (8, 8), "b": (8,)}, scalars, arrays)


def lstm(length: int) -> Case:
    def scalars(x: Rows, p: Nested) -> list[Value]:
        h, c = [Value(0.0)] * 8, [Value(0.0)] * 8
        for row in x:
            z = [dot(u, row) + dot(v, h) for u, v in zip(p["u"], p["v"], strict=True)]
            c = [sigmoid(z[i]) * c[i] + sigmoid(z[8 + i]) * z[16 + i].tanh() for i in range(8)]
            h = [sigmoid(z[24 + i]) * c[i].tanh() for i in range(8)]
        return h

    def arrays(x: Any, p: Nested) -> Any:
        def step(carry: Any, row: Any) -> Any:
            h, c = carry
            z = row + p["v"] @ h
            gate = [1 / (1 + np.exp(-z[i : i + 8])) for i in (0, 8, 24)]
            c = gate[0] * c + gate[1] * np.tanh(z[16:24])
            return (gate[2] * np.tanh(c), c), ()

        return mlaot.scan(step, (np.zeros(8), np.zeros(8)), x @ p["u"].T)[0][0]

    return Case((length, 4), {"u": (32, 4), "v": (32, 8)}, scalars, arrays)


def convolution(channels: int, length: int) -> Case:
    def scalars(x: Rows, p: Nested) -> list[Value]:
        taps = [(c, k) for c in range(channels) for k in range(5)]
        rows = zip(p["w"], p["b"], strict=True)
        return [sum((w[c][k] * x[c][i + k] for c, k in taps), b).relu() for w, b in rows for i in range(length - 4)]

    def arrays(x: Any, p: Nested) -> Any:
        return F.relu(F.conv1d(x[None], p["w"], p["b"])[0]).reshape(-1)

    return Case((channels, length), {"w": (8, channels, 5), "b": (8,)}, scalars, arrays)


def image(channels: int, size: int) -> Case:
    def scalars(x: Any, p: Nested) -> list[Value]:
        taps = [(c, i, j) for c in range(channels) for i in range(3) for j in range(3)]
        places = [(i, j) for i in range(size - 2) for j in range(size - 2)]
        return [
            sum((w[c][i][j] * x[c][y + i][z + j] for c, i, j in taps), Value(0.0)).relu()
            for w in p["w"]
            for y, z in places
        ]

    def arrays(x: Any, p: Nested) -> Any:
        return F.relu(F.conv2d(x[None], p["w"])[0]).reshape(-1)

    return Case((channels, size, size), {"w": (8, channels, 3, 3)}, scalars, arrays)


def hinge() -> Case:
    pairs = [(i, j) for i in range(12) for j in range(i + 1)]

    def scalars(x: list[Value], p: Nested) -> list[Value]:
        square = [w * x[i] * x[j] for w, (i, j) in zip(p["pairs"], pairs, strict=True)]
        return [(1 - (dot(p["w"], x) + sum(square, Value(0.0)))).relu()]

    def arrays(x: Any, p: Nested) -> Any:
        first, second = np.array(pairs).T
        return F.relu(1 - (p["w"] @ x + (x[first] * x[second]) @ p["pairs"])).reshape(1)

    return Case((12,), {"w": (12,), "pairs": (len(pairs),)}, scalars, arrays)


def kalman(length: int) -> Case:
    def scalars(z: list[Value], p: Nested) -> list[Value]:
        x, spread, seen = Value(0.0), Value(1.0), []
        for value in z:
            spread = spread + p["q"] ** 2
            gain = spread / (spread + p["r"] ** 2)
            x = x + gain * (value - x)
            spread = (1 - gain) * spread
            seen.append(x)
        return seen

    def arrays(z: Any, p: Nested) -> Any:
        def step(carry: Any, value: Any) -> Any:
            x, spread = carry
            spread = spread + p["q"] ** 2
            gain = spread / (spread + p["r"] ** 2)
            x = x + gain * (value - x)
            return (x, (1 - gain) * spread), x

        return mlaot.scan(step, (np.float64(0.0), np.float64(1.0)), z)[1]

    return Case((length,), {"q": (), "r": ()}, scalars, arrays)


def chain(length: int) -> Case:
    def scalars(x: list[Value], p: Nested) -> list[Value]:
        y = x[0]
        for _ in range(length):
            y = (y * p["a"] + p["b"]).tanh()
        return [y]

    def arrays(x: Any, p: Nested) -> Any:
        return mlaot.scan(lambda y, _: (np.tanh(y * p["a"] + p["b"]), ()), x, length=length)[0]

    return Case((1,), {"a": (), "b": ()}, scalars, arrays)


def attention(length: int) -> Case:
    """A block of a transformer of width 16 with 4 heads, position by position, its keys in a list that grows."""
    heads, width = 4, 16
    size = width // heads

    def scalars(x: Rows, p: Nested) -> list[Value]:
        keys, values, result = [], [], []
        for row in x:
            scale = (dot(row, row) * (1 / width) + 1e-5) ** -0.5
            y = [v * scale for v in row]
            q, k, v = ([dot(w, y) for w in p[name]] for name in "qkv")
            keys.append(k)
            values.append(v)
            found = []
            for start in range(0, width, size):
                part = slice(start, start + size)
                exps = [(dot(q[part], key[part]) * size**-0.5).exp() for key in keys]
                total = sum(exps)
                chosen = [e / total for e in exps]
                found += [sum(c * v[j] for c, v in zip(chosen, values, strict=True)) for j in range(width)[part]]
            h = [a + dot(w, found) for a, w in zip(row, p["o"], strict=True)]
            up = [dot(w, h).relu() for w in p["up"]]
            result += [a + dot(w, up) for a, w in zip(h, p["down"], strict=True)]
        return result

    def arrays(x: Any, p: Nested) -> Any:
        y = x * ((x * x).mean(1, keepdims=True) + 1e-5) ** -0.5
        q, k, v = ((y @ p[name].T).reshape(length, heads, size).transpose(1, 0, 2) for name in "qkv")
        scores = np.where(np.tri(length, dtype=bool), q @ k.transpose(0, 2, 1) * size**-0.5, -np.inf)
        h = x + (F.softmax(scores, -1) @ v).transpose(1, 0, 2).reshape(length, width) @ p["o"].T
        return (h + F.relu(h @ p["up"].T) @ p["down"].T).reshape(-1)

    shapes = dict.fromkeys("qkvo", (width, width)) | {"up": (4 * width, width), "down": (width, 4 * width)}
    return Case((length, width), shapes, scalars, arrays)


def edits(length: int) -> Case:
    """A soft minimum over all ways to edit one word into another, from the costs of their pairs of letters."""

    def scalars(x: Rows, p: Nested) -> list[Value]:
        rows = [[Value(float(i + j)) for j in range(length + 1)] for i in range(length + 1)]
        for i in range(length):
            for j in range(length):
                ways = [rows[i][j + 1] + p["gap"], rows[i + 1][j] + p["gap"], rows[i][j] + x[i][j]]
                rows[i + 1][j + 1] = -sum((-w).exp() for w in ways).log()  # type: ignore[union-attr]
        return [rows[-1][-1]]

    def arrays(x: Any, p: Nested) -> Any:
        def row(above: Any, inputs: Any) -> Any:
            first, costs = inputs

            def cell(left: Any, near: Any) -> Any:
                up, between, cost = near
                ways = (up + p["gap"], left + p["gap"], between + cost)
                value = -np.log(sum(np.exp(-w) for w in ways))
                return value, value

            cells = mlaot.scan(cell, first, (above[1:], above[:-1], costs))[1]
            return np.concatenate([first.reshape(1), cells]), ()

        border = np.arange(length + 1.0)
        return mlaot.scan(row, border, (border[1:], x))[0][-1:]

    return Case((length, length), {"gap": ()}, scalars, arrays)


def sequences(count: int, length: int) -> Case:
    """A recurrent network on several sequences."""

    def scalars(x: Any, p: Nested) -> list[Value]:
        result = []
        for rows in x:
            h = [Value(0.0)] * 8
            for row in rows:
                h = [(dot(u, row) + dot(v, h)).tanh() for u, v in zip(p["u"], p["v"], strict=True)]
            result += h
        return result

    def arrays(x: Any, p: Nested) -> Any:
        z = (x @ p["u"].T).transpose(1, 0, 2)
        return mlaot.scan(lambda h, z: (np.tanh(z + h @ p["v"].T), ()), np.zeros((count, 8)), z)[0].reshape(-1)

    return Case((count, length, 4), {"u": (8, 4), "v": (8, 8)}, scalars, arrays)


def deep(layers: int) -> Case:
    """Equal layers, each with weights of its own."""

    def scalars(x: list[Value], p: Nested) -> list[Value]:
        for w, b in zip(p["w"], p["b"], strict=True):
            x = [(dot(row, x) + bias).tanh() for row, bias in zip(w, b, strict=True)]
        return x

    def arrays(x: Any, p: Nested) -> Any:
        return mlaot.scan(lambda h, w: (np.tanh(w[0] @ h + w[1]), ()), x, (p["w"], p["b"]))[0]

    return Case((8,), {"w": (layers, 8, 8), "b": (layers, 8)}, scalars, arrays)


def memory(length: int) -> Case:
    """A value of the three before it."""

    def scalars(x: list[Value], p: Nested) -> list[Value]:
        y = list(x[:3])
        for seen in x[3:]:
            y.append(dot(p["w"], y[-3:]) + seen)
        return y

    def arrays(x: Any, p: Nested) -> Any:
        def step(last: Any, seen: Any) -> Any:
            a, b, c = last
            value = p["w"][0] * a + p["w"][1] * b + p["w"][2] * c + seen
            return (b, c, value), value

        return np.concatenate([x[:3], mlaot.scan(step, (x[0], x[1], x[2]), x[3:])[1]])

    return Case((length,), {"w": (3,)}, scalars, arrays)


def adam(steps: int) -> Case:
    """Steps of Adam for a line of four coefficients through eight points."""
    first, second = 0.9, 0.99

    def scalars(x: Rows, p: Nested) -> list[Value]:
        w = list(p["w"])
        m, s = [Value(0.0)] * 4, [Value(0.0)] * 4
        for t in range(1, steps + 1):
            errors = [dot(w, row) - row[0] for row in x]
            gradient = [sum((e * row[j] for e, row in zip(errors, x, strict=True)), Value(0.0)) for j in range(4)]
            m = [first * a + (1 - first) * g for a, g in zip(m, gradient, strict=True)]
            s = [second * a + (1 - second) * g * g for a, g in zip(s, gradient, strict=True)]
            w = [
                v - 0.01 * (a / (1 - first**t)) / ((b / (1 - second**t)) ** 0.5 + 1e-8)
                for v, a, b in zip(w, m, s, strict=True)
            ]
        return w

    def arrays(x: Any, p: Nested) -> Any:
        def step(carry: Any, scales: Any) -> Any:
            w, m, s = carry
            gradient = x.T @ (x @ w - x[:, 0])
            m = first * m + (1 - first) * gradient
            s = second * s + (1 - second) * gradient * gradient
            return (w - 0.01 * (m / scales[0]) / ((s / scales[1]) ** 0.5 + 1e-8), m, s), ()

        t = np.arange(1.0, steps + 1)
        return mlaot.scan(step, (p["w"], np.zeros(4), np.zeros(4)), (1 - first**t, 1 - second**t))[0][0]

    return Case((8, 4), {"w": (4,)}, scalars, arrays)


CASES = {
    "recurrent 50 steps": lambda: recurrent(50),
    "recurrent 500 steps": lambda: recurrent(500),
    "LSTM 50 steps": lambda: lstm(50),
    "convolution 1 channel": lambda: convolution(1, 200),
    "convolution 8 channels": lambda: convolution(8, 50),
    "image 1 channel": lambda: image(1, 16),
    "image 8 channels": lambda: image(8, 10),
    "polynomial hinge": hinge,
    "Kalman filter 100 steps": lambda: kalman(100),
    "chain of 2000": lambda: chain(2000),
    "attention 8 positions": lambda: attention(8),
    "attention 16 positions": lambda: attention(16),
    "attention 64 positions": lambda: attention(64),
    "edit distance 8 letters": lambda: edits(8),
    "edit distance 16 letters": lambda: edits(16),
    "four sequences of 30": lambda: sequences(4, 30),
    "20 layers": lambda: deep(20),
    "memory of three, 200 steps": lambda: memory(200),
    "30 steps of Adam": lambda: adam(30),
}


def size(graph: Graph) -> int:
    """The number of nodes, those of loops included."""
    bodies = [body for node in graph.nodes() for body in subgraphs(node.attrs).values()]
    return len(graph.nodes()) + sum(size(body.graph) for body in bodies)


def in_scalars(case: Case, held: dict[str, Array]) -> tuple[Any, int]:
    """The program of scalars, and how many it makes."""
    x, p = nested(np.zeros(case.shape)), {name: nested(array) for name, array in held.items()}
    results = case.scalars(x, p)
    loss = sum(v * v for v in results) * (1 / len(results))  # type: ignore[operator]
    return declare(results, inputs={"x": x}, parameters=p, loss=loss), len(loss.topo())


def in_arrays(case: Case, held: dict[str, Array]) -> Any:
    """The same of arrays."""
    p, program = mlaot.parameters(held), case.arrays
    assert program is not None

    def loss(result: Any) -> Any:
        return (result * result).mean()

    def model(x: Any) -> Any:
        return program(x, p)

    model.__annotations__["x"] = mlaot.f64[case.shape]
    return mlaot.model(model, parameters=p, loss=loss)


def cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def compiled(declared: Any, folder: Path) -> tuple[Any, float]:
    """The module, and the CPU seconds that it took."""
    start = cpu_seconds()
    program: Program = compile_model(declared, "nn.nn", Options(isas=chosen_isas()))
    library = compile_program(program, "nn", folder)
    return load(library), cpu_seconds() - start


def microseconds(*calls: Callable[[], Any]) -> list[float]:
    """The best of rounds of each call, by turns."""
    best = [float("inf")] * len(calls)
    for _ in range(ROUNDS):
        for i, call in enumerate(calls):
            start, count = time.perf_counter(), 0
            while (now := time.perf_counter()) < start + ROUND_SECONDS:
                call()
                count += 1
            best[i] = min(best[i], (now - start) / count * 1e6)
    return best


def measure(name: str, folder: Path) -> list[str]:
    """A row of the table."""
    case, rng = CASES[name](), np.random.default_rng(0)
    held = {key: np.asarray(rng.normal(size=shape) * 0.3) for key, shape in case.parameters.items()}
    declared, count = in_scalars(case, held)
    first, seconds = compiled(declared, folder / "scalars")
    nodes = size(run("nn", declared.trace()).graphs["forward"])
    row = rng.normal(size=(1, *case.shape)) * 0.5
    modules = [first]
    if case.arrays is not None:
        modules.append(compiled(in_arrays(case, held), folder / "arrays")[0])
        results = [np.asarray(module.forward(row)) for module in modules]
        np.testing.assert_allclose(*results, rtol=1e-9, atol=1e-12)
    calls = microseconds(*[lambda m=m: m.forward(row) for m in modules])
    steps = microseconds(*[lambda m=m: m.train_step(row, lr=0.0) for m in modules])

    def shown(times: list[float]) -> list[str]:
        return [f"{times[0]:.2f}", *([f"{times[1]:.2f}", f"{times[0] / times[1]:.2f}"] if times[1:] else ["", ""])]

    return [name, f"{count:,}", f"{nodes}", f"{seconds:.1f}", *shown(calls), *shown(steps)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="cases by the starts of their names", default="")
    options = parser.parse_args()
    one_core()
    random.seed(0)
    rows = []
    for name in CASES:
        if name.startswith(tuple(options.only.split(","))):
            with tempfile.TemporaryDirectory() as folder:
                rows.append(measure(name, Path(folder)))
            out(*rows[-1])
    times = ["call", "of arrays", "ratio", "step", "of arrays", "ratio"]
    table(["program", "scalars", "nodes", "CPU s", *times], rows)


if __name__ == "__main__":
    main()
