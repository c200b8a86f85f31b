"""What estimators compute that skl2onnx does not convert, or not as scikit-learn computes it.

A function of an estimator makes the function of its node's inputs, which gives the node's outputs in a list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.numpy import astype, sigmoid, softmax, top_k
from mlaot.ir.types import f32, f64
from mlaot.nn.trees import TreeEnsemble
from mlaot.onnx.ops.ml import NORMS, pick_labels, take
from mlaot.sklearn.neighbors import closeness, neighbours

Function = Callable[..., list[Any]]
EPSILON = np.finfo(np.float64).eps
LINEAR = (
    "LinearDiscriminantAnalysis",
    "LinearSVC",
    "LogisticRegression",
    "OneVsRestClassifier",
    "Perceptron",
    "RidgeClassifier",
    "RidgeClassifierCV",
    "SGDClassifier",
)
NEIGHBORS = ("KNeighborsClassifier", "KNeighborsRegressor", "RadiusNeighborsRegressor")
MARGINS = ("hinge", "squared_hinge", "perceptron", "squared_error", "huber")  # losses without probabilities


def join(inputs: Sequence[Any]) -> Any:
    """Join the features of all inputs, in float64 unless all are float32."""
    dtype = f32 if all(value.dtype in (f32, np.float32) for value in inputs) else f64
    return np.concatenate([astype(value, dtype) for value in inputs], axis=-1)


def label(estimator: Any, index: Any) -> Any:
    """Return the classes at places in ``classes_``."""
    return pick_labels(np.asarray(estimator.classes_).tolist(), index)


def trees(estimator: Any) -> Function:
    """Make the function of trees, whichever library fitted them."""
    has_classes = hasattr(estimator, "classes_")
    outputs: tuple[str, ...] = ("class_index", "predict_proba") if has_classes else ("predict",)
    if type(estimator).__name__ == "IsolationForest":
        outputs = ("predict", "decision_function")
    layers = [TreeEnsemble.from_sklearn(estimator, output) for output in outputs]

    def run(*inputs: Any) -> list[Any]:
        x = join(inputs)
        first, *scores = [layer(x) for layer in layers]
        if not scores:
            return [first if first.ndim > 1 else np.expand_dims(first, -1)]
        return [label(estimator, first) if has_classes else first, *scores]

    return run


def linear(estimator: Any) -> Function | None:
    """Make the function of linear classifiers, and of one against the rest.

    The largest score decides, of two classes the sign of one. None where it is none of these.
    """
    parts, name = getattr(estimator, "estimators_", [estimator]), type(estimator).__name__
    if getattr(estimator, "multilabel_", False) or not all(map(_is_linear, parts)):
        return None
    kind = getattr(estimator, "multi_class", "")
    if kind == "multinomial" and len(estimator.classes_) == 2:
        return None
    is_joint = name == "LogisticRegression" and kind != "ovr" and estimator.solver != "liblinear"
    weight = np.concatenate([np.atleast_2d(part.coef_) for part in parts]).T
    bias = np.concatenate([np.broadcast_to(part.intercept_, (len(np.atleast_2d(part.coef_)),)) for part in parts])

    def run(*inputs: Any) -> list[Any]:
        x = join(inputs)
        scores = x @ astype(weight, x.dtype) + astype(bias, x.dtype)
        is_pair = scores.shape[1] == 1
        index = astype(scores[:, 0] > 0, np.int64) if is_pair else np.argmax(scores, axis=-1)
        if (is_joint or name == "LinearDiscriminantAnalysis") and not is_pair:
            scores = softmax(scores)
        elif hasattr(estimator, "predict_proba"):
            scores = sigmoid(scores)
            if is_pair:
                scores = np.concatenate([1 - scores, scores], axis=-1)
            else:
                scores = scores / np.sum(scores, -1, keepdims=True)
        return [label(estimator, index), scores]

    return run


def _is_linear(estimator: Any) -> bool:
    loss = getattr(estimator, "loss", "log_loss")
    return hasattr(estimator, "coef_") and isinstance(loss, str) and loss in ("log_loss", *MARGINS)


def votes(estimator: Any) -> Function | None:
    """Make the function of neighbours; None where skl2onnx is to convert them."""
    means = neighbours(estimator)
    if means is None:
        return None
    has_classes = hasattr(estimator, "classes_")

    def run(*inputs: Any) -> list[Any]:
        found = means(join(inputs))
        return [label(estimator, np.argmax(found, axis=-1)), found] if has_classes else [found]

    return run


def _quadratic(estimator: Any) -> Function:
    turns = [r / np.sqrt(s) for r, s in zip(estimator.rotations_, estimator.scalings_, strict=True)]
    shift = np.log(estimator.priors_) - 0.5 * np.array([np.sum(np.log(s)) for s in estimator.scalings_])

    def run(*inputs: Any) -> list[Any]:
        x = join(inputs)
        distances = [(x - mean) @ turn for mean, turn in zip(estimator.means_, turns, strict=True)]
        scores = np.stack([-0.5 * np.sum(each * each, axis=-1) for each in distances], axis=-1) + shift
        return [label(estimator, np.argmax(scores, axis=-1)), softmax(scores)]

    return run


def _impute(estimator: Any) -> Function:
    """Impute means of the nearest rows that have the feature; of all rows where none is at a distance."""
    fit, absent = np.asarray(estimator._fit_X, np.float64), estimator._mask_fit_X
    if estimator.missing_values == estimator.missing_values or callable(estimator.weights) or estimator.add_indicator:
        raise MlaotError("a KNNImputer is converted for nan, with the weights 'uniform' or 'distance', no indicator")
    kept = np.flatnonzero(estimator._valid_mask | estimator.keep_empty_features)

    def run(*inputs: Any) -> list[Any]:
        x = join(inputs)
        missing = np.isnan(x)
        both = ~np.expand_dims(missing, 1) & ~absent
        differences = np.where(both, np.expand_dims(x, 1) - np.where(absent, 0, fit), 0)
        square, count = np.sum(differences * differences, axis=-1), np.sum(astype(both, f64), axis=-1)
        distance = np.sqrt(np.where(count > 0, square * (fit.shape[1] / np.maximum(count, 1)), np.inf))
        return [np.stack([np.where(missing[:, i], mean_of(int(i), distance), x[:, i]) for i in kept], axis=-1)]

    def mean_of(i: int, distance: Any) -> Any:
        donors = np.flatnonzero(~absent[:, i])
        if not len(donors):
            return np.zeros(())
        values = fit[donors, i]
        count = min(estimator.n_neighbors, len(donors))
        near, index = top_k(distance[:, donors], count, largest=False)
        weight = closeness(near) if estimator.weights == "distance" else astype(np.isfinite(near), f64)
        total = np.sum(weight, axis=-1)
        mean = np.sum(weight * take(values, index), axis=-1) / np.where(total > 0, total, 1)
        return np.where(total > 0, mean, values.mean())

    return run


def _transform(compute: Callable[[Any, Any], Any]) -> Callable[[Any], Function]:
    """Make an estimator's function from one of the estimator and of all features, which gives one output."""
    return lambda estimator: lambda *inputs: [compute(estimator, join(inputs))]


def _normalize(estimator: Any, x: Any) -> Any:
    """Divide rows by their norms; rows of next to nothing stay."""
    length = NORMS[estimator.norm.upper()](x)
    return x / np.where(length < 10 * EPSILON, 1.0, length)


def _polynomial(estimator: Any, x: Any) -> Any:
    """Multiply each feature by the monomials of one degree less that begin with it, or behind it."""
    degrees, firsts = estimator.powers_.sum(axis=1), [*range(x.shape[1])]  # the first feature of each monomial
    powers = {0: np.ones_like(x[:, :1]), 1: x}
    for degree in range(2, int(degrees.max()) + 1):
        starts = np.searchsorted(firsts, np.arange(x.shape[1]) + estimator.interaction_only).tolist()
        parts = [x[:, i : i + 1] * powers[degree - 1][:, k:] for i, k in enumerate(starts) if k < len(firsts)]
        firsts = [i for i, k in enumerate(starts) for _ in firsts[k:]]
        powers[degree] = np.concatenate(parts, axis=1)
    return np.concatenate([powers[degree] for degree in np.unique(degrees)], axis=1)


def _power(estimator: Any, x: Any) -> Any:
    """Transform by Yeo and Johnson 2000, or by Box and Cox 1964."""
    lambdas = np.asarray(estimator.lambdas_)

    def power(logarithm: Any, exponent: Any) -> Any:
        """(exp(logarithm) ** exponent - 1) / exponent, and its limit where the exponent is 0"""
        is_zero = np.abs(exponent) < EPSILON
        safe = np.where(is_zero, 1.0, exponent)
        return np.where(is_zero, logarithm, np.expm1(logarithm * safe) / safe)

    if estimator.method == "box-cox":
        y = power(np.log(x), lambdas)
    else:
        above, below = np.log1p(np.where(x < 0, 0.0, x)), np.log1p(np.where(x < 0, -x, 0.0))
        y = np.where(x < 0, -power(below, 2 - lambdas), power(above, lambdas))
    return (y - estimator._scaler.mean_) / estimator._scaler.scale_ if estimator.standardize else y


def _tfidf(estimator: Any, x: Any) -> Any:
    """Weight counts of terms; rows of zeros stay."""
    if estimator.sublinear_tf:
        x = np.where(x == 0, 0.0, np.log(np.where(x == 0, 1.0, x)) + 1)
    x = x * estimator.idf_ if estimator.use_idf else x
    if estimator.norm is None:
        return x
    length = NORMS[estimator.norm.upper()](x)
    return x / np.where(length == 0, 1.0, length)


def _embed(estimator: Any) -> Function:
    layer = TreeEnsemble.from_sklearn(estimator, "transform")
    return lambda *inputs: [layer(join(inputs))]


FUNCTIONS: dict[str, Callable[[Any], Function]] = {
    "Binarizer": _transform(lambda estimator, x: astype(x > estimator.threshold, f64)),
    "KNNImputer": _impute,
    "Normalizer": _transform(_normalize),
    "QuadraticDiscriminantAnalysis": _quadratic,
    "PolynomialFeatures": _transform(_polynomial),
    "PowerTransformer": _transform(_power),
    "RandomTreesEmbedding": _embed,
    "TfidfTransformer": _transform(_tfidf),
}
