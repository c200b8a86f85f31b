"""The instruction sets that one module ships: width and number of vector registers, compiler flags of their file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

WIDEST = 64  # bytes of a vector


@dataclass(frozen=True)
class Isa:
    """``bytes`` of a vector register, how many ``registers`` there are, and the compiler ``flags`` that allow them.

    ``machine``: the only kind of CPU that has it, as compilers call it; none for what every CPU has. ``level``: what
    the compiled module finds on a CPU that has it. ``fused``: a product and a sum are one instruction. ``ahead``:
    compilers load all that a step of a sum reads before they compute, as small cores need it, so that each load takes a
    register. ``dot4``: four products of bytes and their sum are one instruction. ``deterministic``: results must not
    depend on which instruction set it is. ``tuned``: schedules that were measured to be the fastest, by the contraction
    they are of, both as ``schedule.py`` writes them.
    """

    name: str
    bytes: int
    registers: int
    flags: tuple[str, ...] = ()
    machine: str = ""
    level: int = 1
    fused: bool = True
    ahead: bool = False
    dot4: bool = False
    deterministic: bool = False
    tuned: tuple[tuple[str, str], ...] = ()

    @property
    def parts(self) -> int:
        """Vectors of partial sums that stand for one of the widest, so that all instruction sets add in one order."""
        return WIDEST // self.bytes if self.deterministic else 1


BASE = Isa("base", 16, 16, fused=False)
NEON = Isa("neon", 16, 32, machine="aarch64", ahead=True)
V3 = Isa("v3", 32, 16, ("-mavx2", "-mfma", "-mf16c"), "x86_64", 3)
V4 = Isa(
    "v4",
    64,
    32,
    (
        *("-mavx2", "-mfma", "-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl"),
        "-mprefer-vector-width=512",
        "-mtune=cascadelake",  # untuned, gcc takes memory for as near as a register and loads a column for each row
    ),
    "x86_64",
    4,
    dot4=True,
)
ISAS = {isa.name: isa for isa in (BASE, NEON, V3, V4)}


def isas_for(machine: str, isas: Iterable[str]) -> list[str]:
    """Those of ``isas`` that a module for one kind of CPU holds: where all have NEON, nothing needs ``base``."""
    own = sorted((ISAS[name] for name in isas), key=lambda isa: (isa.level, isa.machine))
    return list({isa.level: isa.name for isa in own if isa.machine in ("", machine)}.values())


def condition(name: str, isas: Iterable[str]) -> str:
    """The same for one of ``isas``, asked of the compiler; empty where it is always so."""
    machine = ISAS[name].machine
    if name == "base" and "neon" in isas:
        return "!defined(__aarch64__)"
    return f"defined(__{machine}__)" if machine else ""
