"""The perceptrons: reprs and parameters as micrograd's, its moons demo, xor in place."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from mlaot.micrograd import MLP, Layer, Module, Neuron, Value


def test_row_8_module() -> None:
    """``parameters`` of a bare module is empty; ``zero_grad`` clears those of a model."""
    assert Module().parameters() == []
    neuron = Neuron(2)
    for p in neuron.parameters():
        p.grad = 5
    neuron.zero_grad()
    assert [p.grad for p in neuron.parameters()] == [0, 0, 0]


def test_row_9_neuron() -> None:
    """Weights uniform(-1, 1) by ``random``, in order; bias 0; both kinds of neuron; repr."""
    random.seed(1337)
    expected = [random.uniform(-1, 1) for _ in range(3)]
    random.seed(1337)
    neuron = Neuron(3)
    assert [w.data for w in neuron.w] == expected
    assert (neuron.b.data, neuron.nonlin, neuron.parameters()) == (0, True, [*neuron.w, neuron.b])
    assert repr(neuron) == "ReLUNeuron(3)"
    linear = Neuron(3, nonlin=False)
    assert repr(linear) == "LinearNeuron(3)"
    x: list[Value | float] = [1.0, Value(-2.0), 3]
    act = linear.b.data + linear.w[0].data * 1.0
    act = act + linear.w[1].data * -2.0
    act = act + linear.w[2].data * 3
    assert linear(x).data == act
    linear.nonlin = True
    assert linear(x).data == max(act, 0)


def test_row_9_a_wrong_number_of_inputs_is_an_error() -> None:
    """micrograd drops the weights or inputs that are left over."""
    with pytest.raises(ValueError, match="shorter"):
        Neuron(3)([1.0, 2.0])
    with pytest.raises(ValueError, match="longer"):
        Neuron(1)([1.0, 2.0])


def test_row_10_layer() -> None:
    """A list of neurons; a single output comes unwrapped."""
    layer = Layer(2, 3, nonlin=False)
    out = layer([1.0, 2.0])
    assert isinstance(out, list)
    assert len(out) == 3
    assert len(layer.parameters()) == 9
    assert repr(layer) == "Layer of [LinearNeuron(2), LinearNeuron(2), LinearNeuron(2)]"
    assert isinstance(Layer(2, 1)([1.0, 2.0]), Value)


def test_row_11_mlp() -> None:
    """The last layer is linear; nested repr; parameters in order; a layer of one neuron may stand inside."""
    model = MLP(2, [2, 1])
    assert repr(model) == "MLP of [Layer of [ReLUNeuron(2), ReLUNeuron(2)], Layer of [LinearNeuron(2)]]"
    assert model.parameters() == [p for layer in model.layers for n in layer.neurons for p in [*n.w, n.b]]
    assert isinstance(model([1.0, 2.0]), Value)
    wide = MLP(2, [1, 3])([1.0, 2.0])
    assert isinstance(wide, list)
    assert len(wide) == 3


def test_row_11_starts_from_micrograds_weights() -> None:
    """The same seed gives the same model, outputs and repr as the micrograd package."""
    nn = pytest.importorskip("micrograd.nn")
    random.seed(7)
    ours = MLP(3, [4, 2])
    random.seed(7)
    theirs = nn.MLP(3, [4, 2])
    assert [p.data for p in ours.parameters()] == [p.data for p in theirs.parameters()]
    assert [y.data for y in values(ours([1.0, -2.0, 0.5]))] == [y.data for y in theirs([1.0, -2.0, 0.5])]
    assert repr(ours) == repr(theirs)


def test_row_43_inplace_forward_mlp() -> None:
    """The fork's ``test_inplace_forward_mlp``."""
    model = MLP(2, [16, 1])
    expected = model([Value(3), Value(4)])
    x, y = Value(0), Value(0)
    actual = model([x, y])
    assert isinstance(actual, Value)
    assert isinstance(expected, Value)
    x.data, y.data = 3, 4
    actual.forward()
    assert actual.data == expected.data


def test_row_14_moons_demo() -> None:
    """The notebook's demo: 337 parameters, first loss to the last digit, ten steps, decision regions.

    100 steps end at loss 0.010978370135492717 and 100 % accuracy.
    """
    np.random.seed(1337)
    random.seed(1337)
    X, y = make_moons(100, noise=0.1)
    y = y * 2 - 1
    model = MLP(2, [16, 16, 1])
    assert len(model.parameters()) == 337

    def loss() -> tuple[Value, float]:
        inputs = [list(map(Value, row)) for row in X]
        scores: list[Any] = list(map(model, inputs))
        losses = [(1 + -yi * score).relu() for yi, score in zip(y, scores, strict=True)]
        data_loss = sum(losses) * (1.0 / len(losses))
        alpha = 1e-4
        reg_loss = alpha * sum(p * p for p in model.parameters())
        accuracy = [(yi > 0) == (score.data > 0) for yi, score in zip(y, scores, strict=True)]
        return data_loss + reg_loss, sum(accuracy) / len(accuracy)

    seen = []
    for k in range(10):
        total_loss, accuracy = loss()
        seen.append((total_loss.data, accuracy))
        model.zero_grad()
        total_loss.backward()
        learning_rate = 1.0 - 0.9 * k / 100
        for p in model.parameters():
            p.data -= learning_rate * p.grad
    assert seen[0] == (0.8958441028683222, 0.5)
    assert [accuracy for _, accuracy in seen[1:]][::8] == [0.81, 0.91]
    assert seen[1][0] == pytest.approx(1.723590533697202, rel=1e-12)
    assert seen[9][0] == pytest.approx(0.2704862551637922, rel=1e-9)

    mesh = np.mgrid[-2:3:0.5, -1.5:2:0.5].reshape(2, -1).T
    scores: list[Any] = [model(list(map(Value, row))) for row in mesh]
    positive = np.array([score.data > 0 for score in scores]).reshape(10, 7)
    assert positive[:4, 5:].sum() == 0  # above left lies the outer moon
    assert positive[6:, :2].all()  # below right the inner one


def test_row_39_47_xor_in_place() -> None:
    """The fork's float xor: one graph, its order kept, reaches an error below 0.1 within 1000 epochs."""
    random.seed(1337)
    model = MLP(2, [5, 1])
    parameters = set(model.parameters())
    batch = [((0, 0), 0), ((0, 1), 1), ((1, 0), 1), ((1, 1), 0)]
    outputs: list[Any] = [model(x) for x, _ in batch]
    losses = [(expected - out) ** 2 for (_, expected), out in zip(batch, outputs, strict=True)]
    loss: Value = sum(losses[1:], losses[0]) * (1.0 / len(losses))
    order = loss.topo()
    reverse_order = order[::-1]
    first = loss.data
    for _ in range(1000):
        for node in order:
            node._forward()
            node.grad = 0
        loss.backward(reverse_order)
        for p in parameters:
            p.data -= 0.1 * p.grad / len(batch)
    loss.forward()
    assert loss.data < 0.01 < first
    for out, (_, expected) in zip(outputs, batch, strict=True):
        assert abs(out.data - expected) < 0.1


def values(out: Value | list[Value]) -> list[Value]:
    """A model's output as a list."""
    return [out] if isinstance(out, Value) else out


def make_moons(samples: int, noise: float) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Two interleaving half circles, drawn from NumPy's global state in the order in which scikit-learn draws them."""
    outer = np.linspace(0, np.pi, samples // 2)
    inner = np.linspace(0, np.pi, samples - samples // 2)
    x = np.append(np.cos(outer), 1 - np.cos(inner))
    y = np.append(np.sin(outer), 1 - np.sin(inner) - 0.5)
    labels = np.append(np.zeros(outer.size, int), np.ones(inner.size, int))
    order = np.arange(samples)
    np.random.shuffle(order)
    points = np.stack([x, y], axis=1)[order]
    return points + np.random.normal(scale=noise, size=points.shape), labels[order]
