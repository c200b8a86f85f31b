"""Programs written in scalars that repeat along positions, time or space, of any length."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mlaot.micrograd import Max, Value, where

Rows = list[list[Value]]
WIDTH = 3


@dataclass
class Program:
    """What a program computes, of which inputs and parameters."""

    outputs: list[Value]
    inputs: Rows
    parameters: dict[str, Any]


def weights(*shape: int) -> Any:
    """Nested lists of values with random data."""
    return [weights(*shape[1:]) if len(shape) > 1 else Value(random.uniform(-0.6, 0.6)) for _ in range(shape[0])]


def leaves(count: int, width: int = WIDTH) -> Rows:
    return [[Value(0.0) for _ in range(width)] for _ in range(count)]


def linear(x: list[Value], w: Rows) -> list[Value]:
    return [sum((wi * xi for wi, xi in zip(row, x, strict=True)), Value(0.0)) for row in w]


def plus(*rows: list[Value]) -> list[Value]:
    return [sum(terms[1:], terms[0]) for terms in zip(*rows, strict=True)]


def sigmoid(x: Value) -> Value:
    return (1 + (-x).exp()) ** -1


def softmax(scores: list[Value]) -> list[Value]:
    exps = [s.exp() for s in scores]
    total = sum(exps)
    return [e / total for e in exps]


def flat(rows: Rows) -> list[Value]:
    return [value for row in rows for value in row]


def attention(length: int, layers: int = 1) -> Program:
    """A transformer with normalization, heads and a list of keys that grows, position by position."""
    heads, width = 2, 4
    x = leaves(length, width)
    w = {name: weights(layers, width, width) for name in "qkvo"} | {
        "up": weights(layers, 6, width),
        "down": weights(layers, width, 6),
    }
    keys: list[Rows] = [[] for _ in range(layers)]
    values: list[Rows] = [[] for _ in range(layers)]
    outputs = []
    for row in x:
        h = row
        for layer in range(layers):
            scale = (sum(v * v for v in h) / width + 1e-5) ** -0.5  # type: ignore[operator]
            y = [v * scale for v in h]
            q, k, v = (linear(y, w[name][layer]) for name in "qkv")
            keys[layer].append(k)
            values[layer].append(v)
            found = []
            for start in range(0, width, width // heads):
                part = range(start, start + width // heads)
                scores = [sum(q[j] * key[j] for j in part) * 0.5 for key in keys[layer]]
                chosen = softmax(scores)  # type: ignore[arg-type]
                found += [sum(c * value[j] for c, value in zip(chosen, values[layer], strict=True)) for j in part]
            h = plus(linear(found, w["o"][layer]), h)  # type: ignore[arg-type]
            h = plus(linear([u.relu() for u in linear(h, w["up"][layer])], w["down"][layer]), h)
        outputs += h
    return Program(outputs, x, w)


def several_layers(length: int) -> Program:
    return attention(length, layers=2)


def window_attention(length: int) -> Program:
    """Attention to the last four positions."""
    x, w = leaves(length), weights(WIDTH, WIDTH)
    outputs = []
    for t, row in enumerate(x):
        near, q = x[max(0, t - 3) : t + 1], linear(row, w)
        chosen = softmax([sum(a * b for a, b in zip(q, other, strict=True)) for other in near])  # type: ignore[misc]
        outputs += [sum(c * other[j] for c, other in zip(chosen, near, strict=True)) for j in range(WIDTH)]
    return Program(outputs, x, {"w": w})  # type: ignore[arg-type]


def convolution(length: int, channels: int = 1) -> Program:
    """Two layers of one dimension, channel by channel."""
    x, w, b, u = leaves(channels, length), weights(4, channels, 5), weights(4), weights(2, 4, 3)
    taps = [(c, k) for c in range(channels) for k in range(5)]
    y = [[sum((w[o][c][k] * x[c][i + k] for c, k in taps), b[o]).relu() for i in range(length - 4)] for o in range(4)]
    z = [
        [sum((u[o][c][k] * y[c][i + k] for c in range(4) for k in range(3)), Value(0.0)) for i in range(length - 6)]
        for o in range(2)
    ]
    return Program(flat(z), x, {"w": w, "b": b, "u": u})


def channels_of_a_convolution(length: int) -> Program:
    return convolution(length, channels=3)


def image(length: int) -> Program:
    """A convolution of two dimensions with stride 2, positions first."""
    x, w = [leaves(length, length) for _ in range(2)], weights(3, 2, 3, 3)
    places = [(2 * i, 2 * j) for i in range((length - 1) // 2) for j in range((length - 1) // 2)]
    outputs = [
        sum(
            (w[o][c][p][q] * x[c][i + p][j + q] for c in range(2) for p in range(3) for q in range(3)), Value(0.0)
        ).tanh()
        for i, j in places
        for o in range(3)
    ]
    return Program(outputs, [row for channel in x for row in channel], {"w": w})


def bordered(length: int) -> Program:
    """A convolution whose sums are shorter at the border."""
    (x,), w = leaves(1, length), weights(2, 3)
    outputs = [
        sum((w[o][k] * x[i + k - 1] for k in range(3) if 0 <= i + k - 1 < length), Value(0.0)).tanh()
        for o in range(2)
        for i in range(length)
    ]
    return Program(outputs, [x], {"w": w})


def recurrent(length: int) -> Program:
    """A recurrent network that shows an output at each step."""
    x, u, v, b, out = leaves(length), weights(4, WIDTH), weights(4, 4), weights(4), weights(2, 4)
    h, outputs = [Value(0.0)] * 4, []
    for row in x:
        h = [s.tanh() for s in plus(linear(row, u), linear(h, v), b)]
        outputs += linear(h, out)
    return Program(outputs, x, {"u": u, "v": v, "b": b, "out": out})


def lstm(length: int) -> Program:
    """Two layers of long short-term memory."""
    x = rows = leaves(length)
    parameters: dict[str, Any] = {}
    for layer in range(2):
        w = {g: weights(3, len(rows[0])) for g in "ifgo"}
        u = {g: weights(3, 3) for g in "ifgo"}
        parameters |= {f"w{layer}": w, f"u{layer}": u}
        h, c, states = [Value(0.0)] * 3, [Value(0.0)] * 3, []
        for row in rows:
            i, f, g, o = (plus(linear(row, w[gate]), linear(h, u[gate])) for gate in "ifgo")
            c = [sigmoid(f[k]) * c[k] + sigmoid(i[k]) * g[k].tanh() for k in range(3)]
            h = [sigmoid(o[k]) * c[k].tanh() for k in range(3)]
            states.append(h)
        rows = states
    return Program(rows[-1], x, parameters)


def both_ways(length: int) -> Program:
    """Two recurrent networks, one from each end."""
    x = leaves(length)
    u, v = weights(2, 4, WIDTH), weights(2, 4, 4)
    outputs = []
    for way, rows in enumerate((x, x[::-1])):
        h = [Value(0.0)] * 4
        for row in rows:
            h = [s.tanh() for s in plus(linear(row, u[way]), linear(h, v[way]))]
        outputs += h
    return Program(outputs, x, {"u": u, "v": v})


def residual(length: int) -> Program:
    """The same layer many times, each added to what it reads."""
    x, w = leaves(1, 4), weights(4, 4)
    h = x[0]
    for _ in range(length):
        h = plus(h, [0.1 * s.tanh() for s in linear(h, w)])
    return Program(h, x, {"w": w})


def kalman(length: int) -> Program:
    """A filter of a number that drifts."""
    (z,), q, r = leaves(1, length), Value(0.1), Value(0.5)
    x, p, outputs = Value(0.0), Value(1.0), []
    for seen in z:
        p = p + q
        gain = p / (p + r)
        x = x + gain * (seen - x)
        p = (1 - gain) * p
        outputs.append(x)
    return Program(outputs, [z], {"q": q, "r": r})


def descent(length: int) -> Program:
    """Steps of gradient descent for a line through four points."""
    x, y = leaves(2, 4)
    w, b = Value(0.3), Value(0.1)
    for _ in range(length):
        errors = [w * xi + b - yi for xi, yi in zip(x, y, strict=True)]
        w, b = w - 0.1 * sum(e * xi for e, xi in zip(errors, x, strict=True)), b - 0.1 * sum(errors)  # type: ignore[operator]
    return Program([w, b], [x, y], {})


def chain(length: int) -> Program:
    x, a, b = Value(0.0), Value(0.9), Value(0.1)
    y = x
    for _ in range(10 * length):
        y = (y * a + b).tanh()
    return Program([y], [[x]], {"a": a, "b": b})


def largest_so_far(length: int) -> Program:
    (x,), outputs = leaves(1, 3 * length), []
    most = x[0]
    for value in x[1:]:
        most = Max(most, value)
        outputs.append(most)
    return Program(outputs, [x], {})


def side_by_side(length: int) -> Program:
    """A recurrent network on three rows of inputs, one after the other."""
    x, u, v = leaves(3 * length), weights(4, WIDTH), weights(4, 4)
    outputs = []
    for start in range(0, 3 * length, length):
        h = [Value(0.0)] * 4
        for row in x[start : start + length]:
            h = [s.tanh() for s in plus(linear(row, u), linear(h, v))]
        outputs += h
    return Program(outputs, x, {"u": u, "v": v})


def layers_of_their_own(length: int) -> Program:
    """Equal layers that share no weights."""
    (x,), w, b = leaves(1, 4), weights(length, 4, 4), weights(length, 4)
    h = x
    for layer in range(length):
        h = [s.tanh() for s in plus(linear(h, w[layer]), b[layer])]
    return Program(h, [x], {"w": w, "b": b})


def memory_of_three(length: int) -> Program:
    """Each value from the three before it."""
    (x,), w = leaves(1, length), weights(3)
    y = list(x[:3])
    for seen in x[3:]:
        y.append(w[0] * y[-1] + w[1] * y[-2] + w[2] * y[-3] + seen)
    return Program(y, [x], {"w": w})


def adam(length: int) -> Program:
    """Steps of Adam for a line through four points, whose corrections are other numbers in each step."""
    x, y = leaves(2, 4)
    w = [Value(0.3), Value(0.1)]
    m, s = [Value(0.0)] * 2, [Value(0.0)] * 2
    for t in range(1, length + 1):
        errors = [w[0] * xi + w[1] - yi for xi, yi in zip(x, y, strict=True)]
        gradient = [sum(e * xi for e, xi in zip(errors, x, strict=True)), sum(errors)]
        m = [0.9 * a + 0.1 * g for a, g in zip(m, gradient, strict=True)]
        s = [0.99 * a + 0.01 * g * g for a, g in zip(s, gradient, strict=True)]  # type: ignore[operator]
        w = [
            v - 0.01 * (a / (1 - 0.9**t)) / ((b / (1 - 0.99**t)) ** 0.5 + 1e-8) for v, a, b in zip(w, m, s, strict=True)
        ]
    return Program(w, [x, y], {})


def gated(length: int) -> Program:
    """A value that decays, or moves by what is seen where that is large."""
    (x,), a, b = leaves(1, length), Value(0.5), Value(0.3)
    h = Value(0.1)
    for seen in x:
        h = where(seen > 0.2, (h * a + seen).tanh(), h * b)
    return Program([h], [x], {"a": a, "b": b})


def table(length: int) -> Program:
    """A soft minimum over the ways through a table of costs, from one corner to the other."""
    size, scale = length // 2, Value(0.7)
    x = leaves(size, size)
    cells = [[Value(3.0)] * (size + 1) for _ in range(size + 1)]
    cells[0][0] = Value(0.0)
    for i in range(size):
        for j in range(size):
            near = sum((-cell).exp() for cell in (cells[i][j + 1], cells[i + 1][j], cells[i][j]))
            cells[i + 1][j + 1] = scale * x[i][j] - near.log()  # type: ignore[union-attr]
    return Program([cells[-1][-1]], x, {"scale": scale})


PROGRAMS: dict[Callable[[int], Program], set[str]] = {  # and ops that they become, besides elementwise ones
    attention: {"contract", "where"},
    several_layers: {"contract", "where"},
    window_attention: {"contract", "where"},
    convolution: {"contract", "window"},
    channels_of_a_convolution: {"contract", "window"},
    image: {"contract", "window"},
    bordered: {"contract"},
    recurrent: {"contract", "scan"},
    lstm: {"contract", "scan"},
    both_ways: {"contract", "scan"},
    residual: {"scan"},
    kalman: {"scan"},
    descent: {"scan"},
    chain: {"scan"},
    largest_so_far: {"scan"},
    side_by_side: {"scan"},
    layers_of_their_own: {"scan"},
    memory_of_three: {"scan"},
    adam: {"scan"},
    gated: {"scan"},
    table: {"scan"},
}
