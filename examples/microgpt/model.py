"""A GPT in scalars and lists, letter by letter: the algorithm of Andrej Karpathy's microgpt. Runs at build time only.

One layer, four heads, width 16, 27 tokens: the letters, and one that begins and ends a name. A position is computed
when the keys and values of those before it are in two lists. Nothing here says ``array``; the build finds 16 equal
positions, and makes matrix products of them.
"""

import random
from itertools import pairwise
from typing import Any

from mlaot.micrograd import Index, Length, Table, Value, declare
from mlaot.optim import Adam, linear_lr

LETTERS = "abcdefghijklmnopqrstuvwxyz"
END = len(LETTERS)  # the token around a name
TOKENS = END + 1
WIDTH, HEADS = 16, 4
HEAD = WIDTH // HEADS

Vector = list[Value]


def matrix(rows: int, columns: int) -> Table:
    """A table of trained numbers, small and random."""
    return Table([Value(random.gauss(0, 0.08)) for _ in range(columns)] for _ in range(rows))


def linear(weights: Table, x: Vector) -> Vector:
    """A matrix times a vector."""
    return [sum(w * v for w, v in zip(row, x, strict=True)) for row in weights]


def normalize(x: Vector) -> Vector:
    """Divide by the root of the mean square."""
    scale = (sum(v * v for v in x) / len(x) + 1e-5) ** -0.5
    return [v * scale for v in x]


def softmax(scores: Vector) -> Vector:
    """Probabilities; the largest score is taken off, so that no exponential overflows."""
    largest = max(score.data for score in scores)
    exps = [(score - largest).exp() for score in scores]
    total = sum(exps)
    return [e / total for e in exps]


def attend(query: Vector, keys: list[Vector], values: list[Vector]) -> Vector:
    """One head: the values so far, each as much as its key fits the query."""
    scores = [sum(q * k for q, k in zip(query, key, strict=True)) / HEAD**0.5 for key in keys]
    shares = softmax(scores)
    return [sum(s * v for s, v in zip(shares, column, strict=True)) for column in zip(*values, strict=True)]


def add(x: Vector, y: Vector) -> Vector:
    """The sum of two vectors."""
    return [a + b for a, b in zip(x, y, strict=True)]


def gpt(
    weights: dict[str, Table], token: Index | int, position: int, keys: list[Vector], values: list[Vector]
) -> Vector:
    """The scores of what comes after ``token``, and its key and value at the end of the lists."""
    x = normalize(add(weights["letters"][token], weights["positions"][position]))
    seen = normalize(x)
    keys.append(linear(weights["keys"], seen))
    values.append(linear(weights["values"], seen))
    query, found = linear(weights["queries"], seen), []
    for begin in range(0, WIDTH, HEAD):
        head = slice(begin, begin + HEAD)
        found += attend(query[head], [key[head] for key in keys], [value[head] for value in values])
    x = add(x, linear(weights["attended"], found))
    hidden = [v.relu() for v in linear(weights["up"], normalize(x))]
    x = add(x, linear(weights["down"], hidden))
    return linear(weights["scores"], x)


def shapes(positions: int) -> dict[str, tuple[int, int]]:
    """Rows and columns of the trained tables."""
    tables = {"letters": (TOKENS, WIDTH), "positions": (positions, WIDTH)}
    tables |= dict.fromkeys(("queries", "keys", "values", "attended"), (WIDTH, WIDTH))
    return tables | {"up": (4 * WIDTH, WIDTH), "down": (WIDTH, 4 * WIDTH), "scores": (TOKENS, WIDTH)}


def build(positions: int = 16, dtype: str = "float32") -> Any:
    """A model of names of up to ``positions - 1`` letters; it trains, and gives the probabilities at each position."""
    random.seed(42)
    weights = {name: matrix(*shape) for name, shape in shapes(positions).items()}
    tokens = [Index(TOKENS) for _ in range(positions + 1)]  # END, the letters, END, and whatever fills the rest
    length = Length(positions)  # the letters and the END behind them
    keys: list[Vector] = []
    values: list[Vector] = []
    probabilities, losses = [], Table()
    for position, (token, following) in enumerate(pairwise(tokens)):
        shares = softmax(gpt(weights, token, position, keys, values))
        probabilities.append(shares)
        losses.append(-Table(shares)[following].log())
    loss = sum(losses[:length]) / length
    optimizer = Adam(lr=0.01, betas=(0.85, 0.99), schedule=linear_lr(1.0, 0.0, total_iters=1000))
    return declare(
        probabilities,
        inputs={"tokens": tokens, "length": length},
        parameters=weights,
        loss=loss,
        dtype=dtype,
        optimizer=optimizer,
    )


names = build()
