"""Softplus in the forms that people and files write it, its tanh, and what only looks like one."""

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
    "function": lambda x: mlaot.softplus(x),
    "as written": lambda x: np.log(np.exp(x) + 1.0),
    "one first": lambda x: np.log(1.0 + np.exp(x)),
    "log1p": lambda x: np.log1p(np.exp(x)),
    "branches": lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    "exchanged": lambda x: np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0),
    "log of sigmoid": lambda x: -np.log(mlaot.sigmoid(-x)),
    "negative part": lambda x: -(np.minimum(-x, 0) - np.log1p(np.exp(-np.abs(-x)))),
    "far threshold": lambda x: np.where(x > 40.0, x, np.log1p(np.exp(np.minimum(x, 40.0)))),
}
TANHS: dict[str, Callable[[Any], Any]] = {
    **{name: lambda x, form=form: np.tanh(form(x)) for name, form in FORMS.items()},
    "network": lambda x: x * F.tanh(F.softplus(x)),
    "threshold": lambda x: np.tanh(np.where(x > 20.0, x, np.log1p(np.exp(np.minimum(x, 20.0))))),
}
OTHERS: dict[str, Callable[[Any], Any]] = {
    "cut early": lambda x: np.tanh(F.softplus(x, threshold=3.0)),
    "steeper": lambda x: np.tanh(F.softplus(x, beta=2.0)),
    "two values": lambda x: np.log1p(np.exp(-np.abs(x + 1))) + np.maximum(x, 0),
    "threshold": lambda x: F.softplus(x),  # 1e-10 is left of exp(-20) in float64
    "other threshold": lambda x: np.where(x > 50.0, x, F.softplus(np.minimum(x, 40.0), threshold=100.0)),
    "more than one": lambda x: np.log(np.exp(np.minimum(x, 700.0)) + 2.0),
}


def graphs_of(function: Callable[[Any], Any]) -> tuple[Any, Any]:
    """The graph as declared and as compiled."""

    def forward(x: Any) -> Any:
        return function(x)

    forward.__annotations__ = {"x": mlaot.f64[mlaot.dim("batch"), 5]}
    module = passes.run("m", trace(mlaot.model(forward)))
    return module.declared["forward"], module.graphs["forward"]


ALL = {
    **FORMS,
    **{f"tanh of {name}": form for name, form in TANHS.items()},
    **{f"not {name}": form for name, form in OTHERS.items()},
}
LOSSY = ("as written", "one first", "log of sigmoid")  # these forms lose the digits of small results


@pytest.mark.parametrize("name", ALL)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # those who write the forms without care overflow
def test_values(name: str) -> None:
    x = np.concatenate([np.linspace(-745, 745, 400), np.linspace(-3, 22, 400), special(f64)])
    x = np.resize(x, (200, 5))
    is_lossy = name.removeprefix("tanh of ") in LOSSY
    x = np.where((np.abs(x) < 36) | (not is_lossy), x, 1.0)
    declared, compiled = (evaluate(graph, {"x": x}) for graph in graphs_of(ALL[name]))
    for key, value in declared.items():
        # Where a form overflows, softplus does not.
        value = np.where(np.isinf(value) & np.isfinite(x), compiled[key], value)
        np.testing.assert_allclose(compiled[key], value, rtol=1e-14, atol=3e-16 if is_lossy else 1e-300)


@pytest.mark.parametrize("name", FORMS)
def test_no_overflow_and_no_underflow(name: str) -> None:
    x = np.resize([-745.0, -50.0, -np.inf, np.inf, 88.0, 1e4, 0.0, -0.0, 36.0, 710.0], (2, 5))
    (found,) = evaluate(graphs_of(FORMS[name])[1], {"x": x}).values()
    np.testing.assert_allclose(found, np.logaddexp(x, 0), rtol=1e-15)


@pytest.mark.parametrize("name", FORMS)
def test_one_function_is_left(name: str) -> None:
    text = str(graphs_of(FORMS[name])[1])
    assert text.count("softplus(") == 1
    assert not any(f" {op}(" in text for op in ("exp", "log", "log1p", "sigmoid", "relu", "minimum", "where"))


@pytest.mark.parametrize("name", TANHS)
def test_one_exponential_is_left(name: str) -> None:
    text = str(graphs_of(TANHS[name])[1])
    assert text.count("exp(") == 1 and not any(f" {op}(" in text for op in ("tanh", "log1p", "softplus"))


LEFT = {
    "cut early": ("where", "softplus", "tanh"),
    "steeper": ("where", "softplus", "tanh"),
    "two values": ("relu", "abs", "softplus"),
    "threshold": ("where", "softplus"),
    "other threshold": ("where", "softplus", "minimum"),
    "more than one": ("log", "exp"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay(name: str) -> None:
    text = str(graphs_of(OTHERS[name])[1])
    assert all(f" {op}(" in text for op in LEFT[name])


@pytest.mark.parametrize(("dtype", "is_one"), [(mlaot.f32, True), (mlaot.f64, False)])
def test_torch_threshold_is_dropped_where_it_changes_no_bit(dtype: Any, is_one: bool) -> None:
    def forward(x: Any) -> Any:
        return F.softplus(x)

    forward.__annotations__ = {"x": dtype[7]}
    text = str(passes.run("m", trace(mlaot.model(forward))).graphs["forward"])
    assert ("where(" not in text) == is_one and text.count("softplus(") == 1
