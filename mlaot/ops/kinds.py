"""Kinds of nodes: views, stored values, free scalars, elementwise nodes, moves, reductions."""

from __future__ import annotations

from collections.abc import Sequence

from mlaot.ir import Dim, Node, Type
from mlaot.ir.dims import product
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.axes import regroup
from mlaot.ops.base import OPS
from mlaot.ops.control import result
from mlaot.ops.quantized import contract_bytes, contract_groups, quantize
from mlaot.ops.random import normal_quantile
from mlaot.ops.winograd import TRANSFORMS
from mlaot.schedule.machine import LINE
from mlaot.schedule.tuning import FREE_NODES

PRODUCTS = (red.contract, red.contract_differences, contract_bytes, contract_groups)
REDUCTIONS = tuple(op for op in OPS.values() if op.reduces)
VECTORS = ("f32", "f64")  # the dtypes that kernels compute in vectors
LOADED = (*VECTORS, "i32", "i64", "i8", "u8", "bool")  # the dtypes that vectors are converted from as they are loaded


def is_view(node: Node) -> bool:
    """Tell whether a node is a view of its argument."""
    if node.op is st.take:
        return bool(node.attrs["indices"].array.ndim == 0)
    return node.op.view is not None and (node.op is not st.reshape or changes_unit_axes(node) or _keeps_strides(node))


def changes_unit_axes(node: Node) -> bool:
    """Tell whether a reshape only adds or drops axes of one element."""
    return drop_unit_axes(node.type.shape) == drop_unit_axes(node.arg(0).type.shape)


def drop_unit_axes(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """Drop the axes of one element of a shape."""
    return tuple(d for d in shape if d != 1)


def _keeps_strides(node: Node) -> bool:
    """Tell whether a reshape splits axes, or merges axes without gaps in memory between them.

    There are gaps after padded rows, and possibly anywhere in a view or in a caller's array.
    """
    x, merged = node.arg(0), _merged_groups(node)
    if not merged:
        return merged is not None
    if x.op is st.input_ and x.attrs.get("gapless"):
        return True
    if is_stored(x) or is_view(x) or x.op is result:
        return False
    return not merges_rows(node) or is_narrow(x.type.shape) or _fills_rows(x.type)


def merges(node: Node) -> bool:
    """Tell whether a reshape merges several axes into one."""
    return bool(_merged_groups(node))


def merges_rows(node: Node) -> bool:
    """Tell whether a reshape merges the last axis with others, so that rows must not be padded."""
    last = node.arg(0).type.rank - 1
    return any(before[-1] == last for before in _merged_groups(node) or ())


def _merged_groups(node: Node) -> list[list[int]] | None:
    groups = regroup(node.arg(0).type.shape, node.type.shape)
    return None if groups is None else [before for before, _ in groups if len(before) > 1]


def _fills_rows(type_: Type) -> bool:
    """Tell whether rows need no padding, as rows are whole cache lines or cache lines are whole rows."""
    columns = type_.shape[-1]
    size = columns * type_.dtype.itemsize if isinstance(columns, int) else 0
    return size > 0 and (size % LINE == 0 or LINE % size == 0)


def base_of(node: Node) -> Node:
    """Return the value that a chain of views is of."""
    node = node.find()
    while is_view(node):
        node = node.arg(0)
    return node


def adjacent(node: Node) -> int | None:
    """Return the axis along which elements are adjacent in memory, or None if that is not obvious."""
    node = node.find()
    if node.op.view is None or node.op in (st.take, st.item):
        return node.type.rank - 1
    inner, last = adjacent(node.arg(0)), node.type.rank - 1
    if inner is None or inner < 0:
        return None
    if node.op is st.reshape:
        return last if last >= 0 and inner == node.arg(0).type.rank - 1 and node.type.shape[last] != 1 else None
    far = 1 << 40  # no axis but one is as near as its neighbours
    seen = node.op.view(node, [1 if axis == inner else far + axis for axis in range(node.arg(0).type.rank)])
    return max((axis for axis, stride in enumerate(seen.strides) if stride == 1), default=None)


def strides(node: Node) -> tuple[Dim, ...]:
    """Return the stride of each axis in elements, if no row is padded."""
    node = node.find()
    if not is_view(node) or node.op.view is None or node.op is st.take:
        return tuple(product(node.type.shape[i + 1 :]) for i in range(node.type.rank))
    return tuple(node.op.view(node, strides(node.arg(0))).strides)


def root_of(node: Node) -> Node:
    """Return the value that a kernel computes for an output or a slot: the value before reshapes to unit axes."""
    node = node.find()
    while node.op is st.reshape and changes_unit_axes(node):
        node = node.arg(0)
    return node


def slot_root(node: Node) -> Node:
    """Return the value that a kernel computes for a slot: also before reshapes that merge axes."""
    node = root_of(node)
    while node.op is st.reshape and only_splits(node.type.shape, node.arg(0).type.shape):
        node = root_of(node.arg(0))
    return node


def only_splits(shape: tuple[Dim, ...], into: tuple[Dim, ...]) -> bool:
    """Tell whether a reshape from one shape to another splits axes and merges none, which is a view."""
    groups = regroup(shape, into)
    return groups is not None and all(len(axes) == 1 for axes, _ in groups)


def is_free(node: Node) -> bool:
    """Tell whether every kernel recomputes a scalar: constants, dims, arguments, and a little arithmetic."""
    visited: set[Node] = set()
    stack = [base_of(node)]
    while stack:
        node = stack.pop()
        if node in visited:
            continue
        if not isinstance(node.type, Type) or node.type.shape != () or len(visited) == FREE_NODES:
            return False
        visited.add(node)
        if node.op is st.input_:
            if node.attrs.get("parameter", False):
                return False
        elif node.op not in (st.const, st.size):
            if not is_elementwise(node) or node.op is ew.copy:
                return False
            stack += [base_of(a) for a in node.args]
    return True


def is_elementwise(node: Node) -> bool:
    """Tell whether kernels compute a node element by element."""
    if node.op is st.one_hot:  # in vectors of floats; otherwise a move
        vectors = node.type.dtype.name in VECTORS and node.arg(0).type.dtype.name in LOADED
        return vectors and not is_narrow(node.type.shape)
    return node.op.elementwise


def vector_dtype(node: Node) -> str | None:
    """Return the dtype of the vectors that compute an elementwise node: its own, or that of compared values."""
    if not is_elementwise(node) or not node.args or node.op is normal_quantile:
        return None
    if node.op is quantize:  # bytes are whole numbers in the lanes
        return node.arg(0).type.dtype.name
    own, operands = node.type.dtype.name, [a.find().type.dtype.name for a in node.args]
    if own in VECTORS:
        if node.op is ew.cast or node.op is st.one_hot:
            return own if operands[0] in LOADED else None
        return own if all(name in (own, "bool") for name in operands) else None
    if own == "bool" and operands[0] in VECTORS and len(set(operands)) == 1:
        return operands[0]
    return None


def is_narrow(shape: Sequence[Dim]) -> bool:
    """Tell whether rows are too short for vectors, such as windows of a pooling, but not outputs of a small layer."""
    return len(shape) > 2 and isinstance(shape[-1], int) and shape[-1] < 8


def is_reduction(node: Node) -> bool:
    """Tell whether a node is a reduction in vectors of floats: along long rows, columns, or windows."""
    if not node.op.reduces or node.type.dtype.name not in VECTORS:
        return False
    x, axes = node.arg(0).type, node.attrs["axes"]
    return x.rank - 1 not in axes or len(axes) > 1 or not is_narrow(x.shape)


def is_single(node: Node) -> bool:
    """Tell whether a node is a kernel by itself: a move, a scan, a sort, control flow, any other reduction."""
    products = (*PRODUCTS, *TRANSFORMS)
    return not (is_view(node) or is_elementwise(node) or is_reduction(node) or node.op in products)


def is_stored(node: Node) -> bool:
    """Tell whether a value is in memory before any kernel runs."""
    return node.op is st.input_ or (node.op is st.const and node.type.shape != ())
