"""Make ``boosters.json``: trees as LightGBM and XGBoost write them, and what these libraries predict by them.

python -m tests.reference.make_boosters     # needs lightgbm, xgboost and pandas
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).with_name("boosters.json")
KEPT = ("objective", "average_output", "num_tree_per_iteration", "tree_info")


def data() -> tuple[Any, Any, Any]:
    """Features, of which the first is a category, some missing; a number to predict; rows to ask."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 4)).astype(np.float32)
    x[:, 0] = rng.integers(0, 9, 300)
    y = x[:, 1] - 2 * x[:, 2] + (x[:, 0] % 3 == 0)
    x[:, 1:][rng.random((300, 3)) < 0.1] = np.nan
    asked = rng.normal(size=(40, 4)).astype(np.float32)
    asked[:, 0] = rng.integers(0, 9, 40)
    asked[:, 1:][rng.random((40, 3)) < 0.2] = np.nan
    asked[:6, 1:] = np.array([3e38, -3e38, 0.0, -0.0, 1e-42, -1e-36], np.float32)[:, None]
    return x, y, asked


def cases() -> dict[str, Any]:
    """Every estimator's trees and predictions."""
    import lightgbm
    import pandas
    import xgboost

    x, y, asked = data()
    few = {"n_estimators": 4, "random_state": 0}
    light = {**few, "num_leaves": 6, "verbose": -1, "min_child_samples": 5, "min_data_per_group": 5}
    three, two = np.digitize(y, [-1, 1]), (y > 0).astype(int)
    found: dict[str, Any] = {}
    for name, more, target in (
        ("LGBMRegressor", {}, y),
        ("LGBMRegressor poisson", {"objective": "poisson"}, np.exp(y)),
        ("LGBMRegressor zero", {"zero_as_missing": True}, y),
        ("LGBMClassifier two", {}, two),
        ("LGBMClassifier three", {"boosting_type": "dart"}, three),
    ):
        given = np.nan_to_num(x) if "zero" in name else x
        model = getattr(lightgbm, name.split()[0])(**light, **more).fit(given, target, categorical_feature=[0])
        trees = {key: value for key, value in model.booster_.dump_model().items() if key in KEPT}
        found[name] = {"model": trees, **_said(model, asked)}
    categories = pandas.CategoricalDtype(range(9))

    def frame(rows: Any) -> Any:
        made = pandas.DataFrame(rows, columns=list("abcd"))
        return made.assign(a=made["a"].astype(int).astype(categories))

    for name, more, target in (
        ("XGBRegressor", {}, y),
        ("XGBRegressor gamma", {"objective": "reg:gamma"}, np.exp(y)),
        ("XGBClassifier two", {"max_cat_to_onehot": 1}, two),
        ("XGBClassifier three", {"booster": "dart", "rate_drop": 0.5}, three),
    ):
        kind = getattr(xgboost, name.split()[0])
        model = kind(**few, max_depth=3, enable_categorical=True, **more).fit(frame(x), target)
        raw = json.loads(model.get_booster().save_raw("json"))
        found[name] = {"model": raw, **_said(model, frame(asked))}
    return found


def _said(model: Any, rows: Any) -> dict[str, Any]:
    outputs = ("predict", "predict_proba") if hasattr(model, "classes_") else ("predict",)
    said = {output: np.asarray(getattr(model, output)(rows), np.float64).tolist() for output in outputs}
    return {"classes": int(getattr(model, "n_classes_", 0)), "outputs": said}


if __name__ == "__main__":
    FILE.write_text(json.dumps(cases()) + "\n", encoding="utf-8")
