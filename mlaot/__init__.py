"""mlaot: a model, declared in Python, shipped as a precompiled wheel.

The build hook imports the model module, traces it to a graph, optimizes the graph, and compiles it to an extension
module that needs neither a compiler nor a runtime where it is installed.
"""

from mlaot.errors import MlaotError
from mlaot.frontend.tensor import Parameter, load, model, one_hot, parameters, relu, softmax
from mlaot.ir.dims import dim
from mlaot.ir.types import f32, f64, i32, i64, u8

__version__ = "0.1.0"

__all__ = [
    "MlaotError",
    "Parameter",
    "dim",
    "f32",
    "f64",
    "i32",
    "i64",
    "load",
    "model",
    "one_hot",
    "parameters",
    "relu",
    "softmax",
    "u8",
]
