"""Load the model that a project's settings name, and trace it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mlaot.adapters import lora
from mlaot.attributes import load_attribute
from mlaot.errors import MlaotError, VariableError
from mlaot.frontend.scalar.declare import declare_graph, declare_module
from mlaot.frontend.scalar.parameters import is_value
from mlaot.frontend.trace.declaration import Declaration, Traced
from mlaot.isolation import isolate
from mlaot.settings import ModelSettings, Settings
from mlaot.settings.options import Options
from mlaot.stages import IMPORTING, TRACING, stage, stages_of


def load_model(settings: Settings, model: ModelSettings) -> Any:
    """Return the declared model, with adapters if the settings ask for them.

    The source folder must be on ``sys.path``.
    """
    declared = load_declared(settings, model)
    return lora(declared, model.lora.rank, model.lora.alpha, model.lora.targets) if model.lora else declared


def load_declared(settings: Settings, model: ModelSettings) -> Any:
    """Return an attribute of a module, or the declaration of another library's model."""
    with stage(IMPORTING, detail=model.declared):
        match model.kind:
            case "llm":
                from mlaot.llm import declare_from_settings
            case "onnx":
                from mlaot.onnx.declare import declare_from_settings
            case "sklearn":
                from mlaot.sklearn import declare_from_settings
            case "torch":
                from mlaot.torch import declare_from_settings
            case _:
                return load_attribute(settings, model, "model")
        sample = load_attribute(settings, model, "sample") if model.sample else None
        return declare_from_settings(settings, model, sample)


def load_sample(settings: Settings, model: ModelSettings, declared: Any) -> Any:
    """Return the model's sample inputs, which the settings name or another library's model has, or None."""
    if model.kind == "model" and model.sample:
        return load_attribute(settings, model, "sample")
    return declared.sample if isinstance(declared, Declaration) else None


def session_files(settings: Settings, project: Path) -> dict[str, str]:
    """Return the files of the package that stands in for onnxruntime, if the settings ask for it."""
    if not settings.onnxruntime:
        return {}
    from mlaot.onnx.sessions import package_files

    return package_files(settings.onnxruntime.module, settings.onnx_models, project)


@contextmanager
def open_model(settings: Settings, model: ModelSettings) -> Iterator[tuple[Any, Options, Any]]:
    """Yield the declared model, its options and its sample; errors meanwhile name the line of the declaration."""
    with stages_of(model.module, [each.module for each in settings.models]):
        declared = load_model(settings, model)
        sample = load_sample(settings, model, declared)
        with locate_errors(declared, model):
            yield declared, settings.options(model), sample


@contextmanager
def locate_errors(declared: Any, model: ModelSettings) -> Iterator[None]:
    """Add the line of the model's declaration to errors that come from no line of the user's code."""
    try:
        yield
    except VariableError:
        raise
    except MlaotError as error:
        place = declared.place if isinstance(declared, Declaration) else ""
        error.place = error.place or place or f"{model.declared}: "
        raise


def trace(model: Any) -> Traced:
    """Return the graph of any kind of model: a declaration, a network, or a graph of values."""
    if not isinstance(model, Declaration):
        model = declare_graph(model) if is_value(model) or isinstance(model, list | tuple) else declare_module(model)
    with stage(TRACING), isolate():
        traced: Traced = model.trace()
    return traced
