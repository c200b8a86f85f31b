"""The attributes of mlaot for models: NumPy's functions and constants, and mlaot's own functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from types import SimpleNamespace
from typing import Any

import numpy as np

from mlaot.frontend.numpy import (
    applying,
    elementwise,
    histograms,
    nan_reductions,
    padding,
    products,
    reductions,
    series,
    shaping,
)
from mlaot.frontend.numpy.activations import (
    erf,
    erfc,
    erfinv,
    gelu,
    log_softmax,
    logsumexp,
    relu,
    sigmoid,
    silu,
    softmax,
    softplus,
)
from mlaot.frontend.numpy.conversion import as_array, astype, sparse, stop_gradient
from mlaot.frontend.numpy.creation import arange, eye, filled, one_hot, ones, zeros
from mlaot.frontend.numpy.indexing import gather, put_along_axis, scatter
from mlaot.frontend.numpy.sorting import top_k
from mlaot.frontend.numpy.trees import tree_ensemble
from mlaot.frontend.numpy.ufuncs import UFUNCS
from mlaot.frontend.numpy.windows import fold, window
from mlaot.frontend.trace.protocols import FUNCTIONS, NAMESPACE, Implementation, anything_traced, is_traced, plain, run
from mlaot.ir.types import BY_NUMPY, bf16

# Importing them fills ``FUNCTIONS``.
FAMILIES = (applying, elementwise, histograms, nan_reductions, padding, products, reductions, series, shaping)


def _special(name: str) -> Callable[..., Any]:
    """Return a function that traces a ufunc of ``scipy.special``."""

    def function(*args: Any) -> Any:
        import scipy.special

        ufunc = getattr(scipy.special, name)
        return inspect.unwrap(ufunc)(*map(_itself, args))  # the ufunc itself where SciPy looks for array namespaces

    function.__name__ = name
    return function


def _itself(value: Any) -> Any:
    return value if is_traced(value) else plain(value)


# The ufuncs of scipy.special that can be traced; SciPy looks here for those of an array API namespace.
SPECIAL = SimpleNamespace(
    **{name: _special(name) for name in UFUNCS if not isinstance(getattr(np, name, None), np.ufunc)}
    | {"erf": erf, "erfc": erfc, "erfinv": erfinv, "expit": sigmoid},
)
OWN: dict[str, Any] = {
    "arange": arange,
    "astype": astype,
    "asarray": lambda x, dtype=None, **_: as_array(x) if dtype is None else astype(x, dtype),
    "eye": eye,
    "fold": fold,
    "full": filled,
    "gather": gather,
    "gelu": gelu,
    "log_softmax": log_softmax,
    "logsumexp": logsumexp,
    "one_hot": one_hot,
    "ones": ones,
    "put_along_axis": put_along_axis,
    "relu": relu,
    "scatter": scatter,
    "sigmoid": sigmoid,
    "silu": silu,
    "softmax": softmax,
    "softplus": softplus,
    "sparse": sparse,
    "stop_gradient": stop_gradient,
    "top_k": top_k,
    "tree_ensemble": tree_ensemble,
    "window": window,
    "zeros": zeros,
} | {name: function for name, function in vars(SPECIAL).items() if not hasattr(np, name)}
CONSTANTS: dict[str, Any] = {
    "pi": np.pi,
    "e": np.e,
    "inf": np.inf,
    "nan": np.nan,
    "newaxis": None,
    "special": SPECIAL,
    "linalg": SimpleNamespace(**{n[7:]: getattr(np.linalg, n[7:], None) for n in FUNCTIONS if n.startswith("linalg.")}),
    "finfo": np.finfo,
    "iinfo": np.iinfo,
    **({"isdtype": np.isdtype} if hasattr(np, "isdtype") else {}),
    **{d.numpy: d for d in BY_NUMPY.values()},  # mlaot.float32 is mlaot.f32, so that mlaot.float32[3] is a type, too
    "bfloat16": bf16,
}


def _function(name: str, implementation: Implementation) -> Callable[..., Any]:
    """Return ``np.name`` as a function that accepts any traced argument.

    NumPy itself looks for the protocol in some arguments only: ``np.take`` only in the array.
    """
    function = getattr(np, name)

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if anything_traced(args, options):
            return run(f"mlaot.{name}", implementation, args, options)
        return function(*plain(args), **plain(options))

    return call


NAMESPACE |= CONSTANTS
NAMESPACE |= {name: _function(name, function) for name, function in FUNCTIONS.items() if hasattr(np, name)}
NAMESPACE |= {name: getattr(np, name) for name in UFUNCS if hasattr(np, name)}
NAMESPACE |= OWN
