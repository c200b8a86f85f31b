"""A runtime that several modules of a project share: an extension module of its own, beside them.

A module of such a project contains its kernels, its weights and its table. It looks up all functions in the runtime
when it is imported. All tables have the same layout, with limits on the sizes of their parts
(templates/runtime/limits.h).
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
    """Return the features of a shared runtime, and the largest sizes of the parts of a module's table."""
    lines = re.findall(r"^#define (\w+) (\d+)$", template_text("runtime/limits.h"), re.MULTILINE)
    return {name: int(value) for name, value in lines}


def fits_limits(needs: Mapping[str, int]) -> bool:
    """Tell whether a module with these features and sizes can share a runtime."""
    return all(value <= limits()[name] for name, value in needs.items())


@cache
def runtime_digest() -> str:
    """Return a digest that differs between the runtimes of different versions of mlaot."""
    return hashlib.sha256(with_runtime('#include "runtime/shared.c"\n').encode()).hexdigest()[:16]


def shared_defines(runtime: str) -> dict[str, object]:
    """Return the macros of a module that looks up its functions in ``runtime``."""
    return {"IS_SHARED": 1, "RUNTIME_NAME": f'"{runtime}"', "RUNTIME_DIGEST": f'"{runtime_digest()}"'}


def render_runtime(name: str, *, complete: bool = True) -> dict[str, str | bytes]:
    """Return the files of the runtime as a module ``name``. For ``complete`` see ``render_interface``."""
    stem = name.rpartition(".")[2]
    source = render("runtime.c.j2", module=name, stem=stem, digest=runtime_digest(), doc=DOC)
    return {f"{stem}.c": with_runtime(source) if complete else source, "mlaot_abi3.h": template_text("mlaot_abi3.h")}


def is_runtime(library: bytes) -> bool:
    """Tell whether an extension module is a shared runtime."""
    return DOC.encode() in library
