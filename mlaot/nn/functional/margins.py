"""Losses with a margin: between the scores of classes, between distances, or on the right side of 0."""

from __future__ import annotations

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend import numpy as functions
from mlaot.frontend.numpy.indexing import in_range
from mlaot.nn.arguments import Array, as_like, static
from mlaot.nn.functional.activations import logsigmoid
from mlaot.nn.functional.losses import as_float, check_shapes, chosen_of, class_weight, reduced
from mlaot.nn.functional.vectors import pairwise_distance

__all__ = ["cosine_embedding_loss", "margin_ranking_loss", "multi_margin_loss", "multilabel_margin_loss"]
__all__ += ["multilabel_soft_margin_loss", "soft_margin_loss", "triplet_margin_loss"]


def soft_margin_loss(input: Array, target: Array, *, reduction: str = "mean") -> Array:
    """Compute ``log(1 + exp(-input * target))`` for targets 1 and -1, without the overflow of PyTorch's."""
    check_shapes("soft_margin_loss", input, target)
    return reduced(functions.softplus(-input * as_float(target, input)), reduction)


def multilabel_soft_margin_loss(
    input: Array, target: Array, weight: Array | None = None, *, reduction: str = "mean"
) -> Array:
    """Compute the mean over the classes (the last axis) of binary cross entropies; ``weight`` is [classes]."""
    check_shapes("multilabel_soft_margin_loss", input, target)
    target = as_float(target, input)
    loss = -(target * logsigmoid(input) + (1.0 - target) * logsigmoid(-input))
    if weight is not None:
        loss = loss * class_weight(weight, input, input.ndim - 1)
    return reduced(np.sum(loss, axis=-1) / input.shape[-1], reduction)


def multi_margin_loss(
    input: Array,
    target: Array,
    p: int = 1,
    margin: float = 1.0,
    weight: Array | None = None,
    *,
    reduction: str = "mean",
) -> Array:
    """Compute the mean over classes i of ``max(0, margin - x[target] + x[i]) ** p`` for scores x [(n,) classes].

    The target class itself adds 0. The ``weight`` of the target class multiplies the loss of an example.
    """
    if p not in (1, 2):
        raise MlaotError(f"multi_margin_loss: expected p of 1 or 2, got {p}")
    if input.ndim not in (1, 2) or target.dtype.kind not in "iu":
        raise MlaotError(
            f"multi_margin_loss: expected scores [(n,) classes] and integer classes, got {list(input.shape)}, "
            f"{target.dtype}{list(target.shape)}"
        )
    axis = input.ndim - 1
    classes = np.arange(static(input.shape[axis], "multi_margin_loss"))
    target = in_range(target, input.shape[axis])
    distance = _where_positive(margin - np.expand_dims(chosen_of(input, target, axis), axis) + input)
    distance = distance if p == 1 else distance * distance
    if weight is not None:
        distance = distance * np.expand_dims(np.take(class_weight(weight, input, axis), target, axis=0), axis)
    others = np.where(np.expand_dims(target, axis) == classes, 0.0, distance)
    return reduced(np.sum(others, axis=axis) / classes.size, reduction)


def multilabel_margin_loss(input: Array, target: Array, *, reduction: str = "mean") -> Array:
    """Sum ``max(0, 1 - x[j] + x[i]) / classes`` over the targets j and all other classes i.

    Scores x are [(n,) classes]. Targets are integers of the same shape; the first -1 in a row ends its targets.
    """
    check_shapes("multilabel_margin_loss", input, target)
    if input.ndim not in (1, 2) or target.dtype.kind != "i":
        raise MlaotError(f"multilabel_margin_loss: expected integer classes [(n,) classes], got {target.dtype}")
    size = static(input.shape[-1], "multilabel_margin_loss")
    target = in_range(target, size, ignored=-1)
    counts = np.cumsum((target < 0).astype(np.int64), axis=-1) == 0
    is_target = (np.expand_dims(target, -1) == np.arange(size)) & np.expand_dims(counts, -1)  # [.., targets, classes]
    scores = np.expand_dims(np.sum(np.where(is_target, np.expand_dims(input, -2), 0.0), axis=-1), -1)
    distance = _where_positive(1.0 - scores + np.expand_dims(input, -2))
    is_pair = np.expand_dims(counts, -1) & np.expand_dims(~np.any(is_target, axis=-2), -2)
    return reduced(np.sum(np.where(is_pair, distance, 0.0), axis=(-2, -1)) / size, reduction)


def margin_ranking_loss(
    input1: Array, input2: Array, target: Array, margin: float = 0.0, *, reduction: str = "mean"
) -> Array:
    """Compute ``max(0, margin - target * (input1 - input2))`` for targets 1 and -1.

    The target 1 asks for a larger ``input1``, and the target -1 for a larger ``input2``.
    """
    if not input1.ndim == input2.ndim == target.ndim:
        shapes = ", ".join(str(list(x.shape)) for x in (input1, input2, target))
        raise MlaotError(f"margin_ranking_loss: expected inputs and targets of the same rank, got {shapes}")
    return reduced(_above_zero(margin - as_float(target, input1) * (input1 - input2)), reduction)


def cosine_embedding_loss(
    input1: Array, input2: Array, target: Array, margin: float = 0.0, *, reduction: str = "mean"
) -> Array:
    """Compute ``1 - cos`` where the target is 1, and ``max(0, cos - margin)`` where the target is -1.

    ``cos`` is the cosine of the angle between two vectors [(n,) features].
    """
    check_shapes("cosine_embedding_loss", input1, input2)
    if input1.ndim not in (1, 2) or target.ndim != input1.ndim - 1:
        raise MlaotError(
            f"cosine_embedding_loss: expected vectors [(n,) features] and a target for each, "
            f"got {list(input1.shape)}, {list(target.shape)}"
        )
    squares = [np.sum(x * x, axis=-1) + 1e-12 for x in (input1, input2)]
    cosine = np.sum(input1 * input2, axis=-1) / np.sqrt(squares[0] * squares[1])
    loss = np.where(target == 1, 1.0 - cosine, 0.0) + np.where(target == -1, _above_zero(cosine - margin), 0.0)
    return reduced(as_like(loss, input1), reduction)


def triplet_margin_loss(
    anchor: Array,
    positive: Array,
    negative: Array,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    *,
    reduction: str = "mean",
) -> Array:
    """Compute ``max(0, margin + d(anchor, positive) - d(anchor, negative))``, d being ``pairwise_distance``.

    With ``swap``, the distance from the positive to the negative counts if it is smaller (Balntas et al., 2016).
    """
    near, far = (pairwise_distance(anchor, x, p, eps) for x in (positive, negative))
    if swap:
        far = np.minimum(far, pairwise_distance(positive, negative, p, eps))
    return reduced(_above_zero(margin + near - far), reduction)


def _where_positive(x: Array) -> Array:
    return np.where(x > 0, x, 0.0)  # without nan, as in PyTorch


def _above_zero(x: Array) -> Array:
    return np.where(x < 0, 0.0, x)  # with a gradient at 0, unlike relu
