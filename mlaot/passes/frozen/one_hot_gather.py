"""One-hot rows times a table become rows of the table, and elementwise work on the rows becomes work on the table.

v2 = cast(equal(broadcast(x), broadcast(0..256))) : f32[b,257]        v2 = where(0 <= x < 257, x, 257)
v3 = contract(v2, w, spec=ab,bc->ac) : f32[b,64]                =>    v3 = gather(tanh(concat(w, 0)), v2)
v4 = tanh(v3)

The rules apply only to frozen weights, as the table is computed at build time, and only to finite ones, so that a
product with 0 is 0. They are exact except for the sign of zeros.
"""

from __future__ import annotations

import numpy as np

from mlaot.ir import Node
from mlaot.ir.dims import product
from mlaot.ir.module import Module
from mlaot.ops import OPS
from mlaot.ops import comparison as cmp
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.base import full_like
from mlaot.ops.bits import bitwise_and
from mlaot.ops.indexing import gather
from mlaot.passes.base import pass_over
from mlaot.passes.frozen.freeze import IsFixed, add_weight, fixed_by
from mlaot.passes.rewrite import rewrite
from mlaot.schedule.tuning import COMPUTED_TABLE

ELEMENTWISE = tuple(op for op in OPS.values() if op.elementwise and op is not cmp.where)


def gather_rows(module: Module, node: Node) -> Node | None:
    """contract(one-hot, w) => gather(concat(w, 0), index)"""
    inputs, _, out = node.attrs["spec"].partition("->")
    if len(node.args) != 2:
        return None
    for hot, table in ((0, 1), (1, 0)):
        labels, rows = (inputs.split(",")[i] for i in (hot, table))
        one_hot = _one_hot(node.arg(hot))
        if one_hot is None or not _is_finite(module, node.arg(table)):
            continue
        index, axis, classes = one_hot
        label = labels[axis]
        row_labels = rows.replace(label, "")
        index_labels = labels.replace(label, "")
        if label in out or label not in rows or set(row_labels) & set(index_labels) or out != index_labels + row_labels:
            continue
        weight = np.moveaxis(module.parameters[node.arg(table).attrs["name"]], rows.index(label), 0)
        extended = np.concatenate([weight, np.zeros_like(weight[:1])])
        w = node.graph.input(add_weight(module, extended), node.type.with_shape(extended.shape), parameter=True)
        return gather(w, _index_or_zeros(index, classes), lead=0)
    return None


def _one_hot(node: Node) -> tuple[Node, int, int] | None:
    """Return the index, the axis and the number of classes of a one-hot encoding; None for other nodes."""
    if node.op is not ew.cast or node.arg(0).op is not cmp.equal:
        return None
    sides = [node.arg(0).arg(0), node.arg(0).arg(1)]
    for x, numbers in (sides, sides[::-1]):
        if x.op is not st.broadcast or numbers.op is not st.broadcast or numbers.arg(0).op is not st.const:
            continue
        rank = x.type.rank
        if len(numbers.attrs["axes"]) != 1 or x.type.dtype.kind not in "iu":
            continue
        (axis,) = numbers.attrs["axes"]
        values = numbers.arg(0).attrs["value"].array
        kept = tuple(a for a in range(rank) if a != axis)
        if x.attrs["axes"] == kept and (values == np.arange(values.size)).all():
            return x.arg(0), axis, values.size
    return None


def _is_finite(module: Module, node: Node) -> bool:
    """Tell whether a node is a frozen weight without infinities and nan."""
    if node.op is not st.input_ or node.type.dtype.kind != "f" or node.attrs["name"] in module.trained:
        return False
    weight = module.parameters.get(node.attrs["name"])
    return weight is not None and bool(np.isfinite(weight).all())


def _index_or_zeros(index: Node, classes: int) -> Node:
    """Return the index if it is in range, and else the index of the row of zeros."""
    zero, end = full_like(index, 0), full_like(index, classes)
    return cmp.where(bitwise_and(cmp.less_equal(zero, index), cmp.less(index, end)), index, end)


def compute_table(is_fixed: IsFixed, node: Node) -> Node | None:
    """f(gather(t, index), weights) => gather(f(t, weights), index), where t has fewer rows than the result, or few"""
    gathers = [a.find() for a in node.args if a.find().op is gather]
    if not gathers or len({(g.arg(1), g.arg(0).type.shape) for g in gathers}) != 1 or gathers[0].attrs["lead"]:
        return None
    index, table = gathers[0].arg(1), gathers[0].arg(0)
    if any(g.attrs["lead"] or not is_fixed(g.arg(0)) for g in gathers) or not _is_smaller(table, index):
        return None
    args = []
    for a in map(Node.find, node.args):
        if a.op is gather:
            args.append(a.arg(0))
            continue
        rank = index.type.rank
        if a.op is not st.broadcast or not is_fixed(a.arg(0)) or any(axis < rank for axis in a.attrs["axes"]):
            return None
        axes = tuple(axis - rank + 1 for axis in a.attrs["axes"])
        args.append(st.broadcast(a.arg(0), shape=table.type.shape, axes=axes))
    return gather(node.op(*args, **node.attrs), index, lead=0)


def _is_smaller(table: Node, index: Node) -> bool:
    """Tell whether a table is smaller than the gathered rows, or if their number is open, whether it is small."""
    size, rows, count = product(table.type.shape), table.type.shape[0], product(index.type.shape)
    if not (isinstance(size, int) and isinstance(rows, int)):
        return False
    return rows <= count if isinstance(count, int) else size * table.type.dtype.itemsize <= COMPUTED_TABLE


@pass_over("module", after=("contract", "upcast"))
def one_hot_gather(module: Module) -> None:
    """Apply the rules of this file to the graphs of a module with frozen weights."""
    if not module.is_frozen:
        return

    def gather_table(node: Node) -> Node | None:
        return gather_rows(module, node)

    for graph in module.graphs.values():
        rewrite(graph, {red.contract: (gather_table,)})
    is_fixed = fixed_by(module)  # the tables, too

    def compute_in_table(node: Node) -> Node | None:
        return compute_table(is_fixed, node)

    for graph in module.graphs.values():
        rewrite(graph, dict.fromkeys(ELEMENTWISE, (compute_in_table,)))
