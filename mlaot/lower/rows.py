"""Row kernels: elementwise ops and reductions along rows, in several loops over each row.

for i in parallel(0, rows):
    for j in vector(0, columns): m = max(m, x)            a stage for each reduction that later work waits for
    for j in vector(0, columns): e = exp(x - m), s += e
    for j in vector(0, columns): y = e / s

Rows may lie along axes before the last, such as the pixels of an image with its channels in vectors. A loop over the
last axis is then around these loops, and each lane has a row:

for i in parallel(0, examples):
    for j in vector(0, channels):
        for k in range(0, places): m = max(m, x)
        ..
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from math import gcd

from mlaot.ir import DTYPES, Node
from mlaot.ir.dims import NOMINAL, dim
from mlaot.lower.builder import Accesses, Builder, Stores
from mlaot.lower.fuse import Group
from mlaot.lower.layout import padded_extent
from mlaot.lower.program import Kernel
from mlaot.nest.expressions import Array, Call, Expr, Index, Load, ValueType, Var, as_index, cast, const
from mlaot.nest.reductions import identity
from mlaot.nest.statements import (
    Alloc,
    Assign,
    Body,
    For,
    Mutable,
    Statement,
    Store,
    around,
    index_var,
    loop,
    loop_in_block,
    substitute_body,
)
from mlaot.ops import structure as st
from mlaot.ops.kinds import base_of, is_free
from mlaot.ops.nests.target import ZERO
from mlaot.schedule.machine import LINE
from mlaot.schedule.tuning import LANE_BLOCK, ROW_NODES_AGAIN, STACK_ROW_BYTES


def stages_of(group: Group) -> dict[Node, int]:
    """Return the stage that computes each node. A value per row is computed before the loop of its stage."""
    stage: dict[Node, int] = {}
    for node in group.nodes:
        inside = [base_of(a) for a in node.args if base_of(a) in stage]
        stage[node] = max((stage[a] for a in inside), default=0) + (node.op.reduces)
    return stage


def across_stages(group: Group, stored: Container[Node] = ()) -> tuple[list[Node], dict[int, set[Node]]]:
    """Return the full rows that later stages read, and for each stage the rows that it recomputes at no higher cost.

    For example, x - mean(x) in a variance and in the result is the difference of an element and a number in both
    stages. Rows in ``stored`` are read from memory.
    """
    stage, full = stages_of(group), group.shape
    steps: dict[Node, int] = {}  # from one element of a row; 0 for what is not worth computing again
    for node in group.nodes:
        rows = [base_of(a) for a in node.args if a.find().type.shape == base_of(a).type.shape == full]
        is_light = node.op.cheap and node.type.dtype.name == group.dtype and len(set(rows)) <= 1
        count = 1 + max((steps.get(x, 0) for x in rows), default=0)
        steps[node] = count if is_light and count <= ROW_NODES_AGAIN else 0
    waiting: dict[Node, None] = {}
    again: dict[int, set[Node]] = {}

    def need(x: Node, s: int) -> None:
        if x not in stage or x.type.shape != full or stage[x] >= s or x in stored:
            return
        if not steps[x]:
            waiting[x] = None
        elif x not in again.setdefault(s, set()):
            again[s].add(x)
            for a in x.args:
                need(base_of(a), s)

    for node in group.nodes if group.axes else ():
        for a in node.args:
            need(base_of(a), stage[node] - (node.op.reduces))
    return list(waiting), again


def needs_buffer(group: Group) -> list[Node]:
    """Return the rows for later stages that are too long for the stack, or of dynamic length."""
    columns = group.shape[-1] if group.is_along_last else None
    if isinstance(columns, int) and padded_extent(columns, 8) * DTYPES[group.dtype].itemsize <= STACK_ROW_BYTES:
        return []
    return across_stages(group)[0]


def rows_kernel(group: Group, accesses: Accesses, stores: Stores) -> Kernel:
    """Return the kernel of a group of kind "rows"."""
    return _RowsBuilder(group, accesses, stores).build()


class _RowsBuilder(Builder):
    """Build the loops of one row kernel.

    ``axis`` is the axis along the lanes, and ``along`` the axes of a row, from the outermost.
    """

    def __init__(self, group: Group, accesses: Accesses, stores: Stores) -> None:
        super().__init__(group, accesses, stores)
        self.stage = stages_of(group)
        self.full = group.shape
        self.rank = len(self.full)
        order = self._axis_order()
        self.axis = order[-1] if group.axes else None
        self.along = list(group.axes) if self._is_reduced() else order[-1:] if group.axes else []
        self.row_axes = [a for a in order if a not in (self.axis, *self.along)]
        names = {a: f"i{i}" if len(self.row_axes) > 1 else "i" for i, a in enumerate(self.row_axes)}
        self.loops = [(name, self.full[a]) for a, name in names.items()]
        names |= {a: f"k{i}" if len(self.along) > 1 else "k" for i, a in enumerate(self.along)}
        if self.axis is not None:
            names[self.axis] = "j"
        self.axis_names = names
        self.at: list[Expr] = [as_index(index_var(names[a])) for a in range(self.rank)]
        self.temporaries: dict[Node, Array] = {}
        waiting, self.again = across_stages(group, stores)
        for node in waiting:
            self.temporaries[node] = self._temporary(node)

    def _is_reduced(self) -> bool:
        return any(n.op.reduces for n in self.group.nodes)

    def _temporary(self, node: Node) -> Array:
        """Return a row on the stack for a value that a later stage reads. Truth values become numbers."""
        columns = self.full[-1]
        assert isinstance(columns, int)
        size = padded_extent(columns, DTYPES[self.group.dtype].itemsize)
        return Array(f"{self.names[node]}_row", self.group.dtype, size, "local")

    def _axis_order(self) -> list[int]:
        """Return row-major order, or without reductions the order in which the result is stored."""
        axes = list(range(self.rank))
        if any(n.op.reduces or n.type.shape != self.full for n in self.group.nodes):
            return axes
        target = next((b for n in self.group.nodes for b in self.stores.get(n, ())), None)
        if target is None:
            return axes
        weight = [s if isinstance(s, int) else NOMINAL**4 for s in target.strides]
        return sorted(axes, key=lambda a: (-weight[a], a))

    def build(self) -> Kernel:
        """Build the nest: loops over rows around one loop over columns for each stage."""
        nodes = self.group.nodes
        has_full = any(n.type.shape == self.full or n.op.reduces for n in nodes)
        if self.axis is None or not has_full:
            body = self.elementwise(nodes, self.indices, {}, self.group.dtype)
            return self.kernel(around(self.loops, body, parallel=True))
        count = max(self.stage.values(), default=0)
        stages = [s for s in range(count + 1) if any(self._column_stage(n) == s for n in nodes)]
        values: dict[Node, Expr] = {}
        parts = [self._stage(s, values) for s in stages]
        done = self.elementwise(self._row_nodes(len(stages)), self.indices, values, self.group.dtype)
        unit = LINE // DTYPES[self.group.dtype].itemsize
        is_plain = not done and len(parts) == 1 and len(parts[0]) == 1 and isinstance(parts[0][0], For)
        if is_plain and self._reads_along_rows(unit):
            return self.kernel(self._transposed_loops(parts[0][0], unit))
        body = (*map(Alloc, self.temporaries.values()), *(s for part in parts for s in part), *done)
        if self.axis not in self.along:
            return self.kernel(around(self.loops, self._lanes_of_rows(body), parallel=True))
        if not self.loops:
            body = tuple(_share(s) for s in body)
        return self.kernel(around(self.loops, body, parallel=True))

    def _lanes_of_rows(self, body: Body) -> Body:
        """Return the loop over the last axis around the work on a row, in blocks if the axis is long."""
        assert self.axis is not None
        size = self.full[self.axis]
        assert isinstance(size, int)
        if size <= LANE_BLOCK:
            return (loop("j", size, body, vector=True),)
        block = gcd(size, LANE_BLOCK)
        lanes = loop("j", block, substitute_body(body, {"j": Index(dim("j") + dim("first"))}), vector=True)
        return (For(index_var("first"), ZERO, Index(size), (lanes,), block, parallel=True),)

    def _transposed_loops(self, columns: Statement, unit: int) -> Body:
        """Return loops for values that are contiguous along rows: vectors of columns, for ``unit`` rows in turn.

        A vector of columns gathers from one cache line for each lane. The next rows use the other elements of these
        lines.
        """
        assert isinstance(columns, For)
        *outer, (name, extent) = self.loops
        first = f"{name}_first"
        rows = loop_in_block(name, as_index(index_var(first)), unit, extent, columns.body)
        vectors = loop("j", columns.high, (rows,), vector=True)
        tiles = For(index_var(first), ZERO, as_index(extent), (vectors,), unit, parallel=True)
        return around(outer, (tiles,), parallel=True)

    def _reads_along_rows(self, unit: int) -> bool:
        """Tell whether the elements of neighbouring rows are adjacent in a value that is read."""
        if self.axis is None or not self.row_axes:
            return False
        sizes = [self.full[a] for a in (self.axis, self.row_axes[-1])]
        if any(isinstance(size, int) and size <= unit for size in sizes):
            return False
        outside = [a.find() for n in self.group.nodes for a in n.args if base_of(a) not in self.inside]
        strides = [self.access(a).strides for a in outside if not is_free(base_of(a)) and a.type.rank == self.rank]
        return any(s[self.row_axes[-1]] == 1 and s[self.axis] not in (0, 1) for s in strides)

    def _column_stage(self, node: Node) -> int | None:
        """Return the stage whose loop computes the node, or None for a value per row."""
        if node.op.reduces:
            return self.stage[node] - 1
        return self.stage[node] if node.type.shape == self.full else None

    def _row_nodes(self, s: int) -> list[Node]:
        return [n for n in self.group.nodes if self._column_stage(n) is None and self.stage[n] == s]

    def _column_nodes(self, s: int) -> list[Node]:
        """Return the nodes in the loop of a stage, except nodes that only later stages read and recompute."""
        again, read = self.again.get(s, set()), set[Node]()
        nodes = []
        for node in reversed(self.group.nodes):
            is_kept = node.op.reduces or node in self.stores or node in self.temporaries or node in read
            if is_kept and (self._column_stage(node) == s or node in again):
                nodes.append(node)
                read |= {base_of(a) for a in node.args}
        return nodes[::-1]

    def indices(self, node: Node) -> Sequence[Expr]:
        """Return the indices of a value at a point; a value per row has those of the other axes."""
        return self.at if node.type.rank == self.rank else [self.at[a] for a in self.group.kept_axes]

    def _stage(self, s: int, values: dict[Node, Expr]) -> Body:
        """Return the values per row before a loop, its accumulators, the loop over columns, and its reductions."""
        before = self.elementwise(self._row_nodes(s), self.indices, values, self.group.dtype)
        nodes = self._column_nodes(s)
        reductions = [n for n in nodes if n.op.reduces]
        type_ = ValueType(self.group.dtype)
        totals = {n: Var(self.names[n], type_) for n in reductions}
        starts = [Mutable(var, identity(n.op.name, self.group.dtype)) for n, var in totals.items()]
        own, names = dict(values), self.names
        # What does not change along a row leaves its loop, and the stages of a row share a scope of C.
        self.names = {**names, **{n: f"{names[n]}_{s}" for n in self.again.get(s, ())}}
        columns = list(self.elementwise(nodes, self.indices, own, self.group.dtype, totals))
        columns += self._keep_rows(nodes, own)
        self.names = names
        loops = [(self.axis_names[a], self.full[a]) for a in self.along]
        is_vector = self.axis in self.along
        (along,) = around(loops, columns, vector=is_vector)
        values |= totals
        stores = [self.store(b, self.indices(n), totals[n]) for n in reductions for b in self.stores.get(n, ())]
        return (*before, *starts, along, *stores)

    def _keep_rows(self, nodes: Iterable[Node], values: dict[Node, Expr]) -> list[Statement]:
        """Store what later stages read in rows on the stack."""
        assert self.axis is not None
        at = self.at[self.axis]
        kept = [n for n in nodes if n in self.temporaries]
        return [Store(self.temporaries[n], at, cast(values[n], self.group.dtype), padded=True) for n in kept]

    def value(self, node: Node, at: Sequence[Expr]) -> Expr:
        """Load one element. A value of an earlier stage is loaded from the row where that stage stored it."""
        base = base_of(node)
        if base in self.temporaries:
            assert self.axis is not None
            x = Load(self.temporaries[base], self.at[self.axis], ValueType(self.group.dtype), padded=True)
            return Call("ne", (x, const(0.0, x.type)), ValueType("bool")) if base.type.dtype.name == "bool" else x
        if base in self.inside:  # stored by an earlier stage
            return super().value(base, self.indices(base))
        return super().value(node, at)

    def compute(self, node: Node, args: Sequence[Expr], at: Sequence[Expr]) -> Expr:
        if node.op is st.one_hot:
            number = cast(at[-1], self.group.dtype)
            return Call("is_equal", (number, cast(args[0], self.group.dtype)), ValueType(self.group.dtype))
        return super().compute(node, args, at)


def _share(s: Statement) -> Statement:
    """Let threads share the loop over a single row, if it carries nothing from element to element."""
    if isinstance(s, For) and not any(isinstance(inner, Assign) for inner in s.body):
        return For(s.var, s.low, s.high, s.body, s.step, True, s.vector)
    return s
