"""Windows over padded arrays: which of their elements lie in the padding.

    v0 = pad(x, 0, low=(4,), high=(4,))     18 elements, those from 4 to below 14 are x
    v1 = window(v0, sizes=(5,))             v1[p, k] = v0[p + k], so p + k < 4 and p + k >= 14 are zeros

A sum of products of such windows and weights needs only the rounds in between. Zero times infinity is no number, so
whatever else the windows are multiplied by meets the padding: only of the numbers of a model, which are all broken
where one is, is it known that they are finite.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from mlaot.ir import Dim, Node
from mlaot.ir.dims import nonnegative
from mlaot.lower.layout import Access
from mlaot.lower.program import HELD
from mlaot.ops import structure as st
from mlaot.ops.axes import axes_of
from mlaot.ops.kinds import base_of, is_view


@dataclass(frozen=True)
class PaddedWindows:
    """Windows along one axis of an array that is padded with zeros.

    ``axes`` of a node are those of the positions and of a window's elements; a step along each moves by ``steps``. Only
    elements from ``low`` to below ``high`` along the padded axis are no zeros.
    """

    axes: tuple[int, int]
    steps: tuple[int, int]
    low: Dim
    high: Dim

    def rounds(self, along: int, at: Dim) -> tuple[Dim, Dim]:
        """Return from which to below which round along one of ``axes`` no padding is read, ``at`` a place of the other.

        Both may lie outside of the axis.
        """
        step, by = self.steps[along], self.steps[1 - along]
        low, high = ((end + at * -by + (step - 1)) // step for end in (self.low, self.high))
        return low, high


def padded_windows(node: Node) -> Iterator[PaddedWindows]:
    """Yield the windows over padded axes that a node, or what it views, takes."""
    origins = [_origin(node, axis) for axis in range(node.type.rank)]
    for position, (windows, axis) in enumerate(origins):
        if windows.op is not st.window or axis not in windows.attrs["axes"]:
            continue
        i = windows.attrs["axes"].index(axis)
        inside = windows, windows.arg(0).type.rank + i
        padded, along = _origin(windows.arg(0), axis)
        if inside in origins and padded.op is st.pad and _is_zero(padded.arg(1)):
            before, after, between = (padded.attrs[key][along] for key in ("low", "high", "interior"))
            if between == 0 and (before, after) != (0, 0) and nonnegative(before) and nonnegative(after):
                steps = windows.attrs["strides"][i], windows.attrs["dilations"][i]
                high = before + padded.arg(0).type.shape[along]
                yield PaddedWindows((position, origins.index(inside)), steps, before, high)


def _origin(node: Node, axis: int) -> tuple[Node, int]:
    """Return the node that a chain of views begins with, or the first one that cuts an axis, and the axis there."""
    node = node.find()
    while is_view(node) and node.op.axes is not None:
        found = axes_of(node)
        label = found.result[axis]
        if label in found.whole or label not in found.args[0]:
            break
        node, axis = node.arg(0), found.args[0].index(label)
    return node, axis


def _is_zero(node: Node) -> bool:
    node = base_of(node)
    return node.op is st.const and not node.attrs["value"].array.any()


def is_weight(node: Node, accesses: Mapping[Node, Access]) -> bool:
    """Tell whether the elements of a value are those of something that the module holds, or finite constants."""
    node = node.find()
    while (node.op.moves and len(node.args) == 1) or is_view(node):
        node = node.arg(0)
    if node.op is st.const:
        return bool(np.isfinite(node.attrs["value"].array).all())
    return node.op is st.input_ and node in accesses and accesses[node].buffer.root.where in HELD
