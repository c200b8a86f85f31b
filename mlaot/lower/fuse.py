"""Fusion groups: the nodes that each kernel computes, chosen in one walk from the inputs to the outputs.

* A "contraction" takes the elementwise work on its result as an epilogue.
* A "winograd" group is a last transform with the first one, the products between them, and an epilogue.
* "rows" are elementwise ops and reductions along rows of one shape, in vectors of one dtype. A row lies along the last
  axis, or along axes before it; in that case each lane of a vector has a row.
* "loops" are elementwise work on other dtypes, in plain loops over one shape.
* A "single" node is not fused.

A node joins the latest group that it fits, if all its arguments are in that group or in a group of a lower level. The
level of a group is above those of its arguments, so groups never depend on each other in a circle.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from mlaot.ir import Dim, Graph, Node, TupleType, users
from mlaot.ir.types import boolean
from mlaot.lower.gates import gate, gates_of
from mlaot.ops import elementwise as ew
from mlaot.ops import structure as st
from mlaot.ops.comparison import where
from mlaot.ops.control import result
from mlaot.ops.kinds import (
    PRODUCTS,
    base_of,
    is_elementwise,
    is_free,
    is_narrow,
    is_reduction,
    is_single,
    is_stored,
    is_view,
    root_of,
    slot_root,
    vector_dtype,
)
from mlaot.ops.reduction import kept_axes
from mlaot.ops.sparse import sparse_add, sparse_dot
from mlaot.ops.winograd import TRANSFORMS, products_of
from mlaot.schedule.machine import LINE
from mlaot.schedule.tuning import GROUP_NODES, LANE_BLOCK, NODES_AGAIN, ROW_NODES_AGAIN

RECOMPUTED = (ew.step, ew.is_equal)  # every reader recomputes them, which costs less than storing them


@dataclass(eq=False)
class Group:
    """The nodes of one kernel.

    ``kind`` is "rows", "loops", "contraction", "winograd" or "single". ``shape`` has the extents of its loops, and rows
    lie along ``axes``. ``dtype`` is the dtype of its vectors, or "mixed" in plain loops, where each value has its own
    dtype.
    """

    kind: str
    level: int
    dtype: str
    shape: tuple[Dim, ...]
    axes: tuple[int, ...] = ()
    nodes: list[Node] = field(default_factory=list)
    members: set[Node] = field(default_factory=set)
    closed: bool = False
    first: Node | None = None
    into: Group | None = None  # the group that it was merged into
    placed: set[int] = field(default_factory=set)  # arguments whose kernels write them here already
    gates: int = 0  # how many gates a contraction has (gates.py); all other nodes have the shape of one

    @property
    def kept_axes(self) -> tuple[int, ...]:
        """The axes of a value that has one number per row."""
        return kept_axes(len(self.shape), self.axes)

    @property
    def rows(self) -> tuple[Dim, ...]:
        """The shape of a value that has one number per row."""
        return tuple(self.shape[a] for a in self.kept_axes)

    @property
    def is_along_last(self) -> bool:
        """Whether a row lies along the last axis, and no other."""
        return self.axes == (len(self.shape) - 1,)


def cheap_nodes(graph: Graph, copied: set[Node]) -> set[Node]:
    """Return elementwise nodes of stored values but ``copied``, which row kernels recompute where they read them."""
    sizes: dict[Node, int] = {}  # how many nodes are recomputed for each cheap node
    roots = set(map(root_of, graph.roots())) | copied
    for node in graph.nodes():
        if node.op.cheap and vector_dtype(node) and node not in roots and not is_free(node):
            args = [a.find() for a in node.args]  # a cheap node behind a view has another shape and is not recomputed
            cheap = sizes if node.op is not ew.cast else {}  # a kernel computes in one dtype
            size = 1 + sum(cheap.get(a, 0) for a in args)
            if size <= NODES_AGAIN and all(a in cheap or is_stored(base_of(a)) or is_free(a) for a in args):
                sizes[node] = size
    return set(sizes)


def copied_nodes(graph: Graph) -> set[Node]:
    """Return the values that are copied to a slot after others have read its old value.

    If the copy computed them again, it would read slots that have new values already.
    """
    return {root_of(node.arg(0)) for node in map(slot_root, graph.writes.values()) if node.op is ew.copy}


def is_mask(node: Node, readers: list[Node]) -> bool:
    """Tell whether a comparison only selects between values that its readers also read, as in a leaky relu."""
    if isinstance(node.type, TupleType) or node.type.dtype is not boolean or not node.type.shape:
        return False
    compared = {a.find() for a in node.args if not is_free(a)}
    return vector_dtype(node) is not None and all(
        u.op is where and u.arg(0).find() is node and compared <= {a.find() for a in u.args[1:]} for u in readers
    )


def outer_nodes(graph: Graph) -> set[Node]:
    """Return the nodes that combine values of fewer axes, such as an outer product, so that recomputing reads less.

    Each is one operation, besides rounding, so that readers compute it in the time of a load.
    """
    outer: set[Node] = set()
    for node in graph.nodes():
        args = [a.find() for a in node.args if not is_free(a)]
        if node.op is ew.rounded:
            is_outer = all(a in outer for a in args)
        elif node.op in (ew.add, ew.sub, ew.mul) and vector_dtype(node) is not None:
            is_outer = all(a.op is st.broadcast and len(a.attrs["axes"]) < node.type.rank for a in args)
        else:
            continue
        if is_outer and args:
            outer.add(node)
    return outer


def winograd_parts(node: Node) -> tuple[Node, ...]:
    """Return the nodes that the group of a last transform computes as well."""
    return products_of(node) or ()


def arguments_of(node: Node) -> list[Node]:
    """Return the arguments of a node, or for a last transform the arguments of all nodes of its group."""
    parts = winograd_parts(node)
    return [a for n in (*parts, node) for a in n.args if a.find() not in parts]


def parts_only(graph: Graph, used: dict[Node, list[Node]]) -> set[Node]:
    """Return the nodes that are computed only as parts of last transforms."""
    candidates = {p: None for n in graph.nodes() for p in reversed(winograd_parts(n))}
    kept = set(graph.roots())
    for part in candidates:  # the products, then what they read
        if not all(part in winograd_parts(u) or (u in candidates and u not in kept) for u in used[part]):
            kept.add(part)
    return set(candidates) - kept


def _around_slots(graph: Graph, used: dict[Node, list[Node]]) -> set[Node]:
    """Return the reshapes between results of kernels and the shapes of slots, if no node reads them."""
    around: set[Node] = set()
    for write in graph.writes.values():
        node, value = write.find(), slot_root(write)
        while node is not value and all(u in around for u in used[node]):
            around.add(node)
            node = node.arg(0)
    return around


def fuse(graph: Graph) -> tuple[list[Group], dict[Node, Group]]:
    """Return the groups of ``graph``, each after those that it reads, and for each node the group that others read.

    A node that is written to a slot joins a group that computes only slots. After that the group accepts only outputs
    and slots that are computed from the node. So a slot can be written after its last reader, and no gradient is
    written while other outputs are computed. Cheap nodes are recomputed in every row group and epilogue of their shape
    that reads them. They have a group of their own only if other nodes read them.
    """
    fusion = _Fusion(graph)
    for node in graph.nodes():
        if fusion.is_inside(node):
            continue
        if node.op is result:
            fusion.join(node)
        else:
            fusion.add(node)
    for group in dict.fromkeys(fusion.groups):
        fusion.sink(group)
    for node in graph.nodes():
        fusion.recompute(node)
    groups, group_of = fusion.groups, fusion.group_of
    merged = _merge(sorted([g for g in dict.fromkeys(groups) if g.into is None], key=lambda g: g.level))
    position = {node: i for i, node in enumerate(graph.nodes())}
    for group in merged:
        if group.kind in ("rows", "loops"):
            group.nodes.sort(key=position.__getitem__)
    return merged, {node: group.into or group for node, group in group_of.items()}


class _Fusion:
    """The groups so far; ``group_of`` has the group from which others read a node."""

    def __init__(self, graph: Graph) -> None:
        self.written = {slot_root(node) for node in graph.writes.values()}
        self.outputs = {root_of(node) for node in graph.outputs.values()}
        self.used = used = users(graph.nodes())
        self.final = {n for n in self.outputs if not used[n]}  # nodes from which only outputs are computed
        self.updating = set(self.written)  # nodes from which only slots are computed
        for node in reversed(graph.nodes()):
            if used[node] and node not in self.written and all(u in self.final for u in used[node]):
                self.final.add(node)
            if used[node] and node not in self.outputs and all(u in self.updating for u in used[node]):
                self.updating.add(node)
        self.group_of: dict[Node, Group] = {}
        self.groups: list[Group] = []
        self.order: dict[Group, int] = {}
        self.light: dict[Node, list[Node]] = {}  # what a row group computes again for each value
        self.inner = parts_only(graph, used) | _around_slots(graph, used)
        copied = copied_nodes(graph)
        self.cheap = cheap_nodes(graph, copied)
        self.fixed = self.outputs | self.written | self.cheap | copied
        self.masks = {n for n in graph.nodes() if n not in self.fixed and is_mask(n, used[n])}
        recomputed = {n for n in graph.nodes() if n.op in RECOMPUTED and n.type.shape} | outer_nodes(graph)
        self.recomputed = self.masks | (recomputed - self.fixed)

    def is_inside(self, node: Node) -> bool:
        """Tell whether a node is computed where it is read, or needs no computation."""
        is_part = node in self.cheap or node in self.recomputed or node in self.inner
        return is_part or is_view(node) or is_stored(node) or is_free(node)

    def join(self, result: Node) -> None:
        """Add one of several results of a node to the node's group."""
        group = self.group_of[result] = self.group_of[result.arg(0)]
        group.nodes.append(result)
        group.members.add(result)

    def unite(self, node: Node) -> None:
        """Merge the row groups that a node reads, if they have the same level and loops."""
        sources = self.source_groups(node)
        top = max((g.level for g in sources), default=0)
        latest = [g for g in sources if g.level == top and g.kind in ("rows", "loops") and not g.closed]
        self.merge(latest)

    def merge(self, groups: Sequence[Group]) -> None:
        """Move the nodes of groups into the first one, if they have its loops and it does not become too large."""
        for other in groups[1:]:
            first = groups[0]
            if _space(other) == _space(first) and len(first.nodes) + len(other.nodes) <= GROUP_NODES:
                _absorb(first, other)
                self.group_of.update(dict.fromkeys([n for n in other.nodes if self.group_of.get(n) is other], first))

    def readers(self, node: Node, group: Group) -> list[Node]:
        """Return the nodes that read a node of a group. For gates, only those that already have a group count."""
        if not group.gates:
            return self.used[node]
        views = [view for s in self.used[node] for view in self.used[s]] if node is group.nodes[0] else []
        return [u for n in views or [node] for u in self.used[n] if u in self.group_of]

    def through(self, readers: Iterable[Node]) -> set[Node]:
        """Return readers, and those of each reader that is computed where it is read, such as a view."""
        found: set[Node] = set()
        stack = [*readers]
        while stack:
            reader = stack.pop()
            if reader not in found:
                found.add(reader)
                stack += self.used[reader] if self.is_inside(reader) else []
        return found

    def delay_product(self, node: Node) -> None:
        """Move a node's last product after its other arguments, so that the product's epilogue can compute the node.

        Only updates of slots, which come later, may also read the product. Otherwise the groups would depend on each
        other.
        """
        sources = self.source_groups(node) if is_elementwise(node) else []
        products = [g for g in sources if g.kind == "contraction" and (node in self.updating or not g.closed)]
        free = [g for g in products if not self.outputs & g.members]
        last = max(free, key=lambda g: (g.level, self.order[g]), default=None)
        if last is None:
            return
        readers = self.through(u for n in last.nodes for u in self.readers(n, last)) - last.members - {node}
        if any(u in self.group_of or u not in self.updating for u in readers):
            return
        level = 1 + max((g.level for g in sources if g is not last), default=0)
        if level > last.level and self.fits(node, last, level):
            last.level = level

    def unite_slots(self, node: Node) -> None:
        """Merge the row groups of slots that an update reads, behind what else it reads, so that they can take it in.

        An optimizer's moments are such slots: all of its arrays then go through memory once. Nothing that has a group
        may read them, or the groups would wait for each other.
        """
        if node not in self.updating:
            return
        sources = self.source_groups(node)
        slots = [g for g in sources if g.closed and not g.members & self.outputs and _suits(node, g)]
        slots = [g for g in slots if g.kind in ("rows", "loops") and g.shape == node.type.shape]
        own = {g: {n for n in g.members if self.group_of.get(n) is g} for g in slots}
        readers = {g: self.through(u for n in own[g] for u in self.used[n]) - own[g] for g in slots}
        slots = [g for g in slots if not any(u in self.group_of for u in readers[g])]
        level = max([1 + g.level for g in sources if g not in slots] + [g.level for g in slots], default=0)
        for group in slots:
            group.level = level
        self.merge(slots)

    def choose(self, node: Node) -> Group:
        """Return the group that computes a node: an open one that fits, or a new one."""
        if is_elementwise(node) and node.op is not ew.copy:
            if node not in self.written:
                self.unite(node)
            self.delay_product(node)
            self.unite_slots(node)
        group = self.candidate(node) if node.op is not ew.copy else None
        if group is not None and (node in self.written or group.closed) and node not in self.final:
            readers = {u for n in group.nodes if n not in self.written for u in self.used[n]}
            others = readers - group.members - self.updating - {node}
            if node not in self.updating or others or group.members & self.outputs:
                group = None
        return group or self.new_group(node, gates_of(node, self.used, self.outputs | self.written))

    def sources(self, node: Node) -> list[tuple[Node, Node]]:
        """Return pairs of an argument and the value that it views.

        For recomputed nodes, the pairs of their arguments.
        """
        pairs: list[tuple[Node, Node]] = []
        for a in arguments_of(node):
            base = base_of(a)
            pairs += self.sources(base) if base in self.recomputed else [(a.find(), base)]
        return pairs

    def source_groups(self, node: Node) -> list[Group]:
        """Return the groups that a node reads from."""
        return list(dict.fromkeys(self.group_of[base] for _, base in self.sources(node) if base in self.group_of))

    def candidate(self, node: Node) -> Group | None:
        """Return the latest of the groups that a node reads from and that can compute it."""
        if node.op in (*PRODUCTS, *TRANSFORMS) or is_single(node):
            return None
        if _is_column_reduction(node) and not _has_rows_in_lanes(node):
            return None
        fitting = [g for g in self.source_groups(node) if self.fits(node, g)]
        return max(fitting, key=lambda g: g.level, default=None)

    def fits(self, node: Node, group: Group, level: int | None = None) -> bool:
        """Tell whether a group, if it had this level, could compute a node."""
        level = group.level if level is None else level
        if len(group.nodes) >= GROUP_NODES or group.kind == "single" or not _suits(node, group):
            return False
        for argument, base in self.sources(node):
            if self.group_of.get(base) is group:
                is_gate = group.gates > 0 and gate(argument, group.nodes[0]) is not None
                if not (argument is base or is_gate or (group.kind == "rows" and _is_row_value(argument, base, group))):
                    return False
            elif base in self.group_of and self.group_of[base].level >= level:
                return False
        if group.kind in ("contraction", "winograd"):
            return self.suits_epilogue(node, group) and node.type.shape == group.shape
        if group.kind == "loops":
            return node.type.shape == group.shape
        if node.op.reduces:
            base, axes = node.arg(0), node.attrs["axes"]
            are_its_rows = axes == group.axes or (len(axes) > 0 and _is_without_rows(group))
            is_inside = base in self.group_of and self.group_of[base] is group and base.type.shape == group.shape
            return are_its_rows and is_inside
        if node.type.shape == group.shape:
            return True
        return node.type.shape == group.rows and all(
            self.group_of.get(base_of(a)) is not group or a.find().type.shape == group.rows for a in node.args
        )

    def new_group(self, node: Node, gates: int) -> Group:
        """Return a new group for a node, after the groups that it reads."""
        level = 1 + max([g.level for g in self.source_groups(node)], default=0)
        if is_single(node):
            is_mixed = node.op not in (sparse_dot, sparse_add)
            return Group("single", level, "mixed" if is_mixed else node.type.dtype.name, ())
        dtype = node.type.dtype.name
        if node.op in PRODUCTS or _is_column_reduction(node):
            shape = (*node.type.shape[:-2], node.type.shape[-1]) if gates else node.type.shape
            return Group("contraction", level, dtype, shape, gates=gates)
        if node.op in TRANSFORMS:
            return Group("winograd", level, dtype, node.type.shape)
        if is_reduction(node):
            return Group("rows", level, dtype, node.arg(0).type.shape, node.attrs["axes"])
        shape, vectors = node.type.shape, vector_dtype(node)
        if vectors is None or is_narrow(shape):
            return Group("loops", level, "mixed", shape)
        return Group("rows", level, vectors, shape, (len(shape) - 1,) if shape else ())

    def pending(self, node: Node) -> list[Node]:
        """Return cheap arguments that no kernel has computed yet."""
        bases = dict.fromkeys(base_of(a) for a in arguments_of(node))
        return [b for b in bases if not (is_stored(b) or is_free(b) or b in self.group_of)]

    def unfusable(self, node: Node, group: Group) -> list[Node]:
        """Return the cheap arguments, direct ones or those of recomputed nodes, that need a kernel of their own."""
        bases: list[Node] = []
        stack, seen = [node], {node}
        while stack:
            reader = stack.pop()
            for base in self.pending(reader):
                if not self.reads_as_is(reader, base, group):
                    bases.append(base)
                elif base not in seen:
                    seen.add(base)
                    stack.append(base)
        return list(dict.fromkeys(bases))

    def add(self, node: Node) -> None:
        """Add a node to a group, after the cheap arguments that need kernels of their own."""
        group = self.choose(node)
        separate = self.unfusable(node, group)
        for base in separate:
            self.add(base)
        if separate:
            group = self.choose(node)
        for base in self.pending(node):
            _recompute_in(base, group, self.group_of)
        self.groups.append(group)
        self.order.setdefault(group, len(self.order))
        group.nodes += winograd_parts(node)
        group.members |= set(winograd_parts(node))
        group.first = group.first or node
        if node.op.reduces and group.kind == "rows":
            group.axes = node.attrs["axes"]
        if node not in group.members:  # a recomputed node may be there already
            group.nodes.append(node)
            group.members.add(node)
        group.closed |= node in self.written or node.op is ew.copy
        self.group_of[node] = group
        self.recomputed.discard(node)

    def reads(self, group: Group, nodes: Iterable[Node]) -> set[Node]:
        """Return the values of a row group's shape that nodes need from elsewhere."""
        nodes = set(nodes)
        bases = {base for node in nodes for _, base in self.sources(node)}
        return {base for base in bases - nodes if base.type.shape == group.shape}

    def sink(self, product: Group) -> None:
        """Move parts of an epilogue into the row group that needs them, if fewer values then go through memory.

        The gradients of a normalization and of a softmax are such cases: the factors of the rows before a sum are also
        read after the sum.
        """
        if product.kind != "contraction" or product.gates or len(product.nodes) < 2:
            return
        readers = {self.group_of[u] for n in product.nodes for u in self.used[n] if u in self.group_of} - {product}
        for rows in sorted(readers, key=self.order.__getitem__):
            movable = self.sinkable(product, rows)
            # What reads a node comes after it, so the last ones can move without the first.
            ways = [movable[i:] for i in range(len(movable), -1, -1)]
            moved = min(ways, key=lambda moved: self.traffic(product, rows, moved))
            if len(rows.nodes) + len(moved) <= GROUP_NODES:
                product.nodes = [n for n in product.nodes if n not in moved]
                product.members -= set(moved)
                rows.nodes = [*moved, *rows.nodes]
                rows.members |= set(moved)
                self.group_of.update(dict.fromkeys(moved, rows))

    def recompute(self, node: Node) -> None:
        """Let the row groups that read a light value compute it again, if nothing has to read it from memory.

        Such a value, as ``x - mean``, depends on one element of a value in memory, and would need its own memory beside
        it.
        """
        own = self.group_of.get(node)
        chain = self.light_chain(node, own) if own is not None else []
        if own is None or not chain:
            return
        self.light[node] = chain
        readers = {u: self.group_of.get(u) for u in self.used[node] if u not in own.members}
        groups = [g for g in dict.fromkeys(readers.values()) if g is not None]
        if not groups or None in readers.values():
            return
        if not all(self.can_recompute(node, own, g, [u for u in readers if readers[u] is g]) for g in groups):
            return
        for group in groups:
            group.nodes += [n for n in chain if n not in group.members]
            group.members |= set(chain)
        if len(own.nodes) > 1 and not any(u in own.members for u in self.used[node]):
            own.nodes.remove(node)
            own.members.remove(node)
            self.group_of[node] = groups[0]

    def light_chain(self, node: Node, own: Group) -> list[Node]:
        """Return the steps from an element that a row group reads to a light value, or none for a value that is not."""
        if not node.op.cheap or node in self.fixed or own.kind != "rows" or node.type.shape != own.shape:
            return []
        bases = [(a.find(), base_of(a)) for a in node.args if not is_free(a)]
        full = {base for a, base in bases if base.type.shape == node.type.shape}
        if len(full) != 1 or full & self.cheap or any(a is not base for a, base in bases if base in full):
            return []
        (x,) = full
        before = self.light.get(x, []) if x in own.members else []
        are_outside = all(base not in own.members for _, base in bases if base is not x)
        chain = [*before, node]
        is_long = sum(n.op is not ew.rounded for n in chain) > ROW_NODES_AGAIN
        return [] if is_long or not are_outside or (x in own.members and not before) else chain

    def can_recompute(self, node: Node, own: Group, group: Group, readers: list[Node]) -> bool:
        """Tell whether a group has rows of a node's shape and dtype, and its ``readers`` read it without a view."""
        is_same = group.kind == "rows" and (group.shape, group.dtype) == (own.shape, own.dtype)
        return (
            is_same
            and len(group.nodes) + ROW_NODES_AGAIN <= GROUP_NODES
            and all(self.reads_as_is(u, node, group) for u in readers)
        )

    def reads_as_is(self, node: Node, base: Node, group: Group) -> bool:
        """Tell whether a group can recompute an argument where it reads it: no view, and equal lanes and shape."""
        is_recomputed = base.op in RECOMPUTED or base in self.masks
        dtype = vector_dtype(base) if base in self.masks else base.type.dtype.name
        if group.kind == "single" or (dtype != group.dtype and group.kind != "loops"):
            return False
        if group.kind in ("contraction", "winograd") and (
            group.first in (None, node) or not (is_recomputed or self.suits_epilogue(base, group))
        ):
            return False
        return base.type.shape == group.shape and all(a.find() is base for a in node.args if base_of(a) is base)

    def suits_epilogue(self, node: Node, group: Group) -> bool:
        """Tell whether a product's epilogue can compute a node: vectors of the group's dtype can hold all values."""
        held = [a.find() for a in node.args if not (a.find() in self.masks and a.find() not in self.group_of)]
        dtypes = {vector_dtype(node), *(a.type.dtype.name for a in held)}
        is_held = node.type.dtype is not boolean and node.op is not st.one_hot
        return dtypes == {group.dtype} and is_held and is_elementwise(node)

    def traffic(self, product: Group, rows: Group, moved: list[Node]) -> int:
        """Return the number of values that two groups read and store if nodes move from the first to the second."""
        above, below = [n for n in product.nodes if n not in moved], [*moved, *rows.nodes]
        read = self.reads(rows, below)
        stored = {n for n in above if n in self.outputs or any(u not in product.members for u in self.used[n])}
        return len(self.reads(rows, above)) + len(read) + len(stored | read & set(above))

    def sinkable(self, product: Group, rows: Group) -> list[Node]:
        """Return the nodes of an epilogue that only one row group needs."""
        if rows.kind != "rows" or rows.shape != product.shape:
            return []
        moved: set[Node] = set()
        for node in reversed(product.nodes[1:]):
            fixed = node in self.outputs or node in self.written or any(u.op is result for u in self.used[node])
            known = all(is_stored(b) or is_free(b) or b in self.group_of for b in map(base_of, node.args))
            inside = all(u in moved or self.group_of.get(u) is rows for u in self.used[node])
            if known and not fixed and inside and _suits(node, rows):
                moved.add(node)
        return [n for n in product.nodes if n in moved]


def _merge(groups: list[Group]) -> list[Group]:
    """Merge row groups of equal level and loops into one kernel."""
    open_: dict[tuple[object, ...], Group] = {}
    kept: list[Group] = []
    for group in groups:
        key = _space(group)
        target = open_.get(key)
        if group.kind not in ("rows", "loops") or group.closed:
            kept.append(group)
        elif target is None or len(target.nodes) + len(group.nodes) > GROUP_NODES:
            open_[key] = group
            kept.append(group)
        else:
            _absorb(target, group)
    return kept


def _space(group: Group) -> tuple[object, ...]:
    """Return the properties that groups must share to be merged. Groups of one level never read each other."""
    return (group.level, group.kind, group.dtype, group.shape, group.axes)


def _absorb(group: Group, other: Group) -> None:
    """Move the nodes of another group into a group."""
    group.nodes += [n for n in other.nodes if n not in group.members]
    group.members |= other.members
    other.into = group


def _recompute_in(node: Node, group: Group, group_of: dict[Node, Group]) -> None:
    """Compute a cheap node in ``group``, together with its arguments that are not in memory."""
    if node in group.members:
        return
    for a in node.args:
        base = base_of(a)
        if not (base in group_of or is_stored(base) or is_free(base)):
            _recompute_in(base, group, group_of)
    group.nodes.append(node)
    group.members.add(node)


def _is_column_reduction(node: Node) -> bool:
    return is_reduction(node) and node.attrs["axes"] != (node.arg(0).type.rank - 1,)


def _has_rows_in_lanes(node: Node) -> bool:
    """Tell whether each lane may have a row of a reduction along axes before the last.

    Threads share the first axis.
    """
    shape, axes = node.arg(0).type.shape, node.attrs["axes"]
    last = shape[-1]
    are_vectors = isinstance(last, int) and (last <= LANE_BLOCK or last * node.type.dtype.itemsize % LINE == 0)
    return are_vectors and 0 not in axes and len(shape) - 1 not in axes


def _is_without_rows(group: Group) -> bool:
    """Tell whether no node of a group of rows determines the axes of the rows."""
    return all(n.type.shape == group.shape and not n.op.reduces and n.op is not st.one_hot for n in group.nodes)


def _suits(node: Node, group: Group) -> bool:
    """Tell whether a group computes in a node's dtype. Logic on truth values can join vectors of any dtype."""
    if is_reduction(node):
        return group.kind == "rows" and group.dtype == node.type.dtype.name
    vectors = vector_dtype(node)
    if group.kind == "loops":
        return vectors is None or is_narrow(node.type.shape)
    if vectors is not None:
        return group.dtype == vectors
    is_logic = node.op is not ew.cast and all(
        x.type.dtype.name == "bool" for x in (node, *(a.find() for a in node.args))
    )
    return group.kind == "rows" and is_logic


def _is_row_value(view: Node, base: Node, group: Group) -> bool:
    """Tell whether a view broadcasts a value of one number per row along the row."""
    return (
        view.op is st.broadcast
        and view.arg(0) is base
        and base.type.shape == group.rows
        and view.attrs["axes"] == group.kept_axes
        and view.type.shape == group.shape
    )
