"""Make graphs legal for lowering: the last axis and the examples are reduced separately, and a kernel computes each
root.

    v1 = sum(v0, axes=(0, 1))           v1 = sum(v0, axes=(1,))
    return y=x                    =>    v2 = sum(v1, axes=(0,))
                                        return y=copy(x)

The pass reassociates, as it fixes the order of a sum over several axes.
"""

from __future__ import annotations

from mlaot.ir import Graph, Node, Type
from mlaot.ir.dims import product
from mlaot.ir.types import f32, i32
from mlaot.ops import Op
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.control import cond, scan, while_
from mlaot.ops.kinds import (
    REDUCTIONS,
    base_of,
    drop_unit_axes,
    is_free,
    is_narrow,
    is_reduction,
    is_stored,
    is_view,
    root_of,
    slot_root,
)
from mlaot.ops.nests.sorts import ranked_elements
from mlaot.ops.sorting import argsort, sort
from mlaot.ops.sparse import sparse_add, sparse_dot
from mlaot.ops.trees import tree_ensemble
from mlaot.ops.winograd import TRANSFORMS
from mlaot.passes.base import pass_over
from mlaot.passes.rewrite import Rule, rewrite
from mlaot.schedule.machine import LINE
from mlaot.schedule.tuning import EXAMPLE_TERMS, GATHERED_BY

CONTROL = (scan, while_, cond)
SPARSE = (sparse_dot, sparse_add)


def last_axis_first(node: Node) -> Node | None:
    """reduce(x, axes=(.., last)) => reduce(reduce(x, axes=(last,)), axes=(..,))"""
    axes, last = node.attrs["axes"], node.arg(0).type.rank - 1
    if not is_reduction(node) or len(axes) < 2 or last not in axes or is_narrow(node.arg(0).type.shape):
        return None
    if node.op is red.sum_ and _has_full_rows(node.arg(0).type):
        return None
    return node.op(node.op(node.arg(0), axes=(last,)), axes=tuple(a for a in axes if a != last))


def _has_full_rows(x: Type) -> bool:
    """Tell whether all rows are full vectors, which one kernel adds up over any axes."""
    row = x.shape[-1] if all(isinstance(d, int) for d in x.shape) else 1
    return row * x.dtype.itemsize % LINE == 0


def examples_first(node: Node) -> Node | None:
    """reduce(x, axes=(0, ..)) => reduce(reduce(x, axes=(..)), axes=(0,)): threads share the examples of a batch"""
    axes, shape = node.attrs["axes"], node.arg(0).type.shape
    if not is_reduction(node) or 0 not in axes or isinstance(shape[0], int):
        return None
    rest = tuple(a for a in axes if a)
    terms = product(tuple(shape[a] for a in rest))
    if not isinstance(terms, int) or terms < EXAMPLE_TERMS:
        return None
    return node.op(node.op(node.arg(0), axes=rest), axes=(0,))


def store_operands(node: Node) -> Node | None:
    """contract(broadcast(1.0), x) => contract(copy(broadcast(1.0)), x): their kernels read memory, not free scalars"""
    if is_view(node) or (node.op.reduces and node.attrs["axes"] == (node.arg(0).type.rank - 1,)):
        return None
    args = [a.find() for a in node.args]
    if not any(is_free(a) for a in args):
        return None
    return node.op(*[ew.copy(a) if is_free(a) else a for a in args], **node.attrs)


def copy_once(node: Node) -> Node | None:
    """reshape(x, shape=(1, 8, 4096)) => reshape(reshape(x, shape=(8, 4096))): a copy with axes of one element or not"""
    shape = drop_unit_axes(node.type.shape)
    if is_view(node) or len(shape) == node.type.rank:
        return None
    copied = st.reshape(node.arg(0), shape=shape)
    return None if is_view(copied) else st.reshape(copied, shape=node.type.shape)


def gather_vectors(node: Node) -> Node | None:
    """contract(w, x[:, 0]) => contract(w, copy(x[:, 0])): vectors load adjacent elements, and w is far larger"""
    args = [a.find() for a in node.args]
    sizes = [product(a.type.shape) for a in args]
    if not all(isinstance(size, int) for size in sizes):
        return None
    largest = max(int(size) for size in sizes)
    strided = [GATHERED_BY * int(size) <= largest and _is_strided(a) for a, size in zip(args, sizes, strict=True)]
    if not any(strided):
        return None
    return node.op(*[ew.copy(a) if far else a for a, far in zip(args, strided, strict=True)], **node.attrs)


def sort_rows(node: Node) -> Node | None:
    """argsort(x, axis=0) => transpose(argsort(copy(transpose(x)), axis=last)): rows are sorted"""
    x, axis, last = node.arg(0), node.attrs["axis"], node.type.rank - 1
    extent = x.type.shape[axis]
    if node.op is argsort and isinstance(extent, int) and extent <= ranked_elements(x.type):
        return None
    if axis == last:
        is_row = x.op is not st.transpose or x.attrs["perm"][last] == last
        return None if is_row else node.op(ew.copy(x), **node.attrs)
    rows = ew.copy(st.in_order(x, [*range(axis), *range(axis + 1, last + 1), axis]))
    found = node.op(rows, **{**node.attrs, "axis": last})
    return st.in_order(found, [*range(axis), last, *range(axis, last)])


def sort_words(node: Node) -> Node | None:
    """sort(x: i8) => cast(sort(cast(x, i32)), i8): rows of 32 and 64 bits are what functions of C sort"""
    x = node.arg(0)
    if x.type.dtype.itemsize >= 4:
        return None
    wide = ew.cast(x, dtype=f32 if x.type.dtype.kind == "f" else i32)
    return ew.cast(node.op(wide, **node.attrs), dtype=x.type.dtype)


def _is_strided(node: Node) -> bool:
    """Tell whether a view slices the last axis of its source, so that elements along other axes are not adjacent."""
    while is_view(node) and node.args:
        below = node.arg(0)
        if node.op is st.slice_ and node.type.rank and _cuts_last(node.attrs["step"], node.type, below.type):
            return True
        node = below
    return False


def _cuts_last(step: tuple[int, ...], part: Type, source: Type) -> bool:
    return step[-1] != 1 or part.shape[-1] == 1 != source.shape[-1]


@pass_over("graphs", after=("upcast", "sparse_products", "winograd", "split_gates", "delayed_updates"))
def legalize(graph: Graph) -> None:
    """Rewrite ``graph`` into the forms that lowering expects."""
    rules: dict[Op | None, tuple[Rule, ...]] = dict.fromkeys(REDUCTIONS, (examples_first, last_axis_first))
    rewrite(graph, rules)
    stored = (*REDUCTIONS, red.contract, st.take, st.put_add, tree_ensemble, sort, *SPARSE, *CONTROL, *TRANSFORMS)
    rewrite(graph, dict.fromkeys(stored, (store_operands,)))
    rewrite(
        graph,
        {
            st.reshape: (copy_once,),
            red.contract: (gather_vectors,),
            argsort: (sort_rows,),
            sort: (sort_words, sort_rows),
        },
    )
    for roots, value_of in ((graph.outputs, root_of), (graph.writes, slot_root)):
        for name, node in roots.items():
            result, value = node.find(), value_of(node)
            is_sorted = value.op in (sort, argsort) and roots is graph.writes  # the rows of a slot may not be adjacent
            if is_sorted or is_view(value) or is_stored(base_of(result)) or is_free(result):
                roots[name] = ew.copy(result)
