"""Normalization by mean and variance, over the batch, the channels, or an example.

All functions compute ``(x - mean) / sqrt(var + eps) * weight + bias`` in this order. PyTorch rearranges the formula to
``x * scale + shift``, which gives nan where a weight or a mean is infinite.

Running statistics are a ``Buffer``, which ``assign`` updates, or a NumPy array, which is updated in place as in
PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.numpy import window
from mlaot.frontend.numpy.padding import pad
from mlaot.frontend.trace.tensor import Buffer
from mlaot.ir.types import bf16
from mlaot.nn.arguments import Array, channels_first, check_shape, is_static, static

__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "local_response_norm", "rms_norm"]


def batch_norm(
    input: Array,
    running_mean: Array | None,
    running_var: Array | None,
    weight: Array | None = None,
    bias: Array | None = None,
    training: bool = False,
    momentum: Any = 0.1,
    eps: float = 1e-5,
) -> Array:
    """Normalize [n, c, ..] over all axes but the channel (axis 1) (Ioffe and Szegedy, 2015).

    In training the mean and variance are those of the batch, otherwise the running statistics.
    """
    axes = (0, *range(2, input.ndim))
    if not training:
        if running_mean is None or running_var is None:
            raise MlaotError("batch_norm: without running statistics it can only be used with training=True")
        for name, values in (("running_mean", running_mean), ("running_var", running_var)):
            check_shape(values, input.shape[1:2], f"batch_norm: {name}")
        mean, var = channels_first(running_mean, input.ndim), channels_first(running_var, input.ndim)
        return _affine((input - mean) * (1.0 / np.sqrt(var + eps)), weight, bias)
    _check_several(input, axes, "batch_norm")
    if running_mean is not None:
        _update(running_mean, np.mean(input, axis=axes), momentum)
    if running_var is not None:
        _update(running_var, np.var(input, axis=axes, ddof=1), momentum)
    return _affine(_normalized(input, axes, eps), weight, bias)


def instance_norm(
    input: Array,
    running_mean: Array | None = None,
    running_var: Array | None = None,
    weight: Array | None = None,
    bias: Array | None = None,
    use_input_stats: bool = True,
    momentum: Any = 0.1,
    eps: float = 1e-5,
) -> Array:
    """Normalize each channel of each example [n, c, *spatial] separately (Ulyanov et al., 2016)."""
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    axes = tuple(range(2, input.ndim))
    _check_several(input, axes, "instance_norm")
    if running_mean is not None:
        _update(running_mean, np.mean(np.mean(input, axis=axes), axis=0), momentum)
    if running_var is not None:
        _update(running_var, np.mean(np.var(input, axis=axes, ddof=1), axis=0), momentum)
    return _affine(_normalized(input, axes, eps), weight, bias)


def layer_norm(
    input: Array,
    normalized_shape: int | Sequence[int],
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
) -> Array:
    """Normalize over the last axes, whose sizes are ``normalized_shape`` (Ba et al., 2016)."""
    axes = _last_axes(input, normalized_shape, "layer_norm")
    for name, values in (("weight", weight), ("bias", bias)):
        check_shape(values, input.shape[-len(axes) :], f"layer_norm: {name}")
    y = _normalized(input, axes, eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def rms_norm(
    input: Array, normalized_shape: int | Sequence[int], weight: Array | None = None, eps: float | None = None
) -> Array:
    """Divide by the root of the mean square over the last axes (Zhang and Sennrich, 2019).

    ``eps`` is added to the mean square; by default it is the machine epsilon of the dtype.
    """
    axes = _last_axes(input, normalized_shape, "rms_norm")
    check_shape(weight, input.shape[-len(axes) :], "rms_norm: weight")
    if eps is None:
        eps = 2.0**-7 if input.dtype is bf16 else float(np.finfo(input.dtype).eps)
    y = input * (1.0 / np.sqrt(np.mean(input * input, axis=axes, keepdims=True) + eps))
    return y if weight is None else y * weight


def group_norm(
    input: Array, num_groups: int, weight: Array | None = None, bias: Array | None = None, eps: float = 1e-5
) -> Array:
    """Normalize each of ``num_groups`` groups of channels (axis 1), together with the later axes (Wu and He, 2018)."""
    if input.ndim < 2:
        raise MlaotError(f"group_norm: expected an input [n, channels, ..], got {list(input.shape)}")
    channels = static(input.shape[1], "group_norm")
    if num_groups < 1 or channels % num_groups:
        raise MlaotError(f"group_norm: {channels} channels do not divide into {num_groups} groups")
    grouped = np.reshape(input, (input.shape[0], num_groups, -1))
    return _affine(np.reshape(_normalized(grouped, (2,), eps), input.shape), weight, bias)


def local_response_norm(input: Array, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Array:
    """Divide by ``(k + alpha * mean) ** beta``, the mean of the squares of ``size`` neighbouring channels (axis 1)."""
    if input.ndim < 3 or size < 1:
        raise MlaotError(
            f"local_response_norm: expected [n, channels, *spatial] and a size of at least 1, got {list(input.shape)}, "
            f"{size}"
        )
    before, after = ((0, amount, *(0,) * (input.ndim - 2)) for amount in (size // 2, (size - 1) // 2))
    mean = np.sum(window(pad(input * input, before, after), 1, size), axis=-1) / float(size)
    return input / (mean * alpha + k) ** beta


def _normalized(x: Array, axes: tuple[int, ...], eps: float) -> Array:
    centered = x - np.mean(x, axis=axes, keepdims=True)
    return centered * (1.0 / np.sqrt(np.mean(centered * centered, axis=axes, keepdims=True) + eps))


def _affine(x: Array, weight: Array | None, bias: Array | None) -> Array:
    check_shape(weight, x.shape[1:2], "weight")
    check_shape(bias, x.shape[1:2], "bias")
    x = x if weight is None else x * channels_first(weight, x.ndim)
    return x if bias is None else x + channels_first(bias, x.ndim)


def _update(running: Array, value: Array, momentum: Any) -> None:
    mixed = running * (1.0 - momentum) + value * momentum
    if isinstance(running, Buffer):
        running.assign(mixed)
    elif isinstance(running, np.ndarray) and running.flags.writeable:
        running[...] = mixed
    else:
        raise MlaotError("running statistics: expected a mlaot Buffer or a NumPy array that can be written to")


def _check_several(x: Array, axes: tuple[int, ...], name: str) -> None:
    sizes = [x.shape[axis] for axis in axes]
    if all(is_static(size) and size == 1 for size in sizes):
        raise MlaotError(f"{name}: expected more than one value per channel for its statistics, got {list(x.shape)}")


def _last_axes(x: Array, shape: int | Sequence[int], name: str) -> tuple[int, ...]:
    expected = (shape,) if isinstance(shape, int) else tuple(shape)
    if tuple(x.shape[x.ndim - len(expected) :]) != expected:
        raise MlaotError(f"{name}: expected an input whose last axes are {list(expected)}, got {list(x.shape)}")
    return tuple(range(-len(expected), 0))
