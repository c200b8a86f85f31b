"""The estimators of ``make_trees.py``, and stand-ins for them with the attributes that scikit-learn's have."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
TREE = ("feature", "threshold", "children_left", "children_right", "missing_go_to_left", "value")
OUTPUTS = ("predict", "predict_proba", "decision_function")
# name: estimator, its options, what it is fitted to (of ``targets``), whether with nan
ESTIMATORS: dict[str, tuple[str, dict[str, Any], str, bool]] = {
    "tree": ("DecisionTreeRegressor", {}, "y", True),
    "tree classes": ("DecisionTreeClassifier", {"max_depth": 4}, "three", False),
    "forest": ("RandomForestRegressor", {"n_estimators": 5}, "y", True),
    "forest of two": ("RandomForestRegressor", {"n_estimators": 4, "max_depth": 4}, "both", False),
    "forest classes": ("RandomForestClassifier", {"n_estimators": 5}, "three", True),
    "extra": ("ExtraTreesRegressor", {"n_estimators": 3, "max_depth": 6}, "y", False),
    "boosting": ("GradientBoostingRegressor", {"n_estimators": 20}, "y", False),
    "boosting from zero": ("GradientBoostingRegressor", {"n_estimators": 5, "init": "zero"}, "y", False),
    "boosting two": ("GradientBoostingClassifier", {"n_estimators": 8}, "two", False),
    "boosting exponential": ("GradientBoostingClassifier", {"n_estimators": 8, "loss": "exponential"}, "two", False),
    "boosting three": ("GradientBoostingClassifier", {"n_estimators": 8}, "three", False),
    "histogram": ("HistGradientBoostingRegressor", {"max_iter": 8}, "y", True),
    "histogram poisson": ("HistGradientBoostingRegressor", {"max_iter": 5, "loss": "poisson"}, "positive", True),
    "histogram two": ("HistGradientBoostingClassifier", {"max_iter": 5}, "two", True),
    "histogram three": ("HistGradientBoostingClassifier", {"max_iter": 5}, "three", True),
}


def data(nan: bool) -> tuple[Array, dict[str, Array]]:
    """Features [rows, features], float32, and what may be learnt from them."""
    rng = np.random.default_rng(0)
    x = np.round(rng.normal(size=(150, 4)), 1).astype(np.float32)
    y = np.round(x[:, 0] + x[:, 1] * x[:, 2], 3)
    two = np.where(y > 0, 7, 3)
    found = {"y": y, "both": np.stack([y, -y], axis=1), "positive": np.abs(y), "two": two}
    found["three"] = (y > 0).astype(np.int64) + (x[:, 3] > 0.5)
    return np.where(nan & (rng.random(x.shape) < 0.1), np.float32(np.nan), x), found


def stand_in(stored: dict[str, Array], name: str) -> Any:
    """An object with the attributes of the fitted estimator ``name``."""
    found = {key.partition("/")[2]: value for key, value in stored.items() if key.startswith(f"{name}/")}
    made = SimpleNamespace(**{k: found[k] for k in ("classes_", "learning_rate", "n_outputs_") if k in found})
    if "link" in found:
        made._loss = SimpleNamespace(link=_of_class(str(found["link"])))
    made.n_features_in_ = 4
    if "nodes" in found:
        predictors = np.split(found["nodes"], np.cumsum(found["sizes"])[:-1])
        made.n_trees_per_iteration_ = int(found["outputs"])
        flat = [SimpleNamespace(nodes=nodes) for nodes in predictors]
        made._predictors = [
            flat[i : i + made.n_trees_per_iteration_] for i in range(0, len(flat), made.n_trees_per_iteration_)
        ]
        made._baseline_prediction = found["base"]
        return made
    ends = np.cumsum(found["sizes"])[:-1]
    fields = [np.split(found[field], ends) for field in TREE]
    trees = [
        SimpleNamespace(tree_=SimpleNamespace(**dict(zip(TREE, each, strict=True)), node_count=len(each[0])))
        for each in zip(*fields, strict=True)
    ]
    if "base" in found:
        made.init_ = "zero" if str(found["init"]) == "zero" else _of_class(str(found["init"]))
        made.estimators_ = np.array(trees, dtype=object).reshape(-1, int(found["outputs"]))
        made._raw_predict_init = lambda x: found["base"]
    elif name.startswith("tree"):
        made.tree_ = trees[0].tree_
    else:
        made.estimators_ = trees
    return made


def _of_class(name: str) -> Any:
    return type(name, (), {})()
