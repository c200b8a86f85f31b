"""Trees that LightGBM and XGBoost have fitted (``make_boosters.py``): what these libraries predict by them."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mlaot.errors import MlaotError
from mlaot.nn import TreeEnsemble

from .make_boosters import FILE, data

CASES = json.loads(FILE.read_text(encoding="utf-8"))
OUTPUTS = [(name, output) for name, case in CASES.items() for output in case["outputs"]]


def stand_in(name: str, model: Any, classes: int = 0) -> Any:
    """An estimator that has what is asked of the library's."""
    is_light = name.startswith("LGBM")
    made = type(name, (SimpleNamespace,), {"__module__": "lightgbm.sklearn" if is_light else "xgboost.sklearn"})()
    if classes:
        made.classes_ = np.arange(classes)
    made.booster_ = SimpleNamespace(dump_model=lambda: model)
    booster = SimpleNamespace(attr=lambda key: None, save_raw=lambda kind: json.dumps(model))
    made.get_booster, made.missing = lambda: booster, np.nan
    return made


@pytest.mark.parametrize(("name", "output"), OUTPUTS)
def test_predictions(name: str, output: str) -> None:
    case = CASES[name]
    trees = TreeEnsemble.from_sklearn(stand_in(name, case["model"], case["classes"]), output)
    found, wanted = trees(data()[2].astype(np.float64)), np.array(case["outputs"][output])
    if output == "predict" and case["classes"]:
        np.testing.assert_array_equal(found, wanted)
    else:  # XGBoost adds in float32
        np.testing.assert_allclose(found, wanted, rtol=1e-13 if name.startswith("LGBM") else 1e-6, atol=1e-6)


def test_a_value_that_is_missing() -> None:
    """``missing`` of XGBoost's estimators is another number than nan."""
    case = CASES["XGBRegressor"]
    estimator = stand_in("XGBRegressor", case["model"])
    x = data()[2].astype(np.float64)
    plain = TreeEnsemble.from_sklearn(estimator)(x)
    estimator.missing = -7.0
    np.testing.assert_array_equal(TreeEnsemble.from_sklearn(estimator)(np.where(np.isnan(x), -7.0, x)), plain)


def test_places_in_classes() -> None:
    case = CASES["LGBMClassifier three"]
    estimator = stand_in("LGBMClassifier", case["model"], 3)
    estimator.classes_ = np.array(["a", "b", "c"])
    index = TreeEnsemble.from_sklearn(estimator, "class_index")(data()[2].astype(np.float64))
    np.testing.assert_array_equal(index, case["outputs"]["predict"])
    with pytest.raises(MlaotError, match="use output='class_index'"):
        TreeEnsemble.from_sklearn(estimator, "predict")


def test_refusals() -> None:
    model = json.loads(json.dumps(CASES["LGBMRegressor"]["model"]))
    model["tree_info"][0]["tree_structure"] = {"leaf_value": 1.0, "leaf_coeff": [1.0]}
    with pytest.raises(MlaotError, match="linear models in their leaves"):
        TreeEnsemble.from_sklearn(stand_in("LGBMRegressor", model))
    model = json.loads(json.dumps(CASES["XGBRegressor"]["model"]))
    model["learner"]["gradient_booster"]["model"]["trees"][0]["tree_param"]["size_leaf_vector"] = "2"
    with pytest.raises(MlaotError, match="several targets"):
        TreeEnsemble.from_sklearn(stand_in("XGBRegressor", model))
    model["learner"]["gradient_booster"] = {"name": "gblinear", "model": {"weights": []}}
    with pytest.raises(MlaotError, match="'gblinear' has no trees"):
        TreeEnsemble.from_sklearn(stand_in("XGBRegressor", model))
