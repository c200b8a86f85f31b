"""Kernels of rows and fitted points: support vectors, Gaussian processes, and maps that approximate kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.numpy import astype, erf, sigmoid
from mlaot.onnx.ops.ml import couple, take
from mlaot.onnx.ops.ml import votes as votes_of_pairs
from mlaot.sklearn.neighbors import nearest
from mlaot.sklearn.preprocessing import center
from mlaot.sklearn.rules import Array, compute, dense, join, rule, sign
from mlaot.sklearn.words import is_sparse, squared_distances, values_of


def squares(x: Any, points: Array) -> Any:
    """Return the squares of Euclidean distances [batch, points], by differences, as expanded squares would cancel."""
    if is_sparse(x):
        return squared_distances(x, points)
    difference = np.expand_dims(x, 1) - points
    return np.sum(difference * difference, axis=-1)


def _chi2(x: Any, points: Array) -> Any:
    total, difference = np.expand_dims(x, 1) + points, np.expand_dims(x, 1) - points
    return -np.sum(np.where(total == 0, 0.0, difference * difference / np.where(total == 0, 1.0, total)), axis=-1)


def _unit(x: Any) -> Any:
    values = values_of(x)
    length = np.sqrt(np.sum(values * values, axis=-1, keepdims=True))
    return x / np.where(length == 0, 1.0, length)


KERNELS: dict[str, Callable[..., Any]] = {
    "additive_chi2": lambda x, p, **_: _chi2(x, p),
    "chi2": lambda x, p, gamma, **_: np.exp(gamma * _chi2(x, p)),
    "cosine": lambda x, p, **_: _unit(x) @ _unit(p).T,
    "laplacian": lambda x, p, gamma, **_: np.exp(-gamma * np.sum(np.abs(np.expand_dims(x, 1) - p), axis=-1)),
    "linear": lambda x, p, **_: x @ p.T,
    "poly": lambda x, p, gamma, coef0, degree: (gamma * (x @ p.T) + coef0) ** degree,
    "precomputed": lambda x, p, **_: x,
    "rbf": lambda x, p, gamma, **_: np.exp(-gamma * squares(x, p)),
    "sigmoid": lambda x, p, gamma, coef0, **_: np.tanh(gamma * (x @ p.T) + coef0),
}
KERNELS["polynomial"] = KERNELS["poly"]
PRODUCTS = ("cosine", "linear", "poly", "polynomial", "rbf", "sigmoid")  # of rows, which may be sparse


def kernel(name: Any, x: Any, points: Any, gamma: Any = None, coef0: Any = None, degree: Any = None) -> Any:
    """Return a kernel of each row and each point. None stands for the default of ``sklearn.metrics.pairwise``."""
    if name not in KERNELS:
        raise MlaotError(f"the kernel {name!r:.60} cannot be converted; known are {', '.join(KERNELS)}")
    x, points = join(x, sparse=name in PRODUCTS), np.asarray(dense(points), np.float64)
    if gamma is None:
        gamma = 1.0 if name == "chi2" else 1 / points.shape[-1]
    return KERNELS[name](
        x, points, gamma=gamma, coef0=1.0 if coef0 is None else coef0, degree=3 if degree is None else degree
    )


def _with_supports(estimator: Any, x: Any, weight: Array) -> Any:
    """Return the products of weights [outputs, support vectors] with kernels."""
    if estimator.kernel == "precomputed":
        return x[:, estimator.support_] @ weight.T
    vectors = dense(estimator.support_vectors_)
    if estimator.kernel == "linear":
        return x @ (weight @ vectors).T
    return kernel(estimator.kernel, x, vectors, estimator._gamma, estimator.coef0, estimator.degree) @ weight.T


@rule("predict", "SVR NuSVR", sparse=True)
def support_regression(estimator: Any, x: Any) -> Any:
    return _with_supports(estimator, x, dense(estimator.dual_coef_))[:, 0] + estimator.intercept_[0]


@rule("decision_function", "OneClassSVM", sparse=True)
def one_class_decision(estimator: Any, x: Any) -> Any:
    return support_regression(estimator, x)


@rule("score_samples", "OneClassSVM", sparse=True)
def one_class_score(estimator: Any, x: Any) -> Any:
    return support_regression(estimator, x) + estimator.offset_


@rule("predict", "OneClassSVM", sparse=True)
def one_class_side(estimator: Any, x: Any) -> Any:
    return sign(support_regression(estimator, x) > 0)


def _pairs(estimator: Any, x: Any) -> Any:
    """Return the score of each pair of classes, which is positive if the first class is likelier."""
    coefficients, counts = dense(estimator._dual_coef_), estimator._n_support
    ends, rows = np.cumsum([0, *counts]), []
    for i in range(len(counts)):
        for j in range(i + 1, len(counts)):
            row = np.zeros(coefficients.shape[1])
            mine, theirs = slice(ends[i], ends[i + 1]), slice(ends[j], ends[j + 1])
            row[mine], row[theirs] = coefficients[j - 1, mine], coefficients[i, theirs]
            rows.append(row)
    return _with_supports(estimator, x, np.array(rows)) + estimator._intercept_


@rule("decision_function", "BaseSVC", sparse=True)
def support_decision(estimator: Any, x: Any) -> Any:
    pairs, count = _pairs(estimator, x), len(estimator.classes_)
    if count == 2:
        return -pairs[:, 0]
    return one_against_one(pairs < 0, -pairs, count) if estimator.decision_function_shape == "ovr" else pairs


def one_against_one(is_second: Any, confidence: Any, count: int) -> Any:
    """Count the pairs that each class wins. The confidences break ties."""
    first, second = np.triu_indices(count, 1)
    wins, losses = (np.float64(np.arange(count) == np.reshape(side, (-1, 1))) for side in (first, second))
    won = astype(is_second, np.float64)
    total = confidence @ (losses - wins)
    return (1 - won) @ wins + won @ losses + total / (3 * (np.abs(total) + 1))


@rule("class_index", "BaseSVC", sparse=True)
def support_class(estimator: Any, x: Any) -> Any:
    count = len(estimator.classes_)
    if estimator.break_ties and estimator.decision_function_shape == "ovr" and count > 2:
        return np.argmax(support_decision(estimator, x), axis=-1)
    return np.argmax(votes_of_pairs(_pairs(estimator, x), count), axis=-1)


@rule("predict_proba", "BaseSVC", sparse=True)
def support_shares(estimator: Any, x: Any) -> Any:
    """Compute the probabilities of classes by coupling Platt's probabilities of pairs."""
    odds = _pairs(estimator, x) * estimator._probA + estimator._probB
    return couple(sigmoid(-odds), len(estimator.classes_))


@rule("predict", "KernelRidge", sparse=True)
def kernel_ridge(estimator: Any, x: Any) -> Any:
    return _pairwise(estimator, x, estimator.X_fit_) @ estimator.dual_coef_


def _pairwise(estimator: Any, x: Any, points: Any) -> Any:
    """Return the kernel of an estimator's parameters."""
    options = estimator.kernel_params or {}
    given = {name: getattr(estimator, name) for name in ("gamma", "coef0", "degree") if name not in options}
    return kernel(estimator.kernel, x, points, **given | options)


@rule("transform", "Nystroem", sparse=True)
def nystroem(estimator: Any, x: Any) -> Any:
    return _pairwise(estimator, x, estimator.components_) @ estimator.normalization_.T


@rule("transform", "KernelPCA")
def kernel_components(estimator: Any, x: Any) -> Any:
    gamma = getattr(estimator, "gamma_", estimator.gamma)
    own = kernel(estimator.kernel, x, estimator.X_fit_, gamma, estimator.coef0, estimator.degree)
    values = estimator.eigenvalues_
    scale = np.where(values != 0, 1 / np.sqrt(np.where(values != 0, values, 1.0)), 0.0)
    return center(estimator._centerer, own) @ (estimator.eigenvectors_ * scale)


@rule("transform", "RBFSampler")
def fourier_features(estimator: Any, x: Any) -> Any:
    angle = x @ estimator.random_weights_ + estimator.random_offset_
    return np.cos(angle) * np.sqrt(2.0 / estimator.n_components)


@rule("transform", "SkewedChi2Sampler")
def skewed_features(estimator: Any, x: Any) -> Any:
    angle = np.log(x + estimator.skewedness) @ estimator.random_weights_ + estimator.random_offset_
    return np.cos(angle) * (np.sqrt(2.0) / np.sqrt(estimator.n_components))


@rule("transform", "AdditiveChi2Sampler")
def additive_features(estimator: Any, x: Any) -> Any:
    """Compute Fourier features of logarithms, which are zeros for a zero."""
    interval = estimator.sample_interval or {1: 0.8, 2: 0.5, 3: 0.4}[estimator.sample_steps]
    safe = np.where(x == 0, 1.0, x)
    parts = [np.sqrt(x * interval)]
    for j in range(1, estimator.sample_steps):
        factor = np.where(x == 0, 0.0, np.sqrt(2 * x * interval / np.cosh(np.pi * j * interval)))
        angle = j * interval * np.log(safe)
        parts += [factor * np.cos(angle), factor * np.sin(angle)]
    return np.concatenate(parts, axis=-1)


@rule("transform", "PolynomialCountSketch")
def sketch(estimator: Any, x: Any) -> Any:
    """Multiply count sketches as polynomials, by discrete Fourier transforms, which are linear in the features."""
    count = estimator.n_components
    scale = np.full(estimator.indexHash_.shape[1], np.sqrt(estimator.gamma))
    if estimator.coef0 != 0:
        x = np.concatenate([x, np.ones_like(x[:, :1])], axis=-1)
        scale[-1] = np.sqrt(estimator.coef0)
    real: Any = None
    imaginary: Any = None
    for index, bit in zip(estimator.indexHash_, estimator.bitHash_, strict=True):
        table = np.zeros((len(index), count))
        table[np.arange(len(index)), index] = bit * scale
        spectrum = np.fft.rfft(table, axis=1)
        a, b = x @ spectrum.real, x @ spectrum.imag
        real, imaginary = (a, b) if real is None else (real * a - imaginary * b, real * b + imaginary * a)
    unit = np.eye(count // 2 + 1)
    return real @ np.fft.irfft(unit, count, axis=1) + imaginary @ np.fft.irfft(1j * unit, count, axis=1)


def covariance(own: Any, x: Any, points: Array) -> Any:
    """Return the covariance of each row and each point by a kernel object of a Gaussian process."""
    name = type(own).__name__
    if name in ("Sum", "Product"):
        a, b = covariance(own.k1, x, points), covariance(own.k2, x, points)
        return a + b if name == "Sum" else a * b
    if name not in COVARIANCES:
        raise MlaotError(f"the kernel {name} of a Gaussian process cannot be converted")
    return COVARIANCES[name](own, x, points)


def variance(own: Any, x: Any) -> Any:
    """Return the covariance of each row with itself by a kernel object."""
    match type(own).__name__:
        case "Sum":
            return variance(own.k1, x) + variance(own.k2, x)
        case "Product":
            return variance(own.k1, x) * variance(own.k2, x)
        case "Exponentiation":
            return variance(own.kernel, x) ** own.exponent
        case "ConstantKernel":
            return own.constant_value
        case "WhiteKernel":
            return own.noise_level
        case "DotProduct":
            return np.sum(x * x, axis=-1) + own.sigma_0**2
        case "RBF" | "Matern" | "RationalQuadratic" | "ExpSineSquared":
            return 1.0
        case name:
            raise MlaotError(f"the kernel {name} of a GaussianProcessClassifier cannot be converted")


def _matern(own: Any, x: Any, points: Array) -> Any:
    square = squares(x / own.length_scale, points / own.length_scale)
    distance = np.sqrt(square)
    if own.nu == 0.5:
        return np.exp(-distance)
    if own.nu == 1.5:
        scaled = distance * np.sqrt(3)
        return (1.0 + scaled) * np.exp(-scaled)
    if own.nu == 2.5:
        scaled = distance * np.sqrt(5)
        return (1.0 + scaled + scaled**2 / 3.0) * np.exp(-scaled)
    if own.nu == np.inf:
        return np.exp(-square / 2.0)
    raise MlaotError(f"a Matern kernel with nu={own.nu} cannot be converted; known are 0.5, 1.5, 2.5 and inf")


COVARIANCES: dict[str, Callable[[Any, Any, Array], Any]] = {
    "ConstantKernel": lambda own, x, points: own.constant_value,
    "DotProduct": lambda own, x, points: x @ points.T + own.sigma_0**2,
    "Exponentiation": lambda own, x, points: covariance(own.kernel, x, points) ** own.exponent,
    "ExpSineSquared": lambda own, x, points: np.exp(
        -2 * (np.sin(np.pi / own.periodicity * np.sqrt(squares(x, points))) / own.length_scale) ** 2
    ),
    "Matern": _matern,
    "PairwiseKernel": lambda own, x, points: kernel(
        own.metric, x, points, **{"gamma": own.gamma} | (own.pairwise_kernels_kwargs or {})
    ),
    "RBF": lambda own, x, points: np.exp(-0.5 * squares(x / own.length_scale, points / own.length_scale)),
    "RationalQuadratic": lambda own, x, points: (
        (1 + squares(x, points) / (2 * own.alpha * own.length_scale**2)) ** -own.alpha
    ),
    "WhiteKernel": lambda own, x, points: 0.0,
}


@rule("predict", "GaussianProcessRegressor")
def process_mean(estimator: Any, x: Any) -> Any:
    own = covariance(estimator.kernel_, x, estimator.X_train_)
    return estimator._y_train_std * (own @ estimator.alpha_) + estimator._y_train_mean


def _latent(estimator: Any, x: Any) -> tuple[Any, Any]:
    """Return kernels with the fitted points, and the means that follow from them."""
    own = covariance(estimator.kernel_, x, estimator.X_train_)
    return own, own @ (estimator.y_train_ - estimator.pi_)


@rule("class_index predict", "_BinaryGaussianProcessClassifierLaplace")  # of two classes, which are 0 and 1
def process_class(estimator: Any, x: Any) -> Any:
    return astype(_latent(estimator, x)[1] > 0, np.int64)


@rule("predict_proba", "_BinaryGaussianProcessClassifierLaplace")
def process_shares(estimator: Any, x: Any) -> Any:
    """Integrate the logistic function over a normal distribution, as a sum of error functions."""
    from scipy.linalg import solve_triangular
    from sklearn.gaussian_process._gpc import COEFS, LAMBDAS

    own, mean = _latent(estimator, x)
    turn = solve_triangular(estimator.L_, np.diag(estimator.W_sr_), lower=True)
    spread = own @ turn.T
    deviation = variance(estimator.kernel_, x) - np.sum(spread * spread, axis=-1)
    narrow, weight = np.ravel(LAMBDAS), np.ravel(COEFS)
    alpha = np.expand_dims(1 / (2 * deviation), -1)
    errors = erf(np.expand_dims(mean, -1) * (narrow * np.sqrt(alpha / (alpha + narrow**2))))
    second = np.sum(weight * 0.5 * errors, axis=-1) + 0.5 * np.sum(weight)
    return np.stack([1 - second, second], axis=-1)


@rule("class_index", "GaussianProcessClassifier")
def processes_class(estimator: Any, x: Any) -> Any:
    return compute(estimator.base_estimator_, "class_index", x)


@rule("predict_proba", "GaussianProcessClassifier")
def processes_shares(estimator: Any, x: Any) -> Any:
    return compute(estimator.base_estimator_, "predict_proba", x)


@rule("predict_proba", "BaseLabelPropagation")
def spread_labels(estimator: Any, x: Any) -> Any:
    known = estimator.label_distributions_
    if estimator.kernel == "rbf":
        found = kernel("rbf", x, estimator.X_, estimator.gamma) @ known
    elif estimator.kernel == "knn":
        found = np.sum(take(known, nearest(estimator.nn_fit, x)[1]), axis=1)
    else:
        raise MlaotError(f"a {type(estimator).__name__} with a function as its kernel cannot be converted")
    return found / np.sum(found, axis=-1, keepdims=True)
