"""In a module with frozen weights, what depends on weights alone is computed at build. Reassociates.

    v2 = contract(x, w) : f32[b,8]                 v2 = contract(x, folded0) : f32[b,8]
    v3 = sub(v2, mean)                    =>       v3 = add(v2, folded1)
    v4 = mul(v3, scale)
    v5 = add(v4, bias)

A scale behind a product goes into its weights and shifts are gathered into one, so that a normalization with fixed
statistics costs nothing. A value takes the place of the weights it is made of only if it is no larger than they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from mlaot.errors import MlaotError
from mlaot.evaluate import evaluate
from mlaot.ir import Graph, Node, Type, users
from mlaot.ir.dims import product
from mlaot.ir.graph import topological
from mlaot.ir.module import Module
from mlaot.ir.types import BY_NUMPY, DType
from mlaot.ops import Op
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.base import Array, full_like
from mlaot.ops.kinds import base_of, is_view
from mlaot.passes.entries import copy_into
from mlaot.passes.rewrite import Rule, rewrite
from mlaot.passes.simplify import compute_before_broadcast
from mlaot.passes.widen import NARROW

IsFixed = Callable[[Node], bool]


def freeze(module: Module) -> None:
    """Fold what is fixed in every entry of a module with frozen weights."""
    if not module.is_frozen:
        return
    for graph in module.graphs.values():
        is_fixed = fixed_by(module)
        rewrite(graph, rules(is_fixed, users(graph.nodes())))
        _compute(module, graph, is_fixed)


def fixed_by(module: Module) -> IsFixed:
    """Whether a node depends on constants and weights alone."""
    written = {name for graph in module.graphs.values() for name in graph.writes}
    weights = set(module.slots) - written
    known: dict[Node, bool] = {}

    def is_fixed(node: Node) -> bool:
        node = node.find()
        if node not in known:
            if node.op is st.input_:
                known[node] = node.attrs["name"] in weights
            else:
                is_value = isinstance(node.type, Type) and bool(node.args)
                known[node] = node.op is st.const or (is_value and all(map(is_fixed, node.args)))
        return known[node]

    return is_fixed


def rules(is_fixed: IsFixed, used: Mapping[Node, Sequence[Node]]) -> dict[Op | None, tuple[Rule, ...]]:
    """The rules, for a module whose fixed nodes are known; a product that several nodes read is computed once."""

    def parts(node: Node) -> tuple[Node, Node] | None:
        """The argument that varies and the one that is fixed, where the first is made of a product with weights."""
        for x, y in ((node.arg(0), node.arg(1)), (node.arg(1), node.arg(0))):
            if is_fixed(y) and not is_fixed(x) and (node.op.commutative or x is node.arg(0)):
                return (x, y) if is_affine(x) else None
        return None

    def is_affine(node: Node) -> bool:
        if _readers(node, used) > 1:
            return False
        if node.op is red.contract:
            return is_fixed(node.arg(0)) != is_fixed(node.arg(1))
        if node.op in (ew.add, ew.sub, ew.mul) and len(node.args) == 2:
            return any(is_fixed(node.args[1 - i]) and is_affine(node.arg(i)) for i in (0, 1))
        return False

    def times_fixed(node: Node) -> Node | None:
        """contract(x, w) * s => contract(x, w * s), (x + b) * s => x * s + b * s"""
        found = parts(node) if len(node.args) == 2 else None
        if found is None:
            return None
        x, scale = found
        if x.op is red.contract:
            return _scaled(x, scale, is_fixed)
        inner = parts(x)
        if inner is None:
            return None
        varying, other = inner
        if x.op is ew.mul:
            return ew.mul(varying, ew.mul(other, scale))
        return x.op(ew.mul(varying, scale), ew.mul(other, scale))

    def minus_fixed(node: Node) -> Node | None:
        """x - b => x + -b"""
        found = parts(node)
        return ew.add(found[0], ew.neg(found[1])) if found else None

    def plus_fixed(node: Node) -> Node | None:
        """(x + b) + c => x + (b + c)"""
        found = parts(node) if len(node.args) == 2 else None
        if found is None or found[0].op is not ew.add or len(found[0].args) != 2:
            return None
        inner = parts(found[0])
        return ew.add(inner[0], ew.add(inner[1], found[1])) if inner else None

    def over_fixed(node: Node) -> Node | None:
        """x / s => x * (1 / s)"""
        found = parts(node)
        return ew.mul(found[0], ew.div(full_like(found[1], 1.0), found[1])) if found else None

    return {
        ew.mul: (times_fixed,),
        ew.add: (plus_fixed,),
        ew.sub: (minus_fixed,),
        ew.div: (over_fixed,),
        None: (compute_before_broadcast,),
    }


def _readers(node: Node, used: Mapping[Node, Sequence[Node]]) -> int:
    """How many nodes read a value, or what it has taken the place of."""
    if node in used:
        return len(used[node])
    return max((len(some) for old, some in used.items() if old.find() is node), default=0)


def _scaled(product_: Node, scale: Node, is_fixed: IsFixed) -> Node | None:
    """A contraction with its weights times ``scale``, if that varies along labels of the weights alone."""
    first, second, out = red.parse_spec(product_.attrs["spec"])
    i = 0 if is_fixed(product_.args[0]) else 1
    labels, weights = (first, second)[i], product_.arg(i)
    if scale.op is not st.broadcast:
        return None
    along = [out[a] for a in scale.attrs["axes"]]
    places = [labels.find(c) for c in along]
    if -1 in places or not isinstance(product(weights.type.shape), int):
        return None
    order = sorted(range(len(places)), key=places.__getitem__)
    spread = st.broadcast(st.in_order(scale.arg(0), order), shape=weights.type.shape, axes=tuple(sorted(places)))
    scaled = ew.mul(weights, spread)
    operands = [scaled if j == i else product_.arg(j) for j in (0, 1)]
    return red.contract(*operands, spec=product_.attrs["spec"])


def _compute(module: Module, graph: Graph, is_fixed: IsFixed) -> None:
    """Values of fixed nodes that others read, as weights of their own."""
    wanted: dict[Node, None] = {}
    for node in graph.nodes():
        if not is_fixed(node):
            bases = (base_of(a) for a in node.args)
            wanted |= dict.fromkeys(b for b in bases if is_fixed(b) and not is_view(b) and b.args and _is_worth(b))
    store(module, graph, wanted)


def store(module: Module, graph: Graph, nodes: Iterable[Node]) -> None:
    """Values of fixed nodes as weights of their own; as constants, if no weights are in them."""
    wanted = [node for node in dict.fromkeys(node.find() for node in nodes) if node.args]
    if not wanted:
        return
    for node, value in zip(wanted, fixed_values(module, graph, wanted), strict=True):
        if any(n.op is st.input_ for n in topological([node])):
            name = add_weight(module, value, node.type.dtype)
            graph.forward(node, graph.input(name, node.type, parameter=True))
        else:
            graph.forward(node, graph.constant(value, node.type.dtype))


def fixed_values(module: Module, graph: Graph, nodes: Sequence[Node]) -> list[Array]:
    """What fixed nodes are."""
    wanted = [node.find() for node in nodes]
    copy, copies = copy_into(graph, wanted, "fixed")
    copy.outputs = {str(i): copies[node] for i, node in enumerate(wanted)}
    values = evaluate(copy, {name: module.slots[name] for name in copy.inputs})
    return [values[str(i)] for i in range(len(wanted))]


def check_frozen(module: Module, key: str) -> None:
    """Refuse a setting that changes weights where they are not frozen."""
    value = getattr(module, key)
    if value and not module.is_frozen:
        raise MlaotError(
            f"{module.name}: {key} = {value!r} is for weights that are frozen, and this model"
            f" {'trains' if module.trains else 'has frozen = false'}; leave the key out"
        )


def _is_worth(node: Node) -> bool:
    """Whether the value is made of weights, and takes no more room than they do; ``fold`` sees to constants."""
    if not isinstance(product(node.type.shape), int):
        return False
    weights: dict[Node, int] = {}
    stack = [node]
    while stack:
        top = stack.pop()
        if top.op in (st.input_, st.const):
            weights[top] = _bytes(top)
        stack.extend(a.find() for a in top.args)
    return any(leaf.op is st.input_ for leaf in weights) and _bytes(node) <= sum(weights.values())


def _bytes(node: Node) -> int:
    """The room of a value; what is 16 bits wide and computed in 32 is stored in 16 again by the pass ``narrow``."""
    size = product(node.type.shape)
    assert isinstance(size, int), f"bug in mlaot: {node} is fixed, but its size is not"
    return size * (4 if node.type.dtype in NARROW else node.type.dtype.itemsize)


def add_weight(module: Module, value: Array, dtype: DType | None = None) -> str:
    """The name of a weight with this value: one for equal values.

    ``dtype`` is that of the graphs where NumPy has another: bfloat16 is float32 in NumPy.
    """
    dtype = dtype or BY_NUMPY[str(value.dtype)]
    for name, known in module.parameters.items():
        if known.dtype == value.dtype and known.shape == value.shape and known.tobytes() == value.tobytes():
            read = [graph.inputs[name] for graph in module.graphs.values() if name in graph.inputs]
            if all(node.type.dtype is dtype for node in read):
                return name
    name = next(n for i in range(len(module.slots) + 1) if (n := f"folded{i}") not in module.slots)
    module.parameters[name] = value
    return name
