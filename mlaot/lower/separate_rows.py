"""Find the dim along which no row of a result depends on another row.

An entry computes such rows some at a time, and threads share those of a loop.

    x : f32[batch,784]          batch: the first axis of every array that has it, and no op
    y = softmax(x @ w + b)      sums, sorts or moves along it, or asks where a row is

The values between two kernels are then only those of some rows. They stay in the cache, and the workspace is smaller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mlaot.ir import Dim, Graph, Node, Subgraph
from mlaot.ir.dims import Expr, dim, names
from mlaot.ir.subgraph import subgraphs
from mlaot.ir.types import TupleType
from mlaot.lower.identifiers import dims_inside
from mlaot.ops import structure as st
from mlaot.ops.axes import axes_of
from mlaot.transforms.batch import draws


def separate_rows(graph: Graph) -> str | None:
    """Return the named dim along which the rows of an entry are separate.

    It is the first axis of each array that has it.
    """
    inputs = {key: node.type for key, node in graph.inputs.items()}
    for name in _names(type_.shape[:1] for type_ in inputs.values()):
        axes = axes_of_rows(graph, name, [0] * len(inputs))
        if axes is not None and not graph.writes and all(axes.get(n.find()) == 0 for n in graph.outputs.values()):
            return name
    return None


def rows_of_loop(body: Graph, carries: int, first: int) -> str | None:
    """Return the named dim along which a loop computes separate rows, from its first round to its last.

    The inputs of the body from number ``first`` on are ``carries`` carries: the first outputs of the round before.
    """
    types, outputs = [node.type for node in body.inputs.values()], [node.find() for node in body.outputs.values()]
    for name in _names(type_.shape for type_ in types):
        at = [next((i for i, extent in enumerate(t.shape) if extent == dim(name)), 0) for t in types]
        axes = axes_of_rows(body, name, at)
        starts = at[first : first + carries]
        if axes is not None and all(axes.get(n) == axis for n, axis in zip(outputs, starts, strict=False)):
            return name if all(n in axes for n in outputs) else None
    return None


def _names(shapes: Iterable[Sequence[Dim]]) -> list[str]:
    return sorted({name for shape in shapes for extent in shape for name in names(extent)})


def axes_of_rows(graph: Graph, name: str, starts: Sequence[int]) -> dict[Node, int] | None:
    """Return the axis of the rows along a dim for each value that has such rows; ``starts`` has the axes of the inputs.

    Return None if a row depends on other rows, or on the number of rows.
    """
    first = zip(graph.inputs.values(), starts, strict=True)
    at = {node: axis for node, axis in first if node.type.shape[axis : axis + 1] == (dim(name),)}
    for node in graph.nodes():
        types = node.type.items if isinstance(node.type, TupleType) else (node.type,)
        axes = [axis for type_ in types for axis, extent in enumerate(type_.shape) if name in names(extent)]
        args = [a.find() for a in node.args]
        if not axes:
            if any(a in at for a in args) or any(_asks_for(name, value) for value in node.attrs.values()):
                return None
        elif node in graph.inputs.values():
            if axes != [at.get(node)]:
                return None
        else:
            is_plain = len(axes) == 1 == len(types) and types[0].shape[axes[0]] == dim(name)
            if not is_plain or not _keeps_rows(node, args, axes[0], at):
                return None
            at[node] = axes[0]
    return at


def _keeps_rows(node: Node, args: Sequence[Node], axis: int, at: Mapping[Node, int]) -> bool:
    """Tell whether each row of a value along ``axis`` depends only on the same row of its arguments."""
    if node.op.axes is None or draws(node) or subgraphs(node.attrs):
        return False
    maps, with_rows = axes_of(node), [i for i, a in enumerate(args) if a in at]
    return all(maps.image(i, at[args[i]]) == axis for i in with_rows) and (bool(with_rows) or node.op is st.broadcast)


def _asks_for(name: str, value: object) -> bool:
    """Tell whether an attribute, or a value inside of a loop, has a named dim."""
    if isinstance(value, tuple):
        return any(_asks_for(name, each) for each in value)
    if isinstance(value, Subgraph):
        return name in dims_inside(value.graph)
    return isinstance(value, Expr) and name in names(value)
