"""Windows over padded arrays: which of their elements lie in the padding.

    v0 = pad(x, 0, low=(4,), high=(4,))     18 elements, those from 4 to below 14 are x
    v1 = window(v0, sizes=(5,))             v1[p, k] = v0[p + k], so p + k < 4 and p + k >= 14 are zeros

A sum of products of such windows and weights needs only the rounds in between. This is valid for weights only, which
are known to be finite. Any other factor may be infinite, and zero times infinity is nan, so its product with the
padding must be computed.
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

    ``axes`` are the axes of positions and of a window's elements; a step along each moves by ``steps`` elements. Only
    the elements from ``low`` to below ``high`` of the padded axis are not padding.
    """

    axes: tuple[int, int]
    steps: tuple[int, int]
    low: Dim
    high: Dim

    def rounds(self, along: int, at: Dim) -> tuple[Dim, Dim]:
        """Return the first round along one of ``axes`` that reads no padding and the first one after it that does.

        ``at`` is the position along the other axis. Both rounds may lie outside of the axis.
        """
        step, by = self.steps[along], self.steps[1 - along]
        low, high = ((end + at * -by + (step - 1)) // step for end in (self.low, self.high))
        return low, high


def padded_windows(node: Node) -> Iterator[PaddedWindows]:
    """Yield the windows over padded axes in a node or in the value that it views."""
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
    """Return the first node of a chain of views, or the first view that splits an axis, and the axis in it."""
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
    """Tell whether the elements of a value are those of an array that the module holds, or finite constants."""
    node = node.find()
    while (node.op.moves and len(node.args) == 1) or is_view(node):
        node = node.arg(0)
    if node.op is st.const:
        return bool(np.isfinite(node.attrs["value"].array).all())
    return node.op is st.input_ and node in accesses and accesses[node].buffer.root.where in HELD
