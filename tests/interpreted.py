"""Programs run by the interpreter of nests, as ``compiled.py`` runs them compiled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mlaot.interpret import Interpreter
from mlaot.lower.program import Program
from mlaot.printing.identifiers import dim_name
from mlaot.schedule.machine import MACHINES

from .compiled import NUMPY, Array, State, evaluate_dim


class Interpreted:
    """Programs by stem for one instruction set, of this machine or another."""

    def __init__(self, programs: Mapping[str, Program], isa: str) -> None:
        self.isa = isa
        self.programs = dict(programs)
        self.interpreters = {stem: Interpreter(program, MACHINES[isa]) for stem, program in programs.items()}

    def call(
        self,
        stem: str,
        entry: str,
        inputs: Mapping[str, Any],
        dims: Mapping[str, int] | None = None,
        state: State | None = None,
    ) -> dict[str, Array]:
        """The outputs of an entry by name; ``inputs`` by name, ``dims`` where they are needed."""
        program, known = self.programs[stem], dict(dims or {})
        known |= {dim_name(name): value for name, value in known.items()}
        found = next(p.entry for p in program.procedures if p.entry.name == entry)
        state = state or State(program)
        arrays = [np.array(inputs[port.name], NUMPY[port.dtype]) for port in found.inputs]
        outputs = []
        for port in found.outputs:
            shape = tuple(evaluate_dim(d, known) for d in port.shape)
            outputs.append(np.empty(shape, NUMPY[port.dtype]))
        workspace = np.full(evaluate_dim(found.workspace, known), 0xFF, np.uint8)
        before = [a.tobytes() for a in arrays], state.constants.tobytes()
        memory = [a.reshape(-1).view(np.uint8) for a in (*arrays, *outputs)]
        self.interpreters[stem].run(entry, [*memory, state.state, state.constants, workspace], known)
        assert before == ([a.tobytes() for a in arrays], state.constants.tobytes()), f"{stem}.{entry} wrote to an input"
        return {port.name: output for port, output in zip(found.outputs, outputs, strict=True)}
