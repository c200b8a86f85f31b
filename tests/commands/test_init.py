"""``mlaot init``: what it writes builds and passes its test, and it never writes over anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from mlaot.commands.init import FILES as TEMPLATES
from mlaot.settings.reading import load_settings

from .. import projects
from .conftest import Cli, complaint

FILES = {".gitignore", "README.md", "pyproject.toml", "src/model.py", "src/digits/__init__.py", "tests/test_digits.py"}


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_the_wheel_passes_the_project_s_test(wheel: Path, tmp_path: Path) -> None:
    project = wheel.parents[1]
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tmp_path)
    assert {"small/__init__.py", "small/nn.abi3.so", "small/nn.pyi"} <= files(tmp_path)
    assert "1 passed" in projects.run("-m", "pytest", "-p", "no:cacheprovider", cwd=project, site=tmp_path)


def test_the_readme_works_as_printed(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line by a shell, where no index is in reach: what pip would install besides is here already."""
    assert cli("init", tmp_path / "digits").status == 0
    monkeypatch.chdir(tmp_path / "digits")
    steps = re.findall("^    (.*)$", Path("README.md").read_text(), re.MULTILINE)
    printed = "".join(f"  {step}\n" for step in steps).replace("digits", "again")
    assert cli("init", tmp_path / "again").out.endswith(printed)
    programs = tmp_path / "bin"
    programs.mkdir()
    pip = f'-m pip "$1" --target {tmp_path / "site"} --no-index --no-deps "$2"'
    for name, command in {"mlaot": '-m mlaot "$@"', "pip": pip, "pytest": '-m pytest -p no:cacheprovider "$@"'}.items():
        (programs / name).write_text(f"#!/bin/sh\nexec {sys.executable} {command}\n")
        (programs / name).chmod(0o755)
    environ = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(tmp_path / "site")}
    for step in steps:
        done = subprocess.run(["sh", "-c", step], env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_mlaot_s_own_wheel_has_the_templates(own_wheel: Path) -> None:
    with zipfile.ZipFile(own_wheel) as file:
        assert {f"mlaot/templates/init/{name}" for name in TEMPLATES.values()} <= set(file.namelist())


def test_what_it_writes_and_says(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = cli("init", "digits")
    assert result.status == 0 and files(tmp_path / "digits") == FILES
    assert result.out.endswith("next:\n  cd digits\n  mlaot build\n  pip install dist/digits-*.whl pytest\n  pytest\n")
    assert load_settings(tmp_path / "digits").models[0].module == "digits.nn"


def test_this_folder_and_another_name(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = cli("init", "--name", "Two-Digits")
    assert "  cd " not in result.out
    assert "src/two_digits/__init__.py" in files(tmp_path)
    settings = load_settings(tmp_path)
    assert (settings.name, settings.models[0].module) == ("two_digits", "two_digits.nn")


@pytest.mark.parametrize("name", sorted(FILES - {"pyproject.toml"}))
def test_nothing_is_overwritten(name: str, cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "digits" / name
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    assert complaint(cli("init", tmp_path / "digits")) == f"mlaot: {path} is there already; nothing was written"
    assert files(tmp_path / "digits") == {name} and path.read_text() == "mine"


def test_a_file_where_a_folder_goes(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "src").touch()
    assert (
        complaint(cli("init", tmp_path, "--name", "a"))
        == f"mlaot: {tmp_path / 'src'} is no folder; nothing was written"
    )
    assert files(tmp_path) == {"src"}


@pytest.mark.parametrize("name", ["1a", "a b", "a/b", "über", "class", "json", "numpy", "model", "-a"])
def test_names_that_cannot_be(name: str, cli: Cli, tmp_path: Path) -> None:
    assert complaint(cli("init", tmp_path, f"--name={name}")).endswith("by --name")
    assert not files(tmp_path)


@pytest.mark.parametrize(
    ("pyproject", "system"),
    [
        ("[project]\nname = 'a'\n", {"requires": ["mlaot"], "build-backend": "mlaot.build"}),
        (
            "[build-system]\nrequires = ['setuptools>=77']\nbuild-backend = 'setuptools.build_meta'\n",
            {"requires": ["setuptools>=77", "mlaot"], "build-backend": "setuptools.build_meta"},
        ),
    ],
    ids=["another backend", "setuptools"],
)
def test_a_project_that_is_there_already(pyproject: str, system: dict[str, object], cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(pyproject)
    result = cli("init", tmp_path)
    assert complaint(result).startswith(f"mlaot: {tmp_path / 'pyproject.toml'} is there already; nothing was written")
    lines = tomllib.loads(result.out.partition(":\n")[2])
    assert lines["build-system"] == system
    assert lines["tool"] == {"mlaot": {"models": {"nn": {"model": "model:classify"}}}}
    assert files(tmp_path) == {"pyproject.toml"}


def test_a_project_of_mlaot(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.mlaot]\n")
    assert complaint(cli("init", tmp_path)).endswith("has a [tool.mlaot] already; nothing was written")
