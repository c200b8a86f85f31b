"""Time each kernel of a program on this machine, where it runs: within calls of the entries, on one thread.

The C of all entries is compiled once more with a ``mark`` after the call of each kernel, which adds the time since the
last mark to that of the kernel. It is also compiled without marks, to time whole calls. Calls have the inputs of the
golden vectors. The time of reading the clock is subtracted.
"""

from __future__ import annotations

import ctypes
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mlaot.build.toolchain import compile_kernels
from mlaot.interpret import aligned, call_arrays, instance, named_values, value_of
from mlaot.lower.program import Golden, Procedure, Program
from mlaot.printing.file import kernels_file
from mlaot.render import render
from mlaot.report.golden import call_inputs
from mlaot.schedule.machine import Machine

SECONDS, RUNS, CALLS = 0.3, 7, 500  # of a measurement, its runs, and the calls of a run at most
CLOCKS = 100_000  # readings that tell what one takes
LIMIT_ROUNDS = 20_000  # of the loop that multiplies as fast as the machine can
NEAR, FAR = 16 * 1024, 64 * 1024 * 1024  # bytes that the first-level cache holds, and that no cache does

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class KernelTime:
    """What a kernel takes of a call: seconds in all, and how often it runs."""

    seconds: float
    rounds: int


@dataclass(frozen=True)
class EntryTime:
    """Seconds of a call, of the same with marks, and of its kernels in the order of ``Procedure.kernels``."""

    seconds: float
    marked: float
    kernels: tuple[KernelTime, ...]


@dataclass(frozen=True)
class Limits:
    """What one thread of a machine can do in a second: operations in float32, bytes from a near cache and memory."""

    operations: float
    near: float
    far: float


@dataclass(frozen=True)
class Timing:
    """The times of entries by name on a machine, its limits, the C of kernels and the instructions of their loops."""

    machine: Machine
    limits: Limits
    entries: Mapping[str, EntryTime]
    functions: Mapping[str, Sequence[str]]  # by entry, the function of each kernel
    text: str
    library: bytes


def time_program(program: Program, machine: Machine, command: list[str]) -> Timing:
    """Compile a program for ``machine`` and time those of its entries that have golden vectors."""
    called: dict[int, str] = {}
    text, marks = kernels_file(program, "timed", machine, called), program.numbers
    text += render("timed.c.j2", bytes=machine.bytes)
    with tempfile.TemporaryDirectory(prefix="mlaot-") as name:
        folder = Path(name)

        def library(kind: str) -> Any:
            return _library(text, program, len(marks), machine, folder / kind, command, marked=kind == "marked")

        with ThreadPoolExecutor() as pool:
            marked, plain = pool.map(library, ("marked", "plain"))
        content = (folder / "marked" / "timed.so").read_bytes()
    golden = {vector.entry: vector for vector in reversed(program.module.golden)}
    entries, functions = dict[str, EntryTime](), dict[str, list[str]]()
    for procedure in program.procedures:
        entry = procedure.entry
        functions[entry.name] = [called[id(kernel)] for kernel in procedure.kernels]
        if entry.name in golden and not entry.split:
            call = _Call(program, procedure, golden[entry.name], machine)
            entries[entry.name] = call.time(marked, plain, [marks[id(kernel)] for kernel in procedure.kernels])
    return Timing(machine, _limits(plain), entries, functions, text, content)


def _library(
    text: str, program: Program, marks: int, machine: Machine, folder: Path, command: list[str], *, marked: bool
) -> Any:
    """Compile the C and load it."""
    folder.mkdir()
    source, library = folder / "timed.c", folder / "timed.so"
    source.write_text(text, encoding="utf-8")
    header = render("timed.h.j2", marks=max(marks, 1), marked=marked)
    (folder / f"{program.module.stem}.h").write_text(header, encoding="utf-8")
    compile_kernels(source, machine, library, command)
    loaded = ctypes.CDLL(str(library))
    for function in (loaded.timed_run, loaded.timed_multiply, loaded.timed_read, loaded.timed_clock):
        function.restype = ctypes.c_int64
    return loaded


class _Call:
    """A call of an entry with the inputs of a golden vector, and memory of its own."""

    def __init__(self, program: Program, procedure: Procedure, golden: Golden, machine: Machine) -> None:
        module, entry = program.module, procedure.entry
        sizes = dict(zip(module.dims, golden.dims, strict=True))
        values = named_values(sizes)
        arrays, outputs = call_arrays(entry, call_inputs(entry, sizes, golden.draws), values)
        own, workspace = instance(module), aligned(bytes(value_of(entry.workspace, values)))
        self.memory = [*arrays, *outputs, aligned(own.state), aligned(own.constants), workspace]
        self.p = (ctypes.c_void_p * (len(self.memory) + 1))(*[array.ctypes.data for array in self.memory], 0)
        self.dims = (ctypes.c_ssize_t * max(len(module.dims), 1))(*golden.dims)
        self.function = f"timed_{entry.name}_{machine.name}"

    def time(self, marked: Any, plain: Any, numbers: Sequence[int]) -> EntryTime:
        """Time calls, and the kernels of as many, in turns: the fastest runs count."""
        spent = (ctypes.c_int64 * marked.timed_count()).in_dll(marked, "timed_spent")
        rounds = (ctypes.c_int64 * marked.timed_count()).in_dll(marked, "timed_rounds")
        clock = marked.timed_clock(CLOCKS) / CLOCKS
        times = max(1, min(CALLS, int(SECONDS / RUNS / max(max(self._run(plain, 1) for _ in range(2)), 1e-9))))
        seconds, best = float("inf"), EntryTime(float("inf"), float("inf"), ())
        for _ in range(RUNS):
            seconds = min(seconds, self._run(plain, times))
            spent[:] = rounds[:] = [0] * len(spent)
            with_marks = self._run(marked, times)
            if with_marks < best.marked:
                kernels = [(1e-9 * max(spent[n] - clock * rounds[n], 0), rounds[n]) for n in numbers]
                best = EntryTime(0, with_marks, tuple(KernelTime(s / times, n // times) for s, n in kernels))
        return replace(best, seconds=seconds)

    def _run(self, library: Any, times: int) -> float:
        """Return the seconds of a call, of so many one after the other."""
        entry = ctypes.cast(getattr(library, self.function), ctypes.c_void_p)
        return 1e-9 * float(library.timed_run(entry, self.p, self.dims, ctypes.c_int64(times))) / times


def _limits(library: Any) -> Limits:
    """Measure what the machine can do."""
    data = np.ones(FAR, np.uint8)

    def rate(count: float, run: Callable[[], int]) -> float:
        return count / (1e-9 * statistics.median_low([run() for _ in range(3)]))

    def read(size: int, times: int) -> float:
        pointer, bytes_, repeats = data.ctypes.data_as(ctypes.c_void_p), ctypes.c_ssize_t(size), ctypes.c_ssize_t(times)
        return rate(size * times, lambda: int(library.timed_read(pointer, bytes_, repeats)))

    operations = library.timed_operations() * LIMIT_ROUNDS
    multiply = rate(operations, lambda: int(library.timed_multiply(ctypes.c_ssize_t(LIMIT_ROUNDS))))
    return Limits(multiply, read(NEAR, FAR // NEAR), read(FAR, 1))
