"""The operators of ONNX that can be imported. Each is a small function in ``mlaot/onnx/ops/``, grouped by family.

``@operator("Flatten")`` registers a function of the node's inputs, which returns the output or a tuple of outputs. Its
keyword-only parameters are attributes of the node, with their defaults. If its first parameter is called ``use``, it
also gets the node itself. It is written with functions of NumPy and mlaot, so that values that depend only on constants
are computed while importing, and all else is traced. ``since`` is the first opset for which a function is valid. Only
functions with ``symbolic`` get expressions of named dims; others get traced integers. Only functions with ``coded`` get
``Coded`` arrays, whose dtypes only ONNX has. Only functions with ``labels`` get values that are selected from labels
when the model runs (``Strings``, ``Maps``).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any

Function = Callable[..., Any]
ML = "ai.onnx.ml"
TRAINING = "ai.onnx.preview.training"
MICROSOFT = "com.microsoft"  # of onnxruntime
BEYOND = ("SimplifiedLayerNormalization",)  # what onnxruntime adds to ONNX's own domain


@dataclass(frozen=True)
class Operator:
    """One operator of a domain, from an opset on."""

    function: Function
    since: int
    symbolic: bool
    coded: bool
    labels: bool


OPERATORS: dict[tuple[str, str], list[Operator]] = {}


def operator(
    *names: str,
    domain: str = "",
    since: int = 1,
    symbolic: bool = False,
    coded: bool = False,
    labels: bool = False,
) -> Callable[[Function], Function]:
    """Register a function under the names of one or several operators."""

    def enter(function: Function) -> Function:
        for name in names:
            versions = OPERATORS.setdefault((domain, name), [])
            assert all(o.since != since for o in versions), f"{name} is entered twice"
            versions.append(Operator(function, since, symbolic, coded, labels))
            versions.sort(key=lambda o: o.since)
        return function

    return enter


def operators(functions: Mapping[str, Function], domain: str = "", symbolic: bool = False) -> None:
    """Register the functions of a table under their names."""
    for name, function in functions.items():
        operator(name, domain=domain, symbolic=symbolic)(function)


def find(domain: str, name: str, opset: int) -> Operator | None:
    """Find the operator of an opset, if it can be imported."""
    versions = [o for o in OPERATORS.get((domain, name), ()) if o.since <= opset]
    return versions[-1] if versions else None


@cache
def parameters(function: Function) -> tuple[bool, dict[str, Any]]:
    """Return whether an operator's function takes the node, and its attributes with their defaults."""
    if not isinstance(function, FunctionType):  # a function of NumPy's
        return False, {}
    signature = inspect.signature(function).parameters
    attributes = {p.name: p.default for p in signature.values() if p.kind is p.KEYWORD_ONLY}
    return next(iter(signature), "") == "use", attributes
