"""Functions that draw random numbers: dropout of several kinds, random leaky slopes, and the Gumbel softmax."""

from __future__ import annotations

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.numpy import random, stop_gradient
from mlaot.nn.arguments import Array, as_like, by_rank
from mlaot.nn.functional.activations import SELU_ALPHA, SELU_SCALE, leaky_relu, softmax

__all__ = ["alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout"]
__all__ += ["gumbel_softmax", "rrelu"]


def dropout(input: Array, p: float = 0.5, training: bool = True) -> Array:
    """Set each element to zero with probability ``p``, and multiply the others by ``1 / (1 - p)``."""
    return _dropout(0, input, p, training)


def _dropout(n: int, input: Array, p: float = 0.5, training: bool = True) -> Array:
    """Set whole channels of [(n,) c, *spatial] to zero with probability ``p``.

    Multiply the others by ``1 / (1 - p)``.
    """
    _check_probability("dropout", p)
    if not training or p == 0:
        return input
    if p == 1:
        return input * 0.0
    shape = (*input.shape[: input.ndim - n], *(1,) * n)
    kept = np.where(random.bernoulli(1.0 - p, shape), 1.0 / (1.0 - p), 0.0)
    return input * as_like(kept, input)  # a product: nan is not dropped


dropout1d, dropout2d, dropout3d = by_rank(_dropout)


def alpha_dropout(input: Array, p: float = 0.5, training: bool = False) -> Array:
    """Set each element to the least value of ``selu`` with probability ``p``.

    A scale and a shift then keep the mean 0 and the variance 1 (Klambauer et al., 2017).
    """
    return _alpha_dropout(input, p, training, input.shape)


def feature_alpha_dropout(input: Array, p: float = 0.5, training: bool = False) -> Array:
    """Apply ``alpha_dropout`` to whole channels of [n, c, *spatial]."""
    if training and input.ndim < 2:
        raise MlaotError(f"feature_alpha_dropout: expected an input [n, c, ..], got {list(input.shape)}")
    return _alpha_dropout(input, p, training, (*input.shape[:2], *(1,) * (input.ndim - 2)))


def rrelu(input: Array, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False) -> Array:
    """Compute ``x``, or ``slope * x`` where x is negative (Xu et al., 2015).

    In training, the slope of each element is drawn uniformly between ``lower`` and ``upper``; otherwise the slope is
    their mean.
    """
    if not lower <= upper:
        raise MlaotError(f"rrelu: expected lower of at most upper, got {lower}, {upper}")
    if not training:
        return leaky_relu(input, (lower + upper) / 2)
    slopes = as_like(random.uniform(input.shape, lower, upper), input)
    return np.where(input > 0, input, input * slopes)


def gumbel_softmax(logits: Array, tau: float = 1.0, hard: bool = False, *, dim: int = -1) -> Array:
    """Sample from the classes along ``dim`` with the probabilities of their logits (Jang et al., 2017).

    The smaller the temperature ``tau``, the nearer the result is to one-hot. With ``hard`` it is exactly one-hot, and
    has the gradient of the soft result.
    """
    waits = -np.log(np.maximum(random.uniform(logits.shape), 2.0**-25))  # exponentially distributed, none of them 0
    soft = softmax((logits - as_like(np.log(waits), logits)) / tau, dim)
    if not hard:
        return soft
    places = np.reshape(np.arange(soft.shape[dim]), [-1 if i == dim % soft.ndim else 1 for i in range(soft.ndim)])
    chosen = as_like(np.argmax(soft, axis=dim, keepdims=True) == places, soft)
    return chosen + (soft - stop_gradient(soft))


def _alpha_dropout(input: Array, p: float, training: bool, shape: tuple[int, ...]) -> Array:
    _check_probability("alpha_dropout", p)
    if not training or p == 0:
        return input
    if p == 1:
        return input * 0.0
    least = -SELU_ALPHA * SELU_SCALE
    scale = ((1.0 - p) * (1.0 + p * least * least)) ** -0.5
    kept = as_like(random.bernoulli(1.0 - p, shape), input)
    return input * kept * scale + ((1.0 - kept) * (least * scale) - least * scale * p)


def _check_probability(name: str, p: float) -> None:
    if not 0 <= p <= 1:
        raise MlaotError(f"{name}: expected a probability from 0 to 1, got {p}")
