"""Measure the fastest schedules of contractions on this machine, for ``mlaot tune``.

A program's contractions are compiled once more, each with the schedules that the cost model finds best, as functions
that are timed in turns. ``mlaot/commands/tune.py`` calls this and prints the results. It stores the schedules that are
faster than the model's choice by a margin in ``mlaot-tuned.json`` (``mlaot/settings/tuned.py``), which later builds
use. For a contraction that is not in the file, the model chooses. The file is a hint: every schedule computes the same
product on any machine. ``CANDIDATES``, ``GAIN`` and the lengths of a measurement may be changed freely.

The ONNX backend and ``mlaot doctor`` also use ``machines_here`` to find the instruction sets of this machine.
"""

from __future__ import annotations

import ctypes
import statistics
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlaot.build.toolchain import compile_kernels, machine_of, predefined_macros
from mlaot.ir import DTYPES, Dim
from mlaot.ir.dims import nominal
from mlaot.lower.program import Buffer, Kernel, Program
from mlaot.printing.file import candidates_file
from mlaot.render import render, with_runtime
from mlaot.schedule.contraction import contraction_of, description
from mlaot.schedule.cost import is_light, rank_schedules
from mlaot.schedule.machine import BASE, LINE, MACHINES, Machine, isas_for

CANDIDATES = 8  # schedules of a contraction that are measured
GAIN = 0.03  # share of the time that a schedule must save to replace the choice of the cost model
ROUNDS, SECONDS = 15, 0.002  # the median of so many rounds counts; each round runs a schedule for so long
SLACK = 4096  # bytes behind each buffer, as kernels read past the ends of rows


@dataclass(frozen=True)
class Measurement:
    """A contraction: its ``description``, ``what`` it computes, its seconds by schedule (the model's choice first)."""

    description: str
    what: str
    seconds: dict[str, float]

    @property
    def chosen(self) -> str:
        """Return the cost model's choice."""
        return next(iter(self.seconds))

    @property
    def best(self) -> str:
        """Return the fastest schedule, unless the cost model's choice is nearly as good."""
        fastest = min(self.seconds, key=self.seconds.__getitem__)
        return fastest if self.seconds[fastest] < (1 - GAIN) * self.seconds[self.chosen] else self.chosen

    @property
    def gain(self) -> float:
        """The time of the best schedule relative to the cost model's choice: 1 if that is the best."""
        return self.seconds[self.best] / self.seconds[self.chosen]


def contractions(programs: Iterable[Program]) -> list[Kernel]:
    """Return a kernel for each distinct contraction that has enough work to measure."""
    kernels = [kernel for program in programs for kernel in program.kernels]
    return list({description(c): k for k in kernels if (c := k.contraction) is not None and not is_light(c)}.values())


def group_by_machine(programs: Sequence[Program], isas: Sequence[str], command: list[str]) -> dict[str, list[Program]]:
    """Group programs by the name of the best of ``isas`` that their modules use on this machine."""
    best = {words: machines_here(isas, command, words=words)[-1].name for words in {p.module.words for p in programs}}
    groups: dict[str, list[Program]] = {}
    for program in programs:
        groups.setdefault(best[program.module.words], []).append(program)
    return groups


def measure(kernel: Kernel, isa: Machine, command: list[str]) -> Measurement:
    """Compile and time the best schedules of a kernel on ``isa``."""
    contraction = contraction_of(kernel.nest)
    schedules = list(dict.fromkeys(map(str, rank_schedules(contraction, isa))))[:CANDIDATES]
    with tempfile.TemporaryDirectory(prefix="mlaot-") as folder:
        library = _library(candidates_file(kernel, schedules, isa), isa, Path(folder), command)
        memory = [_memory(param.buffer) for param in kernel.params]
        pointers = (ctypes.c_void_p * len(memory))(*[array.ctypes.data for array in memory])

        def run(i: int, repeats: int) -> float:
            started = time.perf_counter()
            library.run(ctypes.c_int(i), ctypes.c_ssize_t(repeats), pointers)
            return time.perf_counter() - started

        repeats = [max(1, int(SECONDS / max(min(run(i, 1), run(i, 1)), 1e-7))) for i in range(len(schedules))]
        times: list[list[float]] = [[] for _ in schedules]
        for _ in range(ROUNDS):
            for i, samples in enumerate(times):
                samples.append(run(i, repeats[i]) / repeats[i])
    seconds = dict(zip(schedules, map(statistics.median, times), strict=True))
    return Measurement(description(contraction), kernel.doc[0], seconds)


def machines_here(isas: Iterable[str], command: list[str], *, words: bool = False) -> list[Machine]:
    """Return those of ``isas`` that a module uses on this machine, the best last; ``words`` if it multiplies bytes."""
    with tempfile.TemporaryDirectory(prefix="mlaot-") as folder:
        library = _library(with_runtime(render("has.c.j2")), BASE, Path(folder), command)

        def is_here(machine: Machine) -> bool:
            needs = machine.condition(words=words)
            numbers = [number for row in needs.bits for number in row]
            arguments = (ctypes.c_uint * len(numbers))(*numbers)
            return bool(library.has(arguments, ctypes.c_int(len(needs.bits)), ctypes.c_uint(needs.saved)))

        built = [MACHINES[name] for name in isas_for(machine_of(predefined_macros(command)), isas)]
        return [machine for machine in built if is_here(machine)]


def _library(text: str, isa: Machine, folder: Path, command: list[str]) -> Any:
    """Compile C and load it."""
    source, library = folder / "candidates.c", folder / "candidates.so"
    source.write_text(text, encoding="utf-8")
    compile_kernels(source, isa, library, command)
    return ctypes.CDLL(str(library))


def _memory(buffer: Buffer) -> np.ndarray[Any, Any]:
    """Return arbitrary numbers for a buffer, for nominal dims; indices are 0."""
    size: Dim = buffer.root.bytes
    count = nominal(size) + SLACK
    storage = np.zeros(count + LINE, np.uint8)
    start = -storage.ctypes.data % LINE
    memory = storage[start : start + count // 8 * 8]
    dtype = DTYPES[buffer.dtype]
    if dtype.kind == "f" and dtype.name in ("f32", "f64"):
        memory.view(dtype.numpy)[...] = np.random.default_rng(0).uniform(-0.1, 0.1, memory.nbytes // dtype.itemsize)
    return memory
