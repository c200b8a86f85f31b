"""xor: two inputs, four hidden neurons, one output. Runs at build time only."""

import random

from mlaot.micrograd import MLP, Value, declare

random.seed(1337)
net = MLP(2, [4, 1])
x = [Value(0.0), Value(0.0)]
y = Value(0.0)
out = net(x)
loss = (out - y) ** 2

xor = declare(out, inputs={"x": x, "y": y}, parameters=net, loss=loss)
