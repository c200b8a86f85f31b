"""Move nodes that depend on counted dims into subgraphs, so that lowering must obey only the order of arguments.

v1 = count(v0, dim=found, most=n)              v1 = count(v0, dim=found, most=n)
v2 = gather(x, y) : f32[found]           =>    v2 = counted(v1, x, y, body=<..>, dim=found, most=n)
return y=v2, found_=v1                         return y=result(v2, index=0), found_=v1
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mlaot.ir import Dim, Graph, Node, Subgraph
from mlaot.ir.counts import Count, counts, levels, most_of
from mlaot.ir.dims import largest, names, nonnegative
from mlaot.ops import structure as st
from mlaot.ops.base import conditions
from mlaot.ops.control import results
from mlaot.ops.counting import counted
from mlaot.ops.kinds import is_free


def nest_counts(graph: Graph) -> Graph:
    """Return a graph in which all nodes that depend on counted dims are inside of nodes ``counted``.

    The graph itself is returned if there are none.
    """
    found = counts(graph)
    if not found:
        return graph
    level, needs, nodes = levels(graph, found), needs_of(graph, found), graph.nodes()

    def values(to: Graph, number: int, known: dict[Node, Node], roots: Sequence[Node]) -> list[Node]:
        """Copy the nodes of a level, and nodes of higher levels into a subgraph; return the roots.

        ``known`` has the copies so far.
        """

        def copy(node: Node) -> Node:
            if node not in known:
                known[node] = to.copy(node, [copy(a.find()) for a in node.args])
            return known[node]

        for node in nodes:
            if level[node] == number:
                copy(node)
        deeper = [root for root in dict.fromkeys(roots) if level[root] > number]
        if deeper:
            above = [node for node in nodes if level[node] > number]
            read = [n for n in _read_by(above, [c.node for c in found[number + 1 :]]) if level[n] <= number]
            body = Graph(found[number].name)
            inner = {node: body.input(f"a{i}", node.type, **_notes(node)) for i, node in enumerate(read)}
            outputs = values(body, number + 1, inner, deeper)
            body.outputs = {f"r{i}": node for i, node in enumerate(outputs)}
            count = found[number].node
            attrs = {"body": Subgraph(body), **count.attrs, "needs": needs[number]}
            made = to.add(counted, [copy(count), *map(copy, read)], attrs)
            known |= zip(deeper, results(made), strict=True)
        return [copy(root) for root in roots]

    outer = Graph(graph.name)
    outer.inputs = graph.inputs
    made = iter(values(outer, 0, {node: node for node in graph.inputs.values()}, graph.roots()))
    outer.outputs = {key: next(made) for key in graph.outputs}
    outer.writes = {key: next(made) for key in graph.writes}
    return outer


def _read_by(nodes: Iterable[Node], more: Iterable[Node]) -> list[Node]:
    """List the values in memory that some nodes read, and ``more``; values that kernels recompute are followed."""
    read: dict[Node, None] = {}
    stack = [*more, *[a.find() for node in nodes for a in node.args]]
    seen: set[Node] = set()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.op is st.const or (node.op is not st.input_ and is_free(node)):
            stack += [a.find() for a in node.args]
        else:
            read[node] = None
    return list(read)


def _notes(node: Node) -> dict[str, object]:
    """Return the notes of the values that a subgraph reads, without notes of numbers that only one kernel computes."""
    if node.op is not st.input_:
        return {} if node.type.shape else {"parameter": True}
    return {key: value for key, value in node.attrs.items() if key not in ("name", "type")}


def needs_of(graph: Graph, found: Sequence[Count]) -> list[tuple[Dim, ...]]:
    """Return for each counted dim the expressions that must be checked not to be negative once it is known."""
    most, number = most_of(found), {count.name: i for i, count in enumerate(found)}
    needs: list[tuple[Dim, ...]] = [()] * len(found)
    for condition in conditions(graph):
        own = names(condition) & number.keys()
        if own and not nonnegative(-1 * largest(-1 * condition, most)):
            last = max(number[name] for name in own)
            needs[last] = (*needs[last], condition)
    return needs
