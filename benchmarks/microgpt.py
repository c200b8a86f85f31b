"""The GPT in scalars of examples/microgpt: what it becomes for 8, 16 and 64 positions, and a step of its training.

    MLAOT_ISA=v3 python benchmarks/microgpt.py [--positions 8,16] [--steps 100] [--peers]

The first table has the scalars, the nodes that raising makes of them, and the functions and lines of C for one
instruction set. It also has the CPU seconds from the declared model to the compiled module, for that set and the
baseline. Then the losses of ``--steps`` names are compared with those of the scalar engine, which trains in Python with
an Adam of its own, in float64. 1,000 steps of one name each are timed. The last table has the microseconds of a step
for one example on one core, at batch 1 and batch 16. Its rows are the scalars, the same model written with
``mlaot.nn``, the engine, and with ``--peers`` PyTorch and JAX.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from common import chosen_isas, compile_program, load, one_core, out, table

import mlaot
import mlaot.nn.functional as F
from mlaot.errors import building
from mlaot.files import program_files
from mlaot.generate import compile_model
from mlaot.optim import Adam, linear_lr
from mlaot.passes import run
from mlaot.settings.options import Options

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "microgpt"
BATCHES = (1, 16)
DTYPES = ("float64", "float32")
ROUNDS, ROUND_SECONDS = 15, 1e-2
RATE, BETAS, EPSILON, STEPS = 0.01, (0.85, 0.99), 1e-8, 1000
Array = np.ndarray[Any, Any]
Step = Callable[[Array, Array], Any]


def example(file: str) -> ModuleType:
    """A file of the example, as a module."""
    spec = importlib.util.spec_from_file_location(file, EXAMPLE / f"{file}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def starts(model: ModuleType, positions: int) -> dict[str, Array]:
    """The numbers with which the example begins."""
    random.seed(42)
    tables = {name: model.matrix(*shape) for name, shape in model.shapes(positions).items()}
    return {name: np.array([[v.data for v in row] for row in rows]) for name, rows in tables.items()}


def cpu() -> float:
    """Seconds of CPU of this process and its children."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def compiled(declared: Any, isas: tuple[str, ...]) -> tuple[ModuleType, str, float]:
    """The module of a model, the C of its best instruction set, and the CPU seconds that it took."""
    start = cpu()
    program = compile_model(declared, "nn.nn", Options(isas=isas))
    module = load(compile_program(program, "nn", Path(tempfile.mkdtemp())))
    return module, str(program_files(program)[f"nn_{isas[-1]}.c"]), cpu() - start


def arrays(model: ModuleType, positions: int, dtype: str) -> Any:
    """The same model, written with ``mlaot.nn``, beginning with the same numbers."""
    p = mlaot.parameters({name: array.astype(dtype) for name, array in starts(model, positions).items()})

    def normalize(x: Any) -> Any:
        return F.rms_norm(x, (model.WIDTH,), eps=1e-5)

    def heads(x: Any) -> Any:
        return x.reshape(positions, model.HEADS, model.HEAD).transpose(1, 0, 2)

    def gpt(tokens: Any) -> Any:
        x = normalize(p["letters"][tokens[:-1]] + p["positions"])
        seen = normalize(x)
        query, key, value = (heads(seen @ p[name].T) for name in ("queries", "keys", "values"))
        found = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + found.transpose(1, 0, 2).reshape(positions, model.WIDTH) @ p["attended"].T
        x = x + F.relu(normalize(x) @ p["up"].T) @ p["down"].T
        return x @ p["scores"].T

    def loss(out: Any, tokens: Any, length: Any) -> Any:
        losses = -F.log_softmax(out, -1)[np.arange(positions), tokens[1:]]
        return np.where(np.arange(positions) < length, losses, 0).sum() / length.astype(dtype)

    row = mlaot.i64[positions + 1]
    loss.__annotations__ = {"tokens": row, "length": mlaot.i64}
    gpt.__annotations__ = {"tokens": row}
    optimizer = Adam(lr=RATE, betas=BETAS, schedule=linear_lr(1.0, 0.0, STEPS))
    return mlaot.model(gpt, parameters=p, loss=loss, optimizer=optimizer)


class Engine:
    """The scalar engine with the example's program, and Adam as microgpt has it."""

    def __init__(self, model: ModuleType, positions: int) -> None:
        random.seed(42)
        self.model, self.positions, self.step = model, positions, 0
        self.weights = {name: model.matrix(*shape) for name, shape in model.shapes(positions).items()}
        self.parameters = [v for rows in self.weights.values() for row in rows for v in row]
        self.moments = [[0.0] * len(self.parameters) for _ in BETAS]

    def train(self, tokens: list[int], length: int) -> float:
        """One step; the loss before it."""
        keys: list[Any] = []
        values: list[Any] = []
        losses = []
        for position in range(length):
            scores = self.model.gpt(self.weights, tokens[position], position, keys, values)
            losses.append(-self.model.softmax(scores)[tokens[position + 1]].log())
        loss = sum(losses) / length
        for p in self.parameters:
            p.grad = 0
        loss.backward()
        rate = RATE * (1 - self.step / STEPS)
        self.step += 1
        first, second = self.moments
        for i, p in enumerate(self.parameters):
            first[i] = BETAS[0] * first[i] + (1 - BETAS[0]) * p.grad
            second[i] = BETAS[1] * second[i] + (1 - BETAS[1]) * p.grad**2
            mean, square = first[i] / (1 - BETAS[0] ** self.step), second[i] / (1 - BETAS[1] ** self.step)
            p.data -= rate * mean / (square**0.5 + EPSILON)
        return float(loss.data)


def data(model: ModuleType, positions: int, count: int) -> tuple[Array, Array]:
    """Rows of tokens of the first names that are short enough, and their lengths."""
    names = [n for n in (EXAMPLE / "names.txt").read_text().split() if len(n) < positions][:count]
    rows = np.full((len(names), positions + 1), model.END)
    for row, name in zip(rows, names, strict=True):
        row[1 : len(name) + 1] = list(map(model.LETTERS.index, name))
    return rows, np.array([len(name) + 1 for name in names])


def seconds(step: Step, tokens: Array, lengths: Array) -> float:
    """The shortest time of a step."""
    step(tokens, lengths)
    start, calls = time.perf_counter(), 0
    while time.perf_counter() - start < ROUND_SECONDS:
        step(tokens, lengths)
        calls += 1
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(calls):
            step(tokens, lengths)
        best = min(best, (time.perf_counter() - start) / calls)
    return best


def torch_step(model: ModuleType, start: dict[str, Array], dtype: str) -> Step:
    """A step by PyTorch with its own Adam, eagerly, as programs of this size are run."""
    import torch
    import torch.nn.functional as tf

    torch.set_num_threads(1)
    p = {name: torch.tensor(array, dtype=getattr(torch, dtype), requires_grad=True) for name, array in start.items()}
    optimizer = torch.optim.Adam(p.values(), lr=RATE, betas=BETAS, fused=True)

    def step(tokens: Array, lengths: Array) -> Any:
        rows, count = torch.from_numpy(tokens), torch.from_numpy(lengths)
        batch, positions = rows.shape[0], rows.shape[1] - 1
        x = tf.rms_norm(p["letters"][rows[:, :-1]] + p["positions"], (model.WIDTH,), eps=1e-5)
        seen = tf.rms_norm(x, (model.WIDTH,), eps=1e-5)
        heads = [
            (seen @ p[name].T).view(batch, positions, model.HEADS, model.HEAD).transpose(1, 2)
            for name in ("queries", "keys", "values")
        ]
        found = tf.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).reshape(x.shape)
        x = x + found @ p["attended"].T
        x = x + tf.relu(tf.rms_norm(x, (model.WIDTH,), eps=1e-5) @ p["up"].T) @ p["down"].T
        losses = tf.cross_entropy((x @ p["scores"].T).flatten(0, 1), rows[:, 1:].flatten(), reduction="none")
        losses = losses.view(batch, positions) * (torch.arange(positions) < count[:, None])
        loss = (losses.sum(1) / count).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def jax_step(model: ModuleType, start: dict[str, Array], dtype: str) -> Step:
    """A step by JAX, compiled whole."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    p = {name: jnp.asarray(array, dtype) for name, array in start.items()}
    state = (p, jax.tree.map(jnp.zeros_like, p), jax.tree.map(jnp.zeros_like, p), jnp.zeros((), dtype))

    def normalize(x: Any) -> Any:
        return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)

    def loss_of(p: Any, tokens: Any, lengths: Any) -> Any:
        batch, positions = tokens.shape[0], tokens.shape[1] - 1
        x = normalize(p["letters"][tokens[:, :-1]] + p["positions"])
        seen = normalize(x)
        query, key, value = (
            (seen @ p[name].T).reshape(batch, positions, model.HEADS, model.HEAD)
            for name in ("queries", "keys", "values")
        )
        found = jax.nn.dot_product_attention(query, key, value, is_causal=True).reshape(x.shape)
        x = x + found @ p["attended"].T
        x = x + jax.nn.relu(normalize(x) @ p["up"].T) @ p["down"].T
        shares = jax.nn.log_softmax(x @ p["scores"].T)
        losses = -jnp.take_along_axis(shares, tokens[:, 1:, None], -1)[..., 0]
        return (jnp.where(jnp.arange(positions) < lengths[:, None], losses, 0).sum(1) / lengths).mean()

    @jax.jit
    def step(state: Any, tokens: Any, lengths: Any) -> Any:
        p, first, second, count = state
        loss, gradients = jax.value_and_grad(loss_of)(p, tokens, lengths)
        first = jax.tree.map(lambda m, g: BETAS[0] * m + (1 - BETAS[0]) * g, first, gradients)
        second = jax.tree.map(lambda v, g: BETAS[1] * v + (1 - BETAS[1]) * g * g, second, gradients)
        rate, count = RATE * (1 - count / STEPS), count + 1

        def moved(w: Any, m: Any, v: Any) -> Any:
            return w - rate * m / (1 - BETAS[0] ** count) / (jnp.sqrt(v / (1 - BETAS[1] ** count)) + EPSILON)

        return (jax.tree.map(moved, p, first, second), first, second, count), loss

    def run(tokens: Array, lengths: Array) -> Any:
        nonlocal state
        state, loss = step(state, tokens, lengths)
        return float(loss)

    return run


def raised_nodes(traced: Any) -> int:
    """How many nodes the model has after raising; no part of it is a loop."""
    counts: dict[str, int] = {}

    def watch(step: str, module: Any) -> None:
        if "model" in module.graphs:
            counts.setdefault(step, len(module.graphs["model"].nodes()))

    run("nn", traced, watch=watch)
    return counts["canonical_order"]


def show_sizes(model: ModuleType, sizes: list[int], isas: tuple[str, ...]) -> dict[tuple[int, str], ModuleType]:
    """Compile the scalars for each number of positions and dtype; print what they become."""
    made, rows = {}, []
    for positions in sizes:
        for dtype in DTYPES:
            declared = model.build(positions, dtype)
            traced = declared.trace()
            scalars = len(traced.graph.nodes())
            nodes = raised_nodes(traced)
            nn, text, used = compiled(declared, isas)
            made[positions, dtype] = nn
            functions = sum(line.startswith(("KERNEL ", "static ")) and ";" not in line for line in text.splitlines())
            cells = (f"{scalars:,}", str(nodes), str(functions), f"{text.count(chr(10)):,}", f"{used:.1f}")
            rows.append((f"{positions} positions, {dtype}", *cells))
    table(("", "scalars", "nodes", "functions", "lines of C", "CPU s"), rows)
    return made


def beside_engine(model: ModuleType, positions: int, nn: ModuleType, steps: int) -> tuple[float, float]:
    """How far losses of ``steps`` names are from the engine's at most, relatively, and its seconds for a step."""
    engine, compiled_model = Engine(model, positions), nn.Model()
    tokens, lengths = data(model, positions, steps)
    worst, start = 0.0, time.perf_counter()
    for row, length in zip(tokens.tolist(), lengths.tolist(), strict=True):
        wanted = engine.train(row, length)
        worst = max(worst, abs(compiled_model.train_step([row], [length]) / wanted - 1))
    return worst, (time.perf_counter() - start) / len(tokens)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--positions", default="8,16,64", help="default: %(default)s")
    parser.add_argument("--steps", type=int, default=100, help="names that the engine learns (default: %(default)s)")
    parser.add_argument("--peers", action="store_true", help="PyTorch and JAX, too")
    options = parser.parse_args()
    one_core()
    isas, sizes = chosen_isas(), [int(size) for size in options.positions.split(",")]
    with building(EXAMPLE):
        model = example("model")
        made = show_sizes(model, sizes, isas)
    positions = 16 if 16 in sizes else sizes[0]
    worst, engine = beside_engine(model, positions, made[positions, "float64"], options.steps)
    out(f"losses of {options.steps} steps differ from the scalar engine's by {worst:.1e} at most, relatively")
    rows = []
    for dtype in DTYPES:
        declared = arrays(model, positions, dtype)
        steps: dict[str, Step] = {
            "scalars": made[positions, dtype].Model().train_step,
            "mlaot.nn": compiled(declared, isas)[0].Model().train_step,
        }
        if options.peers:
            start = starts(model, positions)
            steps |= {"PyTorch": torch_step(model, start, dtype), "JAX": jax_step(model, start, dtype)}
        for name, step in steps.items():
            cells = []
            for batch in BATCHES:
                tokens = np.random.default_rng(0).integers(0, model.TOKENS, (batch, positions + 1))
                cells.append(f"{seconds(step, tokens, np.full(batch, positions)) / batch * 1e6:,.1f}")
            rows.append((f"{name}, {dtype}", *cells))
    rows.append(("scalar engine", f"{engine * 1e6:,.0f}", ""))
    names, begun = list(zip(*data(model, positions, STEPS), strict=True)), time.perf_counter()
    step = made[positions, "float32"].Model().train_step
    for i in range(STEPS):
        tokens, length = names[i % len(names)]
        step(tokens[None], length[None])
    out(f"{STEPS:,} steps of a name each, float32: {time.perf_counter() - begun:.3f} s")
    out(f"a step of training for {positions} positions, microseconds for one example")
    table(("", *(f"batch {batch}" for batch in BATCHES)), rows)


if __name__ == "__main__":
    main()
