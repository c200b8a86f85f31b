"""Weights that change while a model serves."""

from __future__ import annotations

import importlib.util
import math
from array import array
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from examples.scale.serving import PIXELS, Serving

from .. import projects

Step = Callable[[], object]


class Weighing:
    """A model of one weight: each row's sum of pixels times the weight, which a file has as text."""

    between: ClassVar[list[Step]] = []  # what happens within a call: once

    def __init__(self) -> None:
        self.parameters = {"weight": array("d", [1.0])}

    def load(self, path: Path) -> None:
        self.parameters["weight"][0] = float(path.read_text())

    def forward(self, rows: memoryview) -> Any:
        weight = self.parameters["weight"][0]
        while self.between:
            self.between.pop()()
        return SimpleNamespace(tolist=lambda: [[weight * sum(row)] for row in rows.tolist()])


def test_an_answer_is_of_one_set_of_weights(tmp_path: Path) -> None:
    """Weights that change within a call count from the next call on; each answer names those that it is of."""
    file, rows = tmp_path / "weights", [bytes([k] * PIXELS) for k in (1, 2)]
    file.write_text("3")
    serving = Serving(SimpleNamespace(Model=Weighing), file)
    before = serving.loaded.name
    file.write_text("5")
    Weighing.between.append(serving.reload)
    assert serving.answer(rows) == [([3.0 * PIXELS], before), ([6.0 * PIXELS], before)]
    after = serving.loaded.name
    assert after != before
    assert serving.answer(rows) == [([5.0 * PIXELS], after), ([10.0 * PIXELS], after)]


def test_bad_weights_change_nothing(tmp_path: Path) -> None:
    """The model that serves stays."""
    serving = Serving(SimpleNamespace(Model=Weighing), None)
    loaded = serving.loaded
    serving.weights = tmp_path / "weights"
    with pytest.raises(FileNotFoundError):
        serving.reload()
    serving.weights.write_text("no number")
    with pytest.raises(ValueError):
        serving.reload()
    assert serving.loaded is loaded


def test_the_served_model_takes_what_training_saves(tmp_path: Path) -> None:
    """The example's networks have the same parameters, and answer alike."""
    spec = importlib.util.spec_from_file_location("model", projects.EXAMPLES / "scale" / "net" / "model.py")
    assert spec and spec.loader
    declared = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(declared)
    trained = projects.plain_module(declared.digits, "trained", tmp_path).Model()
    served = projects.plain_module(declared.served, "served", tmp_path, frozen=False).Model()
    row = [k % 17 for k in range(PIXELS)]
    trained.parameters["2.bias"][3] += 1
    trained.save(tmp_path / "weights.safetensors")
    served.load(tmp_path / "weights.safetensors")
    scores, probabilities = trained.forward(row).tolist(), served.forward(row).tolist()
    powers = [math.exp(score) for score in scores]
    assert probabilities == pytest.approx([power / sum(powers) for power in powers], rel=1e-5)
