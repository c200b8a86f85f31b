"""Iterative factorizations: non-negative matrices, and topics of documents."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.numpy import zeros
from mlaot.frontend.trace.control import while_loop
from mlaot.sklearn.rules import rule

EPSILON = np.finfo(np.float32).eps
EULER = 0.577215664901532860606512090082402431


@rule("transform", "NMF")
def factorize(estimator: Any, x: Any) -> Any:
    """Minimize over one component after another, until the change of all rows together is small."""
    if estimator.solver != "cd" or estimator.shuffle:
        raise MlaotError("a NMF is converted with solver='cd' and shuffle=False")
    parts, features = estimator.components_, estimator.n_features_in_
    alpha = features * estimator.alpha_W
    gram = parts @ parts.T + alpha * (1 - estimator.l1_ratio) * np.eye(len(parts))
    product = x @ parts.T - alpha * estimator.l1_ratio

    def sweep(carry: Any) -> Any:
        weights, _, first, count = carry
        columns, change = [weights[:, i] for i in range(len(parts))], 0.0
        for i in range(len(parts)):
            slope = sum(gram[i, j] * columns[j] for j in range(len(parts))) - product[:, i]
            change = change + np.sum(np.abs(np.where(columns[i] == 0, np.minimum(slope, 0.0), slope)))
            if gram[i, i] != 0:
                columns[i] = np.maximum(columns[i] - slope / gram[i, i], 0.0)
        return np.stack(columns, axis=-1), change, np.where(count == 0, change, first), count + 1

    def goes_on(carry: Any) -> Any:
        _, change, first, count = carry
        return (count == 0) | ((first != 0) & (change > estimator.tol * first))

    start = (zeros((x.shape[0], len(parts)), np.float64), np.float64(0), np.float64(0), np.int64(0))
    return while_loop(goes_on, sweep, start, bound=estimator.max_iter)[0]


@rule("transform", "MiniBatchNMF")
def multiply(estimator: Any, x: Any) -> Any:
    """Apply multiplicative updates, which reduce the squared error, until the change of all rows together is small."""
    if estimator._beta_loss != 2:
        raise MlaotError("a MiniBatchNMF is converted with beta_loss='frobenius'")
    parts, alpha = estimator.components_, estimator.n_features_in_ * estimator.alpha_W
    gram, product = parts @ parts.T, x @ parts.T

    def turn(carry: Any) -> Any:
        weights, _ = carry
        below = weights @ gram + alpha * estimator.l1_ratio + alpha * (1 - estimator.l1_ratio) * weights
        new = weights * (product / np.where(below == 0, EPSILON, below))
        return new, np.sqrt(np.sum((new - weights) ** 2) / np.sum(new * new))

    first = zeros((x.shape[0], len(parts)), np.float64) + np.sqrt(np.mean(x) / len(parts))
    goes_on = (lambda carry: ~(carry[1] <= estimator.tol)) if estimator.tol > 0 else (lambda carry: np.bool(True))
    return while_loop(goes_on, turn, (first, np.float64(np.inf)), bound=estimator._transform_max_iter)[0]


@rule("transform", "LatentDirichletAllocation")
def topics(estimator: Any, x: Any) -> Any:
    """Alternate, for each row, between the topics of a document and of its words, until the former change little."""
    words, prior = estimator.exp_dirichlet_component_, estimator.doc_topic_prior_
    ones = zeros((x.shape[0], len(words)), np.float64) + 1.0

    def turn(carry: Any) -> Any:
        topic, likely, is_open = carry
        norm = likely @ words + np.finfo(np.float64).eps
        new = likely * ((x / norm) @ words.T) + prior
        return (
            np.where(is_open, new, topic),
            np.where(is_open, _expectation(new), likely),
            is_open & (np.mean(np.abs(new - topic), axis=-1, keepdims=True) >= estimator.mean_change_tol),
        )

    start = (ones, _expectation(ones), ones[:, :1] > 0)
    topic, _, _ = while_loop(lambda carry: np.any(carry[2]), turn, start, bound=estimator.max_doc_update_iter)
    return topic / np.sum(topic, axis=-1, keepdims=True)


def _expectation(topic: Any) -> Any:
    """Return the exponential of the mean logarithm of shares with a Dirichlet distribution."""
    return np.exp(_digamma(topic) - _digamma(np.sum(topic, axis=-1, keepdims=True)))


def _digamma(x: Any) -> Any:
    """Compute the digamma function (Bernardo, 1976)."""
    total, at = np.zeros_like(x), x
    for _ in range(6):
        is_small = at < 6
        total = total - np.where(is_small, 1 / at, 0.0)
        at = np.where(is_small, at + 1, at)
    r = 1 / at
    square = r * r
    series = np.log(at) - 0.5 * r - square * (1 / 12 - square * (1 / 120 - square / 252))
    return np.where(x <= 1e-6, -EULER - 1 / x, total + series)
