"""The steps of a graph in order: where each value is stored, the kernels, loops and branches around further graphs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from heapq import heappop, heappush

from mlaot.ir import Dim, Graph, Node, Subgraph, Type, dim
from mlaot.ir.dims import names, nominal
from mlaot.lower.contraction import contraction_kernel
from mlaot.lower.copies import copy_kernel
from mlaot.lower.fuse import Group, fuse
from mlaot.lower.inplace import Pair, behind_readers, dependencies, in_place
from mlaot.lower.layout import Access, is_row_major, slice_buffer, undo_reshape, view, work_buffer
from mlaot.lower.loops import loops_kernel
from mlaot.lower.placement import Stores, part_buffer, place_parts, readers_by_value
from mlaot.lower.plan import plan
from mlaot.lower.program import Bind, Branch, Buffer, Kernel, Loop, Param, Step, Steps, kernels_of
from mlaot.lower.rows import needs_buffer, rows_kernel
from mlaot.lower.separate_rows import rows_of_loop
from mlaot.lower.single import single_kernel
from mlaot.lower.sparse import sparse_kernel
from mlaot.lower.storage import Storage
from mlaot.lower.trees import trees_kernel
from mlaot.lower.winograd import winograd_steps
from mlaot.ops import elementwise as ew
from mlaot.ops import structure as st
from mlaot.ops.control import cond, scan, while_
from mlaot.ops.counting import counted
from mlaot.ops.kinds import base_of, is_view, merges, merges_rows, root_of
from mlaot.ops.sparse import sparse_add, sparse_dot
from mlaot.ops.trees import tree_ensemble
from mlaot.schedule.tuning import SHARED_KERNELS

Fused = tuple[list[Group], dict[Node, Group]]
Ordered = list[tuple[Group, Step]]
BUILDERS = {"rows": rows_kernel, "contraction": contraction_kernel, "single": single_kernel, "loops": loops_kernel}


def lower_graph(
    graph: Graph,
    accesses: dict[Node, Access],
    targets: Mapping[Node, list[Buffer]],
    storage: Storage,
    *,
    fused: Fused | None = None,
    overwritten: Sequence[Pair] = (),
    depth: int = 0,
) -> tuple[Ordered, set[Group]]:
    """Lower a graph: return its steps in order, and the groups that its outputs need.

    ``accesses`` has the accesses to the inputs, to which those of the graph's nodes are added. ``targets`` has the
    destinations of results; results in ``overwritten`` replace an input. ``depth`` counts the loops around the graph.
    """
    groups, group_of = fused or fuse(graph)
    reshapes = [node for node in graph.nodes() if node.op is st.reshape]
    merged = {base_of(node.arg(0)) for node in reshapes if merges(node)}
    gapless = {base_of(node.arg(0)) for node in reshapes if merges_rows(node) and is_view(node)}
    stores = _choose_buffers(groups, group_of, targets, merged, gapless)
    fixed, read = set(targets), readers_by_value(groups)
    late = {new for _, new in overwritten}  # their buffers still hold the old values, which other groups read
    rounds: dict[Group, _LoopPlan] = {}
    for group in reversed(groups):  # a reader decides where a value lies, before the group that computes it
        plan_loop = LOOP_PLANS.get(group.nodes[0].op)
        if plan_loop is not None:
            rounds[group] = plan_loop(group, stores, fixed, depth)
            _write_starts_in_place(group, rounds[group], group_of, stores, fixed | late, read)
        elif group.nodes[0] not in late:
            place_parts(group, group_of, stores, fixed, merged, read)
    for node in graph.nodes():
        if node.op is st.const and node.type.shape != ():
            buffer = storage.constant(node.attrs["value"])
            accesses[node] = Access(buffer, buffer.strides)
        elif node in stores:
            accesses[node] = Access(stores[node][0], stores[node][0].strides)
        elif is_view(node) and (inner := accesses.get(node.arg(0))) is not None:
            access = view(node, inner)
            assert access is not None, f"bug in mlaot: {node} is no view"
            accesses[node] = access
    steps: dict[Group, Step] = {}
    for group in groups:
        lower_control = CONTROL.get(group.nodes[0].op)
        if lower_control is not None:
            steps[group] = lower_control(_ControlFlow(group, accesses, stores, storage, depth, rounds.get(group)))
        elif group.placed and len(group.placed) == len(group.nodes[0].args):
            steps[group] = Steps(())  # every part is written where it belongs
        elif group.kind == "winograd":
            steps[group] = winograd_steps(group, accesses, stores, depth)
        else:
            steps[group] = BUILDERS[group.kind](group, accesses, stores)
    needed = _ancestors({group_of[root_of(n)] for n in graph.outputs.values()}, group_of)
    behind = behind_readers(overwritten, groups, group_of)
    before = {g: own | behind.get(g, set()) for g, own in dependencies(groups, group_of).items()}
    return [(group, steps[group]) for group in _order(groups, before, needed, steps)], needed


def _choose_buffers(
    groups: list[Group],
    group_of: dict[Node, Group],
    targets: Mapping[Node, list[Buffer]],
    merged: set[Node],
    gapless: set[Node],
) -> Stores:
    """Choose the buffers of each node: those of the caller, and one in the workspace if other kernels read it.

    ``merged`` are the nodes of which several axes are read as one, which must have no gaps between them. With
    ``gapless`` the last axis is one of these.
    """
    stores: Stores = {node: list(buffers) for node, buffers in targets.items()}
    read: dict[Node, None] = {}
    for group in groups:
        read |= dict.fromkeys(needs_buffer(group)) if group.kind == "rows" else {}
        for node in group.nodes:
            for a in node.args:
                base = base_of(a)
                if base in group_of and base not in group.members:
                    read[base] = None
    for node in read:
        is_single = node in group_of and group_of[node].kind == "single"  # cheap values have no group of their own
        readable = ("output", "work", "state") if is_single else ("output", "work")
        buffers = stores.get(node, [])
        is_readable = any(b.root.where in readable for b in buffers)
        if not is_readable or (node in merged and not is_row_major(buffers[0], gapless=node in gapless)):
            own = stores.setdefault(node, [])
            own.insert(0, work_buffer(f"t{len(stores)}", node.type, gapless=node in gapless))
    return stores


def _ancestors(groups: Iterable[Group], group_of: dict[Node, Group]) -> set[Group]:
    """Return the groups that some groups depend on, themselves included."""
    ancestors: set[Group] = set()
    stack = list(groups)
    before = dependencies(list(dict.fromkeys(group_of.values())), group_of)
    while stack:
        group = stack.pop()
        if group not in ancestors:
            ancestors.add(group)
            stack.extend(before[group])
    return ancestors


def _order(
    groups: list[Group], before: Mapping[Group, set[Group]], needed: set[Group], steps: Mapping[Group, Step]
) -> list[Group]:
    """Order groups after those that they depend on, and those that outputs depend on before all others.

    Two orders are tried: level by level, or each group as soon as its arguments are computed. The one with the smaller
    workspace is chosen.
    """
    by_level, at_once = (_sort(groups, before, needed, at_once=at_once) for at_once in (False, True))
    if by_level == at_once:
        return by_level
    return min(by_level, at_once, key=lambda order: _workspace_bytes([steps[g] for g in order]))


def _sort(groups: list[Group], before: Mapping[Group, set[Group]], needed: set[Group], *, at_once: bool) -> list[Group]:
    """Sort groups topologically; ``at_once`` prefers the group whose last argument was computed most recently."""
    position = {g: i for i, g in enumerate(groups)}
    sorter = TopologicalSorter({g: sorted(before[g], key=position.__getitem__) for g in groups})
    sorter.prepare()
    done: dict[Group, int] = {}
    ready: list[tuple[bool, int, int]] = []  # a heap; when a group gets there, those before it are done

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


def _workspace_bytes(steps: Sequence[Step]) -> int:
    """Return the size of the workspace of steps for nominal dims."""
    return nominal(plan(steps)[1])


@dataclass
class _Carry:
    """The buffers of a carry.

    A round reads ``now`` and writes ``next``; ``first`` and ``last`` are outside of the loop.

    With ``is_copied``, ``next`` is copied back to ``now`` at the end of each round.
    """

    now: Buffer
    next: Buffer
    first: Buffer
    last: Buffer
    is_copied: bool = False


@dataclass
class _LoopPlan:
    """The plan of a loop: the graph of a round, the buffers of its carries, and the pairs that it overwrites."""

    graph: Graph
    fused: Fused
    carries: list[_Carry]
    overwritten: list[Pair]
    covered: set[int] = field(default_factory=set)  # results that lie in the buffers of carries


def _plan_scan(group: Group, stores: Stores, fixed: set[Node], depth: int) -> _LoopPlan:
    """Plan the carries of a scan.

    * If the loop also returns the values of a carry in all rounds, the carry lives in that array, its history.
    * If a round can overwrite its carry, the carry has one buffer.
    * Any other carry has two buffers, which rounds use in turn: round k reads number k mod 2 and writes the other one.
    """
    attrs, results = group.nodes[0].attrs, _results(group)
    consts, count, length = attrs["consts"], attrs["carries"], attrs["length"]
    number, reverse = dim(f"round{depth}"), attrs["reverse"]
    body = attrs["body"].graph
    olds, values = list(body.inputs.values())[consts : consts + count], [root_of(n) for n in _outputs(body)]
    histories, covered = _share_histories(group, olds, stores, fixed, depth)
    graph = _select_outputs(body, [*range(count), *(j for j in results if j >= count and j not in covered)])
    rounds = _LoopPlan(graph, fuse(graph), [], [], covered)
    pairs = [(old, new) for i, (old, new) in enumerate(zip(olds, values, strict=False)) if i not in histories]
    rounds.overwritten = in_place(pairs, *rounds.fused)
    for i, (old, new) in enumerate(zip(olds, values, strict=False)):
        if i in histories:
            rows = (length - number, length - 1 - number, length, 0) if reverse else (number, number + 1, 0, length)
            buffers = [_slice(histories[i], row) for row in rows]
        elif (old, new) in rounds.overwritten:
            buffers = [_carry_buffer(results.get(i), stores, f"carry{depth}_{i}", old.type)] * 4
        else:
            both = work_buffer(f"carry{depth}_{i}", old.type.with_shape((2, *old.type.shape)))
            buffers = [_slice(both, n) for n in (_parity(number), 1 - _parity(number), 0, _parity(length))]
        now, following, first, last = buffers
        rounds.carries.append(_Carry(now, following, first, last))
    return rounds


def _share_histories(
    group: Group, olds: Sequence[Node], stores: Stores, fixed: set[Node], depth: int
) -> tuple[dict[int, Buffer], set[int]]:
    """Place results that are a carry's value in each round in rows of the carry's history.

    Row k of a history is the carry before round k, so row ``length`` is the last one. In reverse, rows count back from
    the end. The values before each round are then all rows but the last, and those after each round all rows but the
    first; in reverse it is the other way round. Return the histories by carry, and the results that they contain.
    """
    attrs = group.nodes[0].attrs
    outputs, length = _outputs(attrs["body"].graph), attrs["length"]
    histories: dict[int, Buffer] = {}
    covered: set[int] = set()
    for i, old in enumerate(olds):
        for j, node in _results(group).items():
            is_old = outputs[j].op is ew.copy and outputs[j].arg(0) is old
            is_new = root_of(outputs[j]) is root_of(outputs[i]) and outputs[j].type == old.type
            is_private = node not in fixed and [b.where for b in stores.get(node, [])] == ["work"]
            if j >= attrs["carries"] and j not in covered and is_private and (is_old or is_new):
                type_ = old.type.with_shape((length + 1, *old.type.shape))
                history = histories.setdefault(i, work_buffer(f"carry{depth}_{i}", type_))
                start = history.strides[0] * int(is_old == attrs["reverse"])
                shape = (length, *old.type.shape)
                stores[node] = [part_buffer(history, shape, history.strides, start, dense=history.dense)]
                covered.add(j)
    return histories, covered


def _plan_while(group: Group, stores: Stores, fixed: set[Node], depth: int) -> _LoopPlan:
    """Plan the carries of a while loop. A carry that cannot be overwritten is copied back after each round."""
    attrs, results = group.nodes[0].attrs, _results(group)
    body = attrs["body"].graph
    outputs, olds = _outputs(body), list(body.inputs.values())[attrs["consts"] :]
    graph = _select_outputs(body, range(len(outputs)))
    rounds = _LoopPlan(graph, fuse(graph), [], [])
    pairs = list(zip(olds, map(root_of, outputs), strict=True))
    rounds.overwritten = in_place(pairs, *rounds.fused)
    for i, pair in enumerate(pairs):
        own = _carry_buffer(results.get(i), stores, f"carry{depth}_{i}", pair[0].type)
        is_copied = pair not in rounds.overwritten
        following = work_buffer(f"next{depth}_{i}", pair[0].type) if is_copied else own
        rounds.carries.append(_Carry(own, following, own, own, is_copied))
    return rounds


def _write_starts_in_place(
    group: Group,
    rounds: _LoopPlan,
    group_of: Mapping[Node, Group],
    stores: Stores,
    fixed: set[Node],
    read: Mapping[Node, list[Node]],
) -> None:
    """Let the kernels that compute the initial values of carries write them to the buffers of the carries.

    This is possible if nothing else reads such a value, and if the buffer holds no value that is still read.
    """
    node, results = group.nodes[0], _results(group)
    consts = node.attrs["consts"]
    starts: dict[Node, list[int]] = {}
    for i in range(len(rounds.carries)):
        starts.setdefault(node.arg(consts + i), []).append(i)
    for start, places in starts.items():
        if start in group_of and start not in fixed and start.type.rank and read[start] == [node] * len(places):
            if len(places) > 1 and group_of[start].kind == "single":
                continue
            if any(results.get(i) in fixed and rounds.carries[i].first in stores[results[i]] for i in places):
                continue
            stores[start] = [rounds.carries[i].first for i in places]
            group.placed |= {consts + i for i in places}


def _results(group: Group) -> dict[int, Node]:
    """Return the used results of a control-flow node by index."""
    return {n.attrs["index"]: n for n in group.nodes[1:]}


def _outputs(graph: Graph) -> list[Node]:
    return [node.find() for node in graph.outputs.values()]


def _select_outputs(body: Graph, results: Iterable[int]) -> Graph:
    """Return the graph of a subgraph with only some of its results."""
    graph, outputs = Graph(body.name), _outputs(body)
    graph.inputs = body.inputs
    graph.outputs = {f"r{i}": outputs[i] for i in results}
    return graph


def _carry_buffer(result: Node | None, stores: Stores, name: str, type_: Type) -> Buffer:
    """Return the destination of the last value of a carry, or a buffer of the carry's own."""
    buffers = [] if result is None else stores.get(result, [])
    return buffers[0] if buffers else work_buffer(name, type_)


def _slice(buffer: Buffer, position: Dim) -> Buffer:
    """Return one slice of a buffer along its first axis."""
    return slice_buffer(buffer, buffer.strides[0] * position, 1)


def _parity(number: Dim) -> Dim:
    return number - number // 2 * 2


@dataclass
class _ControlFlow:
    """A node of control flow and its context."""

    group: Group
    accesses: dict[Node, Access]
    stores: Stores
    storage: Storage
    depth: int
    rounds: _LoopPlan | None

    @property
    def node(self) -> Node:
        return self.group.nodes[0]

    def operands(self, start: int = 0, end: int | None = None) -> list[Access]:
        return [self.accesses[a.find()] for a in self.node.args[start:end]]

    def results(self) -> dict[int, list[Buffer]]:
        """Return the buffers that each used result is written to."""
        return {i: self.stores.get(n, []) for i, n in _results(self.group).items()}

    def inside(self, body: Subgraph, inputs: Sequence[Access], targets: Mapping[int, list[Buffer]]) -> tuple[Step, ...]:
        """Return the steps of a subgraph that write the outputs in ``targets``."""
        return self._steps(
            _select_outputs(body.graph, [i for i in targets if targets[i]]), body, inputs, targets, None, ()
        )

    def round(self, inputs: Sequence[Access], targets: Mapping[int, list[Buffer]]) -> tuple[Step, ...]:
        """Return the steps of one round of a loop."""
        rounds, body = self.rounds, self.node.attrs["body"]
        assert rounds is not None
        return self._steps(rounds.graph, body, inputs, targets, rounds.fused, rounds.overwritten)

    def _steps(
        self,
        graph: Graph,
        body: Subgraph,
        inputs: Sequence[Access],
        buffers: Mapping[int, list[Buffer]],
        fused: Fused | None,
        overwritten: Sequence[Pair],
    ) -> tuple[Step, ...]:
        """Lower a subgraph that reads ``inputs`` and writes its results to ``buffers``."""
        outputs = _outputs(body.graph)
        targets: Stores = {}
        for i, result_buffers in buffers.items():
            for buffer in result_buffers:
                value = root_of(outputs[i])
                targets.setdefault(value, []).append(undo_reshape(buffer, outputs[i], value))
        accesses = dict(zip(graph.inputs.values(), inputs, strict=True))
        options = {"overwritten": overwritten, "depth": self.depth + 1}
        ordered, _ = lower_graph(graph, accesses, targets, self.storage, fused=fused, **options)  # type: ignore[arg-type]
        return tuple(step for _, step in ordered)

    def doc(self) -> tuple[str, ...]:
        return (f"{self.node.op.name} : {self.node.type}",)


def _slice_access(access: Access, position: Dim) -> Access:
    """Return the access to one slice along the first axis."""
    buffer = slice_buffer(access.buffer, access.strides[0] * position)
    return Access(buffer, access.strides[1:], access.offset, access.reaches_end)


def _accesses(buffers: Iterable[Buffer]) -> list[Access]:
    return [Access(b, b.strides) for b in buffers]


def _loop(
    c: _ControlFlow,
    extent: Dim,
    starts: Sequence[Access],
    steps: Sequence[Step],
    tested: tuple[Step, ...] = (),
    condition: Param | None = None,
) -> Step:
    """Return the loop over ``steps``, with the copies of carries that it needs before, inside and after it."""
    assert c.rounds is not None
    carries, results, consts = c.rounds.carries, c.results(), c.node.attrs["consts"]
    before, after = [], []
    for i, (carry, start) in enumerate(zip(carries, starts, strict=True)):
        if consts + i not in c.group.placed and start != Access(carry.first, carry.first.strides):
            before.append(copy_kernel(start, carry.first))
        last = Access(carry.last, carry.last.strides)
        after += [copy_kernel(last, b) for b in results.get(i, []) if b is not carry.last]
    copies = [copy_kernel(Access(carry.next, carry.next.strides), carry.now) for carry in carries if carry.is_copied]
    carried = tuple(dict.fromkeys(b.root for carry in carries for b in (carry.now, carry.next) if not carry.is_copied))
    carried += tuple(carry.now.root for carry in carries if carry.is_copied)
    rows = _rows(c, (*steps, *copies)) if condition is None else ""
    loop = Loop(f"round{c.depth}", extent, tested, condition, (*steps, *copies), carried, c.doc(), rows=rows)
    return Steps((*before, loop, *after))


def _rows(c: _ControlFlow, steps: Sequence[Step]) -> str:
    """Return the dim along which a scan computes separate rows with a few kernels, or an empty string."""
    attrs = c.node.attrs
    if not _are_kernels(steps) or len([*kernels_of(steps)]) > SHARED_KERNELS:
        return ""
    return rows_of_loop(attrs["body"].graph, attrs["carries"], attrs["consts"]) or ""


def _are_kernels(steps: Iterable[Step]) -> bool:
    """Tell whether no step is a loop or a branch."""
    return all(_are_kernels(s.inner) if isinstance(s, Steps) else isinstance(s, Kernel) for s in steps)


def _scan(c: _ControlFlow) -> Step:
    """Lower a scan. Each round accesses the next slices of its inputs and outputs."""
    attrs, rounds = c.node.attrs, c.rounds
    assert rounds is not None
    consts, count, length = attrs["consts"], attrs["carries"], attrs["length"]
    number = dim(f"round{c.depth}")
    position = length - 1 - number if attrs["reverse"] else number
    inputs = [*c.operands(0, consts), *_accesses(carry.now for carry in rounds.carries)]
    inputs += [_slice_access(access, position) for access in c.operands(consts + count)]
    targets = {i: [carry.next] for i, carry in enumerate(rounds.carries)}
    for i, buffers in c.results().items():
        if i >= count and i not in rounds.covered:
            targets[i] = [_slice(b, position) for b in buffers]
    return _loop(c, length, c.operands(consts, consts + count), c.round(inputs, targets))


def _while(c: _ControlFlow) -> Step:
    """Lower a while loop; a flag in memory holds the condition."""
    attrs, rounds = c.node.attrs, c.rounds
    assert rounds is not None
    inputs = [*c.operands(0, attrs["consts"]), *_accesses(carry.now for carry in rounds.carries)]
    flag = work_buffer(f"flag{c.depth}", attrs["condition"].outputs[0])
    tested = c.inside(attrs["condition"], inputs, {0: [flag]})
    steps = c.round(inputs, {i: [carry.next] for i, carry in enumerate(rounds.carries)})
    return _loop(c, attrs["bound"], c.operands(attrs["consts"]), steps, tested, Param("flag", flag, False))


def _cond(c: _ControlFlow) -> Step:
    """Lower both branches, which write to the same buffers."""
    pred, *inputs = c.operands()
    condition = Param("pred", slice_buffer(pred.buffer, pred.offset) if pred.offset != 0 else pred.buffer, False)
    then, otherwise = (c.inside(c.node.attrs[name], inputs, c.results()) for name in ("then", "otherwise"))
    return Branch(condition, then, otherwise, c.doc())


def _trees(c: _ControlFlow) -> Step:
    return _copy_to_all(c, trees_kernel(c.group, c.accesses, c.stores, c.storage))


def _sparse(c: _ControlFlow) -> Step:
    return _copy_to_all(c, sparse_kernel(c.group, c.accesses, c.stores))


def _copy_to_all(c: _ControlFlow, kernel: Kernel) -> Step:
    """Return a kernel, with copies of its result to all further buffers of the node."""
    first, *copies = c.stores[c.node]
    return (
        Steps((kernel, *[copy_kernel(Access(first, first.strides), buffer) for buffer in copies])) if copies else kernel
    )


def _counted(c: _ControlFlow) -> Step:
    """Lower the subgraph that depends on a counted dim."""
    count, *inputs = c.operands()
    (name,), attrs = names(c.node.attrs["dim"]), c.node.attrs
    steps = c.inside(attrs["body"], inputs, c.results())
    return Bind(name, Param("count", count.buffer, False), attrs["most"], attrs["needs"], steps, c.doc())


CONTROL = {
    scan: _scan,
    while_: _while,
    cond: _cond,
    counted: _counted,
    tree_ensemble: _trees,
    sparse_dot: _sparse,
    sparse_add: _sparse,
}
LOOP_PLANS = {scan: _plan_scan, while_: _plan_while}
