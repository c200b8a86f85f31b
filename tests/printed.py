"""Programs printed as Python and run, as ``compiled.py`` runs them compiled."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from mlaot.interpret import CALLER_DTYPES, output_shapes, settle
from mlaot.lower.program import Program
from mlaot.printing.python.file import python_kernels

from .compiled import Array, State, entry_of, evaluate_dim


class Printed:
    """Programs by stem."""

    isa = "python"

    def __init__(self, programs: Mapping[str, Program]) -> None:
        self.programs = dict(programs)
        self.functions: dict[str, dict[str, Any]] = {}

    def call(
        self,
        stem: str,
        entry: str,
        inputs: Mapping[str, Any],
        dims: Mapping[str, int] | None = None,
        state: State | None = None,
    ) -> dict[str, Array]:
        """The outputs of an entry by name; ``inputs`` by name, ``dims`` where they are needed.

        Memory that nothing has written is full of nan; inputs and constants cannot be written.
        """
        program, known = self.programs[stem], dict(dims or {})
        ports, state = entry_of(program, entry), state or State(program)
        arrays = [np.array(inputs[port.name], CALLER_DTYPES[port.dtype]) for port in ports.inputs]
        shapes = [shape for _, shape in output_shapes(ports, known)]
        outputs = [
            np.full(shape, 0xFF, np.uint8).repeat(CALLER_DTYPES[port.dtype].itemsize).view(CALLER_DTYPES[port.dtype])
            for port, shape in zip(ports.outputs, (int(np.prod(shape)) for shape in shapes), strict=True)
        ]
        read = [memoryview(bytes(memory.tobytes())) for memory in arrays]
        written = [memory.reshape(-1).view(np.uint8).data for memory in outputs]
        constants = memoryview(state.constants.tobytes().ljust(-(-state.constants.size // 64) * 64, b"\0"))
        block = bytearray(state.state.tobytes().ljust(-(-state.state.size // 64) * 64, b"\0"))
        workspace = memoryview(bytearray(b"\xff" * evaluate_dim(ports.workspace, known)))
        p = [*read, *written, memoryview(block), constants, workspace]
        if stem not in self.functions:
            self.functions[stem] = functions_of(program)
        for suffix in ("_forward", "_backward") if ports.split else ("",):
            self.functions[stem][f"_{entry}{suffix}_python"](p, [known.get(d, 0) for d in program.module.dims])
        state.state[:] = np.frombuffer(block, np.uint8, state.state.size)
        return settle(ports, [array.reshape(shape) for array, shape in zip(outputs, shapes, strict=True)], known)


def functions_of(program: Program) -> dict[str, Any]:
    """The functions of a program, by name."""
    names: dict[str, Any] = {"_math": math, "_struct": struct}
    exec(compile("\n\n\n".join(python_kernels(program).texts), "<printed>", "exec"), names)
    return names
