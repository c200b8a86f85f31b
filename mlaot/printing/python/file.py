"""Print a program's kernels and entries as Python, with the functions that they call before them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from mlaot.lower.program import Program
from mlaot.nest.statements import Nest, eliminate_dead_code
from mlaot.printing.entries import entries
from mlaot.printing.functions import Functions
from mlaot.printing.python.helpers import definitions
from mlaot.printing.python.printer import print_entry, print_kernel
from mlaot.printing.python.spelling import Speller
from mlaot.schedule.blocks import resolve_row_choices
from mlaot.schedule.collapse import collapse
from mlaot.schedule.machine import PYTHON, Machine


@dataclass(frozen=True)
class Kernels:
    """Functions as texts: ``helpers``, ``kernels``, and ``entries`` by their names in the table of C."""

    helpers: list[str]
    kernels: list[str]
    entries: Mapping[str, str]

    @property
    def texts(self) -> list[str]:
        """All functions, each behind those that it calls."""
        return [text.strip() for text in (*self.helpers, *self.kernels, *self.entries.values())]


def python_kernels(program: Program) -> Kernels:
    """Return the functions of a program."""
    ends = ("", "_forward", "_backward")
    taken = [f"{p.entry.name}{end}_{PYTHON.name}" for p in program.procedures for end in ends]
    functions = Functions(PYTHON, taken, schedule, threads=False)
    parts = [
        (function, procedure.entry.doc)
        for procedure in program.procedures
        for function in entries(program.module, procedure, "", functions)
    ]
    spell = Speller()
    kernels = [print_kernel(f.nest, f"_{f.name}", f.dims, spell) for f in functions.kernels.values()]
    entry_texts = {f.name: print_entry(f.nest, f.name, doc, spell) for f, doc in parts}
    return Kernels(definitions(spell.calls), kernels, entry_texts)


def schedule(nest: Nest, machine: Machine) -> Nest:
    """Return a nest over single numbers, with as few loops as possible."""
    body = collapse(resolve_row_choices(nest.body, machine))
    return replace(nest, body=eliminate_dead_code(body))
