"""What a key of the settings names by ``module:attribute``, out of the user's code."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from mlaot.errors import MlaotError, did_you_mean
from mlaot.interpreter import undisturbed
from mlaot.settings import FILE, Model, Settings, is_package
from mlaot.settings.tables import table_of


def attribute(settings: Settings, model: Model, name: str) -> Any:
    """What a key of a model names by ``module:attribute``."""
    target = getattr(model, name)
    module_name, _, path = target.partition(":")
    key = f"key {name!r} in {table_of(model.name)} of {FILE}" if model.name else "the model asked for"
    where = f"{key} is {target!r}"
    try:
        with undisturbed():
            found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        likely = target.replace(".py:", ":").removeprefix(f"{settings.source.replace('/', '.')}.")
        hint = f"; did you mean {likely!r}?" if likely != target else did_you_mean_module(error.name, settings)
        raise MlaotError(f"no module {error.name!r} in folder {settings.source!r}; {where}{hint}") from None
    except KeyError as error:
        if error.args != (module_name,) or module_name in sys.modules:
            raise
        raise MlaotError(f"the module {module_name!r} took itself out of sys.modules; {where}") from None
    if hidden := is_hidden(found, module_name, settings.project / settings.source):
        raise MlaotError(f"{where}, but {hidden} is hidden by another module of that name; give the file another name")
    for part in path.split("."):
        if not hasattr(found, part):
            known = [name for name in dir(found) if not name.startswith("_")]
            hint = did_you_mean(part, known)
            raise MlaotError(f"{module_name!r} has no attribute {part!r}; {where}{hint}")
        found = getattr(found, part)
    return found


def is_hidden(module: Any, name: str, source: Path) -> str:
    """The file of the project that Python would have taken for a module, had another not come first."""
    for path in (Path(*name.split(".")).with_suffix(".py"), Path(*name.split("."), "__init__.py")):
        if (source / path).is_file():
            origin = getattr(module, "__file__", None)
            is_it = isinstance(origin, str) and Path(origin).exists() and Path(origin).samefile(source / path)
            return "" if is_it else path.as_posix()
    return ""


def did_you_mean_module(name: str, settings: Settings) -> str:
    """A hint at a module of the project beside the one of that name, which there is none of."""
    *packages, last = name.split(".")
    folder = settings.project.joinpath(settings.source, *packages)
    found = folder.iterdir() if folder.is_dir() else ()
    known = [path.stem for path in found if path.suffix == ".py" or is_package(path)]
    return did_you_mean(last, known)
