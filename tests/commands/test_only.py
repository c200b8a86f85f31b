"""``mlaot passes --only``: one pass on the text of a graph, found by its file's name."""

from __future__ import annotations

import io

import pytest

from mlaot import passes
from mlaot.cli import main
from mlaot.ir import parse
from mlaot.passes import names

NEGATED = """\
graph f:
  v0 = input(name=x) : f32[2]
  v1 = neg(v0) : f32[2]
  v2 = neg(v1) : f32[2]
  return y=v2
"""
PRODUCT = """\
graph f:
  v0 = input(name=x) : f32[n,3]
  v1 = input(name=w, parameter=True) : f32[3,4]
  v2 = mul(v1, v1) : f32[3,4]
  v3 = contract(v0, v2, spec=ab,bc->ac) : f32[n,4]
  return y=v3
"""


def run(monkeypatch: pytest.MonkeyPatch, name: str, source: str) -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO(source))
    return main(["passes", "--only", name])


def test_one_pass(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "simplify", f"# after trace\n{NEGATED}\n{NEGATED}") == 0
    assert capsys.readouterr().out == "graph f:\n  v0 = input(name=x) : f32[2]\n  return y=v0\n\n" * 2


def test_weights_are_parameters(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "freeze", PRODUCT) == 0
    graph = parse(capsys.readouterr().out)
    assert [node.op.name for node in graph.nodes()] == ["input", "input", "contract"]


@pytest.mark.parametrize("name", names())
def test_each_pass_runs_on_its_own(name: str) -> None:
    for source in (NEGATED, PRODUCT):
        assert passes.run_one(name, parse(source))


@pytest.mark.parametrize(
    ("name", "source", "message"),
    [
        ("simplfy", NEGATED, "there is no pass 'simplfy'; did you mean 'simplify'?"),
        ("simplify", "", "no graph on the standard input; expected the text of one, such as MLAOT_DUMP prints"),
        ("simplify", NEGATED.replace("neg(v1)", "neg(v5)"), "line 4: expected a node above, in place of v5, got"),
    ],
)
def test_what_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, source: str, message: str
) -> None:
    assert run(monkeypatch, name, source) == 1
    assert capsys.readouterr().err.startswith(f"mlaot: {message}")
