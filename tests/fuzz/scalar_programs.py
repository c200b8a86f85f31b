"""Random programs of scalars with repetition, raised and not: the outputs and their gradients are the same.

    python -m tests.fuzz.scalar_programs --count 10000 --seed 0

A program is a few stages, each over the values of those before: layers that share weights over positions, windows with
and without a border, sums over all positions so far, recurrences, unrolled steps, chains side by side, equal layers,
tables, elementwise work and picks. Both graphs are evaluated by the references of their ops, in float64, so nothing is
compiled.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlaot.evaluate import evaluate
from mlaot.ir import Graph
from mlaot.loading import trace
from mlaot.micrograd import Max, Min, Value, declare, where
from mlaot.passes.algebra.simplify import simplify
from mlaot.passes.raising.contract import contract
from mlaot.passes.raising.flatten_sums import flatten_sums
from mlaot.passes.raising.raise_tensors import raise_tensors
from mlaot.passes.raising.roll_chains import roll_chains
from mlaot.passes.raising.shaped_constants import shaped_constants
from mlaot.passes.subgraphs import everywhere
from mlaot.transforms.differentiate import pullback

Rows = list[list[Value]]
TOLERANCE = 1e-9
FUNCTIONS = 8  # that a program may apply to each value


@dataclass
class Program:
    """A program under way: its positions, each of some values, and the parameters that it has made."""

    rng: random.Random
    rows: Rows
    parameters: list[Value] = field(default_factory=list)

    @property
    def width(self) -> int:
        return len(self.rows[0])

    def weight(self) -> Value:
        """A parameter."""
        self.parameters.append(Value(self.rng.uniform(-0.6, 0.6)))
        return self.parameters[-1]

    def weights(self, *shape: int) -> Any:
        """Nested lists of parameters."""
        return [self.weights(*shape[1:]) if len(shape) > 1 else self.weight() for _ in range(shape[0])]

    def total(self, terms: list[Value]) -> Value:
        """A sum, from zero or from its first term, in some order."""
        if self.rng.random() < 0.3:
            terms = self.rng.sample(terms, len(terms))
        result: Any = 0 if self.rng.random() < 0.7 else terms.pop(0)
        for term in terms:
            result = result + term
        return result if isinstance(result, Value) else Value(0.0) + result

    def activate(self, x: Value, kind: int) -> Value:
        """A function that keeps numbers small."""
        functions: tuple[Callable[[Value], Value], ...] = (
            lambda x: x.tanh(),
            lambda x: x.relu() * 0.5,
            lambda x: x * 0.7,
            lambda x: (1 + (-x).tanh().exp()) ** -1,
            lambda x: (x * x + 1).log(),
            lambda x: where(x > 0.1, x.sin(), 0.3 * x),
            lambda x: Min(abs(x), 0.8),
            lambda x: (x * x + 0.5).sqrt() - (x <= 0),
        )
        return functions[kind % FUNCTIONS](x)


def layer(p: Program) -> None:
    """One layer for every position, with or without a bias and a residual."""
    out = p.rng.randint(1, 5)
    w, b, kind = p.weights(out, p.width), p.weights(out), p.rng.randrange(FUNCTIONS)
    is_biased, is_residual = p.rng.random() < 0.5, out == p.width and p.rng.random() < 0.5
    rows = []
    for row in p.rows:
        sums = [p.total([wi * xi for wi, xi in zip(ws, row, strict=True)]) for ws in w]
        sums = [s + bi for s, bi in zip(sums, b, strict=True)] if is_biased else sums
        values = [p.activate(s, kind) for s in sums]
        rows.append([v + x for v, x in zip(values, row, strict=True)] if is_residual else values)
    p.rows = rows


def so_far(p: Program) -> None:
    """Attention, plain sums or the largest of all positions up to each, or from each on, or of the last few."""
    kind, count, last = p.rng.randrange(4), len(p.rows), p.rng.choice([2, 3, 99])
    later, w = p.rng.random() < 0.3, p.weights(p.width)
    rows = []
    for t in range(count):
        places = list(range(t, count)) if later else list(range(max(0, t - last + 1), t + 1))
        if kind == 0:
            scores = [p.total([a * b for a, b in zip(p.rows[t], p.rows[u], strict=True)]) for u in places]
            if p.rng.random() < 0.5:
                most = scores[0]
                for s in scores[1:]:
                    most = Max(most, s)
                scores = [s - most for s in scores]
            exps = [s.exp() for s in scores]
            total = p.total(list(exps))
            rows.append(
                [p.total([e / total * p.rows[u][j] for e, u in zip(exps, places, strict=True)]) for j in range(p.width)]
            )
        elif kind == 1:
            rows.append([p.total([p.rows[u][j] for u in places]) * 0.3 for j in range(p.width)])
        elif kind == 2:
            rows.append([p.total([w[j] * p.rows[u][j] * p.rows[t][j] for u in places]) for j in range(p.width)])
        else:
            row = []
            for j in range(p.width):
                most = p.rows[places[0]][j]
                for u in places[1:]:
                    most = Max(most, p.rows[u][j])
                row.append(most * w[j])
            rows.append(row)
    p.rows = rows


def windows(p: Program) -> None:
    """A convolution over positions, without a border or with shorter sums at it."""
    size, out = p.rng.randint(1, 3), p.rng.randint(1, 4)
    size, stride = min(size, len(p.rows)), p.rng.randint(1, 2)
    w, kind, border = p.weights(out, p.width, size), p.rng.randrange(FUNCTIONS), p.rng.random() < 0.4
    starts = range(-(size // 2), len(p.rows) - size // 2) if border else range(0, len(p.rows) - size + 1, stride)
    rows = []
    for s in starts:
        taps = [(k, s + k) for k in range(size) if 0 <= s + k < len(p.rows)]
        row = [p.total([w[o][c][k] * p.rows[i][c] for c in range(p.width) for k, i in taps]) for o in range(out)]
        rows.append([p.activate(v, kind) for v in row])
    p.rows = rows


def recurrence(p: Program) -> None:
    """A recurrent cell over positions, forwards or backwards; all states are kept, or the last."""
    size, kind = p.rng.randint(1, 3), p.rng.randrange(4)
    u, v, g = p.weights(size, p.width), p.weights(size, size), p.weights(size, p.width)
    h: Any = [Value(p.rng.choice([0.0, 0.1])) for _ in range(size)]
    states = []
    for row in p.rows[:: p.rng.choice([1, -1])]:
        new = [
            p.total([u[i][j] * row[j] for j in range(p.width)]) + p.total([v[i][j] * h[j] for j in range(size)])
            for i in range(size)
        ]
        if kind == 1:
            gates = [(1 + (-p.total([g[i][j] * row[j] for j in range(p.width)])).exp()) ** -1 for i in range(size)]
            h = [z * n.tanh() + (1 - z) * old for z, n, old in zip(gates, new, h, strict=True)]
        elif kind == 2:
            h = [old + 0.1 * n.tanh() for n, old in zip(new, h, strict=True)]
        elif kind == 3:
            h = [old * 0.5 + row[i % p.width] for i, old in enumerate(h)]
        else:
            h = [n.tanh() for n in new]
        states.append(h)
    p.rows = states if p.rng.random() < 0.6 else states[-1:]


def steps(p: Program) -> None:
    """The same step many times on one position: a descent, a rotation, a map."""
    row, kind, w = p.rows[0], p.rng.randrange(3), p.weights(p.width)
    rate = p.weight()
    for _ in range(p.rng.randint(3, 12)):
        if kind == 0:
            row = [x - 0.1 * (x * wi - rate) * wi for x, wi in zip(row, w, strict=True)]
        elif kind == 1:
            row = [(x + row[i - 1] * rate) * 0.5 for i, x in enumerate(row)]
        else:
            row = [(x * wi + rate).tanh() for x, wi in zip(row, w, strict=True)]
    p.rows = [row, *p.rows[1:]]


def side_by_side(p: Program) -> None:
    """The same steps on every position, with or without inputs of their own."""
    count, kind, w = p.rng.randint(4, 9), p.rng.randrange(3), p.weights(p.width)
    b = p.weights(count)
    rows = []
    for row in p.rows:
        y = list(row)
        for t in range(count):
            if kind == 0:
                y = [v * x * 0.5 + b[t] for v, x in zip(y, row, strict=True)]
            elif kind == 1:
                y = [(v * wi + b[0]).tanh() for v, wi in zip(y, w, strict=True)]
            else:
                y = [(v * wi + y[i - 1] * b[0]).tanh() for i, (v, wi) in enumerate(zip(y, w, strict=True))]
        rows.append(y)
    p.rows = rows


def memory(p: Program) -> None:
    """A value of each position from those of the last two or three, or from those some positions before."""
    lag, kind, w = p.rng.randint(2, 3), p.rng.randrange(2), p.weights(3)
    y = [row[0] for row in p.rows[:lag]]
    for row in p.rows[lag:]:
        last = y[-lag:] if kind == 0 else [y[-lag], y[-1]]
        y.append((p.total([wi * v for wi, v in zip(w, last, strict=False)]) + row[-1]).tanh())
    p.rows = [[v] for v in y]


def choices(p: Program) -> None:
    """A value that takes one of two ways at each position, by what is there."""
    w, h, states = p.weights(p.width + 1), Value(0.1), []
    for row in p.rows:
        seen = p.total([a * b for a, b in zip(w, row, strict=False)])
        h = where(row[0] > 0.1, (h * w[-1] + seen).tanh(), h * 0.5)
        states.append([h])
    p.rows = states


def layers(p: Program) -> None:
    """Equal layers of weights of their own, with or without a way around each."""
    count, is_residual = p.rng.randint(4, 6), p.rng.random() < 0.5
    row, inner = p.rows[0], p.rng.randint(1, 3)
    for _ in range(count):
        up, down = p.weights(inner, p.width), p.weights(p.width, inner)
        h = [p.total([a * b for a, b in zip(ws, row, strict=True)]).tanh() for ws in up]
        new = [p.total([a * b for a, b in zip(ws, h, strict=True)]) for ws in down]
        row = [a + b for a, b in zip(row, new, strict=True)] if is_residual else new
    p.rows = [row, *p.rows[1:]]


def table(p: Program) -> None:
    """Every cell of the one above, the one to the left and the one between, and of a value of each side."""
    kind, gap = p.rng.randrange(3), p.weight()
    side = [row[0] for row in p.rows]
    cells = [[Value(0.1 * (i + j)) for j in range(len(side) + 1)] for i in range(len(side) + 1)]
    for i, a in enumerate(side):
        for j, b in enumerate(side):
            ways = [cells[i][j + 1] + gap, cells[i + 1][j] + gap, cells[i][j] + (a * b).tanh()]
            if kind == 0:
                cell = -sum((-w).exp() for w in ways).log()  # type: ignore[union-attr]
            elif kind == 1:
                cell = Min(Min(ways[0], ways[1]), ways[2])
            else:
                cell = (ways[0] * 0.3 + ways[1] * 0.2 + ways[2] * 0.1).tanh()
            cells[i + 1][j + 1] = cell
    p.rows = [row[1:] for row in cells[1:]] if p.rng.random() < 0.5 else [[cells[-1][-1]]]


def momentum(p: Program) -> None:
    """Steps of a descent that carry more than what they move, with numbers that change from step to step."""
    x, rate, kind = list(p.rows[0]), p.weight(), p.rng.randrange(2)
    m = [Value(0.0) for _ in x]
    for t in range(p.rng.randint(4, 9)):
        gradient = [v * v.tanh() - rate for v in x]
        m = [0.9 * a + 0.1 * g for a, g in zip(m, gradient, strict=True)]
        scale = 1 - 0.9 ** (t + 1) if kind else 2.0
        x = [v - a * (0.1 / scale) for v, a in zip(x, m, strict=True)]
    p.rows = [x, *p.rows[1:]]


def elementwise(p: Program) -> None:
    """A function of every value, the same or one of two."""
    kinds, w = [p.rng.randrange(FUNCTIONS) for _ in range(2)], p.weight()
    mixed = p.rng.random() < 0.3
    p.rows = [
        [p.activate(v * w + 0.1, kinds[(i + j) % 2 if mixed else 0]) for j, v in enumerate(row)]
        for i, row in enumerate(p.rows)
    ]


def picks(p: Program) -> None:
    """Some positions in another order, transposed, or a few of them twice."""
    kind = p.rng.randrange(3)
    if kind == 0:
        p.rows = p.rng.sample(p.rows, p.rng.randint(1, len(p.rows)))
    elif kind == 1:
        p.rows = [list(column) for column in zip(*p.rows, strict=True)]
    else:
        p.rows = [*p.rows, *p.rng.choices(p.rows, k=2)]


STAGES: tuple[Callable[[Program], None], ...] = (
    *(layer, layer, so_far, so_far, windows, windows, recurrence, recurrence, steps, elementwise, picks),
    *(side_by_side, memory, choices, layers, table, momentum),
)
LARGEST = 10


def random_program(seed: int) -> tuple[list[Value], list[Value], list[Value]]:
    """Outputs, inputs and parameters of a program."""
    rng = random.Random(seed)
    rows = [[Value(0.0) for _ in range(rng.randint(1, 4))]]
    rows += [[Value(0.0) for _ in rows[0]] for _ in range(rng.randint(0, 8))]
    p = Program(rng, rows)
    for _ in range(rng.randint(1, 4)):
        rng.choice(STAGES)(p)
        if any(abs(v.data) > LARGEST for row in p.rows for v in row):  # of which exponentials would overflow
            p.rows = [[v.tanh() for v in row] for row in p.rows]
    outputs = [v for row in p.rows for v in row]
    if rng.random() < 0.3:
        outputs = [p.total([v * v for v in outputs])]
    elif rng.random() < 0.3:
        outputs = [v for column in zip(*p.rows, strict=True) for v in column]
    return outputs, [v for row in rows for v in row], p.parameters


def with_gradients(graph: Graph) -> Graph:
    """Add the gradients of the sum of all outputs by all inputs."""
    outputs = [node.find() for node in graph.outputs.values()]
    wanted = list(graph.inputs.values())
    ones = [graph.constant(np.ones(node.type.shape), node.type.dtype) for node in outputs]
    for name, node in zip(graph.inputs, pullback(outputs, ones, wanted), strict=True):
        if node is not None:
            graph.outputs[f"gradient of {name}"] = node
    return graph


def compare(seed: int) -> tuple[int, int]:
    """Assert that a program is computed as it was before raising; return the numbers of nodes before and after."""
    outputs, inputs, parameters = random_program(seed)
    declared = declare(outputs, inputs={"x": inputs}, parameters=parameters)
    plain, raised = trace(declared).graph, trace(declared).graph
    simplify.function(raised)
    for step in (flatten_sums, roll_chains, raise_tensors, shaped_constants, contract):
        everywhere(step.function, raised)
    after = len(raised.nodes())
    rng = np.random.default_rng(seed)
    arrays: dict[str, Any] = {"x": rng.normal(size=len(inputs))}
    arrays |= {name: np.array([v.data for v in parameters]) for name in plain.inputs if name != "x"}
    before = len(plain.nodes())
    with_gradients(plain)
    with np.errstate(all="ignore"):
        expected, found = evaluate(plain, arrays), evaluate(with_gradients(raised), arrays)
    for name, value in expected.items():
        assert np.isfinite(value).all(), f"seed {seed}: {name} is not finite before it is raised"
        got = found.get(name, np.zeros_like(value))
        np.testing.assert_allclose(got, value, rtol=TOLERANCE, atol=TOLERANCE, err_msg=f"seed {seed}: {name}")
    return before, after


def run(first: int, count: int) -> tuple[list[str], int]:
    """What failed of ``count`` seeds from ``first`` on, and how many programs have less than half of their nodes."""
    failed, smaller = [], 0
    for seed in range(first, first + count):
        try:
            before, after = compare(seed)
            smaller += 2 * after < before
        except Exception:
            failed.append(f"seed {seed}\n{traceback.format_exc(limit=-3)}")
    return failed, smaller


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    started = time.monotonic()
    failed, smaller = run(options.seed, options.count)
    print(*failed[:5], sep="\n")
    print(f"{options.count:,} programs, {smaller:,} with less than half of their nodes, {len(failed)} failed", end="")
    print(f" in {time.monotonic() - started:.0f} s")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
