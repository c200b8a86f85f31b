"""Imputation of missing values: by a statistic, a mean of neighbours, or a prediction from other features."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.numpy import astype, top_k
from mlaot.ir.types import f64
from mlaot.onnx.ops.ml import take
from mlaot.sklearn.neighbors import closeness
from mlaot.sklearn.rules import Unknown, compute, rule


def is_missing(estimator: Any, x: Any) -> Any:
    """Return a mask of the elements that stand for a missing value."""
    sought = estimator.missing_values
    if not isinstance(sought, int | float | np.number):
        raise Unknown("the value that marks missing ones is not a number")
    return np.isnan(x) if sought != sought else x == sought


def _with_indicator(estimator: Any, imputed: Any, missing: Any) -> Any:
    """Add columns that indicate which features were missing."""
    if not estimator.add_indicator:
        return imputed
    return np.concatenate([imputed, astype(missing[:, estimator.indicator_.features_], f64)], axis=-1)


@rule("transform", "MissingIndicator")
def indicate(estimator: Any, x: Any) -> Any:
    return is_missing(estimator, x)[:, estimator.features_]


@rule("transform", "SimpleImputer")
def by_statistics(estimator: Any, x: Any) -> Any:
    return _with_indicator(estimator, *_by_statistics(estimator, x))


def _by_statistics(estimator: Any, x: Any) -> tuple[Any, Any]:
    """Return the imputed features that are kept, and the mask of all missing features."""
    missing = is_missing(estimator, x)
    statistics = np.asarray(estimator.statistics_, np.float64)
    kept = np.flatnonzero(estimator.keep_empty_features | ~np.isnan(statistics))
    return np.where(missing[:, kept], statistics[kept], x[:, kept]), missing


@rule("transform", "IterativeImputer")
def by_features(estimator: Any, x: Any) -> Any:
    """Predict each feature from the others in turn, within its limits."""
    if estimator.sample_posterior:
        raise MlaotError("an IterativeImputer with sample_posterior=True imputes at random")
    found, everywhere = _by_statistics(estimator.initial_imputer_, x)
    kept = np.flatnonzero(~np.isnan(np.asarray(estimator.initial_imputer_.statistics_, np.float64)))
    missing = everywhere if found.shape[1] == everywhere.shape[1] else everywhere[:, kept]
    low, high = (np.asarray(bound, np.float64) for bound in (estimator._min_value, estimator._max_value))
    columns = [found[:, i] for i in range(found.shape[1])]
    for feature, others, inner in estimator.imputation_sequence_ if estimator.n_iter_ else ():
        rows = np.stack([columns[i] for i in others], axis=-1)
        value = np.clip(compute(inner, "predict", rows), low[feature], high[feature])
        columns[feature] = np.where(missing[:, feature], value, columns[feature])
    return _with_indicator(estimator, np.stack(columns, axis=-1), everywhere)


@rule("transform", "KNNImputer")
def by_neighbours(estimator: Any, x: Any) -> Any:
    """Impute means of the nearest rows that have the feature, or of all rows if no distance is known."""
    if callable(estimator.weights) or callable(estimator.metric):
        raise MlaotError("a KNNImputer with a function as its weights or metric cannot be converted")
    fit, absent = np.asarray(estimator._fit_X, np.float64), estimator._mask_fit_X
    kept = np.flatnonzero(estimator._valid_mask | estimator.keep_empty_features)
    missing = is_missing(estimator, x)
    both = ~np.expand_dims(missing, 1) & ~absent
    differences = np.where(both, np.expand_dims(x, 1) - np.where(absent, 0, fit), 0)
    square, count = np.sum(differences * differences, axis=-1), np.sum(astype(both, f64), axis=-1)
    distance = np.sqrt(np.where(count > 0, square * (fit.shape[1] / np.maximum(count, 1)), np.inf))

    def mean_of(i: int) -> Any:
        donors = np.flatnonzero(~absent[:, i])
        if not len(donors):
            return np.zeros(())
        values = fit[donors, i]
        nearest, index = top_k(distance[:, donors], min(estimator.n_neighbors, len(donors)), largest=False)
        found = take(values, index)
        weight = closeness(nearest) if estimator.weights == "distance" else astype(np.isfinite(nearest), f64)
        total = np.sum(weight, axis=-1)
        mean = np.sum(weight * np.where(weight > 0, found, 0), axis=-1) / np.where(total > 0, total, 1)
        return np.where(total > 0, mean, np.mean(values))

    imputed = np.stack([np.where(missing[:, i], mean_of(int(i)), x[:, i]) for i in kept], axis=-1)
    return _with_indicator(estimator, imputed, missing)
