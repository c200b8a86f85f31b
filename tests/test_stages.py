"""A build that takes long says what it is at, and where in the user's code; one that is fast says nothing.

No test looks at a clock: a stage lasts until its line has come, and patience is a moment, or without an end.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from mlaot import stages
from mlaot.errors import MlaotError, building, place_in_project
from mlaot.stages import BUILD, PASSES, State, follow, print_lines, report_progress, stage, stages_of, write_states

from .commands.conftest import Cli, cli, complaint, start

__all__ = ["cli"]

WAIT = """\
import sys, time
from pathlib import Path

def wait(name):
    while not Path(name).exists():
        time.sleep(0.001)

"""
MODEL = (
    WAIT
    + """\
import mlaot

wait("imported")

@mlaot.model
def model(x: mlaot.f32[2]):
    wait("traced")
    return x + 1
"""
)


class Said:
    """What has gone to stderr so far."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys, self.text = capsys, ""

    def __str__(self) -> str:
        self.text += self.capsys.readouterr().err
        return self.text

    def forget(self) -> None:
        self.text = str(self) and ""


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Said:
    """Where a moment is too long."""
    monkeypatch.setenv("MLAOT_PATIENCE", "0.001")
    return Said(capsys)


def wait_for(said: Said, text: str) -> None:
    """Until that was said."""
    while text not in str(said):
        time.sleep(0.001)


def test_stages_inside_of_each_other(said: Said) -> None:
    with report_progress(), stage("outer"):
        wait_for(said, " s since the start\n")
        with stage("inner", 2) as advance:
            wait_for(said, "mlaot: inner, ")
            advance("a.c")
            wait_for(said, "mlaot: inner 1 of 2 (a.c), ")
            advance("b.c")
            wait_for(said, "mlaot: inner 2 of 2 (b.c), ")
        said.forget()
        wait_for(said, "mlaot: outer, ")
    done = str(said)
    time.sleep(0.01)  # nobody is left to say anything
    assert str(said) == done


def test_one_voice(said: Said) -> None:
    """A build inside of another does not speak too, and nothing is said between stages."""
    with report_progress():
        with report_progress(), stage("outer"):
            wait_for(said, "outer")
        before = str(said)
        for _ in range(20):
            time.sleep(0.001)
        assert len(str(said).splitlines()) <= len(before.splitlines()) + 1  # which was on its way


def test_the_same_again_comes_less_often(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "REPEAT_AFTER", 10**9)
    with report_progress(), stage("long"):
        wait_for(said, "long")
        for _ in range(20):
            time.sleep(0.001)
    assert str(said).count("long") == 1


def test_a_line_for_each_stage(said: Said) -> None:
    """Not one for each number, nor where two stages take turns."""
    show = print_lines(BUILD, 1e9, 0)
    x, y = State("a", "x"), State("a", "y")
    for state in (x._replace(number=1, total=2), x._replace(number=2, total=2), y, State(), x, State("b", "x")):
        show(state)
    assert [line.partition(", ")[0] for line in str(said).splitlines()] == [
        "mlaot: a: x 1 of 2",
        "mlaot: a: y",
        "mlaot: b: x",
    ]
    said.forget()
    print_lines(BUILD, 1e9, 1e9)(State("a", "x"))  # the build has only begun
    assert str(said) == ""


def test_which_stage_of_which_model(said: Said) -> None:
    with report_progress(), stages_of("a.b", ["a.a", "a.b"]), stage(PASSES, 2) as advance:
        wait_for(said, "mlaot: a.b (2 of 2): passes, stage 4 of 10, ")
        advance("simplify")
        wait_for(said, "mlaot: a.b (2 of 2): passes 1 of 2 (simplify), stage 4 of 10, ")
    with report_progress((PASSES,)), stages_of("a.b", ["a.b"]), stage(PASSES):
        wait_for(said, "mlaot: a.b: passes, stage 1 of 1, ")


def test_another_process_reports(said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "state"
    with report_progress(), follow(file) as environ:
        write_states(file)(State("a.b", "compiling", 3, 5, "nn_v3.c"))
        wait_for(said, "mlaot: a.b: compiling 3 of 5 (nn_v3.c), stage 8 of 10, ")
        file.write_text("[1, ")
        with stage("own"):
            wait_for(said, "mlaot: own, ")
    said.forget()
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with report_progress(), stage("theirs", 2):
        while "theirs" not in file.read_text():
            time.sleep(0.001)
    assert State(*json.loads(file.read_text())) == State()
    assert str(said) == ""


def test_a_bar_is_gone_when_its_stage_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a moment later: what is printed next must not come in between."""
    shown: list[State] = []
    monkeypatch.setenv("MLAOT_PATIENCE", "1000000")
    monkeypatch.setattr(stages, "print_lines", lambda *_: shown.append)
    monkeypatch.setattr(stages, "TICK", 1000.0)
    with report_progress():
        with stage("outer"), stage("inner"):
            pass
        assert shown == [State()]


def test_without_a_build_nothing_is_said(said: Said) -> None:
    with stage("alone", 2) as advance:
        advance("still alone")
        time.sleep(0.01)
    assert str(said) == ""


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan"])
def test_no_patience(text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cli: Cli) -> None:
    monkeypatch.setenv("MLAOT_PATIENCE", text)
    with pytest.raises(MlaotError, match="expected seconds such as 5, or inf"), report_progress():
        pass
    (tmp_path / "pyproject.toml").write_text("[project]\nname='a'\n[tool.mlaot.models.nn]\nmodel='a:b'\n")
    assert complaint(cli("passes", tmp_path)).startswith("mlaot: the environment variable MLAOT_PATIENCE is ")


@pytest.mark.parametrize("command", [["emit", "slow:model", "--out", "c"], ["build"]])
def test_a_model_that_takes_long(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(MODEL)
    (tmp_path / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["mlaot"]\nbuild-backend = "mlaot.build"\n[project]\nname = "slow"\nversion = "1"\n'
        '[tool.mlaot]\nisa = ["base"]\n[tool.mlaot.models.nn]\nmodule = "made.nn"\nmodel = "slow:model"\n'
    )
    lines = {"importing (slow:model), stage 2 of ": "imported", "tracing, stage 3 of ": "traced"}
    with start(*command, cwd=tmp_path, MLAOT_PATIENCE="0.01") as process:
        assert process.stdout is not None and process.stderr is not None
        for wanted, name in lines.items():
            ends = "at slow.py:5\n", "at slow.py:6\n"
            found = any(wanted in line and line.endswith(ends) for line in process.stderr)
            (tmp_path / name).touch()
            assert found
        process.stderr.read()
        process.stdout.read()
    assert process.returncode == 0


def test_a_fast_build_says_nothing(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLAOT_PATIENCE", "1000000")
    Path("fast.py").write_text("import mlaot\n\n@mlaot.model\ndef model(x: mlaot.f32[2]):\n    return x + 1\n")
    assert cli("emit", "fast:model", "--out", "c").err == ""


@pytest.mark.parametrize(("name", "place"), [("model.py", "model.py:1"), ("v/bin/mlaot", ""), ("/else/model.py", "")])
def test_places_are_those_of_the_projects_modules(tmp_path: Path, name: str, place: str) -> None:
    """Not those of the script that runs a command, which may lie in an environment in the project's folder."""
    names = {"frame": sys._getframe}
    exec(compile("found = frame()", str(tmp_path / name), "exec"), names)
    with building(tmp_path):
        assert place_in_project()(names["found"]) == place
