"""What an op is: one object that carries everything the compiler knows about one kind of computation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.ir import Dim, DType, Graph, Node, TupleType, Type, dims
from mlaot.ir.indices import IndexRange
from mlaot.ir.subgraph import subgraphs
from mlaot.nest.expressions import Expr
from mlaot.ops.axes import ELEMENTWISE, REDUCTION, Axes
from mlaot.ops.views import Part, Strides, View

Array = np.ndarray[Any, Any]
OPS: dict[str, Op] = {}


@dataclass(frozen=True)
class Index:
    """``argument`` of an op is made of indices: ``range(*types, **attrs)``, and what the op does with all ``others``.

    Integers that a caller gives are refused out of range; ``others`` is what becomes of those that a model computes.
    """

    argument: int
    range: Callable[..., IndexRange | None]
    others: str


@dataclass(frozen=True, eq=False)
class Op:
    """``type_rule(*types, **attrs)``, ``reference(*arrays, **attrs)``: NumPy, the meaning of the op.

    ``vjp(ct, out, *args, **attrs)`` gives one cotangent (or None) per argument. ``axes``: how axes go
    through it, from which batching, layouts and views follow. ``c(args, **attrs)`` is the expression of an elementwise
    op in a loop nest, of numbers or of lanes.
    ``doc`` says in a line what the op computes, of arguments x and y (a, b for two alike).
    ``needs(*types, **attrs)`` are dims that must not be negative for the op to stay within its arguments. ``draws``:
    each example of a batch has a value of its own, even where no argument is batched. ``index``: which argument is made
    of indices, if one is. ``moves``: each element of the result is an element of an argument. ``view(node, strides)``:
    where the elements of a result that copies nothing lie in its argument. ``parts(node, strides)``: where arguments
    lie in the result, or nothing where they do not lie by strides. Where axes do not say how to batch,
    ``batch(node, args, batched, dim)`` gives the node with a leading ``dim``; ``args`` are batched where ``batched``
    says so.
    """

    name: str
    type_rule: Callable[..., Type]
    reference: Callable[..., Array]
    vjp: Callable[..., tuple[Node | None, ...]] | None = None
    axes: Axes | None = None
    c: Callable[..., Expr] | None = None
    commutative: bool = False
    needs: Callable[..., Iterable[Dim]] | None = None
    draws: bool = False
    index: Index | None = None
    moves: bool = False
    view: Callable[[Node, Strides], View] | None = None
    parts: Callable[[Node, Strides], list[Part]] | None = None
    batch: Callable[[Node, Sequence[Node], Sequence[bool], Dim], Node] | None = None
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
        """Whether each element of the result is computed from the elements of the arguments at its place."""
        return self.axes is ELEMENTWISE

    @property
    def reduces(self) -> bool:
        """Whether the op makes one value of all those along some axes, in any order of them."""
        return self.axes is REDUCTION


def no_gradient(ct: Node, out: Node, *args: Node, **_: Any) -> tuple[None, ...]:
    """The VJP of an op that is flat wherever it is smooth, or whose result is no real number."""
    return (None,) * len(args)


def conditions(graph: Graph) -> list[Dim]:
    """Dims that must not be negative when the module is called: extents and bounds that are not so for certain."""
    found: dict[Dim, None] = {}
    for node in graph.nodes():
        types = node.type.items if isinstance(node.type, TupleType) else (node.type,)
        needs = node.op.needs(*[a.find().type for a in node.args], **node.attrs) if node.op.needs else ()
        found |= dict.fromkeys((*[d for t in types for d in t.shape], *needs))
        for inner in subgraphs(node.attrs).values():
            found |= dict.fromkeys(conditions(inner.graph))
    return [d for d in found if not dims.nonnegative(d)]


def accumulator(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The NumPy dtype in which numbers of ``dtype`` are added and multiplied up."""
    return np.dtype(np.float32) if dtype == np.float16 else dtype


def same_type(*types: Type, **_: Any) -> Type:
    """All arguments of one dtype and shape; so is the result."""
    first = types[0]
    for other in types[1:]:
        if other is not first and other != first:
            raise MlaotError(f"operands must have one type, got {' and '.join(map(str, types))}")
    return first


def lift(node: Node, dim: Dim) -> Node:
    """Repeat a value along a new leading dim."""
    from mlaot.ops.structure import broadcast

    return broadcast(node, shape=(dim, *node.type.shape), axes=tuple(range(1, node.type.rank + 1)))


def full_like(node: Node, value: float) -> Node:
    """``value`` in every element, of ``node``'s type."""
    return fill(node, value, node.type)


def fill(like: Node, value: float, type_: Type) -> Node:
    """``value`` in every element of ``type_``, in the graph of ``like``."""
    from mlaot.ops.structure import broadcast

    constant = like.graph.constant(value, type_.dtype)
    return broadcast(constant, shape=type_.shape, axes=()) if type_.shape else constant


@cache
def scalar_type(dtype: DType) -> Type:
    """The rank-0 type of a dtype, one object: scalar graphs have a hundred thousand of them."""
    return Type(dtype, ())
