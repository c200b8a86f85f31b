"""Functions of feature vectors: affine and bilinear maps, look-ups, norms, distances and angles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.numpy import arange, filled, scatter, stop_gradient
from mlaot.frontend.numpy.indexing import in_range
from mlaot.nn.arguments import Array, as_like, check_choice, check_shape, is_static

__all__ = ["bilinear", "cosine_similarity", "embedding", "embedding_bag", "flatten", "linear", "normalize", "one_hot"]
__all__ += ["pairwise_distance"]


def linear(input: Array, weight: Array, bias: Array | None = None) -> Array:
    """Compute ``x w^T + b`` for x [.., in], weight [out, in] and bias [out]: [.., out]."""
    if not input.ndim or not weight.ndim or input.shape[-1] != weight.shape[-1]:
        raise MlaotError(f"linear: a weight {list(weight.shape)} does not fit an input {list(input.shape)}")
    check_shape(bias, weight.shape[:-1], "linear: bias")
    y = input @ np.swapaxes(weight, -1, -2) if weight.ndim > 1 else input @ weight
    return y if bias is None else y + bias


def embedding(input: Array, weight: Array, padding_idx: int | None = None) -> Array:
    """Look up rows of ``weight`` [rows, features] by index. The row ``padding_idx`` gets no gradient.

    An index out of range is an error if a caller passes it. An index that the model computes is clamped, as by
    ``np.take``; a negative one counts from the end first.
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
    """Return one-hot rows of int64 along a new last axis: 1 at the class in ``tensor``, and 0 elsewhere.

    With ``num_classes`` of -1 the number of classes is the largest class of the array plus 1. A number that is no class
    is an error if a caller passes it, and gives a row of zeros if the model computes it.
    """
    if num_classes < 0:
        if not isinstance(tensor, np.ndarray):
            raise MlaotError("one_hot: give num_classes, as the largest class of a traced array is not known")
        num_classes = int(tensor.max()) + 1
    return (np.expand_dims(in_range(tensor, num_classes), -1) == np.arange(num_classes)).astype(np.int64)


def embedding_bag(
    input: Array,
    weight: Array,
    offsets: Array | None = None,
    *,
    mode: str = "mean",
    per_sample_weights: Array | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Array:
    """Look up rows of ``weight`` [rows, features] by index, and reduce each bag of rows to one: [bags, features].

    Each row of ``input`` [bags, n] is a bag. If ``input`` is [n], bag i begins at ``offsets[i]``, and with
    ``include_last_offset`` the last offset is the end of the last bag. ``mode`` is "sum", "mean" or "max". In mode
    "sum" ``per_sample_weights`` multiply the rows. The index ``padding_idx`` does not count. A bag without any other
    index gives zeros.
    """
    check_choice(mode, ("sum", "mean", "max"), "embedding_bag: mode")
    if (input.ndim, offsets is None) not in ((2, True), (1, False)):
        raise MlaotError(f"embedding_bag: expected [bags, n], or [n] and offsets, got {list(input.shape)}")
    if per_sample_weights is not None:
        check_shape(per_sample_weights, input.shape, "embedding_bag: per_sample_weights")
        if mode != "sum":
            raise MlaotError(f"embedding_bag: per_sample_weights need mode 'sum', got {mode!r}")
    rows = embedding(input, weight, padding_idx)
    rows = rows if per_sample_weights is None else rows * np.expand_dims(as_like(per_sample_weights, rows), -1)
    number = None if padding_idx is None else padding_idx % weight.shape[0]
    counts = np.ones_like(input, dtype=bool) if number is None else input != number
    if offsets is None:
        bags, total = None, input.shape[0]
    else:
        starts = offsets[:-1] if include_last_offset else offsets
        bags = np.searchsorted(starts, arange(input.shape[0]), side="right") - 1
        total = starts.shape[0]
    size = _bagged(counts, bags, total, "sum", 0)
    if mode == "max":
        best = _bagged(np.where(np.expand_dims(counts, -1), rows, -math.inf), bags, total, "max", -math.inf)
        return np.where(np.expand_dims(size == 0, -1), 0.0, best)
    summed = _bagged(np.where(np.expand_dims(counts, -1), rows, 0.0), bags, total, "sum", 0.0)
    return summed if mode == "sum" else summed / np.expand_dims(as_like(np.maximum(size, 1), rows), -1)


def _bagged(x: Array, bags: Array | None, total: Any, mode: str, start: float) -> Array:
    """Reduce [bags, n, ..] over n, or reduce the rows of [n, ..] by bag, where ``bags`` [n] is the bag of each row."""
    x = x.astype(np.int64) if x.dtype == np.bool_ else x
    if bags is None:
        return np.sum(x, axis=1) if mode == "sum" else np.max(x, axis=1, initial=start)
    empty = as_like(filled((total, *x.shape[1:]), start), x)
    return scatter(empty, bags, x, mode={"sum": "add", "max": "max"}[mode])


def pairwise_distance(x1: Array, x2: Array, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Array:
    """Compute the p-norm of ``x1 - x2 + eps`` along the last axis."""
    return np.linalg.norm(x1 - x2 + eps, ord=p, axis=-1, keepdims=keepdim)


def bilinear(input1: Array, input2: Array, weight: Array, bias: Array | None = None) -> Array:
    """Compute ``x1^T w x2 + b`` of x1 [.., in1] and x2 [.., in2] with a weight w [out, in1, in2]: [.., out]."""
    ends = [x.shape[-1] if x.ndim else None for x in (input1, input2)]
    if weight.ndim != 3 or tuple(weight.shape[1:]) != tuple(ends):
        shapes = f"{list(input1.shape)}, {list(input2.shape)}"
        raise MlaotError(f"bilinear: a weight {list(weight.shape)} does not fit inputs {shapes}")
    check_shape(bias, weight.shape[:1], "bilinear: bias")
    y = np.einsum("...i,oij,...j->...o", input1, weight, input2, optimize=True)
    return y if bias is None else y + bias


def normalize(input: Array, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Array:
    """Divide by the p-norm along ``dim``, or by ``eps`` if the norm is smaller."""
    if p == 2:
        return input / np.sqrt(np.maximum(np.sum(input * input, axis=dim, keepdims=True), eps * eps))
    size = np.abs(input)
    if p == math.inf:
        return input / np.maximum(np.max(size, axis=dim, keepdims=True), eps)
    if p == 1:
        return input / np.maximum(np.sum(size, axis=dim, keepdims=True), eps)
    return input / np.maximum(np.sum(size**p, axis=dim, keepdims=True) ** (1.0 / p), eps)


def cosine_similarity(x1: Array, x2: Array, dim: int = 1, eps: float = 1e-8) -> Array:
    """Compute the cosine of the angle between vectors along ``dim``. A norm below ``eps`` counts as ``eps``."""
    lengths = [np.sqrt(np.maximum(np.sum(x * x, axis=dim), eps * eps)) for x in (x1, x2)]
    return np.sum(x1 * x2, axis=dim) / (lengths[0] * lengths[1])


def flatten(input: Array, start_dim: int = 0, end_dim: int = -1) -> Array:
    """Merge the axes from ``start_dim`` to ``end_dim`` into one."""
    if not input.ndim:
        return np.reshape(input, (1,))
    first, last = start_dim % input.ndim, end_dim % input.ndim
    return np.reshape(input, (*input.shape[:first], _product(input.shape[first : last + 1]), *input.shape[last + 1 :]))


def _product(sizes: Sequence[Any]) -> Any:
    """Multiply dims. A named dim must be the left factor, as a number cannot multiply it."""
    total: Any = 1
    for size in sizes:
        total = total * size if is_static(size) else size * total
    return total
