"""Operators that read images at computed places, between their elements: grids, regions of interest, deformation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any

import numpy as np

import mlaot.frontend.numpy as F
from mlaot.errors import MlaotError
from mlaot.frontend.numpy.indexing import in_range
from mlaot.frontend.trace.control import while_loop
from mlaot.ir.dims import product as extents_product
from mlaot.onnx.importer import Use
from mlaot.onnx.ops.normalization import per_channel
from mlaot.onnx.ops.resize import cubic_far, cubic_near
from mlaot.onnx.ops.windows import window_options
from mlaot.onnx.registry import operator
from mlaot.onnx.values import Computed, Unsupported, along, as_traced, constant_value, integers, is_fixed

CUBIC = -0.75  # the free coefficient of the cubic convolution
MODES = {"bilinear": "linear", "bicubic": "cubic", "linear": "linear", "cubic": "cubic", "nearest": "nearest"}
ROUNDS = 2**30  # more samples than a bin of any region has
FAR = 2.0**30  # beyond any image, and within what an index holds


def _spatial(x: Any) -> list[int]:
    sizes = list(x.shape[2:])
    if not is_fixed(*sizes):
        raise Unsupported(f"an image of {sizes} elements is read at computed places; pin the dimensions in [..dims]")
    return sizes


def _wide(x: Any) -> Any:
    """Return ``x`` as numbers with a fraction, in which places are computed."""
    return x if str(x.dtype) in ("float32", "float64") else F.astype(x, np.float32)


def _rows(x: Any) -> Any:
    """Return an image [n, c, ..] as [n, places, c]."""
    n, c, *spatial = x.shape
    return np.swapaxes(np.reshape(x, (n, c, math.prod(spatial))), 1, 2)


def _flat_place(places: Sequence[Any], sizes: Sequence[int]) -> Any:
    """Return row-major places from one for each axis."""
    total = places[0]
    for place, size in zip(places[1:], sizes[1:], strict=True):
        total = total * size + place
    return total


def _reflect(x: Any, low: float, high: float) -> Any:
    """Reflect places outside of [low, high] at its ends, as often as necessary."""
    if high <= low:
        return np.clip(x, low, low)
    along = np.remainder(np.abs(x - low), 2 * (high - low))
    back = low + np.where(along > high - low, 2 * (high - low) - along, along)
    return np.where((x < low) | (x > high), back, x)


def _taps(x: Any, mode: str) -> list[tuple[Any, Any]]:
    """Return the elements around places on one axis, and their weights."""
    if mode == "nearest":
        return [(x, None)]
    base = np.floor(x)
    t = x - base
    if mode == "linear":
        return [(base, 1 - t), (base + 1, t)]
    weights = [cubic_far(t + 1, CUBIC), cubic_near(t, CUBIC), cubic_near(1 - t, CUBIC), cubic_far(2 - t, CUBIC)]
    return [(base + (i - 1), weight) for i, weight in enumerate(weights)]


def _sample(
    x: Any, places: Sequence[Any], mode: str, padding: str, borders: Sequence[tuple[float, float]] | None = None
) -> Any:
    """Return an image [n, c, ..] at ``places``, an array [n, p] for each axis: [n, c, p]."""
    sizes, rows = _spatial(x), _rows(_wide(x))
    axes = []
    for i, (at, size) in enumerate(zip(places, sizes, strict=True)):
        taps = []
        for place, weight in _taps(np.clip(at, -FAR, FAR), mode):
            inside = (place >= 0) & (place <= size - 1)
            if padding == "reflection" and borders is not None:
                place = np.trunc(_reflect(place, *borders[i]))
            taps.append((F.astype(np.clip(place, 0, size - 1), np.int64), weight, inside))
        axes.append(taps)
    values = []
    for places, weights, insides in (zip(*choice, strict=True) for choice in product(*axes)):
        value = F.gather(rows, _flat_place(places, sizes), lead=1)
        if mode != "nearest":
            value = value * np.expand_dims(reduce(np.multiply, weights), -1)
        if padding == "zeros":  # the elements are passed over, whatever they and their weights are
            value = np.where(np.expand_dims(reduce(np.logical_and, insides), -1), value, 0.0)
        values.append(value)
    return np.swapaxes(reduce(np.add, values), 1, 2)


@operator("GridSample", since=16)
def grid_sample(use: Use, x: Any, grid: Any, *, padding_mode: str = "zeros", align_corners: bool = False) -> Any:
    mode = MODES.get(use.attribute("mode", "linear"))
    if mode is None or padding_mode not in ("zeros", "border", "reflection"):
        raise MlaotError(f"there is no mode {use.attribute('mode', '')!r} or no padding_mode {padding_mode!r}")
    sizes = _spatial(x)
    if grid.shape[-1] != len(sizes):
        raise MlaotError(f"a grid {list(grid.shape)} does not fit an image {list(x.shape)}")
    x, grid = as_traced(x), as_traced(_wide(grid))
    n, shape = grid.shape[0], grid.shape[1:-1]
    count = extents_product(tuple(shape))
    places, borders = [], []
    for i, size in enumerate(sizes):
        at = np.reshape(grid[..., len(sizes) - 1 - i], (n, count))
        at = (at + 1) * ((size - 1) / 2) if align_corners else ((at + 1) * size - 1) / 2
        low, high = (0.0, size - 1.0) if align_corners else (-0.5, size - 0.5)
        at = np.rint(at) if mode == "nearest" else at
        if padding_mode == "border":
            at = np.where((at < low) | (at > high), np.clip(at, 0, size - 1), at)
        elif padding_mode == "reflection":
            at = _reflect(at, low, high)
        places.append(at)
        borders.append((low, high))
    y = _sample(x, places, mode, padding_mode, borders)
    return F.astype(np.reshape(y, (n, x.shape[1], *shape)), x.dtype)


@operator("AffineGrid", since=20)
def affine_grid(use: Use, theta: Any, size: Any, *, align_corners: bool = False) -> Any:
    n = theta.shape[1]
    if constant_value(size) is not None:
        spatial = integers(size, "the size")[2:]
    else:
        type_ = use.declared()
        if type_ is None or not is_fixed(*type_.shape[1:]):
            raise Computed("the size is computed when the model runs; it must be constant, or the shape declared")
        spatial = list(type_.shape[1:-1])
        use.require(np.all(np.equal(size[2:], np.array(spatial, np.int64))), f"the size must be {spatial}")
    if len(spatial) != n or theta.shape[2] != n + 1:
        raise MlaotError(f"matrices {list(theta.shape)} do not fit images of {spatial}")
    lines = []
    for extent in spatial:
        at = np.arange(extent, dtype=np.float64)
        if align_corners:
            lines.append(at * (2 / (extent - 1)) - 1 if extent > 1 else at - 1)
        else:
            lines.append((2 * at + 1) / extent - 1)
    grids = np.meshgrid(*lines, indexing="ij")[::-1]
    base = np.stack([*grids, np.ones(spatial)], axis=-1).reshape(-1, n + 1)
    y = np.matmul(as_traced(base.astype(np.dtype(theta.dtype))), np.swapaxes(theta, 1, 2))
    return np.reshape(y, (theta.shape[0], *spatial, n))


@operator("DeformConv", since=19)
def deform_conv(
    use: Use, x: Any, w: Any, offset: Any, bias: Any = None, mask: Any = None, *, group: int = 1, offset_group: int = 1
) -> Any:
    n = x.ndim - 2
    kernel, strides, dilations = window_options(use, n, w.shape[2:])
    pads = use.attribute("pads", [0] * 2 * n)
    result = offset.shape[2:]
    batch, channels, taps = x.shape[0], x.shape[1], math.prod(kernel)
    if not is_fixed(*result, batch):
        raise Unsupported(f"offsets {list(offset.shape)} with open dimensions; pin them in [..dims]")
    if channels % offset_group or offset.shape[1] != offset_group * taps * n:
        raise MlaotError(f"offsets {list(offset.shape)} do not fit {channels} channels in {offset_group} groups")
    groups = batch * offset_group
    offset = np.reshape(_wide(as_traced(offset)), (groups, taps, n, *result))
    places = []
    for i in range(n):
        start = np.arange(result[i]) * strides[i] - pads[i]
        reach = np.indices(kernel)[i].reshape(-1) * dilations[i]
        at = reach.reshape(-1, *[1] * n) + along(start, i, n)
        places.append(np.reshape(offset[:, :, i] + at.astype(offset.dtype), (groups, taps * math.prod(result))))
    images = np.reshape(as_traced(x), (groups, channels // offset_group, *x.shape[2:]))
    samples = _sample(images, places, "linear", "zeros")
    samples = np.reshape(samples, (batch, offset_group, channels // offset_group, taps, -1))
    if mask is not None:
        samples = samples * np.reshape(_wide(mask), (batch, offset_group, 1, taps, -1))
    samples = np.reshape(samples, (batch, group, channels // group, taps, -1))
    weights = np.reshape(_wide(w), (group, w.shape[0] // group, channels // group, taps))
    y = np.reshape(np.einsum("bgckp,gock->bgop", samples, weights), (batch, w.shape[0], *result))
    return F.astype(y if bias is None else y + per_channel(_wide(bias), x.ndim), x.dtype)


@dataclass(frozen=True)
class _Regions:
    """Regions of images, cut into bins: the start of each region, and the size of its bins along both axes."""

    pixels: Any  # of all images, [places, channels]
    first: Any  # the place of each region's image
    sizes: list[int]
    bins: tuple[int, int]
    starts: list[Any]
    parts: list[Any]
    combine: Any  # of the elements around a place

    def sample(self, i: Any, j: Any, samples: Sequence[Any]) -> Any:
        """Sample (i, j) of ``samples`` in each bin: [regions, rows, columns, channels]."""
        (in_row, rows), (in_column, columns) = self.line(0, i, samples[0]), self.line(1, j, samples[1])
        values = []
        for (y, weight_y), (z, weight_z) in product(rows, columns):
            place = self.first + np.expand_dims(y, 2) * self.sizes[1] + np.expand_dims(z, 1)
            weight = np.expand_dims(weight_y, 2) * np.expand_dims(weight_z, 1)
            values.append(F.gather(self.pixels, place) * np.expand_dims(weight, -1))
        inside = np.expand_dims(in_row, 2) & np.expand_dims(in_column, 1)
        return np.where(np.expand_dims(inside, -1), reduce(self.combine, values), 0.0)

    def line(self, axis: int, i: Any, samples: Any) -> tuple[Any, list[tuple[Any, Any]]]:
        """Tell whether sample i of each bin is in the image along an axis; return elements around it and weights."""
        size, start, part = self.sizes[axis], self.starts[axis], self.parts[axis]
        dtype = np.dtype(part.dtype)
        inside = (np.reshape(F.astype(i, dtype), (-1, 1)) + 0.5) / np.reshape(samples, (-1, 1))
        bins = np.arange(self.bins[axis]).astype(dtype)
        at = np.expand_dims(start, 1) + (bins + inside) * np.expand_dims(part, 1)
        is_inside = (at >= -1.0) & (at <= float(size))
        at = np.clip(at, 0, size - 1)
        low = np.floor(at)
        share, index = at - low, F.astype(low, np.int64)
        return is_inside, [(index, 1 - share), (np.minimum(index + 1, size - 1), share)]


@operator("RoiAlign", since=10)
def roi_align(
    use: Use, x: Any, boxes: Any, images: Any, *, output_height: int = 1, output_width: int = 1, sampling_ratio: int = 0
) -> Any:
    half = use.attribute("coordinate_transformation_mode", "half_pixel" if use.opset >= 16 else "") == "half_pixel"
    mode = use.attribute("mode", "avg").lower()
    if mode not in ("avg", "max"):
        raise MlaotError(f"there is no mode {mode!r}")
    sizes, bins, combine = _spatial(x), (output_height, output_width), np.add if mode == "avg" else np.maximum
    x, boxes = as_traced(x), as_traced(_wide(boxes))
    ends = boxes * use.attribute("spatial_scale", 1.0) - (0.5 if half else 0.0)
    lengths = [ends[:, 3] - ends[:, 1], ends[:, 2] - ends[:, 0]]
    parts = [(e if half else np.maximum(e, 1.0)) / float(n) for e, n in zip(lengths, bins, strict=True)]
    pixels = np.reshape(np.moveaxis(_wide(x), 1, -1), (x.shape[0] * sizes[0] * sizes[1], x.shape[1]))
    first = np.reshape(F.astype(in_range(images, x.shape[0]), np.int64), (-1, 1, 1)) * (sizes[0] * sizes[1])
    regions = _Regions(pixels, first, sizes, bins, [ends[:, 1], ends[:, 0]], parts, combine)
    if sampling_ratio > 0:
        number = as_traced(np.full(1, sampling_ratio, np.float32).astype(np.dtype(boxes.dtype)))
        pairs = product([as_traced(np.full(1, i)) for i in range(sampling_ratio)], repeat=2)
        y = reduce(combine, [regions.sample(i, j, (number, number)) for i, j in pairs])
        y = y / float(sampling_ratio * sampling_ratio) if mode == "avg" else y
    else:
        blank = np.broadcast_to(as_traced(np.zeros((), np.dtype(boxes.dtype))), (boxes.shape[0], *bins, x.shape[1]))
        y = _sample_adaptively(regions, mode, blank)
    return F.astype(np.moveaxis(y, -1, 1), x.dtype)


def _sample_adaptively(regions: _Regions, mode: str, blank: Any) -> Any:
    """Take as many samples in a bin as it has elements. All regions need as many rounds as the largest one."""
    numbers = [np.maximum(np.ceil(part), 0) for part in regions.parts]
    most = [F.astype(np.max(n), np.int64) for n in numbers]

    def step(carry: Any) -> Any:
        k, total = carry
        i, j = k // np.maximum(most[1], 1), k % np.maximum(most[1], 1)
        value = regions.sample(i, j, [np.maximum(n, 1) for n in numbers])
        used = (i < F.astype(numbers[0], np.int64)) & (j < F.astype(numbers[1], np.int64))
        used = np.reshape(used, (-1, 1, 1, 1))
        if mode == "avg":
            return k + 1, total + np.where(used, value, 0.0)
        return k + 1, np.where(used, np.where(k == 0, value, np.maximum(total, value)), total)

    zero = as_traced(np.zeros((), np.int64))
    _, y = while_loop(lambda carry: carry[0] < most[0] * most[1], step, (zero, blank), bound=ROUNDS)
    return y / np.reshape(np.maximum(numbers[0] * numbers[1], 1), (-1, 1, 1, 1)) if mode == "avg" else y


@operator("MaxRoiPool")
def max_roi_pool(x: Any, regions: Any, *, pooled_shape: Any = None, spatial_scale: float = 1.0) -> Any:
    x, regions = as_traced(x), as_traced(_wide(regions))
    masks = []
    for axis, size in enumerate(_spatial(x)):
        start, end = (_round(regions[:, 1 + 2 * side + (1 - axis)] * spatial_scale) for side in (0, 1))
        part = np.expand_dims(np.maximum(end - start + 1, 1) / float(pooled_shape[axis]), 1)
        number = np.arange(pooled_shape[axis]).astype(np.dtype(regions.dtype))
        first = np.clip(np.floor(number * part) + np.expand_dims(start, 1), 0, size)
        last = np.clip(np.ceil((number + 1) * part) + np.expand_dims(start, 1), 0, size)
        at = np.arange(size).astype(np.dtype(regions.dtype))
        masks.append((at >= np.expand_dims(first, 2)) & (at < np.expand_dims(last, 2)))  # [regions, bins, size]
    rows, columns = masks
    images = np.take(_wide(x), F.astype(regions[:, 0], np.int64), axis=0)  # [regions, c, h, w]
    tall = np.where(np.expand_dims(rows, (1, 4)), np.expand_dims(images, 2), -math.inf)
    tall = np.max(tall, axis=3)  # [regions, c, bins, w]
    largest = np.max(np.where(np.expand_dims(columns, (1, 2)), np.expand_dims(tall, 3), -math.inf), axis=4)
    filled = np.any(rows, axis=2)[:, None, :, None] & np.any(columns, axis=2)[:, None, None, :]
    return F.astype(np.where(filled, largest, 0.0), x.dtype)


def _round(x: Any) -> Any:
    """Round to the nearest whole number, ties away from 0."""
    return np.where(x < 0, np.ceil(x - 0.5), np.floor(x + 0.5))
