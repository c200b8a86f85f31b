"""Recurrent layers.

A layer multiplies the inputs of all steps by the weights at once, and computes the rest step by step in a ``scan``. The
rows of a weight are those of the gates in PyTorch's order: input, forget, cell and output of an LSTM, or reset, update
and new of a GRU.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.numpy import sigmoid
from mlaot.frontend.trace.control import scan
from mlaot.nn import functional as F
from mlaot.nn import init
from mlaot.nn.arguments import Array, check_choice
from mlaot.nn.module import Layer, Parameter

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell"]

State = tuple[Array, ...]
Step = Callable[[Array, Array, State], State]  # of gates from the input, gates from the state, and the state

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"tanh": np.tanh, "relu": F.relu}


def rnn_step(nonlinearity: str) -> Step:
    """Return the step function ``h' = f(x w_ih + h w_hh)``."""
    check_choice(nonlinearity, tuple(ACTIVATIONS), "RNN: nonlinearity")
    return lambda of_input, of_state, state: (ACTIVATIONS[nonlinearity](of_input + of_state),)


def lstm_step(of_input: Array, of_state: Array, state: State) -> State:
    """Compute ``c' = sigmoid(f) * c + sigmoid(i) * tanh(g)`` and ``h' = sigmoid(o) * tanh(c')``."""
    i, f, g, o = _gates(of_input + of_state, 4)
    cell = sigmoid(f) * state[1] + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(cell), cell


def gru_step(of_input: Array, of_state: Array, state: State) -> State:
    """Compute ``h' = (1 - z) * n + z * h``, with ``z = sigmoid(..)`` and ``n = tanh(x w_n + r * (h w_hn))``."""
    (ir, iz, new), (hr, hz, hn) = _gates(of_input, 3), _gates(of_state, 3)
    update = sigmoid(iz + hz)
    candidate = np.tanh(new + sigmoid(ir + hr) * hn)
    return ((1.0 - update) * candidate + update * state[0],)


def _gates(x: Array, count: int) -> list[Array]:
    size = x.shape[-1] // count
    return [x[..., i * size : (i + 1) * size] for i in range(count)]


class _Cell(Layer):
    """One step. The state is one array, which is also the output."""

    gates = 1
    step: Step

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, *, dtype: Any = None, rng: init.Random = None
    ) -> None:
        self.hidden_size = hidden_size
        source, bound, rows = init.generator(rng), 1.0 / math.sqrt(hidden_size), self.gates * hidden_size

        def uniform(*shape: int) -> Parameter:
            return Parameter(init.uniform_(shape, -bound, bound, source, dtype))

        self.weight_ih, self.weight_hh = uniform(rows, input_size), uniform(rows, hidden_size)
        self.bias_ih = uniform(rows) if bias else None
        self.bias_hh = uniform(rows) if bias else None

    def forward(self, input: Array, hx: Array | None = None) -> Array:
        return self._next(input, None if hx is None else (hx,))[0]

    def _next(self, input: Array, state: State | None) -> State:
        of_input = F.linear(input, self.weight_ih, self.bias_ih)
        before = (np.zeros_like(of_input[..., : self.hidden_size]),) * 2 if state is None else state
        return self.step(of_input, F.linear(before[0], self.weight_hh, self.bias_hh), before)


class RNNCell(_Cell):
    """One step of an ``RNN``, from an input [(n,) i] and a state [(n,) h] to the next state [(n,) h]."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        *,
        dtype: Any = None,
        rng: init.Random = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, dtype=dtype, rng=rng)
        self.step = rnn_step(nonlinearity)


class GRUCell(_Cell, gates=3):
    """One step of a ``GRU``, from an input [(n,) i] and a state [(n,) h] to the next state [(n,) h]."""

    step = staticmethod(gru_step)


class LSTMCell(_Cell, gates=4):
    """One step of an ``LSTM``, from an input [(n,) i] and a state (h [(n,) h], c [(n,) h]) to the next state."""

    step = staticmethod(lstm_step)

    def forward(self, input: Array, hx: tuple[Array, Array] | None = None) -> tuple[Array, Array]:
        output, cell = self._next(input, hx)
        return output, cell


class _Recurrent(Layer):
    """Recurrent layers over all steps, in one or both directions. The state is one array."""

    gates = 1
    parts = 1  # arrays in the state
    step: Step

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        *,
        dtype: Any = None,
        rng: init.Random = None,
    ) -> None:
        self.input_size, self.hidden_size, self.proj_size = input_size, hidden_size, proj_size
        self.num_layers, self.batch_first, self.dropout = num_layers, batch_first, dropout
        self.directions = ("", "_reverse") if bidirectional else ("",)
        source, bound = init.generator(rng), 1.0 / math.sqrt(hidden_size)
        for name, shape in self._shapes(bias).items():
            setattr(self, name, Parameter(init.uniform_(shape, -bound, bound, source, dtype)))

    def forward(self, input: Array, hx: Array | None = None) -> tuple[Array, Array]:
        output, (state,) = self._run(input, None if hx is None else (hx,))
        return output, state

    def _shapes(self, bias: bool) -> dict[str, tuple[int, ...]]:
        rows, output = self.gates * self.hidden_size, self.proj_size or self.hidden_size
        shapes: dict[str, tuple[int, ...]] = {}
        for layer in range(self.num_layers):
            inputs = self.input_size if layer == 0 else output * len(self.directions)
            for direction in self.directions:
                suffix = f"l{layer}{direction}"
                shapes |= {f"weight_ih_{suffix}": (rows, inputs), f"weight_hh_{suffix}": (rows, output)}
                if bias:
                    shapes |= {f"bias_ih_{suffix}": (rows,), f"bias_hh_{suffix}": (rows,)}
                if self.proj_size:
                    shapes[f"weight_hr_{suffix}"] = (self.proj_size, self.hidden_size)
        return shapes

    def _run(self, input: Array, initial: State | None) -> tuple[Array, State]:
        """Return the last layer's outputs for all steps, and the stacked last states of all layers and directions."""
        if input.ndim not in (2, 3) or input.shape[-1] != self.input_size:
            raise MlaotError(
                f"{type(self).__name__}: expected an input of two or three axes, the last {self.input_size}, "
                f"got {list(input.shape)}"
            )
        swapped = self.batch_first and input.ndim == 3
        x = np.swapaxes(input, 0, 1) if swapped else input
        last: list[State] = []
        for layer in range(self.num_layers):
            outputs = []
            for direction in self.directions:
                start = None if initial is None else tuple(part[len(last)] for part in initial)
                state, output = self._scan(x, f"l{layer}{direction}", start, direction == "_reverse")
                last.append(state)
                outputs.append(output)
            x = outputs[0] if len(outputs) == 1 else np.concatenate(outputs, axis=-1)
            if layer < self.num_layers - 1:
                x = F.dropout(x, self.dropout, self.training)
        states = tuple(np.stack(list(part), axis=0) for part in zip(*last, strict=True))
        return np.swapaxes(x, 0, 1) if swapped else x, states

    def _scan(self, x: Array, suffix: str, initial: State | None, reverse: bool) -> tuple[State, Array]:
        """Run one layer in one direction over all steps."""
        held = {kind: getattr(self, f"{kind}_{suffix}", None) for kind in ("bias_ih", "bias_hh", "weight_hr")}
        weight_hh, weight_hr = getattr(self, f"weight_hh_{suffix}"), held["weight_hr"]
        of_inputs = F.linear(x, getattr(self, f"weight_ih_{suffix}"), held["bias_ih"])
        if initial is None:
            sizes = (self.proj_size or self.hidden_size, self.hidden_size)
            initial = tuple(np.zeros_like(of_inputs[0][..., :size]) for size in sizes[: self.parts])

        def step(state: State, of_input: Array) -> tuple[State, Array]:
            state = self.step(of_input, F.linear(state[0], weight_hh, held["bias_hh"]), state)
            if weight_hr is not None:
                state = (F.linear(state[0], weight_hr), *state[1:])
            return state, state[0]

        states: tuple[State, Array] = scan(step, initial, of_inputs, reverse=reverse)
        return states


class RNN(_Recurrent):
    """Elman network (1990) over inputs [t, (n,) i], with an initial state [layers * directions, (n,) h].

    A call returns the outputs [t, (n,) directions * h] of the last layer, and the last state of each layer and
    direction. With ``batch_first`` inputs and outputs are [n, t, ..].
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        dtype: Any = None,
        rng: init.Random = None,
    ) -> None:
        options = (num_layers, bias, batch_first, dropout, bidirectional)
        super().__init__(input_size, hidden_size, *options, dtype=dtype, rng=rng)
        self.step = rnn_step(nonlinearity)


class GRU(_Recurrent, gates=3):
    """Gated recurrent unit (Cho et al., 2014) over inputs [t, (n,) i], with a state [layers * directions, (n,) h].

    A call returns the outputs [t, (n,) directions * h] of the last layer, and the last state of each layer and
    direction. With ``batch_first`` inputs and outputs are [n, t, ..].
    """

    step = staticmethod(gru_step)

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        dtype: Any = None,
        rng: init.Random = None,
    ) -> None:
        options = (num_layers, bias, batch_first, dropout, bidirectional)
        super().__init__(input_size, hidden_size, *options, dtype=dtype, rng=rng)


class LSTM(_Recurrent, gates=4, parts=2):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997) over inputs [t, (n,) i], with a state (h, c).

    Both are [layers * directions, (n,) h]. A call returns the outputs [t, (n,) directions * h] of the last layer, and
    the last (h, c). With ``batch_first`` inputs and outputs are [n, t, ..]. If ``proj_size`` is above 0, h is projected
    to that size.
    """

    step = staticmethod(lstm_step)

    def forward(self, input: Array, hx: tuple[Array, Array] | None = None) -> tuple[Array, tuple[Array, Array]]:
        output, (state, cell) = self._run(input, hx)
        return output, (state, cell)
