"""A node that is not fused, and a buffer for its result: the base of such kernels."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from mlaot.ir import Dim, Node
from mlaot.nest.expressions import INDEX, Array, Call, Expr, Index, Load, Panels, ValueType, Var, as_index
from mlaot.nest.statements import Alloc, Body, For, Let, Store, around, index_var, loop, loop_in_block
from mlaot.schedule.tuning import SHARED_TILES

WIDE = 8  # elements of a row that are worth vectors
COLUMNS = 256  # of a block: it stays in the first-level cache, and is work enough for a thread if there are many rows
START = as_index(index_var("start"))  # the first column of a block


At = Sequence[Expr]  # an index along each axis
ZERO = Index(0)
PANEL, LANE = Var("panel", INDEX), Var("lane", INDEX)


class Storage(Protocol):
    """The interface by which statements read and write: ``Builder``, in ``mlaot/lower/builder.py``, implements it.

    Accesses and buffers are those of lowering; a nest uses only their ``strides``.
    """

    accesses: Mapping[Node, Any]

    def array(self, buffer: Any) -> Array: ...
    def access(self, node: Node) -> Any: ...
    def value(self, node: Node, at: At) -> Expr: ...
    def element(self, access: Any, at: At) -> Any: ...
    def store(self, buffer: Any, at: At, value: Expr) -> Store: ...


def place(at: At, strides: Sequence[Dim], offset: Dim = 0) -> Expr:
    """Return the element index ``offset + sum(at[i] * strides[i])``."""
    total: Expr = Index(offset)
    for index, stride in zip(at, strides, strict=True):
        total = total + index * Index(stride)
    return total


class Target:
    """A node and one of the buffers that its result is written to; ``at`` are the indices of an element there.

    ``placed`` are the arguments that their kernels write directly into the buffer. ``tables`` are the kernel's
    constants.
    """

    def __init__(
        self, builder: Storage, node: Node, out: Any, tables: dict[tuple[int, ...], Array], placed: Collection[int] = ()
    ) -> None:
        self.builder = builder
        self.node = node
        self.out = out
        self.array = builder.array(out)
        self.placed = placed
        self.tables = tables
        self.attrs = node.attrs
        self.shape = node.type.shape
        self.names = loop_names(self.shape)
        self.at = indices(self.names)

    @property
    def dtype(self) -> str:
        return self.node.type.dtype.name

    def arg(self, i: int) -> Node:
        return self.node.arg(i)

    def read(self, i: int, at: At) -> Expr:
        """Load the element of argument ``i`` at some indices."""
        return self.builder.value(self.arg(i), at)

    def row(self, i: int, axis: int) -> tuple[Array, Expr, Dim]:
        """Return the place of argument ``i``, which is stored, along an axis: array, first index, stride."""
        access = self.builder.access(self.arg(i))
        first = self.builder.element(access, self.along(axis, ZERO))
        return first.array, first.index, access.strides[axis]

    def _panels(self, i: int) -> Panels | None:
        """Return the panels of argument ``i``, if it has some."""
        access = self.builder.accesses.get(self.arg(i))
        return None if access is None else access.buffer.panels

    def find_column(self, i: int, column: Expr) -> Body:
        """Bind ``panel`` and ``lane`` to the place of a column of argument ``i``, if that is in panels."""
        panels = self._panels(i)
        if panels is None:
            return ()
        width = as_index(panels.width)
        return Let(PANEL, Call("div", (column, width), INDEX)), Let(LANE, Call("mod", (column, width), INDEX))

    def in_column(self, i: int, at: At, column: Expr, axis: int) -> Expr:
        """Load an element of a column along ``axis`` that ``find_column`` has found; all panels have the same width.

        ``at`` has the indices along the other axes.
        """
        panels = self._panels(i)
        if panels is None:
            return self.read(i, [*at[:axis], as_index(column), *at[axis:]])
        access = self.builder.access(self.arg(i))
        array, strides = self.builder.array(access.buffer), access.strides
        row = as_index(PANEL) * Index(panels.rows) + place(at, (*strides[:axis], *strides[axis + 1 :]))
        return Load(array, row * Index(panels.width) + as_index(LANE), ValueType(array.dtype))

    def element(self, at: At) -> Load:
        """Load an element of the result that is already there."""
        store = self.builder.store(self.out, at, ZERO)
        return Load(store.array, store.index, ValueType(self.dtype), padded=store.padded)

    def store(self, at: At, value: Expr) -> Store:
        """Write an element, in a loop over whole rows."""
        return self.builder.store(self.out, at, value)

    def store_part(self, at: At, value: Expr, offset: Dim = 0) -> Store:
        """Write the element ``offset`` further on, and preserve elements after its row."""
        return Store(self.array, place(at, self.out.strides, offset), value)

    def fill(self, value: Expr, lead: int = 0, *, parallel: bool = False) -> Body:
        """Store ``value`` in all elements with the first ``lead`` indices.

        With ``parallel`` the kernel does nothing else.
        """
        body = (self.store(self.at, value),)
        return rows(self.names[lead:], self.shape[lead:], body, self.out.strides[lead:], parallel=parallel)

    def along(self, axis: int, index: Expr) -> At:
        """Return ``at`` with another index along one axis."""
        return [*self.at[:axis], index, *self.at[axis + 1 :]]

    def around(self, axes: Sequence[int], body: Body) -> Body:
        """Wrap ``body`` in loops over axes of the result whose rounds write different elements."""
        return around([(self.names[i], self.shape[i]) for i in axes], body, parallel=True)

    def is_alone(self, row: int, *carried: int) -> bool:
        """Tell whether one long axis is the only one, apart from ``carried`` axes, whose elements threads can share."""
        further = [d for i, d in enumerate(self.shape) if i not in (row, *carried) and isinstance(d, int) and d != 1]
        extent = self.shape[row]
        return not further and isinstance(extent, int) and extent >= SHARED_TILES * COLUMNS

    def columns(self, row: int, body: Body) -> Body:
        """Run ``body`` for each column of a block."""
        return (loop_in_block(self.names[row], START, COLUMNS, self.shape[row], body),)

    def blocks(self, row: int, body: Body) -> Body:
        """Run ``body`` for each block of columns along an axis."""
        return (For(index_var("start"), ZERO, as_index(self.shape[row]), body, COLUMNS, parallel=True),)

    def table(self, values: Iterable[int]) -> Array:
        """Return an array of constants, the same one for equal values."""
        entries = tuple(int(v) for v in values)
        array = self.tables.get(entries)
        if array is None:
            array = Array(f"table{len(self.tables)}", "i32", len(entries), "table", entries)
            self.tables[entries] = array
        return array

    def constants(self) -> Body:
        """Return the statements that declare the tables."""
        return tuple(map(Alloc, self.tables.values()))


def loop_names(shape: Sequence[Dim], prefix: str = "i") -> list[str]:
    """Return a loop variable for each axis, an empty one for unit axes."""
    return ["" if extent == 1 else f"{prefix}{i}" for i, extent in enumerate(shape)]


def indices(names: Sequence[str]) -> list[Expr]:
    """Return the values of loop variables."""
    return [as_index(index_var(name)) if name else ZERO for name in names]


def rows(
    names: Sequence[str], shape: Sequence[Dim], body: Body, strides: Sequence[Dim] = (), *, parallel: bool = False
) -> Body:
    """Wrap ``body`` in loops whose rounds may run in any order, the innermost one in vectors if it is long.

    ``strides`` are those of the written array. The axis along which elements are adjacent becomes the innermost.
    """
    order = [i for i, name in enumerate(names) if name]
    adjacent = [i for i in order if strides and strides[i] == 1]
    order = [*[i for i in order if i not in adjacent], *adjacent]
    if not order:
        return body
    *outer, inner = order
    innermost = loop(names[inner], shape[inner], body, vector=is_wide(shape[inner]), parallel=parallel)
    return around([(names[i], shape[i]) for i in outer], (innermost,), parallel=parallel)


def adjacent_axis(strides: Sequence[Dim], shape: Sequence[Dim]) -> int | None:
    """Return the axis along which many elements are adjacent."""
    axes = [i for i, stride in enumerate(strides) if stride == 1 and is_wide(shape[i])]
    return axes[-1] if axes else None


def is_wide(extent: Dim) -> bool:
    """Tell whether a row is long enough for vectors."""
    return not isinstance(extent, int) or extent >= WIDE


def dense(shape: Sequence[Dim]) -> list[Dim]:
    """Return the strides of a dense array."""
    strides: list[Dim] = []
    step: Dim = 1
    for extent in reversed(shape):
        strides.append(step)
        step = extent * step
    return strides[::-1]


def unravel(flat: Expr, shape: Sequence[Dim], name: str) -> tuple[Body, list[Expr]]:
    """Return the indices of the element number ``flat`` of a dense array, and the variables that they need.

    Index k is ``flat // stride_k mod extent_k``. The outermost index needs no mod, and the innermost no division.
    """
    lets: list[Let] = []
    result: list[Expr] = []

    def bind(value: Expr, operation: str, by: Dim) -> Expr:
        var = Var(f"{name}_{len(lets)}", INDEX)
        lets.append(Let(var, Call(operation, (value, Index(by)), INDEX)))
        return as_index(var)

    for i, (extent, stride) in enumerate(zip(shape, dense(shape), strict=True)):
        if extent == 1:
            result.append(ZERO)
            continue
        index = flat if stride == 1 else bind(flat, "div", stride)
        is_outermost = all(d == 1 for d in shape[:i])
        result.append(index if is_outermost else bind(index, "mod", extent))
    return tuple(lets), result
