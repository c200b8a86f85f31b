"""Steps on one example that start the next one: their graphs, and ``fit`` against a loop over ``train_step``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import nn, optim, passes
from mlaot.evaluate import evaluate
from mlaot.generate import trace
from mlaot.ir.module import FIT_BEGIN, FIT_NEXT, OPTIMIZER, Module
from mlaot.nn import functional as F

from .. import projects
from ..compiled import AVAILABLE
from ..runtime.test_fit import orders

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


@pytest.mark.parametrize("optimizer", [None, optim.Adam(lr=0.01)], ids=["sgd", "adam"])
def test_steps_are_those_of_batches_of_one(optimizer: Any) -> None:
    module = passes.run("m", trace(declared(optimizer=optimizer)))
    assert len(module.graphs[FIT_BEGIN].outputs) == 2
    data = examples(4)
    slots, by_hand = dict(module.slots), dict(module.slots)
    ahead: dict[str, Any] = {}
    for i in range(4):
        x, pixels, label = (a[i] for a in data)
        after = min(i + 1, 3)
        given = {"x": x, "pixels": pixels, "label": label, "lr": 0.05}
        ahead = ahead or step(module, FIT_BEGIN, slots, given)
        later = {"next_x": data[0][after], "next_pixels": data[1][after]}
        found = step(module, FIT_NEXT, slots, given | later | ahead)
        batch = {key: np.asarray(value)[None] if key != "lr" else value for key, value in given.items()}
        expected = step(module, "train_step", by_hand, batch)
        for name in slots:
            slots[name], by_hand[name] = found[f"write {name}"], expected[f"write {name}"]
            np.testing.assert_allclose(slots[name], by_hand[name], rtol=1e-11, atol=1e-13, err_msg=name)
        np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-12)
        ahead = {name: found[f"next_{name}"] for name in ahead}
    assert any(name.startswith(OPTIMIZER) for name in slots) == (optimizer is not None)


def by_steps(model: Any, data: Data, order: Any) -> float:
    return float(np.mean([model.train_step(*[a[i] for a in data], 0.05) for i in order]))


@pytest.mark.parametrize("isa", AVAILABLE)
def test_fit_is_a_loop_over_train_step(isa: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLAOT_ISA", isa)
    module = projects.load(projects.build_module(declared(mlaot.f32), "ahead", tmp_path, ("base", isa)))
    assert "fit_next" not in module.info()["entries"] and not hasattr(module, "fit_next")
    data = examples(57, np.float32)
    model, by_hand = module.Model(), module.Model()

    def close(found: float, expected: float) -> None:
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        for name, value in by_hand.parameters.items():
            np.testing.assert_allclose(model.parameters[name], value, rtol=1e-4, atol=1e-5, err_msg=name)

    close(model.fit(*data, 0.05, batch=1, shuffle=False), by_steps(by_hand, data, range(57)))

    # Written between two epochs: what was computed ahead is computed again.
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
    for one in (tuple(a[:1] for a in data), data):  # a single example has no next one
        close(model.fit(*one, 0.05, batch=1, shuffle=False), by_steps(by_hand, one, range(len(one[0]))))


@pytest.mark.parametrize("what", ["small", "not of inputs", "random", "another order"])
def test_others_train_step_by_step(what: str) -> None:
    size = 8 if what == "small" else INPUTS
    w = mlaot.Parameter("w", np.ones((size, HIDDEN) if what == "another order" else (HIDDEN, size)))

    def model(x: Any) -> Any:
        if what == "not of inputs":
            return np.sum(w @ (x * w[0]))
        if what == "another order":
            return np.sum(mlaot.tanh(x @ w))
        y = w @ (F.dropout(x, 0.5, training=True) if what == "random" else x)
        return np.sum(mlaot.tanh(y))

    model.__annotations__ = {"x": mlaot.f64[size]}
    module = passes.run("m", trace(mlaot.model(loss=lambda y: y)(model)))
    assert FIT_NEXT not in module.graphs and FIT_BEGIN not in module.graphs
