"""Normalization over a batch, a group of channels or the last axes, and dropout."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlaot.frontend import functions as F
from mlaot.onnx.importer import Use
from mlaot.onnx.registry import operator
from mlaot.onnx.values import Unsupported, require_constant


def _channels(values: Any, rank: int) -> Any:
    return np.reshape(values, (-1, *[1] * (rank - 2)))


@operator("BatchNormalization")
def batch_normalization(
    use: Use,
    x: Any,
    scale: Any,
    bias: Any,
    mean: Any,
    var: Any,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    is_test: bool = False,
) -> Any:
    always = use.opset < 7 and not is_test
    training = training_mode if use.opset >= 14 else always
    outputs: tuple[Any, ...] = ()
    if training:
        axes = (0, *range(2, x.ndim))
        now, spread = np.mean(x, axis=axes), np.var(x, axis=axes)
        outputs = (mean * momentum + now * (1 - momentum), var * momentum + spread * (1 - momentum))
        if use.opset < 14:
            outputs = (*outputs, now, spread)
        mean, var = now, spread
    factor = scale / np.sqrt(var + epsilon)
    y = x * _channels(factor, x.ndim) + _channels(bias - mean * factor, x.ndim)
    return (y, *outputs)


def standard(x: Any, axes: tuple[int, ...], epsilon: float) -> tuple[Any, Any, Any]:
    """``x`` less its mean over the axes by its deviation, the mean and the deviation's reciprocal."""
    mean = np.mean(x, axis=axes, keepdims=True)
    centred = x - mean
    inverse = 1.0 / np.sqrt(np.mean(centred * centred, axis=axes, keepdims=True) + epsilon)
    return centred * inverse, mean, inverse


@operator("InstanceNormalization")
def instance_normalization(x: Any, scale: Any, bias: Any, *, epsilon: float = 1e-5) -> Any:
    y, _, _ = standard(x, tuple(range(2, x.ndim)), epsilon)
    return y * _channels(scale, x.ndim) + _channels(bias, x.ndim)


@operator("LayerNormalization")
def layer_normalization(use: Use, x: Any, scale: Any, bias: Any = None, *, epsilon: float = 1e-5) -> Any:
    axis = use.attribute("axis", -1) % x.ndim
    y, mean, inverse = standard(x, tuple(range(axis, x.ndim)), epsilon)
    y = y * scale
    return y if bias is None else y + bias, mean, inverse


@operator("RMSNormalization")
def rms_normalization(use: Use, x: Any, scale: Any, *, epsilon: float = 1e-5) -> Any:
    axis = use.attribute("axis", -1) % x.ndim
    square = np.mean(x * x, axis=tuple(range(axis, x.ndim)), keepdims=True)
    return x / np.sqrt(square + epsilon) * scale


@operator("GroupNormalization")
def group_normalization(
    use: Use, x: Any, scale: Any, bias: Any, *, num_groups: Any = None, epsilon: float = 1e-5
) -> Any:
    channels = x.shape[1]
    split = np.reshape(x, (x.shape[0], num_groups, channels // num_groups, *x.shape[2:]))
    y, _, _ = standard(split, tuple(range(2, split.ndim)), epsilon)
    if use.opset < 21:  # a number a group
        scale, bias = np.repeat(scale, channels // num_groups), np.repeat(bias, channels // num_groups)
    return np.reshape(y, x.shape) * _channels(scale, x.ndim) + _channels(bias, x.ndim)


@operator("MeanVarianceNormalization")
def mean_variance_normalization(use: Use, x: Any) -> Any:
    axes = tuple(use.attribute("axes", [0, 2, 3]))
    mean = np.mean(x, axis=axes, keepdims=True)
    return (x - mean) / (np.sqrt(np.mean(x * x, axis=axes, keepdims=True) - mean * mean) + 1e-9)


@operator("LpNormalization")
def lp_normalization(x: Any, *, axis: int = -1, p: int = 2) -> Any:
    if p not in (1, 2):
        raise Unsupported(f"a norm of order {p}; ONNX has 1 and 2")
    size = np.abs(x) if p == 1 else x * x
    norm = np.sum(size, axis=axis, keepdims=True)
    norm = norm if p == 1 else np.sqrt(norm)
    return x / np.where(norm == 0, 1.0, norm).astype(x.dtype)


@operator("Dropout")
def dropout(use: Use, x: Any, ratio: Any = None, training: Any = None) -> Any:
    on = bool(require_constant(training, "whether it is training")) if training is not None else False
    given = use.attribute("ratio", 0.5) if ratio is None or not on else require_constant(ratio, "the ratio")
    if on and float(given) > 0:
        raise Unsupported("dropout in training draws random numbers of another generator; export for inference")
    mask = F.astype(np.equal(x, x) | True, np.bool_ if use.opset >= 10 else x.dtype)
    return (x, mask) if use.has(1) else x
