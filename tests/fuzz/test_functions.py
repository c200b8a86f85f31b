"""Random functions of NumPy against NumPy, and whether faults put into the compiler are found that way."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from mlaot.frontend.ufuncs import UFUNCS
from mlaot.ir import Node
from mlaot.ops import elementwise as ew
from mlaot.passes import simplify

from ..compiled import AVAILABLE
from .functions import BINARY, PER_FILE, REDUCTIONS, UNARY, Function, check, check_bits, make, report, run, smallest


@pytest.mark.parametrize("isa", sorted({AVAILABLE[0], AVAILABLE[-1]}))
def test_functions_give_what_numpy_gives(isa: str) -> None:
    failed, counts = run(1000 * AVAILABLE.index(isa), PER_FILE // 2, (isa,))
    assert not failed, report(failed, counts)
    assert counts["numbers"] > 1500 and counts["not certain"] < 0.05 * counts["numbers"], counts


def test_no_bit_depends_on_what_else_is_computed() -> None:
    failed, counts = run(2000, 8, AVAILABLE[-1:], check_bits)
    assert not failed, report(failed, counts, check_bits)
    assert counts["numbers"] > 500


def test_every_function_of_the_lists_is_called() -> None:
    text = "\n".join(line for seed in range(3000) for line in make(seed).lines)
    assert not [name for name in {*UNARY, *BINARY, *REDUCTIONS} if f"np.{name}(" not in text]
    assert {*UNARY, *BINARY} - {"fix", "nan_to_num", "sinc", "isposinf", "ravel", "copy", "isclose", "isin"} <= set(
        UFUNCS
    )


# What was once wrong.


def function(lines: list[str], **inputs: Any) -> Function:
    return Function(0, {k: np.asarray(v) for k, v in inputs.items()}, lines, [lines[-1].partition(" =")[0]])


FOUND = [
    function(["v = np.resize(a, 4)"], a=np.zeros((1, 0))),
    function(["v = np.convolve(a, b, mode='same')"], a=[1.0, np.nan, 2.0, 3.0], b=[0.0, -np.inf]),
    function(["v = np.convolve(a, b, mode='full')"], a=[1.0, 2.0, 3.0], b=[np.inf, 1.0]),
    function(["v = np.median(a, axis=0)"], a=np.zeros((0, 2))),
    function(["v = np.floor(np.add(a, b))"], a=np.float16([1, 2048]), b=np.float16([-1e-4, 1])),
    function(["v = np.max(a, initial=0)"], a=[True, False]),
]


def test_functions_that_once_failed() -> None:
    check(FOUND, AVAILABLE[-1], Counter())
    assert not [line for case in FOUND for line in case.failures]


# A fault put in.


def wrong_rule(node: Node) -> Node | None:
    """x * 3 => x"""
    return node.arg(0) if simplify.number(node.arg(1)) == 3 else None


def test_a_wrong_rule_is_found_and_made_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(simplify.RULES, ew.mul, (wrong_rule, *simplify.RULES[ew.mul]))
    case = function(["w = np.multiply(a, 3)", "x = np.add(w, 1)", "v = np.flip(x)"], a=[1.0, 2.0])
    check([case], "base", Counter())
    assert case.failures
    assert len(smallest(case).lines) == 1
