"""Whether the functions that a nest calls are there, for the types that it calls them with."""

from __future__ import annotations

from mlaot.lower.integers import integer_functions
from mlaot.lower.text import others
from mlaot.lower.vectors import helper_functions
from mlaot.nest.statements import Nest, Store, expressions, walk
from mlaot.schedule.machine import Machine
from mlaot.spelling import Speller


def undefined_calls(nest: Nest, machine: Machine) -> set[str]:
    """The functions of C that a nest for a machine calls and that nothing defines."""
    spell = Speller(machine.bytes)
    for s in walk(nest.body):
        for x in expressions(s):
            if not isinstance(s, Store) or s.value.type.lanes == 1 or x is not s.value:
                spell(x)
        if isinstance(s, Store) and s.value.type.lanes != 1:
            spell.lanes(s)
    text = " ".join(f"{name}(" for name in sorted(spell.calls))
    return spell.calls - {*helper_functions(text, machine), *integer_functions(text), *others(text, "", machine)}
