"""Convolutions of narrow groups become ones of groups that fill blocks of channels. Reassociates.

    v2 = reshape(x, shape=(n, 4, 8, 10, 10))                       v2 = reshape(x, shape=(n, 2, 16, 10, 10))
    v3 = window(v2, axes=(3, 4), ..)                               v3 = window(v2, axes=(3, 4), ..)
    v4 = contract(v3, w, spec=nghxykl,gohkl->ngoxy)        =>      v4 = contract(v3, w', spec=nghxykl,gohkl->ngoxy)
    v5 = reshape(v4, shape=(n, 32, 8, 8))                          v5 = reshape(v4, shape=(n, 32, 8, 8))

The weights of neighbouring groups stand on the diagonal of w', between zeros:

    w[0] 0
    0    w[1]

Groups of 8 channels take twice the products, but vectors run along 16 channels (passes/layout/blocked_layout.py). In
plain values they run along rows, which strides take apart; and groups of many channels are read from many rows. Other
groups stay as they are. What fills no whole group is padded. As with Winograd's transforms, an infinity or a nan makes
nan of more than its own group. Only with frozen weights: w' is made at build.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm

import numpy as np

from mlaot.ir import Dim, Node
from mlaot.ir.module import Module
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.passes.base import pass_over
from mlaot.passes.frozen.freeze import IsFixed, fixed_by, split_product
from mlaot.passes.layout.blocked_layout import LANES, in_blocks, pad_axis
from mlaot.passes.layout.sink_reshapes import move_past_elementwise
from mlaot.passes.rewrite import rewrite
from mlaot.schedule.tuning import WIDENED_CHANNELS


@pass_over("module", after=("freeze",))
def widen_groups(module: Module) -> None:
    """Widen the groups of every convolution of a module that serves."""
    if not module.is_frozen:
        return
    is_fixed = fixed_by(module)

    def contraction(node: Node) -> Node | None:
        return wider(node, is_fixed)

    def past_elementwise(node: Node) -> Node | None:
        return move_past_elementwise(node, is_cut)

    for graph in module.graphs.values():
        rewrite(graph, {red.contract: (contraction,)})
        rewrite(graph, {None: (past_elementwise,)})


@dataclass(frozen=True)
class _Grouped:
    """A convolution of a window of ``x``, whose groups are the axis ``axis``, with weights.

    ``group``, ``made`` and ``read`` are the labels of the groups and of the channels that each makes and reads.
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

    def size(self, label: str) -> int:
        return int(self.weights.type.shape[self.weight_labels.index(label)])


def _grouped(node: Node, is_fixed: IsFixed) -> _Grouped | None:
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
    found = _Grouped(window, x, w, labels, weight_labels, out, axis, group, made, read)
    return found if window.arg(0).type.shape == _split(x.type.shape, axis, found.size(group)) else None


def wider(node: Node, is_fixed: IsFixed) -> Node | None:
    """contract(window(reshape(x)), w) => the same with several groups in one, in its shape"""
    conv = _grouped(node, is_fixed)
    if conv is None:
        return None
    groups, read, made = conv.size(conv.group), conv.size(conv.read), conv.size(conv.made)
    several = lcm(read, LANES) // read
    wide = -(-groups // several)
    if several == 1 or several > _most(conv, read) or several * made % LANES:
        return None
    if any(in_blocks(groups * size) != wide * several * size for size in (read, made)):
        return None
    padded = pad_axis(conv.x, conv.axis, wide * several * read)
    windows = st.window(split_axis(padded, conv.axis, wide), **conv.window.attrs)
    order = [conv.group, conv.made, conv.read]
    order += [c for c in conv.weight_labels if c not in order]
    ordered = st.in_order(conv.weights, [conv.weight_labels.index(c) for c in order])
    spec = f"{conv.labels},{''.join(order)}->{conv.out}"
    result = red.contract(windows, _on_diagonal(ordered, wide, several), spec=spec)
    shape = result.type.shape
    merged = st.reshape(result, shape=(*shape[: conv.axis], wide * several * made, *shape[conv.axis + 2 :]))
    return split_axis(st.part(merged, conv.axis, 0, groups * made), conv.axis, groups)


def _most(conv: _Grouped, read: int) -> int:
    """Return how many groups of ``read`` channels may become one, for as many times the products."""
    if conv.window.attrs["strides"][-1] == 1:
        return 2 if read > WIDENED_CHANNELS else 1
    return 4 if read <= LANES else 2


def is_cut(node: Node) -> bool:
    """Tell whether a value is the groups of a convolution that has made more."""
    if node.op is not st.reshape or node.arg(0).op is not st.slice_:
        return False
    merged = node.arg(0).arg(0)
    product = merged.arg(0) if merged.op is st.reshape else merged
    return product.op is red.contract and any(a.find().op is st.window for a in product.args)


def split_axis(x: Node, axis: int, parts: int) -> Node:
    """Split an axis in a number of equal parts, and the elements of each."""
    return st.reshape(x, shape=_split(x.type.shape, axis, parts))


def _split(shape: tuple[Dim, ...], axis: int, parts: int) -> tuple[Dim, ...]:
    size = shape[axis]
    return (*shape[:axis], parts, size // parts, *shape[axis + 1 :]) if isinstance(size, int) else ()


def _on_diagonal(w: Node, wide: int, several: int) -> Node:
    """Return weights [groups, out, in, taps] of fewer groups, each of ``several``; those that are missing are zeros.

    The zeros are added last, so that the channels that nothing makes are seen (passes/layout/blocked_layout.py).
    """
    groups, made, read, *taps = (int(d) for d in w.type.shape)
    parts = (wide, several)
    apart = st.reshape(pad_axis(w, 0, wide * several), shape=(*parts, made, read, *taps))
    spread = (*parts, made, several, read, *taps)
    repeated = st.broadcast(apart, shape=spread, axes=tuple(i for i in range(len(spread)) if i != 3))
    diagonal = w.graph.constant(np.eye(several), w.type.dtype)
    only = ew.mul(repeated, st.broadcast(diagonal, shape=spread, axes=(1, 3)))
    rows = st.reshape(only, shape=(wide * several * made, several * read, *taps))
    shown = pad_axis(st.part(rows, 0, 0, groups * made), 0, wide * several * made)
    return st.reshape(shown, shape=(wide, several * made, several * read, *taps))
