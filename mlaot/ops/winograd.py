"""Winograd's minimal filtering: the transforms around the products of a 3x3 convolution.

Tiles of m x m results need (m + 2)^2 products each in place of 9 m^2::

    y = A^T [ (G g G^T) * (B^T d B) ] A       d: m + 2 by m + 2 values of x, g: 3x3 weights, *: element by element

A. Lavin, S. Gray, Fast Algorithms for Convolutional Neural Networks (2015), section 4. The channels are in blocks along
the last axis. The components of a tile come first, so that the products summed over channels are one matrix product for
each of them: ``contract(winograd_input(x), u, spec=znhwCc,zOCco->znhwOo)``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlaot.errors import MlaotError
from mlaot.ir import Dim, Node, Type
from mlaot.ir.dims import product
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.base import Array, Op

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


def tiles(extent: int, m: int) -> int:
    """How many tiles cover ``extent`` results."""
    return -(-extent // m)


def transform_weights(g: Array, m: int) -> Array:
    """``G g G^T`` of weights [3, 3, ...] in float64: [(m + 2)^2, ...]."""
    matrix = np.array(WEIGHTS[m])
    u: Array = np.einsum("ik,jl,kl...->ij...", matrix, matrix, g.astype(np.float64))
    return u.reshape(-1, *g.shape[2:])


def _blocked(x: Type, axes: str, m: int) -> list[int]:
    """The extents of ``x`` but for ``n``, if it is made of values in blocks of channels."""
    known = [d for axis, d in zip(axes, x.shape, strict=False) if axis != "n" and isinstance(d, int) and d > 0]
    fits = x.rank == len(axes) == len(known) + 1 and known[-1] % BLOCK == 0
    return known if fits and m in INPUT and x.dtype.name in ("f32", "f64") else []


def _covered(extents: Sequence[int], low: Pair, high: Pair) -> Pair:
    """Extents of the results of 3x3 windows over padded maps."""
    height, width = (d + a + b - 2 for d, a, b in zip(extents, low, high, strict=True))
    return height, width


def _input_type(x: Type, m: int, low: Pair, high: Pair) -> Type:
    known = _blocked(x, "nChwc", m)
    if not known or min(*low, *high) < 0 or min(_covered(known[1:3], low, high)) < 1:
        raise MlaotError(f"cannot cut {x}, padded by {low} and {high}, in tiles for {m}x{m} results of 3x3 windows")
    height, width = _covered(known[1:3], low, high)
    return x.with_shape(((m + 2) ** 2, x.shape[0], tiles(height, m), tiles(width, m), known[0], known[3]))


def _patches(x: Array, m: int, low: Pair, high: Pair) -> Array:
    """The values that each tile needs, zeros around them: [n, C, th, tw, c, m + 2, m + 2]."""
    missing = [-d % m for d in _covered(x.shape[2:4], low, high)]
    around = [(0, 0), (0, 0), *[(a, b + c) for a, b, c in zip(low, high, missing, strict=True)], (0, 0)]
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, around), (m + 2, m + 2), (2, 3))
    return windows[:, :, ::m, ::m]


def _input_reference(x: Array, m: int, low: Pair, high: Pair) -> Array:
    matrix = np.array(INPUT[m], x.dtype)
    v: Array = np.einsum("ik,jl,nChwckl->ijnhwCc", matrix, matrix, _patches(x, m, low, high), optimize=True)
    return v.reshape((m + 2) ** 2, *v.shape[2:])


def _input_by_ops(x: Node, m: int, low: Pair, high: Pair) -> Node:
    """``winograd_input`` by general ops."""
    dtype, size = x.type.dtype, m + 2
    matrix = np.einsum("ik,jl->ijkl", *[np.array(INPUT[m], np.float64)] * 2).reshape(-1, size, size)
    covered = _covered(_blocked(x.type, "nChwc", m)[1:3], low, high)
    after = [b + -d % m for b, d in zip(high, covered, strict=True)]
    zero = x.graph.constant(0, dtype)
    padded = st.pad(x, zero, low=(0, 0, *low, 0), high=(0, 0, *after, 0), interior=(0,) * 5)
    patches = st.window(padded, axes=(2, 3), sizes=(size, size), strides=(m, m), dilations=(1, 1))
    return red.contract(x.graph.constant(matrix, dtype), patches, spec="zkl,nChwckl->znhwCc")


def _vjp_input(ct: Node, out: Node, x: Node, **attrs: object) -> tuple[Node | None, ...]:
    """That of windows times a constant matrix."""
    from mlaot.transforms.differentiate import pullback

    return tuple(pullback([_input_by_ops(x, **attrs)], [ct], [x]))  # type: ignore[arg-type]


def _batch_input(node: Node, args: Sequence[Node], batched: Sequence[bool], dim: Dim) -> Node:
    """Examples beside the images of each."""
    shape = args[0].type.shape
    images = product((dim, shape[1]))
    v = winograd_input(st.reshape(args[0], shape=(images, *shape[2:])), **node.attrs)
    split = st.reshape(v, shape=(v.type.shape[0], dim, shape[1], *v.type.shape[2:]))
    return st.transpose(split, perm=(1, 0, 2, 3, 4, 5, 6))


# V = B^T d B of each tile d of x, padded by zeros `low` before and `high` after its two axes of space, and further so
# that tiles fit: [n, C, h, w, c] => [(m + 2)^2, n, tiles of h, tiles of w, C, c].
winograd_input: Op = Op(
    "winograd_input",
    _input_type,
    _input_reference,
    _vjp_input,
    _batch_input,
    doc="the tiles of padded maps, transformed for the products of a 3x3 convolution (Winograd)",
)


def _output_type(x: Type, m: int, size: Pair) -> Type:
    height, width = size
    known = _blocked(x, "znhwOo", m)
    if known[:3] != [(m + 2) ** 2, tiles(height, m), tiles(width, m)]:
        raise MlaotError(f"cannot make maps of {height}x{width} out of tiles of {m}x{m} results, transformed: {x}")
    return x.with_shape((x.shape[1], known[3], height, width, known[4]))


def _output_reference(x: Array, m: int, size: Pair) -> Array:
    matrix = np.array(OUTPUT[m], x.dtype)
    split = x.reshape(m + 2, m + 2, *x.shape[1:])
    y = np.einsum("ri,sj,ijnhwOo->nOhrwso", matrix, matrix, split, optimize=True)
    n, blocks, th, _, tw, _, block = y.shape
    whole: Array = y.reshape(n, blocks, th * m, tw * m, block)
    return whole[:, :, : size[0], : size[1]]


def _output_by_ops(x: Node, m: int, size: Pair) -> Node:
    """``winograd_output`` by general ops."""
    matrix = np.einsum("ri,sj->ijrs", *[np.array(OUTPUT[m], np.float64)] * 2).reshape(-1, m, m)
    y = red.contract(x, x.graph.constant(matrix, x.type.dtype), spec="znhwOo,zrs->nOhrwso")
    n, blocks, th, _, tw, _, block = y.type.shape
    whole = st.reshape(y, shape=(n, blocks, th * m, tw * m, block))
    return st.slice_(whole, start=(0,) * 5, size=(n, blocks, *size, block), step=(1,) * 5)


def _vjp_output(ct: Node, out: Node, x: Node, **attrs: object) -> tuple[Node | None, ...]:
    """That of a product with a constant matrix."""
    from mlaot.transforms.differentiate import pullback

    return tuple(pullback([_output_by_ops(x, **attrs)], [ct], [x]))  # type: ignore[arg-type]


def _batch_output(node: Node, args: Sequence[Node], batched: Sequence[bool], dim: Dim) -> Node:
    """Examples beside the images of each."""
    moved = st.transpose(args[0], perm=(1, 0, 2, 3, 4, 5, 6))
    z, _, images, *rest = moved.type.shape
    y = winograd_output(st.reshape(moved, shape=(z, product((dim, images)), *rest)), **node.attrs)
    return st.reshape(y, shape=(dim, images, *y.type.shape[1:]))


# Y = A^T M A of the summed products M of each tile: [(m + 2)^2, n, tiles of h, tiles of w, O, o] => [n, O, h, w, o].
winograd_output: Op = Op(
    "winograd_output",
    _output_type,
    _output_reference,
    _vjp_output,
    _batch_output,
    doc="maps from the products of their tiles: what ends a 3x3 convolution (Winograd)",
)
TRANSFORMS = (winograd_input, winograd_output)


def products_of(node: Node) -> tuple[Node, Node] | None:
    """The V and M of ``winograd_output(M = contract(V = winograd_input(x), u))``, if that is what ``node`` is."""
    if node.op is not winograd_output or (m := node.arg(0)).op is not red.contract:
        return None
    first, second, out = red.parse_spec(m.attrs["spec"])
    v = m.arg(0)
    if v.op is not winograd_input or v.attrs["m"] != node.attrs["m"] or len(second) != 5:
        return None
    z, images, blocks, block = first[0], first[1:4], first[4], first[5]
    wanted = f"{z}{second[1]}{blocks}{block}{second[4]}", f"{z}{images}{second[1]}{second[4]}"
    return (v, m) if (second, out) == wanted else None
