"""Waves of rotary positions are those of the package transformers (``make_llm.py``)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mlaot.llm.facts import Facts
from mlaot.llm.folder import FAMILIES

CASES = json.loads((Path(__file__).parents[1] / "reference" / "rotary.json").read_text())
LLAMA = {"model_type": "llama", "vocab_size": 9, "num_hidden_layers": 1, "intermediate_size": 8}


@pytest.mark.parametrize("name", CASES)
def test_waves_are_those_of_transformers(name: str) -> None:
    case = CASES[name]
    config = FAMILIES["llama"].config(Facts(Path("config.json"), LLAMA | case["entries"]))
    np.testing.assert_allclose(config.waves, case["waves"], rtol=3e-6)  # transformers computes in float32
    assert config.magnitude == pytest.approx(case["magnitude"], rel=1e-12)
    assert config.problem() == ""
