"""In a module with frozen weights, compute at build time values that depend only on weights. Reassociates.

    v2 = contract(x, w) : f32[b,8]                 v2 = contract(x, folded0) : f32[b,8]
    v3 = sub(v2, mean)                    =>       v3 = add(v2, folded1)
    v4 = mul(v3, scale)
    v5 = add(v4, bias)

A scale after a product is folded into its weights and shifts are added up, so that a normalization with fixed
statistics costs nothing. A value replaces the weights that it is computed from only if it is no larger than they are;
float64 counts as float32, so that no call converts weights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence

import numpy as np

from mlaot.errors import MlaotError
from mlaot.evaluate import evaluate
from mlaot.ir import Graph, Node, Type, users
from mlaot.ir.dims import product
from mlaot.ir.graph import topological
from mlaot.ir.module import Module
from mlaot.ir.types import BY_NUMPY, DType, f64
from mlaot.ops import Op
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.base import Array
from mlaot.ops.control import uses
from mlaot.ops.kinds import PRODUCTS, base_of, is_stored, is_view
from mlaot.passes.algebra.simplify import compute_before_broadcast
from mlaot.passes.algebra.upcast import NARROW
from mlaot.passes.base import pass_over
from mlaot.passes.rewrite import Rule, rewrite
from mlaot.passes.training.entries import copy_into
from mlaot.schedule.tuning import CONSTANTS_GROWTH

IsFixed = Callable[[Node], bool]
Magnitude = Callable[[Node], tuple[float, float]]
AFFINE = (ew.add, ew.sub, ew.mul)


@pass_over("module", after=("entries", "keep_declared", "upcast"))
def freeze(module: Module) -> None:
    """Fold fixed values in every entry of a module with frozen weights."""
    if not module.is_frozen:
        return
    for graph in module.graphs.values():
        is_fixed = fixed_by(module)
        readers = Counter({node: len(nodes) for node, nodes in users(graph.nodes()).items()})

        def move_readers(old: Node, new: Node, readers: Counter[Node] = readers) -> None:
            readers[new] += readers[old]

        rewrite(graph, rules(is_fixed, readers, magnitudes(module, graph)), move_readers)
        _compute(module, graph, is_fixed)
        _own_operands(module, graph)


def fixed_by(module: Module) -> IsFixed:
    """Return a predicate that tells whether a node depends only on constants and weights."""
    written = {name for graph in module.graphs.values() for name in graph.writes}
    return fixed_from(set(module.slots) - written)


def fixed_from(weights: Container[str]) -> IsFixed:
    """Return a predicate that tells whether a node depends only on constants and inputs of these names."""
    memo: dict[Node, bool] = {}

    def is_leaf_fixed(node: Node) -> bool:
        return node.op is st.const or (node.op is st.input_ and node.attrs["name"] in weights)

    def is_fixed(node: Node) -> bool:
        stack = [node.find()]
        while stack:
            top = stack[-1]
            args = [a.find() for a in top.args]
            if top in memo or not args or not isinstance(top.type, Type):
                memo.setdefault(top, is_leaf_fixed(top))
            elif any(memo.get(a) is False for a in args):
                memo[top] = False
            elif unknown := [a for a in args if a not in memo]:
                stack += unknown
                continue
            else:
                memo[top] = True
            stack.pop()
        return memo[node.find()]

    return is_fixed


def magnitudes(module: Module, graph: Graph) -> Magnitude:
    """Return a function that bounds a fixed node: its least absolute value that is not 0, and its largest.

    Numbers that are not finite, and divisions by 0, count as infinite.
    """
    memo: dict[Node, tuple[float, float]] = {}
    zeros: dict[Node, bool] = {}

    def magnitude(node: Node) -> tuple[float, float]:
        node = source_of(node)
        if node not in memo:
            args = [source_of(a) for a in node.args]
            if node.op in (ew.mul, ew.div) and all(a in memo for a in args):
                (low, high), (least, most) = (memo[a] for a in args)
                memo[node] = (low * least, high * most) if node.op is ew.mul else (low / most, high / least)
                if node.op is ew.div and zeros[args[1]]:
                    memo[node] = (low / most, np.inf)
                zeros[node] = any(zeros[a] for a in args)
            else:
                size = np.abs(fixed_values(module.slots, graph, [node])[0].astype(np.float64))
                zeros[node] = bool((size == 0).any())
                size = np.where(np.isnan(size), np.inf, size)[size != 0]
                memo[node] = (float(size.min()), float(size.max())) if size.size else (1.0, 1.0)
        return memo[node]

    return magnitude


def source_of(node: Node) -> Node:
    """Return the value whose elements a node moves, repeats or negates."""
    node = node.find()
    while node.op in (st.broadcast, st.transpose, st.reshape, ew.neg):
        node = node.arg(0)
    return node


def rules(is_fixed: IsFixed, readers: Mapping[Node, int], magnitude: Magnitude) -> dict[Op | None, tuple[Rule, ...]]:
    """Return the rules for known fixed nodes. A product that several nodes read is computed once."""
    affine: dict[Node, bool] = {}

    def parts(node: Node) -> tuple[Node, Node] | None:
        """Return the varying argument, if it is a scaled product with weights, and the fixed argument."""
        for x, y in ((node.arg(0), node.arg(1)), (node.arg(1), node.arg(0))):
            if is_fixed(y) and not is_fixed(x) and (node.op.commutative or x is node.arg(0)):
                return (x, y) if is_affine(x) else None
        return None

    def is_affine(node: Node) -> bool:
        """Tell whether a node is a product with weights, followed by sums and products with fixed values."""
        chain = []
        while node not in affine:
            is_step = node.op is red.contract or (node.op in AFFINE and len(node.args) == 2)
            if readers[node] > 1 or not is_step or is_fixed(node.arg(0)) == is_fixed(node.arg(1)):
                affine[node] = False
            elif node.op is red.contract:
                affine[node] = True
            else:
                chain.append(node)
                node = node.arg(int(is_fixed(node.arg(0))))
        affine.update(dict.fromkeys(chain, affine[node]))
        return affine[node]

    def scale_weights(weights: Node, scale: Node, op: Op) -> Node | None:
        """Scale weights, or return None if an element would become infinite or subnormal, or its size is unknown."""
        result = op(weights, scale)
        result = compute_before_broadcast(result) or result
        if not isinstance(product(source_of(result).type.shape), int):
            return None
        limits = np.finfo(result.type.dtype.numpy)
        low, high = magnitude(result)
        return result if float(limits.tiny) <= low and high <= float(limits.max) else None

    def times_fixed(node: Node) -> Node | None:
        """contract(x, w) * s => contract(x, w * s), (x + b) * s => x * s + b * s; the same for quotients"""
        operands = parts(node) if len(node.args) == 2 else None
        if operands is None:
            return None
        x, scale = operands
        if x.op is red.contract:
            return _scale_product(x, scale, is_fixed, lambda weights, spread: scale_weights(weights, spread, node.op))
        inner = parts(x)
        if inner is None:
            return None
        varying, other = inner
        fixed = scale_weights(other, scale, node.op)
        if fixed is None:
            return None
        return ew.mul(varying, fixed) if x.op is ew.mul else x.op(node.op(varying, scale), fixed)

    def minus_fixed(node: Node) -> Node | None:
        """x - b => x + -b"""
        operands = parts(node)
        return ew.add(operands[0], ew.neg(operands[1])) if operands else None

    def plus_fixed(node: Node) -> Node | None:
        """(x + b) + c => x + (b + c)"""
        operands = parts(node) if len(node.args) == 2 else None
        if operands is None or operands[0].op is not ew.add or len(operands[0].args) != 2:
            return None
        inner = parts(operands[0])
        return ew.add(inner[0], ew.add(inner[1], operands[1])) if inner else None

    return {
        ew.mul: (times_fixed,),
        ew.add: (plus_fixed,),
        ew.sub: (minus_fixed,),
        ew.div: (times_fixed,),
        None: (compute_before_broadcast,),
    }


def split_product(node: Node, is_fixed: IsFixed) -> tuple[Node, Node, str, str, str] | None:
    """Return the varying and the fixed operand of a contraction, their labels and those of the result."""
    first, second, out = red.parse_spec(node.attrs["spec"])
    match [is_fixed(a) for a in node.args]:
        case [False, True]:
            return node.arg(0), node.arg(1), first, second, out
        case [True, False]:
            return node.arg(1), node.arg(0), second, first, out
    return None


def _scale_product(
    product_: Node, scale: Node, is_fixed: IsFixed, scale_weights: Callable[[Node, Node], Node | None]
) -> Node | None:
    """Scale the weights of a contraction, if ``scale`` varies along labels of the weights alone."""
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
    scaled_weights = scale_weights(weights, spread)
    if scaled_weights is None:
        return None
    return red.contract(*[scaled_weights if j == i else product_.arg(j) for j in (0, 1)], spec=product_.attrs["spec"])


def _compute(module: Module, graph: Graph, is_fixed: IsFixed) -> None:
    """Store as weights the fixed values that other nodes read."""
    wanted: dict[Node, None] = {}
    for node in graph.nodes():
        if not is_fixed(node):
            bases = (base_of(a) for a in node.args)
            wanted |= dict.fromkeys(b for b in bases if is_fixed(b) and not is_view(b) and b.args and _is_worth(b))
    store(module, graph, wanted)


def _own_operands(module: Module, graph: Graph) -> None:
    """Store as weights the views of weights that products read, and the constants that products read.

    Only weights can be stored in the layout that is best for the product's kernel. The size of the constants grows
    little.
    """
    is_fixed = fixed_by(module)
    reads: dict[Node, dict[Node, list[Node]]] = {}  # by stored value: views of it and their readers
    for node in graph.nodes():
        for a in dict.fromkeys(a.find() for a in node.args):
            if not is_view(node) and is_stored(base_of(a)) and is_fixed(a):
                reads.setdefault(base_of(a), {}).setdefault(a, []).append(node)
    for base, read in reads.items():
        operands = [a for a in read if _is_operand(graph, a) and _bytes(a) <= _bytes(base)]
        kept = 0 if len(operands) == len(read) else _bytes(base)
        if kept + sum(map(_bytes, operands)) <= CONSTANTS_GROWTH * _bytes(base):
            _replace(module, graph, {a: read[a] for a in operands if a is not base or base.op is st.const})


def _is_operand(graph: Graph, value: Node) -> bool:
    """Tell whether only products read a value, and its size is known."""
    is_sized = isinstance(value.type, Type) and isinstance(product(value.type.shape), int)
    return is_sized and all(i >= 0 and node.op in PRODUCTS for node, i in uses(graph, value))


def _replace(module: Module, graph: Graph, reads: Mapping[Node, Iterable[Node]]) -> None:
    """Store values as weights, and make their readers read these."""
    for value, number in zip(reads, fixed_values(module.slots, graph, list(reads)), strict=True):
        weight = graph.input(add_weight(module, number, value.type.dtype), value.type, parameter=True)
        for node in reads[value]:
            node = node.find()
            args = [weight if a.find() is value else a for a in node.args]
            graph.forward(node, graph.add(node.op, args, node.attrs))


def store(module: Module, graph: Graph, nodes: Iterable[Node]) -> None:
    """Store the values of fixed nodes: as weights, or as constants if no weights are in them."""
    wanted = [node for node in dict.fromkeys(node.find() for node in nodes) if node.args]
    if not wanted:
        return
    for node, value in zip(wanted, fixed_values(module.slots, graph, wanted), strict=True):
        if any(n.op is st.input_ for n in topological([node])):
            name = add_weight(module, value, node.type.dtype)
            graph.forward(node, graph.input(name, node.type, parameter=True))
        else:
            graph.forward(node, graph.constant(value, node.type.dtype))


def fixed_values(slots: Mapping[str, Array], graph: Graph, nodes: Sequence[Node]) -> list[Array]:
    """Evaluate nodes of a graph that are fixed by ``slots``, the values of inputs by name."""
    wanted = [node.find() for node in nodes]
    copy, copies = copy_into(graph, wanted, "fixed")
    copy.outputs = {str(i): copies[node] for i, node in enumerate(wanted)}
    values = evaluate(copy, {name: slots[name] for name in copy.inputs})
    return [values[str(i)] for i in range(len(wanted))]


def check_frozen(module: Module, key: str) -> None:
    """Raise ``MlaotError`` for a setting that changes weights in a module whose weights are not frozen."""
    value = getattr(module.options, key)
    if value and key == "quantize" and module.adapters:
        raise MlaotError(
            f"{module.name}: quantize = {value!r} is not for a model that trains adapters, whose gradients need finer"
            " numbers than bytes; use weights_dtype = 'int8'"
        )
    if value and not module.is_frozen:
        raise MlaotError(
            f"{module.name}: {key} = {value!r} is for weights that are frozen, and this model"
            f" {'trains' if module.trains else 'has frozen = false'}; leave the key out"
        )


def _is_worth(node: Node) -> bool:
    """Tell whether a value depends on weights and is no larger than they are. ``fold_constants`` folds other values."""
    if not isinstance(product(node.type.shape), int):
        return False
    weights: dict[Node, int] = {}
    for top in topological([node]):
        if top.op in (st.input_, st.const):
            weights[top] = _bytes(top)
    return any(leaf.op is st.input_ for leaf in weights) and _bytes(node) <= sum(weights.values())


def _bytes(node: Node) -> int:
    """Return the size of a value in bytes, of floats at 4 each.

    Values that were upcast to 32 bits count as such, although ``half_weights`` stores them in 16 bits again.
    """
    size = product(node.type.shape)
    assert isinstance(size, int), f"bug in mlaot: {node} is fixed, but its size is not"
    return size * (4 if node.type.dtype in NARROW or node.type.dtype is f64 else node.type.dtype.itemsize)


def add_weight(module: Module, value: Array, dtype: DType | None = None) -> str:
    """Add a weight of this value, and return its name; equal values share a weight.

    ``dtype`` is the dtype in graphs if NumPy's differs: bfloat16 is float32 in NumPy.
    """
    dtype = dtype or BY_NUMPY[str(value.dtype)]
    for name in module.named_by_value(value):
        read = [graph.inputs[name] for graph in module.graphs.values() if name in graph.inputs]
        if all(node.type.dtype is dtype for node in read):
            return name
    while (name := f"folded{module.folded}") in module.parameters or name in module.state:
        module.folded += 1
    module.parameters[name] = value
    return name
