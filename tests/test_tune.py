"""``mlaot tune``: every schedule that it tries computes the same, and builds take what it stores."""

from __future__ import annotations

import json
import re
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot.build.toolchain import find_compiler
from mlaot.cli import main
from mlaot.errors import MlaotError
from mlaot.generate import compile_model
from mlaot.lower.program import Program
from mlaot.schedule.contraction import contraction_of, description
from mlaot.schedule.cost import rank_schedules, schedule
from mlaot.schedule.machine import CPUID, MACHINES, Cpuid
from mlaot.settings.options import Options
from mlaot.settings.tuned import TUNED, read_tuned, write_tuned
from mlaot.tune import CANDIDATES, Measurement, contractions, group_by_machine

from .compiled import AVAILABLE, Library

PROJECT = """\
[build-system]
requires = ["mlaot"]
build-backend = "mlaot.build"

[project]
name = "small"
version = "1.0"

[tool.mlaot.models.nn]
model = "{module}:net"
"""
MODEL = """\
import numpy as np
import mlaot

w = mlaot.Parameter("w", np.random.default_rng(0).normal(size=(130, 70)).astype(np.float32))


@mlaot.model
def net(x: mlaot.f32[96, 130]):
    return mlaot.relu(x @ w)
"""


def products() -> Program:
    """A dense layer, a convolution and scores along a sum, of a batch."""
    rng = np.random.default_rng(0)
    w = mlaot.Parameter("w", rng.normal(size=(37, 70)).astype(np.float32))
    k = mlaot.Parameter("k", rng.normal(size=(18, 12, 3, 3)).astype(np.float32))

    def model(x: Any, image: Any) -> Any:
        return np.tanh(x @ w), mlaot.nn.functional.conv2d(image, k), np.matmul(x, x.T)

    model.__annotations__ = {"x": mlaot.f32[29, 37], "image": mlaot.f32[12, 14, 15]}
    return compile_model(mlaot.model(model), "m.nn", Options(isas=("base",)))


@pytest.mark.parametrize("isa", AVAILABLE)
def test_all_schedules_compute_the_same(isa: str, tmp_path: Path) -> None:
    program = products()
    kernels = [contraction_of(kernel.nest) for kernel in contractions([program])]
    assert len(kernels) == 4  # of the layer, the columns that lie apart have one of their own
    rng = np.random.default_rng(1)
    given = {"x": rng.normal(size=(5, 29, 37)), "image": rng.normal(size=(5, 12, 14, 15))}
    inputs = {name: value.astype(np.float32) for name, value in given.items()}
    first: dict[str, Any] = {}
    tried = set()
    for i in range(CANDIDATES):
        names = {description(k): str(rank_schedules(k, MACHINES[isa])[: i + 1][-1]) for k in kernels}
        tried |= set(names.items())
        tuned = replace(program, module=replace(program.module, tuned={isa: names}))
        library = Library({"m": tuned}, isa, tmp_path / str(i))
        found = library.call("m", "forward", inputs, {"batch": 5})
        first = first or found
        for key, value in first.items():
            np.testing.assert_allclose(found[key], value, rtol=1e-5, atol=1e-5, err_msg=f"{key} by {names}")
    assert len(tried) > 2 * CANDIDATES


def test_what_is_stored_is_taken_where_it_fits() -> None:
    kernel = contraction_of(contractions([products()])[0].nest)
    isa = MACHINES["v3"]
    chosen, second = rank_schedules(kernel, isa)[:2]
    assert schedule(kernel, isa) == chosen

    def by(name: str, value: str) -> Any:
        return schedule(kernel, replace(isa, tuned=((name, value),)))

    assert by(description(kernel), str(second)) == second
    assert by(description(kernel), "i=1000") == by("another", str(second)) == chosen


def test_descriptions_tell_contractions_apart() -> None:
    program = products()
    kernels = [contraction_of(k.nest) for p in program.procedures for k in p.kernels if k.nest.is_tiled]
    assert len({description(k) for k in kernels}) == len({(k.out, k.summed, k.operands) for k in kernels})


def test_a_small_gain_is_none() -> None:
    assert Measurement("d", "w", {"a": 1.0, "b": 0.98}).best == "a"
    found = Measurement("d", "w", {"a": 1.0, "b": 0.9, "c": 0.95})
    assert (found.chosen, found.best, found.gain) == ("a", "b", 0.9)


def project_in(folder: Path) -> Path:
    module = f"{folder.name}_model"  # no other test's
    (folder / "pyproject.toml").write_text(PROJECT.replace("{module}", module))
    (folder / f"{module}.py").write_text(MODEL)
    return folder


def test_tune_a_project(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlaot.tune.SECONDS", 1e-5)
    monkeypatch.setattr("mlaot.tune.GAIN", -1.0)  # the fastest counts, even if it is but noise
    project = project_in(tmp_path)
    assert main(["tune", str(project)]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"^1/1  v0 = contract.*\n    \S.*: [\d.]+ us", printed) and f"{TUNED}: " in printed
    (isa,) = json.loads((project / TUNED).read_text())
    assert isa == AVAILABLE[-1]


@pytest.mark.skipif("v4" not in AVAILABLE, reason="needs a CPU with AVX-512")
def test_products_of_bytes_are_asked_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without VNNI's instruction, a module with int8 products runs on another instruction set than one without."""
    v4 = MACHINES["v4"]
    monkeypatch.setitem(MACHINES, "v4", replace(v4, bytes_need=("missing",)))
    monkeypatch.setitem(CPUID, "missing", Cpuid(0x1000, 0, 0, 1, 0))  # a leaf that no CPU has
    program = products()
    of_bytes = replace(program, module=replace(program.module, words=True))
    found = group_by_machine([program, of_bytes], tuple(MACHINES), find_compiler())
    assert found == {"v4": [program], "v3": [of_bytes]}


def tiles_of(project: Path, out: Path) -> list[str]:
    assert main(["emit", str(project), "--out", str(out)]) == 0
    return re.findall(r"f32v (c\d+_\d+) =", (out / "small.nn" / "nn_v3.c").read_text())


def test_builds_take_the_stored_schedules(tmp_path: Path) -> None:
    project = project_in(tmp_path)
    before = tiles_of(project, tmp_path / "before")
    (found,) = contractions([compile_model(load_net(project), "small.nn", Options(isas=("v3",)))])
    kernel = contraction_of(found.nest)
    other = next(s for s in rank_schedules(kernel, MACHINES["v3"]) if str(s) == "single")
    write_tuned(project, {"v3": {description(kernel): str(other)}})
    assert read_tuned(project) == {"v3": {description(kernel): "single"}}
    after = tiles_of(project, tmp_path / "after")
    assert set(after) == {"c0_0"} and len(set(before)) > 4


def load_net(project: Path) -> Any:
    return runpy.run_path(str(project / f"{project.name}_model.py"))["net"]


@pytest.mark.parametrize("text", ["{", "[]", '{"v3": 1}', '{"v3": {"a": 1}}'])
def test_a_damaged_file_is_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / TUNED).write_text(text)
    with pytest.raises(MlaotError, match=rf"^{TUNED} .*mlaot tune, or delete it$"):
        read_tuned(tmp_path)
