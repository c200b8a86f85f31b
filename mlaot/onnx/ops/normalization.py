"""Normalization over a batch, a group of channels or the last axes, and dropout."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from mlaot.frontend import numpy as F
from mlaot.onnx.importer import Use
from mlaot.onnx.registry import operator
from mlaot.onnx.values import Unsupported, is_constant, is_fixed

MOST_DRAWN = 1 << 24  # random numbers that a module holds


def per_channel(values: Any, rank: int) -> Any:
    """Return one number per channel, shaped to broadcast along the axis after the batch."""
    return np.reshape(values, (-1, *[1] * (rank - 2)))


@operator("BatchNormalization")
def batch_normalization(
    use: Use, x: Any, scale: Any, bias: Any, mean: Any, var: Any, *, epsilon: float = 1e-5, momentum: float = 0.9
) -> Any:
    before_7 = use.opset < 7 and not use.attribute("is_test", 0)
    outputs: tuple[Any, ...] = ()
    if use.attribute("training_mode", 0) if use.opset >= 14 else before_7:
        axes = (0, *range(2, x.ndim))
        batch_mean, batch_var = np.mean(x, axis=axes), np.var(x, axis=axes)
        outputs = (mean * momentum + batch_mean * (1 - momentum), var * momentum + batch_var * (1 - momentum))
        if use.opset < 14:
            outputs = (*outputs, batch_mean, batch_var)
        mean, var = batch_mean, batch_var
    factor = scale / np.sqrt(var + epsilon)
    y = x * per_channel(factor, x.ndim) + per_channel(bias - mean * factor, x.ndim)
    return (y, *outputs)


def standardize(x: Any, axes: tuple[int, ...], epsilon: float) -> tuple[Any, Any, Any]:
    """Return ``x`` less its mean by its deviation, the mean, and the deviation's reciprocal."""
    mean = np.mean(x, axis=axes, keepdims=True)
    centred = x - mean
    inverse = 1.0 / np.sqrt(np.mean(centred * centred, axis=axes, keepdims=True) + epsilon)
    return centred * inverse, mean, inverse


@operator("InstanceNormalization")
def instance_normalization(x: Any, scale: Any, bias: Any, *, epsilon: float = 1e-5) -> Any:
    y, _, _ = standardize(x, tuple(range(2, x.ndim)), epsilon)
    return y * per_channel(scale, x.ndim) + per_channel(bias, x.ndim)


@operator("LayerNormalization")
def layer_normalization(x: Any, scale: Any, bias: Any = None, *, axis: int = -1, epsilon: float = 1e-5) -> Any:
    y, mean, inverse = standardize(x, tuple(range(axis % x.ndim, x.ndim)), epsilon)
    y = y * scale
    return y if bias is None else y + bias, mean, inverse


@operator("RMSNormalization")
def rms_normalization(x: Any, scale: Any, *, axis: int = -1, epsilon: float = 1e-5) -> Any:
    square = np.mean(x * x, axis=tuple(range(axis % x.ndim, x.ndim)), keepdims=True)
    return x / np.sqrt(square + epsilon) * scale


@operator("GroupNormalization")
def group_normalization(use: Use, x: Any, scale: Any, bias: Any, *, num_groups: int = 1, epsilon: float = 1e-5) -> Any:
    size = x.shape[1] // num_groups
    groups = np.reshape(x, (x.shape[0], num_groups, size, *x.shape[2:]))
    y, _, _ = standardize(groups, tuple(range(2, groups.ndim)), epsilon)
    if use.opset < 21:  # a number a group
        scale, bias = np.repeat(scale, size), np.repeat(bias, size)
    return np.reshape(y, x.shape) * per_channel(scale, x.ndim) + per_channel(bias, x.ndim)


@operator("MeanVarianceNormalization")
def mean_variance_normalization(x: Any, *, axes: Any = (0, 2, 3)) -> Any:
    mean = np.mean(x, axis=tuple(axes), keepdims=True)
    return (x - mean) / (np.sqrt(np.mean(x * x, axis=tuple(axes), keepdims=True) - mean * mean) + 1e-9)


@operator("LpNormalization")
def lp_normalization(x: Any, *, axis: int = -1, p: int = 2) -> Any:
    if p not in (1, 2):
        raise Unsupported(f"a norm of order {p}; ONNX has 1 and 2")
    total = np.sum(np.abs(x) if p == 1 else x * x, axis=axis, keepdims=True)
    norm = total if p == 1 else np.sqrt(total)
    return x / np.where(norm == 0, 1.0, norm).astype(x.dtype)


@operator("Dropout")
def dropout(use: Use, x: Any, ratio: Any = None, training: Any = None) -> Any:
    share = np.asarray(use.attribute("ratio", 0.5)) if ratio is None else np.reshape(ratio, ())
    drops = False if training is None else np.logical_and(np.reshape(training, ()), share > 0)
    seed, y = use.attribute("seed"), x
    kept = np.equal(x, x) | True
    is_known = is_constant(ratio, training)
    if not is_known or drops:
        if seed is None or not is_fixed(*x.shape) or prod(x.shape) > MOST_DRAWN:
            if is_known:
                raise Unsupported("dropout in training draws random numbers of another generator; export for inference")
            use.require(np.logical_not(drops), "dropout in training draws random numbers, so its ratio must be 0")
        else:
            kept = _drawn(seed, x.shape) >= F.astype(share, np.float64)
            factor = F.astype(1 / (1 - share), x.dtype)
            y = np.where(drops, F.astype(kept, x.dtype) * x * factor, x)
            kept = kept | np.logical_not(drops)
    mask = F.astype(kept, np.bool_ if use.opset >= 10 else x.dtype)
    return (y, mask) if use.has(1) else y


def _drawn(seed: int, shape: Sequence[int]) -> Any:
    """Return uniform numbers from 0 to 1 that NumPy draws, as ONNX's reference evaluator does."""
    return np.random.RandomState(seed).uniform(0, 1, shape)
