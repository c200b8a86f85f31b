"""Layouts of values in memory: the strides of buffers, views of buffers (``Access``), and panels of weights.

Layouts are chosen from the graph before any kernel is made. ``storage.py`` asks for the layouts of parameters and
constants (``slot_buffer``, ``panels_of``), and the rest of lowering for those of results and callers' arrays.
``plan.py`` then assigns offsets to the buffers. Choices that only decide speed are estimates and may change: the order
of a matrix's axes, and which weights are cut into panels. Other choices must not change: callers' arrays and narrow
values are ``dense``. In any other buffer, rows are padded to whole vectors of the widest machine, as kernels read past
their ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod

from mlaot.ir import DTYPES, Dim, Graph, Node, Type
from mlaot.ir.dims import NOMINAL, product
from mlaot.lower.gates import gates_of, weights_of
from mlaot.lower.program import Buffer
from mlaot.nest.expressions import Panels
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.control import uses
from mlaot.ops.indexing import gather
from mlaot.ops.kinds import (
    PRODUCTS,
    VECTORS,
    adjacent,
    changes_unit_axes,
    is_narrow,
    is_view,
    root_of,
    slot_root,
    strides,
)
from mlaot.ops.quantized import contract_groups, gather_groups
from mlaot.ops.sparse import sparse_add, sparse_dot
from mlaot.ops.views import reshape_parts
from mlaot.schedule.machine import LINE, PAGE
from mlaot.schedule.tuning import ALONG_ROWS, COLUMNS_APART, PADDING_GROWTH


def padded_extent(extent: Dim, itemsize: int) -> Dim:
    """Round a row up to full vectors of the widest machine; bytes are counted as the floats that vectors hold.

    A row whose size is a multiple of a page gets one more vector. Otherwise the same element of all rows would compete
    for one set of the first-level cache.
    """
    lanes = LINE // (4 if itemsize == 1 else itemsize)  # vectors hold bytes as floats
    vectors = (extent + (lanes - 1)) // lanes * lanes
    return vectors + lanes if isinstance(vectors, int) and vectors and vectors * itemsize % PAGE == 0 else vectors


def row_major_strides(shape: Sequence[Dim], itemsize: int, *, dense: bool) -> tuple[Dim, ...]:
    """Return row-major strides in elements. Unless ``dense``, the rows of a value of rank 2 and more are padded."""
    strides: list[Dim] = []
    step: Dim = 1
    for i, extent in enumerate(reversed(shape)):
        strides.append(step)
        row = extent if dense or i or len(shape) < 2 else padded_extent(extent, itemsize)
        step = row * step
    return tuple(reversed(strides))


def work_buffer(name: str, type_: Type, *, gapless: bool = False) -> Buffer:
    """Return a buffer in the workspace for values of a type.

    ``gapless`` leaves out the extra vector of rows that are a multiple of a page.
    """
    dense = gapless or is_narrow(type_.shape)
    strides = row_major_strides(type_.shape, type_.dtype.itemsize, dense=dense)
    return Buffer(name, type_.dtype.name, type_.shape, strides, "work", dense)


def caller_buffer(name: str, type_: Type, where: str) -> Buffer:
    """Return a dense buffer of the caller's."""
    strides = row_major_strides(type_.shape, type_.dtype.itemsize, dense=True)
    return Buffer(name, type_.dtype.name, type_.shape, strides, where, dense=True)


def slice_buffer(buffer: Buffer, start: Dim, lead: int = 0) -> Buffer:
    """Return the part of ``buffer`` that starts at the element ``start``, without its first ``lead`` axes."""
    name, strides = buffer.name, buffer.strides[lead:]
    return Buffer(name, buffer.dtype, buffer.shape[lead:], strides, "slice", buffer.dense, buffer, start)


def is_row_major(buffer: Buffer, *, gapless: bool = False) -> bool:
    """Tell whether a buffer is row-major. It may have gaps after its rows unless ``gapless``."""
    forms = (True,) if gapless else (False, True)
    itemsize = DTYPES[buffer.dtype].itemsize
    return any(buffer.strides == row_major_strides(buffer.shape, itemsize, dense=dense) for dense in forms)


def undo_reshape(buffer: Buffer, node: Node, value: Node) -> Buffer:
    """Return ``buffer`` in the shape of the ``value`` that a kernel computes and that the root ``node`` reshapes."""
    if value.type.shape == buffer.shape:
        return buffer
    strides, node = buffer.strides, node.find()
    while node is not value:
        inner = node.arg(0)
        if changes_unit_axes(node):
            remaining = iter([s for s, d in zip(strides, node.type.shape, strict=True) if d != 1])
            strides = tuple(0 if d == 1 else next(remaining) for d in inner.type.shape)
        else:
            (part,) = reshape_parts(node, strides)
            strides = part.strides
        node = inner
    return Buffer(buffer.name, buffer.dtype, value.type.shape, strides, "slice", True, buffer)


@dataclass(frozen=True)
class Access:
    """The access to a value: a stride for each axis (0 for a broadcast axis) and an offset, in elements of the buffer.

        element[i, j, ..] = buffer[offset + i * strides[0] + j * strides[1] + ..]

    ``reaches_end`` is true if the value, along the axis of stride 1, extends to the end of the buffer's row, which
    padding follows. A slice may end before.
    """

    buffer: Buffer
    strides: tuple[Dim, ...]
    offset: Dim = 0
    reaches_end: bool = True

    def may_overread(self, axis: int) -> bool:
        """Tell whether whole vectors may be read past the end of the axis, which only padding allows."""
        return self.reaches_end and not self.buffer.dense and self.offset == 0 and self.strides[axis] == 1


def view(node: Node, inner: Access) -> Access | None:
    """Return the access to a view ``node`` by the access ``inner`` to its argument, or None if it is no view."""
    if not is_view(node) or node.op.view is None:
        return None
    seen = node.op.view(node, inner.strides)
    offset, reaches_end = inner.offset + seen.offset, inner.reaches_end and seen.whole
    return replace(inner, strides=seen.strides, offset=offset, reaches_end=reaches_end)


def panels_of(graphs: Iterable[Graph], name: str) -> tuple[int, Panels] | None:
    """Return the axis along which a constant weight is cut into panels, and the panels; None if it has no panels.

    All readers must be gathers along this axis, or products whose result has this axis and which sum over all others.
    For gates, the last axis is cut. The last columns may be a remainder, which is stored after the panels with each
    column as a row.
    """
    reads = [use for graph in graphs if name in graph.inputs for use in uses(graph, graph.inputs[name])]
    axes = {_column_axis(node, i) for node, i in reads}
    reader = next((node for node, _ in reads if node.op is not gather), None)
    if len(axes) != 1 or reader is None:
        return None
    (axis,) = axes
    if axis is None:
        return None
    type_ = reads[0][0].arg(reads[0][1]).type
    shape = tuple(int(d) for d in type_.shape)
    gates, width = _gates(reader), LINE // type_.dtype.itemsize
    columns, rows = shape[axis], prod(shape) // shape[axis]
    if type_.dtype.name not in (*VECTORS, "i32") or columns < (2 if gates else width // 2):
        return None
    if gates or type_.dtype.name not in VECTORS or reader.op in (contract_groups, gather_groups):
        return axis, Panels(rows, columns, width)
    remainder = columns % width
    has_gaps = columns + -columns % width > PADDING_GROWTH * columns
    if has_gaps and (columns < width or len(shape) == 2):  # rows without gaps are as fast
        return None
    is_table = any(node.op is gather for node, _ in reads)
    if is_table or not (has_gaps or (columns > width and remainder <= COLUMNS_APART)):
        remainder = 0
    return axis, Panels(rows, columns - remainder, width)


def _column_axis(node: Node, i: int) -> int | None:
    """Return the axis of operand ``i`` that the result has, if it is the only one and the other operand lacks it."""
    if node.op is gather:
        return 0 if i == 0 and node.attrs["lead"] == 0 and node.arg(0).type.rank > 1 else None
    if node.op is gather_groups:
        return node.arg(i).type.rank - 1 if i in (0, 1) else None
    if node.op not in PRODUCTS or i < 0 or node.arg(0) is node.arg(1):
        return None
    if node.op is contract_groups:
        return node.arg(i).type.rank - 1 if i in (1, 2) else None
    if i == 0 and root_of(node.arg(1)).attrs.get("parameter"):  # of two weights, only the second one may lie in panels
        return None
    if _gates(node):
        return node.arg(i).type.rank - 1 if i == weights_of(node) else None
    *labels, out = red.parse_spec(node.attrs["spec"])
    kept = [c for c in labels[i] if c in out]
    if len(kept) != 1 or kept[0] in labels[1 - i] or _has_rows(node, 1 - i, kept[0]):
        return None
    return labels[i].index(kept[0])


def _has_rows(node: Node, i: int, column: str) -> bool:
    """Tell whether short sums are faster along rows of operand ``i`` and the result.

    Panels would scatter results.
    """
    *labels, out = red.parse_spec(node.attrs["spec"])
    row, x = out[-1:], node.arg(i)
    along = labels[i].find(row) if row not in ("", column) else -1
    if along < 0 or strides(x)[along] != 1:
        return False
    extent = x.type.shape[along]
    summed = product(tuple(d for c, d in zip(labels[i], x.type.shape, strict=True) if c not in out))
    is_short = isinstance(summed, int) and summed <= ALONG_ROWS
    return is_short and isinstance(extent, int) and 2 * extent >= LINE // x.type.dtype.itemsize


def _gates(node: Node) -> int:
    """Return the number of gates of a recurrent layer that a product computes at once, or 0."""
    return gates_of(node, node.graph.users(), node.graph.roots()) if weights_of(node) >= 0 else 0


def panel_strides(panel_axis: int, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the stride of each axis, counted in rows of a panel; 0 for the axis that is cut into panels."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(range(len(shape))):
        if axis != panel_axis:
            strides[axis] = step
            step *= shape[axis]
    return tuple(strides)


def slots_beside(graphs: Iterable[Graph]) -> dict[str, tuple[str, ...]]:
    """Return, by the name of each slot, the slots of its shape that are updated with it, such as an optimizer's."""
    beside: dict[str, set[str]] = {}
    for graph in graphs:
        for name, write in graph.writes.items():
            found = {name}
            stack, seen = [slot_root(write)], set[Node]()
            while stack:
                top = stack.pop()
                if top in seen:
                    continue
                seen.add(top)
                if top.op.elementwise or top.op is st.reshape:
                    stack += map(Node.find, top.args)
                elif top.attrs.get("parameter", False) and top.type.shape == write.find().type.shape:
                    found.add(str(top.attrs["name"]))
            for other in [other for each in found for other in beside.get(each, ())]:
                found |= beside[other]
            beside |= dict.fromkeys(found, found)
    return {name: tuple(sorted(names)) for name, names in beside.items()}


def slot_buffer(graphs: Iterable[Graph], name: str, beside: Iterable[str], dtype: str, where: str) -> Buffer:
    """Return the buffer of a parameter or constant that is not in panels.

    All entries share a matrix, so it gets the order of axes that is cheapest for the contractions of all of them with
    the matrix and with the slots ``beside`` it.
    """
    node = next(g.inputs[name] for g in graphs if name in g.inputs)
    shape = tuple(int(d) for d in node.type.shape)
    itemsize = node.type.dtype.itemsize
    order = tuple(range(len(shape)))
    if len(shape) == 2 and 1 in shape:  # read as a vector
        order = (0, 1) if shape[0] == 1 else (1, 0)
    elif len(shape) == 2:
        names = {name, *beside}
        order = min(((0, 1), (1, 0)), key=lambda axes: sum(_order_cost(graphs, n, axes[-1], itemsize) for n in names))
    strides, dense = storage_strides([shape[a] for a in order], itemsize)
    placed = tuple(strides[order.index(a)] for a in range(len(shape)))
    return Buffer(name, dtype, node.type.shape, placed, where, dense)


def storage_strides(shape: Sequence[int], itemsize: int) -> tuple[tuple[int, ...], bool]:
    """Return the strides of an array that a module holds, and whether it is dense, which saves much padding."""
    dense = len(shape) > 1 and int(padded_extent(shape[-1], itemsize)) > PADDING_GROWTH * shape[-1]
    return tuple(int(s) for s in row_major_strides(shape, itemsize, dense=dense)), dense


def _order_cost(graphs: Iterable[Graph], name: str, unit: int, itemsize: int) -> int:
    """Return the multiply-adds, padding included, of products that read or write a matrix contiguous along ``unit``."""
    total = 0
    for graph in graphs:
        read = uses(graph, graph.inputs[name]) if name in graph.inputs else []
        written = _elementwise_sources(graph, name)
        for node, i in (*read, *((node, -1) for node in written)):
            if node.op is red.contract:
                total += _use_cost(node, i, unit, itemsize)
        for node in dict.fromkeys((*(node for node, _ in read), *written)):
            if node.op in (sparse_dot, sparse_add) and unit == node.attrs["axis"]:
                total += _sparse_cost(graph, node, name)
    return total


def _sparse_cost(graph: Graph, node: Node, name: str) -> int:
    """Return the cost of a sparse product if it must gather a slot's elements one by one."""
    matrix = node.arg(1 if node.op is sparse_dot else 0)
    rows = prod(d if isinstance(d, int) else NOMINAL for d in node.args[-1].find().type.shape[:-1])
    is_used = matrix is graph.inputs.get(name) or graph.writes.get(name) in (node, node.find())
    return rows * prod(int(d) for d in matrix.type.shape) * LINE // matrix.type.dtype.itemsize * is_used


def _use_cost(node: Node, i: int, unit: int, itemsize: int) -> int:
    """Return the cost of a product with a matrix as its operand ``i``, or as its result (-1).

    Reading vectors along an axis of the result costs one multiply-add per element. Reading along a summed axis adds the
    folding of lanes at each result; if the other operand is not contiguous there, the product is one of scalars.
    """
    *labels, out = red.parse_spec(node.attrs["spec"])
    sizes: dict[str, int] = {}
    for names, arg in zip(labels, (node.arg(0), node.arg(1)), strict=True):
        for label, extent in zip(names, arg.type.shape, strict=True):
            sizes[label] = extent if isinstance(extent, int) else NOMINAL
    along = (*labels, out)[i][unit]
    work = prod(d for c, d in sizes.items() if c != along) * int(padded_extent(sizes[along], itemsize))
    if along in out:
        return work
    work += prod(sizes[c] for c in out) * 4 * LINE // itemsize
    return work if _is_along_sum(node, i) else work * LINE // itemsize


def _is_along_sum(product: Node, i: int) -> bool:
    """Tell whether the other operand of a product is contiguous along a summed axis."""
    *labels, out = red.parse_spec(product.attrs["spec"])
    along = adjacent(product.arg(1 - i))
    return along is not None and along >= 0 and labels[1 - i][along] not in out


def _elementwise_sources(graph: Graph, name: str) -> dict[Node, None]:
    """Return the nodes from which a slot's new value is computed by elementwise steps, products included."""
    write = graph.writes.get(name)
    sources: dict[Node, None] = {}
    stack = [write.find()] if write is not None else []
    while stack:
        top = stack.pop()
        if top not in sources and top.type == write.type:  # type: ignore[union-attr]
            sources[top] = None
            stack += [] if top.op is red.contract else [a.find() for a in top.args]
    return sources
