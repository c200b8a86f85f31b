"""``mlaot bisect``: right models are found right, and a planted wrong pass is named."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mlaot import passes
from mlaot.frontend.declaration import Traced
from mlaot.ir import Graph
from mlaot.ir.module import Module
from mlaot.ops import elementwise as ew
from mlaot.ops import structure as st

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
    assert result.out.startswith("model.nn: right after all passes (")


@pytest.mark.parametrize("at", ["fold", "contract", "legalize"])
def test_a_wrong_pass_is_named(at: str, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    right = next(stage for stage in passes.PIPELINE if stage.__name__ == at)

    def wrong(module: Module, traced: Traced) -> None:
        right(module, traced)
        for graph in module.graphs.values():
            spoil(graph)

    stages = [passes.named(at, wrong) if stage is right else stage for stage in passes.PIPELINE]
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
