"""The C functions that kernels and entries call, by name, each behind those that it calls itself.

Helpers are written by hand, in templates. Their text is searched for calls, so that no list of dependencies is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from mlaot.ops.random import LN2, LOG_SERIES, SQRT_HALF, WICHURA
from mlaot.printing.integers import integer_helper
from mlaot.printing.spelling import MEMORY
from mlaot.printing.vectors import vector_helper, vector_types
from mlaot.render import render
from mlaot.schedule.machine import Machine

_CALL = re.compile(r"\b([a-z]\w*)\s*\(")
_FILES = ("threefry", "normal_quantile", "share", "share_apart", "first_from")  # of one function each
_NONZEROS = "nonzeros_"


def definitions(names: Iterable[str], machine: Machine, prefix: str = "") -> dict[str, str]:
    """The text of each helper among ``names`` and of those that it calls, in order of dependency."""
    found: dict[str, str] = {}
    for name in names:
        _define(name, machine, prefix, found)
    return found


def _define(name: str, machine: Machine, prefix: str, found: dict[str, str]) -> None:
    text = None if name in found else _definition(name, machine, prefix)
    if text is not None:
        for other in called(text):
            if other != name:
                _define(other, machine, prefix, found)
        found[name] = text


def _definition(name: str, machine: Machine, prefix: str) -> str | None:
    """The text of one helper; None where a name is no helper's."""
    if name in _FILES:
        numbers = {"ratios": WICHURA, "series": LOG_SERIES, "sqrt_half": SQRT_HALF, "ln2": LN2}
        return render(f"kernels/{name}.h.j2", prefix=prefix, isa=machine, **numbers)
    if name.startswith(_NONZEROS) and (dtype := name.removeprefix(_NONZEROS)) in MEMORY:
        return render("kernels/nonzeros.h.j2", isa=machine, dtypes=[(dtype, MEMORY[dtype])])
    return integer_helper(name) or vector_helper(name, machine)


def called(text: str) -> list[str]:
    """The names before a parenthesis in C text that was written by hand, in order."""
    return list(dict.fromkeys(_CALL.findall(text)))


def callers(helpers: dict[str, str], calls: Iterable[tuple[Iterable[str], int]]) -> dict[str, int]:
    """For each helper the parts of a file, as bits, that need it: those that call it, or another that does.

    ``calls`` are the functions that something calls, with the parts in which it is.
    """
    parts = dict.fromkeys(helpers, 0)
    for names, bits in calls:
        for name in names:
            if name in parts:
                parts[name] |= bits
    for name in reversed(helpers):  # those that call others stand behind them
        for other in called(helpers[name]):
            if other in parts and other != name:
                parts[other] |= parts[name]
    return parts


def preamble(text: str, machine: Machine) -> str:
    """What must stand before C text that was written by hand: types, and the helpers that it calls."""
    return "\n".join((vector_types(machine), *definitions(called(text), machine).values()))
