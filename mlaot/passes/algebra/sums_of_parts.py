"""Concatenate terms of sums that are side by side, without storing and adding zeros. Reassociates other terms.

    v1 = pad(a, 0.0, low=(0, 0), high=(0, 8)) : f32[n,12]
    v2 = pad(b, 0.0, low=(0, 4), high=(0, 0)) : f32[n,12]      =>      v3 = concat(a, b, axis=1) : f32[n,12]
    v3 = add(v1, v2)

Such a sum is the gradient of a value that was split, into the gates of a recurrent unit or into queries, keys and
values. Without other terms the pass is bit-exact, except for -0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from mlaot.ir import Dim, Graph, Node, users
from mlaot.ops import elementwise as ew
from mlaot.ops import structure as st
from mlaot.passes.algebra.simplify import number
from mlaot.passes.base import pass_over
from mlaot.passes.subgraphs import everywhere


@pass_over("graphs", after=("entries",))
def sums_of_parts(graph: Graph) -> None:
    """Apply the rule of this file to every sum."""
    everywhere(_join_sums, graph)


@dataclass(frozen=True)
class _Part:
    """Values from ``low`` on along an axis, with zeros before them and ``high`` zeros after them."""

    values: tuple[Node, ...]
    axis: int
    low: Dim
    high: Dim

    @property
    def end(self) -> Dim:
        return sum((x.type.shape[self.axis] for x in self.values), start=self.low)

    def value(self) -> Node:
        return st.concat(*self.values, axis=self.axis) if len(self.values) > 1 else self.values[0]

    def padded(self) -> Node:
        x = self.value()
        if self.low == 0 == self.high:
            return x
        low, high = ([n if i == self.axis else 0 for i in range(x.type.rank)] for n in (self.low, self.high))
        zero, none = x.graph.constant(0, x.type.dtype), (0,) * x.type.rank
        return st.pad(x, zero, low=tuple(low), high=tuple(high), interior=none)


def _join_sums(graph: Graph) -> None:
    used, kept = users(graph.nodes()), set(graph.roots())

    def is_inner(node: Node) -> bool:
        """Tell whether a node is a term of one sum only."""
        return len(used.get(node, ())) == 1 and node not in kept

    def terms(node: Node) -> list[Node]:
        found, stack = list[Node](), [a.find() for a in reversed(node.args)]
        while stack:
            term = stack.pop()
            if term.op is ew.add and is_inner(term):
                stack += [a.find() for a in reversed(term.args)]
            else:
                found.append(term)
        return found

    for node in graph.nodes():
        if node.op is not ew.add or (is_inner(node) and used[node][0].op is ew.add):
            continue
        found, others = list[_Part](), list[Node]()
        for term in terms(node):
            part = _part_of(term)
            if part is None:
                others.append(term)
            else:
                found.append(part)
        joined = _joined(_added(found))
        if len(joined) < len(found):
            with graph.like(node):
                graph.forward(node, reduce(ew.add, [*[part.padded() for part in joined], *others]))


def _part_of(node: Node) -> _Part | None:
    """Return the part that a node pads with zeros along one axis."""
    if node.op is not st.pad or any(node.attrs["interior"]) or number(node.arg(1)) != 0.0:
        return None
    pairs = [*zip(node.attrs["low"], node.attrs["high"], strict=True)]
    padded = [i for i, pair in enumerate(pairs) if pair != (0, 0)]
    if len(padded) != 1:
        return None
    x, (axis,) = node.arg(0), padded
    values = tuple(a.find() for a in x.args) if x.op is st.concat and x.attrs.get("axis", 0) == axis else (x,)
    return _Part(values, axis, *pairs[axis])


def _added(parts: Iterable[_Part]) -> list[_Part]:
    """Add up parts at the same place."""
    found: dict[tuple[int, Dim, Dim], _Part] = {}
    for part in parts:
        place = part.axis, part.low, part.high
        known = found.get(place)
        found[place] = part if known is None else replace(known, values=(ew.add(known.value(), part.value()),))
    return [*found.values()]


def _joined(parts: Sequence[_Part]) -> list[_Part]:
    """Join parts that begin where others end into rows; each part is in one row."""
    begins: dict[tuple[int, Dim], list[_Part]] = {}
    for part in parts:
        begins.setdefault((part.axis, part.low), []).append(part)
    ends = {(part.axis, part.end) for part in parts}
    found: list[_Part] = []
    for first in sorted(parts, key=lambda part: (part.axis, part.low) in ends):
        row, place = list[_Part](), (first.axis, first.low)
        while begins.get(place):
            row.append(begins[place].pop(0))
            place = first.axis, row[-1].end
        if row:
            found.append(replace(row[0], values=tuple(x for part in row for x in part.values), high=row[-1].high))
    return found
