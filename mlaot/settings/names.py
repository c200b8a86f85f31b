"""Check the names of extension modules: no two at one place, and names that every system takes."""

from __future__ import annotations

import keyword
from itertools import accumulate
from pathlib import Path

from mlaot.errors import MlaotError
from mlaot.settings import FILE, Settings
from mlaot.settings.tables import table_of

MAX_LENGTH = 200  # characters of a file's name, so that there is room for what is added to it
# Names that Windows takes for a device, also before an extension.
DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))}


def check_modules(settings: Settings, project: Path) -> None:
    """Check that extension modules have distinct, valid names, and hide no Python file of the project."""
    tables: dict[str, str] = {}
    spellings: dict[str, str] = {}
    modules = [model.module for model in settings.models]
    for model in settings.models:
        where = table_of(model.name)
        key = f"{where} of {FILE}" if model.name else "--module"
        if (source := model.model.partition(":")[0]) and source in modules:
            raise MlaotError(
                f"key 'model' in {where} of {FILE} is {model.model!r}, but {source!r} is a module to be made;"
                " declare the model in another one"
            )
        if other := tables.get(model.module):
            raise MlaotError(f"{other} and {where} of {FILE} both make the module {model.module!r}")
        tables[model.module] = where
        path = Path(settings.source, *model.module.split("."))
        files = () if name_problem(model.module) else (path.with_suffix(".py"), path / "__init__.py")
        existing = next(filter(lambda file: (project / file).is_file(), files), None)
        parent = next((module for module in modules if model.module.startswith(f"{module}.")), None)
        names = accumulate(model.module.split("."), "{}.{}".format)
        spelled = ((name, spellings.setdefault(name.lower(), name)) for name in names)
        twin = next((other for name, other in spelled if other != name), None)
        if reason := (
            name_problem(model.module)
            or (existing and f"{existing.as_posix()} is there already")
            or (parent and f"{parent!r} is to be a module, not a package")
            or (twin and f"{twin!r} of another model differs in capitals only, which not every system tells apart")
        ):
            raise MlaotError(
                f"{key} makes the module {model.module!r}, but {reason};"
                f" give the model another name with the key 'module'"
            )


def name_problem(module: str) -> str:
    """Say why no module can have this name; return nothing if one can."""
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
