"""Forms of ``one_op.py``: reductions without nan or with ``where=``, histograms, accumulations, distributions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.spatial.distance
import scipy.special
import scipy.stats

Form = Callable[..., Any]
view = np.lib.stride_tricks.sliding_window_view
norm = scipy.stats.norm


def some_nan(x: Any) -> Any:
    """[3, 4] of which the first row has no number, and others some, where the dtype has nan."""
    if x.dtype.kind != "f":
        return x
    holes = np.array([[1, 1, 1, 1], [0, 1, 0, 0], [1, 0, 0, 1]], bool)
    return np.where(holes, np.full((), np.nan, x.dtype), x)


def reduction(function: Any, **more: Any) -> list[Form]:
    """Over all, over an axis in each form, keeping dimensions."""
    return [
        lambda m: function(some_nan(m), **more),
        lambda m: [function(some_nan(m), axis=axis, **more) for axis in (0, 1, -1)],
        lambda m: function(some_nan(m), axis=None, keepdims=True, **more),
        lambda m: function(some_nan(m), 1, keepdims=True, **more),
    ]


def of_order(function: Any) -> Any:
    """NumPy refuses what has no number."""
    return lambda x, *args, **options: function(some_nan(x)[1:], *args, **options)


def deviations(function: Any) -> list[Form]:
    return [
        *reduction(function),
        lambda m: [function(some_nan(m), axis=1, ddof=d) for d in (0, 1, 2, 3)],
        lambda m: function(some_nan(m), 0, np.float64, correction=1),
        lambda m: function(some_nan(m), axis=1, mean=np.nanmean(some_nan(m), axis=1, keepdims=True)),
    ]


def accumulation(ufunc: np.ufunc) -> list[Form]:
    return [
        lambda m: (ufunc.accumulate(m), ufunc.accumulate(m, axis=-1), ufunc.accumulate(m[0]), ufunc.accumulate(m[:0])),
        lambda p: ufunc.accumulate(p, 1),
        lambda m: ufunc.accumulate(m, 1, dtype=np.float64),
    ]


ACCUMULATED = (np.maximum, np.minimum, np.fmax, np.fmin, np.logaddexp, np.logical_and, np.logical_or, np.logical_xor)
ACCUMULATED += (np.subtract, np.divide, np.bitwise_and, np.bitwise_or, np.bitwise_xor)


def masked(function: Any, **more: Any) -> Sequence[Form]:
    """With ``where=``: of the array's shape, of one that is broadcast, choosing nothing."""
    return [
        lambda m, c: (function(m, where=c, **more), function(m, axis=0, where=c, **more)),
        lambda m, c: function(m, axis=1, keepdims=True, where=c[:1], **more),
        lambda m, c: function(m, axis=1, where=c & False, **more),
    ]


# Joined to the forms of ``one_op.py``.
WHERE: dict[str, Sequence[Form]] = {
    "sum": masked(np.sum),
    "prod": masked(np.prod),
    "max": masked(np.max, initial=1),
    "min": masked(np.min, initial=1),
    "any": masked(np.any),
    "all": masked(np.all),
    "mean": masked(np.mean),
    "var": masked(np.var),
    "std": masked(np.std),
}
FORMS: dict[str, Sequence[Form]] = {
    "nanvar": deviations(np.nanvar),
    "nanstd": deviations(np.nanstd),
    "nanargmax": [*reduction(of_order(np.nanargmax)), lambda v: np.nanargmax(v)],
    "nanargmin": [*reduction(of_order(np.nanargmin)), lambda v: np.nanargmin(v)],
    "nancumsum": [lambda m: (np.nancumsum(some_nan(m)), np.nancumsum(some_nan(m), 1, np.float64))],
    "nancumprod": [lambda m: (np.nancumprod(some_nan(m)), np.nancumprod(some_nan(m), axis=-1, dtype=np.float64))],
    "nanmedian": [
        *reduction(np.nanmedian),
        lambda m: np.nanmedian(some_nan(m), axis=(0, 1), overwrite_input=False),
        lambda s: np.nanmedian(s),
        lambda e: np.nanmedian(e, axis=0),
    ],
    "nanquantile": [
        lambda m: [np.nanquantile(some_nan(m), q, axis=1) for q in (0.0, 0.25, 0.7, 1.0)],
        lambda m: np.nanquantile(some_nan(m), [[0.1, 0.5], [0.9, 0.3]], axis=0, keepdims=True, method="linear"),
        lambda m: np.nanquantile(some_nan(m), 0.4),
    ],
    "nanpercentile": [
        lambda m: [np.nanpercentile(some_nan(m), q, axis=1) for q in (0, 25.0, 100)],
        lambda m: np.nanpercentile(some_nan(m), [10, 50.0], axis=0, keepdims=True, method="linear"),
    ],
    "histogram": [
        lambda m: (*np.histogram(m, 3), *np.histogram(m), *np.histogram(m[:1, :1] + m[:1, :1], 4)),
        lambda m: (*np.histogram(m, bins=4, range=(0, 4)), *np.histogram(m, [0, 1, 1, 2.5, 6])),
        lambda m, v: np.histogram(m, np.sort(v)),
        lambda m: np.histogram(m, 3, density=True),
        lambda m, c: (*np.histogram(m, 3, weights=c * 1.5), *np.histogram(m, 3, weights=c * 2, density=True)),
        lambda v: np.histogram(some_nan(np.stack([v, v, v])), [-1.0, 0.0, 1.0, 3.0]),
    ],
    "histogram_bin_edges": [
        lambda m: (np.histogram_bin_edges(m, 3), np.histogram_bin_edges(m, bins=2, range=(-1, 1), weights=None)),
        lambda m: np.histogram_bin_edges(m, [0, 2, 3]),
    ],
    "ediff1d": [
        lambda m: (np.ediff1d(m), np.ediff1d(m, to_end=m[0], to_begin=m[0, 0])),
        lambda v: np.ediff1d(v, np.array([], v.dtype)),
    ],
    "unwrap": [
        lambda m: (np.unwrap(m), np.unwrap(m, axis=0), np.unwrap(m, discont=4.0), np.unwrap(m, period=3)),
        lambda v: (np.unwrap(v, period=4), np.unwrap(v * 3, None, -1, period=2.5)),
    ],
    "lexsort": [
        lambda m: (np.lexsort(m), np.lexsort((m, m[::-1])), np.lexsort((m % 2, m), axis=0)),
        lambda v: np.lexsort((v, v == 1)),
    ],
    "apply_along_axis": [
        lambda m: (np.apply_along_axis(np.sum, 0, m), np.apply_along_axis(np.cumsum, 1, m)),
        lambda m: np.apply_along_axis(lambda x, k, by: np.stack([x[:2], x[:2] * by]), -1, m[None], 1, by=2),
        lambda v: np.apply_along_axis(np.max, 0, v),
    ],
    "apply_over_axes": [
        lambda m: (np.apply_over_axes(np.sum, m, [0, -1]), np.apply_over_axes(np.max, m, 1)),
        lambda m: np.apply_over_axes(np.cumsum, m, 0),
    ],
    "piecewise": [
        lambda m: np.piecewise(m, [m < 1, m > 2], [lambda x: x * x, lambda x: x + 1]),
        lambda m: np.piecewise(m, [m < 1, m > 0], [2, lambda x, k, by: x + k * by, 3], 1, by=2),
        lambda m: np.piecewise(m, m > 1, [lambda x: x + x]),
    ],
    "sliding_window_view": [
        lambda m: (view(m, (2, 3)), view(m, 2, axis=1), view(m, (2, 2), axis=(1, 1)), view(m[0], 3, -1)),
        lambda m: view(m, [3, 1], [-1, 0], subok=False, writeable=False),
    ],
    "angle": [lambda s: (np.angle(s), np.angle(s, deg=True))],
    "imag": [lambda s: (np.imag(s), s.imag)],
    "i0": [lambda s: scipy.special.i0(s), lambda m: np.i0(m), lambda m: scipy.special.i0(m * 3)],
    "allclose": [
        lambda m: (np.allclose(m, m), np.allclose(m, m + m, 0.1, atol=0.5), np.allclose(m, 1, equal_nan=True))
    ],
    "array_equal": [
        lambda s: (np.array_equal(s, s), np.array_equal(s, s, equal_nan=True)),
        lambda m: (np.array_equal(m, m), np.array_equal(m, m[0]), np.array_equal(m, m == 1)),
    ],
    "array_equiv": [lambda m: (np.array_equiv(m, m), np.array_equiv(m, m[0]), np.array_equiv(m, m[:, :3]))],
    # SciPy's that are no ufuncs.
    "cdist": [
        lambda m: scipy.spatial.distance.cdist(m, m[1:]),
        lambda m: [scipy.spatial.distance.cdist(m, m, metric=x) for x in ("euclidean", "sqeuclidean", "cityblock")],
    ],
    "cdf": [
        lambda m, v: (norm.cdf(m), norm.cdf(m, v[0], scale=2), norm(loc=1, scale=3).cdf(m), norm.cdf(m, 0, -1)),
        lambda m: m * norm.cdf(0.3) * scipy.stats.expon.cdf(x=np.ones(4), scale=2),
    ],
    "sf": [lambda m: (norm.sf(m), norm.sf(m, 1, 2))],
    "pdf": [lambda m, v: (norm.pdf(m), norm.pdf(m, loc=v, scale=v), norm.pdf(m, 0, 0))],
    "logpdf": [lambda m: (norm.logpdf(m), norm.logpdf(m, 1, 2.5))],
    "ppf": [lambda m: (norm.ppf(m / np.float64(8)), norm.ppf(m * np.float64(0.1), 1, 2.5))],
    **{f"{ufunc.__name__}.accumulate": accumulation(ufunc) for ufunc in ACCUMULATED},
}
