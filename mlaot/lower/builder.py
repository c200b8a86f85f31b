"""The base of all builders of nests: arrays for buffers, loads and stores of values, elementwise work.

Every builder turns a group of nodes into a nest of loops over numbers, which the schedule vectorizes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from mlaot.ir import DTYPES, Dim, Node
from mlaot.ir.dims import product
from mlaot.lower.fuse import Group
from mlaot.lower.identifiers import array_name
from mlaot.lower.layout import Access
from mlaot.lower.program import Buffer, Kernel, Param
from mlaot.nest.expressions import Array, Const, Expr, Index, Load, Panels, ValueType, Var, cast, compare
from mlaot.nest.reductions import combine
from mlaot.nest.statements import Assign, Body, Let, Nest, Statement, Store, written_arrays
from mlaot.ops import structure as st
from mlaot.ops.kinds import base_of, is_free
from mlaot.ops.nests.target import At, place

Accesses = Mapping[Node, Access]
Stores = Mapping[Node, Sequence[Buffer]]


class Builder:
    """The arrays and the scalars of one kernel, and its statements; ``once`` has those before all loops."""

    def __init__(self, group: Group, accesses: Accesses, stores: Stores) -> None:
        self.group = group
        self.accesses = accesses
        self.stores = stores
        self.inside = set(group.nodes)
        self.names = {node: f"v{i}" for i, node in enumerate(group.nodes)}
        self.once: list[Statement] = []
        self._scalars: dict[Node, Expr] = {}
        self._arrays: dict[int, Array] = {}
        self._buffers: dict[str, Buffer] = {}
        self._temporaries = 0
        self._loads = 0

    def array(self, buffer: Buffer, panels: Panels | None = None) -> Array:
        """Return the kernel's array for a buffer; work buffers are ``t0``, ``t1``.. in order of use."""
        while buffer.within is not None and buffer.start == 0:  # one pointer to what is read and written
            buffer = buffer.within
        array = self._arrays.get(id(buffer))
        if array is None:
            name = self._name(buffer)
            array = self._arrays[id(buffer)] = Array(name, buffer.dtype, elements(buffer), panels=panels)
            self._buffers[array.name] = buffer
        return array

    def _name(self, buffer: Buffer) -> str:
        """Return the name of an array: the user's name without the numbers of layers, or ``t<number>``."""
        if buffer.root.where == "work":
            self._temporaries += 1
            return f"t{self._temporaries - 1}"
        parts = [p for p in buffer.name.split(".") if not p.isdigit()] if buffer.where != "input" else []
        name = array_name(".".join(parts) or buffer.name)  # without numbers, as all layers of a shape share the kernel
        while name in self._buffers:
            name += "_"
        return name

    def view(self, buffer: Buffer, name: str, dtype: str) -> Array:
        """Return an array ``name`` for the memory of a constant, as elements of another dtype."""
        size = buffer.bytes // DTYPES[dtype].itemsize
        own = replace(buffer, name=name, dtype=dtype, shape=(size,), strides=(1,), dense=True, within=buffer)
        self._arrays[id(own)] = array = Array(name, dtype, size)
        self._buffers[name] = own
        return array

    def access(self, node: Node) -> Access:
        return self.accesses[node.find()]

    def element(self, access: Access, at: At) -> Load:
        """Load one element as it lies in memory."""
        array, index = self.array(access.buffer), place(at, access.strides, access.offset)
        padded = access.reaches_end and not access.buffer.dense and access.offset == 0
        return Load(array, index, ValueType(array.dtype), padded=padded)

    def scalar(self, node: Node) -> Expr:
        """Return a free scalar, which is computed once a call."""
        node = base_of(node)
        if node.op is st.const:
            return Const(node.attrs["value"].array.item(), ValueType(node.type.dtype.name))
        stack = [node]
        while stack:  # without recursion, as chains may be long: arguments come first
            top = stack[-1]
            missing = [a for a in map(base_of, top.args) if a.op is not st.const and a not in self._scalars]
            stack += reversed(missing)
            if not missing and stack.pop() not in self._scalars:
                value = self._free(top)
                self._scalars[top] = var = Var(f"s{len(self._scalars)}", value.type)
                self.once.append(Let(var, value))
        return self._scalars[node]

    def _free(self, node: Node) -> Expr:
        if node.op is st.size:
            return cast(Index(node.attrs["dim"]), node.type.dtype.name)
        if node.op is st.input_:
            return self.element(self.access(node), ())
        return expression(node, [self.scalar(a) for a in node.args])

    def value(self, node: Node, at: At) -> Expr:
        """Load one element of a value from outside the group."""
        if is_free(node):
            return self.scalar(node)
        access = self.access(node)
        x = self.element(access, at[: len(access.strides)])
        is_widened = (access.buffer.dtype, node.type.dtype.name) == ("f32", "f64")
        return cast(x, "f64") if is_widened else x

    def store(self, buffer: Buffer, at: At, value: Expr) -> Store:
        """Write one element."""
        padded = buffer.where == "work" and not buffer.dense
        return Store(self.array(buffer), place(at, buffer.strides), value, padded=padded)

    def elementwise(
        self,
        nodes: Sequence[Node],
        at: Callable[[Node], At],
        values: dict[Node, Expr],
        dtype: str | None = None,
        reductions: Mapping[Node, Var] | None = None,
    ) -> Body:
        """Return the statements that compute ``nodes`` at one point: loads, each node in a variable, stores.

        ``at`` returns the indices of a value at the point. ``values`` has the values computed so far, and new ones are
        added. ``dtype`` is the dtype to compute with, to which elements are converted when they are loaded.
        ``reductions`` are variables into which the arguments of these nodes are combined.
        """
        statements: list[Statement] = []
        loaded: dict[Node, Expr] = {}

        def operand(node: Node) -> Expr:
            base = base_of(node)
            if node in values or base in values:
                return values[node if node in values else base]
            if is_free(base):
                return self.scalar(base)
            if node not in loaded:
                x = self.value(node, at(node))
                if dtype is not None and x.type.dtype not in (dtype, "bool"):
                    x = cast(x, dtype)
                loaded[node] = var = Var(f"x{self._loads}", x.type)
                self._loads += 1
                statements.append(Let(var, x))
            return loaded[node]

        for node in nodes:
            if reductions and node in reductions:
                total = reductions[node]
                statements.append(Assign(total, combine(node.op.name, total, operand(node.arg(0)))))
                continue
            if node not in values:
                x = self.compute(node, [operand(a.find()) for a in node.args], at(node))
                values[node] = Var(self.names[node], x.type)
                statements.append(Let(Var(self.names[node], x.type), x))
            for buffer in self.stores.get(node, ()):
                statements.append(self.store(buffer, at(node), values[node]))
        return tuple(statements)

    def compute(self, node: Node, args: Sequence[Expr], at: At) -> Expr:
        """Return the value of an elementwise node."""
        if node.op is st.one_hot:
            is_here = compare("eq", cast(args[0], "i64"), cast(at[-1], "i64"))
            dtype = node.type.dtype.name
            return cast(is_here, dtype) if dtype != "bool" else is_here
        return expression(node, args)

    def kernel(self, body: Sequence[Statement], name: str = "") -> Kernel:
        """Return the kernel of a body after ``once``. Arrays that are written come first."""
        arrays, params = self.bind_arrays(body)
        return Kernel(
            Nest(name or self.group.kind, arrays, (*self.once, *body), self.doc()), params, self.origin(), self.line()
        )

    def bind_arrays(self, body: Iterable[Statement]) -> tuple[tuple[Array, ...], tuple[Param, ...]]:
        """Return the arrays of a kernel, those that a body writes first, and their buffers."""
        names = written_arrays(body)
        arrays = sorted(self._arrays.values(), key=lambda a: a.name not in names)
        return tuple(arrays), tuple(Param(a.name, self._buffers[a.name], a.name in names) for a in arrays)

    def origin(self) -> str:
        """Return the part of the model that most nodes belong to, or the name of the last op."""
        return most_frequent(node.origin for node in self.group.nodes) or self.group.nodes[-1].op.name

    def line(self) -> str:
        """Return the line of the user's code that most nodes are for."""
        return most_frequent(node.line for node in self.group.nodes)

    def doc(self) -> tuple[str, ...]:
        """Return the graph lines of the kernel, with the kernel's own names."""
        lines = []
        for node in self.group.nodes:
            args = ", ".join(self._shown(a.find()) for a in node.args)
            notes = "".join(f", {k}={v}" for k, v in node.attrs.items() if k not in ("shape", "dtype"))
            lines.append(f"{self.names[node]} = {node.op.name}({args}{notes}) : {node.type}")
        return tuple(lines)

    def _shown(self, node: Node) -> str:
        base = base_of(node)
        if base in self.names:
            return self.names[base]
        if base.op is st.const and base.type.shape == ():
            return repr(base.attrs["value"])
        if is_free(base) and base.op is not st.input_:
            scalar = self._scalars.get(base)
            return scalar.name if isinstance(scalar, Var) else str(base.op.name)
        buffer = self.access(base).buffer
        array = self._arrays.get(id(buffer)) or self._arrays.get(id(buffer.root))
        return array.name if array is not None else buffer.name


def most_frequent(words: Iterable[str]) -> str:
    """Return the word that occurs most often, the first of several; empty ones do not count."""
    counts = Counter(filter(None, words))
    return max(counts, key=counts.__getitem__, default="")


def expression(node: Node, args: Sequence[Expr]) -> Expr:
    """Return what an elementwise node computes."""
    assert node.op.c is not None, f"bug in mlaot: op '{node.op.name}' has no expression"
    result: Expr = node.op.c(list(args), **node.attrs)
    return result


def elements(buffer: Buffer) -> Dim:
    """Return the number of elements from the start of a buffer to its end, padding included."""
    if buffer.where in ("input", "output"):
        return product(tuple(buffer.shape))
    return buffer.bytes // DTYPES[buffer.dtype].itemsize
