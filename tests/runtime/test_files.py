"""Files of the state: where they are written, and what damage does."""

from __future__ import annotations

import json
import os
import random
import stat
import struct
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from .. import instrumented

POSIX = pytest.mark.skipif(os.name != "posix", reason="needs modes, links and devices")
X, LABEL = np.array([[1.0, 2, 3]]), np.array([1], np.int32)


def test_save_and_load(fit: ModuleType, tmp_path: Path) -> None:
    """What was saved comes back, to the bit, into another instance."""
    fit.train_step(X, LABEL)
    for path in (tmp_path / "a.safetensors", str(tmp_path / "ü b.safetensors"), os.fsencode(tmp_path / "c")):
        fit.save(path)
        model = fit.Model()
        assert model.load(path) is None
        assert bytes(model.flat_parameters) == bytes(fit.flat_parameters)
    fit.save(tmp_path / "a.safetensors")  # replaces
    with pytest.raises(TypeError):
        fit.save(3.5)
    assert len(list(tmp_path.iterdir())) == 3


def test_names_of_any_length(fit: ModuleType, tmp_path: Path) -> None:
    """Up to what the file system takes, which is told as the file's own fault."""
    most = os.pathconf(tmp_path, "PC_NAME_MAX") if os.name == "posix" else 200
    for length in (1, 2, most - 17, most - 1, most):
        path = tmp_path / ("x" * length)
        fit.save(path)
        fit.save(path)
        fit.Model().load(path)
        path.unlink()
    path = tmp_path / ("x" * (most + 1))
    with pytest.raises(OSError) as info:
        fit.save(path)
    assert info.value.filename == str(path) and list(tmp_path.iterdir()) == []


@POSIX
def test_links_stay(fit: ModuleType, tmp_path: Path) -> None:
    """A symbolic link is written through, also a chain of them and one to a file that is not there yet."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("folder/file")
    for _ in range(2):
        fit.train_step(X, LABEL)
        fit.save(tmp_path / "one")
        assert os.readlink(tmp_path / "one") == "two" and os.readlink(tmp_path / "two") == "folder/file"
        model = fit.Model()
        model.load(tmp_path / "folder" / "file")
        assert bytes(model.flat_parameters) == bytes(fit.flat_parameters)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder", "one", "two"]
    assert not (tmp_path / "folder" / "file").is_symlink()


@POSIX
@pytest.mark.parametrize("mode", [0o640, 0o600, 0o666, 0o444, 0o4755])
def test_modes_stay(fit: ModuleType, tmp_path: Path, mode: int) -> None:
    """What was private stays private; a new file has the mode that any new file has."""
    path, other = tmp_path / "file", tmp_path / "other"
    fit.save(path)
    other.write_bytes(b"")
    assert path.stat().st_mode == other.stat().st_mode
    path.chmod(mode)
    fit.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == mode


@POSIX
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="gives a file away")
def test_owners_stay(fit: ModuleType, tmp_path: Path) -> None:
    """A file that the superuser saves for another stays the other's."""
    path = tmp_path / "file"
    fit.save(path)
    os.chown(path, 1234, 4321)
    path.chmod(0o640)
    fit.save(path)
    found = path.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (1234, 4321, 0o640)


def refused(path: Path) -> dict[str, Path]:
    """Places where nothing can be saved, by what they are."""
    (path / "folder").mkdir()
    (path / "loop").symlink_to("loop")
    (path / "link").symlink_to("folder")
    (path / "file").write_bytes(b"")
    os.mkfifo(path / "fifo")
    devices = {name: Path("/dev", name) for name in ("null", "full") if Path("/dev", name).exists()}
    nowhere = {"nowhere": path / "no" / "such", "below": path / "file" / "x", "proc": Path("/proc/nothing/x")}
    return devices | nowhere | {name: path / name for name in ("folder", "loop", "link", "fifo")}


@POSIX
def test_places_that_are_refused(fit: ModuleType, tmp_path: Path) -> None:
    """One OSError, which names the file that was asked for and no other; nothing is left behind, no device replaced."""
    for name, path in refused(tmp_path).items():
        before = sorted(tmp_path.rglob("*")), os.lstat(path) if os.path.lexists(path) else None
        for spelling in (str(path), path, os.fsencode(path)):
            with pytest.raises(OSError) as info:
                fit.save(spelling)
            assert info.value.filename == str(path) and info.value.filename2 is None, name
            assert str(info.value).endswith(f": '{path}'") and info.value.errno, name
        after = sorted(tmp_path.rglob("*")), os.lstat(path) if os.path.lexists(path) else None
        assert after[0] == before[0] and stat_of(after[1]) == stat_of(before[1]), name
    for text in ("", f"{tmp_path}/new/", "."):
        with pytest.raises(IsADirectoryError):
            fit.save(text)
    assert not (tmp_path / "new").exists()


def stat_of(found: os.stat_result | None) -> Any:
    """What must not change of a place."""
    return found and (found.st_mode, found.st_ino, found.st_rdev)


@pytest.mark.skipif(sys.platform != "linux", reason="limits what a process may write")
@instrumented.unless
def test_a_full_disk(fit: ModuleType, libraries: dict[str, Path], tmp_path: Path) -> None:
    """The old file stays, the new one is gone."""
    from .test_host import python

    path = tmp_path / "file"
    fit.save(path)
    code = f"""
import os, resource, signal, fit
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
fit.train_step([1, 2, 3], 1)
resource.setrlimit(resource.RLIMIT_FSIZE, (50, 50))
try:
    fit.save({str(path)!r})
except OSError as error:
    print(error.filename, error.errno != 0, os.listdir({str(tmp_path)!r}))
"""
    before = path.read_bytes()
    assert python(code, libraries["fit"]) == f"{path} True ['file']"
    assert path.read_bytes() == before


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may write everywhere")
def test_read_only_folders(fit: ModuleType, tmp_path: Path) -> None:
    """The error speaks of the file."""
    tmp_path.chmod(0o555)
    with pytest.raises(PermissionError) as info:
        fit.save(tmp_path / "file")
    assert info.value.filename == str(tmp_path / "file")


def test_files_that_cannot_be_read(fit: ModuleType, tmp_path: Path) -> None:
    """As open() says it."""
    for path in (tmp_path, tmp_path / "no"):
        with pytest.raises(OSError) as info:
            fit.load(path)
        assert info.value.filename == str(path)


TOKENS = ["true", "null", "1e3", "-1", '"F32"', "[]", "{}", "NaN", "99999999999999999999", '"\\u0000"', ",", ":", '"']


def damaged(content: bytes, rng: random.Random) -> bytes:
    """A file with some bytes or words of its head changed, taken away, doubled or added."""
    data = bytearray(content)
    end = 8 + struct.unpack("<Q", data[:8])[0]
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        at, width = rng.randrange(end if rng.random() < 0.9 else len(data)), rng.choice([1, 1, 2, 8, 40])
        match rng.randrange(6):
            case 0:
                data[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                del data[at : at + width]
            case 2:
                data[at:at] = data[at : at + width]
            case 3:
                data = data[:at]
                break
            case 4:
                data[at : at + rng.randrange(9)] = rng.choice(TOKENS).encode()
            case 5:
                text = json.loads(content[8:end])
                name = rng.choice(list(text))
                text[rng.choice([name, "more", "__metadata__"])] = rng.choice([text.pop(name), True, [], {"a": 1}])
                head = json.dumps(text).encode(rng.choice(["utf-8", "utf-8", "utf-16", "utf-8-sig"]))
                data = bytearray(struct.pack("<Q", len(head)) + head + content[end:])
    if rng.random() < 0.5 and len(data) > 8:  # a head of the right length again
        data[:8] = struct.pack("<Q", max(0, len(data) - (len(content) - end) - 8))
    return bytes(data)


@pytest.mark.parametrize("name", ["fit", "momentum", "cache"])
def test_damaged_files(request: pytest.FixtureRequest, name: str, tmp_path: Path) -> None:
    """A ValueError that names the file, and a state as it was; or a file that is right all the same."""
    module = request.getfixturevalue(name)
    rng = random.Random(name)
    path, model = tmp_path / "wéights", module.Model()
    model.save(path)
    content = path.read_bytes()
    reasons: set[str] = set()
    for _ in range(1000):
        path.write_bytes(damaged(content, rng))
        before = model.__reduce__()[2]
        try:
            model.load(path)
        except ValueError as error:
            assert type(error) is ValueError and str(error).startswith(f"load: {path}: "), error
            assert model.__reduce__()[2] == before
            assert len(str(error)) < 800
            reasons.add(str(error).removeprefix(f"load: {path}: ")[:12])
    assert len(reasons) >= 5
