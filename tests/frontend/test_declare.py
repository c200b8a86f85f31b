"""``declare``: models without inputs, outputs by name, and what it refuses, in words that help."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import optim
from mlaot.errors import MlaotError
from mlaot.frontend.scalar.declare import values_of
from mlaot.micrograd import Bytes, Index, Label, Max, Table, Value, declare

from ..projects import build_module, load
from ..seeds.declarations import readme


def test_the_example_of_micrograds_readme(tmp_path: Path) -> None:
    """Parameters and no inputs: there is no batch, and nothing to set."""
    a, b = Value(-4.0), Value(2.0)
    g = readme(a, b)
    declared = declare(g, inputs={}, parameters={"a": a, "b": b}, loss=g)
    nn = load(build_module(declared, "readme", tmp_path / "site", ("base",), golden=True))
    assert float(nn.forward()) == nn.loss() == pytest.approx(24.704081632653061)
    nn.backward()
    gradients = {name: array.item() for name, array in nn.gradients.items()}
    assert gradients == pytest.approx({"a": 138.83381924198252, "b": 645.5772594752186})
    nn.update(lr=1e-4)
    assert nn.parameters["a"].item() == pytest.approx(-4 - 1e-4 * gradients["a"])
    assert nn.loss() == float(nn.forward()) == nn.train_step(lr=0.0) < 24
    nn.backward()  # after another forward
    assert nn.grad(1) != pytest.approx(gradients["b"])
    assert nn.selftest() and nn.info()["dims"] == [] and nn.info()["entries"]["forward"]["inputs"] == {}

    model = nn.Model()
    with pytest.raises(ValueError, match="call forward first"):
        model.backward()
    assert model.train_step(lr=1e-4) == pytest.approx(24.704081632653061)
    model.set_input()
    assert model.loss() == float(model.forward(out=np.zeros(())))
    with pytest.raises(TypeError, match="no batches"):
        model.fit()


def test_a_loss_with_inputs_of_its_own(tmp_path: Path) -> None:
    w, y = [Value(3.0), Value(2.0)], Value(0.0)
    declared = declare([w[0] * w[1], w[0]], inputs={"y": y}, parameters={"w": w}, loss=(w[0] * w[1] - y) ** 2)
    model = load(build_module(declared, "goal", tmp_path / "site", ("base",))).Model()
    assert model.forward().tolist() == [6.0, 3.0]
    assert model.loss([5.0, 7.0]) == 1.0 and model.loss([6.0]) == 0.0
    model.set_input([4.0, 6.0])
    assert (model.forward().tolist(), model.loss()) == ([6.0, 3.0], 2.0)
    model.backward()
    assert model.gradients["w"].tolist() == [4.0, 6.0]
    model.train_step([4.0, 6.0], lr=0.1)
    assert model.parameters["w"].tolist() == pytest.approx([2.6, 1.4])
    assert np.isfinite(model.fit(np.full(64, 5.0), epochs=2, lr=0.01))


def test_inputs_of_rows(tmp_path: Path) -> None:
    """The module takes an array of the shape in which the leaves were given."""
    x, pixels = ([[Value(0.0) for _ in range(3)] for _ in range(2)] for _ in range(2))
    words = [[Index(4) for _ in range(3)] for _ in range(2)]
    vectors = Table([Value(float(i)), Value(float(i * i))] for i in range(4))
    outputs = {
        "sums": [sum(v * (i + 1) for i, v in enumerate(row)) for row in x],
        "light": [[p * v for p, v in zip(*rows, strict=True)] for rows in zip(pixels, x, strict=True)],
        "bags": [[sum(column) for column in zip(*(vectors[word] for word in row), strict=True)] for row in words],
    }
    inputs = {"x": x, "pixels": Bytes(pixels), "words": words}
    nn = load(build_module(declare(outputs, inputs=inputs, parameters={"v": vectors}), "rows", tmp_path, ("base",)))
    rng = np.random.default_rng(0)
    array, light = rng.standard_normal((5, 2, 3)), rng.integers(0, 256, (5, 2, 3), np.uint8)
    picked = rng.integers(0, 4, (5, 2, 3))
    found = nn.forward(array, light, picked)
    np.testing.assert_allclose(found["sums"], array @ [1, 2, 3])
    np.testing.assert_allclose(found["light"], light / 255 * array)
    np.testing.assert_allclose(found["bags"], np.stack([picked, picked**2], -1).sum(-2))
    assert np.shape(nn.forward(array[0], light[0], picked[0])["sums"]) == (2,)
    with pytest.raises(ValueError, match=r"x: expected float64\[batch, 2, 3\], got float64\[5, 6\]"):
        nn.forward(np.zeros((5, 6)), light, picked)


def test_outputs_by_name(tmp_path: Path) -> None:
    w, x, y = Value(3.0), Value(0.0), Value(0.0)
    score = w * x
    outputs = {"score": score, "pair": [x + 1, w * 2]}
    declared = declare(outputs, inputs={"x": x, "y": y}, parameters={"w": w}, loss=(score - y) ** 2)
    nn = load(build_module(declared, "named", tmp_path / "site", ("base",)))
    found = nn.forward([1.0, 2.0])
    assert {name: array.tolist() for name, array in found.items()} == {"score": [3, 6], "pair": [[2, 6], [3, 6]]}
    nn.set_input([1.0], [2.0])
    assert {name: array.tolist() for name, array in nn.forward().items()} == {"score": [3], "pair": [[2, 6]]}


X, W = Value(0.0), Value(1.0)
GOOD: dict[str, Any] = {"outputs": W * X, "inputs": {"x": X}, "parameters": {"w": W}}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"inputs": [X]},
            "inputs: expected a dict of names to Values, got list [Value(data=0.0, grad=0)]; write inputs={'x': ..}",
        ),
        ({"inputs": X}, "inputs: expected a dict of names to Values, got Value"),
        ({"inputs": None}, "inputs: expected a dict of names to Values, got NoneType None"),
        ({"inputs": {"x": 1.0}}, "input 'x': expected Values, got float"),
        ({"inputs": {"x": [X, "y"]}}, "input 'x': expected Values, got str"),
        ({"inputs": {"x": []}}, "inputs['x']: expected at least one Value, got an empty list"),
        ({"inputs": {"x": [[X], X]}}, "inputs['x'][1]: expected Values in the shape of inputs['x'][0], [1], got []; a"),
        ({"inputs": {"x": [[X, 1.0]]}}, "input 'x': expected Values, got float"),
        ({"inputs": {"an x": X}}, "an input's name must be an identifier, got 'an x'"),
        ({"inputs": {3: X}}, "an input's name must be an identifier, got 3"),
        ({"inputs": {"x": Label(X)}}, "input 'x': Label takes a list of Values, one for each class, got Value"),
        (
            {"inputs": {"x": X, "lr": Value(0.0)}, "loss": W * X},
            "an input of a model that trains cannot be called 'lr'",
        ),
        ({"inputs": {"x": W}}, "input 'x': element 0 is also in another input or a parameter"),
        ({"outputs": None}, "outputs is None; is a `return` missing in the function that makes it?"),
        ({"outputs": 3.0}, "outputs: expected a Value, a list or a dict of Values, got float 3.0"),
        ({"outputs": []}, "outputs: expected at least one Value, got an empty list"),
        ({"outputs": {}}, "outputs: expected a Value, a list or a dict of Values, got an empty dict"),
        ({"outputs": [W, 2.0]}, "outputs[1]: expected a Value, got float 2.0"),
        ({"outputs": [[W], [W, 2.0]]}, "outputs[1][1]: expected a Value, got float 2.0"),
        ({"outputs": [[W], [W, X]]}, "outputs[1]: expected Values in the shape of outputs[0], [1], got [2]; a list of"),
        ({"outputs": {"y": 2.0}}, "outputs['y']: expected a Value, a list or a dict of Values, got float 2.0"),
        ({"outputs": {"loss": W}}, "an output cannot be called 'loss'; to train, pass the loss to declare as loss="),
        ({"outputs": {"a b": W}}, "an output's name must be an identifier, got 'a b'"),
        ({"loss": [W * X]}, "loss: expected a Value, got list"),
        ({"loss": 0.5}, "loss: expected a Value, got float 0.5"),
        ({"loss": lambda out: out}, "loss: expected a Value, got the function <lambda>, not what it returns"),
        ({"parameters": W}, "parameters: expected a dict of names to Values, a list of Values or a network, got Value"),
        ({"parameters": {"w": 1.0}}, "parameters['w']: expected a Value"),
        ({"dtype": "float16"}, "dtype must be 'float32' or 'float64', got 'float16'"),
        ({"dtype": mlaot.f32}, "dtype must be 'float32' or 'float64', got f32"),
        ({"learning_rate": "fast"}, "learning_rate: expected a number, got str 'fast'"),
        ({"learning_rate": None}, "learning_rate: expected a number, got NoneType None"),
        ({"optimizer": optim.Adam}, "optimizer: expected one such as mlaot.optim.Adam(lr=1e-3), got"),
        ({"optimizer": optim.Adam(), "loss": None}, "the model has an optimizer but no loss to train by"),
    ],
    ids=lambda case: "",
)
def test_wrong_arguments(given: dict[str, Any], message: str) -> None:
    with pytest.raises(MlaotError) as error:
        arguments = GOOD | given
        declare(arguments.pop("outputs"), **arguments).trace()
    assert error.value.message.startswith(message)


OPTIMIZERS = {
    "adam with a schedule": lambda: optim.Adam(lr=0.05, schedule=optim.linear_lr(1.0, 0.0, 20)),
    "momentum": lambda: optim.SGD(lr=0.01, momentum=0.9),
    "adamw with a bound on the gradient": lambda: optim.AdamW(lr=0.05, clip_grad_norm=0.5),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_optimizers(optimizer: Any, tmp_path: Path) -> None:
    """Scalars train as the same model of arrays does."""
    rng = np.random.default_rng(3)
    w, b, rows, targets = rng.normal(size=(3, 4)), rng.normal(size=3), rng.normal(size=(8, 4)), rng.normal(size=(8, 3))
    held = {"w": [[Value(v) for v in row] for row in w], "b": [Value(v) for v in b]}
    x, y = [Value(0.0) for _ in range(4)], [Value(0.0) for _ in range(3)]
    out = [
        (sum(a * v for a, v in zip(row, x, strict=True)) + bi).tanh() for row, bi in zip(*held.values(), strict=True)
    ]
    loss = sum((o - t) ** 2 for o, t in zip(out, y, strict=True))
    scalars = declare(out, inputs={"x": x, "y": y}, parameters=held, loss=loss, optimizer=optimizer())
    arrays = mlaot.parameters({"w": w, "b": b})

    def squares(out: Any, y: mlaot.f64[3]) -> Any:
        return ((out - y) ** 2).sum()

    @mlaot.model(parameters=arrays, loss=squares, optimizer=optimizer())
    def same(x: mlaot.f64[4]) -> Any:
        return np.tanh(arrays["w"] @ x + arrays["b"])

    first = load(build_module(scalars, "scalars", tmp_path / "site", ("base",)))
    second = load(build_module(same, "arrays", tmp_path / "site", ("base",)))
    for _ in range(6):
        assert first.train_step(rows, targets) == pytest.approx(second.train_step(rows, targets), rel=1e-12)
    for name, array in first.parameters.items():
        np.testing.assert_allclose(np.asarray(array), np.asarray(second.parameters[name]), rtol=1e-10)


def test_a_parameter_and_an_input_may_share_a_name(tmp_path: Path) -> None:
    x, w = [Value(0.0), Value(0.0)], [Value(2.0), Value(3.0)]
    out = w[0] * x[0] + w[1] * x[1]
    for i, name in enumerate(("x", "parameters", "lr")):
        declared = declare(out, inputs={"x" if name != "parameters" else name: x}, parameters={name: w}, loss=out * out)
        model = load(build_module(declared, f"shared{i}", tmp_path / "site", ("base",))).Model()
        assert list(model.parameters) == [name]
        assert model.train_step([1.0, 1.0], lr=0.01) == 25.0
        assert model.parameters[name].tolist() == pytest.approx([1.9, 2.9])


def test_functions_that_take_numbers() -> None:
    for use in (lambda: math.exp(X), lambda: math.sqrt(X), lambda: float(X)):
        with pytest.raises(MlaotError, match=r"`from mlaot\.micrograd import math` has functions of Values"):
            use()
    compares = (lambda: max(X, W), lambda: min([X, W]), lambda: 1 if X > 0 else 0, lambda: sorted([X, W]))
    for compare in compares:
        with pytest.raises(MlaotError, match=r"for the larger of two Max\(a, b\), for max\(x, 0\) x.relu\(\)"):
            compare()
    assert X == X and X != W and Max(X, W).data == 1.0


def test_long_names_of_dtypes() -> None:
    assert (
        mlaot.float32[3] == mlaot.f32[3] and mlaot.int64[2, 2] == mlaot.i64[2, 2] and mlaot.float16[1] == mlaot.f16[1]
    )
    assert np.ones(2).astype(mlaot.float32).dtype == np.float32 == np.zeros(2, mlaot.float32).dtype
    assert mlaot.float64.dtype == np.float64 and np.dtype("float32") == mlaot.float32


def test_values_of_outputs() -> None:
    """What ``declare`` and ``compile`` take, in one order."""
    assert values_of(X) == [X] and values_of([X, W]) == [X, W]
    assert values_of({"a": [[X], [W]], "b": W}) == [X, W, W]
