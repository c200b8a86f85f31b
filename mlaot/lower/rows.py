"""Row kernels: elementwise ops and reductions along the last axis, several loops over each row.

for i in parallel(0, rows):
    for j in vector(0, columns): m = max(m, x)            a stage for each reduction that later work waits for
    for j in vector(0, columns): e = exp(x - m), s += e
    for j in vector(0, columns): y = e / s
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mlaot.ir import DTYPES, Node
from mlaot.ir.dims import NOMINAL
from mlaot.lower.builder import ZERO, Accesses, Builder, Stores
from mlaot.lower.fuse import Group, full_shape
from mlaot.lower.layout import padded
from mlaot.lower.program import Kernel
from mlaot.nest.expressions import INDEX, Array, Call, Expr, Load, ValueType, Var, as_index, cast, const
from mlaot.nest.reductions import identity
from mlaot.nest.statements import Alloc, Assign, Body, For, Mutable, Statement, Store, around, index_var, loop
from mlaot.ops import structure as st
from mlaot.ops.kinds import REDUCTIONS, base_of, is_free
from mlaot.schedule.machine import LINE
from mlaot.schedule.tuning import STACK_ROW_BYTES


def stages_of(group: Group) -> dict[Node, int]:
    """The stage in which each node is computed; a row value belongs before the stage of its number."""
    stage: dict[Node, int] = {}
    for node in group.nodes:
        inside = [base_of(a) for a in node.args if base_of(a) in stage]
        stage[node] = max((stage[a] for a in inside), default=0) + (node.op in REDUCTIONS)
    return stage


def waiting(group: Group) -> list[Node]:
    """Full values that a later stage reads; where columns are dynamic or long, they need a buffer."""
    stage, full = stages_of(group), full_shape(group)
    found: dict[Node, None] = {}
    for node in group.nodes:
        for a in node.args:
            base = base_of(a)
            if base in stage and base.type.shape == full and group.columns is not None:
                at = stage[node] - (node.op in REDUCTIONS)
                if stage[base] < at:
                    found[base] = None
    return list(found)


def needs_buffer(group: Group) -> list[Node]:
    columns = group.columns
    if isinstance(columns, int) and padded(columns, 8) * DTYPES[group.dtype].itemsize <= STACK_ROW_BYTES:
        return []
    return waiting(group)


def rows_kernel(group: Group, accesses: Accesses, stores: Stores) -> Kernel:
    """The kernel of a group of kind "rows"."""
    return _RowsBuilder(group, accesses, stores).build()


class _RowsBuilder(Builder):
    """Makes the loops of one row kernel."""

    def __init__(self, group: Group, accesses: Accesses, stores: Stores) -> None:
        super().__init__(group, accesses, stores)
        self.stage = stages_of(group)
        self.full = full_shape(group)
        self.rank = len(self.full)
        order = self._axis_order()
        self.axis = order[-1] if group.columns is not None else None
        self.row_axes = [a for a in order if a != self.axis]
        names = {a: f"i{i}" if len(self.row_axes) > 1 else "i" for i, a in enumerate(self.row_axes)}
        self.loops = [(name, self.full[a]) for a, name in names.items()]
        if self.axis is not None:
            names[self.axis] = "j"
        self.at: list[Expr] = [as_index(index_var(names[a])) for a in range(self.rank)]
        self.temporaries: dict[Node, Array] = {}
        for node in waiting(group):
            if node not in stores:
                self.temporaries[node] = self._temporary(node)

    def _temporary(self, node: Node) -> Array:
        """A row on the stack, for what a later stage reads; truth values as numbers."""
        columns = self.group.columns
        assert isinstance(columns, int)
        size = padded(columns, DTYPES[self.group.dtype].itemsize)
        return Array(f"{self.names[node]}_row", self.group.dtype, size, "local")

    def _axis_order(self) -> list[int]:
        """Row-major, except that work without reductions follows the storage of what it stores."""
        axes = list(range(self.rank))
        if any(n.op in REDUCTIONS or n.type.shape != self.full for n in self.group.nodes):
            return axes
        target = next((b for n in self.group.nodes for b in self.stores.get(n, ())), None)
        if target is None:
            return axes
        weight = [s if isinstance(s, int) else NOMINAL**4 for s in target.strides]
        return sorted(axes, key=lambda a: (-weight[a], a))

    def build(self) -> Kernel:
        nodes = self.group.nodes
        has_full = any(n.type.shape == self.full or n.op in REDUCTIONS for n in nodes)
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
            return self.kernel(self._turned(parts[0][0], unit))
        body = (*map(Alloc, self.temporaries.values()), *(s for part in parts for s in part), *done)
        if not self.loops:
            body = tuple(_shareable(s) for s in body)
        return self.kernel(around(self.loops, body, parallel=True))

    def _turned(self, columns: Statement, unit: int) -> Body:
        """Vectors of columns are read from ``unit`` rows in turn, whose elements lie side by side in memory."""
        assert isinstance(columns, For)
        *outer, (name, extent) = self.loops
        first = f"{name}_first"
        start = as_index(index_var(first))
        end = Call("least", (start + unit, as_index(extent)), INDEX)
        rows = For(index_var(name), start, end, columns.body)
        vectors = loop("j", columns.high, (rows,), vector=True)
        tiles = For(index_var(first), ZERO, as_index(extent), (vectors,), unit, parallel=True)
        return around(outer, (tiles,), parallel=True)

    def _reads_along_rows(self, unit: int) -> bool:
        """Whether elements that lie side by side belong to neighbouring rows: the lines of a vector serve those too."""
        if self.axis is None or not self.row_axes:
            return False
        sizes = [self.full[a] for a in (self.axis, self.row_axes[-1])]
        if any(isinstance(size, int) and size <= unit for size in sizes):
            return False
        outside = [a.find() for n in self.group.nodes for a in n.args if base_of(a) not in self.inside]
        strides = [self.access(a).strides for a in outside if not is_free(base_of(a)) and a.type.rank == self.rank]
        return any(s[self.row_axes[-1]] == 1 and s[self.axis] not in (0, 1) for s in strides)

    def _column_stage(self, node: Node) -> int | None:
        """The stage whose loop computes the node, or None for row values."""
        if node.op in REDUCTIONS:
            return self.stage[node] - 1
        return self.stage[node] if node.type.shape == self.full else None

    def _row_nodes(self, s: int) -> list[Node]:
        return [n for n in self.group.nodes if self._column_stage(n) is None and self.stage[n] == s]

    def indices(self, node: Node) -> Sequence[Expr]:
        """The indices of a value at a point: those of a row value are the first ones."""
        return self.at[: node.type.rank]

    def _stage(self, s: int, values: dict[Node, Expr]) -> Body:
        """The row values before a loop, its accumulators, the loop over columns, and the results of reductions."""
        before = self.elementwise(self._row_nodes(s), self.indices, values, self.group.dtype)
        nodes = [n for n in self.group.nodes if self._column_stage(n) == s]
        reductions = [n for n in nodes if n.op in REDUCTIONS]
        type_ = ValueType(self.group.dtype)
        totals = {n: Var(self.names[n], type_) for n in reductions}
        starts = [Mutable(var, identity(n.op.name, self.group.dtype)) for n, var in totals.items()]
        own = dict(values)
        columns = list(self.elementwise(nodes, self.indices, own, self.group.dtype, totals))
        columns += self._kept(nodes, own)
        assert self.axis is not None
        along = loop("j", self.full[self.axis], columns, vector=True)
        values |= totals
        stores = [self.store(b, self.indices(n), totals[n]) for n in reductions for b in self.stores.get(n, ())]
        return (*before, *starts, along, *stores)

    def _kept(self, nodes: Iterable[Node], values: dict[Node, Expr]) -> list[Statement]:
        """Stores of what later stages read into rows on the stack."""
        assert self.axis is not None
        at = self.at[self.axis]
        kept = [n for n in nodes if n in self.temporaries]
        return [Store(self.temporaries[n], at, cast(values[n], self.group.dtype), padded=True) for n in kept]

    def value(self, node: Node, at: Sequence[Expr]) -> Expr:
        """One element; one that an earlier stage has left is where that put it."""
        base = base_of(node)
        if base in self.temporaries:
            assert self.axis is not None
            x = Load(self.temporaries[base], self.at[self.axis], ValueType(self.group.dtype), padded=True)
            return Call("ne", (x, const(0.0, x.type)), ValueType("bool")) if base.type.dtype.name == "bool" else x
        if base in self.inside:  # stored by an earlier stage
            return super().value(base, self.indices(base))
        return super().value(node, at)

    def computed(self, node: Node, args: Sequence[Expr], at: Sequence[Expr]) -> Expr:
        if node.op is st.one_hot:
            number = cast(at[-1], self.group.dtype)
            return Call("is_equal", (number, cast(args[0], self.group.dtype)), ValueType(self.group.dtype))
        return super().computed(node, args, at)


def _shareable(s: Statement) -> Statement:
    """The loop of a single row, whose parts threads may share where nothing is carried along it."""
    if isinstance(s, For) and not any(isinstance(inner, Assign) for inner in s.body):
        return For(s.var, s.low, s.high, s.body, s.step, True, s.vector)
    return s
