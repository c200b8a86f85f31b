"""Load the object that a key of the settings names by ``module:attribute`` from the user's code."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from mlaot.errors import MlaotError, did_you_mean
from mlaot.isolation import isolate
from mlaot.settings import FILE, ModelSettings, Settings, is_package
from mlaot.settings.tables import table_of


def load_attribute(settings: Settings, model: ModelSettings, name: str) -> Any:
    """Return the object that a key of a model's settings names by ``module:attribute``."""
    target = getattr(model, name)
    module_name, _, path = target.partition(":")
    key = f"key {name!r} in {table_of(model.name)} of {FILE}" if model.name else "the model asked for"
    where = f"{key} is {target!r}"
    try:
        with isolate():
            value: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        corrected = target.replace(".py:", ":").removeprefix(f"{settings.source.replace('/', '.')}.")
        hint = f"; did you mean {corrected!r}?" if corrected != target else did_you_mean_module(error.name, settings)
        raise MlaotError(f"no module {error.name!r} in folder {settings.source!r}; {where}{hint}") from None
    except KeyError as error:
        if error.args != (module_name,) or module_name in sys.modules:
            raise
        raise MlaotError(f"the module {module_name!r} took itself out of sys.modules; {where}") from None
    if file := hidden_file(value, module_name, settings.project / settings.source):
        raise MlaotError(f"{where}, but {file} is hidden by another module of that name; give the file another name")
    for part in path.split("."):
        if not hasattr(value, part):
            names = [name for name in dir(value) if not name.startswith("_")]
            hint = did_you_mean(part, names)
            raise MlaotError(f"{module_name!r} has no attribute {part!r}; {where}{hint}")
        value = getattr(value, part)
    return value


def hidden_file(module: Any, name: str, source: Path) -> str:
    """Return the project's file that an imported module of the same name hides, or None if it is not hidden."""
    for path in (Path(*name.split(".")).with_suffix(".py"), Path(*name.split("."), "__init__.py")):
        if (source / path).is_file():
            origin = getattr(module, "__file__", None)
            is_same = isinstance(origin, str) and Path(origin).exists() and Path(origin).samefile(source / path)
            return "" if is_same else path.as_posix()
    return ""


def did_you_mean_module(name: str, settings: Settings) -> str:
    """Return a hint at a module with a name like ``name``, which does not exist."""
    *packages, last = name.split(".")
    folder = settings.project.joinpath(settings.source, *packages)
    paths = folder.iterdir() if folder.is_dir() else ()
    modules = [path.stem for path in paths if path.suffix == ".py" or is_package(path)]
    return did_you_mean(last, modules)
