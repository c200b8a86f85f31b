"""A compiler without vector types, 128-bit integers and atomics is told so in the first line that it reports."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import mlaot
from mlaot.files import program_files, write
from mlaot.generate import compile_model
from mlaot.settings.options import Options

COMPILERS = ("tcc", "cc -U__GNUC__ -U__clang__")  # one of them, and one that is taken for such
FILES = ("nn.c", "nn_base.c")


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C of a model."""

    @mlaot.model
    def model(x: mlaot.f32[4]) -> Any:  # type: ignore[valid-type]
        return x + 1

    folder = tmp_path_factory.mktemp("c")
    write(program_files(compile_model(model, "a.nn", Options(isas=("base",)))), folder)
    return folder


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("command", COMPILERS)
def test_the_compiler_is_named_that_is_needed(command: str, file: str, generated: Path) -> None:
    if shutil.which(command.split()[0]) is None:
        pytest.skip(f"no {command} here")
    options = ["-c", str(generated / file), "-o", str(generated / "a.o")]
    done = subprocess.run([*shlex.split(command), *options], capture_output=True, text=True, check=False)
    (first, *_) = [line for line in done.stderr.splitlines() if "error" in line]
    assert done.returncode != 0 and "expected gcc, clang or zig" in first
