"""Padding and interpolation.

Interpolation works on one axis at a time. Its positions and weights follow from the sizes, so they are constants.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.nn.arguments import Array, as_like, check_choice, is_static, shown, static, tuple_of
from mlaot.nn.functional.convolution import pad_spatial
from mlaot.nn.functional.pooling import adaptive_avg_pool

__all__ = ["interpolate", "pad"]

MODES = {"nearest": None, "nearest-exact": None, "linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2, "area": None}
CUBIC = -0.75  # the free coefficient of the cubic convolution (Keys, 1981)


def pad(input: Array, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Array:
    """Pad axes at both ends.

    ``pad`` lists two amounts for the last axis (before, after), then two for the axis before it, and so on. The modes
    are "constant", "reflect", "replicate" and "circular". In mode "constant" a negative amount cuts elements off.
    """
    check_choice(mode, ("constant", "reflect", "replicate", "circular"), "pad: mode")
    if len(pad) % 2 or len(pad) > 2 * input.ndim:
        raise MlaotError(f"pad: expected two numbers per axis of {list(input.shape)}, got {list(pad)}")
    amounts = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)]
    if mode == "constant":
        return pad_spatial(input, amounts[::-1], value=0.0 if value is None else value)
    if any(amount < 0 for amount in pad):
        raise MlaotError(f"pad: mode {mode!r} cannot cut off, got {list(pad)}")
    for i, (low, high) in enumerate(amounts):
        _check_room(input.shape[input.ndim - 1 - i], max(low, high), mode)
        input = _extended(input, input.ndim - 1 - i, low, high, mode)
    return input


def interpolate(
    input: Array,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
) -> Array:
    """Resize the spatial axes of [n, c, *spatial] to ``size``, or multiply their sizes by ``scale_factor``.

    The modes are "nearest", "nearest-exact", "linear", "bilinear", "trilinear", "bicubic" and "area". ``align_corners``
    puts the first and last elements of input and output at the same positions.
    """
    check_choice(mode, tuple(MODES), "interpolate: mode")
    n = input.ndim - 2
    if n not in (1, 2, 3) or MODES[mode] not in (None, n):
        raise MlaotError(f"interpolate: mode {mode!r} cannot resize {list(input.shape)}; expected [n, c, *spatial]")
    if align_corners is not None and MODES[mode] is None:
        raise MlaotError(f"interpolate: align_corners has no meaning for mode {mode!r}")
    lengths = [static(length, "interpolate") for length in input.shape[2:]]
    sizes, scales = _sizes(lengths, size, scale_factor, recompute_scale_factor)
    if mode == "area":
        return adaptive_avg_pool(n, input, sizes)
    for i in range(n):
        if mode in ("nearest", "nearest-exact"):
            taps = _nearest(lengths[i], sizes[i], scales[i], mode == "nearest-exact")
        else:
            taps = (_cubic if mode == "bicubic" else _linear)(lengths[i], sizes[i], scales[i], bool(align_corners))
        input = _resampled(input, 2 + i, taps)
    return input


Taps = list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any] | None]]  # positions in the input, and weights


def _check_room(length: Any, amount: int, mode: str) -> None:
    """Check that the padding fits the axis: less than its length to reflect, at most its length to wrap around."""
    most = {"reflect": length - 1, "circular": length}.get(mode, amount)
    if is_static(length) and amount > most:
        raise MlaotError(f"pad: {amount} is too much for mode {mode!r} and an axis of {length}; at most {most}")


def _extended(x: Array, axis: int, low: int, high: int, mode: str) -> Array:
    before: tuple[slice, ...] = (slice(None),) * axis
    if mode == "reflect":
        first, last = x[(*before, slice(low, 0, -1))], x[(*before, slice(-2, -2 - high, -1))]
    elif mode == "circular":
        first, last = x[(*before, slice(-low, None))], x[(*before, slice(0, high))]
    else:
        first = _repeated(x[(*before, slice(0, 1))], axis, low)
        last = _repeated(x[(*before, slice(-1, None))], axis, high)
    return np.concatenate([*([first] if low else []), x, *([last] if high else [])], axis=axis)


def _repeated(x: Array, axis: int, count: int) -> Array:
    return np.broadcast_to(x, (*x.shape[:axis], count, *x.shape[axis + 1 :]))


def _sizes(
    lengths: list[int], size: Any, scale_factor: Any, recompute: bool | None
) -> tuple[list[int], list[float | None]]:
    """Return the sizes of the output, and the scale of each axis, None where it is the ratio of the sizes."""
    n = len(lengths)
    if (size is None) == (scale_factor is None):
        raise MlaotError("interpolate: give either size or scale_factor")
    if size is not None:
        return list(tuple_of(size, n, "interpolate: size")), [None] * n
    factors = list(scale_factor) if isinstance(scale_factor, list | tuple) else [scale_factor] * n
    if len(factors) != n or not all(isinstance(f, int | float) and f > 0 for f in factors):
        raise MlaotError(f"interpolate: scale_factor: expected a number or {n} of them, got {shown(scale_factor)}")
    sizes = [math.floor(length * factor) for length, factor in zip(lengths, factors, strict=True)]
    return sizes, [None] * n if recompute else [1.0 / factor for factor in factors]


def _nearest(length: int, size: int, scale: float | None, exact: bool) -> Taps:
    step = np.float32(length / size if scale is None else scale)  # single precision, as PyTorch does
    positions = np.floor((np.arange(size, dtype=np.float32) + np.float32(0.5 if exact else 0)) * step)
    return [(np.minimum(positions.astype(np.int64), length - 1), None)]


def _source(length: int, size: int, scale: float | None, align_corners: bool) -> np.ndarray[Any, Any]:
    """Return the position in the input of each element of the output."""
    if align_corners:
        return np.arange(size) * ((length - 1) / (size - 1) if size > 1 else 0.0)
    return (np.arange(size) + 0.5) * (length / size if scale is None else scale) - 0.5


def _linear(length: int, size: int, scale: float | None, align_corners: bool) -> Taps:
    source = np.maximum(_source(length, size, scale, align_corners), 0.0)
    left = np.minimum(np.floor(source).astype(np.int64), length - 1)
    right = np.minimum(left + 1, length - 1)
    weight = np.clip(source - left, 0.0, 1.0)
    return [(left, 1.0 - weight), (right, weight)]


def _cubic(length: int, size: int, scale: float | None, align_corners: bool) -> Taps:
    source = _source(length, size, scale, align_corners)
    base = np.floor(source)
    t = source - base

    def near(x: Array) -> Array:
        return ((CUBIC + 2) * x - (CUBIC + 3)) * x * x + 1

    def far(x: Array) -> Array:
        return ((CUBIC * x - 5 * CUBIC) * x + 8 * CUBIC) * x - 4 * CUBIC

    weights = [far(t + 1), near(t), near(1 - t), far(2 - t)]
    return [(np.clip(base.astype(np.int64) + i - 1, 0, length - 1), weight) for i, weight in enumerate(weights)]


def _resampled(x: Array, axis: int, taps: Taps) -> Array:
    total: Array = None
    for positions, weight in taps:
        picked = np.take(x, positions, axis=axis)
        if weight is not None:
            picked = picked * as_like(np.reshape(weight, (-1,) + (1,) * (x.ndim - axis - 1)), x)
        total = picked if total is None else total + picked
    return total
