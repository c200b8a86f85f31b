"""Move loop-invariant work out of loops, to run once before or after them. Reassociates.

    v3 = scan(w, h, x, ..)                      v3 = contract(x, w, spec=ab,cb->ac)
      r0 = tanh(h + contract(x, w))     =>      v4 = scan(h, v3, ..)
                                                  r0 = tanh(h + a1)

Work moves before the loop if it depends only on constants of the loop, or on products of its inputs with constants,
which become one product over all rounds. Work moves after the loop if only results need it: products with constants,
and sums over the rounds of gradients of weights, which become one product that also sums over the rounds.

    v5 = scan(zeros, dy, x, ..)                 v5 = contract(dy, x, spec=ab,ac->bc)
      r0 = s + contract(dy, x, ..)      =>      v6 = add(zeros, v5)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from string import ascii_lowercase

from mlaot.ir import Dim, Graph, Node, Subgraph, Type, users
from mlaot.ir.dims import nominal, product
from mlaot.ir.subgraph import inline
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops.base import lift
from mlaot.ops.control import result, results, scan
from mlaot.ops.kinds import base_of, is_free, is_stored
from mlaot.passes.algebra.simplify import number
from mlaot.passes.base import pass_over
from mlaot.transforms.batch import Value, batch_into


@pass_over("graphs", after=("contract",))
def hoist_invariants(graph: Graph) -> None:
    """Move work out of every scan of ``graph``, users before what they use."""
    done: set[Node] = set()
    while (node := next((n for n in reversed(graph.nodes()) if n.op is scan and n not in done), None)) is not None:
        readers = [n for n in graph.nodes() if n.op is result and n.arg(0) is node]
        values = _hoist(node)
        done |= {node, *(value.arg(0) for value in values if value.op is result)}
        for reader in readers:
            graph.forward(reader, values[reader.attrs["index"]])


@dataclass
class _Loop:
    """The parts of a scan: a copy of its body in which nodes are forwarded, and an operand for each of its inputs.

    ``outer_results`` need no loop. ``emitted`` are values that every round outputs for results computed after the loop.
    """

    node: Node
    body: Graph
    consts: dict[Node, Node]
    carries: dict[Node, Node]
    xs: dict[Node, Node]
    outputs: list[Node]
    outer_results: dict[int, Node] = field(default_factory=dict)
    emitted: dict[Node, None] = field(default_factory=dict)

    @property
    def length(self) -> Dim:
        length: Dim = self.node.attrs["length"]
        return length

    def open_results(self) -> dict[int, Node]:
        """Return the results that the loop still computes."""
        return {i: node.find() for i, node in enumerate(self.outputs) if i not in self.outer_results}

    def nodes(self) -> list[Node]:
        self.body.outputs = {str(i): node for i, node in self.open_results().items()}
        return self.body.nodes()

    def available(self) -> set[Node]:
        """Return the values that are known outside of the loop for all rounds."""
        return {*self.consts, *self.xs, *self.emitted}

    def outside(self, nodes: Sequence[Node], emitted: Mapping[Node, Node] | None = None) -> list[Value]:
        """Compute values in the graph around the loop, for all rounds at once if they differ between rounds."""
        operands = {n: (a, False) for n, a in self.consts.items()}
        operands |= {n: (a, True) for n, a in (*self.xs.items(), *(emitted or {}).items())}
        part = Graph("outside")
        copies = {n: part.input(f"a{i}", n.type) for i, n in enumerate(operands)}
        for n in self.body.nodes():
            if n not in copies and all(a.find() in copies for a in n.args):
                copies[n] = part.copy(n, [copies[a.find()] for a in n.args])
        part.outputs = {str(i): copies[n.find()] for i, n in enumerate(nodes)}
        return batch_into(self.node.graph, part, list(operands.values()), self.length)

    def enter(self, nodes: Sequence[Node]) -> None:
        """Compute nodes of the body outside, and make them inputs of the body."""
        for node, (value, varies) in zip(nodes, self.outside(nodes), strict=True):
            new = self.body.input(f"h{len(self.body.inputs)}", node.type)
            self.body.forward(node, new)
            (self.xs if varies else self.consts)[new] = value


def _hoist(node: Node) -> list[Node]:
    """Compute the results of a scan with work moved before and after it."""
    body, consts, carries = (node.attrs[key] for key in ("body", "consts", "carries"))
    copy: Graph = body.copy()
    inputs, args = list(copy.inputs.values()), [a.find() for a in node.args]
    pairs = list(zip(inputs, args, strict=True))
    parts = (dict(pairs[:consts]), dict(pairs[consts : consts + carries]), dict(pairs[consts + carries :]))
    loop = _Loop(node, copy, *parts, [n.find() for n in copy.outputs.values()])
    _move_constant_carries(loop)
    _move_invariants(loop)
    _move_input_products(loop)
    _move_stored_results(loop)
    sums = _sums(loop)
    late = _late_results(loop, sums)
    return _rebuild(loop, sums, late)


def _move_constant_carries(loop: _Loop) -> None:
    """Convert each carry that no round changes to a constant."""
    for i, (carry, start) in enumerate(list(loop.carries.items())):
        if loop.outputs[i] is carry:
            loop.consts[carry] = loop.outer_results[i] = start


def _varying_carries(loop: _Loop) -> list[Node]:
    return [n for n in loop.carries if n not in loop.consts]


def _reachable(nodes: Iterable[Node], sources: Iterable[Node]) -> set[Node]:
    """Return the sources and all of ``nodes`` that depend on them."""
    reached = set(sources)
    for n in nodes:
        if any(a.find() in reached for a in n.args):
            reached.add(n)
    return reached


def _frontier(loop: _Loop, inside: set[Node]) -> list[Node]:
    """List the values of ``inside`` that other nodes, or results, read."""
    values: dict[Node, None] = {}
    nodes = loop.nodes()
    read = [a for n in nodes if n not in inside for a in n.args]
    for a in (*read, *loop.open_results().values()):
        base = base_of(a)
        if base in inside and isinstance(base.type, Type) and not (is_stored(base) or is_free(base)):
            values[base] = None
    return list(values)


def _move_invariants(loop: _Loop) -> None:
    """Move nodes that depend only on constants before the loop."""
    nodes = loop.nodes()
    varying = _reachable(nodes, (*_varying_carries(loop), *loop.xs))
    loop.enter(_frontier(loop, {n for n in nodes if n not in varying}))


def _move_input_products(loop: _Loop) -> None:
    """Move products of inputs with constants before the loop, and nodes that depend on these but on no carry."""
    nodes = loop.nodes()
    late = _reachable(nodes, (*_varying_carries(loop), *[n for n in nodes if n.op.draws]))
    varying = _reachable(nodes, (*_varying_carries(loop), *loop.xs))
    products = [n for n in nodes if n not in late and _is_product(n, varying)]
    loop.enter(_frontier(loop, _reachable(nodes, products) - late))


def _is_product(node: Node, varying: set[Node]) -> bool:
    """Tell whether a node is a product of something that varies with something that does not."""
    if node.op is not red.contract:
        return False
    first, second, out = red.parse_spec(node.attrs["spec"])
    return bool(set(first + second) - set(out)) and (node.arg(0) in varying) != (node.arg(1) in varying)


def _move_stored_results(loop: _Loop) -> None:
    """Compute results that are a constant or an input, or a view of one, outside of the loop."""
    outside = {*loop.consts, *loop.xs}
    sources = {i: n for i, n in loop.open_results().items() if i >= len(loop.carries) and base_of(n) in outside}
    for i, (value, varies) in zip(sources, loop.outside(list(sources.values())), strict=True):
        loop.outer_results[i] = value if varies else lift(value, loop.length)


def _sums(loop: _Loop) -> dict[int, Node]:
    """Find carries that are sums which can be computed after the loop; return the summand of each."""
    used = users(loop.nodes())
    outputs = list(loop.open_results().values())
    summands: dict[int, Node] = {}
    for i, carry in enumerate(loop.carries):
        total = loop.outputs[i].find()
        if i in loop.outer_results or total.op is not ew.add or total.type.dtype.kind != "f" or len(total.args) != 2:
            continue
        if len(used.get(carry, ())) != 1:
            continue
        if carry in outputs or outputs.count(total) > 1 or used[total] or carry not in (total.arg(0), total.arg(1)):
            continue
        summands[i] = total.arg(1) if total.arg(0) is carry else total.arg(0)
    outer = loop.available() | {n for i, n in loop.open_results().items() if i >= len(loop.carries)}
    while True:
        operands = {base_of(a) for part in summands.values() for p in _products(part) for a in p.args}
        available = outer | operands
        kept = {i: part for i, part in summands.items() if _is_addable(part, available) and _is_worth(part, outer)}
        if len(kept) == len(summands):
            break
        summands = kept
    read = {base_of(n) for part in summands.values() for n in _leaves(part)}
    loop.emitted |= dict.fromkeys(n for n in loop.nodes() if n in read and n not in loop.available())
    return summands


def _leaves(part: Node) -> list[Node]:
    """List the values from which the sum of ``part`` over all rounds is computed."""
    if part.op in (red.contract, red.sum_):
        return [a.find() for a in part.args]
    if part.op is ew.add or part.op.linear:
        return [leaf for a in part.args for leaf in _leaves(a.find())]
    return [part]


def _products(part: Node) -> list[Node]:
    """List the products that are terms of a sum."""
    if part.op is red.contract:
        return [part]
    if part.op is ew.add or part.op.linear:
        return [p for a in part.args for p in _products(a.find())]
    return []


def _is_addable(part: Node, available: set[Node]) -> bool:
    """Tell whether the sum of a value over all rounds can be computed from ``available`` values."""
    if part.op is red.contract or base_of(part) in available:
        return True
    if part.op is ew.add or part.op.linear:
        return all(_is_addable(a.find(), available) for a in part.args)
    return part.op is red.sum_ and base_of(part.arg(0)) in available


def _is_worth(part: Node, available: set[Node]) -> bool:
    """Tell whether the operands to store for each round need at most twice the memory of the summand."""
    operands = {base_of(a) for p in _products(part) for a in p.args} - available
    return sum(_size(n) for n in operands) <= 2 * _size(part)


def _size(node: Node) -> int:
    return nominal(product(node.type.shape))


def _late_results(loop: _Loop, sums: Mapping[int, Node]) -> dict[int, Node]:
    """Find products with constants that only results depend on, which can follow the loop."""
    nodes = loop.nodes()
    needed = set(loop.emitted)
    needed |= {n for i, n in loop.open_results().items() if i < len(loop.carries) and i not in sums}
    for n in reversed(nodes):
        if n in needed:
            needed |= {a.find() for a in n.args}
    varying = _reachable(nodes, (*_varying_carries(loop), *loop.xs))
    products = [n for n in nodes if n not in needed and _is_product(n, varying)]
    dependent = _reachable(nodes, products) - needed if products else set()
    late = {i: n for i, n in loop.open_results().items() if i >= len(loop.carries) and n in dependent}
    if any(n.op.draws for n in dependent):
        return {}
    read = {base_of(a) for n in dependent for a in n.args}
    fixed = {n for n in nodes if n not in varying}
    loop.emitted |= dict.fromkeys(n for n in nodes if n in read - dependent - fixed and n not in loop.available())
    return late


def _rebuild(loop: _Loop, sums: dict[int, Node], late: dict[int, Node]) -> list[Node]:
    """Build the smaller loop and the work that follows it; return all results in their order."""
    graph, later = loop.node.graph, {**sums, **late}
    kept = [i for i in loop.open_results() if i not in later]
    carried = [i for i in kept if i < len(loop.carries)]
    outputs = [loop.outputs[i].find() for i in kept]
    emitted = [n for n in loop.emitted if n not in outputs[len(carried) :]]
    starts = [(n, a) for i, (n, a) in enumerate(loop.carries.items()) if i in carried]
    inputs = [*((n, a) for n, a in loop.consts.items()), *starts, *loop.xs.items()]
    rounds = Graph(loop.body.name)
    rounds.inputs = {f"a{i}": n for i, (n, _) in enumerate(inputs)}
    rounds.outputs = {f"r{i}": n for i, n in enumerate((*outputs, *emitted))}
    by_index: dict[int, Node] = dict(loop.outer_results)
    stacks: dict[Node, Node] = {}
    if rounds.outputs:
        body = Subgraph.of(rounds.name, [n.type for n, _ in inputs], lambda to, args: inline(rounds, args, to))
        attrs = {"body": body, "consts": len(loop.consts), "carries": len(carried)}
        loop_results = results(graph.add(scan, [a for _, a in inputs], {**loop.node.attrs, **attrs}))
        by_index |= dict(zip(kept, loop_results, strict=False))
        stacked = zip((*outputs[len(carried) :], *emitted), loop_results[len(carried) :], strict=True)
        stacks = {n: value for n, value in stacked if n in loop.emitted}
    loop.body.outputs = {str(i): n for i, n in enumerate(loop.outputs)}
    for i, part in sums.items():
        start, total = list(loop.carries.values())[i], _sum_rounds(loop, part, stacks)
        by_index[i] = total if number(start) == 0 else ew.add(start, total)
    values = loop.outside(list(late.values()), stacks)
    by_index |= {i: value for i, (value, _) in zip(late, values, strict=True)}
    return [by_index[i] for i in range(len(loop.outputs))]


def _sum_rounds(loop: _Loop, part: Node, stacks: dict[Node, Node]) -> Node:
    """Compute the sum of a value over all rounds."""
    part = part.find()
    if part.op is ew.add or part.op.linear:
        return part.op(*[_sum_rounds(loop, a.find(), stacks) for a in part.args], **part.attrs)
    if part.op is not red.contract:
        axes = (0, *[a + 1 for a in part.attrs["axes"]]) if part.op is red.sum_ else (0,)
        ((value, varies),) = loop.outside([part.arg(0) if part.op is red.sum_ else part], stacks)
        return red.sum_(value if varies else lift(value, loop.length), axes=axes)
    first, second, out = red.parse_spec(part.attrs["spec"])
    (a, a_varies), (b, b_varies) = loop.outside([part.arg(0), part.arg(1)], stacks)
    if a_varies and b_varies:
        new = next(c for c in ascii_lowercase if c not in part.attrs["spec"])
        return red.contract(a, b, spec=f"{new}{first},{new}{second}->{out}")
    a = red.sum_(a, axes=(0,)) if a_varies else a
    b = red.sum_(b, axes=(0,)) if b_varies else b
    return red.contract(a, b, spec=part.attrs["spec"])
