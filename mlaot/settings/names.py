"""Check the names of extension modules: distinct paths, and names that are valid on every system."""

from __future__ import annotations

import keyword
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from mlaot.errors import MlaotError
from mlaot.settings import FILE, ONNXRUNTIME, Settings
from mlaot.settings.tables import table_of

MAX_LENGTH = 200  # characters of a file's name, so that there is room for what is added to it
# Names that Windows takes for a device, also before an extension.
DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))}


class PlannedModule(NamedTuple):
    """An extension module to be made: its name, the module that declares it, its table, and the key that names it."""

    name: str
    source: str
    where: str
    key: str
    mend: str


def planned_modules(settings: Settings) -> Iterator[PlannedModule]:
    """Yield the extension modules of a project."""
    if settings.runtime:
        key = f"key 'runtime' in [tool.mlaot] of {FILE}"
        yield PlannedModule(settings.runtime, "", "[tool.mlaot]", key, "give the runtime another name")
    if settings.onnxruntime:
        key = f"{ONNXRUNTIME} of {FILE}"
        mend = "give it another name with the key 'module'"
        yield PlannedModule(settings.onnxruntime.module, "", ONNXRUNTIME, key, mend)
    for model in settings.models:
        where = table_of(model.name)
        key = f"{where} of {FILE}" if model.name else "--module"
        mend = "give the model another name with the key 'module'"
        yield PlannedModule(model.module, model.model.partition(":")[0], where, key, mend)


def check_modules(settings: Settings, project: Path) -> None:
    """Check that extension modules have distinct, valid names, and hide no Python file of the project."""
    tables: dict[str, str] = {}
    spellings: dict[str, str] = {}
    modules = settings.modules
    for planned in planned_modules(settings):
        if planned.source and planned.source in modules:
            declared = next(model.model for model in settings.models if model.module == planned.name)
            raise MlaotError(
                f"key 'model' in {planned.where} of {FILE} is {declared!r}, but {planned.source!r} is a module to be"
                " made; declare the model in another one"
            )
        if other := tables.get(planned.name):
            raise MlaotError(f"{other} and {planned.where} of {FILE} both make the module {planned.name!r}")
        tables[planned.name] = planned.where
        path = Path(settings.source, *planned.name.split("."))
        files = () if name_problem(planned.name) else (path.with_suffix(".py"), path / "__init__.py")
        existing = next(filter(lambda file: (project / file).is_file(), files), None)
        parent = next((module for module in modules if planned.name.startswith(f"{module}.")), None)
        names = accumulate(planned.name.split("."), "{}.{}".format)
        spelled = ((name, spellings.setdefault(name.lower(), name)) for name in names)
        twin = next((other for name, other in spelled if other != name), None)
        if reason := (
            name_problem(planned.name)
            or (existing and f"{existing.as_posix()} is there already")
            or (parent and f"{parent!r} is to be a module, not a package")
            or (twin and f"{twin!r} of another model differs in capitals only, which not every system tells apart")
        ):
            raise MlaotError(f"{planned.key} makes the module {planned.name!r}, but {reason}; {planned.mend}")


def name_problem(module: str) -> str:
    """Return the reason why no module can have this name, or an empty string."""
    for part in module.split("."):
        if len(part) > MAX_LENGTH:
            return f"its name is longer than the {MAX_LENGTH} characters that every file system takes"
        if keyword.iskeyword(part):
            return f"{part!r} is a keyword of Python"
        if part.lower() in DEVICES:
            return f"Windows has no files named {part!r}"
        if not (part.isascii() and part.isidentifier()):
            return f"{part!r} is no name: it takes ASCII letters, digits and _"
    return ""
