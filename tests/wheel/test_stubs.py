"""The stub of each module says what the module is, and type checkers take what it takes and refuse what it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Site
from .test_contents import MODULES


@pytest.mark.parametrize("name", MODULES)
def test_stub(site: Site, tmp_path: Path, name: str) -> None:
    """By mypy's stubtest."""
    pytest.importorskip("mypy")
    modules = [module.replace("/", ".") for module in MODULES[name]]
    checked("mypy.stubtest", "--concise", *modules, folder=site(name), cwd=tmp_path)


def checked(tool: str, *arguments: str | Path, folder: Path, cwd: Path, status: int = 0) -> str:
    """What a tool of mypy's says of code that imports the modules of a folder."""
    command = [sys.executable, "-m", tool, *map(str, arguments)]
    env = os.environ | {"PYTHONPATH": str(folder), "MYPYPATH": str(folder)}
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


GOOD = """
import array
from typing import Any
import numpy as np
from digits_train import nn

m = nn.Model()
pixels = np.zeros((2, 784), np.float32)
y = nn.forward(pixels)
nn.forward(pixels[0].tolist())
nn.forward([1, 2.0, True])
nn.forward(((1, 2), (3, 4)))
nn.forward([np.float32(1), 2])
nn.forward(array.array("f", [1]))
nn.forward(memoryview(b"a"))
nn.forward(y)
nn.forward([y, y])
rows: list[list[float]] = [[1.0]]
nn.forward(rows)
given: np.ndarray[Any, np.dtype[np.float64]] = np.asarray(y)
memoryview(y)
y[1:, ::2], y[..., 0], y[0], y[0, 1], y[np.int64(1)], len(y), [row for row in y]
y[0] = 1
y[:2] = [1, 2]
y[..., 0] = pixels[0]
m.parameters["fc1.weight"][0] = 0.5
m.train_step(pixels, np.zeros(2, np.int64), lr=0.1)
m.fit(pixels, [1, 2], batch=2)
out: np.ndarray[Any, Any] = nn.forward(pixels, out=np.zeros(3, np.float32))
version: str = nn.__version__
"""

BAD = """
from collections import deque
from digits_train import nn

nn.forward("abc")
nn.train_step("abc", 3)
nn.forward(["a"])
nn.forward([["a"], ["b"]])
nn.forward(None)
nn.forward({1: 2})
nn.forward({1.0})
nn.forward(range(3))
nn.forward(deque([1.0]))
nn.forward(object())
nn.forward(1j)
nn.forward([1])["a"]
nn.forward([1])[0] = "a"
nn.forward([1])[1.5]
"""


@pytest.mark.parametrize("version", ["3.11", "3.12"])
def test_calls(site: Site, tmp_path: Path, version: str) -> None:
    """Its inputs pass, NumPy's arrays, too, whose stub calls them buffers from 3.12 on only; others do not."""
    pytest.importorskip("mypy")
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "bad.py").write_text(BAD)
    options = ("--strict", "--no-error-summary", "--hide-error-context", "--python-version", version)
    said = checked("mypy", *options, "good.py", "bad.py", folder=site("train"), cwd=tmp_path, status=1)
    places = {tuple(line.split(":")[:2]) for line in said.splitlines() if ": error: " in line}
    lines = BAD.splitlines()
    assert places == {("bad.py", str(i)) for i, line in enumerate(lines, 1) if line.startswith("nn.")}, said
