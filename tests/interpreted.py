"""Programs run by the interpreter of nests, as ``compiled.py`` runs them compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mlaot.interpret import Instance, Interpreter
from mlaot.lower.program import Program
from mlaot.nest.statements import Nest
from mlaot.schedule.machine import MACHINES, Machine

from .compiled import Array, State


class Interpreted:
    """Programs by stem for one instruction set, of this machine or another."""

    def __init__(
        self,
        programs: Mapping[str, Program],
        isa: str,
        schedule: Callable[[Nest, Machine], Nest] | None = None,
    ) -> None:
        self.isa = isa
        self.programs = dict(programs)
        self.interpreters = {stem: Interpreter(p, MACHINES[isa], schedule) for stem, p in programs.items()}

    def call(
        self,
        stem: str,
        entry: str,
        inputs: Mapping[str, Any],
        dims: Mapping[str, int] | None = None,
        state: State | None = None,
    ) -> dict[str, Array]:
        """The outputs of an entry by name; ``inputs`` by name, ``dims`` where they are needed."""
        state = state or State(self.programs[stem])
        return self.interpreters[stem].call(entry, inputs, dims or {}, Instance(state.state, state.constants))
