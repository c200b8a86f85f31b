"""SciPy's softmax, log_softmax and logsumexp, which work on the numbers of arrays: traced while a trace is under way.

The ufuncs of ``scipy.special`` ask traced arrays what to do; these three are Python functions that do not. For the time
of a trace their code is another, so that they are found under whatever name a model has imported them: it hands traced
arrays to mlaot's functions and everything else to SciPy's own code.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

from mlaot.errors import MlaotError
from mlaot.frontend.numpy.activations import log_softmax, logsumexp, softmax
from mlaot.frontend.trace.context import WHILE_TRACING
from mlaot.frontend.trace.protocols import is_traced


def _softmax(x, axis=None):  # type: ignore[no-untyped-def]
    return __import__("mlaot.frontend.numpy.scipy_special", fromlist=["call"]).call("softmax", x, axis=axis)


def _log_softmax(x, axis=None):  # type: ignore[no-untyped-def]
    return __import__("mlaot.frontend.numpy.scipy_special", fromlist=["call"]).call("log_softmax", x, axis=axis)


def _logsumexp(a, axis=None, b=None, keepdims=False, return_sign=False):  # type: ignore[no-untyped-def]
    options = {"axis": axis, "b": b, "keepdims": keepdims, **({"return_sign": True} if return_sign else {})}
    return __import__("mlaot.frontend.numpy.scipy_special", fromlist=["call"]).call("logsumexp", a, **options)


STANDING_IN: dict[str, Callable[..., Any]] = {
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "logsumexp": _logsumexp,
}
FUNCTIONS: dict[str, Callable[..., Any]] = {"softmax": softmax, "log_softmax": log_softmax, "logsumexp": logsumexp}
_replaced: dict[FunctionType, CodeType] = {}


@contextmanager
def traceable() -> Iterator[None]:
    """Let the three functions take traced arrays, where SciPy is in use and they are what they have been so far."""
    special = sys.modules.get("scipy.special")
    begun = []
    for name, stand_in in STANDING_IN.items():
        function = getattr(special, name, None)
        if isinstance(function, FunctionType) and function not in _replaced and not function.__code__.co_freevars:
            _replaced[function] = function.__code__
            function.__code__ = stand_in.__code__
            begun.append(function)
    try:
        yield
    finally:
        for function in begun:
            function.__code__ = _replaced.pop(function)


def call(name: str, x: Any, **options: Any) -> Any:
    """mlaot's function for traced arrays, SciPy's own code for others."""
    if any(map(is_traced, (x, *options.values()))):
        if "return_sign" in options:
            raise MlaotError(f"scipy.special.{name} with return_sign= cannot be traced")
        return FUNCTIONS[name](x, **options)
    function = getattr(sys.modules["scipy.special"], name)
    own = FunctionType(_replaced[function], function.__globals__, name, function.__defaults__)
    return own(x, **options)


WHILE_TRACING.append(traceable)
