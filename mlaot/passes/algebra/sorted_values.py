"""Sort values themselves if nothing reads their indices, and search the values if only few are read.

v1 = argsort(v0, axis=1)                      v1 = sort(v0, axis=1)
v2 = gather(v0, v1, lead=1)             =>    return y=v1
return y=v2

v1 = sort(v0, axis=1)                         v1 = sort(v0, axis=1, places=(4, 6))
v2 = slice(v1, start=(0, 4), ..)        =>    v2 = slice(v1, start=(0, 4), ..)
v3 = slice(v1, start=(0, 5), ..)              v3 = slice(v1, start=(0, 5), ..)

Gradients, and indices that are results, need the order, which is then computed once. Bit-exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mlaot.ir import Graph, Node, users
from mlaot.ops import structure as st
from mlaot.ops.indexing import gather
from mlaot.ops.sorting import argsort, sort
from mlaot.passes.base import pass_over
from mlaot.schedule.tuning import SEARCHED_SHARE

Users = Mapping[Node, Sequence[Node]]


@pass_over("graphs", after=("entries", "simplify"))
def sorted_values(graph: Graph) -> None:
    """Sort values in place of gathers by their order, then restrict sorts to the places that are read."""
    for op, rule in ((argsort, _sort_values), (sort, _search)):
        nodes = graph.nodes()
        found = [node for node in nodes if node.op is op]
        if found:
            used, roots = users(nodes), set(graph.roots())
            for node in found:
                rule(graph, node, used, roots)


@dataclass(frozen=True)
class _Moved:
    """A node that moves elements of another one, from axis ``axes[i]`` to axis i; ``again`` applies the same move."""

    node: Node
    axes: tuple[int, ...]
    again: Callable[[Node], Node]


def _sort_values(graph: Graph, order: Node, used: Users, roots: set[Node]) -> None:
    """gather(x, argsort(x)) => sort(x), of all gathers, if nothing else reads the order"""
    x, axis = order.arg(0), order.attrs["axis"]
    if order.attrs.get("count") is not None:
        return
    gathers: list[tuple[Node, _Moved]] = []
    pending = [_Moved(order, tuple(range(order.type.rank)), lambda node: node)]
    while pending:
        moved = pending.pop()
        if moved.node in roots:
            return
        for user in used.get(moved.node, ()):
            if user.op is gather and user.arg(1) is moved.node and _reads(user, x, moved.axes, axis):
                gathers.append((user, moved))
            elif (further := _move(user, moved, axis)) is not None:
                pending.append(further)
            else:
                return
    attrs = {key: value for key, value in order.attrs.items() if key != "count"}
    ordered = sort(x, **attrs)
    for node, moved in gathers:
        graph.forward(node, moved.again(ordered))


def _move(user: Node, moved: _Moved, axis: int) -> _Moved | None:
    """Return a transpose of a node, or the part of it that is cut along the sorted axis."""
    if user.op is st.transpose:
        axes = tuple(moved.axes[i] for i in user.attrs["perm"])
    elif user.op is st.slice_ and all(
        moved.axes[i] == axis or user.type.shape[i] == d for i, d in enumerate(moved.node.type.shape)
    ):
        axes = moved.axes
    else:
        return None
    return _Moved(user, axes, lambda node: user.op(moved.again(node), **user.attrs))


def _reads(node: Node, x: Node, axes: tuple[int, ...], axis: int) -> bool:
    """Tell whether a gather reads ``x``, with its axes in an order, along the last one, which is ``axis``."""
    rows, perm = node.arg(0), tuple(range(x.type.rank))
    if rows is not x and rows.op is st.transpose:
        rows, perm = rows.arg(0), rows.attrs["perm"]
    return rows is x and perm == axes and node.attrs["lead"] == len(axes) - 1 and axes[-1] == axis


def _search(graph: Graph, ordered: Node, used: Users, roots: set[Node]) -> None:
    """sort(x)[a:b] => sort(x, places=(a, b))[a:b], for all that is read of it"""
    axis, extent = ordered.attrs["axis"], ordered.type.shape[ordered.attrs["axis"]]
    if isinstance(extent, int) and not ordered.attrs.get("places"):
        places = {*_places(ordered, axis, extent, used, roots)}
        first, stop = min(places, default=0), max(places, default=extent) + 1
        if stop - first < SEARCHED_SHARE * extent:
            graph.forward(ordered, sort(ordered.arg(0), **{**ordered.attrs, "places": (first, stop)}))


def _places(node: Node, axis: int, extent: int, used: Users, roots: set[Node]) -> Iterator[int]:
    """Yield the first and the last place along an axis of each part of a node that is read."""
    if node in roots:
        yield from (0, extent - 1)
    for user in used.get(node, ()):
        if user.op is st.transpose:
            yield from _places(user, user.attrs["perm"].index(axis), extent, used, roots)
        elif user.op is st.slice_:
            start, size, step = (user.attrs[key][axis] for key in ("start", "size", "step"))
            if size != 0:
                yield from (start, start + (size - 1) * step)
        elif user.op is st.take and user.attrs["lead"] == axis == node.type.rank - 1:
            yield from map(int, user.attrs["indices"].array.flat)
        else:
            yield from (0, extent - 1)
