"""Values that kernels write directly to their destination: parts of a concatenation, or results that are views.

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
from mlaot.ops.kinds import base_of, is_view
from mlaot.ops.sorting import argsort, sort
from mlaot.ops.views import Part
from mlaot.schedule.tuning import SCATTERED_ELEMENTS

Stores = dict[Node, list[Buffer]]


def place_parts(
    group: Group,
    group_of: Mapping[Node, Group],
    stores: Stores,
    fixed: set[Node],
    merged: set[Node],
    read: Mapping[Node, list[Node]],
) -> None:
    """Place the values that a group only copies where the copy goes. ``placed`` collects these arguments.

    ``fixed`` are the values with another destination, ``merged`` the values that must have no gaps, and ``read`` the
    readers of values.
    """
    node = group.nodes[0]
    if node.op.parts is None or len(group.nodes) != 1 or len(stores.get(node, ())) != 1:
        return
    (buffer,) = stores[node]
    if buffer.root.where not in ("output", "work"):
        return
    places: dict[Node, dict[int, Buffer]] = {}
    for i, target in enumerate(node.op.parts(node, buffer.strides)):
        base, part = base_of(node.arg(i)), _behind_views(node.arg(i), _part(buffer, node.arg(i), target))
        if part is None or base not in group_of or base in fixed or not base.type.rank:
            continue
        if base in merged and any(reader is not node for reader in read[base]):
            continue
        is_single = group_of[base].kind == "single"
        if (node.op is ew.copy or (is_single and base.op is not st.fold)) and read[base] != [node]:
            continue
        if group_of[base].nodes[0].op in (st.pad, st.take, st.put_add):  # they write twice, or by tables of offsets
            continue
        if group_of[base].nodes[0].op in (sort, argsort) and part.strides[-1] != 1:  # they sort rows where they lie
            continue
        is_scattered = part.strides[-1] != 1 and part.shape[-1] not in range(SCATTERED_ELEMENTS)
        if is_scattered and not is_single:  # which would write vectors
            continue
        places.setdefault(base, {})[i] = part
    for base, parts_in_place in places.items():
        if len(parts_in_place) == read[base].count(node):  # else the node would read what it writes
            stores[base] = [*[b for b in stores.get(base, []) if b.within is not None], *parts_in_place.values()]
            group.placed |= set(parts_in_place)


def readers_by_value(groups: Sequence[Group]) -> dict[Node, list[Node]]:
    """Return the nodes that read each value, directly or through views."""
    readers: dict[Node, list[Node]] = {}
    for group in groups:
        for node in group.nodes:
            for a in node.args:
                readers.setdefault(base_of(a), []).append(node)
    return readers


def part_buffer(buffer: Buffer, shape: Sequence[Dim], strides: Sequence[Dim], start: Dim, *, dense: bool) -> Buffer:
    """Return the elements of ``buffer`` from ``start`` on with other strides."""
    return Buffer(buffer.name, buffer.dtype, tuple(shape), tuple(strides), "slice", dense, buffer, start)


def _part(buffer: Buffer, argument: Node, part: Part) -> Buffer:
    """Return the buffer of an argument inside of that of the result."""
    if part == (buffer.strides, 0, False) and argument.type.shape == buffer.shape:  # a copy of it all
        return buffer
    dense = buffer.dense or part.gapless
    return part_buffer(buffer, argument.type.shape, part.strides, part.offset, dense=dense)


def _behind_views(node: Node, buffer: Buffer) -> Buffer | None:
    """Return the buffer of the value behind a view that lies in ``buffer``, or None if the view omits elements."""
    while is_view(node):
        inner = node.arg(0)
        if node.op.parts is not None:
            parts = node.op.parts(node, buffer.strides)
            if not parts:
                return None
            buffer, node = _part(buffer, inner, parts[0]), inner
            continue
        if node.op.axes is None:
            return None
        axes = node.op.axes.of(node)
        (labels,) = axes.args
        new = [d for label, d in zip(axes.result, node.type.shape, strict=True) if label not in labels]
        if axes.whole or any(d != 1 for d in new):
            return None
        strides = [buffer.strides[axes.result.index(label)] if label in axes.result else 1 for label in labels]
        is_adjacent = strides[-1:] == [*buffer.strides[-1:]]
        buffer = part_buffer(buffer, inner.type.shape, strides, 0, dense=buffer.dense or not is_adjacent)
        node = inner
    return buffer
