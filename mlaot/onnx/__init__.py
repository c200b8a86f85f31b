"""Models in ONNX files: ``mlaot.onnx.load("model.onnx")`` returns a model like any other.

It needs the package ``onnx``.
"""

from importlib import import_module
from typing import Any

from mlaot.errors import MlaotError

try:
    import onnx as _  # noqa: F401
except ModuleNotFoundError:
    raise MlaotError("mlaot.onnx needs the package onnx to read a file: pip install onnx") from None

from mlaot.onnx.declare import declare_from_settings as declare_from_settings
from mlaot.onnx.declare import load as load
from mlaot.settings import AtMost as AtMost

__all__ = ["AtMost", "Backend", "declare_from_settings", "load"]


def __getattr__(name: str) -> Any:
    """Return ``Backend``, which compiles, when it is asked for: a front end knows nothing of what comes after it."""
    if name == "Backend":
        return import_module("mlaot.onnx.backend").Backend
    raise AttributeError(f"module 'mlaot.onnx' has no attribute {name!r}")
