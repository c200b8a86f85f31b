"""``mlaot.tap``: values on their way through a model, by name, for the entry ``intermediates`` of a module.

A tap leaves no node in the graph: the trace remembers which node has the name. Where a function is traced apart and put
into the enclosing graph (``grad``, ``vmap``), its taps come along as further outputs; out of a loop or a branch they
cannot come.
"""

from __future__ import annotations

from typing import Any

from mlaot.errors import MlaotError
from mlaot.frontend.trace.context import VMAP, Tap, Trace, calling_line, current
from mlaot.frontend.trace.promotion import as_node
from mlaot.ir.names import identifier


def tap(name: str, value: Any) -> Any:
    """``value`` itself; with the setting ``intermediates`` the module shows it under ``name``, an identifier."""
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
    """Remember the node of ``value``, to which no other may have given the name."""
    if first := next((other for other in trace.taps if other.name == tap_.name), None):
        places = f"{first.place.rstrip(': ')} and at {tap_.place.rstrip(': ')}"
        raise MlaotError(f"two arrays are tapped as {tap_.name!r}, at {places}; give one of them another name")
    trace.taps[tap_] = as_node(value)
