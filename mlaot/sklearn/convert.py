"""Convert a fitted estimator to an ONNX graph by skl2onnx, in which nodes of mlaot's own represent some estimators."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

import numpy as np
import onnx
import skl2onnx
from skl2onnx._supported_operators import sklearn_operator_name_map as ALIASES
from skl2onnx.common import data_types
from skl2onnx.common._registration import get_converter

from mlaot.errors import MlaotError
from mlaot.onnx.importer import OWN
from mlaot.onnx.values import Strings
from mlaot.sklearn.ensembles import BOOSTERS, CLASSIFIERS, REGRESSORS
from mlaot.sklearn.rules import Frame, compute, join, knows, pick, second_method

Function = Callable[..., list[Any]]
OPSET = 18  # what all converters know
LIBRARIES = ("lightgbm", "xgboost")
# What skl2onnx converts worse than there are rules for it.
OWN_NODES = (
    *("IsolationForest", *CLASSIFIERS.split(), *REGRESSORS.split(), "RandomTreesEmbedding", "VotingClassifier"),
    *("LinearDiscriminantAnalysis", "LinearSVC", "LogisticRegression", "OneVsRestClassifier", "Perceptron"),
    *("RidgeClassifier", "RidgeClassifierCV", "SGDClassifier", "QuadraticDiscriminantAnalysis"),
    *("KNeighborsClassifier", "KNeighborsRegressor", "RadiusNeighborsRegressor", "KNNImputer"),
    *("Binarizer", "Normalizer", "PolynomialFeatures", "PowerTransformer", "TfidfTransformer"),
    *("CalibratedClassifierCV", "TunedThresholdClassifierCV"),
)


def convert(estimator: Any, types: Mapping[str, Any]) -> tuple[onnx.ModelProto, dict[str, Function]]:
    """Convert an estimator to ONNX; return the graph, and the functions of mlaot's own nodes."""
    calls: dict[str, Function] = {}

    def convert_one(scope: Any, operator: Any, container: Any) -> None:
        raw = operator.raw_operator
        name = scope.get_unique_operator_name(type(raw).__name__)
        call = node_of(raw) if knows(raw) else _tuned(scope, operator) if hasattr(raw, "best_threshold_") else None
        if call is not None and len(operator.outputs) <= 2:  # else leaves are asked for
            calls[name] = call
            inputs, outputs = operator.input_full_names, operator.output_full_names
            container.add_node(name, inputs, outputs, op_domain=OWN, op_version=1, name=name)
            return
        if hasattr(raw, "flatten_transform"):  # of what nobody asks for here
            operator.raw_operator = copy(raw)
            operator.raw_operator.flatten_transform = False
        get_converter(operator.type)(scope, operator, container)

    def shape(operator: Any) -> None:
        operator.outputs[0].type = data_types.DoubleTensorType([None, None])

    own = dict.fromkeys(kinds_converted_here(), convert_one)
    try:
        model = skl2onnx.convert_sklearn(
            estimator,
            initial_types=list(types.items()),
            target_opset=OPSET,
            custom_conversion_functions=own,
            # The output of these is of float32 there.
            custom_shape_calculators={kind: shape for kind in own if kind.__name__ == "KNNImputer"},
        )
    except MlaotError:
        raise
    except Exception as error:  # every converter has its own
        text = " ".join(str(error).split())
        raise MlaotError(f"skl2onnx cannot convert this {type(estimator).__name__}: {text:.300}") from None
    return model, calls


def kinds_converted_here() -> list[type]:
    """Return the types of estimators that skl2onnx must not convert by itself."""
    for library in LIBRARIES:
        for name in (f"{name}{kind}" for name in BOOSTERS for kind in ("Classifier", "Regressor", "Ranker")):
            kind = getattr(sys.modules.get(library), name, None)
            if kind is not None:  # skl2onnx then converts it as a step of others, too
                suffix = "Classifier" if name.endswith("Classifier") else "Regressor"
                ALIASES.setdefault(kind, f"SklearnHistGradientBoosting{suffix}")
    return [kind for kind in ALIASES if kind.__name__ in OWN_NODES]


def node_of(estimator: Any) -> Function:
    """Return the results of an estimator's node for its inputs: the prediction, and the second result."""
    methods = [name for name in ("predict", second_method(estimator)) if hasattr(estimator, name)]

    def run(*inputs: Any) -> list[Any]:
        x = Frame(inputs) if any(isinstance(each, Strings) for each in inputs) else join(Frame(inputs))
        found = [compute(estimator, method, x) for method in methods]
        is_value = not isinstance(found[0], Strings | list) and found[0].ndim == 1 and found[0].dtype.kind == "f"
        return [np.expand_dims(found[0], -1) if is_value else found[0], *found[1:]]

    return run


def _tuned(scope: Any, operator: Any) -> Callable[[Any], list[Any]]:
    """Decide on the label by the tuned threshold, which skl2onnx ignores."""
    estimator, inner = operator.raw_operator, operator.raw_operator.estimator_
    if estimator.response_method == "decision_function" or not hasattr(inner, "predict_proba"):
        raise MlaotError("a TunedThresholdClassifierCV without probabilities cannot be converted")
    inside = scope.declare_local_operator(ALIASES[type(inner)], inner)
    inside.inputs = operator.inputs
    for name, kind in (("label", data_types.Int64TensorType), ("scores", data_types.DoubleTensorType)):
        inside.outputs.append(scope.declare_local_variable(name, kind()))
    operator.inputs = inside.outputs[1:]
    chosen_class = estimator._curve_scorer._get_pos_label()
    positive = 1 if chosen_class is None else list(estimator.classes_).index(chosen_class)

    def run(scores: Any) -> list[Any]:
        is_positive = scores[:, positive] >= estimator.best_threshold_
        return [pick(estimator.classes_, np.where(is_positive, positive, 1 - positive)), scores]

    return run
