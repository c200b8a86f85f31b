"""The helpers for integers, conversions and halves that C text calls: functions of ``kernels/integers.h.j2``."""

from __future__ import annotations

import re
from functools import cache

from mlaot.printing.spelling import C_NAMES, literal
from mlaot.render import render

_NAME = re.compile(r"^INLINE \w+ (\w+)\(", re.MULTILINE)


def integer_helper(name: str) -> str | None:
    """Return the text of a helper, or None if there is none of that name."""
    return _functions().get(name)


@cache
def _functions() -> dict[str, str]:
    """Return every helper by name."""
    bodies = render("kernels/integers.h.j2", types=[_type(kind, bits) for kind in "iu" for bits in (8, 16, 32, 64)])
    functions = {}
    for body in bodies.strip().split("\n\n"):
        name = _NAME.search(body)
        assert name, f"bug in mlaot: no function in {body}"
        functions[name[1]] = f"{body}\n"
    return functions


def _type(kind: str, bits: int) -> dict[str, object]:
    """Return the words of the template for one type."""
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
