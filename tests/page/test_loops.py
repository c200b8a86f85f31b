"""The hottest loop of a function among its instructions."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mlaot.build.toolchain import compile_kernels, find_compiler
from mlaot.page.loops import _hottest, hot_loops
from mlaot.schedule.machine import BASE

# An outer loop from 0 to 7 with two inner ones, and a jump forward.
LOOPS = [
    (0x10, "mov $0x0,%rax"),
    (0x14, "addps %xmm0,%xmm1"),
    (0x18, "jne 14 <f+0x4>"),
    (0x1C, "mulps %xmm0,%xmm2"),
    (0x20, "addps %xmm2,%xmm3"),
    (0x24, "jb 1c <f+0xc>"),
    (0x28, "je 30 <f+0x20>"),
    (0x2C, "jmp 10 <f>"),
    (0x30, "ret"),
]


def test_the_inner_loop_with_most_vectors() -> None:
    assert _hottest(LOOPS) == ["mulps %xmm0,%xmm2", "addps %xmm2,%xmm3", "jb 1c <f+0xc>"]
    assert _hottest(LOOPS[6:]) == [], "a jump forward is no loop, nor is one to another function"
    assert _hottest([(0x0, "fmla v0.4s, v1.4s, v2.4s"), (0x4, "b.ne 0 <f>")])[0].startswith("fmla")


@pytest.mark.skipif(shutil.which("objdump") is None, reason="no objdump here")
def test_loops_of_a_library(tmp_path: Path) -> None:
    source = tmp_path / "loop.c"
    source.write_text(
        "float sum(const float *x, long n)\n{\n    float s = 0;\n    while (n--) s += x[n];\n    return s;\n}\n"
    )
    compile_kernels(source, BASE, tmp_path / "loop.so", find_compiler())
    loop = hot_loops((tmp_path / "loop.so").read_bytes())["sum"]
    assert 2 < len(loop) < 12 and any("add" in each for each in loop), loop


def test_without_objdump(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert hot_loops(b"") == {}
