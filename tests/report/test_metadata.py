"""What a model's graphs tell before they become C."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import mlaot
from mlaot.files import program_files
from mlaot.generate import compile_model
from mlaot.lower.program import Program
from mlaot.report.metadata import Sizes, metadata_text
from mlaot.settings.options import Options

W = np.ones((8, 4), np.float32)


def declared() -> Program:
    """A recurrence: its step is a graph inside of one."""

    @mlaot.model
    def model(x: mlaot.f32[mlaot.dim("batch"), 8]) -> Any:  # type: ignore[valid-type]
        def step(carry: Any, row: Any) -> Any:
            return np.tanh(carry + row), row

        carry, _ = mlaot.scan(step, np.zeros(4, np.float32), (x @ W))
        return carry

    return compile_model(model, "t.nn", Options(isas=("base",)), golden=True)


def test_ops_of_a_loop_are_counted_with_the_others() -> None:
    program = declared()
    found = json.loads(metadata_text(program, b"weights"))
    assert {"scan", "tanh", "contract"} <= set(found["ops"]["forward"])
    assert not {"const", "input"} & set(found["ops"]["forward"])
    assert found["weights"]["bytes"] == 7 and found["elements"] == {"float32": 36}
    assert [call["entry"] for call in found["golden"]] == ["forward"]
    (entry,) = program.module.entries
    assert found["workspace"] == {"forward": eval(entry.workspace, {}, Sizes(batch=entry.tile or 1))}


def test_the_same_model_has_the_same_metadata(tmp_path: Path) -> None:
    first, second = (program_files(declared())["model.json"] for _ in range(2))
    assert first == second
