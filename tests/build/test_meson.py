"""The meson.build of docs/doors.md."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Project, Python
from .doors import DOORS

USE = "from digits import nn; print(nn.value(), nn.isas())"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """The project of the documentation, with a model for the fake compiler."""
    pytest.importorskip("mesonpy")
    made = Project(tmp_path / "project")
    for name, text in DOORS["meson"].items():
        made.write(name, text)
    made.write("src/digits/__init__.py", "from . import nn\n")
    made.write("src/digits/model.py", "from digits.numbers import build\n")
    made.write("src/digits/numbers.py", "build = 43\n")
    return made


def test_wheel(project: Project, python: Python, environment: Callable[..., Python]) -> None:
    wheel = python.wheel(project)
    assert wheel.name.startswith("digits-1.0-cp311-abi3-")
    with zipfile.ZipFile(wheel) as file:
        installed = {name for name in file.namelist() if ".dist-info/" not in name}
    assert installed == {"digits/__init__.py", "digits/nn.abi3.so", "digits/nn.pyi"}
    assert environment(wheel).check("-c", USE, cwd=wheel.parent) == "43 7\n"


def test_editable_install_follows_the_model(
    project: Project, fake_wheel: Path, environment: Callable[..., Python]
) -> None:
    python = environment(fake_wheel)
    command = ["-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-build-isolation", "-e", "."]
    python.check(*command, cwd=project.path)
    for value in (43, 44, 45):  # less than a second apart
        project.write("src/digits/numbers.py", f"build = {value}\n")
        assert python.check("-c", USE, cwd=project.path.parent) == f"{value} 7\n"
