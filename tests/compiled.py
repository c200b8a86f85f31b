"""Programs as machine code: many of them in one shared library, called by the convention of the generated entries.

Every array lies at the end of a page that is followed by one without access, so a kernel that reads or writes past the
end of a buffer dies. The workspace starts full of nan, so one that reads what it did not write gives nan.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from mlaot.interpret import CALLER_DTYPES, Instance, output_shapes, settle
from mlaot.ir.dims import parse, substitute
from mlaot.lower.program import Entry, Program, Slot
from mlaot.printing.file import kernels_file
from mlaot.schedule.machine import MACHINES

Array = np.ndarray[Any, Any]

CC = os.environ.get("CC", "cc")
FLAGS = (
    *("-std=gnu11", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fPIC"),
    *("-fno-delete-null-pointer-checks", "-Wall", "-Wextra", "-Werror"),
)
OPTIMIZED = 4  # files of a fuzzer of which one is compiled as wheels are


def effort(number: int) -> str:
    """How a fuzzer's file of this number is compiled: most in a third of the time, without optimizing."""
    return "-O2" if number % OPTIMIZED == OPTIMIZED - 1 else "-O0"


NEEDED = {
    "base": set(),
    "v3": {"avx2", "fma"},
    "v4": {"avx2", "fma", "avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512_vnni"},
}

# In place of the module's header: ranges in the smallest parts there may be, the last one first.
HEADER = """
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
typedef void Task(char *const *p, const ptrdiff_t *dim, ptrdiff_t begin, ptrdiff_t end);
__attribute__((unused)) static void graphs_share(void *threads, Task *task, char *const *p, const ptrdiff_t *dim,
                                                 ptrdiff_t extent, ptrdiff_t step, ptrdiff_t work)
{
    (void)threads, (void)work;
    for (ptrdiff_t begin = (extent - 1) / step * step; begin >= 0 && extent > 0; begin -= step) {
        task(p, dim, begin, begin + step < extent ? begin + step : extent);
    }
}

__attribute__((unused)) static void graphs_share_apart(void *threads, Task *task, char *const *p, const ptrdiff_t *dim,
                                                       ptrdiff_t extent, ptrdiff_t work, int own, ptrdiff_t at,
                                                       ptrdiff_t bytes)
{
    char **mine = malloc(((size_t)own + 1) * sizeof *mine);
    memcpy(mine, p, (size_t)own * sizeof *mine);
    mine[own] = p[own - 2] + at;
    if (threads == NULL) {
        task(mine, dim, 0, extent);
    } else {  // each part in memory of its own, full of nan
        (void)work;
        for (ptrdiff_t begin = extent - 1; begin >= 0; begin--) {
            void *memory = aligned_alloc(64, ((size_t)bytes + 63) & ~(size_t)63);
            mine[own] = memset(memory, -1, (size_t)bytes);
            task(mine, dim, begin, begin + 1);
            free(memory);
        }
    }
    free(mine);
}
"""

PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def available_isas() -> tuple[str, ...]:
    """The instruction sets of this machine, by mlaot's names."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return ("neon",) if platform.machine() in ("aarch64", "arm64") else ("base",)
    try:
        found = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    flags = set(found[1].split()) if found else set()
    return tuple(name for name, needed in NEEDED.items() if needed <= flags)


AVAILABLE = available_isas()


def guarded(size: int) -> Array:
    """``size`` bytes of 0xff, the last of them in front of a page that cannot be touched."""
    pages = -(-max(size, 1) // PAGE)
    memory = mmap.mmap(-1, (pages + 1) * PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    result: Array = np.frombuffer(memory, np.uint8, size, pages * PAGE - size) if size else np.empty(0, np.uint8)
    result[...] = 0xFF
    assert _libc.mprotect(start + pages * PAGE, PAGE, 0) == 0, os.strerror(ctypes.get_errno())
    return result


def guarded_array(value: Any, dtype: str) -> Array:
    """A copy of an array in guarded memory."""
    source = np.asarray(value, dtype)
    result = guarded(source.nbytes).view(dtype).reshape(source.shape)
    result[...] = source
    return result


@dataclass
class State:
    """One instance of a module: its state block and constants."""

    program: Program
    state: Array = field(init=False)
    constants: Array = field(init=False)

    def __post_init__(self) -> None:
        module = self.program.module
        self.state = guarded(module.memory_bytes)
        self.state[:] = 0
        self.state[: len(module.initial)] = np.frombuffer(module.initial, np.uint8)
        self.constants = guarded_array(np.frombuffer(module.constants, np.uint8), "uint8")

    def slot(self, name: str) -> Array:
        """A parameter, a buffer or something of the optimizer's, in place."""
        return Instance(self.state, self.constants).slot(self._slot(name))

    def gradient(self, name: str) -> Array:
        """The gradient of a parameter, in place."""
        return Instance(self.state, self.constants).slot(self._slot(name), gradient=True)

    def _slot(self, name: str) -> Slot:
        return next(s for s in self.program.module.slots if s.name == name)


class Runs(Protocol):
    """What runs entries of programs for an instruction set."""

    isa: str
    programs: dict[str, Program]

    def call(
        self,
        stem: str,
        entry: str,
        inputs: Mapping[str, Any],
        dims: Mapping[str, int] | None = None,
        state: State | None = None,
    ) -> dict[str, Array]: ...


class Library:
    """Programs by stem, compiled for one instruction set, by the compiler ``cc``, whose libraries have a ``label``."""

    def __init__(
        self,
        programs: Mapping[str, Program],
        isa: str,
        folder: Path,
        flags: Sequence[str] = (),
        cc: str = CC,
        label: str = "",
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.isa = isa
        self.programs = dict(programs)
        self.dims = sorted({d for p in programs.values() for d in p.module.dims})
        self.source = folder / f"graphs_{isa}.c"
        library = folder / f"graphs_{isa}{label}.so"
        with open(folder / "lock", "w") as lock:  # several test processes may share the folder: the first one compiles
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not library.exists():
                # The best set with most of the warnings that optimizing finds; others in half of the time.
                level = "-Og" if isa == AVAILABLE[-1] else "-O0"
                self._compile(library, [*cc.split(), level, *FLAGS, *flags])
        self.library = ctypes.CDLL(str(library))

    def _compile(self, library: Path, compiler: Sequence[str]) -> None:
        if not self.source.exists():  # by another compiler
            self.source.write_text(kernels_file(joined(self.programs, self.dims), "graphs", MACHINES[self.isa]))
        self.source.with_name("graphs.h").write_text(HEADER)
        made = library.with_suffix(".o")
        # zig would make a C library of its own for each instruction set to link with.
        for command in (
            [*compiler, *MACHINES[self.isa].flags, "-c", str(self.source), "-o", str(made)],
            [*CC.split(), "-shared", str(made), "-o", str(library)],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr[:4000]}"

    def call(
        self,
        stem: str,
        entry: str,
        inputs: Mapping[str, Any],
        dims: Mapping[str, int] | None = None,
        state: State | None = None,
        parts: bool = True,
    ) -> dict[str, Array]:
        """The outputs of an entry by name; ``inputs`` by name, ``dims`` where they are needed.

        ``parts``: loops that threads may share run in parts.
        """
        program = self.programs[stem]
        found = next(p.entry for p in program.procedures if p.entry.name == entry)
        known = dict(dims or {})
        state = state or State(program)
        arrays = [guarded_array(inputs[port.name], CALLER_DTYPES[port.dtype]) for port in found.inputs]
        outputs = []
        for port, shape in output_shapes(found, known):
            dtype = CALLER_DTYPES[port.dtype]
            outputs.append(guarded(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize).view(dtype).reshape(shape))
        before = [a.tobytes() for a in arrays], state.constants.tobytes()
        workspace = guarded(evaluate_dim(found.workspace, known))
        pointers = [a.ctypes.data for a in (*arrays, *outputs, state.state, state.constants, workspace)]
        p = (ctypes.c_void_p * (len(pointers) + 1))(*pointers, int(parts))
        dim = (ctypes.c_ssize_t * max(len(self.dims), 1))(*[known.get(d, 0) for d in self.dims])
        for suffix in ("_forward", "_backward") if found.split else ("",):
            getattr(self.library, f"graphs_{stem}_{entry}{suffix}_{self.isa}")(p, dim)
        assert before == ([a.tobytes() for a in arrays], state.constants.tobytes()), f"{stem}.{entry} wrote to an input"
        return {name: np.array(a) for name, a in settle(found, outputs, known).items()}


def joined(programs: Mapping[str, Program], dims: Sequence[str]) -> Program:
    """One program with the entries of all, for one C file; each keeps its own state and constants."""
    first = next(iter(programs.values()))
    procedures = [
        replace(procedure, entry=replace(procedure.entry, name=f"{stem}_{procedure.entry.name}"))
        for stem, program in programs.items()
        for procedure in program.procedures
    ]
    return Program(replace(first.module, name="graphs", dims=tuple(dims)), tuple(procedures))


def evaluate_dim(text: str | int, known: Mapping[str, int]) -> int:
    """The value of an extent's text in the dims."""
    return substitute(parse(text), known)


def entry_of(program: Program, name: str) -> Entry:
    """An entry of a program by name."""
    return next(p.entry for p in program.procedures if p.entry.name == name)


def bits(values: Iterable[Array]) -> list[bytes]:
    """What tells arrays apart to the last bit."""
    return [np.ascontiguousarray(v).tobytes() for v in values]
