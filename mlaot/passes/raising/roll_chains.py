"""Roll chains of equal rounds into a scan. Reassociates: what does not depend on the chain is added up before it.

    h1 = tanh(add(mul(w, h0), x0))
    h2 = tanh(add(mul(w, h1), x1))      =>    h = scan(stack(w), stack(h0), stack(x0, x1, ..))
    ..                                        h1 = item(h, 0), h2 = item(h, 1), ..

Recurrent networks, filters and unrolled optimizers are such chains. The pass sees nodes only: it numbers each by what
is up to ``DEPTH`` ops below it, which is the same in every round but the first few (Weisfeiler and Leman, 1968, number
the nodes of a graph so). Nodes of one number, one behind the other at equal distances in height, have one role in the
rounds. A cut between two rounds that the fewest values cross tells what is carried. One round is the pattern, and the
rounds before it belong to the chain as long as they are equal to it, each node by each node.

Values that the round reads from outside are constants of the loop, or one for each round; the round itself stays a graph
of scalars, which is raised like any other. A value that a round reads of the one before the last is not rolled.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlaot.ir import Graph, Node, Subgraph, TupleType, users
from mlaot.ops import elementwise as ew
from mlaot.ops import structure as st
from mlaot.ops.control import result, save_carries, scan
from mlaot.passes.base import pass_over
from mlaot.passes.raising.flatten_sums import Classes
from mlaot.schedule.tuning import ROLLED_NODES, ROLLED_ROUNDS

Hashes = np.ndarray[Any, np.dtype[np.uint64]]
DEPTH = 12
SUMS = (ew.add, ew.maximum, ew.minimum)
ODD = np.uint64(0x9E3779B97F4A7C15)


@pass_over("scalars", after=("flatten_sums",))
def roll_chains(graph: Graph) -> None:
    """Roll every chain of ``graph``, the largest first."""
    while (chain := _find(graph)) is not None:
        _roll(graph, chain)


@dataclass(frozen=True)
class _Chain:
    """Rounds of equal structure. ``carried[t]`` are the values before round t, ``carried[-1]`` those after the last.

    ``body``: the nodes of the pattern that depend on what is carried, arguments first; ``rounds[t]``: what the nodes of
    the pattern and what they read are in round t.
    """

    carried: list[list[Node]]
    pattern: tuple[list[Node], list[Node]]
    body: list[Node]
    rounds: list[dict[Node, Node]]


# ------------------------------------------------------------------------------------------------------------- finding


def _find(graph: Graph) -> _Chain | None:
    """Return the chain of the most nodes, if there is one that is worth a loop."""
    nodes = graph.nodes()
    number = {node: i for i, node in enumerate(nodes)}
    args = [[number[a.find()] for a in node.args] if _is_computed(node) else [] for node in nodes]
    height = np.zeros(len(nodes), np.int64)
    for i, below in enumerate(args):
        if below:
            height[i] = 1 + max(int(height[a]) for a in below)
    if height.max(initial=0) < ROLLED_ROUNDS:
        return None
    for exact in ((True, True), (True, False), (False, False)):
        found = _roles(_signatures(nodes, args, *exact), height)
        for period, roles in sorted(found.items(), key=lambda pair: -sum(map(len, pair[1]))):
            for earlier, later in _cuts(nodes, args, height, period, roles):
                chain = _chain(earlier, later)
                if chain is not None and _is_closed(graph, chain):
                    return chain
    return None


def _is_computed(node: Node) -> bool:
    return bool(node.args) and not isinstance(node.type, TupleType) and node.type.rank == 0 and node.op is not st.item


def _signatures(nodes: Sequence[Node], args: Sequence[list[int]], exact_items: bool, exact_constants: bool) -> Hashes:
    """Number scalars by the ops up to ``DEPTH`` below them; parameters and constants by what they are, if ``exact``."""
    own = np.zeros(len(nodes), np.uint64)
    for i, node in enumerate(nodes):
        what: object = (node.op.name, tuple(map(str, node.attrs.items())))
        if node.op is st.item:
            is_exact = exact_items and node.arg(0).attrs.get("parameter", False)
            what = ("item", id(node.arg(0)), node.attrs["index"] if is_exact else None)
        elif node.op is st.const and not exact_constants:
            what = ("const", str(node.type))
        own[i] = hash(what) & 0xFFFFFFFFFFFFFFFF
    counts = np.array([len(below) for below in args])
    readers = np.flatnonzero(counts)
    flat = np.array([a for below in args for a in below], np.int64)
    starts = np.cumsum(counts[readers]) - counts[readers]
    ordered = np.array([not nodes[i].op.commutative for i in readers], bool)
    place = np.concatenate([np.arange(len(args[i])) * is_ordered for i, is_ordered in zip(readers, ordered, strict=True)])
    weights = (2 * place.astype(np.uint64) + np.uint64(1)) * ODD
    result = own.copy()
    with np.errstate(over="ignore"):
        for _ in range(DEPTH):
            of_args = np.add.reduceat(_mixed(result[flat] * weights), starts)
            result[readers] = _mixed(own[readers] ^ of_args)
    return result


def _mixed(x: Hashes) -> Hashes:
    """Spread bits (Steele et al., 2014, "Fast splittable pseudorandom number generators", figure 17)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _roles(signatures: Hashes, height: np.ndarray[Any, Any]) -> dict[int, list[list[int]]]:
    """Return by their distance in height the rows of scalars that have one signature, one scalar for each round."""
    order = np.lexsort((height, signatures))
    order = order[height[order] > 0]
    starts = np.flatnonzero(np.append(True, np.diff(signatures[order]) != 0))
    ends = np.append(starts[1:], len(order))
    found: dict[int, list[list[int]]] = defaultdict(list)
    tall = (ends - starts >= ROLLED_ROUNDS) & (height[order[ends - 1]] > height[order[starts]])
    for start, end in zip(starts[tall].tolist(), ends[tall].tolist(), strict=True):
        members = order[start:end]
        steps = np.diff(height[members])
        unlike = np.flatnonzero(steps != steps[-1])
        members = members[unlike[-1] + 1 if len(unlike) else 0 :]
        if steps[-1] > 0 and len(members) >= ROLLED_ROUNDS:
            found[int(steps[-1])].append(members.tolist())
    return found


def _cuts(
    nodes: Sequence[Node],
    args: Sequence[list[int]],
    height: np.ndarray[Any, Any],
    period: int,
    roles: Sequence[list[int]],
) -> Iterable[tuple[list[Node], list[Node]]]:
    """Yield what is carried before and after the last round, by cuts at all heights, the narrowest first."""
    next_: dict[int, int] = {}
    for members in roles:
        next_.update(zip(members, members[1:], strict=False))
    in_chain = {i for members in roles for i in members}
    top = max(int(height[members[-1]]) for members in roles)
    crossing: dict[int, dict[int, None]] = {cut: {} for cut in range(top - 2 * period, top - period)}
    for n in sorted(in_chain):
        for a in args[n]:
            if a in in_chain:
                for cut in range(max(int(height[a]), top - 2 * period), min(int(height[n]), top - period)):
                    crossing[cut][a] = None
    for cut in sorted(crossing, key=lambda cut: len(crossing[cut])):
        earlier = list(crossing[cut])
        if not earlier or any(i not in next_ for i in earlier):
            continue
        later = [next_[i] for i in earlier]
        while all(i in next_ for i in later):
            earlier, later = later, [next_[i] for i in later]
        yield [nodes[i] for i in earlier], [nodes[i] for i in later]


def _chain(earlier: list[Node], later: list[Node]) -> _Chain | None:
    """Return the chain whose last round makes ``later`` of ``earlier``, with all equal rounds before it."""
    body = _between(earlier, later)
    if not body:
        return None
    carried, rounds = [later], []
    while (found := _match(body, earlier, later, carried[0])) is not None:
        carried.insert(0, [found[value] for value in earlier])
        rounds.insert(0, found)
    is_worth = len(rounds) >= ROLLED_ROUNDS and len(rounds) * len(body) >= ROLLED_NODES
    return _Chain(carried, (earlier, later), body, rounds) if is_worth else None


def _between(earlier: Sequence[Node], later: Sequence[Node]) -> list[Node]:
    """Return the nodes on the ways from ``earlier`` to ``later``, arguments first, without ``earlier``."""
    depends = dict.fromkeys(earlier, True)
    order: list[Node] = []
    stack = [(node, False) for node in reversed(later)]
    while stack:
        node, is_done = stack.pop()
        if is_done:
            depends[node] = _is_computed(node) and any(depends[a.find()] for a in node.args)
            if depends[node]:
                order.append(node)
        elif node not in depends:
            depends[node] = False
            stack.append((node, True))
            if _is_computed(node):
                stack += [(a.find(), False) for a in node.args if a.find() not in depends]
    return order


def _match(
    body: Sequence[Node], earlier: Sequence[Node], later: Sequence[Node], wanted: Sequence[Node]
) -> dict[Node, Node] | None:
    """Return what each node of the pattern is in the round that makes ``wanted``; None where that is no such round."""
    found: dict[Node, Node] = {}

    def bind(node: Node, other: Node) -> bool:
        return found.setdefault(node, other) is other

    if not all(bind(node, other) for node, other in zip(later, wanted, strict=True)):
        return None
    for node in reversed(body):
        other = found[node]
        alike = other.op is node.op and other.attrs == node.attrs and len(other.args) == len(node.args)
        pairs = zip(node.args, other.args, strict=False)
        if not alike or not all(bind(a.find(), b.find()) for a, b in pairs):
            return None
    return found if all(value in found for value in earlier) else None


def _is_closed(graph: Graph, chain: _Chain) -> bool:
    """Tell whether no value that rounds read from outside depends on the chain."""
    body = set(chain.body)
    outside = {other for found in chain.rounds for node, other in found.items() if node not in body}
    outside -= {value for values in chain.carried for value in values}
    reached = {value for values in chain.carried[1:] for value in values}
    reached |= {found[node] for found in chain.rounds for node in body}
    for node in graph.nodes():
        if node not in reached and any(a.find() in reached for a in node.args):
            reached.add(node)
    return not outside & reached


# ------------------------------------------------------------------------------------------------------------- rolling


def _roll(graph: Graph, chain: _Chain) -> None:
    """Replace a chain by a scan."""
    earlier, later = chain.pattern
    body, count = set(chain.body), len(chain.rounds)
    klass = _classes()
    read: dict[tuple[Node, ...], tuple[Node, ...]] = {}  # what one round reads from outside, and what it is in each

    def outer(*terms: Node) -> tuple[Node, ...]:
        """Note what a round reads; several terms are those of a sum."""
        if terms not in read:
            op = _sums_of[terms] if len(terms) > 1 else None
            values = [[found[t] for t in terms] for found in chain.rounds]
            read[terms] = tuple(graph.add(op, v) if op else v[0] for v in values)
        return terms

    _sums_of: dict[tuple[Node, ...], Any] = {}
    inputs: dict[Node, list[tuple[Node, ...] | Node]] = {}  # the arguments of each node of the body
    for node in chain.body:
        args = [a.find() for a in node.args]
        alone = [a for a in args if a not in body and a not in earlier]
        if node.op in SUMS and len(alone) > 1:
            _sums_of[tuple(alone)] = node.op
            inputs[node] = [*[a for a in args if a in body or a in earlier], outer(*alone)]
        else:
            inputs[node] = [outer(a) if a in alone else a for a in args]
    for value in later:
        if value not in body and value not in earlier:
            outer(value)
    fixed = _groups([t for t, values in read.items() if len(set(values)) == 1], lambda t: klass(read[t][0]), read)
    varying = _groups([t for t, values in read.items() if len(set(values)) > 1], lambda t: klass(read[t][-1]), read)
    places = _groups(range(len(earlier)), lambda i: klass(later[i]), {})
    shown, last_only = _shown(graph, chain)
    shown_groups = _groups(sorted(shown, key=chain.body.index), klass, {})

    kind = later[0].type
    operands = [graph.add(st.stack, [read[t][0] for t in group]) for group in fixed]
    operands += [graph.add(st.stack, [chain.carried[0][i] for i in group]) for group in places]
    for group in varying:
        stacked = graph.add(st.stack, [read[t][i] for i in range(count) for t in group])
        operands.append(st.reshape(stacked, shape=(count, len(group))))

    def one_round(inner: Graph, arguments: list[Node]) -> list[Node]:
        made: dict[object, Node] = {}
        for vector, group in zip(arguments, [*fixed, *[[earlier[i] for i in g] for g in places], *varying], strict=True):
            made |= {what: inner.add(st.item, (vector,), {"index": i}) for i, what in enumerate(group)}
        for node in chain.body:
            made[node] = inner.add(node.op, [made[a] for a in inputs[node]], node.attrs)
        new = [made[v] if v in made else made[(v,)] for v in later]
        return [
            *[inner.add(st.stack, [new[i] for i in group]) for group in places],
            *[inner.add(st.stack, [made[node] for node in group]) for group in shown_groups],
        ]

    types = [x.type if i < len(fixed) + len(places) else kind.with_shape(x.type.shape[1:]) for i, x in enumerate(operands)]
    subgraph = save_carries(Subgraph.of("round", types, one_round), len(fixed), len(places))
    attrs = {"consts": len(fixed), "carries": len(places), "length": count, "reverse": False}
    loop = graph.add(scan, operands, {"body": subgraph, **attrs})
    for k, group in enumerate(shown_groups):
        rows = result(loop, index=len(places) + k)
        for i, node in enumerate(group):
            for t, found in enumerate(chain.rounds):
                graph.forward(found[node], graph.add(st.item, (rows,), {"index": t * len(group) + i}))
    for k, places_ in enumerate(places):
        for i, place in enumerate(places_):
            if later[place] in last_only:
                end = graph.add(st.item, (result(loop, index=k),), {"index": i})
                graph.forward(chain.carried[-1][place], end)


def _shown(graph: Graph, chain: _Chain) -> tuple[set[Node], set[Node]]:
    """Return the nodes of the body that are read outside of the chain: in any round, and of the last round alone."""
    readers = users(graph.nodes())
    roots = set(graph.roots())
    own = {found[node] for found in chain.rounds for node in chain.body}
    shown, last_only = set(), set()
    for node in chain.body:
        is_read = [
            found[node] in roots or any(reader not in own for reader in readers.get(found[node], ()))
            for found in chain.rounds
        ]
        if any(is_read[:-1]) or (is_read[-1] and node not in chain.pattern[1]):
            shown.add(node)
        elif is_read[-1]:
            last_only.add(node)
    return shown, last_only


def _groups(items: Iterable[Any], klass: Callable[[Any], int], read: Mapping[Any, tuple[Node, ...]]) -> list[list[Any]]:
    """Group what has one class, to lie in one vector; items of one tensor in its order."""
    groups: dict[int, list[Any]] = defaultdict(list)
    for item in items:
        groups[klass(item)].append(item)
    return [sorted(group, key=lambda item: _index(read[item][0]) if item in read else 0) for group in groups.values()]


def _index(node: Node) -> int:
    return int(node.attrs["index"]) if node.op is st.item else 0


def _classes() -> Callable[[Node], int]:
    """Return a function that numbers the structural class of a scalar."""
    classes = Classes()

    def klass(node: Node) -> int:
        stack = [node]
        while stack:
            top = stack[-1]
            if top not in classes.of:
                leaf = classes.leaf(top)
                waiting = [a.find() for a in top.args if a.find() not in classes.of] if leaf is None else []
                if waiting:
                    stack += waiting
                    continue
                classes.of[top] = (
                    classes.composite(top, [classes.of[a.find()] for a in top.args]) if leaf is None else leaf
                )
            stack.pop()
        return classes.of[node]

    return klass
