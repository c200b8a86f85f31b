"""Random numbers in C: the same bits as the oracle's on every instruction set, normal ones too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mlaot
from mlaot import passes
from mlaot.evaluate import evaluate
from mlaot.lower.lower import lower

from ..compiled import AVAILABLE, Library, State

N = mlaot.dim("n")


@mlaot.model
def draws(x: mlaot.f32[N]):  # type: ignore[no-untyped-def,valid-type]
    """One draw of each kind, of a size that the call gives."""
    return {
        "bits": mlaot.random.bits(x.shape),
        "uniform": mlaot.random.uniform(x.shape),
        "uniform64": mlaot.random.uniform(x.shape, dtype=mlaot.f64),
        "normal": mlaot.random.normal(x.shape),
        "normal64": mlaot.random.normal(x.shape, dtype=mlaot.f64),
        "bernoulli": mlaot.random.bernoulli(0.25, x.shape),
    }


@pytest.mark.parametrize("isa", AVAILABLE)
def test_every_machine_draws_the_same(isa: str, tmp_path: Path) -> None:
    module = passes.run("m", draws.trace())
    program = lower(module)
    library = Library({"m": program}, isa, tmp_path)
    state, key = State(program), np.array([0, 0, 0], np.uint32)
    for step in range(2):
        inputs = {"x": np.zeros(5000, np.float32)}
        expected = evaluate(module.graphs["forward"], inputs | {"random": key})
        actual = library.call("m", "forward", inputs, {"n": 5000}, state)
        for name, value in actual.items():
            assert value.tobytes() == np.ascontiguousarray(expected[name]).tobytes(), f"{name} of step {step}"
        key = expected["write random"]
        assert (state.slot("random") == key).all() and key[2] == step + 1
