"""A runtime that several modules of a project share: an extension module of its own, beside them.

A module of such a project has its kernels, its weights and its table, and finds all functions in the runtime when it is
imported. Their tables have the same layout, in which only so much fits (templates/runtime/limits.h).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import cache

from mlaot.render import render, template_text, with_runtime

DOC = "the runtime that models compiled by mlaot share"


@cache
def limits() -> dict[str, int]:
    """What a shared runtime has, and how large the parts of a module's table may be."""
    lines = re.findall(r"^#define (\w+) (\d+)$", template_text("runtime/limits.h"), re.MULTILINE)
    return {name: int(value) for name, value in lines}


def fits_limits(needs: Mapping[str, int]) -> bool:
    """Whether a module that needs so much can share a runtime."""
    return all(value <= limits()[name] for name, value in needs.items())


@cache
def runtime_digest() -> str:
    """What tells the runtimes of different versions of mlaot apart."""
    return hashlib.sha256(with_runtime('#include "runtime/shared.c"\n').encode()).hexdigest()[:16]


def shared_defines(runtime: str) -> dict[str, object]:
    """What the table of a module defines that finds its functions in ``runtime``."""
    return {"IS_SHARED": 1, "RUNTIME_NAME": f'"{runtime}"', "RUNTIME_DIGEST": f'"{runtime_digest()}"'}


def render_runtime(name: str, *, complete: bool = True) -> dict[str, str | bytes]:
    """The files of the runtime as the module ``name``; ``complete`` as in ``render_interface``."""
    stem = name.rpartition(".")[2]
    source = render("runtime.c.j2", module=name, stem=stem, digest=runtime_digest(), doc=DOC)
    return {f"{stem}.c": with_runtime(source) if complete else source, "mlaot_abi3.h": template_text("mlaot_abi3.h")}


def is_runtime(library: bytes) -> bool:
    """Whether an extension module is such a runtime."""
    return DOC.encode() in library
