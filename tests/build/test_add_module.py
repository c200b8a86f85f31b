"""``mlaot_add_module()`` in plain CMake and under scikit-build-core: what is built, when, and what goes wrong."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import mlaot

from .conftest import Project, Python
from .doors import DOORS, documented

USE = "from digits import nn; print(nn.value(), nn.isas())"
QUIET = {"SKBUILD_EDITABLE_VERBOSE": "0"}
CMAKE = """\
cmake_minimum_required(VERSION 3.21)
project(digits LANGUAGES C)
find_package(mlaot 0.1 CONFIG REQUIRED)
mlaot_add_module(nn {arguments})
install(TARGETS nn LIBRARY DESTINATION digits COMPONENT python)
install(FILES $<TARGET_PROPERTY:nn,MLAOT_STUB> DESTINATION digits COMPONENT python)
"""
SOURCES = {
    "src/digits/__init__.py": "from .nn import value\nfrom . import nn\n",
    "src/digits/model.py": "from digits.numbers import digits\n\n\ndef build():\n    return digits\n",
    "src/digits/numbers.py": "digits = 43\n",
}


@pytest.fixture
def owner(tmp_path: Path) -> Project:
    """A project with a CMakeLists.txt of its own and no [tool.mlaot]."""
    project = Project(tmp_path / "project")
    for name, text in SOURCES.items():
        project.write(name, text)
    project.write("CMakeLists.txt", CMAKE.format(arguments="MODEL digits.model:build"))
    return project


@pytest.fixture
def packaged(owner: Project) -> Project:
    """The project of the documentation, which rebuilds at import."""
    for name, text in DOORS["CMake"].items():
        owner.write(name, text)
    rebuild = documented("toml", "editable").removeprefix("[tool.scikit-build]\n")
    owner.write("pyproject.toml", DOORS["CMake"]["pyproject.toml"] + rebuild)
    return owner


class Build:
    """A build folder of plain CMake."""

    def __init__(self, project: Project, python: Python) -> None:
        self.project = project
        self.python = python
        self.folder = project.path / "out" / "build"

    def cmake(self, *arguments: object, **environ: str) -> subprocess.CompletedProcess[str]:
        code = "import subprocess, sys; sys.exit(subprocess.call(['cmake', *sys.argv[1:]]))"
        return self.python.run("-c", code, *map(str, arguments), cwd=self.project.path, **environ)

    def configure(self, *options: str) -> subprocess.CompletedProcess[str]:
        root = self.python.check("-P", "-m", "mlaot", "--cmake-dir", cwd=self.project.path).strip()
        python = f"-DPython_EXECUTABLE={self.python.executable}"
        return self.cmake("-S", ".", "-B", self.folder, f"-Dmlaot_ROOT={root}", python, *options)

    def build(self) -> str:
        done = self.cmake("--build", self.folder)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def use(self) -> str:
        site = self.project.path / "out" / "site"
        done = self.cmake("--install", self.folder, "--prefix", site, "--component", "python")
        assert done.returncode == 0, done.stdout + done.stderr
        return self.python.check("-c", "from digits import nn; print(nn.value())", cwd=site)


@pytest.mark.parametrize("generator", ["Ninja", "Unix Makefiles"])
def test_edits_are_traced_again_and_nothing_else_is(owner: Project, python: Python, generator: str) -> None:
    build = Build(owner, python)
    owner.write("src/digits/model.py", SOURCES["src/digits/model.py"] + "open('src/digits/extra.txt').close()\n")
    owner.write("src/digits/extra.txt", "")
    owner.write("notes.txt", "")
    owner.write("CMakeLists.txt", CMAKE.format(arguments="MODEL digits.model:build DEPENDS notes.txt"))
    configured = build.configure(f"-G{generator}")
    assert configured.returncode == 0, configured.stderr
    assert "mlaot: digits.nn" in build.build()
    assert build.use() == "43\n"
    library = build.folder / "nn" / "nn.abi3.so"
    made = library.stat().st_mtime_ns
    assert "mlaot: digits.nn" not in build.build()
    for name in ("src/digits/extra.txt", "notes.txt"):
        owner.write(name, "another comment")
        assert "mlaot: digits.nn" in build.build()  # the C is the same
        assert "mlaot: digits.nn" not in build.build()
    assert library.stat().st_mtime_ns == made
    for value in ("44", "45"):  # less than a second apart, of the same size
        owner.write("src/digits/numbers.py", f"digits = {value}\n")
        if generator == "Ninja":  # make would believe the time, and build nothing
            soon = time.time() + 0.9
            for path in (library, owner.path / "out" / "site" / "digits" / "nn.abi3.so"):
                os.utime(path, (soon, soon))
        build.build()
        assert build.use() == f"{value}\n"
    installed = {path.name for path in (owner.path / "out" / "site" / "digits").iterdir()}
    assert installed - {"__pycache__"} == {"nn.abi3.so", "nn.pyi"}


def test_hostile_project_settings(owner: Project, python: Python) -> None:
    """What a project says of all its targets cannot break the module; the fake C checks the flags that it gets."""
    build = Build(owner, python)
    options = ["-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_DEBUG_POSTFIX=d", "-DCMAKE_BUILD_TYPE=Debug"]
    configured = build.configure(*options, "-DCMAKE_INTERPROCEDURAL_OPTIMIZATION=ON", "-DCMAKE_C_FLAGS=-ffast-math")
    assert configured.returncode == 0, configured.stderr
    build.build()
    assert build.use() == "43\n"


def test_arguments_go_before_the_table(owner: Project, python: Python) -> None:
    table = '[project]\nname = "digits"\n[tool.mlaot]\nisa = ["base"]\n[tool.mlaot.models.nn]\nmodel = "{}"\n'
    for arguments, model in [("", "other:digits"), ("MODULE digits.nn MODEL other:digits", "not.there:x")]:
        owner.write("CMakeLists.txt", CMAKE.format(arguments=f"{arguments} SOURCE_DIR lib DETERMINISTIC"))
        owner.write("lib/other.py", "digits = 7\n")
        owner.write("pyproject.toml", table.format(model))
        build = Build(owner, python)
        configured = build.configure()
        assert configured.returncode == 0, configured.stderr
        build.build()
        assert build.use() == "7\n"
        made = {path.name for path in (build.folder / "nn.mlaot").iterdir()}
        assert "nn_base.flags" in made and "nn_v3.c" not in made
        assert "-ffp-contract=off" in (build.folder / "nn.mlaot" / "nn_base.flags").read_text()


def test_package_that_imports_two_modules_not_yet_built(owner: Project, python: Python) -> None:
    second = "mlaot_add_module(other MODEL digits.model:build)\ninstall(TARGETS other DESTINATION digits)\n"
    owner.write("CMakeLists.txt", CMAKE.format(arguments="MODEL digits.model:build") + second)
    owner.write("src/digits/__init__.py", "from .nn import value\nfrom .other import isas\n")
    build = Build(owner, python)
    assert build.configure().returncode == 0
    build.build()
    assert build.use() == "43\n"


MISTAKES = {
    "MODEL digits.model": "--model must be 'module:attribute', such as 'model:digits', or an ONNX file; got 'digits.",
    "": "no --model is given, and no [tool.mlaot.models.<name>] of pyproject.toml makes 'digits.nn'",
    "MODEL digits.model:build MODULE nn": "--module must be a dotted module name, such as 'digits.nn'; got 'nn'",
    "MODEL digits.model:build SOURCE_DIR lib": "--source-dir must be a folder inside",
    "MODEL digits.model:build MODULES digits.nn": "cannot read 'MODULES;digits.nn'; the keywords are MODEL",
}


@pytest.mark.parametrize("arguments", MISTAKES)
def test_mistake_in_the_arguments(owner: Project, python: Python, arguments: str) -> None:
    owner.write("CMakeLists.txt", CMAKE.format(arguments=arguments))
    configured = Build(owner, python).configure()
    assert configured.returncode
    assert MISTAKES[arguments] in " ".join(configured.stderr.split())
    assert "Traceback" not in configured.stderr


def test_mistake_in_the_model_is_the_last_line_of_the_step(owner: Project, python: Python) -> None:
    owner.write("src/digits/numbers.py", "digits = 1 / 0\n")
    build = Build(owner, python)
    assert build.configure("-GNinja").returncode == 0
    done = build.cmake("--build", build.folder)
    assert done.returncode
    assert "mlaot: src/digits/numbers.py:1: ZeroDivisionError: division by zero\n" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_language_c_is_needed(owner: Project, python: Python) -> None:
    owner.write("CMakeLists.txt", CMAKE.format(arguments="").replace("LANGUAGES C", "LANGUAGES NONE"))
    assert "the project needs the language C" in Build(owner, python).configure().stderr


def test_python_without_mlaot(owner: Project, python: Python, environment: Callable[..., Python]) -> None:
    bare = environment()
    build = Build(owner, python)
    message = " ".join(build.configure(f"-DPython_EXECUTABLE={bare.executable}").stderr.split())
    assert f"mlaot: {bare.executable} has no mlaot: pip install mlaot" in message


def test_version_of_the_package() -> None:
    text = (Path(mlaot.__file__).parent / "cmake" / "mlaotConfigVersion.cmake").read_text()
    assert re.findall(r"PACKAGE_VERSION ([\d.]+)", text) == [mlaot.__version__]


def test_scikit_build_core_wheel(packaged: Project, python: Python, environment: Callable[..., Python]) -> None:
    wheel = python.wheel(packaged)
    assert wheel.name.startswith("digits-1.0-cp311-abi3-")
    with zipfile.ZipFile(wheel) as file:
        assert {"digits/nn.abi3.so", "digits/nn.pyi", "digits/model.py"} <= set(file.namelist())
    assert environment(wheel).check("-c", USE, cwd=wheel.parent) == "43 7\n"


def test_scikit_build_core_editable_install_follows_the_model(
    packaged: Project, fake_wheel: Path, environment: Callable[..., Python]
) -> None:
    python = environment(fake_wheel)
    python.install_editable(packaged)
    (installed,) = packaged.path.glob("build/*/install/**/nn.abi3.so")
    for value in (44, 45, 46):
        packaged.write("src/digits/numbers.py", f"digits = {value}\n")
        os.utime(installed, (time.time() + 0.5,) * 2)  # within a second of the next library
        assert python.check("-c", USE, cwd=packaged.path.parent, **QUIET) == f"{value} 7\n"
        copied = packaged.path / f"copied{value}.so"
        os.link(installed, copied)
        assert python.check("-c", USE, cwd=packaged.path.parent, **QUIET) == f"{value} 7\n"
        assert copied.samefile(installed)  # an import that builds nothing copies nothing


def test_scikit_build_core_editable_install_after_its_mlaot_is_gone(
    packaged: Project, fake_wheel: Path, environment: Callable[..., Python], tmp_path: Path
) -> None:
    """As build isolation leaves it: mlaot lay in a folder of that build, on ``PYTHONPATH``."""
    python = environment()
    overlay = tmp_path / "overlay"
    unpack(fake_wheel, overlay)
    command = ["-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index", "-e", "."]
    python.check(*command, cwd=packaged.path, PYTHONPATH=str(overlay))
    shutil.rmtree(overlay)
    message = " ".join(python.run("-c", USE, cwd=tmp_path).stderr.split())
    assert "has no mlaot: pip install mlaot; editable installs: with --no-build-isolation" in message

    unpack(fake_wheel, next(python.executable.parents[1].glob("lib/*/site-packages")))
    packaged.write("src/digits/numbers.py", "digits = 44\n")
    assert python.check("-c", USE, cwd=tmp_path, **QUIET) == "44 7\n"


def unpack(wheel: Path, folder: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        file.extractall(folder)


FREE_THREADED = """
import sys, sysconfig
if "mlaot.build.toolchain" in " ".join(sys.orig_argv):
    known = sysconfig.get_config_var
    sysconfig.get_config_var = lambda name: 1 if name == "Py_GIL_DISABLED" else known(name)
    sys.version_info = type("Version", (tuple,), {"major": 3, "minor": MINOR})((3, MINOR))
"""


@pytest.mark.parametrize("minor", [14, 15])
def test_free_threaded_python(owner: Project, python: Python, tmp_path: Path, minor: int) -> None:
    """What it can load is what is built; where there is no such thing, configuring says so."""
    (tmp_path / "sitecustomize.py").write_text(FREE_THREADED.replace("MINOR", str(minor)))
    build = Build(owner, python)
    root = python.check("-P", "-m", "mlaot", "--cmake-dir", cwd=tmp_path).strip()
    options = f"-Dmlaot_ROOT={root}", f"-DPython_EXECUTABLE={python.executable}"
    done = build.cmake("-S", ".", "-B", build.folder, *options, PYTHONPATH=str(tmp_path))
    if minor == 14:
        assert "is free-threaded 3.14: build with another Python" in " ".join(done.stderr.split())
    else:
        assert done.returncode == 0, done.stderr
        assert build.cmake("--build", build.folder, "--verbose").stdout.count("-DMLAOT_ABI3T") == 1
        assert (build.folder / "nn" / "nn.abi3t.so").is_file()
