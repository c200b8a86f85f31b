"""What is declared of machines: that all others follow from it, and that one more is a declaration."""

from __future__ import annotations

import ast
import ctypes
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import mlaot
from mlaot import nn
from mlaot.files import program_files
from mlaot.generate import compile_model
from mlaot.ir import dim
from mlaot.printing.cmake import unit_flags
from mlaot.printing.file import kernels_file
from mlaot.printing.helpers import preamble
from mlaot.render import render, with_runtime
from mlaot.schedule import machine as machines
from mlaot.schedule import tuning
from mlaot.schedule.machine import BASE, CAPABILITIES, CPUID, MACHINES, NEON, V3, V4, condition, isas_for, whole_lines
from mlaot.schedule.traffic import first_level_bytes, second_level_bytes
from mlaot.settings import Settings
from mlaot.settings.options import Options

from ..compiled import AVAILABLE, CC, NEEDED

ROOT = Path(__file__).parent.parent.parent
TEMPLATES = {str(path.relative_to(ROOT)): path.read_text() for path in (ROOT / "templates").rglob("*.j2")}
ASKED = re.compile(r'"(\w+)"(?: if [^)]* else "(\w+)"\))? (?:not )?in isa\b')
V3V = replace(
    V3, name="v3v", doc="AVX2 and VNNI", features=V3.features | {"vnni"}, needs=(*V3.needs, "avxvnni")
)  # as Alder Lake has it


@pytest.fixture
def v3v(monkeypatch: pytest.MonkeyPatch) -> machines.Machine:
    """AVX2 with VNNI, declared and nothing else."""
    monkeypatch.setitem(MACHINES, "v3v", V3V)
    return V3V


def quantized(*isas: str) -> mlaot.lower.program.Program:  # type: ignore[name-defined]
    layer = nn.Linear(64, 130)

    @mlaot.model(parameters=layer)
    def model(x: mlaot.f32[dim("batch"), 64]):  # type: ignore[no-untyped-def,valid-type]
        return layer(x)

    return compile_model(model, "m.nn", Options(isas=isas, quantize="int8"))


def test_a_capability_is_asked_for() -> None:
    assert "vnni" in V4 and "fma" in V3 and "vnni" not in V3 and "fma" not in BASE
    with pytest.raises(AssertionError, match="no machine has 'vnnni'"):
        assert "vnnni" in V4
    for machine in MACHINES.values():
        assert machine.features <= set(CAPABILITIES) and set(machine.needs + machine.bytes_need) <= set(CPUID)


def test_templates_ask_for_capabilities_and_never_for_names() -> None:
    asked = {name for text in TEMPLATES.values() for found in ASKED.findall(text) for name in found if name}
    assert asked >= {"vnni", "mask", "compress", "f16c", "narrow"} and asked <= set(CAPABILITIES)
    for place, text in TEMPLATES.items():
        assert not re.search(r"isa\.name *[!=]=|isa\.level", text), place


def test_python_names_no_machine() -> None:
    """Outside of their declaration: settings and examples for users may."""
    for path in (ROOT / "mlaot").rglob("*.py"):
        if path.name == "machine.py" or "settings" in path.parts:
            continue
        words = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
        assert not [node.lineno for node in words if node.value in ("v3", "v4", "neon")], path


def test_which_a_module_holds() -> None:
    every = ("base", "neon", "v3", "v4")
    assert isas_for("x86_64", every) == ["base", "v3", "v4"]
    assert isas_for("aarch64", every) == ["neon"]
    assert isas_for("", every) == ["base"]
    assert isas_for("x86_64", ["v4", "base"]) == ["base", "v4"]
    assert isas_for("aarch64", ["base", "v3"]) == ["base"]
    assert [condition(name, every) for name in every] == [
        *("!defined(__aarch64__)", "defined(__aarch64__)", "defined(__x86_64__)", "defined(__x86_64__)")
    ]
    assert condition("base", ["base", "v3"]) == ""
    assert Settings("m", "src", isa=("base", "v4")).isas == ("base", "neon", "v4")


def test_what_a_cpu_must_say() -> None:
    """By Intel's manual: AVX2 with FMA, F16C; AVX-512 F, DQ, BW, VL; VNNI; which registers must be saved."""
    first = (1, 0, 2, 1 << 12 | 1 << 27 | 1 << 28 | 1 << 29)
    wide = (7, 0, 1, 1 << 5 | 1 << 16 | 1 << 17 | 1 << 30 | 1 << 31)
    assert (BASE.condition(words=True).bits, BASE.condition(words=True).saved) == ((), 0)
    assert NEON.condition(words=True) == BASE.condition(words=False)
    assert V3.condition(words=True) == machines.Condition((first, (7, 0, 1, 1 << 5)), 0x6)
    assert V4.condition(words=False) == machines.Condition((first, wide), 0xE6)
    assert V4.condition(words=True) == machines.Condition((first, wide, (7, 0, 2, 1 << 11)), 0xE6)


def test_the_c_finds_what_the_system_says(tmp_path: Path) -> None:
    (tmp_path / "has.c").write_text(with_runtime(render("has.c.j2")))
    subprocess.run(
        [CC, "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "has.c", "-o", "has.so"], cwd=tmp_path, check=True
    )
    has = ctypes.CDLL(str(tmp_path / "has.so")).has

    def found(bits: tuple[tuple[int, ...], ...], saved: int) -> bool:
        numbers = [number for row in bits for number in row]
        return bool(has((ctypes.c_uint * len(numbers))(*numbers), len(bits), ctypes.c_uint(saved)))

    for name in NEEDED:
        needs = MACHINES[name].condition(words=True)
        assert found(needs.bits, needs.saved) == (name in AVAILABLE), name
    assert found((), 0) and not found(((0x1000, 0, 0, 1),), 0)  # a leaf that no CPU has


def test_flags() -> None:
    assert V3.flags == ("-mavx2", "-mfma", "-mf16c")
    assert V4.flags[:6] == ("-mavx2", "-mfma", "-mf16c", "-mavx512f", "-mavx512dq", "-mavx512bw")
    assert BASE.flags == NEON.flags == ()


def test_one_number_for_each_cache() -> None:
    """Shares of it: the bytes that loops were tuned for."""
    for machine in (BASE, NEON, V4):
        assert (first_level_bytes(machine), second_level_bytes(machine)) == (40 * 1024, 768 * 1024)
    assert (first_level_bytes(V3), second_level_bytes(V3)) == (32 * 1024 * 5 // 6, 384 * 1024)
    second = machines.REFERENCE.caches.second
    assert (second * tuning.BATCH_SHARE, second * tuning.WINOGRAD_SHARE) == (512 * 1024, 896 * 1024)
    assert [whole_lines(size) for size in (0, 1, 64, 65)] == [0, 64, 64, 128]


def test_one_more_is_a_declaration(v3v: machines.Machine, tmp_path: Path) -> None:
    """Kernels of 32 bytes with VNNI's instruction, compiled; the module asks CPUID for it; nothing else knows of it."""
    assert "avxvnni" in v3v.needs and unit_flags("nn", ["v3v"], False)["nn_v3v"][-1] == "-mavxvnni"
    assert v3v.condition(words=False).bits[-1] == (7, 1, 0, 1 << 4)
    program = quantized("base", "v3v")
    files = program_files(program)
    kernels, interface = files["nn_v3v.c"], files["nn.c"]
    assert "vpdpbusd" in kernels
    assert "vpmaddwd" not in kernels
    assert "maskload" in preamble("load_part_f32v(p, n)", v3v)
    assert '{"v3v", 0x6, {' in interface and "{7, 1, 0, 0x10}," in interface
    assert "vpdpbusd" not in kernels_file(program, "m_nn", V3)
    for name, content in files.items():
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    command = [CC, "-std=gnu11", "-O1", "-Wall", "-Werror", *v3v.flags, "-c", "nn_v3v.c", "-o", "nn.o"]
    subprocess.run(command, cwd=tmp_path, check=True)
