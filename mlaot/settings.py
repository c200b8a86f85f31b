"""``[tool.mlaot]`` of pyproject.toml as dataclasses: the first thing the compiler reads.

[tool.mlaot]
source = "src"                    # folder that holds the model module and the package; "src" if it exists, else "."
requires = ["torch"]              # what tracing needs besides mlaot
isa = ["base", "v3", "v4"]        # instruction sets compiled on x86-64; the CPU chooses at import
deterministic = false             # the same bits on every instruction set, with every compiler
threads = 1                       # how many threads a call may use unless told otherwise; 0: as many as CPUs

[tool.mlaot.models.nn]
model = "model:digits"            # module:attribute, imported at build time only
module = "digits.nn"              # the extension module; "<project>.<table key>" unless given
deterministic = true              # for this model
winograd = "F2"                   # largest tiles of 3x3 convolutions: "F2", "F4" (a digit less accurate) or "off"
"""

from __future__ import annotations

import difflib
import importlib
import json
import keyword
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mlaot.errors import MlaotError

ISAS = ("base", "v3", "v4")
WINOGRAD = ("F2", "F4", "off")
FILE = "pyproject.toml"
TUNED = "mlaot-tuned.json"  # what `mlaot tune` writes beside it
MODEL = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", re.ASCII)  # ASCII: the last part names C functions


@dataclass(frozen=True)
class Model:
    """One ``[tool.mlaot.models.<name>]``: where the model is declared and which extension module it becomes.

    ``name`` is empty where a command line says all that.
    ``deterministic``: the module gives the same bits on every instruction set.
    ``winograd``: the largest tiles in which 3x3 convolutions with fixed weights may be computed.
    """

    name: str
    model: str
    module: str
    deterministic: bool = False
    winograd: str = "F2"

    @property
    def package(self) -> str:
        """``digits`` of ``digits.nn``."""
        return self.module.rpartition(".")[0]

    @property
    def stem(self) -> str:
        """``nn`` of ``digits.nn``: the name of the C files and the prefix of their functions."""
        return self.module.rpartition(".")[2]


@dataclass(frozen=True)
class Settings:
    """What the project asks for. ``source`` is relative to the project; ``backend`` is its ``build-backend``."""

    name: str
    source: str
    requires: tuple[str, ...]
    isa: tuple[str, ...]
    models: tuple[Model, ...]
    backend: str = "mlaot.build"
    threads: int = 1

    def packages(self, project: Path) -> tuple[str, ...]:
        """The project's own packages that belong into the wheel, as folders relative to the project."""
        tops = dict.fromkeys([self.name, *(model.module.partition(".")[0] for model in self.models)])
        folders = ((Path(self.source) / top).as_posix() for top in tops)
        return tuple(folder for folder in folders if is_package(project / folder))

    def missing_packages(self, project: Path) -> tuple[str, ...]:
        """Package folders (``digits``, ``a/b``) that the project lacks: the wheel gets an empty __init__.py there."""
        wanted: dict[str, None] = {}
        for model in self.models:
            parts = model.package.split(".")
            wanted |= dict.fromkeys("/".join(parts[: i + 1]) for i in range(len(parts)))
        return tuple(folder for folder in wanted if not is_package(project / self.source / folder))


def is_package(folder: Path) -> bool:
    """A folder with Python code somewhere in it; one with data only is not a package."""
    return folder.is_dir() and any(folder.rglob("*.py"))


Tuned = Mapping[str, Mapping[str, str]]  # by instruction set and contraction: the schedule that was the fastest


def read_tuned(project: Path) -> Tuned:
    """The schedules beside the project's pyproject.toml, if there are any."""
    try:
        found = json.loads((project / TUNED).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise MlaotError(f"{TUNED} is not valid JSON: {error}; make it anew with mlaot tune, or delete it") from None
    parts = list(found.values()) if isinstance(found, dict) else [None]
    if not all(isinstance(part, dict) and all(isinstance(v, str) for v in part.values()) for part in parts):
        raise MlaotError(f"{TUNED} holds no schedules by instruction set; make it anew with mlaot tune, or delete it")
    return {str(isa): dict(part) for isa, part in found.items()}


def write_tuned(project: Path, tuned: Tuned) -> None:
    """Store schedules beside the project's pyproject.toml."""
    (project / TUNED).write_text(json.dumps(tuned, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def load_settings(project: Path) -> Settings:
    """Read and check ``[tool.mlaot]`` of the project; every mistake is a ``MlaotError`` of one line."""
    pyproject = read_pyproject(project)
    tool = pyproject.get("tool", {}).get("mlaot")
    if tool is None:
        raise MlaotError(f"no [tool.mlaot] in {FILE}; expected a table [tool.mlaot.models.<name>] with a key 'model'")
    check_table(tool, "[tool.mlaot]")
    settings = read_settings(pyproject, tool, project)
    if not settings.models:
        raise MlaotError(f"no model in {FILE}; expected a table [tool.mlaot.models.<name>] with a key 'model'")
    return settings


def load_module(
    project: Path,
    module: str,
    *,
    model: str | None = None,
    source: str | None = None,
    deterministic: bool = False,
    others: Iterable[str] = (),
) -> tuple[Settings, Model]:
    """Settings and model of one extension module, for those who say on a command line what makes it.

    What is given goes before ``[tool.mlaot]``, and the project need not have that, nor a pyproject.toml. ``others`` are
    modules that something else makes.
    """
    if not is_module(module):
        raise MlaotError(f"--module must be a dotted module name, such as 'digits.nn'; got {module!r}")
    if model is not None and not MODEL.fullmatch(model):
        raise MlaotError(f"--model must be 'module:attribute', such as 'model:digits'; got {model!r}")
    pyproject = read_pyproject(project) if (project / FILE).is_file() else {}
    pyproject.setdefault("project", {}).setdefault("name", module.partition(".")[0])
    tool = pyproject.setdefault("tool", {}).setdefault("mlaot", {})
    check_table(tool, "[tool.mlaot]")
    if source is not None:
        folder = (project / source).resolve()
        if not folder.is_dir() or not folder.is_relative_to(project.resolve()):
            raise MlaotError(f"--source-dir must be a folder inside {project.resolve()}; got {source!r}")
        tool["source"] = source
    settings = read_settings(pyproject, tool, project)
    found = next((found for found in settings.models if found.module == module), None)
    if found is None and model is None:
        hint = did_you_mean(module, [other.module for other in settings.models])
        raise MlaotError(f"no --model is given, and no [tool.mlaot.models.<name>] of {FILE} makes {module!r}{hint}")
    if found is None:
        found = Model("", "", module, read_flag(tool, "deterministic", "[tool.mlaot]", default=False))
    chosen = replace(found, deterministic=found.deterministic or deterministic)
    if model is not None:
        chosen = replace(chosen, name="", model=model)
    models = {other: Model("", "", other) for other in others} | {other.module: other for other in settings.models}
    settings = replace(settings, models=tuple((models | {module: chosen}).values()))
    check_modules(settings, project)
    return settings, chosen


def read_settings(pyproject: dict[str, Any], tool: dict[str, Any], project: Path) -> Settings:
    """``[tool.mlaot]`` of a pyproject.toml, checked but for whether it has models."""
    check_keys(tool, ("source", "requires", "isa", "deterministic", "threads", "models"), "[tool.mlaot]")
    models = tool.get("models", {})
    check_table(models, "[tool.mlaot.models]")
    source = read_source(tool, project)
    name = read_name(pyproject, project / source)
    deterministic = read_flag(tool, "deterministic", "[tool.mlaot]", default=False)
    settings = Settings(
        name=name,
        source=source,
        requires=read_strings(tool, "requires", "a list of requirements such as ['torch>=2']"),
        isa=read_isa(tool),
        models=tuple(read_model(key, value, name, deterministic) for key, value in models.items()),
        backend=pyproject.get("build-system", {}).get("build-backend", "setuptools.build_meta:__legacy__"),
        threads=read_threads(tool),
    )
    check_modules(settings, project)
    return settings


def settings_of(target: str) -> Settings:
    """Settings for one bare ``module:attribute`` in the current folder, without a pyproject.toml."""
    if not MODEL.fullmatch(target):
        raise MlaotError(f"expected module:attribute, got {target!r}")
    return Settings("model", ".", (), ISAS, (Model("nn", target, "model.nn"),))


def load_model(settings: Settings, model: Model) -> Any:
    """Import the model's module and return the attribute; the source folder must be on ``sys.path``."""
    module_name, _, path = model.model.partition(":")
    key = f"key 'model' in [tool.mlaot.models.{model.name}] of {FILE}" if model.name else "--model"
    where = f"{key} is {model.model!r}"
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise MlaotError(f"no module {error.name!r} in folder {settings.source!r}; {where}") from None
    for attribute in path.split("."):
        if not hasattr(found, attribute):
            known = [name for name in dir(found) if not name.startswith("_")]
            raise MlaotError(f"{module_name!r} has no attribute {attribute!r}; {where}{did_you_mean(attribute, known)}")
        found = getattr(found, attribute)
    return found


# The values come from TOML: their types are whatever the user wrote.


def read_pyproject(project: Path) -> dict[str, Any]:
    """The project's pyproject.toml."""
    path = project / FILE
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MlaotError(f"no {FILE} in {project}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise MlaotError(f"{FILE} is not valid TOML: {error}") from None


def read_name(pyproject: dict[str, Any], source: Path) -> str:
    """The project's name as a package name: ``My-Digits`` is ``my_digits``, unless the folder keeps its capitals."""
    name = pyproject.get("project", {}).get("name")
    if not isinstance(name, str):
        raise MlaotError(f"no key 'name' in [project] of {FILE}; expected the project's name, such as 'digits'")
    package = re.sub(r"[-_.]+", "_", name)
    return package if is_package(source / package) else package.lower()


def read_source(tool: dict[str, Any], project: Path) -> str:
    """The source folder, relative to the project."""
    source = tool.get("source", "src" if (project / "src").is_dir() else ".")
    if isinstance(source, str) and (project / source).is_dir():
        folder = (project / source).resolve()
        if folder.is_relative_to(project.resolve()):
            return folder.relative_to(project.resolve()).as_posix()
    raise wrong("source", "[tool.mlaot]", "a folder of the project such as 'src'", source)


def read_strings(tool: dict[str, Any], key: str, expected: str) -> tuple[str, ...]:
    """A list of strings; an absent key is an empty list."""
    value = tool.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise wrong(key, "[tool.mlaot]", expected, value)
    return tuple(value)


def read_isa(tool: dict[str, Any]) -> tuple[str, ...]:
    """The instruction sets in their own order; all unless the key is given."""
    expected = "a list out of 'base', 'v3', 'v4' with 'base' in it"
    names = read_strings(tool, "isa", expected) if "isa" in tool else ISAS
    if "base" not in names or not set(names) <= set(ISAS):
        raise wrong("isa", "[tool.mlaot]", expected, list(names))
    return tuple(name for name in ISAS if name in names)


def read_flag(table: dict[str, Any], key: str, where: str, *, default: bool) -> bool:
    """``true`` or ``false``."""
    value = table.get(key, default)
    if not isinstance(value, bool):
        raise wrong(key, where, "true or false", value)
    return value


def read_threads(tool: dict[str, Any]) -> int:
    """How many threads a call may use; one unless the key is given."""
    threads = tool.get("threads", 1)
    if isinstance(threads, bool) or not isinstance(threads, int) or threads not in range(2**31):
        raise wrong("threads", "[tool.mlaot]", "a number of threads, or 0 for as many as there are CPUs", threads)
    return threads


def read_model(key: str, table: Any, project_name: str, deterministic: bool) -> Model:
    """One ``[tool.mlaot.models.<key>]``; ``deterministic`` is what the project says."""
    where = f"[tool.mlaot.models.{key}]"
    check_table(table, where)
    check_keys(table, ("model", "module", "deterministic", "winograd"), where)
    if "model" not in table:
        raise MlaotError(f"no key 'model' in {where} of {FILE}; expected 'module:attribute', such as 'model:digits'")
    model = table["model"]
    if not isinstance(model, str) or not MODEL.fullmatch(model):
        raise wrong("model", where, "'module:attribute', such as 'model:digits'", model)
    module = table.get("module", f"{project_name}.{key}")
    if not isinstance(module, str) or not is_module(module):
        raise wrong("module", where, "a dotted module name, such as 'digits.nn'", module)
    winograd = table.get("winograd", "F2")
    if winograd not in WINOGRAD:
        raise wrong("winograd", where, "'F2', 'F4' or 'off'", winograd)
    flag = read_flag(table, "deterministic", where, default=deterministic)
    return Model(key, model, module, flag, winograd)


def is_module(name: str) -> bool:
    """A dotted name that Python can import."""
    return MODULE.fullmatch(name) is not None and not any(map(keyword.iskeyword, name.split(".")))


def check_modules(settings: Settings, project: Path) -> None:
    """No two extension modules in one place, and none where a Python file of the project is."""
    taken: dict[str, str] = {}
    for model in settings.models:
        where = f"[tool.mlaot.models.{model.name}]"
        if other := taken.get(model.module):
            raise MlaotError(f"{other} and {where} of {FILE} both make the module {model.module!r}")
        taken[model.module] = where
        place = f"{where} of {FILE}" if model.name else "--module"
        path = Path(settings.source, *model.module.split("."))
        for existing in (path.with_suffix(".py"), path / "__init__.py"):
            if (project / existing).is_file():
                raise MlaotError(
                    f"{place} makes the module {model.module!r}, but {existing.as_posix()} is there already;"
                    f" give the model another name with the key 'module'"
                )


def check_table(value: Any, where: str) -> None:
    """A TOML table where one must be."""
    if not isinstance(value, dict):
        raise MlaotError(f"{where} of {FILE} must be a table, got {value!r}")


def check_keys(table: dict[str, Any], known: tuple[str, ...], where: str) -> None:
    """No key but the known ones."""
    for key in table:
        if key not in known:
            hint = did_you_mean(key, known) or f"; the keys are {', '.join(known)}"
            raise MlaotError(f"unknown key {key!r} in {where} of {FILE}{hint}")


def wrong(key: str, where: str, expected: str, got: Any) -> MlaotError:
    """The error for a value of the wrong kind."""
    return MlaotError(f"key {key!r} in {where} of {FILE} must be {expected}; got {got!r}")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean 'model'?`` where something known is close enough, else nothing."""
    close = difflib.get_close_matches(word, known)
    close.sort(key=lambda name: sorted(name) != sorted(word))  # swapped letters are the likeliest slip
    return f"; did you mean {close[0]!r}?" if close else ""
