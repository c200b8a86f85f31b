"""Convolutions and pooling: operators over sliding windows of the spatial axes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend import numpy as F
from mlaot.frontend.numpy import fold, window
from mlaot.frontend.numpy.indexing import update
from mlaot.frontend.numpy.padding import pad
from mlaot.nn.functional.convolution import correlate, pad_spatial
from mlaot.onnx import assumed
from mlaot.onnx.importer import Use
from mlaot.onnx.registry import operator, operators
from mlaot.onnx.values import (
    Computed,
    Unsupported,
    along,
    as_traced,
    constant_value,
    integers,
    is_fixed,
    kind_of,
    limits,
)

LARGEST_BLOCK, MOST_AXES = 2**14, 4  # of blocks whose shape is computed
Ints = tuple[int, ...]
Pads = list[tuple[int, int]]


def window_options(use: Use, n: int, kernel: Any) -> tuple[Ints, Ints, Ints]:
    """Return the kernel's size, the strides and the dilations."""
    defaults = {"kernel_shape": kernel, "strides": (1,) * n, "dilations": (1,) * n}
    sizes, strides, dilations = (tuple(use.attribute(name, default)) for name, default in defaults.items())
    if not len(sizes) == len(strides) == len(dilations) == n:
        raise MlaotError(f"expected {n} sizes, strides and dilations, got {sizes}, {strides} and {dilations}")
    if min((*strides, *dilations, *sizes)) < 1:
        raise MlaotError(f"sizes, strides and dilations must be positive, got {sizes}, {strides} and {dilations}")
    return sizes, strides, dilations


def window_pads(use: Use, lengths: Any, sizes: Any, strides: Any, dilations: Any) -> Pads:
    """Return elements added before and behind each axis."""
    n, mode = len(sizes), use.attribute("auto_pad", "NOTSET")
    if mode in ("NOTSET", ""):
        pads = use.attribute("pads", [0] * 2 * n)
        if len(pads) != 2 * n:
            raise MlaotError(f"expected {2 * n} pads, got {list(pads)}")
        return [(int(pads[i]), int(pads[i + n])) for i in range(n)]
    if mode == "VALID":
        return [(0, 0)] * n
    totals = []
    for length, size, stride, dilation in zip(lengths, sizes, strides, dilations, strict=True):
        if not isinstance(length, int):
            if stride != 1:
                raise Unsupported(f"auto_pad of an open dimension {length} with a stride; pin it in [..dims]")
            length = 1
        totals.append(max((-(-length // stride) - 1) * stride + dilation * (size - 1) + 1 - length, 0))
    return _halves(totals, mode)


def _halves(totals: list[Any], mode: str) -> Pads:
    """Return both halves of each total; for SAME_UPPER the second half is the larger one."""
    return [(t // 2, t - t // 2) if mode == "SAME_UPPER" else (t - t // 2, t // 2) for t in totals]


@operator("Conv")
def conv(use: Use, x: Any, w: Any, bias: Any = None, *, group: int = 1) -> Any:
    _, strides, dilations = window_options(use, x.ndim - 2, w.shape[2:])
    pads = window_pads(use, x.shape[2:], w.shape[2:], strides, dilations)
    return correlate(pad_spatial(x, pads), w, bias, strides, dilations, group)


@operator("ConvTranspose")
def conv_transpose(
    use: Use, x: Any, w: Any, bias: Any = None, *, output_shape: Any = None, auto_pad: str = "NOTSET", group: int = 1
) -> Any:
    n = x.ndim - 2
    sizes, strides, dilations = window_options(use, n, w.shape[2:])
    extra = use.attribute("output_padding", [0] * n)
    reach = [d * (k - 1) for k, d in zip(sizes, dilations, strict=True)]
    if output_shape is not None or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        full = [(e - 1) * s + r + 1 for e, s, r in zip(x.shape[2:], strides, reach, strict=True)]
        wanted = output_shape or [e * s for e, s in zip(x.shape[2:], strides, strict=True)]
        totals = [f + o - t for f, o, t in zip(full, extra, wanted[-n:], strict=True)]
        if not is_fixed(*totals):
            raise Unsupported("an output shape that depends on an open dimension; pin it in [..dims]")
        pads = _halves(totals, auto_pad)
    else:
        pads = window_pads(use, x.shape[2:], sizes, strides, dilations)
    around = [(r - low, r - high + o) for r, (low, high), o in zip(reach, pads, extra, strict=True)]
    inner, outer = w.shape[0], w.shape[1]
    turned = w[(slice(None), slice(None), *[slice(None, None, -1)] * n)]
    grouped = np.swapaxes(np.reshape(turned, (group, inner // group, outer, *sizes)), 1, 2)
    flipped = np.reshape(grouped, (group * outer, inner // group, *sizes))
    dilated = pad_spatial(x, around, tuple(s - 1 for s in strides))
    return correlate(dilated, flipped, bias, (1,) * n, dilations, group)


def _windows(use: Use, x: Any, fill: float) -> tuple[Any, list[Any]]:
    """Return windows padded with ``fill``, and by axis the number of elements of the input, or its pads, in each."""
    n = x.ndim - 2
    sizes, strides, dilations = window_options(use, n, None if use.attribute("kernel_shape") else [1] * n)
    pads = window_pads(use, x.shape[2:], sizes, strides, dilations)
    axes = zip(x.shape[2:], sizes, strides, dilations, pads, strict=True)
    counts, extras = zip(*[_counts(use, *axis) for axis in axes], strict=True) if n else ((), ())
    before = (0, 0, *[low for low, _ in pads])
    behind = (0, 0, *[high + extra for (_, high), extra in zip(pads, extras, strict=True)])
    if any(before) or any(behind):
        x = pad(x, before, behind, value=fill)
    return window(x, tuple(range(2, x.ndim)), sizes, strides, dilations), list(counts)


def _counts(use: Use, length: Any, size: int, stride: int, dilation: int, pads: tuple[int, int]) -> tuple[Any, int]:
    """Return the number of elements of the windows along an axis, and the number missing after it for the last one."""
    low, high = pads
    reach = dilation * (size - 1) + 1
    is_up = use.attribute("ceil_mode", 0) and use.attribute("auto_pad", "NOTSET") != "VALID"
    counts_pads = use.attribute("count_include_pad", 0)
    if not isinstance(length, int):
        if is_up and high + stride > reach:  # whether the last window starts behind the elements is not known
            raise Unsupported(f"pooling with ceil_mode over an open dimension {length}; pin it in [..dims]")
        extra = stride - 1 if is_up else 0
        counted = pads if counts_pads else (0, 0)
        beside = low - counted[0], high - counted[1] + extra
        if not any(beside):
            return np.array([size], float), extra
        ones = pad(F.ones((length + sum(counted),), dtype=np.float32), beside[:1], beside[1:])
        return np.sum(window(ones, (0,), (size,), (stride,), (dilation,)), axis=-1), extra
    room = length + low + high - reach
    positions = (-(-room // stride) if is_up else room // stride) + 1
    if is_up and (positions - 1) * stride >= length + low:
        positions -= 1
    if positions < 1:
        raise MlaotError(f"a window of {reach} does not fit into {length + low + high} elements")
    taps = (np.arange(positions) * stride - low)[:, None] + np.arange(size) * dilation
    inside = (taps < length + high) if counts_pads else (taps >= 0) & (taps < length)
    return inside.sum(axis=1).astype(float), max((positions - 1) * stride - room, 0)


def _per_window(counts: list[Any], like: Any) -> Any:
    """Return the product of the axes' counts."""
    n = len(counts)
    total: Any = np.ones((1,) * n)
    for i, count in enumerate(counts):
        short = count[:1] if constant_value(count) is not None and (count == count[0]).all() else count
        total = total * along(short, i, n)
    if constant_value(total) is None:
        return F.astype(total, like.dtype)
    return float(total.flat[0]) if total.size == 1 else total.astype(like.dtype)


def _spatial(x: Any) -> tuple[int, ...]:
    """Return the axes after those of examples and channels, counted from the end."""
    return tuple(range(2 - x.ndim, 0))


@operator("AveragePool")
def average_pool(use: Use, x: Any) -> Any:
    windows, counts = _windows(use, x, 0.0)
    return np.sum(windows, axis=_spatial(x)) / _per_window(counts, x)


@operator("LpPool")
def lp_pool(use: Use, x: Any, *, p: int = 2) -> Any:
    windows, _ = _windows(use, np.abs(x) ** p, 0.0)
    return np.sum(windows, axis=_spatial(x)) ** (1.0 / p)


@operator("MaxPool")
def max_pool(use: Use, x: Any, *, storage_order: bool = False) -> Any:
    windows, _ = _windows(use, x, limits("float32" if kind_of(x) == "f" else x.dtype)[0])
    largest = np.max(windows, axis=_spatial(x))
    return (largest, _places(use, x, windows, storage_order)) if use.has(1) else largest


def _places(use: Use, x: Any, windows: Any, is_column_major: bool) -> Any:
    """Return the flat index of each maximum in its array."""
    if not is_fixed(*x.shape):
        raise Unsupported("indices of maxima over open dimensions; pin them in [..dims]")
    images, spatial, n = x.shape[:2], x.shape[2:], x.ndim - 2
    size, taps = math.prod(spatial), math.prod(windows.shape[-n:])
    flat = np.arange(size).reshape(spatial, order="F" if is_column_major else "C")
    first = np.arange(math.prod(images)).reshape(*images, *[1] * n) * size
    numbers, _ = _windows(use, as_traced((first + flat).astype(np.int64)), -1)
    shape = (*windows.shape[:-n], taps)
    best = np.argmax(np.reshape(windows, shape), axis=-1, keepdims=True)
    return np.squeeze(np.take_along_axis(np.reshape(numbers, shape), best, axis=-1), axis=-1)


def _power_sum(x: Any, p: int) -> Any:
    return np.sum(np.abs(x) ** p, axis=_spatial(x), keepdims=True)


operators(
    {
        "GlobalAveragePool": lambda x: np.mean(x, axis=_spatial(x), keepdims=True),
        "GlobalMaxPool": lambda x: np.max(x, axis=_spatial(x), keepdims=True),
        "GlobalLpPool": lambda x, *, p=2: _power_sum(x, p) ** (1.0 / p),
    }
)


@operator("Col2Im")
def col2im(use: Use, x: Any, image: Any, block: Any) -> Any:
    what, n = "the image's shape", int(image.shape[0])
    sizes = assumed.integers_or_declared(use, image, what, lambda: assumed.declared_shape(use, what)[2:])
    if constant_value(block) is not None:
        return _sum_blocks(use, x, sizes, integers(block, "the block's shape"))
    what = "the block's shape"
    error = Computed(f"{what} is computed when the model runs; it must be constant")
    channels = assumed.declared_extent(use, 1, error)
    elements = x.shape[1] // channels if channels and is_fixed(*x.shape[1:], *sizes) else 0
    if not (0 < elements <= LARGEST_BLOCK and 0 < n <= MOST_AXES):
        raise Computed(f"{what} is computed when the model runs, and can take too many values; make it constant")

    def fits(kernel: list[int]) -> bool:
        positions = _positions(use, sizes, kernel)
        return min(positions) > 0 and bool(math.prod(positions) == x.shape[2])

    fitting = filter(fits, _factors(elements, n))
    choices = ((np.all(np.equal(block, b)), partial(_sum_blocks, use, x, sizes, b)) for b in fitting)
    return assumed.choose(use, what, choices)


def _factors(number: int, n: int) -> Iterator[list[int]]:
    """Yield all vectors of ``n`` factors that make a number."""
    if n == 1:
        yield [number]
        return
    for divisor in range(1, number + 1):
        if number % divisor == 0:
            for rest in _factors(number // divisor, n - 1):
                yield [divisor, *rest]


def _positions(use: Use, sizes: Any, kernel: Any) -> list[Any]:
    """Return the number of blocks along each axis."""
    n = len(sizes)
    pads, ones = use.attribute("pads", [0] * 2 * n), [1] * n
    padded = [s + pads[i] + pads[i + n] for i, s in enumerate(sizes)]
    axes = zip(padded, kernel, use.attribute("strides", ones), use.attribute("dilations", ones), strict=True)
    return [(length - d * (k - 1) - 1) // s + 1 for length, k, s, d in axes]


def _sum_blocks(use: Use, x: Any, sizes: Any, kernel: Any) -> Any:
    """Add blocks of ``kernel`` elements to an image of ``sizes``."""
    n = len(sizes)
    strides, dilations = use.attribute("strides", [1] * n), use.attribute("dilations", [1] * n)
    pads, positions = use.attribute("pads", [0] * 2 * n), _positions(use, sizes, kernel)
    padded = [s + pads[i] + pads[i + n] for i, s in enumerate(sizes)]
    shape, spatial = (x.shape[0], x.shape[1] // math.prod(kernel)), tuple(range(2, 2 + n))
    y = np.reshape(x, (*shape, *kernel, *positions))
    y = np.moveaxis(y, spatial, tuple(range(2 + n, 2 + 2 * n)))
    z = fold(y, spatial, tuple(kernel), tuple(strides), tuple(dilations), shape=(*shape, *padded))
    return z[(slice(None), slice(None), *[slice(pads[i], pads[i] + s) for i, s in enumerate(sizes)])]


@operator("MaxUnpool")
def max_unpool(use: Use, x: Any, places: Any, shape: Any = None) -> Any:
    n = x.ndim - 2
    sizes, strides, _ = window_options(use, n, None)
    pads = use.attribute("pads", [0] * 2 * n)
    axes = zip(x.shape[2:], sizes, strides, strict=True)
    spatial = [(e - 1) * s - pads[i] - pads[i + n] + k for i, (e, k, s) in enumerate(axes)]
    small = large = [*x.shape[:2], *spatial]  # indices are those of the small image, also where a larger one is wanted
    if shape is not None:
        what = "its third input, the shape,"
        large = assumed.integers_or_declared(use, shape, what, lambda: assumed.declared_shape(use, what))
    blank = as_traced(np.zeros(math.prod(small), x.dtype))
    y = np.reshape(update(blank, (np.ravel(places),), np.ravel(x), "set"), small)
    more = [b - a for a, b in zip(small, large, strict=True)]
    return pad(y, (0,) * len(more), tuple(more)) if any(more) else y


@operator("LRN")
def lrn(x: Any, *, size: Any = None, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Any:
    low, high = (size - 1) // 2, size - 1 - (size - 1) // 2
    rest = (0,) * (x.ndim - 2)
    squares = window(pad(x * x, (0, low, *rest), (0, high, *rest)), (1,), (size,), (1,), (1,))
    return x / (bias + alpha / size * np.sum(squares, axis=-1)) ** beta
