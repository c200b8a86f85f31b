"""A project's model: what its settings name is loaded, then traced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mlaot.attributes import attribute
from mlaot.errors import MlaotError, VariableError
from mlaot.frontend.scalar.declare import declare_graph, declare_module
from mlaot.frontend.scalar.parameters import is_value
from mlaot.frontend.trace.declaration import Declaration, Traced
from mlaot.interpreter import undisturbed
from mlaot.settings import Model, Settings
from mlaot.stages import stage


def load_model(settings: Settings, model: Model) -> Any:
    """The declared model: an attribute of a module, or what a file or another library's model becomes.

    The source folder must be on ``sys.path``.
    """
    with stage(f"importing {model.declared}"):
        match model.kind:
            case "onnx":
                from mlaot.onnx.declare import declared
            case "sklearn":
                from mlaot.sklearn import declared
            case "torch":
                from mlaot.torch import declared
            case _:
                return attribute(settings, model, "model")
        return declared(settings, model, attribute(settings, model, "sample") if model.sample else None)


def load_sample(settings: Settings, model: Model, declared: Any) -> Any:
    """Inputs of the model, where it has a sample: one that its settings name, or that another library's model has."""
    if model.kind == "model" and model.sample:
        return attribute(settings, model, "sample")
    return declared.sample if isinstance(declared, Declaration) else None


@contextmanager
def located(declared: Any, model: Model) -> Iterator[None]:
    """Errors that come from no line of the user's code name the one where the model is declared, or at least it."""
    try:
        yield
    except VariableError:
        raise
    except MlaotError as error:
        place = declared.place if isinstance(declared, Declaration) else ""
        error.place = error.place or place or f"{model.declared}: "
        raise


def trace(model: Any) -> Traced:
    """The graph of whatever a user may name as a model: a declaration, a network, a graph of values."""
    if not isinstance(model, Declaration):
        model = declare_graph(model) if is_value(model) or isinstance(model, list | tuple) else declare_module(model)
    with stage("tracing"), undisturbed():
        traced: Traced = model.trace()
    return traced
