"""The cache of compiled objects: what is taken from it is what would be made anew."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mlaot.build import cache, toolchain
from mlaot.build.cache import MAX_FILE_BYTES, cache_folder, make_cached, prune
from mlaot.errors import MlaotError

C = {"nn.c": "int one(void);\nint two(void) { return one() + ONE; }\n", "nn_base.c": "int one(void) { return 1; }\n"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("MLAOT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CFLAGS", raising=False)
    return tmp_path / "cache"


def test_what_a_compiler_says_in_one_line_is_said_once(capfd: pytest.CaptureFixture[str]) -> None:
    """By the error; what takes several lines is printed, as it was said."""
    for text, lines in (("a.c:1: error", 1), ("in f:\na.c:1: error", 3)):
        with pytest.raises(MlaotError, match=r"^a\.c:1: error$"):
            toolchain.run(["sh", "-c", 'echo "$WORD" >&2; exit 1'], os.environ | {"WORD": text})
        assert len(capfd.readouterr().err.splitlines()) == lines


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """The C of a module."""
    made = tmp_path / "c"
    made.mkdir()
    for name, text in C.items():
        (made / name).write_text(text.replace("ONE", "1"))
    (made / "weights.bin").write_bytes(b"1234")
    return made


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of files that the compiler was run on."""
    names: list[str] = []
    original = toolchain.run

    def run(arguments: list[str], *more: object) -> str:
        names.extend(Path(word).name for word in arguments if word.endswith(".c") and "-c" in arguments)
        return original(arguments, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(toolchain, "run", run)
    return names


def compile_to(library: Path, sources: Path, compiler: str = "gcc") -> bytes:
    toolchain.compile_module(sources, "nn", ("base",), library, toolchain.Toolchain([compiler]))
    return library.read_bytes()


def test_nothing_is_compiled_twice(folder: Path, sources: Path, compiled: list[str], tmp_path: Path) -> None:
    first = compile_to(tmp_path / "nn.so", sources)
    assert sorted(compiled) == ["nn.c", "nn_base.c"] and len(list(folder.iterdir())) == 2
    elsewhere = tmp_path / "else where"
    sources.rename(elsewhere)
    assert compile_to(tmp_path / "again.so", elsewhere) == first
    assert len(compiled) == 2


@pytest.mark.parametrize(
    ("change", "again"),
    [
        (lambda c: (c / "nn.c").write_text(C["nn.c"].replace("ONE", "2")), ["nn.c"]),
        (lambda c: (c / "weights.bin").write_bytes(b"12345"), ["nn.c"]),
        (lambda c: os.environ.update(CFLAGS="-DUNUSED"), ["nn.c", "nn_base.c"]),
        (lambda c: (c / "nn.c").write_text(C["nn.c"].replace("ONE", "/* a comment */ 1")), []),
    ],
    ids=["source", "weights", "flags", "comment"],
)
def test_what_changed_is_compiled(
    folder: Path,
    sources: Path,
    compiled: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path], object],
    again: list[str],
) -> None:
    monkeypatch.setenv("CFLAGS", "")
    compile_to(tmp_path / "nn.so", sources)
    compiled.clear()
    change(sources)
    compile_to(tmp_path / "nn.so", sources)
    assert sorted(compiled) == again


def test_headers_and_the_compiler_itself_count(
    folder: Path, sources: Path, compiled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "value.h").write_text("#define ONE 1\n")
    (sources / "nn.c").write_text('#include "value.h"\n' + C["nn.c"])
    monkeypatch.setenv("CPATH", str(tmp_path))
    first = compile_to(tmp_path / "nn.so", sources)
    (tmp_path / "value.h").write_text("#define ONE 2\n")
    assert compile_to(tmp_path / "nn.so", sources) != first
    compiled.clear()
    other = tmp_path / "bin" / "gcc"
    other.parent.mkdir()
    other.write_text('#!/bin/sh\nexec /usr/bin/env gcc "$@"\n')
    other.chmod(0o755)
    for _ in range(2):
        compile_to(tmp_path / "nn.so", sources, str(other))
    assert sorted(compiled) == ["nn.c", "nn_base.c"]


DAMAGE: dict[str, Callable[[Path], object]] = {
    "truncated": lambda path: os.truncate(path, path.stat().st_size // 2),
    "empty": lambda path: os.truncate(path, 0),
    "a bit flipped": lambda path: path.write_bytes(
        bytes(byte ^ (i == path.stat().st_size - 9) for i, byte in enumerate(path.read_bytes()))
    ),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "another's": lambda path: path.write_bytes(next(p for p in path.parent.iterdir() if p != path).read_bytes()),
    "a folder": lambda path: os.mkdir(path.rename(path.with_name("old")).with_name(path.name)),
    "a dangling link": lambda path: os.symlink("nowhere", path.rename(path.with_name("old")).with_name(path.name)),
    "gone": Path.unlink,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_files_are_made_again(
    folder: Path, sources: Path, compiled: list[str], tmp_path: Path, damage: str
) -> None:
    first = compile_to(tmp_path / "nn.so", sources)
    for path in sorted(folder.iterdir()):
        compiled.clear()
        DAMAGE[damage](path)
        assert compile_to(tmp_path / "nn.so", sources) == first
        assert len(compiled) == 1
        if path.is_dir():  # nothing can be kept there until somebody deletes it
            path.rmdir()
        assert compile_to(tmp_path / "nn.so", sources) == first
        assert len(compiled) == (2 if damage == "a folder" else 1)


def make(path: Path, content: bytes) -> Callable[[], int]:
    return lambda: path.write_bytes(content)


def test_off_and_useless_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tmp_path / "object"
    for said in ("off", "/proc/no/such", str(tmp_path / "file"), "/dev/null"):
        (tmp_path / "file").write_text("in the way")
        monkeypatch.setenv("MLAOT_CACHE", said)
        for content in (b"1", b"2"):
            make_cached(lambda: [b"key"], made, make(made, content))
            assert made.read_bytes() == content
    monkeypatch.delenv("MLAOT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "mlaot"


def test_large_files_are_not_kept(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MAX_FILE_BYTES", 10)
    made = tmp_path / "object"
    make_cached(lambda: [b"key"], made, make(made, bytes(11)))
    assert not folder.exists() and MAX_FILE_BYTES > 10


def test_the_oldest_go_first(tmp_path: Path) -> None:
    for age in range(10):
        path = tmp_path / f"{age}"
        path.write_bytes(bytes(100))
        os.utime(path, (1000 - age, 1000 - age))
    prune(tmp_path, 450)
    assert {path.name for path in tmp_path.iterdir()} == {"0", "1", "2", "3"}


def test_use_keeps_a_file(folder: Path, tmp_path: Path) -> None:
    made = tmp_path / "object"
    for _ in range(2):
        make_cached(lambda: [b"key"], made, make(made, b"content"))
        (entry,) = folder.iterdir()
        used = entry.stat().st_mtime
        os.utime(entry, (0, 0))
    assert used > 1e9


def test_builds_side_by_side(folder: Path, tmp_path: Path) -> None:
    """Processes that write and prune the same few files get only what is right."""
    script = f"""
import random, sys
from pathlib import Path
from mlaot.build import cache
cache.MAX_BYTES = 40_000
out = Path({str(tmp_path)!r}, sys.argv[1])
for _ in range(150):
    n = random.randrange(12)
    cache.make_cached(lambda: [bytes([n])], out, lambda: out.write_bytes(bytes([n]) * 10_000))
    assert out.read_bytes() == bytes([n]) * 10_000
"""
    running = [subprocess.Popen([sys.executable, "-c", script, f"out{i}"]) for i in range(4)]
    assert [process.wait() for process in running] == [0] * 4
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 40_000
