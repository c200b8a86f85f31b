"""Sliding windows, and their transpose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.numpy.shaping import a_shape
from mlaot.frontend.trace.promotion import normal_axis
from mlaot.frontend.trace.protocols import IN_PLACE, implements
from mlaot.frontend.trace.tensor import compute
from mlaot.ops import structure as st


def window(x: Any, axes: Any, sizes: Any, strides: Any = 1, dilations: Any = 1) -> Any:
    """Return the sliding windows of ``x`` along ``axes``.

    Their positions replace these axes; their elements are last axes.
    """
    names, attrs = _window_attrs(np.ndim(x), axes, sizes, strides, dilations)
    return compute(st.window, x, axes=names, **attrs)


def fold(y: Any, axes: Any, sizes: Any, strides: Any = 1, dilations: Any = 1, *, shape: Any) -> Any:
    """Add every element of every window to its place in an array of ``shape``: the transpose of ``window``."""
    size = a_shape(shape)
    names, attrs = _window_attrs(len(size), axes, sizes, strides, dilations)
    return compute(st.fold, y, axes=names, **attrs, shape=size)


@implements("sliding_window_view")
def sliding_window_view(
    x: Any, window_shape: Any, axis: Any = None, *, subok: bool = False, writeable: bool = False
) -> Any:
    rank = np.ndim(x)
    sizes = tuple(window_shape) if np.iterable(window_shape) else (window_shape,)
    axes = range(rank) if axis is None else axis if isinstance(axis, Sequence) else (axis,)
    if len(sizes) != len(axes):
        raise MlaotError(f"sliding_window_view: expected a size for each of {len(axes)} axes, got {window_shape!r}")
    if writeable:
        raise MlaotError(f"sliding_window_view with writeable=True: {IN_PLACE}")
    for a, size in zip(axes, sizes, strict=True):
        x = window(x, normal_axis(a, rank), size)
    return x


def _window_attrs(rank: int, axes: Any, sizes: Any, strides: Any, dilations: Any) -> tuple[Any, dict[str, Any]]:
    names = tuple(normal_axis(a, rank) for a in (axes if isinstance(axes, Sequence) else (axes,)))
    attrs = {"sizes": sizes, "strides": strides, "dilations": dilations}
    return names, {k: tuple(map(int, v if isinstance(v, Sequence) else (v,) * len(names))) for k, v in attrs.items()}
