"""A long file of kernels in parts.

Each is an object, compiled in parallel, and cached as long as its kernels are the same.

The bits of the macro ``MLAOT_PARTS`` select what a compiler sees of the file. Bit 0 selects the entries and their
tasks, and each other bit some of the kernels with the helpers that these call. Without the macro a compiler sees
everything, so that any build tool can compile the file as a whole. The part and the name of a kernel depend only on its
content.
"""

from __future__ import annotations

from hashlib import blake2b

from mlaot.schedule.tuning import PART_SECONDS, WHOLE_SECONDS

ENTRIES = 1  # the bit of the part that calls kernels
MAX_PARTS = 32  # parts with kernels; the preprocessor counts with 64 bits


def count_of(seconds: float) -> int:
    """Return the number of parts for kernels that compile in ``seconds``: a power of 2, so that it seldom changes."""
    count = 1
    while count < MAX_PARTS and seconds > WHOLE_SECONDS and PART_SECONDS * count < seconds:
        count *= 2
    return count


def digest(content: object) -> bytes:
    """Return the digest of a kernel's content."""
    return blake2b(repr(content).encode(), digest_size=6).digest()


def symbol(prefix: str, digest: bytes, isa: str) -> str:
    """Return the name that kernels of equal content have in all modules of one prefix."""
    return f"{prefix}_{digest.hex()}_{isa}"


def bit_of(digest: bytes, count: int) -> int:
    """Return the part of a kernel, one of ``count``, as a bit."""
    return ENTRIES << 1 + int.from_bytes(digest, "little") % count
