"""Functions of neural networks that NumPy does not have, such as ``relu``, ``gelu`` and ``softmax``."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from mlaot.frontend.numpy.conversion import as_array, astype, stop_gradient
from mlaot.frontend.trace.promotion import as_node, cast, numpy_dtype, result_type
from mlaot.frontend.trace.protocols import any_traced, plain
from mlaot.frontend.trace.tensor import Tensor
from mlaot.ir.types import bf16, f16, f32, f64
from mlaot.ops import Op
from mlaot.ops import elementwise as ew
from mlaot.ops import transcendental as trans


def _of_floats(op: Op) -> Callable[[Any], Any]:
    """Decorate a function of floating-point numbers: convert integers to f64, as SciPy does."""

    def function(x: Any) -> Any:
        if not any_traced(x):
            array = np.asarray(plain(x))
            kind = array.dtype if array.dtype.kind == "f" else np.dtype(np.float64)
            return np.asarray(op.reference(array.astype(kind))).astype(kind)[()]
        node = as_node(x)
        return Tensor(op(node if node.type.dtype.kind == "f" else cast(node, f64)))

    function.__name__ = op.name
    function.__doc__ = f"Compute {op.doc}, element by element."
    return function


erf = _of_floats(trans.erf)
erfc = _of_floats(trans.erfc)
erfinv = _of_floats(trans.erfinv)
sigmoid = _of_floats(trans.sigmoid)
softplus = _of_floats(trans.softplus)


def relu(x: Any) -> Any:
    """Compute ``max(x, 0)``, element by element."""
    if not any_traced(x):
        return np.maximum(plain(x), 0)
    return Tensor(ew.relu(as_node(x)))


def gelu(x: Any, approximate: bool = False) -> Any:
    """Compute ``x * Phi(x)`` with erf, or with an approximation by tanh."""
    if approximate:
        return 0.5 * x * (1.0 + np.tanh(0.7978845608028654 * (x + 0.044715 * (x * x * x))))
    return 0.5 * x * (1.0 + erf(x * 0.7071067811865476))


def silu(x: Any) -> Any:
    """Compute ``x * sigmoid(x)``, element by element."""
    return x * sigmoid(x)


def _largest(x: Any, axis: Any) -> Any:
    """Return the maximum, or 0 where it is infinite. Exponents are shifted by it, so it has no gradient."""
    top = stop_gradient(np.max(x, axis=axis, keepdims=True))
    return np.where(np.isfinite(top), top, np.zeros((), numpy_dtype(top)))


def _round_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function of several operations: compute float16 in float32, and round only the result."""

    @wraps(function)
    def call(x: Any, axis: Any = -1) -> Any:
        x = as_array(x)
        kind = result_type(x)
        if kind not in (f16, bf16):
            return function(x, axis)
        return astype(function(astype(x, f32), axis), kind)

    return call


@_round_once
def softmax(x: Any, axis: Any = -1) -> Any:
    """Compute ``exp(x - max) / sum(exp(x - max))`` along ``axis``.

    The reciprocal of the sum, which is at least 1, multiplies each element.
    """
    x = as_array(x)
    e = np.exp(x - stop_gradient(np.max(x, axis=axis, keepdims=True)))
    return e * (1.0 / np.sum(e, axis=axis, keepdims=True))


@_round_once
def log_softmax(x: Any, axis: Any = -1) -> Any:
    """Compute ``log(softmax(x))``, without underflow of the softmax."""
    x = as_array(x)
    shifted = x - _largest(x, axis)
    return shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))


def logsumexp(x: Any, axis: Any = None, b: Any = None, keepdims: bool = False) -> Any:
    """Compute ``log(sum(b * exp(x)))`` without overflow.

    An element of weight 0 does not count, even if it is infinite.
    """
    x = _as_float(x, *([] if b is None else [as_array(b)]))
    top = _largest(x, axis)
    e = np.exp(x - top)
    if b is not None:
        b = as_array(b)
        e = np.where(b == 0, np.zeros((), numpy_dtype(e)), b * e)
    total = np.log(np.sum(e, axis=axis, keepdims=True)) + top
    return total if keepdims else np.squeeze(total, axis=axis)


def _as_float(x: Any, *further: Any) -> Any:
    """Convert an array to the dtype in which SciPy combines it with others: integers become f64."""
    x = as_array(x)
    kinds = [result_type(v) for v in (x, *further)]
    kind = result_type(*[k if k.kind == "f" else f64 for k in kinds])
    return x if kinds[0] is kind else astype(x, kind)
