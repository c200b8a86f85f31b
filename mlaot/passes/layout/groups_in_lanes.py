"""Convolutions of groups of 8 channels, or of another part of a block: vectors run along a group's results.

    v2 = reshape(x, shape=(n, 4, 8, 10, 10))
    v3 = window(v2, axes=(3, 4), ..) : f32[n,4,8,8,8,3,3]
    v4 = contract(v3, w, spec=nghxykl,gohkl->ngoxy) : f32[n,4,8,8,8]
    v5 = reshape(v4, shape=(n, 32, 8, 8))
                                        =>
    v2 = reshape(x', shape=(n, 2, 10, 10, 2, 8))                  x' is x in blocks: f32[n,2,10,10,16]
    v3 = window(v2, axes=(2, 3), ..) : f32[n,2,8,8,2,8,3,3]
    v4 = contract(v3, w', spec=ngxyshkl,gsklho->ngxyso) : f32[n,2,8,8,2,8]
    v5 = reshape(v4, shape=(n, 2, 8, 8, 16))

The groups of a block are a separate axis, before the lanes of each. A plain x is split in place.
"""

from __future__ import annotations

from collections.abc import Callable

from mlaot.ir import Dim, Node
from mlaot.ir.dims import nominal
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.passes.layout.blocks import LANES, NAMES, ZERO, Blocked, in_blocks, pad_axis
from mlaot.passes.layout.groups import Grouped, on_diagonal, split_axis
from mlaot.schedule.tuning import PART_GROUPS

PART = 8  # channels of a part of a block: the lanes of a vector of AVX2


def are_in_lanes(conv: Grouped) -> bool:
    """Tell whether groups, or a few together at a multiple of the products, should be parts of blocks.

    The alternative is vectors along rows of the image, unless rows are strided or fill at most half of a vector.
    """
    size, width = conv.size(conv.read), nominal(conv.window.type.shape[conv.labels.index(conv.out[-1])])
    most = PART_GROUPS if conv.is_strided else 1 if 2 * width <= LANES else 0
    is_part = size == conv.size(conv.made) and PART % size == 0 and PART // size <= most
    return is_part and in_blocks(conv.size(conv.group) * size) is not None


def in_lanes(conv: Grouped, form: Blocked | None, store: Callable[[Node], Node]) -> Blocked:
    """Return the convolution in blocks, from a value in blocks or a plain one; ``store`` records its weights."""
    channels = conv.size(conv.group) * conv.size(conv.read)
    padded = in_blocks(channels) or 0
    parts = padded // LANES, LANES // PART
    part = next(c for c in NAMES if c not in conv.labels + conv.weight_labels)
    attrs, taps = conv.window.attrs, conv.labels[-len(conv.window.attrs["axes"]) :]
    plain = conv.labels[: -len(taps)]
    if form is not None:
        node = form.lanes_last().node
        split = st.reshape(node, shape=(*node.type.shape[:-1], LANES // PART, PART))
        labels = plain.replace(conv.read, "") + part + conv.read
    else:
        split = split_axis(pad_axis(conv.x, conv.axis, padded), conv.axis, *parts)
        labels = plain.replace(conv.read, part + conv.read)
    axes = tuple(labels.index(plain[axis]) for axis in attrs["axes"])
    windows = st.window(split, **{**attrs, "axes": axes})

    several = PART // conv.size(conv.read)
    weights = split_axis(on_diagonal(conv, padded // PART, several), 0, *parts)  # [blocks, parts, out, in, taps]
    ordered = store(st.in_order(weights, (0, 1, *range(4, weights.type.rank), 3, 2)))
    kept = conv.group + conv.made + conv.read
    weight_labels = conv.group + part + "".join(c for c in conv.weight_labels if c not in kept) + conv.read + conv.made
    out = conv.out.replace(conv.made, "")
    product = red.contract(windows, ordered, spec=f"{labels}{taps},{weight_labels}->{out}{part}{conv.made}")
    merged = st.reshape(product, shape=(*product.type.shape[:-2], LANES))
    return Blocked(merged, conv.axis, len(out), channels, ZERO)


def merges_parts(node: Node) -> bool:
    """Tell whether a reshape merges the parts of blocks, which is the last step after a product."""
    before = node.arg(0).type.shape if node.op is st.reshape else tuple[Dim, ...]()
    is_merged = before[-2:] == (LANES // PART, PART) and node.type.shape == (*before[:-2], LANES)
    return is_merged and (node.arg(0).op is red.contract or node.arg(0).op.elementwise)
