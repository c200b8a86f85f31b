"""Random bits from a key: Threefry-2x32 with 20 rounds (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3).

Element e (row-major) of the draw ``site`` is the first output word for the counter words ``e mod 2**32`` and
``site + 2**16 * (e // 2**32)``. So a draw depends on its key, its site and the element's place alone: every machine and
every order of computation gives the same, sites below 2**16 never share a counter, and the examples of a batch draw
what one draw of the whole batch does.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from mlaot.errors import MlaotError
from mlaot.ir import Dim, Node, Type
from mlaot.ir.types import u32
from mlaot.ops.base import Array, Op, no_gradient

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
SITES = 1 << 16


def threefry(key: Sequence[int] | Array, first: Array, second: Array) -> tuple[Array, Array]:
    """The two output words for arrays of counter words (uint32)."""
    k0, k1 = (np.uint32(k) for k in key)
    schedule = np.array([k0, k1, k0 ^ k1 ^ np.uint32(PARITY)])
    x, y = first + schedule[0:1], second + schedule[1:2]
    for group in range(5):
        for bits in ROTATIONS[group % 2]:
            x = x + y
            y = (y << np.uint32(bits) | y >> np.uint32(32 - bits)) ^ x
        i, j = (group + 1) % 3, (group + 2) % 3
        x = x + schedule[i : i + 1]
        y = y + schedule[j : j + 1] + np.uint32(group + 1)
    return x, y


def _random_bits_type(key: Type, shape: tuple[Dim, ...], site: int) -> Type:
    if key != u32[2]:
        raise MlaotError(f"a random key must be {u32[2]}, got {key}")
    if not 0 <= site < SITES:
        raise MlaotError(f"an entry draws at most {SITES} times, got draw number {site}")
    return Type(u32, shape)


def _random_bits_reference(key: Array, shape: tuple[int, ...], site: int) -> Array:
    element = np.arange(prod(shape), dtype=np.uint64)
    high = np.uint64(site) + (element >> np.uint64(32) << np.uint64(16))
    return threefry(key, element.astype(np.uint32), high.astype(np.uint32))[0].reshape(shape)


def _batch_random_bits(node: Node, args: Sequence[Node], batched: Sequence[bool], dim: Dim) -> Node:
    if batched[0]:
        raise MlaotError("the examples of a batch draw from one key, got a key for each example")
    return random_bits(args[0], shape=(dim, *node.attrs["shape"]), site=node.attrs["site"])


random_bits: Op = Op(
    "random_bits",
    _random_bits_type,
    _random_bits_reference,
    no_gradient,
    _batch_random_bits,
    draws=True,
    doc="32 random bits an element, by Threefry-2x32 from a key and a counter",
)
