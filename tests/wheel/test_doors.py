"""The other ways from a project to a module, with the real compiler: sdist, setuptools, editable install."""

from __future__ import annotations

import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from .conftest import PROJECTS, WHEEL, Project, Python, Wheel, copy_project, make_environment


def content(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as file:
        return {name: file.read(name) for name in file.namelist() if ".dist-info/" not in name}


def test_sdist_builds_without_tracing(builder: Python, wheel: Wheel, tmp_path: Path) -> None:
    """No weights and no framework are needed for the wheel, which is the same to the byte."""
    project = copy_project(PROJECTS["serve"], tmp_path / "serve")
    result = builder.hook(project, "build_sdist", str(tmp_path))
    assert result.returncode == 0, result.stderr
    with tarfile.open(tmp_path / "digits-1.0.tar.gz") as file:
        file.extractall(tmp_path, filter="data")
    unpacked = Project(tmp_path / "digits-1.0")
    assert {"_mlaot/CMakeLists.txt", "_mlaot/digits.nn/nn.c", "_mlaot/digits.nn/nn_base.c"} <= unpacked.files()
    unpacked.write("model.py", "import a_framework\n")
    (unpacked.path / "weights.safetensors").unlink(missing_ok=True)
    builder.check(*WHEEL, "-w", tmp_path / "out", ".", cwd=unpacked.path)
    (made,) = (tmp_path / "out").iterdir()
    assert made.read_bytes() == wheel("serve").read_bytes()


def test_wheel_is_reproducible(builder: Python, wheel: Wheel, tmp_path: Path) -> None:
    """In another folder, with another hash seed, time zone, locale and umask: the same bytes."""
    project = copy_project(PROJECTS["xor"], tmp_path / "else where" / "ünïcode")
    before = os.umask(0o077)
    try:
        environ = {"PYTHONHASHSEED": "77", "TZ": "Asia/Tokyo", "LC_ALL": "C", "MLAOT_CACHE": "off"}
        builder.check(*WHEEL, "-w", tmp_path, ".", cwd=project.path, **environ)
    finally:
        os.umask(before)
    (made,) = tmp_path.glob("*.whl")
    assert made.read_bytes() == wheel("xor").read_bytes()


def test_setuptools(builder: Python, wheel: Wheel, tmp_path: Path) -> None:
    """The same extension module, by way of setuptools."""
    pytest.importorskip("setuptools", minversion="77")
    project = copy_project(PROJECTS["xor"], tmp_path / "xor")
    text = (project.path / "pyproject.toml").read_text()
    text = text.replace('["mlaot"]', '["setuptools>=77", "mlaot"]').replace("mlaot.build", "setuptools.build_meta")
    project.write("pyproject.toml", text)
    (project.path / "train.py").unlink()
    builder.check(*WHEEL, "-w", tmp_path, ".", cwd=project.path)
    (made,) = tmp_path.glob("*.whl")
    assert made.name == wheel("xor").name
    assert content(made) == content(wheel("xor"))


def test_cmake(builder: Python, wheel: Wheel, tmp_path: Path) -> None:
    """The same extension module, by way of a CMakeLists.txt of the project's own and scikit-build-core."""
    project = copy_project(PROJECTS["xor"], tmp_path / "xor")
    text = (project.path / "pyproject.toml").read_text()
    text = text.replace('["mlaot"]', '["scikit-build-core", "mlaot"]').replace("mlaot.build", "scikit_build_core.build")
    project.write("pyproject.toml", text + '[tool.scikit-build]\nwheel.py-api = "cp311"\nwheel.packages = []\n')
    project.write(
        "CMakeLists.txt",
        "cmake_minimum_required(VERSION 3.21)\nproject(xor LANGUAGES C)\nfind_package(mlaot CONFIG REQUIRED)\n"
        "mlaot_add_module(nn)\ninstall(TARGETS nn LIBRARY DESTINATION xor)\n"
        "install(FILES $<TARGET_PROPERTY:nn,MLAOT_STUB> DESTINATION xor)\n",
    )
    builder.check(*WHEEL, "-w", tmp_path, ".", cwd=project.path)
    (made,) = tmp_path.glob("*.whl")
    assert made.name == wheel("xor").name
    expected = content(wheel("xor"))
    assert content(made) == {name: expected[name] for name in ("xor/nn.abi3.so", "xor/nn.pyi")}


def test_a_shared_runtime(builder: Python, wheel: Wheel, tmp_path: Path) -> None:
    """By way of an sdist, of setuptools and of CMake: the same files, the runtime among them."""
    pytest.importorskip("setuptools", minversion="77")
    project = copy_project(PROJECTS["zoo"], tmp_path / "zoo")
    text = (project.path / "pyproject.toml").read_text()
    assert builder.hook(project, "build_sdist", str(tmp_path)).returncode == 0
    with tarfile.open(tmp_path / "zoo-1.0.tar.gz") as file:
        file.extractall(tmp_path, filter="data")
    unpacked = Project(tmp_path / "zoo-1.0")
    builder.check(*WHEEL, "-w", tmp_path / "again", ".", cwd=unpacked.path)
    (made,) = (tmp_path / "again").iterdir()
    expected = content(wheel("zoo"))
    assert content(made) == expected
    door = text.replace('["mlaot"]', '["setuptools>=77", "mlaot"]').replace("mlaot.build", "setuptools.build_meta")
    project.write("pyproject.toml", door)
    builder.check(*WHEEL, "-w", tmp_path / "setuptools", ".", cwd=project.path)
    (made,) = (tmp_path / "setuptools").iterdir()
    assert content(made) == expected
    door = text.replace('["mlaot"]', '["scikit-build-core", "mlaot"]').replace("mlaot.build", "scikit_build_core.build")
    project.write("pyproject.toml", door + '[tool.scikit-build]\nwheel.py-api = "cp311"\nwheel.packages = []\n')
    cmake = (
        "cmake_minimum_required(VERSION 3.21)\nproject(zoo LANGUAGES C)\nfind_package(mlaot CONFIG REQUIRED)\n"
        "mlaot_add_module(pair)\nmlaot_add_module(kinds)\n{}install(TARGETS {} pair kinds LIBRARY DESTINATION zoo)\n"
    )
    project.write("CMakeLists.txt", cmake.format("mlaot_add_module(runtime)\n", "runtime"))
    builder.check(*WHEEL, "-w", tmp_path / "cmake", ".", cwd=project.path)
    (made,) = (tmp_path / "cmake").iterdir()
    names = ("zoo/runtime.abi3.so", "zoo/pair.abi3.so", "zoo/kinds.abi3.so")
    assert content(made) == {name: expected[name] for name in names}
    project.write("CMakeLists.txt", cmake.format("", ""))
    result = builder.run(*WHEEL, "-w", tmp_path, ".", cwd=project.path)
    assert "shares the runtime 'zoo.runtime', which nothing builds; add mlaot_add_module(runtime" in result.stderr


def test_weights_beside_the_module(builder: Python, tmp_path: Path) -> None:
    """By way of an sdist, of setuptools and of CMake: the same file, which the module finds where it is installed."""
    pytest.importorskip("setuptools", minversion="77")
    project = copy_project(PROJECTS["serve"], tmp_path / "serve")
    text = (project.path / "pyproject.toml").read_text() + 'weights = "file"\nweights_dtype = "float16"\n'
    project.write("pyproject.toml", text)
    assert builder.hook(project, "build_sdist", str(tmp_path)).returncode == 0
    with tarfile.open(tmp_path / "digits-1.0.tar.gz") as file:
        file.extractall(tmp_path, filter="data")
    builder.check(*WHEEL, "-w", tmp_path / "sdist", ".", cwd=tmp_path / "digits-1.0")
    named = text.replace('["mlaot"]', '["setuptools>=77", "mlaot"]').replace("mlaot.build", "setuptools.build_meta")
    project.write("pyproject.toml", named)
    builder.check(*WHEEL, "-w", tmp_path / "setuptools", ".", cwd=project.path)
    named = text.replace('["mlaot"]', '["scikit-build-core", "mlaot"]').replace(
        "mlaot.build", "scikit_build_core.build"
    )
    project.write("pyproject.toml", named + '[tool.scikit-build]\nwheel.py-api = "cp311"\nwheel.packages = []\n')
    project.write(
        "CMakeLists.txt",
        "cmake_minimum_required(VERSION 3.21)\nproject(digits LANGUAGES C)\nfind_package(mlaot CONFIG REQUIRED)\n"
        "mlaot_add_module(nn)\ninstall(TARGETS nn LIBRARY DESTINATION digits)\n"
        "install(FILES $<TARGET_PROPERTY:nn,MLAOT_WEIGHTS> DESTINATION digits)\n",
    )
    builder.check(*WHEEL, "-w", tmp_path / "cmake", ".", cwd=project.path)
    wheels = {door: next((tmp_path / door).glob("*.whl")) for door in ("sdist", "setuptools", "cmake")}
    found = {door: content(wheel) for door, wheel in wheels.items()}
    for name in ("digits/nn.weights", "digits/nn.abi3.so"):
        assert found["sdist"][name] == found["setuptools"][name] == found["cmake"][name]
    with zipfile.ZipFile(wheels["cmake"]) as file:
        file.extractall(tmp_path / "site")
    assert builder.check("-c", "from digits import nn; print(*nn.selftest())", cwd=tmp_path / "site").startswith("base")


def test_editable_install(own_wheel: Path, tmp_path: Path) -> None:
    """Installed from its folder, imported from elsewhere."""
    project = copy_project(PROJECTS["xor"], tmp_path / "xor-project")
    python = make_environment(tmp_path / "venv", own_wheel)
    python.check(
        "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps", "--no-index", "-e", ".", cwd=project.path
    )
    learn = (
        "from xor import nn; x = [[0, 0], [0, 1], [1, 0], [1, 1]]; "
        "[nn.train_step(x, [0, 1, 1, 0], lr=0.1) for _ in range(300)]; print(list(map(round, nn.forward(x))))"
    )
    assert python.check("-c", learn, cwd=tmp_path) == "[0, 1, 1, 0]\n"
    assert "build/mlaot/.gitignore" in project.files()
