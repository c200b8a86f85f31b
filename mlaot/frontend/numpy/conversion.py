"""Conversions between dtypes, and notes for the compiler."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlaot.frontend.trace.promotion import as_node, cast, dtype_of
from mlaot.frontend.trace.protocols import ARRAY_METHODS, any_traced, implements, is_traced, plain
from mlaot.frontend.trace.tensor import Tensor
from mlaot.ir.types import BY_NUMPY, bf16, round_bf16
from mlaot.ops import elementwise as ew
from mlaot.ops import quantized as q8
from mlaot.ops.barrier import stop_gradient as _barrier
from mlaot.ops.sparse import sparse as _sparse


def as_array(x: Any) -> Any:
    """Return a traced ``x`` unchanged, and anything else as a NumPy array."""
    return x if is_traced(x) else np.asarray(plain(x))


def stop_gradient(x: Any) -> Any:
    """Return ``x`` with a gradient of zero."""
    if not any_traced(x):
        return plain(x)
    return Tensor(_barrier(as_node(x)))


def sparse(x: Any) -> Any:
    """Return ``x``, with the note that most elements are zero.

    Matrix products and their gradients then skip the zeros.

    The result depends on the values, and the storage stays dense. If most elements are not zero, the product is slower.
    An element that is zero adds nothing to a product, even if the matrix holds an infinity or nan there.
    """
    if not any_traced(x):
        return plain(x)
    return Tensor(_sparse(as_node(x)))


def astype(x: Any, dtype: Any) -> Any:
    """Convert ``x`` to another dtype; floating-point numbers saturate to an integer's range, and nan becomes 0."""
    kind = dtype_of(dtype)
    if is_traced(x):
        return Tensor(cast(as_node(x), kind))
    array = np.asarray(plain(x))
    own_dtype = BY_NUMPY.get(str(array.dtype))
    if own_dtype is None or array.dtype.kind != "f" or kind.kind == "f":
        return round_bf16(array.astype("float32")) if kind is bf16 else array.astype(kind.numpy)
    return ew.cast.reference(array, dtype=kind)


@implements("astype")
def astype_of_numpy(x: Any, dtype: Any, *, copy: bool = True, device: Any = None) -> Any:
    return astype(x, dtype)


def quantize(x: Any, dtype: Any) -> Any:
    """Round to the nearest ``uint8`` or ``int8``, ties to even, and saturate. nan gives the smallest number."""
    kind = dtype_of(dtype)
    if is_traced(x):
        return Tensor(q8.quantize(as_node(x), dtype=kind))
    return q8.quantize.reference(np.asarray(plain(x)), dtype=kind)


ARRAY_METHODS["astype"] = astype
