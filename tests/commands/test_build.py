"""``mlaot build``: what is said is said once and as it happens, and nothing is left of a build that failed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .conftest import Cli, complaint, edit

BACKENDS = ("mlaot.build", "setuptools.build_meta")


@pytest.fixture
def project(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What ``mlaot init`` writes, for one instruction set, with a print in the model."""
    monkeypatch.chdir(tmp_path)
    cli("init", "digits")
    with open("digits/pyproject.toml", "a") as file:
        file.write('\n[tool.mlaot]\nisa = ["base"]\n')
    edit(tmp_path / "digits" / "src" / "model.py", ("net = ", "print('traced here')\nnet = "))
    return tmp_path / "digits"


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_the_model_prints_is_shown(project: Path, cli: Cli, backend: str) -> None:
    edit(project / "pyproject.toml", ("mlaot.build", backend))
    result = cli("build", project, "--out", "wheels/here")
    assert result.status == 0, result
    begun, printed, *_, made = result.out.splitlines()
    assert (begun, printed) == ("mlaot: model:classify -> digits.nn", "traced here")
    assert made.startswith("digits-0.1.0-cp311-abi3-")
    assert "copying" not in result.out and "***" not in result.out  # what other tools say of each of their steps
    assert len(os.listdir("wheels/here")) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_failure_is_told_once(project: Path, cli: Cli, backend: str) -> None:
    edit(project / "pyproject.toml", ("mlaot.build", backend))
    edit(project / "src" / "model.py", ("return net(point)", "return net(pint)"))
    result = cli("build", project, "--out", "wheels/here")
    line = "src/model.py:30: NameError: name 'pint' is not defined"
    assert complaint(result) == f"mlaot: {line}"
    assert "traced here" in result.out and line not in result.out
    assert not Path("wheels").exists()


def test_an_earlier_wheel_stays(project: Path, cli: Cli) -> None:
    (project / "src" / "model.py").write_text("1 / 0\n")
    Path("dist").mkdir()
    assert complaint(cli("build", project)) == "mlaot: src/model.py:1: ZeroDivisionError: division by zero"
    assert os.listdir("dist") == []  # it was there before
    Path("dist/digits-0.0.whl").touch()
    cli("build", project)
    assert os.listdir("dist") == ["digits-0.0.whl"]


def test_a_backend_without_a_word(project: Path, cli: Cli) -> None:
    (project / "silent.py").write_text("import os\n\ndef build_wheel(*arguments):\n    os._exit(3)\n")
    edit(project / "pyproject.toml", ('"mlaot.build"', '"silent"\nbackend-path = ["."]'))
    assert complaint(cli("build", project)) == "mlaot: silent ended with status 3 and no word"
