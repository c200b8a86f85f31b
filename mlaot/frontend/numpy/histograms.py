"""Histograms: the number of elements in each of consecutive bins."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.trace.protocols import implements, is_traced
from mlaot.frontend.trace.tensor import as_tensor


@implements("histogram")
def histogram(a: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None) -> Any:
    """Return counts and edges. A bin includes its lower edge, and the last bin its upper edge too. nan is in no bin."""
    x = np.ravel(as_tensor(a))
    edges = histogram_bin_edges(a, bins, range)
    low, high = (np.expand_dims(as_tensor(v), 1) for v in (edges[:-1], edges[1:]))
    is_last = np.expand_dims(np.arange(low.shape[0]) == low.shape[0] - 1, 1)
    inside = (x >= low) & ((x < high) | (is_last & (x == high)))
    if weights is None:
        counts = np.sum(inside, axis=1)
    else:
        w = np.ravel(as_tensor(weights))
        counts = np.sum(np.where(inside, w, np.zeros((), w.dtype)), axis=1, dtype=w.dtype)
    if not density:
        return counts, edges
    return counts / np.diff(as_tensor(edges).astype(np.float64)) / np.sum(counts), edges


@implements("histogram_bin_edges")
def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    """Return the edges of bins of equal width over ``range``, by default from the smallest to the largest element."""
    if isinstance(bins, str):
        raise MlaotError(f"histogram with bins={bins!r} cannot be traced: the number of bins depends on the data")
    if np.ndim(bins):
        if not is_traced(bins) and np.any(np.diff(bins) < 0):
            raise MlaotError("histogram: expected bins that increase")
        return as_tensor(bins)
    if bins < 1:
        raise MlaotError(f"histogram: expected at least 1 bin, got {bins!r}")
    x = as_tensor(a)
    x = x if x.dtype.kind == "f" else x.astype(np.float64)
    first, last = (np.min(x), np.max(x)) if range is None else (x.dtype.type(v) for v in range)
    if range is not None and not first <= last:
        raise MlaotError(f"histogram: expected a range that increases, got {range!r}")
    empty = first == last
    first, last = np.where(empty, first - 0.5, first), np.where(empty, last + 0.5, last)
    steps = np.arange(bins).astype(x.dtype)
    return np.concatenate([steps * ((last - first) / bins) + first, np.reshape(last, 1)]).astype(x.dtype)
