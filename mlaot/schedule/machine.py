"""The machines that kernels are compiled for. Every instruction set is declared here, once.

All other code uses these declarations. Templates and schedules ask for a capability, as in ``"vnni" in machine``, and
never for a name. The build uses the compiler flags, the generated module the bits of CPUID, and the settings the names
that projects may choose. To add an instruction set, add a ``Machine`` to ``MACHINES`` and its features to ``CPUID``.
Anything that only this set can do is a capability, with a branch of the helper template that asks for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

LINE = 64  # bytes of a cache line and of the widest vector: rows of values in memory are a multiple of it
PAGE = 4096  # bytes of a page of memory: addresses a multiple of it apart share a set of the first-level cache


@dataclass(frozen=True)
class Cpuid:
    """The place of a CPU feature: a ``bit`` of a ``register`` (0 to 3: eax to edx) of a leaf of CPUID.

    ``saved`` has the bits of XCR0 by which the operating system reports that it saves the feature's registers.
    """

    leaf: int
    subleaf: int
    register: int
    bit: int
    saved: int


YMM, ZMM = 0x6, 0xE6  # vectors of 32 bytes, and those of 64 with the masks, in XCR0
AVX = 1 << 27 | 1 << 28  # in ecx of leaf 1: the system uses XCR0 at all (OSXSAVE), and AVX
# By the compilers' names, which are flags with -m in front: Intel, Architecture Instruction Set Extensions Programming
# Reference, and volume 2 of the Software Developer's Manual, CPUID.
CPUID = {
    "fma": Cpuid(1, 0, 2, 12, YMM),
    "f16c": Cpuid(1, 0, 2, 29, YMM),
    "avx2": Cpuid(7, 0, 1, 5, YMM),
    "avx512f": Cpuid(7, 0, 1, 16, ZMM),
    "avx512dq": Cpuid(7, 0, 1, 17, ZMM),
    "avx512bw": Cpuid(7, 0, 1, 30, ZMM),
    "avx512vl": Cpuid(7, 0, 1, 31, ZMM),
    "avx512vnni": Cpuid(7, 0, 2, 11, ZMM),
    "avxvnni": Cpuid(7, 1, 0, 4, YMM),
}


@dataclass(frozen=True)
class Condition:
    """What a CPU must report: ``bits`` in registers of CPUID (leaf, subleaf, register), ``saved`` bits in XCR0."""

    bits: tuple[tuple[int, int, int, int], ...] = ()
    saved: int = 0


@dataclass(frozen=True)
class Caches:
    """The sizes of the caches of a machine's CPUs in bytes: those of a core, and a core's share of the third level.

    The defaults are those of cloud servers. ``tuning.py`` has the shares of the caches that loops may fill. Each share
    was chosen for the size of its cache, so neither must be changed without the other.
    """

    first: int = 48 * 1024
    second: int = 1024 * 1024
    third: int = 8 * 1024 * 1024


@dataclass(frozen=True)
class Machine:
    """A kind of CPU as code sees it: vectors of ``bytes``, how many ``registers`` of them, and what it can do.

    ``features`` are the capabilities that templates and schedules ask for (``CAPABILITIES``). ``doc`` is the name for
    people. ``architecture`` is the compilers' name of the only architecture that has it, or empty if every CPU has it.
    ``replaces`` is the machine that is inferior on all CPUs of that architecture, so that this machine is always
    compiled together with it. ``needs`` has the names in ``CPUID`` of features that a CPU must have and the compiler
    may use. ``bytes_need`` has further features for modules that multiply integers, which only inline assembly uses.
    ``options`` are further flags of the compiler.

    The other fields are for the estimates of schedules. ``latency`` is the cycles of a multiply-add. ``arithmetic`` and
    ``loads`` are vector instructions per cycle. ``from_second`` and ``from_third`` are the cycles for a vector from the
    cache of that level. ``memory`` is the time for a byte from memory relative to that from the third level.
    ``loads_first`` is true if compilers load all operands of a step before they compute, as small cores need it, so
    that each load needs a register.

    With ``deterministic`` results must not depend on the machine. ``tuned`` has the schedules that were measured to be
    the fastest, by contraction, both in the text form of ``contraction.py``.
    """

    name: str
    bytes: int
    registers: int
    features: frozenset[str] = frozenset()
    doc: str = ""
    architecture: str = ""
    replaces: str = ""
    needs: tuple[str, ...] = ()
    bytes_need: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    caches: Caches = Caches()
    latency: int = 4
    arithmetic: int = 2
    loads: int = 2
    from_second: int = 2
    from_third: int = 8
    memory: int = 4
    loads_first: bool = False
    deterministic: bool = False
    tuned: tuple[tuple[str, str], ...] = ()

    def __contains__(self, feature: str) -> bool:
        assert feature in CAPABILITIES, f"bug in mlaot: no machine has {feature!r}"
        return feature in self.features

    @property
    def parts(self) -> int:
        """The number of vectors of partial sums that replace one of the widest machine's, for one order of sums."""
        return LINE // self.bytes if self.deterministic else 1

    @property
    def flags(self) -> tuple[str, ...]:
        """The compiler flags that allow the machine's instructions, and no others."""
        return (*(f"-m{name}" for name in self.needs), *self.options)

    def condition(self, *, words: bool) -> Condition:
        """Return the condition on a CPU to run a module.

        ``words`` if the module multiplies integers of 8 or 16 bits.
        """
        features = [CPUID[name] for name in (*self.needs, *(self.bytes_need if words else ()))]
        saved = 0
        registers = {(1, 0, 2): AVX} if any(feature.saved for feature in features) else {}
        for feature in features:
            at = (feature.leaf, feature.subleaf, feature.register)
            registers[at] = registers.get(at, 0) | 1 << feature.bit
            saved |= feature.saved
        return Condition(tuple((*at, bits) for at, bits in registers.items()), saved)


CAPABILITIES = {
    "fma": "a product and a sum are one instruction",
    "three_operands": "x86's instructions name their result apart from what they read (VEX)",
    "blend": "a choice between lanes of any size is one instruction",
    "f16c": "x86's conversions between vectors of float16 and float32",
    "extend": "x86's conversion of a vector of 16-bit numbers to one of 32-bit numbers",
    "mask_vector": "loads and stores of some lanes, chosen by the signs of another vector (AVX)",
    "mask": "loads and stores of some lanes, chosen by a mask register (AVX-512)",
    "narrow": "a conversion of a vector of 32-bit numbers to one of bytes",
    "compress": "the lanes that a mask chooses, moved together",
    "vnni": "four products of bytes, or two of 16-bit numbers, and their sum are one instruction",
    "evex": "instructions may name registers 16 to 31",
}

BASE = Machine("base", 16, 16)
NEON = Machine(
    "neon",
    16,
    32,
    frozenset({"fma"}),
    doc="NEON",
    architecture="aarch64",
    replaces="base",
    loads_first=True,
)
V3 = Machine(
    "v3",
    32,
    16,
    frozenset({"fma", "three_operands", "blend", "f16c", "extend", "mask_vector"}),
    doc="AVX2 and FMA",
    architecture="x86_64",
    needs=("avx2", "fma", "f16c"),
    caches=Caches(32 * 1024, 512 * 1024, 4 * 1024 * 1024),  # of Zen 2 and 3; Intel's have 256 KiB to 2 MiB
)
V4 = Machine(
    "v4",
    64,
    32,
    V3.features - {"mask_vector"} | {"mask", "narrow", "compress", "vnni", "evex"},
    doc="AVX-512",
    architecture="x86_64",
    needs=(*V3.needs, "avx512f", "avx512dq", "avx512bw", "avx512vl"),
    bytes_need=("avx512vnni",),
    options=(
        "-mprefer-vector-width=512",
        "-mtune=cascadelake",  # untuned, gcc takes memory for as near as a register and loads a column for each row
    ),
)
PYTHON = Machine("python", 8, 1, doc="plain Python, one number at a time", deterministic=True)  # no code for a CPU
# A module uses the last one that its CPU has.
MACHINES = {machine.name: machine for machine in (BASE, NEON, V3, V4)}
CHOICES = tuple(name for name, machine in MACHINES.items() if not machine.replaces)  # of a project
# Memory is laid out once for all machines, and loops around several kernels are as well: as this one likes it best.
REFERENCE = V4


def isas_for(architecture: str, isas: Iterable[str]) -> list[str]:
    """Return the ``isas`` of a module for an architecture, the best last, without ``base`` if all CPUs have NEON."""
    chosen = set(isas)
    own = [m for m in MACHINES.values() if m.name in chosen and m.architecture in ("", architecture)]
    replaced = {machine.replaces for machine in own}
    return [machine.name for machine in own if machine.name not in replaced]


def condition(name: str, isas: Iterable[str]) -> str:
    """Return the preprocessor condition under which one of ``isas`` is compiled, or "" for always."""
    others = [MACHINES[isa].architecture for isa in isas if MACHINES[isa].replaces == name]
    own = MACHINES[name].architecture
    return " && ".join([*([f"defined(__{own}__)"] if own else []), *(f"!defined(__{other}__)" for other in others)])


def whole_lines(size: int) -> int:
    """Round a size up to a multiple of ``LINE``."""
    return -(-size // LINE) * LINE
