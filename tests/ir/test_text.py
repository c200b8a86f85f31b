"""Graphs are read back from their text: the same text again, and the same numbers where it has all of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import nn, passes
from mlaot.errors import MlaotError
from mlaot.evaluate import evaluate
from mlaot.ir import Graph, Literal, Type, dim, parse, verify
from mlaot.ir.text import parse_all, text
from mlaot.ir.types import f32, f64, i64
from mlaot.ops import elementwise as ew
from mlaot.ops import structure as st

from ..fuzz.tensors import make_case
from ..ops.samples import SAMPLES
from ..ops.test_c import cases, graph_of

EXAMPLES = Path(__file__).parents[2] / "examples"


def read_back(graph: Graph) -> Graph:
    """The graph of the text, which is the same text in both forms."""
    assert str(parse(str(graph))) == str(graph)
    assert text(parse(text(graph))) == text(graph)
    whole = text(graph, inline=None)
    again = parse(whole)
    assert text(again, inline=None) == whole
    verify(again, "reading")
    return again


def assert_same(graph: Graph, inputs: dict[str, Any], dims: dict[str, int]) -> None:
    expected, found = evaluate(graph, inputs, dims=dims), evaluate(read_back(graph), inputs, dims=dims)
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)


@pytest.mark.parametrize("name", SAMPLES)
def test_every_op(name: str) -> None:
    made = [graph_of(name, sample, dtype) for dtype in (f32, i64) for sample in cases(name, dtype)]
    for graph, inputs in filter(None, made):
        assert_same(graph, inputs, {})


@pytest.mark.parametrize("first", range(0, 100, 50))
def test_random_graphs(first: int) -> None:
    for seed in range(first, first + 50):
        case = make_case(seed)
        dims, inputs = case.trials[0] if case.trials else ({}, {})
        read_back(case.reference)
        if case.trials:
            assert_same(case.reference, inputs, dims)


def network() -> Any:
    net = nn.Sequential(nn.Linear(6, 8, rng=0), nn.LSTM(8, 4, rng=1))

    @mlaot.model(parameters=net)  # type: ignore[untyped-decorator]
    def model(x: mlaot.f32[dim("n"), 6]) -> Any:  # type: ignore[valid-type]
        return net(x)[0]

    return model


def test_graphs_after_each_pass(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLAOT_DUMP", "all")
    passes.run("m", network().trace())
    printed = capsys.readouterr().err
    graphs = parse_all(printed)
    assert len(graphs) > 40
    assert [text(graph) for graph in graphs] == re.sub(r"# after.*\n", "", printed).strip().split("\n\n")


@pytest.mark.parametrize("name", ["digits/train", "lenet", "moons", "xor"])
def test_graphs_of_the_examples_after_each_pass(name: str) -> None:
    command = [sys.executable, "-m", "mlaot", "passes"]
    environ = os.environ | {"MLAOT_DUMP": "all"}
    done = subprocess.run(command, cwd=EXAMPLES / name, env=environ, capture_output=True, text=True, check=True)
    sources = re.findall(r"^# after .*\n((?:.+\n)+)", done.stderr, re.MULTILINE)
    assert len(sources) > 40
    for source in set(sources):
        assert text(parse(source)) == source.rstrip()


def test_numbers_that_are_left_out_are_others_of_the_same_text() -> None:
    graph = Graph("f")
    graph.outputs["y"] = ew.add(graph.input("x", f32[100]), graph.constant(np.arange(100), f32))
    assert re.search(r"const\(value=numbers\('f32\[100\]', '[0-9a-f]{16}'\)\) : f32\[100\]", str(graph))
    graph = parse(str(graph))
    assert np.isfinite(evaluate(graph, {"x": np.zeros(100, np.float32)})["y"]).all()


def test_bits_order_and_odd_names() -> None:
    graph = Graph("odd name")
    b, a = graph.input("b, (c)", f64[3], parameter=True), graph.input("it's", f64[3])
    graph.input("spare", Type(f32, (dim("n") * 2 + 1,)))
    nan = np.array([0x7FF8000000000123, 0xFFF8000000000000, 0], np.uint64).view(np.float64)
    graph.outputs = {"b=1": ew.add(ew.add(a, graph.constant(nan, f64)), b)}
    graph.outputs["none"] = st.take(a, indices=Literal(np.zeros((0, 3)), i64), lead=0)
    graph.writes["b, (c)"] = ew.neg(b)
    again = read_back(graph)
    assert list(again.inputs) == list(graph.inputs) and again.name == graph.name
    assert [n.attrs for n in again.nodes()] == [n.attrs for n in graph.nodes()]


def test_equal_nodes_stay_two() -> None:
    graph = Graph("f")
    a, b = (graph.input(name, f32[2]) for name in "ab")
    graph.outputs = {"y": ew.sub(ew.exp(a), ew.exp(b))}
    graph.forward(a, b)
    assert str(graph).count("exp") == 2
    read_back(graph)


GOOD = """\
graph f:
  v0 = input(name=x) : f32[2]
  v1 = exp(v0) : f32[2]
  v2 = sum(v1, axes=(0,)) : f32[]
  return y=v2
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("graph f:", "graph", r"line 1: expected graph NAME: before its nodes, got 'graph'"),
        ("graph f:", "graph f", r"line 1: expected graph NAME: or graph NAME NUMBER\(INPUTS\):, got 'graph f'"),
        ("exp(v0)", "exq(v0)", r"line 3: expected an op; did you mean 'exp'\?, got 'v1 = exq"),
        ("exp(v0)", "exp(v7)", r"line 3: expected a node above, in place of v7, got"),
        ("exp(v0)", "exp(v0", r"line 3: expected vN = OP\(ARGUMENTS\) : TYPE, or return NAME=vN, got"),
        ("exp(v0) : f32[2]", "exp(v0) : f32[3]", r"line 3: expected the type f32\[2\], got"),
        ("exp(v0) : f32[2]", "exp(v0) : g32[3]", r"line 3: expected a type such as f32\[batch,64\] behind the colon"),
        ("v1 = exp", "v0 = exp", r"line 3: expected a new name, as v0 stands above"),
        ("(0,)", "(0,", r"line 4: expected nodes and KEY=VALUE between the parentheses"),
        ("(0,)", "print(0)", r"line 4: expected a value for axes \(print\(\) is none\)"),
        (", axes=(0,)", ", axis=0", r"line 4: expected what sum takes \(.*axis.*\)"),
        ("y=v2", "y=v9", r"line 5: expected NAME=vN, with the number of a node above"),
        ("  return y=v2\n", "", r"line 4: expected a line with return behind it"),
        ("y=v2\n", "y=v2\n  more\n", r"line 6: expected write SLOT=vN, or another graph, got 'more'"),
        (GOOD, "", r"expected the text of one graph, got 0"),
    ],
)
def test_errors_name_the_line_and_what_was_expected(old: str, new: str, message: str) -> None:
    assert str(parse(GOOD)) == GOOD.rstrip()
    with pytest.raises(MlaotError, match=message):
        parse(GOOD.replace(old, new))


def test_a_subgraph_that_is_missing() -> None:
    case = next(c for s in range(200) if "<body 1:" in str((c := make_case(s)).reference))
    source = re.sub(r"graph body 1\(", "graph body 7(", str(case.reference))
    with pytest.raises(MlaotError, match=r"line \d+: expected a graph body 1 below"):
        parse(source)
