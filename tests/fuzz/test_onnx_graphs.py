"""Random ONNX models against the package onnx, and whether faults put into operators are found that way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import mlaot.onnx.ops  # noqa: F401  fills the registry
from mlaot.onnx.registry import OPERATORS, Operator

from ..compiled import AVAILABLE
from .onnx_graphs import References, report, run_models, run_seeds
from .onnx_made import DRAWS, Model


def test_random_models_are_right() -> None:
    references = References(only_onnx=True)
    failed, counts = run_seeds(0, 50, references, AVAILABLE[-1:])
    assert not failed, report(failed, counts, references)
    assert counts["numbers"] > 1_000 and counts["not comparable"] < 0.05 * counts["numbers"], counts


def test_what_is_drawn_can_be_imported() -> None:
    assert set(DRAWS) <= {name for domain, name in OPERATORS if not domain}
    assert len(DRAWS) > 100


def wrong_floor(use: Any, x: Any) -> Any:
    return np.rint(x)


def wrong_neg(use: Any, x: Any) -> Any:
    return 0 - x - 1


@pytest.mark.parametrize(("op", "function"), [("Floor", wrong_floor), ("Neg", wrong_neg)])
def test_a_wrong_operator_is_found_and_narrowed_down(monkeypatch: pytest.MonkeyPatch, op: str, function: Any) -> None:
    monkeypatch.setitem(OPERATORS, ("", op), [Operator(function, 1, False, False, False)])
    references = References(only_onnx=True)
    nodes = [
        helper.make_node("Add", ["x", "c"], ["a"]),
        helper.make_node(op, ["a"], ["b"]),
        helper.make_node("Mul", ["b", "x"], ["y"]),
    ]
    x = np.array([0.3, -1.25, np.nan, np.inf, 0.0], np.float32)
    model = Model(0, 13, nodes, [{"x": x}], {"c": np.float32(1.5)}, ["y"])
    run_models([model], AVAILABLE[-1], references, references.counts)
    assert model.failures
    assert f"= {op} (a)" in report([model], references.counts, references)


# What was once wrong.


def test_models_that_once_failed() -> None:
    make, x = helper.make_node, np.array([[1, np.nan, 3], [np.inf, -np.inf, 0]], np.float32)
    axis, count = {"i": np.array(1)}, {"k": np.array([2])}
    kept = [
        # the largest of what is known in the file, behind an operator that makes it a traced value
        Model(0, 13, [make("Identity", ["c"], ["v"]), make("TopK", ["v", "k"], ["y", "z"])], [{}], count, ["y", "z"]),
        Model(1, 13, [make("CumSum", ["x", "i"], ["y"], exclusive=1, reverse=1)], [{"x": x[:, :2]}], axis, ["y"]),
        Model(2, 13, [make("LogSoftmax", ["x"], ["y"], axis=0)], [{"x": x}], {}, ["y"]),
        Model(3, 13, [make("ThresholdedRelu", ["x"], ["y"])], [{"x": x}], {}, ["y"]),
        Model(4, 13, [make("TopK", ["x", "k"], ["y", "z"], largest=1)], [{"x": x}], count, ["y", "z"]),
    ]
    kept[0].constants["c"] = x
    kept[0].trials[0]["x"] = x
    references = References(only_onnx=True)
    run_models(kept, AVAILABLE[-1], references, references.counts)
    assert [model.failures for model in kept] == [[]] * len(kept)
