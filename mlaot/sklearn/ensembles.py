"""Ensembles: trees of any library, and estimators that vote, are averaged, boosted or stacked."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.numpy import astype, softmax
from mlaot.nn.trees import TreeEnsemble
from mlaot.onnx.ops.ml import take
from mlaot.sklearn.rules import Array, compute, is_one_label, join, pick, rule

FORESTS = ("DecisionTree", "ExtraTree", "RandomForest", "ExtraTrees", "GradientBoosting", "HistGradientBoosting")
BOOSTERS = ("LGBM", "XGB", "XGBRF")
CLASSIFIERS = " ".join(f"{name}Classifier" for name in (*FORESTS, *BOOSTERS))
REGRESSORS = " ".join(f"{name}Regressor" for name in (*FORESTS, *BOOSTERS)) + " LGBMRanker XGBRanker"


def _trees(estimator: Any, output: str, x: Any) -> Any:
    return TreeEnsemble.from_sklearn(estimator, output)(x)


@rule("predict", REGRESSORS)
def trees_value(estimator: Any, x: Any) -> Any:
    return _trees(estimator, "predict", x)


@rule("predict_proba", CLASSIFIERS)
def trees_shares(estimator: Any, x: Any) -> Any:
    found = _trees(estimator, "predict_proba", x)
    if is_one_label(estimator):
        return found
    ends = np.cumsum([0, *map(len, estimator.classes_)])
    return [found[:, a:b] for a, b in pairwise(ends)]


@rule("class_index", CLASSIFIERS)
def trees_class(estimator: Any, x: Any) -> Any:
    return _trees(estimator, "class_index", x)


@rule("predict", CLASSIFIERS)
def trees_label(estimator: Any, x: Any) -> Any:
    if is_one_label(estimator):
        return pick(estimator.classes_, trees_class(estimator, x))
    shares = zip(estimator.classes_, trees_shares(estimator, x), strict=True)
    return together([pick(classes, np.argmax(share, axis=-1)) for classes, share in shares])


def together(columns: Sequence[Any]) -> Any:
    """Stack the labels of several outputs as columns."""
    if any(column.dtype == "str" for column in columns):
        raise MlaotError("several outputs whose classes are texts cannot be converted; encode them as numbers")
    return np.stack(columns, axis=-1)


@rule("decision_function", "GradientBoostingClassifier HistGradientBoostingClassifier")
def boosted_decision(estimator: Any, x: Any) -> Any:
    return _trees(estimator, "decision_function", x)


@rule("predict", "IsolationForest")
def isolated(estimator: Any, x: Any) -> Any:
    return _trees(estimator, "predict", x)


@rule("decision_function", "IsolationForest")
def isolation_decision(estimator: Any, x: Any) -> Any:
    return _trees(estimator, "decision_function", x)


@rule("score_samples", "IsolationForest")
def isolation(estimator: Any, x: Any) -> Any:
    return isolation_decision(estimator, x) + estimator.offset_


@rule("transform", "RandomTreesEmbedding")
def embed(estimator: Any, x: Any) -> Any:
    return _trees(estimator, "transform", x)


def _bags(estimator: Any, method: str, x: Any) -> list[Any]:
    """Return the result of each estimator on its features."""
    bags = zip(estimator.estimators_, estimator.estimators_features_, strict=True)
    whole = np.arange(x.shape[1])
    return [compute(one, method, x if np.array_equal(own, whole) else x[:, np.asarray(own)]) for one, own in bags]


def _mean(values: Sequence[Any]) -> Any:
    return sum(values[1:], start=values[0]) / len(values)


def _spread(one: Any, found: Any, count: int) -> Any:
    """Move the columns of one estimator's classes to those of all classes."""
    return found if len(one.classes_) == count else found @ np.eye(count)[np.asarray(one.classes_)]


@rule("predict_proba", "BaggingClassifier", sparse=True)
def bagged_shares(estimator: Any, x: Any) -> Any:
    count = len(estimator.classes_)
    if not hasattr(estimator.estimator_, "predict_proba"):
        return _mean(
            [astype(np.expand_dims(v, -1) == np.arange(count), np.float64) for v in _bags(estimator, "predict", x)]
        )
    found = _bags(estimator, "predict_proba", x)
    return _mean([_spread(one, each, count) for one, each in zip(estimator.estimators_, found, strict=True)])


@rule("decision_function", "BaggingClassifier", sparse=True)
def bagged_decision(estimator: Any, x: Any) -> Any:
    return _mean(_bags(estimator, "decision_function", x))


@rule("predict", "BaggingRegressor", sparse=True)
def bagged_value(estimator: Any, x: Any) -> Any:
    return _mean(_bags(estimator, "predict", x))


@rule("decision_function", "AdaBoostClassifier", sparse=True)
def boosted_votes(estimator: Any, x: Any) -> Any:
    """Return weighted votes, in which each estimator votes against all classes that it does not vote for."""
    count, weights, total = len(estimator.classes_), estimator.estimator_weights_, 0.0
    for one, weight in zip(estimator.estimators_, weights, strict=False):
        own = take(np.searchsorted(estimator.classes_, one.classes_), compute(one, "class_index", x))
        is_own = np.expand_dims(own, -1) == np.arange(count)
        total = total + np.where(is_own, weight, -weight / (count - 1))
    total = total / np.sum(weights)
    return total[:, 1] - total[:, 0] if count == 2 else total


@rule("class_index", "AdaBoostClassifier", sparse=True)
def boosted_class(estimator: Any, x: Any) -> Any:
    found = boosted_votes(estimator, x)
    return astype(found > 0, np.int64) if found.ndim == 1 else np.argmax(found, axis=-1)


@rule("predict_proba", "AdaBoostClassifier", sparse=True)
def boosted_shares(estimator: Any, x: Any) -> Any:
    found = boosted_votes(estimator, x)
    return softmax(np.stack([-found, found], axis=-1) / 2 if found.ndim == 1 else found / (found.shape[1] - 1))


@rule("predict", "AdaBoostRegressor", sparse=True)
def weighted_median(estimator: Any, x: Any) -> Any:
    """Return the weighted median of the estimators' predictions."""
    values = np.stack([compute(one, "predict", x) for one in estimator.estimators_], axis=-1)
    order = np.argsort(values, axis=-1, kind="stable")
    weight = np.cumsum(take(np.asarray(estimator.estimator_weights_[: values.shape[1]]), order), axis=-1)
    at = np.argmax(weight >= 0.5 * weight[:, -1:], axis=-1)
    return np.take_along_axis(np.take_along_axis(values, order, -1), np.expand_dims(at, -1), -1)[:, 0]


def _weights(estimator: Any) -> Array:
    """Return the weight of each estimator in a vote."""
    given = estimator._weights_not_none
    weights = np.ones(len(estimator.estimators_)) if given is None else np.asarray(given, np.float64)
    return np.asarray(weights / weights.sum())


def _ballots(estimator: Any, method: str, x: Any) -> Any:
    """Return the results of all estimators along a last axis."""
    return np.stack([compute(one, method, x) for one in estimator.estimators_], axis=-1)


@rule("predict_proba", "VotingClassifier", frames=True)
def voted_shares(estimator: Any, x: Any) -> Any:
    return np.sum(_ballots(estimator, "predict_proba", x) * _weights(estimator), axis=-1)


@rule("class_index", "VotingClassifier", frames=True)
def voted_class(estimator: Any, x: Any) -> Any:
    if estimator.voting == "soft":
        return np.argmax(voted_shares(estimator, x), axis=-1)
    given = estimator._weights_not_none
    weights = np.ones(len(estimator.estimators_)) if given is None else np.asarray(given, np.float64)
    votes = np.expand_dims(_ballots(estimator, "predict", x), 1) == np.arange(len(estimator.classes_))[:, None]
    return np.argmax(np.sum(astype(votes, np.float64) * weights, axis=-1), axis=-1)


@rule("transform", "VotingClassifier", frames=True)
def ballots(estimator: Any, x: Any) -> Any:
    if estimator.voting != "soft":
        return _ballots(estimator, "predict", x)
    shares = [compute(one, "predict_proba", x) for one in estimator.estimators_]
    return np.concatenate(shares, axis=-1) if estimator.flatten_transform else np.stack(shares)


@rule("predict", "VotingRegressor", frames=True)
def voted_value(estimator: Any, x: Any) -> Any:
    return np.sum(_ballots(estimator, "predict", x) * _weights(estimator), axis=-1)


@rule("transform", "VotingRegressor", frames=True)
def single_values(estimator: Any, x: Any) -> Any:
    return _ballots(estimator, "predict", x)


@rule("transform", "_BaseStacking", frames=True)
def stacked(estimator: Any, x: Any) -> Any:
    """Return the estimators' results, and the features if they are passed through.

    For two classes the result is the probability of the second one.
    """
    parts, methods = [], [method for method in estimator.stack_method_ if method is not None]
    for one, method in zip(estimator.estimators_, methods, strict=True):
        found = compute(one, method, x)
        if isinstance(found, list):
            parts += [each[:, 1:] for each in found]
        elif found.ndim == 1:
            parts.append(np.expand_dims(found, -1))
        else:
            parts.append(found[:, 1:] if method == "predict_proba" and len(estimator.classes_) == 2 else found)
    parts += [join(x)] if estimator.passthrough else []
    return np.concatenate([astype(part, np.float64) for part in parts], axis=-1)


@rule("predict", "StackingRegressor", frames=True)
def stacked_value(estimator: Any, x: Any) -> Any:
    return compute(estimator.final_estimator_, "predict", stacked(estimator, x))


def _final(estimator: Any, method: str, x: Any) -> Any:
    if isinstance(estimator._label_encoder, list):
        raise MlaotError("a StackingClassifier of several outputs cannot be converted")
    return compute(estimator.final_estimator_, method, stacked(estimator, x))


@rule("class_index", "StackingClassifier", frames=True)
def stacked_class(estimator: Any, x: Any) -> Any:
    return _final(estimator, "predict", x)


@rule("predict_proba", "StackingClassifier", frames=True)
def stacked_shares(estimator: Any, x: Any) -> Any:
    return _final(estimator, "predict_proba", x)


@rule("decision_function", "StackingClassifier", frames=True)
def stacked_decision(estimator: Any, x: Any) -> Any:
    return _final(estimator, "decision_function", x)
