"""Move work out of loops: once before or after them instead of in every round. Reassociates.

    v3 = scan(w, h, x, ..)                      v3 = contract(x, w, spec=ab,cb->ac)
      r0 = tanh(h + contract(x, w))     =>      v4 = scan(h, v3, ..)
                                                  r0 = tanh(h + a1)

Before the loop: what depends on its constants alone; products of its inputs with constants, as one product over all
rounds, and what follows from those. After it: products with constants that only results need, and the sums over the
rounds of gradients of weights, as one product whose summed label is the round.

    v5 = scan(zeros, dy, x, ..)                 v5 = contract(dy, x, spec=ab,ac->bc)
      r0 = s + contract(dy, x, ..)      =>      v6 = add(zeros, v5)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mlaot.ir import Dim, Graph, Node, Subgraph, Type, users
from mlaot.ir.dims import assumed, product
from mlaot.ir.subgraph import inline
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops.base import lift
from mlaot.ops.control import result, results, scan
from mlaot.ops.kinds import base_of, is_free, is_stored
from mlaot.passes.algebra.simplify import number
from mlaot.passes.base import pass_over
from mlaot.transforms.batch import Value, batch_into

LETTERS = "abcdefghijklmnopqrstuvwxyz"


@pass_over("graphs", after=("contract",))
def hoist_invariants(graph: Graph) -> None:
    """Move work out of every scan of ``graph``, users before what they use."""
    done: set[Node] = set()
    while (node := next((n for n in reversed(graph.nodes()) if n.op is scan and n not in done), None)) is not None:
        readers = [n for n in graph.nodes() if n.op is result and n.arg(0) is node]
        found = _hoisted(node)
        done |= {node, *(value.arg(0) for value in found if value.op is result)}
        for reader in readers:
            graph.forward(reader, found[reader.attrs["index"]])


@dataclass
class _Loop:
    """A scan taken apart: a copy of its body in which nodes are forwarded, and an operand for each of its inputs.

    ``known`` are results that need no loop; ``emitted`` what it gives in every round for those computed behind it.
    """

    node: Node
    body: Graph
    consts: dict[Node, Node]
    carries: dict[Node, Node]
    xs: dict[Node, Node]
    outputs: list[Node]
    known: dict[int, Node] = field(default_factory=dict)
    emitted: dict[Node, None] = field(default_factory=dict)

    @property
    def length(self) -> Dim:
        length: Dim = self.node.attrs["length"]
        return length

    def open_results(self) -> dict[int, Node]:
        """The results that are still computed by the loop."""
        return {i: node.find() for i, node in enumerate(self.outputs) if i not in self.known}

    def nodes(self) -> list[Node]:
        self.body.outputs = {str(i): node for i, node in self.open_results().items()}
        return self.body.nodes()

    def available(self) -> set[Node]:
        """What is known outside of the loop for all rounds."""
        return {*self.consts, *self.xs, *self.emitted}

    def outside(self, wanted: Sequence[Node], emitted: Mapping[Node, Node] | None = None) -> list[Value]:
        """Values in the graph around the loop, of all rounds where they differ; ``emitted`` is known of all rounds."""
        known = {n: (a, False) for n, a in self.consts.items()}
        known |= {n: (a, True) for n, a in (*self.xs.items(), *(emitted or {}).items())}
        part = Graph("outside")
        copies = {n: part.input(f"a{i}", n.type) for i, n in enumerate(known)}
        for n in self.body.nodes():
            if n not in copies and all(a.find() in copies for a in n.args):
                copies[n] = part.copy(n, [copies[a.find()] for a in n.args])
        part.outputs = {str(i): copies[n.find()] for i, n in enumerate(wanted)}
        return batch_into(self.node.graph, part, list(known.values()), self.length)

    def enter(self, nodes: Sequence[Node]) -> None:
        """Compute nodes of the body outside; they become inputs of it."""
        for node, (value, varies) in zip(nodes, self.outside(nodes), strict=True):
            new = self.body.input(f"h{len(self.body.inputs)}", node.type)
            self.body.forward(node, new)
            (self.xs if varies else self.consts)[new] = value


def _hoisted(node: Node) -> list[Node]:
    """The results of a scan, computed better."""
    body, consts, carries = (node.attrs[key] for key in ("body", "consts", "carries"))
    copy = Subgraph.of(body.graph.name, body.inputs, body.inline).graph
    inputs, args = list(copy.inputs.values()), [a.find() for a in node.args]
    pairs = list(zip(inputs, args, strict=True))
    parts = (dict(pairs[:consts]), dict(pairs[consts : consts + carries]), dict(pairs[consts + carries :]))
    loop = _Loop(node, copy, *parts, [n.find() for n in copy.outputs.values()])
    _constant_carries(loop)
    _invariants(loop)
    _products_of_inputs(loop)
    _known_results(loop)
    sums = _sums(loop)
    late = _late_results(loop, sums)
    return _rebuilt(loop, sums, late)


def _constant_carries(loop: _Loop) -> None:
    """A carry that stays as it is, is a constant."""
    for i, (given, start) in enumerate(list(loop.carries.items())):
        if loop.outputs[i] is given:
            loop.consts[given] = loop.known[i] = start


def _carried(loop: _Loop) -> list[Node]:
    return [n for n in loop.carries if n not in loop.consts]


def _reachable(nodes: Iterable[Node], sources: Iterable[Node]) -> set[Node]:
    """The sources and what depends on them, of ``nodes`` in their order."""
    found = set(sources)
    for n in nodes:
        if any(a.find() in found for a in n.args):
            found.add(n)
    return found


def _frontier(loop: _Loop, inside: set[Node]) -> list[Node]:
    """The values of ``inside`` that other nodes, or results, read."""
    found: dict[Node, None] = {}
    nodes = loop.nodes()
    read = [a for n in nodes if n not in inside for a in n.args]
    for a in (*read, *loop.open_results().values()):
        base = base_of(a)
        if base in inside and isinstance(base.type, Type) and not (is_stored(base) or is_free(base)):
            found[base] = None
    return list(found)


def _invariants(loop: _Loop) -> None:
    """What depends on constants alone."""
    nodes = loop.nodes()
    varying = _reachable(nodes, (*_carried(loop), *loop.xs))
    loop.enter(_frontier(loop, {n for n in nodes if n not in varying}))


def _products_of_inputs(loop: _Loop) -> None:
    """Products of inputs with constants, and what follows from those and depends on no carry."""
    nodes = loop.nodes()
    late = _reachable(nodes, (*_carried(loop), *[n for n in nodes if n.op.draws]))
    varying = _reachable(nodes, (*_carried(loop), *loop.xs))
    products = [n for n in nodes if n not in late and _is_product(n, varying)]
    loop.enter(_frontier(loop, _reachable(nodes, products) - late))


def _is_product(node: Node, varying: set[Node]) -> bool:
    """Whether a node is a product of something that varies with something that does not."""
    if node.op is not red.contract:
        return False
    first, second, out = red.parse_spec(node.attrs["spec"])
    return bool(set(first + second) - set(out)) and (node.arg(0) in varying) != (node.arg(1) in varying)


def _known_results(loop: _Loop) -> None:
    """Results that are a constant, or an input, as they are or as a view."""
    outside = {*loop.consts, *loop.xs}
    found = {i: n for i, n in loop.open_results().items() if i >= len(loop.carries) and base_of(n) in outside}
    for i, (value, varies) in zip(found, loop.outside(list(found.values())), strict=True):
        loop.known[i] = value if varies else lift(value, loop.length)


def _sums(loop: _Loop) -> dict[int, Node]:
    """Carries that only add up what can be added up after the loop; what each of them adds in a round."""
    used = users(loop.nodes())
    outputs = list(loop.open_results().values())
    found: dict[int, Node] = {}
    for i, given in enumerate(loop.carries):
        total = loop.outputs[i].find()
        if i in loop.known or total.op is not ew.add or total.type.dtype.kind != "f" or len(total.args) != 2:
            continue
        if len(used[given]) != 1:
            continue
        if given in outputs or outputs.count(total) > 1 or used[total] or given not in (total.arg(0), total.arg(1)):
            continue
        found[i] = total.arg(1) if total.arg(0) is given else total.arg(0)
    given_out = loop.available() | {n for i, n in loop.open_results().items() if i >= len(loop.carries)}
    while True:
        operands = {base_of(a) for part in found.values() for p in _products(part) for a in p.args}
        known = given_out | operands
        kept = {i: part for i, part in found.items() if _is_addable(part, known) and _is_worth(part, given_out)}
        if len(kept) == len(found):
            break
        found = kept
    read = {base_of(n) for part in found.values() for n in _leaves(part)}
    loop.emitted |= dict.fromkeys(n for n in loop.nodes() if n in read and n not in loop.available())
    return found


def _leaves(part: Node) -> list[Node]:
    """What the sum of a value over all rounds is computed from."""
    if part.op in (red.contract, red.sum_):
        return [a.find() for a in part.args]
    if part.op is ew.add or part.op.linear:
        return [leaf for a in part.args for leaf in _leaves(a.find())]
    return [part]


def _products(part: Node) -> list[Node]:
    """The products that a sum consists of."""
    if part.op is red.contract:
        return [part]
    if part.op is ew.add or part.op.linear:
        return [p for a in part.args for p in _products(a.find())]
    return []


def _is_addable(part: Node, known: set[Node]) -> bool:
    """Whether the sum of a value over all rounds can be computed from ``known``."""
    if part.op is red.contract or base_of(part) in known:
        return True
    if part.op is ew.add or part.op.linear:
        return all(_is_addable(a.find(), known) for a in part.args)
    return part.op is red.sum_ and base_of(part.arg(0)) in known


def _is_worth(part: Node, known: set[Node]) -> bool:
    """Whether the operands to be kept of each round are no more than what would be added in it."""
    operands = {base_of(a) for p in _products(part) for a in p.args} - known
    return sum(_size(n) for n in operands) <= 2 * _size(part)


def _size(node: Node) -> int:
    return assumed(product(node.type.shape))


def _late_results(loop: _Loop, sums: Mapping[int, Node]) -> dict[int, Node]:
    """Results that need products with constants for nothing but themselves."""
    nodes = loop.nodes()
    needed = set(loop.emitted)
    needed |= {n for i, n in loop.open_results().items() if i < len(loop.carries) and i not in sums}
    for n in reversed(nodes):
        if n in needed:
            needed |= {a.find() for a in n.args}
    varying = _reachable(nodes, (*_carried(loop), *loop.xs))
    products = [n for n in nodes if n not in needed and _is_product(n, varying)]
    behind = _reachable(nodes, products) - needed if products else set()
    late = {i: n for i, n in loop.open_results().items() if i >= len(loop.carries) and n in behind}
    if any(n.op.draws for n in behind):
        return {}
    read = {base_of(a) for n in behind for a in n.args}
    fixed = {n for n in nodes if n not in varying}
    loop.emitted |= dict.fromkeys(n for n in nodes if n in read - behind - fixed and n not in loop.available())
    return late


def _rebuilt(loop: _Loop, sums: dict[int, Node], late: dict[int, Node]) -> list[Node]:
    """The loop without what was moved, what comes behind it, and all results in their order."""
    graph, later = loop.node.graph, {**sums, **late}
    kept = [i for i in loop.open_results() if i not in later]
    carried = [i for i in kept if i < len(loop.carries)]
    outputs = [loop.outputs[i].find() for i in kept]
    behind = [n for n in loop.emitted if n not in outputs[len(carried) :]]
    starts = [(n, a) for i, (n, a) in enumerate(loop.carries.items()) if i in carried]
    inputs = [*((n, a) for n, a in loop.consts.items()), *starts, *loop.xs.items()]
    rounds = Graph(loop.body.name)
    rounds.inputs = {f"a{i}": n for i, (n, _) in enumerate(inputs)}
    rounds.outputs = {f"r{i}": n for i, n in enumerate((*outputs, *behind))}
    found: dict[int, Node] = dict(loop.known)
    given: dict[Node, Node] = {}
    if rounds.outputs:
        body = Subgraph.of(rounds.name, [n.type for n, _ in inputs], lambda to, args: inline(rounds, args, to))
        attrs = {"body": body, "consts": len(loop.consts), "carries": len(carried)}
        made = results(graph.add(scan, [a for _, a in inputs], {**loop.node.attrs, **attrs}))
        found |= dict(zip(kept, made, strict=False))
        stacked = zip((*outputs[len(carried) :], *behind), made[len(carried) :], strict=True)
        given = {n: value for n, value in stacked if n in loop.emitted}
    loop.body.outputs = {str(i): n for i, n in enumerate(loop.outputs)}
    for i, part in sums.items():
        start, total = list(loop.carries.values())[i], _summed(loop, part, given)
        found[i] = total if number(start) == 0 else ew.add(start, total)
    values = loop.outside(list(late.values()), given)
    found |= {i: value for i, (value, _) in zip(late, values, strict=True)}
    return [found[i] for i in range(len(loop.outputs))]


def _summed(loop: _Loop, part: Node, given: dict[Node, Node]) -> Node:
    """The sum of a value over all rounds."""
    part = part.find()
    if part.op is ew.add or part.op.linear:
        return part.op(*[_summed(loop, a.find(), given) for a in part.args], **part.attrs)
    if part.op is not red.contract:
        axes = (0, *[a + 1 for a in part.attrs["axes"]]) if part.op is red.sum_ else (0,)
        ((value, varies),) = loop.outside([part.arg(0) if part.op is red.sum_ else part], given)
        return red.sum_(value if varies else lift(value, loop.length), axes=axes)
    first, second, out = red.parse_spec(part.attrs["spec"])
    (a, a_varies), (b, b_varies) = loop.outside([part.arg(0), part.arg(1)], given)
    if a_varies and b_varies:
        new = next(c for c in LETTERS if c not in part.attrs["spec"])
        return red.contract(a, b, spec=f"{new}{first},{new}{second}->{out}")
    a = red.sum_(a, axes=(0,)) if a_varies else a
    b = red.sum_(b, axes=(0,)) if b_varies else b
    return red.contract(a, b, spec=part.attrs["spec"])
