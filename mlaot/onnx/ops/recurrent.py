"""RNN, GRU and LSTM, in every direction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend import numpy as F
from mlaot.nn.functional import activations as A
from mlaot.onnx.importer import Use
from mlaot.onnx.registry import operator
from mlaot.onnx.values import known

Activation = Callable[[Any], Any]


def _activation(name: str, alpha: float | None, beta: float | None) -> Activation:
    def value(given: float | None, default: float) -> float:
        return default if given is None else given

    table: dict[str, Activation] = {
        "sigmoid": F.sigmoid,
        "tanh": np.tanh,
        "relu": F.relu,
        "affine": lambda x: value(alpha, 1.0) * x + value(beta, 0.0),
        "leakyrelu": lambda x: A.leaky_relu(x, value(alpha, 0.01)),
        "thresholdedrelu": lambda x: np.where(x > value(alpha, 1.0), x, 0.0),
        "scaledtanh": lambda x: value(alpha, 1.0) * np.tanh(value(beta, 1.0) * x),
        "hardsigmoid": lambda x: np.clip(value(alpha, 0.2) * x + value(beta, 0.5), 0, 1),
        "elu": lambda x: A.elu(x, value(alpha, 1.0)),
        "softsign": A.softsign,
        "softplus": F.softplus,
    }
    found = table.get(name.lower())
    if found is None:
        raise MlaotError(f"there is no activation {name!r}; there are {', '.join(table)}")
    return found


def _activations(use: Use, default: list[str], directions: int) -> list[list[Activation]]:
    names = [n.decode() for n in use.attribute("activations", [])] or default * directions
    alphas, betas = list(use.attribute("activation_alpha", [])), list(use.attribute("activation_beta", []))
    takes_alpha = {"affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu"}
    takes_beta = {"affine", "scaledtanh", "hardsigmoid"}
    found = []
    for name in names:
        alpha = alphas.pop(0) if alphas and name.lower() in takes_alpha else None
        beta = betas.pop(0) if betas and name.lower() in takes_beta else None
        found.append(_activation(name, alpha, beta))
    count = len(default)
    if len(found) != count * directions:
        raise MlaotError(f"expected {count * directions} activations, got {len(found)}")
    return [found[i * count : (i + 1) * count] for i in range(directions)]


Step = Callable[[Any, tuple[Any, ...]], tuple[Any, ...]]
Products = Callable[[Any, int], Callable[[Any], Any]]  # of weights in a direction: what multiplies by them


def _run(use: Use, x: Any, lengths: Any, step: Step, of_input: Any, start: tuple[Any, ...], backwards: bool) -> Any:
    """All steps of one direction: the outputs [time, batch, hidden] and the last state."""
    steps = of_input.shape[0]
    inputs = np.flip(of_input, 0) if backwards else of_input
    whole = known(lengths)
    if whole is not None and isinstance(steps, int) and (whole >= steps).all():
        lengths = None

    def body(state: Any, given: Any) -> Any:
        gates, at = given if lengths is not None else (given, None)
        new = step(gates, state)
        if lengths is None:
            return new, new[0]
        alive = np.reshape(at < lengths, (-1, 1))
        kept = tuple(np.where(alive, n, o) for n, o in zip(new, state, strict=True))
        return kept, np.where(alive, new[0], 0.0)

    if lengths is not None:
        times = F.arange(steps, dtype=np.dtype(lengths.dtype))
        last, outputs = F.scan(body, start, (inputs, np.flip(times, 0) if backwards else times))
    elif isinstance(steps, int) and steps == 1:
        last, out = body(start, inputs[0])
        outputs = np.expand_dims(out, 0)
    else:
        last, outputs = F.scan(body, start, inputs)
    return (np.flip(outputs, 0) if backwards else outputs), last


def products(weights: Any, i: int) -> Callable[[Any], Any]:
    """What multiplies by the weights of direction ``i``."""
    turned = np.transpose(weights[i])
    return lambda x: np.matmul(x, turned)


def _directions(use: Use, weights: Any) -> list[bool]:
    """Whether each direction runs backwards."""
    name = use.string("direction", "forward").lower()
    found = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}.get(name)
    if found is None or weights.shape[0] != len(found):
        raise MlaotError(f"direction {name!r} does not fit weights of {weights.shape[0]} directions")
    return found


def _clipped(use: Use, x: Any) -> Any:
    """What an activation of a gate takes; that of an LSTM's cell is not clipped, as in other runtimes."""
    bound = use.attribute("clip")
    return x if bound is None else np.minimum(np.maximum(x, -bound), bound)


def _filled(inputs: Sequence[Any]) -> list[Any]:
    """Eight inputs, some of which may be left out."""
    return [*inputs, *[None] * (8 - len(inputs))]


def _recurrent(
    use: Use,
    inputs: Sequence[Any],
    gates: int,
    default: list[str],
    make: Callable[[int, list[Activation], Any, Any, int], Step],
    states: int,
    joined: bool,
    products: Products = products,
) -> Any:
    """What the three share. ``joined``: the recurrent bias is added to that of the input at once."""
    x, w, r, bias, lengths, *begin = _filled(inputs)
    layout = use.attribute("layout", 0)
    x = np.swapaxes(x, 0, 1) if layout else x
    hidden = use.attribute("hidden_size", r.shape[-1])
    batch, kind = x.shape[1], x.dtype
    turns = _directions(use, w)
    functions = _activations(use, default, len(turns))
    outputs, finals = [], []
    for i, backwards in enumerate(turns):
        of_bias = None if bias is None else bias[i]
        of_input = products(w, i)(x)
        behind = None
        if of_bias is not None:
            ahead, behind = of_bias[: gates * hidden], of_bias[gates * hidden :]
            of_input = of_input + (ahead + behind if joined else ahead)
        start = []
        for state in begin[:states]:
            if state is None:
                start.append(F.zeros((batch, hidden), dtype=kind))
            else:
                start.append(state[:, i] if layout else state[i])
                use.settle(batch, start[-1].shape[0], "the batch, of which a state is given,")
        step = make(i, functions[i], r[i], None if joined else behind, hidden)
        y, last = _run(use, x, lengths, step, of_input, tuple(start), backwards)
        outputs.append(y)
        finals.append(last)
    y = np.stack(outputs, axis=1)  # [time, direction, batch, hidden]
    ends = [np.stack([last[k] for last in finals], axis=1 if layout else 0) for k in range(states)]
    return (np.transpose(y, (2, 0, 1, 3)) if layout else y, *ends)


@operator("RNN")
def rnn(use: Use, *inputs: Any) -> Any:
    def make(i: int, functions: list[Activation], r: Any, bias: Any, hidden: int) -> Step:
        def step(gates: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
            return (functions[0](_clipped(use, gates + np.matmul(state[0], np.transpose(r)))),)

        return step

    return _recurrent(use, inputs, 1, ["Tanh"], make, 1, True)


@operator("GRU")
def gru(use: Use, *inputs: Any) -> Any:
    before = use.attribute("linear_before_reset", 0)

    def make(i: int, functions: list[Activation], r: Any, bias: Any, hidden: int) -> Step:
        f, g = functions
        low = np.transpose(r[: 2 * hidden])
        own = np.transpose(r[2 * hidden :])

        def step(gates: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
            (h,) = state
            both = gates[:, : 2 * hidden] + np.matmul(h, low)
            if bias is not None:
                both = both + bias[: 2 * hidden]
            both = f(_clipped(use, both))
            update, reset = both[:, :hidden], both[:, hidden:]
            if before:
                through = np.matmul(h, own)
                through = reset * (through if bias is None else through + bias[2 * hidden :])
            else:
                through = np.matmul(reset * h, own)
                through = through if bias is None else through + bias[2 * hidden :]
            new = g(_clipped(use, gates[:, 2 * hidden :] + through))
            return ((1.0 - update) * new + update * h,)

        return step

    return _recurrent(use, inputs, 3, ["Sigmoid", "Tanh"], make, 1, False)


@operator("LSTM")
def lstm(use: Use, *inputs: Any) -> Any:
    return lstm_by(products, use, inputs)


def lstm_by(products: Products, use: Use, inputs: Sequence[Any]) -> Any:
    """An LSTM whose weights are multiplied by ``products``."""
    x, w, r, bias, lengths, h, c, peepholes = _filled(inputs)
    forget = use.attribute("input_forget", 0)

    def make(i: int, functions: list[Activation], r: Any, bias: Any, hidden: int) -> Step:
        f, g, out = functions
        again = products(inputs[2], i)

        def peep(z: Any, k: int, cell: Any) -> Any:
            return z if peepholes is None else z + peepholes[i, k * hidden : (k + 1) * hidden] * cell

        def step(gates: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
            h, c = state
            z = gates + again(h)
            zi, zo, zf, zc = (z[:, k * hidden : (k + 1) * hidden] for k in range(4))
            into = f(_clipped(use, peep(zi, 0, c)))
            keep = 1.0 - into if forget else f(_clipped(use, peep(zf, 2, c)))
            cell = keep * c + into * g(_clipped(use, zc))
            return f(_clipped(use, peep(zo, 1, cell))) * out(cell), cell

        return step

    return _recurrent(use, (x, w, r, bias, lengths, h, c), 4, ["Sigmoid", "Tanh", "Tanh"], make, 2, True, products)
