"""Products with rows that are mostly zeros: list the nonzeros of a row, then add the row of the matrix for each.

    end = invoke(nonzeros, pixels[i0 * 784], 784, t0)
    for j in vector(0, 64):
        a0: f32 = f32(0.0)
        for e in range(0, end):
            row = cast[index](t0[e])
            x0 = cast[f32](pixels[i0 * 784 + row])
            a0 = a0 + x0 * w[row * 64 + j]                                  sparse_dot
        out[i0 * 64 + j] = a0

The schedule interleaves several vectors of columns, as many as there are registers for, in one loop over the list.
Every CPU adds the products of a row in the same order.
"""

from __future__ import annotations

from mlaot.ir.types import Type, i32
from mlaot.lower.builder import Accesses, Builder, Stores
from mlaot.lower.fuse import Group
from mlaot.lower.layout import Access, work_buffer
from mlaot.lower.program import Kernel
from mlaot.nest.expressions import INDEX, Array, Expr, Index, Load, ValueType, Var, as_index, cast, const
from mlaot.nest.statements import Assign, Body, Invoke, Let, Mutable, Store, around, index_var, loop
from mlaot.ops.nests.target import ZERO, At
from mlaot.ops.sparse import sparse_dot
from mlaot.schedule.machine import LINE

END, ROW = Var("end", INDEX), Var("row", INDEX)
E, J = as_index(index_var("e")), as_index(index_var("j"))


def sparse_kernel(group: Group, accesses: Accesses, stores: Stores) -> Kernel:
    """Return the kernel of a node ``sparse_dot`` or ``sparse_add``, which writes the first of its buffers."""
    return _SparseBuilder(group, accesses, stores).build()


class _SparseBuilder(Builder):
    """Build the loops over the rows of ``x``, over the columns of the matrix, and over the nonzeros of a row."""

    def __init__(self, group: Group, accesses: Accesses, stores: Stores) -> None:
        super().__init__(group, accesses, stores)
        (self.node,) = group.nodes
        self.is_dot, self.axis = self.node.op is sparse_dot, self.node.attrs["axis"]
        self.x, self.matrix = self.node.arg(not self.is_dot), self.node.arg(self.is_dot)
        self.out, self.type = Access(stores[self.node][0], stores[self.node][0].strides), ValueType(group.dtype)
        self.array(self.out.buffer)  # the first of the kernel's
        lead = self.x.type.shape[:-1]
        self.loops = [("" if extent == 1 else f"i{i}", extent) for i, extent in enumerate(lead)]
        self.lead = [as_index(index_var(name)) if name else ZERO for name, _ in self.loops]

    def build(self) -> Kernel:
        """Build the nest: for each row, list its nonzeros, then loop over columns."""
        length, columns = self.matrix.type.shape[self.axis], self.matrix.type.shape[1 - self.axis]
        assert isinstance(length, int), "bug in mlaot: a sparse product without fixed sizes"
        copy = () if self.is_dot else self._copy_matrix()
        listed = self.array(work_buffer("list", Type(i32, (length + LINE // 4,))))
        x = Var("x0", self.type)
        row = (Let(ROW, cast(listed[E], "index")), Let(x, cast(self._x(as_index(ROW)), x.type.dtype)))
        along = self._dot(row, x) if self.is_dot else self._add(row, x)
        columns_ = loop("j", columns, along, vector=True)
        return self.kernel((*copy, *around(self.loops, (*self._list_nonzeros(length, listed), columns_))), "sparse")

    def _x(self, row: Expr) -> Load:
        return self.element(self.access(self.x), [*self.lead, row])

    def _at(self, row: Expr, column: Expr) -> At:
        """Return the indices of an element of the matrix."""
        return (column, row) if self.axis else (row, column)

    def _list_nonzeros(self, length: int, listed: Array) -> Body:
        """List the indices of the nonzeros of a row; ``end`` is their number."""
        first = self._x(ZERO)
        if self.access(self.x).strides[-1] == 1:
            return (Invoke(END, "nonzeros", first.array, first.index, Index(length), listed),)
        row, end = as_index(ROW), as_index(END)
        test = (
            Store(listed, end, cast(row, "i32")),
            Assign(END, end + cast(cast(self._x(row), "bool"), "index")),
        )
        return Mutable(END, ZERO), loop(ROW.name, length, test)

    def _dot(self, row: Body, x: Expr) -> Body:
        """Compute a column of the product of a row."""
        a = Var("a0", self.type)
        element = self.element(self.access(self.matrix), self._at(as_index(ROW), J))
        step = (*row, Assign(a, a + x * element))
        return Mutable(a, const(0.0, a.type)), loop("e", as_index(END), step), self._store([*self.lead, J], a)

    def _add(self, row: Body, x: Expr) -> Body:
        """Add the products with a row to a column of the matrix."""
        at, b = self._at(as_index(ROW), J), Var("b0", self.type)
        step = (*row, self._store(at, self.element(self.out, at) + x * b))
        return Let(b, self.value(self.node.arg(2), [*self.lead, J])), loop("e", as_index(END), step)

    def _store(self, at: At, value: Expr) -> Store:
        return self.store(self.out.buffer, at, value)

    def _copy_matrix(self) -> Body:
        """Copy the old matrix to the destination of the new one, unless the new one overwrites it."""
        if self.accesses.get(self.matrix) == self.out:
            return ()
        at = [as_index(index_var("row")), as_index(index_var("column"))]
        copy = self._store(at, self.value(self.matrix, at))
        rows, columns = self.matrix.type.shape
        return (loop("row", rows, (loop("column", columns, (copy,), vector=True),)),)
