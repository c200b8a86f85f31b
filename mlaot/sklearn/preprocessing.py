"""Transformers of single features: scales, powers, quantiles, bins, splines, polynomials, and their inverses."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.numpy import astype
from mlaot.frontend.numpy.namespace import SPECIAL
from mlaot.ir.types import f64
from mlaot.onnx.ops.ml import NORMS
from mlaot.sklearn.rules import dense, join, rule
from mlaot.sklearn.words import is_sparse, mapped, values_of

EPSILON = np.finfo(np.float64).eps
NEAR = 1e-7  # to the first or last quantile, which a normal distribution has infinitely far away


@rule("transform", "StandardScaler", sparse=True)
def standardize(estimator: Any, x: Any) -> Any:
    x = join(x) - estimator.mean_ if estimator.with_mean else x
    return x / estimator.scale_ if estimator.with_std else x


@rule("inverse_transform", "StandardScaler")
def from_standard(estimator: Any, x: Any) -> Any:
    x = x * estimator.scale_ if estimator.with_std else x
    return x + estimator.mean_ if estimator.with_mean else x


@rule("transform", "MinMaxScaler")
def to_range(estimator: Any, x: Any) -> Any:
    found = x * estimator.scale_ + estimator.min_
    return np.clip(found, *estimator.feature_range) if estimator.clip else found


@rule("inverse_transform", "MinMaxScaler")
def from_range(estimator: Any, x: Any) -> Any:
    return (x - estimator.min_) / estimator.scale_


@rule("transform", "MaxAbsScaler", sparse=True)
def by_largest(estimator: Any, x: Any) -> Any:
    found = x / estimator.scale_
    return mapped(lambda values: np.clip(values, -1.0, 1.0), found) if getattr(estimator, "clip", False) else found


@rule("inverse_transform", "MaxAbsScaler")
def from_largest(estimator: Any, x: Any) -> Any:
    return x * estimator.scale_


@rule("transform", "RobustScaler")
def by_quartiles(estimator: Any, x: Any) -> Any:
    x = x - estimator.center_ if estimator.with_centering else x
    return x / estimator.scale_ if estimator.with_scaling else x


@rule("inverse_transform", "RobustScaler")
def from_quartiles(estimator: Any, x: Any) -> Any:
    x = x * estimator.scale_ if estimator.with_scaling else x
    return x + estimator.center_ if estimator.with_centering else x


@rule("transform", "Binarizer")
def binarize(estimator: Any, x: Any) -> Any:
    return astype(x > estimator.threshold, f64)


@rule("transform", "Normalizer", sparse=True)
def normalize(estimator: Any, x: Any) -> Any:
    """Divide rows by their norms; rows with a norm near 0 are unchanged."""
    length = NORMS[estimator.norm.upper()](values_of(x))
    return x / np.where(length < 10 * EPSILON, 1.0, length)


@rule("transform", "TfidfTransformer", sparse=True)
def weigh_terms(estimator: Any, x: Any) -> Any:
    """Weight counts of terms; rows of zeros are unchanged."""
    if estimator.sublinear_tf:
        x = mapped(lambda values: np.where(values == 0, 0.0, np.log(np.where(values == 0, 1.0, values)) + 1), x)
    x = x * estimator.idf_ if estimator.use_idf else x
    if estimator.norm is None:
        return x
    length = NORMS[estimator.norm.upper()](values_of(x))
    return x / np.where(length == 0, 1.0, length)


@rule("transform", "PolynomialFeatures")
def polynomial(estimator: Any, x: Any) -> Any:
    """Multiply each feature by the monomials of one degree less that begin with the feature or a later one."""
    degrees, firsts = estimator.powers_.sum(axis=1), [*range(x.shape[1])]  # the first feature of each monomial
    powers = {0: np.ones_like(x[:, :1]), 1: x}
    for degree in range(2, int(degrees.max()) + 1):
        starts = np.searchsorted(firsts, np.arange(x.shape[1]) + estimator.interaction_only).tolist()
        parts = [x[:, i : i + 1] * powers[degree - 1][:, k:] for i, k in enumerate(starts) if k < len(firsts)]
        firsts = [i for i, k in enumerate(starts) for _ in firsts[k:]]
        powers[degree] = np.concatenate(parts, axis=1)
    return np.concatenate([powers[degree] for degree in np.unique(degrees)], axis=1)


@rule("transform", "PowerTransformer")
def to_powers(estimator: Any, x: Any) -> Any:
    """Apply the transform of Yeo and Johnson (2000), or of Box and Cox (1964)."""
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


@rule("inverse_transform", "PowerTransformer")
def from_powers(estimator: Any, x: Any) -> Any:
    lambdas = np.asarray(estimator.lambdas_)
    if estimator.standardize:
        x = x * estimator._scaler.scale_ + estimator._scaler.mean_

    def root(y: Any, exponent: Any) -> Any:
        """(y * exponent + 1) ** (1 / exponent) - 1, and its limit where the exponent is 0"""
        is_zero = np.abs(exponent) < EPSILON
        safe = np.where(is_zero, 1.0, exponent)
        return np.expm1(np.where(is_zero, y, np.log1p(y * safe) / safe))

    if estimator.method == "box-cox":
        return root(x, lambdas) + 1
    above, below = np.where(x < 0, 0.0, x), np.where(x < 0, -x, 0.0)
    return np.where(x < 0, -root(below, 2 - lambdas), root(above, lambdas))


@rule("transform", "QuantileTransformer")
def to_quantiles(estimator: Any, x: Any) -> Any:
    places, is_normal = estimator.references_, estimator.output_distribution == "normal"
    bounds = -SPECIAL.ndtri(NEAR - EPSILON) if is_normal else 0.0

    def column(at: Any, quantiles: Any) -> Any:
        """Return the mean of interpolation in both directions, as quantiles may be equal."""
        up, down = np.interp(at, quantiles, places), np.interp(-at, -quantiles[::-1], -places[::-1])
        near = NEAR if is_normal else 0.0
        above = at + near > quantiles[-1] if is_normal else at == quantiles[-1]
        below = at - near < quantiles[0] if is_normal else at == quantiles[0]
        share = np.where(below, 0.0, np.where(above, 1.0, 0.5 * (up - down)))
        return np.clip(SPECIAL.ndtri(share), -bounds, bounds) if is_normal else share

    return np.stack([column(x[:, i], estimator.quantiles_[:, i]) for i in range(x.shape[1])], axis=-1)


@rule("inverse_transform", "QuantileTransformer")
def from_quantiles(estimator: Any, x: Any) -> Any:
    is_normal = estimator.output_distribution == "normal"
    share = 0.5 * SPECIAL.erfc(-x / np.sqrt(2.0)) if is_normal else x
    near = NEAR if is_normal else 0.0

    def column(at: Any, quantiles: Any) -> Any:
        found = np.interp(at, estimator.references_, quantiles)
        return np.where(at - near < 0, quantiles[0], np.where(at + near > 1, quantiles[-1], found))

    return np.stack([column(share[:, i], estimator.quantiles_[:, i]) for i in range(x.shape[1])], axis=-1)


@rule("transform", "KBinsDiscretizer")
def to_bins(estimator: Any, x: Any) -> Any:
    parts = []
    for i, edges in enumerate(estimator.bin_edges_):
        place = np.sum(astype(np.expand_dims(x[:, i], -1) >= edges[1:-1], f64), axis=-1, keepdims=True)
        is_one_hot = "onehot" in estimator.encode
        parts.append(astype(place == np.arange(estimator.n_bins_[i]), f64) if is_one_hot else place)
    return np.concatenate(parts, axis=-1)


@rule("transform", "SplineTransformer")
def splines(estimator: Any, x: Any) -> Any:
    found = []
    for i, spline in enumerate(estimator.bsplines_):
        basis = _spline(estimator, spline, x[:, i])
        found.append(basis if estimator.include_bias else basis[:, :-1])
    return np.concatenate(found, axis=-1)


def _spline(estimator: Any, spline: Any, x: Any) -> Any:
    """Return all splines of a feature, with extrapolation beyond the knots."""
    knots, degree = spline.t, spline.k
    low, high = knots[degree], knots[-degree - 1]
    if estimator.extrapolation == "periodic":
        at = low + np.remainder(x - low, high - low) if high > low else np.zeros_like(x)
    else:
        at = np.clip(x, low, high) if estimator.extrapolation in ("constant", "linear") else x
    found = _basis(knots, degree, at) @ np.asarray(spline.c)
    if estimator.extrapolation == "linear":
        for bound, beyond in ((low, np.minimum(x - low, 0.0)), (high, np.maximum(x - high, 0.0))):
            found = found + np.expand_dims(beyond, -1) * spline(bound, nu=1)
    if estimator.extrapolation == "constant" and degree == 0:
        found = np.where(np.expand_dims((x < low) | (x > high), -1), 0.0, found)
    if getattr(estimator, "handle_missing", "error") == "zeros":
        found = np.where(np.expand_dims(np.isnan(x), -1), 0.0, found)
    return found


def _basis(knots: Any, degree: int, x: Any) -> Any:
    """Return the B-splines by the recursion of Cox and de Boor, from the interval of ``x`` or the nearest one."""
    count = len(knots) - degree - 1
    inner = knots[degree + 1 : count]
    interval = degree + np.sum(astype(np.expand_dims(x, -1) >= inner, np.int64), axis=-1, keepdims=True)
    basis, at = astype(interval == np.arange(len(knots) - 1), f64), np.expand_dims(x, -1)
    for k in range(1, degree + 1):
        n = len(knots) - 1 - k
        width = knots[k : k + n + 1] - knots[: n + 1]
        scale = np.where(width > 0, 1 / np.where(width > 0, width, 1.0), 0.0)
        rising = (at - knots[:n]) * (scale[:n] * basis[:, :n])
        falling = (knots[k + 1 : k + 1 + n] - at) * (scale[1 : n + 1] * basis[:, 1 : n + 1])
        basis = rising + falling
    return basis


@rule("transform", "FunctionTransformer", frames=True)
def own_function(estimator: Any, x: Any) -> Any:
    """Trace a user's function."""
    return x if estimator.func is None else _call(estimator.func, estimator.kw_args, x)


@rule("inverse_transform", "FunctionTransformer", frames=True)
def own_inverse(estimator: Any, x: Any) -> Any:
    return x if estimator.inverse_func is None else _call(estimator.inverse_func, estimator.inv_kw_args, x)


def _call(function: Any, options: Any, x: Any) -> Any:
    try:
        if is_sparse(x):  # as it is where it is fitted; most functions want all features
            with suppress(AttributeError, TypeError):
                return function(x, **(options or {}))
        return function(join(x), **(options or {}))
    except MlaotError:
        raise
    except Exception as error:  # of a function that was not written to be traced
        name, text = getattr(function, "__name__", "function"), " ".join(str(error).split())
        raise MlaotError(
            f"the function {name} of a FunctionTransformer cannot be traced; use NumPy's functions: {text:.200}"
        ) from None


@rule("transform", "KernelCenterer")
def center(estimator: Any, x: Any) -> Any:
    rows = estimator.K_fit_rows_
    return x - rows - np.sum(x, axis=-1, keepdims=True) / len(rows) + estimator.K_fit_all_


@rule("transform", "SelectorMixin", sparse=True)
def select(estimator: Any, x: Any) -> Any:
    return x[:, np.flatnonzero(estimator.get_support())]


@rule("transform", "BaseRandomProjection NeighborhoodComponentsAnalysis TruncatedSVD", sparse=True)
def project(estimator: Any, x: Any) -> Any:
    return x @ dense(estimator.components_).T


@rule("predict transform", "IsotonicRegression")
def isotonic(estimator: Any, x: Any) -> Any:
    """Interpolate between thresholds; beyond them follow the estimator, with nan where it would raise an error."""
    at = x[:, 0] if x.ndim == 2 else x
    places, values = estimator.X_thresholds_, estimator.y_thresholds_
    if len(values) == 1:
        return np.where(np.isnan(at), at, values[0])
    found = np.interp(at, places, values)
    if estimator.out_of_bounds == "clip":
        return found
    return np.where((at < places[0]) | (at > places[-1]), np.nan, found)
