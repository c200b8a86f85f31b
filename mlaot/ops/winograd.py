"""Winograd's minimal filtering: the transforms around the products of a 3x3 convolution.

Tiles of m x m results need (m + 2)^2 products each, instead of 9 m^2::

    y = A^T [ (G g G^T) * (B^T d B) ] A       d: m + 2 by m + 2 values of x, g: 3x3 weights, *: element by element

A. Lavin, S. Gray, Fast Algorithms for Convolutional Neural Networks (2015), section 4. The channels are in blocks along
the last axis. The components of a tile come first, so that the products summed over channels are one matrix product for
each of them: ``contract(winograd_input(x), u, spec=znhwCc,zOCco->znhwOo)``; axes of images, such as n, may be any.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlaot.errors import MlaotError
from mlaot.ir import Dim, Node, Type
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.axes import last_axes
from mlaot.ops.base import Array, Op, Transforms

BLOCK = 16  # channels of a block; a whole number of vectors on every instruction set
Matrix = tuple[tuple[float, ...], ...]
Pair = tuple[int, int]

# B^T, A^T and G for tiles of 2x2 and of 4x4 results: points 0, 1, -1, (2, -2,) infinity.
INPUT: dict[int, Matrix] = {
    2: ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
    4: (
        (4, 0, -5, 0, 1, 0),
        (0, -4, -4, 1, 1, 0),
        (0, 4, -4, -1, 1, 0),
        (0, -2, -1, 2, 1, 0),
        (0, 2, -1, -2, 1, 0),
        (0, 4, 0, -5, 0, 1),
    ),
}
OUTPUT: dict[int, Matrix] = {
    2: ((1, 1, 1, 0), (0, 1, -1, -1)),
    4: ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
}
WEIGHTS: dict[int, Matrix] = {
    2: ((1, 0, 0), (1 / 2, 1 / 2, 1 / 2), (1 / 2, -1 / 2, 1 / 2), (0, 0, 1)),
    4: (
        (1 / 4, 0, 0),
        (-1 / 6, -1 / 6, -1 / 6),
        (-1 / 6, 1 / 6, -1 / 6),
        (1 / 24, 1 / 12, 1 / 6),
        (1 / 24, -1 / 12, 1 / 6),
        (0, 0, 1),
    ),
}


def tiles(extent: Dim, m: int) -> Dim:
    """Return the number of tiles that cover ``extent`` results."""
    return (extent + m - 1) // m


def transform_weights(g: Array, m: int) -> Array:
    """Compute ``G g G^T`` of weights [3, 3, ...] in float64: [(m + 2)^2, ...]."""
    matrix = np.array(WEIGHTS[m])
    u: Array = np.einsum("ik,jl,kl...->ij...", matrix, matrix, g.astype(np.float64))
    return u.reshape(-1, *g.shape[2:])


def _is_blocked(x: Type, rank: int, blocks: int, m: int) -> bool:
    """Tell whether ``x``, of at least ``rank`` axes, has blocked channels; ``blocks`` is the axis of the blocks."""
    if x.rank < rank or m not in INPUT or x.dtype.name not in ("f32", "f64"):
        return False
    count, block = x.shape[blocks], x.shape[-1]
    return isinstance(count, int) and isinstance(block, int) and block % BLOCK == 0 < min(count, block)


def _result_extents(extents: Sequence[Dim], low: Pair, high: Pair) -> tuple[Dim, Dim]:
    """Return the extents of the results of 3x3 windows over padded maps."""
    height, width = (d + a + b - 2 for d, a, b in zip(extents, low, high, strict=True))
    return height, width


def _input_type(x: Type, m: int, low: Pair, high: Pair) -> Type:
    height, width = _result_extents(x.shape[-3:-1], low, high) if _is_blocked(x, 4, -4, m) else (0, 0)
    if min(*low, *high) < 0 or any(isinstance(d, int) and d < 1 for d in (height, width)):
        raise MlaotError(f"cannot cut {x}, padded by {low} and {high}, in tiles for {m}x{m} results of 3x3 windows")
    return x.with_shape(((m + 2) ** 2, *x.shape[:-4], tiles(height, m), tiles(width, m), x.shape[-4], x.shape[-1]))


def _patches(x: Array, m: int, low: Pair, high: Pair) -> Array:
    """Return the values of each tile, with zeros around the maps: [.., C, th, tw, c, m + 2, m + 2]."""
    missing = [-(d + a + b - 2) % m for d, a, b in zip(x.shape[-3:-1], low, high, strict=True)]
    sides = [(a, b + c) for a, b, c in zip(low, high, missing, strict=True)]
    padded = np.pad(x, [*[(0, 0)] * (x.ndim - 3), *sides, (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (m + 2, m + 2), (-3, -2))
    patches: Array = windows[..., ::m, ::m, :, :, :]
    return patches


def _input_reference(x: Array, m: int, low: Pair, high: Pair) -> Array:
    matrix = np.array(INPUT[m], x.dtype)
    patches = _patches(x, m, low, high)
    v: Array = np.einsum("ik,jl,...Chwckl->ij...hwCc", matrix, matrix, patches, optimize=True)
    return v.reshape((m + 2) ** 2, *v.shape[2:])


def _input_by_ops(x: Node, m: int, low: Pair, high: Pair) -> Node:
    """Compute ``winograd_input`` by general ops."""
    dtype, size, lead = x.type.dtype, m + 2, (0,) * (x.type.rank - 3)
    matrix = np.einsum("ik,jl->ijkl", *[np.array(INPUT[m], np.float64)] * 2).reshape(-1, size, size)
    covered = _result_extents(x.type.shape[-3:-1], low, high)
    after = [b + tiles(d, m) * m - d for b, d in zip(high, covered, strict=True)]
    zero = x.graph.constant(0, dtype)
    padded = st.pad(x, zero, low=(*lead, *low, 0), high=(*lead, *after, 0), interior=(0,) * x.type.rank)
    axes = (len(lead), len(lead) + 1)
    patches = st.window(padded, axes=axes, sizes=(size, size), strides=(m, m), dilations=(1, 1))
    images = _images(x.type.rank - 4)
    return red.contract(x.graph.constant(matrix, dtype), patches, spec=f"zkl,{images}Chwckl->z{images}hwCc")


def _images(count: int) -> str:
    """Return labels of the axes before the maps' axes."""
    return "nabdefgipq"[:count]


def _vjp_input(ct: Node, out: Node, x: Node, **attrs: object) -> tuple[Node | None, ...]:
    """Differentiate the product of windows and a constant matrix."""
    return tuple(Transforms.pullback([_input_by_ops(x, **attrs)], [ct], [x]))  # type: ignore[arg-type]


# V = B^T d B of each tile d of x, padded by zeros `low` before and `high` after its two axes of space, and further so
# that tiles fit: [.., C, h, w, c] => [(m + 2)^2, .., tiles of h, tiles of w, C, c].
winograd_input: Op = Op(
    "winograd_input",
    _input_type,
    _input_reference,
    _vjp_input,
    last_axes(4, lambda node: 4, front=1),
    doc="the tiles of padded maps, transformed for the products of a 3x3 convolution (Winograd)",
)


def _output_type(x: Type, m: int, size: tuple[Dim, Dim]) -> Type:
    height, width = size
    covered = (tiles(height, m), tiles(width, m))
    if not _is_blocked(x, 5, -2, m) or x.shape[0] != (m + 2) ** 2 or x.shape[-4:-2] != covered:
        raise MlaotError(f"cannot make maps of {height}x{width} out of tiles of {m}x{m} results, transformed: {x}")
    return x.with_shape((*x.shape[1:-4], x.shape[-2], height, width, x.shape[-1]))


def _output_reference(x: Array, m: int, size: Pair) -> Array:
    matrix = np.array(OUTPUT[m], x.dtype)
    split = x.reshape(m + 2, m + 2, *x.shape[1:])
    y = np.einsum("ri,sj,ij...hwOo->...Ohrwso", matrix, matrix, split, optimize=True)
    *lead, th, _, tw, _, block = y.shape
    maps: Array = y.reshape(*lead, th * m, tw * m, block)
    return maps[..., : size[0], : size[1], :]


def _output_by_ops(x: Node, m: int, size: Pair) -> Node:
    """Compute ``winograd_output`` by general ops."""
    matrix = np.einsum("ri,sj->ijrs", *[np.array(OUTPUT[m], np.float64)] * 2).reshape(-1, m, m)
    images = _images(x.type.rank - 5)
    y = red.contract(x, x.graph.constant(matrix, x.type.dtype), spec=f"z{images}hwOo,zrs->{images}Ohrwso")
    *lead, th, _, tw, _, block = y.type.shape
    maps = st.reshape(y, shape=(*lead, th * m, tw * m, block))
    rank = len(lead) + 3
    return st.slice_(maps, start=(0,) * rank, size=(*lead, *size, block), step=(1,) * rank)


def _vjp_output(ct: Node, out: Node, x: Node, **attrs: object) -> tuple[Node | None, ...]:
    """Differentiate a product with a constant matrix."""
    return tuple(Transforms.pullback([_output_by_ops(x, **attrs)], [ct], [x]))  # type: ignore[arg-type]


# Y = A^T M A of the summed products M of each tile: [(m + 2)^2, .., tiles of h, tiles of w, O, o] => [.., O, h, w, o].
winograd_output: Op = Op(
    "winograd_output",
    _output_type,
    _output_reference,
    _vjp_output,
    last_axes(4, lambda node: 4, first=1),
    doc="maps from the products of their tiles: what ends a 3x3 convolution (Winograd)",
)
TRANSFORMS = (winograd_input, winograd_output)


def products(v: Node, u: Node) -> Node:
    """Multiply transformed tiles by weights [(m + 2)^2, O, C, c, o], and sum over channels."""
    images = _images(v.type.rank - 5)
    return red.contract(v, u, spec=f"z{images}hwCc,zOCco->z{images}hwOo")


def products_of(node: Node) -> tuple[Node, Node] | None:
    """Return V and M of ``winograd_output(M = products(V = winograd_input(x), u))``; None for other nodes."""
    if node.op is not winograd_output or (m := node.arg(0)).op is not red.contract:
        return None
    first, second, out = red.parse_spec(m.attrs["spec"])
    v = m.arg(0)
    if v.op is not winograd_input or v.attrs["m"] != node.attrs["m"] or len(second) != 5:
        return None
    expected = f"{first[0]}{second[1]}{first[-2:]}{second[4]}", f"{first[:-2]}{second[1]}{second[4]}"
    return (v, m) if (second, out) == expected else None
