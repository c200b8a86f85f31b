"""Chains of equal rounds in a graph of scalars: recurrent networks, filters, unrolled optimizers, tables.

    h1 = tanh(add(mul(w, h0), x0))
    h2 = tanh(add(mul(w, h1), x1))      =>    carried: [h0], [h1], [h2], ..
    ..

Nodes alone are seen. Each is numbered by what is up to some ops below it, which is the same in every round but the
first few (Weisfeiler and Leman, 1968, number the nodes of a graph so). Nodes of one number, one behind the other at
equal distances in height, have one role in the rounds; several at one height are told apart by their order, as are the
units of equal layers, or chains side by side. A cut between two rounds that the fewest values cross tells what is
carried. One round is the pattern, and the rounds before it belong to the chain as long as they are equal to it, each
node by each node.

In a table, whose cells depend on the cell above and on the one to the left, cells of one height lie on a diagonal. Its
rows are rounds, too, where only the step from a cell to the one below counts for the height.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import is_
from typing import Any

import numpy as np

from mlaot.ir import Graph, Node, TupleType, users
from mlaot.ops import structure as st
from mlaot.schedule.tuning import JOINED_NODES, ROLLED_NODES, ROLLED_ROUNDS

Hashes = np.ndarray[Any, np.dtype[np.uint64]]
Heights = np.ndarray[Any, np.dtype[np.int64]]
Roles = np.ndarray[Any, np.dtype[np.int64]]
DEPTHS = (3, 6, 12)  # residual connections make rounds short, recurrent cells long
ODD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Chain:
    """Rounds of equal structure. ``carried[t]`` are the values before round t, ``carried[-1]`` those after the last.

    ``body``: the nodes of the pattern that depend on what is carried, arguments first; ``rounds[t]``: what the nodes of
    the pattern and what they read are in round t.
    """

    carried: list[list[Node]]
    pattern: tuple[list[Node], list[Node]]
    body: list[Node]
    rounds: list[dict[Node, Node]]


def is_computed(node: Node) -> bool:
    """Tell whether a node is a scalar that an op makes of others."""
    return bool(node.args) and not isinstance(node.type, TupleType) and node.type.rank == 0 and node.op is not st.item


def find_chain(graph: Graph) -> Chain | None:
    """Return a chain that is worth a loop, a large one if there are several; None where there is none."""
    nodes = graph.nodes()
    number = {node: i for i, node in enumerate(nodes)}
    args = [[number[a.find()] for a in node.args] if is_computed(node) else [] for node in nodes]
    height = np.zeros(len(nodes), np.int64)
    for i, below in enumerate(args):
        if below:
            height[i] = 1 + max(int(height[a]) for a in below)
    if height.max(initial=0) < ROLLED_ROUNDS:
        return None
    for signatures in _signatures(nodes, args, height):
        for levels, is_table in (
            (levels, levels is not height) for levels in (*_rows(signatures, args, height), height)
        ):
            found = _roles(signatures, levels)
            for period, roles in sorted(found.items(), key=lambda pair: -sum(members.size for members in pair[1])):
                for family in [_columns(roles)] if is_table else _families(args, roles):
                    chain = _best(graph, nodes, _cuts(args, levels, period, family))
                    if chain is not None:
                        return _prolonged(graph, chain)
    return None


def _best(graph: Graph, nodes: Sequence[Node], cuts: Iterable[tuple[list[int], list[int]]]) -> Chain | None:
    """Return the chain that carries the fewest values, has the most rounds, and starts from what is not computed."""
    by_width: dict[int, list[tuple[list[Node], list[Node]]]] = defaultdict(list)
    for earlier, later in cuts:
        by_width[len(earlier)].append(([nodes[i] for i in earlier], [nodes[i] for i in later]))
    for width in sorted(by_width):
        chains = [chain for pair in by_width[width] if (chain := _chain(*pair)) is not None]
        if closed := [chain for chain in chains if _is_closed(graph, chain)]:
            return max(closed, key=lambda chain: (len(chain.rounds), -sum(map(is_computed, chain.carried[0]))))
    return None


def _signatures(nodes: Sequence[Node], args: Sequence[list[int]], height: Heights) -> Iterable[Hashes]:
    """Yield numbers of scalars by the ops below them: by fewer and fewer, with less and less exact leaves."""
    counts = np.array([len(below) for below in args])
    readers = np.flatnonzero(counts)
    flat = np.array([a for below in args for a in below], np.int64)
    starts = np.cumsum(counts[readers]) - counts[readers]
    places = [np.arange(counts[i], dtype=np.uint64) * (not nodes[i].op.commutative) for i in readers.tolist()]
    weights = (2 * np.concatenate(places) + np.uint64(1)) * ODD
    labels: dict[object, int] = {}
    exact, kind = (
        np.array([labels.setdefault(label, len(labels)) for label in of_all])
        for of_all in zip(*map(_labels, nodes), strict=True)
    )
    # Leaves that rounds have in common are read at as many heights.
    reads = np.unique(np.stack([exact[flat], np.repeat(height, counts)]), axis=1)[0]
    is_common = np.bincount(reads, minlength=len(labels))[exact] >= ROLLED_ROUNDS
    is_input = np.array([node.op is st.item and not node.arg(0).attrs.get("parameter") for node in nodes])
    for told in (is_common & ~is_input, is_common, np.zeros_like(is_common)):
        own = _mixed(np.where(told, exact, kind).astype(np.uint64) + np.uint64(1))
        signatures, of_depths = own.copy(), []
        for depth in range(1, max(DEPTHS) + 1):
            of_args = np.add.reduceat(_mixed(signatures[flat] * weights), starts)
            signatures[readers] = _mixed(own[readers] ^ of_args)
            if depth in DEPTHS:
                of_depths.append(signatures.copy())
        yield from reversed(of_depths)


def _labels(node: Node) -> tuple[object, object]:
    """Return what a scalar is, without what is below it, and of a leaf, of what kind it is."""
    if node.op is st.item:
        kind = "item", id(node.arg(0))
        return (*kind, node.attrs["index"]), kind
    label = node.op.name, tuple(map(str, node.attrs.items()))
    return label, ("const", str(node.type)) if node.op is st.const else label


def _mixed(x: Hashes) -> Hashes:
    """Spread bits (Steele et al., 2014, "Fast splittable pseudorandom number generators", figure 17)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _rows(signatures: Hashes, args: Sequence[list[int]], height: Heights) -> Iterable[Heights]:
    """Yield heights that count rows of a table: steps from the cells of one row to those of the next, and no others.

    Cells are found by how many there are of each height: on diagonals one more, or one less, or as many, up to a
    corner. Of each argument of a cell it is tried whether it leads to the row before.
    """
    order = np.lexsort((height, signatures))
    order = order[height[order] > 0]
    starts = np.flatnonzero(np.append(True, np.diff(signatures[order]) != 0))
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(order)], strict=True):
        cells = order[start:end].tolist()
        if len(cells) < ROLLED_ROUNDS**2 or len(args[cells[0]]) < 2 or not _is_grid(height[cells]):
            continue
        for place in range(min(len(args[i]) for i in cells)):
            yield _steps(args, set(cells), place)


def _is_grid(heights: Heights) -> bool:
    """Tell whether there are as many scalars of each height as a table has cells on each diagonal."""
    counts = np.unique(heights, return_counts=True)[1]
    steps = np.diff(counts)
    is_even = len(steps) >= 2 * ROLLED_ROUNDS - 2 and counts[0] == counts[-1] == np.abs(steps).max() == 1
    return bool(is_even) and bool((np.diff(steps) <= 0).all()) and int(counts.max()) >= ROLLED_ROUNDS


def _steps(args: Sequence[list[int]], cells: set[int], place: int) -> Heights:
    """Return heights by how often one goes to the argument at ``place`` of a cell on the way down."""
    height = np.zeros(len(args), np.int64)
    for i, below in enumerate(args):
        if below:
            own = [int(height[a]) for a in below]
            if i in cells:
                own[place] += 1
            height[i] = max(own)
    return height


def _roles(signatures: Hashes, height: Heights) -> dict[int, list[Roles]]:
    """Return by their distance in height the scalars that have one signature: a row for each round.

    A row has a column for each of the scalars of one height, in the order of the graph, which is the same in every
    round: the units of equal layers, or chains side by side.
    """
    order = np.lexsort((np.arange(len(height)), height, signatures))
    order = order[height[order] > 0]
    starts = np.flatnonzero(np.append(True, np.diff(signatures[order]) != 0))
    ends = np.append(starts[1:], len(order))
    found: dict[int, list[Roles]] = defaultdict(list)
    tall = (ends - starts >= ROLLED_ROUNDS) & (height[order[ends - 1]] > height[order[starts]])
    for start, end in zip(starts[tall].tolist(), ends[tall].tolist(), strict=True):
        heights, first, counts = np.unique(height[order[start:end]], return_index=True, return_counts=True)
        steps = np.diff(heights)
        breaks = np.flatnonzero((np.diff(steps, prepend=steps[0]) != 0) | (np.diff(counts) != 0))
        # The longest run of equal steps and counts; the last of several.
        bounds = [0, *(breaks + 1).tolist(), len(heights)]
        first_round, end_round = max(pairwise(bounds), key=lambda run: (run[1] - run[0], run[1]))
        rounds, width = end_round - first_round, int(counts[first_round])
        if rounds >= ROLLED_ROUNDS:
            members = order[start + first[first_round] :][: rounds * width].reshape(rounds, width)
            found[int(steps[end_round - 2])].append(members)
    return found


def _columns(found: Sequence[Roles]) -> list[list[int]]:
    """Return roles: of each what it is in all rounds."""
    return [column for members in found for column in members.T.tolist()]


def _families(args: Sequence[list[int]], found: Sequence[Roles]) -> Iterable[list[list[int]]]:
    """Yield the roles that depend on each other from round to round, the largest such families first.

    Families of the same signatures that do not depend on each other are chains side by side: together they come first.
    """
    roles = _columns(found)
    signature = [k for k, members in enumerate(found) for _ in range(members.shape[1])]
    role = {i: r for r, members in enumerate(roles) for i in members}
    below: dict[int, set[int]] = {r: set() for r in range(len(roles))}
    above: dict[int, set[int]] = {r: set() for r in range(len(roles))}
    for i, r in role.items():
        for a in args[i]:
            if a in role:
                below[r].add(role[a])
                above[role[a]].add(r)
    left = {r for r in below if below[r] and above[r]}
    kinds: dict[tuple[int, ...], list[set[int]]] = defaultdict(list)
    while left:
        start = next(iter(left))
        family = _reached(start, below, left) & _reached(start, above, left)
        left -= family
        if len(family) > 1 or start in below[start]:
            kinds[tuple(sorted(signature[r] for r in family))].append(family)
        else:
            left = {r for r in left if below[r] & left and above[r] & left}
    families = [family for alike in kinds.values() for family in alike]
    for alike in kinds.values():
        if len(alike) > 1 and not any(_reads(a, b, below) for a in alike for b in alike if a is not b):
            families.append(set().union(*alike))
    joined: set[int] = set().union(
        *(f for f in families if any(_reads(f, g, below) or _reads(g, f, below) for g in families if f is not g))
    )
    lengths = [len(roles[r]) for r in joined]
    if joined and len(joined) <= JOINED_NODES and max(lengths) - min(lengths) <= max(DEPTHS):
        families.append(joined)
    for family in sorted(families, key=len, reverse=True):
        yield [roles[r] for r in sorted(family)]


def _reads(family: set[int], other: set[int], below: Mapping[int, set[int]]) -> bool:
    """Tell whether roles of one family read those of another."""
    return any(below[r] & other for r in family)


def _reached(start: int, edges: Mapping[int, set[int]], among: set[int]) -> set[int]:
    found, stack = {start}, [start]
    while stack:
        fresh = edges[stack.pop()] & among - found
        found |= fresh
        stack += fresh
    return found


def _cuts(
    args: Sequence[list[int]], height: Heights, period: int, roles: Sequence[list[int]]
) -> Iterable[tuple[list[int], list[int]]]:
    """Yield what crosses a cut before and after the last round, for cuts at all heights.

    Cuts are made in the middle, where all is that rounds read of any before them, and moved up.
    """
    next_ = {i: after for members in roles for i, after in pairwise(members)}
    in_chain = {i for members in roles for i in members}
    top = max(int(height[members[-1]]) for members in roles)
    end = top - period * max(1, min(map(len, roles)) // 2)
    crossing: dict[int, dict[int, None]] = {cut: {} for cut in range(end - period, end)}
    for n in sorted(in_chain):
        for a in args[n]:
            if a in in_chain:
                for cut in range(max(int(height[a]), end - period), min(int(height[n]), end)):
                    crossing[cut][a] = None
    for values in crossing.values():
        needed = _needed(list(values), args)
        fewest = _fewest(needed, args)
        for start in filter(None, [needed] if fewest == needed else [needed, fewest]):
            rounds: list[list[int]] = [start]
            while next_.keys() >= set(rounds[-1]):
                rounds.append([next_[i] for i in rounds[-1]])
            if len(rounds) > 1:
                yield rounds[-2], rounds[-1]


def _needed(values: list[int], args: Sequence[list[int]]) -> list[int]:
    """Leave out what a round can compute of the other values, such as the negative of one."""
    kept = dict.fromkeys(values)
    for i in sorted(values, reverse=True):
        if any(a in kept for a in args[i]) and all(a in kept or not args[a] for a in args[i]):
            del kept[i]
    return list(kept)


def _fewest(values: list[int], args: Sequence[list[int]]) -> list[int]:
    """Return the values, or fewer below that they are computed of."""
    fewest, below = values, values
    for _ in range(max(DEPTHS)):
        below = list(dict.fromkeys(a for i in below for a in args[i] if args[a]))
        if not 0 < len(below) <= len(values):
            break
        if len(below) < len(fewest):
            fewest = below
    return fewest


def _chain(earlier: list[Node], later: list[Node]) -> Chain | None:
    """Return the chain whose last round makes ``later`` of ``earlier``, with all equal rounds before it."""
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
    """Return the nodes on the ways from ``earlier`` to ``later``, arguments first, without ``earlier``."""
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
    """Return what each node of the pattern is in the round that makes ``wanted``; None where that is no such round."""
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
    """Pair the arguments of two nodes, where their order is no matter those first that both read from outside."""
    first, second = [a.find() for a in node.args], [a.find() for a in other.args]
    both: list[Node] = []
    if node.op.commutative and not is_ordered:
        both = list((Counter(a for a in first if a not in inside) & Counter(second)).elements())
    for a in both:
        first.remove(a)
        second.remove(a)
    return [*zip(both, both, strict=True), *zip(first, second, strict=True)]


def _prolonged(graph: Graph, chain: Chain) -> Chain:
    """Add rounds at the end that lack what nobody reads, such as the spread after the last step of a filter."""
    readers = users(graph.nodes())
    while (found := _next_round(graph, chain, readers)) is not None:
        carried = [*chain.carried, [found[value] for value in chain.pattern[1]]]
        longer = replace(chain, carried=carried, rounds=[*chain.rounds, found])
        if not _is_closed(graph, longer):
            break
        chain = longer
    return chain


def _next_round(graph: Graph, chain: Chain, readers: Mapping[Node, Sequence[Node]]) -> dict[Node, Node] | None:
    """Return what each node of the pattern is in one round more; None where too little of that is there.

    What is not there is added to the graph, if all that it reads is known.
    """
    before, last = chain.rounds[-2:]
    found = dict(zip(chain.pattern[0], chain.carried[-1], strict=True))
    inside, is_there = {*chain.body, *found}, 0
    made = {round_[node] for round_ in chain.rounds for node in chain.body}
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
            found |= dict(zip([a for a in args if a not in found], others, strict=True))
        elif all(a in found for a in args):
            other = graph.add(node.op, [found[a] for a in args], node.attrs)
        else:
            return None
        found[node] = other
        made.add(other)
        is_there += unknown is not None
    return found if 2 * is_there >= len(chain.body) else None


def _unknown(node: Node, other: Node, known: Sequence[Node | None]) -> tuple[Node, list[Node]] | None:
    """Return a node and those of its arguments that are not ``known``; None if it does not do what ``node`` does."""
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
    """Tell whether no value that the loop starts from, or that rounds read from outside, depends on the chain."""
    inside = {*chain.body, *chain.pattern[0]}
    outside = {other for found in chain.rounds for node, other in found.items() if node not in inside}
    outside |= set(chain.carried[0])
    reached = {found[node] for found in chain.rounds for node in chain.body}
    for node in graph.nodes():
        if node not in reached and any(a.find() in reached for a in node.args):
            reached.add(node)
    return not outside & reached
