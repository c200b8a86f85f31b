"""Graphs to a Program: storage, fusion groups, kernels in an order that keeps slots right, a workspace plan."""

from __future__ import annotations

from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter

import numpy as np

from mlaot.errors import MlaotError
from mlaot.ir import DTYPES, Dim, Graph, Node
from mlaot.ir.dims import Expr, names, product, substitute
from mlaot.ir.module import Module as Model
from mlaot.ir.module import gradient_of
from mlaot.lower.contraction import contraction_kernel, operands
from mlaot.lower.emit import c_name
from mlaot.lower.fuse import Group, fuse
from mlaot.lower.layout import Access, caller_buffer, row_major, slot_strides, view, work_buffer
from mlaot.lower.moves import move_kernel
from mlaot.lower.plan import plan
from mlaot.lower.program import Buffer, Entry, Kernel, Module, Port, Procedure, Program, Slot
from mlaot.lower.rows import needs_buffer, rows_kernel
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.kinds import base_of, is_free, is_stored, is_view

Fused = tuple[list[Group], dict[Node, Group]]
TILE = 240  # rows
CACHE = 512 * 1024  # bytes
BUILDERS = {"rows": rows_kernel, "contraction": contraction_kernel, "move": move_kernel}
DOCS = {
    "forward": "The outputs of the model.",
    "loss": "The loss, averaged over the batch.",
    "train_step": "Forward pass, backward pass and update in one; the loss before the update.",
    "accumulate": "Forward pass, then the gradients added to what is there.",
    "update": "Parameters minus lr times their gradients.",
}


def lower(model: Model, isas: tuple[str, ...]) -> Program:
    """The program of a module whose graphs have been through the passes."""
    storage = _Storage(model)
    procedures = tuple(_procedure(name, graph, storage, model) for name, graph in model.graphs.items())
    dims = sorted(
        {n for g in model.graphs.values() for node in g.inputs.values() for d in node.type.shape for n in names(d)}
    )
    module = Module(
        model.name,
        tuple(dims),
        tuple(p.entry for p in procedures),
        storage.slots,
        storage.state_bytes,
        bytes(storage.constants),
        bytes(storage.initial),
        isas,
        {**model.info, **({"scalars": storage.scalar_offsets(model)} if model.scalars and model.trains else {})},
    )
    return Program(module, procedures)


class _Storage:
    """Where parameters, gradients and constants lie, for all entries."""

    def __init__(self, model: Model) -> None:
        self.buffers: dict[str, Buffer] = {}
        self.offsets: dict[Buffer, int] = {}
        self.constants = bytearray()
        self.initial = bytearray()
        graphs = list(model.graphs.values())
        slots = []
        for name, value in model.parameters.items():
            node = next((g.inputs[name] for g in graphs if name in g.inputs), None)
            if node is None:
                assert not model.trains, f"bug in mlaot: no entry has the parameter {name}"
                continue  # frozen, and nothing reads it
            buffer = Buffer(
                name,
                node.type.dtype.name,
                node.type.shape,
                slot_strides(graphs, name),
                "state" if model.trains else "constant",
            )
            data = _stored(value.astype(node.type.dtype.numpy), buffer)
            self.buffers[name] = buffer
            region = self.initial if model.trains else self.constants
            self.offsets[buffer] = _append(region, data)
            slots.append((name, buffer))
        if not model.trains:
            self.slots: tuple[Slot, ...] = ()
            self.state_bytes = 0
            return
        size = len(self.initial)
        for name, buffer in slots:
            gradient = Buffer(gradient_of(name), buffer.dtype, buffer.shape, buffer.strides, "state")
            self.buffers[gradient_of(name)] = gradient
            self.offsets[gradient] = size + self.offsets[buffer]
        self.slots = tuple(
            Slot(name, b.dtype, b.shape, b.strides, self.offsets[b], size + self.offsets[b])  # type: ignore[arg-type]
            for name, b in slots
        )
        self.state_bytes = 2 * size

    def constant(self, node: Node) -> Buffer:
        literal = node.attrs["value"]
        name = f"constant{len([k for k in self.buffers if k.startswith('constant(')])}"
        key = f"constant({literal.key[0]}{literal.key[1]}{hash(literal)})"
        for known, buffer in self.buffers.items():
            if known == key:
                return buffer
        strides = row_major(node.type.shape, node.type.dtype.itemsize, dense=False)
        buffer = Buffer(name, node.type.dtype.name, node.type.shape, strides, "constant")
        self.buffers[key] = buffer
        self.offsets[buffer] = _append(self.constants, _stored(literal.array, buffer))
        return buffer

    def scalar_offsets(self, model: Model) -> tuple[int, ...]:
        """For each scalar parameter of a scalar model, its byte offset in the state."""
        tables: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.int64]]] = {}
        for slot in self.slots:
            index = np.indices(slot.shape).reshape(len(slot.shape), -1).T if slot.shape else np.zeros((1, 0), np.int64)
            itemsize = DTYPES[slot.dtype].itemsize
            tables[slot.name] = slot.offset + itemsize * (index @ np.array(slot.strides, np.int64))
        return tuple(int(tables[name][i]) for name, i in model.scalars)


def _append(region: bytearray, data: bytes) -> int:
    offset = len(region)
    region += data + bytes(-len(data) % 64)
    return offset


def _stored(value: np.ndarray[tuple[int, ...], np.dtype[np.generic]], buffer: Buffer) -> bytes:
    """The bytes of an array in a buffer's storage, zeros in the padding."""
    size = buffer.bytes
    assert isinstance(size, int)
    flat = np.zeros(size // value.itemsize, value.dtype)
    strides = [int(s) * value.itemsize for s in buffer.strides]  # type: ignore[arg-type]
    np.lib.stride_tricks.as_strided(flat, value.shape, strides)[...] = value
    return flat.tobytes()


def _procedure(name: str, graph: Graph, storage: _Storage, model: Model) -> Procedure:
    """The entry ``name``; where writing a slot is in a reader's way, all values are complete before one is written."""
    _check_dims(name, graph)
    fused = fuse(graph)
    if not _overwrites(graph, fused[1]):
        try:
            return _in_place(name, graph, fused, storage, model)
        except CycleError:  # writers read each other's slots
            pass
    graph.writes = {slot: ew.copy(node) for slot, node in graph.writes.items()}
    try:
        return _in_place(name, graph, fuse(graph), storage, model)
    except CycleError:
        raise AssertionError("bug in mlaot: kernels wait for each other in a circle") from None


def _overwrites(graph: Graph, home: dict[Node, Group]) -> bool:
    """Whether a kernel that writes a slot still reads other elements of it than the one it writes."""
    for slot, node in graph.writes.items():
        source, group = graph.inputs[slot], home[node.find()]
        for member in group.nodes:
            moves = group.kind == "move" or (group.kind == "contraction" and member is group.nodes[0])
            for a in member.args:
                if base_of(a) is source and (moves or a.find() is not source):
                    return True
    return False


def _check_dims(name: str, graph: Graph) -> None:
    """Every named dim of an entry must be that of one of its inputs: a call learns its value from there."""
    known = {n for node in graph.inputs.values() for d in node.type.shape for n in names(d)}
    used = {n for node in graph.nodes() for d in (*node.type.shape, node.attrs.get("dim", 0)) for n in names(d)}
    if used - known:
        raise MlaotError(
            f"{name}: no input that the result depends on has the dimension {', '.join(sorted(used - known))}"
        )
    for dim in sorted(known - {"batch"}):
        if c_name(dim) != dim or dim in graph.inputs:
            raise MlaotError(f"a dimension cannot be called {dim!r}: the name is taken; choose another")


def _in_place(name: str, graph: Graph, fused: Fused, storage: _Storage, model: Model) -> Procedure:
    accesses: dict[Node, Access] = {}
    for key, node in graph.inputs.items():
        buffer = storage.buffers[key] if key in storage.buffers else caller_buffer(key, node, "input")
        accesses[node] = Access(buffer, buffer.strides)
    groups, home = fused
    stores = _stores(graph, groups, home, storage, accesses)
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
    kernels = {group: BUILDERS[group.kind](group, accesses, stores) for group in groups}
    needed = _ancestors({home[n.find()] for n in graph.outputs.values()}, home)
    order = _order(groups, home, kernels, needed)
    ordered = [kernels[g] for g in order]
    offsets, size = plan(ordered)
    limits = {n.arg(0): int(n.attrs["classes"]) for n in graph.nodes() if n.op is st.one_hot}
    entry = Entry(
        name,
        tuple(_port(k, n, limits.get(n)) for k, n in graph.inputs.items() if k not in storage.buffers),
        tuple(_port(k, n.find(), None) for k, n in graph.outputs.items()),
        str(size),
        str(_work(graph)),
        name == "accumulate",
        DOCS.get(name, ""),
        _tile(size) if name == "forward" and model.per_example else 0,
    )
    return Procedure(
        entry,
        tuple(ordered),
        tuple(offsets),
        len([g for g in order if g in needed]),
        {id(b): o for b, o in storage.offsets.items()},
    )


def _tile(workspace: Dim) -> int:
    """Rows at a time: as many as work in a part of the cache, in steps that whole register tiles divide."""
    size = substitute(workspace, {"batch": TILE})
    return TILE * max(1, min(64, CACHE // max(size, 1)))


def _port(name: str, node: Node, limit: int | None) -> Port:
    shape = tuple(d if isinstance(d, int) else str(d) for d in node.type.shape)
    return Port(name, node.type.dtype.name, shape, limit, node.attrs.get("default"))


def _stores(
    graph: Graph, groups: list[Group], home: dict[Node, Group], storage: _Storage, accesses: dict[Node, Access]
) -> dict[Node, list[Buffer]]:
    """Where each computed node is written to: outputs, slots, or the workspace if another kernel reads it."""
    stores: dict[Node, list[Buffer]] = {}
    for key, node in graph.outputs.items():
        found = node.find()
        stores.setdefault(found, []).append(caller_buffer(key, found, "output"))
    for slot, node in graph.writes.items():
        stores.setdefault(node.find(), []).append(storage.buffers[slot])
    wanted: dict[Node, None] = {}
    for group in groups:
        wanted |= dict.fromkeys(needs_buffer(group)) if group.kind == "rows" else {}
        for node in group.nodes:
            for a in node.args:
                base = base_of(a)
                if base in home and base not in group.members:
                    wanted[base] = None
    for node in wanted:
        kept = [b for b in stores.get(node, []) if b.where == "output"]
        if not kept:
            stores.setdefault(node, []).insert(0, work_buffer(f"t{len(stores)}", node))
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


def _order(
    groups: list[Group], home: dict[Node, Group], kernels: dict[Group, Kernel], needed: set[Group]
) -> list[Group]:
    """Kernels after what they read, a slot's writer after its other readers, those that outputs need first."""
    before: dict[Group, set[Group]] = {g: _reads(g, home) for g in groups}
    for group in groups:
        written = {p.buffer for p in kernels[group].params if p.written and p.buffer.where == "state"}
        for other in groups:
            if other is not group and any(p.buffer in written for p in kernels[other].params):
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


def _work(graph: Graph) -> Dim:
    """Floating-point operations, roughly: two a multiply-add, one an element of anything else."""
    total: Dim = 0
    for node in graph.nodes():
        if is_view(node) or is_stored(node) or is_free(node):
            continue
        size = product(node.type.shape)
        if node.op is red.contract:
            nodes, labels, out = operands(node)
            summed = {c: d for ls, n in zip(labels, nodes, strict=True) for c, d in zip(ls, n.type.shape, strict=True)}
            size = product((size, 2, *[d for c, d in summed.items() if c not in out]))
        elif node.op in (red.sum_, red.max_, red.min_):
            size = product(node.arg(0).type.shape)
        elif node.op in (ew.exp, ew.log, ew.tanh, ew.pow_):
            size = product((size, 10))
        total = size + total if isinstance(size, Expr) else total + size
    return total
