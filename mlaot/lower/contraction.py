"""Contractions: sums of products (and reductions over leading axes), with an elementwise epilogue.

Labels are the letters of an einsum: ``ik,kj->ij``. Labels that every operand steps through together are merged. Then
one label runs along the lanes. It is a label of the result along which an operand is contiguous, or a summed one along
which all operands are. The cost model of ``mlaot/schedule/cost.py`` chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from mlaot.ir import DTYPES, Dim, Node
from mlaot.ir.dims import NOMINAL, dim
from mlaot.ir.layouts import Labels
from mlaot.lower.builder import Builder, elements
from mlaot.lower.fuse import Group
from mlaot.lower.gates import gate
from mlaot.lower.layout import Access, padded_extent
from mlaot.lower.padded_windows import PaddedWindows, is_weight, padded_windows
from mlaot.lower.program import Buffer, Kernel, Steps
from mlaot.nest.expressions import (
    HALVES,
    Array,
    Call,
    Const,
    Expr,
    Index,
    Load,
    Panels,
    ValueType,
    Var,
    as_index,
    call,
    cast,
    least,
    most,
    round_up,
)
from mlaot.nest.reductions import combine, identity
from mlaot.nest.statements import Assign, Body, Mutable, Statement, index_var, loop
from mlaot.ops import reduction as red
from mlaot.ops.axes import axes_of
from mlaot.ops.kinds import PRODUCTS, VECTORS, base_of, is_free
from mlaot.ops.quantized import contract_bytes, contract_groups
from mlaot.schedule.contraction import DOTS, contraction_of
from mlaot.schedule.cost import cost
from mlaot.schedule.machine import LINE, REFERENCE
from mlaot.schedule.tuning import SCATTER_CYCLES

LABELS = "abcdefghijklmnopqrstuvwxyz"


def operands(node: Node) -> tuple[list[Node], list[str], str]:
    """Return the operands of a contraction or column reduction, their labels, and the labels of the result."""
    if node.op is contract_groups:
        maps = axes_of(node)
        return [a.find() for a in node.args], [_letters(labels) for labels in maps.args], _letters(maps.result)
    if node.op in PRODUCTS:
        first, second, out = red.parse_spec(node.attrs["spec"])
        return [node.arg(0), node.arg(1)], [first, second], out
    labels = LABELS[: node.arg(0).type.rank]
    out = "".join(c for i, c in enumerate(labels) if i not in node.attrs["axes"])
    return [node.arg(0)], [labels], out


def _letters(labels: Labels) -> str:
    return "".join(LABELS[int(label)] for label in labels)


def contraction_kernel(
    group: Group, accesses: Mapping[Node, Access], stores: Mapping[Node, Sequence[Buffer]]
) -> Kernel | Steps:
    """Return the kernel of a contraction group: register tiles if operands allow vectors, else plain loops.

    Weights with remainder columns behind their panels need a second kernel for these.
    """
    builder = _ContractionBuilder(group, accesses, stores)
    if not any(read.access.buffer.remainder_columns for read in builder.reads):
        return builder.best()
    return Steps((builder.best(), _ContractionBuilder(group, accesses, stores, is_remainder=True).best()))


@dataclass
class _Read:
    """An operand: its buffer, and how far its element index moves along each of its labels.

    ``panel`` is the label that is cut into panels.
    """

    access: Access
    strides: dict[str, Dim]
    panel: str | None

    def stride(self, label: str) -> Dim | None:
        """Return the stride along a label, or None for the label that is cut into panels."""
        return None if label == self.panel else self.strides.get(label, 0)


def _remainder(access: Access, panels: Panels) -> tuple[Access, int]:
    """Return the access to the remainder columns, which are dense rows after the panels, and the stride of a row."""
    strides = tuple(0 if i == access.buffer.panel_axis else s for i, s in enumerate(access.strides))
    return replace(access, strides=strides, offset=panels.padded_size), round_up(panels.rows, panels.width)


class _ContractionBuilder:
    """Build the nest of a contraction: merge its labels, choose the one along the lanes, and write the epilogue.

    ``out`` and ``inner`` are the labels of the result and of one gate of it. ``sizes`` has the extent of each label,
    and ``merged_into`` the label that it has become part of. ``kept`` and ``summed`` are the labels that need loops.
    """

    def __init__(
        self,
        group: Group,
        accesses: Mapping[Node, Access],
        stores: Mapping[Node, Sequence[Buffer]],
        *,
        is_remainder: bool = False,
    ) -> None:
        self.group = group
        self.node = group.nodes[0]
        self.accesses = accesses
        self.stores = stores
        self.dot = DOTS[self.node.attrs["pairs"]] if self.node.op is contract_bytes else ""
        self.grouped = self.node.op is contract_groups
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
            panel = names[access.buffer.panel_axis] if panels else None
            strides = dict(zip(names, access.strides[:rank], strict=True))
            if panels is not None and panel is not None:
                self.sizes[panel] = access.buffer.remainder_columns if is_remainder else panels.columns
                if is_remainder:
                    self.shift = {panel: panels.columns}
                    access, strides[panel] = _remainder(access, panels)
                    panel = None
            self.reads.append(_Read(access, strides, panel))
        self.stored = [b for n in group.nodes for b in stores.get(n, ())]
        self.windows = self._windows(nodes, labels) if self.node.op is red.contract else []
        self.positions = {first for (first, _), _ in self.windows if first in self.out}
        self.merged_into = {c: c for c in self.sizes}  # the label that each label has become part of
        self._merge()
        self.kept = [c for c in self.out if self.merged_into[c] == c and self.sizes[c] != 1]
        summed = [c for c in self.sizes if c not in self.out and self.merged_into[c] == c and self.sizes[c] != 1]
        self.summed = sorted(summed, key=self._memory_order)
        self.inside = self._inside()

    def _windows(self, nodes: Sequence[Node], labels: Sequence[str]) -> list[tuple[tuple[str, str], PaddedWindows]]:
        """Return the windows over padding that weights multiply, with the labels of positions and elements."""
        pairs = []
        for x, names, other in zip(nodes, labels, reversed(nodes), strict=True):
            if is_weight(other, self.accesses):
                pairs += [((names[each.axes[0]], names[each.axes[1]]), each) for each in padded_windows(x)]
        return pairs

    def _inside(self) -> dict[str, tuple[str, Callable[[Dim], tuple[Dim, Dim]]]]:
        """Return the summed labels along which some rounds read only padding.

        Each comes with the label of the result that determines these rounds, and with a function from its position to
        the other rounds.
        """
        merged = {v for u, v in self.merged_into.items() if u != v}
        found: dict[str, tuple[str, Callable[[Dim], tuple[Dim, Dim]]]] = {}
        for labels, windows in self.windows:
            for along, (label, other) in enumerate((labels, labels[::-1])):
                if label in self.summed and other in self.kept and not merged & {label, other}:
                    found.setdefault(label, (other, partial(windows.rounds, along)))
        return found

    def _extent(self, label: str) -> int:
        size = self.sizes[label]
        return size if isinstance(size, int) else NOMINAL

    def _memory_order(self, label: str) -> tuple[int, ...]:
        """Return a key that sorts summed labels by the layout of the last operand, with long strides outside."""
        strides = [r.strides.get(label, 0) for r in reversed(self.reads)]
        return tuple(-s if isinstance(s, int) else -(NOMINAL**4) for s in strides)

    def _merge(self) -> None:
        """Merge label u into v if all operands and results step from the end of v to the next u without a gap.

        u: 4, stride 12; v: 3, stride 4    ->    v: 12, stride 4    (12 = 4 * 3)
        """
        for kind in (self.out, "".join(c for c in self.sizes if c not in self.out)):
            for u in kind:
                for v in kind:
                    if u != v and self._can_merge(u, v):
                        self.sizes[v] = self.sizes[u] * self.sizes[v]
                        self.merged_into[u] = v
                        break

    def _can_merge(self, u: str, v: str) -> bool:
        """Tell whether a step along u is a whole run along v in every operand, result and value of the epilogue."""
        sizes = [self.sizes[c] for c in (u, v) if self.merged_into[c] == c and c != self.gate]
        if len(sizes) < 2 or not all(isinstance(size, int) and size != 1 for size in sizes):
            return False
        if u in self.positions and self.sizes[v] * DTYPES[self.group.dtype].itemsize % LINE == 0:
            return False  # vectors are whole without, and each position leaves out its own padding
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
        return all(s is not None and t is not None and s == t * size for s, t in pairs)

    def best(self) -> Kernel:
        """Return the kernel that is estimated to be the fastest.

        The estimate is for the machine ``REFERENCE``, as all machines share one layout of the weights.
        """
        choices = [(self._kernel(c), self._scattered(c)) for c in self.choices()] if self.group.dtype in VECTORS else []
        are_words = bool(self.dot) or self.grouped
        assert choices or not are_words, f"bug in mlaot: words of {self.node} that do not lie side by side"
        if not choices:
            return self._kernel(None)
        kernel, _ = min(choices, key=lambda each: cost(contraction_of(each[0].nest), REFERENCE) + each[1])
        return kernel

    def _scattered(self, lanes: str) -> float:
        """Estimate the cycles of storing one by one the results that are not adjacent along the lanes."""
        if lanes not in self.out or self.panel == lanes:
            return 0
        along = self.out.index(lanes)
        count = sum(b.strides[along] != 1 for b in self.stored)
        return count * prod(self._extent(c) for c in self.kept) * SCATTER_CYCLES

    def choices(self) -> Iterator[str]:
        """Yield the labels that could run along the lanes: along them, each operand must be a vector or constant."""
        for label in [self.panel] if self.panel else [*self.kept, *self.summed]:
            vectors = [self._is_vector(r, label) for r in self.reads]
            fixed = [r.stride(label) == 0 for r in self.reads]
            if not all(v or f for v, f in zip(vectors, fixed, strict=True)) or not any(vectors):
                continue
            if label in self.out or (all(vectors) and (len(vectors) == 2 or self.node.op is red.sum_)):
                yield label

    @property
    def panel(self) -> str | None:
        """The label that must run along the lanes, if there is one, as weights are in panels, or gates side by side."""
        return self.out[-1] if self.gate else next((r.panel for r in self.reads if r.panel), None)

    def _is_vector(self, read: _Read, label: str) -> bool:
        """Tell whether vectors along a label can be loaded: of adjacent elements, or of every second element."""
        is_words = self.dot or (self.grouped and read is self.reads[1])
        converted = (*HALVES, "f32") if self.group.dtype == "f64" else HALVES
        stride, buffer = read.stride(label), read.access.buffer
        if stride == 2 and len(self.reads) == 1 and label not in self.summed and isinstance(self.sizes[label], int):
            return buffer.dtype == self.group.dtype and buffer.strides[-1:] == (1,)
        return stride in (1, None) and buffer.dtype in (("i32",) if is_words else (self.group.dtype, *converted))

    def _has_room(self, read: _Read, label: str) -> bool:
        """Tell whether two vectors from any even element on are inside of the buffer, to read every second element."""
        buffer, size = read.access.buffer, self.sizes[label]
        if buffer.where != "work" or buffer.dense or read.access.offset != 0 or not isinstance(size, int):
            return False
        end = self._reach(read, label)
        return end is not None and end + 2 * int(padded_extent(size, DTYPES[buffer.dtype].itemsize)) <= 0

    def _reach(self, read: _Read, label: str) -> int | None:
        """Return the first element of the last vector along ``label``, as a negative offset from the end of its memory.

        The memory is the buffer, or the part of it that one round of the dynamic loops reads. The offset is None if
        unknown.
        """
        strides = [(read.strides.get(c, 0), self.sizes[c]) for c in (*self.kept, *self.summed) if c != label]
        open_ = [stride for stride, extent in strides if not isinstance(extent, int)]
        room = min(open_, default=elements(read.access.buffer), key=lambda s: s if isinstance(s, int) else -1)
        fixed = [(s, n) for s, n in strides if isinstance(s, int) and isinstance(n, int)]
        if not isinstance(room, int) or len(fixed) + len(open_) < len(strides):
            return None
        return sum(s * (n - 1) for s, n in fixed if s < room) // 2 * 2 - room

    def _kernel(self, lanes: str | None) -> Kernel:
        """Return the nest with ``lanes`` along the lanes: a sum at each point of the result, then its epilogue."""
        names = self._names(lanes)
        self.builder = builder = Builder(self.group, self.accesses, self.stores)
        if self.grouped and lanes is not None:
            return self._kernel_of_groups(lanes, names)
        factors = sorted(self.reads, key=lambda r: lanes is not None and self._is_vector(r, lanes))  # broadcast first
        type_ = ValueType("i32" if self.dot else self.group.dtype)
        sums = [Var(f"acc{g}" if self.gate else "acc", type_) for g in range(max(self.group.gates, 1))]
        starts = [Mutable(acc, identity(self.combine, type_.dtype)) for acc in sums]
        gates: list[dict[str, int]] = [{self.gate: g} if self.gate else {} for g in range(len(sums))]
        updates = [
            Assign(acc, self._accumulate(acc, [self._element(r, lanes, names, gate) for r in factors]))
            for acc, gate in zip(sums, gates, strict=True)
        ]
        summed = self._loops(self._summed_order(lanes), names, lanes, updates)
        epilogue = self._epilogue(names, [cast(acc, self.group.dtype) for acc in sums])
        kept = [c for c in self.kept if c != self.gate]
        body = self._loops(kept, names, lanes, (*starts, *summed, *epilogue), parallel=True)
        if lanes is None:
            return builder.kernel(body, "plain")
        return replace(builder.kernel(body, "contraction"), origin=self.node.origin, line=self.node.line)

    def _kernel_of_groups(self, lanes: str, names: Mapping[str, str]) -> Kernel:
        """Return the nest of a product with grouped weights: the scaled sum of each group is added to the whole sum."""
        x, words, scales, row_scales, *starts = self.reads
        group, word, field = [*operands(self.node)[1][0]][-3:]
        names = {**names, group: "k1", word: "k"}  # of one point, too
        acc, part = Var("acc", ValueType(self.group.dtype)), Var("part", ValueType("i32"))
        integers = self._element(words, lanes, names)
        bits = self.node.attrs["bits"]
        updates = []
        for i in range(2):
            several = Call("splat_word", (self._element(x, lanes, names, {field: 16 // bits * i}),), part.type)
            if bits == 4:
                nibbles = Call("nibbles", (integers, Index(4 * i)), part.type)
                updates.append(Assign(part, Call("dot4_pairs", (part, nibbles, several), part.type)))
            else:
                halves = Call("halves", (integers, Index(8 * (1 - i)), Index(8)), part.type)
                updates.append(Assign(part, Call("dot2", (part, several, halves), part.type)))
        scale = combine("prod", self._element(scales, lanes, names), self._element(row_scales, lanes, names))
        in_group = (
            Mutable(part, self._element(starts[0], lanes, names) if starts else Const(0, part.type)),
            loop(names[word], self.sizes[word], updates),
            Assign(acc, combine("sum", acc, combine("prod", cast(part, acc.type.dtype), scale))),
        )
        whole = loop(names[group], self.sizes[group], in_group)
        epilogue = self._epilogue(names, [acc])
        start = Mutable(acc, identity("sum", acc.type.dtype))
        body = self._loops(self.kept, names, lanes, (start, whole, *epilogue), parallel=True)
        return replace(self.builder.kernel(body, "contraction"), origin=self.node.origin, line=self.node.line)

    @property
    def combine(self) -> str:
        """The reduction by which values are combined."""
        return "sum" if self.node.op in PRODUCTS else self.node.op.name

    def _summed_order(self, lanes: str | None) -> list[str]:
        """Return the summed labels from the outermost loop; the one along the lanes is the innermost."""
        return sorted(self.summed, key=lambda c: c == lanes)

    def _loops(
        self,
        labels: Iterable[str],
        names: Mapping[str, str],
        lanes: str | None,
        body: Iterable[Statement],
        **more: bool,
    ) -> Body:
        """Wrap ``body`` in loops over labels, the outermost first."""
        result = tuple(body)
        for c in reversed([*labels]):
            found = loop(names[c], self.sizes[c], result, tiled=c == lanes, **more)
            if lanes is not None and c in self.inside and lanes not in (c, self.inside[c][0]):
                other, rounds = self.inside[c]
                low, high = rounds(dim(names[other]))
                found = replace(found, low=most(Index(low), 0), high=least(Index(high), self.sizes[c]))
            result = (found,)
        return result

    def _accumulate(self, total: Var, factors: Sequence[Expr]) -> Expr:
        """Combine a product, four products of bytes, or a difference into a sum."""
        if self.dot:
            return Call(self.dot, (total, *factors), total.type)
        if self.node.op is red.contract_differences:
            difference = Call("sub", tuple(factors), total.type)
            is_square = self.node.attrs["power"] == 2
            return combine(
                "sum", total, combine("prod", difference, difference) if is_square else call("abs", difference)
            )
        return combine(self.combine, total, factors[0] if len(factors) == 1 else combine("prod", *factors))

    def _element(
        self, read: _Read, lanes: str | None, names: Mapping[str, str], places: Mapping[str, int] = {}
    ) -> Expr:
        """Return the element of an operand at a point, as a factor; ``places`` has the indices of labels without loops.

        Until the schedule resolves panels, strides are those of the row-major matrix.
        """
        access, vector = read.access, lanes is not None and self._is_vector(read, lanes)
        array, strides, columns = self._array(read), dict(read.strides), 1
        if array.panels is not None and read.panel is not None:
            columns, strides[read.panel] = array.panels.columns, 1
        total: Expr = Index(access.offset)
        for c, stride in strides.items():
            is_looped = c in names and c not in places
            at = as_index(index_var(names[c])) if is_looped else Index(places.get(c, 0))
            total = total + at * Index(stride if c == read.panel else stride * columns)
        x = Load(array, total, ValueType(array.dtype), padded=lanes is not None and self._may_overread(read, lanes))
        if self.dot:
            return x if vector else Call("splat_word", (x,), ValueType("i32"))
        return x if self.grouped and x.type.dtype in ("i8", "i16", "i32") else cast(x, self.group.dtype)

    def _array(self, read: _Read) -> Array:
        """Return the array of an operand."""
        return self.builder.array(read.access.buffer, read.access.buffer.panels if read.panel else None)

    def _names(self, lanes: str | None) -> dict[str, str]:
        """Return the names of variables.

        ``j`` runs along the lanes, ``i`` is the last other kept label, and ``k`` the last summed one.
        """
        if lanes is None:
            return {c: f"i{i}" for i, c in enumerate(self.kept)} | {c: f"k{i}" for i, c in enumerate(self.summed)}
        labels = [c for c in self.kept if c not in (lanes, self.gate)]
        names = {c: f"i{i}" if i else "i" for i, c in enumerate(reversed(labels))}
        names |= {c: f"k{i}" if i else "k" for i, c in enumerate(reversed(self._summed_order(lanes)))}
        return names if lanes in self.summed else {**names, lanes: "j"}

    def _may_overread(self, read: _Read, lanes: str) -> bool:
        """Tell whether a whole vector may be loaded past the end of the lanes."""
        access, vector = read.access, self._is_vector(read, lanes)
        if access.buffer.panels is not None and read.panel is None and vector:
            return self._ends_in_row(access.buffer.panels, lanes)
        if access.buffer.panels is not None:
            return True
        if read.strides.get(lanes) == 2:
            return self._has_room(read, lanes)
        if vector and lanes in read.strides and lanes not in self.merged_into.values():
            raise AssertionError("bug in mlaot: lanes along a label that is merged into another")
        if not vector or any(u != v and v == lanes for u, v in self.merged_into.items()):
            return False
        return access.may_overread(list(read.strides).index(lanes))

    def _ends_in_row(self, panels: Panels, lanes: str) -> bool:
        """Tell whether whole vectors along the lanes stay in the padded row of a remainder column."""
        size = self.sizes[lanes]
        assert isinstance(size, int), "bug in mlaot: weights of no fixed size"
        return panels.rows - size + round_up(size, panels.width) <= round_up(panels.rows, panels.width)

    def _at(self, names: Mapping[str, str]) -> list[Expr]:
        """Return the indices of a point of the result, along each label of the epilogue's values."""
        indices: list[Expr] = []
        for c in self.inner:
            index = as_index(index_var(names[c])) if c in names else Index(0)
            indices.append(index + self.shift.get(c, 0))
        return indices

    def _epilogue(self, names: Mapping[str, str], sums: Sequence[Expr]) -> Body:
        """Return the statements that apply the elementwise nodes to a sum, or to one of each gate, and store it."""
        at, stored = self._at(names), self.stores.get(self.node, ())
        statements: list[Statement] = []
        if self.gate:
            values = {v: sums[g] for v in self._gate_views() if (g := gate(v, self.node)) is not None}
            for buffer in stored:
                places = [[*at[:-1], Index(g), at[-1]] for g in range(self.group.gates)]
                statements += [self.builder.store(buffer, x, v) for x, v in zip(places, sums, strict=True)]
        else:
            values = {self.node: sums[0]}
            statements += [self.builder.store(b, at, sums[0]) for b in stored]
        nodes = [n for n in self.group.nodes if n is not self.node]
        statements += self.builder.elementwise(nodes, lambda node: at, values, self.group.dtype)
        return tuple(statements)

    def _gate_views(self) -> list[Node]:
        """Return the views of single gates of the result that the group's nodes read."""
        return [a.find() for n in self.group.nodes for a in n.args if base_of(a) is self.node]
