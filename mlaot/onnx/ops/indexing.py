"""Operators that read and write elements at indices."""

from __future__ import annotations

from typing import Any

import numpy as np

import mlaot.frontend.numpy as F
from mlaot.errors import MlaotError
from mlaot.frontend.numpy.indexing import update
from mlaot.frontend.trace.protocols import any_traced
from mlaot.onnx import assumed
from mlaot.onnx.importer import Use
from mlaot.onnx.ops.shaping import spread
from mlaot.onnx.registry import operator
from mlaot.onnx.values import along, as_traced, constant_value, is_constant, kind_of, lift

MODES: dict[str, tuple[str, Any]] = {  # of updates: traced, and of NumPy
    "none": ("set", None),
    "add": ("add", np.add),
    "max": ("max", np.maximum),
    "min": ("min", np.minimum),
    "mul": ("", np.multiply),
}


@operator("Gather", symbolic=True)
def gather(x: Any, indices: Any, *, axis: int = 0) -> Any:
    places, length = constant_value(indices), x.shape[axis]
    if places is None:
        return np.take(as_traced(lift(x)), indices, axis=axis)  # NumPy asks the array alone whether it is traced
    if isinstance(length, int) and places.size and (places.min() < -length or places.max() >= length):
        raise MlaotError(f"index {places.min() if places.min() < -length else places.max()} of {length} elements")
    return np.take(x, places, axis=axis)


@operator("GatherElements")
def gather_elements(x: Any, indices: Any, *, axis: int = 0) -> Any:
    axis %= x.ndim
    cut = tuple(slice(None) if i == axis else slice(0, n) for i, n in enumerate(indices.shape))
    return np.take_along_axis(x[cut], indices, axis=axis)


@operator("GatherND")
def gather_nd(x: Any, indices: Any, *, batch_dims: int = 0) -> Any:
    if not isinstance(indices.shape[-1], int) or indices.shape[-1] > x.ndim - batch_dims:
        raise MlaotError(f"{indices.shape[-1]} indices for {x.ndim - batch_dims} axes")
    parts = [indices[..., i] for i in range(indices.shape[-1])]
    x = as_traced(x) if any_traced(*parts) else x  # NumPy asks the array alone whether it is traced
    grid = [along(F.arange(x.shape[axis]), axis, parts[0].ndim) for axis in range(batch_dims)]
    return x[(*grid, *parts)]


def _update(x: Any, index: tuple[Any, ...], updates: Any, reduction: str) -> Any:
    mode, function = MODES[reduction]
    if is_constant(x, updates, *index) and not any_traced(x, updates, *index):
        result = np.array(x)
        if function is None:
            result[index] = updates
        else:
            function.at(result, index, updates)
        return result
    return update(as_traced(x), index, updates, mode) if mode else _multiply(as_traced(x), index, updates)


def _multiply(x: Any, index: tuple[Any, ...], factors: Any) -> Any:
    """Multiply elements by factors one after another, since several factors may have the same place."""
    size = int(np.prod([int(extent) for extent in x.shape]))
    places = as_traced(np.arange(size).reshape(x.shape))[index]

    def step(carry: Any, item: Any) -> Any:
        place, factor = item
        return update(carry, (place,), carry[place] * factor, "set"), ()

    products, _ = F.scan(step, np.ravel(x), (np.ravel(places), np.ravel(factors)))
    return np.reshape(products, x.shape)


@operator("Scatter", "ScatterElements")
def scatter_elements(x: Any, indices: Any, updates: Any, *, axis: int = 0, reduction: str = "none") -> Any:
    shape = indices.shape
    index = [
        spread(along(F.arange(n), i, x.ndim), shape) if i != axis % x.ndim else indices for i, n in enumerate(shape)
    ]
    return _update(x, tuple(index), updates, reduction)


@operator("ScatterND")
def scatter_nd(x: Any, indices: Any, updates: Any, *, reduction: str = "none") -> Any:
    return _update(x, tuple(indices[..., i] for i in range(indices.shape[-1])), updates, reduction)


@operator("TensorScatter")
def tensor_scatter(past: Any, updates: Any, indices: Any = None, *, axis: int = -2, mode: str = "linear") -> Any:
    axis %= past.ndim
    batch, steps, length = past.shape[0], updates.shape[axis], past.shape[axis]
    start = F.zeros((batch,), np.int64) if indices is None else indices
    places = np.reshape(start, (-1, 1)) + F.arange(steps)
    places = places % length if mode == "circular" else places
    rows = spread(F.arange(batch).reshape(-1, 1), (batch, steps))
    result = _update(np.moveaxis(past, axis, 1), (rows, places), np.moveaxis(updates, axis, 1), "none")
    return np.moveaxis(result, 1, axis)


@operator("OneHot")
def one_hot(use: Use, indices: Any, depth: Any, values: Any, *, axis: int = -1) -> Any:
    what = "the depth"
    depths = assumed.integers_or_declared(use, depth, what, lambda: [assumed.declared_shape(use, what)[axis]])
    count = int(depths[0])
    # Numbers with a fraction stay what they are, towards zero: nan and infinities are no index.
    places = np.trunc(F.astype(indices, np.float64)) if kind_of(indices) == "f" else indices
    places = np.where(places < 0, places + count, places)
    numbers = along(np.arange(count).astype(places.dtype), axis, indices.ndim + 1)
    return np.where(np.equal(np.expand_dims(places, axis), numbers), values[1], values[0])


@operator("ReverseSequence")
def reverse_sequence(x: Any, lengths: Any, *, time_axis: int = 0, batch_axis: int = 1) -> Any:
    y = np.moveaxis(x, (batch_axis, time_axis), (0, 1))
    steps = np.arange(y.shape[1]).reshape(1, -1)
    count = np.reshape(lengths, (-1, 1))
    places = np.where(steps < count, count - 1 - steps, steps)
    places = np.broadcast_to(np.reshape(places, (*places.shape, *[1] * (y.ndim - 2))), y.shape)
    return np.moveaxis(np.take_along_axis(y, places, axis=1), (0, 1), (batch_axis, time_axis))
