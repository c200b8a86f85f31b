"""The step of a recurrent layer is one kernel: the product and, on its accumulators, what combines the gates."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import nn, passes
from mlaot.evaluate import evaluate
from mlaot.ir.module import Module
from mlaot.loading import trace
from mlaot.lower.lower import lower
from mlaot.lower.program import Kernel, Loop, Program, Steps
from mlaot.nest.statements import Store, walk
from mlaot.schedule.contraction import contraction_of
from mlaot.schedule.cost import schedule
from mlaot.schedule.machine import V3
from mlaot.schedule.tiles import tile

from ..compiled import AVAILABLE, Library

batch = mlaot.dim("batch")
STEPS = 3
Layer = Any


class Cell(nn.Module):
    """A cell on an input and a state that are arguments."""

    def __init__(self, cell: Layer) -> None:
        self.cell = cell

    def forward(self, x: Any) -> Any:
        state = np.concatenate([x[1], x[2], x[0]], -1)[:, : self.cell.hidden_size]
        return self.cell(x[0], state if isinstance(self.cell, nn.GRUCell) else (state, state))


class Whole(nn.Module):
    """A layer whose gates are wanted too: these are stored beside the rest."""

    def __init__(self) -> None:
        self.linear = nn.Linear(7, 48, rng=np.random.default_rng(3))

    def forward(self, x: Any) -> Any:
        y = self.linear(x[0])
        one, two, three = (y[:, 16 * i : 16 * i + 16] for i in range(3))
        return np.tanh(one) * two + np.cumsum(three * two, -1)


def layer(name: str, hidden: int, **options: Any) -> Layer:
    return getattr(nn, name)(7, hidden, rng=np.random.default_rng(hidden), **options)


LAYERS: dict[str, tuple[Layer, int]] = {  # and how many kernels have gates
    "lstm21": (layer("LSTM", 21), 1),
    "lstm64": (layer("LSTM", 64, bias=False), 1),
    "lstm11": (layer("LSTM", 11), 0),  # less than a vector
    "lstm9f64": (layer("LSTM", 9, dtype="float64"), 1),
    "both": (layer("LSTM", 19, bidirectional=True), 2),
    "projected": (layer("LSTM", 32, proj_size=5), 1),
    "gru45": (layer("GRU", 45, bias=False), 1),
    "lstmcell": (Cell(layer("LSTMCell", 20)), 2),
    "grucell": (Cell(layer("GRUCell", 16)), 2),
    "whole": (Whole(), 1),
}


def declare(name: str) -> Any:
    net = LAYERS[name][0]

    def forward(x: Any) -> Any:
        found = net(x)  # an array, a tuple, or a tuple whose last one is a tuple
        if isinstance(found, tuple) and isinstance(found[-1], tuple):
            return (*found[:-1], *found[-1])
        return found

    forward.__annotations__ = {"x": (mlaot.f64 if name.endswith("f64") else mlaot.f32)[STEPS, batch, 7]}
    return mlaot.model(parameters=net)(forward)


def passed(model: Any) -> Module:
    return passes.run("m", trace(model))


@pytest.fixture(scope="module")
def modules() -> dict[str, Module]:
    return {name: passed(declare(name)) for name in LAYERS}


@pytest.fixture(scope="module")
def programs(modules: Mapping[str, Module]) -> dict[str, Program]:
    return {name: lower(module) for name, module in modules.items()}


@pytest.mark.parametrize("isa", AVAILABLE)
def test_values(
    isa: str, programs: dict[str, Program], modules: dict[str, Module], tmp_path_factory: pytest.TempPathFactory
) -> None:
    library = Library(programs, isa, tmp_path_factory.mktemp(isa))
    for name, module in modules.items():
        graph = module.graphs["forward"]
        dtype = np.float64 if name.endswith("f64") else np.float32
        for rows in (0, 1, 3, 17):
            x = np.random.default_rng(rows).normal(size=(STEPS, rows, 7)).astype(dtype)
            weights = {key: value for key, value in module.parameters.items() if key in graph.inputs}
            wide = {key: value.astype(np.float64) for key, value in {**weights, "x": x}.items()}
            expected = evaluate(graph, wide)
            found = library.call(name, "forward", {"x": x}, {"batch": rows})
            for key, value in expected.items():
                tolerance = 1e-13 if dtype is np.float64 else 3e-6
                np.testing.assert_allclose(
                    found[key], value, rtol=tolerance, atol=tolerance, err_msg=f"{name} {key} of {rows}"
                )


def gated(program: Program) -> list[Kernel]:
    (procedure,) = program.procedures
    return [k for k in procedure.kernels if k.nest.is_tiled and contraction_of(k.nest).gates]


def test_gates_that_exceed_the_registers_are_summed_in_passes(programs: dict[str, Program]) -> None:
    """Four rows of four gates are sixteen sums, and AVX2 has as many registers; each pass writes its sums to memory."""
    (kernel,) = gated(programs["lstm64"])
    plan = schedule(contraction_of(kernel.nest), V3)
    rows = prod(count for name, count in plan.counts.items() if name not in ("g", "j"))
    assert plan.passes > 1 and rows > 2 and f"passes={plan.passes}" in str(plan)
    statements = [s for s in walk(tile(kernel.nest, V3).body) if isinstance(s, Store) and s.array.name == "sums"]
    assert len(statements) >= rows * 4
    (narrow,) = gated(lower(passed(_of_width(256))))
    assert schedule(contraction_of(narrow.nest), V3).counts["j"] % 2 == 0  # whole lines of panels larger than a cache


def _of_width(units: int) -> Any:
    net = layer("LSTM", units)

    def forward(x: Any) -> Any:
        return net(x)[0]

    forward.__annotations__ = {"x": mlaot.f32[STEPS, batch, 7]}
    return mlaot.model(parameters=net)(forward)


def test_the_gates_of_every_step_are_one_kernel(programs: dict[str, Program]) -> None:
    for name, (_, count) in LAYERS.items():
        assert len(gated(programs[name])) == count, name


def test_a_step_is_one_kernel(programs: dict[str, Program]) -> None:
    """What it reads and what it writes: no gate is stored."""
    (kernel,) = gated(programs["lstm21"])
    assert sum(p.written for p in kernel.params) == 3  # the cell in place, the new state, the output
    (procedure,) = programs["lstm21"].procedures
    (loop,) = [s for steps in procedure.steps if isinstance(steps, Steps) for s in steps.inner if isinstance(s, Loop)]
    assert loop.steps == (kernel,)
    assert {array.panels.width for array in kernel.nest.params if array.panels} == {16}
