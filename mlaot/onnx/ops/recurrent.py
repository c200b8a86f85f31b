"""RNN, GRU and LSTM, in every direction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend import numpy as F
from mlaot.nn.functional import activations as A
from mlaot.onnx.importer import Use
from mlaot.onnx.registry import Function, operator, parameters
from mlaot.onnx.values import constant_value

Step = Callable[[Any, tuple[Any, ...]], tuple[Any, ...]]
Products = Callable[[Any, int], Callable[[Any], Any]]  # of weights in a direction: what multiplies by them
ACTIVATIONS: dict[str, Function] = {
    "sigmoid": F.sigmoid,
    "tanh": np.tanh,
    "relu": F.relu,
    "affine": lambda x, *, alpha=1.0, beta=0.0: alpha * x + beta,
    "leakyrelu": lambda x, *, alpha=0.01: A.leaky_relu(x, alpha),
    "thresholdedrelu": lambda x, *, alpha=1.0: np.where(x > alpha, x, 0.0),
    "scaledtanh": lambda x, *, alpha=1.0, beta=1.0: alpha * np.tanh(beta * x),
    "hardsigmoid": lambda x, *, alpha=0.2, beta=0.5: np.clip(alpha * x + beta, 0, 1),
    "elu": lambda x, *, alpha=1.0: A.elu(x, alpha),
    "softsign": A.softsign,
    "softplus": F.softplus,
}


def _activations(use: Use, default: list[str], directions: int) -> list[list[Function]]:
    """Return the activations of each direction, with their parameters."""
    numbers = {key: list(use.attribute(f"activation_{key}", [])) for key in ("alpha", "beta")}
    functions: list[Function] = []
    for name in use.attribute("activations") or default * directions:
        function = ACTIVATIONS.get(name.lower())
        if function is None:
            raise MlaotError(f"unknown activation {name!r}; known are {', '.join(ACTIVATIONS)}")
        options = {key: numbers[key].pop(0) for key in parameters(function)[1] if numbers[key]}
        functions.append(partial(function, **options))
    count = len(default)
    if len(functions) != count * directions:
        raise MlaotError(f"expected {count * directions} activations, got {len(functions)}")
    return [functions[i * count : (i + 1) * count] for i in range(directions)]


def _run(lengths: Any, step: Step, of_input: Any, start: tuple[Any, ...], backwards: bool) -> tuple[Any, Any]:
    """Run all steps of one direction; return the outputs [time, batch, hidden] and the last state."""
    steps = of_input.shape[0]
    inputs = np.flip(of_input, 0) if backwards else of_input
    numbers = constant_value(lengths)
    if numbers is not None and isinstance(steps, int) and (numbers >= steps).all():
        lengths = None

    def body(state: Any, item: Any) -> Any:
        gates, at = item if lengths is not None else (item, None)
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
    """Return the function that multiplies by the weights of direction ``i``."""
    turned = np.transpose(weights[i])
    return lambda x: np.matmul(x, turned)


def _directions(use: Use, weights: Any) -> list[bool]:
    """Tell whether each direction runs backwards."""
    name = use.attribute("direction", "forward").lower()
    backwards = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}.get(name)
    if backwards is None or weights.shape[0] != len(backwards):
        raise MlaotError(f"direction {name!r} does not fit weights of {weights.shape[0]} directions")
    return backwards


def _clip(use: Use, x: Any) -> Any:
    """Clip the input of a gate's activation. As in other runtimes, an LSTM's cell is not clipped."""
    bound = use.attribute("clip")
    return x if bound is None else np.minimum(np.maximum(x, -bound), bound)


def _fill(inputs: Sequence[Any]) -> list[Any]:
    """Return eight inputs, with None for those that are left out."""
    return [*inputs, *[None] * (8 - len(inputs))]


def _recurrent(
    use: Use,
    inputs: Sequence[Any],
    gates: int,
    default: list[str],
    make: Callable[[int, list[Function], Any, Any, int], Step],
    states: int,
    joined: bool,
    products: Products = products,
) -> Any:
    """Compute what RNN, GRU and LSTM share. With ``joined``, the recurrent bias is added to that of the input."""
    x, w, r, bias, lengths, *begin = _fill(inputs)
    layout = use.attribute("layout", 0)
    x = np.swapaxes(x, 0, 1) if layout else x
    hidden = use.attribute("hidden_size", r.shape[-1])
    batch, kind = x.shape[1], x.dtype
    directions = _directions(use, w)
    functions = _activations(use, default, len(directions))
    outputs, finals = [], []
    for i, backwards in enumerate(directions):
        both = None if bias is None else bias[i]
        of_input, behind = products(w, i)(x), None
        if both is not None:
            ahead, behind = both[: gates * hidden], both[gates * hidden :]
            of_input = of_input + (ahead + behind if joined else ahead)
        start = []
        for state in begin[:states]:
            if state is None:
                start.append(F.zeros((batch, hidden), dtype=kind))
            else:
                start.append(state[:, i] if layout else state[i])
                use.settle(batch, start[-1].shape[0], "the batch, of which a state is given,")
        step = make(i, functions[i], r[i], None if joined else behind, hidden)
        y, last = _run(lengths, step, of_input, tuple(start), backwards)
        outputs.append(y)
        finals.append(last)
    y = np.stack(outputs, axis=1)  # [time, direction, batch, hidden]
    ends = [np.stack([last[k] for last in finals], axis=1 if layout else 0) for k in range(states)]
    return (np.transpose(y, (2, 0, 1, 3)) if layout else y, *ends)


@operator("RNN")
def rnn(use: Use, *inputs: Any) -> Any:
    def make(i: int, functions: list[Function], r: Any, bias: Any, hidden: int) -> Step:
        def step(gates: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
            return (functions[0](_clip(use, gates + np.matmul(state[0], np.transpose(r)))),)

        return step

    return _recurrent(use, inputs, 1, ["Tanh"], make, 1, True)


@operator("GRU")
def gru(use: Use, *inputs: Any, linear_before_reset: bool = False) -> Any:
    def make(i: int, functions: list[Function], r: Any, bias: Any, hidden: int) -> Step:
        f, g = functions
        low = np.transpose(r[: 2 * hidden])
        own = np.transpose(r[2 * hidden :])

        def step(gates: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
            (h,) = state
            both = gates[:, : 2 * hidden] + np.matmul(h, low)
            if bias is not None:
                both = both + bias[: 2 * hidden]
            both = f(_clip(use, both))
            update, reset = both[:, :hidden], both[:, hidden:]
            if linear_before_reset:
                through = np.matmul(h, own)
                through = reset * (through if bias is None else through + bias[2 * hidden :])
            else:
                through = np.matmul(reset * h, own)
                through = through if bias is None else through + bias[2 * hidden :]
            new = g(_clip(use, gates[:, 2 * hidden :] + through))
            return ((1.0 - update) * new + update * h,)

        return step

    return _recurrent(use, inputs, 3, ["Sigmoid", "Tanh"], make, 1, False)


@operator("LSTM")
def lstm(use: Use, *inputs: Any) -> Any:
    return lstm_by(products, use, inputs)


def lstm_by(products: Products, use: Use, inputs: Sequence[Any]) -> Any:
    """Run an LSTM whose weights are multiplied by ``products``."""
    x, w, r, bias, lengths, h, c, peepholes = _fill(inputs)
    forget = use.attribute("input_forget", 0)

    def make(i: int, functions: list[Function], r: Any, bias: Any, hidden: int) -> Step:
        f, g, out = functions
        again = products(inputs[2], i)

        def peep(z: Any, k: int, cell: Any) -> Any:
            return z if peepholes is None else z + peepholes[i, k * hidden : (k + 1) * hidden] * cell

        def step(gates: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
            h, c = state
            z = gates + again(h)
            zi, zo, zf, zc = (z[:, k * hidden : (k + 1) * hidden] for k in range(4))
            into = f(_clip(use, peep(zi, 0, c)))
            keep = 1.0 - into if forget else f(_clip(use, peep(zf, 2, c)))
            cell = keep * c + into * g(_clip(use, zc))
            return f(_clip(use, peep(zo, 1, cell))) * out(cell), cell

        return step

    return _recurrent(use, (x, w, r, bias, lengths, h, c), 4, ["Sigmoid", "Tanh", "Tanh"], make, 2, True, products)
