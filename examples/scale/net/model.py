"""A network for digits of 8x8 pixels, to train and to serve, and a larger one that shows how training scales."""

import itertools

import numpy as np

import mlaot
from mlaot import nn, optim
from mlaot.nn import functional as F


def perceptron(*sizes):
    rng = np.random.default_rng(1)
    layers = [nn.Linear(inner, outer, rng=rng) for inner, outer in itertools.pairwise(sizes)]
    return nn.Sequential(*[part for layer in layers[:-1] for part in (layer, nn.ReLU())], layers[-1])


small = perceptron(64, 128, 10)
large = perceptron(784, 512, 512, 10)


def loss(scores, label: mlaot.i64):
    return F.cross_entropy(scores, label)


@mlaot.model(loss=loss, optimizer=optim.Adam(lr=0.001), parameters=small)
def digits(x: mlaot.u8[64]):
    return small(x.astype("float32") / 16.0)


@mlaot.model(parameters=small)
def served(x: mlaot.u8[64]):
    """Probabilities of the ten digits; it loads what ``digits`` saves."""
    return F.softmax(small(x.astype("float32") / 16.0), -1)


@mlaot.model(loss=loss, optimizer=optim.Adam(lr=0.001), parameters=large)
def mlp(x: mlaot.f32[784]):
    return large(x)
