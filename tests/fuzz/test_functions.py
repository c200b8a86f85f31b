"""Random functions of NumPy against NumPy, and whether faults put into the compiler are found that way."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import numpy as np
import pytest

from mlaot.frontend.numpy.ufuncs import UFUNCS
from mlaot.ir import Node
from mlaot.ops import elementwise as ew
from mlaot.passes.algebra import simplify

from ..compiled import AVAILABLE
from .functions import BINARY, PER_FILE, REDUCTIONS, UNARY, Function, check, check_bits, make, report, run, smallest

RNG = np.random.default_rng(0)


def function(lines: list[str], **inputs: Any) -> Function:
    return Function(0, {k: np.asarray(v) for k, v in inputs.items()}, lines, [lines[-1].partition(" =")[0]])


@pytest.mark.parametrize("isa", sorted({AVAILABLE[0], AVAILABLE[-1]}))
def test_functions_give_what_numpy_gives(isa: str) -> None:
    failed, counts = run(1000 * AVAILABLE.index(isa), PER_FILE // 2, (isa,))
    assert not failed, report(failed, counts)
    assert counts["numbers"] > 1500 and counts["not certain"] < 0.05 * counts["numbers"], counts


@pytest.mark.parametrize("deterministic", [False, True])
def test_no_bit_depends_on_what_else_is_computed(deterministic: bool) -> None:
    judge = partial(check_bits, deterministic=deterministic)
    failed, counts = run(2000, 8, AVAILABLE[-1:], judge)
    assert not failed, report(failed, counts, judge)
    assert counts["numbers"] > 500


# gcc made one operation of a product and a sum where the product was no result as well.
DEPENDED = [
    function(["v = np.multiply(a, b)", "w = np.add(v, 1)"], a=RNG.normal(size=50), b=RNG.normal(size=50)),
    function(["u = np.exp(a)", "v = np.subtract(u, 1.5)", "w = np.sum(v)"], a=RNG.normal(size=50)),
    function(["u = np.matmul(a, a)", "v = np.multiply(u, 0.3)", "w = np.add(v, u)"], a=RNG.normal(size=(9, 9))),
    function(["u = np.square(a)", "v = np.negative(u)", "w = np.add(v, a)"], a=RNG.normal(size=50)),
    function(["u = np.multiply(a, a)", "w = np.sum(u, axis=1)"], a=RNG.normal(size=(5, 30))),
    function(["u = np.multiply(a, 0.7)", "w = np.log1p(u)"], a=RNG.uniform(size=50)),
    # gcc 12 took a for other than 0 in the first line, once it had made one value of the second.
    function(
        [
            *("v0 = a.astype('bool')", "v1 = np.where(v0, a, -2)"),
            *("v2 = np.less_equal(1, v1)", "w = np.multiply(v0, v2.sum())"),
        ],
        a=RNG.integers(-3, 4, 51).astype(np.int32),
    ),
]


@pytest.mark.parametrize("deterministic", [False, True])
def test_functions_whose_bits_once_depended(deterministic: bool) -> None:
    for isa in dict.fromkeys((AVAILABLE[0], AVAILABLE[-1])):
        check_bits(DEPENDED, isa, Counter(), deterministic)
    assert not [line for case in DEPENDED for line in case.failures]


def test_every_function_of_the_lists_is_called() -> None:
    text = "\n".join(line for seed in range(3000) for line in make(seed).lines)
    assert not [name for name in {*UNARY, *BINARY, *REDUCTIONS} if f"np.{name}(" not in text]
    assert {*UNARY, *BINARY} - {"fix", "nan_to_num", "sinc", "isposinf", "ravel", "copy", "isclose", "isin"} <= set(
        UFUNCS
    )


# What was once wrong.


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
