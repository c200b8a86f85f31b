"""From a project to an importable module, through each door."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import PYPROJECT, Project, Python, last_line, pinned
from .doors import FAST_C, SETUP_PY

USE = "from digits import nn; print(nn.value(), nn.isas())"
TAG = "cp311-abi3-linux_"
PACKAGE = {
    "pyproject.toml": PYPROJECT.format(requires='"mlaot"', backend="mlaot.build", model="digits.model:digits"),
    "src/digits/__init__.py": "from .nn import value\nfrom . import nn, text\n",
    "src/digits/model.py": "from digits.numbers import digits\n",
    "src/digits/numbers.py": "digits = 43\n",
    "src/digits/text.py": "",
}
SETUPTOOLS = PYPROJECT.format(requires='"setuptools", "mlaot"', backend="setuptools.build_meta", model="model:digits")
SETUPTOOLS_PACKAGE = SETUPTOOLS.replace("model:digits", "digits.model:digits")


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as file:
        return {name for name in file.namelist() if ".dist-info/" not in name}


def write(project: Project, files: dict[str, str]) -> None:
    (project.path / "model.py").unlink()
    for name, text in files.items():
        project.write(name, text)


def test_smallest_project_becomes_a_stable_abi_wheel(
    project: Project, python: Python, environment: Callable[..., Python]
) -> None:
    wheel = python.wheel(project)
    assert wheel.name.startswith(f"digits-1.0-{TAG}")
    assert names(wheel) == {"digits/__init__.py", "digits/nn.abi3.so", "digits/nn.pyi", "digits/py.typed"}
    assert environment(wheel).check("-c", USE, cwd=wheel.parent) == "42 7\n"


ASKED = ("-P", "-m", "mlaot", "wheel")


def test_wheels_for_both_stable_abis(project: Project, python: Python, tmp_path: Path) -> None:
    """Traced once, kernels compiled once; only the file that talks to Python knows which one it is for."""
    project.write("cc", '#!/bin/sh\necho "$@" >> calls\nexec cc "$@"\n')
    (project.path / "cc").chmod(0o755)
    abis = "cp311-abi3,cp315-abi3t"
    printed = python.check(
        *ASKED, "--abi", abis, "--out", "..", cwd=project.path, CC=str(project.path / "cc"), MLAOT_CACHE=str(tmp_path)
    )
    made = {path.name.removeprefix("digits-1.0-"): path for path in project.path.parent.glob("*.whl")}
    assert sorted(made) == [f"{abi}-{sysconfig.get_platform().replace('-', '_')}.whl" for abi in abis.split(",")]
    assert printed.count("model:digits -> digits.nn") == 1
    assert "digits.nn was not replayed: cp315-abi3t is not of this Python" in printed or sys.version_info >= (3, 15)
    for abi, wheel in zip(("abi3", "abi3t"), (made[name] for name in sorted(made)), strict=True):
        assert names(wheel) == {"digits/__init__.py", f"digits/nn.{abi}.so", "digits/nn.pyi", "digits/py.typed"}
    calls = [call for call in (project.path / "calls").read_text().splitlines() if " -c " in call]
    for unit, times in ("nn", 2), ("nn_base", 1), ("nn_v3", 1):
        assert len([call for call in calls if f" -c build/mlaot/c/digits.nn/{unit}.c " in call]) == times
    assert len([call for call in calls if "-DMLAOT_ABI3T" in call]) == 1


def test_option_for_the_stable_abi(project: Project, python: Python, tmp_path: Path) -> None:
    result = python.hook(project, "build_wheel", str(tmp_path), {"mlaot.abi": "cp315-abi3t"})
    assert result.returncode == 0, result.stderr
    (wheel,) = tmp_path.glob("digits-1.0-cp315-abi3t-*.whl")
    with zipfile.ZipFile(wheel) as file:
        assert b"Tag: cp315-abi3t-" in file.read("digits-1.0.dist-info/WHEEL")
    result = python.hook(project, "build_wheel", str(tmp_path), {"mlaot.abi": "cp313-abi3t"})
    assert last_line(result) == (
        "mlaot: ABI 'cp313-abi3t': expected cp311-abi3 or cp315-abi3t; did you mean 'cp315-abi3t'?"
    )


def test_package_that_imports_the_module_not_yet_built(
    project: Project, python: Python, environment: Callable[..., Python]
) -> None:
    write(project, PACKAGE | {"mlaot.py": "raise RuntimeError('the source folder is src')\n"})
    wheel = python.wheel(project)
    sources = {"digits/__init__.py", "digits/model.py", "digits/numbers.py", "digits/text.py"}
    assert names(wheel) == sources | {"digits/nn.abi3.so", "digits/nn.pyi", "digits/py.typed"}
    assert environment(wheel).check("-c", USE, cwd=wheel.parent) == "43 7\n"


def test_two_models_chosen_instruction_sets_and_modules(
    project: Project, python: Python, environment: Callable[..., Python]
) -> None:
    project.write(
        "pyproject.toml",
        PYPROJECT.format(requires="", backend="mlaot.build", model="model:digits")
        + '[tool.mlaot.models.other]\nmodel = "model:Other.number"\nmodule = "zoo.cage.nn"\n'
        + '[tool.mlaot]\nisa = ["v3", "base"]\n',
    )
    project.write("model.py", "digits = 1\nclass Other:\n    number = 2\n")
    wheel = python.wheel(project)
    packages = {"digits/__init__.py", "digits/py.typed", "zoo/cage/__init__.py", "zoo/cage/py.typed"}
    modules = {"digits/nn.abi3.so", "digits/nn.pyi", "zoo/cage/nn.abi3.so", "zoo/cage/nn.pyi"}
    assert names(wheel) == packages | modules  # zoo is a namespace, which others may share
    use = "from digits import nn; from zoo.cage import nn as other; print(nn.value(), nn.isas(), other.value())"
    assert environment(wheel).check("-c", use, cwd=wheel.parent) == "1 3 2\n"


HERE = {"TZ": "UTC", "LC_ALL": "C", "PYTHONHASHSEED": "1", "USER": "one", "CFLAGS": "-g"}
THERE = {"TZ": "Asia/Tokyo", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "77", "USER": "two", "CFLAGS": "-g"}


@pytest.mark.parametrize("door", ["mlaot.build", "setuptools"])
def test_builds_are_reproducible(project: Project, python: Python, tmp_path: Path, door: str) -> None:
    """Another folder, umask, user, time zone, locale and hash seed, three seconds later, nothing from the cache."""
    if door == "setuptools":
        project.write("pyproject.toml", SETUPTOOLS)
    hooks = ["build_wheel", "build_sdist"][: 2 if door == "mlaot.build" else 1]  # setuptools' sdists have times

    def built(project: Project, **environ: str) -> list[bytes]:
        out = project.path.with_name("out")
        out.mkdir()
        for hook in hooks:
            result = python.hook(project, hook, str(out), MLAOT_CACHE="off", **environ)
            assert result.returncode == 0, result.stdout + result.stderr
        return [path.read_bytes() for path in sorted(out.iterdir())]

    first = built(project, HOME=str(tmp_path), TMPDIR=str(tmp_path), **HERE)
    time.sleep(3)  # a zip file counts in steps of two seconds
    umask = os.umask(0o077)
    try:
        copy = Project(tmp_path / "else where" / "project")
        for name in ("pyproject.toml", "model.py"):
            copy.write(name, (project.path / name).read_text())
        assert built(copy, HOME=str(copy.path), **THERE) == first
    finally:
        os.umask(umask)


@pytest.mark.parametrize("backend", ["mlaot.build", "setuptools.build_meta"])
def test_live_sdist_is_traced_where_it_is_built(
    project: Project, python: Python, environment: Callable[..., Python], backend: str
) -> None:
    write(project, PACKAGE)
    text = PACKAGE["pyproject.toml"].replace("mlaot.build", backend)
    project.write("pyproject.toml", text + '[tool.mlaot]\nrequires = ["a-framework"]\nsdist = "live"\n')
    assert "a-framework" not in python.hook(project, "get_requires_for_build_sdist").stdout
    out = project.path.parent / "sdist"
    out.mkdir()
    result = python.hook(project, "build_sdist", str(out))
    assert result.returncode == 0, result.stdout + result.stderr
    with tarfile.open(out / "digits-1.0.tar.gz") as file:
        file.extractall(out, filter="data")
    unpacked = Project(out / "digits-1.0")
    assert not (unpacked.path / "_mlaot").exists()
    assert not (project.path / "build" / "mlaot").exists()
    unpacked.write("src/digits/model.py", unpacked.path.joinpath("src/digits/model.py").read_text() + "digits = 44\n")
    assert environment(python.wheel(unpacked)).check("-c", USE, cwd=out) != "43 7\n"


def test_sdist_builds_without_tracing(project: Project, python: Python, environment: Callable[..., Python]) -> None:
    write(project, PACKAGE)
    project.write("pyproject.toml", PACKAGE["pyproject.toml"] + '[tool.mlaot]\nrequires = ["no-such-package"]\n')
    out = project.path.parent / "sdist"
    result = python.hook(project, "build_sdist", str(out))
    assert result.returncode == 0, result.stdout + result.stderr
    with tarfile.open(out / "digits-1.0.tar.gz") as file:
        file.extractall(out, filter="data")
        assert not [name for name in file.getnames() if "/build/" in name or name.endswith(".gitignore")]
    unpacked = Project(out / "digits-1.0")
    assert "_mlaot/digits.nn/nn.c" in unpacked.files()
    unpacked.write("src/digits/model.py", "import a_heavy_framework\n")
    assert "returned []" in python.hook(unpacked, "get_requires_for_build_sdist").stdout
    wheel = python.wheel(unpacked)
    assert environment(wheel).check("-c", USE, cwd=out) == "43 7\n"
    again = python.hook(unpacked, "build_sdist", str(out / "again"))
    assert again.returncode == 0, again.stderr
    assert not (unpacked.path / "build" / "mlaot" / "c").exists()
    with tarfile.open(out / "again" / "digits-1.0.tar.gz") as file:
        assert not [name for name in file.getnames() if "/build/" in name]


def test_generated_files_stay_out_of_git_and_are_replaced_as_a_whole(project: Project, python: Python) -> None:
    python.wheel(project)
    project.write("build/mlaot/c/stale.c", "")
    project.write("model.py", "digits = 44\n")
    wheel = python.wheel(project)
    assert project.files() - {"model.py", "pyproject.toml"} > {"build/mlaot/.gitignore", "build/mlaot/c/CMakeLists.txt"}
    assert (project.path / "build/mlaot/.gitignore").read_text() == "*\n"
    assert "build/mlaot/c/stale.c" not in project.files()
    assert sorted(path.name for path in (project.path / "build/mlaot").iterdir() if path.is_dir()) == [
        "c",
        "lib",
        "metadata",
    ]
    assert wheel.exists()


def test_requirements_for_tracing(project: Project, python: Python) -> None:
    project.write(
        "pyproject.toml",
        PYPROJECT.format(requires="", backend="mlaot.build", model="model:digits")
        + '[tool.mlaot]\nrequires = ["torch>=2"]\n',
    )
    for kind in ("wheel", "editable", "sdist"):
        result = python.hook(project, f"get_requires_for_build_{kind}")
        assert "'torch>=2'" in result.stdout, result.stderr
        assert "warning" not in (result.stdout + result.stderr).lower()


@pytest.mark.parametrize("hook", ["prepare_metadata_for_build_wheel", "prepare_metadata_for_build_editable"])
def test_metadata_needs_no_tracing(project: Project, python: Python, hook: str, tmp_path: Path) -> None:
    project.write("model.py", "raise SystemExit('traced')\n")
    result = python.hook(project, hook, str(tmp_path))
    assert result.stdout.endswith("returned digits-1.0.dist-info\n"), result.stderr
    assert f"Tag: {TAG}" in (tmp_path / "digits-1.0.dist-info" / "WHEEL").read_text()


def test_other_peoples_builds_are_left_alone(project: Project, python: Python) -> None:
    project.write(
        "pyproject.toml", '[project]\nname = "other"\nversion = "1"\n[tool.scikit-build]\nwheel.cmake = false\n'
    )
    project.write("other/__init__.py", "")
    for backend in ("scikit_build_core.build", "setuptools.build_meta"):
        code = f"import mlaot.build, {backend} as b; print(b.build_wheel('.'))"
        assert "other-1-py3-none-any.whl" in python.check("-c", code, cwd=project.path)


def test_user_settings_of_scikit_build_win_over_our_defaults(project: Project, python: Python) -> None:
    project.write(
        "pyproject.toml",
        (project.path / "pyproject.toml").read_text() + '[tool.scikit-build]\nwheel.packages = ["extra"]\n',
    )
    project.write("extra/__init__.py", "")
    assert "extra/__init__.py" in names(python.wheel(project))


DOORS = {
    "smallest": ({}, "model.py", 42),
    "package": (PACKAGE, "src/digits/numbers.py", 43),
    "setuptools": (PACKAGE | {"pyproject.toml": SETUPTOOLS_PACKAGE}, "src/digits/numbers.py", 43),
}


@pytest.mark.parametrize("door", DOORS)
def test_editable_install(project: Project, fake_wheel: Path, environment: Callable[..., Python], door: str) -> None:
    """Python files are live; a module whose model was edited says so until it is installed again."""
    files, edited, value = DOORS[door]
    if files:
        write(project, files)
    python = environment(fake_wheel)

    def use() -> list[str]:
        done = python.run("-c", USE, cwd=project.path.parent)
        return (done.stdout + done.stderr).splitlines()

    python.install_editable(project)
    assert use() == [f"{value} 7"]
    if files:
        project.write("src/digits/text.py", "print('live')\n")
        assert use() == ["live", f"{value} 7"]
        project.write("src/digits/text.py", "")
    for again in (50, 51):  # less than a second apart, of the same size
        project.write(edited, f"digits = {again}\n")
        answer, warning, *_ = use()
        assert answer == f"{value} 7"
        mend = f"mend it with: pip install -e {project.path}"
        assert warning.endswith(
            f"UserWarning: digits.nn is older than {project.path / edited}, from which it was made; {mend}"
        )
        python.install_editable(project)
        value = again
        assert use() == [f"{value} 7"]


def test_wheel_after_an_editable_install_does_not_watch(project: Project, python: Python, tmp_path: Path) -> None:
    settings = '[tool.scikit-build]\nbuild-dir = "build/cmake"\n'
    project.write("pyproject.toml", (project.path / "pyproject.toml").read_text() + settings)
    editable = python.hook(project, "build_editable", str(tmp_path))
    assert editable.returncode == 0, editable.stderr
    assert {"_mlaot_digits.py", "_mlaot_digits.pth"} <= names(next(tmp_path.glob("*.whl")))
    assert names(python.wheel(project)) == {
        "digits/__init__.py",
        "digits/nn.abi3.so",
        "digits/nn.pyi",
        "digits/py.typed",
    }


def test_setuptools_builds_the_same_wheel(project: Project, python: Python) -> None:
    write(project, PACKAGE)
    ours = python.wheel(project)
    with zipfile.ZipFile(ours) as file:
        expected = file.read("digits/nn.abi3.so")
    project.write("pyproject.toml", SETUPTOOLS_PACKAGE)
    theirs = python.wheel(project)
    assert theirs.name == ours.name
    assert names(theirs) == names(ours) | {"digits/nn.abi3.so"}
    with zipfile.ZipFile(theirs) as file:
        assert file.read("digits/nn.abi3.so") == expected
    assert "src/digits/nn.abi3.so" not in project.files()


@pytest.mark.parametrize("stable", [False, True], ids=["own tag", "stable ABI"])
def test_setuptools_beside_an_extension_of_the_project(
    project: Project, python: Python, environment: Callable[..., Python], fake_wheel: Path, stable: bool
) -> None:
    """The wheel has the tag that the project's own C needs; an editable install puts both where they are found."""
    options = {"py_limited_api": True, "define_macros": [("Py_LIMITED_API", "0x030b0000")]} if stable else {}
    fast = {"setup.py": SETUP_PY.format(options=options), "src/digits/fast.c": FAST_C}
    write(project, PACKAGE | {"pyproject.toml": SETUPTOOLS_PACKAGE} | fast)
    wheel = python.wheel(project)
    tag = f"cp3{sys.version_info[1]}"
    assert wheel.name.startswith(f"digits-1.0-{TAG}" if stable else f"digits-1.0-{tag}-{tag}-")
    assert {"digits/nn.abi3.so", "digits/nn.pyi", "digits/py.typed"} < names(wheel)
    use = "from digits import fast, nn; print(fast.twice(nn.value()))"
    assert environment(wheel).check("-c", use, cwd=wheel.parent) == "86\n"
    editable = environment(fake_wheel)
    editable.check("-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps", "-e", ".", cwd=project.path)
    assert editable.check("-c", use, cwd=wheel.parent) == "86\n"
    assert editable.run("-c", "import digits.fast", cwd=wheel.parent).stderr == ""


def test_setuptools_smallest_project_and_sdist(
    project: Project, python: Python, environment: Callable[..., Python]
) -> None:
    project.write("pyproject.toml", SETUPTOOLS)
    project.write("train.py", "")
    out = project.path.parent / "sdist"
    result = python.hook(project, "build_sdist", str(out))
    assert result.returncode == 0, result.stdout + result.stderr
    with tarfile.open(out / "digits-1.0.tar.gz") as file:
        file.extractall(out, filter="data")
    unpacked = Project(out / "digits-1.0")
    assert "_mlaot/digits.nn/nn.c" in unpacked.files()
    assert "model.py" not in unpacked.files()
    wheel = python.wheel(unpacked)
    assert names(wheel) == {"digits/__init__.py", "digits/nn.abi3.so", "digits/nn.pyi", "digits/py.typed"}
    assert environment(wheel).check("-c", USE, cwd=out) == "42 7\n"


@pytest.mark.parametrize("editable", [False, True], ids=["wheel", "editable"])
def test_isolated_build_with_pip(
    project: Project, fake_wheel: Path, environment: Callable[..., Python], editable: bool
) -> None:
    """The only tests that go to the package index: for numpy, jinja2 and scikit-build-core."""
    pins = pinned(fake_wheel, project.path.parent)
    if editable:  # the environment has no mlaot, only what pip makes for the build
        python = environment()
        python.check("-m", "pip", "install", "-q", "--no-deps", "-e", ".", cwd=project.path, **pins)
    else:
        out = project.path.parent / "wheels"
        # An editable install of mlaot next to pytest would reach into pip's own environment: a clean one runs it.
        environment().check("-m", "pip", "wheel", "-q", "--no-deps", ".", "-w", out, cwd=project.path, **pins)
        (wheel,) = out.iterdir()
        assert os.path.getsize(wheel) < 20_000
        python = environment(wheel)
    assert python.check("-c", USE, cwd=project.path.parent) == "42 7\n"
    if editable:
        project.write("model.py", "digits = 43\n")
        assert "digits.nn is older than" in python.run("-c", USE, cwd=project.path.parent).stderr


def test_bill_of_materials_behind_both_doors(project: Project, python: Python) -> None:
    """The same file, with the project's licence; paths of the project, wherever it lies, are not in it."""
    boms = []
    for text in (PACKAGE["pyproject.toml"], SETUPTOOLS_PACKAGE):
        write(project, PACKAGE | {"pyproject.toml": text.replace("[project]", "[project]\nlicense = 'MIT'")})
        with zipfile.ZipFile(python.wheel(project, CFLAGS=f"-I{project.path}/include")) as file:
            boms.append(file.read("digits-1.0.dist-info/sboms/digits.cdx.json"))
        project.write("model.py", "")
    assert boms[0] == boms[1] and str(project.path).encode() not in boms[0]
    bom = json.loads(boms[0])
    assert bom["metadata"]["component"]["licenses"] == [{"expression": "MIT"}]
    assert {part["name"] for part in bom["components"]} == {
        "digits.nn",
        "src/digits/model.py",
        "src/digits/numbers.py",
    }
    (flags,) = (p["value"] for p in bom["metadata"]["tools"]["components"][1]["properties"] if "CFLAGS" in p["name"])
    assert flags == "-I./include"
