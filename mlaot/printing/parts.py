"""A long file of kernels in parts: one object each, made side by side and kept for as long as its kernels stay.

The macro ``MLAOT_PARTS`` is a set of bits that says what a compiler sees of the file: bit 0 the entries and their
tasks, each other bit some of the kernels with the helpers that these call. Without it a compiler sees all, so that any
build tool can compile the file as one. Neither which part a kernel is in nor what it is called depends on the others.
"""

from __future__ import annotations

from hashlib import blake2b

from mlaot.schedule.tuning import PART_SECONDS, WHOLE_SECONDS

ENTRIES = 1  # the bit of the part that calls kernels
MOST = 32  # parts with kernels; the preprocessor counts with 64 bits


def count_of(seconds: float) -> int:
    """How many parts the kernels are divided over that take a compiler ``seconds``; it seldom changes: a power of 2."""
    count = 1
    while count < MOST and seconds > WHOLE_SECONDS and PART_SECONDS * count < seconds:
        count *= 2
    return count


def digest(content: object) -> bytes:
    """What stands for the content of a kernel."""
    return blake2b(repr(content).encode(), digest_size=6).digest()


def symbol(prefix: str, digest: bytes, isa: str) -> str:
    """A name that kernels of equal content have in all modules of one prefix, and no other kernel has."""
    return f"{prefix}_{digest.hex()}_{isa}"


def bit_of(digest: bytes, count: int) -> int:
    """The part of a kernel, one of ``count``, as a bit."""
    return ENTRIES << 1 + int.from_bytes(digest, "little") % count
