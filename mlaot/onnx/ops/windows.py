"""Convolutions and pooling: operators over sliding windows of the spatial axes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend import numpy as F
from mlaot.frontend.numpy import fold, window
from mlaot.frontend.numpy.padding import pad
from mlaot.nn.functional.convolution import correlate, pad_spatial
from mlaot.onnx import assumed
from mlaot.onnx.importer import Use
from mlaot.onnx.registry import operator
from mlaot.onnx.values import Unsupported, integers, kind_of, known, traced

Pads = list[tuple[int, int]]


def _options(use: Use, n: int, kernel: Any) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """The kernel's size, the strides and the dilations."""
    sizes = tuple(use.attribute("kernel_shape", kernel))
    strides = tuple(use.attribute("strides", [1] * n))
    dilations = tuple(use.attribute("dilations", [1] * n))
    if not len(sizes) == len(strides) == len(dilations) == n:
        raise MlaotError(f"expected {n} sizes, strides and dilations, got {sizes}, {strides} and {dilations}")
    if min((*strides, *dilations, *sizes)) < 1:
        raise MlaotError(f"sizes, strides and dilations must be positive, got {sizes}, {strides} and {dilations}")
    return sizes, strides, dilations


def _pads(use: Use, lengths: Any, sizes: Any, strides: Any, dilations: Any) -> Pads:
    """Elements added before and behind each axis."""
    n, mode = len(sizes), use.string("auto_pad", "NOTSET")
    if mode in ("NOTSET", ""):
        given = use.attribute("pads", [0] * 2 * n)
        if len(given) != 2 * n:
            raise MlaotError(f"expected {2 * n} pads, got {list(given)}")
        return [(int(given[i]), int(given[i + n])) for i in range(n)]
    if mode == "VALID":
        return [(0, 0)] * n
    found = []
    for length, size, stride, dilation in zip(lengths, sizes, strides, dilations, strict=True):
        if not isinstance(length, int):
            if stride != 1:
                raise Unsupported(f"auto_pad of an open dimension {length} with a stride; pin it in [..dims]")
            length = 1
        total = max((-(-length // stride) - 1) * stride + dilation * (size - 1) + 1 - length, 0)
        found.append((total // 2, total - total // 2) if mode == "SAME_UPPER" else (total - total // 2, total // 2))
    return found


@operator("Conv")
def conv(use: Use, x: Any, w: Any, bias: Any = None) -> Any:
    n = x.ndim - 2
    _, strides, dilations = _options(use, n, w.shape[2:])
    amounts = _pads(use, x.shape[2:], w.shape[2:], strides, dilations)
    return correlate(pad_spatial(x, amounts), w, bias, strides, dilations, use.attribute("group", 1))


@operator("ConvTranspose")
def conv_transpose(use: Use, x: Any, w: Any, bias: Any = None) -> Any:
    n, groups = x.ndim - 2, use.attribute("group", 1)
    sizes, strides, dilations = _options(use, n, w.shape[2:])
    extra = use.attribute("output_padding", [0] * n)
    reach = [d * (k - 1) for k, d in zip(sizes, dilations, strict=True)]
    wanted = use.attribute("output_shape")
    mode = use.string("auto_pad", "NOTSET")
    full = [(e - 1) * s + r + 1 for e, s, r in zip(x.shape[2:], strides, reach, strict=True)]
    if wanted is not None or mode in ("SAME_UPPER", "SAME_LOWER"):
        if wanted is None:
            wanted = [e * s for e, s in zip(x.shape[2:], strides, strict=True)]
        totals = [f + o - t for f, o, t in zip(full, extra, wanted[-n:], strict=True)]
        if not all(isinstance(t, int) for t in totals):
            raise Unsupported("an output shape that depends on an open dimension; pin it in [..dims]")
        upper = mode == "SAME_UPPER"
        amounts = [(t // 2, t - t // 2) if upper else (t - t // 2, t // 2) for t in totals]
    else:
        amounts = _pads(use, x.shape[2:], sizes, strides, dilations)
    around = [(r - low, r - high + o) for r, (low, high), o in zip(reach, amounts, extra, strict=True)]
    inner, outer = w.shape[0], w.shape[1]
    turned = w[(slice(None), slice(None), *[slice(None, None, -1)] * n)]
    grouped = np.swapaxes(np.reshape(turned, (groups, inner // groups, outer, *sizes)), 1, 2)
    flipped = np.reshape(grouped, (groups * outer, inner // groups, *sizes))
    spread = pad_spatial(x, around, tuple(s - 1 for s in strides))
    return correlate(spread, flipped, bias, (1,) * n, dilations, groups)


def _windows(use: Use, x: Any, fill: float) -> tuple[Any, list[Any]]:
    """Windows with ``fill`` around, and how many elements of the input (or its pads) each one has along each axis."""
    n = x.ndim - 2
    sizes, strides, dilations = _options(use, n, None if use.attribute("kernel_shape") else [1] * n)
    amounts = _pads(use, x.shape[2:], sizes, strides, dilations)
    counts, extras = [], []
    is_up = use.attribute("ceil_mode", 0) and use.string("auto_pad", "NOTSET") != "VALID"
    axes = zip(x.shape[2:], sizes, strides, dilations, amounts, strict=True)
    for length, size, stride, dilation, (low, high) in axes:
        reach = dilation * (size - 1) + 1
        if not isinstance(length, int):
            if is_up and high + stride > reach:  # whether the last window starts behind the elements is not known
                raise Unsupported(f"pooling with ceil_mode over an open dimension {length}; pin it in [..dims]")
            extras.append(stride - 1 if is_up else 0)
            counted = (low, high) if use.attribute("count_include_pad", 0) else (0, 0)
            beside = low - counted[0], high - counted[1] + extras[-1]
            counts.append(np.array([size], float))
            if any(beside):
                there = pad(F.ones((length + sum(counted),), dtype=np.float32), beside[:1], beside[1:])
                counts[-1] = np.sum(window(there, (0,), (size,), (stride,), (dilation,)), axis=-1)
            continue
        room = length + low + high - reach
        positions = (-(-room // stride) if is_up else room // stride) + 1
        if is_up and (positions - 1) * stride >= length + low:
            positions -= 1
        if positions < 1:
            raise MlaotError(f"a window of {reach} does not fit into {length + low + high} elements")
        extras.append(max((positions - 1) * stride + reach - (length + low + high), 0))
        starts = np.arange(positions) * stride - low
        taps = starts[:, None] + np.arange(size) * dilation
        padded = bool(use.attribute("count_include_pad", 0))
        inside = (taps < length + high) if padded else (taps >= 0) & (taps < length)
        counts.append(inside.sum(axis=1).astype(float))
    before = (0, 0, *[a for a, _ in amounts])
    behind = (0, 0, *[b + e for (_, b), e in zip(amounts, extras, strict=True)])
    if any(before) or any(behind):
        x = pad(x, before, behind, value=fill)
    return window(x, tuple(range(2, x.ndim)), sizes, strides, dilations), counts


def _per_window(counts: list[Any], like: Any) -> Any:
    """The product of the axes' counts."""
    n = len(counts)
    total: Any = np.ones((1,) * n)
    for i, count in enumerate(counts):
        short = count[:1] if known(count) is not None and (count == count[0]).all() else count
        total = total * np.reshape(short, [-1 if j == i else 1 for j in range(n)])
    if known(total) is None:
        return F.astype(total, like.dtype)
    return float(total.flat[0]) if total.size == 1 else total.astype(like.dtype)


@operator("AveragePool")
def average_pool(use: Use, x: Any) -> Any:
    seen, counts = _windows(use, x, 0.0)
    return np.sum(seen, axis=tuple(range(2 - x.ndim, 0))) / _per_window(counts, x)


@operator("LpPool")
def lp_pool(use: Use, x: Any) -> Any:
    p = use.attribute("p", 2)
    seen, _ = _windows(use, np.abs(x) ** p, 0.0)
    return np.sum(seen, axis=tuple(range(2 - x.ndim, 0))) ** (1.0 / p)


@operator("MaxPool")
def max_pool(use: Use, x: Any) -> Any:
    least = -math.inf if kind_of(x) == "f" else int(np.iinfo(x.dtype).min)
    axes = tuple(range(2 - x.ndim, 0))
    seen, _ = _windows(use, x, least)
    found = np.max(seen, axis=axes)
    if not use.has(1):
        return found
    return found, _places(use, x, seen)


def _places(use: Use, x: Any, seen: Any) -> Any:
    """Where in its array each maximum was, as a flat index."""
    if not all(isinstance(e, int) for e in x.shape):
        raise Unsupported("indices of maxima over open dimensions; pin them in [..dims]")
    spatial = x.shape[2:]
    order = tuple(reversed(range(len(spatial)))) if use.attribute("storage_order", 0) else tuple(range(len(spatial)))
    flat = np.arange(math.prod(spatial)).reshape([spatial[i] for i in order]).transpose(np.argsort(order))
    images = np.arange(x.shape[0] * x.shape[1]).reshape(x.shape[0], x.shape[1], *[1] * len(spatial))
    numbers, _ = _windows(use, traced((images * math.prod(spatial) + flat).astype(np.int64)), -1)
    n = len(spatial)
    taps = math.prod(seen.shape[-n:])
    best = np.argmax(np.reshape(seen, (*seen.shape[:-n], taps)), axis=-1, keepdims=True)
    return np.squeeze(np.take_along_axis(np.reshape(numbers, (*seen.shape[:-n], taps)), best, axis=-1), axis=-1)


@operator("GlobalAveragePool")
def global_average_pool(use: Use, x: Any) -> Any:
    return np.mean(x, axis=tuple(range(2, x.ndim)), keepdims=True)


@operator("GlobalMaxPool")
def global_max_pool(use: Use, x: Any) -> Any:
    return np.max(x, axis=tuple(range(2, x.ndim)), keepdims=True)


@operator("GlobalLpPool")
def global_lp_pool(use: Use, x: Any) -> Any:
    p = use.attribute("p", 2)
    return np.sum(np.abs(x) ** p, axis=tuple(range(2, x.ndim)), keepdims=True) ** (1.0 / p)


@operator("Col2Im")
def col2im(use: Use, x: Any, image: Any, block: Any) -> Any:
    sizes, kernel = integers(image, "the image's shape"), integers(block, "the block's shape")
    n = len(sizes)
    strides, dilations = use.attribute("strides", [1] * n), use.attribute("dilations", [1] * n)
    given = use.attribute("pads", [0] * 2 * n)
    whole = [s + given[i] + given[i + n] for i, s in enumerate(sizes)]
    axes = zip(whole, kernel, strides, dilations, strict=True)
    positions = [(w - d * (k - 1) - 1) // s + 1 for w, k, s, d in axes]
    channels = x.shape[1] // math.prod(kernel)
    y = np.reshape(x, (x.shape[0], channels, *kernel, *positions))
    y = np.moveaxis(y, tuple(range(2, 2 + n)), tuple(range(2 + n, 2 + 2 * n)))
    shape = (x.shape[0], channels, *whole)
    z = fold(y, tuple(range(2, 2 + n)), tuple(kernel), tuple(strides), tuple(dilations), shape=shape)
    return z[(slice(None), slice(None), *[slice(given[i], given[i] + s) for i, s in enumerate(sizes)])]


@operator("MaxUnpool")
def max_unpool(use: Use, x: Any, places: Any, shape: Any = None) -> Any:
    from mlaot.frontend.numpy.indexing import update

    n = x.ndim - 2
    sizes, strides, _ = _options(use, n, None)
    given = use.attribute("pads", [0] * 2 * n)
    axes = zip(x.shape[2:], sizes, strides, strict=True)
    spatial = [(e - 1) * s - given[i] - given[i + n] + k for i, (e, k, s) in enumerate(axes)]
    small = whole = [*x.shape[:2], *spatial]  # whose indices are given, also where a larger image is asked for
    if shape is not None:
        what = "its third input, the shape,"
        whole = assumed.settled_integers(use, shape, what, lambda: assumed.declared_shape(use, what))
    blank = traced(np.zeros(math.prod(small), x.dtype))
    found = np.reshape(update(blank, (np.ravel(places),), np.ravel(x), "set"), small)
    more = [b - a for a, b in zip(small, whole, strict=True)]
    return pad(found, (0,) * len(more), tuple(more)) if any(more) else found


@operator("LRN")
def lrn(use: Use, x: Any) -> Any:
    size = use.attribute("size")
    alpha, beta, bias = use.attribute("alpha", 1e-4), use.attribute("beta", 0.75), use.attribute("bias", 1.0)
    low, high = (size - 1) // 2, size - 1 - (size - 1) // 2
    rest = (0,) * (x.ndim - 2)
    squares = window(pad(x * x, (0, low, *rest), (0, high, *rest)), (1,), (size,), (1,), (1,))
    return x / (bias + alpha / size * np.sum(squares, axis=-1)) ** beta
