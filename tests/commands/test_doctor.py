"""``mlaot doctor``: what is missing is said, with the way to get it, and is the exit status."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import pytest

from .conftest import Cli, complaint


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, and a compiler of the machine's choice."""
    monkeypatch.chdir(tmp_path)
    for name in ("CC", "CFLAGS", "CMAKE_ARGS", "CMAKE_TOOLCHAIN_FILE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def checks(cli: Cli, status: int, *arguments: str | Path) -> dict[str, list[str]]:
    """By what was looked at: the status, and what was found."""
    result = cli("doctor", *arguments, "--json")
    assert (result.status, result.err) == (status, "")
    found = json.loads(result.out)
    assert found["can_build"] == (status == 0)
    return {check["what"]: [check["status"], check["found"]] for check in found["checks"]}


def test_a_machine_that_can(cli: Cli) -> None:
    found = checks(cli, 0)
    assert {status for status, _ in found.values()} <= {"ok", "fetched", "optional"}
    assert {"python", "mlaot", "numpy", "jinja2", "compiler", "zig", "cpu"} <= set(found)
    assert "base" in found["cpu"][1] and "micrograd" not in found and "project" not in found
    assert cli("doctor").out.endswith("\nA wheel can be built here.\n")


def test_cache(cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLAOT_CACHE", str(folder / "kept"))
    assert checks(cli, 0)["cache"] == ["ok", f"{folder / 'kept'}, 0 B in 0 objects"]
    (folder / "kept").mkdir()
    (folder / "kept" / "a").write_bytes(bytes(1500))
    assert checks(cli, 0)["cache"][1].endswith("kept, 1.5 KB in 1 objects")
    monkeypatch.setenv("MLAOT_CACHE", "off")
    assert checks(cli, 0)["cache"] == ["ok", "none: MLAOT_CACHE is off"]


def test_no_compiler(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "/no/such/cc")
    found = checks(cli, 1)
    assert found["compiler"] == ["missing", "no C compiler: CC is '/no/such/cc', which is not on PATH"]
    assert "cpu" not in found
    assert cli("doctor").out.endswith("\nNo wheel can be built here: see `missing` above.\n")


def test_a_broken_compiler(cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "cc").write_text("#!/bin/sh\necho 'cc: fatal error: no cc1' >&2\nexit 1\n")
    (folder / "cc").chmod(0o755)
    monkeypatch.setenv("CC", str(folder / "cc"))
    assert checks(cli, 1)["compiler"][1].endswith("does not work: cc: fatal error: no cc1")


def test_a_compiler_for_other_machines(cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = '#!/bin/sh\ncc "$@" && for last; do :; done && case $last in *candidates.so) echo > $last;; esac\n'
    (folder / "cross").write_text(script)
    (folder / "cross").chmod(0o755)
    monkeypatch.setenv("CC", str(folder / "cross"))
    assert checks(cli, 0)["cpu"][1].endswith("the compiler is one for other machines")


def test_zig_compiles_where_nothing_else_does(cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ziglang")
    monkeypatch.setenv("PATH", str(folder))
    found = checks(cli, 0)
    assert found["compiler"][0] == "ok" and "zig cc -target " in found["compiler"][1]
    monkeypatch.setitem(sys.modules, "ziglang", None)
    status, text = checks(cli, 0)["compiler"]
    assert status == "fetched" and text.endswith("(pip install 'ziglang>=0.17,<0.18')")
    assert "by pip, which fetches zig; `mlaot build` fetches nothing" in cli("doctor").out.splitlines()[-1]


@pytest.mark.parametrize("reason", ["setuptools", "no zig for this platform"])
def test_zig_is_not_fetched_where_nobody_does(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    """setuptools has no way to ask pip for it, and it does not compile for every machine."""
    monkeypatch.setitem(sys.modules, "ziglang", None)
    monkeypatch.setenv("PATH", str(folder))
    cli("init", "digits")
    assert checks(cli, 0, "digits")["compiler"][0] == "fetched"
    if reason == "setuptools":
        path = folder / "digits" / "pyproject.toml"
        path.write_text(path.read_text().replace("mlaot.build", "setuptools.build_meta"))
    else:
        monkeypatch.setattr("sysconfig.get_platform", lambda: "linux-riscv64")
    status, text = checks(cli, 1, "digits")["compiler"]
    assert status == "missing" and text.startswith("no C compiler: looked for $CC, cc, gcc and clang on PATH; install")


@pytest.mark.parametrize(
    ("requirement", "text"),
    [("numpy>=99", "pip install 'numpy>=99'"), ("no-such-package", "not installed: pip install 'no-such-package'")],
)
def test_packages(requirement: str, text: str, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.requires", lambda name: [requirement, "rich; extra == 'bench'"])
    status, found = checks(cli, 1)[requirement.partition(">")[0]]
    assert status == "missing" and found.endswith(text)


def test_no_temporary_folder(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "/no/such/cc")  # it would be tried there
    monkeypatch.setattr(tempfile, "tempdir", "/no/such/folder")
    assert checks(cli, 1)["temporary folder"][1].endswith("set TMPDIR to a folder that can be written")


def test_the_project_in_this_folder(cli: Cli, folder: Path) -> None:
    cli("init", "--name", "digits")
    assert checks(cli, 0)["project"] == ["ok", "digits: digits.nn from model:classify"]
    (folder / "pyproject.toml").write_text("[project]\nname = 'other'\n")
    assert checks(cli, 0)["project"] == ["ok", "none of mlaot: no [tool.mlaot] in pyproject.toml"]
    (folder / "pyproject.toml").write_text("[tool.mlaot]\nmodle = 1\n")
    assert checks(cli, 1)["project"][1].endswith("did you mean 'models'?")
    (folder / "pyproject.toml").write_text("[tool\n")
    assert checks(cli, 1)["project"][1].startswith("pyproject.toml is not valid TOML")


def test_the_project_in_another_folder(cli: Cli, folder: Path) -> None:
    cli("init", "digits")
    assert checks(cli, 0, "digits")["project"] == ["ok", "digits: digits.nn from model:classify"]
    (folder / "empty").mkdir()
    assert checks(cli, 1, "empty")["project"] == ["missing", "no pyproject.toml in empty"]
    assert complaint(cli("doctor", "nothing")) == "mlaot: no folder nothing; expected one with a pyproject.toml"


def test_a_model_of_another_kind(cli: Cli, folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[project]\nname = 'a'\n[tool.mlaot.models.nn]\nonnx = 'm.onnx'\n")
    assert checks(cli, 0)["project"] == ["ok", "a: a.nn from m.onnx"]
