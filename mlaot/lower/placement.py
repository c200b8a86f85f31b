"""Values that are written where they are wanted: the parts of a stack or a concatenation, a result seen otherwise.

v0 = relu(x)                        v0 -> elements 0.. of v2
v1 = exp(y)                 =>      v1 -> elements 8.. of v2
v2 = concat(v0, v1)                 (nothing is left to copy)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mlaot.ir import Dim, Node
from mlaot.lower.fuse import Group
from mlaot.lower.program import Buffer
from mlaot.ops import elementwise as ew
from mlaot.ops import structure as st
from mlaot.ops.axes import axes_of
from mlaot.ops.kinds import base_of, is_view
from mlaot.ops.views import Part
from mlaot.schedule.tuning import SCATTERED_ELEMENTS

Stores = dict[Node, list[Buffer]]


def place(
    group: Group,
    home: Mapping[Node, Group],
    stores: Stores,
    fixed: set[Node],
    merged: set[Node],
    read: Mapping[Node, list[Node]],
) -> None:
    """Give values that the group only copies a place in the copy; ``placed`` says what is then not to be copied.

    ``fixed`` are values that others want elsewhere, ``merged`` those that are to lie without gaps; ``read`` says who
    reads a value.
    """
    node = group.nodes[0]
    if node.op.parts is None or len(group.nodes) != 1 or len(stores.get(node, ())) != 1:
        return
    (buffer,) = stores[node]
    if buffer.whole.where not in ("output", "work"):
        return
    places: dict[Node, dict[int, Buffer]] = {}
    for i, part in enumerate(node.op.parts(node, buffer.strides)):
        base, found = base_of(node.arg(i)), _unviewed(node.arg(i), _part(buffer, node.arg(i), part))
        if found is None or base not in home or base in fixed | merged or not base.type.rank:
            continue
        is_single = home[base].kind == "single"
        if (node.op is ew.copy or (is_single and base.op is not st.fold)) and read[base] != [node]:
            continue
        if home[base].nodes[0].op in (st.pad, st.take, st.put_add):  # these write more than once, or by tables
            continue
        if not is_single and found.strides[-1] != 1 and found.shape[-1] not in range(SCATTERED_ELEMENTS):  # no vectors
            continue
        places.setdefault(base, {})[i] = found
    for base, found_at in places.items():
        if len(found_at) == read[base].count(node):  # the node would read what it writes
            stores[base] = [*[b for b in stores.get(base, []) if b.within is not None], *found_at.values()]
            group.placed |= set(found_at)


def read_by(groups: Sequence[Group]) -> dict[Node, list[Node]]:
    """The nodes that read each value, themselves or through views."""
    found: dict[Node, list[Node]] = {}
    for group in groups:
        for node in group.nodes:
            for a in node.args:
                found.setdefault(base_of(a), []).append(node)
    return found


def part_of(buffer: Buffer, shape: Sequence[Dim], strides: Sequence[Dim], start: Dim, *, dense: bool) -> Buffer:
    """The elements of ``buffer`` from ``start`` on, by other strides."""
    return Buffer(buffer.name, buffer.dtype, tuple(shape), tuple(strides), "slice", dense, buffer, start)


def _part(buffer: Buffer, argument: Node, part: Part) -> Buffer:
    """Where an argument lies in the buffer of the result."""
    if part == (buffer.strides, 0, False):
        return buffer
    dense = buffer.dense or part.gapless
    return part_of(buffer, argument.type.shape, part.strides, part.offset, dense=dense)


def _unviewed(node: Node, buffer: Buffer) -> Buffer | None:
    """The elements behind a view that lies in ``buffer``; None where the view does not show all of them."""
    while is_view(node):
        inner, axes = node.arg(0), axes_of(node)
        (labels,) = axes.args
        new = [d for label, d in zip(axes.result, node.type.shape, strict=True) if label not in labels]
        if axes.whole or any(d != 1 for d in new):
            return None
        strides = [buffer.strides[axes.result.index(label)] if label in axes.result else 1 for label in labels]
        whole = strides[-1:] == [*buffer.strides[-1:]]
        buffer = part_of(buffer, inner.type.shape, strides, 0, dense=buffer.dense or not whole)
        node = inner
    return buffer
