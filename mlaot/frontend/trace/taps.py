"""``mlaot.tap``: names for intermediate values of a model, which the entry ``intermediates`` of a module returns.

A tap adds no node to the graph: the trace records which node has the name. If a function is traced separately and
inserted into the enclosing graph (``grad``, ``vmap``), its taps are further outputs. A loop or a branch cannot have
taps.
"""

from __future__ import annotations

from typing import Any

from mlaot.errors import MlaotError
from mlaot.frontend.trace.context import VMAP, Tap, Trace, calling_line, current
from mlaot.frontend.trace.promotion import as_node
from mlaot.ir.names import identifier


def tap(name: str, value: Any) -> Any:
    """Name an intermediate ``value``, and return it.

    With the setting ``intermediates`` the module's entry of this name returns the value under ``name``, an identifier.
    """
    trace = current()
    if trace is None:
        return value
    identifier(name, "a tap")
    outer: Trace | None = trace
    while outer is not None:
        if outer.read_only not in ("", VMAP):
            raise MlaotError(f"tap {name!r} is in {outer.read_only}; return the array from it, and tap it outside")
        outer = outer.parent
    record(trace, Tap(name, calling_line()), value)
    return value


def record(trace: Trace, tap_: Tap, value: Any) -> None:
    """Record the node of ``value`` under a name; the same name for another node is an error."""
    if first := next((other for other in trace.taps if other.name == tap_.name), None):
        places = f"{first.place.rstrip(': ')} and at {tap_.place.rstrip(': ')}"
        raise MlaotError(f"two arrays are tapped as {tap_.name!r}, at {places}; give one of them another name")
    trace.taps[tap_] = as_node(value)
