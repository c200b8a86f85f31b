"""Raise scalars of equal structure to one op on a tensor of them. Reassociates (sums are reordered).

    h0 = relu(add(mul(w0, x0), mul(w1, x1), b0))          v0 = broadcast(x), v1 = mul(w, v0)
    h1 = relu(add(mul(w2, x0), mul(w3, x1), b1))    =>    v2 = sum(v1, axes=(1,)), v3 = add(v2, b)
                                                          h = relu(v3)

Works from the roots down, on arrays of scalar nodes. An array whose elements have one structure becomes one op over the
arrays of their arguments; a many-argument ``add`` or ``maximum`` adds an axis and reduces it; an array that does not
vary along an axis is made without it and broadcast; an array of items of one tensor is a ``take`` of it. Terms of sums
are aligned over their rows by the operand that the rows share, so shuffled terms do not matter. Arrays that share
scalars are made once and read by ``take``. What has no equal beside it stays a scalar.

Arrays are processed by decreasing height, so that all readers of a scalar are known before it is placed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlaot.ir import Graph, Literal, Node
from mlaot.ir import dims as dims_
from mlaot.ir.types import i64
from mlaot.ops import OPS, kinds
from mlaot.ops import elementwise as ew
from mlaot.ops import structure as st
from mlaot.ops.base import Op
from mlaot.passes.base import pass_over
from mlaot.passes.raising.flatten_sums import Classes
from mlaot.schedule.tuning import FEW_TERMS, RAISED_SHARE

Ids = np.ndarray[Any, np.dtype[np.int64]]
Key = tuple[bytes, tuple[int, ...]]
# Of many arguments one after the other; a product has two, which sums of products are recognized by.
REDUCTIONS = {OPS[op.repeats]: op for op in kinds.REDUCTIONS if op.repeats not in ("", "mul")}


@dataclass
class Part:
    """An argument of an array's op: an array of ids, reduced over its last axis by ``reduction`` where there is one."""

    ids: Ids
    reduction: Op | None = None


@dataclass
class Plan:
    """How one array of scalars is made: ``op`` over ``parts``."""

    op: Op
    attrs: dict[str, Any]
    parts: list[Part]


@pass_over("scalars", after=("flatten_sums",))
def raise_tensors(graph: Graph) -> None:
    """Replace the scalar outputs of ``graph`` by tensor computations; several scalars of one output are stacked.

    A graph with so little structure that hardly fewer nodes are left stays as it is: straight-line code beats gathers.
    """
    scalar, before = dict(graph.outputs), len(graph.nodes())
    _Raiser(graph).run()
    if len(graph.nodes()) > RAISED_SHARE * before:
        graph.outputs = scalar


class _Raiser:
    """The state of one run: numbered scalars, arrays that are asked for, and the plans to compute them."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes = graph.nodes()
        self.number = {node: i for i, node in enumerate(self.nodes)}
        self.height = np.zeros(len(self.nodes), np.int64)
        self.klass = np.zeros(len(self.nodes), np.int64)
        first = np.full(len(self.nodes), len(self.nodes), np.int64)  # the first of the nearest parameters of each
        far = np.full(len(self.nodes), len(self.nodes), np.int64)  # and the distance to them
        index = np.zeros(len(self.nodes), np.int64)
        classes = Classes()
        for i, node in enumerate(self.nodes):
            args = [self.number[a.find()] for a in node.args]
            leaf = classes.leaf(node)
            if leaf is not None:
                self.klass[i] = leaf
                if node.op is st.item:
                    index[i] = node.attrs["index"]
                    if node.arg(0).attrs.get("parameter"):
                        first[i], far[i] = index[i], 0
            else:
                self.klass[i] = classes.composite(node, [int(self.klass[a]) for a in args])
                self.height[i] = 1 + max(int(self.height[a]) for a in args)
                near, first[i] = min((int(far[a]), int(first[a])) for a in args)
                far[i] = near + 1
        # Terms sort by the items they are, else by their parameters: not by the order in which they were traced.
        self.order = np.empty(len(self.nodes), np.int64)
        self.order[np.lexsort((np.arange(len(self.nodes)), first, index))] = np.arange(len(self.nodes))
        self.asked: dict[int, dict[Key, Ids]] = {}
        self.plans: dict[Key, Plan] = {}
        self.copies: dict[Key, tuple[Key, Ids]] = {}
        self.tensors: dict[Key, Node] = {}
        self.processed: list[Key] = []

    def run(self) -> None:
        roots = {name: self._root(node.find()) for name, node in self.graph.outputs.items()}
        for ids in roots.values():
            if ids is not None:
                self._ask(ids)
        for height in range(int(self.height.max(initial=0)), 0, -1):
            self._place(height)
        for key in reversed(self.processed):
            self.tensors[key] = self._make(key)
        for name, ids in roots.items():
            if ids is not None:
                self.graph.outputs[name] = self._value(ids)

    def _root(self, node: Node) -> Ids | None:
        """Return the scalars of an output: itself, or what it stacks; None for tensors that were not stacked."""
        if node.op is st.stack and node.type.rank == 1:
            return np.array([self.number[a.find()] for a in node.args])
        return np.array(self.number[node]) if node.type.rank == 0 else None

    # Asking, from the roots down.

    def _ask(self, ids: Ids) -> None:
        core, _ = _invariant(ids)
        height = int(self.height[core].max(initial=0))
        if height == 0 and len(np.unique(self.klass[core])) == 1:
            return  # items of one tensor, or constants: made where they are read
        kinds = np.unique(self.klass[core])
        if len(kinds) > 1:
            for kind in kinds:
                self._ask(np.unique(core[self.klass[core] == kind]))
            return
        self.asked.setdefault(height, {})[_key(core)] = core

    def _place(self, height: int) -> None:
        """Plan every array asked for at this height; arrays that share scalars are one plan and copies of it."""
        while arrays := self.asked.pop(height, None):
            for cluster in _clusters(list(arrays.values())):
                base = _base(cluster)
                self._plan(base)
                for ids in cluster:
                    if _key(ids) != _key(base):
                        self.copies[_key(ids)] = _key(base), positions_in(base, ids)
                        self.processed.append(_key(ids))
                self.processed.append(_key(base))

    def _plan(self, ids: Ids) -> None:
        first = self.nodes[int(ids.flat[0])]
        if first.op in REDUCTIONS:
            parts = self._reduction_parts(first.op, ids)
        else:
            columns = self._columns(ids, len(first.args))
            parts = [Part(columns[..., i]) for i in range(len(first.args))]
            if first.op.commutative and len(parts) == 2:
                parts = self._orient(parts)
        for part in parts:
            self._ask(part.ids)
        self.plans[_key(ids)] = Plan(first.op, first.attrs, parts)

    def _columns(self, ids: Ids, count: int) -> Ids:
        flat = [[self.number[a.find()] for a in self.nodes[i].args] for i in ids.reshape(-1).tolist()]
        return np.array(flat, np.int64).reshape(*ids.shape, count)

    def _orient(self, parts: list[Part]) -> list[Part]:
        """Order the arguments of a commutative op by their classes."""
        a, b = (part.ids for part in parts)
        swap = self.klass[a] > self.klass[b]
        return [Part(np.where(swap, b, a)), Part(np.where(swap, a, b))]

    def _reduction_parts(self, op: Op, ids: Ids) -> list[Part]:
        """Group the terms of sums by class: one array a class, with an axis to reduce where it has many."""
        count = len(self.nodes[int(ids.flat[0])].args)
        terms = self._columns(ids, count)
        by_class = np.argsort(self.klass[terms], axis=-1, kind="stable")
        terms = np.take_along_axis(terms, by_class, -1)
        parts, start = [], 0
        for _, size in sorted(Counter(self.klass[terms.reshape(-1, count)[0]].tolist()).items()):
            group = terms[..., start : start + size]
            start += size
            if size == 1:
                parts.append(Part(group[..., 0]))
                continue
            group = np.take_along_axis(group, np.argsort(self._alignment(group), axis=-1, kind="stable"), -1)
            product = self.nodes[int(group.flat[0])].op is ew.mul
            if size <= FEW_TERMS and not product and ids.size > 1:
                parts += [Part(group[..., i]) for i in range(size)]
            else:
                parts.append(Part(group, REDUCTIONS[op]))
        return parts

    def _alignment(self, terms: Ids) -> Ids:
        """Return sort keys for the terms of each row: for products, by the factor that the rows share."""
        if self.nodes[int(terms.flat[0])].op is not ew.mul:
            return self.order[terms]
        columns = self._columns(terms, 2)
        factors = [part.ids for part in self._orient([Part(columns[..., 0]), Part(columns[..., 1])])]
        rows = [len(np.unique(np.sort(f.reshape(-1, f.shape[-1]), axis=1), axis=0)) for f in factors]
        if rows[0] == rows[1]:  # one row: by the factor that is computed or an input of the example, not a parameter
            return self.order[factors[0] if self._is_data(factors[0]) else factors[1]]
        return self.order[factors[int(np.argmin(rows))]]

    def _is_data(self, ids: Ids) -> bool:
        node = self.nodes[int(ids.flat[0])]
        return node.op is not st.item or not node.arg(0).attrs.get("parameter", False)

    # Making, from the leaves up.

    def _make(self, key: Key) -> Node:
        if key in self.copies:
            base, positions = self.copies[key]
            return take_as_view(self.tensors[base], positions)
        plan = self.plans[key]
        values: list[Node] = []
        for part in plan.parts:
            value = self._value(part.ids)
            values.append(part.reduction(value, axes=(value.type.rank - 1,)) if part.reduction else value)
        if plan.op in REDUCTIONS:
            total = values[0]
            for value in values[1:]:
                total = plan.op(total, value)
            return total
        return plan.op(*values, **plan.attrs)

    def _value(self, ids: Ids) -> Node:
        """Return the tensor of an array of scalars."""
        core, axes = _invariant(ids)
        value = self.tensors.get(_key(core)) or self._leaf(core)
        return st.broadcast(value, shape=ids.shape, axes=axes) if core.shape != ids.shape else value

    def _leaf(self, ids: Ids) -> Node:
        kinds = np.unique(self.klass[ids])
        if len(kinds) > 1:
            return self._mix(ids, kinds)
        first = self.nodes[int(ids.flat[0])]
        if first.op is st.item:
            index = np.array([self.nodes[i].attrs["index"] for i in ids.reshape(-1).tolist()], np.int64)
            return take_as_view(first.arg(0), index.reshape(ids.shape))
        if first.op is st.const and first.type.rank == 0:
            values = [self.nodes[i].attrs["value"].array for i in ids.reshape(-1).tolist()]
            return self.graph.constant(np.array(values).reshape(ids.shape), first.type.dtype)
        assert ids.size == 1, f"bug in mlaot: raise_tensors has no value for {first}"
        return first

    def _mix(self, ids: Ids, kinds: Ids) -> Node:
        """Compute each kind of scalar of an array on its own, then put them together."""
        groups = [np.unique(ids[self.klass[ids] == kind]) for kind in kinds.tolist()]
        values = [self._value(group) for group in groups]
        flat = [v if v.type.rank else st.reshape(v, shape=(1,)) for v in values]
        return take_as_view(st.concat(*flat, axis=0), positions_in(np.concatenate(groups), ids))


def _key(ids: Ids) -> Key:
    return ids.tobytes(), ids.shape


def _invariant(ids: Ids) -> tuple[Ids, tuple[int, ...]]:
    """Drop the axes along which an array does not vary; return it and the axes that are left."""
    axes = tuple(range(ids.ndim))
    for axis in reversed(range(ids.ndim)):
        first = ids.take([0], axis=axis)
        if (ids == first).all():
            ids = first.squeeze(axis)
            axes = axes[:axis] + axes[axis + 1 :]
    return np.ascontiguousarray(ids).reshape(ids.shape), axes


def _clusters(arrays: list[Ids]) -> list[list[Ids]]:
    """Group arrays: two that share a scalar, directly or through others, are in one group."""
    owner: dict[int, int] = {}
    group = list(range(len(arrays)))

    def find(i: int) -> int:
        while group[i] != i:
            i = group[i]
        return i

    for i, ids in enumerate(arrays):
        for scalar in np.unique(ids).tolist():
            group[find(i)] = find(owner.setdefault(scalar, i))
    result: dict[int, list[Ids]] = {}
    for i, ids in enumerate(arrays):
        result.setdefault(find(i), []).append(ids)
    return list(result.values())


def _base(cluster: Sequence[Ids]) -> Ids:
    """Return one array that holds every scalar of the cluster once: one of it, or all scalars in a row."""
    union = np.unique(np.concatenate([ids.reshape(-1) for ids in cluster]))
    for ids in cluster:
        if ids.size == union.size and np.unique(ids).size == union.size:
            return ids
    return union


def positions_in(base: Ids, ids: Ids) -> Ids:
    """Return where in ``base``, flat, each of ``ids`` stands."""
    flat = base.reshape(-1)
    sorter = np.argsort(flat)
    return sorter[np.searchsorted(flat, ids, sorter=sorter)].reshape(ids.shape)


def take_as_view(x: Node, positions: Ids) -> Node:
    """Take ``x``'s elements at ``positions``: as a view where they are in order or transposed."""
    shape = x.type.shape
    if positions.size == dims_.product(shape):
        numbers = np.arange(positions.size)
        if (positions.reshape(-1) == numbers).all():
            return st.reshape(x, shape=positions.shape) if positions.shape != shape else x
        if len(shape) == 2 and positions.shape == shape[::-1] and (positions.T.reshape(-1) == numbers).all():
            return st.transpose(x, perm=(1, 0))
    return st.take(x, indices=Literal(positions, i64), lead=0)
