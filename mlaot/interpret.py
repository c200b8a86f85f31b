"""Interpret a whole program in NumPy, with the results of its C on one machine, without a compiler.

A parallel loop runs part by part, the last part first. Each part has its own memory if it needs any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from mlaot.binding.extents import shown
from mlaot.ir.dims import parse, substitute
from mlaot.ir.ports import Port
from mlaot.ir.types import DTYPES
from mlaot.lower.identifiers import dim_name
from mlaot.lower.program import Entry, ExtensionModule, Program, Slot
from mlaot.nest.interpreter import GUARD, STORED, Compiler, Execute, Memory, Names, compile_nest, polynomial
from mlaot.nest.statements import Nest, Point, Run, RunRange, RunRounds
from mlaot.ops import OPS
from mlaot.ops.random import threefry
from mlaot.printing.entries import entries
from mlaot.printing.functions import Function, Functions, Shares
from mlaot.schedule.machine import LINE, Machine
from mlaot.schedule.parallel import RANGE

RunKernel = Callable[[Sequence[Memory], Sequence[int]], None]
# Elements of arrays that a caller has; bfloat16 as its bits.
CALLER_DTYPES = {name: np.dtype(np.uint16 if name == "bf16" else dtype.numpy) for name, dtype in DTYPES.items()}


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


@dataclass
class Instance:
    """The memory of a module: its ``state``, initially the initial state, and its ``constants``, both as bytes."""

    state: Memory
    constants: Memory

    def slot(self, slot: Slot, *, gradient: bool = False) -> Memory:
        """Return a view of the elements of a slot or of its gradient; bfloat16 as bits."""
        assert not gradient or slot.kind == "parameter", f"{slot.name} has no gradient"
        dtype = CALLER_DTYPES[slot.dtype]
        flat = self.state[slot.gradient_offset if gradient else slot.offset :]
        usable = flat[: flat.size // dtype.itemsize * dtype.itemsize].view(dtype)
        return np.lib.stride_tricks.as_strided(usable, slot.shape, [s * dtype.itemsize for s in slot.strides])


def instance(module: ExtensionModule) -> Instance:
    """Return a new instance of a module."""
    state = np.zeros(module.memory_bytes, np.uint8)
    state[: len(module.initial)] = np.frombuffer(module.initial, np.uint8)
    return Instance(state, np.frombuffer(bytes(module.constants), np.uint8))


def value_of(extent: str | int, values: Mapping[str, int]) -> int:
    """Return an extent as a number."""
    return substitute(parse(extent), values)


def named_values(dims: Mapping[str, int]) -> dict[str, int]:
    """Return the values of dims by their own names and by their names in C."""
    return {**dims, **{dim_name(name): value for name, value in dims.items()}}


def call_arrays(
    entry: Entry, inputs: Mapping[str, Any], values: Mapping[str, int]
) -> tuple[list[Memory], list[Memory]]:
    """Return copies of the inputs of a call, and memory for its outputs."""
    arrays = [np.array(inputs[port.name], CALLER_DTYPES[port.dtype]) for port in entry.inputs]
    return arrays, [np.empty(shape, CALLER_DTYPES[port.dtype]) for port, shape in output_shapes(entry, values)]


def aligned(content: bytes | bytearray | Memory) -> Memory:
    """Copy bytes to a boundary of cache lines, where C expects the state, constants and workspaces."""
    storage = np.zeros(len(content) + LINE, np.uint8)
    start = -storage.ctypes.data % LINE
    memory = storage[start : start + len(content)]
    memory[:] = np.frombuffer(content, np.uint8)
    return memory


def output_shapes(entry: Entry, values: Mapping[str, int]) -> Iterator[tuple[Port, list[int]]]:
    """Yield the outputs with the shapes of their memory.

    Outputs of counted shapes are flat, with room for the largest.
    """
    for port in entry.outputs:
        yield port, [value_of(extent, values) for extent in ((port.room,) if port.room else port.shape)]


def settle(entry: Entry, outputs: Sequence[Memory], values: Mapping[str, int]) -> dict[str, Memory]:
    """Return the outputs of a call by name, in their counted shapes; raise an error if a count exceeds the room."""
    found, values = dict(zip((port.name for port in entry.outputs), outputs, strict=True)), dict(values)
    for count, port in zip(entry.counts, entry.outputs[len(entry.results) :], strict=False):
        values[count.dim], most = int(found[port.name]), value_of(count.most, values)
        if values[count.dim] > most:
            raise ValueError(f"{entry.name}: expected {count.dim} of at most {most}, got {values[count.dim]}")
        for need in count.needs:
            if (least := value_of(need, values)) < 0:
                raise ValueError(f"{entry.name}: expected {shown(need)} of at least 0, got {least}")
    for port in entry.results:
        if port.room:
            shape = [value_of(extent, values) for extent in port.shape]
            found[port.name] = found[port.name][: prod(shape)].reshape(shape)
    return found


class Interpreter:
    """Interpret the entries of a program for a machine; ``schedule`` may replace the machine's own."""

    def __init__(
        self, program: Program, machine: Machine, schedule: Callable[[Nest, Machine], Nest] | None = None
    ) -> None:
        module = program.module
        functions = Functions(replace(machine, deterministic=module.options.deterministic), (), schedule)
        self.dims = module.dims
        self.ports = {p.entry.name: p.entry for p in program.procedures}
        self.entries: dict[str, list[Execute]] = {}
        functions_by_entry = {p.entry.name: entries(module, p, "", functions) for p in program.procedures}
        self.callees = {f.name: f for f in (*functions.kernels.values(), *functions.tasks)}
        self.kernels: dict[str, RunKernel] = {}
        for name, parts in functions_by_entry.items():
            self.entries[name] = [self.compile_entry(part) for part in parts]

    def run(self, entry: str, pointers: Sequence[Memory], dims: Mapping[str, int]) -> None:
        """Run an entry on the memory that its pointers address: inputs, outputs, state, constants, workspace."""
        for part in self.entries[entry]:
            with np.errstate(all="ignore"):
                part({"p": list(pointers), "@dim": np.array([dims.get(d, 0) for d in self.dims], np.int64)})

    def call(
        self, name: str, inputs: Mapping[str, Any], dims: Mapping[str, int], instance: Instance
    ) -> dict[str, Memory]:
        """Return the outputs of an entry by name, for inputs by name, with bfloat16 as bits.

        The state changes in place.
        """
        entry = self.ports[name]
        values = named_values(dims)
        arrays, outputs = call_arrays(entry, inputs, values)
        workspace = np.full(value_of(entry.workspace, values), GUARD, np.uint8)
        before = [array.tobytes() for array in (*arrays, instance.constants)]
        memory = [array.reshape(-1).view(np.uint8) for array in (*arrays, *outputs)]
        self.run(name, [*memory, instance.state, instance.constants, workspace], values)
        after = [array.tobytes() for array in (*arrays, instance.constants)]
        assert before == after, f"bug in mlaot: {entry.name} wrote to an input or a constant"
        return settle(entry, outputs, values)

    def compile_entry(self, function: Function) -> Execute:
        """Return a function of the pointers and dims of an entry."""
        return _Entry(self, function).body(function.nest.body)

    def kernel(self, name: str) -> RunKernel:
        """Return a kernel by its name."""
        if name not in self.kernels:
            function = self.callees[name]
            params, run = [array.name for array in function.nest.params], compile_nest(function.nest, FUNCTIONS)
            self.kernels[name] = lambda arrays, dims: run(
                dict(zip(params, arrays, strict=True)), dict(zip(function.dims, dims, strict=True))
            )
        return self.kernels[name]

    def callee(self, name: str) -> RunKernel:
        """Return a function that entries call."""
        function = self.callees[name]
        shares = function.shares
        return self.kernel(name) if shares is None else _in_parts(self.kernel(shares.kernel), function, shares)


class _Entry(Compiler):
    """A compiler of the statements that only entries have: pointers to arrays, and calls."""

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
            slices = [self.behind(names, array, start(names), s) for array, start in arrays]
            call(slices, [number(names) for number in numbers])

        return run

    def numbers(self, s: RunRounds | RunRange) -> Callable[[Names], Any]:
        """Return a function that computes the arguments of a range's function."""
        dims = [self.expression(d) for d in s.dims]
        return lambda names: np.array([d(names) for d in dims], np.int64) if dims else names["@dim"]

    def runrounds_(self, s: RunRounds) -> Execute:
        task = self.interpreter.compile_entry(self.interpreter.callees[s.function])
        extent, size, numbers_of = self.expression(s.extent), self.expression(s.bytes), self.numbers(s)

        def run(names: Names) -> None:
            numbers = numbers_of(names)
            for begin in reversed(range(extent(names))):
                own = np.full(size(names), GUARD, np.uint8)
                pointers = [*names["p"][: s.own - 1], np.zeros(0, np.uint8), own]
                task({"p": pointers, "@dim": numbers, **dict(zip(RANGE, (begin, begin + 1), strict=True))})

        return run

    def runrange_(self, s: RunRange) -> Execute:
        task = self.interpreter.compile_entry(self.interpreter.callees[s.function])
        extent, numbers_of = self.expression(s.extent), self.numbers(s)

        def run(names: Names) -> None:
            numbers, end = numbers_of(names), extent(names)
            for begin in reversed(range(0, end, s.step)):
                part = zip(RANGE, (begin, min(begin + s.step, end)), strict=True)
                task({"p": names["p"], "@dim": numbers, **dict(part)})

        return run


def _in_parts(kernel: RunKernel, function: Function, shares: Shares) -> RunKernel:
    """Return a kernel whose parallel loop is split into the smallest parts that a thread may get."""
    extent, step = polynomial(shares.loop.extent), shares.loop.step

    def run(arrays: Sequence[Memory], numbers: Sequence[int]) -> None:
        dims = dict(zip(function.dims, numbers, strict=True))
        end, sizes = extent(dims), [dims[name] for name in shares.dims]
        for begin in reversed(range(0, end, step)):
            kernel(arrays, [*sizes, begin, min(begin + step, end)])

    return run
