"""``mlaot bisect``: right models are found right, and a planted wrong pass is named."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mlaot import passes
from mlaot.frontend.trace.declaration import Traced
from mlaot.ir import Graph
from mlaot.ir.module import Module
from mlaot.nest.reductions import identity
from mlaot.nest.statements import Body, For, Nest
from mlaot.ops import elementwise as ew
from mlaot.ops import structure as st
from mlaot.passes.base import pass_over
from mlaot.schedule.machine import MACHINES, Machine
from mlaot.schedule.nests import schedule_nest

from .conftest import Cli

MODEL = """\
import mlaot
import numpy as np
from mlaot import nn, optim

net = nn.Sequential(nn.Linear(4, 8, rng=0), nn.Tanh(), nn.Linear(8, 3, rng=1))
layers = nn.Sequential(nn.Conv2d(1, 4, 3, rng=0), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2, rng=1))

def loss(y, target: mlaot.f32[3]):
    return ((y - target) ** 2).sum()

@mlaot.model(parameters=net, loss=loss, optimizer=optim.Adam())
def rows(x: mlaot.f32[4]):
    return net(x)

@mlaot.model(parameters=net)
def example(x: mlaot.f32[4]):
    return net(x), mlaot.softmax(net(x))

@mlaot.model(parameters=layers)
def images(x: mlaot.f32[mlaot.dim("n"), 1, 8, 8]):
    return layers(x)
"""

SIZED = """\
import mlaot
import numpy as np

w = mlaot.Parameter("w", np.ones(300, np.float32))

@mlaot.model(parameters={"w": w}, loss=lambda y: y * y)
def f(x: mlaot.f32[1]):
    return np.sum(w * x)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bisected.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "bisected", raising=False)
    return tmp_path


@pytest.mark.parametrize("name", ["example", "images", "rows"])
def test_a_model_that_is_right(name: str, cli: Cli) -> None:
    result = cli("bisect", f"bisected:{name}")
    assert (result.status, result.err) == (0, "")
    passes_, nests = result.out.splitlines()
    assert passes_.startswith("model.nn: right after all passes (")
    assert nests.startswith("model.nn: right as loop nests for base, neon, v3, v4 (")


@pytest.mark.parametrize("at", ["fold_constants", "contract", "legalize"])
def test_a_wrong_pass_is_named(at: str, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    right = next(stage for stage in passes.PIPELINE if stage.name == at)

    def wrong(module: Module, traced: Traced) -> None:
        right.run(module, traced)
        for graph in module.graphs.values():
            spoil(graph)

    wrong.__name__ = at
    planted = pass_over("declaration", after=right.after)(wrong)
    stages = [planted if stage is right else stage for stage in passes.PIPELINE]
    monkeypatch.setattr(passes, "PIPELINE", tuple(stages))
    result = cli("bisect", "bisected:example")
    assert result.status == 1
    lines = result.out.splitlines()
    assert len(lines) == 1 and lines[0].startswith(f"model.nn: wrong after {at}: ")
    assert lines[0].endswith(" of the largest element") and " gives another " in lines[0] and "off by " in lines[0]


def spoil(graph: Graph) -> None:
    """The last output 1 % too large."""
    key = list(graph.outputs)[-1]
    node = graph.outputs[key].find()
    factor = graph.constant(1.01, node.type.dtype)
    graph.outputs[key] = ew.mul(node, st.broadcast(factor, shape=node.type.shape, axes=()))


@pytest.mark.parametrize("machine", MACHINES)
def test_a_wrong_schedule_is_named(machine: str, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one kernel for one machine: the last loop is one round too short."""

    def wrong(nest: Nest, on: Machine) -> Nest:
        found, is_it = schedule_nest(nest, on), any("tanh" in line for line in nest.doc)
        return replace(found, body=shorter(found.body)) if on.name == machine and is_it else found

    monkeypatch.setattr("mlaot.bisect_nests.schedule_nest", wrong)
    result = cli("bisect", "bisected:example")
    assert result.status == 1
    fault = result.out.splitlines()[-1]
    assert fault.startswith(f"model.nn: wrong after the schedule of weight_product for {machine}: forward gives ")
    assert fault.endswith("= tanh(v1) : f32[batch,8]")  # the nodes that the kernel computes


def test_wrong_lowering_is_named(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums that start with the wrong number."""
    monkeypatch.setattr(
        "mlaot.lower.contraction.identity", lambda name, dtype: replace(identity(name, dtype), value=0.5)
    )
    result = cli("bisect", "bisected:images")
    assert result.status == 1
    assert result.out.splitlines()[-1].startswith("model.nn: wrong after lowering: forward gives another ")


def shorter(body: Body) -> Body:
    """A body whose last loop has one round less."""
    for i, s in reversed([*enumerate(body)]):
        if isinstance(s, For):
            inner = shorter(s.body)
            new = replace(s, body=inner) if inner != s.body else replace(s, high=s.high - s.step)
            return (*body[:i], new, *body[i + 1 :])
    return body


def test_a_wrong_schedule_for_arrays_of_any_size_is_named(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that is told how many elements it has."""

    def wrong(nest: Nest, on: Machine) -> Nest:
        found = schedule_nest(nest, on)
        return replace(found, body=shorter(found.body)) if "elements" in nest.dims and on.name == "v3" else found

    Path("sized.py").write_text(SIZED)
    monkeypatch.setattr("mlaot.bisect_nests.schedule_nest", wrong)
    result = cli("bisect", "sized:f")
    assert (result.status, result.err) == (1, "")
    assert re.search(r"wrong after the schedule of \w*update\w* for v3: \w+ gives another write w, ", result.out)
