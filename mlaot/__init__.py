"""mlaot: a model, declared in Python, shipped as a precompiled wheel.

The build hook imports the model module, traces it to a graph, optimizes the graph, and compiles it to an extension
module that needs neither a compiler nor a runtime where it is installed.

``mlaot.softmax``, ``mlaot.where``, ``mlaot.einsum``: every function that can be traced is an attribute of this package;
those that NumPy has are NumPy's own for plain arrays.
"""

import importlib
from typing import Any

from mlaot.errors import MlaotError
from mlaot.frontend import functions as _functions
from mlaot.frontend import random
from mlaot.frontend.control import cond, fori_loop, scan, while_loop
from mlaot.frontend.functions import (
    arange,
    gelu,
    log_softmax,
    logsumexp,
    one_hot,
    relu,
    sigmoid,
    softmax,
    sparse,
    stop_gradient,
    top_k,
    tree_ensemble,
)
from mlaot.frontend.gradients import grad, jvp, value_and_grad, vmap
from mlaot.frontend.model import load, model
from mlaot.frontend.padding import pad
from mlaot.frontend.tensor import Buffer, Parameter, parameters
from mlaot.frontend.trace import is_training, training
from mlaot.ir.dims import dim
from mlaot.ir.types import bf16, boolean, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
from mlaot.settings import did_you_mean as _did_you_mean

__version__ = "0.1.0"

bool = boolean

__all__ = [
    "Buffer",
    "MlaotError",
    "Parameter",
    "arange",
    "bf16",
    "bool",
    "cond",
    "dim",
    "f16",
    "f32",
    "f64",
    "fori_loop",
    "gelu",
    "grad",
    "i8",
    "i16",
    "i32",
    "i64",
    "is_training",
    "jvp",
    "load",
    "log_softmax",
    "logsumexp",
    "model",
    "one_hot",
    "pad",
    "parameters",
    "random",
    "relu",
    "scan",
    "sigmoid",
    "softmax",
    "sparse",
    "stop_gradient",
    "top_k",
    "training",
    "tree_ensemble",
    "u8",
    "u16",
    "u32",
    "u64",
    "value_and_grad",
    "vmap",
    "while_loop",
]


def __getattr__(name: str) -> Any:
    """The functions of the table that maps NumPy's names to traced meanings; libraries on top, once they are used."""
    if name in ("eager", "micrograd", "nn", "optim"):
        return importlib.import_module(f"mlaot.{name}")
    found = _functions.attribute(name)
    if found is None:
        raise AttributeError(f"module 'mlaot' has no attribute {name!r}{_did_you_mean(name, __dir__())}")
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_functions.names()})
