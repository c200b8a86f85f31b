"""Contractions: sums of products (and reductions over leading axes), with an elementwise epilogue.

Labels that every operand steps through together are merged; then one label runs along the lanes: one of the result,
which an operand has contiguous, or a summed one that all have. ``schedule`` estimates what each choice would cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from mlaot.ir import DTYPES, Dim, Node
from mlaot.ir.dims import NOMINAL, times
from mlaot.lower.builder import Builder, elements
from mlaot.lower.fuse import Group
from mlaot.lower.gates import gate
from mlaot.lower.layout import Access, padded
from mlaot.lower.program import Buffer, Kernel, Panels
from mlaot.lower.program import Sequence as Steps
from mlaot.nest.expressions import HALVES, Array, Call, Expr, Index, Load, PanelLayout, ValueType, Var, as_index, cast
from mlaot.nest.reductions import combined, identity
from mlaot.nest.statements import Assign, Body, Mutable, Statement, index_var, loop
from mlaot.ops import reduction as red
from mlaot.ops.kinds import PRODUCTS, VECTORS, base_of, is_free
from mlaot.ops.quantized import contract_bytes
from mlaot.schedule.contraction import contraction_of, cost
from mlaot.schedule.machine import REFERENCE

LABELS = "abcdefghijklmnopqrstuvwxyz"


def operands(node: Node) -> tuple[list[Node], list[str], str]:
    """The operands of a contraction or column reduction with their labels, and the labels of the result."""
    if node.op in PRODUCTS:
        first, second, out = red.parse_spec(node.attrs["spec"])
        return [node.arg(0), node.arg(1)], [first, second], out
    labels = LABELS[: node.arg(0).type.rank]
    out = "".join(c for i, c in enumerate(labels) if i not in node.attrs["axes"])
    return [node.arg(0)], [labels], out


def contraction_kernel(
    group: Group, accesses: Mapping[Node, Access], stores: Mapping[Node, Sequence[Buffer]]
) -> Kernel | Steps:
    """The kernel of a group of kind "contraction": tiles of vectors where the operands allow it, else plain loops.

    Two where some columns of the weights lie apart from the panels.
    """
    builder = _ContractionBuilder(group, accesses, stores)
    apart = next((r.access.buffer.panels.apart for r in builder.reads if r.access.buffer.panels), 0)
    if not apart:
        return builder.best()
    return Steps((builder.best(), _ContractionBuilder(group, accesses, stores, "apart").best()))


@dataclass
class _Read:
    """An operand: its buffer, and how far its element index moves along each label it has."""

    access: Access
    strides: dict[str, Dim]
    panel: str | None  # the label that is cut into panels

    def stride(self, label: str) -> Dim | None:
        """None along the label that is cut into panels."""
        return None if label == self.panel else self.strides.get(label, 0)


def _apart(access: Access, panels: Panels, first: int) -> tuple[Access, int]:
    """The columns that lie apart from panels for the ``first`` ones, each a row; the step from one to the next."""
    unit = panels.unit
    start = -(-first // unit) * unit * panels.rows
    strides = tuple(0 if i == panels.axis else s for i, s in enumerate(access.strides))
    return replace(access, strides=strides, offset=start), -(-panels.rows // unit) * unit


class _ContractionBuilder:
    """Chooses which label runs along the lanes, and writes the epilogue."""

    def __init__(
        self,
        group: Group,
        accesses: Mapping[Node, Access],
        stores: Mapping[Node, Sequence[Buffer]],
        part: str = "panels",
    ) -> None:
        self.group = group
        self.node = group.nodes[0]
        self.accesses = accesses
        self.stores = stores
        self.words = self.node.op is contract_bytes
        self.builder = Builder(group, accesses, stores)
        nodes, labels, self.out = operands(self.node)
        self.gate = self.out[-2] if group.gates else None
        self.inner = self.out[:-2] + self.out[-1] if group.gates else self.out  # labels of the epilogue's values
        self.shift: dict[str, int] = {}  # where the result begins along a label
        self.sizes: dict[str, Dim] = {}
        self.reads: list[_Read] = []
        for names, n in zip(labels, nodes, strict=True):
            access = accesses[n]
            rank = len(names)  # the four bytes of a word have no label
            assert access.strides[rank:] in ((), (1,)), f"bug in mlaot: bytes of {n} that do not lie side by side"
            self.sizes |= dict(zip(names, n.type.shape[:rank], strict=True))
            panels = access.buffer.panels
            panel = names[panels.axis] if panels else None
            strides = dict(zip(names, access.strides[:rank], strict=True))
            if panels is not None and panel is not None and panels.apart:
                first = self._extent(panel) - panels.apart
                self.sizes[panel] = first if part == "panels" else panels.apart
                if part == "apart":
                    self.shift = {panel: first}
                    access, strides[panel] = _apart(access, panels, first)
                    panel = None
            self.reads.append(_Read(access, strides, panel))
        self.stored = [b for n in group.nodes for b in stores.get(n, ())]
        self.place = {c: c for c in self.sizes}  # the label that a merged one became part of
        self._merge()
        self.kept = [c for c in self.out if self.place[c] == c and self.sizes[c] != 1]
        summed = [c for c in self.sizes if c not in self.out and self.place[c] == c and self.sizes[c] != 1]
        self.summed = sorted(summed, key=self._summed_order)

    def _extent(self, label: str) -> int:
        size = self.sizes[label]
        return size if isinstance(size, int) else NOMINAL

    def _summed_order(self, label: str) -> tuple[int, ...]:
        """As the last operand lies in memory: its longest strides outside."""
        strides = [r.strides.get(label, 0) for r in reversed(self.reads)]
        return tuple(-s if isinstance(s, int) else -(NOMINAL**4) for s in strides)

    def _merge(self) -> None:
        """Make one label of two where every operand and result steps from the last of one to the next of the other."""
        for kind in (self.out, "".join(c for c in self.sizes if c not in self.out)):
            for u in kind:
                for v in kind:
                    if u != v and self._can_merge(u, v):
                        self.sizes[v] = times(self.sizes[u], self.sizes[v])
                        self.place[u] = v
                        break

    def _can_merge(self, u: str, v: str) -> bool:
        fixed = isinstance(self.sizes[u], int) and isinstance(self.sizes[v], int)
        if not fixed or self.sizes[u] == 1 or self.sizes[v] == 1 or self.place[u] != u or self.place[v] != v:
            return False
        if self.gate in (u, v):
            return False
        pairs: list[tuple[Dim | None, Dim | None]] = [(r.stride(u), r.stride(v)) for r in self.reads]
        if u in self.out:
            i, j = self.out.index(u), self.out.index(v)
            pairs += [(b.strides[i], b.strides[j]) for b in self.stores.get(self.node, ())]
            i, j = self.inner.index(u), self.inner.index(v)
            pairs += [(b.strides[i], b.strides[j]) for n in self.group.nodes[1:] for b in self.stores.get(n, ())]
            for n in self.group.nodes[1:]:
                outside = [a.find() for a in n.args if base_of(a) not in self.builder.inside and not is_free(a.find())]
                pairs += [(self.builder.access(a).strides[i], self.builder.access(a).strides[j]) for a in outside]
        size = self.sizes[v]
        return all(s is not None and t is not None and s == times(t, size) for s, t in pairs)

    def best(self) -> Kernel:
        """The kernel that is estimated to cost least."""
        choices = [self._kernel(label) for label in self.choices()] if self.group.dtype in VECTORS else []
        assert choices or not self.words, f"bug in mlaot: words of {self.node} that do not lie side by side"
        return min(choices, key=lambda k: cost(contraction_of(k.nest), REFERENCE)) if choices else self._kernel(None)

    def choices(self) -> Iterator[str]:
        """The labels that could run along the lanes."""
        panel = next((r.panel for r in self.reads if r.panel), None)
        if self.gate:
            panel = self.out[-1]
        for label in [panel] if panel else [*self.kept, *self.summed]:
            vectors = [self._is_vector(r, label) for r in self.reads]
            fixed = [r.stride(label) == 0 for r in self.reads]
            if not all(v or f for v, f in zip(vectors, fixed, strict=True)) or not any(vectors):
                continue
            if label in self.out:
                along = self.out.index(label)
                if label == panel or self.words or all(b.strides[along] == 1 for b in self.stored):
                    yield label
            elif all(vectors) and (len(vectors) == 2 or self.node.op is red.sum_):
                yield label

    def _is_vector(self, read: _Read, label: str) -> bool:
        """Whether vectors along a label can be loaded; every second element where whole vectors may be read for it."""
        if read.access.buffer.dtype not in (("i32",) if self.words else (self.group.dtype, *HALVES)):
            return False
        stride, buffer, size = read.stride(label), read.access.buffer, self.sizes[label]
        if stride != 2 or len(self.reads) > 1 or buffer.strides[-1:] != (1,) or label in self.summed:
            return stride in (1, None)
        if buffer.where != "work" or buffer.dense or read.access.offset != 0 or not isinstance(size, int):
            return False
        end = self._reach(read, label)
        return end is not None and end + 2 * int(padded(size, DTYPES[buffer.dtype].itemsize)) <= 0

    def _reach(self, read: _Read, label: str) -> int | None:
        """How far from the end of the memory at hand the last vector along ``label`` begins, at an even element.

        That memory is the buffer's, or what belongs to one round of the loops whose extents are not known.
        """
        others = [(read.strides.get(c, 0), self.sizes[c]) for c in (*self.kept, *self.summed) if c != label]
        open_ = [stride for stride, extent in others if not isinstance(extent, int)]
        room = min(open_, default=elements(read.access.buffer), key=lambda s: s if isinstance(s, int) else -1)
        known = [(s, n) for s, n in others if isinstance(s, int) and isinstance(n, int)]
        if not isinstance(room, int) or len(known) + len(open_) < len(others):
            return None
        return sum(s * (n - 1) for s, n in known if s < room) // 2 * 2 - room

    def _kernel(self, lanes: str | None) -> Kernel:
        """A sum at each point of the result, which the epilogue takes into memory; in tiles along a label."""
        names = self._names(lanes)
        self.builder = builder = Builder(self.group, self.accesses, self.stores)
        order = sorted(self.reads, key=lambda r: lanes is not None and self._is_vector(r, lanes))  # broadcast first
        type_ = ValueType("i32" if self.words else self.group.dtype)
        sums = [Var(f"acc{g}" if self.gate else "acc", type_) for g in range(max(self.group.gates, 1))]
        starts = [Mutable(acc, identity(self.combine, type_.dtype)) for acc in sums]
        updates = [
            Assign(acc, self._added(acc, [self._element(r, lanes, names, g) for r in order]))
            for g, acc in enumerate(sums)
        ]
        summed = self._loops(self._summed(lanes), names, lanes, updates)
        epilogue = self._epilogue(names, [cast(acc, self.group.dtype) for acc in sums])
        kept = [c for c in self.kept if c != self.gate]
        body = self._loops(kept, names, lanes, (*starts, *summed, *epilogue), parallel=True)
        if lanes is None:
            return builder.kernel(body, "plain")
        return replace(builder.kernel(body, "contraction"), origin=self.node.origin)

    @property
    def combine(self) -> str:
        """The reduction."""
        return "sum" if self.node.op in PRODUCTS else self.node.op.name

    def _summed(self, lanes: str | None) -> list[str]:
        """The summed labels from the outermost loop; the one along the lanes is the innermost."""
        return sorted(self.summed, key=lambda c: c == lanes)

    def _loops(
        self,
        labels: Iterable[str],
        names: Mapping[str, str],
        lanes: str | None,
        body: Iterable[Statement],
        **more: bool,
    ) -> Body:
        """``body`` inside loops over labels, the outermost first."""
        result = tuple(body)
        for c in reversed([*labels]):
            result = (loop(names[c], self.sizes[c], result, tiled=c == lanes, **more),)
        return result

    def _added(self, total: Var, factors: Sequence[Expr]) -> Expr:
        """A product, or four of bytes, combined into a sum."""
        if self.words:
            return Call("dot4", (total, *factors), total.type)
        return combined(self.combine, total, factors[0] if len(factors) == 1 else combined("prod", *factors))

    def _element(self, read: _Read, lanes: str | None, names: Mapping[str, str], gate: int) -> Expr:
        """The element of an operand at a point, as a factor."""
        access, vector = read.access, lanes is not None and self._is_vector(read, lanes)
        array, strides, columns = self._array(read), dict(read.strides), 1
        if array.panels is not None and read.panel is not None:
            columns, strides[read.panel] = array.panels.columns, 1
        total: Expr = Index(access.offset)
        for c, stride in strides.items():
            at = Index(gate) if c == self.gate else as_index(index_var(names[c])) if c in names else Index(0)
            total = total + at * Index(stride if c == read.panel else times(stride, columns))
        x = Load(array, total, ValueType(array.dtype), padded=lanes is not None and self._may_overread(read, lanes))
        if self.words:
            return x if vector else Call("splat_word", (x,), ValueType("i32"))
        return cast(x, self.group.dtype)

    def _array(self, read: _Read) -> Array:
        """The array of an operand, with its panels."""
        panels = read.access.buffer.panels if read.panel else None
        if panels is None or read.panel is None:
            return self.builder.array(read.access.buffer)
        columns = self._extent(read.panel)
        return self.builder.array(read.access.buffer, PanelLayout(panels.rows, columns, panels.width, panels.unit))

    def _names(self, lanes: str | None) -> dict[str, str]:
        """Variables: ``j`` along the lanes, ``i`` along the last other label of the result, ``k`` for the last sum."""
        if lanes is None:
            return {c: f"i{i}" for i, c in enumerate(self.kept)} | {c: f"k{i}" for i, c in enumerate(self.summed)}
        others = [c for c in self.kept if c not in (lanes, self.gate)]
        names = {c: f"i{i}" if i else "i" for i, c in enumerate(reversed(others))}
        names |= {c: f"k{i}" if i else "k" for i, c in enumerate(reversed(self._summed(lanes)))}
        return names if lanes in self.summed else {**names, lanes: "j"}

    def _may_overread(self, read: _Read, lanes: str) -> bool:
        """Whether a whole vector may be loaded past the end of the lanes."""
        access, vector = read.access, self._is_vector(read, lanes)
        if access.buffer.panels is not None and read.panel is None and vector:
            return self._ends_in_row(access.buffer.panels, lanes)
        if access.buffer.panels is not None or read.strides.get(lanes) == 2:
            return True
        if vector and lanes in read.strides and lanes not in self.place.values():
            raise AssertionError("bug in mlaot: lanes along a label that is merged into another")
        if not vector or any(u != v and v == lanes for u, v in self.place.items()):
            return False
        return access.may_overread(list(read.strides).index(lanes))

    def _ends_in_row(self, panels: Panels, lanes: str) -> bool:
        """Whether whole vectors along the lanes stay in a row of those elements that are apart from the panels."""
        size = self.sizes[lanes]
        assert isinstance(size, int), "bug in mlaot: weights of no fixed size"
        whole, row = (-(-count // panels.unit) * panels.unit for count in (size, panels.rows))
        return panels.rows - size + whole <= row

    def _at(self, names: Mapping[str, str]) -> list[Expr]:
        """The indices of a point of the result, along each label of the epilogue's values."""
        found: list[Expr] = []
        for c in self.inner:
            index = as_index(index_var(names[c])) if c in names else Index(0)
            found.append(index + self.shift.get(c, 0))
        return found

    def _epilogue(self, names: Mapping[str, str], sums: Sequence[Expr]) -> Body:
        """The statements that take a sum, or one of each gate, through the group's elementwise nodes into memory."""
        at, stored = self._at(names), self.stores.get(self.node, ())
        statements: list[Statement] = []
        if self.gate:
            values = {v: sums[g] for v in self._gates() if (g := gate(v, self.node)) is not None}
            for buffer in stored:
                places = [[*at[:-1], Index(g), at[-1]] for g in range(self.group.gates)]
                statements += [self.builder.store(buffer, x, v) for x, v in zip(places, sums, strict=True)]
        else:
            values = {self.node: sums[0]}
            statements += [self.builder.store(b, at, sums[0]) for b in stored]
        nodes = [n for n in self.group.nodes if n is not self.node]
        statements += self.builder.elementwise(nodes, lambda node: at, values, self.group.dtype)
        return tuple(statements)

    def _gates(self) -> list[Node]:
        """How the group's nodes look at the result, one gate at a time."""
        return [a.find() for n in self.group.nodes for a in n.args if base_of(a) is self.node]
