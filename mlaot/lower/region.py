"""A graph's kernels in order, given where its inputs lie and where its results go; control flow holds regions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter

from mlaot.ir import Dim, Graph, Node, Subgraph, Type, dim
from mlaot.lower.contraction import contraction_kernel
from mlaot.lower.fuse import Group, fuse
from mlaot.lower.layout import Access, slice_buffer, times, view, work_buffer
from mlaot.lower.loops import loops_kernel
from mlaot.lower.program import Branch, Buffer, Loop, Param, Plain, Step
from mlaot.lower.program import Sequence as Steps
from mlaot.lower.rows import needs_buffer, rows_kernel
from mlaot.lower.single import indices, nest, single_kernel
from mlaot.lower.storage import Storage
from mlaot.lower.winograd import winograd_steps
from mlaot.ops import structure as st
from mlaot.ops.kinds import base_of, is_view

Fused = tuple[list[Group], dict[Node, Group]]
Stores = dict[Node, list[Buffer]]
Ordered = list[tuple[Group, Step]]
BUILDERS = {"rows": rows_kernel, "contraction": contraction_kernel, "single": single_kernel, "loops": loops_kernel}


def region(
    graph: Graph,
    accesses: dict[Node, Access],
    targets: Mapping[Node, list[Buffer]],
    storage: Storage,
    *,
    fused: Fused | None = None,
    depth: int = 0,
) -> tuple[Ordered, set[Group]]:
    """The steps of ``graph`` in order, and the groups that its outputs need.

    ``accesses`` says how its inputs are read and is filled for its nodes; ``targets`` where its results are written.
    ``depth`` counts the loops around it.
    """
    groups, home = fused or fuse(graph)
    stores = _stores(groups, home, targets)
    for node in graph.nodes():
        if node.op is st.const and node.type.shape != ():
            buffer = storage.constant(node)
            accesses[node] = Access(buffer, buffer.strides)
        elif node in stores:
            accesses[node] = Access(stores[node][0], stores[node][0].strides)
        elif is_view(node) and (inner := accesses.get(node.arg(0))) is not None:
            found = view(node, inner)
            assert found is not None, f"bug in mlaot: {node} is no view"
            accesses[node] = found
    steps: dict[Group, Step] = {}
    for group in groups:
        control = CONTROL.get(group.nodes[0].op.name)
        if control is not None:
            steps[group] = control(_Control(group, accesses, stores, storage, depth))
        elif group.kind == "winograd":
            steps[group] = winograd_steps(group, accesses, stores, depth)
        else:
            steps[group] = BUILDERS[group.kind](group, accesses, stores)
    needed = _ancestors({home[n.find()] for n in graph.outputs.values()}, home)
    return [(group, steps[group]) for group in _order(groups, home, steps, needed)], needed


def _stores(groups: list[Group], home: dict[Node, Group], targets: Mapping[Node, list[Buffer]]) -> Stores:
    """Where each computed node is written to: where the caller wants it, and the workspace if other kernels read it."""
    stores: Stores = {node: list(buffers) for node, buffers in targets.items()}
    wanted: dict[Node, None] = {}
    for group in groups:
        wanted |= dict.fromkeys(needs_buffer(group)) if group.kind == "rows" else {}
        for node in group.nodes:
            for a in node.args:
                base = base_of(a)
                if base in home and base not in group.members:
                    wanted[base] = None
    for node in wanted:
        if not any(b.where in ("output", "work") for b in stores.get(node, [])):
            stores.setdefault(node, []).insert(0, work_buffer(f"t{len(stores)}", node.type))
    return stores


def _reads(group: Group, home: dict[Node, Group]) -> set[Group]:
    return {home[b] for n in group.nodes for a in n.args if (b := base_of(a)) in home and b not in group.members}


def _ancestors(groups: Iterable[Group], home: dict[Node, Group]) -> set[Group]:
    found: set[Group] = set()
    stack = list(groups)
    while stack:
        group = stack.pop()
        if group not in found:
            found.add(group)
            stack.extend(_reads(group, home))
    return found


def _order(groups: list[Group], home: dict[Node, Group], steps: dict[Group, Step], needed: set[Group]) -> list[Group]:
    """Kernels after what they read, a slot's writer after its other readers, those that outputs need first."""
    before: dict[Group, set[Group]] = {g: _reads(g, home) for g in groups}
    for group in groups:
        written = {p.buffer.whole for p in steps[group].params if p.written and p.buffer.whole.where == "state"}
        for other in groups if written else ():
            if other is not group and any(p.buffer.whole in written for p in steps[other].params):
                before[group].add(other)
    position = {g: i for i, g in enumerate(groups)}
    sorter = TopologicalSorter({g: sorted(before[g], key=position.__getitem__) for g in groups})
    sorter.prepare()
    order: list[Group] = []
    ready: list[Group] = []
    while sorter.is_active():
        ready += sorter.get_ready()
        ready.sort(key=lambda g: (g not in needed, position[g]))
        order.append(ready.pop(0))
        sorter.done(order[-1])
    return order


@dataclass
class _Control:
    """A node of control flow where it stands."""

    group: Group
    accesses: dict[Node, Access]
    stores: Stores
    storage: Storage
    depth: int

    @property
    def node(self) -> Node:
        return self.group.nodes[0]

    def operands(self, start: int = 0, end: int | None = None) -> list[Access]:
        return [self.accesses[a.find()] for a in self.node.args[start:end]]

    def results(self) -> dict[int, list[Buffer]]:
        """Where each result that is used is written to."""
        return {n.attrs["index"]: self.stores.get(n, []) for n in self.group.nodes if n is not self.node}

    def inside(self, body: Subgraph, given: Sequence[Access], wanted: Mapping[int, list[Buffer]]) -> tuple[Step, ...]:
        """The steps of a subgraph that write those of its outputs that are wanted."""
        graph = Graph(body.graph.name)
        graph.inputs = body.graph.inputs
        outputs = [node.find() for node in body.graph.outputs.values()]
        graph.outputs = {f"r{i}": outputs[i] for i in wanted if wanted[i]}
        targets: Stores = {}
        for i, buffers in wanted.items():
            if buffers:
                targets.setdefault(outputs[i], []).extend(buffers)
        accesses = dict(zip(graph.inputs.values(), given, strict=True))
        ordered, _ = region(graph, accesses, targets, self.storage, depth=self.depth + 1)
        return tuple(step for _, step in ordered)

    def doc(self) -> tuple[str, ...]:
        return (f"{self.node.op.name} : {self.node.type}",)


def _copy(source: Access, target: Buffer) -> Plain:
    """All elements of a value into a buffer."""
    at = indices(target.shape)
    params = (Param("to", target, True), Param("from", source.buffer, False))
    body = nest(at, target.shape, [f"to[{Access(target, target.strides).index(at)}] = from[{source.index(at)}];"])
    return Plain(target.dtype, params, (), (), (), tuple(body), ("copy",))


def _slices(access: Access, position: Dim) -> Access:
    """One slice along the first axis."""
    buffer = slice_buffer(access.buffer, times(access.strides[0], position))
    return Access(buffer, access.strides[1:], access.offset, access.whole)


@dataclass
class _Carries:
    """Where carries lie during a loop, where a round leaves the next ones; copies into, within and out of it."""

    buffers: list[Buffer]
    following: list[Buffer]
    before: list[Step]
    moved: list[Step]
    after: list[Step]


def _carries(c: _Control, types: Sequence[Type], starts: Sequence[Access]) -> _Carries:
    results, carries, after = c.results(), [], list[Step]()
    for i, type_ in enumerate(types):
        wanted = results.get(i, [])
        own = next((b for b in wanted if b.where == "work"), None) or work_buffer(f"carry{c.depth}_{i}", type_)
        carries.append(own)
        after += [_copy(Access(own, own.strides), b) for b in wanted if b is not own]
    following = [work_buffer(f"next{c.depth}_{i}", t) for i, t in enumerate(types)]
    return _Carries(carries, following, _copies(starts, carries), _copies(_whole(following), carries), after)


def _copies(sources: Sequence[Access], targets: Sequence[Buffer]) -> list[Step]:
    return [_copy(source, target) for source, target in zip(sources, targets, strict=True)]


def _whole(buffers: Iterable[Buffer]) -> list[Access]:
    return [Access(b, b.strides) for b in buffers]


def _loop(
    c: _Control,
    variable: str,
    extent: Dim,
    carries: _Carries,
    steps: Sequence[Step],
    tested: tuple[Step, ...] = (),
    condition: Param | None = None,
) -> Step:
    """The loop over ``steps``, with what comes before and after it."""
    rounds = (*steps, *carries.moved)
    loop = Loop(variable, extent, tested, condition, rounds, tuple(carries.buffers), c.doc())
    return Steps((*carries.before, loop, *carries.after))


def _scan(c: _Control) -> Step:
    attrs = c.node.attrs
    consts, count, length = attrs["consts"], attrs["carries"], attrs["length"]
    variable = f"round{c.depth}"
    position = length - 1 - dim(variable) if attrs["reverse"] else dim(variable)
    carries = _carries(c, attrs["body"].outputs[:count], c.operands(consts, consts + count))
    given = [*c.operands(0, consts), *_whole(carries.buffers)]
    given += [_slices(access, position) for access in c.operands(consts + count)]
    wanted = {i: [b] for i, b in enumerate(carries.following)}
    for i, buffers in c.results().items():
        if i >= count:
            wanted[i] = [slice_buffer(b, times(b.strides[0], position), 1) for b in buffers]
    return _loop(c, variable, length, carries, c.inside(attrs["body"], given, wanted))


def _while(c: _Control) -> Step:
    attrs = c.node.attrs
    consts = attrs["consts"]
    carries = _carries(c, attrs["body"].outputs, c.operands(consts))
    given = [*c.operands(0, consts), *_whole(carries.buffers)]
    flag = work_buffer(f"flag{c.depth}", attrs["condition"].outputs[0])
    tested = c.inside(attrs["condition"], given, {0: [flag]})
    steps = c.inside(attrs["body"], given, {i: [b] for i, b in enumerate(carries.following)})
    return _loop(c, f"round{c.depth}", attrs["bound"], carries, steps, tested, Param("flag", flag, False))


def _cond(c: _Control) -> Step:
    pred, *given = c.operands()
    condition = Param("pred", slice_buffer(pred.buffer, pred.offset) if pred.offset != 0 else pred.buffer, False)
    then, otherwise = (c.inside(c.node.attrs[name], given, c.results()) for name in ("then", "otherwise"))
    return Branch(condition, then, otherwise, c.doc())


CONTROL = {"scan": _scan, "while": _while, "cond": _cond}
