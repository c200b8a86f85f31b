"""Neighbours, the nearest or all within a radius, which vote or are averaged, and novelty detection by them."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.numpy import astype, log_softmax, logsumexp, softmax, top_k
from mlaot.ir.types import f64
from mlaot.onnx.ops.ml import take
from mlaot.onnx.values import Strings
from mlaot.sklearn.rules import Array, dense, is_one_label, join, pick, rule, sign
from mlaot.sklearn.words import is_sparse, squared_distances

EUCLIDEAN = ("euclidean", "l2")


def _minkowski(x: Any, points: Array, p: float = 2.0, w: Any = None) -> Any:
    sizes = np.abs(x - points) ** p
    return np.sum(sizes if w is None else np.asarray(w, np.float64) * sizes, axis=-1) ** (1 / p)


def _cosine(x: Any, points: Array) -> Any:
    lengths = np.sqrt(np.sum(x * x, axis=-1)), np.sqrt(np.sum(points * points, axis=-1))
    x_length, length = (np.where(each == 0, 1.0, each) for each in lengths)
    return 1 - np.sum(x * points, axis=-1) / (x_length * length)


def _ratio(above: Any, below: Any) -> Any:
    return above / np.where(below == 0, 1.0, below)


def _mahalanobis(x: Any, points: Array, VI: Any = None, V: Any = None) -> Any:
    inverse = np.linalg.inv(V) if VI is None else np.asarray(VI)
    difference = x - points
    return np.sqrt(np.sum((difference @ inverse) * difference, axis=-1))


# The distances of rows [batch, 1, features] and points [points, features].
METRICS: dict[str, Callable[..., Any]] = {
    "braycurtis": lambda x, p: _ratio(np.sum(np.abs(x - p), axis=-1), np.sum(np.abs(x) + np.abs(p), axis=-1)),
    "canberra": lambda x, p: np.sum(_ratio(np.abs(x - p), np.abs(x) + np.abs(p)), axis=-1),
    "chebyshev": lambda x, p: np.max(np.abs(x - p), axis=-1),
    "correlation": lambda x, p: _cosine(x - np.mean(x, axis=-1, keepdims=True), p - np.mean(p, axis=-1, keepdims=True)),
    "cosine": _cosine,
    "hamming": lambda x, p: np.mean(astype(x != p, f64), axis=-1),
    "mahalanobis": _mahalanobis,
    "minkowski": _minkowski,
    "seuclidean": lambda x, p, V: np.sqrt(np.sum((x - p) ** 2 / np.asarray(V), axis=-1)),
    "sqeuclidean": lambda x, p: np.sum((x - p) ** 2, axis=-1),
    **dict.fromkeys(("manhattan", "cityblock", "l1"), lambda x, p: np.sum(np.abs(x - p), axis=-1)),
    **dict.fromkeys(EUCLIDEAN, lambda x, p: np.sqrt(np.sum((x - p) ** 2, axis=-1))),
}


def distances(metric: Any, x: Any, points: Any, options: Any = None) -> Any:
    """Return the distance of each row and each point."""
    if metric == "precomputed":
        return x
    if metric not in METRICS:
        raise MlaotError(f"the metric {metric!r:.60} cannot be converted; known are {', '.join(METRICS)}")
    return METRICS[metric](np.expand_dims(x, 1), np.asarray(points, np.float64), **(options or {}))


def learnt(estimator: Any) -> Array:
    """Return the points among which neighbours are searched."""
    return np.asarray(dense(estimator._fit_X), np.float64)


def nearest(estimator: Any, x: Any, count: int | None = None) -> tuple[Any, Any]:
    """Find the nearest points; return their distances and indices."""
    points, metric = learnt(estimator), estimator.effective_metric_
    count = estimator.n_neighbors if count is None else count
    if is_sparse(x) and metric in EUCLIDEAN:
        square, index = top_k(squared_distances(x, points), count, largest=False)
        return np.sqrt(square), index
    x = join(x)
    if metric not in EUCLIDEAN:
        apart = distances(metric, x, points, estimator.effective_metric_params_)
        found: tuple[Any, Any] = top_k(apart, count, largest=False)
        return found
    origin, moved, weights, squares = moved_points(points)
    at = x - origin
    _, index = top_k(at @ weights + squares, count, largest=False)
    difference = take(moved, index) - np.expand_dims(at, 1)
    return np.sqrt(np.sum(difference * difference, axis=-1)), index


def within(estimator: Any, x: Any) -> tuple[Any, Any]:
    """Return the distances of all points, and a mask of those within the radius."""
    x, points, metric = join(x), learnt(estimator), estimator.effective_metric_
    if metric in EUCLIDEAN and getattr(estimator, "weights", None) in ("uniform", None):
        origin, _, weights, squares = moved_points(points)
        at = x - origin
        square = at @ weights + squares + np.sum(at * at, axis=1, keepdims=True)
        apart = np.sqrt(np.maximum(square, 0.0))
    else:  # a distance of none must be none
        apart = distances(metric, x, points, estimator.effective_metric_params_)
    return apart, apart <= estimator.radius


def moved_points(points: Array) -> tuple[Array, Array, Array, Array]:
    """Move the origin among the points; return it, the moved points, and a function of ``|y|^2 - 2 x.y``.

    The squares are then as small as possible. The origin is a multiple of powers of two below the features' ranges. So
    numbers that float64 can hold exactly, such as small integers, remain exact, and equal distances remain equal.
    """
    spread = np.std(points, axis=0)
    unit = np.exp2(np.floor(np.log2(np.where(spread > 0, spread, 1.0))))
    origin = np.where(spread > 0, np.round(np.mean(points, axis=0) / unit) * unit, points[0])
    moved = points - origin
    return origin, moved, -2 * moved.T, np.sum(moved * moved, axis=1)


def closeness(distance: Any) -> Any:
    """Weight neighbours, along the last axis, by the reciprocals of their distances.

    If some distances are 0, only these count.

    A neighbour at infinite distance has the weight 0.
    """
    same = astype(distance == 0, f64)
    return np.where(np.sum(same, axis=-1, keepdims=True) > 0, same, 1 / np.where(distance == 0, 1.0, distance))


def weigh(estimator: Any, distance: Any) -> Any:
    """Return the neighbours' weights by distance, or None if the estimator gives all the same weight."""
    if estimator.weights in ("uniform", None):
        return None
    if estimator.weights == "distance":
        return closeness(distance)
    try:
        return estimator.weights(distance)
    except Exception as error:  # of a function that was not written to be traced
        raise MlaotError(f"the weights of a {type(estimator).__name__} cannot be traced: {error!s:.100}") from None


def _means(estimator: Any, x: Any, values: Array) -> Any:
    """Return the means of values [points, k] of neighbours, or nan without neighbours."""
    if estimator.n_neighbors is not None:
        distance, index = nearest(estimator, x)
        weight, found = weigh(estimator, distance), take(values, index)
        if weight is None:
            return np.mean(found, axis=1)
        total = np.sum(np.expand_dims(weight, -1) * found, axis=1)
        return total / np.sum(weight, axis=1, keepdims=True)
    distance, near = within(estimator, x)
    weight = weigh(estimator, np.where(near, distance, np.inf))
    weight = astype(near, f64) if weight is None else np.where(near, weight, 0.0)
    return weight @ values / np.sum(weight, axis=1, keepdims=True)


@rule("predict", "KNeighborsRegressor RadiusNeighborsRegressor", sparse=True)
def neighbours_mean(estimator: Any, x: Any) -> Any:
    targets = np.asarray(estimator._y, np.float64)
    found = _means(estimator, x, targets.reshape(len(targets), -1))
    return found[:, 0] if targets.ndim == 1 else found


@rule("predict_proba", "KNeighborsClassifier RadiusNeighborsClassifier", sparse=True)
def neighbours_votes(estimator: Any, x: Any) -> Any:
    classes = [estimator.classes_] if is_one_label(estimator) else estimator.classes_
    targets = np.asarray(estimator._y).reshape(len(estimator._y), -1)
    ones = [np.eye(len(own))[targets[:, i]] for i, own in enumerate(classes)]
    found, ends = _means(estimator, x, np.concatenate(ones, axis=1)), np.cumsum([0, *map(len, classes)])
    parts = [found[:, a:b] for a, b in pairwise(ends)]
    if estimator.n_neighbors is None:
        parts = [_of_none(estimator, i, part) for i, part in enumerate(parts)]
    return parts[0] if is_one_label(estimator) else parts


def _of_none(estimator: Any, i: int, found: Any) -> Any:
    """Set rows without neighbours to the class of outliers, to no class, or to nan if scikit-learn raises an error."""
    if estimator.outlier_label_ is None:
        return found
    classes = estimator.classes_ if is_one_label(estimator) else estimator.classes_[i]
    return np.where(np.isnan(found), np.float64(np.asarray(classes) == estimator.outlier_label_[i]), found)


@rule("predict", "KNeighborsClassifier RadiusNeighborsClassifier", sparse=True)
def neighbours_class(estimator: Any, x: Any) -> Any:
    found = neighbours_votes(estimator, x)
    if is_one_label(estimator):
        return _class_of(estimator, 0, estimator.classes_, found)
    columns = [_class_of(estimator, i, own, found[i]) for i, own in enumerate(estimator.classes_)]
    if any(isinstance(column, Strings) for column in columns):
        raise MlaotError("several outputs whose classes are texts cannot be converted; encode them as numbers")
    return np.stack(columns, axis=-1)


def _class_of(estimator: Any, i: int, classes: Any, found: Any) -> Any:
    index, outliers = np.argmax(found, axis=-1), getattr(estimator, "outlier_label_", None)
    if outliers is None or outliers[i] in list(classes):
        return pick(classes, index)
    return pick(np.append(classes, outliers[i]), np.where(np.all(found == 0, axis=-1), len(classes), index))


@rule("class_index", "KNeighborsClassifier RadiusNeighborsClassifier", sparse=True)
def neighbours_place(estimator: Any, x: Any) -> Any:
    return np.argmax(neighbours_votes(estimator, x), axis=-1)


@rule("kneighbors", "NearestNeighbors", sparse=True)
def found_neighbours(estimator: Any, x: Any) -> Any:
    return list(nearest(estimator, x))


@rule("transform", "KNeighborsTransformer", sparse=True)
def nearest_graph(estimator: Any, x: Any) -> Any:
    is_distance = estimator.mode == "distance"
    distance, index = nearest(estimator, x, estimator.n_neighbors + is_distance)
    at = astype(np.expand_dims(index, -1) == np.arange(len(estimator._fit_X)), f64)
    return np.sum(at * np.expand_dims(distance, -1) if is_distance else at, axis=1)


@rule("transform", "RadiusNeighborsTransformer", sparse=True)
def radius_graph(estimator: Any, x: Any) -> Any:
    distance, near = within(estimator, x)
    return np.where(near, distance, 0.0) if estimator.mode == "distance" else astype(near, f64)


@rule("score_samples", "LocalOutlierFactor")
def density_ratio(estimator: Any, x: Any) -> Any:
    distance, index = nearest(estimator, x, estimator.n_neighbors_)
    reach = np.maximum(distance, take(estimator._distances_fit_X_[:, estimator.n_neighbors_ - 1], index))
    own = 1.0 / (np.mean(reach, axis=1) + 1e-10)
    return -np.mean(take(estimator._lrd, index) / np.expand_dims(own, -1), axis=1)


@rule("decision_function", "LocalOutlierFactor")
def density_decision(estimator: Any, x: Any) -> Any:
    return density_ratio(estimator, x) - estimator.offset_


@rule("predict", "LocalOutlierFactor")
def density_side(estimator: Any, x: Any) -> Any:
    return sign(~(density_decision(estimator, x) < 0))


def _log_volume(features: int) -> float:
    """Return the logarithm of the volume of the unit ball."""
    return 0.5 * features * math.log(math.pi) - math.lgamma(0.5 * features + 1)


def _log_cosine(features: int) -> float:
    """Return the logarithm of the integral of cos(pi r / 2) over the unit ball, by parts; nan as in scikit-learn."""
    total, factor = 0.0, 2 / math.pi
    for k in range(1, features + 1, 2):
        total += factor
        factor *= -(features - k) * (features - k - 1) * (2 / math.pi) ** 2
    return math.log(total) + math.log(features) + _log_volume(features) if total > 0 else math.nan


# Of a distance in bandwidths: the logarithm of a kernel, and of its integral over a number of features.
DENSITIES: dict[str, tuple[Callable[[Any], Any], Callable[[int], float]]] = {
    "gaussian": (lambda r: -0.5 * r * r, lambda n: 0.5 * n * math.log(2 * math.pi)),
    "tophat": (lambda r: np.where(r < 1, 0.0, -np.inf), _log_volume),
    "epanechnikov": (
        lambda r: np.where(r < 1, np.log(np.where(r < 1, 1 - r * r, 1.0)), -np.inf),
        lambda n: _log_volume(n) + math.log(2 / (n + 2)),
    ),
    "exponential": (lambda r: -r, lambda n: _log_volume(n) + math.log(n) + math.lgamma(n)),
    "linear": (
        lambda r: np.where(r < 1, np.log(np.where(r < 1, 1 - r, 1.0)), -np.inf),
        lambda n: _log_volume(n) - math.log(n + 1),
    ),
    "cosine": (
        lambda r: np.where(r < 1, np.log(np.where(r < 1, np.cos(0.5 * math.pi * r), 1.0)), -np.inf),
        _log_cosine,
    ),
}


@rule("score_samples", "KernelDensity")
def density(estimator: Any, x: Any) -> Any:
    points, width = np.asarray(estimator.tree_.data), estimator.bandwidth_
    kernel, volume = DENSITIES[estimator.kernel]
    apart = distances(estimator.metric, x, points, estimator.metric_params)
    logs = kernel(apart / width)
    weights = estimator.tree_.sample_weight
    weights = np.ones(len(points)) if weights is None else np.asarray(weights)
    shift = volume(points.shape[1]) + points.shape[1] * math.log(width) + math.log(weights.sum())
    return logsumexp(logs + np.log(weights), axis=-1) - shift


def _centroid_scores(estimator: Any, x: Any) -> Any:
    deviation = np.where(estimator.within_class_std_dev_ != 0, estimator.within_class_std_dev_, 1.0)
    apart = distances(estimator.metric, x / deviation, estimator.centroids_ / deviation)
    return -apart * apart + 2 * np.log(estimator.class_prior_)


@rule("class_index", "NearestCentroid")
def centroid_class(estimator: Any, x: Any) -> Any:
    priors = getattr(estimator, "class_prior_", None)
    if priors is None or np.isclose(priors, 1 / len(estimator.classes_)).all():
        return np.argmin(distances(estimator.metric, x, estimator.centroids_), axis=-1)
    return np.argmax(_centroid_scores(estimator, x), axis=-1)


@rule("decision_function", "NearestCentroid")
def centroid_decision(estimator: Any, x: Any) -> Any:
    found = _centroid_scores(estimator, x)
    return found[:, 1] - found[:, 0] if len(estimator.classes_) == 2 else found


@rule("predict_proba", "NearestCentroid")
def centroid_shares(estimator: Any, x: Any) -> Any:
    return softmax(_centroid_scores(estimator, x))


@rule("predict_log_proba", "NearestCentroid")
def centroid_logs(estimator: Any, x: Any) -> Any:
    return log_softmax(_centroid_scores(estimator, x))
