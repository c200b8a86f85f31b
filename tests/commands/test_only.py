"""``mlaot passes --only``: one pass on the text of a graph, found by its file's name."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from mlaot import passes
from mlaot.cli import main
from mlaot.ir import parse
from mlaot.lower.text import parse_program
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


def test_lowering(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "lower", PRODUCT) == 0
    text = capsys.readouterr().out
    program = parse_program(text)
    assert [kernel.doc[0].split(" = ")[1].split("(")[0] for kernel in program.procedures[0].kernels] == [
        "mul",
        "contract",
    ]
    assert "acc = acc + (x[i * 3 + k] * t0[j + k * " in text


def test_the_program_is_dumped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "dumped.py").write_text("import mlaot\n@mlaot.model\ndef f(x: mlaot.f32[40]):\n    return x * 2\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLAOT_DUMP", "lower")
    assert main(["inspect", "dumped:f"]) == 0
    text = capsys.readouterr().err
    assert parse_program(text).procedures[0].entry.name == "forward"


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
