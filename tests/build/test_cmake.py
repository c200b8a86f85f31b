"""The CMakeLists.txt of the generated C, and that both ways to compile say the same flags."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import mlaot
from mlaot.build import toolchain
from mlaot.errors import MlaotError
from mlaot.files import program_files, write
from mlaot.generate import compile_model
from mlaot.printing.cmake import COMMON_FLAGS, cmake_files, flag_files, module_files
from mlaot.schedule.machine import MACHINES, isas_for
from mlaot.settings import ModelSettings, Settings
from mlaot.settings.options import Options

from .conftest import Project, Python, last_line


@pytest.fixture
def generated(project: Project, python: Python) -> Path:
    """The C of the smallest project."""
    out = project.path / "c,d"
    python.check("-P", "-m", "mlaot", "emit", project.path, "--out", out, cwd=project.path.parent)
    return out


def said_flags(command: str) -> list[str]:
    """The words of a compiler's command line, with the files of flags read as the compiler reads them."""
    words = command.split()
    return [flag for word in words for flag in (Path(word[1:]).read_text().split() if word[0] == "@" else [word])]


def relu_of_input() -> Any:
    @mlaot.model
    def relu(x: mlaot.f32[4]):  # type: ignore[no-untyped-def,valid-type]
        return mlaot.relu(x)

    return relu


def cmake(*arguments: object) -> str:
    return subprocess.run(["cmake", *map(str, arguments)], check=True, capture_output=True, text=True).stdout


def test_one_line_per_model() -> None:
    models = (
        ModelSettings("nn", "model:digits", "digits.nn"),
        ModelSettings("c", "model:other", "a.b.c", deterministic=True, weights="file"),
    )
    text = cmake_files(Settings("digits", ".", (), ("base", "v3"), models))["CMakeLists.txt"]
    sources = "nn.c nn_base.c nn_neon.c nn_v3.c weights.bin"
    assert f"\nmlaot_library(digits.nn ${{CMAKE_CURRENT_SOURCE_DIR}}/digits.nn {sources})\n" in text
    assert text.endswith("/a.b.c c.c c_base.c c_neon.c c_v3.c)\nmlaot_install(a.b.c a/b c.weights c.pyi)\n")


def test_module_files_are_what_is_made(generated: Path) -> None:
    """The doors that ask for the names before anything is traced get the right ones, of the real compiler too."""
    model = ModelSettings("nn", "model:digits", "digits.nn")
    names = module_files(model, tuple(MACHINES))
    assert {path.name for path in (generated / "digits.nn").iterdir()} == set(names)
    program = compile_model(relu_of_input(), "digits.nn", Options(isas=tuple(MACHINES)))
    assert set(program_files(program)) | set(flag_files(model, tuple(MACHINES))) == set(names)
    beside = compile_model(relu_of_input(), "digits.nn", Options(isas=tuple(MACHINES), weights="file"))
    apart = module_files(replace(model, weights="file"), tuple(MACHINES))
    assert set(program_files(beside)) | set(flag_files(model, tuple(MACHINES))) == set(apart)


@pytest.mark.parametrize(("machine", "isas"), [("x86_64", ["base", "v3", "v4"]), ("aarch64", ["neon"]), ("", ["base"])])
def test_what_is_compiled_for_a_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str, isas: list[str]
) -> None:
    made = []

    def compiler(arguments: list[str], environ: object) -> str:
        Path(arguments[-1]).touch()
        made.append(Path(arguments[-1]).name)
        return ""

    monkeypatch.setenv("MLAOT_CACHE", "off")
    monkeypatch.setattr(toolchain, "predefined_macros", lambda command: f"__{machine}__")
    monkeypatch.setattr(toolchain, "run", compiler)
    toolchain.compile_module(tmp_path, "nn", tuple(MACHINES), tmp_path / "nn.so", toolchain.Toolchain(["cc"]))
    assert sorted(made) == sorted(["nn.o", *(f"nn_{isa}.o" for isa in isas), "nn.so"])


def test_a_file_for_other_cpus_comes_out_empty(tmp_path: Path) -> None:
    write(program_files(compile_model(relu_of_input(), "digits.nn", Options(isas=tuple(MACHINES)))), tmp_path)
    compiler = toolchain.find_compiler()
    own = isas_for(toolchain.machine_of(toolchain.predefined_macros(compiler)), MACHINES)
    for isa in MACHINES:
        text = toolchain.run([*compiler, "-E", "-P", str(tmp_path / f"nn_{isa}.c")], os.environ)
        assert (f"nn_forward_{isa}" in text, not text.strip()) == ((True, False) if isa in own else (False, True))


def test_flags_per_file_and_install(generated: Path, tmp_path: Path) -> None:
    build = tmp_path / "cmake"
    options = ["-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", "-DMLAOT_WERROR=ON", "-DMLAOT_PACKAGES=digits;other"]
    cmake("-S", generated, "-B", build, "-DCMAKE_BUILD_TYPE=Release", *options)
    commands = {
        Path(entry["file"]).stem: said_flags(entry["command"])
        for entry in json.loads((build / "compile_commands.json").read_text())
    }
    assert set(commands) == {"nn", "nn_base", "nn_neon", "nn_v3", "nn_v4"}
    for name, command in commands.items():
        assert {*COMMON_FLAGS, "-ffp-contract=fast", "-fPIC", "-Wall", "-Wextra", "-Werror"} <= set(command)
        expected = MACHINES[name[3:]].flags if name != "nn" else ()
        assert tuple(flag for flag in command if flag.startswith("-m")) == expected
    cmake("--build", build)
    cmake("--install", build, "--prefix", tmp_path / "installed")
    installed = {path.relative_to(tmp_path / "installed").as_posix() for path in (tmp_path / "installed").rglob("*.*")}
    assert installed == {
        "digits/nn.abi3.so",
        "digits/nn.pyi",
        "digits/py.typed",
        "digits/__init__.py",
        "other/__init__.py",
    }


def test_edited_weights_are_embedded_again(generated: Path, tmp_path: Path) -> None:
    cmake("-S", generated, "-B", tmp_path / "cmake")
    cmake("--build", tmp_path / "cmake")
    weights = generated / "digits.nn" / "weights.bin"
    weights.write_bytes((1234).to_bytes(4, sys.byteorder))
    cmake("--build", tmp_path / "cmake")
    assert (1234).to_bytes(4, sys.byteorder) in (tmp_path / "cmake" / "digits.nn" / "nn.abi3.so").read_bytes()


@pytest.mark.parametrize("flags", ["-ffast-math", "-flto", "-O0 -g -ffp-contract=off"])
def test_flags_of_the_environment_cannot_break_the_kernels(
    generated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: str
) -> None:
    monkeypatch.setenv("CFLAGS", flags)
    cmake("-S", generated, "-B", tmp_path / "cmake", "-DCMAKE_BUILD_TYPE=Release")
    cmake("--build", tmp_path / "cmake")
    direct = tmp_path / "nn.abi3.so"
    toolchain.compile_module(generated / "digits.nn", "nn", tuple(MACHINES), direct, toolchain.find_toolchain())
    for library in (tmp_path / "cmake" / "digits.nn" / "nn.abi3.so", direct):
        flushes = "import ctypes, sys; x = float('5e-324'); ctypes.PyDLL(sys.argv[1]); print(x * 1.0 == 0.0)"
        assert subprocess.check_output([sys.executable, "-c", flushes, library]) == b"False\n"
        symbols = subprocess.run(
            ["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True
        ).stdout
        assert [line.split()[-1] for line in symbols.splitlines()] == ["PyInit_nn"]


def test_compiler_error_names_the_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name in ("nn.c", "nn_base.c"):
        (tmp_path / name).write_text("int x = y;\n")
    (tmp_path / "weights.bin").touch()
    with pytest.raises(MlaotError, match=r"nn(_base)?\.c:1:9: error: .*y.* undeclared"):
        toolchain.compile_module(tmp_path, "nn", ("base",), tmp_path / "nn.so", toolchain.find_toolchain())
    assert "-O2" in capfd.readouterr().err


def test_command_line(project: Project, python: Python) -> None:
    assert "write the generated C files" in python.check("-m", "mlaot", "--help", cwd=project.path)
    assert python.check("-P", "-m", "mlaot", "passes", cwd=project.path) == "digits.nn: trace 42\n"
    assert python.check("-P", "-m", "mlaot", "passes", "model:digits", cwd=project.path) == "model.nn: trace 42\n"
    message = last_line(python.run("-P", "-m", "mlaot", "passes", "elsewhere", cwd=project.path))
    assert message == "mlaot: no pyproject.toml in elsewhere"
    message = last_line(python.run("-P", "-m", "mlaot", "passes", "model:digit", cwd=project.path))
    assert "did you mean 'digits'?" in message
