"""The page of ops and functions is up to date, and every op has all its rules."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from mlaot.ops import OPS, Op
from mlaot.ops.axes import ELEMENTWISE
from mlaot.ops.base import no_gradient, same_type

from . import make_ops


def missing(op: Op) -> list[str]:
    """The rules that an op lacks. One that is not differentiable says so: its VJP is ``no_gradient``."""
    if op.name in make_ops.SOURCES:
        return []
    rules: dict[str, object] = {"vjp": op.vjp, "axes": op.axes or op.batch}
    if op.elementwise:
        rules["c"] = op.c
    return [name for name, rule in rules.items() if rule is None]


@pytest.fixture
def new_op() -> Iterator[Op]:
    """An op without a VJP, for a moment."""
    op = Op("half_done", same_type, np.sin, axes=ELEMENTWISE)
    yield op
    del OPS["half_done"]


def test_page_is_up_to_date(request: pytest.FixtureRequest) -> None:
    if np.lib.NumpyVersion(np.__version__) < "2.0.0":
        pytest.skip("the page lists the names of NumPy 2")
    text = make_ops.page()
    if request.config.getoption("--update-golden"):
        make_ops.PAGE.write_text(text, encoding="utf-8")
    stale = f"docs/ops.md is out of date; run {make_ops.COMMAND}, or pytest --update-golden"
    assert make_ops.PAGE.read_text(encoding="utf-8") == text, stale


def test_every_op_is_on_the_page_once() -> None:
    listed = [op.name for module in make_ops.family_modules() for op in make_ops.defined(module)]
    assert sorted(listed) == sorted(OPS)


@pytest.mark.parametrize("name", OPS)
def test_op_says_what_it_computes(name: str) -> None:
    doc = OPS[name].doc
    assert doc and "\n" not in doc and not doc.endswith(".")


@pytest.mark.parametrize("name", OPS)
def test_op_has_all_its_rules(name: str) -> None:
    assert not missing(OPS[name])


def test_a_missing_rule_is_seen(new_op: Op) -> None:
    assert missing(new_op) == ["vjp", "c"]
    assert make_ops.gradient(new_op) == "missing" and make_ops.code(new_op) == "kernel"


def test_dtypes_are_those_of_the_type_rule() -> None:
    said = {
        name: make_ops.dtypes(OPS[name]) for name in ("add", "div", "where", "left_shift", "nextafter", "bitwise_or")
    }
    assert said == {
        "add": "numbers",
        "div": "floats",
        "where": "any",
        "left_shift": "integers",
        "nextafter": "f32, f64",
        "bitwise_or": "integers, bool",
    }


def test_gradients_are_told() -> None:
    """As formulas where the VJP is one, in the words of its docstring, or that there is none."""
    told = {name: make_ops.gradient(OPS[name]) for name in ("sin", "sub", "tanh", "floor", "where", "atan")}
    assert told == {
        "sin": "`ct * cos(x)`",
        "sub": "`ct`, `-ct`",
        "tanh": "`ct * (1 - out * out)`",
        "floor": "none",
        "where": "none, `where(condition, ct, 0)`, `where(condition, 0, ct)`",
        "atan": "`ct / (1 + x * x)`",
    }
    assert OPS["floor"].vjp is no_gradient
