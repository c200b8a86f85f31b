"""``mlaot.tree_ensemble``: its questions, aggregates and mistakes."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import nn
from mlaot.errors import MlaotError
from mlaot.ir import Type, dim
from mlaot.ir.types import f32

from ..ops.forests import awkward_rows
from .tracing import assert_same, graph_of

Array = np.ndarray[Any, Any]
ASK = {
    "<=": np.less_equal,
    "<": np.less,
    ">=": np.greater_equal,
    ">": np.greater,
    "==": np.equal,
    "!=": np.not_equal,
}
VALUES = (-np.inf, -0.5, 0.0, 0.1, np.inf)
# The tree   0: x[1] <= 0.5 ? 1 : leaf 2      1: x[0] <= 0.1 ? leaf 0 : leaf 1
TREE: dict[str, Any] = {
    "feature": [1, 0],
    "threshold": [0.5, 0.1],
    "true": [1, ~0],
    "false": [~2, ~1],
    "roots": [0],
    "leaves": [1.0, 2.0, 4.0],
}


@pytest.mark.parametrize("mode", ASK)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_question(mode: str, dtype: Any) -> None:
    """Of float32 and float64, at the thresholds and next to them, of infinities and nan."""
    points = np.array(VALUES, dtype)
    x = np.concatenate([points, np.nextafter(points, dtype(9)), np.nextafter(points, dtype(-9)), [dtype(np.nan)]])[
        :, None
    ]
    for threshold, nan_is_true in product(VALUES, (False, True)):
        asked = ASK[mode](x[:, 0].astype(np.float64), threshold)
        expected = np.where(np.isnan(x[:, 0]), nan_is_true, asked)

        def model(x: Any, threshold: float = threshold, nan_is_true: bool = nan_is_true) -> Any:
            options: dict[str, Any] = {"mode": mode, "nan_is_true": nan_is_true}
            return mlaot.tree_ensemble(x, [0], [threshold], [~0], [~1], [0], [1.0, 0.0], **options)

        np.testing.assert_array_equal(model(x), expected, err_msg=f"{mode} {threshold} {nan_is_true}")
        assert_same(model, x)


def test_questions_of_several_kinds_in_one_tree() -> None:
    rng = np.random.default_rng(0)
    x = awkward_rows(rng, (200, 3), np.float32)
    modes = ["==", "<", "!=", ">=", "=="]
    arrays = [0, 1, 2, 0, 1], [0.5, 0.1, -0.5, 0.0, 0.5], [1, 2, ~0, ~1, ~2], [3, ~3, ~4, 4, ~5], [0], np.arange(6.0)
    nan = [True, False, True, False, True]

    def walk(row: Array) -> float:
        at = 0
        while at >= 0:
            value = row[arrays[0][at]]
            yes = nan[at] if np.isnan(value) else ASK[modes[at]](np.float64(value), arrays[1][at])
            at = arrays[2][at] if yes else arrays[3][at]
        return float(~at)

    found = mlaot.tree_ensemble(x, *arrays, mode=modes, nan_is_true=nan)
    np.testing.assert_array_equal(found, [walk(row) for row in x])
    assert_same(lambda x: mlaot.tree_ensemble(x, *arrays, mode=modes, nan_is_true=nan), x)


@pytest.mark.parametrize("aggregate", ["sum", "mean", "min", "max"])
def test_aggregates_and_base(aggregate: str) -> None:
    x = np.random.default_rng(0).normal(size=(2, 9, 2))
    arrays = [0, 1], [0.0, 0.0], [~0, ~2], [~1, ~3], [0, 1], np.array([[1.0, 5.0], [2.0, 6.0], [-3.0, 7.0], [4.0, 8.0]])
    reached = np.stack([arrays[5][np.where(x[..., 0] <= 0, 0, 1)], arrays[5][np.where(x[..., 1] <= 0, 2, 3)]])
    expected = getattr(np, aggregate)(reached, axis=0) + np.array([0.5, -1])
    np.testing.assert_array_equal(mlaot.tree_ensemble(x, *arrays, aggregate=aggregate, base=[0.5, -1]), expected)
    assert_same(lambda x: mlaot.tree_ensemble(x, *arrays, aggregate=aggregate, base=[0.5, -1]), x)


def test_dtypes_and_shapes() -> None:
    """The result has the dtype of float32 and float64 features; halves are float32, integers float64."""
    for given, wanted in ((np.float16, np.float32), (np.float32, np.float32), (np.int32, np.float64)):
        x = np.array([[0, 1], [1, 0]], given)
        assert mlaot.tree_ensemble(x, **TREE).dtype == wanted
        assert_same(lambda x: mlaot.tree_ensemble(x, **TREE), x)
    layer = nn.TreeEnsemble(**TREE)
    graph, _ = graph_of(layer, Type(f32, (dim("n"), 2)))
    assert graph.outputs["0"].type == f32[dim("n")]
    assert graph_of(layer, Type(f32, (2,)))[0].outputs["0"].type == Type(f32)
    assert not list(layer.named_parameters())


def test_the_gradient_is_zero() -> None:
    x = np.random.default_rng(0).normal(size=(4, 2))
    assert_same(lambda x: mlaot.tree_ensemble(x, **TREE), x)
    found = mlaot.grad(lambda x: np.sum(mlaot.tree_ensemble(x, **TREE)))(x)
    np.testing.assert_array_equal(found, np.zeros((4, 2)))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"mode": "=<"}, "mode must be one of <= < >= > == !=, for all nodes or for each, got '=<'"),
        ({"mode": ["<="]}, "got 1 of them for 2 nodes"),
        ({"aggregate": "median"}, "aggregate must be one of sum, mean, min, max, got 'median'"),
        ({"nan_is_true": [True]}, "nan_is_true must be a bool, or one for each of 2 nodes"),
        ({"feature": [1]}, "every node has a feature, a threshold and two children, got [1, 2, 2, 2]"),
        ({"feature": [1, -1]}, "features are numbered from 0, got -1"),
        ({"feature": [1.0, 0.0]}, "features must be a vector of integers, got float64[2]"),
        ({"feature": [1, 2]}, "tree_ensemble needs rows of at least 3 features"),
        ({"threshold": [0.5, np.nan]}, "a threshold is nan"),
        ({"true": [2, ~0]}, "must be numbers of 2 nodes, or ~leaf of 3 leaves, got -3..2"),
        ({"false": [~3, ~1]}, "must be numbers of 2 nodes, or ~leaf of 3 leaves, got -4..1"),
        ({"true": [1, 0]}, "a node is below itself"),
        ({"roots": []}, "at least one tree"),
        ({"leaves": [[[1.0]]] * 3}, "leaves must be a vector of numbers"),
    ],
)
def test_mistakes(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(MlaotError) as error:
        mlaot.tree_ensemble(np.zeros((3, 2)), **(TREE | changed))
    assert said in str(error.value)
    with pytest.raises(MlaotError, match="tree_ensemble"):
        mlaot.tree_ensemble(np.float64(1), **TREE)
