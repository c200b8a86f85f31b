"""micrograd's demo (demo.ipynb of https://github.com/karpathy/micrograd): 337 parameters, a max-margin loss.

The demo's loss is the mean of the margins over the batch plus a penalty on the weights. Here it is written for one
point: mlaot takes the mean over the batch, and the mean of the penalty is the penalty.
"""

import random

from mlaot.micrograd import MLP, Value, declare

ALPHA = 1e-4

random.seed(1337)
net = MLP(2, [16, 16, 1])
x = [Value(0.0), Value(0.0)]
y = Value(0.0)  # -1 or 1
score = net(x)
margin = (1 + -y * score).relu()
penalty = ALPHA * sum(p * p for p in net.parameters())
loss = margin + penalty

moons = declare(score, inputs={"x": x, "y": y}, parameters=net, loss=loss)
