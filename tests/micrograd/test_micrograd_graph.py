"""Pictures, counts and listings of graphs, and the node counts of the two posts' networks."""

from __future__ import annotations

import random
import shutil
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlaot.errors import MlaotError
from mlaot.frontend.scalar.graph import Drawing, ssa
from mlaot.micrograd import MLP, Dot, Neuron, Value, count, cross_entropy, draw_dot, fma_chances, pretty, trace


class DotNeuron(Neuron):
    """A neuron that is one ``Dot`` and one ``+``, as in the first post's second table."""

    def __call__(self, x: Any) -> Value:
        act = Dot(self.w, x) + self.b
        return act.relu() if self.nonlin else act


def network() -> MLP:
    """784-50-10 with the posts' seed."""
    random.seed(1337)
    return MLP(784, [50, 10])


def dot_network() -> MLP:
    """The same of ``Dot`` neurons."""
    model = network()
    for layer in model.layers:
        for neuron in layer.neurons:
            neuron.__class__ = DotNeuron
    return model


def leaves(n: int) -> list[Value]:
    """Inputs, labelled as the fork labels them."""
    return [Value(0, (), "input") for _ in range(n)]


def loss_graph(model: MLP) -> Value:
    """The first post's loss."""
    outputs = model(leaves(784))
    assert isinstance(outputs, list)
    return cross_entropy(outputs, leaves(10))


def test_row_41_first_post_counts() -> None:
    """120,137 nodes: ``+`` 39,740, ``*`` 39,731."""
    counts = count(loss_graph(network()))
    assert counts == {
        "": 39_700 + 60 + 23,  # weights, biases, constants
        "input": 794,
        "+": 39_740,
        "*": 39_731,
        "ReLU": 50,
        "max": 9,
        "exp": 10,
        "**-1": 10,
        "log": 10,
    }
    assert counts.total() == 120_137


def test_row_41_first_post_counts_with_dot() -> None:
    """40,857 nodes: 60 ``dot``, ``+`` 100, ``*`` 31."""
    counts = count(loss_graph(dot_network()))
    assert (counts["dot"], counts["+"], counts["*"], counts[""]) == (60, 100, 31, 39_700 + 60 + 23)
    assert counts.total() == 40_857


def test_row_60_second_post_counts() -> None:
    """``sum(model)`` is 120,005 nodes: ``+`` 39,710, ``*`` 39,700; an ``Array`` of the outputs is the rest."""
    outputs = network()(leaves(784))
    assert isinstance(outputs, list)
    counts = count(sum(outputs))
    assert counts == {"": 39_761, "+": 39_710, "*": 39_700, "input": 784, "ReLU": 50}
    assert counts.total() == 120_005
    # Ten additions and the 0 that sum() starts from fall away, one array comes.
    assert count(Value(0, outputs, "array")).total() == 120_005 - 11 + 1


def test_row_34_fused_multiply_add_chances() -> None:
    """39,730 sums have a product as an argument, 30 where neurons are ``Dot``."""
    losses = [loss_graph(model) for model in (network(), dot_network())]
    assert [fma_chances(loss) for loss in losses] == [39_730, 30]
    assert [count(loss).total() for loss in losses] == [120_137, 40_857]  # nothing is replaced


def calls_in(work: Callable[[], object]) -> int:
    """How many functions are called, of Python and of C: the same on every machine, however busy it is."""
    calls = 0

    def hook(frame: object, event: str, arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(hook)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def test_row_41_building_is_quick_and_small() -> None:
    """The first post's graph takes less than 150 MB and 5.3 calls a node, some 0.15 s where the seed's takes 0.56 s."""
    assert calls_in(lambda: loss_graph(network())) < 7 * 120_137
    tracemalloc.start()
    loss = loss_graph(network())
    size, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert loss._prev
    assert size <= peak < 150e6


def test_row_15_trace() -> None:
    """All nodes once and all edges (argument, user) once."""
    x = Value(1.0)
    two, one = Value(2), Value(1)
    product = x * two
    total = product + one
    y = total.relu()
    nodes, edges = trace(y)
    assert nodes == {x, two, one, product, total, y}
    assert edges == {(x, product), (two, product), (product, total), (one, total), (total, y)}


def test_row_15_draw_dot() -> None:
    """Boxes with data and gradient, circles with ops; ``x * x`` shows two edges."""
    x = Value(1.5)
    y = (x * x).relu()
    y.backward()
    drawing = draw_dot(y, rankdir="TB")
    assert drawing.source == str(drawing)
    assert drawing.source == (
        "digraph {\n"
        "  rankdir=TB\n"
        '  v0 [label="{ data 1.5000 | grad 3.0000 }" shape=record]\n'
        '  v1 [label="{ data 2.2500 | grad 1.0000 }" shape=record]\n'
        '  v1_op [label="*"]\n'
        "  v1_op -> v1\n"
        "  v0 -> v1_op\n"
        "  v0 -> v1_op\n"
        '  v2 [label="{ data 2.2500 | grad 1.0000 }" shape=record]\n'
        '  v2_op [label="ReLU"]\n'
        "  v2_op -> v2\n"
        "  v1 -> v2_op\n"
        "}\n"
    )
    assert "rankdir=LR" in draw_dot(y).source
    with pytest.raises(MlaotError, match="expected 'LR' or 'TB', got 'RL'"):
        draw_dot(y, rankdir="RL")


def test_row_15_draw_dot_without_graphviz(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The text is there all the same; a notebook falls back to it."""
    monkeypatch.setattr(shutil, "which", lambda program: None)
    drawing = draw_dot(Value(1.0))
    assert drawing._repr_svg_() is None
    with pytest.raises(MlaotError, match="install Graphviz"):
        drawing.render(tmp_path / "gout")
    assert list(tmp_path.iterdir()) == []


def test_row_15_draw_dot_runs_graphviz(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """``render`` and notebooks hand the text to the program ``dot``; here a stand-in that echoes it."""
    program = tmp_path / "dot"
    program.write_text('#!/bin/sh\necho "$1"\ncat\n')
    program.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(program) if name == "dot" else None)
    drawing = Drawing("digraph {}", "png")
    assert drawing._repr_svg_() == "-Tsvg\ndigraph {}"
    assert drawing.render(tmp_path / "gout") == str(tmp_path / "gout.png")
    assert (tmp_path / "gout.png").read_text() == "-Tpng\ndigraph {}"
    assert (tmp_path / "gout").read_text() == "digraph {}"


@pytest.mark.skipif(shutil.which("dot") is None, reason="needs Graphviz")
def test_row_15_graphviz_reads_the_drawing() -> None:
    """Graphviz itself takes the text."""
    svg = draw_dot((Value(1.0) * 2 + 1).relu() ** -1)._repr_svg_()
    assert svg is not None
    assert "<svg" in svg


def test_row_15_58_pretty(capsys: pytest.CaptureFixture[str]) -> None:
    """One line per op, arguments before users; constants as numbers, labelled leaves by name (rows 17 and 18 too)."""
    a, b = Value(0, (), "input"), Value(0, (), "input")
    y = (a * b + 2.5 + a).relu()
    pretty(y)
    text = "v2 = * v0 v1\nv4 = + v2 2.5\nv5 = + v4 v0\nv6 = ReLU v5\n"
    assert capsys.readouterr().out == text
    assert ssa(y) == text


def test_row_58_count() -> None:
    """A histogram of ops, each node counted once."""
    x = Value(2.0)
    assert count((x * x + x) ** 2) == {"": 1, "*": 1, "+": 1, "**2": 1}


def test_graphs_of_100_000_deep_are_listed() -> None:
    """None of these functions recurses."""
    x = y = Value(1.0)
    for _ in range(100_000):
        y = y + x
    assert count(y)["+"] == 100_000
    assert len(trace(y)[1]) == 199_999  # x + x has one edge
    assert ssa(y).endswith("v100000 = + v99999 1.0\n")
    assert draw_dot(y).source.count("->") == 300_000


def test_row_15_graphs_of_the_micrograd_package() -> None:
    """The same functions serve micrograd's own values, whose arguments are sets."""
    theirs = pytest.importorskip("micrograd.engine").Value
    x = theirs(1.0)
    y = (x * 2 + 1).relu()
    nodes, edges = trace(y)
    assert (len(nodes), len(edges)) == (6, 5)
    assert count(y) == {"": 3, "*": 1, "+": 1, "ReLU": 1}
    assert "data 3.0000" in draw_dot(y).source
    assert ssa(y).count("\n") == 3
