"""A whole program in NumPy, as its C would run on one machine: no compiler is called.

What threads may share runs part by part, the last part first, each in memory of its own where it needs some.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mlaot.lower.program import Program
from mlaot.nest.interpreter import GUARD, STORED, Compiler, Execute, Memory, Names, compiled, polynomial
from mlaot.nest.statements import Point, Run, RunRounds
from mlaot.ops import OPS
from mlaot.ops.random import threefry
from mlaot.printing.entries import entries
from mlaot.printing.functions import Function, Functions, Shares
from mlaot.schedule.machine import Machine
from mlaot.schedule.parallel import RANGE

Pointers = list[Memory]  # of bytes, in the order of an entry's C function
Kernel = Callable[[Sequence[Memory], Sequence[int]], None]


def _threefry(key0: Any, key1: Any, element: Any, site: Any) -> Any:
    high = np.uint64(site) + (np.uint64(element) >> np.uint64(32) << np.uint64(16))
    low = np.uint64(element) & np.uint64(0xFFFFFFFF)
    counter = [np.atleast_1d(word).astype(np.uint32) for word in (low, high)]
    return threefry(np.array([key0, key1], np.uint32), *counter)[0][0]


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **{name: op.reference for name, op in OPS.items() if op.c is not None},
    "pow": OPS["power"].reference,
    "threefry": _threefry,
}


class Interpreter:
    """The entries of a program for a machine."""

    def __init__(self, program: Program, machine: Machine) -> None:
        module = program.module
        functions = Functions(replace(machine, deterministic=module.deterministic))
        self.dims = module.dims
        self.entries: dict[str, list[Execute]] = {}
        made = {p.entry.name: entries(module, p, "", functions) for p in program.procedures}
        self.called = {f.name: f for f in (*functions.kernels.values(), *functions.tasks)}
        self.kernels: dict[str, Kernel] = {}
        for name, parts in made.items():
            self.entries[name] = [self.entry(part) for part in parts]

    def run(self, entry: str, pointers: Sequence[Memory], dims: Mapping[str, int]) -> None:
        """Run an entry on the memory behind its pointers: inputs, outputs, state, constants, workspace."""
        for part in self.entries[entry]:
            with np.errstate(all="ignore"):
                part({"p": list(pointers), "@dim": np.array([dims.get(d, 0) for d in self.dims], np.int64)})

    def entry(self, function: Function) -> Execute:
        """A function of the pointers and dims of an entry."""
        return _Entry(self, function).body(function.nest.body)

    def kernel(self, name: str) -> Kernel:
        """A kernel by its name."""
        if name not in self.kernels:
            function = self.called[name]
            params, run = [array.name for array in function.nest.params], compiled(function.nest, FUNCTIONS)
            self.kernels[name] = lambda arrays, dims: run(
                dict(zip(params, arrays, strict=True)), dict(zip(function.dims, dims, strict=True))
            )
        return self.kernels[name]

    def callee(self, name: str) -> Kernel:
        """A function that entries call."""
        shares = self.called[name].shares
        return self.kernel(name) if shares is None else _in_parts(self.kernel(shares.kernel), self.called[name], shares)


class _Entry(Compiler):
    """What stands in entries alone: where arrays lie, and calls."""

    def __init__(self, interpreter: Interpreter, function: Function) -> None:
        super().__init__(function.nest, FUNCTIONS)
        self.interpreter = interpreter

    def point_(self, s: Point) -> Execute:
        offset, size, dtype = polynomial(s.offset), polynomial(s.array.size), STORED[s.array.dtype]

        def run(names: Names) -> None:
            start, memory = offset(names), names["p"][s.pointer]
            end = min(start + size(names) * dtype.itemsize, memory.size)
            self.need(0 <= start <= memory.size, f"byte {start} of {memory.size}", s)
            names[f"@{s.array.name}"] = memory[start : end - (end - start) % dtype.itemsize].view(dtype)

        return run

    def run_(self, s: Run) -> Execute:
        arrays = [(array, self.expression(start)) for array, start in s.arrays]
        numbers = [self.expression(number) for number in s.numbers]
        call = self.interpreter.callee(s.function)

        def run(names: Names) -> None:
            given = [self.behind(names, array, start(names), s) for array, start in arrays]
            call(given, [number(names) for number in numbers])

        return run

    def runrounds_(self, s: RunRounds) -> Execute:
        task = self.interpreter.entry(self.interpreter.called[s.function])
        extent, size = self.expression(s.extent), self.expression(s.bytes)
        dims = [self.expression(d) for d in s.dims]

        def run(names: Names) -> None:
            known = np.array([d(names) for d in dims], np.int64) if dims else names["@dim"]
            for begin in reversed(range(extent(names))):
                own = np.full(size(names), GUARD, np.uint8)
                pointers = [*names["p"][: s.own - 1], np.zeros(0, np.uint8), own]
                task({"p": pointers, "@dim": known, **dict(zip(RANGE, (begin, begin + 1), strict=True))})

        return run


def _in_parts(kernel: Kernel, function: Function, shares: Shares) -> Kernel:
    """A kernel whose loop is cut into parts as small as threads may have."""
    extent, step = polynomial(shares.loop.extent), shares.loop.step

    def run(arrays: Sequence[Memory], numbers: Sequence[int]) -> None:
        dims = dict(zip(function.dims, numbers, strict=True))
        end, known = extent(dims), [dims[name] for name in shares.dims]
        for begin in reversed(range(0, end, step)):
            kernel(arrays, [*known, begin, min(begin + step, end)])

    return run
