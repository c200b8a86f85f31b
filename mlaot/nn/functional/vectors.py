"""Vectors of features: the affine map, look-ups, dropout, lengths and angles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.numpy import random, stop_gradient
from mlaot.frontend.numpy.indexing import in_range
from mlaot.nn.arguments import Array, as_like, by_rank, check_shape, is_static

__all__ = ["cosine_similarity", "dropout", "dropout1d", "dropout2d", "dropout3d", "embedding", "flatten"]
__all__ += ["linear", "normalize", "one_hot"]


def linear(input: Array, weight: Array, bias: Array | None = None) -> Array:
    """Compute ``x w^T + b``, weight [out, in]."""
    if not input.ndim or not weight.ndim or input.shape[-1] != weight.shape[-1]:
        raise MlaotError(f"linear: a weight {list(weight.shape)} does not fit an input {list(input.shape)}")
    check_shape(bias, weight.shape[:-1], "linear: bias")
    y = input @ np.swapaxes(weight, -1, -2) if weight.ndim > 1 else input @ weight
    return y if bias is None else y + bias


def embedding(input: Array, weight: Array, padding_idx: int | None = None) -> Array:
    """Look up rows of ``weight`` by number; the row ``padding_idx`` gets no gradient.

    A number that is not one of a row is an error where a caller passes it. One that the model computes is clamped, as
    by ``np.take``, after a negative one has been counted from the end.
    """
    if input.dtype.kind not in "iu":
        raise MlaotError(f"embedding: expected whole numbers of rows, got {input.dtype}")
    if weight.ndim != 2:
        raise MlaotError(f"embedding: weight: expected a table of vectors, got shape {list(weight.shape)}")
    rows = np.take(weight, in_range(input, weight.shape[0]), axis=0)
    if padding_idx is None:
        return rows
    number = padding_idx + weight.shape[0] if padding_idx < 0 else padding_idx
    return np.where(np.expand_dims(input == number, -1), stop_gradient(rows), rows)


def one_hot(tensor: Array, num_classes: int = -1) -> Array:
    """Return int64: 1 where the class is ``tensor``, else 0, along a new last axis.

    ``num_classes`` of -1 stands for as many classes as an array has. What is not a class is an error where a caller
    passes it, and a row of zeros where the model computes it.
    """
    if num_classes < 0:
        if not isinstance(tensor, np.ndarray):
            raise MlaotError("one_hot: give num_classes, as the largest class of a traced array is not known")
        num_classes = int(tensor.max()) + 1
    return (np.expand_dims(in_range(tensor, num_classes), -1) == np.arange(num_classes)).astype(np.int64)


def dropout(input: Array, p: float = 0.5, training: bool = True) -> Array:
    """Set each element to zero with probability ``p``, and scale the others by ``1 / (1 - p)``."""
    return _dropout(0, input, p, training)


def _dropout(n: int, input: Array, p: float = 0.5, training: bool = True) -> Array:
    """Drop out as ``dropout`` does, but whole channels of [(n,) c, *spatial]."""
    if not 0 <= p <= 1:
        raise MlaotError(f"dropout: expected a probability from 0 to 1, got {p}")
    if not training or p == 0:
        return input
    if p == 1:
        return input * 0.0
    shape = (*input.shape[: input.ndim - n], *(1,) * n)
    kept = np.where(random.bernoulli(1.0 - p, shape), 1.0 / (1.0 - p), 0.0)
    return input * as_like(kept, input)  # a product: nan is not dropped


dropout1d, dropout2d, dropout3d = by_rank(_dropout)


def normalize(input: Array, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Array:
    """Divide by the p-norm along ``dim``, or by ``eps`` where that is larger."""
    if p == 2:
        return input / np.sqrt(np.maximum(np.sum(input * input, axis=dim, keepdims=True), eps * eps))
    size = np.abs(input)
    if p == math.inf:
        return input / np.maximum(np.max(size, axis=dim, keepdims=True), eps)
    if p == 1:
        return input / np.maximum(np.sum(size, axis=dim, keepdims=True), eps)
    return input / np.maximum(np.sum(size**p, axis=dim, keepdims=True) ** (1.0 / p), eps)


def cosine_similarity(x1: Array, x2: Array, dim: int = 1, eps: float = 1e-8) -> Array:
    """Compute the cosine of the angle between vectors along ``dim``; a norm counts as ``eps`` at least."""
    lengths = [np.sqrt(np.maximum(np.sum(x * x, axis=dim), eps * eps)) for x in (x1, x2)]
    return np.sum(x1 * x2, axis=dim) / (lengths[0] * lengths[1])


def flatten(input: Array, start_dim: int = 0, end_dim: int = -1) -> Array:
    """Make one axis of those from ``start_dim`` to ``end_dim``."""
    if not input.ndim:
        return np.reshape(input, (1,))
    first, last = start_dim % input.ndim, end_dim % input.ndim
    return np.reshape(input, (*input.shape[:first], _product(input.shape[first : last + 1]), *input.shape[last + 1 :]))


def _product(sizes: Sequence[Any]) -> Any:
    """Multiply dims; one that is a name comes first, as a number does not know how to multiply it."""
    total: Any = 1
    for size in sizes:
        total = total * size if is_static(size) else size * total
    return total
