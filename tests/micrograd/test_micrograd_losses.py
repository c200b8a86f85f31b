"""Softmax and cross entropy of scalars, against PyTorch's values and the first post's losses."""

from __future__ import annotations

import itertools
import os
import random
from pathlib import Path
from typing import Any

import pytest

from mlaot.micrograd import MLP, Dot, Neuron, Value, cross_entropy, images, stable_softmax


def test_row_32_stable_softmax() -> None:
    """PyTorch's values, with a tie for the largest output."""
    probabilities = stable_softmax([Value(x) for x in (1.0, -2.0, 3.0, 3.0)])
    expected = [0.0631795782358577, 0.003145525981081456, 0.4668374478915305, 0.4668374478915305]
    assert [p.data for p in probabilities] == pytest.approx(expected, rel=1e-14)


def test_row_32_softmax_of_large_outputs_does_not_overflow() -> None:
    """``exp(1000)`` alone would raise."""
    assert [p.data for p in stable_softmax([Value(1000.0), Value(1000.0), Value(-1000.0)])] == [0.5, 0.5, 0.0]


def test_row_32_cross_entropy() -> None:
    """Loss and gradients are PyTorch's."""
    outputs = [Value(x) for x in (1.0, -2.0, 3.0, 3.0)]
    loss = cross_entropy(outputs, [0, 0, 1, 0])
    loss.backward()
    assert loss.data == pytest.approx(0.7615599748423637, rel=1e-14)
    expected = [0.06316604760589406, 0.003144852330682396, -0.5330483692442517, 0.4667374693076753]
    assert [o.grad for o in outputs] == pytest.approx(expected, rel=1e-13)


def test_row_32_eps_bounds_the_loss() -> None:
    """A vanished probability costs -log(0.0001) = 9.2103, the figure of the first post's early losses."""
    loss = cross_entropy([Value(0.0), Value(800.0)], [1, 0])
    assert f"{loss.data:.10f}" == "9.2103403720"


def test_row_32_one_label_per_output() -> None:
    """A one-hot vector of another length is an error."""
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        cross_entropy([Value(0.0), Value(1.0)], [1, 0, 0])


def mnist_losses(neuron: type[Neuron], folder: Path) -> list[float]:
    """Losses of the first five training images in file order: batch 1, learning rate 0.1, one graph kept in place."""
    random.seed(1337)
    model = MLP(784, [50, 10])
    for n in itertools.chain.from_iterable(layer.neurons for layer in model.layers):
        n.__class__ = neuron
    inputs, onehot = ([Value(0, (), "input") for _ in range(n)] for n in (784, 10))
    outputs: Any = model(inputs)
    loss = cross_entropy(outputs, onehot)
    order = loss.topo()
    reverse_order = order[::-1]
    losses = []
    for label, pixels in itertools.islice(images(*train_files(folder)), 5):
        for value, pixel in zip(inputs, pixels, strict=True):
            value.data = pixel / 255
        for i, value in enumerate(onehot):
            value.data = float(i == label)
        for node in order:
            node.grad = 0
        loss.forward()
        loss.backward(reverse_order)
        losses.append(loss.data)
        for p in model.parameters():
            p.data -= 0.1 * p.grad
    return losses


class DotNeuron(Neuron):
    """A neuron that is one ``Dot`` and one ``+``."""

    def __call__(self, x: Any) -> Value:
        act = Dot(self.w, x) + self.b
        return act.relu() if self.nonlin else act


def train_files(folder: Path) -> tuple[Path, Path]:
    """The training images and labels in a folder with the MNIST files, gzipped or not."""
    images_path, labels_path = (next(folder.glob(f"train-{kind}-ubyte*")) for kind in ("images-idx3", "labels-idx1"))
    return images_path, labels_path


@pytest.mark.skipif("MLAOT_MNIST" not in os.environ, reason="MLAOT_MNIST names no folder with the MNIST files")
@pytest.mark.parametrize("neuron", [Neuron, DotNeuron])
def test_row_35_47_first_losses_of_the_first_post(neuron: type[Neuron]) -> None:
    """0.022901, 9.210340, 0.226285, 1.713405, 9.210340; with ``Dot`` too, whose gradient the fork leaves at 0."""
    losses = mnist_losses(neuron, Path(os.environ["MLAOT_MNIST"]))
    assert [f"{loss:.6f}" for loss in losses] == ["0.022901", "9.210340", "0.226285", "1.713405", "9.210340"]
    assert losses[0] == pytest.approx(0.0229010013, abs=1e-10)
