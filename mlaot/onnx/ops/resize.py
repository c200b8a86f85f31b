"""Resize and Upsample: each axis is resampled by itself, as a sum of a few elements with constant weights."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

import mlaot.frontend.numpy as F
from mlaot.errors import MlaotError
from mlaot.frontend.trace.protocols import is_traced
from mlaot.ir.dims import Expr
from mlaot.onnx.assumed import declared_shape, require_equal
from mlaot.onnx.importer import Use
from mlaot.onnx.registry import operator
from mlaot.onnx.values import Unsupported, integers, known, lifted, of_dims, traced, wanted

REACH = {"linear": 1, "cubic": 2}  # how far from an element its weight is not 0
INTERPOLATIONS = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "cubic": "cubic"}
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


@dataclass(frozen=True)
class Axis:
    """How an axis is resampled: ``scale`` times as long, which ``size`` is the whole part of.

    The scale and the ends of the region may be computed when the model runs.
    """

    length: Any
    size: Any
    scale: Any
    start: Any = 0.0
    end: Any = 1.0

    @property
    def is_kept(self) -> bool:
        """Whether nothing happens to it."""
        if is_traced(self.scale) or is_traced(self.start):
            return False
        return bool(self.length == self.size and math.isclose(self.scale, 1.0) and (self.start, self.end) == (0.0, 1.0))


@operator("Resize", since=11, symbolic=True)
def resize(use: Use, x: Any, roi: Any = None, scales: Any = None, sizes: Any = None) -> Any:
    x = lifted(x)
    axes = [a % x.ndim for a in use.attribute("axes", range(x.ndim))]
    transform = use.string("coordinate_transformation_mode", "half_pixel")
    cut = _region(roi, len(axes)) if transform == "tf_crop_and_resize" else [(0.0, 1.0)] * len(axes)
    lengths = [x.shape[a] for a in axes]
    policy = use.string("keep_aspect_ratio_policy", "stretch")
    if sizes is not None and np.size(sizes):
        if known(sizes) is None:
            found = _by_computed_sizes(use, lengths, sizes, axes, cut, policy)
        else:
            found = _by_sizes(lengths, integers(sizes, "the sizes"), cut, policy)
    elif scales is not None and known(scales) is None:
        found = _by_computed_scales(use, lengths, scales, axes, cut)
    else:
        found = _by_scales(lengths, _scales(scales), cut)
    for axis, how in _ordered(zip(axes, found, strict=True)):
        x = _resampled(use, x, axis, how, transform)
    return x


def _ordered(axes: Iterable[tuple[int, Axis]]) -> list[tuple[int, Axis]]:
    """Axes in the order that takes least work: those that shrink first, whole rows before places in them."""

    def order(pair: tuple[int, Axis]) -> tuple[float, int]:
        axis, how = pair
        is_known = isinstance(how.length, int) and isinstance(how.size, int)
        scale = how.scale if not is_traced(how.scale) else how.size / max(how.length, 1) if is_known else 1.0
        return scale, axis if scale < 1 else -axis

    return sorted(axes, key=order)


def _by_computed_sizes(
    use: Use, lengths: list[Any], sizes: Any, axes: list[int], cut: list[tuple[Any, Any]], policy: str
) -> list[Axis]:
    """For the sizes that the file declares."""
    targets: list[Any] = [declared_shape(use, "the size")[a] for a in axes]
    if policy == "stretch":
        require_equal(use, sizes, targets, "the size")
        return _by_sizes(lengths, targets, cut, policy)
    if not all(isinstance(extent, int) for extent in (*lengths, *targets)):
        raise Unsupported(f"{policy} with an open dimension; pin it in [..dims]")
    ratios = F.astype(sizes, np.float64) / np.array(lengths, np.float64)
    common = np.min(ratios) if policy == "not_larger" else np.max(ratios)
    fitting = [np.equal(np.floor(common * n + 0.5), t) for n, t in zip(lengths, targets, strict=True)]
    use.require(reduce(np.logical_and, fitting), f"the size must make {targets}")
    return [Axis(n, t, common, start, end) for n, t, (start, end) in zip(lengths, targets, cut, strict=True)]


def _by_computed_scales(
    use: Use, lengths: list[Any], scales: Any, axes: list[int], cut: list[tuple[Any, Any]]
) -> list[Axis]:
    """For the sizes that the file declares; the scales themselves are computed with."""
    shape = declared_shape(use, "the scale")
    if scales.shape != (len(axes),):
        raise MlaotError(f"expected {len(axes)} scales, got {list(scales.shape)}")
    found, fitting = [], []
    for i, (axis, length, (start, end)) in enumerate(zip(axes, lengths, cut, strict=True)):
        scale, size = F.astype(scales[i], np.float32), shape[axis]
        if length == size and (start, end) == (0.0, 1.0):
            fitting.append(np.equal(scale, 1))
            found.append(Axis(length, size, 1.0))
            continue
        if not isinstance(length, int) or not isinstance(size, int) or not size:
            raise Unsupported(f"an open dimension {length} is resized by what is computed; pin it in [..dims]")
        grown = np.float32(length) * F.astype(
            np.asarray(end - start) if not is_traced(end) else end - start, np.float32
        )
        fitting.append(np.equal(np.floor(grown * scale), size))
        found.append(Axis(length, size, F.astype(scale, np.float64), start, end))
    use.require(reduce(np.logical_and, fitting), f"the scale must make {list(shape)}")
    return found


@operator("Resize", since=10, symbolic=True)
def resize_10(use: Use, x: Any, scales: Any) -> Any:
    return _asymmetric(use, lifted(x), scales)


@operator("Upsample", symbolic=True)
def upsample(use: Use, x: Any, scales: Any = None) -> Any:
    if use.opset >= 9:
        return _asymmetric(use, lifted(x), scales)
    if use.opset >= 7:
        factors = use.attribute("scales")
    else:
        factors = [1.0, 1.0, use.attribute("height_scale"), use.attribute("width_scale")]
    return _asymmetric(use, lifted(x), np.array(factors, np.float64))


def _asymmetric(use: Use, x: Any, scales: Any) -> Any:
    axes, cut = list(range(x.ndim)), [(0.0, 1.0)] * x.ndim
    if known(scales) is None:
        found = _by_computed_scales(use, list(x.shape), scales, axes, cut)
    else:
        found = _by_scales(list(x.shape), _scales(scales), cut)
    for axis, how in _ordered(enumerate(found)):
        is_larger = how.size >= how.length if is_traced(how.scale) else how.scale >= 1
        x = _resampled(use, x, axis, how, "asymmetric", "floor" if is_larger else "ceil")
    return x


def _scales(scales: Any) -> list[float]:
    if scales is None or not np.size(scales):
        raise MlaotError("neither scales nor sizes are given")
    return [float(s) for s in np.ravel(wanted(scales, "the scales"))]


def _region(roi: Any, count: int) -> list[tuple[Any, Any]]:
    if roi is None or not np.size(roi):
        raise MlaotError("tf_crop_and_resize without a region")
    if known(roi) is None:
        computed = F.astype(np.reshape(roi, (2, count)), np.float64)
        return [(computed[0, i], computed[1, i]) for i in range(count)]
    ends = [float(v) for v in np.ravel(wanted(roi, "the region"))]
    if len(ends) != 2 * count:
        raise MlaotError(f"a region of {count} axes has {2 * count} numbers, not {len(ends)}")
    return list(zip(ends[:count], ends[count:], strict=True))


def _by_scales(lengths: list[Any], scales: list[float], cut: list[tuple[Any, Any]]) -> list[Axis]:
    if len(scales) != len(lengths):
        raise MlaotError(f"expected {len(lengths)} scales, got {scales}")
    if min(scales) <= 0 or not np.isfinite(scales).all():
        raise MlaotError(f"scales must be positive numbers, got {scales}")
    found = []
    for length, scale, (start, end) in zip(lengths, scales, cut, strict=True):
        size: Any
        if isinstance(length, Expr):
            if (start, end) != (0.0, 1.0):
                raise Unsupported(f"a region of an open dimension {length}; pin it in [..dims]")
            top, bottom = scale.as_integer_ratio()
            size = length * top // bottom
        elif is_traced(start):
            raise Unsupported("the region and with it the size is computed when the model runs; give sizes")
        else:  # in single precision, as ONNX infers shapes
            size = math.floor(np.float32(length) * np.float32(end - start) * np.float32(scale))
        found.append(Axis(length, size, scale, start, end))
    return found


def _by_sizes(lengths: list[Any], sizes: list[Any], cut: list[tuple[Any, Any]], policy: str) -> list[Axis]:
    if len(sizes) != len(lengths):
        raise MlaotError(f"expected {len(lengths)} sizes, got {sizes}")
    if policy not in ("stretch", "not_larger", "not_smaller"):
        raise MlaotError(f"there is no keep_aspect_ratio_policy {policy!r}")
    scales = [_ratio(size, length) for length, size in zip(lengths, sizes, strict=True)]
    if policy != "stretch":
        common = min(scales) if policy == "not_larger" else max(scales)
        if any(isinstance(length, Expr) for length in lengths):
            raise Unsupported(f"{policy} with an open dimension; pin it in [..dims]")
        scales = [common] * len(scales)
        sizes = [math.floor(common * length + 0.5) for length in lengths]
    axes = zip(lengths, sizes, scales, cut, strict=True)
    return [Axis(length, size, scale, start, end) for length, size, scale, (start, end) in axes]


def _ratio(size: Any, length: Any) -> Any:
    if size == length:
        return 1.0
    if isinstance(size, Expr) or isinstance(length, Expr):
        for factor in range(2, 65):
            if size == length * factor:
                return float(factor)
        return _number(size) / _number(length)
    if length == 0 or size < 0:
        raise MlaotError(f"an axis of {length} elements cannot be resized to {size}")
    return float(size / length)


def _number(extent: Any) -> Any:
    """An extent to compute places with."""
    return F.astype(traced(extent), np.float64) if isinstance(extent, Expr) else float(extent)


def _resampled(use: Use, x: Any, axis: int, how: Axis, transform: str, nearest: str = "") -> Any:
    """``x`` with one axis resampled."""
    if how.is_kept:
        return x
    mode = INTERPOLATIONS.get(use.string("mode", "nearest"))
    if mode is None:
        raise MlaotError(f"there is no mode {use.string('mode', '')!r}")
    nearest = nearest or use.string("nearest_mode", NEAREST[0])
    if _is_repeated(how, mode, transform, nearest):
        return np.repeat(x, int(how.scale), axis=axis)
    if isinstance(how.length, Expr) and is_traced(how.scale):
        use.require(_last(how) >= 0, f"axis {axis}, which is resized to {how.size}, must not be empty")
    if how.size == 0:
        return x[(*[slice(None)] * axis, slice(0, 0))]
    source = _source(how, transform)
    if mode == "nearest":
        x = np.take(x, _nearest(source, _last(how), nearest), axis=axis)
    else:
        is_sharp = not use.attribute("antialias", 0) or (not is_traced(how.scale) and how.scale >= 1)
        sharp = 1.0 if is_sharp else np.minimum(how.scale, 1.0)
        if not is_sharp and not (isinstance(how.length, int) and isinstance(how.size, int)):
            raise Unsupported(f"an open dimension {how.length} is resized with antialias; pin it in [..dims]")
        reach = REACH[mode] if is_sharp else REACH[mode] * max(how.length / how.size, 1.0)
        places, weights = _taps(source, REACH[mode], reach, sharp, use.attribute("cubic_coeff_a", -0.75))
        if use.attribute("exclude_outside", 0):
            weights = np.where((places < 0) | (places > _last(how)), 0.0, weights)
        if use.attribute("exclude_outside", 0) or not is_sharp:
            total = np.sum(weights, axis=0)
            weights = weights / np.where(np.equal(total, 0), 1.0, total)
        x = _weighted(x, axis, np.clip(places, 0, _last(how)), weights)
    if transform == "tf_crop_and_resize":
        outside = (source < 0) | (source > how.length - 1)
        if is_traced(outside) or outside.any():
            mask = np.reshape(outside, [-1 if i == axis else 1 for i in range(x.ndim)])
            x = np.where(mask, F.astype(np.asarray(use.attribute("extrapolation_value", 0.0)), x.dtype), x)
    return x


def _is_repeated(how: Axis, mode: str, transform: str, nearest: str) -> bool:
    """Whether each element of an open dimension comes several times."""
    if mode != "nearest" or not isinstance(how.length, Expr) or is_traced(how.scale) or how.scale != int(how.scale):
        return False
    half = transform in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric") and nearest.startswith("round")
    return half or (transform == "asymmetric" and nearest == "floor")


def _source(how: Axis, transform: str) -> Any:
    """Where in the input each element of the result lies."""
    at: Any = F.arange(how.size, dtype=np.float64)
    length, size, scale = _number(how.length), _number(how.size), how.scale
    width = length * scale  # of which the size is the whole part
    if transform in ("half_pixel", "pytorch_half_pixel"):
        found = (at + 0.5) / scale - 0.5
        return np.where(np.equal(size, 1), at, found) if transform == "pytorch_half_pixel" else found
    if transform == "half_pixel_symmetric":
        return length / 2 * (1 - size / width) + (at + 0.5) / scale - 0.5
    if transform == "tf_half_pixel_for_nn":
        return (at + 0.5) / scale
    if transform == "asymmetric":
        return at / scale
    if transform == "align_corners":
        return np.where(np.equal(width, 1), 0.0, at * ((length - 1) / np.where(np.equal(width, 1), 1.0, width - 1)))
    if transform == "tf_crop_and_resize":
        if isinstance(how.length, Expr) or isinstance(how.size, Expr):
            raise Unsupported(f"a region of an open dimension {how.length}; pin it in [..dims]")
        if how.size == 1:
            return np.reshape(0.5 * (how.start + how.end) * (length - 1), (1,))
        return how.start * (length - 1) + at * ((how.end - how.start) * (length - 1) / (how.size - 1))
    raise MlaotError(f"there is no coordinate_transformation_mode {transform!r}")


def _last(how: Axis) -> Any:
    """The last place in the input."""
    return lifted(of_dims([how.length - 1]))[0]


def _nearest(source: Any, last: Any, mode: str) -> Any:
    if mode not in NEAREST:
        raise MlaotError(f"there is no nearest_mode {mode!r}")
    found = {
        "round_prefer_floor": np.ceil(source - 0.5),
        "round_prefer_ceil": np.floor(source + 0.5),
        "floor": np.floor(source),
        "ceil": np.ceil(source),
    }[mode]
    return np.clip(F.astype(found, np.int64), 0, last)


def _taps(source: Any, kind: int, reach: float, sharp: Any, a: float) -> tuple[Any, Any]:
    """Places in the input and their weights, a row for each tap; ``sharp`` below 1 widens the filter to ``reach``."""
    base = np.ceil(source) - 1  # so that a whole number lies at the end of its interval
    first = math.floor(-reach) + 1
    places = base + np.arange(first, 2 - first, dtype=np.float64).reshape(-1, 1)
    distance = np.abs(places - source) * sharp
    places = F.astype(places, np.int64)
    if kind == 1:
        return places, np.clip(1 - distance, 0, 1)
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return places, np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))


def _weighted(x: Any, axis: int, places: Any, weights: Any) -> Any:
    """The sum of weighted taps; integers are rounded."""
    kind = np.dtype(x.dtype) if str(x.dtype) != "bf16" else None
    wide = x if kind in (np.float32, np.float64) else F.astype(x, np.float32)
    total: Any = None
    for i in range(places.shape[0]):
        at, weight = places[i], weights[i]
        if not is_traced(weight) and not weight.any():
            continue
        part = np.take(wide, at, axis=axis)
        if is_traced(weight) or (weight != 1).any():
            part = part * np.reshape(F.astype(weight, wide.dtype), (-1, *[1] * (x.ndim - axis - 1)))
        total = part if total is None else total + part
    total = np.zeros_like(np.take(wide, places[0], axis=axis)) if total is None else total
    if kind is not None and kind.kind in "iu":
        info = np.iinfo(kind)
        return F.astype(np.clip(np.rint(total), info.min, info.max), kind)
    return total if total.dtype == x.dtype else F.astype(total, x.dtype)
