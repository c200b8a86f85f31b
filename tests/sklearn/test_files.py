"""Files of skops: what they may hold, and what is refused of hostile ones. tests/sklearn/test_sklearn.py has more."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytestmark = pytest.mark.filterwarnings("ignore")

# ruff: noqa: E402
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier, StackingClassifier
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KernelDensity, KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import SplineTransformer
from sklearn.tree import DecisionTreeClassifier

import mlaot.sklearn
from mlaot.errors import MlaotError
from mlaot.evaluate import evaluate
from mlaot.sklearn.files import Tree, as_data, undamaged

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
Y = np.digitize(X @ [1.0, -2.0, 0.5], [-1, 1])
TREE = DecisionTreeClassifier(max_depth=2, random_state=0)
ESTIMATORS = [
    CalibratedClassifierCV(GaussianNB(), method="isotonic", cv=2),
    RandomForestClassifier(3, random_state=0),
    HistGradientBoostingRegressor(max_iter=3),
    StackingClassifier([("a", TREE), ("b", LogisticRegression())], cv=2),
    GridSearchCV(KNeighborsClassifier(), {"n_neighbors": [3, 5]}, cv=2),
    GaussianProcessClassifier(random_state=0),
    MLPClassifier((4,), max_iter=20, random_state=0),
    SplineTransformer(extrapolation="linear"),
    KernelDensity(),
]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: type(estimator).__name__)
def test_fitted_estimators_are_read(estimator: Any, tmp_path: Path) -> None:
    io = pytest.importorskip("skops.io")
    fitted = estimator.fit(X, Y)
    io.dump(fitted, tmp_path / "model.skops")
    declared = mlaot.sklearn.load(tmp_path / "model.skops", X)
    traced = declared.trace()
    assert not declared.references  # scikit-learn's compiled code does not run on what a file says
    found = evaluate(traced.graph, {**traced.parameters, "X": X}, dims={"batch": len(X)})
    assert found
    for method, values in found.items():
        np.testing.assert_allclose(values, getattr(fitted, method)(X), rtol=1e-9, atol=1e-12)


def damaged(**changes: Any) -> Any:
    """A tree of which a field of node 0, or what it says of itself, is changed."""
    fitted = DecisionTreeClassifier(max_depth=2, random_state=0).fit(X, Y)
    tree = Tree(3, np.array([3]), 1)
    state = fitted.tree_.__getstate__()
    state["nodes"] = state["nodes"].copy()
    for name, value in changes.items():
        if name in state:
            state[name] = value
        else:
            state["nodes"][name][0] = value
    tree.__setstate__(state)
    fitted.tree_ = tree
    return fitted


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"node_count": 1_000_000}, ""),  # it is counted
        ({"left_child": 0}, "a node is below itself"),
        ({"left_child": 9999}, "index 9999 is out of bounds"),
        ({"right_child": -7}, "index -7 is out of bounds"),
        ({"feature": -5}, "features are numbered from 0"),
        ({"feature": 77}, "rows of at least 78 features"),
        ({"values": np.zeros((5, 2))}, "nodes of a tree with values"),
        ({"values": np.zeros((4, 1, 3))}, "nodes of a tree with values"),
        ({"nodes": np.zeros(5)}, "."),
    ],
)
def test_damaged_trees(changes: dict[str, Any], message: str) -> None:
    """They are read as data, and refused."""
    try:
        with undamaged("model.skops"):
            mlaot.sklearn.load(damaged(**changes), X).trace()
    except MlaotError as error:
        assert message
        assert re.search(message, str(error))
        assert "\n" not in str(error)
    else:
        assert not message


def test_compiled_classes_have_stand_ins() -> None:
    """While a file is read, and not afterwards; a metric of scikit-learn's own would crash here."""
    import sklearn.metrics._dist_metrics
    import sklearn.tree._tree

    own = sklearn.tree._tree.Tree
    with as_data():
        assert sklearn.tree._tree.Tree is Tree
        sklearn.metrics._dist_metrics.EuclideanDistance64().__setstate__({})
    assert sklearn.tree._tree.Tree is own
