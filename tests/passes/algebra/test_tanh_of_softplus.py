"""The tanh of a softplus, in the forms that people and files write it, and what only looks like one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mlaot
import mlaot.nn.functional as F
from mlaot import passes
from mlaot.evaluate import evaluate
from mlaot.ir.types import f64
from mlaot.loading import trace

from ...ops.test_c import special

FORMS: dict[str, Callable[[Any], Any]] = {
    "function": lambda x: np.tanh(mlaot.softplus(x)),
    "network": lambda x: x * F.tanh(F.softplus(x)),
    "exchanged": lambda x: np.tanh(np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0)),
}
OTHERS: dict[str, Callable[[Any], Any]] = {
    "cut early": lambda x: np.tanh(F.softplus(x, threshold=3.0)),
    "steeper": lambda x: np.tanh(F.softplus(x, beta=2.0)),
    "two values": lambda x: np.tanh(np.log1p(np.exp(-np.abs(x + 1))) + np.maximum(x, 0)),
    "no tanh": lambda x: F.softplus(x),
}


def graphs_of(function: Callable[[Any], Any]) -> tuple[Any, Any]:
    """The graph as declared and as compiled."""

    def forward(x: Any) -> Any:
        return function(x)

    forward.__annotations__ = {"x": mlaot.f64[mlaot.dim("batch"), 5]}
    module = passes.run("m", trace(mlaot.model(forward)))
    return module.declared["forward"], module.graphs["forward"]


@pytest.mark.parametrize("name", [*FORMS, *OTHERS])
def test_values(name: str) -> None:
    x = np.concatenate([np.linspace(-745, 745, 400), np.linspace(-3, 22, 400), special(f64)])
    x = np.resize(x, (200, 5))
    module = graphs_of({**FORMS, **OTHERS}[name])
    declared, compiled = (evaluate(graph, {"x": x}) for graph in module)
    for key, value in declared.items():
        np.testing.assert_allclose(compiled[key], value, rtol=1e-14, atol=1e-300)


@pytest.mark.parametrize("name", FORMS)
def test_one_exponential_is_left(name: str) -> None:
    text = str(graphs_of(FORMS[name])[1])
    assert text.count("exp(") == 1 and not any(f" {op}(" in text for op in ("tanh", "log1p"))


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay(name: str) -> None:
    text = str(graphs_of(OTHERS[name])[1])
    assert "log1p(" in text and ("tanh(" in text or name == "no tanh")
