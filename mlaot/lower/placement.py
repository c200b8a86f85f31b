"""Values whose kernels write them where they are wanted: parts of a concatenation, a result behind a view.

v0 = relu(x)                        v0 -> elements 0.. of v2
v1 = exp(y)                 =>      v1 -> elements 8.. of v2
v2 = concat(v0, v1)                 (nothing is left to copy)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mlaot.ir import Dim, Node
from mlaot.lower.fuse import Group
from mlaot.lower.program import Buffer
from mlaot.ops import elementwise as ew
from mlaot.ops import structure as st
from mlaot.ops.kinds import base_of, is_side_by_side, is_view, puts_in_ones
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
    """Let the values that a group only copies be computed where the copy goes; ``placed`` has those arguments.

    ``fixed``: values that are wanted elsewhere; ``merged``: values that must lie without gaps; ``read``: readers of
    values.
    """
    node = group.nodes[0]
    parts_of = PART_BUFFERS.get(node.op.name)
    if parts_of is None or len(group.nodes) != 1 or len(stores.get(node, ())) != 1:
        return
    (buffer,) = stores[node]
    if buffer.root.where not in ("output", "work"):
        return
    places: dict[Node, dict[int, Buffer]] = {}
    for i, target in enumerate(parts_of(node, buffer)):
        base, part = base_of(node.arg(i)), _behind_views(node.arg(i), target)
        if part is None or base not in group_of or base in fixed | merged or not base.type.rank:
            continue
        is_single = group_of[base].kind == "single"
        if (node.op is ew.copy or (is_single and base.op is not st.fold)) and read[base] != [node]:
            continue
        if group_of[base].nodes[0].op in (
            st.pad,
            st.take,
            st.put_add,
        ):  # they write elements twice, or by tables of offsets
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
    """Return the elements of ``buffer`` from ``start`` on, by other strides."""
    return Buffer(buffer.name, buffer.dtype, tuple(shape), tuple(strides), "slice", dense, buffer, start)


def _of_concat(node: Node, buffer: Buffer) -> list[Buffer]:
    axis = node.attrs.get("axis", 0)
    at: Dim = 0
    parts = []
    for a in node.args:
        type_ = a.find().type
        start, dense = buffer.strides[axis] * at, buffer.dense or axis == type_.rank - 1
        parts.append(part_buffer(buffer, type_.shape, buffer.strides, start, dense=dense))
        at = type_.shape[axis] + at
    return parts


def _of_stack(node: Node, buffer: Buffer) -> list[Buffer]:
    axis = node.attrs.get("axis", 0)
    strides = (*buffer.strides[:axis], *buffer.strides[axis + 1 :])
    shape = (*buffer.shape[:axis], *buffer.shape[axis + 1 :])
    dense = buffer.dense or axis == len(shape)
    return [part_buffer(buffer, shape, strides, buffer.strides[axis] * i, dense=dense) for i in range(len(node.args))]


def _of_fold(node: Node, buffer: Buffer) -> list[Buffer]:
    """Return the windows of the result, if they do not overlap."""
    if not is_side_by_side(node):
        return []
    axes = node.attrs["axes"]
    steps = dict(zip(axes, node.attrs["sizes"], strict=True))
    outer = [s * steps.get(i, 1) for i, s in enumerate(buffer.strides)]
    strides = (*outer, *[buffer.strides[a] for a in axes])
    return [part_buffer(buffer, node.arg(0).type.shape, strides, 0, dense=True)]


def _of_pad(node: Node, buffer: Buffer) -> list[Buffer]:
    start: Dim = 0
    for first, stride in zip(node.attrs["low"], buffer.strides, strict=True):
        start = stride * first + start
    x = node.arg(0).type
    return [] if any(node.attrs["interior"]) else [part_buffer(buffer, x.shape, buffer.strides, start, dense=True)]


PART_BUFFERS: dict[str, Callable[[Node, Buffer], list[Buffer]]] = {
    "concat": _of_concat,
    "stack": _of_stack,
    "fold": _of_fold,
    "pad": _of_pad,
    "copy": lambda _, buffer: [buffer],
}


def _behind_views(node: Node, buffer: Buffer) -> Buffer | None:
    """Return the buffer of the value behind a view that lies in ``buffer``, or None if the view omits elements."""
    while is_view(node):
        inner = node.arg(0)
        if node.op is st.transpose:
            order = sorted(range(node.type.rank), key=node.attrs["perm"].__getitem__)
            strides = [buffer.strides[i] for i in order]
        elif node.op is st.reshape:
            if not puts_in_ones(node):
                return None
            kept = iter([s for s, d in zip(buffer.strides, node.type.shape, strict=True) if d != 1])
            strides = [1 if d == 1 else next(kept) for d in inner.type.shape]
        else:
            return None
        is_adjacent = strides[-1:] == [*buffer.strides[-1:]]
        buffer = part_buffer(buffer, inner.type.shape, strides, 0, dense=buffer.dense or not is_adjacent)
        node = inner
    return buffer
