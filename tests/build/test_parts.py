"""Objects of a long module are kept by kernel: what is compiled anew is what was never compiled before."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import nn, optim
from mlaot.build import toolchain
from mlaot.files import program_files, write
from mlaot.generate import compile_model
from mlaot.nn import functional as F
from mlaot.printing import cmake, parts
from mlaot.printing.helpers import callers
from mlaot.printing.parts import ENTRIES, bit_of, count_of, digest
from mlaot.schedule.tuning import PART_SECONDS, WHOLE_SECONDS
from mlaot.settings.options import Options

from .. import projects

ISAS = ("base", "v3")
COUNT = 8  # parts with kernels


class Net(nn.Module):
    def __init__(self, depth: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.layers = [nn.Linear(24, 24, rng=rng) for _ in range(depth)]
        self.last = nn.Linear(24, 4, rng=rng)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = F.gelu(layer(x))
        return self.last(x)


def declare(depth: int = 3, seed: int = 0, *, trains: bool = True, more: bool = False) -> Any:
    net = Net(depth, seed)

    def loss(scores: Any, y: Any) -> Any:
        return F.cross_entropy(scores, y)

    def classify(x: Any) -> Any:
        return net(x)

    classify.__annotations__ = {"x": mlaot.f32[24]}
    loss.__annotations__ = {"y": mlaot.i64}
    options: dict[str, Any] = {"loss": loss, "optimizer": optim.SGD(lr=0.1, momentum=0.9)} if trains else {}
    model = mlaot.model(parameters=net, **options)(classify)
    if more:

        def doubt(x: Any) -> Any:
            p = F.softmax(net(x), -1)
            return -(p * np.log(p)).sum(-1)

        doubt.__annotations__ = {"x": mlaot.f32[24]}
        model.entry(doubt)
    return model


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """``build(model)`` gives what was compiled for its module: a unit and its part; the library is ``m/nn.so``."""
    monkeypatch.setenv("MLAOT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CFLAGS", raising=False)
    monkeypatch.setattr(cmake, "INTERFACE_FLAGS", ("-O0",))
    monkeypatch.setattr(parts, "WHOLE_SECONDS", 0.0)
    monkeypatch.setattr(parts, "PART_SECONDS", 1e-6)
    monkeypatch.setattr(parts, "MAX_PARTS", COUNT)
    made: list[str] = []
    original = toolchain.run

    def run(arguments: list[str], *more: Any) -> str:
        if "-c" in arguments:
            made.append(Path(arguments[-1]).stem)
        return original(arguments, *more)

    monkeypatch.setattr(toolchain, "run", run)

    def build(model: Any, *, archive: bool = False) -> list[str]:
        made.clear()
        folder = tmp_path / "c"
        shutil.rmtree(folder, ignore_errors=True)
        write(program_files(compile_model(model, "m.nn", Options(isas=ISAS, c_library=archive))), folder)
        library = tmp_path / "m" / "nn.abi3.so"
        made_by = toolchain.find_toolchain()
        toolchain.compile_module(
            folder, "nn", ISAS, library, made_by, archive=tmp_path / "libm_nn.a" if archive else None
        )
        return sorted(made)

    return build


def kernels_of(made: list[str]) -> list[str]:
    """The objects with kernels: their unit and the number of their part, of which the first has entries."""
    return [name for name in made if re.fullmatch(r"nn_(base|v3)[1-9]", name)]


def test_another_weight_compiles_no_kernel(build: Callable[..., list[str]]) -> None:
    first = build(declare())
    assert len(kernels_of(first)) == COUNT * len(ISAS) and {"nn", "nn_base", "nn_v3"} < set(first)
    assert build(declare()) == []
    assert build(declare(seed=1)) == ["nn"]


def test_one_more_equal_layer_compiles_no_kernel(build: Callable[..., list[str]]) -> None:
    build(declare(depth=4, trains=False))
    assert build(declare(depth=5, trains=False)) == ["nn", "nn_base", "nn_v3"]


def test_another_entry_compiles_its_own_kernels(build: Callable[..., list[str]]) -> None:
    build(declare())
    made = build(declare(more=True))
    assert {"nn", "nn_base", "nn_v3"} < set(made)
    assert 0 < len(kernels_of(made)) <= COUNT * len(ISAS) // 2, made


def test_parts_compute_what_the_whole_does(build: Callable[..., list[str]], tmp_path: Path) -> None:
    build(declare(), archive=True)
    x = np.random.default_rng(0).normal(size=(40, 24)).astype(np.float32)
    y = np.arange(40) % 4
    module = projects.load(tmp_path / "m" / "nn.abi3.so")
    symbols = subprocess.run(["nm", tmp_path / "libm_nn.a"], capture_output=True, text=True, check=True).stdout
    own = {line.split()[-1] for line in symbols.splitlines() if re.search(r" [TDBRVW] ", line)}
    assert own and all(name.startswith("m_nn") for name in own), own
    whole = tmp_path / "whole"
    source = tmp_path / "c"
    for name in ("nn_base.c", "nn_v3.c"):
        path = source / name
        path.write_text(path.read_text().replace("#define MLAOT_PART_COUNT", "// no parts:"))
    toolchain.compile_module(source, "nn", ISAS, whole / "m" / "nn.abi3.so", toolchain.find_toolchain())
    other = projects.load(whole / "m" / "nn.abi3.so")
    for _ in range(3):
        assert module.train_step(x, y) == other.train_step(x, y)
    assert memoryview(module.forward(x)).tobytes() == memoryview(other.forward(x)).tobytes()


def test_a_short_file_is_one_part() -> None:
    assert count_of(0.0) == count_of(WHOLE_SECONDS) == 1
    assert count_of(3 * PART_SECONDS) == count_of(4 * PART_SECONDS) == 4
    assert count_of(1e6) == parts.MAX_PARTS
    assert {bit_of(digest(("rows", i)), 4) for i in range(99)} == {2, 4, 8, 16}


def test_helpers_are_in_the_parts_that_call_them() -> None:
    helpers = {"low": "low(x)", "other": "other()", "high": "high low(y)"}
    assert callers(helpers, [({"high"}, 2), ({"low"}, 4), ({"lower"}, ENTRIES)]) == {"low": 6, "other": 0, "high": 2}
