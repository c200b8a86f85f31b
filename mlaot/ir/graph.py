"""Nodes and graphs: hash-consed, with union-find in place of rewriting uses.

A node is one use of an op and also its value. Equal nodes of a graph are one object, so common subexpressions never
arise. A rewrite *forwards* a node to an equal, better one: ``find`` follows the links, and nothing is deleted.
``text.py`` has the text form, with one node on each line.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from mlaot.ir.dims import Dim
from mlaot.ir.indices import IndexRange
from mlaot.ir.layouts import AxisMap, Form, Label, Labels, Part, Strides, View
from mlaot.ir.types import DType, Literal, Type

Array = np.ndarray[Any, Any]
OPS: dict[str, Op] = {}


@dataclass(frozen=True)
class Use:
    """A node with arguments in ``layouts``, the ``extents`` of their labels, and the ``wanted`` order of its result."""

    node: Node
    layouts: tuple[Labels, ...]
    extents: Mapping[Label, Dim]
    wanted: Labels | None = None

    @cached_property
    def map(self) -> AxisMap:
        axes = self.node.op.axes
        assert axes is not None, f"bug in mlaot: no axes of {self.node.op}"
        return axes.of(self.node)

    @property
    def longest(self) -> Labels:
        """The layout of the argument with the most axes."""
        return max(self.layouts, key=len)

    def extent(self, label: Label) -> Dim:
        """Return the result's extent along an axis: the layout's if it is kept or blocked, else the node's own."""
        if label in self.extents and (label not in self.map.whole or label not in self.map.result):
            return self.extents[label]
        shape: tuple[Dim, ...] = self.node.type.shape
        return shape[self.map.result.index(label)]


@dataclass(frozen=True)
class Axes:
    """The axis rules of an op. ``of`` returns the map of a node, and ``form`` the op in another layout, if it has one.

    ``elementwise`` is true if each element of the result is computed from the elements of the arguments at the same
    place. ``reduces`` is true if the op combines all values along some axes, in any order, to one.
    """

    of: Callable[[Node], AxisMap]
    form: Callable[[Use], Form | None]
    elementwise: bool = False
    reduces: bool = False


@dataclass(frozen=True)
class Index:
    """The ``argument`` of an op that holds indices, and their ``range(*types, **attrs)``.

    A module raises an error for a caller's integers out of range. ``out_of_range`` says what the op does with integers
    out of range that a model computes.
    """

    argument: int
    range: Callable[..., IndexRange | None]
    out_of_range: str


@dataclass(frozen=True, eq=False)
class Op:
    """A kind of computation: everything that the compiler knows of it.

    ``type_rule(*types, **attrs)`` returns the type of the result. ``reference(*arrays, **attrs)`` computes the op in
    NumPy, which defines its meaning. ``doc`` says in a line what the op computes of arguments x and y (a and b for two
    of the same kind).

    ``vjp(ct, out, *args, **attrs)`` returns one cotangent (or None) for each argument. ``axes`` says how axes pass
    through the op, from which batching, layouts and views follow. If that does not say how to batch, ``batch(node,
    args, batched, dim)`` returns the node with a leading ``dim``; ``batched`` says which of ``args`` are batched.
    ``c(args, **attrs)`` is the expression of an elementwise op in a loop nest, for numbers or lanes. ``nest(target)``
    returns the statements of a kernel that computes only this op (``mlaot/ops/nests``).

    ``needs(*types, **attrs)`` are dims that must not be negative, so that the op stays within its arguments. With
    ``draws`` each example of a batch has a value of its own, even if no argument is batched. ``index`` names the
    argument that holds indices, if there is one.

    ``moves``: each element of the result is an element of an argument. ``exact``: the result is a number that the dtype
    of the arguments can hold, in whichever wider dtype it is computed. ``linear``: the op of a sum is the sum of the
    ops. ``cheap``: kernels compute the op again rather than store it. ``repeats`` is, for a reduction, the name of the
    op of two values that it repeats. ``view(node, strides)`` gives the places in the argument of the elements of a
    result that copies nothing. ``parts(node, strides)`` gives the places of arguments in the result, or nothing if
    strides do not describe them.
    """

    name: str
    type_rule: Callable[..., Type]
    reference: Callable[..., Array]
    vjp: Callable[..., tuple[Node | None, ...]] | None = None
    axes: Axes | None = None
    c: Callable[..., Any] | None = None  # an Expr of mlaot.nest
    commutative: bool = False
    needs: Callable[..., Iterable[Dim]] | None = None
    draws: bool = False
    index: Index | None = None
    moves: bool = False
    exact: bool = False
    linear: bool = False
    cheap: bool = False
    repeats: str = ""
    view: Callable[[Node, Strides], View] | None = None
    parts: Callable[[Node, Strides], list[Part]] | None = None
    batch: Callable[[Node, Sequence[Node], Sequence[bool], Dim], Node] | None = None
    nest: Callable[..., Any] | None = None  # a Body of mlaot.nest
    doc: str = ""

    def __post_init__(self) -> None:
        assert self.name not in OPS, f"op {self.name!r} is defined twice"
        OPS[self.name] = self

    def __call__(self, *args: Node, **attrs: Any) -> Node:
        """Add a node for this op to the graph of its first argument."""
        return args[0].graph.add(self, args, attrs)

    def __repr__(self) -> str:
        return self.name

    @property
    def elementwise(self) -> bool:
        """Whether each element of the result is computed from the elements of the arguments at the same place."""
        return self.axes is not None and self.axes.elementwise

    @property
    def reduces(self) -> bool:
        """Whether the op combines all values along some axes, in any order, to one."""
        return self.axes is not None and self.axes.reduces


class Node:
    """One use of an op, and its value. Only ``Graph.forward`` ever changes it.

    ``origin`` names the part of the model that the node belongs to, such as ``blocks.3.qkv``; it names kernels.
    ``line`` is the line of the user's code that made the node, such as ``model.py:12``. A node takes both from the node
    that is forwarded to it. Until then its origin is a guess, that of an argument.
    """

    __slots__ = ("args", "attrs", "forwarded", "graph", "guessed", "line", "op", "origin", "type")

    def __init__(self, graph: Graph, op: Op, args: tuple[Node, ...], attrs: dict[str, Any], type_: Type) -> None:
        self.graph = graph
        self.op = op
        self.args = args
        self.attrs = attrs
        self.type = type_
        self.guessed = not graph.origin
        self.origin: str = graph.origin or next((a.origin for a in args if a.origin), "")
        self.line = graph.line
        self.forwarded: Node | None = None

    def find(self) -> Node:
        """Return the representative of this node's class."""
        node = self
        while node.forwarded is not None:
            node = node.forwarded
        return node

    def arg(self, i: int) -> Node:
        """Return the representative of argument ``i``."""
        return self.args[i].find()

    def __repr__(self) -> str:
        return f"<{self.op.name} : {self.type}>"


class Graph:
    """Named inputs, named outputs, and writes: values that are stored in a slot after the slot's last read.

    ``origin`` and ``line`` become those of new nodes. ``locate`` returns the line while a function is traced.
    """

    text_form: ClassVar[Callable[[Graph], str]]  # set by mlaot.ir.text

    def __init__(self, name: str) -> None:
        self.name = name
        self.origin = self.line = ""
        self.locate: Callable[[], str] | None = None
        self.inputs: dict[str, Node] = {}
        self.outputs: dict[str, Node] = {}
        self.writes: dict[str, Node] = {}
        self.verified: set[Node] = set()  # checked once: arguments keep their types when they are forwarded
        self._table: dict[object, Node] = {}
        self._links = 0
        self._order: tuple[object, list[Node]] = (None, [])
        self._users: tuple[object, dict[Node, list[Node]]] = (None, {})

    def add(self, op: Op, args: Iterable[Node] = (), attrs: Mapping[str, Any] | None = None) -> Node:
        """Return the node for ``op`` on the representatives of ``args``: one object for the same op, args and attrs."""
        operands = tuple([a if a.forwarded is None else a.find() for a in args])
        key = (op, operands, tuple(attrs.items())) if attrs else (op, operands)
        node = self._table.get(key)
        if node is None:
            kept = dict(attrs) if attrs else {}
            if self.locate is not None:
                self.line = self.locate()
            node = Node(self, op, operands, kept, op.type_rule(*[a.type for a in operands], **kept))
            self._table[key] = node
        return node if node.forwarded is None else node.find()

    def copy(self, node: Node, args: Iterable[Node], attrs: Mapping[str, Any] | None = None) -> Node:
        """Add a node with the op of ``node``, which may be of another graph, and with its attributes or others."""
        with self.like(node):
            return self.add(node.op, args, node.attrs if attrs is None else attrs)

    @contextmanager
    def like(self, node: Node, origin: str | None = None) -> Iterator[None]:
        """Give new nodes the line of ``node``, and its origin unless there is another ``origin``."""
        outer = self.origin, self.line, self.locate
        self.origin, self.line, self.locate = node.origin if origin is None else origin, node.line, None
        try:
            yield
        finally:
            self.origin, self.line, self.locate = outer

    def constant(self, value: object, dtype: DType) -> Node:
        """Return a constant. The same bits give the same node."""
        return self.add(const, (), {"value": Literal(value, dtype)})

    def input(self, name: str, type_: Type, **notes: Any) -> Node:
        """Return an input by name; the same name gives the same node."""
        if name not in self.inputs:
            self.inputs[name] = self.add(input_, (), {"name": name, "type": type_, **notes})
        return self.inputs[name]

    def forward(self, node: Node, better: Node) -> None:
        """Make ``better`` the representative of ``node``'s class."""
        source, target = node.find(), better.find()
        if source is not target:
            assert source.type == target.type, f"bug in mlaot: {source} forwarded to {target}"
            assert source.op.name != "const" or target.op.name != "const", "bug in mlaot: constant is forwarded"
            source.forwarded = target
            target.line = target.line or source.line
            if target.guessed and source.origin:
                target.origin, target.guessed = source.origin, source.guessed
            self._links += 1

    def roots(self) -> list[Node]:
        """Return what must be computed: outputs, then writes."""
        return [n.find() for n in (*self.outputs.values(), *self.writes.values())]

    def nodes(self) -> list[Node]:
        """Return the representatives that the roots depend on, arguments before users.

        Deep graphs need no recursion.
        """
        roots = self.roots()
        state = (self._links, len(self._table), tuple(map(id, roots)))
        if self._order[0] != state:
            self._order = state, topological(roots)
        return list(self._order[1])

    def users(self) -> Mapping[Node, Sequence[Node]]:
        """Return ``users`` of all nodes in order. It is computed again only after the graph has changed."""
        nodes = self.nodes()
        if self._users[0] != self._order[0]:
            self._users = self._order[0], users(nodes)
        return self._users[1]

    @property
    def size(self) -> int:
        """The number of different nodes that were made."""
        return len(self._table)

    def __str__(self) -> str:
        return Graph.text_form(self)


def topological(roots: Iterable[Node], within: Container[Node] | None = None) -> list[Node]:
    """Order the nodes that ``roots`` depend on, each after its arguments.

    If given, only through nodes of ``within``.
    """
    order: list[Node] = []
    done: set[Node] = set()
    begun: set[Node] = set()
    stack: list[Node] = []
    for root in roots:
        stack.append(root.find())
        while stack:
            node = stack[-1]
            if node in done:
                stack.pop()
                continue
            missing = [f for a in node.args if (f := a if a.forwarded is None else a.find()) not in done]
            if within is not None:
                missing = [a for a in missing if a in within]
            if missing:
                assert node not in begun, f"bug in mlaot: a cycle through forwarded at {node}"
                begun.add(node)
                missing.reverse()
                stack.extend(missing)
            else:
                stack.pop()
                done.add(node)
                order.append(node)
    return order


def users(nodes: Iterable[Node]) -> dict[Node, list[Node]]:
    """Map each node to the nodes that take it as an argument (twice if they take it twice)."""
    result: dict[Node, list[Node]] = {}
    for node in nodes:
        result.setdefault(node, [])
        for a in node.args:
            result.setdefault(a.find(), []).append(node)
    return result


def _no_reference(*_: Array, **__: Any) -> Array:
    raise AssertionError("bug in mlaot: an input has no value of its own")


input_: Op = Op("input", lambda name, type, **notes: type, _no_reference, doc="an argument, a parameter or a buffer")
const: Op = Op(
    "const",
    lambda value: Type(value.dtype, value.array.shape),
    lambda value: value.array,
    lambda ct, out, value: (),
    doc="an array that is known when the module is built",
)
