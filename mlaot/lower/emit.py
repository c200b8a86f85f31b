"""C text of values inside a kernel: names for buffers and nodes, loads, stores, expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mlaot.ir import Node
from mlaot.lower.fuse import Group
from mlaot.lower.identifiers import array_name
from mlaot.lower.layout import Access, linear
from mlaot.lower.program import Buffer, Param
from mlaot.nest.expressions import WHOLE, ValueType, Var
from mlaot.nest.reductions import identity
from mlaot.ops import structure as st
from mlaot.ops.kinds import base_of, is_free
from mlaot.spelling import C_NAMES, HALVES, MEMORY, Speller, literal

C_TYPES = MEMORY

MASKS = {"f32": "i32v", "f64": "i64v"}  # truth values in vectors: 0 or -1 in each lane


def widened(text: str, source: str, dtype: str) -> str:
    """C text of an element of memory in the type ``dtype`` of a kernel."""
    if source in HALVES:
        return f"f32_from_{source}({text})"
    return text if source == dtype else f"({C_TYPES[dtype]}){text}"


def neutral(name: str, dtype: str) -> str:
    """What a reduction starts with."""
    return literal(identity(name, dtype).value, dtype)


def _without_numbers(buffer: Buffer) -> str:
    """``h.0.qkv.weight`` as ``h.qkv.weight``: the kernel is that of every layer of its shape."""
    parts = [part for part in buffer.name.split(".") if not part.isdigit()] if buffer.where != "input" else []
    return ".".join(parts) or buffer.name


class Emitter:
    """Collects the parameters and the run-once scalars of one kernel, and writes its expressions."""

    def __init__(self, group: Group, accesses: Mapping[Node, Access], stores: Mapping[Node, Sequence[Buffer]]) -> None:
        self.dtype = group.dtype
        self.vector = f"{group.dtype}v"
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
        return self.expression(node, [self.scalar(a) for a in node.args], vector=False)

    def splat_once(self, node: Node) -> str:
        """A free scalar in every lane; as a mask where it is a truth value."""
        node = base_of(node)
        if node.type.dtype.name == "bool":
            return f"splat_{self.vector}({self.scalar(node)}) != 0"
        if node.op is st.const:
            return f"splat_{self.vector}({literal(float(node.attrs['value'].array), self.dtype)})"
        return f"splat_{self.vector}({self.scalar(node)})"

    def ctype(self, node: Node, *, vector: bool = False) -> str:
        """The C type of a node's value in a variable."""
        name = node.type.dtype.name
        if vector:
            return MASKS[self.dtype] if name == "bool" else self.vector
        return C_NAMES.get(name, C_TYPES[name])

    def expression(self, node: Node, args: Sequence[str], *, vector: bool) -> str:
        assert node.op.c is not None, f"bug in mlaot: op '{node.op.name}' has no C expression"
        types = [self._type(a.find().type.dtype.name, vector) for a in node.args]
        texts = [f"({x})" if x.startswith("-") else x for x in args]
        return Speller(0)(node.op.c([Var(x, t) for x, t in zip(texts, types, strict=True)], **node.attrs))

    def _type(self, dtype: str, vector: bool) -> ValueType:
        if not vector:
            return ValueType(dtype)
        return ValueType(MASKS[self.dtype].replace("i", "m")[:-1] if dtype == "bool" else self.dtype, WHOLE)

    def load(self, access: Access, at: Sequence[str], axis: int | None, rest: str | None) -> str:
        """A vector of ``access`` along ``axis`` at the axis indices ``at``; only ``rest`` lanes where that is given."""
        name, source = self.buffer(access.buffer), access.buffer.dtype
        stride = access.strides[axis] if axis is not None else 0
        where = linear([*zip(at, access.strides, strict=True)], access.offset)
        pointer = name if where == "0" else f"{name} + {where}"
        kind = self.vector if source == self.dtype else f"{source}_as_{self.vector}"
        if stride == 0:
            value = self.element(access, at)
            return f"splat_{self.vector}({value})"
        if stride != 1:
            part = f"_part_{kind}({pointer}, {stride}, {rest})" if rest else f"_{kind}({pointer}, {stride})"
            return f"gather{part}"
        if rest is None or (source == self.dtype and axis is not None and may_overread(access, axis)):
            return f"load_{kind}({pointer})"
        return f"load_part_{kind}({pointer}, {rest})"

    def element(self, access: Access, at: Sequence[str]) -> str:
        """One element, in the kernel's type."""
        text = f"{self.buffer(access.buffer)}[{access.index(at)}]"
        return widened(text, access.buffer.dtype, self.dtype)

    def value(self, node: Node, at: Sequence[str]) -> str:
        """One element of a value from elsewhere, in its own type."""
        if is_free(node):
            return self.scalar(node)
        access = self.access(node)
        return f"{self.buffer(access.buffer)}[{access.index(at[: len(access.strides)])}]"

    def store(self, buffer: Buffer, at: Sequence[str], value: str, axis: int, rest: str | None) -> str:
        """Store a vector along ``axis``."""
        name = self.buffer(buffer, written=True)
        where = linear([*zip(at, buffer.strides, strict=True)])
        pointer = name if where == "0" else f"{name} + {where}"
        stride = buffer.strides[axis]
        if buffer.dtype == "bool":
            count = rest or f"(ptrdiff_t)(sizeof({self.vector}) / sizeof({C_TYPES[self.dtype]}))"
            return f"store_mask_{self.vector}({pointer}, {stride}, {count}, {value});"
        kind = self.vector if buffer.dtype == self.dtype else f"{buffer.dtype}_as_{self.vector}"
        if stride != 1:
            part = f"_part_{kind}({pointer}, {stride}, {rest}" if rest else f"_{kind}({pointer}, {stride}"
            return f"scatter{part}, {value});"
        if rest is None or (buffer.where == "work" and may_overread(Access(buffer, buffer.strides), axis)):
            return f"store_{kind}({pointer}, {value});"
        return f"store_part_{kind}({pointer}, {rest}, {value});"

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
