"""Functions that are applied to the slices of an array."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.trace.gradients import vmap
from mlaot.frontend.trace.promotion import normal_axis
from mlaot.frontend.trace.protocols import implements
from mlaot.frontend.trace.tensor import as_tensor


@implements("apply_along_axis")
def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    """Apply ``func1d`` to the slices along ``axis``. The axes of its result replace ``axis``."""
    x = as_tensor(arr)
    at, lead = normal_axis(axis, x.ndim), x.ndim - 1

    def function(row: Any) -> Any:
        return as_tensor(func1d(row, *args, **kwargs))

    for _ in range(lead):
        function = vmap(function)
    found = function(np.moveaxis(x, at, -1))
    new = found.ndim - lead
    return np.moveaxis(found, range(lead, lead + new), range(at, at + new))


@implements("apply_over_axes")
def apply_over_axes(func: Callable[[Any, int], Any], a: Any, axes: int | Sequence[int]) -> Any:
    x = as_tensor(a)
    rank = x.ndim
    for axis in axes if isinstance(axes, Sequence | np.ndarray) else (axes,):
        found = as_tensor(func(x, normal_axis(int(axis), rank)))
        x = found if found.ndim == rank else np.expand_dims(found, normal_axis(int(axis), rank))
        if x.ndim != rank:
            raise MlaotError(f"apply_over_axes: expected the function to keep or to drop axis {axis}, got {found.type}")
    return x
