"""The instruction sets that one module ships: width and number of vector registers, compiler flags of their file."""

from __future__ import annotations

from dataclasses import dataclass

WIDEST = 64  # bytes of a vector


@dataclass(frozen=True)
class Isa:
    """``bytes`` of a vector register, how many ``registers`` there are, and the compiler ``flags`` that allow them.

    ``deterministic``: results must not depend on which instruction set it is. ``tuned``: schedules that were measured
    to be the fastest, by the contraction they are of, both as ``schedule.py`` writes them.
    """

    name: str
    bytes: int
    registers: int
    flags: tuple[str, ...] = ()
    deterministic: bool = False
    tuned: tuple[tuple[str, str], ...] = ()

    @property
    def parts(self) -> int:
        """Vectors of partial sums that stand for one of the widest, so that all instruction sets add in one order."""
        return WIDEST // self.bytes if self.deterministic else 1


BASE = Isa("base", 16, 16)
V3 = Isa("v3", 32, 16, ("-mavx2", "-mfma"))
V4 = Isa(
    "v4",
    64,
    32,
    (
        *("-mavx2", "-mfma", "-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl"),
        "-mprefer-vector-width=512",
    ),
)
ISAS = {isa.name: isa for isa in (BASE, V3, V4)}
