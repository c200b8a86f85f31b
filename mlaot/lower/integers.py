"""The helpers for integers, conversions and halves that C text calls: functions of ``kernels/integers.h.j2``."""

from __future__ import annotations

import re
from functools import cache

from mlaot.render import render
from mlaot.spelling import C_NAMES, literal

_NAME = re.compile(r"^static inline \w+ (\w+)\(", re.MULTILINE)
_CALL = re.compile(r"\b([a-z]\w*)\(")


def integer_helpers(text: str) -> str:
    """The helpers that ``text`` calls, each after those that it calls itself."""
    return "\n".join(integer_functions(text).values())


def integer_functions(text: str) -> dict[str, str]:
    """The same by name."""
    known = _functions()
    wanted: set[str] = set()
    found = known.keys() & set(_CALL.findall(text))
    while found:
        wanted |= found
        called = {name for f in found for name in _CALL.findall(known[f])}
        found = (called & known.keys()) - wanted
    return {name: body for name, body in known.items() if name in wanted}


@cache
def _functions() -> dict[str, str]:
    """Every helper by name, in order of dependency."""
    bodies = render("kernels/integers.h.j2", types=[_type(kind, bits) for kind in "iu" for bits in (8, 16, 32, 64)])
    functions = {}
    for body in bodies.strip().split("\n\n"):
        name = _NAME.search(body)
        assert name, f"bug in mlaot: no function in {body}"
        functions[name[1]] = f"{body}\n"
    return functions


def _type(kind: str, bits: int) -> dict[str, object]:
    """The words of the template for one type."""
    name, signed = f"{kind}{bits}", kind == "i"
    return {
        "name": name,
        "c": C_NAMES[name],
        "u": f"uint{max(bits, 32)}_t",  # unsigned, and not computed as int
        "bits": bits,
        "signed": signed,
        "min": literal(-(2 ** (bits - 1)) if signed else 0, name),
        "max": literal(2 ** (bits - signed) - 1, name),
    }
