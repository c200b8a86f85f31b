"""Declare xor twice: with trained weights, and with random ones that learn. Runs at build time only."""

import random

import numpy as np

import mlaot
from mlaot.micrograd import MLP, Value, declare


@mlaot.model
def fixed(x: mlaot.f32[2]):
    """Exactly 0 or 1: the hidden neurons are a + b, and what of that is above 1."""
    hidden = np.maximum(x @ np.ones((2, 2), np.float32) - np.float32([0, 1]), 0)
    return hidden @ np.float32([1, -2])


random.seed(1337)
net = MLP(2, [4, 1])
x = [Value(0.0), Value(0.0)]
y = Value(0.0)
out = net(x)
learning = declare(out, inputs={"x": x, "y": y}, parameters=net, loss=(out - y) ** 2)
