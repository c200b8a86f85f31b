"""Pooling: reductions of the sliding windows of the spatial axes.

An input is [n, c, *spatial], or [c, *spatial] for one example. With ``ceil_mode`` the last window of an axis may reach
beyond the end of the axis, as long as it begins inside. A mean then divides by the number of elements inside the padded
input.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.numpy import window
from mlaot.nn.arguments import Array, as_like, by_rank, check_spatial, is_static, shown, static, tuple_of
from mlaot.nn.functional.convolution import pad_spatial

__all__ = ["adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"]
__all__ += ["adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d"]
__all__ += ["avg_pool1d", "avg_pool2d", "avg_pool3d", "global_avg_pool", "global_max_pool"]
__all__ += ["lp_pool1d", "lp_pool2d", "lp_pool3d", "max_pool1d", "max_pool2d", "max_pool3d"]


def max_pool(
    n: int,
    input: Array,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    *,
    ceil_mode: bool = False,
) -> Array:
    """Compute the maximum of each window of [(n,) c, *spatial].

    Equal maxima share the gradient; in PyTorch the first of them gets all of it.
    """
    axes = _axes(n, f"max_pool{n}d", input, kernel_size, stride, padding, dilation, ceil_mode)
    return np.max(_windows(input, axes, -math.inf), axis=tuple(range(-n, 0)))


def avg_pool(
    n: int,
    input: Array,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Array:
    """Compute the mean of each window of [(n,) c, *spatial], or its sum divided by ``divisor_override``.

    Padding counts as elements unless ``count_include_pad`` is False.
    """
    axes = _axes(n, f"avg_pool{n}d", input, kernel_size, stride, padding, 1, ceil_mode)
    total = np.sum(_windows(input, axes, 0.0), axis=tuple(range(-n, 0)))
    if divisor_override is not None:
        return total / float(divisor_override)
    counts = np.ones((1,) * n)
    for i, axis in enumerate(axes):
        counts = counts * np.reshape(axis.counts(count_include_pad), [-1 if i == j else 1 for j in range(n)])
    return total / (float(counts.flat[0]) if counts.size == 1 else as_like(counts, total))


def avg_pool1d(
    input: Array,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Array:
    """Compute the mean of each window of [(n,) c, l].

    Padding counts as elements unless ``count_include_pad`` is False.
    """
    return avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad)


def lp_pool(
    n: int, input: Array, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Array:
    """Compute ``sum(x ** p) ** (1 / p)`` of each window of [(n,) c, *spatial], with p = ``norm_type``."""
    mean = avg_pool(n, input**norm_type, kernel_size, stride, 0, ceil_mode)
    total = mean * float(math.prod(tuple_of(kernel_size, n, f"lp_pool{n}d: kernel_size", 1)))
    zero = total == 0  # where the root has no finite gradient
    return np.where(zero, 0.0, np.where(zero, 1.0, total) ** (1.0 / norm_type))


def adaptive_avg_pool(n: int, input: Array, output_size: Any) -> Array:
    """Divide each spatial axis of [(n,) c, *spatial] into ``output_size`` bins, and compute the mean of each bin."""
    return _adaptive(n, input, output_size, np.mean)


def adaptive_max_pool(n: int, input: Array, output_size: Any) -> Array:
    """Divide each spatial axis of [(n,) c, *spatial] into ``output_size`` bins, and compute the maximum of each bin.

    Equal maxima share the gradient; in PyTorch the first of them gets all of it.
    """
    return _adaptive(n, input, output_size, np.max)


max_pool1d, max_pool2d, max_pool3d = by_rank(max_pool)
_, avg_pool2d, avg_pool3d = by_rank(avg_pool)  # PyTorch's avg_pool1d has no divisor_override
lp_pool1d, lp_pool2d, lp_pool3d = by_rank(lp_pool)
adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = by_rank(adaptive_avg_pool)
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = by_rank(adaptive_max_pool)


def global_avg_pool(input: Array) -> Array:
    """Compute the mean over all axes after the channel (axis 1): [n, c, 1, ..]."""
    return np.mean(input, axis=tuple(range(2, input.ndim)), keepdims=True)


def global_max_pool(input: Array) -> Array:
    """Compute the maximum over all axes after the channel (axis 1): [n, c, 1, ..]."""
    return np.max(input, axis=tuple(range(2, input.ndim)), keepdims=True)


def _adaptive(n: int, input: Array, output_size: Any, reduce: Callable[..., Any]) -> Array:
    """Reduce one axis after another, which gives the mean of a bin too, as a bin is a box.

    All axes with a single bin are reduced together.
    """
    name = f"adaptive_pool{n}d"
    check_spatial(input, n, name)
    sizes = output_size if isinstance(output_size, tuple | list) else (output_size,) * n
    if len(sizes) != n or not all(size is None or (is_static(size) and size > 0) for size in sizes):
        raise MlaotError(f"{name}: output_size: expected a number or {n} of them, got {shown(output_size)}")
    axes = dict(zip(range(input.ndim - n, input.ndim), sizes, strict=True))
    if single := tuple(axis for axis, size in axes.items() if size == 1):
        input = reduce(input, axis=single, keepdims=True)
    for axis, size in axes.items():
        if size not in (None, 1):
            input = _bins(input, axis, size, static(input.shape[axis], name), reduce)
    return input


def _bins(x: Array, axis: int, size: int, length: int, reduce: Callable[..., Any]) -> Array:
    if length % size == 0:
        step = length // size
        return reduce(window(x, (axis,), (step,), (step,), (1,)), axis=-1)
    before = (slice(None),) * axis
    bins = [(i * length // size, -(-(i + 1) * length // size)) for i in range(size)]
    return np.stack([reduce(x[(*before, slice(start, end))], axis=axis) for start, end in bins], axis=axis)


class _Axis:
    """One pooled axis: its window, and its amounts of padding."""

    def __init__(self, name: str, length: Any, kernel: int, stride: int, padding: int, dilation: int, ceil: bool):
        reach = dilation * (kernel - 1) + 1
        if 2 * padding > reach:
            raise MlaotError(f"{name}: padding {padding} is more than half of the window {reach}")
        self.name, self.length, self.kernel, self.stride = name, length, kernel, stride
        self.padding, self.dilation, self.extra = padding, dilation, 0
        if ceil:
            padded = static(length, f"{name}: ceil_mode") + 2 * padding
            positions = -(-(padded - reach) // stride) + 1
            if (positions - 1) * stride >= length + padding:
                positions -= 1
            self.extra = max((positions - 1) * stride + reach - padded, 0)

    def counts(self, include_padding: bool) -> np.ndarray[Any, Any]:
        """Return the number of elements that each window averages: a single number if it is the same for all."""
        if not self.extra and (include_padding or not self.padding):
            return np.array([float(self.kernel)])
        length = static(self.length, f"{self.name}: the number of elements in a window at the border")
        last = length + self.padding + self.extra - self.kernel
        starts = np.arange(-self.padding, last + 1, self.stride)
        ends = np.minimum(starts + self.kernel, length + (self.padding if include_padding else 0))
        return (ends - (starts if include_padding else np.maximum(starts, 0))).astype(float)


def _axes(
    n: int, name: str, x: Array, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool
) -> list[_Axis]:
    check_spatial(x, n, name)
    kernels = tuple_of(kernel, n, f"{name}: kernel_size", 1)
    options = zip(
        x.shape[-n:],
        kernels,
        kernels if stride is None else tuple_of(stride, n, f"{name}: stride", 1),
        tuple_of(padding, n, f"{name}: padding"),
        tuple_of(dilation, n, f"{name}: dilation", 1),
        strict=True,
    )
    return [_Axis(name, *each, ceil) for each in options]


def _windows(x: Array, axes: list[_Axis], value: float) -> Array:
    x = pad_spatial(x, [(a.padding, a.padding + a.extra) for a in axes], value=value)
    spatial = tuple(range(x.ndim - len(axes), x.ndim))
    kernels, strides, dilations = zip(*[(a.kernel, a.stride, a.dilation) for a in axes], strict=True)
    return window(x, spatial, kernels, strides, dilations)
