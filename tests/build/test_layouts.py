"""Projects as people lay them out: namespaces, folders of all names, frontends of all kinds."""

from __future__ import annotations

import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import PYPROJECT, Project, Python, last_line
from .doors import FAST_C, SETUP_PY

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


def own_extension(project: Project, how: str, backend: str = "setuptools.build_meta", name: str = "fast") -> None:
    """A package whose ``__init__`` imports a C extension of its own, and that holds the model."""
    project.write("pyproject.toml", PYPROJECT.format(requires="", backend=backend, model="digits.model:digits"))
    project.write("src/digits/__init__.py", f"from .{name} import twice\n")
    project.write("src/digits/model.py", "digits = 3\n")
    project.write("src/digits/fast.c", FAST_C)
    table = '[[tool.setuptools.ext-modules]]\nname = "digits.fast"\nsources = ["src/digits/fast.c"]\n'
    if how == "pyproject.toml":
        project.write("pyproject.toml", (project.path / "pyproject.toml").read_text() + table)
    else:
        project.write(how, BUILD_FILES[how])


BUILD_FILES = {
    "setup.py": SETUP_PY.format(options={}),
    "CMakeLists.txt": "python_add_library(fast MODULE src/digits/fast.c WITH_SOABI)\n",
    "meson.build": "py.extension_module('fast', 'src/digits/fast.c', subdir: 'digits')\n",
}


@pytest.mark.parametrize("how", ["setup.py", "pyproject.toml"])
def test_package_that_imports_an_extension_of_its_own(
    project: Project, python: Python, environment: Callable[..., Python], how: str
) -> None:
    """It is not there yet while the model is traced; in the wheel, and after an editable install, it is."""
    own_extension(project, how)
    site = project.path.parent / "site"
    with zipfile.ZipFile(python.wheel(project)) as file:
        file.extractall(site)
    use = "import digits, digits.nn; print(digits.twice(4), digits.nn.value())"
    assert environment().check("-c", use, cwd=site, PYTHONPATH=str(site)) == "8 3\n"


@pytest.mark.parametrize("how", ["setup.py", "CMakeLists.txt", "meson.build"])
def test_the_c_of_a_package_with_an_extension_of_its_own(project: Project, python: Python, how: str) -> None:
    """What other build tools run."""
    own_extension(project, how)
    python.check("-m", "mlaot", "emit", project.path, "--out", "c", cwd=project.path)
    assert (project.path / "c" / "digits.nn").is_dir()


@pytest.mark.parametrize(
    ("name", "model", "message"),
    [
        (
            "fast",
            "from . import twice\n\ndigits = twice(3)\n",
            "src/digits/model.py:3: digits.fast.twice is used while digits.fast is being built; declare the model in a"
            " module that imports nothing of the package, such as one beside it",
        ),
        ("modle", "digits = 3\n", "src/digits/__init__.py:1: No module named 'digits.modle'; did you mean 'model'?"),
        (
            "unnamed",
            "digits = 3\n",
            "src/digits/__init__.py:1: No module named 'digits.unnamed'; if the build makes it, declare the model in a"
            " module that imports nothing of the package, such as one beside it",
        ),
    ],
)
def test_what_is_not_there_in_a_package(project: Project, python: Python, name: str, model: str, message: str) -> None:
    own_extension(project, "setup.py", name=name)
    project.write("src/digits/model.py", model)
    assert last_line(python.hook(project, "build_wheel", str(project.path))) == f"mlaot: {message}"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_model_beside_the_package_is_not_installed(project: Project, python: Python, backend: str) -> None:
    """It needs what the build needs, and its name may be another's; an sdist has it."""
    project.write("pyproject.toml", PYPROJECT.format(requires="", backend=backend, model="model:digits"))
    project.write("src/digits/__init__.py", "from .nn import value\n")
    (project.path / "model.py").unlink(missing_ok=True)
    project.write("src/model.py", "import numpy\n\ndigits = 3\n")
    with zipfile.ZipFile(python.wheel(project)) as file:
        names = {name for name in file.namelist() if ".dist-info" not in name}
    assert names == {"digits/__init__.py", "digits/nn.abi3.so", "digits/nn.pyi", "digits/py.typed"}
    result = python.hook(project, "build_sdist", str(project.path))
    with tarfile.open(project.path / result.stdout.splitlines()[-1].removeprefix("returned ")) as sdist:
        assert "digits-1.0/src/model.py" in sdist.getnames()


def test_a_model_that_the_project_lists_is_installed(project: Project, python: Python) -> None:
    text = PYPROJECT.format(requires="", backend="setuptools.build_meta", model="model:digits")
    project.write("pyproject.toml", text + '[tool.setuptools]\npy-modules = ["model"]\npackage-dir = {"" = "src"}\n')
    project.write("src/model.py", "digits = 3\n")
    with zipfile.ZipFile(python.wheel(project)) as file:
        assert "model.py" in file.namelist()
