"""Convolutions with groups, in the form that the layouts of channels use."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from mlaot.ir import Dim, Node
from mlaot.ops import elementwise as ew
from mlaot.ops import structure as st
from mlaot.passes.frozen.freeze import IsFixed, split_product
from mlaot.passes.layout.blocks import pad_axis


@dataclass(frozen=True)
class Grouped:
    """A convolution of a window of ``x``, whose groups are the axis ``axis``, with weights.

    ``group``, ``made`` and ``read`` are the labels of the groups, and of the channels that a group makes and reads.
    """

    window: Node
    x: Node
    weights: Node
    labels: str
    weight_labels: str
    out: str
    axis: int
    group: str
    made: str
    read: str

    @property
    def is_strided(self) -> bool:
        """Whether neighbours in a row of the result read elements that are not adjacent."""
        return bool(self.window.attrs["strides"][-1] > 1)

    def size(self, label: str) -> int:
        return int(self.weights.type.shape[self.weight_labels.index(label)])


def grouped(node: Node, is_fixed: IsFixed) -> Grouped | None:
    """Return the convolution with groups that a product is, None for others."""
    operands = split_product(node, is_fixed)
    if operands is None or operands[0].op is not st.window or operands[0].arg(0).op is not st.reshape:
        return None
    window, w, labels, weight_labels, out = operands
    groups = [c for c in labels if c in weight_labels and c in out]
    if len(groups) != 1 or not all(isinstance(d, int) for d in w.type.shape):
        return None
    group, axis = groups[0], labels.index(groups[0])
    made, read = (names[names.index(group) + 1 :][:1] for names in (out, labels))
    is_made, is_read = made in weight_labels and made not in labels, read in weight_labels and read not in out
    if not made or not read or not is_made or not is_read or out.index(group) != axis:
        return None
    x = window.arg(0).arg(0)
    found = Grouped(window, x, w, labels, weight_labels, out, axis, group, made, read)
    return found if window.arg(0).type.shape == split_shape(x.type.shape, axis, found.size(group)) else None


def split_axis(x: Node, axis: int, *parts: int) -> Node:
    """Split an axis into equal parts, each of these into equal parts, and so on, down to the elements."""
    return st.reshape(x, shape=split_shape(x.type.shape, axis, *parts))


def split_shape(shape: tuple[Dim, ...], axis: int, *parts: int) -> tuple[Dim, ...]:
    size = shape[axis]
    return (*shape[:axis], *parts, size // prod(parts), *shape[axis + 1 :]) if isinstance(size, int) else ()


def on_diagonal(conv: Grouped, wide: int, several: int) -> Node:
    """Return the weights of fewer groups, each of ``several``, as [all channels, channels that a group reads, taps].

    Missing groups are zeros. They are added last, so that the channels without a source can be recognized
    (passes/layout/blocked_layout.py).
    """
    order = [conv.group, conv.made, conv.read]
    order += [c for c in conv.weight_labels if c not in order]
    w = st.in_order(conv.weights, [conv.weight_labels.index(c) for c in order])
    groups, made, read, *taps = (int(d) for d in w.type.shape)
    parts = (wide, several)
    apart = st.reshape(pad_axis(w, 0, wide * several), shape=(*parts, made, read, *taps))
    spread = (*parts, made, several, read, *taps)
    repeated = st.broadcast(apart, shape=spread, axes=tuple(i for i in range(len(spread)) if i != 3))
    diagonal = w.graph.constant(np.eye(several), w.type.dtype)
    only = ew.mul(repeated, st.broadcast(diagonal, shape=spread, axes=(1, 3)))
    rows = st.reshape(only, shape=(wide * several * made, several * read, *taps))
    return pad_axis(st.part(rows, 0, 0, groups * made), 0, wide * several * made)
