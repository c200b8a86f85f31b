"""A long file of kernels in parts: one object each, made side by side and kept for as long as its kernels stay.

The macro ``MLAOT_PARTS`` is a set of bits that says what a compiler sees of the file: bit 0 the entries and their
tasks, each other bit some of the kernels with the helpers that these call. Without it a compiler sees all, so that any
build tool can compile the file as one. Neither which part a kernel is in nor what it is called depends on the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b

from mlaot.schedule.tuning import PART_SECONDS, WHOLE_SECONDS

ENTRIES = 1  # the bit of the part that calls kernels
MOST = 32  # parts with kernels; the preprocessor counts with 64 bits
DEFINITION = "static void NAME("
_WORD = re.compile(r"\b[A-Za-z_]\w*\b")
_CALL = re.compile(r"\b([A-Za-z_]\w*)\s*\(")


@dataclass(frozen=True)
class Piece:
    """Text that the parts in the set of bits ``parts`` have."""

    text: str
    parts: int

    @property
    def mask(self) -> str:
        return hex(self.parts)


def count_of(seconds: float) -> int:
    """How many parts the kernels are divided over that take a compiler ``seconds``; it seldom changes: a power of 2."""
    count = 1
    while count < MOST and seconds > WHOLE_SECONDS and PART_SECONDS * count < seconds:
        count *= 2
    return count


def kernel_name(prefix: str, template: str, content: object, isa: str) -> str:
    """A name that kernels of equal content have in all modules of one prefix, and no other kernel has."""
    return f"{prefix}_{template}_{_digest(content).hex()}_{isa}"


def bit_of(content: object, count: int) -> int:
    """The part of a kernel, one of ``count``, as a bit."""
    return ENTRIES << 1 + int.from_bytes(_digest(content), "little") % count


def _digest(content: object) -> bytes:
    return blake2b(repr(content).encode(), digest_size=6).digest()


def renamed(text: str, names: Mapping[str, str]) -> str:
    """``text`` with other names for functions."""
    return _WORD.sub(lambda match: names.get(match[0], match[0]), text)


def prototype(text: str) -> str:
    """The parameters of a function, in parentheses, as its definition has them."""
    return "(" + text.split(DEFINITION, 1)[1].split("\n{\n", 1)[0]


def helper_pieces(helpers: Mapping[str, str], kernels: Iterable[Piece]) -> list[Piece]:
    """Helpers, which are given by name in order of dependency, each for the parts whose text calls it."""
    parts = dict.fromkeys(helpers, 0)
    for kernel in kernels:
        for name in _called(kernel.text, helpers):
            parts[name] |= kernel.parts
    return [Piece(text, parts[name]) for name, text in helpers.items() if parts[name]]


def _called(text: str, helpers: Mapping[str, str]) -> set[str]:
    """The helpers that ``text`` calls, and those that they call in turn."""
    found: set[str] = set()
    stack = [text]
    while stack:
        new = helpers.keys() & set(_CALL.findall(stack.pop())) - found
        found |= new
        stack += [helpers[name] for name in new]
    return found
