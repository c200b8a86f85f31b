"""A model that imports a package when it runs, in a project that names it and in one that does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mlaot.build.requirements import check_requirements, imports_of
from mlaot.errors import MlaotError
from mlaot.settings import ModelSettings

from .conftest import Project, Python, last_line
from .fake_generate import FACTS, NEEDY
from .test_doors import SETUPTOOLS

MODEL = ModelSettings("nn", "model:digits", "digits.nn")


@pytest.mark.parametrize(
    ("project", "is_right"),
    [
        ({}, False),
        ({"dependencies": ["numpy", "pillows"]}, False),
        ({"dependencies": ["numpy", "Pillow >= 11 ; python_version > '3'"]}, True),
        ({"dependencies": ["pillow[xmp]"]}, True),
        ({"dynamic": ["dependencies"]}, True),
        ({"dynamic": ["version"]}, False),
    ],
)
def test_dependencies(tmp_path: Path, project: dict[str, Any], is_right: bool) -> None:
    file = tmp_path / "digits.nn" / "model.json"
    file.parent.mkdir()
    file.write_text(FACTS % 0)
    check_requirements(project, [MODEL], tmp_path)
    file.write_text(json.dumps(json.loads(FACTS % 0) | {"requires": ["pillow"]}))
    if is_right:
        check_requirements(project, [MODEL], tmp_path)
    else:
        with pytest.raises(MlaotError) as error:
            check_requirements(project, [MODEL], tmp_path)
        assert str(error.value) == (
            "digits.nn: model:digits decodes images, which takes the package pillow where it runs;"
            ' add dependencies = ["pillow"] to [project] of pyproject.toml'
        )


@pytest.mark.parametrize("door", ["mlaot.build", "setuptools"])
def test_no_wheel_lacks_it(project: Project, python: Python, tmp_path: Path, door: str) -> None:
    project.write(
        "pyproject.toml", SETUPTOOLS if door == "setuptools" else (project.path / "pyproject.toml").read_text()
    )
    project.write("model.py", f"digits = {NEEDY}\n")
    out = tmp_path / "out"
    out.mkdir()
    assert 'add dependencies = ["pillow"]' in last_line(python.hook(project, "build_wheel", str(out)))
    assert not list(out.iterdir())


def test_imports(tmp_path: Path) -> None:
    """What PyInstaller is told of modules, by their names."""
    file = tmp_path / "digits.nn" / "model.json"
    file.parent.mkdir()
    file.write_text(FACTS % 0)
    assert imports_of([MODEL], tmp_path) == {}
    file.write_text(json.dumps(json.loads(FACTS % 0) | {"requires": ["pillow"]}))
    assert imports_of([MODEL], tmp_path) == {"digits.nn": ["PIL.Image"]}
