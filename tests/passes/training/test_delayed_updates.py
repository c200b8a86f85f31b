"""Weights updated once a block of examples: the graphs, and ``fit`` against a loop over ``train_step``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import nn, optim, passes
from mlaot.evaluate import evaluate
from mlaot.ir.module import FIT_BEGIN, FIT_END, FIT_STEP, Module
from mlaot.loading import trace
from mlaot.nn import functional as F
from mlaot.passes.training.delayed_updates import LATE_EXAMPLES

from ... import projects
from ...compiled import AVAILABLE
from ...runtime.test_fit import orders

INPUTS, HIDDEN, CLASSES = 203, 41, 3
Data = tuple[np.ndarray[Any, Any], ...]


class Two(nn.Module):
    """Two large products of inputs, one of them of bytes, and one of what they give."""

    def __init__(self) -> None:
        self.a, self.b = nn.Linear(INPUTS, HIDDEN, rng=0), nn.Linear(INPUTS, HIDDEN, bias=False, rng=1)
        self.c = nn.Linear(HIDDEN, CLASSES, rng=2)

    def forward(self, x: Any, pixels: Any) -> Any:
        return self.c(mlaot.tanh(self.a(x) + self.b(mlaot.astype(pixels, x.dtype) / 255)))


def declared(dtype: Any = mlaot.f64, optimizer: Any = None) -> Any:
    net = Two()
    for p in net.parameters():
        p.array = p.array.astype(dtype.numpy)

    def loss(scores: Any, label: mlaot.i64) -> Any:
        return F.cross_entropy(scores, label)

    def model(x: Any, pixels: Any) -> Any:
        return net(x, pixels)

    model.__annotations__ = {"x": dtype[INPUTS], "pixels": mlaot.u8[INPUTS]}
    return mlaot.model(loss=loss, parameters=net, **({"optimizer": optimizer} if optimizer else {}))(model)


def examples(count: int, dtype: Any = np.float64) -> Data:
    rng = np.random.default_rng(count)
    x = rng.normal(size=(count, INPUTS)).astype(dtype)
    return x, rng.integers(0, 256, (count, INPUTS), dtype=np.uint8), rng.integers(0, CLASSES, count)


def step(module: Module, name: str, slots: Any, given: Any) -> dict[str, Any]:
    graph = module.graphs[name]
    return evaluate(graph, {k: v for k, v in (slots | given).items() if k in graph.inputs}, wide=True)


def test_blocks_are_batches_of_one() -> None:
    module = passes.run("m", trace(declared()))
    assert set(module.graphs[FIT_END].writes) == {"a.weight", "b.weight"}
    assert not {"a.weight", "b.weight"} & {node.attrs.get("name") for node in module.graphs[FIT_STEP].nodes()}
    data = examples(2 * LATE_EXAMPLES)
    slots, by_hand = dict(module.slots), dict(module.slots)

    def run(name: str, given: Any) -> dict[str, Any]:
        found = step(module, name, slots, given)
        slots.update({key.removeprefix("write "): value for key, value in found.items() if key.startswith("write ")})
        return found

    for block in (slice(0, LATE_EXAMPLES), slice(LATE_EXAMPLES, 2 * LATE_EXAMPLES)):
        rows = dict(zip(("x", "pixels", "label"), (a[block] for a in data), strict=True))
        begun = run(FIT_BEGIN, rows)
        changes = {f"changes{k}": np.zeros((LATE_EXAMPLES, HIDDEN)) for k in range(2)}
        for i in range(LATE_EXAMPLES):
            one = {key: value[i] for key, value in (rows | begun).items()} | changes | {"lr": 0.05}
            found = run(FIT_STEP, one)
            for k in range(2):
                changes[f"changes{k}"][i] = found[f"change{k}"]
            batch = {key: value[i : i + 1] for key, value in rows.items()} | {"lr": 0.05}
            expected = step(module, "train_step", by_hand, batch)
            by_hand |= {name: expected[f"write {name}"] for name in by_hand}
            np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-11)
        run(FIT_END, rows | changes)
        for name in slots:
            np.testing.assert_allclose(slots[name], by_hand[name], rtol=1e-11, atol=1e-13, err_msg=name)


def by_steps(model: Any, data: Data, order: Any) -> float:
    return float(np.mean([model.train_step(*[a[i] for a in data], 0.05) for i in order]))


@pytest.fixture(scope="module")
def ahead(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A module with the code of every instruction set of this machine."""
    return projects.build_module(declared(mlaot.f32), "ahead", tmp_path_factory.mktemp("ahead"), AVAILABLE)


@pytest.mark.parametrize("isa", AVAILABLE)
def test_fit_is_a_loop_over_train_step(isa: str, ahead: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLAOT_ISA", isa)
    module = projects.load(ahead)
    assert module.info()["isa"] == isa
    assert "fit_step" not in module.info()["entries"] and not hasattr(module, "fit_step")
    data = examples(57, np.float32)
    model, by_hand = module.Model(), module.Model()

    def close(found: float, expected: float) -> None:
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        for name, value in by_hand.parameters.items():
            np.testing.assert_allclose(model.parameters[name], value, rtol=1e-4, atol=1e-5, err_msg=name)

    close(model.fit(*data, 0.05, batch=1, shuffle=False), by_steps(by_hand, data, range(57)))

    # Written between two epochs.
    def halve(done: int, total: int, loss: float) -> None:
        if done == 57:
            np.asarray(model.parameters["a.weight"])[:] *= 0.5

    found = model.fit(*data, 0.05, batch=1, epochs=2, shuffle=False, callback=halve)
    by_steps(by_hand, data, range(57))
    np.asarray(by_hand.parameters["a.weight"])[:] *= 0.5
    close(found, by_steps(by_hand, data, range(57)))
    order = orders(57, 5)
    by_steps(by_hand, data, next(order))
    close(model.fit(*data, 0.05, batch=1, epochs=2, seed=5), by_steps(by_hand, data, next(order)))
    for one in (tuple(a[:1] for a in data), tuple(a[:LATE_EXAMPLES] for a in data)):  # less than a block, and one
        close(model.fit(*one, 0.05, batch=1, shuffle=False), by_steps(by_hand, one, range(len(one[0]))))


class Averaged(optim.SGD):
    """Gradient descent that keeps an average of the weights that it makes."""

    def slots_of(self, options: Any) -> tuple[str, ...]:
        return ("average",)

    def apply(self, x: Any, gradient: Any, slots: Any, options: Any, rate: Any, step: Any) -> Any:
        new, _ = super().apply(x, gradient, slots, options, rate, step)
        return new, {"average": slots["average"] * 0.9 + new * 0.1}


OTHERS = {
    "small": None,
    "not of inputs": None,
    "random": None,
    "Adam": optim.Adam(lr=0.01),
    "momentum": optim.SGD(lr=0.01, momentum=0.9),
    "weight decay": optim.SGD(lr=0.01, weight_decay=0.1),
    "averaged": Averaged(lr=0.01),
    "read twice": None,
    "in the loss": None,
}


@pytest.mark.parametrize("what", OTHERS)
def test_others_train_step_by_step(what: str) -> None:
    size = 8 if what == "small" else INPUTS
    w = mlaot.Parameter("w", np.ones((HIDDEN, size)))

    def model(x: Any) -> Any:
        if what == "not of inputs":
            return np.sum(w @ (x * w[0]))
        if what == "read twice":
            return np.sum(mlaot.tanh(w @ x) * (w @ (x * x)))
        y = w @ (F.dropout(x, 0.5, training=True) if what == "random" else x)
        return np.sum(mlaot.tanh(y)) + (np.sum(w * w) if what == "in the loss" else 0)

    model.__annotations__ = {"x": mlaot.f64[size]}
    options = {"optimizer": OTHERS[what]} if OTHERS[what] else {}
    module = passes.run("m", trace(mlaot.model(loss=lambda y: y, **options)(model)))
    assert not {FIT_BEGIN, FIT_STEP, FIT_END} & set(module.graphs)


@pytest.mark.parametrize("dtype", [mlaot.f32, mlaot.f64], ids=str)
def test_weights_in_another_order_and_late_inputs_elsewhere(dtype: Any, tmp_path: Path) -> None:
    """x @ w, where x is also read by the loss, and is divided by an input that all examples share."""
    rng = np.random.default_rng(3)
    w = mlaot.Parameter("w", (rng.normal(size=(INPUTS, HIDDEN)) / 15).astype(dtype.numpy))

    def model(x: Any, scale: Any) -> Any:
        return mlaot.tanh((x / scale) @ w)

    def loss(y: Any, x: Any) -> Any:
        return np.sum((y - x[:HIDDEN]) ** 2)

    model.__annotations__ = {"x": dtype[INPUTS], "scale": dtype[INPUTS]}
    loss.__annotations__ = {"x": dtype[INPUTS]}
    declared_ = mlaot.model(loss=loss, parameters=[w])(model)
    assert FIT_END in passes.run("m", trace(declared_)).graphs
    module = projects.load(projects.build_module(declared_, "order", tmp_path, ("base",)))
    x, scale = (rng.uniform(1, 2, (2 * LATE_EXAMPLES + 3, INPUTS)).astype(dtype.numpy) for _ in range(2))
    whole, by_hand = module.Model(), module.Model()
    found = whole.fit(x, scale, 0.001, batch=1, shuffle=False)
    losses = [by_hand.train_step(x[i : i + 1], scale[i : i + 1], 0.001) for i in range(len(x))]
    np.testing.assert_allclose(found, np.mean(losses), rtol=1e-5)
    np.testing.assert_allclose(whole.parameters["w"], by_hand.parameters["w"], rtol=1e-4, atol=1e-6)
