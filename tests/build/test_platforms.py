"""Tags of wheels, and what zig is told for each of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mlaot.build import toolchain
from mlaot.build.hooks import split_options
from mlaot.build.platforms import (
    ABI3,
    ABI3T,
    EVERYWHERE,
    Platform,
    module_suffix,
    parse_platform,
    python_exports,
    python_library,
    this_platform,
)
from mlaot.errors import MlaotError
from mlaot.render import template_text

from .conftest import Project, Python, last_line


@pytest.mark.parametrize(
    ("tag", "system", "target"),
    [
        ("manylinux_2_17_x86_64", "linux", "x86_64-linux-gnu.2.17"),
        ("manylinux_2_28_aarch64", "linux", "aarch64-linux-gnu.2.28"),
        ("musllinux_1_2_aarch64", "musl", "aarch64-linux-musl"),
        ("macosx_11_0_arm64", "macos", "aarch64-macos.11.0"),
        ("macosx_13_0_x86_64", "macos", "x86_64-macos.13.0"),
        ("win_amd64", "windows", "x86_64-windows-gnu"),
        ("win_arm64", "windows", "aarch64-windows-gnu"),
    ],
)
def test_targets(tag: str, system: str, target: str) -> None:
    platform = parse_platform(tag)
    assert platform == Platform(tag, system, target)
    for abi, suffix in ((ABI3, ".abi3.so"), (ABI3T, ".abi3t.so")):
        assert module_suffix(abi, platform) == (".pyd" if system == "windows" else suffix)
    assert target.startswith(platform.machine)


def test_older_name_of_a_platform() -> None:
    assert parse_platform("manylinux2014_x86_64").tag == "manylinux_2_17_x86_64"


@pytest.mark.parametrize(
    ("tag", "message"),
    [
        ("linux_x86_64", r"expected the tag of a wheel such as manylinux_2_17_x86_64, .*; did you mean"),
        ("manylinux_2_17_x86-64", r"; did you mean 'manylinux_2_17_x86_64'\?"),
        ("macosx_11_0_aarch64", r"; did you mean 'macosx_11_0_arm64'\?"),
        ("manylinux_2_17_riscv64", r"expected the tag of a wheel such as"),
        ("manylinux_2_5_x86_64", r"expected at least manylinux_2_17_x86_64, which runs on all newer systems too"),
        ("musllinux_1_1_x86_64", r"expected at least musllinux_1_2_x86_64"),
        ("macosx_10_9_x86_64", r"expected at least macosx_11_0_x86_64"),
        ("", r"platform '': expected the tag"),
    ],
)
def test_wrong_tags(tag: str, message: str) -> None:
    with pytest.raises(MlaotError, match=message):
        parse_platform(tag)


@pytest.mark.parametrize(
    ("found", "libc", "tag"),
    [
        ("linux-x86_64", "glibc", "manylinux_2_17_x86_64"),
        ("linux-aarch64", "glibc", "manylinux_2_17_aarch64"),
        ("linux-x86_64", "", "musllinux_1_2_x86_64"),
        ("macosx-14.0-arm64", "", "macosx_11_0_arm64"),
        ("win-amd64", "", "win_amd64"),
    ],
)
def test_this_platform(monkeypatch: pytest.MonkeyPatch, found: str, libc: str, tag: str) -> None:
    monkeypatch.setattr("sysconfig.get_platform", lambda: found)
    monkeypatch.setattr("platform.libc_ver", lambda: (libc, ""))
    assert this_platform().tag == tag


def test_exports_are_what_the_header_declares() -> None:
    assert (python_library(ABI3), python_library(ABI3T)) == ("python3", "python3t")
    lines = python_exports("python3t").splitlines()
    assert lines[:2] == ["NAME python3t.dll", "EXPORTS"]
    names = {line.split()[0] for line in lines[2:]}
    data = {line.split()[0] for line in lines[2:] if line.endswith(" DATA")}
    assert len(names) == len(lines[2:])
    assert {"Py_Version", "_Py_NoneStruct", "PyBool_Type", "PyExc_ValueError", "PyExc_BufferError"} <= data
    # Everything that some template uses of Python, but for macros, constants and types.
    templates = Path(__file__).parents[2] / "templates"
    text = "\n".join(path.read_text() for path in templates.rglob("*.j2"))
    used = set(re.findall(r"\b_?Py[A-Z]\w+(?=\()", text)) | {"PyObject_GetTypeData"}
    assert used - names == set()
    assert data == set(re.findall(r"PyExc_\w+", template_text("mlaot_abi3.h"))) | {
        "Py_Version",
        "_Py_NoneStruct",
        "_Py_EllipsisObject",
        "PyBool_Type",
        "PySlice_Type",
    }


def test_options() -> None:
    abi, platform, others = split_options({"mlaot.platform": "win_arm64", "mlaot.abi": ABI3T, "wheel.build-tag": "2"})
    assert abi == ABI3T
    assert platform is not None and platform.tag == "win_arm64" and others == {"wheel.build-tag": "2"}
    assert split_options({}) == (ABI3, None, {})
    with pytest.raises(MlaotError, match=r"unknown option -C mlaot\.plattform; expected mlaot\.abi or mlaot\.platform"):
        split_options({"mlaot.plattform": "win_arm64"})
    with pytest.raises(MlaotError, match=r"expected one platform, got 'win_amd64,win_arm64'; mlaot wheel makes"):
        split_options({"mlaot.platform": "win_amd64,win_arm64"})
    with pytest.raises(MlaotError, match=r"ABI 'cp315-abit': expected cp311-abi3 or cp315-abi3t; did you mean"):
        split_options({"mlaot.abi": "cp315-abit"})


def test_zig_is_asked_for_where_it_compiles(project: Project, python: Python, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    hook = "get_requires_for_build_wheel"
    assert "ziglang" not in python.check("-P", "-c", f"import mlaot.build as b; print(b.{hook}())", cwd=project.path)
    assert f"'{toolchain.ZIG}'" in python.hook(project, hook, PATH=str(tmp_path / "empty")).stdout
    assert f"'{toolchain.ZIG}'" in python.hook(project, hook, {"mlaot.platform": "win_amd64"}).stdout
    tag = "Tag: cp311-abi3-win_amd64"
    metadata = python.hook(project, "prepare_metadata_for_build_wheel", str(tmp_path), {"mlaot.platform": "win_amd64"})
    assert metadata.returncode == 0, metadata.stderr
    assert tag in (tmp_path / "digits-1.0.dist-info" / "WHEEL").read_text()


def test_without_zig(project: Project, python: Python, no_zig: str) -> None:
    options = {"mlaot.platform": "win_amd64"}
    result = python.hook(project, "build_wheel", str(project.path), options, PYTHONPATH=no_zig)
    expected = f"mlaot: a wheel for win_amd64 is compiled by zig, which is not installed: pip install '{toolchain.ZIG}'"
    assert last_line(result) == expected


def test_wrong_option_is_one_line(project: Project, python: Python) -> None:
    result = python.hook(project, "build_wheel", str(project.path), {"mlaot.platform": "win_x86"})
    assert last_line(result).startswith("mlaot: platform 'win_x86': expected the tag of a wheel such as ")


def test_command_line(project: Project, python: Python) -> None:
    help_ = python.check("-P", "-m", "mlaot", "wheel", "--help", cwd=project.path)
    assert all(tag in "".join(help_.split()) for tag in EVERYWHERE)
    message = last_line(python.run("-P", "-m", "mlaot", "wheel", "--platform", "win", cwd=project.path))
    assert message.startswith("mlaot: platform 'win': expected")
    text = (project.path / "pyproject.toml").read_text().replace("mlaot.build", "setuptools.build_meta")
    project.write("pyproject.toml", text)
    message = last_line(python.run("-P", "-m", "mlaot", "wheel", "--platform", "all", cwd=project.path))
    assert message == (
        "mlaot: mlaot wheel makes wheels of projects with build-backend = 'mlaot.build'; pyproject.toml has"
        " 'setuptools.build_meta'"
    )
