"""Wheels that zig compiles: for a machine without a compiler, and for the platforms of others."""

from __future__ import annotations

import io
import json
import os
import shlex
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pefile
import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from .conftest import PROJECTS, Python, alone, copy_project, load

pytest.importorskip("ziglang")

# zig compiles the C library of Windows for two minutes when it first makes a wheel for it.
every = pytest.mark.skipif("MLAOT_EVERY_PLATFORM" not in os.environ, reason="MLAOT_EVERY_PLATFORM is not set")
Made = Callable[[str], Path]
ANSWERS = "from xor import nn; print([nn.forward([[a, b]]).tolist() for a in (0, 1) for b in (0, 1)])"
ISAS = "import json; from xor import nn; print(json.dumps([nn.info()['isa'], nn.info()['isas'], list(nn.selftest())]))"


@pytest.fixture(scope="session")
def made(builder: Python, shared: Path) -> Made:
    """``made(tag)``: the wheel of the xor example for a platform."""

    def build(tag: str) -> Path:
        out = shared / f"platform-{tag}"
        with alone(shared / "platform.lock"):
            if not out.exists():
                project = copy_project(PROJECTS["xor"], shared / f"project-{tag}")
                builder.check("-m", "mlaot", "wheel", "--platform", tag, "--out", f"{out}.new", cwd=project.path)
                Path(f"{out}.new").rename(out)
        (wheel,) = out.glob("*.whl")
        assert wheel.name == f"xor-1.0-cp311-abi3-{tag}.whl"
        return wheel

    return build


def module(wheel: Path, suffix: str = "abi3.so") -> bytes:
    with zipfile.ZipFile(wheel) as file:
        names = {name for name in file.namelist() if ".dist-info/" not in name}
        assert names == {"xor/__init__.py", f"xor/nn.{suffix}", "xor/nn.pyi", "xor/py.typed"}
        return file.read(f"xor/nn.{suffix}")


@pytest.mark.parametrize(("machine", "elf"), [("x86_64", "EM_X86_64"), ("aarch64", "EM_AARCH64")])
def test_manylinux(made: Made, machine: str, elf: str) -> None:
    file = ELFFile(io.BytesIO(module(made(f"manylinux_2_17_{machine}"))))
    assert file["e_machine"] == elf
    assert needed(file) == ["libc.so.6"]
    (versions,) = [section for section in file.iter_sections() if isinstance(section, GNUVerNeedSection)]
    wanted = [
        tuple(map(int, aux.name.split("_")[1].split("."))) for _, auxes in versions.iter_versions() for aux in auxes
    ]
    assert wanted and max(wanted) <= (2, 17)
    exported = [s.name for s in file.get_section_by_name(".dynsym").iter_symbols() if s["st_shndx"] != "SHN_UNDEF"]
    assert exported == ["PyInit_nn"]


def test_musllinux(made: Made) -> None:
    file = ELFFile(io.BytesIO(module(made("musllinux_1_2_x86_64"))))
    assert needed(file) == ["libc.musl-x86_64.so.1"]
    undefined = {s.name for s in file.get_section_by_name(".dynsym").iter_symbols() if s["st_shndx"] == "SHN_UNDEF"}
    assert not [name for name in undefined if name.startswith("__") and name.endswith("3")]  # of the compiler's library


def needed(file: ELFFile) -> list[str]:
    """The libraries that it is linked with."""
    return [tag.needed for tag in file.get_section_by_name(".dynamic").iter_tags() if tag.entry.d_tag == "DT_NEEDED"]


def test_macos(made: Made) -> None:
    data = module(made("macosx_11_0_arm64"))
    magic, machine, _, kind, count = struct.unpack_from("<5I", data)
    assert (magic, machine, kind) == (0xFEEDFACF, 0x0100000C, 6)  # 64 bits, ARM64, a library
    commands, at = {}, 32
    for _ in range(count):
        command, size = struct.unpack_from("<2I", data, at)
        commands.setdefault(command & 0x7FFFFFFF, []).append(data[at : at + size])
        at += size
    (version,) = commands[0x32]  # LC_BUILD_VERSION
    assert struct.unpack_from("<2I", version, 8) == (1, 11 << 16)  # macOS 11.0
    assert 0x1D in commands  # LC_CODE_SIGNATURE, without which ARM does not load it
    libraries = [text[struct.unpack_from("<I", text, 8)[0] :].rstrip(b"\0") for text in commands[0xC]]
    assert libraries == [b"/usr/lib/libSystem.B.dylib"]


@every
def test_windows(made: Made) -> None:
    file = pefile.PE(data=module(made("win_amd64"), "pyd"))
    assert file.FILE_HEADER.Machine == 0x8664
    libraries = {entry.dll.decode().lower() for entry in file.DIRECTORY_ENTRY_IMPORT}
    assert "python3.dll" in libraries
    assert all(name in ("python3.dll", "kernel32.dll") or name.startswith("api-ms-win-crt-") for name in libraries)
    assert [symbol.name for symbol in file.DIRECTORY_ENTRY_EXPORT.symbols] == [b"PyInit_nn"]


def test_answers_are_those_of_the_own_compiler(made: Made, wheel: Callable[[str], Path], tmp_path: Path) -> None:
    for name, path in (("zig", made("manylinux_2_17_x86_64")), ("own", wheel("xor"))):
        with zipfile.ZipFile(path) as file:
            file.extractall(tmp_path / name)
    inputs = [[a / 4, b / 4] for a in range(-8, 9) for b in range(-8, 9)]
    zig, own = (load(tmp_path / name, "xor.nn") for name in ("zig", "own"))
    assert zig.forward(inputs).tolist() == pytest.approx(own.forward(inputs).tolist(), rel=1e-14)
    assert zig.info() == own.info()


def test_answers_on_arm(made: Made, wheel: Callable[[str], Path], tmp_path: Path) -> None:
    """``MLAOT_ARM64``: a command that runs Python for ARM, such as ``qemu-aarch64 -L ROOT ROOT/usr/bin/python3``."""
    if "MLAOT_ARM64" not in os.environ:
        pytest.skip("MLAOT_ARM64 names no Python for ARM")
    arm = shlex.split(os.environ["MLAOT_ARM64"])
    answers = []
    for name, path, command in (
        ("arm", made("manylinux_2_17_aarch64"), arm),
        ("own", wheel("xor"), [sys.executable]),
    ):
        with zipfile.ZipFile(path) as file:
            file.extractall(tmp_path / name)
        run = subprocess.run([*command, "-c", ANSWERS], cwd=tmp_path / name, capture_output=True, text=True, check=True)
        answers.append(json.loads(run.stdout))
    assert answers[0] == [pytest.approx(row, rel=1e-14) for row in answers[1]]
    run = subprocess.run([*arm, "-c", ISAS], cwd=tmp_path / "arm", capture_output=True, text=True, check=True)
    assert json.loads(run.stdout) == ["neon", ["neon"], ["neon"]]


def test_without_any_compiler(builder: Python, tmp_path: Path) -> None:
    """Nothing on PATH: pip has installed zig, and the wheel is for every Linux of this kind."""
    project = copy_project(PROJECTS["xor"], tmp_path / "xor")
    (tmp_path / "empty").mkdir()
    result = builder.hook(project, "build_wheel", str(tmp_path), PATH=str(tmp_path / "empty"))
    assert result.returncode == 0, result.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert "-manylinux_2_17_" in wheel.name
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tmp_path / "site")
    assert (
        "[["
        in subprocess.run(
            [sys.executable, "-c", ANSWERS], cwd=tmp_path / "site", capture_output=True, text=True, check=True
        ).stdout
    )


@pytest.mark.parametrize("tag", ["manylinux_2_17_x86_64", pytest.param("win_amd64", marks=every)])
def test_same_bits_in_other_folders(made: Made, builder: Python, tmp_path: Path, tag: str) -> None:
    """Two builds, in other folders at other times."""
    project = copy_project(PROJECTS["xor"], tmp_path / "elsewhere")
    builder.check("-m", "mlaot", "wheel", "--platform", tag, "--out", tmp_path, cwd=project.path)
    (again,) = tmp_path.glob("*.whl")
    assert again.read_bytes() == made(tag).read_bytes()
