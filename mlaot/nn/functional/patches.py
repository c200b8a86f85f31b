"""Rearrangements of axes: patches of images, pixels from channels, and groups of channels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.numpy import fold as fold_windows
from mlaot.frontend.numpy import window
from mlaot.nn.arguments import Array, check_spatial, static, tuple_of
from mlaot.nn.functional.convolution import pad_spatial

__all__ = ["channel_shuffle", "fold", "pixel_shuffle", "pixel_unshuffle", "unfold"]


def unfold(input: Array, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Array:
    """Extract the patches of [(n,) c, h, w] as columns: [(n,) c * kh * kw, patches]."""
    check_spatial(input, 2, "unfold")
    kernel, dilations, paddings, strides = _patches("unfold", kernel_size, dilation, padding, stride)
    padded = pad_spatial(input, [(p, p) for p in paddings])
    found = window(padded, (input.ndim - 2, input.ndim - 1), kernel, strides, dilations)
    columns = np.moveaxis(found, (-2, -1), (-4, -3))  # [(n,) c, kh, kw, positions ..]
    rows = static(input.shape[-3], "unfold") * math.prod(kernel)
    return np.reshape(columns, (*input.shape[:-3], rows, columns.shape[-2] * columns.shape[-1]))


def fold(
    input: Array, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Array:
    """Add patches [(n,) c * kh * kw, patches] up to images [(n,) c, *output_size]: the transpose of ``unfold``."""
    kernel, dilations, paddings, strides = _patches("fold", kernel_size, dilation, padding, stride)
    sizes = tuple_of(output_size, 2, "fold: output_size", 1)
    padded = [size + 2 * p for size, p in zip(sizes, paddings, strict=True)]
    positions = [
        (size - d * (k - 1) - 1) // s + 1 for size, k, d, s in zip(padded, kernel, dilations, strides, strict=True)
    ]
    if input.ndim not in (2, 3) or static(input.shape[-2], "fold") % math.prod(kernel):
        raise MlaotError(f"fold: expected [(n,) c * {math.prod(kernel)}, patches], got {list(input.shape)}")
    if input.shape[-1] != math.prod(positions):
        raise MlaotError(f"fold: expected {math.prod(positions)} patches for {list(sizes)}, got {list(input.shape)}")
    lead = (*input.shape[:-2], input.shape[-2] // math.prod(kernel))
    found = np.moveaxis(np.reshape(input, (*lead, *kernel, *positions)), (-4, -3), (-2, -1))
    axes = (len(lead), len(lead) + 1)
    image = fold_windows(found, axes, kernel, strides, dilations, shape=(*lead, *padded))
    return pad_spatial(image, [(-p, -p) for p in paddings])


def pixel_shuffle(input: Array, upscale_factor: int) -> Array:
    """Rearrange channels to squares of pixels (Shi et al., 2016): [.., c * r * r, h, w] to [.., c, h * r, w * r]."""
    r, channels = upscale_factor, _channels("pixel_shuffle", input)
    if r < 1 or channels % (r * r):
        raise MlaotError(f"pixel_shuffle: {channels} channels do not make squares of {r} x {r} pixels")
    *lead, _, h, w = input.shape
    parts = np.reshape(input, (*lead, channels // (r * r), r, r, h, w))
    return np.reshape(np.moveaxis(parts, (-4, -3), (-3, -1)), (*lead, channels // (r * r), h * r, w * r))


def pixel_unshuffle(input: Array, downscale_factor: int) -> Array:
    """Rearrange squares of pixels to channels: [.., c, h * r, w * r] becomes [.., c * r * r, h, w]."""
    r, channels = downscale_factor, _channels("pixel_unshuffle", input)
    *lead, _, height, width = input.shape
    h, w = (static(size, "pixel_unshuffle") for size in (height, width))
    if r < 1 or h % r or w % r:
        raise MlaotError(f"pixel_unshuffle: {h} x {w} pixels do not divide into squares of {r} x {r}")
    parts = np.reshape(input, (*lead, channels, h // r, r, w // r, r))
    return np.reshape(np.moveaxis(parts, (-3, -1), (-4, -3)), (*lead, channels * r * r, h // r, w // r))


def channel_shuffle(input: Array, groups: int) -> Array:
    """Interleave the channels (axis 1) of ``groups`` groups (Zhang et al., 2018)."""
    if input.ndim < 3 or groups < 1 or static(input.shape[1], "channel_shuffle") % groups:
        raise MlaotError(f"channel_shuffle: expected [n, channels, ..] in {groups} groups, got {list(input.shape)}")
    parts = np.reshape(input, (input.shape[0], groups, input.shape[1] // groups, *input.shape[2:]))
    return np.reshape(np.swapaxes(parts, 1, 2), input.shape)


def _patches(name: str, kernel: Any, dilation: Any, padding: Any, stride: Any) -> tuple[tuple[int, ...], ...]:
    named = (("kernel_size", kernel, 1), ("dilation", dilation, 1), ("padding", padding, 0), ("stride", stride, 1))
    kernels, dilations, paddings, strides = (tuple_of(v, 2, f"{name}: {what}", low) for what, v, low in named)
    return kernels, dilations, paddings, strides


def _channels(name: str, x: Array) -> int:
    if x.ndim < 3:
        raise MlaotError(f"{name}: expected [.., channels, h, w], got {list(x.shape)}")
    return static(x.shape[-3], name)
