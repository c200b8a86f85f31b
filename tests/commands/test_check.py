"""``mlaot check``: what is wrong with a wheel's files is told file by file, and nothing of it is run."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from mlaot.commands.record import digest_of, wrong_files

from .conftest import Cli

INFO = "small-1.0.dist-info"
FILES = {
    "small/__init__.py": b"",
    "small/nn.pyi": b"def forward(): ...\n",
    "small/ä, b.txt": b"with a comma",
    f"{INFO}/METADATA": b"Metadata-Version: 2.4\nName: small\nVersion: 1.0\n",
    f"{INFO}/WHEEL": b"Wheel-Version: 1.0\n",
}
Files = dict[str, bytes]


def row(name: str, content: bytes, kind: str = "sha256") -> str:
    """A line of RECORD."""
    quoted = f'"{name}"' if "," in name else name
    return f"{quoted},{kind}={digest_of(kind, content)},{len(content)}\n"


def packed() -> Files:
    """The files of a wheel that is right."""
    record = "".join(row(name, content) for name, content in FILES.items()) + f"{INFO}/RECORD,,\n"
    return {**FILES, f"{INFO}/RECORD": record.encode()}


def wheel_of(path: Path, files: Files, more: tuple[tuple[str, bytes], ...] = ()) -> Path:
    """A wheel with these files, and further ones in spite of their names."""
    wheel = path / "small-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        for name, content in (*files.items(), *more):
            file.writestr(name, content)
    return wheel


def test_a_wheel_that_is_right(tmp_path: Path) -> None:
    """Digests of other kinds, sizes that are not said, folders and signatures are no mistake."""
    files = packed()
    assert wrong_files(wheel_of(tmp_path, files)) == []
    record = files[f"{INFO}/RECORD"].decode()
    pyi = FILES["small/nn.pyi"]
    record = record.replace(row("small/nn.pyi", pyi), row("small/nn.pyi", pyi, "sha512").rpartition(",")[0] + ",\n")
    others = files | {f"{INFO}/RECORD": record.encode(), f"{INFO}/RECORD.jws": b"{}", "small/": b""}
    assert wrong_files(wheel_of(tmp_path, others)) == []


def without(name: str) -> Callable[[Files], None]:
    return lambda files: files.pop(name) and None


def added(name: str, content: bytes = b"import os") -> Callable[[Files], None]:
    return lambda files: files.update({name: content})


def recorded(old: str, new: str) -> Callable[[Files], None]:
    """Other text in RECORD."""

    def change(files: Files) -> None:
        record = files[f"{INFO}/RECORD"].decode()
        assert old in record
        files[f"{INFO}/RECORD"] = record.replace(old, new, 1).encode()

    return change


STUB = digest_of("sha256", FILES["small/nn.pyi"])
METADATA = digest_of("sha256", FILES[f"{INFO}/METADATA"])
OTHER = digest_of("sha256", b"Name: x")
WRONG = [
    (added("evil.pth"), ["evil.pth: is not in RECORD"]),
    (added(f"{INFO}/extra"), [f"{INFO}/extra: is not in RECORD"]),
    (without("small/nn.pyi"), ["small/nn.pyi: is in RECORD, but not there"]),
    (
        added(f"{INFO}/METADATA", b"Name: x"),
        [f"{INFO}/METADATA: expected 47 bytes, got 7", f"{INFO}/METADATA: expected sha256={METADATA}, got {OTHER}"],
    ),
    (recorded(STUB, OTHER), [f"small/nn.pyi: expected sha256={OTHER}, got {STUB}"]),
    (recorded(f"{STUB},19", f"{STUB},20"), ["small/nn.pyi: expected 20 bytes, got 19"]),
    (
        recorded(f"sha256={STUB}", "md5=abc"),
        ["small/nn.pyi: expected a digest by sha256, sha384, sha512 in RECORD, got 'md5=abc'"],
    ),
    (
        recorded(f"sha256={STUB}", ""),
        ["small/nn.pyi: expected a digest by sha256, sha384, sha512 in RECORD, got ''"],
    ),
    (
        recorded(f"{INFO}/RECORD,,", f"{INFO}/RECORD"),
        [
            f"{INFO}/RECORD: is not in RECORD",
            f"{INFO}/RECORD: line 6: expected a path, a digest and a size, got 1 fields",
        ],
    ),
    (recorded(f"{INFO}/RECORD,,", "small/nn.pyi,,"), [f"{INFO}/RECORD: is not in RECORD", "small/nn.pyi: stands in"]),
    (without(f"{INFO}/RECORD"), ["RECORD: expected one .dist-info/RECORD, got 0"]),
    (added("other-1.dist-info/RECORD", b""), ["RECORD: expected one .dist-info/RECORD, got 2"]),
    (added(f"{INFO}/RECORD", b"\xff"), [f"{INFO}/RECORD: cannot be read: 'utf-8' codec"]),
    (added(f"{INFO}/RECORD", b'"a'), [f"{INFO}/RECORD: cannot be read: unexpected end of data"]),
    (added("../evil.py"), ["../evil.py: is not in RECORD", "../evil.py: leads out of the wheel"]),
    (added("/evil.py"), ["/evil.py: is not in RECORD", "/evil.py: leads out of the wheel"]),
]


@pytest.mark.parametrize(("change", "lines"), WRONG)
def test_what_is_wrong(cli: Cli, tmp_path: Path, change: Callable[[Files], None], lines: list[str]) -> None:
    """A line each, and the exit status 1."""
    files = packed()
    change(files)
    wheel = wheel_of(tmp_path, files)
    result = cli("check", wheel)
    assert (result.status, result.err) == (1, "")
    said = result.out.splitlines()
    assert len(said) == len(lines) and all(one.startswith(line) for one, line in zip(said, lines, strict=True)), said
    found = json.loads(cli("check", wheel, "--json").out)
    assert [f"{row['file']}: {row['what']}" for row in found["wrong"]] == said


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_file_twice(tmp_path: Path) -> None:
    """Of two with one name some tools read the first, others the last."""
    wheel = wheel_of(tmp_path, packed(), (("small/nn.pyi", FILES["small/nn.pyi"]),))
    assert wrong_files(wheel) == [("small/nn.pyi", "is there 2 times")]


def test_nothing_of_it_is_run(cli: Cli, wheel: Path, tmp_path: Path) -> None:
    """A real wheel is right, and is not imported once it is not."""
    result = cli("check", wheel)
    assert result.status == 0 and "% of the bound" in result.out
    changed = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name) if not name.endswith(".so") else b"\x7fELF")
    result = cli("check", changed)
    assert result.status == 1 and result.err == ""
    assert {line.partition(":")[0] for line in result.out.splitlines()} == {"small/nn.abi3.so"}
