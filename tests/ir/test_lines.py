"""Which line of the user's code a node is for, from the trace through rewrites to kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import mlaot
from mlaot import nn
from mlaot.generate import compile_model
from mlaot.ir import DTYPES, Graph, Type
from mlaot.ir.text import text
from mlaot.nn import functional as F
from mlaot.onnx.protos import line_of, part_of
from mlaot.ops import elementwise as ew
from mlaot.settings.options import Options

batch = mlaot.dim("batch")


def line(code: str) -> str:
    """Where the code stands in this file."""
    before, found, _ = Path(__file__).read_text(encoding="utf-8").partition(code)
    assert found
    return f"{Path(__file__).name}:{before.count(chr(10)) + 1}"


class Net(nn.Module):
    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.conv, self.fc = nn.Conv2d(3, 16, 3, padding=1, rng=rng), nn.Linear(16, 5, rng=rng)

    def forward(self, x: Any) -> Any:
        h = F.relu(self.conv(x))
        h = h.mean(axis=(-2, -1))
        return self.fc(h)


net = Net()


def loss(scores: Any, label: mlaot.i64[batch]) -> Any:
    return F.cross_entropy(scores, label)


@mlaot.model(parameters=net, loss=loss)
def model(x: mlaot.f32[batch, 3, 8, 8]) -> Any:
    return net(x / 2.0)


def test_kernels_know_their_line() -> None:
    """Also those of blocked layouts, and of gradients, which are for the line of what they differentiate."""
    program = compile_model(model, "m.nn", Options(isas=("v3",)))
    lines: dict[str, dict[str, set[str]]] = {}
    for procedure in program.procedures:
        for kernel in procedure.kernels:
            lines.setdefault(procedure.entry.name, {}).setdefault(kernel.origin, set()).add(kernel.line)
    expected = {"conv": "self.conv(x)", "relu": "h = h.mean", "fc": "return self.fc(h)", "div": "net(x / 2.0)"}
    assert lines["forward"] == {part: {line(code)} for part, code in expected.items()}
    gradients = {"conv.grad": "self.conv(x)", "fc.grad": "return self.fc(h)", "cross_entropy.grad": "return F.cross"}
    for part, code in (expected | gradients).items():
        assert lines["train_step"][part] == {line(code)}, part


def test_a_better_node_takes_what_it_does_not_know() -> None:
    """Its part and its line are those of the node that it stands for, unless it was made with its own."""
    graph = Graph("g")
    x = graph.input("x", Type(DTYPES["f32"], (2,)))
    graph.origin, graph.line = "layer", "model.py:3"
    old = ew.exp(x)
    graph.origin, graph.line = "other", "model.py:9"
    own = ew.abs_(x)
    graph.origin = graph.line = ""
    better = ew.neg(x)
    graph.forward(old, better)
    assert (better.origin, better.line) == ("layer", "model.py:3")
    graph.forward(better, own)
    assert (own.origin, own.line) == ("other", "model.py:9")


def test_graphs_show_lines_to_people_only() -> None:
    traced = model.trace().graph
    rows = [row for row in text(traced, sources=True).splitlines() if "contract(" in row]
    assert [row.partition("  # ")[2] for row in rows] == [line("self.conv(x)"), line("return self.fc(h)")]
    assert "#" not in str(traced)


FRAMES = (
    'File "/usr/lib/site-packages/torch/nn/modules/container.py", line 253, in forward\n    input = module(input)\n'
    'File "my project/net.py", line 12, in forward\n    return self.act(x)\n'
    'File "C:\\\\site-packages\\\\torch\\\\nn\\\\modules\\\\activation.py", line 143, in forward\n    return F.relu(x)'
)


@pytest.mark.parametrize(
    ("notes", "part", "where"),
    [
        ({}, "encoder.fc1", ""),
        ({"pkg.torch.onnx.name_scopes": "['', 'blocks', 'blocks.0', 'relu_1']"}, "blocks.0", ""),
        ({"pkg.torch.onnx.name_scopes": "['', 'relu']"}, "relu", ""),
        ({"pkg.torch.onnx.name_scopes": "['relu']", "pkg.torch.onnx.stack_trace": FRAMES}, "relu", "net.py:12"),
        ({"pkg.torch.onnx.name_scopes": "damaged", "pkg.torch.onnx.stack_trace": "damaged"}, "encoder.fc1", ""),
    ],
)
def test_notes_of_exporters(notes: dict[str, str], part: str, where: str) -> None:
    node = onnx.helper.make_node("Gemm", ["x"], ["y"], name="/encoder/fc1/Gemm")
    for key, value in notes.items():
        node.metadata_props.add(key=key, value=value)
    assert (part_of(node), line_of(node)) == (part, where)
