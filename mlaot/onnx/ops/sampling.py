"""Operators that read images at computed places, between their elements: grids, regions of interest, deformation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from itertools import product
from typing import Any

import numpy as np

import mlaot.frontend.numpy as F
from mlaot.errors import MlaotError
from mlaot.frontend.numpy.indexing import in_range
from mlaot.frontend.trace.control import while_loop
from mlaot.onnx.importer import Use
from mlaot.onnx.ops.windows import _options
from mlaot.onnx.registry import operator
from mlaot.onnx.values import Unsupported, integers, known, traced

CUBIC = -0.75  # the free coefficient of the cubic convolution
MODES = {"bilinear": "linear", "bicubic": "cubic", "linear": "linear", "cubic": "cubic", "nearest": "nearest"}
ROUNDS = 2**30  # more samples than a bin of any region has
FAR = 2.0**30  # beyond any image, and within what an index holds


def _spatial(x: Any) -> list[int]:
    found = list(x.shape[2:])
    if not all(isinstance(extent, int) for extent in found):
        raise Unsupported(f"an image of {found} elements is read at computed places; pin the dimensions in [..dims]")
    return found


def _wide(x: Any) -> Any:
    """``x`` as numbers with a fraction, in which places are computed."""
    return x if str(x.dtype) in ("float32", "float64") else F.astype(x, np.float32)


def _rows(x: Any) -> Any:
    """An image [n, c, ..] as [n, places, c]."""
    n, c, *spatial = x.shape
    return np.swapaxes(np.reshape(x, (n, c, math.prod(spatial))), 1, 2)


def _flat_place(places: Sequence[Any], sizes: Sequence[int]) -> Any:
    """Row-major places from one for each axis."""
    total: Any = None
    for place, size in zip(places, sizes, strict=True):
        total = place if total is None else total * size + place
    return total


def _reflected(x: Any, low: float, high: float) -> Any:
    """Places outside of [low, high], mirrored at its ends as often as it takes."""
    if high <= low:
        return np.clip(x, low, low)
    along = np.remainder(np.abs(x - low), 2 * (high - low))
    back = low + np.where(along > high - low, 2 * (high - low) - along, along)
    return np.where((x < low) | (x > high), back, x)


def _taps(x: Any, mode: str) -> list[tuple[Any, Any]]:
    """The elements around places on one axis, and their weights."""
    if mode == "nearest":
        return [(x, None)]
    base = np.floor(x)
    t = x - base
    if mode == "linear":
        return [(base, 1 - t), (base + 1, t)]
    a = CUBIC

    def near(d: Any) -> Any:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Any) -> Any:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    weights = [far(t + 1), near(t), near(1 - t), far(2 - t)]
    return [(base + (i - 1), weight) for i, weight in enumerate(weights)]


def _sampled(
    x: Any, places: Sequence[Any], mode: str, padding: str, borders: Sequence[tuple[float, float]] | None = None
) -> Any:
    """An image [n, c, ..] at ``places``, an array [n, p] for each axis: [n, c, p]."""
    sizes, rows = _spatial(x), _rows(_wide(x))
    axes = []
    for i, (at, size) in enumerate(zip(places, sizes, strict=True)):
        found = []
        for place, weight in _taps(np.clip(at, -FAR, FAR), mode):
            inside = (place >= 0) & (place <= size - 1)
            if padding == "reflection" and borders is not None:
                place = np.trunc(_reflected(place, *borders[i]))
            index = F.astype(np.clip(place, 0, size - 1), np.int64)
            found.append((index, weight, inside))
        axes.append(found)
    total: Any = None
    for taps in _product(axes):
        value = F.gather(rows, _flat_place([t[0] for t in taps], sizes), lead=1)
        if mode != "nearest":
            value = value * np.expand_dims(reduce(np.multiply, [t[1] for t in taps]), -1)
        if padding == "zeros":  # the elements are passed over, whatever they and their weights are
            value = np.where(np.expand_dims(reduce(np.logical_and, [t[2] for t in taps]), -1), value, 0.0)
        total = value if total is None else total + value
    return np.swapaxes(total, 1, 2)


def _product(axes: list[list[Any]]) -> list[list[Any]]:
    """Every choice of one of each list."""
    found: list[list[Any]] = [[]]
    for axis in axes:
        found = [[*before, tap] for before in found for tap in axis]
    return found


@operator("GridSample", since=16)
def grid_sample(use: Use, x: Any, grid: Any) -> Any:
    mode, padding = MODES.get(use.string("mode", "linear")), use.string("padding_mode", "zeros")
    if mode is None or padding not in ("zeros", "border", "reflection"):
        raise MlaotError(f"there is no mode {use.string('mode', '')!r} or no padding_mode {padding!r}")
    sizes, aligned = _spatial(x), bool(use.attribute("align_corners", 0))
    if grid.shape[-1] != len(sizes):
        raise MlaotError(f"a grid {list(grid.shape)} does not fit an image {list(x.shape)}")
    x, grid = traced(x), traced(_wide(grid))
    n, shape = grid.shape[0], grid.shape[1:-1]
    count: Any = 1
    for extent in shape:
        count = count * extent
    places, borders = [], []
    for i, size in enumerate(sizes):
        at = np.reshape(grid[..., len(sizes) - 1 - i], (n, count))
        at = (at + 1) * ((size - 1) / 2) if aligned else ((at + 1) * size - 1) / 2
        low, high = (0.0, size - 1.0) if aligned else (-0.5, size - 0.5)
        at = np.rint(at) if mode == "nearest" else at
        if padding == "border":
            at = np.where((at < low) | (at > high), np.clip(at, 0, size - 1), at)
        elif padding == "reflection":
            at = _reflected(at, low, high)
        places.append(at)
        borders.append((low, high))
    found = _sampled(x, places, mode, padding, borders)
    return _as(np.reshape(found, (n, x.shape[1], *shape)), x)


def _as(found: Any, like: Any) -> Any:
    """A result in the dtype of the image."""
    return found if found.dtype == like.dtype else F.astype(found, like.dtype)


@operator("AffineGrid", since=20)
def affine_grid(use: Use, theta: Any, size: Any) -> Any:
    n = theta.shape[1]
    if known(size) is not None:
        spatial = integers(size, "the size")[2:]
    else:
        type_ = use.declared()
        if type_ is None or not all(isinstance(extent, int) for extent in type_.shape[1:]):
            raise Unsupported("the size is computed when the model runs; it must be constant, or the shape declared")
        spatial = list(type_.shape[1:-1])
        use.require(np.all(np.equal(size[2:], np.array(spatial, np.int64))), f"the size must be {spatial}")
    if len(spatial) != n or theta.shape[2] != n + 1:
        raise MlaotError(f"matrices {list(theta.shape)} do not fit images of {spatial}")
    lines = []
    for extent in spatial:
        at = np.arange(extent, dtype=np.float64)
        if use.attribute("align_corners", 0):
            lines.append(at * (2 / (extent - 1)) - 1 if extent > 1 else at - 1)
        else:
            lines.append((2 * at + 1) / extent - 1)
    grids = np.meshgrid(*lines, indexing="ij")[::-1]
    base = np.stack([*grids, np.ones(spatial)], axis=-1).reshape(-1, n + 1)
    found = np.matmul(traced(base.astype(np.dtype(theta.dtype))), np.swapaxes(theta, 1, 2))
    return np.reshape(found, (theta.shape[0], *spatial, n))


@operator("DeformConv", since=19)
def deform_conv(use: Use, x: Any, w: Any, offset: Any, bias: Any = None, mask: Any = None) -> Any:
    n = x.ndim - 2
    kernel, strides, dilations = _options(use, n, w.shape[2:])
    pads, groups = use.attribute("pads", [0] * 2 * n), use.attribute("group", 1)
    offsets, result = use.attribute("offset_group", 1), offset.shape[2:]
    batch, channels, taps = x.shape[0], x.shape[1], math.prod(kernel)
    if not all(isinstance(extent, int) for extent in (*result, batch)):
        raise Unsupported(f"offsets {list(offset.shape)} with open dimensions; pin them in [..dims]")
    if channels % offsets or offset.shape[1] != offsets * taps * n:
        raise MlaotError(f"offsets {list(offset.shape)} do not fit {channels} channels in {offsets} groups")
    count = taps * math.prod(result)
    moved = np.reshape(_wide(traced(offset)), (batch * offsets, taps, n, *result))
    places = []
    for i in range(n):
        start = np.arange(result[i]) * strides[i] - pads[i]
        reach = np.indices(kernel)[i].reshape(-1) * dilations[i]
        at = reach.reshape(-1, *[1] * n) + start.reshape([-1 if j == i else 1 for j in range(n)])
        places.append(np.reshape(moved[:, :, i] + at.astype(moved.dtype), (batch * offsets, count)))
    images = np.reshape(traced(x), (batch * offsets, channels // offsets, *x.shape[2:]))
    found = _sampled(images, places, "linear", "zeros")
    found = np.reshape(found, (batch, offsets, channels // offsets, taps, -1))
    if mask is not None:
        found = found * np.reshape(_wide(mask), (batch, offsets, 1, taps, -1))
    found = np.reshape(found, (batch, groups, channels // groups, taps, -1))
    weights = np.reshape(_wide(w), (groups, w.shape[0] // groups, channels // groups, taps))
    y = np.einsum("bgckp,gock->bgop", found, weights)
    y = np.reshape(y, (batch, w.shape[0], *result))
    if bias is not None:
        y = y + np.reshape(_wide(bias), (-1, *[1] * n))
    return _as(y, x)


@operator("RoiAlign", since=10)
def roi_align(use: Use, x: Any, regions: Any, images: Any) -> Any:
    rows, columns = use.attribute("output_height", 1), use.attribute("output_width", 1)
    ratio, scale = use.attribute("sampling_ratio", 0), use.attribute("spatial_scale", 1.0)
    half = use.string("coordinate_transformation_mode", "half_pixel" if use.opset >= 16 else "") == "half_pixel"
    mode = use.string("mode", "avg").lower()
    if mode not in ("avg", "max"):
        raise MlaotError(f"there is no mode {mode!r}")
    height, width = _spatial(x)
    x, regions = traced(x), traced(_wide(regions))
    count = regions.shape[0]
    ends = regions * scale - (0.5 if half else 0.0)
    starts = [ends[:, 1], ends[:, 0]]
    extents = [ends[:, 3] - ends[:, 1], ends[:, 2] - ends[:, 0]]
    if not half:
        extents = [np.maximum(extent, 1.0) for extent in extents]
    parts = [extent / float(bins) for extent, bins in zip(extents, (rows, columns), strict=True)]
    pixels = np.reshape(np.moveaxis(_wide(x), 1, -1), (x.shape[0] * height * width, x.shape[1]))
    first = np.reshape(F.astype(in_range(images, x.shape[0]), np.int64), (count, 1, 1)) * (height * width)

    def line(axis: int, bins: int, round_: Any, rounds: Any) -> tuple[Any, list[tuple[Any, Any]]]:
        """Whether a sample in each bin is in the image along one axis; the elements around it and their weights."""
        size = (height, width)[axis]
        inside = (np.reshape(F.astype(round_, parts[axis].dtype), (-1, 1)) + 0.5) / np.reshape(rounds, (-1, 1))
        bin_ = np.arange(bins).astype(np.dtype(parts[axis].dtype))
        at = np.expand_dims(starts[axis], 1) + (bin_ + inside) * np.expand_dims(parts[axis], 1)
        there = (at >= -1.0) & (at <= float(size))
        at = np.clip(at, 0, size - 1)
        low = np.floor(at)
        share = at - low
        index = F.astype(low, np.int64)
        return there, [(index, 1 - share), (np.minimum(index + 1, size - 1), share)]

    def sample(round_: Any, rounds: Any, column: Any, columns_: Any) -> Any:
        """One sample in each bin: [regions, rows, columns, channels]."""
        total: Any = None
        in_row, around_row = line(0, rows, round_, rounds)
        in_column, around_column = line(1, columns, column, columns_)
        for (y, wy), (z, wz) in product(around_row, around_column):
            place = first + np.expand_dims(y, 2) * width + np.expand_dims(z, 1)
            value = F.gather(pixels, place) * np.expand_dims(np.expand_dims(wy, 2) * np.expand_dims(wz, 1), -1)
            together = np.add if mode == "avg" else np.maximum
            total = value if total is None else together(total, value)
        inside = np.expand_dims(in_row, 2) & np.expand_dims(in_column, 1)
        return np.where(np.expand_dims(inside, -1), total, 0.0)

    shape = (count, rows, columns, x.shape[1])
    if ratio > 0:
        fixed = traced(np.full(1, ratio, np.float32).astype(np.dtype(regions.dtype)))
        found: Any = None
        for i in range(ratio):
            for j in range(ratio):
                value = sample(traced(np.full(1, i)), fixed, traced(np.full(1, j)), fixed)
                found = value if found is None else (found + value if mode == "avg" else np.maximum(found, value))
        found = found / float(ratio * ratio) if mode == "avg" else found
    else:
        many = [np.maximum(np.ceil(part), 0) for part in parts]
        most = [F.astype(np.max(m), np.int64) for m in many]
        start = traced(np.zeros((), np.int64)), np.broadcast_to(traced(np.zeros((), np.dtype(regions.dtype))), shape)

        def step(carry: Any) -> Any:
            number, total = carry
            i, j = number // np.maximum(most[1], 1), number % np.maximum(most[1], 1)
            value = sample(i, np.maximum(many[0], 1), j, np.maximum(many[1], 1))
            used = np.reshape((i < F.astype(many[0], np.int64)) & (j < F.astype(many[1], np.int64)), (count, 1, 1, 1))
            if mode == "avg":
                return number + 1, total + np.where(used, value, 0.0)
            return number + 1, np.where(used, np.where(number == 0, value, np.maximum(total, value)), total)

        _, found = while_loop(lambda carry: carry[0] < most[0] * most[1], step, start, bound=ROUNDS)
        if mode == "avg":
            found = found / np.reshape(np.maximum(many[0] * many[1], 1), (count, 1, 1, 1))
    return _as(np.moveaxis(found, -1, 1), x)


@operator("MaxRoiPool")
def max_roi_pool(use: Use, x: Any, regions: Any) -> Any:
    bins, scale = use.attribute("pooled_shape"), use.attribute("spatial_scale", 1.0)
    x, regions = traced(x), traced(_wide(regions))
    masks = []
    for axis, size in enumerate(_spatial(x)):
        start, end = (_rounded(regions[:, 1 + 2 * side + (1 - axis)] * scale) for side in (0, 1))
        part = np.expand_dims(np.maximum(end - start + 1, 1) / float(bins[axis]), 1)
        number = np.arange(bins[axis]).astype(np.dtype(regions.dtype))
        first = np.clip(np.floor(number * part) + np.expand_dims(start, 1), 0, size)
        last = np.clip(np.ceil((number + 1) * part) + np.expand_dims(start, 1), 0, size)
        at = np.arange(size).astype(np.dtype(regions.dtype))
        masks.append((at >= np.expand_dims(first, 2)) & (at < np.expand_dims(last, 2)))  # [regions, bins, size]
    rows, columns = masks
    images = np.take(_wide(x), F.astype(regions[:, 0], np.int64), axis=0)  # [regions, c, h, w]
    least = -math.inf
    tall = np.where(np.expand_dims(rows, (1, 4)), np.expand_dims(images, 2), least)
    tall = np.max(tall, axis=3)  # [regions, c, bins, w]
    whole = np.max(np.where(np.expand_dims(columns, (1, 2)), np.expand_dims(tall, 3), least), axis=4)
    filled = np.any(rows, axis=2)[:, None, :, None] & np.any(columns, axis=2)[:, None, None, :]
    return _as(np.where(filled, whole, 0.0), x)


def _rounded(x: Any) -> Any:
    """To the nearest whole number, halves away from 0."""
    return np.where(x < 0, np.ceil(x - 0.5), np.floor(x + 0.5))
