"""Roll chains of equal rounds into a scan. Reassociates: what does not depend on the chain is added up before it.

    h1 = tanh(add(mul(w, h0), x0))
    h2 = tanh(add(mul(w, h1), x1))      =>    h = scan(stack(w), stack(h0), stack(x0, x1, ..))
    ..                                        h1 = item(h, 0), h2 = item(h, 1), ..

Recurrent networks, filters and unrolled optimizers are such chains. The pass sees nodes only: it numbers each by what
is up to some ops below it, which is the same in every round but the first few (Weisfeiler and Leman, 1968, number
the nodes of a graph so). Nodes of one number, one behind the other at equal distances in height, have one role in the
rounds. A cut between two rounds that the fewest values cross tells what is carried. One round is the pattern, and the
rounds before it belong to the chain as long as they are equal to it, each node by each node.

Values that the round reads from outside are constants of the loop, or one for each round; the round itself stays a
graph of scalars, which is raised like any other. Rounds that read values of the one before the last stay as they are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any, TypeVar

import numpy as np

from mlaot.ir import Graph, Node, Subgraph, TupleType, users
from mlaot.ops import Op
from mlaot.ops import structure as st
from mlaot.ops.control import result, save_carries, scan
from mlaot.passes.base import pass_over
from mlaot.passes.raising.flatten_sums import IDENTITIES, Classes
from mlaot.schedule.tuning import ROLLED_NODES, ROLLED_ROUNDS

Hashes = np.ndarray[Any, np.dtype[np.uint64]]
DEPTHS = (3, 6, 12)  # residual connections make rounds short, recurrent cells long
_Read = tuple[Op | None, tuple[Node, ...]]  # a node that a round reads from outside, or an op of several
Item = TypeVar("Item")
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
    for signatures in _signatures(nodes, args):
        found = _roles(signatures, height)
        for period, roles in sorted(found.items(), key=lambda pair: -sum(map(len, pair[1]))):
            for cycle in _cycles(args, roles):
                cuts = [_reduced(*cut, nodes, args) for cut in _cuts(args, height, period, cycle)]
                for width in sorted({len(earlier) for earlier, _ in cuts}):
                    chains = [_chain(*cut) for cut in cuts if len(cut[0]) == width]
                    closed = [chain for chain in chains if chain is not None and _is_closed(graph, chain)]
                    if closed:
                        return max(closed, key=lambda chain: len(chain.rounds))
    return None


def _is_computed(node: Node) -> bool:
    return bool(node.args) and not isinstance(node.type, TupleType) and node.type.rank == 0 and node.op is not st.item


def _signatures(nodes: Sequence[Node], args: Sequence[list[int]]) -> Iterable[Hashes]:
    """Yield numbers of scalars by the ops below them: by fewer and fewer, with less and less exact leaves."""
    counts = np.array([len(below) for below in args])
    readers = np.flatnonzero(counts)
    flat = np.array([a for below in args for a in below], np.int64)
    starts = np.cumsum(counts[readers]) - counts[readers]
    places = [np.arange(counts[i], dtype=np.uint64) * (not nodes[i].op.commutative) for i in readers.tolist()]
    weights = (2 * np.concatenate(places) + np.uint64(1)) * ODD
    for exact in (("inputs", "parameters", "constants"), ("parameters", "constants"), ("parameters",), ()):
        labels: dict[object, int] = {}
        own = _mixed(np.array([labels.setdefault(_label(node, exact), len(labels) + 1) for node in nodes], np.uint64))
        signatures, of_depths = own.copy(), []
        for depth in range(1, max(DEPTHS) + 1):
            of_args = np.add.reduceat(_mixed(signatures[flat] * weights), starts)
            signatures[readers] = _mixed(own[readers] ^ of_args)
            if depth in DEPTHS:
                of_depths.append(signatures.copy())
        yield from reversed(of_depths)


def _label(node: Node, exact: tuple[str, ...]) -> object:
    """Return what a scalar is, without what is below it: of leaves that are not ``exact``, of what kind they are."""
    if node.op is st.item:
        kind = "parameters" if node.arg(0).attrs.get("parameter", False) else "inputs"
        return "item", id(node.arg(0)), node.attrs["index"] if kind in exact else None
    if node.op is st.const and "constants" not in exact:
        return "const", str(node.type)
    return node.op.name, tuple(map(str, node.attrs.items()))


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


def _cycles(args: Sequence[list[int]], roles: Sequence[list[int]]) -> Iterable[list[list[int]]]:
    """Yield the roles that depend on each other from round to round, the largest such families first."""
    role = {i: r for r, members in enumerate(roles) for i in members}
    below: dict[int, set[int]] = {r: set() for r in range(len(roles))}
    above: dict[int, set[int]] = {r: set() for r in range(len(roles))}
    for i, r in role.items():
        for a in args[i]:
            if a in role:
                below[r].add(role[a])
                above[role[a]].add(r)
    left = {r for r in below if below[r] and above[r]}
    families = []
    while left:
        start = next(iter(left))
        family = _reached(start, below, left) & _reached(start, above, left)
        left -= family
        if len(family) > 1 or start in below[start]:
            families.append(family)
        else:
            left = {r for r in left if below[r] & left and above[r] & left}
    for family in sorted(families, key=len, reverse=True):
        yield [roles[r] for r in sorted(family)]


def _reached(start: int, edges: Mapping[int, set[int]], among: set[int]) -> set[int]:
    found, stack = {start}, [start]
    while stack:
        fresh = edges[stack.pop()] & among - found
        found |= fresh
        stack += fresh
    return found


def _cuts(
    args: Sequence[list[int]], height: np.ndarray[Any, Any], period: int, roles: Sequence[list[int]]
) -> Iterable[tuple[list[int], list[int]]]:
    """Yield what crosses a cut before and after the last round, for cuts at all heights."""
    next_: dict[int, int] = {}
    for members in roles:
        next_.update(pairwise(members))
    in_chain = {i for members in roles for i in members}
    top = max(int(height[members[-1]]) for members in roles)
    crossing: dict[int, dict[int, None]] = {cut: {} for cut in range(top - 2 * period, top - period)}
    for n in sorted(in_chain):
        for a in args[n]:
            if a in in_chain:
                for cut in range(max(int(height[a]), top - 2 * period), min(int(height[n]), top - period)):
                    crossing[cut][a] = None
    for values in crossing.values():
        earlier = list(values)
        if earlier and all(i in next_ for i in earlier):
            later = [next_[i] for i in earlier]
            while all(i in next_ for i in later):
                earlier, later = later, [next_[i] for i in later]
            yield earlier, later


def _reduced(
    earlier: list[int], later: list[int], nodes: Sequence[Node], args: Sequence[list[int]]
) -> tuple[list[Node], list[Node]]:
    """Leave out of a cut what a round can compute of the rest, such as the negative of a value."""
    kept = dict(zip(earlier, later, strict=True))
    for i in sorted(earlier, reverse=True):
        if any(a in kept for a in args[i]) and all(a in kept or not args[a] for a in args[i]):
            del kept[i]
    return [nodes[i] for i in kept], [nodes[i] for i in kept.values()]


def _chain(earlier: list[Node], later: list[Node]) -> _Chain | None:
    """Return the chain whose last round makes ``later`` of ``earlier``, with all equal rounds before it."""
    body = _between(earlier, later)
    if not set(later) <= set(body):
        return None
    carried, rounds = [later], list[dict[Node, Node]]()
    while (found := _match(body, earlier, later, carried[0])) is not None:
        carried.insert(0, [found[value] for value in earlier])
        rounds.insert(0, found)
    made = {found[node] for found in rounds for node in body}
    if len(made) < len(rounds) * len(body):  # a value that two rounds make
        return None
    is_worth = len(rounds) >= ROLLED_ROUNDS and len(made) >= ROLLED_NODES
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
        if not alike or not all(bind(*pair) for pair in _pairs(node, other)):
            return None
    return found if all(value in found for value in earlier) else None


def _pairs(node: Node, other: Node) -> list[tuple[Node, Node]]:
    """Pair the arguments of two nodes: where their order is no matter, first those that both have."""
    first, second = [a.find() for a in node.args], [a.find() for a in other.args]
    both = [a for a in first if a in second] if node.op.commutative else []
    for a in both:
        first.remove(a)
        second.remove(a)
    return [*zip(both, both, strict=True), *zip(first, second, strict=True)]


def _is_closed(graph: Graph, chain: _Chain) -> bool:
    """Tell whether no value that the loop starts from, or that rounds read from outside, depends on the chain."""
    inside = {*chain.body, *chain.pattern[0]}
    outside = {other for found in chain.rounds for node, other in found.items() if node not in inside}
    outside |= set(chain.carried[0])
    reached = {value for values in chain.carried[1:] for value in values}
    reached |= {found[node] for found in chain.rounds for node in chain.body}
    for node in graph.nodes():
        if node not in reached and any(a.find() in reached for a in node.args):
            reached.add(node)
    return not outside & reached


# ------------------------------------------------------------------------------------------------------------- rolling


def _roll(graph: Graph, chain: _Chain) -> None:
    """Replace a chain by a scan."""
    earlier, later = chain.pattern
    klass = _classes()
    arguments = _arguments(chain)
    reads = {a: _values(graph, chain, a) for args in arguments.values() for a in args if isinstance(a, tuple)}
    purpose = _purposes(chain, arguments, klass)
    constants = [r for r, values in reads.items() if len(set(values)) == 1 and values[0].op is st.const]
    same = [r for r, values in reads.items() if len(set(values)) == 1 and r not in constants]
    unlike = [r for r, values in reads.items() if len(set(values)) > 1]
    nearest = {r: min(map(_first_parameter, r[1])) for r in unlike}
    first = {purpose[r]: min(nearest[other] for other in unlike if purpose[other] == purpose[r]) for r in unlike}
    unlike.sort(key=lambda r: (first[purpose[r]], purpose[r], nearest[r]))
    fixed = _groups(same, lambda r: klass(reads[r][-1]))
    varying = _groups(unlike, lambda r: klass(reads[r][-1]))
    fixed = [sorted(group, key=lambda r: _index(reads[r][0])) for group in fixed]
    carried = _groups(range(len(later)), lambda i: klass(later[i]))
    nodes_shown, ends = _shown(graph, chain)
    shown = _groups(nodes_shown, klass)

    def one_round(inner: Graph, vectors: list[Node]) -> list[Node]:
        made: dict[Node | _Read, Node] = {r: inner.copy(reads[r][0], []) for r in constants}
        old = [[earlier[i] for i in group] for group in carried]
        groups: list[Sequence[Node | _Read]] = [*fixed, *old, *varying]
        for vector, group in zip(vectors, groups, strict=True):
            made |= {what: inner.add(st.item, (vector,), {"index": i}) for i, what in enumerate(group)}
        for node in chain.body:
            made[node] = inner.add(node.op, [made[a] for a in arguments[node]], node.attrs)
        new = [[later[i] for i in group] for group in carried]
        return [inner.add(st.stack, [made[node] for node in group]) for group in (*new, *shown)]

    count = len(chain.rounds)
    starts = [graph.add(st.stack, [reads[r][0] for r in group]) for group in fixed]
    starts += [graph.add(st.stack, [chain.carried[0][i] for i in group]) for group in carried]
    slices = [graph.add(st.stack, [reads[r][t] for t in range(count) for r in group]) for group in varying]
    types = [x.type for x in starts] + [later[0].type.with_shape((len(group),)) for group in varying]
    xs = [st.reshape(x, shape=(count, len(group))) for x, group in zip(slices, varying, strict=True)]
    body = save_carries(Subgraph.of("round", types, one_round), len(fixed), len(carried))
    attrs = {"consts": len(fixed), "carries": len(carried), "length": count, "reverse": False}
    loop = graph.add(scan, [*starts, *xs], {"body": body, **attrs})
    for k, group in enumerate(shown, len(carried)):
        for t, i in product(range(count), range(len(group))):
            item = graph.add(st.item, (result(loop, index=k),), {"index": t * len(group) + i})
            graph.forward(chain.rounds[t][group[i]], item)
    for k, places in enumerate(carried):
        for i, place in enumerate(places):
            if later[place] in ends:
                item = graph.add(st.item, (result(loop, index=k),), {"index": i})
                graph.forward(chain.carried[-1][place], item)


def _arguments(chain: _Chain) -> dict[Node, list[Node | _Read]]:
    """Return what the nodes of the body read: nodes of the round, and what is outside; terms of a sum added up."""
    inside = {*chain.body, *chain.pattern[0]}
    arguments: dict[Node, list[Node | _Read]] = {}
    for node in chain.body:
        args = [a.find() for a in node.args]
        outside = tuple(a for a in args if a not in inside)
        if node.op in IDENTITIES and len(outside) > 1:
            arguments[node] = [*[a for a in args if a in inside], (node.op, outside)]
        else:
            arguments[node] = [a if a in inside else (None, (a,)) for a in args]
    return arguments


def _purposes(
    chain: _Chain, arguments: Mapping[Node, Sequence[Node | _Read]], klass: Callable[[Node], int]
) -> dict[Node | _Read, int]:
    """Number what nodes of the body read by the ops on its way, and by what these read besides: a number a gate."""
    numbers: dict[object, int] = {}
    ways: dict[Node | _Read, set[object]] = defaultdict(set)
    for value in chain.pattern[1]:
        ways[value].add(klass(value))
    purpose: dict[Node | _Read, int] = {}
    for node in reversed(chain.body):
        purpose[node] = numbers.setdefault(frozenset(ways[node]), len(numbers))
        nodes_read = [b for b in arguments[node] if isinstance(b, Node)]
        for a in arguments[node]:
            beside = frozenset(klass(b) for b in nodes_read if b is not a)
            ways[a].add((node.op.name, purpose[node], beside))
    return purpose | {a: numbers.setdefault(frozenset(ways[a]), len(numbers)) for a in ways if a not in purpose}


def _first_parameter(node: Node) -> int:
    """Return the place of the parameter that a value is nearest to; 0 where it has none."""
    level, seen = [node], {node}
    while level:
        places = [n.attrs["index"] for n in level if n.op is st.item and n.arg(0).attrs.get("parameter")]
        if places:
            return int(min(places))
        level = [a for n in level if _is_computed(n) for a in map(Node.find, n.args) if a not in seen]
        seen.update(level)
    return 0


def _values(graph: Graph, chain: _Chain, read: _Read) -> list[Node]:
    """Return what each round reads from outside."""
    op, terms = read
    rounds = [[found[term] for term in terms] for found in chain.rounds]
    return [graph.add(op, values) if op else values[0] for values in rounds]


def _shown(graph: Graph, chain: _Chain) -> tuple[list[Node], set[Node]]:
    """Return the nodes of the body that are read outside of the chain: in any round, and carried by the last alone."""
    readers = users(graph.nodes())
    roots = set(graph.roots())
    own = {found[node] for found in chain.rounds for node in chain.body}

    def is_read(node: Node) -> bool:
        return node in roots or any(reader not in own for reader in readers.get(node, ()))

    shown, ends = [], set()
    for node in chain.body:
        *before, last = [is_read(found[node]) for found in chain.rounds]
        if any(before) or (last and node not in chain.pattern[1]):
            shown.append(node)
        elif last:
            ends.add(node)
    return shown, ends


def _groups(items: Iterable[Item], klass: Callable[[Item], int]) -> list[list[Item]]:
    """Group what has one class, to lie in one vector."""
    groups: dict[int, list[Item]] = defaultdict(list)
    for item in items:
        groups[klass(item)].append(item)
    return list(groups.values())


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
