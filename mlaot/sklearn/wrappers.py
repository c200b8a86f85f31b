"""Estimators around others: pipelines, columns, searches, calibration, thresholds, and several outputs or classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import is_classifier, is_regressor

from mlaot.errors import MlaotError
from mlaot.frontend.numpy import astype, sigmoid, softmax
from mlaot.sklearn.ensembles import together
from mlaot.sklearn.kernels import one_against_one
from mlaot.sklearn.neighbors import distances
from mlaot.sklearn.rules import METHODS, Frame, compute, constant, join, pick, rule
from mlaot.sklearn.words import beside

ALL = (*METHODS, "class_index", "kneighbors")


def _inside(kinds: str, attribute: str) -> None:
    """Register rules of estimators whose methods call those of an estimator inside."""

    def enter(method: str) -> None:
        rule(method, kinds, frames=True)(lambda estimator, x: compute(getattr(estimator, attribute), method, x))

    for method in ALL:
        enter(method)


_inside("BaseSearchCV", "best_estimator_")
_inside("FrozenEstimator", "estimator")
_inside("SelfTrainingClassifier FixedThresholdClassifier TunedThresholdClassifierCV", "estimator_")


def _pipe(method: str) -> None:
    @rule(method, "Pipeline", frames=True)
    def piped(estimator: Any, x: Any) -> Any:
        *steps, last = [step for _, step in estimator.steps if step is not None and step != "passthrough"] or [None]
        for step in steps:
            x = compute(step, "transform", x)
        is_plain = last is None or estimator.steps[-1][1] in (None, "passthrough")
        return join(x, sparse=True) if is_plain else compute(last, method, x)

    @rule(method, "RFE", sparse=True)
    def eliminated(estimator: Any, x: Any) -> Any:
        chosen = x[:, np.flatnonzero(estimator.support_)]
        return chosen if method == "transform" else compute(estimator.estimator_, method, chosen)


for _method in ALL:
    _pipe(_method)


@rule("transform", "FeatureUnion", frames=True)
def unite(estimator: Any, x: Any) -> Any:
    weights, parts = estimator.transformer_weights or {}, []
    for name, one in estimator.transformer_list:
        if one != "drop":
            found = join(x if one == "passthrough" else compute(one, "transform", x), sparse=True)
            parts.append(found * weights[name] if name in weights else found)
    return _beside(parts)


@rule("transform", "ColumnTransformer", frames=True)
def by_columns(estimator: Any, x: Any) -> Any:
    parts, weights = [], estimator.transformer_weights or {}
    for name, one, _ in estimator.transformers_:
        places = list(estimator._transformer_to_input_indices[name])
        if not places or (isinstance(one, str) and one == "drop"):
            continue
        own = x.pick(places) if isinstance(x, Frame) else x[:, np.array(places)]
        found = join(own if isinstance(one, str) else compute(one, "transform", own), sparse=True)
        parts.append(found * weights[name] if name in weights else found)
    return _beside(parts)


def _beside(parts: Sequence[Any]) -> Any:
    """Join columns."""
    if not parts:
        raise MlaotError("a transformer that drops all columns cannot be converted")
    return beside(parts)


def _by_threshold(estimator: Any, threshold: Any, positive: Any, x: Any) -> Any:
    """Decide by a threshold on the inner estimator's result for the positive class."""
    inner, methods = estimator.estimator_, estimator._get_response_method()
    method = next(m for m in ([methods] if isinstance(methods, str) else methods) if hasattr(inner, m))
    place = 1 if positive is None else list(estimator.classes_).index(positive)
    found = compute(inner, method, x)
    found = found * (2 * place - 1) if method == "decision_function" else found[:, place]
    threshold = (0.5 if method == "predict_proba" else 0.0) if threshold == "auto" else threshold
    return np.where(found >= threshold, place, 1 - place)


@rule("class_index", "FixedThresholdClassifier", frames=True)
def fixed_threshold(estimator: Any, x: Any) -> Any:
    return _by_threshold(estimator, estimator.threshold, estimator.pos_label, x)


@rule("class_index", "TunedThresholdClassifierCV", frames=True)
def tuned_threshold(estimator: Any, x: Any) -> Any:
    return _by_threshold(estimator, estimator.best_threshold_, estimator._curve_scorer._get_pos_label(), x)


@rule("predict", "FixedThresholdClassifier TunedThresholdClassifierCV", frames=True)
def threshold_label(estimator: Any, x: Any) -> Any:
    return pick(estimator.classes_, compute(estimator, "class_index", x))


@rule("predict_proba", "CalibratedClassifierCV", frames=True)
def calibrated(estimator: Any, x: Any) -> Any:
    parts = [_calibrated(one, len(estimator.classes_), x) for one in estimator.calibrated_classifiers_]
    return sum(parts[1:], start=parts[0]) / len(parts)


def _calibrated(one: Any, count: int, x: Any) -> Any:
    """Return the probabilities of one estimator with a calibrator for each class."""
    method = "decision_function" if hasattr(one.estimator, "decision_function") else "predict_proba"
    found = compute(one.estimator, method, x)
    if method == "predict_proba" and count == 2:
        found = found[:, 1]
    columns = [found] if found.ndim == 1 else [found[:, i] for i in range(found.shape[1])]
    if one.method == "temperature":
        return _by_temperature(one.calibrators[0], method, np.stack(columns, axis=-1))
    shares = [_of_scores(calibrator, each) for each, calibrator in zip(columns, one.calibrators, strict=False)]
    if count == 2:
        return _capped(np.stack([1 - shares[0], shares[0]], axis=-1))
    places = [list(one.classes).index(own) for own in one.estimator.classes_]
    share = np.stack([shares[places.index(k)] if k in places else np.zeros_like(found[:, 0]) for k in range(count)], -1)
    total = np.sum(share, axis=-1, keepdims=True)
    return _capped(np.where(total == 0, 1 / count, share / np.where(total == 0, 1.0, total)))


def _capped(share: Any) -> Any:
    return np.where((share > 1) & (share <= 1 + 1e-5), 1.0, share)


def _of_scores(calibrator: Any, scores: Any) -> Any:
    if hasattr(calibrator, "a_"):
        return sigmoid(-(calibrator.a_ * scores + calibrator.b_))
    return compute(calibrator, "predict", scores)


def _by_temperature(calibrator: Any, method: str, scores: Any) -> Any:
    """Return the softmax of logits divided by a temperature."""
    if scores.shape[1] == 1:
        scores = np.concatenate([1 - scores, scores] if method == "predict_proba" else [-scores, scores], axis=-1)
    return _capped(softmax(calibrator.beta_ * _logits(method, scores)))


def _logits(method: str, scores: Any) -> Any:
    return np.log(scores + np.finfo(np.float64).eps) if method == "predict_proba" else scores


@rule("predict decision_function", "_ConstantPredictor")
def one_class_only(estimator: Any, x: Any) -> Any:
    return constant(x, float(estimator.y_[0]))


@rule("predict_proba", "_ConstantPredictor")
def sure_of_one_class(estimator: Any, x: Any) -> Any:
    return constant(x, np.array([1.0 - estimator.y_[0], estimator.y_[0]]))


def _binary(one: Any, x: Any) -> Any:
    """Return a score of the second of two classes."""
    if is_regressor(one):
        return compute(one, "predict", x)
    if hasattr(one, "decision_function"):
        return compute(one, "decision_function", x)
    return compute(one, "predict_proba", x)[:, 1]


def _limit(one: Any) -> float:
    return 0.0 if hasattr(one, "decision_function") and is_classifier(one) else 0.5


@rule("class_index", "OneVsRestClassifier", frames=True)
def best_against_rest(estimator: Any, x: Any) -> Any:
    scores = [_binary(one, x) for one in estimator.estimators_]
    if estimator.label_binarizer_.y_type_ == "multiclass":
        return np.argmax(np.stack(scores, axis=-1), axis=-1)
    return astype(scores[0] > _limit(estimator.estimators_[0]), np.int64)


@rule("predict", "OneVsRestClassifier", frames=True)
def label_against_rest(estimator: Any, x: Any) -> Any:
    if not estimator.multilabel_:
        return pick(estimator.classes_, best_against_rest(estimator, x))
    limit = _limit(estimator.estimators_[0])
    return np.stack([astype(_binary(one, x) > limit, np.int64) for one in estimator.estimators_], axis=-1)


@rule("predict_proba", "OneVsRestClassifier", frames=True)
def shares_against_rest(estimator: Any, x: Any) -> Any:
    found = np.stack([compute(one, "predict_proba", x)[:, 1] for one in estimator.estimators_], axis=-1)
    if found.shape[1] == 1:
        found = np.concatenate([1 - found, found], axis=-1)
    if estimator.multilabel_:
        return found
    total = np.sum(found, axis=-1, keepdims=True)
    return found / np.where(total == 0, 1.0, total)


@rule("decision_function", "OneVsRestClassifier", frames=True)
def decision_against_rest(estimator: Any, x: Any) -> Any:
    scores = [_binary(one, x) for one in estimator.estimators_]
    return scores[0] if len(scores) == 1 else np.stack(scores, axis=-1)


@rule("decision_function", "OneVsOneClassifier", sparse=True)
def duels(estimator: Any, x: Any) -> Any:
    given = estimator.pairwise_indices_
    rows = [x if given is None else x[:, np.asarray(own)] for own in given or estimator.estimators_]
    pairs = [(one, own) for one, own in zip(estimator.estimators_, rows, strict=True)]
    chosen = np.stack([compute(one, "predict", own) for one, own in pairs], axis=-1)
    scores = np.stack([_binary(one, own) for one, own in pairs], axis=-1)
    found = one_against_one(chosen == 1, scores, len(estimator.classes_))
    return found[:, 1] if estimator.n_classes_ == 2 else found


@rule("class_index", "OneVsOneClassifier", sparse=True)
def duel_winner(estimator: Any, x: Any) -> Any:
    found = duels(estimator, x)
    if found.ndim == 1:
        return astype(found > _limit(estimator.estimators_[0]), np.int64)
    return np.argmax(found, axis=-1)


@rule("class_index", "OutputCodeClassifier", frames=True)
def nearest_code(estimator: Any, x: Any) -> Any:
    found = np.stack([_binary(one, x) for one in estimator.estimators_], axis=-1)
    return np.argmin(distances("sqeuclidean", found, estimator.code_book_), axis=-1)


@rule("predict", "MultiOutputClassifier MultiOutputRegressor", frames=True)
def each_output(estimator: Any, x: Any) -> Any:
    return together([compute(one, "predict", x) for one in estimator.estimators_])


@rule("predict_proba", "MultiOutputClassifier", frames=True)
def each_shares(estimator: Any, x: Any) -> Any:
    return [compute(one, "predict_proba", x) for one in estimator.estimators_]


def _chain(method: str) -> None:
    @rule(method, "ClassifierChain RegressorChain")
    def chained(estimator: Any, x: Any) -> Any:
        """Predict with a chain, in which each estimator also gets the predictions of earlier ones."""
        through, found = getattr(estimator, "chain_method_", "predict"), []
        for one in estimator.estimators_:
            found.append(_of_second(one, method, x))
            before = found[-1] if through == method else _of_second(one, through, x)
            x = np.concatenate([x, np.expand_dims(astype(before, np.float64), -1)], axis=-1)
        order = np.argsort(estimator.order_)
        return np.stack([astype(found[i], np.float64) for i in order], axis=-1)


def _of_second(one: Any, method: str, x: Any) -> Any:
    found = compute(one, method, x)
    return found[:, 1] if method in ("predict_proba", "predict_log_proba") else found


for _method in ("predict", "predict_proba", "predict_log_proba", "decision_function"):
    _chain(_method)


@rule("predict", "TransformedTargetRegressor", frames=True)
def target_back(estimator: Any, x: Any) -> Any:
    found = compute(estimator.regressor_, "predict", x)
    found = compute(
        estimator.transformer_, "inverse_transform", np.expand_dims(found, -1) if found.ndim == 1 else found
    )
    is_vector = estimator._training_dim == 1 and found.ndim == 2 and found.shape[1] == 1
    return found[:, 0] if is_vector else found
