"""Packages that models import when they run, which the project's dependencies must name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mlaot.build.sbom import read_metadata
from mlaot.errors import MlaotError
from mlaot.settings import FILE, ModelSettings

NAME = re.compile(r"[A-Za-z0-9._-]*")
IMPORTS = {"pillow": "PIL.Image"}  # by package, what a module asks Python for


def imports_of(models: Iterable[ModelSettings], generated: Path) -> dict[str, list[str]]:
    """Return the packages that each module imports, by the module's name."""
    needed = {model.module: read_metadata(generated, model).get("requires", ()) for model in models}
    return {module: [IMPORTS[name] for name in names if name in IMPORTS] for module, names in needed.items() if names}


def check_requirements(project: Mapping[str, Any], models: Iterable[ModelSettings], generated: Path) -> None:
    """Raise ``MlaotError`` if the dependencies in [project] lack a package that a model needs.

    Dependencies that another tool computes are not checked.
    """
    if "dependencies" in project.get("dynamic", ()):
        return
    known = {str(NAME.match(text.lower())[0]) for text in project.get("dependencies", ())}  # type: ignore[index]
    for model in models:
        missing = set(read_metadata(generated, model).get("requires", ())) - known
        if missing:
            name = min(missing)
            raise MlaotError(
                f"{model.module}: {model.declared} decodes images, which takes the package {name} where it runs;"
                f' add dependencies = ["{name}"] to [project] of {FILE}'
            )
