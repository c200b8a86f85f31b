"""Inputs and outputs of a module's functions, and how golden vectors draw inputs and sum outputs."""

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
    from mlaot.tokenizers.rows import Rows
    from mlaot.tokenizers.text_steps import TextStep
    from mlaot.tokenizers.vectorizer import Vectorizer

Shape = tuple[int | str, ...]
LARGEST = 1 << 24  # elements of inputs and outputs; NumPy would take too long for more
NANOSECONDS = {  # of units of dates; others are longer or shorter from date to date, or fractions of one
    **{"W": 604800 * 10**9, "D": 86400 * 10**9, "h": 3600 * 10**9, "m": 60 * 10**9, "s": 10**9, "ms": 10**6},
    **{"us": 1000, "ns": 1},
}
BITS = {"f64": 24, "f32": 24, "f16": 11, "bf16": 8}  # of numbers that the dtype holds exactly
MANY = 64  # integers in a range of more are drawn as in pictures: three quarters are the first
SUMS = 64  # signed sums that are kept of an output; of one with fewer elements these themselves


@dataclass(frozen=True)
class Port:
    """An input or output of an entry. An extent is an int, or the text of an expression in dims such as ``2 * n + 1``.

    ``default`` is the value of a keyword scalar. With ``converts``, arrays of other dtypes are accepted too. ``ranges``
    are the bounds of elements that are indices. With ``dates`` callers may pass dates for the numbers, which count
    units since 1970 as the NumPy dtype of this name does. ``room`` is the largest number of elements of an output whose
    shape a call counts, as the text of an expression, or else empty.

    With ``strings`` callers see these strings, and the numbers are their indices. Any other string has the index after
    the last one. With ``further``, other strings have indices of their own from there on, equal strings the same index
    within a call, and outputs return them. With ``vectorizers`` callers see texts, and the numbers are rows of their
    terms; with ``rows`` they are rows of their tokens. ``made`` is the step that makes an input that callers do not
    pass from those that they pass. ``then`` is the step that makes the strings of an output from its numbers; if it
    takes several columns, these lie along a last axis. With ``map`` callers pass a dict. This input has its keys,
    another input has its values, and ``map`` is the dtype of the values.
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
    rows: Rows | None = None
    made: TextStep | None = None
    then: TextStep | None = None
    map: str = ""
    dates: str = ""
    room: str = ""

    @property
    def tick(self) -> int:
        """The number of nanoseconds that one unit of the dates is, or 0 if that is not a whole number."""
        unit, count = np.datetime_data(np.dtype(self.dates))
        return NANOSECONDS.get(unit, 0) * count

    @property
    def takes_texts(self) -> bool:
        """Whether callers see texts, and the numbers are rows of their terms or tokens."""
        return bool(self.vectorizers) or self.rows is not None

    @property
    def is_text(self) -> bool:
        """Whether callers see strings."""
        return bool(self.strings or self.then or self.takes_texts)

    @property
    def seen(self) -> Shape:
        """The shape that callers see."""
        is_along_last = self.takes_texts or (self.then is not None and self.then.columns > 1)
        return self.shape[:-1] if is_along_last else self.shape


@dataclass(frozen=True)
class Draw:
    """The input of a golden vector: numbers drawn with a seed from ``low`` on, ``width`` wide, or these bytes."""

    low: float
    width: float
    seed: int = 0
    content: bytes = b""


def draw_of(dtype: str) -> Draw:
    """Return the default draw of numbers of a dtype."""
    kind = DTYPES[dtype].kind
    return Draw(-1, 2) if kind == "f" else Draw(0, 2 if kind == "b" else 8)


def port_of(name: str, dtype: str, shape: list[int | str], default: float | None, ranges: list[Any]) -> Port:
    """Return the port of an entry in ``model.json``."""
    index_ranges = tuple(
        IndexRange(parse(size), wraps, ignored, tuple(s and (parse(s[0]), parse(s[1]), s[2]) for s in box))
        for size, wraps, ignored, box in ranges
    )
    return Port(name, dtype, tuple(shape), default, ranges=index_ranges)


def numbers(port: Port, number: int, dims: Mapping[str, int], draw: Draw | None = None) -> Any:
    """Return the elements of input ``number``, scaled to its dtype.

    SplitMix64 (Steele, Lea and Flood, 2014) draws them.
    """
    if port.default is not None:
        return port.default
    draw = draw or draw_of(port.dtype)
    dtype, shape = DTYPES[port.dtype], tuple(substitute(parse(extent), dims) for extent in port.shape)
    if prod(shape) > LARGEST:
        raise MlaotError(f"{port.name} has {prod(shape)} elements")
    elements = np.frombuffer(draw.content, dtype.numpy) if draw.content else _drawn(port, number, shape, dims, draw)
    elements = elements.reshape(shape)
    if any(range_.outside(elements, dims).any() for range_ in port.ranges):
        raise MlaotError(f"{port.name} takes no indices of these sizes")
    return elements


def _drawn(port: Port, number: int, shape: tuple[int, ...], dims: Mapping[str, int], draw: Draw) -> Any:
    dtype, z = DTYPES[port.dtype], random_bits(number, prod(shape), draw.seed)
    if dtype.kind == "f":
        bits = BITS[port.dtype]
        elements = draw.low + draw.width * ((z >> np.uint64(64 - bits)).astype(np.float64) / 2**bits)
    else:
        drawn = z % np.uint64(int(draw.width))
        drawn[(z >> np.uint64(62) != 0) & (draw.width > MANY)] = 0
        elements = int(draw.low) + drawn.astype(np.int64)
    if port.vectorizers:  # terms that are there up to three times
        size = np.uint64(sum(vectorizer.size for vectorizer in port.vectorizers))
        elements = ((z >> np.uint64(32)) % np.uint64(4)) << np.uint64(32) | (z & np.uint64(0xFFFFFFFF)) % size
    if port.rows:  # tokens, and ends of rows between them
        tokens = z % np.uint64(len(port.rows.tokenizer.tokens))
        elements = np.where(z >> np.uint64(61) == 0, -1, tokens.astype(np.int64))
        elements[:: shape[-1] or 1] = tokens[:: shape[-1] or 1]
    elements, z = elements.astype(dtype.numpy).reshape(shape), z.reshape(shape)
    most = 2**8 if dtype.kind == "f" else min(2**31, np.iinfo(dtype.numpy).max + 1) if port.ranges else 0
    for range_ in port.ranges:
        count = min(substitute(range_.size, dims), most)
        range_.part(elements, dims)[...] = range_.part(z, dims) % np.uint64(count) if count > 0 else -1
    return elements


def random_bits(number: int, count: int, seed: int = 0) -> Any:
    """Return 64 bits for each of ``count`` elements of input ``number``."""
    with np.errstate(over="ignore"):
        z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z += np.uint64(number << 32 | seed << 48)
        z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return z ^ z >> np.uint64(31)


def signed_sums(values: Any) -> Any:
    """Return ``SUMS`` sums of an output, each over every ``SUMS``-th element; later addends have random signs.

    So all elements count, and rounding errors hardly accumulate. Integers wrap.
    """
    flat = np.asarray(values).ravel()
    flat = flat.astype(np.float64) if flat.dtype.kind == "f" else flat.astype(np.int64)
    count = min(SUMS, flat.size)
    if not count:
        return np.zeros(0)
    signs = 1 - 2 * (random_bits(0, flat.size) & np.uint64(1)).astype(np.int64)
    signs[:count] = 1
    rows = np.zeros(-(-flat.size // count) * count, flat.dtype)
    rows[: flat.size] = flat * signs
    return rows.reshape(-1, count).sum(axis=0).astype(np.float64)
