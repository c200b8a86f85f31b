"""Programs are printed, read back, and then give the same answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import nn
from mlaot.generate import compile_model
from mlaot.interpret import Interpreter, instance
from mlaot.lower.program import Program
from mlaot.lower.text import parse_program, program_text
from mlaot.nn import functional as F
from mlaot.schedule.machine import MACHINES
from mlaot.settings.options import Options

batch, steps = mlaot.dim("batch"), mlaot.dim("steps")
net = nn.Sequential(nn.Linear(6, 40, rng=0), nn.Tanh(), nn.Linear(40, 5, rng=1))
recurrent = nn.LSTM(6, 8, rng=0)


def trained() -> Any:
    def forward(x: Any) -> Any:
        return net(x)

    def loss(y: Any, label: Any) -> Any:
        return F.cross_entropy(y, label)

    forward.__annotations__ = {"x": mlaot.f32[batch, 6]}
    loss.__annotations__ = {"label": mlaot.i64[batch]}
    return mlaot.model(parameters=net, loss=loss, optimizer=mlaot.optim.Adam(lr=0.01))(forward)


def frozen() -> Any:
    @mlaot.model(parameters=recurrent)
    def forward(x: mlaot.f32[steps, batch, 6]) -> Any:  # type: ignore[valid-type]
        return recurrent(x)[0]

    return forward


def branching() -> Any:
    @mlaot.model
    def forward(x: mlaot.f64[7]) -> Any:  # type: ignore[valid-type]
        doubled = mlaot.while_loop(lambda v: np.sum(v) < 100.0, lambda v: v * 2, np.abs(x) + 1, bound=20)
        return mlaot.cond(np.sum(x) > 0, lambda v: v + 1, lambda v: v - 1, doubled)

    return forward


MODELS = {"trained": trained, "frozen": frozen, "branching": branching}


def program(name: str) -> Program:
    return compile_model(MODELS[name](), "pkg.nn", Options(isas=tuple(MACHINES)))


@pytest.mark.parametrize("name", MODELS)
def test_text_is_read_back(name: str) -> None:
    text = program_text(program(name))
    again = parse_program(text)
    assert program_text(again) == text and str(again) == str(program(name))


@pytest.mark.parametrize("name", MODELS)
def test_what_is_read_back_gives_the_same(name: str) -> None:
    before = program(name)
    after = parse_program(program_text(before))
    rng = np.random.default_rng(0)
    for entry in (p.entry for p in before.procedures):
        dims = {"batch": 3, "steps": 2}
        sizes = {port.name: [dims.get(str(d), d) for d in port.shape] for port in entry.inputs}
        inputs = {
            p.name: rng.integers(0, 5, sizes[p.name]).astype(mlaot.ir.types.DTYPES[p.dtype].numpy) for p in entry.inputs
        }
        known = {d: dims[d] for d in dims if any(d in map(str, p.shape) for p in entry.inputs)}
        known = {d: known.get(d, 1) for d in before.module.dims}
        answers = []
        for found in (before, after):
            memory = instance(found.module)
            outputs = Interpreter(found, MACHINES["v3"]).call(entry.name, inputs, known, memory)
            answers.append([*(outputs[key].tobytes() for key in outputs), memory.state.tobytes()])
        assert answers[0] == answers[1], entry.name


WRONG = {
    "1 +": "line 1: invalid syntax",
    "x.y": "line 1: expected a nest or an object with a name",
    "a = open('x')": "line 1: open('x') is no part of a program",
    "b0 = Buffer(name='x')": "line 1: expected Buffer(dtype, name, shape, strides, where)",
    "a = 1": "line 1: expected program = Program(..)",
}


@pytest.mark.parametrize("text", WRONG)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_program(text)
    assert str(caught.value) == WRONG[text]
