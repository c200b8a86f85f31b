"""Inputs and outputs of a module's functions, and the numbers that golden vectors give to inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.ir.dims import parse, substitute
from mlaot.ir.indices import IndexRange
from mlaot.ir.types import DTYPES

if TYPE_CHECKING:
    from mlaot.tokenizers.text_steps import TextStep
    from mlaot.tokenizers.vectorizer import Vectorizer

Shape = tuple[int | str, ...]
LARGEST = 1 << 24  # elements of inputs and outputs; NumPy would take too long for more
BITS = {"f64": 24, "f32": 24, "f16": 11, "bf16": 8}  # of numbers in -1..1 that the dtype holds exactly


@dataclass(frozen=True)
class Port:
    """An input or output of an entry; an extent is an int, or the text of an expression in dims such as ``2 * n + 1``.

    ``default``: the value of a keyword scalar. ``converts``: arrays of other dtypes are accepted, too. ``ranges``:
    bounds of elements that are indices. ``strings``: callers see these in the place of their places, which the numbers
    are; what is none of them has the place behind the last. ``further``: such strings have places of their own from
    there on, equal ones the same in a call, and outputs give them back. ``vectorizers``: callers see texts in the place
    of rows of their terms. ``made``: what makes an input, which callers do not pass, of those that they do. ``then``:
    what makes an output's strings of its numbers; if it takes several columns, these lie along a last axis. ``map``:
    callers pass a dict, of which an input has the keys; the dtype of the values, which another input has.
    """

    name: str
    dtype: str
    shape: Shape
    default: float | None = None
    converts: bool = False
    ranges: tuple[IndexRange, ...] = ()
    strings: tuple[str, ...] = ()
    further: bool = False
    vectorizers: tuple[Vectorizer, ...] = ()
    made: TextStep | None = None
    then: TextStep | None = None
    map: str = ""

    @property
    def is_text(self) -> bool:
        """Whether callers see strings."""
        return bool(self.strings or self.vectorizers or self.then)

    @property
    def seen(self) -> Shape:
        """The shape that callers see."""
        return self.shape[:-1] if self.vectorizers or (self.then is not None and self.then.columns > 1) else self.shape


def port_of(name: str, dtype: str, shape: list[int | str], default: float | None, ranges: list[Any]) -> Port:
    """Make a port from its entry in ``model.json``."""
    index_ranges = tuple(
        IndexRange(parse(size), wraps, ignored, tuple(s and (parse(s[0]), parse(s[1]), s[2]) for s in box))
        for size, wraps, ignored, box in ranges
    )
    return Port(name, dtype, tuple(shape), default, ranges=index_ranges)


def numbers(port: Port, number: int, dims: Mapping[str, int]) -> Any:
    """Draw the elements of input ``number``: SplitMix64 (Steele, Lea and Flood, 2014), scaled to its dtype."""
    if port.default is not None:
        return port.default
    dtype, shape = DTYPES[port.dtype], tuple(substitute(parse(extent), dims) for extent in port.shape)
    if prod(shape) > LARGEST:
        raise MlaotError(f"{port.name} has {prod(shape)} elements")
    with np.errstate(over="ignore"):
        z = np.arange(1, prod(shape) + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z += np.uint64(number << 32)
        z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    if dtype.kind == "f":
        bits = BITS[port.dtype]
        elements = (z >> np.uint64(64 - bits)).astype(np.float64) / 2 ** (bits - 1) - 1
    else:
        elements = z % np.uint64(2 if dtype.kind == "b" else 8)
    if port.vectorizers:  # terms that are there up to three times
        size = np.uint64(sum(vectorizer.size for vectorizer in port.vectorizers))
        elements = ((z >> np.uint64(32)) % np.uint64(4)) << np.uint64(32) | (z & np.uint64(0xFFFFFFFF)) % size
    elements, z = elements.astype(dtype.numpy).reshape(shape), z.reshape(shape)
    most = 2**8 if dtype.kind == "f" else min(2**31, np.iinfo(dtype.numpy).max + 1) if port.ranges else 0
    for range_ in port.ranges:
        count = min(substitute(range_.size, dims), most)
        range_.part(elements, dims)[...] = range_.part(z, dims) % np.uint64(count) if count > 0 else -1
    if any(range_.outside(elements, dims).any() for range_ in port.ranges):
        raise MlaotError(f"{port.name} takes no indices of these sizes")
    return elements
