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
from mlaot.onnx.values import (
    Computed,
    Unsupported,
    along,
    as_traced,
    constant_value,
    extent_value,
    integers,
    is_fixed,
    lift,
    require_constant,
)

REACH = {"linear": 1, "cubic": 2}  # how far from an element its weight is not 0
INTERPOLATIONS = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "cubic": "cubic"}
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


@dataclass(frozen=True)
class Axis:
    """The resampling of an axis: ``size`` is its length times ``scale``, rounded down.

    The scale and the ends of the region may be computed when the model runs.
    """

    length: Any
    size: Any
    scale: Any
    start: Any = 0.0
    end: Any = 1.0

    @property
    def last(self) -> Any:
        """The last place in the input."""
        return extent_value(self.length - 1)

    @property
    def is_kept(self) -> bool:
        """Whether the axis is unchanged."""
        if is_traced(self.scale) or is_traced(self.start):
            return False
        return bool(self.length == self.size and math.isclose(self.scale, 1.0) and (self.start, self.end) == (0.0, 1.0))


@operator("Resize", since=11, symbolic=True)
def resize(
    use: Use,
    x: Any,
    roi: Any = None,
    scales: Any = None,
    sizes: Any = None,
    *,
    axes: Any = None,
    coordinate_transformation_mode: str = "half_pixel",
) -> Any:
    x, transform = lift(x), coordinate_transformation_mode
    axes = [a % x.ndim for a in (range(x.ndim) if axes is None else axes)]
    cut = _region(roi, len(axes)) if transform == "tf_crop_and_resize" else [(0.0, 1.0)] * len(axes)
    lengths = [x.shape[a] for a in axes]
    if sizes is not None and np.size(sizes):
        changes = _by_sizes(use, lengths, sizes, axes, cut, use.attribute("keep_aspect_ratio_policy", "stretch"))
    else:
        changes = _by_scales(use, lengths, scales, axes, cut)
    for axis, how in _order(zip(axes, changes, strict=True)):
        x = _resample(use, x, axis, how, transform, use.attribute("nearest_mode", NEAREST[0]))
    return x


def _order(axes: Iterable[tuple[int, Axis]]) -> list[tuple[int, Axis]]:
    """Order axes for the least work: axes that shrink first, and whole rows before places in them."""

    def order(pair: tuple[int, Axis]) -> tuple[float, int]:
        axis, how = pair
        is_known = is_fixed(how.length, how.size)
        scale = how.scale if not is_traced(how.scale) else how.size / max(how.length, 1) if is_known else 1.0
        return scale, axis if scale < 1 else -axis

    return sorted(axes, key=order)


@operator("Resize", since=10, symbolic=True)
def resize_10(use: Use, x: Any, scales: Any) -> Any:
    x = lift(x)
    changes = _by_scales(use, list(x.shape), scales, list(range(x.ndim)), [(0.0, 1.0)] * x.ndim)
    for axis, how in _order(enumerate(changes)):
        is_larger = how.size >= how.length if is_traced(how.scale) else how.scale >= 1
        x = _resample(use, x, axis, how, "asymmetric", "floor" if is_larger else "ceil")
    return x


@operator("Upsample", symbolic=True)
def upsample(use: Use, x: Any, scales: Any = None, *, height_scale: Any = None, width_scale: Any = None) -> Any:
    if use.opset < 9:
        factors = use.attribute("scales") if use.opset >= 7 else [1.0, 1.0, height_scale, width_scale]
        scales = np.array(factors, np.float64)
    return resize_10(use, x, scales)


def _region(roi: Any, count: int) -> list[tuple[Any, Any]]:
    if roi is None or not np.size(roi):
        raise MlaotError("tf_crop_and_resize without a region")
    if constant_value(roi) is None:
        computed = F.astype(np.reshape(roi, (2, count)), np.float64)
        return [(computed[0, i], computed[1, i]) for i in range(count)]
    ends = [float(v) for v in np.ravel(require_constant(roi, "the region"))]
    if len(ends) != 2 * count:
        raise MlaotError(f"a region of {count} axes has {2 * count} numbers, not {len(ends)}")
    return list(zip(ends[:count], ends[count:], strict=True))


def _by_scales(use: Use, lengths: list[Any], scales: Any, axes: list[int], cut: list[tuple[Any, Any]]) -> list[Axis]:
    if scales is not None and constant_value(scales) is None:
        return _by_computed_scales(use, lengths, scales, axes, cut)
    if scales is None or not np.size(scales):
        raise MlaotError("neither scales nor sizes are given")
    factors = [float(s) for s in np.ravel(require_constant(scales, "the scales"))]
    if len(factors) != len(lengths):
        raise MlaotError(f"expected {len(lengths)} scales, got {factors}")
    if min(factors) <= 0 or not np.isfinite(factors).all():
        raise MlaotError(f"scales must be positive numbers, got {factors}")
    changes = []
    for length, scale, (start, end) in zip(lengths, factors, cut, strict=True):
        size: Any
        if isinstance(length, Expr):
            if (start, end) != (0.0, 1.0):
                raise Unsupported(f"a region of an open dimension {length}; pin it in [..dims]")
            top, bottom = scale.as_integer_ratio()
            size = length * top // bottom
        elif is_traced(start):
            raise Computed("the region and with it the size is computed when the model runs; give sizes")
        else:  # in single precision, as ONNX infers shapes
            size = math.floor(np.float32(length) * np.float32(end - start) * np.float32(scale))
        changes.append(Axis(length, size, scale, start, end))
    return changes


def _by_computed_scales(
    use: Use, lengths: list[Any], scales: Any, axes: list[int], cut: list[tuple[Any, Any]]
) -> list[Axis]:
    """Resize to the sizes that the file declares, by scales that are computed."""
    shape: tuple[Any, ...] = declared_shape(use, "the scale")
    if scales.shape != (len(axes),):
        raise MlaotError(f"expected {len(axes)} scales, got {list(scales.shape)}")
    changes, fitting = [], []
    for i, (axis, length, (start, end)) in enumerate(zip(axes, lengths, cut, strict=True)):
        scale, size = F.astype(scales[i], np.float32), shape[axis]
        if length == size and (start, end) == (0.0, 1.0):
            fitting.append(np.equal(scale, 1))
            changes.append(Axis(length, size, 1.0))
            continue
        if not is_fixed(length, size) or not size:
            raise Unsupported(f"an open dimension {length} is resized by what is computed; pin it in [..dims]")
        grown = np.float32(length) * F.astype(
            np.asarray(end - start) if not is_traced(end) else end - start, np.float32
        )
        fitting.append(np.equal(np.floor(grown * scale), size))
        changes.append(Axis(length, size, F.astype(scale, np.float64), start, end))
    use.require(reduce(np.logical_and, fitting), f"the scale must make {list(shape)}")
    return changes


def _by_sizes(
    use: Use, lengths: list[Any], sizes: Any, axes: list[int], cut: list[tuple[Any, Any]], policy: str
) -> list[Axis]:
    if constant_value(sizes) is not None:
        targets = integers(sizes, "the sizes")
    else:  # those that the file declares
        targets = [declared_shape(use, "the size")[a] for a in axes]
        if policy != "stretch":
            return _by_computed_sizes(use, lengths, sizes, targets, cut, policy)
        require_equal(use, sizes, targets, "the size")
    if len(targets) != len(lengths):
        raise MlaotError(f"expected {len(lengths)} sizes, got {targets}")
    if policy not in ("stretch", "not_larger", "not_smaller"):
        raise MlaotError(f"there is no keep_aspect_ratio_policy {policy!r}")
    scales = [_ratio(size, length) for length, size in zip(lengths, targets, strict=True)]
    if policy != "stretch":
        common = min(scales) if policy == "not_larger" else max(scales)
        if any(isinstance(length, Expr) for length in lengths):
            raise Unsupported(f"{policy} with an open dimension; pin it in [..dims]")
        scales = [common] * len(scales)
        targets = [math.floor(common * length + 0.5) for length in lengths]
    return [Axis(n, t, s, *ends) for n, t, s, ends in zip(lengths, targets, scales, cut, strict=True)]


def _by_computed_sizes(
    use: Use, lengths: list[Any], sizes: Any, targets: list[Any], cut: list[tuple[Any, Any]], policy: str
) -> list[Axis]:
    """Resize to computed sizes ``targets``, with the aspect ratio kept."""
    if not is_fixed(*lengths, *targets):
        raise Unsupported(f"{policy} with an open dimension; pin it in [..dims]")
    ratios = F.astype(sizes, np.float64) / np.array(lengths, np.float64)
    common = np.min(ratios) if policy == "not_larger" else np.max(ratios)
    fitting = [np.equal(np.floor(common * n + 0.5), t) for n, t in zip(lengths, targets, strict=True)]
    use.require(reduce(np.logical_and, fitting), f"the size must make {targets}")
    return [Axis(n, t, common, *ends) for n, t, ends in zip(lengths, targets, cut, strict=True)]


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
    """Return an extent to compute places with."""
    return F.astype(as_traced(extent), np.float64) if isinstance(extent, Expr) else float(extent)


def _resample(use: Use, x: Any, axis: int, how: Axis, transform: str, nearest: str) -> Any:
    """Resample one axis."""
    if how.is_kept:
        return x
    mode = INTERPOLATIONS.get(use.attribute("mode", "nearest"))
    if mode is None:
        raise MlaotError(f"there is no mode {use.attribute('mode', '')!r}")
    if _is_repeated(how, mode, transform, nearest):
        return np.repeat(x, int(how.scale), axis=axis)
    if isinstance(how.length, Expr) and is_traced(how.scale):
        use.require(how.last >= 0, f"axis {axis}, which is resized to {how.size}, must not be empty")
    if how.size == 0:
        return x[(*[slice(None)] * axis, slice(0, 0))]
    source = _source(how, transform)
    if mode == "nearest":
        x = np.take(x, _nearest(source, how.last, nearest), axis=axis)
    else:
        is_sharp = not use.attribute("antialias", 0) or (not is_traced(how.scale) and how.scale >= 1)
        sharp = 1.0 if is_sharp else np.minimum(how.scale, 1.0)
        if not is_sharp and not is_fixed(how.length, how.size):
            raise Unsupported(f"an open dimension {how.length} is resized with antialias; pin it in [..dims]")
        reach = REACH[mode] if is_sharp else REACH[mode] * max(how.length / how.size, 1.0)
        places, weights = _taps(source, REACH[mode], reach, sharp, use.attribute("cubic_coeff_a", -0.75))
        if use.attribute("exclude_outside", 0):
            weights = np.where((places < 0) | (places > how.last), 0.0, weights)
        if use.attribute("exclude_outside", 0) or not is_sharp:
            total = np.sum(weights, axis=0)
            weights = weights / np.where(np.equal(total, 0), 1.0, total)
        x = _weighted(x, axis, np.clip(places, 0, how.last), weights)
    if transform == "tf_crop_and_resize":
        outside = (source < 0) | (source > how.length - 1)
        if is_traced(outside) or outside.any():
            x = np.where(
                along(outside, axis, x.ndim),
                F.astype(np.asarray(use.attribute("extrapolation_value", 0.0)), x.dtype),
                x,
            )
    return x


def _is_repeated(how: Axis, mode: str, transform: str, nearest: str) -> bool:
    """Tell whether each element of an open dimension is repeated."""
    if mode != "nearest" or not isinstance(how.length, Expr) or is_traced(how.scale) or how.scale != int(how.scale):
        return False
    half = transform in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric") and nearest.startswith("round")
    return half or (transform == "asymmetric" and nearest == "floor")


def _source(how: Axis, transform: str) -> Any:
    """Return where in the input each element of the result lies."""
    at: Any = F.arange(how.size, dtype=np.float64)
    length, size, scale = _number(how.length), _number(how.size), how.scale
    width = length * scale  # of which the size is the whole part
    if transform in ("half_pixel", "pytorch_half_pixel"):
        centred = (at + 0.5) / scale - 0.5
        return np.where(np.equal(size, 1), at, centred) if transform == "pytorch_half_pixel" else centred
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


def _nearest(source: Any, last: Any, mode: str) -> Any:
    if mode not in NEAREST:
        raise MlaotError(f"there is no nearest_mode {mode!r}")
    places = {
        "round_prefer_floor": np.ceil(source - 0.5),
        "round_prefer_ceil": np.floor(source + 0.5),
        "floor": np.floor(source),
        "ceil": np.ceil(source),
    }[mode]
    return np.clip(F.astype(places, np.int64), 0, last)


def _taps(source: Any, kind: int, reach: float, sharp: Any, a: float) -> tuple[Any, Any]:
    """Return places in the input and weights, with a row for each tap.

    ``sharp`` below 1 widens the filter to ``reach``.
    """
    base = np.ceil(source) - 1  # so that a whole number lies at the end of its interval
    first = math.floor(-reach) + 1
    places = base + np.arange(first, 2 - first, dtype=np.float64).reshape(-1, 1)
    distance = np.abs(places - source) * sharp
    places = F.astype(places, np.int64)
    if kind == 1:
        return places, np.clip(1 - distance, 0, 1)
    far = np.where(distance < 2, cubic_far(distance, a), 0.0)
    return places, np.where(distance <= 1, cubic_near(distance, a), far)


def cubic_near(d: Any, a: float) -> Any:
    """Return the weight in a cubic convolution (Keys, 1981) of an element at a distance of at most 1."""
    return ((a + 2) * d - (a + 3)) * d * d + 1


def cubic_far(d: Any, a: float) -> Any:
    """Return the weight in a cubic convolution of an element at a distance between 1 and 2."""
    return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a


def _weighted(x: Any, axis: int, places: Any, weights: Any) -> Any:
    """Sum weighted taps; integers are rounded."""
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
