"""Linear models, discriminants, perceptrons, naive Bayes, and constant predictors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.numpy import astype, log_softmax, relu, sigmoid, softmax
from mlaot.nn.fitted_trees import LINKS, identity
from mlaot.sklearn.rules import Unknown, compute, constant, dense, join, pick, rule, sign
from mlaot.sklearn.words import mapped

JOINT = "LogisticRegression LogisticRegressionCV"


def scores(estimator: Any, x: Any) -> Any:
    """Return a score for each row of coefficients, in the dtype of ``x``."""
    weight = np.atleast_2d(dense(estimator.coef_)).T
    bias = np.broadcast_to(np.asarray(estimator.intercept_), weight.shape[1:])
    return x @ astype(weight, x.dtype) + astype(bias, x.dtype)


def flat(x: Any) -> Any:
    """Return one column as a vector."""
    return x[:, 0] if x.ndim == 2 and x.shape[1] == 1 else x


@rule("predict", "LinearModel BaseSGDRegressor", sparse=True)
def linear_regression(estimator: Any, x: Any) -> Any:
    found = scores(estimator, x)
    return found[:, 0] if np.ndim(estimator.coef_) == 1 else found


@rule("predict", "_GeneralizedLinearRegressor", sparse=True)
def generalized(estimator: Any, x: Any) -> Any:
    link = type(estimator._base_loss.link).__name__
    if link not in LINKS:
        raise MlaotError(f"the link {link} of a {type(estimator).__name__} cannot be converted")
    return LINKS[link](scores(estimator, x)[:, 0])


@rule("decision_function", "LinearClassifierMixin", sparse=True)
def decision(estimator: Any, x: Any) -> Any:
    return flat(scores(estimator, x))


def place_of_largest(found: Any, threshold: float) -> Any:
    """Return the column of the largest number of each row; for a single column, whether it exceeds a threshold."""
    return astype(found[:, 0] > threshold, np.int64) if found.shape[1] == 1 else np.argmax(found, axis=-1)


@rule("class_index", "LinearClassifierMixin", sparse=True)
def by_scores(estimator: Any, x: Any) -> Any:
    """Return the class with the largest score; for two classes by the sign of one score."""
    return place_of_largest(scores(estimator, x), 0)


@rule("predict", "_RidgeClassifierMixin", sparse=True)
def ridge_classes(estimator: Any, x: Any) -> Any:
    if estimator._label_binarizer.y_type_.startswith("multilabel"):
        return astype(scores(estimator, x) > 0, np.int64)
    return pick(estimator.classes_, by_scores(estimator, x))


def shares(found: Any) -> Any:
    """Return probabilities from those of each class against the rest, or for two classes from that of the second."""
    if found.shape[1] == 1:
        return np.concatenate([1 - found, found], axis=-1)
    return found / np.sum(found, axis=-1, keepdims=True)


@rule("predict_proba", JOINT, sparse=True)
def logistic(estimator: Any, x: Any) -> Any:
    found, kind = scores(estimator, x), getattr(estimator, "multi_class", "deprecated")
    is_apart = kind == "ovr" or (kind != "multinomial" and (found.shape[1] == 1 or estimator.solver == "liblinear"))
    if is_apart:
        return shares(sigmoid(found))
    return softmax(np.concatenate([-found, found], axis=-1) if found.shape[1] == 1 else found)


@rule("predict_proba", "SGDClassifier", sparse=True)
def stochastic(estimator: Any, x: Any) -> Any:
    found = scores(estimator, x)
    if estimator.loss == "log_loss":
        return shares(sigmoid(found))
    found = (np.clip(found, -1, 1) + 1) / 2  # modified_huber
    if found.shape[1] == 1:
        return shares(found)
    total = np.sum(found, axis=-1, keepdims=True)
    return np.where(total == 0, 1 / found.shape[1], found / np.where(total == 0, 1.0, total))


@rule("score_samples", "SGDOneClassSVM", sparse=True)
def one_class_score(estimator: Any, x: Any) -> Any:
    return (x @ estimator.coef_.T)[:, 0] if estimator.coef_.ndim == 2 else x @ estimator.coef_


@rule("decision_function", "SGDOneClassSVM", sparse=True)
def one_class_decision(estimator: Any, x: Any) -> Any:
    return one_class_score(estimator, x) - estimator.offset_


@rule("predict", "SGDOneClassSVM", sparse=True)
def one_class_side(estimator: Any, x: Any) -> Any:
    return sign(one_class_decision(estimator, x) >= 0)


@rule("predict_proba", "LinearDiscriminantAnalysis")
def discriminant(estimator: Any, x: Any) -> Any:
    found = scores(estimator, x)
    return shares(sigmoid(found)) if found.shape[1] == 1 else softmax(found)


@rule("predict_log_proba", "LinearDiscriminantAnalysis")
def discriminant_logs(estimator: Any, x: Any) -> Any:
    found = discriminant(estimator, x)
    return np.log(np.where(found == 0, np.finfo(np.float64).tiny, found))


@rule("transform", "LinearDiscriminantAnalysis")
def discriminant_axes(estimator: Any, x: Any) -> Any:
    if estimator.solver == "lsqr":
        raise Unknown("scikit-learn has no axes of the solver 'lsqr'")
    if estimator.solver == "svd":
        x = x - estimator.xbar_
    return x @ estimator.scalings_[:, : estimator._max_components]


def quadratic(estimator: Any, x: Any) -> Any:
    """Return the logarithms of the posteriors, up to a term that all classes have in common."""
    turns = [r / np.sqrt(s) for r, s in zip(estimator.rotations_, estimator.scalings_, strict=True)]
    shift = np.log(estimator.priors_) - 0.5 * np.array([np.sum(np.log(s)) for s in estimator.scalings_])
    distances = [(x - mean) @ turn for mean, turn in zip(estimator.means_, turns, strict=True)]
    return np.stack([-0.5 * np.sum(each * each, axis=-1) for each in distances], axis=-1) + shift


def gaussian_bayes(estimator: Any, x: Any) -> Any:
    """Return the log-posteriors of independent normal distributions."""
    shift = np.log(estimator.class_prior_) - 0.5 * np.sum(np.log(2 * np.pi * estimator.var_), axis=1)
    distance = np.expand_dims(x, 1) - estimator.theta_
    return shift - 0.5 * np.sum(distance * distance / estimator.var_, axis=-1)


def bernoulli_bayes(estimator: Any, x: Any) -> Any:
    """Return the log-posteriors of independent events."""
    if estimator.binarize is not None:
        x = join(x) if estimator.binarize < 0 else x
        x = mapped(lambda values: astype(values > estimator.binarize, np.float64), x)
    absent = np.log(1 - np.exp(estimator.feature_log_prob_))
    return x @ (estimator.feature_log_prob_ - absent).T + (estimator.class_log_prior_ + np.sum(absent, axis=1))


def multinomial_bayes(estimator: Any, x: Any) -> Any:
    """Return the log-posteriors of counts."""
    return x @ estimator.feature_log_prob_.T + estimator.class_log_prior_


def complement_bayes(estimator: Any, x: Any) -> Any:
    """Return the scores of counts by the complements of classes."""
    found = x @ estimator.feature_log_prob_.T
    return found + estimator.class_log_prior_ if len(estimator.classes_) == 1 else found


def categorical_bayes(estimator: Any, x: Any) -> Any:
    """Return the log-posteriors of categories, which are numbers from 0."""
    total = constant(x, estimator.class_log_prior_)
    for i, table in enumerate(estimator.feature_log_prob_):
        at = np.expand_dims(x[:, i], -1) == np.arange(table.shape[1])
        total = total + astype(at, np.float64) @ table.T
    return total


BAYES = {
    "BernoulliNB": bernoulli_bayes,
    "CategoricalNB": categorical_bayes,
    "ComplementNB": complement_bayes,
    "GaussianNB": gaussian_bayes,
    "MultinomialNB": multinomial_bayes,
    "QuadraticDiscriminantAnalysis": quadratic,
}
PRODUCTS = ("BernoulliNB", "ComplementNB", "MultinomialNB")  # of rows, which may be sparse


def _joint(estimator: Any, x: Any) -> Any:
    name = type(estimator).__name__
    return BAYES[name](estimator, x if name in PRODUCTS else join(x))


@rule("class_index", " ".join(BAYES), sparse=True)
def bayes_class(estimator: Any, x: Any) -> Any:
    return np.argmax(_joint(estimator, x), axis=-1)


@rule("predict_proba", " ".join(BAYES), sparse=True)
def bayes_shares(estimator: Any, x: Any) -> Any:
    return softmax(_joint(estimator, x))


@rule("predict_log_proba", " ".join(BAYES), sparse=True)
def bayes_logs(estimator: Any, x: Any) -> Any:
    return log_softmax(_joint(estimator, x))


@rule("decision_function", "QuadraticDiscriminantAnalysis")
def quadratic_decision(estimator: Any, x: Any) -> Any:
    found = quadratic(estimator, x)
    return found[:, 1] - found[:, 0] if len(estimator.classes_) == 2 else found


ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp,
    "identity": identity,
    "logistic": sigmoid,
    "relu": relu,
    "softmax": softmax,
    "tanh": np.tanh,
}


def perceptron(estimator: Any, x: Any) -> Any:
    """Return the last layer of a perceptron."""
    last = len(estimator.coefs_) - 1
    for i, (weight, bias) in enumerate(zip(estimator.coefs_, estimator.intercepts_, strict=True)):
        name = estimator.out_activation_ if i == last else estimator.activation
        if name not in ACTIVATIONS:
            raise MlaotError(f"the activation {name!r} of a {type(estimator).__name__} cannot be converted")
        x = ACTIVATIONS[name](x @ astype(weight, x.dtype) + astype(bias, x.dtype))
    return x


@rule("predict", "MLPRegressor", sparse=True)
def perceptron_value(estimator: Any, x: Any) -> Any:
    return flat(perceptron(estimator, x))


def _is_multilabel(estimator: Any) -> bool:
    return bool(estimator._label_binarizer.y_type_.startswith("multilabel"))


@rule("predict_proba", "MLPClassifier", sparse=True)
def perceptron_shares(estimator: Any, x: Any) -> Any:
    found = perceptron(estimator, x)
    return shares(found) if found.shape[1] == 1 and not _is_multilabel(estimator) else found


@rule("class_index", "MLPClassifier", sparse=True)
def perceptron_place(estimator: Any, x: Any) -> Any:
    return place_of_largest(perceptron(estimator, x), 0.5)


@rule("predict", "MLPClassifier", sparse=True)
def perceptron_class(estimator: Any, x: Any) -> Any:
    if _is_multilabel(estimator):
        return astype(perceptron(estimator, x) > 0.5, np.int64)
    return pick(estimator.classes_, perceptron_place(estimator, x))


def _dummy_place(estimator: Any) -> int:
    if estimator.n_outputs_ > 1:
        raise MlaotError("a DummyClassifier of several outputs cannot be converted")
    if estimator._strategy in ("stratified", "uniform"):
        raise MlaotError(f"a DummyClassifier with the strategy {estimator._strategy!r} predicts at random")
    if estimator._strategy == "constant":
        return list(estimator.classes_).index(np.ravel(estimator.constant)[0])
    return int(np.argmax(estimator.class_prior_))


@rule("class_index", "DummyClassifier")
def dummy_class(estimator: Any, x: Any) -> Any:
    return constant(x, _dummy_place(estimator))


@rule("predict_proba", "DummyClassifier")
def dummy_shares(estimator: Any, x: Any) -> Any:
    place = _dummy_place(estimator)
    return constant(
        x, estimator.class_prior_ if estimator._strategy == "prior" else np.eye(len(estimator.classes_))[place]
    )


@rule("predict", "DummyRegressor")
def dummy_value(estimator: Any, x: Any) -> Any:
    values = np.ravel(estimator.constant_).astype(np.float64)
    return constant(x, values if estimator.n_outputs_ > 1 else values[0])


@rule("predict", "_PLS")
def partial_least_squares(estimator: Any, x: Any) -> Any:
    found = (x - estimator._x_mean) @ estimator.coef_.T + estimator.intercept_
    return found[:, 0] if estimator._predict_1d else found


@rule("transform", "_PLS")
def partial_rotation(estimator: Any, x: Any) -> Any:
    return (x - estimator._x_mean) / estimator._x_std @ estimator.x_rotations_


@rule("transform", "PLSSVD")
def partial_weights(estimator: Any, x: Any) -> Any:
    return (x - estimator._x_mean) / estimator._x_std @ estimator.x_weights_


@rule("predict", "RANSACRegressor", frames=True)
def consensus(estimator: Any, x: Any) -> Any:
    return compute(estimator.estimator_, "predict", x)
