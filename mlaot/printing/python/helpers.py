"""The functions that kernels call by name, each behind those that it calls itself: ``python/functions.py.j2``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from mlaot.ops.random import LN2, LOG_SERIES, SQRT_HALF, WICHURA
from mlaot.render import render

_NAME = re.compile(r"def (_\w+)\(")
_CALL = re.compile(r"\b(_[a-z]\w*)\(")


def definitions(names: Iterable[str]) -> list[str]:
    """Return the texts of functions and of those that they call, in the order of the template."""
    functions = _functions()
    needed, stack = set[str](), [*names]
    while stack:
        name = stack.pop()
        if name not in needed:
            assert name in functions, f"bug in mlaot: nothing defines {name}, which kernels call"
            needed.add(name)
            stack += _CALL.findall(functions[name])
    return [text for name, text in functions.items() if name in needed]


@cache
def _functions() -> dict[str, str]:
    """Return every function by name."""
    numbers = {"ratios": WICHURA, "series": LOG_SERIES, "sqrt_half": SQRT_HALF, "ln2": LN2}
    texts = render("python/functions.py.j2", **numbers).strip().split("\n\n\n")
    return {_NAME.match(text)[1]: text for text in texts}  # type: ignore[index]
