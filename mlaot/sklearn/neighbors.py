"""The neighbours of scikit-learn, the nearest or all within a radius, which vote or whose targets are averaged.

skl2onnx computes distances row by row, and counts the votes of a classifier without its weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.numpy import astype, top_k
from mlaot.ir.types import f64
from mlaot.onnx.ops.ml import take

Array = np.ndarray[Any, Any]
EUCLIDEAN = ("euclidean", "l2")
OF_DIFFERENCES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("manhattan", "cityblock", "l1"), np.sum),
    "chebyshev": np.max,
}


def neighbours(estimator: Any) -> Callable[[Any], Any] | None:
    """Make the function of rows that gives the means of what their neighbours have: shares of classes, or targets.

    None where skl2onnx is to convert it: for other metrics, weights by a function, several outputs of a classifier.
    """
    metric, params = estimator.effective_metric_, estimator.effective_metric_params_
    is_dense = isinstance(estimator._fit_X, np.ndarray)
    if not is_dense or estimator.weights not in ("uniform", "distance", None):
        return None
    combine = _minkowski(**params) if metric == "minkowski" else OF_DIFFERENCES.get(metric)
    if combine is None and metric not in EUCLIDEAN:
        if estimator.weights == "distance" and hasattr(estimator, "classes_"):
            raise MlaotError(f"votes weighted by distances of the metric {metric!r} cannot be converted")
        return None
    classes, targets = getattr(estimator, "classes_", None), np.asarray(estimator._y)
    if isinstance(classes, list):
        return None
    values = np.eye(len(classes))[targets] if classes is not None else targets.reshape(len(targets), -1)
    points, count = np.asarray(estimator._fit_X, np.float64), estimator.n_neighbors
    if count is None:
        is_weighted = estimator.weights == "distance"
        if is_weighted and combine is None:  # a distance of none must be none
            combine = _minkowski(2.0)
        distances = _products(points) if combine is None else _differences(points, combine)
        return _within(distances, estimator.radius, values.astype(np.float64), is_weighted)
    nearest = _by_products(points, count) if combine is None else _by_differences(points, count, combine)

    def means(x: Any) -> Any:
        distance, index = nearest(x)
        found = take(values.astype(np.float64), index)
        if estimator.weights != "distance":
            return np.mean(found, axis=1)
        weight = closeness(distance)
        total = np.sum(np.expand_dims(weight, -1) * found, axis=1)
        return total / np.sum(weight, axis=1, keepdims=True)

    return means


def _within(distances: Callable[[Any], Any], radius: float, values: Array, is_weighted: bool) -> Callable[[Any], Any]:
    """Make the function of means of what is within a radius; where nothing is, they are nan."""

    def means(x: Any) -> Any:
        distance = distances(x)
        near = distance <= radius
        weight = closeness(np.where(near, distance, np.inf)) if is_weighted else astype(near, f64)
        return weight @ values / np.sum(weight, axis=1, keepdims=True)

    return means


def closeness(distance: Any) -> Any:
    """Weigh neighbours, along the last axis, by the reciprocals of their distances; if some are at none, these alone.

    What is infinitely far weighs nothing.
    """
    same = astype(distance == 0, f64)
    return np.where(np.sum(same, axis=-1, keepdims=True) > 0, same, 1 / np.where(distance == 0, 1.0, distance))


def _minkowski(p: float, w: Array | None = None) -> Callable[..., Any]:
    """Make the function of absolute differences, each of which may have a weight."""

    def combine(sizes: Any, axis: int) -> Any:
        powers = sizes**p if w is None else np.asarray(w, np.float64) * sizes**p
        return np.sum(powers, axis=axis) ** (1 / p)

    return combine


def _differences(points: Array, combine: Callable[..., Any]) -> Callable[[Any], Any]:
    """Make the function of distances by the sum, the largest, or other functions of absolute differences."""
    return lambda x: combine(np.abs(np.expand_dims(x, 1) - points), axis=-1)


def _by_differences(points: Array, count: int, combine: Callable[..., Any]) -> Callable[[Any], tuple[Any, Any]]:
    """Find neighbours by the sum, the largest, or other functions of absolute differences."""
    distances = _differences(points, combine)

    def nearest(x: Any) -> tuple[Any, Any]:
        found: tuple[Any, Any] = top_k(distances(x), count, largest=False)
        return found

    return nearest


def _moved(points: Array) -> tuple[Array, Array, Array, Array]:
    """Move the origin among the points; return it, the points, and what makes ``|y|^2 - 2 x.y`` of them.

    There the squares are no larger than needed. The origin is a multiple of powers of two below the features' spreads:
    numbers that float64 holds exactly, such as small integers, stay so, and equal distances equal.
    """
    spread = np.std(points, axis=0)
    unit = np.exp2(np.floor(np.log2(np.where(spread > 0, spread, 1.0))))
    origin = np.where(spread > 0, np.round(np.mean(points, axis=0) / unit) * unit, points[0])
    moved = points - origin
    return origin, moved, -2 * moved.T, np.sum(moved * moved, axis=1)


def _products(points: Array) -> Callable[[Any], Any]:
    """Make the function of Euclidean distances by products."""
    origin, _, weights, squares = _moved(points)

    def distances(x: Any) -> Any:
        at = x - origin
        square = at @ weights + squares + np.sum(at * at, axis=1, keepdims=True)
        return np.sqrt(np.maximum(square, 0.0))

    return distances


def _by_products(points: Array, count: int) -> Callable[[Any], tuple[Any, Any]]:
    """Find neighbours by the squares of distances less ``|x|^2``; return exact distances."""
    origin, moved, weights, squares = _moved(points)

    def nearest(x: Any) -> tuple[Any, Any]:
        at = x - origin
        _, index = top_k(at @ weights + squares, count, largest=False)
        difference = take(moved, index) - np.expand_dims(at, 1)
        return np.sqrt(np.sum(difference * difference, axis=-1)), index

    return nearest
