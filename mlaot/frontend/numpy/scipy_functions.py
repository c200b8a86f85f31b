"""SciPy's functions that are no ufuncs, such as softmax or ``norm.cdf``, for traced arrays.

The ufuncs of ``scipy.special`` dispatch to traced arrays; these Python functions do not. So a trace replaces the code
of the function objects, which works whatever name a model has imported them under. The replacement calls mlaot's
functions for traced arrays, and SciPy's own code for everything else.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.numpy.activations import log_softmax, logsumexp, softmax
from mlaot.frontend.numpy.special import ndtr, ndtri
from mlaot.frontend.trace.context import WHILE_TRACING
from mlaot.frontend.trace.promotion import as_node
from mlaot.frontend.trace.protocols import is_traced
from mlaot.frontend.trace.tensor import Tensor, as_tensor


def _softmax(x, axis=None):  # type: ignore[no-untyped-def]
    return __import__("mlaot.frontend.numpy.scipy_functions", fromlist=["call"]).call("softmax", x, axis=axis)


def _log_softmax(x, axis=None):  # type: ignore[no-untyped-def]
    return __import__("mlaot.frontend.numpy.scipy_functions", fromlist=["call"]).call("log_softmax", x, axis=axis)


def _logsumexp(a, axis=None, b=None, keepdims=False, return_sign=False):  # type: ignore[no-untyped-def]
    options = {"axis": axis, "b": b, "keepdims": keepdims, **({"return_sign": True} if return_sign else {})}
    return __import__("mlaot.frontend.numpy.scipy_functions", fromlist=["call"]).call("logsumexp", a, **options)


def _cdist(XA, XB, metric="euclidean", *, out=None, **options):  # type: ignore[no-untyped-def]
    options |= {} if out is None else {"out": out}
    return __import__("mlaot.frontend.numpy.scipy_functions", fromlist=["call"]).call(
        "cdist", XA, XB, metric, **options
    )


def _cdf(self, x, *args, **options):  # type: ignore[no-untyped-def]
    return __import__("mlaot.frontend.numpy.scipy_functions", fromlist=["call"]).call("cdf", self, x, *args, **options)


def _sf(self, x, *args, **options):  # type: ignore[no-untyped-def]
    return __import__("mlaot.frontend.numpy.scipy_functions", fromlist=["call"]).call("sf", self, x, *args, **options)


def _pdf(self, x, *args, **options):  # type: ignore[no-untyped-def]
    return __import__("mlaot.frontend.numpy.scipy_functions", fromlist=["call"]).call("pdf", self, x, *args, **options)


def _logpdf(self, x, *args, **options):  # type: ignore[no-untyped-def]
    return __import__("mlaot.frontend.numpy.scipy_functions", fromlist=["call"]).call(
        "logpdf", self, x, *args, **options
    )


def _ppf(self, q, *args, **options):  # type: ignore[no-untyped-def]
    return __import__("mlaot.frontend.numpy.scipy_functions", fromlist=["call"]).call("ppf", self, q, *args, **options)


def cdist(XA: Any, XB: Any, metric: str = "euclidean") -> Any:
    """Compute the distance of every row of one array from every row of another. The gradient at 0 is 0."""
    if metric not in ("euclidean", "sqeuclidean", "cityblock"):
        raise MlaotError(f"cdist: metric: euclidean, sqeuclidean and cityblock can be traced, got {metric!r}")
    x, y = (as_tensor(v).astype(np.float64) for v in (XA, XB))
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1]:
        raise MlaotError(f"cdist: expected two matrices with rows of one length, got {x.type} and {y.type}")
    step = np.expand_dims(x, 1) - y
    if metric == "cityblock":
        return np.sum(np.abs(step), axis=-1)
    square = np.sum(step * step, axis=-1)
    apart = square != 0
    return square if metric == "sqeuclidean" else np.where(apart, np.sqrt(np.where(apart, square, 1.0)), 0.0)


def _log_density(z: Any) -> Any:
    return -z * z / 2 - 0.5 * math.log(2 * math.pi)


# Methods of the normal distribution, of numbers measured in ``scale`` from ``loc``; ppf gives such a number.
NORMAL: dict[str, Callable[[Any], Any]] = {
    "cdf": lambda z: Tensor(ndtr(as_node(z))),
    "sf": lambda z: Tensor(ndtr(as_node(-z))),
    "pdf": lambda z: np.exp(-z * z / 2) / math.sqrt(2 * math.pi),
    "logpdf": _log_density,
    "ppf": lambda q: Tensor(ndtri(as_node(q))),
}


def _normal(name: str) -> Callable[..., Any]:
    def method(self: Any, x: Any, loc: Any = 0, scale: Any = 1) -> Any:
        if type(self).__name__ != "norm_gen":
            kind = type(self).__name__.removesuffix("_gen")
            raise MlaotError(
                f"scipy.stats.{kind}.{name} cannot be traced, only that of norm; "
                "write it with scipy.special's functions"
            )
        loc, scale = (as_tensor(v if is_traced(v) else np.asarray(v)) for v in (loc, scale))  # of 64 bits, as in SciPy
        z = as_tensor(x) if name == "ppf" else (as_tensor(x) - loc) / scale
        value = NORMAL[name](z.astype(np.float64))
        if name == "ppf":
            value = value * scale + loc
        elif name in ("pdf", "logpdf"):
            value = value / scale if name == "pdf" else value - np.log(scale)
        return np.where(scale > 0, value, np.nan)

    return method


# Where SciPy has what stands for another function, its code during a trace, and what that calls.
PLACES: dict[str, tuple[str, str]] = {
    **{name: ("scipy.special", name) for name in ("softmax", "log_softmax", "logsumexp")},
    "cdist": ("scipy.spatial.distance", "cdist"),
    **{name: ("scipy.stats", f"rv_continuous.{name}") for name in NORMAL},
}
STANDING_IN: dict[str, Callable[..., Any]] = {
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "logsumexp": _logsumexp,
    "cdist": _cdist,
    "cdf": _cdf,
    "sf": _sf,
    "pdf": _pdf,
    "logpdf": _logpdf,
    "ppf": _ppf,
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "softmax": softmax,
    "log_softmax": log_softmax,
    "logsumexp": logsumexp,
    "cdist": cdist,
    **{name: _normal(name) for name in NORMAL},
}
_replaced: dict[FunctionType, CodeType] = {}


def _original(name: str) -> Any:
    """Return SciPy's function, or None if SciPy is not imported."""
    module, path = PLACES[name]
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


@contextmanager
def traceable() -> Iterator[None]:
    """In the context, let these functions take traced arrays, if SciPy is imported and they have not been replaced."""
    begun = []
    for name, stand_in in STANDING_IN.items():
        function = _original(name)
        if isinstance(function, FunctionType) and function not in _replaced and not function.__code__.co_freevars:
            _replaced[function] = function.__code__
            function.__code__ = stand_in.__code__
            begun.append(function)
    try:
        yield
    finally:
        for function in begun:
            function.__code__ = _replaced.pop(function)


def call(name: str, *args: Any, **options: Any) -> Any:
    """Call mlaot's function for traced arrays, and SciPy's own code for others."""
    if any(map(is_traced, (*args, *options.values()))):
        for option in ("return_sign", "out"):
            if option in options:
                raise MlaotError(f"{'.'.join(PLACES[name])} with {option}= cannot be traced")
        return FUNCTIONS[name](*args, **options)
    function = _original(name)
    own = FunctionType(_replaced[function], function.__globals__, name, function.__defaults__)
    own.__kwdefaults__ = function.__kwdefaults__
    return own(*args, **options)


WHILE_TRACING.append(traceable)
