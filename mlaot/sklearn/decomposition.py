"""Decompositions, mixtures, clusters, covariances and manifolds."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.numpy import astype, logsumexp, sigmoid
from mlaot.onnx.ops.ml import take
from mlaot.sklearn.kernels import squares
from mlaot.sklearn.neighbors import moved_points, nearest, within
from mlaot.sklearn.rules import Array, Unknown, compute, rule, sign
from mlaot.sklearn.words import is_sparse, squared_distances


@rule("transform", "_BasePCA")
def principal(estimator: Any, x: Any) -> Any:
    components = np.asarray(estimator.components_)
    if estimator.whiten:
        smallest = np.finfo(components.dtype).eps
        scale = np.sqrt(estimator.explained_variance_)
        components = components / np.maximum(scale, smallest)[:, None]
    x = x if estimator.mean_ is None else x - estimator.mean_
    return x @ components.T


@rule("score_samples", "PCA FactorAnalysis")
def likelihood(estimator: Any, x: Any) -> Any:
    """Compute the logarithm of the density of the normal distribution."""
    precision, x = estimator.get_precision(), x - estimator.mean_
    shift = len(precision) * np.log(2 * np.pi) - np.linalg.slogdet(precision)[1]
    return -0.5 * (np.sum(x * (x @ precision), axis=-1) + shift)


@rule("transform", "FastICA")
def independent(estimator: Any, x: Any) -> Any:
    x = x - estimator.mean_ if estimator.whiten else x
    return x @ estimator.components_.T


@rule("transform", "FactorAnalysis")
def factors(estimator: Any, x: Any) -> Any:
    weight = estimator.components_ / estimator.noise_variance_
    inner = np.linalg.inv(np.eye(len(weight)) + weight @ estimator.components_.T)
    return (x - estimator.mean_) @ (weight.T @ inner)


@rule("transform", "_BaseSparsePCA")
def sparse_components(estimator: Any, x: Any) -> Any:
    components = estimator.components_
    gram = components @ components.T + estimator.ridge_alpha * np.eye(len(components))
    return (x - estimator.mean_) @ np.linalg.solve(gram, components).T


@rule("transform", "_BaseSparseCoding")
def sparse_code(estimator: Any, x: Any) -> Any:
    """Encode rows by atoms of a dictionary: by a threshold, or by orthogonal matching pursuit."""
    atoms = np.asarray(getattr(estimator, "components_", getattr(estimator, "dictionary", None)))
    algorithm, alpha = estimator.transform_algorithm, estimator.transform_alpha
    if algorithm == "threshold":
        alpha = 1.0 if alpha is None else alpha
        product = x @ atoms.T
        code = np.sign(product) * np.maximum(np.abs(product) - alpha, 0)
        code = np.maximum(code, 0) if estimator.positive_code else code
    elif algorithm == "omp" and (alpha is None or estimator.transform_n_nonzero_coefs is not None):
        count = estimator.transform_n_nonzero_coefs or max(atoms.shape[1] // 10, 1)
        code = _pursue(atoms, x, count)
    else:
        raise MlaotError(
            f"a {type(estimator).__name__} with transform_algorithm={algorithm!r} solves a problem for each row; "
            "converted are 'threshold', and 'omp' for a number of coefficients"
        )
    return np.concatenate([np.maximum(code, 0), -np.minimum(code, 0)], axis=-1) if estimator.split_sign else code


def _pursue(atoms: Array, x: Any, count: int) -> Any:
    """Repeatedly select the atom that fits the residual best, and fit all selected atoms."""
    gram, product = atoms @ atoms.T, x @ atoms.T
    taken: list[Any] = []
    left, code = product, None
    for _ in range(count):
        place = np.argmax(np.abs(left), axis=-1)
        taken.append(place)
        chosen = np.stack(taken, axis=-1)
        inner = take_pairs(gram, chosen)
        right = np.take_along_axis(product, chosen, axis=-1)
        weights = solve(inner, right)
        ones = astype(np.expand_dims(chosen, -1) == np.arange(len(atoms)), np.float64)
        code = np.sum(ones * np.expand_dims(weights, -1), axis=1)
        left = product - code @ gram
    return code


def take_pairs(matrix: Array, places: Any) -> Any:
    """Return the elements of a matrix in rows and columns [batch, k] as matrices [batch, k, k]."""
    flat = np.expand_dims(places, -1) * len(matrix) + np.expand_dims(places, -2)
    return take(matrix.ravel(), flat)


def solve(matrix: Any, right: Any) -> Any:
    """Solve positive definite systems [batch, k, k] of few unknowns by Gaussian elimination."""
    size = int(right.shape[1])
    rows = [[matrix[:, i, j] for j in range(size)] + [right[:, i]] for i in range(size)]
    for i in range(size):
        for j in range(i + 1, size):
            factor = rows[j][i] / rows[i][i]
            rows[j] = [None] * (i + 1) + [
                b - factor * a for a, b in zip(rows[i][i + 1 :], rows[j][i + 1 :], strict=True)
            ]
    found: list[Any] = [None] * size
    for i in reversed(range(size)):
        known = sum(rows[i][j] * found[j] for j in range(i + 1, size))
        found[i] = (rows[i][size] - known) / rows[i][i]
    return np.stack(found, axis=-1)


@rule("transform", "BernoulliRBM")
def hidden(estimator: Any, x: Any) -> Any:
    return sigmoid(x @ estimator.components_.T + estimator.intercept_hidden_)


@rule("score_samples", "BernoulliRBM")
def pseudo_likelihood(estimator: Any, x: Any) -> Any:
    raise Unknown("the score_samples of a BernoulliRBM are random")


@rule("transform", "FeatureAgglomeration")
def pool(estimator: Any, x: Any) -> Any:
    """Compute the mean, or another function, of the features of each cluster."""
    parts = [np.flatnonzero(estimator.labels_ == label) for label in np.unique(estimator.labels_)]
    try:
        return np.stack([estimator.pooling_func(x[:, part], axis=1) for part in parts], axis=-1)
    except Exception as error:  # of a function that was not written to be traced
        raise MlaotError(f"the pooling_func of a FeatureAgglomeration cannot be traced: {error!s:.100}") from None


@rule("transform", "Isomap")
def geodesic(estimator: Any, x: Any) -> Any:
    """Return the kernel of geodesic distances by way of the neighbours."""
    table = np.asarray(estimator.dist_matrix_, np.float64)
    if estimator.n_neighbors is None:
        distance, near = within(estimator.nbrs_, x)
        ways = np.where(np.expand_dims(near, -1), np.expand_dims(distance, -1) + table, np.inf)
    else:
        distance, index = nearest(estimator.nbrs_, x, estimator.n_neighbors)
        ways = take(table, index) + np.expand_dims(distance, -1)
    shortest = np.min(ways, axis=1)
    return compute(estimator.kernel_pca_, "transform", -0.5 * shortest * shortest)


@rule("transform", "LocallyLinearEmbedding")
def barycenter(estimator: Any, x: Any) -> Any:
    """Return the weights with which neighbours approximate the row."""
    count = estimator.n_neighbors
    _, index = nearest(estimator.nbrs_, x, count)
    difference = take(np.asarray(estimator.nbrs_._fit_X, np.float64), index) - np.expand_dims(x, 1)
    gram = np.sum(np.expand_dims(difference, 2) * np.expand_dims(difference, 1), axis=-1)
    trace = np.expand_dims(np.sum(gram * np.eye(count), axis=(1, 2)), (1, 2))
    gram = gram + np.where(trace > 0, estimator.reg * trace, estimator.reg) * np.eye(count)
    weights = solve(gram, np.ones_like(difference[:, :, 0]))
    weights = weights / np.sum(weights, axis=1, keepdims=True)
    return np.sum(take(estimator.embedding_, index) * np.expand_dims(weights, -1), axis=1)


@rule("predict", "_BaseKMeans MeanShift AffinityPropagation", sparse=True)
def nearest_center(estimator: Any, x: Any) -> Any:
    return _nearest(x, estimator.cluster_centers_)


def _nearest(x: Any, points: Any) -> Any:
    """Return the index of the nearest point, computed by products."""
    if is_sparse(x):
        return np.argmin(squared_distances(x, points), axis=-1)
    origin, _, weights, lengths = moved_points(np.asarray(points, np.float64))
    return np.argmin((x - origin) @ weights + lengths, axis=-1)


@rule("transform", "_BaseKMeans", sparse=True)
def to_centers(estimator: Any, x: Any) -> Any:
    return np.sqrt(squares(x, estimator.cluster_centers_))


@rule("predict", "BisectingKMeans")
def bisect(estimator: Any, x: Any) -> Any:
    """Descend to the nearer one of two centers, from the root of their tree."""
    mean = getattr(estimator, "_X_mean", 0.0)

    def label(node: Any) -> Any:
        if node.left is None:
            return node.label
        apart = squares(x, np.stack([node.left.center, node.right.center]) + mean)
        return np.where(apart[:, 0] <= apart[:, 1], label(node.left), label(node.right))

    found = label(estimator._bisecting_tree)
    return astype(found if np.ndim(found) else np.zeros_like(x[:, 0]) + found, np.int64)


@rule("predict", "Birch")
def birch_label(estimator: Any, x: Any) -> Any:
    return take(estimator.subcluster_labels_, _nearest(x, estimator.subcluster_centers_))


@rule("transform", "Birch")
def birch_distances(estimator: Any, x: Any) -> Any:
    return np.sqrt(squares(x, estimator.subcluster_centers_))


def _gaussians(estimator: Any, x: Any) -> Any:
    """Return the logarithm of the weighted density of each component."""
    roots, means, count = estimator.precisions_cholesky_, estimator.means_, estimator.means_.shape[1]
    match estimator.covariance_type:
        case "full":
            parts = [(x - mean) @ root for mean, root in zip(means, roots, strict=True)]
            logs = np.array([np.sum(np.log(np.diag(root))) for root in roots])
        case "tied":
            parts = [(x - mean) @ roots for mean in means]
            logs = np.sum(np.log(np.diag(roots)))
        case _:  # diag, spherical
            roots = np.reshape(roots, (len(means), -1))
            parts = [(x - mean) * root for mean, root in zip(means, roots, strict=True)]
            logs = np.sum(np.log(np.broadcast_to(roots, means.shape)), axis=1)
    density = -0.5 * np.stack([np.sum(part * part, axis=-1) for part in parts], axis=-1)
    shift = logs - 0.5 * count * np.log(2 * np.pi) + estimator._estimate_log_weights()
    if hasattr(estimator, "degrees_of_freedom_"):  # a BayesianGaussianMixture
        from scipy.special import digamma

        degrees = estimator.degrees_of_freedom_
        spread = count * np.log(2.0) + np.sum(digamma(0.5 * (degrees - np.arange(count)[:, None])), axis=0)
        shift = shift - 0.5 * count * np.log(degrees) + 0.5 * (spread - count / estimator.mean_precision_)
    return density + shift


@rule("predict", "BaseMixture")
def component(estimator: Any, x: Any) -> Any:
    return np.argmax(_gaussians(estimator, x), axis=-1)


@rule("score_samples", "BaseMixture")
def mixed_density(estimator: Any, x: Any) -> Any:
    return logsumexp(_gaussians(estimator, x), axis=-1)


@rule("predict_proba", "BaseMixture")
def responsibilities(estimator: Any, x: Any) -> Any:
    logs = _gaussians(estimator, x)
    return np.exp(logs - logsumexp(logs, axis=-1, keepdims=True))


@rule("score_samples", "EllipticEnvelope")
def minus_mahalanobis(estimator: Any, x: Any) -> Any:
    x = x - estimator.location_
    return -np.sum((x @ estimator.get_precision()) * x, axis=-1)


@rule("decision_function", "EllipticEnvelope")
def envelope_decision(estimator: Any, x: Any) -> Any:
    return minus_mahalanobis(estimator, x) - estimator.offset_


@rule("predict", "EllipticEnvelope")
def envelope_side(estimator: Any, x: Any) -> Any:
    return sign(envelope_decision(estimator, x) >= 0)
