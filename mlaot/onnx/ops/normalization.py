"""Normalization over a batch, a group of channels or the last axes, and dropout."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlaot.frontend import numpy as F
from mlaot.onnx.importer import Use
from mlaot.onnx.registry import operator
from mlaot.onnx.values import Unsupported, wanted


def _channels(values: Any, rank: int) -> Any:
    return np.reshape(values, (-1, *[1] * (rank - 2)))


@operator("BatchNormalization")
def batch_normalization(use: Use, x: Any, scale: Any, bias: Any, mean: Any, var: Any) -> Any:
    epsilon, momentum = use.attribute("epsilon", 1e-5), use.attribute("momentum", 0.9)
    always = use.opset < 7 and not use.attribute("is_test", 0)
    training = use.attribute("training_mode", 0) if use.opset >= 14 else always
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
def instance_normalization(use: Use, x: Any, scale: Any, bias: Any) -> Any:
    y, _, _ = standard(x, tuple(range(2, x.ndim)), use.attribute("epsilon", 1e-5))
    return y * _channels(scale, x.ndim) + _channels(bias, x.ndim)


@operator("LayerNormalization")
def layer_normalization(use: Use, x: Any, scale: Any, bias: Any = None) -> Any:
    axis = use.attribute("axis", -1) % x.ndim
    y, mean, inverse = standard(x, tuple(range(axis, x.ndim)), use.attribute("epsilon", 1e-5))
    y = y * scale
    return y if bias is None else y + bias, mean, inverse


@operator("RMSNormalization")
def rms_normalization(use: Use, x: Any, scale: Any) -> Any:
    axis = use.attribute("axis", -1) % x.ndim
    square = np.mean(x * x, axis=tuple(range(axis, x.ndim)), keepdims=True)
    return x / np.sqrt(square + use.attribute("epsilon", 1e-5)) * scale


@operator("GroupNormalization")
def group_normalization(use: Use, x: Any, scale: Any, bias: Any) -> Any:
    groups, channels = use.attribute("num_groups"), x.shape[1]
    split = np.reshape(x, (x.shape[0], groups, channels // groups, *x.shape[2:]))
    y, _, _ = standard(split, tuple(range(2, split.ndim)), use.attribute("epsilon", 1e-5))
    if use.opset < 21:  # a number a group
        scale, bias = np.repeat(scale, channels // groups), np.repeat(bias, channels // groups)
    return np.reshape(y, x.shape) * _channels(scale, x.ndim) + _channels(bias, x.ndim)


@operator("MeanVarianceNormalization")
def mean_variance_normalization(use: Use, x: Any) -> Any:
    axes = tuple(use.attribute("axes", [0, 2, 3]))
    mean = np.mean(x, axis=axes, keepdims=True)
    return (x - mean) / (np.sqrt(np.mean(x * x, axis=axes, keepdims=True) - mean * mean) + 1e-9)


@operator("LpNormalization")
def lp_normalization(use: Use, x: Any) -> Any:
    axis, p = use.attribute("axis", -1), use.attribute("p", 2)
    if p not in (1, 2):
        raise Unsupported(f"a norm of order {p}; ONNX has 1 and 2")
    size = np.abs(x) if p == 1 else x * x
    norm = np.sum(size, axis=axis, keepdims=True)
    norm = norm if p == 1 else np.sqrt(norm)
    return x / np.where(norm == 0, 1.0, norm).astype(x.dtype)


@operator("Dropout")
def dropout(use: Use, x: Any, ratio: Any = None, training: Any = None) -> Any:
    on = bool(wanted(training, "whether it is training")) if training is not None else False
    given = use.attribute("ratio", 0.5) if ratio is None or not on else wanted(ratio, "the ratio")
    if on and float(given) > 0:
        raise Unsupported("dropout in training draws random numbers of another generator; export for inference")
    mask = F.astype(np.equal(x, x) | True, np.bool_ if use.opset >= 10 else x.dtype)
    return (x, mask) if use.has(1) else x
