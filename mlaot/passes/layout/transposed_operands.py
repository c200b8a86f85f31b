"""Transpose operands of products whose elements are adjacent along the summed axis, if many rows read them. Bit-exact.

    q : f32[256,64], k : f32[256,64]                     v1 = transpose(k, perm=(1, 0)) : f32[64,256]
                                                  =>     v2 = copy(v1) : f32[64,256]
    v1 = contract(q, k, spec=ac,bc->ab)                  v3 = contract(q, v2, spec=ac,cb->ab)

The columns of the result then run along the lanes, as in a product with weights, and no sum ends by adding up lanes. An
operand whose columns already are along the lanes is copied too, if its rows would fall into few sets of the first-level
cache: rows that are 4,096 bytes apart all share one set. An operand is also copied if no axis of the product suits the
lanes, as views skip elements or go backwards: x[:, ::2] @ y[:, ::-1].

Frozen weights need no copy, as they are packed at build time. Their other operand is not copied either, since the
columns of the weights can run along the lanes; a copy of windows would hold most elements several times. Trained
weights are copied for products of many rows, as the forward and the backward pass read them along different axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd, prod

from mlaot.ir import Dim, Node
from mlaot.ir.module import Module
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.kinds import VECTORS, adjacent, base_of, is_free, is_view, strides
from mlaot.passes.base import pass_over
from mlaot.passes.frozen.freeze import fixed_by
from mlaot.passes.rewrite import rewrite
from mlaot.passes.subgraphs import everywhere
from mlaot.schedule.machine import LINE
from mlaot.schedule.tuning import (
    CACHE_SETS,
    CACHE_WAYS,
    GATHERED_EXTENT,
    PACKED_ROWS,
    SHORT_SUM,
    TRANSPOSED_EXTENT,
    TRANSPOSED_WEIGHT_ROWS,
)


@pass_over("module", after=("contract",))
def transposed_operands(module: Module) -> None:
    """Apply the rule of this file to every graph."""
    is_fixed = fixed_by(module)

    def of_values(rule: Callable[[Node], Node | None]) -> Callable[[Node], Node | None]:
        return lambda node: None if any(map(is_fixed, node.args)) else rule(node)

    own = () if module.is_frozen else (weights_transposed,)
    rules = (of_values(values_transposed), values_packed, of_values(values_gathered), *own)
    for graph in module.graphs.values():
        everywhere(lambda graph: rewrite(graph, {red.contract: rules, red.contract_differences: rules}), graph)


def values_transposed(node: Node) -> Node | None:
    """contract(a, b, spec=ac,bc->ab) => contract(a, copy(transpose(b)), spec=ac,cb->ab) for b that is no weight"""
    return _columns_last(node, TRANSPOSED_EXTENT, of_weights=False)


def weights_transposed(node: Node) -> Node | None:
    """contract(a, w, spec=ac,bc->ab) => contract(a, copy(transpose(w)), spec=ac,cb->ab) for a weight w"""
    return _columns_last(node, TRANSPOSED_WEIGHT_ROWS, of_weights=True)


def _columns_last(node: Node, least_rows: int, *, of_weights: bool) -> Node | None:
    *labels, out = red.parse_spec(node.attrs["spec"])
    for i in (0, 1):
        x, names = node.arg(i), labels[i]
        along = adjacent(x)
        if is_free(x) or _is_weight(x) != of_weights or x.type.dtype.name not in VECTORS:
            continue
        if along is None or not out or out[-1] not in names or out[-1] in labels[1 - i]:
            continue
        if strides(x)[names.index(out[-1])] == 1:  # of windows, places are as near to each other as taps
            continue
        extents = dict(zip(names, x.type.shape, strict=True))
        step = names[along]
        columns, steps = _least([extents[out[-1]]]), _least([extents[step]])
        is_worth = columns >= TRANSPOSED_EXTENT and (steps >= TRANSPOSED_EXTENT or 1 < steps <= SHORT_SUM)
        if step not in out and is_worth and _rows_beside(node, i) >= least_rows:
            return _with_copy(node, i, step + out[-1])
    return None


def values_packed(node: Node) -> Node | None:
    """contract(a, b) => contract(a, copy(b)) for b, no weight, whose rows would push each other out of the cache"""
    *labels, out = red.parse_spec(node.attrs["spec"])
    for i in (0, 1):
        x, names = node.arg(i), labels[i]
        if not is_view(x) or is_free(x) or _is_weight(x) or not out or out[-1] in labels[1 - i]:
            continue
        summed = [n for n, c in enumerate(names) if c not in out]
        if adjacent(x) != names.find(out[-1]) or len(summed) != 1 or _rows_beside(node, i) < PACKED_ROWS:
            continue
        step, columns, count = strides(x)[summed[0]], x.type.shape[names.index(out[-1])], x.type.shape[summed[0]]
        if all(isinstance(d, int) for d in (step, columns, count)):
            size = x.type.dtype.itemsize
            lines = -(-int(columns) * size // LINE) * int(count)
            sets = CACHE_SETS // gcd(int(step) * size // LINE, CACHE_SETS)
            if lines > sets * CACHE_WAYS:
                return _with_copy(node, i, names[summed[0]] + out[-1])
    return None


def values_gathered(node: Node) -> Node | None:
    """contract(a, b) => contract(a, copy(b)) for views a and b of which no axis suits the lanes"""
    *labels, out = red.parse_spec(node.attrs["spec"])
    operands = [node.arg(0), node.arg(1)]
    if any(is_free(x) or x.type.dtype.name not in VECTORS for x in operands) or _has_lanes(operands, labels, out):
        return None
    found: list[tuple[int, int, str]] = []
    for i in (0, 1):
        shape, names = operands[i].type.shape, labels[i]
        columns = [c for c in out if c in names and c not in labels[1 - i]]
        width = _least([shape[names.index(c)] for c in columns[-1:]])
        if min(_rows_beside(node, i), width) >= GATHERED_EXTENT:
            found.append((_least([*shape]), i, columns[-1]))
    if not found:
        return None
    _, i, column = min(found)
    return _with_copy(node, i, column)


def _with_copy(node: Node, i: int, last: str) -> Node:
    """Make a product with a copy of operand ``i``, in which the axes ``last`` come last."""
    *labels, out = red.parse_spec(node.attrs["spec"])
    order = "".join(c for c in labels[i] if c not in last) + last
    operands = [node.arg(0), node.arg(1)]
    operands[i] = ew.copy(st.transpose(operands[i], perm=tuple(labels[i].index(c) for c in order)))
    labels[i] = order
    return node.op(*operands, **{**node.attrs, "spec": f"{labels[0]},{labels[1]}->{out}"})


def _rows_beside(node: Node, i: int) -> int:
    """Return the least number of rows of the other operand that read operand ``i``."""
    *labels, _ = red.parse_spec(node.attrs["spec"])
    other = zip(labels[1 - i], node.arg(1 - i).type.shape, strict=True)
    return _least([d for c, d in other if c not in labels[i]])


def _is_weight(node: Node) -> bool:
    """Tell whether a value is a constant or a parameter, and so may be stored in another order."""
    base = base_of(node)
    return base.op is st.const or (base.op is st.input_ and base.attrs.get("parameter", False))


def _has_lanes(operands: Sequence[Node], labels: Sequence[str], out: str) -> bool:
    """Tell whether vectors can be loaded along an axis: one of the result, or a summed one of both operands."""
    steps = [dict(zip(names, strides(x), strict=True)) for names, x in zip(labels, operands, strict=True)]
    for c in {*labels[0], *labels[1]}:
        along = [step.get(c, 0) for step in steps]
        if all(step in (0, 1) for step in along) and (1 in along if c in out else 0 not in along):
            return True
    return False


def _least(extents: list[Dim]) -> int:
    """Return the product of extents, in which a named extent counts as 1."""
    return prod(d for d in extents if isinstance(d, int))
