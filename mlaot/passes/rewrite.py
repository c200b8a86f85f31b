"""The driver of all rewrite rules: re-intern each node, then apply rules to a fixed point, with a limit of steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mlaot.ir import Graph, Node
from mlaot.ops import Op

Rule = Callable[[Node], Node | None]
MAX_STEPS = 50
MAX_SWEEPS = 50


def rewrite(
    graph: Graph,
    rules: Mapping[Op | None, Sequence[Rule]],
    on_replace: Callable[[Node, Node], None] = lambda old, new: None,
) -> None:
    """Apply ``rules`` until none matches. They are listed by the op that they match; rules under None match any op.

    A rule returns an equal, better node, or None. Nodes made inside a replacement are visited by the next sweep.
    ``on_replace`` is called with each node and its replacement.
    """
    anywhere = tuple(rules.get(None, ()))
    by_op = {op: (*own, *anywhere) for op, own in rules.items()}
    for _ in range(MAX_SWEEPS):
        if not _sweep(graph, by_op, anywhere, on_replace):
            return
    names = [rule.__name__ for own in rules.values() for rule in own]
    raise AssertionError(f"bug in mlaot: no fixed point after {MAX_SWEEPS} sweeps of {names}")


def _sweep(
    graph: Graph,
    rules: Mapping[Op | None, Sequence[Rule]],
    anywhere: Sequence[Rule],
    on_replace: Callable[[Node, Node], None],
) -> bool:
    changed = False
    for old in graph.nodes():
        node, graph.origin, graph.line = old, old.origin, old.line
        for a in old.args:
            if a.forwarded is not None:
                node = graph.add(old.op, old.args, old.attrs)  # an argument has been forwarded meanwhile
                break
        candidates = rules.get(node.op, anywhere)
        if candidates:
            fired: list[str] = []
            while (better := _first(node, candidates, fired)) is not None:
                node = better
                candidates = rules.get(node.op, anywhere)
                assert len(fired) < MAX_STEPS, f"bug in mlaot: rules loop on {old.op.name}: {fired}"
        if node is not old:
            graph.forward(old, node)
            on_replace(old, node)
            changed = True
    graph.origin = graph.line = ""
    return changed


def _first(node: Node, rules: Sequence[Rule], fired: list[str]) -> Node | None:
    for rule in rules:
        better = rule(node)
        if better is not None and better.find() is not node:
            fired.append(rule.__name__)
            return better.find()
    return None
