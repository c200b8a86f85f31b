"""Losses, and their reduction.

A loss has one number for each element or example. ``reduction`` is "none" for these numbers, or "mean" or "sum".
"""

from __future__ import annotations

import math

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.numpy import stop_gradient
from mlaot.frontend.numpy.indexing import in_range
from mlaot.nn.arguments import Array, as_like, channels_first, check_broadcast, check_choice, static
from mlaot.nn.functional.activations import log_softmax, logsigmoid, relu

__all__ = ["binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy"]
__all__ += ["gaussian_nll_loss", "hinge_embedding_loss", "hinge_loss", "huber_loss", "kl_div", "l1_loss", "mse_loss"]
__all__ += ["nll_loss", "poisson_nll_loss", "smooth_l1_loss"]


def mse_loss(input: Array, target: Array, *, reduction: str = "mean", weight: Array | None = None) -> Array:
    """Compute ``(input - target) ** 2``. With ``weight``, the mean divides by the sum of the weights."""
    check_shapes("mse_loss", input, target)
    difference = input - target
    return _weighted(difference * difference, weight, reduction)


def l1_loss(input: Array, target: Array, *, reduction: str = "mean", weight: Array | None = None) -> Array:
    """Compute ``abs(input - target)``. With ``weight``, the mean divides by the sum of the weights."""
    check_shapes("l1_loss", input, target)
    return _weighted(np.abs(input - target), weight, reduction)


def huber_loss(
    input: Array, target: Array, reduction: str = "mean", delta: float = 1.0, weight: Array | None = None
) -> Array:
    """Compute half the square of an error up to ``delta``, and a line of slope ``delta`` beyond (Huber, 1964)."""
    check_shapes("huber_loss", input, target)
    if not delta > 0:
        raise MlaotError(f"huber_loss: expected delta above 0, got {delta}")
    error = np.abs(input - target)
    small = np.where(error <= delta, error, 0.0)
    loss = np.where(error <= delta, small * small * 0.5, (error - 0.5 * delta) * delta)
    if weight is not None:
        check_shapes("huber_loss: weight", loss, weight)
        loss = loss * as_like(weight, loss)
    return reduced(loss, reduction)


def smooth_l1_loss(input: Array, target: Array, *, reduction: str = "mean", beta: float = 1.0) -> Array:
    """Compute ``huber_loss`` with ``delta = beta``, divided by ``beta``: the line has slope 1."""
    check_shapes("smooth_l1_loss", input, target)
    if beta < 0:
        raise MlaotError(f"smooth_l1_loss: expected beta of at least 0, got {beta}")
    error = np.abs(input - target)
    if beta == 0:
        return reduced(error, reduction)
    small = np.where(error < beta, error, 0.0)
    return reduced(np.where(error < beta, small * small * (0.5 / beta), error - 0.5 * beta), reduction)


def hinge_loss(input: Array, target: Array, *, margin: float = 1.0, reduction: str = "mean") -> Array:
    """Compute ``max(0, margin - input * target)`` for targets 1 and -1: the loss of a support vector machine."""
    check_shapes("hinge_loss", input, target)
    return reduced(relu(margin - input * as_float(target, input)), reduction)


def hinge_embedding_loss(input: Array, target: Array, margin: float = 1.0, *, reduction: str = "mean") -> Array:
    """Compute ``input`` where the target is 1, and ``max(0, margin - input)`` where the target is -1."""
    check_shapes("hinge_embedding_loss", input, target)
    distance = margin - input
    hinge = np.where(distance < 0, 0.0, distance)  # with a gradient at 0, unlike relu
    loss = np.where(target == -1, 0.0, input) + np.where(target == 1, 0.0, hinge)
    return reduced(loss, reduction)


def binary_cross_entropy(input: Array, target: Array, weight: Array | None = None, *, reduction: str = "mean") -> Array:
    """Compute ``-(y log(p) + (1 - y) log(1 - p))`` of probabilities p and targets y.

    A logarithm below -100 counts as -100, and its gradient is 0; PyTorch limits the gradient to 1e12 instead. The loss
    of an input that is not a probability is nan; PyTorch raises an error.
    """
    check_shapes("binary_cross_entropy", input, target)
    target = as_float(target, input)
    yes, no = _clamped_log(input), _clamped_log(1.0 - input)
    loss = (target - 1.0) * no - target * yes
    return reduced(_times(loss, weight), reduction)


def binary_cross_entropy_with_logits(
    input: Array,
    target: Array,
    weight: Array | None = None,
    *,
    reduction: str = "mean",
    pos_weight: Array | None = None,
) -> Array:
    """Compute the binary cross entropy of ``sigmoid(input)``.

    ``pos_weight`` multiplies the loss of positive targets.
    """
    check_shapes("binary_cross_entropy_with_logits", input, target)
    target = as_float(target, input)
    likelihood = logsigmoid(input)
    if pos_weight is not None:
        check_broadcast(pos_weight, input.shape, "pos_weight")
        likelihood = likelihood * ((as_like(pos_weight, input) - 1.0) * target + 1.0)
    loss = (1.0 - target) * input - likelihood
    return reduced(_times(loss, weight), reduction)


def cross_entropy(
    input: Array,
    target: Array,
    weight: Array | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Array:
    """Compute ``-log(softmax(logits))`` of the targets. Logits are [n, classes, *rest] or [classes].

    Targets are integer classes [n, *rest], or probabilities in the shape of the logits. The target ``ignore_index`` has
    the loss 0 and does not count in the mean. Any other integer that is no class is an error if a caller passes it, and
    has the loss 0 if the model computes it. ``weight`` [classes] multiplies the loss of each class, and the mean of
    integer targets divides by the sum of their weights.
    """
    if not 0 <= label_smoothing <= 1:
        raise MlaotError(f"cross_entropy: expected label_smoothing from 0 to 1, got {label_smoothing}")
    axis = _class_axis(input)
    logs = log_softmax(input, axis)
    weight = None if weight is None else class_weight(weight, logs, axis)
    if target.dtype.kind == "f":
        return _of_probabilities(logs, target, axis, weight, reduction, label_smoothing)
    if label_smoothing == 0:
        return nll_loss(logs, target, weight, ignore_index=ignore_index, reduction=reduction)
    return _smoothed(logs, target, axis, weight, ignore_index, reduction, label_smoothing)


def nll_loss(
    input: Array, target: Array, weight: Array | None = None, *, ignore_index: int = -100, reduction: str = "mean"
) -> Array:
    """Select from log-probabilities [n, classes, *rest] those of integer classes [n, *rest], and negate them.

    A target that is neither a class nor ``ignore_index`` is an error if a caller passes it, and has the loss 0 if the
    model computes it.
    """
    axis = _class_axis(input)
    if target.dtype.kind not in "iu":
        raise MlaotError(f"nll_loss: expected integer classes as the target, got {target.dtype}")
    weight = None if weight is None else class_weight(weight, input, axis)
    counts = _counts(input, target, weight, ignore_index)
    chosen = chosen_of(input, in_range(target, input.shape[axis], ignored=ignore_index), axis)
    loss = _counted(-chosen, target, ignore_index)
    return _class_mean(loss if counts is None else counts * loss, counts, reduction)


def poisson_nll_loss(
    input: Array,
    target: Array,
    log_input: bool = True,
    full: bool = False,
    *,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Array:
    """Compute ``exp(input) - target * input``, or without ``log_input``, ``input - target * log(input + eps)``.

    ``full`` adds Stirling's approximation of ``log(target!)`` where the target is above 1.
    """
    check_shapes("poisson_nll_loss", input, target)
    target = as_float(target, input)
    loss = np.exp(input) - target * input if log_input else input - target * np.log(input + eps)
    if full:
        several = np.where(target > 1, target, 1.0)
        rest = several * np.log(several) - several + 0.5 * np.log(2.0 * math.pi * several)
        loss = loss + np.where(target > 1, rest, 0.0)
    return reduced(loss, reduction)


def gaussian_nll_loss(
    input: Array,
    target: Array,
    var: Array,
    full: bool = False,
    eps: float = 1e-6,
    *,
    reduction: str = "mean",
) -> Array:
    """Compute ``(log(var) + (input - target) ** 2 / var) / 2``.

    ``var`` has the shape of the input, or one variance for each of its rows. A variance below ``eps`` counts as
    ``eps``, also a negative one, for which PyTorch raises an error. ``full`` adds ``log(2 pi) / 2``.
    """
    if isinstance(eps, int | float) and not eps > 0:
        raise MlaotError(f"gaussian_nll_loss: expected eps above 0, got {eps}")
    if tuple(var.shape) == tuple(input.shape[:-1]) and var.ndim < input.ndim:
        var = np.expand_dims(var, -1)
    check_broadcast(var, input.shape, "gaussian_nll_loss: var")
    var = np.where(var < eps, var - stop_gradient(var) + eps, var)  # the limit lets the gradient through
    difference = input - as_float(target, input)
    loss = 0.5 * (np.log(var) + difference * difference / var)
    return reduced(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


def kl_div(input: Array, target: Array, *, reduction: str = "mean", log_target: bool = False) -> Array:
    """Compute the Kullback-Leibler divergence ``y * (log(y) - input)`` of log-probabilities from targets y.

    With ``log_target`` the targets are log(y) instead of y. The reduction "batchmean" divides the sum by the number of
    examples.
    """
    check_shapes("kl_div", input, target)
    if log_target:
        loss = np.exp(target) * (target - input)
    else:
        loss = target * np.log(np.where(target == 0, 1.0, target)) - target * input
    if reduction == "batchmean":
        return np.mean(np.sum(loss, axis=tuple(range(1, loss.ndim))))
    return reduced(loss, reduction)


def reduced(loss: Array, reduction: str) -> Array:
    """Reduce the losses as ``reduction`` says."""
    check_choice(reduction, ("none", "mean", "sum"), "reduction")
    if reduction == "none":
        return loss
    return np.mean(loss) if reduction == "mean" else np.sum(loss)


def _times(loss: Array, weight: Array | None) -> Array:
    if weight is None:
        return loss
    check_broadcast(weight, loss.shape, "weight")
    return loss * as_like(weight, loss)


def _weighted(loss: Array, weight: Array | None, reduction: str) -> Array:
    """Reduce the losses, weighted one by one; a mean divides by the sum of the weights."""
    if weight is None:
        return reduced(loss, reduction)
    check_shapes("weight", loss, weight)
    weight = as_like(weight, loss)
    if reduction == "mean":
        return np.sum(loss * weight) / np.sum(weight)
    return reduced(loss * weight, reduction)


def _clamped_log(x: Array) -> Array:
    zero = x == 0
    return np.where(zero, -100.0, np.maximum(np.log(np.where(zero, 1.0, x)), -100.0))


def as_float(target: Array, input: Array) -> Array:
    """Cast integer or bool targets to the dtype of the inputs."""
    return target if target.dtype.kind == "f" else as_like(target, input)


def _class_axis(x: Array) -> int:
    if not x.ndim:
        raise MlaotError("expected classes along an axis of the input, got a number")
    return 1 if x.ndim > 1 else 0


def chosen_of(x: Array, target: Array, axis: int) -> Array:
    """Select the element of ``x`` along ``axis`` at each target.

    There is no arithmetic on the other elements, so they may be infinite.
    """
    if target.ndim != x.ndim - 1:
        raise MlaotError(
            f"integer targets {list(target.shape)} do not fit classes along axis {axis} of {list(x.shape)}"
        )
    classes = channels_first(np.arange(static(x.shape[axis], "the number of classes")), x.ndim, axis)
    return np.sum(np.where(np.expand_dims(target, axis) == classes, x, 0.0), axis=axis)


def _counts(x: Array, target: Array, weight: Array | None, ignore_index: int) -> Array | None:
    """Return the weight of each target's class, 0 for an ignored target; None if each target has the weight 1."""
    can_ignore = _can_ignore(target, ignore_index)
    if weight is None:
        return as_like(target != ignore_index, x) if can_ignore else None
    if not can_ignore:
        return np.take(weight, target, axis=0)
    counted = target != ignore_index
    return np.where(counted, np.take(weight, np.where(counted, target, 0), axis=0), 0.0)


def _counted(loss: Array, target: Array, ignore_index: int) -> Array:
    """Set the loss of each ignored target to 0, even an infinite loss."""
    return np.where(target == ignore_index, 0.0, loss) if _can_ignore(target, ignore_index) else loss


def _can_ignore(target: Array, ignore_index: int) -> bool:
    limits = np.iinfo(target.dtype)
    return bool(limits.min <= ignore_index <= limits.max)


def class_weight(weight: Array, x: Array, axis: int) -> Array:
    """Check that there is a weight for each class, and cast the weights to the dtype of ``x``."""
    if tuple(weight.shape) != (x.shape[axis],):
        raise MlaotError(f"weight: expected one number for each of {x.shape[axis]} classes, got {list(weight.shape)}")
    return as_like(weight, x)


def _class_mean(loss: Array, counts: Array | None, reduction: str) -> Array:
    if reduction == "mean" and counts is not None:
        return np.sum(loss) / np.sum(counts)
    return reduced(loss, reduction)


def _smoothed(
    logs: Array, target: Array, axis: int, weight: Array | None, ignore_index: int, reduction: str, smoothing: float
) -> Array:
    """Compute the loss of targets of which ``smoothing`` is spread evenly over all classes (Szegedy et al., 2016)."""
    counts = _counts(logs, target, weight, ignore_index)
    weighted = logs if weight is None else logs * channels_first(weight, logs.ndim, axis)
    target = in_range(target, logs.shape[axis], ignored=ignore_index)
    picked = -chosen_of(weighted, target, axis) * (1.0 - smoothing)
    spread = -np.sum(weighted, axis=axis) * (smoothing / logs.shape[axis])
    return _class_mean(_counted(picked + spread, target, ignore_index), counts, reduction)


def _of_probabilities(
    logs: Array, target: Array, axis: int, weight: Array | None, reduction: str, smoothing: float
) -> Array:
    check_shapes("cross_entropy with probabilities", logs, target)
    if smoothing:
        target = target * (1.0 - smoothing) + smoothing / static(logs.shape[axis], "cross_entropy")
    weighted = logs if weight is None else logs * channels_first(weight, logs.ndim, axis)
    return reduced(-np.sum(weighted * target, axis=axis), reduction)


def check_shapes(name: str, input: Array, target: Array) -> None:
    if tuple(input.shape) != tuple(target.shape):
        raise MlaotError(
            f"{name}: expected input and target of one shape, got {list(input.shape)}, {list(target.shape)}"
        )
