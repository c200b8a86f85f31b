"""Roll chains of equal rounds into a scan. Reassociates: terms that do not depend on the chain are added up before it.

    h1 = tanh(add(mul(w, h0), x0))
    h2 = tanh(add(mul(w, h1), x1))      =>    h = scan(stack(w), stack(h0), stack(x0, x1, ..))
    ..                                        h1 = item(h, 0), h2 = item(h, 1), ..

A value that a round reads from outside is a constant of the loop, or differs in each round. The round itself remains a
graph of scalars, which is raised like any other. Chains in it, as in the rows of a table, are rolled too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import product
from typing import TypeVar

from mlaot.ir import Graph, Node, Subgraph, users
from mlaot.ops import Op
from mlaot.ops import structure as st
from mlaot.ops.control import result, save_carries, scan
from mlaot.passes.base import pass_over
from mlaot.passes.raising.chains import Chain, find_chain
from mlaot.passes.raising.flatten_sums import IDENTITIES, Classes
from mlaot.passes.raising.roles import is_computed
from mlaot.passes.subgraphs import rewritten

_Read = tuple[Op | None, tuple[Node, ...]]  # a node that a round reads from outside, or an op of several
Item = TypeVar("Item")


@pass_over("scalars", after=("flatten_sums",))
def roll_chains(graph: Graph) -> None:
    """Roll every chain of ``graph``, the largest first."""
    while (chain := find_chain(graph)) is not None:
        _roll(graph, chain)


def _roll(graph: Graph, chain: Chain) -> None:
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
    kinds: dict[tuple[Node, int], Hashable] = {}

    def kind(node: Node) -> Hashable:
        return (node.type, _kind(node, kinds)) if is_computed(node) else klass(node)

    fixed = _groups(same, lambda r: kind(reads[r][-1]))
    varying = _groups(unlike, lambda r: kind(reads[r][-1]))
    fixed = [sorted(group, key=lambda r: _index(reads[r][0])) for group in fixed]
    carried = _groups(range(len(later)), lambda i: kind(later[i]))
    nodes_shown, ends = _shown(graph, chain)
    shown = _groups(nodes_shown, kind)

    def one_round(inner: Graph, vectors: list[Node]) -> list[Node]:
        made: dict[Node | _Read, Node] = {r: inner.copy(reads[r][0], []) for r in constants}
        old = [[earlier[i] for i in group] for group in carried]
        groups: list[Sequence[Node | _Read]] = [*fixed, *old, *varying]
        for vector, group in zip(vectors, groups, strict=True):
            made |= zip(group, _items(vector, len(group)), strict=True)
        for node in chain.body:
            made[node] = inner.add(node.op, [made[a] for a in arguments[node]], node.attrs)
        new = [[later[i] for i in group] for group in carried]
        return [_vector([made[node] for node in group]) for group in (*new, *shown)]

    count = len(chain.rounds)
    starts = [_vector([reads[r][0] for r in group]) for group in fixed]
    starts += [_vector([chain.carried[0][i] for i in group]) for group in carried]
    slices = [st.stack(*[reads[r][t] for t in range(count) for r in group]) for group in varying]
    shapes = [(len(group),) if len(group) > 1 else () for group in varying]
    types = [x.type for x in starts] + [x.type.with_shape(shape) for x, shape in zip(slices, shapes, strict=True)]
    xs = [st.reshape(x, shape=(count, *shape)) for x, shape in zip(slices, shapes, strict=True)]
    body = rewritten(roll_chains, Subgraph.of("round", types, one_round))
    body = save_carries(body, len(fixed), len(carried))
    attrs = {"consts": len(fixed), "carries": len(carried), "length": count, "reverse": False}
    loop = graph.add(scan, [*starts, *xs], {"body": body, **attrs})
    for k, group in enumerate(shown, len(carried)):
        for t, i in product(range(count), range(len(group))):
            item = graph.add(st.item, (result(loop, index=k),), {"index": t * len(group) + i})
            graph.forward(chain.rounds[t][group[i]], item)
    for k, places in enumerate(carried):
        for place, item in zip(places, _items(result(loop, index=k), len(places)), strict=True):
            if later[place] in ends:
                graph.forward(chain.carried[-1][place], item)


def _vector(values: Sequence[Node]) -> Node:
    """Return a vector of several values, or a single value itself."""
    return st.stack(*values) if len(values) > 1 else values[0]


def _items(vector: Node, count: int) -> list[Node]:
    """Return the ``count`` values that ``vector`` was made from."""
    return [st.item(vector, index=i) for i in range(count)] if count > 1 else [vector]


def _arguments(chain: Chain) -> dict[Node, list[Node | _Read]]:
    """Return the arguments of the body's nodes: nodes of the round, and values from outside, added up in sums."""
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
    chain: Chain, arguments: Mapping[Node, Sequence[Node | _Read]], klass: Callable[[Node], int]
) -> dict[Node | _Read, int]:
    """Number the arguments of the body's nodes by the ops on their paths and these ops' other arguments.

    So each gate has one number.
    """
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
    """Return the place of the parameter that is nearest to a value, or 0."""
    level, seen = [node], {node}
    while level:
        places = [n.attrs["index"] for n in level if n.op is st.item and n.arg(0).attrs.get("parameter")]
        if places:
            return int(min(places))
        level = [a for n in level if is_computed(n) for a in map(Node.find, n.args) if a not in seen]
        seen.update(level)
    return 0


def _values(graph: Graph, chain: Chain, read: _Read) -> list[Node]:
    """Return the values that each round reads from outside."""
    op, terms = read
    rounds = [[found[term] for term in terms] for found in chain.rounds]
    return [graph.add(op, values) if op else values[0] for values in rounds]


def _shown(graph: Graph, chain: Chain) -> tuple[list[Node], set[Node]]:
    """Return the nodes of the body that are read outside: those of any round, and those that only the last carries."""
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


def _kind(node: Node, known: dict[tuple[Node, int], Hashable], depth: int = 3) -> Hashable:
    """Return the ops at most ``depth`` below a node, which are equal for units of a layer, or for cells."""
    if (node, depth) not in known:
        below = frozenset(_kind(a.find(), known, depth - 1) for a in node.args) if depth else None
        known[node, depth] = node.op.name, below
    return known[node, depth]


def _groups(items: Iterable[Item], klass: Callable[[Item], Hashable]) -> list[list[Item]]:
    """Group values of one class, to put them into one vector."""
    groups: dict[Hashable, list[Item]] = defaultdict(list)
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
