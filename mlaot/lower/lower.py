"""Lower graphs to a program: storage, fusion groups, kernels in an order that respects slots, and the workspace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from mlaot.errors import MlaotError
from mlaot.ir import Dim, Graph, Node, users
from mlaot.ir.counts import Count, counts, most_of
from mlaot.ir.dims import NOMINAL, Expr, dim, largest, names, product, substitute
from mlaot.ir.indices import IndexRange
from mlaot.ir.module import (
    FIT_BEGIN,
    FIT_END,
    FIT_STEP,
    INTERMEDIATES,
    PHASES,
    PREPARE,
    READ_TEXTS,
    SEEN,
    Generation,
    Module,
)
from mlaot.ir.rename import rename_dims
from mlaot.ir.subgraph import subgraphs
from mlaot.lower.contraction import operands
from mlaot.lower.costs import costs
from mlaot.lower.counts import needs_of, nest_counts
from mlaot.lower.fuse import fuse
from mlaot.lower.identifiers import dim_name, dims_inside, dims_of, with_c_dims
from mlaot.lower.inplace import in_place
from mlaot.lower.layout import Access, caller_buffer, undo_reshape
from mlaot.lower.plan import plan
from mlaot.lower.prepare import prepare_procedure
from mlaot.lower.program import (
    HELD,
    Buffer,
    Counted,
    Entry,
    ExtensionModule,
    Port,
    Procedure,
    Program,
    Step,
    kernels_of,
)
from mlaot.lower.region import Fused, lower_graph
from mlaot.lower.roundings import round_products
from mlaot.lower.separate_rows import separate_rows
from mlaot.lower.storage import Storage
from mlaot.ops import elementwise as ew
from mlaot.ops.base import conditions
from mlaot.ops.control import result
from mlaot.ops.counting import counted
from mlaot.ops.kinds import PRODUCTS, is_free, is_stored, is_view, root_of, slot_root
from mlaot.ops.quantized import contract_bytes
from mlaot.ops.trees import tree_ensemble
from mlaot.schedule.machine import REFERENCE
from mlaot.schedule.tuning import BATCH_ROWS, BATCH_SHARE, FAR_BATCH_ROWS, MOST_BATCH_ROWS, NEXT_SHARE

NO_COUNTS: Mapping[str, Dim] = MappingProxyType({})
DOCS = {
    "forward": "The outputs of the model.",
    "loss": "The loss, averaged over the batch.",
    "train_step": "Forward pass, backward pass and update in one. The loss is that before the update.",
    "accumulate": "Forward pass and backward pass in one. The gradients are added to `gradients`.",
    PHASES: "Forward pass, then the gradients added to what is there.",
    "update": "One step of the optimizer, by the gradients that accumulate() or backward() left.",
    FIT_BEGIN: "The products of a block of examples with weights that are updated at its end, and with each other.",
    FIT_STEP: "train_step on one example of a block, all but these weights.",
    INTERMEDIATES: "What forward() computes on its way, by the names that the model has given.",
    PREPARE: "Weights in the form that kernels read, which takes more room than the weights.",
    READ_TEXTS: "Read the next token of each of several texts.",
    FIT_END: "Their updates by all examples of the block.",
}


def lower(model: Module) -> Program:
    """Lower a module whose graphs have been through the passes."""
    dims = sorted({dim for name, graph in model.graphs.items() for dim in _dims_of(name, graph, model.generation)})
    options = model.options
    prepared = with_c_dims if options.deterministic else round_products
    model = replace(model, graphs={name: prepared(graph) for name, graph in model.graphs.items()})
    storage = Storage(model)
    procedures = tuple(_procedure(name, graph, storage, model, dims) for name, graph in model.graphs.items())
    if storage.prepared:
        procedures += (prepare_procedure(storage.prepared, storage.offsets, DOCS[PREPARE]),)
    module = ExtensionModule(
        model.name,
        tuple(dims),
        tuple(p.entry for p in procedures),
        storage.slots,
        storage.state_bytes,
        storage.constants,
        bytes(storage.initial),
        options,
        {**model.info, **({"scalars": storage.scalar_offsets(model)} if model.scalars and model.trains else {})},
        words=any(c is not None and c.has_integer_sums for p in procedures for c in (k.contraction for k in p.kernels)),
        generation=model.generation,
        texts=storage.texts,
    )
    program = Program(module, procedures)
    return replace(program, module=replace(module, costs=costs(program))) if options.profile else program


def _procedure(name: str, graph: Graph, storage: Storage, model: Module, dims: Sequence[str]) -> Procedure:
    """Lower the entry ``name``.

    A slot that cannot be written in place, since another kernel reads it later, gets a copy of its complete new value.
    """
    found = counts(graph)
    needs = needs_of(graph, found)
    graph = nest_counts(graph)
    used = users(graph.nodes())
    for key, node in graph.outputs.items():
        root = node.find()
        readers = [u for n in {root, root_of(node)} for u in used[n] if u is not root]
        if root.type.shape and readers:  # other kernels read padded rows, callers get dense ones
            graph.outputs[key] = ew.copy(node)
    fused, copied = fuse(graph), set[str]()
    while len(fitting := in_place(_slots(graph), *fused)) < len(graph.writes):
        for slot, node in graph.writes.items():
            if (graph.inputs[slot], slot_root(node)) not in fitting:
                assert slot not in copied, f"bug in mlaot: no order of the kernels of {name} that write {slot}"
                graph.writes[slot] = ew.copy(node)
                copied.add(slot)
        fused = fuse(graph)
    return _lower_entry(name, graph, fused, storage, model, dims, list(zip(found, needs, strict=True)))


def _slots(graph: Graph) -> list[tuple[Node, Node]]:
    """Return the old and the new value of each slot that is written."""
    return [(graph.inputs[slot], slot_root(node)) for slot, node in graph.writes.items()]


def _dims_of(name: str, graph: Graph, generation: Generation | None) -> set[str]:
    """Return the named dims of an entry. Raise ``MlaotError`` for a dim that no input and no text determines."""
    used, found = dims_inside(graph), dims_of(graph) | {count.name for count in counts(graph)}
    if generation is not None and name in (generation.entry, READ_TEXTS):
        found |= {SEEN} & used
    if used - found:
        raise MlaotError(
            f"{name}: no input that the result depends on has the dimension {', '.join(sorted(used - found))}"
        )
    return found


def _lower_entry(
    name: str,
    graph: Graph,
    fused: Fused,
    storage: Storage,
    model: Module,
    dims: Sequence[str],
    found: Sequence[tuple[Count, tuple[Dim, ...]]],
) -> Procedure:
    """Lower an entry: bind its inputs and outputs to buffers, order its kernels and plan its workspace.

    ``found`` lists the dims that it counts, each with the expressions that must then not be negative.
    """
    own = {dim_name(name): dim(name) for name in dims}
    accesses: dict[Node, Access] = {}
    for key, node in graph.inputs.items():
        buffer = storage.buffers[key] if key in storage.buffers else caller_buffer(key, node.type, "input")
        accesses[node] = Access(buffer, buffer.strides)
    targets: dict[Node, list[Buffer]] = {}
    for key, node in graph.outputs.items():
        _write(targets, node, root_of(node), caller_buffer(key, node.find().type, "output"))
    for slot, node in graph.writes.items():
        _write(targets, node, slot_root(node), storage.buffers[slot])
    ordered, needed = lower_graph(graph, accesses, targets, storage, fused=fused, overwritten=_slots(graph))
    offsets, size = plan([step for _, step in ordered])
    ranges, most = model.ranges.get(name, {}), most_of(count for count, _ in found)
    noted = [
        Counted(name, most_text, _texts(needs, own))
        for count, needs in found
        for name, most_text in [_texts([count.node.attrs["dim"], count.most], own)]
    ]
    ports = [_port(k, n, own, ranges.get(k, ())) for k, n in graph.inputs.items() if k not in storage.buffers]
    entry = Entry(
        name,
        tuple(sorted(ports, key=lambda port: port.made is not None)),
        tuple(_output(model, name, k, n.find(), own, most) for k, n in graph.outputs.items()),
        str(rename_dims(size, own)),
        str(rename_dims(largest(_work(graph), most), own)),
        name == PHASES,
        model.docs.get(name) or DOCS.get(name, ""),
        *_tile(name, graph, model, size, [step for _, step in ordered], own),
        _texts([d for d in conditions(graph) if names(d).isdisjoint(most)], own),
        name in model.dicts,
        model.refusals if name == "forward" else (),
        tuple(noted),
    )
    return Procedure(
        entry,
        tuple(step for _, step in ordered),
        tuple(offsets),
        len([group for group, _ in ordered if group in needed]),
        {id(b): o for b, o in storage.offsets.items()},
    )


def _write(targets: dict[Node, list[Buffer]], node: Node, value: Node, buffer: Buffer) -> None:
    targets.setdefault(value, []).append(undo_reshape(buffer, node, value))


def _tile(
    name: str, graph: Graph, model: Module, workspace: Dim, steps: Iterable[Step], own: Mapping[str, Expr]
) -> tuple[int, str]:
    """Return the number of rows to compute at a time, and their dim; 0 rows if rows depend on each other.

    Their workspace fits a part of the cache, and register tiles divide their number. There are many if weights do not
    fit the cache.
    """
    is_declared = name == "forward" and model.per_example and "batch" in dims_inside(graph)
    rows = "batch" if is_declared else separate_rows(graph)
    if rows is None:
        return 0, ""
    held = {id(root): root.bytes for k in kernels_of(steps) for p in k.params if (root := p.buffer.root).where in HELD}
    is_far = sum(size for size in held.values() if isinstance(size, int)) > REFERENCE.caches.second * NEXT_SHARE
    least = FAR_BATCH_ROWS if is_far else BATCH_ROWS
    size = substitute(workspace, {n: least if n == rows else NOMINAL for n in names(workspace)})
    room = int(REFERENCE.caches.second * BATCH_SHARE)
    return least * max(1, min(MOST_BATCH_ROWS // least, room // max(size, 1))), str(rename_dims(dim(rows), own))


def _port(
    name: str,
    node: Node,
    own: Mapping[str, Expr],
    ranges: tuple[IndexRange, ...] = (),
    strings: tuple[str, ...] = (),
    most: Mapping[str, Dim] = NO_COUNTS,
) -> Port:
    size = product(node.type.shape)
    room = "" if names(size).isdisjoint(most) else str(rename_dims(largest(size, most), own))
    shape = tuple(d if isinstance(d, int) else str(rename_dims(d, own)) for d in node.type.shape)
    attrs = node.attrs
    strings = attrs.get("strings", strings)
    default, converts, further = attrs.get("default"), attrs.get("converts", False), attrs.get("further", False)
    texts = attrs.get("vectorizers", ()), attrs.get("rows"), attrs.get("made")
    known = (default, converts, ranges, strings, further, *texts, None)
    return Port(name, node.type.dtype.name, shape, *known, attrs.get("map", ""), attrs.get("dates", ""), room)


def _output(model: Module, entry: str, name: str, node: Node, own: Mapping[str, Expr], most: Mapping[str, Dim]) -> Port:
    port = _port(name, node, own, (), model.labels.get((entry, name), ()), most)
    return replace(port, then=model.steps.get((entry, name)))


def _texts(extents: Iterable[Dim], own: Mapping[str, Expr]) -> tuple[str, ...]:
    """Format extents as in the module."""
    return tuple(str(rename_dims(extent, own)) for extent in extents)


def _work(graph: Graph) -> Dim:
    """Estimate the floating-point operations: two for a multiply-add, and one for each element of any other op."""
    total: Dim = 0
    for node in graph.nodes():
        if is_view(node) or is_stored(node) or is_free(node) or node.op is result:
            continue
        if node.op is counted:
            total = _work(node.attrs["body"].graph) + total
            continue
        if inner := subgraphs(node.attrs):
            rounds = node.attrs.get("length", node.attrs.get("bound", 1))
            size = product((rounds, sum((_work(body.graph) for body in inner.values()), start=0)))
            total = size + total if isinstance(size, Expr) else total + size
            continue
        size = product(node.type.shape)
        if node.op in PRODUCTS:
            nodes, labels, out = operands(node)
            pairs = zip(labels, nodes, strict=True)
            summed = {c: d for ls, n in pairs for c, d in zip(ls, n.type.shape, strict=False)}  # words have no labels
            size = product(
                (size, 8 if node.op is contract_bytes else 2, *[d for c, d in summed.items() if c not in out])
            )
        elif node.op is tree_ensemble:  # some ten steps a tree
            size = product((10 * node.attrs["forest"].trees, *node.arg(0).type.shape[:-1]))
        elif node.op.reduces:
            size = product(node.arg(0).type.shape)
        elif node.op in (ew.exp, ew.log, ew.tanh, ew.pow_):
            size = product((size, 10))
        total = size + total if isinstance(size, Expr) else total + size
    return total
