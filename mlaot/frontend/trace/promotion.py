"""Conversion of values to nodes, by NumPy's promotion and broadcasting.

Numbers of Python take the dtype of the arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.trace.context import needed
from mlaot.frontend.trace.protocols import Traceable, any_traced
from mlaot.ir import Dim, Node
from mlaot.ir.dims import Expr, Unequal
from mlaot.ir.types import BY_NUMPY, DType, bf16, f16, i64
from mlaot.ops import Op
from mlaot.ops import elementwise as ew
from mlaot.ops import structure as st

WEAK = (bool, int, float)


def apply(op: Op, *args: Node, **attrs: Any) -> Node:
    """Add a node of ``op`` to the current graph. The op may have no arguments."""
    return needed().graph.add(op, args, attrs)


def as_node(value: Any, dtype: DType | None = None) -> Node:
    """Return any value as a node of the current graph, converted to ``dtype`` if that is given."""
    if isinstance(value, Traceable):
        node = value.local_node()
    elif isinstance(value, Expr):
        node = apply(st.size, dim=value, dtype=dtype if dtype is not None and dtype.kind != "b" else i64)
    elif isinstance(value, list | tuple) and any_traced(value):
        node = _stack([as_node(v) for v in value])
    else:
        return _constant(value, dtype)
    return node if dtype is None else cast(node, dtype)


def _stack(nodes: list[Node]) -> Node:
    kind = result_type(*nodes)
    shape = broadcast_shape([n.type.shape for n in nodes])
    return st.stack(*[broadcast_node(cast(n, kind), shape) for n in nodes], axis=0)


def _constant(value: Any, dtype: DType | None) -> Node:
    array = np.asarray(value)
    kind = _array_type(array, value)
    if dtype is not None and dtype is not kind and type(value) is int and dtype.kind in "iu":
        info = np.iinfo(dtype.numpy)
        if not info.min <= value <= info.max:
            raise MlaotError(f"{value} does not fit into {dtype}; cast the array to a wider dtype first")
    with np.errstate(over="ignore", invalid="ignore"):
        return needed().graph.constant(array, dtype or kind)


def cast(node: Node, dtype: DType) -> Node:
    return node if node.type.dtype is dtype else ew.cast(node, dtype=dtype)


def is_weak(value: Any) -> bool:
    """Tell whether a value is a number of Python, which takes the dtype of the arrays that it is combined with."""
    return type(value) in WEAK or isinstance(value, Expr)


def strong_type(value: Any) -> DType:
    """Return the dtype of an array or a NumPy scalar."""
    if isinstance(value, Node | Traceable):
        return value.type.dtype
    if isinstance(value, DType | np.dtype | type):
        return dtype_of(value)
    if isinstance(value, list | tuple) and any_traced(value):
        return result_type(*value)
    return _array_type(np.asarray(value), value)


def _array_type(array: Any, value: Any) -> DType:
    name = str(array.dtype)
    dtype = bf16 if name == "bfloat16" else BY_NUMPY.get(name)
    if dtype is None:
        raise MlaotError(f"a {type(value).__name__} cannot be part of a model")
    return dtype


def dtype_of(dtype: Any) -> DType:
    """Return mlaot's dtype for ``mlaot.f32``, ``np.float32``, ``"float32"`` or ``float``."""
    if isinstance(dtype, DType):
        return dtype
    try:
        name = "bfloat16" if str(dtype) == "bfloat16" else str(np.dtype(dtype))
    except TypeError:
        name = str(dtype)
    kind = bf16 if name == "bfloat16" else BY_NUMPY.get(name)
    if kind is None:
        raise MlaotError(f"there is no dtype {name}; known are {', '.join(sorted([*BY_NUMPY, 'bfloat16']))}")
    return kind


def numpy_dtype(x: Any) -> Any:
    """Return the dtype in which NumPy computes an array's numbers: float32 for bfloat16."""
    return x.type.dtype.numpy if isinstance(x, Traceable) else x.dtype


def result_type(*values: Any) -> DType:
    """Return the dtype that NumPy promotes ``values`` to; bfloat16 is promoted like float16."""
    strong = [strong_type(v) for v in values if not is_weak(v)]
    weak = [type(v)(0) if type(v) in WEAK else 0 for v in values if is_weak(v)]
    as_numpy = [np.dtype("float16" if d is bf16 else d.numpy) for d in strong]
    kind = BY_NUMPY[str(np.result_type(*as_numpy, *weak))]
    if kind is f16 and bf16 in strong:
        return dtype_of("float32") if f16 in strong else bf16
    return kind


def promote(*values: Any) -> list[Node]:
    """Return ``values`` as nodes of one dtype."""
    kind = result_type(*values)
    return [as_node(v, kind) for v in values]


def broadcast_shape(shapes: Sequence[tuple[Dim, ...]]) -> tuple[Dim, ...]:
    """Broadcast shapes by NumPy's rule. A named dim fits itself and 1."""
    rank = max(map(len, shapes), default=0)
    result: list[Dim] = []
    for i in range(-rank, 0):
        sizes = list(dict.fromkeys(s[i] for s in shapes if len(s) >= -i and s[i] != 1))
        if len(sizes) > 1:
            raise Unequal(f"shapes {' and '.join(str(list(s)) for s in shapes)} do not broadcast", *sizes[:2])
        result.append(sizes[0] if sizes else 1)
    return tuple(result)


def broadcast_node(node: Node, shape: tuple[Dim, ...]) -> Node:
    """Broadcast ``node`` to ``shape``."""
    if node.type.shape == shape:
        return node
    lead = len(shape) - node.type.rank
    if lead < 0 or any(d not in (1, shape[lead + i]) for i, d in enumerate(node.type.shape)):
        raise MlaotError(f"{node.type} does not broadcast to {list(shape)}")
    kept = [i for i, d in enumerate(node.type.shape) if d == shape[lead + i]]
    if len(kept) < node.type.rank:
        node = st.reshape(node, shape=tuple(node.type.shape[i] for i in kept))
    return st.broadcast(node, shape=shape, axes=tuple(lead + i for i in kept))


def broadcast_together(*nodes: Node) -> list[Node]:
    """Broadcast nodes to one shape."""
    shape = broadcast_shape([n.type.shape for n in nodes])
    return [broadcast_node(n, shape) for n in nodes]


def normal_axis(axis: Any, rank: int) -> int:
    """Count an axis from the front."""
    if isinstance(axis, bool) or not hasattr(axis, "__index__") or isinstance(axis, Traceable):
        raise MlaotError(f"an axis must be an integer, got {axis!r}")
    if not -rank <= axis < rank:
        raise MlaotError(f"there is no axis {axis} in an array of {rank} dimensions")
    return int(axis) % rank


def normal_axes(axis: Any, rank: int) -> tuple[int, ...]:
    """Return axes counted from the front and sorted, or all axes if ``axis`` is None."""
    if axis is None:
        return tuple(range(rank))
    axes = [normal_axis(a, rank) for a in (axis if isinstance(axis, tuple | list) else (axis,))]
    if len(set(axes)) < len(axes):
        raise MlaotError(f"an axis is named twice in {axis}")
    return tuple(sorted(axes))


def full(shape: tuple[Dim, ...], value: Any, dtype: DType) -> Node:
    """Return an array filled with the number ``value``."""
    return broadcast_node(as_node(value, dtype), shape)


def like(node: Node, value: Any) -> Node:
    """Return an array filled with ``value``, of the type of ``node``."""
    return full(node.type.shape, value, node.type.dtype)
