"""Values whose channels are in blocks of 16: axes in the plain order, one of them that of the blocks, and the lanes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import nan

from mlaot.ir import Dim, Node
from mlaot.ops import structure as st
from mlaot.ops.kinds import changes_unit_axes

LANES = 16
NAMES = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"  # of labels

Filling = frozenset[float]
NOTHING: Filling = frozenset()
ZERO: Filling = frozenset({0.0})
UNKNOWN: Filling = frozenset({nan})


@dataclass(frozen=True)
class Blocked:
    """A value in blocks: ``node`` has the blocks at ``axis`` and the lanes at ``lane``, the plain axes in their order.

    ``filling`` is the set of numbers that added channels may hold; nan stands for any.
    """

    node: Node
    axis: int
    lane: int
    channels: int
    filling: Filling

    @property
    def added(self) -> Filling:
        """The numbers that added channels may hold."""
        return self.filling if self.channels % LANES else NOTHING

    def lanes_last(self) -> Blocked:
        last = self.node.type.rank - 1
        if self.lane == last:
            return self
        perm = (*[i for i in range(last + 1) if i != self.lane], self.lane)
        return replace(self, node=st.transpose(self.node, perm=perm), lane=last)


def window_of(x: Node) -> Node | None:
    """Return the window that a value is, apart from axes of one element; None for other values."""
    x = x.arg(0) if x.op is st.reshape and changes_unit_axes(x) else x
    return x if x.op is st.window else None


def in_blocks(channels: Dim) -> int | None:
    """Round a number of channels up to whole blocks, or return None if that adds more than a third."""
    if not isinstance(channels, int):
        return None
    padded = -(-channels // LANES) * LANES
    return padded if 0 < 3 * padded <= 4 * channels else None


def put_in_blocks(x: Node, axis: int) -> Node:
    """Split the channels along ``axis`` into blocks there and lanes along a new last axis, padded by zeros."""
    size = in_blocks(x.type.shape[axis])
    assert size is not None, f"bug in mlaot: {x} has no blocks"
    padded, rank = pad_axis(x, axis, size), x.type.rank
    shape = padded.type.shape
    split = st.reshape(padded, shape=(*shape[:axis], size // LANES, LANES, *shape[axis + 1 :]))
    return st.transpose(split, perm=(*[i for i in range(rank + 1) if i != axis + 1], axis + 1))


def pad_axis(x: Node, axis: int, size: int) -> Node:
    """Pad an axis with zeros after the elements, up to a size."""
    missing, none = size - x.type.shape[axis], (0,) * x.type.rank
    if missing == 0:
        return x
    high = tuple(missing if i == axis else 0 for i in range(x.type.rank))
    return st.pad(x, x.graph.constant(0, x.type.dtype), low=none, high=high, interior=none)


def put_back(b: Blocked) -> Node:
    """Return the plain value of a blocked one."""
    node, rank = b.lanes_last().node, b.node.type.rank
    node = st.transpose(node, perm=(*range(b.axis + 1), rank - 1, *range(b.axis + 1, rank - 1)))
    shape = node.type.shape
    size = b.channels + -b.channels % LANES
    node = st.reshape(node, shape=(*shape[: b.axis], size, *shape[b.axis + 2 :]))
    return node if size == b.channels else st.part(node, b.axis, 0, b.channels)
