"""Join what sums put side by side: zeros around each part are neither stored nor added. Bit-exact but for -0.

    v1 = pad(a, 0.0, low=(0, 0), high=(0, 8)) : f32[n,12]
    v2 = pad(b, 0.0, low=(0, 4), high=(0, 0)) : f32[n,12]      =>      v3 = concat(a, b, axis=1) : f32[n,12]
    v3 = add(v1, v2)

That is the gradient of a value that was split: into the gates of a recurrent unit, into queries, keys and values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

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
    """Values side by side from ``low`` on along an axis, with zeros before and, to the number of ``high``, behind."""

    values: tuple[Node, ...]
    axis: int
    low: Dim
    high: Dim

    def added(self, other: _Part) -> _Part | None:
        """Return the sum with another part at the same place."""
        if (self.axis, self.low, self.high) != (other.axis, other.low, other.high):
            return None
        return replace(self, values=(ew.add(self.value(), other.value()),))

    def joined(self, other: _Part) -> _Part | None:
        """Return this part with another one that begins where it ends."""
        end = sum((x.type.shape[self.axis] for x in self.values), start=self.low)
        if self.axis != other.axis or end != other.low:
            return None
        return replace(self, values=(*self.values, *other.values), high=other.high)

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

    def terms(node: Node) -> Iterator[Node]:
        for a in (arg.find() for arg in node.args):
            yield from terms(a) if a.op is ew.add and is_inner(a) else (a,)

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
        joined = _combine(_combine(found, _Part.added), _Part.joined)
        if len(joined) < len(found):
            graph.origin = node.origin
            graph.forward(node, _total([*[part.padded() for part in joined], *others]))
    graph.origin = ""


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


def _combine(parts: Sequence[_Part], both_of: Callable[[_Part, _Part], _Part | None]) -> list[_Part]:
    """Replace pairs of parts by what they make together, until there are no such pairs."""
    for i, first in enumerate(parts):
        for j, second in enumerate(parts):
            if i != j and (both := both_of(first, second)) is not None:
                return _combine([both, *[part for k, part in enumerate(parts) if k not in (i, j)]], both_of)
    return [*parts]


def _total(terms: list[Node]) -> Node:
    first, *rest = terms
    for term in rest:
        first = ew.add(first, term)
    return first
