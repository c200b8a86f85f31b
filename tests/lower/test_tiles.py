"""A large batch is computed a tile of rows at a time: the same bits, a small workspace, and interrupts in between."""

from __future__ import annotations

import importlib.util
import random
import signal
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot.build.toolchain import compile_module, find_toolchain
from mlaot.files import program_files, write
from mlaot.generate import compile_model
from mlaot.lower.program import Program
from mlaot.micrograd import MLP, Value, declare
from mlaot.settings.options import Options

from .. import projects


@pytest.fixture(scope="module")
def program() -> Program:
    random.seed(7)
    net = MLP(3, [40, 40, 2])
    x = [Value(0.0) for _ in range(3)]
    return compile_model(declare(net(x), inputs={"x": x}, parameters=net), "tiles.nn", Options(isas=("base",)))


@pytest.fixture(scope="module")
def nn(program: Program, tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    folder = tmp_path_factory.mktemp("tiles")
    write(program_files(program), folder)
    compile_module(folder, "nn", ("base",), folder / "nn.abi3.so", find_toolchain())
    spec = importlib.util.spec_from_file_location("nn", folder / "nn.abi3.so")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tiles_do_not_change_a_bit(program: Program, nn: ModuleType) -> None:
    (entry,) = program.module.entries
    assert 0 < entry.tile < 2000
    x = np.random.default_rng(0).normal(size=(3 * entry.tile + 17, 3))
    whole = np.asarray(nn.forward(x))
    for start in range(0, len(x), 100):
        assert (whole[start : start + 100] == np.asarray(nn.forward(x[start : start + 100]))).all()
    out = np.full((len(x), 2), np.nan)
    nn.forward(x, out=out)
    assert (out == whole).all()


def test_rows_of_any_dim(tmp_path: Path) -> None:
    """Rows that the declaration shows to be separate, along its own dim, with a number for each row beside them."""
    n, w = mlaot.dim("n"), np.random.default_rng(1).normal(size=(5, 2000))

    def forward(x: Any, shift: Any) -> Any:
        scores = np.tanh(x @ w) * shift[:, None]
        return scores.max(axis=-1), scores[:, ::700]

    forward.__annotations__ = {"x": mlaot.f64[n, 5], "shift": mlaot.f64[n]}
    declared = mlaot.model(forward)
    (entry,) = (p.entry for p in compile_model(declared, "rows.nn", Options(isas=("base",))).procedures)
    module = projects.load(projects.build_module(declared, "rows", tmp_path, ("base",)))
    count = 2 * entry.tile + 7
    x, shift = (np.random.default_rng(2).normal(size=size) for size in ((count, 5), (count,)))
    highest, some = map(np.asarray, module.forward(x, shift))
    scores = np.tanh(x @ w) * shift[:, None]
    np.testing.assert_allclose(highest, scores.max(axis=-1), rtol=1e-12)
    np.testing.assert_allclose(some, scores[:, ::700], rtol=1e-12)
    assert entry.rows == "n" and 0 < entry.tile < 240


def test_an_interrupt_comes_between_tiles(nn: ModuleType) -> None:
    x = np.zeros((2_000_000, 3))
    out = np.full((len(x), 2), np.nan)

    def stop(number: int, frame: FrameType | None) -> None:
        raise InterruptedError

    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(InterruptedError):
            nn.forward(x, out=out)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert np.isnan(out[-1]).all()  # it did not wait for the end
    assert np.isfinite(np.asarray(nn.forward(x[:5]))).all()
