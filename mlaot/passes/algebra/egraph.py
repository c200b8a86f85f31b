"""Keep every form of a node that rules produce, and extract the cheapest: an acyclic e-graph, optional.

    v1 = exp(v0)
    v2 = add(v1, 1.0)    =>    v2 = softplus(v0)
    v3 = log(v2)

The other passes with rules replace a node by the first better form that a rule produces. Here all forms are kept, as in
the e-graphs of Cranelift (Fallin, 2023), and the choice comes last. A class is the forms of one value. Rules are
applied when a node is added, after its arguments, once for each combination of the forms of its arguments. A form
refers only to forms of its arguments that are older, so that there are no cycles, and one walk in order of creation
finds the cheapest form of each class. The pass reassociates, as the rules that it applies do.

Two limits are known. Costs are those of a tree: a node that several nodes share is counted for each of them. So at the
end the pass compares whole graphs, with each node counted once, and keeps a graph that would not get cheaper. And if
two classes are found to be equal, older nodes refer to the forms known at their creation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, product
from math import inf
from typing import Any, NamedTuple

from mlaot.ir import Graph, Node, TupleType
from mlaot.ir.dims import nominal
from mlaot.ir.dims import product as dims_product
from mlaot.ir.graph import input_, topological
from mlaot.ir.module import Module
from mlaot.ir.subgraph import subgraphs
from mlaot.ops import Op
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.control import result
from mlaot.ops.kinds import is_view
from mlaot.passes.algebra import concat_products, fold_constants, simplify, softplus
from mlaot.passes.base import pass_over
from mlaot.passes.layout import sink_reshapes, split_batches
from mlaot.passes.raising import contract
from mlaot.passes.rewrite import Rule
from mlaot.passes.subgraphs import everywhere

FORMS = 8  # forms of a class that its users' rules see, and combinations of the arguments' forms
LEVELS = 3  # below a node at which rules see other forms
DEPTH = 8  # rules that fire on what other rules made
GROWTH, LEAST = 4, 1000  # forms that rules may make: so many for each node, and some
MOST = 1 << 256  # the largest cost, as the cost of a tree has no bound if its values are shared repeatedly
FUNCTION = 8  # operations of a function such as exp, or of a quotient
LOOP = 4  # operations for each label of a contraction: reshapes, which are views, save loops
SHOWN = 3  # ops of a printed form, one inside the other

TABLES = tuple(
    each.RULES for each in (simplify, fold_constants, softplus, contract, sink_reshapes, split_batches, concat_products)
)
RULES: dict[Op | None, tuple[Rule, ...]] = {
    op: tuple(dict.fromkeys(rule for table in TABLES for rule in table.get(op, ()))) for table in TABLES for op in table
}


class Step(NamedTuple):
    """``rule`` rewrote ``old`` to ``new``. Without a rule, both are one op of arguments that were equal at ``time``."""

    time: int
    rule: str
    old: Node
    new: Node

    def __str__(self) -> str:
        return f"{self.rule}: {form(self.old)} => {form(self.new)}"


class EGraph:
    """Classes of equal nodes of one graph, in which nothing is forwarded, and the steps by which they were joined."""

    def __init__(self, rules: Mapping[Op | None, Sequence[Rule]], most: int) -> None:
        self.anywhere = tuple(rules.get(None, ()))
        self.rules = {op: (*own, *self.anywhere) for op, own in rules.items()}
        self.order: list[Node] = []  # one node for each op on classes, in the order in which they were added
        self.left = most  # forms that rules may still make
        self._parent: dict[Node, Node] = {}
        self._forms: dict[Node, list[Node]] = {}  # by representative, the newest first
        self._table: dict[object, Node] = {}
        self._level: dict[Node, int] = {}  # how many levels below a node its arguments may be other forms
        self._steps: dict[Node, list[Step]] = {}
        self._time = 0

    def find(self, node: Node) -> Node:
        """Return the representative of a node's class."""
        while (parent := self._parent[node]) is not node:
            node = parent
        return node

    def add(self, root: Node, depth: int = 0) -> None:
        """Add a node and its arguments, and all forms that rules produce from these."""
        stack = [root]
        while stack:
            missing = [a for a in stack[-1].args if a not in self._parent]
            if missing:
                stack += missing
            elif (node := stack.pop()) not in self._parent:
                self._insert(node, depth)

    def _insert(self, node: Node, depth: int) -> None:
        key = (node.op, tuple(map(self.find, node.args)), tuple(node.attrs.items()))
        self._parent[node], self._forms[node] = node, [node]
        views = [node.args]
        if key in self._table:
            self.join(self._table[key], node)
        else:
            self._table[key] = node
            self.order.append(node)
            views = [*islice(product(*(self._forms[self.find(a)] for a in node.args)), FORMS)]
        for args in views if depth < DEPTH else ():
            view = node if args == node.args else node.graph.copy(node, args)
            if view not in self._parent:
                self._level[view] = 1 + max(self._level.get(a, 0) for a in args)
                self._parent[view], self._forms[view] = view, [view] if self._level[view] < LEVELS else []
                self.join(node, view)
            for rule in self.rules.get(view.op, self.anywhere):
                if self.left <= 0:
                    return
                view.graph.origin, view.graph.line = view.origin, view.line
                better = rule(view)
                view.graph.origin = view.graph.line = ""
                if better is not None and better is not view:
                    self.left -= better not in self._parent
                    self.add(better, depth + 1)
                    self.join(view, better, rule.__name__)

    def join(self, old: Node, new: Node, rule: str = "") -> None:
        """Merge two classes, and record why."""
        a, b = self.find(old), self.find(new)
        if a is b:
            return
        assert old.type == new.type, f"bug in mlaot: {rule} makes {new} of {old}"
        step = Step(self._time, rule, old, new)
        self._time += 1
        for node in (old, new):
            self._steps.setdefault(node, []).append(step)
        self._parent[b] = a
        self._forms[a] = [*self._forms.pop(b), *self._forms[a]][:FORMS]

    def extract(self, roots: Iterable[Node]) -> dict[Node, Node]:
        """Return the cheapest form of each root."""
        best: dict[Node, tuple[int, Node]] = {}
        chosen: dict[Node, list[Node]] = {}
        for node in self.order:
            args = [best[self.find(a)] for a in node.args]
            total = min(MOST, cost(node) + sum({a: price for price, a in args}.values()))
            chosen[node], kind = [a for _, a in args], self.find(node)
            if kind not in best or total < best[kind][0]:  # of equal ones the older: a change is to pay
                best[kind] = total, node
        built: dict[Node, Node] = {}
        results = {root: best[self.find(root)][1] for root in roots}
        stack = [*results.values()]
        while stack:
            node = stack[-1]
            missing = [a for a in chosen[node] if a not in built]
            if missing:
                stack += missing
                continue
            if node not in built:
                built[node] = node.graph.copy(node, [built[a] for a in chosen[node]])
                if built[node] not in self._parent:
                    self._parent[built[node]] = built[node]
                    self._forms[built[node]] = []
                self.join(node, built[node])
            stack.pop()
        return {root: built[node] for root, node in results.items()}

    def explain(self, old: Node, new: Node) -> list[Step]:
        """Return the rules that rewrite ``old`` to ``new``, in order and each once; some apply backwards."""
        steps: dict[Step, None] = {}
        seen: set[tuple[Node, Node]] = set()
        stack: list[Step | tuple[Node, Node, float]] = [(old, new, inf)]
        while stack:
            item = stack.pop()
            if isinstance(item, Step):
                steps[item] = None
            elif item[0] is not item[1] and item[:2] not in seen:
                seen.add(item[:2])
                for step in reversed(self._path(*item)):
                    if step.rule:
                        stack.append(step)
                    else:
                        stack += [(*pair, step.time) for pair in zip(step.old.args, step.new.args, strict=True)][::-1]
        return list(steps)

    def _path(self, old: Node, new: Node, time: float) -> list[Step]:
        """Return the steps from one form of a class to another.

        There is a single path, as each step merged two classes.
        """
        came: dict[Node, tuple[Node, Step] | None] = {old: None}
        queue = [old]
        for node in queue:
            for step in self._steps.get(node, ()):
                other = step.new if step.old is node else step.old
                if step.time < time and other not in came:
                    came[other] = node, step
                    queue.append(other)
        assert new in came, f"bug in mlaot: no proof that {form(old)} is {form(new)}"
        path: list[Step] = []
        while (last := came[new]) is not None:
            new, step = last
            path.append(step)
        return path[::-1]


def cost(node: Node) -> int:
    """Return the operations of a node, plus the bytes that it writes unless another node's kernel computes it.

    A function such as exp counts as ``FUNCTION`` operations, a view as one, and a scan as all of its rounds.
    """
    if node.op in (input_, st.const):
        return 0
    if bodies := subgraphs(node.attrs):
        rounds = nominal(node.attrs.get("length", 1))
        return 1 + rounds * sum(total_cost(body.graph.nodes()) for body in bodies.values())
    if isinstance(node.type, TupleType) or node.op is result or is_view(node):
        return 1
    size = _size(node.type)
    if node.op.elementwise:
        is_plain = node.op.cheap or node.op.exact or node.type.dtype.kind == "b"
        return 1 + size * (max(len(node.args) - 1, 1) if is_plain else FUNCTION)
    written = 1 + size * node.type.dtype.itemsize
    if node.op in (red.contract, red.contract_differences):
        first, second, _ = red.parse_spec(node.attrs["spec"])
        shapes = zip((first, second), (a.type.shape for a in node.args[:2]), strict=True)
        extents = {label: d for labels, shape in shapes for label, d in zip(labels, shape, strict=True)}
        return written + LOOP * len(extents) + 2 * nominal(dims_product(tuple(extents.values())))
    return written + max([size, *(_size(a.type) for a in node.args if not isinstance(a.type, TupleType))])


def _size(type_: Any) -> int:
    return nominal(dims_product(type_.shape))


def total_cost(nodes: Iterable[Node]) -> int:
    """Return the cost of nodes, each counted once."""
    return sum(map(cost, nodes))


def form(node: Node, depth: int = SHOWN) -> str:
    """Format a node as an expression of a few ops."""
    if node.op is input_:
        return str(node.attrs["name"])
    if node.op is st.const:
        value = node.attrs["value"].array
        return f"{value:g}" if value.ndim == 0 else f"const {node.type}"
    inside = [form(a, depth - 1) if depth > 1 else ".." for a in node.args[:4]] + [".."] * (len(node.args) > 4)
    return f"{node.op.name}({', '.join(inside)})"


def saturate(graph: Graph, rules: Mapping[Op | None, Sequence[Rule]] = RULES) -> tuple[EGraph, dict[Node, Node]]:
    """Return the e-graph of a copy of ``graph``, and the copy of each node."""
    nodes, copy = graph.nodes(), Graph(graph.name)
    classes, copies = EGraph(rules, GROWTH * len(nodes) + LEAST), dict[Node, Node]()
    for node in nodes:
        copies[node] = copy.copy(node, [copies[a.find()] for a in node.args])
        classes.add(copies[node])
    return classes, copies


def take_cheapest(graph: Graph, rules: Mapping[Op | None, Sequence[Rule]] = RULES) -> list[str]:
    """Replace the roots of a graph by their cheapest forms if that is cheaper.

    Return the proof, one rule on each line.
    """
    classes, copies = saturate(graph, rules)
    forms = classes.extract(copies[root] for root in graph.roots())
    better = topological(forms.values())
    before, after = total_cost(graph.nodes()), total_cost(better)
    if after >= before:
        return []
    back: dict[Node, Node] = {copies[node]: node for node in graph.inputs.values() if node in copies}
    for node in better:
        if node not in back:
            back[node] = graph.copy(node, [back[a] for a in node.args])
    for roots in (graph.outputs, graph.writes):
        roots.update({name: back[forms[copies[node.find()]]] for name, node in roots.items()})
    steps = list(dict.fromkeys(step for old, new in forms.items() for step in classes.explain(old, new)))
    used = ", ".join(f"{rule} {n}" for rule, n in Counter(step.rule for step in steps).most_common())
    return [f"{graph.name}: cost {before:,} => {after:,} by {used}", *map(str, steps)]


@pass_over("module", after=("raise_tensors",), when=lambda options: options.egraph)
def egraph(module: Module) -> None:
    """Take the cheapest form of every graph, and note the proofs."""
    for graph in module.graphs.values():
        everywhere(lambda each: module.proof.extend(take_cheapest(each)), graph)
