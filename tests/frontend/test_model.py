"""``@mlaot.model``: what a function, its loss, its parameters, buffers and entries become."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import MlaotError
from mlaot.evaluate import evaluate
from mlaot.frontend.trace.declaration import Traced
from mlaot.generate import compile_model
from mlaot.settings.options import Options

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def annotated(function: Any, **types: Any) -> Any:
    """``function`` with annotations, which type checkers would not take for types."""
    function.__annotations__ = types
    return function


def traced(function: Any, loss: Any = None, **options: Any) -> Traced:
    found: Traced = mlaot.model(loss=loss, **options)(function).trace()
    return found


def refusal(function: Any, **options: Any) -> str:
    with pytest.raises(MlaotError) as caught:
        traced(function, **options)
    return caught.value.message


batch = mlaot.dim("batch")


class Layer:
    def __init__(self, n: int) -> None:
        self.weight = mlaot.Parameter(None, np.ones((3, n), np.float32))
        self.count = mlaot.Buffer(np.zeros((), np.int64))
        self.name = "a layer"

    def __call__(self, x: Any) -> Any:
        self.count.assign(self.count + 1)
        return x @ self.weight


class Net:
    def __init__(self) -> None:
        self.layers = [Layer(3), Layer(2)]
        self.tied = self.layers[0].weight
        self.more = {"bias": mlaot.Parameter(None, np.zeros(2, np.float32))}
        self.itself = self

    def __call__(self, x: Any) -> Any:
        return self.layers[1](self.layers[0](x)) + self.more["bias"]


def test_an_object_is_walked() -> None:
    net = Net()
    found = traced(annotated(lambda x: net(x), x=mlaot.f32[batch, 3]), parameters=net)
    assert list(found.parameters) == ["layers.0.weight", "layers.1.weight", "more.bias"]
    assert list(found.buffers) == ["layers.0.count", "layers.1.count"]
    assert list(found.graph.writes) == ["layers.0.count", "layers.1.count"]
    values = evaluate(found.graph, {"x": X, **found.parameters, **found.buffers})
    np.testing.assert_array_equal(values["out"], X @ np.ones((3, 3)) @ np.ones((3, 2)))
    assert values["write layers.1.count"] == 1
    np.testing.assert_array_equal(net(X), values["out"])
    assert net.layers[0].count.array == 1


def test_a_dict_of_arrays() -> None:
    w = mlaot.parameters({"w": np.ones((3, 2))})
    found = traced(annotated(lambda x: x @ w["w"], x=mlaot.f64[3]), parameters=w)
    assert list(found.parameters) == ["w"] and found.per_example
    assert found.arguments == ("x",)


def test_names_within_a_dict() -> None:
    a, b = mlaot.Parameter(None, np.ones(3)), mlaot.Parameter("own", np.ones(3))
    found = traced(annotated(lambda x: x * a + b, x=mlaot.f64[3]), parameters={"a": a, "other": [b]})
    assert list(found.parameters) == ["a", "own"]


def test_a_loss_and_what_it_trains() -> None:
    w, b = mlaot.Parameter("w", np.ones(3)), mlaot.Parameter("b", np.ones(3))
    net = annotated(lambda x: x * w + b, x=mlaot.f64[3])
    loss = annotated(lambda out, y: ((out - y) ** 2).sum(), y=mlaot.f64[3])
    both = traced(net, loss)
    assert both.trains and list(both.parameters) == ["w", "b"] and both.training is None
    one = traced(net, loss, parameters={"w": w})
    assert list(one.parameters) == ["w"] and list(one.buffers) == ["b"]
    assert list(both.graph.inputs) == ["x", "w", "b", "y"]


def test_training_differs() -> None:
    def net(x: Any) -> Any:
        return x * 2 if mlaot.is_training() else x

    annotated(net, x=mlaot.f32[3])
    found = traced(net, annotated(lambda out: out.sum()))
    assert found.training is not None
    assert "mul" in str(found.training) and "mul" not in str(found.graph)
    np.testing.assert_array_equal(net(X), X)
    with mlaot.training():
        np.testing.assert_array_equal(net(X), X * 2)


def test_dropout_in_training() -> None:
    net = annotated(lambda x: mlaot.random.dropout(x, 0.5), x=mlaot.f32[batch, 3])
    found = traced(net, annotated(lambda out: out.sum()))
    assert found.training is not None
    assert "random_bits" in str(found.training) and not found.graph.writes
    assert list(found.training.writes) == ["random"]
    assert list(found.buffers) == ["random"]


def test_entries() -> None:
    w = mlaot.Parameter("w", np.float32(3))
    state = mlaot.Buffer(np.zeros(3, np.float32), "state")
    net = mlaot.model(annotated(lambda x: x * w, x=mlaot.f32[batch, 3]))

    @net.entry
    def reset() -> None:
        state.assign(np.zeros(3))

    def move(y: Any) -> Any:
        state.assign(state + y.sum(0) * w)
        return {"now": state}

    net.entry(annotated(move, y=mlaot.f32[batch, 3]))
    found = net.trace()
    assert list(found.entries) == ["reset", "move"]
    assert list(found.entries["reset"].writes) == ["state"] and not found.entries["reset"].outputs
    values = evaluate(found.entries["move"], {"y": X, "w": np.float32(3), "state": np.ones(3)})
    np.testing.assert_array_equal(values["now"], 1 + 3 * X.sum(0))
    np.testing.assert_array_equal(values["write state"], values["now"])
    with pytest.raises(MlaotError, match="the module has an entry called 'move' already; choose another name"):
        net.entry(move)


def test_outputs() -> None:
    assert list(traced(annotated(lambda x: (x, x + 1), x=mlaot.f32[3])).graph.outputs) == ["out0", "out1"]
    assert list(traced(annotated(lambda x: {"a": x}, x=mlaot.f32[3])).graph.outputs) == ["a"]
    found = traced(annotated(lambda x: x.argmax(), x=mlaot.f32[3])).graph.outputs["out"]
    assert str(found.type) == "i64[]"


def test_a_default_is_no_input() -> None:
    def net(x, scale=2.0):  # type: ignore[no-untyped-def]
        return x * scale

    assert traced(annotated(net, x=mlaot.f32[3])).arguments == ("x",)


def test_assigning_what_is_there_already_writes_nothing() -> None:
    state = mlaot.Buffer(np.zeros(3, np.float32), "state")

    def net(x: Any) -> Any:
        state.assign(state)
        return x

    assert not traced(annotated(net, x=mlaot.f32[batch, 3])).graph.writes


def test_refusals() -> None:
    def starred(*x: Any) -> Any:
        return x

    state = mlaot.Buffer(np.zeros(3, np.float32), "state")

    def update(x: Any) -> Any:
        state.assign(x)
        return x

    w = mlaot.Parameter("x", np.ones(3))
    nameless = mlaot.Parameter(None, np.ones(3))
    twins = [mlaot.Parameter("w", np.ones(3)), mlaot.Parameter("w", np.ones(3))]
    f32 = mlaot.f32[3]
    assert refusal(annotated(starred, x=f32)) == "argument *x of starred: a model's arguments must each have a name"
    assert refusal(annotated(update)) == (
        "argument 'x' of update: expected an annotation such as mlaot.f32[64], got none"
    )
    assert refusal(annotated(update, x=f32)) == (
        "update is for one example and cannot assign the buffer 'state'; name the batch in its annotations: "
        "batch = mlaot.dim('batch'), x: mlaot.f32[batch, ...]"
    )
    assert refusal(annotated(update, x=mlaot.f32[batch, 3])) == (
        "buffer 'state': expected a value of shape [3], got [batch, 3]"
    )
    assert refusal(annotated(lambda x: x + w, x=f32)) == (
        "np.add: a parameter is called 'x', and so is an argument; rename one of them"
    )
    assert refusal(annotated(lambda x: x + nameless, x=f32)) == (
        "np.add: a parameter of shape [3] has no name; give the object that holds it to "
        "@mlaot.model(parameters=...), or name it"
    )
    assert refusal(annotated(lambda x: x + twins[0] + twins[1], x=f32)) == (
        "np.add: two parameters or buffers are called 'w'; give one of them another name"
    )
    assert refusal(annotated(lambda x: x, x=f32), parameters=twins) == (
        "two parameters or buffers are called 'w'; give one of them another name"
    )
    assert refusal(annotated(lambda x: [[x]], x=f32)) == (
        "output 'out0' is a list; expected an array, a tuple or a dict of arrays"
    )
    assert refusal(annotated(lambda x: {"a b": x}, x=f32)) == "an output's name must be an identifier, got 'a b'"
    with pytest.raises(MlaotError, match="parameter 'n': expected floating-point numbers, got int64; an array that"):
        mlaot.Parameter("n", np.arange(3))


def test_an_entry_of_another_kind() -> None:
    net = mlaot.model(annotated(lambda x: x, x=mlaot.f32[3]))

    def other(y: Any) -> Any:
        return y

    net.entry(annotated(other, y=mlaot.f32[batch, 3]))
    with pytest.raises(MlaotError, match="is for one example, but its entry other has named dims; name the batch"):
        net.trace()


def test_several_named_dims() -> None:
    time = mlaot.dim("time")

    def net(x: Any) -> Any:
        return x.reshape(x.shape[0] * x.shape[1], 2).sum(0), x[:, -1], mlaot.arange(x.shape[1])

    found = traced(annotated(net, x=mlaot.f32[batch, time, 2]))
    x = np.random.default_rng(0).normal(size=(3, 4, 2)).astype(np.float32)
    values = evaluate(found.graph, {"x": x})
    np.testing.assert_allclose(values["out0"], x.sum((0, 1)), rtol=1e-5)
    np.testing.assert_array_equal(values["out1"], x[:, -1])
    np.testing.assert_array_equal(values["out2"], np.arange(4))


def test_docstrings_reach_the_module() -> None:
    """The first line is what help() and the stub say of an entry."""

    def double(x: Any) -> Any:
        """Twice as much.

        More is not said.
        """
        return x * 2

    def half(x: Any) -> Any:
        """Half as much."""
        return x / 2

    def same(x: Any) -> Any:
        return x + 0

    x = mlaot.f32[mlaot.dim("n")]
    net = mlaot.model(annotated(double, x=x))
    net.entry(annotated(half, x=x))
    net.entry(annotated(same, x=x))
    program = compile_model(net, "m.nn", Options(isas=("base",)))
    docs = {p.entry.name: p.entry.doc for p in program.procedures}
    assert docs == {"forward": "Twice as much.", "half": "Half as much.", "same": ""}


def test_a_loss_may_take_the_inputs_of_the_model() -> None:
    """An autoencoder is held against what it was given: one input, not two."""
    w = mlaot.Parameter("w", np.full((3, 3), 0.1, np.float32))

    def code(x: Any) -> Any:
        return x @ w

    def loss(out: Any, x: Any) -> Any:
        return ((out - x) ** 2).sum()

    x = mlaot.f32[3]
    program = compile_model(
        mlaot.model(annotated(code, x=x), loss=annotated(loss, x=x)), "m.nn", Options(isas=("base",))
    )
    ports = {p.entry.name: [port.name for port in p.entry.inputs] for p in program.procedures}
    assert ports["forward"] == ports["loss"] == ["x"] and ports["train_step"] == ["x", "lr"]
