"""Raise scalars of equal structure to one op on a tensor of them. Reassociates (sums are reordered).

    h0 = relu(add(mul(w0, x0), mul(w1, x1), b0))          v0 = broadcast(x), v1 = mul(w, v0)
    h1 = relu(add(mul(w2, x0), mul(w3, x1), b1))    =>    v2 = sum(v1, axes=(1,)), v3 = add(v2, b)
                                                          h = relu(v3)

The pass works from the roots down, on arrays of scalar nodes. An array whose elements have one structure becomes one op
on the arrays of their arguments. An ``add`` or ``maximum`` of many arguments adds an axis and reduces it. An array that
does not vary along an axis is computed without it and broadcast. An array of items of one tensor is a ``take`` of it.
Terms of sums are aligned over their rows by the operand that the rows share, so that shuffled terms do not matter.
Arrays that share scalars are computed once and read by ``take``. A scalar without equals remains a scalar.

Sums of one kind of terms may have different lengths, as in attention to all earlier positions. Their array has holes
where a sum has no term, which a mask hides from the sum (Vaswani et al., 2017, section 3.2.3). The argument of a hole
is that of another element, so that nothing can overflow that the model does not compute.

Arrays are processed by decreasing height, so that all readers of a scalar are known before it is placed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlaot.ir import Graph, Literal, Node
from mlaot.ir.types import boolean, i64
from mlaot.ops import OPS, kinds
from mlaot.ops import elementwise as ew
from mlaot.ops import structure as st
from mlaot.ops.barrier import stop_gradient
from mlaot.ops.base import Op, full_like
from mlaot.ops.comparison import where
from mlaot.passes.base import pass_over
from mlaot.passes.raising.arrays import (
    HOLE,
    Ids,
    Key,
    Mask,
    base,
    clusters,
    column_ranks,
    filled,
    invariant,
    key,
    scalars,
    split,
    stand_ins,
)
from mlaot.passes.raising.flatten_sums import IDENTITIES, Classes
from mlaot.passes.raising.positions import positions_in, take_as_view
from mlaot.schedule.tuning import FEW_TERMS, HOLES, RAISED_SHARE, UNLIKE_LENGTHS

# Of many arguments one after the other; a product has two, which sums of products are recognized by.
REDUCTIONS = {OPS[op.repeats]: op for op in kinds.REDUCTIONS if op.repeats not in ("", "mul")}


@dataclass(frozen=True)
class Part:
    """An argument of an array's op: an array of ids, reduced over its last axis if there is a ``reduction``.

    ``held`` has the elements that the reduction reads, if not all.
    """

    ids: Ids
    reduction: Op | None = None
    held: Mask | None = None


@dataclass(frozen=True)
class Plan:
    """The plan of one array of scalars: ``op`` on ``parts``. ``holes`` must hold the values of their stand-ins."""

    op: Op
    attrs: dict[str, Any]
    parts: list[Part]
    holes: Mask | None = None


@pass_over("scalars", after=("flatten_sums",))
def raise_tensors(graph: Graph) -> None:
    """Replace the scalar outputs of ``graph`` by tensor computations; several scalars of one output are stacked.

    A graph with so little structure that hardly fewer nodes would be left is kept, as straight-line code beats gathers.
    """
    scalar, before = dict(graph.outputs), len(graph.nodes())
    _Raiser(graph).run()
    if len(graph.nodes()) > RAISED_SHARE * before:
        graph.outputs = scalar


class _Raiser:
    """The state of one run: numbered scalars, requested arrays, and the plans to compute them.

    Arrays of properties of scalars, by number, end with an element for ``HOLE``.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes = graph.nodes()
        self.number = {node: i for i, node in enumerate(self.nodes)}
        self.args = [[self.number[a.find()] for a in node.args] for node in self.nodes]
        count = len(self.nodes)
        self.klass = np.full(count + 1, HOLE)
        self.height = np.zeros(count + 1, np.int64)
        first = np.full(count, count)  # the first of the nearest parameters of each
        far = np.full(count, count)  # and the distance to them
        index = np.zeros(count, np.int64)
        levels: dict[int, list[int]] = defaultdict(list)
        self.classes = Classes()
        for i, node in enumerate(self.nodes):
            leaf = self.classes.leaf(node)
            if leaf is not None:
                self.klass[i] = leaf
                if node.op is st.item:
                    index[i] = node.attrs["index"]
                    if node.arg(0).attrs.get("parameter"):
                        first[i], far[i] = index[i], 0
            else:
                self.height[i] = 1 + max(int(self.height[a]) for a in self.args[i])
                near, first[i] = min((int(far[a]), int(first[a])) for a in self.args[i])
                far[i] = near + 1
                levels[int(self.height[i])].append(i)
        for height in sorted(levels):
            self._classify(levels[height])
        # Classes by their first scalars: arguments are ordered by them.
        _, starts, inverse = np.unique(self.klass[:-1], return_index=True, return_inverse=True)
        self.klass[:-1] = np.argsort(np.argsort(starts))[inverse.reshape(-1)]
        # Terms sort by the items they are, else by their parameters: not by the order in which they were traced.
        self.order = np.full(count + 1, count)
        self.order[np.lexsort((np.arange(count), first, index))] = np.arange(count)
        self.asked: dict[int, dict[Key, Ids]] = defaultdict(dict)
        self.exposed: set[Key] = set()
        self.plans: dict[Key, Plan] = {}
        self.copies: dict[Key, tuple[Key, Ids]] = {}
        self.tensors: dict[Key, Node] = {}
        self.processed: list[Key] = []

    def run(self) -> None:
        roots = {name: self._root(node.find()) for name, node in self.graph.outputs.items()}
        stacks = {node: ids for node in self._stacks() if (ids := self._root(node)) is not None}
        for ids in (*roots.values(), *stacks.values()):
            if ids is not None:
                self._ask(ids)
        for height in range(int(self.height.max(initial=0)), 0, -1):
            self._place(height)
        for each in reversed(self.processed):
            self.tensors[each] = self._make(each)
        for name, ids in roots.items():
            if ids is not None:
                self.graph.outputs[name] = self._value(ids)
        for node, ids in stacks.items():
            self.graph.forward(node, self._value(ids))

    def _stacks(self) -> list[Node]:
        """Return the stacks that ops read: what a loop carries and reads."""
        outputs = {node.find() for node in self.graph.outputs.values()}
        return [node for node in self.nodes if node.op is st.stack and node not in outputs]

    def _root(self, node: Node) -> Ids | None:
        """Return the scalars of an output: itself, or those that it stacks; None for tensors that were not stacked."""
        if node.op is st.stack and node.type.rank == 1:
            return np.array([self.number[a.find()] for a in node.args])
        return np.array(self.number[node]) if node.type.rank == 0 else None

    def _classify(self, level: Iterable[int]) -> None:
        """Number the classes of the scalars of one height. Sums of one kind of terms are one class for any length."""
        unlike: dict[object, list[int]] = defaultdict(list)
        for i in level:
            node, args = self.nodes[i], [int(self.klass[a]) for a in self.args[i]]
            self.klass[i] = self.classes.composite(node, args)
            if node.op in REDUCTIONS:
                unlike[node.op, tuple(sorted(set(args)))].append(i)
        for kind, sums in unlike.items():
            lengths = [len(self.args[i]) for i in sums]
            if len(set(lengths)) >= UNLIKE_LENGTHS and len(sums) * max(lengths) <= HOLES * sum(lengths):
                self.klass[sums] = self.classes.number(("unlike", *kind))  # type: ignore[misc]

    # Asking, from the roots down.

    def _ask(self, ids: Ids, exposed: bool = True) -> None:
        """Request an array; ``exposed`` is true if its reader computes with the values in holes."""
        core, _ = invariant(ids)
        held = scalars(core)
        found = np.unique(self.klass[held])
        height = int(self.height[held].max(initial=0))
        if len(found) > 1:
            for klass in found:
                self._ask(held[self.klass[held] == klass])
        elif height:  # others are items of one tensor, or constants: made where they are read
            self.asked[height][key(core)] = core
            if exposed:
                self.exposed.add(key(core))

    def _place(self, height: int) -> None:
        """Plan every requested array of this height. Arrays that share scalars are one plan, and copies of it."""
        while arrays := self.asked.pop(height, None):
            for cluster in clusters(list(arrays.values())):
                ids = base(cluster)
                if not any(ids is each for each in cluster):
                    ids = self._in_axes(ids)
                planned = self._plan(ids, any(key(ids) in self.exposed for ids in cluster))
                for ids in cluster:
                    if key(ids) != key(planned):
                        self.copies[key(ids)] = key(planned), _positions(planned, ids)
                        self.processed.append(key(ids))
                self.processed.append(key(planned))

    def _in_axes(self, ids: Ids) -> Ids:
        """Return a vector of scalars in the axes of the first op below that has several axes."""
        below = ids
        while self.height[below[0]] > 0 and np.unique(below).size == below.size:
            _, parts, read = self._arguments(below)
            order, *_ = split(np.arange(ids.size), [], read)
            if order.ndim > 1:
                return ids[order]
            computed = [part for part in parts if part.shape == ids.shape]
            if len(computed) != 1:
                break
            below = computed[0]
        return ids

    def _arguments(self, ids: Ids) -> tuple[list[Op | None], list[Ids], list[Ids]]:
        """Return the reduction of an array's op, its arguments, and the scalars that these read.

        For products in a sum these scalars are the factors.
        """
        first = self.nodes[ids[ids != HOLE][0]]
        if first.op in REDUCTIONS:
            arrays, reductions = self._terms(first.op, ids)
        else:
            columns = self._columns(ids, len(first.args))
            arrays, reductions = [columns[..., i] for i in range(len(first.args))], [None] * len(first.args)
            if first.op.commutative and len(arrays) == 2:
                arrays = self._orient(*arrays)
        read = []
        for array, reduction in zip(arrays, reductions, strict=True):
            read += self._factors(array) if reduction and self._is_product(array) else [array]
        return reductions, arrays, read

    def _plan(self, ids: Ids, exposed: bool) -> Ids:
        """Plan the scalars of an array, and return it with the axes that they are made in."""
        first = self.nodes[ids[ids != HOLE][0]]
        reductions, arrays, read = self._arguments(ids)
        ids, arrays, read = split(ids, arrays, read)
        holes = ids == HOLE
        parts = []
        for array, reduction in zip(arrays, reductions, strict=True):
            held = _of_stand_ins(array != HOLE, holes) if reduction else np.array(True)
            parts.append(Part(array, reduction, None if held.all() else held))
            self._ask(array, exposed=bool(held.all()) and not (reduction and self._is_product(array)))
        is_foreign = any(_is_foreign(each, holes) for each in read)
        self.plans[key(ids)] = Plan(first.op, first.attrs, parts, holes if exposed and is_foreign else None)
        return ids

    def _columns(self, ids: Ids, count: int) -> Ids:
        """Return the arguments of every scalar along a last axis of ``count``, with holes where it has fewer."""
        none = [HOLE] * count
        flat = [(self.args[i] + none)[:count] if i != HOLE else none for i in ids.reshape(-1).tolist()]
        return np.array(flat, np.int64).reshape(*ids.shape, count)

    def _factors(self, products: Ids) -> list[Ids]:
        columns = self._columns(products, 2)
        return self._orient(columns[..., 0], columns[..., 1])

    def _orient(self, a: Ids, b: Ids) -> list[Ids]:
        """Order the arguments of a commutative op by their classes."""
        swap = self.klass[a] > self.klass[b]
        return [np.where(swap, b, a), np.where(swap, a, b)]

    def _terms(self, op: Op, ids: Ids) -> tuple[list[Ids], list[Op | None]]:
        """Group the terms of sums by class: one array for each class, with an axis to reduce if it has many terms."""
        count = max(len(self.args[i]) for i in scalars(ids).tolist())
        terms = self._columns(ids, count)
        arrays: list[Ids] = []
        reductions: list[Op | None] = []
        for klass in np.unique(self.klass[scalars(terms)]).tolist():
            is_member = self.klass[terms] == klass
            sizes = is_member.sum(-1)
            size = int(sizes.max())
            members = np.where(is_member, terms, HOLE)
            group = np.take_along_axis(members, np.argsort(~is_member, axis=-1, kind="stable"), -1)[..., :size]
            is_ragged = bool((sizes[ids != HOLE] < size).any())
            product = self._is_product(group)
            if size > 1:
                group = self._align(group, product, is_ragged)
            if size == 1 or (size <= FEW_TERMS and not product and ids.size > 1 and not is_ragged):
                arrays += [group[..., i] for i in range(size)]
                reductions += [None] * size
            else:
                arrays.append(group)
                reductions.append(REDUCTIONS[op])
        return arrays, reductions

    def _align(self, group: Ids, product: bool, is_ragged: bool) -> Ids:
        """Order the terms of each row, the last axis: products by the factor that the rows share."""
        factors = self._factors(group) if product else [group]
        if is_ragged:
            ranked = [column_ranks(f.reshape(-1, f.shape[-1]), self.order) for f in factors]
            ranks = min((r for r in ranked if r is not None), key=lambda r: r[1], default=None)
            if ranks is not None:
                result = np.full_like(group, HOLE)
                is_term = group != HOLE
                rows = np.indices(group.shape)[:-1]
                places = ranks[0].reshape(group.shape)
                result[*(r[is_term] for r in rows), places[is_term]] = group[is_term]
                return result
        return np.take_along_axis(group, np.argsort(self.order[self._shared(factors)], axis=-1, kind="stable"), -1)

    def _shared(self, factors: list[Ids]) -> Ids:
        """Return the factor of products that most rows have in common."""
        if len(factors) == 1:
            return factors[0]
        rows = [len(np.unique(np.sort(f.reshape(-1, f.shape[-1]), axis=1), axis=0)) for f in factors]
        if rows[0] == rows[1]:  # one row: the factor that is computed or an input of the example, not a parameter
            return factors[0] if self._is_data(factors[0]) else factors[1]
        return factors[int(np.argmin(rows))]

    def _is_product(self, ids: Ids) -> bool:
        return self.nodes[ids[ids != HOLE][0]].op is ew.mul

    def _is_data(self, ids: Ids) -> bool:
        node = self.nodes[ids[ids != HOLE][0]]
        return node.op is not st.item or not node.arg(0).attrs.get("parameter", False)

    # Making, from the leaves up.

    def _make(self, each: Key) -> Node:
        if each in self.copies:
            source, positions = self.copies[each]
            return take_as_view(self.tensors[source], positions)
        plan = self.plans[each]
        values: list[Node] = []
        for part in plan.parts:
            value = self._value(part.ids)
            if part.reduction:
                value = value if part.held is None else self._masked(value, part.held, IDENTITIES[plan.op])
                value = part.reduction(value, axes=(value.type.rank - 1,))
            values.append(value)
        if plan.op in REDUCTIONS:
            total = values[0]
            for value in values[1:]:
                total = plan.op(total, value)
        else:
            total = plan.op(*values, **plan.attrs)
        return total if plan.holes is None else self._with_stand_ins(total, plan.holes)

    def _masked(self, value: Node, held: Mask, other: float) -> Node:
        """Return ``value`` where a reduction reads it, and else ``other``.

        For a product, in a factor that varies alike.
        """
        if value.op is ew.mul and other == 0:
            for i, factor in enumerate(value.args):
                if factor.op is not st.broadcast:
                    continue
                axes = factor.attrs["axes"]
                dropped = tuple(axis for axis in range(held.ndim) if axis not in axes)
                if (held == held.max(dropped, keepdims=True)).all():
                    inner = factor.arg(0)
                    hidden = where(self._mask(held.max(dropped)), inner, full_like(inner, other))
                    factors = list(value.args)
                    factors[i] = st.broadcast(hidden, shape=value.type.shape, axes=axes)
                    return ew.mul(*factors)
        return where(self._mask(held), value, full_like(value, other))

    def _mask(self, held: Mask) -> Node:
        """Return a constant mask, broadcast along the axes on which it does not depend."""
        core, axes = invariant(held.astype(np.int64))
        mask = self.graph.constant(core.astype(bool), boolean)
        return mask if core.shape == held.shape else st.broadcast(mask, shape=held.shape, axes=axes)

    def _with_stand_ins(self, value: Node, holes: Mask) -> Node:
        """Put the values of stand-ins into holes. A hole has no gradient, as a mask hides its results."""
        places = stand_ins(holes)
        own, others = (np.stack(np.unravel_index(p, holes.shape)) for p in (np.flatnonzero(holes), places[holes]))
        moved = np.flatnonzero((own != others).any(1)).tolist()
        if len(moved) == 1 and len(np.unique(others[moved[0]])) == 1:
            axis, place = moved[0], int(others[moved[0], 0])
            kept = tuple(a for a in range(holes.ndim) if a != axis)
            row = st.reshape(st.part(value, axis, place, 1), shape=tuple(value.type.shape[a] for a in kept))
            other = st.broadcast(stop_gradient(row), shape=value.type.shape, axes=kept)
            return where(self._mask(~holes), value, other)
        return take_as_view(value, places)

    def _value(self, ids: Ids) -> Node:
        """Return the tensor of an array of scalars."""
        core, axes = invariant(ids)
        value = self.tensors.get(key(core)) or self._leaf(filled(core))
        return st.broadcast(value, shape=ids.shape, axes=axes) if core.shape != ids.shape else value

    def _leaf(self, ids: Ids) -> Node:
        found = np.unique(self.klass[ids])
        if len(found) > 1:
            return self._mix(ids, found)
        first = self.nodes[int(ids.flat[0])]
        if first.op is st.item:
            index = np.array([self.nodes[i].attrs["index"] for i in ids.reshape(-1).tolist()], np.int64)
            index = index.reshape(ids.shape)
            flat = first.arg(0)
            if flat.attrs.get("parameter") and index.size < flat.type.shape[0]:
                return st.take(flat, indices=Literal(index, i64), lead=0)  # split_parameters finds its parts by it
            return take_as_view(flat, index)
        if first.op is st.const and first.type.rank == 0:
            values = [self.nodes[i].attrs["value"].array for i in ids.reshape(-1).tolist()]
            return self.graph.constant(np.array(values).reshape(ids.shape), first.type.dtype)
        assert ids.size == 1, f"bug in mlaot: raise_tensors has no value for {first}"
        return first

    def _mix(self, ids: Ids, found: Ids) -> Node:
        """Compute each kind of scalar of an array separately, then combine them."""
        groups = [np.unique(ids[self.klass[ids] == klass]) for klass in found.tolist()]
        values = [self._value(group) for group in groups]
        flat = [v if v.type.rank else st.reshape(v, shape=(1,)) for v in values]
        return take_as_view(st.concat(*flat, axis=0), positions_in(np.concatenate(groups), ids))


def _positions(planned: Ids, ids: Ids) -> Ids:
    """Return the positions of the scalars of ``ids`` in the flat ``planned``; that of a hole is arbitrary."""
    if planned.size == ids.size:
        same = planned.reshape(ids.shape)
        if ((ids == HOLE) | (ids == same)).all():
            return np.arange(ids.size).reshape(ids.shape)
    return positions_in(planned, filled(ids))


def _of_stand_ins(array: Ids | Mask, holes: Mask) -> Any:
    """Return an array, whose first axes are those of ``holes``, with the elements of stand-ins in place of holes."""
    if not holes.any():
        return array
    return array.reshape(holes.size, *array.shape[holes.ndim :])[stand_ins(holes)]


def _is_foreign(array: Ids, holes: Mask) -> bool:
    """Tell whether a value that is constant along axes that ``invariant`` drops differs in holes from stand-ins."""
    if not holes.any():
        return False
    core, axes = invariant(array)
    shape = [array.shape[i] if i in axes else 1 for i in range(array.ndim)]
    value = np.broadcast_to(filled(core).reshape(shape), array.shape)
    return bool((value != _of_stand_ins(value, holes)).any())
