"""LeNet-5 (LeCun et al., 1998) with max pooling and ReLU; pixels come as bytes, the digit as an integer.

The model is declared on one image, and the module takes any number of them. Since no image depends on another, mlaot
trains on 16 at a time, side by side in the lanes of vectors.
"""

import numpy as np

import mlaot
from mlaot import nn, optim
from mlaot.nn import functional as F


class LeNet(nn.Module):
    def __init__(self, rng):
        self.conv1 = nn.Conv2d(1, 6, 5, rng=rng)
        self.conv2 = nn.Conv2d(6, 16, 5, rng=rng)
        self.fc1 = nn.Linear(16 * 4 * 4, 120, rng=rng)
        self.fc2 = nn.Linear(120, 84, rng=rng)
        self.fc3 = nn.Linear(84, 10, rng=rng)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)  # [6, 12, 12]
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)  # [16, 4, 4]
        x = F.relu(self.fc1(F.flatten(x, -3)))
        return self.fc3(F.relu(self.fc2(x)))


net = LeNet(np.random.default_rng(1998))
sgd = optim.SGD(lr=0.05, momentum=0.9, schedule=optim.polynomial_lr(5 * 938))  # in a line to 0: 5 epochs


def loss(scores, label: mlaot.i64):
    return F.cross_entropy(scores, label)


@mlaot.model(loss=loss, optimizer=sgd, parameters=net)
def lenet(x: mlaot.u8[1, 28, 28]):
    return net(x.astype("float32") / 255.0)


@lenet.entry
def evaluate(x: mlaot.u8[1, 28, 28], label: mlaot.i64):
    """Whether the digit has the highest score, and the loss."""
    scores = lenet(x)
    return {"right": scores.argmax() == label, "loss": loss(scores, label)}
