"""Whether the functions that a nest calls are there, for the types that it calls them with."""

from __future__ import annotations

from mlaot.nest.statements import Nest
from mlaot.printing.helpers import definitions
from mlaot.printing.printer import print_nest
from mlaot.schedule.machine import Machine


def undefined_calls(nest: Nest, machine: Machine) -> set[str]:
    """Return the C functions that a nest for a machine calls and that nothing defines."""
    calls = print_nest(nest, (), machine.bytes).calls
    return set(calls) - set(definitions(calls, machine))
