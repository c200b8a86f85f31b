"""Multilayer perceptrons of scalars, with the API of ``micrograd.nn`` (https://github.com/karpathy/micrograd, MIT).

Weights are drawn by ``random.uniform(-1, 1)`` in the order of the model, and biases are 0. So with the same
``random.seed`` a model starts from the same numbers as in micrograd. A neuron adds its products one by one to the bias.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import cast

from mlaot.frontend.scalar.engine import Number, Value

Inputs = Sequence[Value | Number]


class Module:
    """Base class of modules with parameters."""

    def zero_grad(self) -> None:
        """Set the gradient of every parameter to 0."""
        for p in self.parameters():
            p.grad = 0

    def parameters(self) -> list[Value]:
        """Return the trained values in a fixed order."""
        return []


class Neuron(Module):
    """A neuron ``b + w[0] * x[0] + w[1] * x[1] + ..``, followed by a ReLU unless ``nonlin`` is false."""

    def __init__(self, nin: int, nonlin: bool = True) -> None:
        self.w = [Value(random.uniform(-1, 1)) for _ in range(nin)]
        self.b = Value(0)
        self.nonlin = nonlin

    def __call__(self, x: Inputs) -> Value:
        act = sum((wi * xi for wi, xi in zip(self.w, x, strict=True)), self.b)
        return act.relu() if self.nonlin else act

    def parameters(self) -> list[Value]:
        """Return the weights, then the bias."""
        return [*self.w, self.b]

    def __repr__(self) -> str:
        return f"{'ReLU' if self.nonlin else 'Linear'}Neuron({len(self.w)})"


class Layer(Module):
    """``nout`` neurons over the same inputs. A layer of one neuron returns its value, not a list of one."""

    def __init__(self, nin: int, nout: int, *, nonlin: bool = True) -> None:
        self.neurons = [Neuron(nin, nonlin=nonlin) for _ in range(nout)]

    def __call__(self, x: Inputs) -> Value | list[Value]:
        out = [neuron(x) for neuron in self.neurons]
        return out[0] if len(out) == 1 else out

    def parameters(self) -> list[Value]:
        """Those of the neurons, one after the other."""
        return [p for neuron in self.neurons for p in neuron.parameters()]

    def __repr__(self) -> str:
        return f"Layer of [{', '.join(map(str, self.neurons))}]"


class MLP(Module):
    """Layers of ``nouts`` neurons over ``nin`` inputs; all but the last end in a ReLU."""

    def __init__(self, nin: int, nouts: Sequence[int]) -> None:
        sizes = [nin, *nouts]
        self.layers = [Layer(sizes[i], sizes[i + 1], nonlin=i != len(nouts) - 1) for i in range(len(nouts))]

    def __call__(self, x: Inputs) -> Value | list[Value]:
        out: Value | Inputs = x
        for layer in self.layers:
            out = layer([out] if isinstance(out, Value) else out)
        return cast(Value | list[Value], out)

    def parameters(self) -> list[Value]:
        """Those of the layers, one after the other."""
        return [p for layer in self.layers for p in layer.parameters()]

    def __repr__(self) -> str:
        return f"MLP of [{', '.join(map(str, self.layers))}]"
