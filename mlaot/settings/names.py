"""What extension modules may be called: no two in one place, and names that every system takes."""

from __future__ import annotations

import keyword
from itertools import accumulate
from pathlib import Path

from mlaot.errors import MlaotError
from mlaot.settings import FILE, Settings
from mlaot.settings.tables import table_of

LONGEST = 200  # characters of a file's name, so that there is room for what is added to it
# What Windows takes for a device, also in front of an extension.
DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))}


def check_modules(settings: Settings, project: Path) -> None:
    """No two extension modules in one place, none where a Python file of the project is, and names that can be."""
    taken: dict[str, str] = {}
    spelled: dict[str, str] = {}
    made = [model.module for model in settings.models]
    for model in settings.models:
        where = table_of(model.name)
        place = f"{where} of {FILE}" if model.name else "--module"
        if (source := model.model.partition(":")[0]) and source in made:
            raise MlaotError(
                f"key 'model' in {where} of {FILE} is {model.model!r}, but {source!r} is a module to be made;"
                " declare the model in another one"
            )
        if other := taken.get(model.module):
            raise MlaotError(f"{other} and {where} of {FILE} both make the module {model.module!r}")
        taken[model.module] = where
        path = Path(settings.source, *model.module.split("."))
        files = () if bad_name(model.module) else (path.with_suffix(".py"), path / "__init__.py")
        existing = next(filter(lambda file: (project / file).is_file(), files), None)
        parent = next((module for module in made if model.module.startswith(f"{module}.")), None)
        names = accumulate(model.module.split("."), "{}.{}".format)
        twin = next((spelled[name.lower()] for name in names if spelled.setdefault(name.lower(), name) != name), None)
        if reason := (
            bad_name(model.module)
            or (existing and f"{existing.as_posix()} is there already")
            or (parent and f"{parent!r} is to be a module, not a package")
            or (twin and f"{twin!r} of another model differs in capitals only, which not every system tells apart")
        ):
            raise MlaotError(
                f"{place} makes the module {model.module!r}, but {reason};"
                f" give the model another name with the key 'module'"
            )


def bad_name(module: str) -> str:
    """Why no module can have this name; nothing if one can."""
    for part in module.split("."):
        if len(part) > LONGEST:
            return f"its name is longer than the {LONGEST} characters that every file system takes"
        if keyword.iskeyword(part):
            return f"{part!r} is a keyword of Python"
        if part.lower() in DEVICES:
            return f"Windows has no files named {part!r}"
        if not (part.isascii() and part.isidentifier()):
            return f"{part!r} is no name: it takes ASCII letters, digits and _"
    return ""
