"""The network of "Compiling ML models to C for fun" by Max Bernstein: 784-50-10.

120,000 scalars in the graph, 39,760 of them parameters; pixels come as bytes, the digit as an integer.
"""

import random

from mlaot.micrograd import MLP, Bytes, Label, Value, cross_entropy, declare

random.seed(1337)
net = MLP(784, [50, 10])
x = [Value(0.0) for _ in range(784)]
label = [Value(0.0) for _ in range(10)]
scores = net(x)
loss = cross_entropy(scores, label)

mnist = declare(
    scores,
    inputs={"x": Bytes(x), "label": Label(label)},
    parameters=net,
    loss=loss,
)
