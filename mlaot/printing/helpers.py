"""The helper functions that C calls, by name, each after those that it calls itself.

Helpers are handwritten templates. Their text is searched for calls, so that no list of dependencies is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from mlaot.ops.random import LN2, LOG_SERIES, SQRT_HALF, WICHURA
from mlaot.printing.integers import integer_helper
from mlaot.printing.sorts import sort_helper
from mlaot.printing.spelling import MEMORY
from mlaot.printing.vectors import vector_helper, vector_types
from mlaot.render import render
from mlaot.schedule.machine import Machine

_CALL = re.compile(r"\b([a-z]\w*)\s*\(")
_FILES = ("threefry", "normal_quantile", "share", "share_apart", "first_from")  # of one function each
_NONZEROS = "nonzeros_"


def definitions(names: Iterable[str], machine: Machine, prefix: str = "") -> dict[str, str]:
    """Return the text of each helper among ``names`` and of those that it calls, in order of dependency."""
    texts: dict[str, str] = {}
    for name in names:
        _define(name, machine, prefix, texts)
    return texts


def _define(name: str, machine: Machine, prefix: str, texts: dict[str, str]) -> None:
    text = None if name in texts else _definition(name, machine, prefix)
    if text is not None:
        for other in calls_in(text):
            if other != name:
                _define(other, machine, prefix, texts)
        texts[name] = text


def _definition(name: str, machine: Machine, prefix: str) -> str | None:
    """Return the text of a helper, or None if there is none of that name."""
    if name in _FILES:
        numbers = {"ratios": WICHURA, "series": LOG_SERIES, "sqrt_half": SQRT_HALF, "ln2": LN2}
        return render(f"kernels/{name}.h.j2", prefix=prefix, isa=machine, **numbers)
    if name.startswith(_NONZEROS) and (dtype := name.removeprefix(_NONZEROS)) in MEMORY:
        return render("kernels/nonzeros.h.j2", isa=machine, dtypes=[(dtype, MEMORY[dtype])])
    return sort_helper(name, machine) or integer_helper(name) or vector_helper(name, machine)


def calls_in(text: str) -> list[str]:
    """Return the names before a parenthesis in handwritten C, in order."""
    return list(dict.fromkeys(_CALL.findall(text)))


def callers(helpers: dict[str, str], calls: Iterable[tuple[Iterable[str], int]]) -> dict[str, int]:
    """Return the parts of a file, as bits, that need each helper, directly or through another helper.

    ``calls`` has the called functions, with the parts that call them.
    """
    parts = dict.fromkeys(helpers, 0)
    for names, bits in calls:
        for name in names:
            if name in parts:
                parts[name] |= bits
    for name in reversed(helpers):  # those that call others stand behind them
        for other in calls_in(helpers[name]):
            if other in parts and other != name:
                parts[other] |= parts[name]
    return parts


def preamble(text: str, machine: Machine) -> str:
    """Return the preamble of handwritten C: types, and the helpers that it calls."""
    return "\n".join((vector_types(machine), *definitions(calls_in(text), machine).values()))
