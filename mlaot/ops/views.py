"""Places of elements in memory: those of a view in its argument, and those of arguments in a result that copies them.

Strides and offsets are in elements, and may contain named dims.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul

from mlaot.ir import Dim, Node
from mlaot.ir.layouts import Part as Part
from mlaot.ir.layouts import Strides as Strides
from mlaot.ir.layouts import View as View
from mlaot.ops.axes import regroup


def broadcast_view(node: Node, inner: Strides) -> View:
    strides: list[Dim] = [0] * node.type.rank
    for stride, axis in zip(inner, node.attrs["axes"], strict=True):
        strides[axis] = stride
    return View(tuple(strides))


def transpose_view(node: Node, inner: Strides) -> View:
    return View(tuple(inner[axis] for axis in node.attrs["perm"]))


def whole_view(node: Node, inner: Strides) -> View:
    return View(tuple(inner))


def slice_view(node: Node, inner: Strides) -> View:
    offset: Dim = 0
    for start, stride in zip(node.attrs["start"], inner, strict=True):
        offset = stride * start + offset
    return View(tuple(map(mul, inner, node.attrs["step"])), offset, whole=False)


def window_view(node: Node, inner: Strides) -> View:
    """Return strides with which element k of the window at p is at p * stride + k * dilation."""
    strides, inside = list(inner), []
    for axis, stride, dilation in zip(*[node.attrs[key] for key in ("axes", "strides", "dilations")], strict=True):
        inside.append(inner[axis] * dilation)
        strides[axis] = inner[axis] * stride
    return View((*strides, *inside), whole=False)


def element_view(node: Node, inner: Strides) -> View:
    """Return the view of one element after the first axes."""
    lead = node.attrs.get("lead", 0)
    rest = int(node.attrs["index"] if "index" in node.attrs else node.attrs["indices"].array)
    offset: Dim = 0
    for extent, stride in zip(reversed(node.arg(0).type.shape[lead:]), reversed(inner[lead:]), strict=True):
        assert isinstance(extent, int), f"bug in mlaot: {node} of a named extent"
        offset = stride * (rest % extent) + offset
        rest //= extent
    return View(tuple(inner[:lead]), offset)


def reshape_view(node: Node, inner: Strides) -> View:
    """Return strides of each group of axes without gaps between them; axes of one element need none."""
    source, target = node.arg(0).type.shape, node.type.shape
    groups = regroup(source, target) or []
    strides = _regrouped(groups, inner, source, target)
    assert strides is not None, f"bug in mlaot: {node} of what has gaps"
    whole = not any(inner[before[-1]] == 1 and len(after) > 1 for before, after in groups)
    return View(strides, whole=whole)


def reshape_parts(node: Node, outer: Strides) -> list[Part]:
    """Return the place of the argument in the result; nothing if axes that it has merged have gaps there."""
    source, target = node.arg(0).type.shape, node.type.shape
    groups = regroup(source, target)
    strides = _regrouped([(after, before) for before, after in groups or ()], outer, target, source)
    if groups is None or strides is None:
        return []
    are_rows_kept = groups[-1:] == [([len(source) - 1], [len(target) - 1])]
    return [Part(strides, gapless=not are_rows_kept)]


def _regrouped(
    groups: Sequence[tuple[list[int], list[int]]], strides: Strides, extents: Sequence[Dim], others: Sequence[Dim]
) -> tuple[Dim, ...] | None:
    """Return the strides of the ``others`` in each group of axes with the same elements; None if it has gaps.

    In a group without gaps, stride[i] = stride[i + 1] * extent[i + 1].
    """
    result: list[Dim] = [0] * len(others)
    for before, after in groups:
        step = end = strides[before[-1]]
        for axis in reversed(before):
            if strides[axis] != end:
                return None
            end = end * extents[axis]
        for axis in reversed(after):
            result[axis] = step
            step = step * others[axis]
    return tuple(result)


def copy_parts(node: Node, outer: Strides) -> list[Part]:
    return [Part(tuple(outer), gapless=False)]


def concat_parts(node: Node, outer: Strides) -> list[Part]:
    axis = node.attrs.get("axis", 0)
    parts, at = [], 0
    for a in node.args:
        parts.append(Part(tuple(outer), outer[axis] * at, axis == node.type.rank - 1))
        at = a.find().type.shape[axis] + at
    return parts


def stack_parts(node: Node, outer: Strides) -> list[Part]:
    axis = node.attrs.get("axis", 0)
    strides = (*outer[:axis], *outer[axis + 1 :])
    return [Part(strides, outer[axis] * i, axis == len(strides)) for i in range(len(node.args))]


def pad_parts(node: Node, outer: Strides) -> list[Part]:
    """Return the place of the argument in the padded result; nothing if there is padding between elements."""
    start: Dim = 0
    for first, stride in zip(node.attrs["low"], outer, strict=True):
        start = stride * first + start
    return [] if any(node.attrs["interior"]) else [Part(tuple(outer), start)]


def fold_parts(node: Node, outer: Strides) -> list[Part]:
    """Return the places of the windows in the result, if they are side by side."""
    if not is_side_by_side(node):
        return []
    axes = node.attrs["axes"]
    steps = dict(zip(axes, node.attrs["sizes"], strict=True))
    strides = [stride * steps.get(axis, 1) for axis, stride in enumerate(outer)]
    return [Part((*strides, *[outer[axis] for axis in axes]))]


def is_side_by_side(fold: Node) -> bool:
    """Tell whether each element of a fold is in one window, as each window begins where its neighbour ends."""
    axes, sizes, strides, dilations, shape = (
        fold.attrs[key] for key in ("axes", "sizes", "strides", "dilations", "shape")
    )
    places = fold.arg(0).type.shape
    return sizes == strides and all(
        shape[a] == places[a] * k and (d == 1 or k == 1) for a, k, d in zip(axes, sizes, dilations, strict=True)
    )
