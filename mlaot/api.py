"""The names that ``mlaot`` offers to models. The package imports this module when one of them is first used."""

from mlaot.adapters import lora
from mlaot.frontend.numpy import (
    arange,
    gelu,
    log_softmax,
    logsumexp,
    one_hot,
    random,
    relu,
    sigmoid,
    softmax,
    sparse,
    stop_gradient,
    top_k,
    tree_ensemble,
)
from mlaot.frontend.numpy.padding import pad
from mlaot.frontend.trace.context import is_training, training
from mlaot.frontend.trace.control import cond, fori_loop, scan, while_loop
from mlaot.frontend.trace.files import load
from mlaot.frontend.trace.gradients import grad, jvp, value_and_grad, vmap
from mlaot.frontend.trace.model import model
from mlaot.frontend.trace.protocols import NAMESPACE as NAMESPACE
from mlaot.frontend.trace.strings import Strings
from mlaot.frontend.trace.taps import tap
from mlaot.frontend.trace.tensor import Buffer, Parameter, parameters
from mlaot.frontend.trace.text import Text
from mlaot.frontend.trace.tokens import Tokens
from mlaot.ir.dims import dim
from mlaot.ir.types import bf16, boolean, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64

bool = boolean

__all__ = [
    "Buffer",
    "Parameter",
    "Strings",
    "Text",
    "Tokens",
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
    "lora",
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
    "tap",
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
