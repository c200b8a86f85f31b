"""Large files of a wheel are stored as they are."""

from __future__ import annotations

import base64
import csv
import hashlib
import stat
import zipfile
from pathlib import Path

from mlaot.build.wheel_entries import add_entries


def made(folder: Path) -> Path:
    """A wheel with a module in it, and two files added to it."""
    folder.mkdir()
    wheel, library, weights = folder / "a-1.whl", folder / "nn.abi3.so", folder / "nn.weights"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in {
            "a/__init__.py": "x = 1\n",
            "a-1.dist-info/RECORD": "a/__init__.py,sha256=x,6\n,,\n",
        }.items():
            file.writestr(zipfile.ZipInfo(name, (2022, 2, 2, 2, 2, 2)), content, zipfile.ZIP_DEFLATED)
    library.write_bytes(bytes(3000))
    library.chmod(0o700)
    weights.write_bytes(b"w" * 5000)
    add_entries(wheel, {"a/nn.abi3.so": library, "a/nn.weights": weights}, {})
    return wheel


def test_they_are_in_the_wheel_and_in_its_record(tmp_path: Path) -> None:
    with zipfile.ZipFile(made(tmp_path / "one")) as wheel:
        assert wheel.testzip() is None
        entries = {entry.filename: entry for entry in wheel.infolist()}
        lines = list(csv.reader(wheel.read("a-1.dist-info/RECORD").decode().splitlines()))
        library, weights = entries["a/nn.abi3.so"], entries["a/nn.weights"]
        assert list(entries)[-1] == "a-1.dist-info/RECORD" and lines[-1] == ["", "", ""]
        assert [name for name, _, _ in lines[:-1]] == ["a/__init__.py", "a/nn.abi3.so", "a/nn.weights"]
        for (name, said, size), entry in zip(lines[1:-1], (library, weights), strict=True):
            digest = base64.urlsafe_b64encode(hashlib.sha256(wheel.read(name)).digest()).decode().rstrip("=")
            assert (said, int(size)) == (f"sha256={digest}", entry.file_size)
        assert weights.compress_type == library.compress_type == zipfile.ZIP_STORED
        assert entries["a/__init__.py"].compress_type == zipfile.ZIP_DEFLATED
        assert [stat.filemode(entry.external_attr >> 16) for entry in (library, weights)] == [
            "-rwxr-xr-x",
            "-rw-r--r--",
        ]


def test_the_wheel_is_the_same_each_time(tmp_path: Path) -> None:
    first, second = made(tmp_path / "one"), made(tmp_path / "two")
    assert first.read_bytes() == second.read_bytes()
    assert {path.name for path in first.parent.iterdir()} == {"a-1.whl", "nn.abi3.so", "nn.weights"}
