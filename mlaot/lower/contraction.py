"""Contractions: sums of products (and reductions over leading axes) in register tiles, with an elementwise epilogue.

One label of the result runs along the lanes, one along the rows of a tile; the rest are plain loops. The design is the
register-blocked micro-kernel of Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication (2008),
without packing: parameters are already stored along the lanes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mlaot.ir import Dim, Node
from mlaot.lower.emit import C_TYPES, Emitter, combine, may_overread, neutral
from mlaot.lower.fuse import Group
from mlaot.lower.layout import NOMINAL, Access, atom, linear
from mlaot.lower.program import Buffer, Contraction, Plain
from mlaot.ops import reduction as red
from mlaot.ops.elementwise import c_literal
from mlaot.ops.kinds import VECTORS, base_of, is_free

LABELS = "abcdefghijklmnopqrstuvwxyz"
START = {"sum": 0.0, "max": float("-inf"), "min": float("inf")}


def operands(node: Node) -> tuple[list[Node], list[str], str]:
    """The operands of a contraction or column reduction with their labels, and the labels of the result."""
    if node.op is red.contract:
        first, second, out = red.parse_spec(node.attrs["spec"])
        return [node.arg(0), node.arg(1)], [first, second], out
    labels = LABELS[: node.arg(0).type.rank]
    out = "".join(c for i, c in enumerate(labels) if i not in node.attrs["axes"])
    return [node.arg(0)], [labels], out


def contraction_kernel(
    group: Group, accesses: Mapping[Node, Access], stores: Mapping[Node, Sequence[Buffer]]
) -> Contraction | Plain:
    """The kernel of a group of kind "contraction": tiled where an order of loops allows it, else plain loops."""
    builder = _ContractionBuilder(group, accesses, stores)
    if group.dtype not in VECTORS:
        return builder.plain()
    return builder.along_n() or builder.along_k() or builder.plain()


class _ContractionBuilder:
    """Chooses which label runs along the lanes, and writes the epilogue."""

    def __init__(self, group: Group, accesses: Mapping[Node, Access], stores: Mapping[Node, Sequence[Buffer]]) -> None:
        self.group = group
        self.node = group.nodes[0]
        self.emit = Emitter(group, accesses, stores)
        nodes, self.labels, self.out = operands(self.node)
        self.reads = [accesses[n] for n in nodes]
        self.sizes: dict[str, Dim] = {}
        for labels, n in zip(self.labels, nodes, strict=True):
            self.sizes |= dict(zip(labels, n.type.shape, strict=True))
        self.stored = [b for n in group.nodes for b in stores.get(n, ())]
        self.summed = [c for c in dict.fromkeys("".join(self.labels)) if c not in self.out]
        if len(self.summed) > 1:
            self.summed.sort(key=self._extent)

    def _extent(self, label: str) -> int:
        size = self.sizes[label]
        return size if isinstance(size, int) else NOMINAL

    def _stride(self, i: int, label: str) -> Dim:
        """How far operand ``i`` moves along ``label``."""
        return self.reads[i].strides[self.labels[i].index(label)] if label in self.labels[i] else 0

    def along_n(self) -> Contraction | None:
        """Lanes along a label of the result that one operand and every stored buffer have contiguous."""
        for n in sorted(self.out, key=lambda c: (isinstance(self.sizes[c], int), self._extent(c)), reverse=True):
            axis = self.out.index(n)
            if any(b.strides[axis] != 1 for b in self.stored):
                continue
            for y in reversed(range(len(self.reads))):
                others = [i for i in range(len(self.reads)) if i != y]
                contiguous = self._stride(y, n) == 1 and self.reads[y].buffer.dtype == self.group.dtype
                if contiguous and all(self._stride(i, n) == 0 for i in others):
                    return self._tiled(n, y, others[0] if others else None)
        return None

    def along_k(self) -> Contraction | None:
        """Lanes along a summed label that both operands have contiguous."""
        if len(self.reads) != 2 or any(r.buffer.dtype != self.group.dtype for r in self.reads):
            return None
        k = next((c for c in self.summed if self._stride(0, c) == 1 and self._stride(1, c) == 1), None)
        columns = [c for c in self.out if self._stride(0, c) == 0 and isinstance(self.sizes[c], int)]
        swapped = False
        if not columns:
            columns = [c for c in self.out if self._stride(1, c) == 0 and isinstance(self.sizes[c], int)]
            swapped = bool(columns)
        if k is None or not isinstance(self.sizes[k], int):
            return None
        n = max(columns, key=self._extent, default=None)
        y, x = (0, 1) if swapped else (1, 0)
        return self._tiled(n, y, x, k)

    def _tiled(self, n: str | None, y: int, x: int | None, k: str | None = None) -> Contraction:
        rows = [c for c in self.out if c != n and x is not None and self._stride(y, c) == 0 and self._stride(x, c) != 0]
        m = max(rows, key=lambda c: (not isinstance(self.sizes[c], int), self._extent(c)), default=None)
        names = {c: f"i{i}" for i, c in enumerate(c for c in self.out if c not in (m, n))}
        loops = tuple((names[c], str(self.sizes[c])) for c in names)
        summed = [c for c in self.summed if c != k] + ([k] if k else [])
        for i, c in enumerate(summed):
            names[c] = "k" if c == summed[-1] else f"k{i}"
        names |= {c: p for c, p in ((m, "{i}"), (n, "{j}")) if c is not None}
        a = self._pointer(x, names) if x is not None else None
        b = self._pointer(y, names)
        at = [names[c] for c in self.out]
        axis = self.out.index(n) if n is not None and k is None else None
        vector = k is None
        epilogue = self._epilogue(at, axis, None, vector=vector)
        rest = self._epilogue(at, axis, "{rest}", vector=True) if vector else ()
        line = summed[-1] if k else n
        return Contraction(
            self.group.dtype,
            self.emit.params,
            "k" if k else "n",
            loops,
            (names.get(m or "", "0"), self._size(m)),
            (names.get(n or "", "0"), self._size(n)),
            tuple((names[c], str(self.sizes[c])) for c in summed),
            a,
            b,
            self.node.op.name if self.node.op is not red.contract else "sum",
            self._start(),
            line is not None
            and all(
                may_overread(self.reads[i], self.labels[i].index(line))
                for i in ((x, y) if k else (y,))
                if i is not None
            ),
            tuple(self.emit.once),
            epilogue,
            rest,
            self.emit.doc(),
        )

    def _size(self, label: str | None) -> str:
        return atom(self.sizes[label]) if label is not None else "1"

    def _start(self) -> str:
        name = "sum" if self.node.op is red.contract else self.node.op.name
        return c_literal(START[name], self.group.dtype)

    def _pointer(self, i: int, names: Mapping[str, str]) -> tuple[str, str]:
        """The name of operand ``i`` and the text of its element index."""
        read = self.reads[i]
        terms = [(names[c], stride) for c, stride in zip(self.labels[i], read.strides, strict=True)]
        return self.emit.buffer(read.buffer), linear([(t, s) for t, s in terms], read.offset)

    def _epilogue(self, at: Sequence[str], axis: int | None, rest: str | None, *, vector: bool) -> tuple[str, ...]:
        """Statements that take ``{acc}`` through the group's elementwise nodes into the stored buffers."""
        lines: list[str] = []
        values: dict[Node, str] = {self.node: "{acc}"}
        loaded: dict[Node, str] = {}
        ctype = self.emit.vector if vector else C_TYPES[self.group.dtype]
        for n in self.group.nodes:
            if n is not self.node:
                args = [self._operand(a.find(), at, axis, rest, vector, values, loaded, lines) for a in n.args]
                values[n] = self.emit.names[n]
                lines.append(f"const {ctype} {values[n]} = {self.emit.expression(n, args, vector=vector)};")
            for buffer in self.emit.stores.get(n, ()):
                lines.append(self._store(buffer, at, axis, rest, values[n]))
        return tuple(lines)

    def _store(self, buffer: Buffer, at: Sequence[str], axis: int | None, rest: str | None, value: str) -> str:
        if axis is not None:
            return self.emit.store(buffer, at, value, axis, rest)
        return f"{self.emit.buffer(buffer, written=True)}[{Access(buffer, buffer.strides).index(at)}] = {value};"

    def _operand(
        self,
        node: Node,
        at: Sequence[str],
        axis: int | None,
        rest: str | None,
        vector: bool,
        values: Mapping[Node, str],
        loaded: dict[Node, str],
        lines: list[str],
    ) -> str:
        base = base_of(node)
        if base in values:
            return values[base]
        if is_free(base):
            return self.emit.splat_once(base) if vector else self.emit.scalar(base)
        if node not in loaded:
            access = self.emit.access(node)
            text = self.emit.load(access, at, axis, rest) if vector else self.emit.element(access, at)
            loaded[node] = f"x{len(loaded)}"
            lines.append(f"const {self.emit.vector if vector else C_TYPES[self.group.dtype]} {loaded[node]} = {text};")
        return loaded[node]

    def plain(self) -> Plain:
        """Scalar loops over the result's labels, and inside them over the summed ones."""
        names = {c: f"i{i}" for i, c in enumerate(self.out)} | {c: f"k{i}" for i, c in enumerate(self.summed)}
        factors = []
        for i in range(len(self.reads)):
            name, index = self._pointer(i, names)
            factors.append(f"{name}[{index}]")
        dtype = self.group.dtype
        name = "sum" if self.node.op is red.contract else self.node.op.name
        term = factors[0] if len(factors) == 1 else combine("prod", factors[0], factors[1], dtype)
        combined = combine(name, "acc", term, dtype)
        body = [f"{C_TYPES[dtype]} acc = {neutral(name, dtype)};"]
        for i, c in enumerate(self.summed):
            body.append("    " * i + f"for (ptrdiff_t {names[c]} = 0; {names[c]} < {self.sizes[c]}; {names[c]}++) {{")
        body.append("    " * len(self.summed) + f"acc = {combined};")
        body += ["    " * i + "}" for i in reversed(range(len(self.summed)))]
        at = [names[c] for c in self.out]
        body += [line.replace("{acc}", "acc") for line in self._epilogue(at, None, None, vector=False)]
        loops = tuple((names[c], str(self.sizes[c])) for c in self.out)
        return Plain(self.group.dtype, self.emit.params, (), tuple(self.emit.once), loops, tuple(body), self.emit.doc())
