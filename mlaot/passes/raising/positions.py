"""Read elements of a tensor at given positions: as a view if these follow strides, and else by a ``take``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlaot.ir import Literal, Node
from mlaot.ir import dims as dims_
from mlaot.ir.types import i64
from mlaot.ops import structure as st
from mlaot.passes.raising.arrays import Ids


def positions_in(base: Ids, ids: Ids) -> Ids:
    """Return the position of each of ``ids`` in the flat ``base``."""
    flat = base.reshape(-1)
    sorter = np.argsort(flat)
    return sorter[np.searchsorted(flat, ids, sorter=sorter)].reshape(ids.shape)


def take_as_view(x: Node, positions: Ids) -> Node:
    """Read the elements of ``x`` at ``positions``, as a view if these follow strides."""
    size = dims_.product(x.type.shape)
    parts = positions.reshape([n for axis in range(positions.ndim) for n in _runs(positions, axis)])
    strides = _strides(parts)
    if strides is not None and isinstance(size, int):
        levels = _levels(size, int(positions.flat[0]), strides)
        if levels is not None:
            view = _view(x, levels, parts.shape)
            return view if parts.shape == positions.shape else st.reshape(view, shape=positions.shape)
    return st.take(x, indices=Literal(positions, i64), lead=0)


@dataclass(frozen=True)
class _Level:
    """One axis of a view of a tensor, and the elements that are read of it.

    ``axes`` has the place in the result, the extent and the stride of one axis, or of two: a window's positions and
    elements.
    """

    extent: int
    start: int
    axes: tuple[tuple[int, int, int], ...]

    @property
    def span(self) -> int:
        """The number of elements from the first to the last one that is read, both included."""
        return 1 + sum((extent - 1) * stride for _, extent, stride in self.axes)


def _runs(positions: Ids, axis: int) -> list[int]:
    """Split an axis into runs of equal steps, and these into runs again, such as a window's channels and positions."""
    line = np.moveaxis(positions, axis, 0).reshape(positions.shape[axis], -1)[:, 0]
    runs: list[int] = []
    while len(line) > 1:
        steps = np.diff(line)
        run = 1 + int(np.argmin(np.append(steps == steps[0], False)))
        if len(line) % run:
            break
        runs.insert(0, run)
        line = line[::run]
    return [len(line), *runs] if len(line) > 1 or not runs else runs


def _strides(positions: Ids) -> list[tuple[int, int, int]] | None:
    """Return place, extent and stride of the axes of an affine array, or None for any other array.

    An array that repeats elements is no affine array either.
    """
    axes = []
    for axis, extent in enumerate(positions.shape):
        if extent == 1:
            continue
        steps = np.diff(positions, axis=axis)
        stride = int(steps.flat[0])
        if stride <= 0 or (steps != stride).any():
            return None
        axes.append((axis, extent, stride))
    return axes


def _levels(size: int, start: int, axes: Sequence[tuple[int, int, int]]) -> list[_Level] | None:
    """View ``size`` elements as several axes, outer first, each of which is read in order or in windows."""
    for stride in sorted({stride for _, _, stride in axes if stride > 1 and size % stride == 0}):
        inner = tuple(axis for axis in axes if axis[2] < stride)
        outer = [(place, extent, s // stride) for place, extent, s in axes if s >= stride]
        level = _Level(stride, start % stride, inner)
        whole = all(s % stride == 0 for _, _, s in axes if s >= stride)
        if whole and len(inner) < 3 and level.start + level.span <= stride:
            rest = _levels(size // stride, start // stride, outer)
            if rest is not None:
                return [*rest, level]
    level = _Level(size, start, tuple(axes))
    return [level] if len(axes) < 3 and start + level.span <= size else None


def _view(x: Node, levels: Sequence[_Level], shape: tuple[int, ...]) -> Node:
    """Return the elements that ``levels`` read, by reshapes, slices, windows and a transpose."""
    extents = tuple(level.extent for level in levels)
    x = x if x.type.shape == extents else st.reshape(x, shape=extents)
    windows = {i: level for i, level in enumerate(levels) if len(level.axes) == 2}
    lengths, steps = [], []
    for i, level in enumerate(levels):
        step = level.axes[0][2] if len(level.axes) == 1 else 1
        lengths.append(level.span if i in windows else level.axes[0][1] if level.axes else 1)
        steps.append(step)
    if tuple(lengths) != extents:
        x = st.slice_(x, start=tuple(level.start for level in levels), size=tuple(lengths), step=tuple(steps))
    # Axes of the result by place; a level that is read at one element has none.
    places = [level.axes[0][0] if level.axes else None for level in levels]
    if windows:
        x = st.window(
            x,
            axes=tuple(windows),
            sizes=tuple(level.axes[1][1] for level in windows.values()),
            strides=tuple(level.axes[0][2] for level in windows.values()),
            dilations=tuple(level.axes[1][2] for level in windows.values()),
        )
        places += [level.axes[1][0] for level in windows.values()]
    kept = [place for place in places if place is not None]
    dense = tuple(d for d, place in zip(x.type.shape, places, strict=True) if place is not None)
    if x.type.shape != dense:
        x = st.reshape(x, shape=dense)
    order = sorted(range(len(kept)), key=kept.__getitem__)
    x = st.in_order(x, order)
    return x if x.type.shape == shape else st.reshape(x, shape=shape)
