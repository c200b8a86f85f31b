"""Values that may overwrite what they replace: slots of a module, carries of a loop.

The kernel that writes the new value runs after all other readers of the old value. Of the old value it reads only the
element that it writes next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from mlaot.ir import Node
from mlaot.ir.dims import product
from mlaot.lower.fuse import Group
from mlaot.lower.rows import across_stages, stages_of
from mlaot.ops import structure as st
from mlaot.ops.control import result, scan, while_
from mlaot.ops.indexing import scatter
from mlaot.ops.kinds import base_of, drop_unit_axes, is_free, root_of
from mlaot.ops.sparse import sparse_add

Pair = tuple[Node, Node]  # the old value, which lies in memory, and the new one
Before = dict[Group, set[Group]]


def sources(node: Node) -> list[Node]:
    """Return the values that an argument is made from by views and by scalars that kernels recompute."""
    base = base_of(node)
    return [s for a in base.args for s in sources(a)] if is_free(base) and base.args else [base]


def readers_of(groups: Iterable[Group]) -> dict[Node, list[Group]]:
    """Return the groups that read each value."""
    groups_by_value: dict[Node, dict[Group, None]] = {}
    for group in groups:
        for node in group.nodes:
            for a in node.args:
                for source in sources(a):
                    groups_by_value.setdefault(source, {})[group] = None
    return {node: list(readers) for node, readers in groups_by_value.items()}


def dependencies(groups: Sequence[Group], group_of: Mapping[Node, Group]) -> Before:
    """Return the groups whose values each group reads."""
    return {
        g: {group_of[b] for n in g.nodes for a in n.args if (b := base_of(a)) in group_of and b not in g.members}
        for g in groups
    }


def behind_readers(pairs: Iterable[Pair], groups: Sequence[Group], group_of: Mapping[Node, Group]) -> Before:
    """Return for each group that overwrites a value the groups that must come before: all other readers of it."""
    read = readers_of(groups)
    before: Before = {}
    for old, new in pairs:
        writer = group_of[new.find()]
        before.setdefault(writer, set()).update(g for g in read.get(old, []) if g is not writer)
    return before


def in_place(pairs: Sequence[Pair], groups: Sequence[Group], group_of: Mapping[Node, Group]) -> list[Pair]:
    """Return the ``pairs`` whose new value may overwrite the old one. If not all can, the first ones have priority."""
    fitting = [
        (old, new) for old, new in pairs if new.find() in group_of and _reads_its_own(group_of[new.find()], old, new)
    ]
    if _can_be_ordered(fitting, groups, group_of):
        return fitting
    kept: list[Pair] = []
    for pair in fitting:
        if _can_be_ordered([*kept, pair], groups, group_of):
            kept.append(pair)
    return kept


def _can_be_ordered(pairs: Sequence[Pair], groups: Sequence[Group], group_of: Mapping[Node, Group]) -> bool:
    """Tell whether groups have an order in which all readers of old values come before the writers of new values."""
    before, later = dependencies(groups, group_of), behind_readers(pairs, groups, group_of)
    sorter = TopologicalSorter({g: before[g] | later.get(g, set()) for g in groups})
    try:
        sorter.prepare()
    except CycleError:
        return False
    return True


def _reads_its_own(group: Group, old: Node, new: Node) -> bool:
    """Tell whether the kernel that writes ``new`` reads only elements of ``old`` that it has not overwritten yet."""
    new = new.find()
    if old.type.dtype is not new.type.dtype or product(old.type.shape) != product(new.type.shape):
        return False
    reading = [(n, a) for n in group.nodes for a in n.args if not is_free(a) and old in sources(a)]
    if group.kind == "single":
        return all(_starts_from(n, n.args, old, new) for n, _ in reading)
    if group.kind not in ("rows", "loops", "contraction"):
        return not reading
    if not all(_has_elements_of(a, old, new) for _, a in reading):
        return False
    if group.kind == "contraction":
        order = {n: (0, 0, i) for i, n in enumerate(group.nodes)}
        return all(n is not group.nodes[0] and order[n] <= order[new] for n, _ in reading)
    order = _order(group)
    return all(n.type.shape == new.type.shape or n.op.reduces for n, _ in reading) and all(
        order[n] <= order[new] for n, _ in reading
    )


def _has_elements_of(argument: Node, old: Node, new: Node) -> bool:
    """Tell whether an argument has each element of ``old`` at the place of the element of ``new`` that replaces it."""
    as_new = drop_unit_axes(argument.find().type.shape) == drop_unit_axes(new.type.shape)
    value = root_of(argument)
    return as_new and (value is old or (value.op is st.reshape and value.arg(0) is old))


def _starts_from(node: Node, args: Sequence[Node], old: Node, new: Node) -> bool:
    """Tell whether a node reads ``old`` only as the value that it updates."""
    places = [i for i, a in enumerate(args) if old in sources(a)]
    if node.op in (scatter, sparse_add):
        return places == [0] and node.arg(0) is old
    if node.op in (scan, while_) and new.op is result:
        return places == [node.attrs["consts"] + new.attrs["index"]] and node.arg(places[0]) is old
    return False


def _order(group: Group) -> dict[Node, tuple[int, int, int]]:
    """Return when a row kernel computes each node last: the stage, per row or column, and the position there."""
    if group.kind == "loops":
        return {n: (0, 0, i) for i, n in enumerate(group.nodes)}
    stage = stages_of(group)
    _, again = across_stages(group)
    order = {}
    for i, n in enumerate(group.nodes):
        columns = n.op.reduces or (n.type.shape == group.shape and len(group.axes) > 0)
        last = max((s for s, nodes in again.items() if n in nodes), default=0)  # it reads its arguments again
        order[n] = (max(stage[n] - (n.op.reduces), last), int(columns), i)
    return order
