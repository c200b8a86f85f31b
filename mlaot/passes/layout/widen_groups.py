"""Merge narrow groups of convolutions to groups that fill blocks of channels. Reassociates.

    v2 = reshape(x, shape=(n, 4, 24, 10, 10))                      v2 = reshape(x, shape=(n, 2, 48, 10, 10))
    v3 = window(v2, axes=(3, 4), ..)                               v3 = window(v2, axes=(3, 4), ..)
    v4 = contract(v3, w, spec=nghxykl,gohkl->ngoxy)        =>      v4 = contract(v3, w', spec=nghxykl,gohkl->ngoxy)
    v5 = reshape(v4, shape=(n, 96, 8, 8))                          v5 = reshape(v4, shape=(n, 96, 8, 8))

The weights of neighbouring groups are on the diagonal of w', between zeros:

    w[0] 0
    0    w[1]

Groups of 24 channels need twice the products, but vectors then run along 16 channels (passes/layout/blocked_layout.py).
In plain values vectors run along rows, whose elements strides separate, and groups of many channels read many rows.
Groups of 8 channels or less are parts of blocks (passes/layout/groups_in_lanes.py). All other groups are left alone. An
incomplete group is padded. As with Winograd's transforms, an infinity or a nan may make other groups nan. The pass
applies only to frozen weights, as w' is computed at build time.
"""

from __future__ import annotations

from math import lcm

from mlaot.ir import Node
from mlaot.ir.module import Module
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.passes.base import pass_over
from mlaot.passes.frozen.freeze import IsFixed, fixed_by
from mlaot.passes.layout.blocks import LANES, in_blocks, pad_axis
from mlaot.passes.layout.groups import Grouped, grouped, on_diagonal, split_axis
from mlaot.passes.layout.groups_in_lanes import are_in_lanes
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


def wider(node: Node, is_fixed: IsFixed) -> Node | None:
    """contract(window(reshape(x)), w) => the same product with several groups merged, in the old shape"""
    conv = grouped(node, is_fixed)
    if conv is None:
        return None
    groups, read, made = conv.size(conv.group), conv.size(conv.read), conv.size(conv.made)
    several = lcm(read, LANES) // read
    wide = -(-groups // several)
    if several == 1 or are_in_lanes(conv) or several > _most(conv, read) or several * made % LANES:
        return None
    if any(in_blocks(groups * size) != wide * several * size for size in (read, made)):
        return None
    padded = pad_axis(conv.x, conv.axis, wide * several * read)
    windows = st.window(split_axis(padded, conv.axis, wide), **conv.window.attrs)
    weights = split_axis(on_diagonal(conv, wide, several), 0, wide)
    labels = conv.group + conv.made + conv.read
    labels += "".join(c for c in conv.weight_labels if c not in labels)
    result = red.contract(windows, weights, spec=f"{conv.labels},{labels}->{conv.out}")
    shape = result.type.shape
    merged = st.reshape(result, shape=(*shape[: conv.axis], wide * several * made, *shape[conv.axis + 2 :]))
    return split_axis(st.part(merged, conv.axis, 0, groups * made), conv.axis, groups)


def _most(conv: Grouped, read: int) -> int:
    """Return the number of groups of ``read`` channels that may be merged, which multiplies the products by as much."""
    if conv.is_strided:
        return 4 if read <= LANES else 2
    return 2 if read > WIDENED_CHANNELS else 1


def is_cut(node: Node) -> bool:
    """Tell whether a value is some of the groups that a convolution computes."""
    if node.op is not st.reshape or node.arg(0).op is not st.slice_:
        return False
    merged = node.arg(0).arg(0)
    product = merged.arg(0) if merged.op is st.reshape else merged
    return product.op is red.contract and any(a.find().op is st.window for a in product.args)
