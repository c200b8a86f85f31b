"""Functions of samples along an axis: interpolation, convolution, differences, polynomials, covariances."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.trace.promotion import as_node, normal_axis, numpy_dtype, promote
from mlaot.frontend.trace.protocols import implements, is_traced
from mlaot.frontend.trace.tensor import Tensor, as_tensor
from mlaot.ops import structure as st


@implements("interp")
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    """Interpolate linearly between the points ``(xp, fp)``, with constants beyond. ``xp`` must increase."""
    if period is not None:
        raise MlaotError("interp with period= cannot be traced; use np.remainder first")
    at, places, values = (as_tensor(v).astype(np.float64) for v in (x, xp, fp))
    size = places.shape[0]
    i = np.clip(np.searchsorted(places, at, side="right") - 1, 0, as_tensor(size - 2))
    x0, x1, y0, y1 = places[i], places[i + 1], values[i], values[i + 1]
    value = y0 + (y1 - y0) * ((at - x0) / (x1 - x0))
    value = np.where(at == x1, y1, value)
    below = values[0] if left is None else left
    above = values[-1] if right is None else right
    value = np.where(at < places[0], below, np.where(at > places[-1], above, value))
    return np.where(np.isnan(at), np.nan, value)


@implements("digitize")
def digitize(x: Any, bins: Any, right: bool = False) -> Any:
    """Return the index of each element's bin. The bins must increase."""
    if not is_traced(bins) and np.any(np.diff(bins) < 0):
        raise MlaotError("digitize with decreasing bins cannot be traced; reverse them")
    return np.searchsorted(as_tensor(bins), as_tensor(x), side="left" if right else "right")


@implements("convolve")
def convolve(a: Any, v: Any, mode: str = "full") -> Any:
    x, y = promote(a, v)
    return _slide(Tensor(x), np.flip(Tensor(y)), mode)


@implements("correlate")
def correlate(a: Any, v: Any, mode: str = "valid") -> Any:
    x, y = (Tensor(n) for n in promote(a, v))
    if isinstance(x.shape[0], int) and isinstance(y.shape[0], int) and x.shape[0] < y.shape[0]:
        return np.flip(_slide(y, x, mode))
    return _slide(x, y, mode)


def _slide(x: Any, y: Any, mode: str) -> Any:
    """Return the dot products of ``y`` with the windows of ``x``."""
    n, k = x.shape[0], y.shape[0]
    if isinstance(n, int) and isinstance(k, int) and n < k:
        x, y, n, k = np.flip(y), np.flip(x), k, n
    if not isinstance(k, int):
        raise MlaotError("a convolution with a kernel of a named dim cannot be traced")
    if mode not in ("full", "same", "valid"):
        raise MlaotError(f"expected the mode full, same or valid, got {mode!r}")
    low, high = {"full": (k - 1, k - 1), "same": (k // 2, k - 1 - k // 2), "valid": (0, 0)}[mode]
    if x.node.type.dtype.kind != "f" or not low + high:
        return np.matmul(_windows(np.pad(x, (low, high)), k), y)
    if not isinstance(n, int):
        return _overlapping(x, y, low, high)
    left = [_overlapping(x[: k - 1], y, low, 0)] if low else []
    right = [_overlapping(x[n - k + 1 :], y, 0, high)] if high else []
    return np.concatenate([*left, np.matmul(_windows(x, k), y), *right])


def _windows(x: Any, size: int) -> Any:
    return Tensor(st.window(as_node(x), axes=(0,), sizes=(size,), strides=(1,), dilations=(1,)))


def _overlapping(x: Any, y: Any, low: int, high: int) -> Any:
    """Return the dot products of the parts of ``y`` that overlap ``x``.

    Padding ``x`` with zeros would not do, as zero times infinity is nan.
    """
    k = y.shape[0]
    inside = _windows(np.pad(np.ones_like(x, dtype=bool), (low, high)), k)
    products = _windows(np.pad(x, (low, high)), k) * y
    return np.sum(np.where(inside, products, np.zeros((), numpy_dtype(products))), axis=-1)


@implements("ediff1d")
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    x = np.ravel(as_tensor(ary))
    ends = [[] if v is None else [np.ravel(as_tensor(v)).astype(x.dtype)] for v in (to_begin, to_end)]
    return np.concatenate([*ends[0], x[1:] - x[:-1], *ends[1]])


@implements("unwrap")
def unwrap(p: Any, discont: Any = None, axis: int = -1, *, period: Any = 2 * np.pi) -> Any:
    """Add whole periods where neighbours are more than half a period (or ``discont``) apart."""
    x = as_tensor(p)
    step = np.moveaxis(np.diff(x, axis=axis), axis, -1)
    step = step.astype(np.result_type(step, period))
    is_whole = step.dtype.kind in "iu"
    half, rest = divmod(period, 2) if is_whole else (period / 2, 0)
    wrapped = np.remainder(step + half, period) - half
    if not rest:  # half a period up stays so
        wrapped = np.where((wrapped == -half) & (step > 0), half, wrapped)
    correction = np.where(np.abs(step) < (period / 2 if discont is None else discont), 0, wrapped - step)
    v = np.moveaxis(x, axis, -1).astype(step.dtype)
    moved = (v[..., 1:] + np.cumsum(correction, axis=-1)).astype(v.dtype)
    return np.moveaxis(np.concatenate([v[..., :1], moved], axis=-1), -1, axis)


@implements("trapezoid")
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    values = np.moveaxis(as_tensor(y), axis, -1)
    step = dx
    if x is not None:
        step = np.diff(as_tensor(x), axis=-1 if np.ndim(x) == 1 else axis)
        step = step if np.ndim(x) == 1 else np.moveaxis(step, axis, -1)
    return np.sum(step * (values[..., 1:] + values[..., :-1]) / 2.0, axis=-1)


@implements("gradient")
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """Compute central differences of evenly spaced samples, and one-sided differences at the ends."""
    y = as_tensor(f)
    y = y if y.node.type.dtype.kind == "f" else y.astype(np.float64)
    axes = range(y.ndim) if axis is None else axis if isinstance(axis, tuple | list) else (axis,)
    axes = [normal_axis(a, y.ndim) for a in axes]
    steps = varargs if len(varargs) == len(axes) else varargs * len(axes) if varargs else (1.0,) * len(axes)
    if edge_order != 1 or any(np.ndim(s) for s in steps):
        raise MlaotError("gradient with edge_order=2 or uneven steps cannot be traced")
    slopes = []
    for a, step in zip(axes, steps, strict=True):
        v = np.moveaxis(y, a, 0)
        inner = (v[2:] - v[:-2]) / (2.0 * step)
        first, last = (v[1:2] - v[:1]) / step, (v[-1:] - v[-2:-1]) / step
        slopes.append(np.moveaxis(np.concatenate([first, inner, last]), 0, a))
    return slopes[0] if len(slopes) == 1 else tuple(slopes)


@implements("polyval")
def polyval(p: Any, x: Any) -> Any:
    result: Any = np.zeros_like(as_tensor(x))
    for coefficient in as_tensor(p) if is_traced(p) else np.asarray(p):
        result = result * x + coefficient
    return result


@implements("vander")
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    v = as_tensor(x)
    v = v.astype(np.result_type(v, int))
    size = v.shape[0] if N is None else N
    powers = [v**i for i in (range(int(size)) if increasing else reversed(range(int(size))))]
    return np.stack(powers, axis=-1)


@implements("cov")
def cov(m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: Any = None) -> Any:
    x = np.atleast_2d(as_tensor(m))
    x = x if rowvar or as_tensor(m).ndim == 1 else np.transpose(x)
    x = np.concatenate([x, np.atleast_2d(as_tensor(y))]) if y is not None else x
    x = x.astype(np.float64)
    less = ddof if ddof is not None else 0 if bias else 1
    centered = x - np.mean(x, axis=1, keepdims=True)
    return np.squeeze(np.matmul(centered, np.transpose(centered)) / (as_tensor(x.shape[1]).astype(x.dtype) - less))


@implements("corrcoef")
def corrcoef(x: Any, y: Any = None, rowvar: bool = True) -> Any:
    c = cov(x, y, rowvar)
    if c.ndim == 0:
        return c / c
    deviation = np.sqrt(np.diagonal(c))
    return np.clip(c / np.reshape(deviation, (-1, 1)) / deviation, -1.0, 1.0)
