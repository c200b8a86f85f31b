"""``mlaot build`` and ``mlaot verify``: from an sdist to its wheel, and once more to the same bytes."""

from __future__ import annotations

import json
import re
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from mlaot.commands.verify import compare, difference

from .conftest import Cli, complaint, edit, start


def test_build_and_verify(cli: Cli, tmp_path: Path) -> None:
    """The wheel that the sdist gives is the one that verify gets from it, and not from another model."""
    project, out = tmp_path / "small", tmp_path / "dist"
    assert cli("init", project).status == 0
    with open(project / "pyproject.toml", "a") as file:
        file.write('\n[tool.mlaot]\nisa = ["base"]\n')
    built = cli("build", project, "--sdist", "--out", out, "--no-cache")
    assert built.status == 0, built
    sdist, wheel = sorted(out.iterdir(), key=lambda path: path.suffix)
    made = [line for line in built.out.splitlines() if not line.startswith("mlaot: ")]
    assert [line.split("  ")[0] for line in made] == [sdist.name, wheel.name]
    assert all(re.fullmatch(r"\S+  [\d.]+ KB  [\d.]+ s", line) for line in made)
    same = cli("verify", wheel, "--sdist", sdist)
    assert same.status == 0 and f"{wheel.name} is what its sources give\n" in same.out
    edit(project / "src" / "model.py", ("default_rng(1)", "default_rng(2)"))
    other = cli("verify", wheel, "--source", project, "--json")
    found = json.loads(other.out)
    assert other.status == 1 and not found["same"] and found["sha256"][0] != found["sha256"][1]
    files = {row["file"]: row["difference"] for row in found["files"]}
    assert ".rodata" in files["small/nn.abi3.so"]
    assert {row["what"] for row in found["made_with"]} == {"src/model.py sha256"}
    assert found["hint"] == "it was made from other sources than these"


def test_build_fails_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[build-system]\nbuild-backend = "mlaot.build"\n[project]\nname = "d"\nversion = "1"\n'
        '[tool.mlaot.models.nn]\nmodel = "model:net"\n'
    )
    with start("build", cwd=tmp_path) as process:
        _, err = process.communicate(timeout=300)
    assert process.returncode == 1
    assert err.splitlines()[-1].startswith("mlaot: no module 'model' in folder '.'")


Change = Callable[[dict[str, bytes]], None]


def repacked(wheel: Path, folder: Path, change: Change | None = None, *, year: int = 2000) -> Path:
    """The same wheel after a change of its files, by their names."""
    with zipfile.ZipFile(wheel) as file:
        files = {name: file.read(name) for name in file.namelist()}
    if change:
        change(files)
    made = folder / wheel.name
    with zipfile.ZipFile(made, "w") as new:
        for name, content in files.items():
            new.writestr(zipfile.ZipInfo(name, (year, 1, 1, 0, 0, 0)), content)
    return made


def noted(old: str, new: str) -> Change:
    """Another word in the bill of materials."""

    def change(files: dict[str, bytes]) -> None:
        (name,) = (name for name in files if name.endswith(".cdx.json"))
        assert old.encode() in files[name]
        files[name] = files[name].replace(old.encode(), new.encode())

    return change


def remove(suffix: str) -> Change:
    def change(files: dict[str, bytes]) -> None:
        (name,) = (name for name in files if name.endswith(suffix))
        del files[name]

    return change


def test_what_differs(wheel: Path, tmp_path: Path) -> None:
    """Times; a compiler and an mlaot that are others; a wheel without a bill; a file that is missing."""

    def against(change: Change | None, year: int = 2000) -> tuple[dict[str, str], str]:
        for side in ("given", "rebuilt"):
            (tmp_path / side).mkdir(exist_ok=True)
        given = repacked(wheel, tmp_path / "given", change)
        found = compare(given, repacked(wheel, tmp_path / "rebuilt", year=year))
        assert found["same"] == (change is None and year == 2000)
        return {row["file"]: row["difference"] for row in found["files"]}, found["hint"]

    with zipfile.ZipFile(wheel) as file:
        bill = file.read("small-0.1.0.dist-info/sboms/small.cdx.json").decode()
    compiler = json.loads(bill)["metadata"]["tools"]["components"][1]["version"]
    assert against(None) == ({}, None)
    assert against(None, 2001)[0] == {"(archive)": "times"}
    files, hint = against(noted(f'"version": "{compiler}"', '"version": "99.1"'))
    assert files == {"small-0.1.0.dist-info/sboms/small.cdx.json": "what it was made with"}
    assert "99.1" in hint and hint.endswith(": install that one and set CC to it")
    assert against(noted('"mlaot",\n', '"mlaot", \n'))[1].startswith("nothing that is noted in it differs")
    version = next(tool["version"] for tool in json.loads(bill)["metadata"]["tools"]["components"])
    told = against(noted(f'"version": "{version}"\n    }},', '"version": "77"\n    },'))[1]
    assert told == "it was made with mlaot 77: pip install mlaot==77"
    assert "has no bill of materials" in against(remove(".cdx.json"))[1]
    assert against(remove(".pyi"))[0] == {"small/nn.pyi": "only in the rebuilt wheel"}


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        (b"a\nb\n", b"a\nc\n", "line 2: 'b', here 'c'"),
        (b"a\n", b"a\nc\n", "1 and 2 lines"),
        (b"\xff\x00", b"\xff\x01", "byte 1 of 2 and 2"),
        (b"\xff", b"\xff\x01", "byte 1 of 1 and 2"),
    ],
)
def test_difference(old: bytes, new: bytes, where: str) -> None:
    assert difference(old, new) == where


def test_no_sources(cli: Cli, wheel: Path, tmp_path: Path) -> None:
    """An sdist that is none, a folder that is no project, a wheel that is not there."""
    (tmp_path / "text.tar.gz").write_text("text")
    assert "text.tar.gz is no sdist, or a damaged one: " in complaint(
        cli("verify", wheel, "--sdist", tmp_path / "text.tar.gz")
    )
    with tarfile.open(tmp_path / "empty.tar.gz", "w:gz"):
        pass
    assert "expected one folder with a pyproject.toml in it" in complaint(
        cli("verify", wheel, "--sdist", tmp_path / "empty.tar.gz")
    )
    assert complaint(cli("verify", wheel, "--sdist", "no.tar.gz")) == "mlaot: no file no.tar.gz; expected an sdist"
    assert complaint(cli("verify", wheel, "--source", tmp_path)) == f"mlaot: no pyproject.toml in {tmp_path}"
    assert complaint(cli("verify", "no.whl", "--source", ".")) == "mlaot: no file no.whl; expected a wheel"
    shutil.copy(wheel, tmp_path / "cut.whl")
    with open(tmp_path / "cut.whl", "r+b") as file:
        file.truncate(1000)
    assert "is no wheel, or a damaged one" in complaint(cli("verify", tmp_path / "cut.whl", "--source", "."))
