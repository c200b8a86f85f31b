"""Chains of equal rounds in a graph of scalars: recurrent networks, filters, unrolled optimizers, tables.

    h1 = tanh(add(mul(w, h0), x0))
    h2 = tanh(add(mul(w, h1), x1))      =>    carried: [h0], [h1], [h2], ..
    ..

Only nodes are known. The carried values are those of the cut between two rounds that the fewest values cross. One round
is the pattern, and earlier rounds belong to the chain as long as they equal it node by node.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import is_

from mlaot.ir import Graph, Node
from mlaot.passes.raising.roles import Cut, find_cuts, is_computed
from mlaot.schedule.tuning import ROLLED_NODES, ROLLED_ROUNDS


@dataclass(frozen=True)
class Chain:
    """Rounds of equal structure. ``carried[t]`` are the values before round t, ``carried[-1]`` those after the last.

    ``body`` are the nodes of the pattern that depend on carried values, arguments first. ``rounds[t]`` maps the nodes
    of the pattern and their arguments to those of round t.
    """

    carried: list[list[Node]]
    pattern: tuple[list[Node], list[Node]]
    body: list[Node]
    rounds: list[dict[Node, Node]]


def find_chain(graph: Graph) -> Chain | None:
    """Return a chain that is worth a loop, a large one if there are several, or None."""
    nodes = graph.nodes()
    for cuts in find_cuts(nodes):
        chain = _best(graph, nodes, cuts)
        if chain is not None:
            return _prolonged(graph, chain)
    return None


def _best(graph: Graph, nodes: Sequence[Node], cuts: Iterable[Cut]) -> Chain | None:
    """Return the chain that carries the fewest values, has the most rounds, and starts from uncomputed values."""
    by_width: dict[int, list[tuple[list[Node], list[Node]]]] = defaultdict(list)
    for earlier, later in cuts:
        by_width[len(earlier)].append(([nodes[i] for i in earlier], [nodes[i] for i in later]))
    for width in sorted(by_width):
        chains = [chain for pair in by_width[width] if (chain := _chain(*pair)) is not None]
        if closed := [chain for chain in chains if _is_closed(graph, chain)]:
            return max(closed, key=lambda chain: (len(chain.rounds), -sum(map(is_computed, chain.carried[0]))))
    return None


def _chain(earlier: list[Node], later: list[Node]) -> Chain | None:
    """Return the chain whose last round computes ``later`` from ``earlier``, with all equal rounds before it."""
    body = _between(earlier, later)
    if not body or not {*later} <= {*body, *earlier}:
        return None
    carried, rounds = [later], list[dict[Node, Node]]()
    while (found := _match(body, earlier, later, carried[0])) is not None:
        carried.insert(0, [found[value] for value in earlier])
        rounds.insert(0, found)
    made = {found[node] for found in rounds for node in body}
    if len(made) < len(rounds) * len(body):  # a value that two rounds make
        return None
    is_worth = len(rounds) >= ROLLED_ROUNDS and len(made) >= ROLLED_NODES
    return Chain(carried, (earlier, later), body, rounds) if is_worth else None


def _between(earlier: Sequence[Node], later: Sequence[Node]) -> list[Node]:
    """Return the nodes on the paths from ``earlier`` to ``later``, arguments first, without ``earlier``."""
    depends = dict.fromkeys(earlier, True)
    order: list[Node] = []
    stack = [(node, False) for node in reversed(later)]
    while stack:
        node, is_done = stack.pop()
        if is_done:
            depends[node] = is_computed(node) and any(depends[a.find()] for a in node.args)
            if depends[node]:
                order.append(node)
        elif node not in depends:
            depends[node] = False
            stack.append((node, True))
            if is_computed(node):
                stack += [(a.find(), False) for a in node.args if a.find() not in depends]
    return order


def _match(
    body: Sequence[Node], earlier: Sequence[Node], later: Sequence[Node], wanted: Sequence[Node]
) -> dict[Node, Node] | None:
    """Map each node of the pattern to that of the round that computes ``wanted``; None if that is no such round."""
    inside = {*body, *earlier}
    for is_ordered in (True, False):
        found: dict[Node, Node] = {}
        pairs = list(zip(later, wanted, strict=True))
        for node in reversed([*body, None]):
            if node is not None:
                other = found[node]
                alike = other.op is node.op and other.attrs == node.attrs and len(other.args) == len(node.args)
                pairs = _pairs(node, other, is_ordered, inside) if alike else []
            if not pairs or any(found.setdefault(a, b) is not b for a, b in pairs):
                break
        else:
            return found if all(value in found for value in earlier) else None
    return None


def _pairs(node: Node, other: Node, is_ordered: bool, inside: Container[Node]) -> list[tuple[Node, Node]]:
    """Pair the arguments of two nodes. For commutative ops, arguments that both read from outside are paired first."""
    first, second = [a.find() for a in node.args], [a.find() for a in other.args]
    both: list[Node] = []
    if node.op.commutative and not is_ordered:
        both = list((Counter(a for a in first if a not in inside) & Counter(second)).elements())
    for a in both:
        first.remove(a)
        second.remove(a)
    return [*zip(both, both, strict=True), *zip(first, second, strict=True)]


def _prolonged(graph: Graph, chain: Chain) -> Chain:
    """Add incomplete last rounds, which lack unread values, such as the variance after a filter's last step."""
    readers = graph.users()
    made = {found[node] for found in chain.rounds for node in chain.body}
    longer = [chain]
    while (found := _next_round(graph, longer[-1], readers, made)) is not None:
        carried = [*longer[-1].carried, [found[value] for value in chain.pattern[1]]]
        longer.append(replace(chain, carried=carried, rounds=[*longer[-1].rounds, found]))
    return next((each for each in (longer[-1], *longer[1:2]) if _is_closed(graph, each)), chain)


def _next_round(
    graph: Graph, chain: Chain, readers: Mapping[Node, Sequence[Node]], made: set[Node]
) -> dict[Node, Node] | None:
    """Map each node of the pattern to that of a further round; None if too few of its nodes exist.

    Missing nodes are added to the graph, if all their arguments are known. ``made`` are the results of rounds.
    """
    before, last = chain.rounds[-2:]
    found = dict(zip(chain.pattern[0], chain.carried[-1], strict=True))
    inside, is_there = {*chain.body, *found}, 0
    for node in chain.body:
        args = [a.find() for a in node.args]
        found |= {a: last[a] for a in args if a not in inside and before[a] is last[a]}
        known = [found.get(a) for a in args]
        first = next(found[a] for a in args if a in inside)
        candidates = [other for other in readers.get(first, ()) if other not in made]
        alike = [pair for other in candidates if (pair := _unknown(node, other, known)) is not None]
        unknown = max(alike, key=lambda pair: sum(map(is_, known, map(Node.find, pair[0].args))), default=None)
        if unknown is not None:
            other, others = unknown
            pairs = zip([a for a in args if a not in found], others, strict=True)
            if any(found.setdefault(a, b) is not b for a, b in pairs):
                return None
        elif all(a in found for a in args):
            other = graph.add(node.op, [found[a] for a in args], node.attrs)
        else:
            return None
        found[node] = other
        made.add(other)
        is_there += unknown is not None
    return found if 2 * is_there >= len(chain.body) else None


def _unknown(node: Node, other: Node, known: Sequence[Node | None]) -> tuple[Node, list[Node]] | None:
    """Return a node and its arguments that are not ``known``, or None if the node does not match ``node``."""
    if other.op is not node.op or other.attrs != node.attrs or len(other.args) != len(node.args):
        return None
    args = [a.find() for a in other.args]
    if node.op.commutative:
        rest = Counter(args)
        rest.subtract(a for a in known if a is not None)
        return (other, list(rest.elements())) if min(rest.values()) >= 0 else None
    if any(a is not None and a is not b for a, b in zip(known, args, strict=True)):
        return None
    return other, [b for a, b in zip(known, args, strict=True) if a is None]


def _is_closed(graph: Graph, chain: Chain) -> bool:
    """Tell whether the initial values of the loop and the values read from outside do not depend on the chain."""
    inside = {*chain.body, *chain.pattern[0]}
    outside = {other for found in chain.rounds for node, other in found.items() if node not in inside}
    outside |= set(chain.carried[0])
    reached = {found[node] for found in chain.rounds for node in chain.body}
    for node in graph.nodes():
        if node not in reached and any(a.find() in reached for a in node.args):
            reached.add(node)
    return not outside & reached
