"""Which nodes kernels compute together: comparisons of what is there anyway and outer products are stored nowhere."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import nn, optim
from mlaot.generate import compile_model
from mlaot.micrograd import Value, declare
from mlaot.nn import functional as F
from mlaot.optim import Optimizer
from mlaot.settings.options import Options

from .. import projects
from ..compiled import AVAILABLE, Library
from ..projects import build_module, load

Array = np.ndarray[Any, Any]
BATCH = mlaot.dim("batch")
WEIGHTS = np.random.default_rng(5).normal(size=(24, 40)).astype(np.float32)


def behind_a_product(function: Callable[[Any, Any], Any]) -> Any:
    @mlaot.model
    def model(x: mlaot.f32[BATCH, 24], other: mlaot.f32[BATCH, 40]):
        return function(x @ WEIGHTS, other)

    return model


# What follows a product y, and whether one kernel computes both.
CHOICES: dict[str, tuple[Callable[[Any, Any], Any], bool]] = {
    "leaky": (lambda y, o: np.where(y > 0, y, y * 0.1), True),
    "slopes": (lambda y, o: np.where(y >= 0, y, y * np.linspace(0, 2, 40, dtype=np.float32)), True),
    "of what it is made of": (lambda y, o: np.where(y > 1, 1 - y, np.where(y < -1, y + 1, y * y)), False),
    "of both": (lambda y, o: np.where(y > o, y, o), True),
    "read again": (lambda y, o: np.where(y > 0, y, y * 0.1) + np.where(y > 0, o, y), True),
    "of what is not read": (lambda y, o: np.where(o > 0, y, -y), False),
    "outer": (lambda y, o: y + o[:, :1] * WEIGHTS[0], True),
    "outer of what is made": (lambda y, o: y + np.abs(o[:, :1]) * WEIGHTS[0], False),
    "not chosen": (lambda y, o: np.where(np.logical_and(y > 0, o > 0), y, y * 0.1), False),
}


@pytest.mark.parametrize("isa", AVAILABLE)
def test_choices_behind_products(isa: str, tmp_path: Path) -> None:
    programs = {
        name.replace(" ", "_"): compile_model(behind_a_product(function), "m.nn", Options(isas=(isa,)))
        for name, (function, _) in CHOICES.items()
    }
    library = Library(programs, isa, tmp_path)
    rng = np.random.default_rng(1)
    x, other = rng.normal(size=(5, 24)).astype(np.float32), rng.normal(size=(5, 40)).astype(np.float32)
    x[1], x[2, 0], x[3, 0], other[4, :3] = 0, np.inf, np.nan, (np.nan, np.inf, -np.inf)
    for name, (function, is_one) in CHOICES.items():
        (procedure,) = programs[name.replace(" ", "_")].procedures
        assert (len(procedure.kernels) == 1) == is_one, name
        (found,) = library.call(name.replace(" ", "_"), "forward", {"x": x, "other": other}, {"batch": 5}).values()
        with np.errstate(all="ignore"):
            expected = function(np.asarray(x.astype(np.float64) @ WEIGHTS), other)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5, err_msg=name)


def test_outputs_are_stored(tmp_path: Path) -> None:
    """A comparison that a caller wants is computed once, and choices read it."""

    @mlaot.model
    def model(x: mlaot.f32[BATCH, 24]):
        y = x @ WEIGHTS
        return y > 0, np.where(y > 0, y, y * 0.1)

    program = compile_model(model, "m.nn", Options(isas=(AVAILABLE[-1],)))
    x = np.random.default_rng(2).normal(size=(3, 24)).astype(np.float32)
    is_above, leaky = (
        Library({"m": program}, AVAILABLE[-1], tmp_path).call("m", "forward", {"x": x}, {"batch": 3}).values()
    )
    np.testing.assert_array_equal(is_above, x @ WEIGHTS > 0)
    np.testing.assert_allclose(leaky, np.where(x @ WEIGHTS > 0, x @ WEIGHTS, x @ WEIGHTS * 0.1), rtol=1e-4, atol=1e-5)


def test_convolutions_with_leaky_relu() -> None:
    """As many kernels as with relu, also in front of a pool."""

    def kernels(activation: Callable[[Any], Any]) -> int:
        first, second = nn.Conv2d(32, 32, 3, padding=1), nn.Conv2d(32, 32, 3, padding=1)

        @mlaot.model(parameters={"first": first, "second": second})
        def model(x: mlaot.f32[BATCH, 32, 10, 10]):
            return second(F.max_pool2d(activation(first(x)), 2))

        return sum(len(p.kernels) for p in compile_model(model, "m.nn", Options(isas=("v3",))).procedures)

    assert kernels(lambda y: np.where(y > 0, y, y * 0.2)) == kernels(lambda y: np.maximum(y, 0))


@pytest.mark.parametrize("optimizer, kernels", [(optim.Adam(lr=0.1), 5), (optim.SGD(lr=0.1, momentum=0.9), 2)])
def test_an_update_reads_and_writes_each_array_once(optimizer: Any, kernels: int) -> None:
    """One kernel for each parameter has its moments as well; three more count Adam's steps."""
    layer = nn.Linear(24, 40)

    def loss(out: Any, y: mlaot.f32[40]) -> Any:
        return F.mse_loss(out, y)

    @mlaot.model(loss=loss, optimizer=optimizer, parameters=layer)
    def model(x: mlaot.f32[24]):
        return layer(x)

    program = compile_model(model, "m.nn", Options())
    (update,) = [procedure for procedure in program.procedures if procedure.entry.name == "update"]
    assert len(update.kernels) == kernels


def test_slots_wait_for_no_reader_that_is_before_the_update(tmp_path: Path) -> None:
    """A moment that something else reads as well, such as a product or another moment, is there before that."""
    start = {name: np.random.default_rng(i).uniform(1, 2, (3, 8)).astype("f") for i, name in enumerate("abcg")}
    a, b, c, g = (mlaot.Buffer(array, name) for name, array in start.items())

    @mlaot.model
    def model(x: mlaot.f32[BATCH, 3, 8]):
        return x + a

    @model.entry
    def with_product():
        moment = 0.5 * a + g
        a.assign(moment)
        b.assign(b - moment / (moment @ moment.T)[0, 0])

    @model.entry
    def with_square():
        moment = 0.5 * a + g
        square = 0.5 * b + moment * moment
        a.assign(moment)
        b.assign(square)
        c.assign(c - moment / np.sqrt(square))

    program = compile_model(model, "slots.nn", Options(isas=("base",)))
    kernels = {procedure.entry.name: len(procedure.kernels) for procedure in program.procedures}
    assert kernels == {"forward": 1, "with_product": 3, "with_square": 1}

    made = projects.plain_module(model, "slots", tmp_path).Model()
    made.with_product()
    made.with_square()
    once = start["a"] / 2 + start["g"]
    twice = once / 2 + start["g"]
    square = (start["b"] - once / (once @ once.T)[0, 0]) / 2 + twice * twice
    expected = {"a": twice, "b": square, "c": start["c"] - twice / np.sqrt(square)}
    for name, array in expected.items():
        np.testing.assert_allclose(made.buffers[name].tolist(), array, rtol=1e-5)


class Mixed(Optimizer):
    """Slots that later ones read through a view and a mask, which kernels compute where they are read."""

    uses_step = True

    def __init__(self, through_view: bool) -> None:
        super().__init__(0.1, {})
        self.through_view = through_view

    def slots_of(self, options: Any) -> tuple[str, ...]:
        return ("a", "b", "c")

    def apply(self, x: Any, gradient: Any, slots: Any, options: Any, rate: Any, step: Any) -> Any:
        a, number = slots["a"] * 0.9 + gradient, (step + 1).astype(x.dtype)
        if self.through_view:
            b = slots["b"] + a.reshape(-1)[:1]
        else:
            b = slots["b"] + np.where(a > 0, a, a * 0.5).sum(axis=-1, keepdims=True)
        c = slots["c"] + b * number + a
        return x - rate * (np.where(a > 0, a, a * 0.3) + b * 0.01 + c * 0.001) * number, {"a": a, "b": b, "c": c}


@pytest.mark.parametrize("through_view", [False, True])
def test_updates_that_read_slots_through_views_and_masks(through_view: bool, tmp_path: Path) -> None:
    """The kernels have an order; ``update`` gives what ``train_step`` does."""
    layer = nn.Linear(24, 40)

    def loss(out: Any, y: mlaot.f32[40]) -> Any:
        return F.mse_loss(out, y)

    @mlaot.model(loss=loss, optimizer=Mixed(through_view), parameters=layer)
    def model(x: mlaot.f32[24]) -> Any:
        return layer(x)

    module = load(build_module(model, "mixed", tmp_path, ("base",)))
    whole, parts = module.Model(), module.Model()
    x, y = (np.random.default_rng(0).normal(size=(6, n)).astype(np.float32) for n in (24, 40))
    for _ in range(3):
        whole.train_step(x, y)
        parts.zero_grad()
        parts.set_input(x, y)
        parts.forward()
        parts.backward()
        parts.update()
    np.testing.assert_allclose(parts.flat_parameters, whole.flat_parameters, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("count", [2, 3])
def test_slots_whose_updates_read_each_other(count: int, tmp_path: Path) -> None:
    """No update may come first, and each is cheap enough to be computed again: all read the old values."""
    values = [Value(number) for number in (0.7, -0.3, 1.9)[:count]]
    product = prod(values[1:], start=values[0])
    model = declare(
        product, inputs={}, parameters={f"p{i}": value for i, value in enumerate(values)}, loss=(product - 1.0) ** 2
    )
    module = load(build_module(model, f"crossed{count}", tmp_path, ("base",)))
    parts, wanted = module.Model(), np.array([value.data for value in values])
    for _ in range(3):
        module.train_step(lr=0.1)
        parts.zero_grad()
        parts.accumulate()
        parts.update(lr=0.1)
        wanted = wanted - 0.1 * 2 * (wanted.prod() - 1) * wanted.prod() / wanted
        np.testing.assert_allclose([module.data(i) for i in range(count)], wanted, rtol=1e-12)
        np.testing.assert_allclose([parts.data(i) for i in range(count)], wanted, rtol=1e-12)
