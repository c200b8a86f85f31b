"""Values that are mostly zero: their declaration, and products with a matrix that skip the zeros.

``x`` is [.., n] with any axes in front; a matrix has the axis ``axis`` of n elements and one of m. Zeros of x add
nothing, also where the matrix holds an infinity or nan.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from math import prod

import numpy as np

from mlaot.errors import MlaotError
from mlaot.ir import Dim, DType, Node, Type
from mlaot.ops.axes import ELEMENTWISE, last_axes
from mlaot.ops.base import Array, Op, full_like, lift, same_type
from mlaot.ops.elementwise import add, cast
from mlaot.ops.reduction import contract

FLOATS = ("f32", "f64")


def _products(x: Array, w: Array) -> Array:
    """Multiply x[.., n, 1] * w[n, m]; the product is 0 where x is 0."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where(x[..., None] != 0, x[..., None].astype(w.dtype) * w, w.dtype.type(0))


def _dot(x: Array, w: Array, axis: int) -> Array:
    return np.asarray(_products(x, np.moveaxis(w, axis, 0)).sum(axis=-2, dtype=w.dtype))


def _add(w: Array, x: Array, g: Array, axis: int) -> Array:
    """Add the products of one row of ``x`` after the other."""
    result = np.moveaxis(w, axis, 0).copy()
    rows = prod(x.shape[:-1])
    for values, row in zip(x.reshape(rows, x.shape[-1]), g.reshape(rows, g.shape[-1]), strict=True):
        used = values != 0
        result[used] += values[used, None].astype(w.dtype) * row
    return np.moveaxis(result, 0, axis)


def _check(x: Type, w: Type, axis: int) -> None:
    if w.dtype.name not in FLOATS or w.rank != 2 or axis not in (0, 1):
        raise MlaotError(f"a sparse product takes f32 or f64 matrices, got {w}, axis {axis}")
    if not x.rank or x.shape[-1] != w.shape[axis]:
        raise MlaotError(f"a sparse product needs rows of {w.shape[axis]} elements, got {x}")


def _dot_type(x: Type, w: Type, axis: int) -> Type:
    _check(x, w, axis)
    return w.with_shape((*x.shape[:-1], w.shape[1 - axis]))


def _add_type(w: Type, x: Type, g: Type, axis: int) -> Type:
    _check(x, w, axis)
    expected = w.with_shape((*x.shape[:-1], w.shape[1 - axis]))
    if g != expected:
        raise MlaotError(f"a sparse product of {x} that goes into {w} takes {expected}, got {g}")
    return w


def _labels(rank: int, axis: int) -> tuple[str, str, str]:
    """Return labels of x, the matrix and g for a contraction."""
    lead = string.ascii_lowercase[:rank]
    return f"{lead}y", "zy" if axis else "yz", f"{lead}z"


def _dense(x: Node, dtype: DType) -> Node:
    return x if x.type.dtype is dtype else cast(x, dtype=dtype)


def _vjp_dot(ct: Node, out: Node, x: Node, w: Node, axis: int) -> tuple[Node | None, Node]:
    """Contract for the gradient of x, if it has the dtype of w, and add products sparsely for the gradient of w."""
    labels, matrix, g_labels = _labels(x.type.rank - 1, axis)
    grad = contract(ct, w, spec=f"{g_labels},{matrix}->{labels}") if x.type.dtype is w.type.dtype else None
    return grad, sparse_add(full_like(w, 0.0), x, ct, axis=axis)


def _vjp_add(ct: Node, out: Node, w: Node, x: Node, g: Node, axis: int) -> tuple[Node, Node | None, Node]:
    labels, matrix, g_labels = _labels(x.type.rank - 1, axis)
    grad = contract(g, ct, spec=f"{g_labels},{matrix}->{labels}") if x.type.dtype is w.type.dtype else None
    return ct, grad, sparse_dot(x, ct, axis=axis)


def _batch_dot(node: Node, args: Sequence[Node], batched: Sequence[bool], dim: Dim) -> Node:
    """Batch as a dense product if there is a matrix for each example."""
    x, w = args
    labels, matrix, g_labels = _labels(node.type.rank - 1, node.attrs["axis"])
    return contract(_dense(x, w.type.dtype), w, spec=f"{'x' * batched[0]}{labels},x{matrix}->x{g_labels}")


def _batch_add(node: Node, args: Sequence[Node], batched: Sequence[bool], dim: Dim) -> Node:
    """Batch as a dense product, as there is a matrix for each example."""
    w, x, g = args
    labels, matrix, g_labels = _labels(x.type.rank - 1 - batched[1], node.attrs["axis"])
    x, g = (a if b else lift(a, dim) for a, b in zip((x, g), batched[1:], strict=True))
    product = contract(_dense(x, g.type.dtype), g, spec=f"x{labels},x{g_labels}->x{matrix}")
    return add(w if batched[0] else lift(w, dim), product)


sparse: Op = Op(
    "sparse",
    same_type,
    lambda x: x,
    lambda ct, out, x: (ct,),
    ELEMENTWISE,
    lambda args: args[0],
    exact=True,
    doc="x, most elements of which are zero: products pass over them",
)
sparse_dot: Op = Op(
    "sparse_dot",
    _dot_type,
    _dot,
    _vjp_dot,
    last_axes(1, lambda node: 1),
    batch=_batch_dot,
    doc="sum of x[.., i] w[i, j] over the i where x is not zero",
)
sparse_add: Op = Op(
    "sparse_add",
    _add_type,
    _add,
    _vjp_add,
    batch=_batch_add,
    doc="w[i, j] plus the sum of x[.., i] g[.., j] where x is not zero",
)
