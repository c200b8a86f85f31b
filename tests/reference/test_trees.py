"""Trees that scikit-learn fitted (``make_trees.py``): its predictions, by the reference and compiled."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import nn, passes
from mlaot.errors import MlaotError
from mlaot.evaluate import evaluate
from mlaot.frontend.trace.declaration import Declaration
from mlaot.ir import Type
from mlaot.ir.types import BY_NUMPY
from mlaot.lower.lower import lower
from mlaot.nn import TreeEnsemble

from ..compiled import AVAILABLE, Library
from .trees import ESTIMATORS, data, stand_in

Array = np.ndarray[Any, Any]
DATA = dict(np.load(Path(__file__).with_name("trees.npz")))
BATCH = mlaot.dim("batch")
CASES = [key.split("/out ") for key in DATA if "/out " in key]


@pytest.mark.parametrize(("name", "output"), CASES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_predictions(name: str, output: str, dtype: Any) -> None:
    x = data(ESTIMATORS[name][3])[0].astype(dtype)
    expected = DATA[f"{name}/out {output}"]
    found = TreeEnsemble.from_sklearn(stand_in(DATA, name), output)(x)
    tolerance = 1e-13 if dtype is np.float64 else 3e-6
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    assert found.dtype == (DATA[f"{name}/classes_"].dtype if expected.dtype.kind == "i" else dtype)


def declared(layer: TreeEnsemble, type_: Type) -> Declaration:
    def forward(x: Any) -> Any:
        return layer(x)

    forward.__annotations__["x"] = type_
    found = mlaot.model(forward)
    assert isinstance(found, Declaration)
    return found


@pytest.mark.parametrize(("name", "output"), CASES)
def test_traced_predictions(name: str, output: str) -> None:
    x = data(ESTIMATORS[name][3])[0].astype(np.float32)
    layer = TreeEnsemble.from_sklearn(stand_in(DATA, name), output)
    graph = declared(layer, BY_NUMPY["float32"][BATCH, 4]).trace().graph
    (found,) = evaluate(graph, {"x": x}).values()
    np.testing.assert_allclose(found, DATA[f"{name}/out {output}"], rtol=3e-6, atol=3e-6)


def test_compiled_predictions(tmp_path: Path) -> None:
    """Every estimator's own output, of float32 and one of float64, on the widest instruction set."""
    programs, inputs, expected = {}, {}, {}
    for i, (name, (*_, nan)) in enumerate(ESTIMATORS.items()):
        output = "predict_proba" if f"{name}/classes_" in DATA else "predict"
        layer = TreeEnsemble.from_sklearn(stand_in(DATA, name))
        x = data(nan)[0].astype(np.float64 if name == "forest" else np.float32)
        programs[f"e{i}"] = lower(passes.run(f"e{i}", declared(layer, BY_NUMPY[str(x.dtype)][BATCH, 4]).trace()))
        inputs[f"e{i}"], expected[f"e{i}"] = x, DATA[f"{name}/out {output}"]
    library = Library(programs, AVAILABLE[-1], tmp_path)
    for stem, x in inputs.items():
        (found,) = library.call(stem, "forward", {"x": x}, {"batch": len(x)}).values()
        np.testing.assert_allclose(found, expected[stem], rtol=3e-6, atol=3e-6, err_msg=stem)


def test_what_is_not_known_is_refused() -> None:
    tree = stand_in(DATA, "tree")

    def refused(estimator: Any, said: str, output: str | None = None) -> None:
        with pytest.raises(MlaotError) as error:
            TreeEnsemble.from_sklearn(estimator, output)
        assert said in str(error.value)

    refused(SimpleNamespace(), "SimpleNamespace is not a fitted ensemble of decision trees")
    refused(SimpleNamespace(estimators_=[tree], estimator_weights_=[1.0]), "not a fitted ensemble")
    refused(SimpleNamespace(estimators_=[tree], estimators_features_=[[0]]), "not a fitted ensemble")
    refused(tree, "has no output 'predict_proba'", "predict_proba")
    refused(stand_in(DATA, "forest classes"), "has no output 'decision_function'", "decision_function")
    boosting = stand_in(DATA, "boosting")
    boosting.init_ = tree
    refused(boosting, "that gradient boosting starts from is unknown")
    histogram = stand_in(DATA, "histogram")
    for stage in histogram._predictors:
        stage[0].nodes["is_categorical"] = 1
    refused(histogram, "splits by sets of categories")
    words = stand_in(DATA, "boosting two")
    words.classes_ = np.array(["no", "yes"])
    refused(words, "classes that are numbers", "predict")
    assert isinstance(TreeEnsemble.from_sklearn(words), nn.Module)
