"""Where the elements of a value lie: buffers, and accesses to them through views."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod

from mlaot.ir import DTYPES, Dim, Graph, Node, Type
from mlaot.ir.dims import NOMINAL
from mlaot.lower.gates import gates_of, weights_of
from mlaot.lower.program import Buffer, Panels
from mlaot.ops import reduction as red
from mlaot.ops.control import uses
from mlaot.ops.kinds import PRODUCTS, VECTORS, adjacent, is_narrow, is_view, root_of
from mlaot.ops.sparse import sparse_add, sparse_dot
from mlaot.schedule.machine import LINE, PAGE
from mlaot.schedule.tuning import COLUMNS_APART, PADDING_GROWTH, PANEL_BYTES


def padded(extent: Dim, itemsize: int) -> Dim:
    """A row length that is a whole number of the widest vectors; bytes are in vectors of floats.

    Rows as long as a page, or several, get a vector more: else the same place in each would be in one set of the cache.
    """
    lanes = LINE // (4 if itemsize == 1 else itemsize)  # vectors hold bytes as floats
    whole = (extent + (lanes - 1)) // lanes * lanes
    return whole + lanes if isinstance(whole, int) and whole and whole * itemsize % PAGE == 0 else whole


def row_major(shape: Sequence[Dim], itemsize: int, *, dense: bool) -> tuple[Dim, ...]:
    """Strides in elements; rows of a value of rank 2 and up are padded unless ``dense``."""
    strides: list[Dim] = []
    step: Dim = 1
    for i, extent in enumerate(reversed(shape)):
        strides.append(step)
        row = extent if dense or i or len(shape) < 2 else padded(extent, itemsize)
        step = row * step if not isinstance(row, int) else step * row
    return tuple(reversed(strides))


def work_buffer(name: str, type_: Type) -> Buffer:
    dense = is_narrow(type_.shape)
    strides = row_major(type_.shape, type_.dtype.itemsize, dense=dense)
    return Buffer(name, type_.dtype.name, type_.shape, strides, "work", dense)


def caller_buffer(name: str, type_: Type, where: str) -> Buffer:
    strides = row_major(type_.shape, type_.dtype.itemsize, dense=True)
    return Buffer(name, type_.dtype.name, type_.shape, strides, where, dense=True)


def slice_buffer(buffer: Buffer, start: Dim, lead: int = 0) -> Buffer:
    """The part of ``buffer`` that begins at the element ``start``, without its first ``lead`` axes."""
    name, strides = buffer.name, buffer.strides[lead:]
    return Buffer(name, buffer.dtype, buffer.shape[lead:], strides, "slice", buffer.dense, buffer, start)


def is_row_major(buffer: Buffer) -> bool:
    """Whether there are gaps in a buffer only behind its rows."""
    itemsize = DTYPES[buffer.dtype].itemsize
    return any(buffer.strides == row_major(buffer.shape, itemsize, dense=dense) for dense in (False, True))


def behind_reshape(buffer: Buffer, node: Node) -> tuple[Node, Buffer]:
    """What a kernel computes for the root ``node`` that goes into ``buffer``, and the buffer in that value's shape."""
    value = root_of(node)
    if value.type.shape == buffer.shape:
        return value, buffer
    shape = value.type.shape
    strides = _spread([s for s, d in zip(buffer.strides, buffer.shape, strict=True) if d != 1], shape)
    return value, Buffer(buffer.name, buffer.dtype, shape, strides, "slice", True, buffer)


def _spread(strides: Sequence[Dim], shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """A stride for each axis, given those of axes of more than one element."""
    rest = iter(strides)
    return tuple(0 if d == 1 else next(rest) for d in shape)


@dataclass(frozen=True)
class Access:
    """How to read a value: a stride for each of its axes (0 where it is broadcast) and an offset, in elements.

    ``whole``: along the axis with stride 1 it reaches the end of the buffer's row.
    """

    buffer: Buffer
    strides: tuple[Dim, ...]
    offset: Dim = 0
    whole: bool = True

    def may_overread(self, axis: int) -> bool:
        """Whether a whole vector may be touched past the end of the axis: rows of buffers of our own are padded."""
        return self.whole and not self.buffer.dense and self.offset == 0 and self.strides[axis] == 1


def view(node: Node, inner: Access) -> Access | None:
    """The access of a view of a value, or None where the node is no view of it."""
    if not is_view(node) or node.op.view is None:
        return None
    seen = node.op.view(node, inner.strides)
    return replace(inner, strides=seen.strides, offset=inner.offset + seen.offset, whole=inner.whole and seen.whole)


def panels_of(graphs: Iterable[Graph], name: str) -> Panels | None:
    """How a weight is cut into panels, where all that reads it are products over all of its axes but one."""
    reads = [use for graph in graphs if name in graph.inputs for use in uses(graph, graph.inputs[name])]
    axes = {_column_axis(node, i) for node, i in reads}
    if len(axes) != 1:
        return None
    (axis,) = axes
    if axis is None:
        return None
    type_ = reads[0][0].arg(reads[0][1]).type
    shape = tuple(int(d) for d in type_.shape)
    gates = _gates(reads[0][0])
    width = (LINE if gates else PANEL_BYTES) // type_.dtype.itemsize
    columns, unit, rows = shape[axis], LINE // type_.dtype.itemsize, prod(shape) // shape[axis]
    if type_.dtype.name not in (*VECTORS, "i32") or 4 * columns < width // 2:
        return None
    if gates or type_.dtype.name not in VECTORS:
        return Panels(axis, width, rows, unit)
    rest = columns % unit
    has_gaps = columns + -columns % unit > PADDING_GROWTH * columns
    if has_gaps and (columns < unit or len(shape) == 2):  # rows without gaps are as fast
        return None
    return Panels(axis, width, rows, unit, rest if has_gaps or (columns > unit and rest <= COLUMNS_APART) else 0)


def _is_along_sum(product: Node, i: int) -> bool:
    """Whether the elements that an operand is multiplied with lie side by side along what is summed."""
    *labels, out = red.parse_spec(product.attrs["spec"])
    along = adjacent(product.arg(1 - i))
    return along is not None and along >= 0 and labels[1 - i][along] not in out


def _column_axis(node: Node, i: int) -> int | None:
    """The one axis of an operand of a contraction that the result has and the other operand has not."""
    if node.op not in PRODUCTS or i < 0 or node.arg(0) is node.arg(1):
        return None
    if i == 0 and root_of(node.arg(1)).attrs.get("parameter"):  # of two weights, the second may lie in panels
        return None
    if _gates(node):
        return node.arg(i).type.rank - 1 if i == weights_of(node) else None
    *labels, out = red.parse_spec(node.attrs["spec"])
    kept = [c for c in labels[i] if c in out]
    return labels[i].index(kept[0]) if len(kept) == 1 and kept[0] not in labels[1 - i] else None


def _gates(node: Node) -> int:
    return gates_of(node, node.graph.users(), node.graph.roots()) if weights_of(node) >= 0 else 0


def panel_strides(panels: Panels, shape: Sequence[int]) -> tuple[int, ...]:
    """Steps of each axis in the rows of a panel; none for the axis that is cut."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(range(len(shape))):
        if axis != panels.axis:
            strides[axis] = step
            step *= shape[axis]
    return tuple(strides)


def slot_buffer(graphs: Iterable[Graph], name: str, dtype: str, where: str) -> Buffer:
    """A parameter's storage: for a matrix, the order that makes the contractions that read or write it cheapest."""
    node = next(g.inputs[name] for g in graphs if name in g.inputs)
    shape = tuple(int(d) for d in node.type.shape)
    itemsize = node.type.dtype.itemsize
    order = tuple(range(len(shape)))
    if len(shape) == 2 and 1 in shape:  # read as a vector
        order = (0, 1) if shape[0] == 1 else (1, 0)
    elif len(shape) == 2:
        order = min(((0, 1), (1, 0)), key=lambda axes: _cost(graphs, name, axes[-1], itemsize))
    strides, dense = held([shape[a] for a in order], itemsize)
    placed = tuple(strides[order.index(a)] for a in range(len(shape)))
    return Buffer(name, dtype, node.type.shape, placed, where, dense)


def held(shape: Sequence[int], itemsize: int) -> tuple[tuple[int, ...], bool]:
    """Strides in elements of what a module holds, and whether it is dense: where padded rows would take much more."""
    dense = len(shape) > 1 and int(padded(shape[-1], itemsize)) > PADDING_GROWTH * shape[-1]
    return tuple(int(s) for s in row_major(shape, itemsize, dense=dense)), dense


def _cost(graphs: Iterable[Graph], name: str, unit: int, itemsize: int) -> int:
    """Multiply-adds with padding, of products that read or write a matrix whose axis ``unit`` lies side by side."""
    total = 0
    for graph in graphs:
        read = uses(graph, graph.inputs[name]) if name in graph.inputs else []
        written = _written_by(graph, name)
        for node, i in (*read, *((node, -1) for node in written)):
            if node.op is red.contract:
                total += _use_cost(node, i, unit, itemsize)
        for node in dict.fromkeys((*(node for node, _ in read), *written)):
            if node.op in (sparse_dot, sparse_add) and unit == node.attrs["axis"]:
                total += _sparse_cost(graph, node, name)
    return total


def _sparse_cost(graph: Graph, node: Node, name: str) -> int:
    """Of a sparse product that would have to gather a slot's elements one by one."""
    matrix = node.arg(1 if node.op is sparse_dot else 0)
    rows = prod(d if isinstance(d, int) else NOMINAL for d in node.args[-1].find().type.shape[:-1])
    is_used = matrix is graph.inputs.get(name) or graph.writes.get(name) in (node, node.find())
    return rows * prod(int(d) for d in matrix.type.shape) * LINE // matrix.type.dtype.itemsize * is_used


def _use_cost(node: Node, i: int, unit: int, itemsize: int) -> int:
    """Of a product that has a matrix as its operand ``i``, or as its result (-1).

    Reading along the result's axis costs one, along the summed axis more, or that of scalars where the other operand
    does not lie so.
    """
    *labels, out = red.parse_spec(node.attrs["spec"])
    sizes: dict[str, int] = {}
    for names, arg in zip(labels, (node.arg(0), node.arg(1)), strict=True):
        for label, extent in zip(names, arg.type.shape, strict=True):
            sizes[label] = extent if isinstance(extent, int) else NOMINAL
    along = (*labels, out)[i][unit]
    work = prod(d for c, d in sizes.items() if c != along) * int(padded(sizes[along], itemsize))
    if along in out:
        return work
    work += prod(sizes[c] for c in out) * 4 * LINE // itemsize
    return work if _is_along_sum(node, i) else work * LINE // itemsize


def _written_by(graph: Graph, name: str) -> dict[Node, None]:
    """What a slot's new value is computed from by elementwise steps, products included."""
    write = graph.writes.get(name)
    found: dict[Node, None] = {}
    stack = [write.find()] if write is not None else []
    while stack:
        top = stack.pop()
        if top not in found and top.type == write.type:  # type: ignore[union-attr]
            found[top] = None
            stack += [] if top.op is red.contract else [a.find() for a in top.args]
    return found
