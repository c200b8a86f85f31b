"""A network of 64-32-10 neurons, written with micrograd's scalars, compiled to a few matrix products.

The module takes pixels as bytes and the digit as an integer.
"""

import random

from mlaot.micrograd import MLP, Bytes, Label, Value, cross_entropy, declare

random.seed(1337)
net = MLP(64, [32, 10])
x = [Value(0.0) for _ in range(64)]
label = [Value(0.0) for _ in range(10)]
scores = net(x)
loss = cross_entropy(scores, label)

digits = declare(
    scores,
    inputs={"x": Bytes(x, scale=16), "label": Label(label)},
    parameters=net,
    loss=loss,
    dtype="float32",
)
