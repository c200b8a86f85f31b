"""The command that tries compilers, with the one at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from . import compilers
from .compiled import AVAILABLE, CC

ISA = AVAILABLE[-1]


def program(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def test_the_compiler_at_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And one that is none."""
    broken = program(tmp_path / "broken", "#!/bin/sh\nexit 1\n")
    good, bad = compilers.run([CC, broken], [ISA], tmp_path / "made", few=True)
    compilers.report([good, bad])
    assert (good.warnings, good.failures) == ([], []) and good.answers > 30 and good.golden
    assert bad.failures[0].startswith("it does not run: ") and bad.files == 0
    said = capsys.readouterr().out
    assert " ok\n" in said and f"{broken}: 1 failures" in said


def test_warnings_are_counted(tmp_path: Path) -> None:
    source, result = tmp_path / "a.c", compilers.Result(CC)
    source.write_text("static int unused;\n")
    assert compilers.build([CC], [compilers.Unit(source, (), "lone")], tmp_path, result) == {"lone"}
    assert len(result.warnings) == 1 and result.warnings[0].startswith("a.c:1:12: warning: ") and not result.failures
    assert result.row()[-1] == "failed"


def test_samples_have_every_kind_of_kernel() -> None:
    kinds = {
        kernel.template
        for program in compilers.samples(few=True).values()
        for procedure in program.procedures
        for kernel in procedure.kernels
    }
    assert kinds == {k.template for p in compilers.every_op().values() for each in p.procedures for k in each.kernels}


def test_bits_that_differ_are_found() -> None:
    one, other = compilers.Result("a", digests={("m", "base"): "1"}), compilers.Result("b", digests={("m", "v3"): "2"})
    compilers.compare([one, other])
    assert (one.failures, other.failures) == ([], ["m on v3: other bits than a has"])


def test_compilers_that_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file once, by its name with a number; zig is told not to compile for this CPU alone."""
    for name in ("gcc-9", "gcc-11", "clang-3", "gcc-ar", "x86_64-gcc-9"):
        program(tmp_path / name, "")
    (tmp_path / "gcc").symlink_to("gcc-11")
    monkeypatch.setattr(os, "get_exec_path", lambda: [str(tmp_path), "/no/such/folder"])
    monkeypatch.setenv("PATH", str(tmp_path))
    found = compilers.found_compilers()
    assert [name for name in found if "zig" not in name] == ["clang-3", "gcc-9", "gcc-11"]
    assert compilers.toolchain_of("gcc-9 -m32") == (["gcc-9", "-m32"], None)
    assert compilers.toolchain_of("zig cc").command[:3] == ["zig", "cc", "-target"]
