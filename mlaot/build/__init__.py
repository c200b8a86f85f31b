"""``build-backend = "mlaot.build"``: load the hooks of ``mlaot.build.hooks`` when a build front end asks for one.

The process that traces a model, and commands that only compile, never load them.
"""

import importlib
from typing import Any

HOOKS = [
    f"{verb}{kind}"
    for kind in ("wheel", "editable", "sdist")
    for verb in ("build_", "get_requires_for_build_", "prepare_metadata_for_build_")
    if (verb, kind) != ("prepare_metadata_for_build_", "sdist")
]


def __getattr__(name: str) -> Any:
    if name in HOOKS:
        return getattr(importlib.import_module("mlaot.build.hooks"), name)
    raise AttributeError(f"module 'mlaot.build' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *HOOKS])
