"""What a module makes of its weights when it is first used: once, for all of its models, in any module."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import nn

from ..projects import build_module, load
from . import models
from .test_host import LINUX, python

net = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1, rng=0), nn.ReLU(), nn.Conv2d(32, 48, 3, padding=1, rng=1))
X = np.random.default_rng(2).standard_normal((2, 32, 14, 14), np.float32)


@mlaot.model(parameters=net)
def convolutions(x: mlaot.f32[mlaot.dim("batch"), 32, 14, 14]) -> Any:
    return net(x)


def test_the_first_model_makes_it(libraries: dict[str, Path]) -> None:
    """Also where several threads want it at once, each of which then finds all of it."""
    for _ in range(20):
        module, found, start = models.load(libraries["prepared"]), list[float](), threading.Barrier(4)

        def call(module: Any = module, found: list[float] = found, start: threading.Barrier = start) -> None:
            start.wait()
            found.append(module.forward(29999).item())

        threads = [threading.Thread(target=call) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [59998.0] * 4
        assert module.Model().forward(1).item() == 2 and module.selftest() == {}


def test_it_is_no_state(libraries: dict[str, Path]) -> None:
    """Nothing of it is in what Python sees, in files or in the wheel."""
    module = models.load(libraries["prepared"])
    assert not hasattr(module, "prepare_weights") and not hasattr(module, "save")
    assert list(module.info()["entries"]) == ["forward"]
    with pytest.raises(TypeError, match="the weights of prepared are frozen"):
        module.Model().__setstate__(1)
    assert libraries["prepared"].stat().st_size < libraries["large"].stat().st_size + 10_000


MEMORY = """
import gc, resource, prepared

def kilobytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() // 1024

prepared.forward(1)
before = kilobytes()
kept = [prepared.Model() for _ in range(200)]
assert [model.forward(3).item() for model in kept] == [6.0] * 200
print(kilobytes() - before)
"""


@LINUX
def test_models_share_it(libraries: dict[str, Path]) -> None:
    assert int(python(MEMORY, libraries["prepared"])) < 2000  # 200 of them would take 24,000


@pytest.mark.parametrize("winograd", ["F2", "F4"])
def test_the_same_as_weights_that_are_stored(winograd: str, tmp_path: Path) -> None:
    """F2's factors are powers of two, so that it is the same bits; F4's products are rounded, in float64."""
    forms: dict[str, dict[str, Any]] = {"made": {}, "file": {"weights": "file"}, "stored": {"c_library": True}}
    answers = {}
    for form, options in forms.items():
        own = {"winograd": winograd, "deterministic": True, **options}
        module = load(build_module(convolutions, f"{form}_{winograd}", tmp_path / form, golden=True, **own))
        answers[form] = np.asarray(module.forward(X))
        assert bool(module.info()["bytes"]["state"]) == (form != "stored")
        assert "base" in module.selftest()
    assert answers["made"].tobytes() == answers["file"].tobytes()
    difference = np.abs(answers["made"] - answers["stored"]).max() / np.abs(answers["stored"]).max()
    assert difference <= (0 if winograd == "F2" else 4e-6)  # of two convolutions; from the exact sums both are 4e-6
