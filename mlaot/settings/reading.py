"""Read the settings of a project from its pyproject.toml, or for the target of a command."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

from mlaot.errors import MlaotError, did_you_mean
from mlaot.schedule.machine import CHOICES
from mlaot.settings import (
    BUDGET,
    DIM,
    FILE,
    KINDS,
    MODEL,
    ONNX,
    ONNXRUNTIME,
    AtMost,
    Budget,
    Lora,
    ModelSettings,
    OnnxRuntime,
    ProjectBudget,
    Settings,
    Size,
    is_package,
)
from mlaot.settings.keys import fits, keys_of, schema_of
from mlaot.settings.licences import find_licence
from mlaot.settings.names import check_modules
from mlaot.settings.onnx_files import find_onnx_files
from mlaot.settings.tables import check_table, read_pyproject, read_table, table_of, value_error
from mlaot.stages import SETTINGS, stage

PROJECT = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,198}[A-Za-z0-9])?"  # PEP 508


def load_settings(project: Path) -> Settings:
    """Read and check ``[tool.mlaot]`` of the project; every mistake is a ``MlaotError`` of one line."""
    with stage(SETTINGS):
        return check_settings(read_pyproject(project), project)


def check_settings(pyproject: dict[str, Any], project: Path) -> Settings:
    """Check ``[tool.mlaot]`` of a pyproject.toml."""
    tool = check_table(pyproject.get("tool", {}), "[tool]").get("mlaot")
    if tool is None:
        similar = difflib.get_close_matches("mlaot", pyproject.get("tool", {}), n=1)
        hint = f", only [tool.{similar[0]}]" if similar else ", only [mlaot]" if "mlaot" in pyproject else ""
        raise MlaotError(
            f"no [tool.mlaot] in {FILE}{hint}; expected a table [tool.mlaot.models.<name>] with a key 'model'"
        )
    settings = read_settings(pyproject, tool, project)
    if not settings.models:
        raise MlaotError(f"no model in {FILE}; expected a table [tool.mlaot.models.<name>] with a key 'model'")
    check_modules(settings, project)
    return settings


def runtime_of(project: Path) -> str:
    """Return the module with the runtime of all models of a project, or an empty string."""
    if not (project / FILE).is_file():
        return ""
    tool = check_table(read_pyproject(project).get("tool", {}), "[tool]").get("mlaot", {})
    return str(check_table(tool, "[tool.mlaot]").get("runtime", ""))


def load_module(
    project: Path,
    module: str,
    *,
    model: str | None = None,
    source: str | None = None,
    deterministic: bool = False,
    c_library: bool = False,
    others: Iterable[str] = (),
) -> tuple[Settings, ModelSettings]:
    """Return settings and model of one extension module that command-line options describe.

    The arguments override ``[tool.mlaot]``. The project may lack this table, or a pyproject.toml. ``others`` are
    modules that another tool builds; their models have no ``name``.
    """
    if not fits(module, schema_of(keys_of(ModelSettings)["module"])):
        raise MlaotError(f"--module must be a dotted module name, such as 'digits.nn'; got {module!r}")
    if model is not None and not re.fullmatch(f"{MODEL}|{ONNX}", model):
        raise MlaotError(f"--model must be 'module:attribute', such as 'model:digits', or an ONNX file; got {model!r}")
    pyproject = read_pyproject(project) if (project / FILE).is_file() else {}
    pyproject.setdefault("project", {}).setdefault("name", module.partition(".")[0])
    tool = check_table(pyproject.setdefault("tool", {}), "[tool]").setdefault("mlaot", {})
    if source is not None:
        folder = (project / source).resolve()
        if not folder.is_dir() or not folder.is_relative_to(project.resolve()):
            raise MlaotError(f"--source-dir must be a folder inside {project.resolve()}; got {source!r}")
        check_table(tool, "[tool.mlaot]")["source"] = source
    settings = read_settings(pyproject, tool, project)
    declared = next((declared for declared in settings.models if declared.module == module), None)
    if declared is None and model is None:
        hint = did_you_mean(module, [other.module for other in settings.models])
        raise MlaotError(f"no --model is given, and no [tool.mlaot.models.<name>] of {FILE} makes {module!r}{hint}")
    declared = declared or ModelSettings("", module=module, deterministic=settings.deterministic)
    # A build tool must know all files beforehand.
    weights = "inside" if declared.weights == "auto" else declared.weights
    selected = replace(
        declared,
        deterministic=declared.deterministic or deterministic,
        c_library=declared.c_library or c_library,
        weights=weights,
    )
    if model is not None:
        selected = replace(selected, name="", **{**dict.fromkeys(KINDS, ""), **declaration(model)})
    others = tuple(others)
    if settings.runtime and others and settings.runtime not in others:
        raise MlaotError(
            f"{module!r} shares the runtime {settings.runtime!r}, which nothing builds; add"
            f" mlaot_add_module({settings.runtime.rpartition('.')[2]} MODULE {settings.runtime}) to CMakeLists.txt"
        )
    models = {other: ModelSettings("", module=other) for other in others if other != settings.runtime}
    models |= {other.module: other for other in settings.models} | {module: selected}
    settings = replace(settings, models=tuple(models.values()))
    check_modules(settings, project)
    return settings, selected


def settings_of(target: str) -> Settings:
    """Return settings for one bare ``module:attribute`` or ONNX file in the current folder.

    Modules are looked up in the source folder of the project in that folder, if there is one.
    """
    if not re.fullmatch(f"{MODEL}|{ONNX}", target):
        raise MlaotError(f"expected module:attribute or an ONNX file, got {target!r}")
    project = Path()
    pyproject = read_pyproject(project) if (project / FILE).is_file() else {}
    pyproject = {**pyproject, "project": {"name": "model", **check_table(pyproject.get("project", {}), "[project]")}}
    tool = check_table(check_table(pyproject.get("tool", {}), "[tool]").get("mlaot", {}), "[tool.mlaot]")
    tool = {name: value for name, value in tool.items() if name not in ("models", "onnxruntime")}
    settings = read_settings(pyproject, tool, project)
    top = re.split(r"[.:]", target)[0]
    folders = (
        folder for folder in (settings.source, ".") for name in (f"{top}.py", top) if (project / folder / name).exists()
    )
    settings = replace(settings, source=next(folders, settings.source))
    model = ModelSettings("", module="model.nn", deterministic=settings.deterministic, **declaration(target))
    return replace(settings, models=(model,), runtime="")


def declaration(target: str) -> dict[str, Any]:
    """Return the key ``model`` for a ``module:attribute``, or the key ``onnx`` for a file."""
    return {"onnx" if re.fullmatch(ONNX, target) else "model": target}


def read_settings(pyproject: dict[str, Any], tool: Any, project: Path) -> Settings:
    """Read ``[tool.mlaot]``, without a check of whether it has models, and of their modules."""
    source = "src" if (project / "src").is_dir() else "."
    values = read_table(Settings, tool, "[tool.mlaot]", besides=("models", "budget", "onnxruntime"), source=source)
    values["isa"] = tuple(isa for isa in CHOICES if isa in values["isa"])
    values["source"] = folder_in_project(project, values["source"])
    values["name"] = read_name(pyproject, project / values["source"])
    tables = check_table(tool.get("models", {}), "[tool.mlaot.models]")
    build = check_table(pyproject.get("build-system", {}), "[build-system]")
    budget = ProjectBudget(**read_table(ProjectBudget, tool.get("budget", {}), BUDGET))
    onnxruntime = read_onnxruntime(tool["onnxruntime"], values["name"], project) if "onnxruntime" in tool else None
    models = [read_model(name, table, values, budget) for name, table in tables.items()]
    models = [find_licence(model, pyproject["project"], project) for model in models]
    return Settings(
        **values,
        models=(*models, *(models_of_files(onnxruntime, models, values, budget) if onnxruntime else ())),
        budget=budget,
        onnxruntime=onnxruntime,
        project=project,
        backend=build.get("build-backend", "setuptools.build_meta:__legacy__"),
        version=str(pyproject.get("project", {}).get("version", "")),
    )


def read_name(pyproject: dict[str, Any], source: Path) -> str:
    """Return the project's name as a package name: ``My-Digits`` is ``my_digits``.

    The package keeps its capitals if there is a folder of that name.
    """
    name = check_table(pyproject.get("project", {}), "[project]").get("name")
    if name is None:
        raise MlaotError(f"no key 'name' in [project] of {FILE}; expected the project's name, such as 'digits'")
    if not isinstance(name, str) or not re.fullmatch(PROJECT, name):
        raise MlaotError(f"key 'name' in [project] of {FILE} must be a name such as 'digits'; got {name!r}")
    package = re.sub(r"[-_.]+", "_", name)
    return package if is_package(source / package) else package.lower()


def folder_in_project(project: Path, source: str) -> str:
    """Return the source folder relative to the project, in which it must lie."""
    root = project.resolve()
    try:
        folder = (project / source).resolve()
        if folder.is_dir() and folder.is_relative_to(root):
            return folder.relative_to(root).as_posix()
    except (OSError, ValueError):  # what no file can be called
        pass
    raise value_error(keys_of(Settings)["source"], "[tool.mlaot]", source)


def read_model(name: str, table: Any, project: Mapping[str, Any], budget: Budget) -> ModelSettings:
    """Read one ``[tool.mlaot.models.<name>]``.

    A missing key has its value in ``[tool.mlaot]`` if it is set there. The same holds for the keys of its budget.
    """
    inherited = {key: project[key] for key in keys_of(ModelSettings) if key in project}
    where = table_of(name)
    default = f"{project['name']}.{name}"
    values = read_table(ModelSettings, table, where, besides=("budget", "dims", "lora"), module=default, **inherited)
    defaults = {key: getattr(budget, key) for key in keys_of(Budget)}
    own = read_table(Budget, table.get("budget", {}), table_of(name, "budget"), **defaults)
    kinds = [kind for kind in KINDS if values[kind]]
    if not kinds:
        expected, other_kinds = keys_of(ModelSettings)["model"].metadata["expected"], " or ".join(map(repr, KINDS[1:]))
        raise MlaotError(f"no key 'model' in {where} of {FILE}; expected {expected}, or a key {other_kinds}")
    if len(kinds) > 1:
        kinds_text = " and ".join(f"a key {kind!r}" for kind in kinds)
        raise MlaotError(f"{where} of {FILE} has {kinds_text}; a model is declared by one")
    for key, takers in (("tokenizer", ("llm", "onnx")), ("slides", ("llm",))):
        if values[key] and kinds[0] not in takers:
            raise MlaotError(f"key {key!r} in {where} of {FILE} is for models of {' and '.join(takers)}; leave it out")
    dims = read_dims(table.get("dims", {}), name, kind=kinds[0])
    if missing := [isa for isa in own["isa"] if isa not in project["isa"]]:
        raise MlaotError(
            f"budget.isa of {where} in {FILE} has {missing[0]!r}, for which nothing is compiled: key 'isa' in"
            f" [tool.mlaot] is {list(project['isa'])}"
        )
    lora = read_lora(table, name) if "lora" in table else None
    return ModelSettings(name, **values, dims=dims, budget=Budget(**own), lora=lora)


def read_onnxruntime(table: Any, name: str, project: Path) -> OnnxRuntime:
    """Read ``[tool.mlaot.onnxruntime]``, and find its files."""
    values = read_table(OnnxRuntime, table, ONNXRUNTIME, module=f"{name}.ort")
    return OnnxRuntime(**{**values, "files": find_onnx_files(project, values["files"])})


def models_of_files(
    onnxruntime: OnnxRuntime, models: Iterable[ModelSettings], project: Mapping[str, Any], budget: Budget
) -> Iterator[ModelSettings]:
    """Yield models of the files that none of ``models`` uses: ``digits.ort_det`` for ``models/det.onnx``.

    If several files have the same name, the names of the modules include their folders: ``digits.ort_small_det``.
    """
    declared = {PurePath(model.onnx).as_posix() for model in models if not model.tokenizer}
    names = Counter(PurePath(file).name for file in onnxruntime.files)
    for file in (file for file in onnxruntime.files if file not in declared):
        path = PurePath(file).with_suffix("")
        stem = path.name if names[PurePath(file).name] == 1 else "_".join(path.parts)
        module = f"{onnxruntime.module}_{re.sub(r'[^A-Za-z0-9_]', '_', stem)}"
        yield read_model(stem, {"onnx": file, "module": module}, project, budget)


def read_lora(table: Mapping[str, Any], model: str) -> Lora:
    """Read ``[tool.mlaot.models.<name>.lora]``; raise ``MlaotError`` for keys that cannot be combined with it."""
    lora = Lora(**read_table(Lora, table["lora"], table_of(model, "lora")))
    for key in ("frozen", "quantize"):
        if table.get(key, True) is not True:
            raise MlaotError(
                f"key {key!r} in {table_of(model)} of {FILE} cannot be combined with lora, which trains"
                " adapters beside frozen weights; delete that key"
            )
    return lora


def read_dims(table: Any, model: str, *, kind: str) -> tuple[tuple[str, Size], ...]:
    """Read ``[tool.mlaot.models.<name>.dims]``: sizes of dimensions that another library's model leaves open."""
    where = table_of(model, "dims")
    for name, size in check_table(table, where).items():
        if kind == "model":
            raise MlaotError(
                f"{where} of {FILE} is for models of {', '.join(KINDS[1:])}; give {name!r} its size in the model itself"
            )
        is_bound = kind == "onnx" and isinstance(size, dict) and size.keys() == {"most"}
        if not fits(size["most"] if is_bound else size, DIM):
            bound = ", or { most = 100 } of a length that the data decide" if kind == "onnx" else ""
            raise MlaotError(f"key {name!r} in {where} of {FILE} must be a size such as 1{bound}; got {size!r}")
    return tuple((name, AtMost(**size) if isinstance(size, dict) else size) for name, size in table.items())
