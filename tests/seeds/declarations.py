"""The models of the rows: what the seeds' tests and programs compute, declared for mlaot."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

import mlaot
from mlaot.eager import Trace
from mlaot.frontend.trace.declaration import Declaration
from mlaot.micrograd import MLP, Bytes, Dot, Label, Max, Value, cross_entropy, declare

Op = Callable[[Value, Value, Value], Value]


def readme(a: Value, b: Value) -> Value:
    """The example of micrograd's README, ``test_more_ops`` of its tests."""
    c = a + b
    d = a * b + b**3
    c += c + 1
    c += 1 + c + (-a)
    d += d * 2 + (b + a).relu()
    d += 3 * d + (b - a).relu()
    f = (c - d) ** 2
    return f / 2.0 + 10.0 / f


def sanity(x: Value) -> Value:
    """``test_sanity_check`` of micrograd's tests."""
    z = 2 * x + 2 + x
    q = z.relu() + z * x
    return (z * z).relu() + q + q * x


def duplicate(a: Value) -> Value:
    """``test_duplicate_backprop`` of the fork."""
    b = a + 4
    return (b * 3) + (b * 5)


# Every kind of node, with parameters a and b and the input x, all of them positive.
KINDS: dict[str, Op] = {
    "constant": lambda a, b, x: Value(123),
    "weight": lambda a, b, x: a,
    "bias": lambda a, b, x: b,
    "input": lambda a, b, x: x,
    "+": lambda a, b, x: a + x,
    "a+a": lambda a, b, x: a + a,
    "*": lambda a, b, x: a * x,
    "a*a": lambda a, b, x: a * a,
    "-a": lambda a, b, x: -a,
    "a-b": lambda a, b, x: a - b,
    "3-b": lambda a, b, x: 3 - b,
    "a/b": lambda a, b, x: a / b,
    "2/b": lambda a, b, x: 2 / b,
    "numbers": lambda a, b, x: a * 2.5 + 0.75 * x + 3,
    "ReLU": lambda a, b, x: (a * x - b).relu(),
    "**0": lambda a, b, x: (a * x) ** 0,
    "**1": lambda a, b, x: (a * x) ** 1,
    "**-1": lambda a, b, x: (a * x) ** -1,
    "**2": lambda a, b, x: (a * x) ** 2,
    "**3": lambda a, b, x: (a * x) ** 3,
    "**-2": lambda a, b, x: (a * x) ** -2,
    "**0.5": lambda a, b, x: (a * x) ** 0.5,
    "**2.5": lambda a, b, x: (a * x) ** 2.5,
    "exp": lambda a, b, x: (a * x).exp(),
    "log": lambda a, b, x: (a * x).log(),
    "tanh": lambda a, b, x: (a * x).tanh(),
    "max": lambda a, b, x: Max(a * x, b),
    "max tie": lambda a, b, x: Max(a, a),
    "dot": lambda a, b, x: Dot([a, b, x], [x, a, b]),
    "dot of a square": lambda a, b, x: Dot([a, a], [a, x]),
    "all": lambda a, b, x: (a.exp() * b).tanh() + a**0.5 * (b**2).log() + Max(a * b, b - a) / x,
    "in place": lambda a, b, x: a + b * x,
}
START = 0.7, 1.3

# The seeds' own numbers: of parameters c = -4 and d = 2.
FIGURES: dict[str, Callable[[Value, Value], Value]] = {
    "readme": readme,
    "sanity": lambda c, d: sanity(c),
    "duplicate": lambda c, d: duplicate(d),
}


def kinds() -> Declaration:
    """All of ``KINDS`` and ``FIGURES`` as outputs; the label picks the one whose value is the loss."""
    a, b, x = Value(START[0], (), "weight"), Value(START[1], (), "bias"), Value(1.0, (), "input")
    c, d = Value(-4.0, (), "weight"), Value(2.0, (), "weight")
    outputs = [op(a, b, x) for op in KINDS.values()] + [figure(c, d) for figure in FIGURES.values()]
    pick = [Value(0.0, (), "input") for _ in outputs]
    loss = sum(one * out for one, out in zip(pick, outputs, strict=True))
    parameters = {"a": a, "b": b, "c": c, "d": d}
    return declare(outputs, inputs={"x": x, "pick": Label(pick)}, parameters=parameters, loss=loss)


def xor() -> Declaration:
    """The fork's xor.py: 2-4-1 and a squared error."""
    random.seed(1337)
    net, x, y = MLP(2, [4, 1]), [Value(0, (), "input"), Value(0, (), "input")], Value(0, (), "input")
    out: Any = net(x)
    return declare(out, inputs={"x": x, "y": y}, parameters=net, loss=(out - y) ** 2)


class Digits:
    """The first post's network and loss, as values."""

    def __init__(self) -> None:
        random.seed(1337)
        self.net = MLP(784, [50, 10])
        self.x, self.onehot = ([Value(0, (), "input") for _ in range(n)] for n in (784, 10))
        self.outputs: list[Value] = list(self.net(self.x))  # type: ignore[arg-type]
        self.loss = cross_entropy(self.outputs, self.onehot)


def mnist() -> Declaration:
    """784-50-10 with the first post's start weights; inputs are named as in examples/mnist."""
    d = Digits()
    inputs = {"x": Bytes(d.x), "label": Label(d.onehot)}
    return declare(d.outputs, inputs=inputs, parameters=d.net, loss=d.loss)


def moons_net() -> MLP:
    """The demo's network."""
    random.seed(1337)
    return MLP(2, [16, 16, 1])


def moons() -> Declaration:
    """The demo's network with the max-margin loss of one point."""
    net, x, y = moons_net(), [Value(0.0), Value(0.0)], Value(0.0)
    score: Any = net(x)
    return declare(score, inputs={"x": x, "y": y}, parameters=net, loss=(1 + -y * score).relu())


def served() -> MLP:
    """The demo's network to be frozen: the network itself is the model."""
    return moons_net()


def served_pair() -> Declaration:
    """A network of two outputs, and the one that it was made from, in one inference module."""
    random.seed(1337)
    net, x = MLP(2, [4, 2]), [Value(0.0), Value(0.0)]
    return declare(net(x), inputs={"x": x}, parameters=net)


X = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
Y = np.array([[7.0, 8.0, 9.0], [10.0, 11.0, 12.0]])
TENSORS = {
    "x": X,
    "y": Y,
    "u": np.array([[2.0, 3.0, 4.0], [5.0, 6.0, 7.0]]),
    "v": np.array([[8.0, 9.0, 12.0], [10.0, 18.0, 14.0]]),
    "column": np.array([[7.0], [8.0], [9.0]]),
    "mixed": np.array([[-1.5, 0.5, 2.0], [0.25, -2.0, -0.125]]),
}


def tensor_ops(p: Any, on: Any) -> dict[str, Any]:
    """The ops of the fork's tensor engine on the numbers of its tests; ``on`` is 1."""
    return {
        "add": p["x"] * on + p["y"],
        "sub": p["x"] * on - p["y"],
        "mul": p["x"] * on * p["y"],
        "truediv": p["u"] * on / p["v"],
        "power": (p["x"] * on) ** 3.0,
        "matmul": (p["x"] * on) @ p["column"],
        "exp": np.exp(p["x"] * on),
        "log": np.log(p["x"] * on),
        "total": (p["x"] * on).sum(),
        "largest": (p["mixed"] * on).max(),
        "relu": np.maximum(p["mixed"] * on, 0),
    }


def tensors() -> Declaration:
    """All of ``tensor_ops``; the loss is the sum of the one that ``pick`` picks."""
    parameters = mlaot.parameters(TENSORS)

    def model(on: Any) -> Any:
        return tensor_ops(parameters, on)

    def loss(outputs: Any, pick: Any) -> Any:
        chosen = mlaot.one_hot(pick, len(outputs))
        terms = (out.sum() * (chosen * np.eye(len(outputs))[i]).sum() for i, out in enumerate(outputs.values()))
        return sum(terms)

    # A user writes `on: mlaot.f64` above; mypy takes no variable for a type.
    model.__annotations__, loss.__annotations__ = {"on": mlaot.f64}, {"pick": mlaot.i64}
    declared: Declaration = mlaot.model(loss=loss, parameters=parameters)(model)
    return declared


# The ops of mljs, on arrays of NumPy, of ``mlaot.model`` and of ``mlaot.eager`` alike.
MLJS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "pow": lambda a, b: a**b,
    "neg": lambda a, b: -a,
    "exp": lambda a, b: np.exp(a),
    "tanh": lambda a, b: np.tanh(a),
    "sum": lambda a, b: a.sum(axis=-1),
}


def perceptron(x: Any, w: Any, bias: Any) -> Any:
    """The example of mljs: one neuron."""
    return np.tanh((x * w).sum(axis=-1) + bias)


def mljs() -> Declaration:
    """Every op of mljs on ``a`` and ``b`` with the gradients of its sum by both, and the perceptron with its own."""

    def gradients(function: Any, *arrays: Any) -> tuple[Any, ...]:
        value = function(*arrays)
        found = mlaot.grad(lambda *given: function(*given).sum(), argnums=tuple(range(len(arrays))))(*arrays)
        return (value, *found)

    def model(a: Any, b: Any, x: Any, w: Any, bias: Any) -> Any:
        per_op = [array for op in MLJS.values() for array in gradients(op, a, b)]
        return (*per_op, *gradients(perceptron, x, w, bias))

    pair, vector = mlaot.f32[2, 2], mlaot.f32[2]
    model.__annotations__ = {"a": pair, "b": pair, "x": vector, "w": vector, "bias": mlaot.f32}
    declared: Declaration = mlaot.model(model)
    return declared


def worked_example() -> tuple[Trace, dict[str, int]]:
    """The example of the page on autodiff graphs, ``sum(ReLU(X * W + b))``, and the names of its nodes."""
    trace, ids = Trace(), {}
    ids["X"] = trace.input(np.array([[1.0, 2.0], [3.0, -4.0]]))
    ids["W"] = trace.param(np.array([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]]))
    ids["b"] = trace.param(np.array([[0.25, -0.5, 1.0], [-0.125, 2.0, 0.5]]))
    trace.input(np.zeros(3))  # nothing needs it
    ids["Z"] = trace.apply("contract", ids["X"], ids["W"], spec="ab,bc->ac")
    ids["U"] = trace.apply("add", ids["Z"], ids["b"])
    ids["A"] = trace.apply("relu", ids["U"])
    ids["y"] = trace.apply("sum", ids["A"], axes=(0, 1))
    return trace, ids


def traced() -> Declaration:
    """The worked example, to be trained."""
    trace, ids = worked_example()
    return trace.declare(ids["y"])
