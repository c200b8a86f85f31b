"""Make nodes in other layouts: a pass names the axes of the arguments, and the op's axes give its new attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mlaot.ir import Dim, Node
from mlaot.ops.axes import Label, Labels, Use
from mlaot.ops.structure import broadcast, in_order


class Laid(NamedTuple):
    """A value, and a label for each of its axes: the label of an axis of the plain value, or a further label."""

    node: Node
    labels: Labels

    def reorder(self, labels: Labels, extents: Mapping[Label, Dim] | None = None) -> Laid:
        """Return the value with its axes in the order of ``labels``, broadcast along those that it does not have."""
        own = tuple(label for label in labels if label in self.labels)
        node = in_order(self.node, [self.labels.index(label) for label in own])
        if own == labels:
            return Laid(node, labels)
        sizes = {**(extents or {}), **dict(zip(own, node.type.shape, strict=True))}
        shape = tuple(sizes[label] for label in labels)
        return Laid(broadcast(node, shape=shape, axes=tuple(map(labels.index, own))), labels)


def lay_out(
    node: Node,
    args: Sequence[Laid],
    wanted: Labels | None = None,
    *,
    as_they_lie: bool = False,
    extents: Mapping[Label, Dim] | None = None,
) -> Laid | None:
    """Make a node over arguments in other layouts, with the result in the layout ``wanted``; None without such a form.

    ``as_they_lie`` allows only forms that move no argument. ``extents`` are the extents of axes that no argument has.
    """
    if node.op.axes is None:
        return None
    known = {label: d for x in args for label, d in zip(x.labels, x.node.type.shape, strict=True)}
    extents = {**(extents or {}), **known}
    form = node.op.axes.form(Use(node, tuple(x.labels for x in args), extents, wanted))
    if form is None or (as_they_lie and any(x.labels != labels for x, labels in zip(args, form.args, strict=True))):
        return None
    operands = [x.reorder(labels, extents).node for x, labels in zip(args, form.args, strict=True)]
    result = Laid(operands[0] if form.attrs is None else node.op(*operands, **form.attrs), form.result)
    return result.reorder(wanted) if wanted is not None and wanted != form.result else result
