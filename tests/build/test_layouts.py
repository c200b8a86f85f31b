"""Projects as people lay them out: namespaces, folders of all names, frontends of all kinds."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import PYPROJECT, Project, Python

BACKENDS = ("mlaot.build", "setuptools.build_meta")


def namesake(folder: Path, name: str, value: int, backend: str = "mlaot.build") -> Project:
    """A project with the module ``company.<name>.nn`` and a ``company`` without ``__init__.py``."""
    project = Project(folder / name)
    text = PYPROJECT.format(requires="", backend=backend, model=f"company.{name}.model:digits")
    module = f'module = "company.{name}.nn"\n'
    project.write("pyproject.toml", text.replace('"digits"', f'"company.{name}"') + module)
    project.write(f"src/company/{name}/__init__.py", "from .nn import value\n")
    project.write(f"src/company/{name}/model.py", f"import company.{name}\ndigits = {value}\n")
    return project


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_wheels_share_a_namespace(
    tmp_path: Path, python: Python, environment: Callable[..., Python], backend: str
) -> None:
    first, second = (namesake(tmp_path, name, value, backend) for name, value in (("one", 1), ("two", 2)))
    wheels = [python.wheel(project) for project in (first, second)]
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as file:
            assert "company/__init__.py" not in file.namelist()
    for site, wheel in (("a", wheels[0]), ("b", wheels[1])):
        with zipfile.ZipFile(wheel) as file:
            file.extractall(tmp_path / site)
    use = "import company.one, company.two; print(company.one.value(), company.two.value())"
    # Each in a folder of its own: a package would end the search at the first.
    path = os.pathsep.join([str(tmp_path / "a"), str(tmp_path / "b")])
    assert environment().check("-c", use, cwd=tmp_path, PYTHONPATH=path) == "1 2\n"


def test_editable_installs_share_a_namespace(
    tmp_path: Path, python: Python, fake_wheel: Path, environment: Callable[..., Python]
) -> None:
    """With each other and with a wheel; a model can use what is installed beside its own package."""
    wheels = [python.wheel(namesake(tmp_path, "one", 1))]
    for name, backend in (("two", "mlaot.build"), ("three", "setuptools.build_meta")):
        project = namesake(tmp_path, name, 2, backend)
        project.write(
            f"src/company/{name}/model.py", f"import company.one\ndigits = company.one.value() + {len(name)}\n"
        )
        out = tmp_path / f"{name}-editable"
        out.mkdir()
        result = environment(fake_wheel, *wheels).hook(project, "build_editable", str(out))
        assert result.returncode == 0, result.stderr
        wheels += out.iterdir()
    use = "from company import one, two, three; print(one.value(), two.value(), three.value())"
    assert environment(*wheels).check("-c", use, cwd=tmp_path) == "1 4 6\n"


def test_package_that_names_what_is_not_yet_built(project: Project, python: Python) -> None:
    """Its model imports the package, whose parts import all that the module will have."""
    project.write("digits/__init__.py", "from .nn import *\nfrom . import nn\nfrom .api import Mine, read\n")
    project.write(
        "digits/api.py",
        "from abc import ABC\nfrom functools import singledispatch\nfrom typing import Optional\n\n"
        "import digits.nn\nfrom digits.nn import Array, Model\n\n\n"
        "class Mine(Model, ABC):\n    first: Optional[Array] = None\n\n\n"
        "@singledispatch\ndef read(x: Array | None) -> str:\n    return digits.nn.forward(x)\n\n\n"
        "@read.register\ndef _(x: Array) -> str:\n    return 'array'\n\n\n"
        "assert not isinstance(3, Array) and read.dispatch(Array)(3) == 'array'\n",
    )
    project.write("model.py", "from digits.api import Mine\ndigits = 44\n")
    assert python.wheel(project).exists()


@pytest.mark.parametrize("backend", BACKENDS)
def test_names_of_folders(tmp_path: Path, python: Python, environment: Callable[..., Python], backend: str) -> None:
    """A project below folders of odd names, reached by a link, its sources in one more, temporary files in another."""
    folder, temporary = tmp_path / "ä ö, 日本" / "-x'$#%", tmp_path / "tmp é, ~"
    temporary.mkdir()
    project = Project(folder / "project")
    text = PYPROJECT.format(requires="", backend=backend, model="model:digits")
    project.write("pyproject.toml", text + '[tool.mlaot]\nsource = "quelle é"\n')
    project.write("quelle é/model.py", "digits = 42\n")
    (folder / "link").symlink_to("project")
    wheel = python.wheel(Project(folder / "link"), TMPDIR=str(temporary), LC_ALL="C")
    use = "from digits import nn; print(nn.value())"
    assert environment(wheel).check("-c", use, cwd=wheel.parent) == "42\n"


def test_long_path(tmp_path: Path, python: Python) -> None:
    """Close to what Linux can name."""
    folder = tmp_path
    while len(str(folder)) < 3600:
        folder /= "x" * 200
    project = Project(folder)
    project.write("pyproject.toml", PYPROJECT.format(requires="", backend="mlaot.build", model="model:digits"))
    project.write("model.py", "digits = 42\n")
    assert python.wheel(project).exists()
