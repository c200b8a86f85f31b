"""Along which dim no row of an entry's results depends on another row, so that they are computed some at a time.

    x : f32[batch,784]          batch: the first axis of every array that has it, and no op
    y = softmax(x @ w + b)      sums, sorts or moves along it, or asks where a row is

The values between two kernels of a part of the rows then stay in the cache, and the workspace is theirs alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mlaot.ir import Graph, Node
from mlaot.ir.dims import Expr, dim, names
from mlaot.ir.subgraph import subgraphs
from mlaot.ir.types import TupleType
from mlaot.ops import structure as st
from mlaot.ops.axes import axes_of
from mlaot.transforms.batch import draws


def separate_rows(graph: Graph) -> str | None:
    """Return the named dim along which the rows are separate; None where there is none."""
    firsts = [names(node.type.shape[0]) for node in graph.inputs.values() if node.type.shape]
    return next((name for name in sorted(frozenset().union(*firsts)) if _are_separate(graph, name)), None)


def _are_separate(graph: Graph, name: str) -> bool:
    """Tell whether every value has rows along one axis, each made of the same row of other values, or has none."""
    at = {node: 0 for node in graph.inputs.values() if node.type.shape[:1] == (dim(name),)}  # the axis of the rows
    for node in graph.nodes():
        types = node.type.items if isinstance(node.type, TupleType) else (node.type,)
        axes = [axis for type_ in types for axis, extent in enumerate(type_.shape) if name in names(extent)]
        args = [a.find() for a in node.args]
        if not axes:
            if any(a in at for a in args) or any(_asks_for(name, value) for value in node.attrs.values()):
                return False
        elif node in graph.inputs.values():
            if axes != [0] or node not in at:
                return False
        else:
            is_plain = len(axes) == 1 == len(types) and types[0].shape[axes[0]] == dim(name)
            if not is_plain or not _keeps_rows(node, args, axes[0], at):
                return False
            at[node] = axes[0]
    return not graph.writes and all(at.get(node.find()) == 0 for node in graph.outputs.values())


def _keeps_rows(node: Node, args: Sequence[Node], axis: int, at: Mapping[Node, int]) -> bool:
    """Tell whether each row of a value along ``axis`` is made of the same row of its arguments, wherever that is."""
    if node.op.axes is None or draws(node) or subgraphs(node.attrs):
        return False
    maps, with_rows = axes_of(node), [i for i, a in enumerate(args) if a in at]
    return all(maps.image(i, at[args[i]]) == axis for i in with_rows) and (bool(with_rows) or node.op is st.broadcast)


def _asks_for(name: str, value: object) -> bool:
    """Tell whether an attribute has a named dim in it."""
    if isinstance(value, tuple):
        return any(_asks_for(name, each) for each in value)
    return isinstance(value, Expr) and name in names(value)
