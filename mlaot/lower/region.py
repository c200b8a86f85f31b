"""A graph's kernels in order, given where its inputs lie and where its results go; control flow holds regions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from heapq import heappop, heappush

from mlaot.ir import Dim, Graph, Node, Subgraph, Type, dim
from mlaot.ir.dims import assumed, times
from mlaot.lower.contraction import contraction_kernel
from mlaot.lower.fuse import Group, fuse
from mlaot.lower.inplace import Pair, behind_readers, dependencies, in_place
from mlaot.lower.layout import Access, behind_reshape, is_row_major, slice_buffer, view, work_buffer
from mlaot.lower.loops import loops_kernel
from mlaot.lower.moves import copy_kernel
from mlaot.lower.placement import Stores, part_of, place, read_by
from mlaot.lower.plan import plan
from mlaot.lower.program import Branch, Buffer, Kernel, Loop, Param, Step
from mlaot.lower.program import Sequence as Steps
from mlaot.lower.rows import needs_buffer, rows_kernel
from mlaot.lower.single import single_kernel
from mlaot.lower.sparse import sparse_kernel
from mlaot.lower.storage import Storage
from mlaot.lower.trees import trees_kernel
from mlaot.lower.winograd import winograd_steps
from mlaot.ops import elementwise as ew
from mlaot.ops import structure as st
from mlaot.ops.kinds import base_of, is_view, merges, root_of

Fused = tuple[list[Group], dict[Node, Group]]
Ordered = list[tuple[Group, Step]]
BUILDERS = {"rows": rows_kernel, "contraction": contraction_kernel, "single": single_kernel, "loops": loops_kernel}


def region(
    graph: Graph,
    accesses: dict[Node, Access],
    targets: Mapping[Node, list[Buffer]],
    storage: Storage,
    *,
    fused: Fused | None = None,
    overwritten: Sequence[Pair] = (),
    depth: int = 0,
) -> tuple[Ordered, set[Group]]:
    """The steps of ``graph`` in order, and the groups that its outputs need.

    ``accesses`` says how its inputs are read and is filled for its nodes; ``targets`` where its results are written,
    those of ``overwritten`` in the place of an input. ``depth`` counts the loops around it.
    """
    groups, home = fused or fuse(graph)
    merged = {base_of(n.arg(0)) for n in graph.nodes() if n.op is st.reshape and merges(n)}
    stores = _stores(groups, home, targets, merged)
    fixed, read = set(targets), read_by(groups)
    late = {new for _, new in overwritten}  # their places still hold what others read
    rounds: dict[Group, _Rounds] = {}
    for group in reversed(groups):  # who wants a value, before who makes it
        planned = PLANS.get(group.nodes[0].op.name)
        if planned is not None:
            rounds[group] = planned(group, stores, fixed, depth)
            _start_in_place(group, rounds[group], home, stores, fixed | late, read)
        elif group.nodes[0] not in late:
            place(group, home, stores, fixed, merged, read)
    for node in graph.nodes():
        if node.op is st.const and node.type.shape != ():
            buffer = storage.constant(node.attrs["value"])
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
            steps[group] = control(_Control(group, accesses, stores, storage, depth, rounds.get(group)))
        elif group.placed and len(group.placed) == len(group.nodes[0].args):
            steps[group] = Steps(())  # every part is written where it belongs
        elif group.kind == "winograd":
            steps[group] = winograd_steps(group, accesses, stores, depth)
        else:
            steps[group] = BUILDERS[group.kind](group, accesses, stores)
    needed = _ancestors({home[root_of(n)] for n in graph.outputs.values()}, home)
    behind = behind_readers(overwritten, groups, home)
    before = {g: some | behind.get(g, set()) for g, some in dependencies(groups, home).items()}
    return [(group, steps[group]) for group in _order(groups, before, needed, steps)], needed


def _stores(
    groups: list[Group], home: dict[Node, Group], targets: Mapping[Node, list[Buffer]], merged: set[Node]
) -> Stores:
    """Where each computed node is written to: where the caller wants it, and the workspace if other kernels read it.

    ``merged``: those of which several axes are read as one, which are to have no gaps between them.
    """
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
        is_single = node in home and home[node].kind == "single"  # cheap values have no home
        readable = ("output", "work", "state") if is_single else ("output", "work")
        found = stores.get(node, [])
        if not any(b.whole.where in readable for b in found) or (node in merged and not is_row_major(found[0])):
            stores.setdefault(node, []).insert(0, work_buffer(f"t{len(stores)}", node.type))
    return stores


def _ancestors(groups: Iterable[Group], home: dict[Node, Group]) -> set[Group]:
    found: set[Group] = set()
    stack = list(groups)
    before = dependencies(list(dict.fromkeys(home.values())), home)
    while stack:
        group = stack.pop()
        if group not in found:
            found.add(group)
            stack.extend(before[group])
    return found


def _order(
    groups: list[Group], before: Mapping[Group, set[Group]], needed: set[Group], steps: Mapping[Group, Step]
) -> list[Group]:
    """Kernels after those that must come before them, those that outputs need first: level by level, or what was just
    made possible next, whichever takes less room.
    """
    by_level, at_once = (_sorted(groups, before, needed, at_once=at_once) for at_once in (False, True))
    if by_level == at_once:
        return by_level
    return min(by_level, at_once, key=lambda order: _room([steps[g] for g in order]))


def _sorted(
    groups: list[Group], before: Mapping[Group, set[Group]], needed: set[Group], *, at_once: bool
) -> list[Group]:
    position = {g: i for i, g in enumerate(groups)}
    sorter = TopologicalSorter({g: sorted(before[g], key=position.__getitem__) for g in groups})
    sorter.prepare()
    done: dict[Group, int] = {}
    ready: list[tuple[bool, int, int]] = []  # a heap; what a group waits for is done when it gets there

    def rank(group: Group) -> tuple[bool, int, int]:
        latest = max((done[b] for b in before[group]), default=-1) if at_once else 0
        return group not in needed, -latest, position[group]

    while sorter.is_active():
        for group in sorter.get_ready():
            heappush(ready, rank(group))
        group = groups[heappop(ready)[-1]]
        done[group] = len(done)
        sorter.done(group)
    return list(done)


def _room(steps: Sequence[Step]) -> int:
    """The workspace of some steps, for dims of a usual size."""
    return assumed(plan(steps)[1])


@dataclass
class _Carried:
    """Where a carry lies: as a round finds it and as it leaves the next one, before the first round, after the last.

    ``moved``: the next one is copied back at the end of each round.
    """

    now: Buffer
    next: Buffer
    first: Buffer
    last: Buffer
    moved: bool = False


@dataclass
class _Rounds:
    """A loop as planned: the graph of a round, where its carries lie, and which of them it overwrites."""

    graph: Graph
    fused: Fused
    carries: list[_Carried]
    overwritten: list[Pair]
    covered: set[int] = field(default_factory=set)  # results that lie where the carries do


def _plan_scan(group: Group, stores: Stores, fixed: set[Node], depth: int) -> _Rounds:
    """A carry whose values of all rounds are wanted lies there; one that can be overwritten stays where it is; others
    have two places by turns.
    """
    attrs, wanted = group.nodes[0].attrs, _results(group)
    consts, count, length = attrs["consts"], attrs["carries"], attrs["length"]
    number, reverse = dim(f"round{depth}"), attrs["reverse"]
    body = attrs["body"].graph
    outputs, olds = _outputs(body), list(body.inputs.values())[consts : consts + count]
    values = [root_of(n) for n in outputs]
    rounds = _Rounds(body, ([], {}), [], [])
    histories: dict[int, Buffer] = {}
    for i, old in enumerate(olds):
        for j, node in wanted.items():
            given = outputs[j].op is ew.copy and outputs[j].arg(0) is old
            made = values[j] is values[i] and outputs[j].type == old.type
            private = node not in fixed and [b.where for b in stores.get(node, [])] == ["work"]
            if j >= count and j not in rounds.covered and private and (given or made):
                shape = (length + 1, *old.type.shape)
                history = histories.setdefault(i, work_buffer(f"carry{depth}_{i}", old.type.with_shape(shape)))
                start = times(history.strides[0], int(given == reverse))
                shape = (length, *old.type.shape)
                stores[node] = [part_of(history, shape, history.strides, start, dense=history.dense)]
                rounds.covered.add(j)
    rounds.graph = _giving(body, [*range(count), *(j for j in wanted if j >= count and j not in rounds.covered)])
    rounds.fused = fuse(rounds.graph)
    pairs = [(old, new) for i, (old, new) in enumerate(zip(olds, values, strict=False)) if i not in histories]
    rounds.overwritten = in_place(pairs, *rounds.fused)
    for i, (old, new) in enumerate(zip(olds, values, strict=False)):
        if i in histories:
            at = (length - number, length - 1 - number, length, 0) if reverse else (number, number + 1, 0, length)
            places = [_row(histories[i], n) for n in at]
        elif (old, new) in rounds.overwritten:
            places = [_place_of(wanted.get(i), stores, f"carry{depth}_{i}", old.type)] * 4
        else:
            both = work_buffer(f"carry{depth}_{i}", old.type.with_shape((2, *old.type.shape)))
            places = [_row(both, n) for n in (_parity(number), 1 - _parity(number), 0, _parity(length))]
        now, following, first, last = places
        rounds.carries.append(_Carried(now, following, first, last))
    return rounds


def _plan_while(group: Group, stores: Stores, fixed: set[Node], depth: int) -> _Rounds:
    """A carry that cannot be overwritten is copied back: how many rounds there are is not known."""
    attrs, wanted = group.nodes[0].attrs, _results(group)
    body = attrs["body"].graph
    outputs, olds = _outputs(body), list(body.inputs.values())[attrs["consts"] :]
    graph = _giving(body, range(len(outputs)))
    rounds = _Rounds(graph, fuse(graph), [], [])
    pairs = list(zip(olds, map(root_of, outputs), strict=True))
    rounds.overwritten = in_place(pairs, *rounds.fused)
    for i, pair in enumerate(pairs):
        own = _place_of(wanted.get(i), stores, f"carry{depth}_{i}", pair[0].type)
        moved = pair not in rounds.overwritten
        following = work_buffer(f"next{depth}_{i}", pair[0].type) if moved else own
        rounds.carries.append(_Carried(own, following, own, own, moved))
    return rounds


def _start_in_place(
    group: Group,
    rounds: _Rounds,
    home: Mapping[Node, Group],
    stores: Stores,
    fixed: set[Node],
    read: Mapping[Node, list[Node]],
) -> None:
    """What only carries start from is written where they begin, unless that place still holds what others read."""
    node, wanted = group.nodes[0], _results(group)
    consts = node.attrs["consts"]
    starts: dict[Node, list[int]] = {}
    for i in range(len(rounds.carries)):
        starts.setdefault(node.arg(consts + i), []).append(i)
    for start, places in starts.items():
        if start in home and start not in fixed and start.type.rank and read[start] == [node] * len(places):
            if len(places) > 1 and home[start].kind == "single":
                continue
            if any(wanted.get(i) in fixed and rounds.carries[i].first in stores[wanted[i]] for i in places):
                continue
            stores[start] = [rounds.carries[i].first for i in places]
            group.placed |= {consts + i for i in places}


def _results(group: Group) -> dict[int, Node]:
    """The results of a node of control flow that are used."""
    return {n.attrs["index"]: n for n in group.nodes[1:]}


def _outputs(graph: Graph) -> list[Node]:
    return [node.find() for node in graph.outputs.values()]


def _giving(body: Graph, results: Iterable[int]) -> Graph:
    """The graph of a subgraph with some of its results."""
    graph, outputs = Graph(body.name), _outputs(body)
    graph.inputs = body.inputs
    graph.outputs = {f"r{i}": outputs[i] for i in results}
    return graph


def _place_of(result: Node | None, stores: Stores, name: str, type_: Type) -> Buffer:
    """Where the last value of a carry is wanted, or a place of its own."""
    wanted = [] if result is None else stores.get(result, [])
    return wanted[0] if wanted else work_buffer(name, type_)


def _row(buffer: Buffer, position: Dim) -> Buffer:
    """One slice along the first axis."""
    return slice_buffer(buffer, times(buffer.strides[0], position), 1)


def _parity(number: Dim) -> Dim:
    return number - number // 2 * 2


@dataclass
class _Control:
    """A node of control flow where it stands."""

    group: Group
    accesses: dict[Node, Access]
    stores: Stores
    storage: Storage
    depth: int
    rounds: _Rounds | None

    @property
    def node(self) -> Node:
        return self.group.nodes[0]

    def operands(self, start: int = 0, end: int | None = None) -> list[Access]:
        return [self.accesses[a.find()] for a in self.node.args[start:end]]

    def results(self) -> dict[int, list[Buffer]]:
        """Where each result that is used is written to."""
        return {i: self.stores.get(n, []) for i, n in _results(self.group).items()}

    def inside(self, body: Subgraph, given: Sequence[Access], wanted: Mapping[int, list[Buffer]]) -> tuple[Step, ...]:
        """The steps of a subgraph that write those of its outputs that are wanted."""
        return self._steps(_giving(body.graph, [i for i in wanted if wanted[i]]), body, given, wanted, None, ())

    def round(self, given: Sequence[Access], wanted: Mapping[int, list[Buffer]]) -> tuple[Step, ...]:
        """The steps of one round of a loop."""
        rounds, body = self.rounds, self.node.attrs["body"]
        assert rounds is not None
        return self._steps(rounds.graph, body, given, wanted, rounds.fused, rounds.overwritten)

    def _steps(
        self,
        graph: Graph,
        body: Subgraph,
        given: Sequence[Access],
        wanted: Mapping[int, list[Buffer]],
        fused: Fused | None,
        overwritten: Sequence[Pair],
    ) -> tuple[Step, ...]:
        outputs = _outputs(body.graph)
        targets: Stores = {}
        for i, buffers in wanted.items():
            for buffer in buffers:
                value, target = behind_reshape(buffer, outputs[i])
                targets.setdefault(value, []).append(target)
        accesses = dict(zip(graph.inputs.values(), given, strict=True))
        options = {"overwritten": overwritten, "depth": self.depth + 1}
        ordered, _ = region(graph, accesses, targets, self.storage, fused=fused, **options)  # type: ignore[arg-type]
        return tuple(step for _, step in ordered)

    def doc(self) -> tuple[str, ...]:
        return (f"{self.node.op.name} : {self.node.type}",)


def _slices(access: Access, position: Dim) -> Access:
    """One slice along the first axis."""
    buffer = slice_buffer(access.buffer, times(access.strides[0], position))
    return Access(buffer, access.strides[1:], access.offset, access.whole)


def _whole(buffers: Iterable[Buffer]) -> list[Access]:
    return [Access(b, b.strides) for b in buffers]


def _loop(
    c: _Control,
    extent: Dim,
    starts: Sequence[Access],
    steps: Sequence[Step],
    tested: tuple[Step, ...] = (),
    condition: Param | None = None,
) -> Step:
    """The loop over ``steps``, with the copies of carries before, within and after it that are needed."""
    assert c.rounds is not None
    carries, results, consts = c.rounds.carries, c.results(), c.node.attrs["consts"]
    before, after = [], []
    for i, (carry, start) in enumerate(zip(carries, starts, strict=True)):
        if consts + i not in c.group.placed and start != Access(carry.first, carry.first.strides):
            before.append(copy_kernel(start, carry.first))
        last = Access(carry.last, carry.last.strides)
        after += [copy_kernel(last, b) for b in results.get(i, []) if b is not carry.last]
    moved = [copy_kernel(Access(carry.next, carry.next.strides), carry.now) for carry in carries if carry.moved]
    carried = tuple(dict.fromkeys(b.whole for carry in carries for b in (carry.now, carry.next) if not carry.moved))
    carried += tuple(carry.now.whole for carry in carries if carry.moved)
    loop = Loop(f"round{c.depth}", extent, tested, condition, (*steps, *moved), carried, c.doc())
    return Steps((*before, loop, *after))


def _scan(c: _Control) -> Step:
    attrs, rounds = c.node.attrs, c.rounds
    assert rounds is not None
    consts, count, length = attrs["consts"], attrs["carries"], attrs["length"]
    number = dim(f"round{c.depth}")
    position = length - 1 - number if attrs["reverse"] else number
    given = [*c.operands(0, consts), *_whole(carry.now for carry in rounds.carries)]
    given += [_slices(access, position) for access in c.operands(consts + count)]
    wanted = {i: [carry.next] for i, carry in enumerate(rounds.carries)}
    for i, buffers in c.results().items():
        if i >= count and i not in rounds.covered:
            wanted[i] = [_row(b, position) for b in buffers]
    return _loop(c, length, c.operands(consts, consts + count), c.round(given, wanted))


def _while(c: _Control) -> Step:
    attrs, rounds = c.node.attrs, c.rounds
    assert rounds is not None
    given = [*c.operands(0, attrs["consts"]), *_whole(carry.now for carry in rounds.carries)]
    flag = work_buffer(f"flag{c.depth}", attrs["condition"].outputs[0])
    tested = c.inside(attrs["condition"], given, {0: [flag]})
    steps = c.round(given, {i: [carry.next] for i, carry in enumerate(rounds.carries)})
    return _loop(c, attrs["bound"], c.operands(attrs["consts"]), steps, tested, Param("flag", flag, False))


def _cond(c: _Control) -> Step:
    pred, *given = c.operands()
    condition = Param("pred", slice_buffer(pred.buffer, pred.offset) if pred.offset != 0 else pred.buffer, False)
    then, otherwise = (c.inside(c.node.attrs[name], given, c.results()) for name in ("then", "otherwise"))
    return Branch(condition, then, otherwise, c.doc())


def _trees(c: _Control) -> Step:
    return _also_in(c, trees_kernel(c.group, c.accesses, c.stores, c.storage))


def _sparse(c: _Control) -> Step:
    return _also_in(c, sparse_kernel(c.group, c.accesses, c.stores))


def _also_in(c: _Control, kernel: Kernel) -> Step:
    """What a kernel writes, copied to wherever else it is wanted."""
    first, *others = c.stores[c.node]
    return (
        Steps((kernel, *[copy_kernel(Access(first, first.strides), buffer) for buffer in others])) if others else kernel
    )


CONTROL = {"scan": _scan, "while": _while, "cond": _cond, "tree_ensemble": _trees}
CONTROL |= dict.fromkeys(("sparse_dot", "sparse_add"), _sparse)
PLANS = {"scan": _plan_scan, "while": _plan_while}
