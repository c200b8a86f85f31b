"""Weights in a file beside the module: mapped into memory, checked at import, let go with the module."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from . import models

CODE = """\
import importlib.util, sys
spec = importlib.util.spec_from_file_location("mapped", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
"""


@pytest.fixture(scope="session")
def mapped(libraries: dict[str, Path]) -> ModuleType:
    return models.load(libraries["mapped"])


def python(library: Path, code: str = "") -> str:
    """What another process says that imports the module: what it prints, or the error that it ends with."""
    done = subprocess.run([sys.executable, "-c", CODE + code, library], capture_output=True, text=True, check=False)
    return (done.stdout if done.returncode == 0 else done.stderr.splitlines()[-1]).strip()


def test_the_file_is_read(mapped: ModuleType, large: ModuleType) -> None:
    for i in (0, 1, 29999):
        assert mapped.forward(i).item() == large.forward(i).item() == i
    assert mapped.selftest() == {}


def test_the_file_begins_with_the_digest_of_the_rest(libraries: dict[str, Path]) -> None:
    content = libraries["mapped"].with_name("mapped.weights").read_bytes()
    assert content[:64].decode() == hashlib.sha256(content[64:]).hexdigest()
    assert len(content) % 64 == 0
    assert libraries["mapped"].stat().st_size + 100_000 < libraries["large"].stat().st_size


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: path.unlink(), "ImportError: mapped: cannot read mapped.weights beside it: [Errno 2] "),
        (lambda path: path.write_bytes(b""), "ImportError: mapped: cannot read mapped.weights beside it: cannot mmap"),
        (lambda path: os.truncate(path, 1000), "ImportError: mapped: expected {} to have 120064 bytes, got 1000; "),
        (
            lambda path: path.write_bytes(b"0" * 64 + path.read_bytes()[64:]),
            "ImportError: mapped: {} is of another build of it; ",
        ),
    ],
    ids=["lost", "empty", "short", "other"],
)
def test_a_wrong_file_is_refused(
    libraries: dict[str, Path], tmp_path: Path, damage: Callable[[Path], object], said: str
) -> None:
    library, weights = tmp_path / "mapped.abi3.so", tmp_path / "mapped.weights"
    shutil.copy(libraries["mapped"], library)
    shutil.copy(libraries["mapped"].with_name(weights.name), weights)
    damage(weights)
    line = python(library)
    assert line.startswith(said.format(weights)) and line.endswith("; install the package again")


def test_selftest_reads_all_of_the_file(libraries: dict[str, Path], tmp_path: Path) -> None:
    library, weights = tmp_path / "mapped.abi3.so", tmp_path / "mapped.weights"
    shutil.copy(libraries["mapped"], library)
    content = bytearray(libraries["mapped"].with_name(weights.name).read_bytes())
    content[5000] ^= 1
    weights.write_bytes(content)
    assert python(library, "print(module.forward(7).item())") == "7.0"
    said = python(library, "module.selftest()")
    assert said.startswith("RuntimeError: selftest: mapped.weights is damaged: expected SHA-256 ")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_model_keeps_the_mapping_and_the_last_one_ends_it(libraries: dict[str, Path]) -> None:
    code = """
import gc

def mapped():
    with open("/proc/self/maps") as file:
        return [line.split()[1] for line in file if "mapped.weights" in line]

print(mapped())
model = module.Model()
del module, spec
gc.collect()
print(mapped(), model.forward(3).item())
del model
gc.collect()
print(mapped())
"""
    assert python(libraries["mapped"], code).splitlines() == ["['r--s']", "['r--s'] 3.0", "[]"]


def test_the_start_of_a_training_module_comes_from_the_file(libraries: dict[str, Path]) -> None:
    apart, fit = models.load(libraries["apart"]), models.load(libraries["fit"])
    start = bytes(fit.flat_parameters)
    assert bytes(apart.flat_parameters) == start
    assert apart.train_step([[1.0, 2.0, 3.0]], [1]) == fit.train_step([[1.0, 2.0, 3.0]], [1])
    assert bytes(apart.flat_parameters) == bytes(fit.flat_parameters) != start
