"""``mlaot.pad``, and ``np.pad`` in all its modes."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.numpy.shaping import concatenate, flip
from mlaot.frontend.trace.promotion import as_node, full
from mlaot.frontend.trace.protocols import any_traced, implements, plain, run
from mlaot.frontend.trace.tensor import Tensor, as_tensor
from mlaot.ir import Dim
from mlaot.ops import structure as st


def pad(x: Any, low: Any, high: Any, interior: Any = 0, value: Any = 0) -> Any:
    """Pad each axis with ``value``: ``low`` before, ``high`` after, and ``interior`` between the elements."""
    rank = np.ndim(x)
    attrs = {name: _each(v, rank) for name, v in (("low", low), ("high", high), ("interior", interior))}
    if not any_traced(x, value):
        array = np.asarray(plain(x))
        return st.pad.reference(array, np.asarray(plain(value), array.dtype), **attrs)
    return run("pad", lambda: _pad_traced(as_node(x), value, attrs), (), {})


def _pad_traced(x: Any, value: Any, attrs: dict[str, Any]) -> Tensor:
    return Tensor(st.pad(x, as_node(value, x.type.dtype), **attrs))


def _each(value: Any, rank: int) -> tuple[Dim, ...]:
    amounts = tuple(value) if isinstance(value, tuple | list) else (value,) * rank
    if len(amounts) != rank:
        raise MlaotError(f"pad: expected an amount for each of {rank} axes, got {value!r}")
    return tuple(int(v) if isinstance(v, np.integer) else v for v in amounts)


@implements("pad")
def np_pad(array: Any, pad_width: Any, mode: str = "constant", **options: Any) -> Any:
    x = as_tensor(array)
    widths = _pairs(pad_width, x.ndim)
    if mode == "empty":
        mode = "constant"
    if mode == "constant":
        return _constant(x, widths, options.get("constant_values", 0))
    if mode not in MODES:
        raise MlaotError(f"pad with mode={mode!r} cannot be traced; known are constant, {', '.join(MODES)}")
    for axis, (low, high) in enumerate(widths):
        if low or high:
            x = MODES[mode](x, axis, low, high, options)
    return x


def _pairs(width: Any, rank: int) -> list[tuple[int, int]]:
    """Return the amounts before and after for each axis, from each form that NumPy accepts."""
    if isinstance(width, dict):
        pairs = [(0, 0)] * rank
        for axis, value in width.items():
            pairs[axis] = tuple(np.broadcast_to(value, 2).tolist())
    else:
        pairs = [tuple(pair) for pair in np.broadcast_to(width, (rank, 2)).tolist()]
    if any(v < 0 for pair in pairs for v in pair):
        raise MlaotError("pad: amounts cannot be negative; cut with a slice")
    return pairs


def _constant(x: Any, widths: list[tuple[int, int]], values: Any) -> Any:
    if any_traced(values) or np.ndim(values) == 0:
        return pad(x, tuple(w[0] for w in widths), tuple(w[1] for w in widths), value=values)
    for axis, ((low, high), (before, behind)) in enumerate(zip(widths, _pair_values(values, x.ndim), strict=True)):
        x = _between(x, axis, low and _strip(x, axis, low, before), high and _strip(x, axis, high, behind))
    return x


def _pair_values(values: Any, rank: int) -> list[list[Any]]:
    pairs: list[list[Any]] = np.broadcast_to(values, (rank, 2)).tolist()
    return pairs


def _strip(x: Any, axis: int, size: int, value: Any) -> Tensor:
    return Tensor(full((*x.shape[:axis], size, *x.shape[axis + 1 :]), value, x.node.type.dtype))


def _between(x: Any, axis: int, before: Any, behind: Any) -> Any:
    """Concatenate the parts; a part that is 0 is left out."""
    return concatenate([p for p in (before, x, behind) if isinstance(p, Tensor)], axis)


def _cut(x: Any, axis: int, start: Any, stop: Any) -> Any:
    return x[(*[slice(None)] * axis, slice(start, stop))]


def _edge(x: Any, axis: int, low: int, high: int, options: Any) -> Any:
    def strip(start: Any, stop: Any, size: int) -> Any:
        part = _cut(x, axis, start, stop)
        return np.broadcast_to(part, (*x.shape[:axis], size, *x.shape[axis + 1 :]))

    return _between(x, axis, low and strip(0, 1, low), high and strip(-1, None, high))


def _mirror(skip: int) -> Any:
    """Return the elements reflected at a border: at the last element (``skip`` 1) or after it (0)."""

    def mode(x: Any, axis: int, low: int, high: int, options: Any) -> Any:
        kind = options.get("reflect_type", "even")
        size = x.shape[axis]
        if size == 0:
            raise MlaotError(f"axis {axis} has no elements to make a border of")
        if size == 1 and skip:
            return _edge(x, axis, low, high, options)
        step = size - skip if isinstance(size, int) else max(low, high)
        while low or high:  # a border wider than the array is reflected again
            left, right = min(low, step), min(high, step)
            before = flip(_cut(x, axis, skip, skip + left), axis) if left else 0
            stop = -skip or None
            behind = flip(_cut(x, axis, -right - skip, stop), axis) if right else 0
            if kind == "odd":
                before = left and (2 * _cut(x, axis, 0, 1) - before).astype(x.dtype)
                behind = right and (2 * _cut(x, axis, -1, None) - behind).astype(x.dtype)
            x = _between(x, axis, before, behind)
            low, high = low - left, high - right
            step = step + left + right
        return x

    return mode


def _wrap(x: Any, axis: int, low: int, high: int, options: Any) -> Any:
    size = x.shape[axis]
    if isinstance(size, int):
        return np.take(x, np.arange(-low, size + high) % size, axis)
    return _between(x, axis, low and _cut(x, axis, -low, None), high and _cut(x, axis, 0, high))


def _ramp(x: Any, axis: int, low: int, high: int, options: Any) -> Any:
    """Return a ramp from the end's value to the edge, rounded as by ``np.linspace``: integers in float64, and down."""
    before, behind = _pair_values(options.get("end_values", 0), x.ndim)[axis]
    shape = [1] * x.ndim

    def strip(edge: Any, end: Any, size: int, up: bool) -> Any:
        shape[axis] = size
        kind = x.dtype if x.node.type.dtype.kind == "f" else np.dtype(np.float64)
        number = np.arange(size).reshape(shape)
        number = as_tensor(number if up else np.flip(number, axis)).astype(kind)
        rise = edge.astype(kind) - end
        step = rise / size
        value = np.where(np.any(step == 0), number / size * rise, number * step) + end
        value = np.floor(value) if x.node.type.dtype.kind in "iu" else value
        return value.astype(x.dtype)

    left = strip(_cut(x, axis, 0, 1), before, low, True) if low else 0
    right = strip(_cut(x, axis, -1, None), behind, high, False) if high else 0
    return _between(x, axis, left, right)


def _statistic(name: str) -> Any:
    def mode(x: Any, axis: int, low: int, high: int, options: Any) -> Any:
        stat_length = options.get("stat_length")
        lengths = [None, None] if stat_length is None else _pair_values(stat_length, x.ndim)[axis]

        def strip(part: Any, size: int) -> Any:
            value = getattr(np, name)(part, axis=axis, keepdims=True)
            if name in ("mean", "median") and x.node.type.dtype.kind in "iu":
                value = np.rint(value)
            return np.broadcast_to(value.astype(x.dtype), (*x.shape[:axis], size, *x.shape[axis + 1 :]))

        first = x if lengths[0] is None else _cut(x, axis, 0, lengths[0])
        last = x if lengths[1] is None else _cut(x, axis, -lengths[1], None)
        return _between(x, axis, low and strip(first, low), high and strip(last, high))

    return mode


MODES: dict[str, Any] = {
    "edge": _edge,
    "reflect": _mirror(1),
    "symmetric": _mirror(0),
    "wrap": _wrap,
    "linear_ramp": _ramp,
    "maximum": _statistic("max"),
    "minimum": _statistic("min"),
    "mean": _statistic("mean"),
    "median": _statistic("median"),
}
