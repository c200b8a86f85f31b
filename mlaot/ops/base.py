"""The base of all families of ops: broadcasting, its transpose, the sum, and constants of a type.

``Op`` itself, one object that carries everything the compiler knows about one kind of computation, is in
``mlaot.ir.graph``, beside the nodes that it is the op of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.ir import Dim, DType, Graph, Node, TupleType, Type, dims
from mlaot.ir.graph import OPS as OPS
from mlaot.ir.graph import Index as Index
from mlaot.ir.graph import Op as Op
from mlaot.ir.subgraph import subgraphs
from mlaot.ops.axes import BROADCAST, REDUCTION
from mlaot.ops.axes import kept_axes as kept_axes
from mlaot.ops.nests.reductions import reduce_nest
from mlaot.ops.views import broadcast_view

Array = np.ndarray[Any, Any]


def no_gradient(ct: Node, out: Node, *args: Node, **_: Any) -> tuple[None, ...]:
    """Return no cotangents: the VJP of an op whose derivative is zero where it exists, or whose result is not real."""
    return (None,) * len(args)


def conditions(graph: Graph) -> list[Dim]:
    """List the extents and bounds that a call must check not to be negative."""
    extents: dict[Dim, None] = {}
    for node in graph.nodes():
        types = node.type.items if isinstance(node.type, TupleType) else (node.type,)
        needs = node.op.needs(*[a.find().type for a in node.args], **node.attrs) if node.op.needs else ()
        extents |= dict.fromkeys((*[d for t in types for d in t.shape], *needs))
        for inner in subgraphs(node.attrs).values():
            extents |= dict.fromkeys(conditions(inner.graph))
    return [d for d in extents if not dims.nonnegative(d)]


def accumulator(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the NumPy dtype in which sums and products of numbers of ``dtype`` are accumulated."""
    return np.dtype(np.float32) if dtype == np.float16 else dtype


def same_type(*types: Type, **_: Any) -> Type:
    """Check that all arguments have one dtype and shape, and return this type."""
    first = types[0]
    for other in types[1:]:
        if other is not first and other != first:
            raise MlaotError(f"operands must have one type, got {' and '.join(map(str, types))}")
    return first


def _broadcast_type(x: Type, shape: tuple[Dim, ...], axes: tuple[int, ...]) -> Type:
    if (
        len(axes) != x.rank
        or any(x.shape[i] != shape[a] for i, a in enumerate(axes))
        or list(axes) != sorted(set(axes))
    ):
        raise MlaotError(f"cannot broadcast {x} to {list(shape)} along axes {axes}")
    return x.with_shape(shape)


def _broadcast_reference(x: Array, shape: tuple[int, ...], axes: tuple[int, ...]) -> Array:
    index = [1] * len(shape)
    for i, a in enumerate(axes):
        index[a] = x.shape[i]
    return np.broadcast_to(x.reshape(index), shape)


def _vjp_broadcast(ct: Node, out: Node, x: Node, shape: tuple[Dim, ...], axes: tuple[int, ...]) -> tuple[Node]:
    """Sum over the new axes."""
    return (sum_(ct, axes=tuple(i for i in range(len(shape)) if i not in axes)),)


broadcast: Op = Op(
    "broadcast",
    _broadcast_type,
    _broadcast_reference,
    _vjp_broadcast,
    BROADCAST,
    moves=True,
    view=broadcast_view,
    exact=True,
    doc="x repeated along new axes; a view",
)


def reduced_type(x: Type, axes: tuple[int, ...]) -> Type:
    if any(not 0 <= a < x.rank for a in axes) or len(set(axes)) != len(axes):
        raise MlaotError(f"cannot reduce {x} over axes {axes}")
    return x.with_shape(tuple(x.shape[i] for i in kept_axes(x.rank, axes)))


def sum_type(x: Type, axes: tuple[int, ...]) -> Type:
    if x.dtype.kind == "b":
        raise MlaotError(f"cannot add up or multiply {x}: use any or all, or cast it to numbers first")
    return reduced_type(x, axes)


def accumulate(ufunc: np.ufunc) -> Callable[..., Array]:
    """Return the reference of a reduction.

    Without axes it returns the value itself, while NumPy's sum would add 0 to -0.
    """

    def reference(x: Array, axes: tuple[int, ...]) -> Array:
        return np.asarray(ufunc.reduce(x, axes, accumulator(x.dtype))).astype(x.dtype) if axes else x

    return reference


def spread(value: Node, like: Node, axes: tuple[int, ...]) -> Node:
    return broadcast(value, shape=like.type.shape, axes=kept_axes(like.type.rank, axes))


sum_: Op = Op(
    "sum",
    sum_type,
    accumulate(np.add),
    lambda ct, out, x, axes: (spread(ct, x, axes),),
    REDUCTION,
    repeats="add",
    nest=reduce_nest,
    doc="the sum over axes",
)


def lift(node: Node, dim: Dim) -> Node:
    """Repeat a value along a new leading dim."""
    return broadcast(node, shape=(dim, *node.type.shape), axes=tuple(range(1, node.type.rank + 1)))


def full_like(node: Node, value: float) -> Node:
    """Return ``value`` in the type of ``node``."""
    return fill(node, value, node.type)


def fill(like: Node, value: float, type_: Type) -> Node:
    """Return ``value`` in the type ``type_``, in the graph of ``like``."""
    constant = like.graph.constant(value, type_.dtype)
    return broadcast(constant, shape=type_.shape, axes=()) if type_.shape else constant


@cache
def scalar_type(dtype: DType) -> Type:
    """Return the rank-0 type of a dtype as a shared object, as scalar graphs have a hundred thousand nodes."""
    return Type(dtype, ())


class Transforms:
    """Functions that ``mlaot.transforms`` registers here, for ops with subgraphs or composed of other ops."""

    batch_into: Callable[[Graph, Graph, Sequence[tuple[Node, bool]], Dim], list[tuple[Node, bool]]]
    pullback: Callable[[Sequence[Node], Sequence[Node], Sequence[Node]], list[Node | None]]
