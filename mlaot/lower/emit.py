"""C text for kernels that are no nests: names for buffers and nodes, free scalars, the graph lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mlaot.ir import Node
from mlaot.lower.fuse import Group
from mlaot.lower.layout import Access
from mlaot.lower.program import Buffer, Param
from mlaot.nest.expressions import ValueType, Var
from mlaot.nest.reductions import identity
from mlaot.ops import structure as st
from mlaot.ops.kinds import base_of, is_free
from mlaot.printing.identifiers import array_name
from mlaot.printing.spelling import C_NAMES, MEMORY, Speller, literal

C_TYPES = MEMORY


def neutral(name: str, dtype: str) -> str:
    """What a reduction starts with."""
    return literal(identity(name, dtype).value, dtype)


def _without_numbers(buffer: Buffer) -> str:
    """``h.0.qkv.weight`` as ``h.qkv.weight``: the kernel is that of every layer of its shape."""
    parts = [part for part in buffer.name.split(".") if not part.isdigit()] if buffer.where != "input" else []
    return ".".join(parts) or buffer.name


class Emitter:
    """Collects the parameters and the run-once scalars of one kernel."""

    def __init__(self, group: Group, accesses: Mapping[Node, Access], stores: Mapping[Node, Sequence[Buffer]]) -> None:
        self.dtype = group.dtype
        self.accesses = accesses
        self.stores = stores
        self.nodes = group.nodes
        self.inside = set(group.nodes)
        self.names = {node: f"v{i}" for i, node in enumerate(group.nodes)}
        self.once: list[str] = []
        self._scalars: dict[Node, str] = {}
        self._params: dict[int, Param] = {}
        self._names: set[str] = set()
        self._temporaries = 0

    @property
    def params(self) -> tuple[Param, ...]:
        return tuple(sorted(self._params.values(), key=lambda p: not p.written))

    def buffer(self, buffer: Buffer, *, written: bool = False) -> str:
        """The kernel's name for a buffer; work buffers are ``t0``, ``t1``.. in order of use."""
        while buffer.within is not None and buffer.start == 0:  # one pointer to what is read and written
            buffer = buffer.within
        known = self._params.get(id(buffer))
        if known is None:
            name = array_name(_without_numbers(buffer))
            if buffer.whole.where == "work":
                name = f"t{self._temporaries}"
                self._temporaries += 1
            while name in self._names:
                name += "_"
            self._names.add(name)
            known = self._params[id(buffer)] = Param(name, buffer, written)
        elif written and not known.written:
            known = self._params[id(buffer)] = Param(known.name, buffer, True)
        return known.name

    def access(self, node: Node) -> Access:
        return self.accesses[node.find()]

    def scalar(self, node: Node) -> str:
        """A free scalar, computed once a call."""
        node = base_of(node)
        if node.op is st.const:
            return literal(node.attrs["value"].array.item(), node.type.dtype.name)
        stack = [node]
        while stack:  # chains may be long: what a scalar is made of comes first, without recursion
            top = stack[-1]
            missing = [a for a in map(base_of, top.args) if a.op is not st.const and a not in self._scalars]
            stack += reversed(missing)
            if not missing and stack.pop() not in self._scalars:
                self._scalars[top] = f"s{len(self._scalars)}"
                self.once.append(f"const {self.ctype(top)} {self._scalars[top]} = {self._free(top)};")
        return self._scalars[node]

    def _free(self, node: Node) -> str:
        if node.op is st.size:
            return f"({self.ctype(node)})({node.attrs['dim']})"
        if node.op is st.input_:
            return f"{self.buffer(self.access(node).buffer)}[{self.access(node).index(())}]"
        return self.expression(node, [self.scalar(a) for a in node.args])

    def ctype(self, node: Node) -> str:
        """The C type of a node's value in a variable."""
        name = node.type.dtype.name
        return C_NAMES.get(name, C_TYPES[name])

    def expression(self, node: Node, args: Sequence[str]) -> str:
        assert node.op.c is not None, f"bug in mlaot: op '{node.op.name}' has no C expression"
        types = [ValueType(a.find().type.dtype.name) for a in node.args]
        texts = [f"({x})" if x.startswith("-") else x for x in args]
        return Speller(0)(node.op.c([Var(x, t) for x, t in zip(texts, types, strict=True)], **node.attrs))

    def doc(self) -> tuple[str, ...]:
        """The graph lines of the kernel, with its own names."""
        lines = []
        for node in self.nodes:
            args = ", ".join(self._name(a.find()) for a in node.args)
            notes = "".join(f", {k}={v}" for k, v in node.attrs.items() if k not in ("shape", "dtype"))
            lines.append(f"{self.names[node]} = {node.op.name}({args}{notes}) : {node.type}")
        return tuple(lines)

    def _name(self, node: Node) -> str:
        base = base_of(node)
        if base in self.names:
            return self.names[base]
        if base.op is st.const and base.type.shape == ():
            return repr(base.attrs["value"])
        if is_free(base) and base.op is not st.input_:
            return self.scalar(base)
        buffer = self.access(base).buffer
        known = self._params.get(id(buffer.whole))  # a value inside of what is written around it
        return known.name if known is not None and buffer.where == "slice" else self.buffer(buffer)


def may_overread(access: Access, axis: int) -> bool:
    """Whether a whole vector may be touched past the end of the axis: rows of buffers of our own are padded."""
    return access.whole and not access.buffer.dense and access.offset == 0 and access.strides[axis] == 1
