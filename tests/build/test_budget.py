"""Budgets that hold and budgets that do not; what is over says by how much, and what to do."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot.build.budget import check_metadata, check_replay, check_wheel
from mlaot.errors import MlaotError
from mlaot.settings import Budget, ModelSettings, ProjectBudget, Settings

from ..projects import build_module
from .conftest import Project, Python, last_line
from .test_doors import SETUPTOOLS

SHARES = {"base": 0.1}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A compiled module with golden vectors, and its metadata."""
    weights = np.linspace(-1, 1, 64 * 10, dtype=np.float32).reshape(64, 10)

    @mlaot.model
    def classify(x: mlaot.f32[mlaot.dim("batch"), 64]) -> Any:  # type: ignore[valid-type]
        return mlaot.softmax(x @ weights)

    site = tmp_path_factory.mktemp("budget") / "site"
    library = build_module(classify, "digits", site, ("base",), golden=True)
    return library, json.loads((site.with_name("site-c") / "digits.nn" / "model.json").read_text())


def model(**limits: Any) -> ModelSettings:
    return ModelSettings("nn", "model:classify", "digits.nn", budget=Budget(**limits))


def refused(limits: dict[str, Any], made: tuple[Path, dict[str, Any]], shares: dict[str, float] | None = SHARES) -> str:
    """What is said of a budget that is too small."""
    library, metadata = made
    with pytest.raises(MlaotError) as error:
        check_metadata(model(**limits), metadata)
        check_replay(model(**limits), metadata, library, shares, ("base", "v4"))
    assert "\n" not in str(error.value) and f"budget.{next(iter(limits))} = " in str(error.value)
    return str(error.value)


def test_ample(made: tuple[Path, dict[str, Any]]) -> None:
    library, metadata = made
    ops = tuple(op for entry in metadata["ops"].values() for op in entry)
    ample = model(workspace_kb=100_000, error=1e-4, latency_us=1e6, ops=ops, isa=("base",))
    check_metadata(ample, metadata)
    check_replay(ample, metadata, library, SHARES, ("base", "v4"))


def test_ops(made: tuple[Path, dict[str, Any]]) -> None:
    said = refused({"ops": ("contract", "exq", "sub", "div", "max", "sum", "broadcast")}, made)
    assert "forward of model:classify has the op 'exp' (1 times)" in said and "did you mean 'exq'?" in said


def test_workspace(made: tuple[Path, dict[str, Any]]) -> None:
    assert "a call of forward needs " in refused({"workspace_kb": 0}, made)


def test_error(made: tuple[Path, dict[str, Any]]) -> None:
    assert "forward is off by " in refused({"error": 0}, made)
    assert "has no golden vectors" in refused({"error": 1}, (made[0], made[1] | {"golden": []}))


def test_latency(made: tuple[Path, dict[str, Any]]) -> None:
    assert " us on this machine (" in refused({"latency_us": 0}, made)


def test_instruction_sets(made: tuple[Path, dict[str, Any]]) -> None:
    assert "was replayed on base only, but budget.isa = ['base', 'v4'] in pyproject.toml asks for v4" in refused(
        {"isa": ("base", "v4")}, made
    )
    assert "was not replayed, but" in refused({"isa": ("v4",)}, made, None)
    assert "was not replayed, but" in refused({"isa": ("base",)}, made, {})


def test_another_machine(made: tuple[Path, dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    check_replay(model(error=0.0, latency_us=0.0), made[1], made[0], None, ("base",))
    assert "are not checked against its budget: it does not run here" in capsys.readouterr().out


def test_more_than_pypi_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wheel = tmp_path / "large.whl"
    with open(wheel, "wb") as file:
        file.truncate(123_400_000)
    check_wheel(Settings("digits", ".", ()), tmp_path, wheel)
    assert "warning: the wheel is 123.4 MB; PyPI takes 100 MB" in capsys.readouterr().out


def test_large_wheel(tmp_path: Path, made: tuple[Path, dict[str, Any]]) -> None:
    """It is deleted, and its parts are named, the largest first."""
    metadata = tmp_path / "digits.nn" / "model.json"
    metadata.parent.mkdir()
    metadata.write_text(json.dumps(made[1]))
    settings = replace(Settings("digits", ".", ()), models=(model(),), budget=ProjectBudget(wheel_kb=3))
    wheel = tmp_path / "digits.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("digits/nn.abi3.so", bytes(2000))
        file.writestr("digits/nn.pyi", bytes(1500))
    with pytest.raises(MlaotError) as error:
        check_wheel(settings, tmp_path, wheel)
    assert not wheel.exists()
    weights = f"{made[1]['weights']['bytes'] / 1000:,.1f} KB"
    parts = f"digits/nn.abi3.so 2.0 KB (its weights are {weights}), digits/nn.pyi 1.5 KB"
    assert f"0.7 KB over budget.wheel_kb = 3 in pyproject.toml; its largest parts are {parts}" in str(error.value)


@pytest.mark.parametrize("door", ["mlaot.build", "setuptools"])
def test_build_over_its_budget_leaves_no_wheel(project: Project, python: Python, tmp_path: Path, door: str) -> None:
    text = SETUPTOOLS if door == "setuptools" else (project.path / "pyproject.toml").read_text()
    project.write("pyproject.toml", f"{text}\n[tool.mlaot.budget]\nwheel_kb = 1\n")
    out = tmp_path / "out"
    out.mkdir()
    assert "over budget.wheel_kb = 1 in pyproject.toml" in last_line(python.hook(project, "build_wheel", str(out)))
    assert not list(out.iterdir())
