"""Arrays of a given shape, which may have named dims."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.numpy.conversion import astype
from mlaot.frontend.numpy.indexing import in_range
from mlaot.frontend.numpy.shaping import a_shape, broadcast_arrays, reshape, swapaxes
from mlaot.frontend.trace.context import current
from mlaot.frontend.trace.promotion import apply, as_node, broadcast_node, dtype_of, full
from mlaot.frontend.trace.protocols import any_traced, implements, plain
from mlaot.frontend.trace.tensor import Tensor
from mlaot.ir.types import f64, i64
from mlaot.ops import structure as st


def one_hot(label: Any, classes: int, dtype: Any = f64) -> Any:
    """Return 1 at the class ``label`` and 0 elsewhere, along a new last axis of size ``classes``.

    A label outside of ``0..classes-1`` is an error if a caller passes it, and gives zeros if the model computes it.
    """
    kind = dtype_of(dtype)
    if not any_traced(label):
        return (np.asarray(in_range(label, classes))[..., None] == np.arange(classes)).astype(kind.numpy)
    return Tensor(st.one_hot(as_node(label), classes=classes, dtype=kind))


def _shaped(name: str, value: Any) -> Callable[..., Any]:
    def function(shape: Any, dtype: Any = f64) -> Any:
        return filled(shape, value, dtype)

    function.__name__ = name
    function.__doc__ = f"Return an array of ``{value}``, whose shape may have named dims."
    return function


def filled(shape: Any, fill_value: Any, dtype: Any = None) -> Any:
    """Return an array filled with one value, whose shape may have named dims."""
    size = a_shape(shape)
    if current() is None or (all(isinstance(d, int) for d in size) and not any_traced(fill_value)):
        if not all(isinstance(d, int) for d in size):
            raise MlaotError(f"the shape {list(size)} has named dims, which have no size outside of a model")
        return np.full(size, plain(fill_value), None if dtype is None else dtype_of(dtype).numpy)
    node = as_node(fill_value, None if dtype is None else dtype_of(dtype))
    return Tensor(broadcast_node(node, size))


zeros = _shaped("zeros", 0)
ones = _shaped("ones", 1)


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> Any:
    """Return the numbers of ``np.arange``, whose end may be a named dim: ``mlaot.arange(x.shape[1])``."""
    if stop is None:
        start, stop = 0, start
    if not _is_dim(start, stop, step):
        return np.arange(start, stop, step, dtype=None if dtype is None else np.dtype(dtype_of(dtype).numpy))
    if any_traced(start, stop, step):
        raise MlaotError("arange: the shape of its result depends on the data")
    if not isinstance(step, int) or step < 1:
        raise MlaotError(f"arange over a named dim: expected a positive integer as the step, got {step!r}")
    count = (stop - start + (step - 1)) // step
    numbers = apply(st.iota, shape=(count,), axis=0, dtype=dtype_of(dtype) if dtype is not None else i64)
    result = Tensor(numbers) if step == 1 else Tensor(numbers) * step
    return result if isinstance(start, int) and start == 0 else astype(result + start, result.dtype)


def _is_dim(*values: Any) -> bool:
    return any(not isinstance(v, bool | int | float | np.generic) for v in values)


def eye(n: Any, m: Any = None, k: int = 0, dtype: Any = f64) -> Any:
    """Return the matrix of ``np.eye``, whose sizes may be named dims."""
    columns = n if m is None else m
    if isinstance(n, int) and isinstance(columns, int):
        return np.eye(n, columns, k, dtype_of(dtype).numpy)
    row, column = (Tensor(apply(st.iota, shape=(n, columns), axis=i, dtype=i64)) for i in range(2))
    return astype(column - row == k, dtype)


# Arrays of a given shape.


def _filled(value: Any) -> Callable[..., Any]:
    def function(a: Any, dtype: Any = None, order: Any = "K", subok: bool = True, shape: Any = None, **_: Any) -> Any:
        x = as_node(a)
        kind = dtype_of(dtype) if dtype is not None else x.type.dtype
        return Tensor(full(a_shape(shape) if shape is not None else x.type.shape, value, kind))

    return function


zeros_like = implements("zeros_like", "empty_like")(_filled(0))
ones_like = implements("ones_like")(_filled(1))


@implements("full_like")
def full_like(
    a: Any, fill_value: Any, dtype: Any = None, order: Any = "K", subok: Any = True, shape: Any = None
) -> Any:
    x = as_node(a)
    kind = dtype_of(dtype) if dtype is not None else x.type.dtype
    return Tensor(broadcast_node(as_node(fill_value, kind), a_shape(shape) if shape is not None else x.type.shape))


@implements("meshgrid")
def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    rank = len(xi)
    shaped = [reshape(x, (1,) * i + (-1,) + (1,) * (rank - 1 - i)) for i, x in enumerate(xi)]
    if indexing == "xy" and rank > 1:
        shaped = [swapaxes(x, 0, 1) for x in shaped]
    return list(shaped if sparse else broadcast_arrays(*shaped))
