"""Random graphs against the references, and whether faults put into the compiler are found that way."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mlaot.ir import Dim, Node
from mlaot.lower import lower as lowering
from mlaot.lower.plan import plan
from mlaot.lower.program import Buffer, Kernel
from mlaot.ops import OPS
from mlaot.ops import elementwise as ew
from mlaot.passes.algebra import simplify
from mlaot.printing.vectors import functions

from ..compiled import OPTIMIZED
from .bounds import CONTROLS, DOUBTS, LEAVES, NOT_DRAWN, RULES, VIEWS
from .random_graphs import PER_FILE, report, run


@pytest.mark.parametrize("first", [0, PER_FILE, (OPTIMIZED - 1) * PER_FILE])
def test_compiled_graphs_are_right(first: int) -> None:
    """The whole pipeline and the least one give what the references give; so do gradients."""
    failed, counts = run(first, PER_FILE)
    assert not failed, report(failed, counts)
    assert counts["numbers"] > 1000 and counts["no bound"] < 0.1 * counts["numbers"], counts


@pytest.mark.parametrize("seed", [315, 322, 973, 1709])
def test_graphs_that_once_failed(seed: int) -> None:
    """315: a cheap value that waits for a sum over a named dim. 322: a weight summed to a scalar, as if it had gates.

    973: infinite cotangents of one value written twice. 1709: a recomputed mask as operand of a contraction.
    """
    failed, counts = run(seed, 1)
    assert not failed, report(failed, counts)


def test_every_op_has_an_error_bound() -> None:
    """Functions of floats, and moves, that no graph draws are held against their references alone (tests/ops)."""
    bounded = {*RULES, *DOUBTS, *VIEWS, *LEAVES, *CONTROLS, *NOT_DRAWN, "is_equal", "gather"}
    assert bounded <= set(OPS)
    assert all(OPS[name].moves or name in functions() for name in set(OPS) - bounded)


def wrong_rule(node: Node) -> Node | None:
    """x * -1 => x"""
    return node.arg(0) if simplify.number(node.arg(1)) == -1 else None


def test_a_wrong_rule_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = tuple(wrong_rule if rule is simplify.times_minus_one else rule for rule in simplify.RULES[ew.mul])
    assert wrong_rule in rules
    monkeypatch.setitem(simplify.RULES, ew.mul, rules)
    failed, counts = run(0, PER_FILE // 2)
    assert failed and all(f.startswith("full") for case in failed for f in case.failures), report(failed, counts)


def test_a_wrong_gradient_is_found() -> None:
    right = ew.tanh.vjp
    object.__setattr__(ew.tanh, "vjp", lambda ct, out, x: (ew.mul(ct, out),))
    try:
        failed, counts = run(0, PER_FILE // 2)
    finally:
        object.__setattr__(ew.tanh, "vjp", right)
    assert any("gradient along a direction" in f for case in failed for f in case.failures), report(failed, counts)


def test_overlapping_buffers_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def overlapping(kernels: Sequence[Kernel]) -> tuple[list[tuple[Buffer, Dim]], Dim]:
        offsets, size = plan(kernels)
        return [(buffer, 0) for buffer, _ in offsets], size

    monkeypatch.setattr(lowering, "plan", overlapping)
    failed, counts = run(0, 4)
    assert failed, report(failed, counts)
