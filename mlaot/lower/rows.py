"""Row kernels: elementwise ops and reductions along the last axis, several vector loops over each row.

for each row:
    for the columns: m = max(m, x)            a stage for each reduction that later work waits for
    for the columns: e = exp(x - m), s += e
    for the columns: y = e / s
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mlaot.ir import DTYPES, Node
from mlaot.ir.dims import NOMINAL
from mlaot.lower.emit import C_TYPES, Emitter
from mlaot.lower.fuse import Group, full_shape
from mlaot.lower.layout import Access, atom, padded
from mlaot.lower.program import Buffer, Rows, Stage, Total
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.kinds import REDUCTIONS, base_of, is_free
from mlaot.schedule.machine import LINE
from mlaot.schedule.tuning import STACK_ROW_BYTES

NEUTRAL = {"sum": "0.0", "max": "-__builtin_inf()", "min": "__builtin_inf()"}


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


def is_mask(node: Node) -> bool:
    """Truth values: in vectors lanes of 0 or -1, in scalars and in memory 0 or 1."""
    return node.type.dtype.name == "bool"


def rows_kernel(group: Group, accesses: Mapping[Node, Access], stores: Mapping[Node, Sequence[Buffer]]) -> Rows:
    """The kernel of a group of kind "rows"."""
    return _RowsBuilder(group, accesses, stores).build()


class _RowsBuilder:
    """Writes the statements of one row kernel."""

    def __init__(self, group: Group, accesses: Mapping[Node, Access], stores: Mapping[Node, Sequence[Buffer]]) -> None:
        self.group = group
        self.emit = Emitter(group, accesses, stores)
        self.stage = stages_of(group)
        self.full = full_shape(group)
        self.rank = len(self.full)
        order = self._axis_order(stores)
        self.axis = order[-1] if group.columns is not None else None
        self.row_axes = row_axes = [a for a in order if a != self.axis]
        self.at = [""] * self.rank
        for i, a in enumerate(row_axes):
            self.at[a] = f"i{i}" if len(row_axes) > 1 else "i"
        if self.axis is not None:
            self.at[self.axis] = "{j}"
        self.loops = tuple((self.at[a], str(self.full[a])) for a in row_axes)
        self.row: list[str] = []
        self.row_values: dict[object, str] = {}
        self.temporaries = {n: f"{self.emit.names[n]}_row" for n in waiting(group) if n not in stores}
        for name in self.temporaries.values():
            assert isinstance(group.columns, int)
            self.emit.once.append(
                f"{C_TYPES[group.dtype]} {name}[{padded(group.columns, DTYPES[group.dtype].itemsize)}];"
            )

    def _axis_order(self, stores: Mapping[Node, Sequence[Buffer]]) -> list[int]:
        """Row-major, except that work without reductions follows the storage of what it stores."""
        axes = list(range(self.rank))
        if any(n.op in REDUCTIONS or n.type.shape != self.full for n in self.group.nodes):
            return axes
        target = next((b for n in self.group.nodes for b in stores.get(n, ())), None)
        if target is None:
            return axes
        weight = [s if isinstance(s, int) else NOMINAL**4 for s in target.strides]
        return sorted(axes, key=lambda a: (-weight[a], a))

    def build(self) -> Rows:
        count = max(self.stage.values(), default=0)
        has_full = any(n.type.shape == self.full for n in self.group.nodes) or any(
            n.op in REDUCTIONS for n in self.group.nodes
        )
        if self.axis is None or not has_full:
            lines = [line for n in self.group.nodes for line in self._row_value(n)]
            return self._kernel(tuple(lines), (), ())
        stages = [self._stage(s) for s in range(count + 1) if self._has_columns(s)]
        done = [line for n in self._row_nodes(len(stages)) for line in self._row_value(n)]
        return self._kernel((), tuple(stages), tuple(done))

    def _kernel(self, row: tuple[str, ...], stages: tuple[Stage, ...], done: tuple[str, ...]) -> Rows:
        columns = atom(self.full[self.axis]) if self.axis is not None and stages else None
        doc = self.emit.doc()
        once, before = tuple(self.emit.once), (*self.row, *row)
        unit = LINE // DTYPES[self.group.dtype].itemsize
        is_plain = not done and [s.totals for s in stages] == [()]
        turned = unit if is_plain and self._reads_along_rows(unit) else 0
        return Rows(self.group.dtype, self.emit.params, self.loops, columns, once, before, stages, done, doc, turned)

    def _reads_along_rows(self, unit: int) -> bool:
        """Whether elements that lie side by side belong to neighbouring rows: the lines of a vector serve those too."""
        if self.axis is None or not self.row_axes:
            return False
        sizes = [self.full[a] for a in (self.axis, self.row_axes[-1])]
        if any(isinstance(size, int) and size <= unit for size in sizes):
            return False
        outside = [a.find() for n in self.group.nodes for a in n.args if base_of(a) not in self.emit.inside]
        strides = [self.emit.access(a).strides for a in outside if not is_free(base_of(a)) and a.type.rank == self.rank]
        return any(s[self.row_axes[-1]] == 1 and s[self.axis] not in (0, 1) for s in strides)

    def _has_columns(self, s: int) -> bool:
        return any(self._column_stage(n) == s for n in self.group.nodes)

    def _column_stage(self, node: Node) -> int | None:
        """The stage whose loop computes the node, or None for row values."""
        if node.op in REDUCTIONS:
            return self.stage[node] - 1
        return self.stage[node] if node.type.shape == self.full else None

    def _row_nodes(self, s: int) -> list[Node]:
        return [n for n in self.group.nodes if self._column_stage(n) is None and self.stage[n] == s]

    def _stage(self, s: int) -> Stage:
        before = [line for n in self._row_nodes(s) for line in self._row_value(n)]
        nodes = [n for n in self.group.nodes if self._column_stage(n) == s]
        names = self.emit.names
        totals, after = [], []
        for n in nodes:
            if n.op in REDUCTIONS:
                totals.append(Total(names[n], C_TYPES[self.group.dtype], n.op.name, self._neutral(n)))
                after += self._store_row(n)
        full = self._columns(nodes, s, None)
        rest = self._columns(nodes, s, "rest")
        return Stage((*before, *self._splats(s)), tuple(totals), tuple(full), tuple(rest), tuple(after))

    def _neutral(self, node: Node) -> str:
        text = NEUTRAL[node.op.name]
        return text if self.group.dtype == "f64" else text.replace("0.0", "0.0f").replace("inf()", "inff()")

    def _splats(self, s: int) -> list[str]:
        """Row values that this stage's loop reads, in every lane."""
        lines = []
        for value, name in self.row_values.items():
            if isinstance(value, tuple) and value[0] == s:
                text = self._tested(value[1], f"splat_{self.emit.vector}({self.emit.names[value[1]]})")
                lines.append(f"const {self.emit.ctype(value[1], vector=True)} {name} = {text};")
        return lines

    def _columns(self, nodes: Sequence[Node], s: int, rest: str | None) -> list[str]:
        lines: list[str] = []
        loaded: dict[Node, str] = {}
        vector, names = self.emit.vector, self.emit.names
        for n in nodes:
            args = [self._operand(a.find(), s, rest, lines, loaded) for a in n.args]
            name = names[n]
            if n.op in REDUCTIONS:
                value = args[0] if rest is None else f"first_{vector}({args[0]}, {rest}, {self._neutral(n)})"
                if n.op is red.sum_:
                    lines.append(f"{name}{{all}} += {value};")
                else:
                    lines.append(f"{name}{{all}} = {n.op.name}_{vector}({name}{{all}}, {value});")
                continue
            if n.op is st.one_hot:
                expression = f"eq_{vector}(lane_{vector}({{j}}), {args[0]})"
            elif n.op is ew.cast and not is_mask(n) and not is_mask(n.arg(0)):
                expression = args[0]  # converted as it was loaded
            else:
                expression = self.emit.expression(n, args, vector=True)
            lines.append(f"const {self.emit.ctype(n, vector=True)} {name} = {expression};")
            assert self.axis is not None
            for buffer in self.emit.stores.get(n, ()):
                lines.append(self.emit.store(buffer, self.at, name, self.axis, rest))
            if n in self.temporaries:
                kept = f"({vector}){name}" if is_mask(n) else name
                lines.append(f"store_{vector}({self.temporaries[n]} + {{j}}, {kept});")
        return lines

    def _operand(self, node: Node, s: int, rest: str | None, lines: list[str], loaded: dict[Node, str]) -> str:
        """A vector of a value along the columns, loaded or splatted where it is not at hand."""
        base, vector = base_of(node), self.emit.vector
        if base in self.emit.inside and base.type.shape == self.full:
            if self._column_stage(base) == s:
                return self.emit.names[base]
            if base not in loaded:
                loaded[base] = f"{self.emit.names[base]}_again"
                if base in self.temporaries:
                    text = f"load_{vector}({self.temporaries[base]} + {{j}})"
                    text = f"({self.emit.ctype(base, vector=True)}){text}" if is_mask(base) else text
                else:
                    text = self._tested(base, self.emit.load(self.emit.access(node), self.at, self.axis, rest))
                lines.append(f"const {self.emit.ctype(base, vector=True)} {loaded[base]} = {text};")
            return loaded[base]
        if base in self.emit.inside:
            return self._splat(s, base)
        if is_free(base):
            return self._free(node)
        access = self.emit.access(node)
        if len(access.strides) < self.rank:  # the label of one_hot: one number a row
            return self._external_row(node, Access(access.buffer, (*access.strides, 0), access.offset))
        assert self.axis is not None
        if access.strides[self.axis] == 0:
            return self._external_row(node, access)
        if node not in loaded:
            loaded[node] = f"x{len(loaded)}"
            text = self._tested(node, self.emit.load(access, self.at, self.axis, rest))
            lines.append(f"const {self.emit.ctype(node, vector=True)} {loaded[node]} = {text};")
        return loaded[node]

    def _tested(self, node: Node, text: str) -> str:
        """Truth values come from memory and from scalars as numbers; in vectors they are masks."""
        return f"{text} != 0" if is_mask(node) else text

    def _splat(self, s: int, node: Node) -> str:
        scalar = self.emit.names[node]
        return self.row_values.setdefault((s, node), f"{scalar}_splat{s or ''}")

    def _free(self, node: Node) -> str:
        text = self.emit.splat_once(node)
        if text not in self.row_values:
            self.row_values[text] = f"c{len(self.row_values)}"
            kind = self.emit.ctype(node, vector=True)
            self.emit.once.append(f"const {kind} {self.row_values[text]} = {text};")
        return self.row_values[text]

    def _external_row(self, node: Node, access: Access) -> str:
        """A value that does not vary along the row, in every lane, loaded once a row."""
        text = self._tested(node, f"splat_{self.emit.vector}({self.emit.element(access, self.at)})")
        if text not in self.row_values:
            self.row_values[text] = f"r{len(self.row_values)}"
            self.row.append(f"const {self.emit.ctype(node, vector=True)} {self.row_values[text]} = {text};")
        return self.row_values[text]

    def _row_value(self, node: Node) -> list[str]:
        """One number a row, in scalar arithmetic."""
        assert node.op is not st.one_hot, "bug in mlaot: one_hot is no row value"
        args = []
        for a in node.args:
            base = base_of(a)
            args.append(self.emit.names[base] if base in self.emit.inside else self.emit.value(a.find(), self.at))
        value = self.emit.expression(node, args, vector=False)
        lines = [f"const {self.emit.ctype(node)} {self.emit.names[node]} = {value};"]
        return lines + self._store_row(node)

    def _store_row(self, node: Node) -> list[str]:
        at = self.at[: node.type.rank]
        name = f"(uint8_t){self.emit.names[node]}" if is_mask(node) else self.emit.names[node]
        return [
            f"{self.emit.buffer(b, written=True)}[{Access(b, b.strides).index(at)}] = {name};"
            for b in self.emit.stores.get(node, ())
        ]
