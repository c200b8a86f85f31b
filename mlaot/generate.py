"""The compiler from top to bottom, from settings to files. Read this file first.

settings --open_model--> declaration --trace--> Traced --passes--> Module --lower--> Program --program_files--> files
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from mlaot import passes
from mlaot.files import Files, program_files, python_files, runtime_files, write
from mlaot.isolation import pause_collection
from mlaot.loading import open_model, session_files, trace
from mlaot.lower.lower import lower
from mlaot.lower.program import Program
from mlaot.printing.cmake import cmake_files, flag_files
from mlaot.report.build import add_golden_vectors, add_metadata, dump, report_files
from mlaot.report.nan import warn_of_nan
from mlaot.settings import WEIGHTS, ModelSettings, Settings
from mlaot.settings.options import DEFAULTS, Options
from mlaot.settings.tuned import Tuned, read_tuned
from mlaot.stages import LOWERING, PRINTING, stage

Result = TypeVar("Result")
Use = Callable[[Program], Result]


def generate(settings: Settings, project: Path, out: Path, *, python: bool = False) -> None:
    """Write the C, the stubs and the CMake of every model of ``settings`` below ``out``.

    With ``python`` also plain Python.
    """
    if settings.runtime:
        write(runtime_files(settings.runtime), out / settings.runtime)
    models = [generate_module(settings, model, project, out / model.module, python=python) for model in settings.models]
    write(session_files(settings, project), out)
    write(cmake_files(replace(settings, models=tuple(models))), out)


def generate_module(
    settings: Settings, model: ModelSettings, project: Path, out: Path, *, python: bool = False
) -> ModelSettings:
    """Write the files of one model into ``out``.

    Return the model's settings with the place chosen for its ``weights``.
    """

    def files_of(program: Program) -> Files:
        return {**program_files(program), **(python_files(program) if python else {})}

    files = compile_for(settings, model, files_of, read_tuned(project), golden=True)
    write(files | flag_files(model, settings.isas), out)
    report_files(settings, model, files)
    for name in {WEIGHTS, model.weights_file, f"{model.stem}.py"} - files.keys():  # left by a build of another kind
        (out / name).unlink(missing_ok=True)
    return replace(model, weights="file" if model.weights_file in files else "inside")


def generate_python(settings: Settings, models: Iterable[ModelSettings], out: Path) -> None:
    """Write models as plain Python below ``out``, each at its path in the package: ``digits/nn.py``."""
    for model in models:
        write(compile_for(settings, model, python_files, golden=True), out.joinpath(*model.package.split(".")))


def compile_for(
    settings: Settings, model: ModelSettings, use: Use[Result], tuned: Tuned | None = None, golden: bool = False
) -> Result:
    """Compile a model and return ``use`` of its program. Errors, also those of ``use``, name the line of the model."""
    with open_model(settings, model) as (declared, options, sample), pause_collection():
        program = compile_model(declared, model.module, options, sample=sample, tuned=tuned, golden=golden)
        with stage(PRINTING):
            return use(replace(program, module=replace(program.module, version=settings.version)))


def compile_model(
    model: Any,
    module: str,
    options: Options = DEFAULTS,
    *,
    sample: Any = None,
    tuned: Tuned | None = None,
    golden: bool = False,
    watch: passes.Watch = passes.unwatched,
) -> Program:
    """Compile a declared model to its program, with the schedules ``tuned``, and with golden vectors if ``golden``.

    For ``watch`` see ``passes.run``.
    """
    with pause_collection():
        traced = trace(model)
        warn_of_nan(traced, getattr(model, "place", "") or f"{module}: ")
        graphs = passes.run(module, traced, options, sample=sample, watch=watch)
        with stage(LOWERING):
            program = add_metadata(lower(graphs), graphs)
        dump(program)
        if golden:
            program = add_golden_vectors(program, graphs, model)
        return replace(program, module=replace(program.module, tuned=tuned or {}))
