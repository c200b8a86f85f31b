"""Compute 3x3 convolutions with frozen weights by Winograd's transforms, if that is faster. Reassociates.

    v1 = pad(x, 0.0, low=(0, 0, 1, 1, 0), high=(0, 0, 1, 1, 0))
    v2 = window(v1, axes=(2, 3), sizes=(3, 3))
    v3 = contract(v2, w, spec=nChwckl,OCklco->nOhwo)
        =>
    v1 = winograd_input(x, m=2, low=(1, 1), high=(1, 1))
    v2 = contract(v1, folded0, spec=znhwCc,zOCco->znhwOo)
    v3 = winograd_output(v2, m=2, size=(56, 56))

The channels are in blocks, and the strides are 1; a model of one image has no n. The transformed weights are computed
in float64 and rounded once. They are larger than the weights, so a wheel contains the weights, and a module transforms
them when it is first used (``Module.transformed``, mlaot/lower/prepare.py). Weights that are whole numbers are left
alone, as for whole inputs the direct sum is exact. Tiles of 2x2 results (F2) have no larger rounding error than the
direct sum. Tiles of 4x4 (F4) lose a digit, so a setting must ask for them (Lavin and Gray 2015, section 5.2). If the
direct sum is infinite, the result may be nan, and in tiles of 4x4 a value that is not finite affects its whole tile.

The time is counted in products of a vector of 16 with a scalar, for one image, of nominal size if the size is open::

    direct    9 (h w + W) C 16 O
    m x m     (m + 2)^2 (t + W) C 16 O + T[m] t (C + O)      t: tiles, C and O: blocks of 16 channels

W, ``WEIGHT_PRODUCTS``, is the cost of loading a vector of weights from main memory. It dominates for small maps of many
channels, and F4 has four times as many weights as the direct sum. T, ``TRANSFORM_PRODUCTS``, is the cost of
transforming a tile, mostly of moving its (m + 2)^2 vectors to and from the second-level cache.
"""

from __future__ import annotations

import numpy as np

from mlaot.ir import Node
from mlaot.ir.dims import nominal
from mlaot.ir.module import Module, Transformed
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.winograd import BLOCK, products, tiles, transform_weights, winograd_input, winograd_output
from mlaot.passes.base import pass_over
from mlaot.passes.frozen.freeze import IsFixed, add_weight, fixed_by, fixed_values
from mlaot.passes.rewrite import rewrite
from mlaot.schedule.tuning import TRANSFORM_PRODUCTS, WEIGHT_PRODUCTS

SIZES: dict[str, tuple[int, ...]] = {"off": (), "F2": (2,), "F4": (2, 4)}  # by the setting, the tiles that may be used
Pair = tuple[int, int]


@pass_over("module", after=("blocked_layout", "quantize"))
def winograd(module: Module) -> None:
    """Apply the rule of this file to every entry of a module with frozen weights."""
    if not module.is_frozen or not SIZES[module.options.winograd]:
        return
    for graph in module.graphs.values():
        is_fixed = fixed_by(module)

        def convolution(node: Node, is_fixed: IsFixed = is_fixed) -> Node | None:
            """contract(window(x), w) => winograd_output(contract(winograd_input(x), u))"""
            return _transform(module, node, is_fixed)

        rewrite(graph, {red.contract: (convolution,)})


def _transform(module: Module, node: Node, is_fixed: IsFixed) -> Node | None:
    operands = _convolution(node, is_fixed)
    if operands is None:
        return None
    x, low, high, w, order = operands
    out_blocks, height, width, _ = node.type.shape[-4:]
    blocks = nominal(x.type.shape[-4]), nominal(out_blocks)
    m = fastest((nominal(height), nominal(width)), blocks, SIZES[module.options.winograd])
    if m is None:
        return None
    (value,) = fixed_values(module.slots, node.graph, [w])
    g = np.transpose(value, order)  # [3, 3, O, C, c, o]
    if (g == np.rint(g)).all():
        return None
    u = transform_weights(g, m).astype(g.dtype)
    name = add_weight(module, u)
    module.transformed[name] = Transformed(g, m)
    weights = node.graph.input(name, node.type.with_shape(u.shape), parameter=True)
    v = winograd_input(x, m=m, low=low, high=high)
    return winograd_output(products(v, weights), m=m, size=(height, width))


def _convolution(node: Node, is_fixed: IsFixed) -> tuple[Node, Pair, Pair, Node, tuple[int, ...]] | None:
    """Return x, its padding, the weights, and the order that makes their axes [k, l, O, C, c, o]."""
    first, second, out = red.parse_spec(node.attrs["spec"])
    operands = (first, node.arg(0)), (second, node.arg(1))
    for (labels, windows), (w_labels, w) in (operands, operands[::-1]):
        missing = windows.op is st.reshape  # the axis of one image in front
        if missing and windows.arg(0).type.shape == (1, *windows.type.shape):
            windows = windows.arg(0)
        if windows.op is not st.window or len(out) < 4 or len(labels) != len(out) + 2 or not is_fixed(w):
            continue
        *images, blocks, rows, columns, block, first_tap, last_tap = list(labels)
        out_blocks, lane = out[-4], out[-1]
        axes = first_tap, last_tap, out_blocks, blocks, block, lane
        is_in_order = out == "".join((*images, out_blocks, rows, columns, lane)) and set(w_labels) == set(axes)
        space = (len(images) + 1 + missing, len(images) + 2 + missing)
        is_3x3 = windows.attrs["sizes"] == (3, 3) and windows.attrs["axes"] == space
        is_dense = windows.attrs["strides"] == (1, 1) == windows.attrs["dilations"]
        lanes, channels = (
            (windows.type.shape[-3], node.type.shape[-1]),
            (windows.type.shape[len(images) + missing], node.type.shape[-4]),
        )
        in_blocks = all(isinstance(d, int) for d in (*lanes, *channels)) and all(d % BLOCK == 0 for d in lanes)
        if is_in_order and len(w_labels) == 6 and is_3x3 and is_dense and in_blocks:
            x, low, high = _strip_padding(windows.arg(0))
            x = st.reshape(x, shape=x.type.shape[1:]) if missing else x
            return x, low, high, w, tuple(w_labels.index(c) for c in axes)
    return None


def _strip_padding(x: Node) -> tuple[Node, Pair, Pair]:
    """Return the value that is padded by zeros along both spatial axes, and the amounts."""
    nothing = (0, 0)
    if x.op is not st.pad or any(x.attrs["interior"]):
        return x, nothing, nothing
    value, low, high = x.arg(1), x.attrs["low"], x.attrs["high"]
    is_zero = value.op is st.const and value.attrs["value"].array == 0
    rest = [d for pads in (low, high) for d in (*pads[:-3], pads[-1])]
    if not is_zero or any(rest) or not all(isinstance(d, int) for d in (*low, *high)):
        return x, nothing, nothing
    return x.arg(0), low[-3:-1], high[-3:-1]


def fastest(size: Pair, blocks: Pair, sizes: tuple[int, ...]) -> int | None:
    """Return the m of the fastest tiles for maps of ``size`` and blocks of channels (in, out), or None for no tiles."""
    (height, width), (c, o) = size, blocks
    costs: dict[int | None, int] = {None: 9 * (height * width + WEIGHT_PRODUCTS) * c * 16 * o}
    for m in sizes:
        count = nominal(tiles(height, m) * tiles(width, m))
        costs[m] = (m + 2) ** 2 * (count + WEIGHT_PRODUCTS) * c * 16 * o + TRANSFORM_PRODUCTS[m] * count * (c + o)
    return min(costs, key=costs.__getitem__)
