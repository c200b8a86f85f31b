"""The contents of a GGUF file: entries by name, and tensors of numbers in blocks (``blocks.py``).

The layout is little-endian. It begins with the magic, the version, and the numbers of tensors and entries. Then come
the name, type and value of each entry, the name, shape, type and place of each tensor, and the aligned blocks. The file
is mapped into memory.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from mlaot.errors import MlaotError
from mlaot.llm import blocks
from mlaot.llm.facts import looks, named

Array = np.ndarray[Any, Any]
T = TypeVar("T")
MAGIC, VERSIONS = b"GGUF", (2, 3)
NUMBERS = dict(enumerate("BbHhIif?")) | dict(enumerate("Qqd", 10))  # types of entries, as struct and NumPy call them
TRUTH, TEXT, LIST = 7, 8, 9
MOST = 2**22  # tensors, entries, and texts or lists in a list; many numbers are one array
MOST_AXES = MOST_NESTED = 4


@dataclass(frozen=True)
class Tensor:
    """A tensor whose ``blocks`` are [rows, blocks of a row].

    If each number of a vector is a block, each is also a row.
    """

    kind: blocks.Type
    shape: tuple[int, ...]
    blocks: Array

    def numbers(self, rows: slice) -> Array:
        """Return some rows in float32."""
        found = blocks.decode(self.blocks[rows], self.kind)
        return found.reshape(-1) if len(self.shape) == 1 else found


@dataclass(frozen=True)
class File:
    """The contents of a file. Lists of numbers among the entries are NumPy arrays."""

    entries: dict[str, Any]
    tensors: dict[str, Tensor]


def is_gguf(path: Path) -> bool:
    """Tell whether a file begins with the magic of GGUF."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def read_file(path: Path) -> File:
    """Return the contents of a file."""
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # an empty file cannot be mapped
        raise MlaotError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    reader = _Reader(path, data)
    if (magic := reader.take(4, "the magic")) != MAGIC:
        raise reader.error("the magic", f"{MAGIC!r}", repr(magic))
    version = reader.number("I", "the version")
    if version not in VERSIONS:
        other = int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS
        raise reader.error("the version", "2 or 3, little-endian", "a big-endian file" if other else version)
    tensors, entries = (reader.count("Q", what) for what in ("the count of tensors", "the count of entries"))
    found = reader.named(entries, lambda name: reader.value(reader.number("I", name), name))
    return File(found, _tensors(reader, reader.named(tensors, reader.place_of), found.get("general.alignment", 32)))


class _Reader:
    """A reader of consecutive values from a file. ``what`` names the value in errors."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path, self.data, self.place = path, data, 0

    def error(self, what: str, expected: str, got: object) -> MlaotError:
        return MlaotError(f"{self.path}: {named(what)}: expected {expected}, got {got}")

    def passed(self, size: int, what: str) -> int:
        """Return the place of the next bytes, and skip them."""
        if size > (left := len(self.data) - self.place):
            raise self.error(what, f"{size:,} bytes at {self.place:,}", f"{left:,}; the file is cut off, or damaged")
        self.place += size
        return self.place - size

    def take(self, size: int, what: str) -> bytes:
        place = self.passed(size, what)
        return self.data[place : place + size]

    def number(self, kind: str, what: str) -> Any:
        return struct.unpack_from(f"<{kind}", self.data, self.passed(struct.calcsize(f"<{kind}"), what))[0]

    def count(self, kind: str, what: str, most: int = MOST) -> int:
        """Return the count of items that follow, which must fit the rest of the file."""
        found: int = self.number(kind, what)
        if found > most:
            raise self.error(what, f"at most {most:,}", f"{found:,}")
        return found

    def text(self, what: str) -> str:
        try:
            return self.take(self.number("Q", what), what).decode()
        except UnicodeDecodeError as error:
            raise self.error(what, "a text in UTF-8", error) from None

    def value(self, kind: int, what: str, depth: int = 0) -> Any:
        """Return the value of an entry, or of an item in one."""
        if kind == TEXT:
            return self.text(what)
        if kind in NUMBERS:
            return self.number(NUMBERS[kind], what)
        if kind != LIST or depth == MOST_NESTED:
            raise self.error(what, f"a type of entries from 0 to 12, lists in {MOST_NESTED} at most", kind)
        inner = self.number("I", what)
        if inner not in NUMBERS:
            return [self.value(inner, what, depth + 1) for _ in range(self.count("Q", what))]
        count, dtype = self.number("Q", what), np.dtype(f"<{NUMBERS[inner]}")
        found: Array = np.frombuffer(self.data, dtype, count, self.passed(count * dtype.itemsize, what))
        return found.view(np.uint8) != 0 if inner == TRUTH else found

    def named(self, count: int, read: Callable[[str], T]) -> dict[str, T]:
        """Return ``count`` items by the names that precede them."""
        found: dict[str, T] = {}
        for i in range(count):
            name = self.text(f"name {i + 1} of {count}")
            if name in found:
                raise self.error(name, "a name of its own", "it twice")
            found[name] = read(name)
        return found

    def place_of(self, name: str) -> tuple[tuple[int, ...], int, int]:
        """Return the shape of a tensor, the number of its type, and its offset from the first tensor."""
        shape = [self.number("Q", name) for _ in range(self.count("I", f"{name}: the count of axes", MOST_AXES))]
        return tuple(reversed(shape)), self.number("I", name), self.number("Q", name)


def _tensors(reader: _Reader, places: dict[str, tuple[tuple[int, ...], int, int]], alignment: Any) -> dict[str, Tensor]:
    """Return the tensors, which must be inside of the file and not overlap."""
    if type(alignment) is not int or alignment < 1 or alignment & alignment - 1:
        raise reader.error("general.alignment", "a power of two", looks(alignment))
    start = -(-reader.place // alignment) * alignment
    found, ends = dict[str, Tensor](), [(0, "")]
    for name, (shape, number, place) in sorted(places.items(), key=lambda item: item[1][2]):
        kind = blocks.TYPES.get(number)
        if kind is None:
            names = ", ".join(kind.name for kind in blocks.TYPES.values())
            raise reader.error(name, f"a type of tensors that is read here, {names}", f"number {number}")
        if not shape or 0 in shape or shape[-1] % kind.numbers:
            raise reader.error(name, f"rows of whole blocks of {kind.numbers} numbers", [*shape])
        count, (end, last) = prod(shape) // kind.numbers, ends[-1]
        if place % alignment or place < end:
            where = f"a place that is a multiple of {alignment}" + (
                f" behind {named(last)}, from {end:,} on" if last else ""
            )
            raise reader.error(name, where, f"{place:,}")
        ends.append((place + count * kind.block.itemsize, name))
        if start + ends[-1][0] > len(reader.data):
            size = f"a file of at least {start + ends[-1][0]:,} bytes"
            raise reader.error(name, size, f"{len(reader.data):,}; the file is cut off, or damaged")
        rows = prod(shape[:-1]) if len(shape) > 1 or kind.numbers > 1 else count
        array: Array = np.frombuffer(reader.data, kind.block, count, start + place)
        found[name] = Tensor(kind, shape, array.reshape(rows, -1))
    return found
