"""Record for each entry and input which of its integers are indices, and their ranges. Bit-exact.

v0 = input(label) : i64[batch]                             v0 = input(label) : i64[batch]    # 0 to 9, ignored -100
v1 = index(v0, size=10, ignored=-100) : i64[batch]    =>
v2 = equal(broadcast(v1), broadcast(0..9))                 v2 = equal(broadcast(v0), broadcast(0..9))

An index is the caller's as long as ops only move it: slices, transposes and reshapes, stacks and concatenations, casts,
and the body of a scan. Other indices are the model's own, and the op defines the result for an index out of range.
Indices in a branch of ``cond`` or in a ``while`` also count as the model's, as the condition may prevent a read out of
range. The ranges are derived from the entries at this point, since later passes may replace an index by anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from itertools import product as iterproduct
from math import prod

import numpy as np

from mlaot.ir import Dim, Graph, Node
from mlaot.ir.dims import product
from mlaot.ir.indices import IndexRange, Span
from mlaot.ir.module import Module
from mlaot.ops import Op
from mlaot.ops import control as ctl
from mlaot.ops import elementwise as ew
from mlaot.ops import structure as st
from mlaot.ops.axes import axes_of, regroup
from mlaot.ops.barrier import stop_gradient
from mlaot.ops.indexing import gather, index
from mlaot.passes.base import pass_over
from mlaot.passes.rewrite import rewrite
from mlaot.passes.subgraphs import everywhere

Box = tuple[Span | None, ...]  # the elements of each axis that are indices, None for all
Part = tuple[Node, Box]
# The parts of one index that are followed, and all steps: an index beyond these bounds counts as computed.
PARTS, STEPS = 64, 10_000


@pass_over("module", after=("entries",))
def index_ranges(module: Module) -> None:
    """Record the ranges of all entries, then remove every ``index``."""
    for name, graph in module.graphs.items():
        by_input: dict[str, list[IndexRange]] = {}
        # Training in microbatches reads rows that it computes, but reads the inputs as the loss does.
        loss = module.graphs.get("loss") if name in ("train_step", "accumulate") else None
        for source in (graph, loss):
            for node, range_ in () if source is None else _indexed_inputs(source):
                key = str(node.attrs["name"])
                if key not in module.slots:
                    by_input[key] = _join(by_input.get(key, []), range_)
        module.ranges[name] = {key: tuple(sorted(ranges, key=_narrowness)) for key, ranges in by_input.items()}
    for graph in module.graphs.values():
        everywhere(_remove_indices, graph)


def _narrowness(range_: IndexRange) -> float:
    """Return a key that sorts the narrowest range last, as golden vectors draw for one range after another."""
    return -range_.size if isinstance(range_.size, int) else 1


def remove_index(node: Node) -> Node | None:
    """index(x) => x"""
    return node.arg(0)


def _remove_indices(graph: Graph) -> None:
    rewrite(graph, {index: (remove_index,)})


def _join(ranges: list[IndexRange], new: IndexRange) -> list[IndexRange]:
    """Add a range to a list, or merge it with a range of the same elements if both are one range."""
    for i, old in enumerate(ranges):
        same = old.box == new.box and old.ignored == new.ignored
        if same and (old.size == new.size or (isinstance(old.size, int) and isinstance(new.size, int))):
            size = old.size if old.size == new.size else min(old.size, new.size)
            both = IndexRange(size, old.wraps and new.wraps, old.ignored, old.box)
            return [*ranges[:i], both, *ranges[i + 1 :]]
    return [*ranges, new]


def _indexed_inputs(graph: Graph) -> Iterator[tuple[Node, IndexRange]]:
    """Yield the inputs of a graph that are indices, with their ranges."""
    for node in graph.nodes():
        if node.op.index is not None:
            index_range = node.op.index.range(*[a.find().type for a in node.args], **node.attrs)
            if index_range is not None:
                yield from _follow(node.arg(node.op.index.argument), (), index_range)
        elif node.op is ctl.scan:
            body, consts, carries = node.attrs["body"].graph, node.attrs["consts"], node.attrs["carries"]
            places = {inner: i for i, inner in enumerate(body.inputs.values())}
            for inner, range_ in _indexed_inputs(body):
                i, box = places[inner], range_.box
                if i >= consts + carries and box:
                    box = (None, *box)
                yield from _follow(node.arg(i), box, range_)


def _follow(node: Node, box: Box, index_range: IndexRange) -> Iterator[tuple[Node, IndexRange]]:
    """Yield the inputs whose elements are the elements ``box`` of a value, with the range of these."""
    pending, visited = [(node.find(), box)], set[tuple[Node, Box]]()
    while pending and len(visited) < STEPS:
        node, box = pending.pop()
        box = _canonical_box(box, node.type.shape)
        if (node, box) in visited or node.type.dtype.kind == "b":
            continue
        visited.add((node, box))
        if node.op is st.input_:
            yield node, IndexRange(index_range.size, index_range.wraps, index_range.ignored, box)
        elif node.op in CUTS or node.op.moves or node.op in (stop_gradient, ew.cast):
            cut = CUTS.get(node.op, _kept_axes)(node, box or (None,) * node.type.rank)
            pending += [(a.find(), part) for a, part in cut]


def _canonical_box(box: Box, shape: tuple[Dim, ...]) -> Box:
    """Normalize a box: positive steps, None for a whole axis, an empty box for all elements."""
    spans = [_ascending(span, n) for span, n in zip(box, shape, strict=False)]
    return tuple(spans) if any(spans) else ()


def _ascending(span: Span | None, extent: Dim) -> Span | None:
    """Return the same elements of an axis in ascending order."""
    if span is None:
        return None
    start, count, step = span
    if step < 0:
        start, step = start + (count + -1) * step, -step
    if count == 1:
        step = 1
    return None if (start, count, step) == (0, extent, 1) else (start, count, step)


def _index(node: Node, box: Box) -> Iterator[Part]:
    if node.attrs["size"] is not None:  # without a size, it is read in a branch
        yield node.arg(0), box


def _kept_axes(node: Node, box: Box) -> Iterator[Part]:
    """Yield all arguments with their boxes along the axes that the op keeps; none if the box cuts other axes."""
    axes = axes_of(node)
    kept = {label for labels in axes.args for label in labels} - axes.whole
    if not any(span for label, span in zip(axes.result, box, strict=True) if label in axes.whole):
        for a, labels in zip(node.args, axes.args, strict=True):
            yield a, tuple(box[axes.result.index(c)] if c in kept and c in axes.result else None for c in labels)


def _compose(start: Dim, step: int, span: Span) -> Span:
    """Return the elements ``span`` of a slice as elements of the sliced value: start + (a + i b) step."""
    return start + span[0] * step, span[1], span[2] * step


def _slice(node: Node, box: Box) -> Iterator[Part]:
    cuts = zip(*[node.attrs[key] for key in ("start", "size", "step")], strict=True)
    yield (
        node.arg(0),
        tuple(_compose(start, step, span or (0, size, 1)) for (start, size, step), span in zip(cuts, box, strict=True)),
    )


def _reshape(node: Node, box: Box) -> Iterator[Part]:
    x = node.arg(0)
    groups = regroup(x.type.shape, node.type.shape) if any(box) else ()
    choices: list[list[dict[int, Span | None]]] = []  # for each group that is cut, its parts by axis of x
    for before, after in groups or ():
        cut, sizes = [box[i] for i in after], [node.type.shape[i] for i in after]
        if any(cut):
            parts = [part for run in _flat(cut, sizes) for part in _split(run, [x.type.shape[i] for i in before])]
            choices.append([dict(zip(before, part, strict=True)) for part in parts])
    if groups is not None and prod(map(len, choices)) <= PARTS:
        for chosen in iterproduct(*choices):
            spans = {axis: span for part in chosen for axis, span in part.items()}
            yield x, tuple(spans.get(axis) for axis in range(x.type.rank))


def _flat(cut: list[Span | None], sizes: list[Dim]) -> list[Span]:
    """Split a part of several axes into runs in row-major order; return none if these are unknown."""
    # Element (i, j, ..) lies at sum_k (start_k + i_k step_k) strides_k, where strides_k is the product of later sizes.
    spans = [span or (0, n, 1) for span, n in zip(cut, sizes, strict=True)]
    strides = [product(tuple(sizes[i + 1 :])) for i in range(len(sizes))]
    start = sum((span[0] * n for span, n in zip(spans, strides, strict=True)), start=0)
    many = [i for i, span in enumerate(spans) if span[1] != 1]
    if many and spans[many[0]][2] == 1 and not any(cut[many[0] + 1 :]):
        return [(start, spans[many[0]][1] * strides[many[0]], 1)]
    last = many.pop() if many else len(sizes) - 1
    outer, step = [_offsets(spans[i], strides[i]) for i in many], strides[last]
    if not isinstance(step, int) or any(offsets is None for offsets in outer):
        return []
    rows = list(islice(iterproduct(*[offsets or () for offsets in outer]), PARTS + 1))
    return [(start + sum(row), spans[last][1], spans[last][2] * step) for row in rows] if len(rows) <= PARTS else []


def _offsets(span: Span, stride: Dim) -> range | None:
    """Return the distances of the elements of a span from its first one, if known."""
    count, step = span[1], span[2] * stride
    return range(0, count * step, step) if isinstance(count, int) and isinstance(step, int) else None


def _split(run: Span, sizes: Sequence[Dim]) -> list[Box]:
    """Split a run of row-major elements into parts of several axes; return none if these are unknown."""
    if len(sizes) == 1:
        return [(run,)]
    row_size = product(tuple(sizes[1:]))
    start, count, step = run
    if not (isinstance(row_size, int) and row_size > 0 and isinstance(start, int) and isinstance(step, int)):
        return []
    row, place = start // row_size, start % row_size  # of its first element; element i lies i * step further
    if isinstance(count, int) and row == (start + (count - 1) * step) // row_size:  # in one row
        return [((row, 1, 1), *rest) for rest in _split((place, count, step), sizes[1:])]
    if step % row_size == 0:  # one of each row
        return [((row, count, step // row_size), *rest) for rest in _split((place, 1, 1), sizes[1:])]
    if step == 1 and place == 0 and isinstance(count, int) and count % row_size == 0:  # whole rows
        return [((row, count // row_size, 1), *[None] * (len(sizes) - 1))]
    if not isinstance(count, int) or count > PARTS:
        return []
    return [part for i in range(count) for part in _split((start + i * step, 1, 1), sizes)]


def _take(node: Node, box: Box) -> Iterator[Part]:
    x, lead, places = node.arg(0), node.attrs.get("lead", 0), node.attrs["indices"].array
    chosen, shape = places, x.type.shape[lead:]
    for axis, span in enumerate(box[lead:]):
        elements = None if span is None else _elements(span)
        if span is not None and elements is None:
            return
        chosen = chosen if elements is None else np.take(chosen, elements, axis)
    runs = list(islice(_runs(sorted({int(place) for place in chosen.flat})), PARTS + 1))
    for run in runs if len(runs) <= PARTS else ():
        for part in _split(run, shape):
            yield x, (*box[:lead], *part)


def _elements(span: Span) -> list[int] | None:
    """List the elements of a span, if they are known."""
    start, count, step = span
    return [start + i * step for i in range(count)] if isinstance(start, int) and isinstance(count, int) else None


def _gather(node: Node, box: Box) -> Iterator[Part]:
    """Yield the rows that constant indices read. Rows at computed indices count as selected, not moved."""
    x, places, lead = node.arg(0), node.arg(1), node.attrs["lead"]
    rank, n = places.type.rank, x.type.shape[lead]
    if places.op is st.broadcast and all(axis >= lead for axis in places.attrs["axes"]):  # the same for all examples
        places = places.arg(0)
    if places.op is not st.const or (lead > 0 and places is node.arg(1)) or any(box[lead:rank]):
        return
    chosen = places.attrs["value"].array
    if isinstance(n, int):
        rows = np.clip(np.where(chosen < 0, chosen + n, chosen), 0, n - 1)
        runs = list(islice(_runs(sorted({int(row) for row in rows.flat})), PARTS + 1))
        for run in runs if len(runs) <= PARTS else ():
            yield x, (*box[:lead], run, *box[rank:])


def _runs(places: list[int]) -> Iterator[Span]:
    """Split ascending numbers into runs of equal steps."""
    while places:
        step = places[1] - places[0] if len(places) > 1 else 1
        count = next((i for i, place in enumerate(places) if place != places[0] + i * step), len(places))
        yield places[0], count, step
        places = places[count:]


def _item(node: Node, box: Box) -> Iterator[Part]:
    for part in _split((node.attrs["index"], 1, 1), node.arg(0).type.shape):
        yield node.arg(0), part


def _stack(node: Node, box: Box) -> Iterator[Part]:
    axis = node.attrs.get("axis", 0)
    rest = (*box[:axis], *box[axis + 1 :])
    for i, a in enumerate(node.args):
        if _intersect(box[axis], i, 1) is not None:
            yield a, rest


def _concat(node: Node, box: Box) -> Iterator[Part]:
    axis, at = node.attrs.get("axis", 0), 0
    for a in map(Node.find, node.args):
        size = a.type.shape[axis]
        meeting = (None,) if box[axis] is None else _intersect(box[axis], at, size)
        if meeting is not None:
            yield a, (*box[:axis], *meeting, *box[axis + 1 :])
        at = at + size


def _intersect(span: Span | None, at: Dim, size: Dim) -> tuple[Span | None] | None:
    """Cut a span to the ``size`` elements from ``at`` on; return None for no elements, or unknown ones."""
    if span is None:
        return (None,)
    elements = _elements(span)
    if elements is None or not isinstance(at, int) or not isinstance(size, int):
        return None
    inside = [i for i in elements if at <= i < at + size]
    return ((inside[0] - at, len(inside), span[2]),) if inside else None


def _pad(node: Node, box: Box) -> Iterator[Part]:
    if not any(box):
        yield node.arg(0), ()


# Ops that pick elements along an axis; other ops map a box by the axes that they keep.
CUTS: dict[Op, Callable[[Node, Box], Iterator[Part]]] = {
    index: _index,
    st.slice_: _slice,
    st.reshape: _reshape,
    st.take: _take,
    gather: _gather,
    st.item: _item,
    st.stack: _stack,
    st.concat: _concat,
    st.pad: _pad,
}
