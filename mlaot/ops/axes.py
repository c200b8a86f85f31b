"""Maps of axes through an op: the axis of the result for each axis of an argument, and the op in another layout.

    op                               arguments    result    whole
    mul(x, y)                        ab, ab       ab
    broadcast(x, axes=(1,))          b            ab
    sum(x, axes=(0,))                ab           b
    transpose(x, perm=(1, 0))        ab           ba
    contract(x, y, spec=ab,bc->ac)   ab, bc       ac
    cumsum(x, axis=1)                ab           ab        b
    window(x, axes=(1,), ..)         ab           abc       b
    gather(x, indices, lead=1)       abc, ad      adc       b

An axis of an argument whose label the result also has is *kept*: an element of the result depends only on the same
element along this axis. A label that only arguments have is *summed*, and one that only the result has is *new*. Labels
in ``whole`` are none of these: the op cuts, counts, sorts or scans along them. These are the indexing maps of MLIR's
linalg, with a name for what they cannot express.

A pass that needs an op in another layout names the axes of its arguments by the same labels in another order. There may
be new labels among them (a batch, the lanes of a block), and some may be missing (axes of one element). It gets the
op's ``Form``: its attributes in that layout, the layouts of its arguments, and that of its result. ``relayout.py``
applies the form. So an op defines once how axes pass through it, and batching, layouts and views follow.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from functools import cache
from typing import Any

from mlaot.ir import Dim, Node
from mlaot.ir.dims import names, product, substitute
from mlaot.ir.graph import Axes as Axes
from mlaot.ir.graph import Use as Use
from mlaot.ir.layouts import AxisMap as AxisMap
from mlaot.ir.layouts import Form as Form
from mlaot.ir.layouts import Label as Label
from mlaot.ir.layouts import Labels as Labels


def axes_of(node: Node) -> AxisMap:
    """Return the map of a node whose op has one."""
    assert node.op.axes is not None, f"bug in mlaot: no axes of {node.op}"
    return node.op.axes.of(node)


def ranks(node: Node) -> list[int]:
    return [a.find().type.rank for a in node.args]


def insert_labels(labels: Labels, own: Sequence[Label], into: Sequence[Label]) -> Labels:
    """Insert the further ``labels`` of a layout, each before the label of ``own`` that follows it in the layout."""
    result = list(into)
    for i, label in enumerate(labels):
        if label not in own:
            following = next((a for a in labels[i + 1 :] if a in own and a in result), None)
            result.insert(len(result) if following is None else result.index(following), label)
    return tuple(result)


def without(labels: Iterable[Label], dropped: Container[Label]) -> Labels:
    return tuple(label for label in labels if label not in dropped)


def _elementwise_of(node: Node) -> AxisMap:
    labels = tuple(range(node.type.rank))
    return AxisMap((labels,) * len(node.args), labels)


def _elementwise_form(use: Use) -> Form:
    layout = use.wanted or use.longest
    return Form((layout,) * len(use.layouts), use.node.attrs, layout)


ELEMENTWISE = Axes(_elementwise_of, _elementwise_form, elementwise=True)
SAME = Axes(_elementwise_of, _elementwise_form)  # of a view


def along(name: str, *, removed: bool = False) -> Axes:
    """Return the axes of an op along the axis that attribute ``name`` gives; ``removed`` if the result lacks it."""

    def of(node: Node) -> AxisMap:
        axis = node.attrs[name]
        labels = tuple(range(node.arg(0).type.rank))
        return AxisMap((labels,) * len(node.args), without(labels, {axis} if removed else ()), frozenset({axis}))

    def form(use: Use) -> Form | None:
        axis, layout = use.node.attrs[name], use.longest
        if axis not in layout:
            return None
        attrs = {**use.node.attrs, name: layout.index(axis)}
        return Form((layout,) * len(use.layouts), attrs, without(layout, {axis} if removed else ()))

    return Axes(of, form)


def _reduction_of(node: Node) -> AxisMap:
    labels = tuple(range(node.arg(0).type.rank))
    return AxisMap((labels,), without(labels, node.attrs["axes"]))


def _reduction_form(use: Use) -> Form:
    (layout,), summed = use.layouts, use.node.attrs["axes"]
    axes = tuple(i for i, label in enumerate(layout) if label in summed)
    return Form((layout,), {**use.node.attrs, "axes": axes} if axes or not summed else None, without(layout, summed))


REDUCTION = Axes(_reduction_of, _reduction_form, reduces=True)


def each_axis(**neutral: int | None) -> Axes:
    """Return the axes of an op whose attributes have a number per axis; ``neutral`` numbers keep it (None: extent)."""

    def of(node: Node) -> AxisMap:
        x = node.arg(0).type
        whole = {
            axis
            for axis, extent in enumerate(x.shape)
            if any(node.attrs[key][axis] != (extent if value is None else value) for key, value in neutral.items())
        }
        labels = tuple(range(x.rank))
        return AxisMap((labels, *[()] * (len(node.args) - 1)), labels, frozenset(whole))

    def form(use: Use) -> Form | None:
        layout, *scalars = use.layouts
        if any(scalars):
            return None

        def number(key: str, label: Label) -> Any:
            if label in use.map.whole:
                return use.node.attrs[key][label]
            return use.extents[label] if neutral[key] is None else neutral[key]

        attrs = {key: tuple(number(key, label) for label in layout) for key in neutral}
        return Form((layout, *scalars), {**use.node.attrs, **attrs}, layout)

    return Axes(of, form)


def _transpose_of(node: Node) -> AxisMap:
    return AxisMap((tuple(range(node.type.rank)),), node.attrs["perm"])


def _transpose_form(use: Use) -> Form:
    """Order the op's own axes by its result, in the places that they have; other axes remain in place."""
    (layout,) = use.layouts
    order = iter(label for label in use.map.result if label in layout)
    result = use.wanted or tuple(next(order) if label in use.map.result else label for label in layout)
    return Form((layout,), {"perm": tuple(layout.index(label) for label in result)}, result)


TRANSPOSE = Axes(_transpose_of, _transpose_form)


def _broadcast_of(node: Node) -> AxisMap:
    return AxisMap((node.attrs["axes"],), tuple(range(node.type.rank)))


def _broadcast_form(use: Use) -> Form:
    (layout,) = use.layouts
    result = use.wanted or insert_labels(layout, use.map.result, use.map.result)
    own = tuple(label for label in result if label in layout)
    attrs = {"shape": tuple(map(use.extent, result)), "axes": tuple(result.index(label) for label in own)}
    return Form((own,), attrs, result)


BROADCAST = Axes(_broadcast_of, _broadcast_form)


@cache
def regroup(source: tuple[Dim, ...], target: tuple[Dim, ...]) -> list[tuple[list[int], list[int]]] | None:
    """Divide the axes of a reshape into the smallest groups of both shapes that hold the same elements.

    Axes of one element are in no group. The result is None if the shapes hold no elements, or extents cannot be
    compared.
    """
    groups: list[tuple[list[int], list[int]]] = []
    left = [i for i, d in enumerate(source) if d != 1]
    right = [i for i, d in enumerate(target) if d != 1]
    if 0 in source or 0 in target:
        return None
    while left and right:
        before, after = [left.pop(0)], [right.pop(0)]
        sizes = source[before[0]], target[after[0]]
        while sizes[0] != sizes[1]:
            if _estimate(sizes[0]) < _estimate(sizes[1]) and left:
                before.append(left.pop(0))
            elif right:
                after.append(right.pop(0))
            else:
                return None
            sizes = product(tuple(source[i] for i in before)), product(tuple(target[i] for i in after))
        groups.append((before, after))
    return groups if not left and not right else None


def _estimate(value: Dim) -> int:
    return substitute(value, dict.fromkeys(names(value), 1009))


def _groups(node: Node) -> list[tuple[list[int], list[int]]]:
    """Divide the axes of a reshape into groups. If that is unknown, all axes are one group."""
    source, target = node.arg(0).type.shape, node.type.shape
    groups = regroup(source, target)
    return [(list(range(len(source))), list(range(len(target))))] if groups is None else groups


def _reshape_of(node: Node) -> AxisMap:
    """Keep axes that are not merged or split."""
    rank = node.arg(0).type.rank
    result: list[Label] = [rank + i for i in range(node.type.rank)]
    whole: set[Label] = set()
    for before, after in _groups(node):
        if len(before) == len(after) == 1:
            result[after[0]] = before[0]
        else:
            whole.update(before)
    return AxisMap((tuple(range(rank)),), tuple(result), frozenset(whole))


def _reshape_form(use: Use) -> Form | None:
    """Keep groups together and in order, with kept and new axes between them."""
    (layout,), own, result, whole = use.layouts, use.map.args[0], use.map.result, use.map.whole
    units = {label for label in own if label not in result and label not in whole}
    merged: dict[Label, tuple[list[int], list[int]]] = {
        before[0]: (before, after) for before, after in _groups(use.node) if before and before[0] in whole
    }
    left, order = list(without(layout, units)), list[Label]()
    while left:
        before, after = merged.pop(left[0], ([], []))
        if left[: len(before)] != before or (not before and left[0] in whole):
            return None
        order += [result[i] for i in after] if before else left[:1]
        left = left[max(len(before), 1) :]
    if merged:
        return None
    full = _units_between(order, result)
    return Form((layout,), {"shape": tuple(map(use.extent, full))}, full)


RESHAPE = Axes(_reshape_of, _reshape_form)


def _units_between(order: Sequence[Label], result: Labels) -> Labels:
    """Add to ``order`` the result's axes of one element, each before the axis that follows it in the result."""
    full = list(order)
    for i in reversed(range(len(result))):
        if result[i] not in full:
            full.insert(full.index(result[i + 1]) if i + 1 < len(result) else len(full), result[i])
    return tuple(full)


def _window_of(node: Node) -> AxisMap:
    rank, axes = node.arg(0).type.rank, node.attrs["axes"]
    labels = tuple(range(rank))
    return AxisMap((labels,), (*labels, *[rank + i for i in range(len(axes))]), frozenset(axes))


def _window_form(use: Use) -> Form:
    """Put the elements of a window last; an axis that the layout lacks has none."""
    (layout,), attrs, rank = use.layouts, use.node.attrs, len(use.map.args[0])
    entries = [i for i, axis in enumerate(attrs["axes"]) if axis in layout]
    chosen = {key: tuple(attrs[key][i] for i in entries) for key in ("sizes", "strides", "dilations")}
    axes = tuple(layout.index(attrs["axes"][i]) for i in entries)
    return Form((layout,), {"axes": axes, **chosen} if entries else None, (*layout, *[rank + i for i in entries]))


WINDOW = Axes(_window_of, _window_form)


def _fold_of(node: Node) -> AxisMap:
    rank, axes = node.type.rank, node.attrs["axes"]
    inside = [rank + i for i in range(len(axes))]
    labels = tuple(range(rank))
    return AxisMap(((*labels, *inside),), labels, frozenset((*axes, *inside)))


def _fold_form(use: Use) -> Form | None:
    (layout,), attrs, rank = use.layouts, use.node.attrs, use.node.type.rank
    inside = tuple(rank + i for i in range(len(attrs["axes"])))
    if not {*attrs["axes"], *inside} <= set(layout):
        return None
    result = without(layout, inside)
    axes, shape = tuple(map(result.index, attrs["axes"])), tuple(map(use.extent, result))
    return Form(((*result, *inside),), {**attrs, "axes": axes, "shape": shape}, result)


FOLD = Axes(_fold_of, _fold_form)


def _concat_of(node: Node) -> AxisMap:
    labels = tuple(range(node.type.rank))
    return AxisMap((labels,) * len(node.args), labels, frozenset({node.attrs.get("axis", 0)}))


def _concat_form(use: Use) -> Form | None:
    layout, axis = use.wanted or use.longest, use.node.attrs.get("axis", 0)
    return Form((layout,) * len(use.layouts), {"axis": layout.index(axis)}, layout) if axis in layout else None


CONCAT = Axes(_concat_of, _concat_form)


def _stack_of(node: Node) -> AxisMap:
    rank, axis = node.arg(0).type.rank, node.attrs.get("axis", 0)
    labels = tuple(range(rank))
    return AxisMap((labels,) * len(node.args), (*labels[:axis], rank, *labels[axis:]))


def _stack_form(use: Use) -> Form:
    (new,) = without(use.map.result, use.map.args[0])
    layout = use.longest
    axis = use.map.result.index(new)
    following = next((label for label in use.map.result[axis + 1 :] if label in layout), None)
    place = len(layout) if following is None else layout.index(following)
    result = use.wanted or (*layout[:place], new, *layout[place:])
    return Form((without(result, (new,)),) * len(use.layouts), {"axis": result.index(new)}, result)


STACK = Axes(_stack_of, _stack_form)


def _one_hot_of(node: Node) -> AxisMap:
    labels = tuple(range(node.arg(0).type.rank))
    return AxisMap((labels,), (*labels, len(labels)))


def _one_hot_form(use: Use) -> Form:
    (layout,) = use.layouts
    return Form((layout,), use.node.attrs, (*layout, use.map.result[-1]))


ONE_HOT = Axes(_one_hot_of, _one_hot_form)


def _take_of(node: Node) -> AxisMap:
    rank, lead = node.arg(0).type.rank, node.attrs.get("lead", 0)
    labels = tuple(range(rank))
    new = [rank + i for i in range(node.type.rank - lead)]
    return AxisMap((labels,), (*labels[:lead], *new), frozenset(labels[lead:]))


def _leading_form(use: Use) -> Form | None:
    """Put ``lead`` axes before a flat part that is unchanged."""
    (layout,), own = use.layouts, use.map.args[0]
    lead = use.node.attrs.get("lead", 0)
    outer = without(layout, own[lead:])
    if len(outer) + len(own) - lead != len(layout):
        return None
    attrs = {**use.node.attrs, "lead": len(outer)}
    return Form(((*outer, *own[lead:]),), attrs, (*outer, *use.map.result[lead:]))


TAKE = Axes(_take_of, _leading_form)


def _gather_of(node: Node) -> AxisMap:
    (rank, places), lead = ranks(node)[:2], node.attrs["lead"]
    x = tuple(range(rank))
    indices = (*x[:lead], *[rank + i for i in range(places - lead)])
    return AxisMap((x, indices), (*indices, *x[lead + 1 :]), frozenset({lead}))


def _gather_form(use: Use) -> Form | None:
    """Keep the axes before the read axis on both x and indices; further axes of indices follow."""
    (x, indices), axis = use.layouts, use.node.attrs["lead"]
    if axis not in x:
        return None
    behind = x[x.index(axis) + 1 :]
    shared, rest = (*x[: x.index(axis)], *[c for c in behind if c in indices]), without(behind, indices)
    own = set(use.map.args[0][:axis])
    if not own & set(indices) <= set(shared) or not own & set(shared) <= set(indices):
        return None
    chosen = (*shared, *without(indices, shared))
    return Form(((*shared, axis, *rest), chosen), {**use.node.attrs, "lead": len(shared)}, (*chosen, *rest))


GATHER = Axes(_gather_of, _gather_form)


def _scatter_of(node: Node) -> AxisMap:
    (rank, places, _), lead = ranks(node), node.attrs["lead"]
    x = tuple(range(rank))
    indices = (*x[:lead], *[rank + i for i in range(places - lead)])
    return AxisMap((x, indices, (*indices, *x[lead + 1 :])), x, frozenset({lead, *indices[lead:]}))


def _scatter_form(use: Use) -> Form | None:
    """Put every further axis of one of the three arguments before the axes of all of them."""
    lead, own = use.node.attrs["lead"], use.map.args
    inner = [labels[lead:] for labels in own]
    outer = tuple(dict.fromkeys(label for layout in use.layouts for label in without(layout, (*inner[0], *inner[1]))))
    if any(not set(labels) <= set(layout) for labels, layout in zip(inner, use.layouts, strict=True)):
        return None
    args = tuple((*outer, *labels) for labels in inner)
    return Form(args, {**use.node.attrs, "lead": len(outer)}, args[0])


SCATTER = Axes(_scatter_of, _scatter_form)


def parse_spec(spec: str) -> tuple[str, str, str]:
    """Split ``"bi,ji->bj"`` into its three label strings."""
    operands, out = spec.split("->")
    a, b = operands.split(",")
    return a, b, out


def contraction(*inside: str) -> Axes:
    """Return the axes of a product by the labels of ``spec``; ``inside`` labels last axes of its first operand."""

    def of(node: Node) -> AxisMap:
        first, second, out = parse_spec(node.attrs["spec"])
        return AxisMap(((*first, *inside), tuple(second)), tuple(out), frozenset(inside))

    def form(use: Use) -> Form | None:
        first, second = use.layouts
        own, spec = use.map, use.node.attrs["spec"]
        if first[len(first) - len(inside) :] != inside:
            return None
        letters = iter(c for c in "bnzyxwvutsrqpBNZYXWVUTSRQPacdefghijklmoACDEFGHIJKLMO" if c not in spec)
        names: dict[Label, str] = {c: str(c) for labels in own.args for c in labels}
        for label in dict.fromkeys((*first, *second)):
            if label not in names:
                names[label] = next(letters)
        result = use.wanted
        if result is None:
            reached = [label for label in own.result if label in first or label in second]
            result = insert_labels(first, own.args[0], insert_labels(second, own.args[1], reached))
            result = tuple(dict.fromkeys(result))
        a, b, out = ("".join(names[c] for c in labels if c not in inside) for labels in (first, second, result))
        return Form((first, second), {**use.node.attrs, "spec": f"{a},{b}->{out}"}, result)

    return Axes(of, form)


def _grouped_contraction_of(node: Node) -> AxisMap:
    rank = node.type.rank - 1
    rows, group, word, field, column = tuple(range(rank)), rank, rank + 1, rank + 2, rank + 3
    layouts = (*rows, group, word, field), (group, word, column), (group, column), (*rows, group), (*rows, group)
    return AxisMap(layouts[: len(node.args)], (*rows, column), frozenset({field}))


# Of a product whose weights have scales for groups: it is made late, in the layout that it keeps.
grouped_contraction = Axes(_grouped_contraction_of, lambda use: None)


def _listed_contraction_of(node: Node) -> AxisMap:
    labels, listed, out = parse_spec(node.attrs["spec"])
    result = tuple(f"{label}'" if label in listed else label for label in out)
    return AxisMap(((*labels, "byte"),), result, frozenset({*labels, "byte"} - {*result}))


listed_contraction = Axes(_listed_contraction_of, lambda use: None)  # of one operand; as late


def _grouped_gather_of(node: Node) -> AxisMap:
    rank = node.type.rank
    indices, group, word, column = tuple(range(rank - 1)), rank, rank + 1, rank + 2
    layouts = (group, word, column), (group, column), indices
    return AxisMap(layouts, (*indices, rank - 1), frozenset({group, word, column}))


grouped_gather = Axes(_grouped_gather_of, lambda use: None)  # as late


def last_axes(last: int, results: Callable[[Node], int], *, first: int = 0, front: int = 0) -> Axes:
    """Return the axes of an op that maps the ``last`` axes of its argument to ``results`` last axes, row by row.

    The argument's ``first`` axes are mapped too. Of the new axes of the result, ``front`` come first. Further arguments
    are unchanged.
    """

    def of(node: Node) -> AxisMap:
        x, *others = (tuple(f"{i}.{axis}" if i else axis for axis in range(n)) for i, n in enumerate(ranks(node)))
        outer = x[first : len(x) - last]
        new = [len(x) + i for i in range(front + results(node))]
        whole = {*without(x, outer), *[label for labels in others for label in labels]}
        return AxisMap((x, *others), (*new[:front], *outer, *new[front:]), frozenset(whole))

    def form(use: Use) -> Form | None:
        (layout, *others), (x, *own) = use.layouts, use.map.args
        inner = (*x[:first], *x[len(x) - last :])
        outer = without(layout, inner)
        if len(outer) + len(inner) != len(layout) or others != own:
            return None
        new = without(use.map.result, x)
        args = (*x[:first], *outer, *x[len(x) - last :])
        return Form((args, *others), use.node.attrs, (*new[:front], *outer, *new[front:]))

    return Axes(of, form)


def kept_axes(rank: int, axes: Sequence[int]) -> tuple[int, ...]:
    """Return the axes of a value of ``rank`` that a reduction over ``axes`` keeps."""
    return tuple(i for i in range(rank) if i not in axes)
