"""Choose a layout in blocks of 16 channels for the convolutions of a whole graph. Reassociates.

    v2 = contract(v1, w, spec=aecdfg,befg->abcd) : f32[n,64,8,8]      # nchwkl,ockl->nohw: the first reads plain windows
    v3 = relu(v2)
    v4 = window(v3, axes=(2, 3), sizes=(3, 3), ..) : f32[n,64,6,6,3,3]
    v5 = contract(v4, u, spec=aecdfg,befg->abcd) : f32[n,32,6,6]
    return y=v5
                                        =>
    v2 = contract(v1, folded0, spec=afcdgh,bfghe->abcde) : f32[n,4,8,8,16]          # nchwkl,Ocklo->nOhwo
    v3 = relu(v2)
    v4 = window(v3, axes=(2, 3), sizes=(3, 3), ..) : f32[n,4,6,6,16,3,3]
    v5 = contract(v4, folded1, spec=afcdghi,bfhige->abcde) : f32[n,2,6,6,16]        # nChwckl,OCklco->nOhwo
    return y=reshape(transpose(v5, perm=(0, 1, 4, 2, 3)), shape=(n, 32, 6, 6))

Where the plain value has C channels, a blocked value has C/16 blocks, and 16 channels along the last axis. So vectors
run along channels for any size of the image. A window's elements come after the channels. Weights are rearranged at
build time. A dense convolution becomes ``nChwckl,OCklco->nOhwo`` exactly as above, with one, two or three axes of the
image for ``hw`` and those of the window for ``kl``. With one element per window it is ``nChwc,OCco->nOhwo``, and a
depthwise convolution is ``nChwckl,Cklc->nChwc``. Groups are a further label, after n and before the axes of the
weights. Groups of 8 channels or less are parts of a block (passes/layout/groups_in_lanes.py). A model for one image has
no n. The labels are those of ``contract.canonical_labels``: a and so on for nOhwo, then for the summed axes.

A convolution of windows starts the layout if it has groups or another product follows, and if rounding its channels up
to a multiple of 16 adds at most a third. A convolution of single elements starts it if all later products sum its
channels. A value starts it if later convolutions gain more than the reordering costs. If rounding adds too much work to
all convolutions together, as for 25 channels, the graph is left alone.

Elementwise work, padding, pooling, resizing, concatenation and means keep the layout, and a later dense layer permutes
its weights. The elementwise work of a group norm keeps it too; its sums over groups begin with sums over pixels. Other
ops read the plain value, which one copy restores. Added channels hold the results of the ops on zeros. The pass tracks
these numbers: weights have zeros for added channels, and if infinities or nan could meet these zeros, the pass restores
the plain value.

If weights are not frozen, each call rearranges them, which is cheap compared with a convolution. Gradients with respect
to values are convolutions themselves (passes/algebra/transposed_convolution.py). Those with respect to weights sum
products of two blocked values, ``nOhwo,nChwckl->OCklco``, and are then restored. Microbatches have a layout of their
own (passes/layout/batch_innermost.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import isfinite, prod

import numpy as np

from mlaot.ir import Dim, Graph, Node, TupleType
from mlaot.ir.dims import nominal, product
from mlaot.ir.module import Module
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.axes import regroup
from mlaot.ops.kinds import changes_unit_axes
from mlaot.ops.relayout import Laid, lay_out
from mlaot.passes.algebra.simplify import number
from mlaot.passes.base import pass_over
from mlaot.passes.bounds import is_finite
from mlaot.passes.frozen.freeze import IsFixed, fixed_by, fixed_from, split_product, store
from mlaot.passes.frozen.winograd import SIZES, fastest
from mlaot.passes.layout.blocks import (
    LANES,
    NAMES,
    NOTHING,
    UNKNOWN,
    ZERO,
    Blocked,
    Filling,
    in_blocks,
    put_back,
    put_in_blocks,
    window_of,
)
from mlaot.passes.layout.groups import Grouped, grouped, split_axis
from mlaot.passes.layout.groups_in_lanes import are_in_lanes, in_lanes, merges_parts
from mlaot.passes.layout.sink_reshapes import move_past_elementwise, move_past_reduction
from mlaot.passes.raising.contract import absorb_transpose, canonical_labels
from mlaot.passes.rewrite import rewrite
from mlaot.schedule.tuning import BLOCKED_GROWTH, KNOWN_FILLINGS

LANE = "lane"  # the label of the lanes


@pass_over("module", after=("freeze", "sink_reshapes"))
def blocked_layout(module: Module) -> None:
    """Choose the layout of every entry."""
    for graph in module.graphs.values():
        is_fixed = fixed_by(module) if module.is_frozen else fixed_from(module.slots)
        if _growth(graph, is_fixed) > BLOCKED_GROWTH:
            continue
        tiles = SIZES[module.options.winograd] if module.is_frozen else ()
        layout = _Layout(graph, is_fixed, is_stored=module.is_frozen)
        layout.choose(tiles)
        store(module, graph, layout.weights)
        rewrite(graph, {red.contract: (absorb_transpose, canonical_labels)})
        rewrite(graph, {None: (past_elementwise,)})


def past_elementwise(node: Node) -> Node | None:
    """f(reshape(x), y) => reshape(f(x, y')), where the reshape merges the parts of blocks"""
    return move_past_elementwise(node, merges_parts)


def _growth(graph: Graph, is_fixed: IsFixed) -> float:
    """Return the factor by which whole blocks of channels increase the multiply-adds of a graph's convolutions."""
    plain = blocked = 0.0
    for conv in _convolutions(graph, is_fixed):
        summed = [d for c, d in conv.sizes.items() if c not in conv.out]
        work = float(prod(map(nominal, (*conv.node.type.shape, *summed))))
        plain += work
        for c in (conv.produced, conv.read):
            size = conv.sizes.get(c, 0)
            work *= (in_blocks(size) or size) / size if isinstance(size, int) and size else 1
        blocked += work
    return blocked / plain if plain else 1.0


@dataclass(frozen=True)
class _Windowed:
    """A product of ``window`` with fixed weights of ``sizes``.

    The labels, or "", of channels made, summed and kept.
    """

    node: Node
    window: Node
    sizes: dict[str, Dim]
    produced: str
    read: str
    shared: str
    labels: str
    out: str

    def channels(self) -> int | None:
        """Return the window's axis of the channels that are summed or kept; the labels may lack leading ones."""
        axis, missing = self.labels.find(self.read or self.shared), self.window.type.rank - len(self.labels)
        is_bare = missing >= 0 and all(d == 1 for d in self.window.type.shape[:missing])
        return axis + missing if axis >= 0 and is_bare and (self.read or self.shared) else None


def _convolutions(graph: Graph, is_fixed: IsFixed) -> Iterator[_Windowed]:
    """Yield the convolutions of a graph."""
    for node in graph.nodes():
        operands = split_product(node, is_fixed) if node.op is red.contract else None
        window = window_of(operands[0]) if operands is not None else None
        if operands is None or window is None:
            continue
        _, w, labels, weight_labels, out = operands
        sizes, taps = dict(zip(weight_labels, w.type.shape, strict=True)), len(window.attrs["axes"])
        produced = next((c for c in out if c in sizes and c not in labels), "")
        read = next((c for c in labels[:-taps] if c in sizes and c not in out), "")
        shared = next((c for c in labels[:-taps] if c in sizes and c in out), "")
        yield _Windowed(node, window, sizes, produced, read, shared, labels, out)


def _starts(graph: Graph, is_fixed: IsFixed) -> set[Node]:
    """Return the products that start the layout, as a product with fixed weights follows, which can read blocks.

    The products have windows or groups, or are in chains.
    """
    before: set[Node] = set()
    for node in reversed([*graph.nodes()]):
        if node in before or (node.op is red.contract and split_product(node, is_fixed)):
            before.update(a.find() for a in node.args)
    chains, found = _chains(graph, is_fixed), set[Node]()
    for node in graph.nodes():
        operands = split_product(node, is_fixed) if node.op is red.contract else None
        if operands is None:
            continue
        x, _, labels, weight_labels, out = operands
        if window_of(x) is not None:
            is_grouped = any(c in out and c in labels for c in weight_labels)
            found |= {node} if is_grouped or node in before else set()
        elif node in chains and node in before:
            found.add(node)
    return found


def _sources(graph: Graph, is_fixed: IsFixed, tiles: tuple[int, ...]) -> dict[Node, int]:
    """Return the values whose channels, along an axis, should be in blocks for later convolutions.

    Reading them in another order costs less than the products that Winograd's transforms save
    (passes/frozen/winograd.py), and less than rows of strided depthwise convolutions, which are not vectors.
    """
    found: dict[Node, int] = {}
    for conv in _convolutions(graph, is_fixed):
        axis = conv.channels()
        if axis is not None and (_is_transformed(conv, axis, tiles) or _is_strided(conv)):
            x = conv.window.arg(0)
            found[x.arg(0) if x.op is st.pad else x] = axis
    return found


def _chains(graph: Graph, is_fixed: IsFixed) -> set[Node]:
    """Return the products without windows whose channels come before other axes, and are summed by later products.

    These are convolutions of one element. In plain results, vectors along channels would be scattered.
    """
    users, chains = graph.users(), set[Node]()
    summed: dict[Node, set[int]] = {}  # the axes of each value along which all products behind it sum

    def leads_to_sums(user: Node, i: int, axis: int) -> bool:
        axes = user.op.axes.of(user) if user.op.axes is not None else None
        is_split = user.op is st.reshape and user.type.rank > user.arg(0).type.rank and not changes_unit_axes(user)
        if is_split:  # in groups, which need plain values
            return False
        if axes is None or axes.args[i][axis] in axes.whole:
            return True
        label = axes.args[i][axis]
        if label in axes.result:
            return user.op is not red.contract and axes.result.index(label) in summed[user]
        if user.op is not red.contract:
            return True
        produced = [n for n, c in enumerate(axes.result) if c not in axes.args[i]]
        return split_product(user, is_fixed) is not None and len(produced) == 1 and produced[0] in summed[user]

    for node in reversed([*graph.nodes()]):
        uses = [(user, i) for user in dict.fromkeys(users[node]) for i, a in enumerate(user.args) if a.find() is node]
        axes = range(0 if isinstance(node.type, TupleType) else node.type.rank)
        summed[node] = {axis for axis in axes if all(leads_to_sums(user, i, axis) for user, i in uses)}
        operands = split_product(node, is_fixed) if node.op is red.contract else None
        if operands is not None and window_of(operands[0]) is None:
            _, _, labels, weight_labels, out = operands
            produced = [n for n, c in enumerate(out[:-1]) if c in weight_labels and c not in labels]
            if any(n in summed[node] for n in produced):
                chains.add(node)
    return chains


def _cuts_padding(node: Node, is_fixed: IsFixed) -> bool:
    """Tell whether a slice drops the results of zeros by which weights were padded (widen_groups.py)."""
    if node.op is not st.slice_ or node.arg(0).op is not st.reshape or node.arg(0).arg(0).op is not red.contract:
        return False
    operands = split_product(node.arg(0).arg(0), is_fixed)
    if operands is None:
        return False
    w = operands[1].arg(0) if operands[1].op is st.reshape else operands[1]
    cut = [(node.arg(0).type.shape[axis], node.type.shape[axis]) for axis in _cut_axes(node)]
    return w.op is st.pad and cut == [(w.type.shape[0], w.arg(0).type.shape[0])]


def _is_transformed(conv: _Windowed, axis: int, tiles: tuple[int, ...]) -> bool:
    attrs = conv.window.attrs
    is_dense = attrs["sizes"] == (3, 3) and attrs["strides"] == (1, 1) == attrs["dilations"]
    is_grouped = not conv.read or conv.shared
    if not is_dense or is_grouped or attrs["axes"] != (axis + 1, axis + 2) or _is_spread(conv.window):
        return False
    blocks = [nominal(in_blocks(conv.sizes.get(c, 0)) or 0) // LANES for c in (conv.read, conv.produced)]
    height, width = (nominal(d) for d in conv.node.type.shape[-2:])
    return all(blocks) and fastest((height, width), (blocks[0], blocks[1]), tiles) is not None


def _is_strided(conv: _Windowed) -> bool:
    """Tell whether a depthwise convolution reads elements that are not adjacent along the rows."""
    attrs = conv.window.attrs
    is_along_rows = attrs["axes"][-1] == conv.window.arg(0).type.rank - 1 and attrs["strides"][-1] > 1
    is_depthwise = conv.shared and not conv.read and not conv.produced
    return is_along_rows and bool(is_depthwise) and in_blocks(conv.sizes[conv.shared]) is not None


def _is_spread(window: Node) -> bool:
    return window.arg(0).op is st.pad and any(window.arg(0).attrs["interior"])


class _Layout:
    """One walk over a graph: the blocked counterpart of each value that has one."""

    def __init__(self, graph: Graph, is_fixed: IsFixed, *, is_stored: bool) -> None:
        self.graph = graph
        self.is_stored = is_stored  # weights in blocks
        self.is_fixed = is_fixed
        self.weights: dict[Node, None] = {}  # fixed values in blocks, to be computed at build
        self.blocked: dict[Node, Blocked] = {}
        self.packed: dict[tuple[Node, int], Blocked] = {}  # of plain values that are read in blocks

    def choose(self, tiles: tuple[int, ...]) -> None:
        """Convert the graph; ``tiles`` are the tiles that Winograd's transforms may use."""
        starts = _starts(self.graph, self.is_fixed)
        sources = _sources(self.graph, self.is_fixed, tiles)
        without_padding = {node for node in self.graph.nodes() if _cuts_padding(node, self.is_fixed)}
        for old in self.graph.nodes():
            better: Node | Blocked | None = None
            with self.graph.like(old):
                node = self.graph.add(old.op, old.args, old.attrs)
                if not isinstance(node.type, TupleType) and node.args and not self.is_fixed(node):
                    better = self.convert(node, may_start=old in starts)
                if isinstance(better, Blocked):
                    better = self.plain(replace(better, filling=ZERO) if old in without_padding else better)
            for each in (old, node):
                self.graph.forward(each, better or node)
            if better is None and old in sources and (form := self.as_blocks(node, sources[old])) is not None:
                self.blocked[node.find()] = form

    def plain(self, form: Blocked) -> Node:
        """Return the plain value of a blocked one, and record the pair."""
        node = put_back(form)
        if form.axis or form.node.type.rank > 2:  # a row of channels alone is in order as it lies
            self.blocked[node] = form
        return node

    def convert(self, node: Node, *, may_start: bool) -> Node | Blocked | None:
        """Return the node in blocks, or None if it is left alone."""
        if node.op is red.contract:
            return self.contraction(node, may_start)
        forms = [self.blocked.get(a.find()) for a in node.args]
        first = next((f for f in forms if f is not None), None)
        if first is None:
            return self.behind_groups(node)
        if node.op.elementwise:
            return self.elementwise(node, first)
        if node.op is st.concat:
            return self.concat(node, first)
        return convert_move(node, forms[0]) if forms[0] is not None else None

    def as_blocks(self, x: Node, axis: int) -> Blocked | None:
        """Return a value as blocks of the channels along ``axis``, the lanes last."""
        x = x.find()
        form = self.blocked.get(x) or self.packed.get((x, axis))
        if form is None or form.axis != axis:
            channels = x.type.shape[axis]
            if in_blocks(channels) is None:
                return None
            assert isinstance(channels, int)
            node = self.weight(put_in_blocks(x, axis)) if self.is_fixed(x) else put_in_blocks(x, axis)
            form = self.packed[x, axis] = Blocked(node, axis, x.type.rank, channels, ZERO)
        return form.lanes_last()

    def weight(self, node: Node) -> Node:
        """Record a fixed value to be computed and stored at build time. In training, each step makes a copy."""
        if not self.is_stored:
            return ew.copy(node)
        if all(isinstance(d, int) for d in node.type.shape):
            self.weights[node] = None
        return node

    def elementwise(self, node: Node, like: Blocked) -> Blocked | None:
        args, fillings = [], []
        for a in (a.find() for a in node.args):
            form = self._broadcast(a, like) if a.op is st.broadcast else self.as_blocks(a, like.axis)
            if form is None:
                return None
            args.append(form.node)
            fillings.append(form.added)
        return Blocked(node.op(*args, **node.attrs), like.axis, node.type.rank, like.channels, _filling(node, fillings))

    def _broadcast(self, node: Node, like: Blocked) -> Blocked | None:
        axes, x = node.attrs["axes"], node.arg(0)
        shape = like.lanes_last().node.type.shape
        if like.axis not in axes:
            spread = st.broadcast(x, shape=shape, axes=axes)
            return Blocked(spread, like.axis, node.type.rank, like.channels, _values(x))
        small = self.as_blocks(x, axes.index(like.axis))
        if small is None:
            return None
        spread = st.broadcast(small.node, shape=shape, axes=(*axes, node.type.rank))
        return Blocked(spread, like.axis, node.type.rank, like.channels, small.filling)

    def concat(self, node: Node, like: Blocked) -> Blocked | None:
        axis, args = node.attrs.get("axis", 0), [a.find() for a in node.args]
        if axis == like.axis and any(a.type.shape[axis] % LANES for a in args):
            return None
        forms = [self.as_blocks(a, like.axis) for a in args]
        joined = st.concat(*[f.node for f in forms if f is not None], axis=axis)
        filling = NOTHING.union(*[f.added for f in forms if f is not None])
        channels = node.type.shape[like.axis]
        assert isinstance(channels, int)
        return Blocked(joined, like.axis, node.type.rank, channels, filling)

    def contraction(self, node: Node, may_start: bool) -> Node | Blocked | None:
        """Convert a product with fixed weights."""
        if node.type.dtype.kind != "f":
            return None
        operands = split_product(node, self.is_fixed)
        if operands is None:
            return self.product_of_values(node)
        x, w, labels, weight_labels, out = operands
        form = self.blocked.get(x) or (self.blocked.get(x.arg(0)) if x.op is st.reshape else None)
        if form is not None and not _can_meet_zeros(form):
            return None
        conv = grouped(node, self.is_fixed) if self.is_stored else None
        if conv is not None and are_in_lanes(conv):
            return self.groups(conv, may_start=may_start)
        if form is not None and (dense := self._dense(form, x, w, labels, weight_labels, out)) is not None:
            return dense
        form = self.blocked.get(x)
        if form is None and not may_start:
            return None
        return _Convolution(self, form, x, w, labels, weight_labels, out).result()

    def groups(self, conv: Grouped, *, may_start: bool) -> Node | None:
        """Convert a convolution of groups that are parts of blocks. Rows without strides already are vectors."""
        form = self.blocked.get(conv.x.find())
        if form is None and not (may_start and conv.is_strided):
            return None
        if form is not None and (form.axis != conv.axis or not _can_meet_zeros(form)):
            return None
        return split_axis(self.plain(in_lanes(conv, form, self.weight)), conv.axis, conv.size(conv.group))

    def behind_groups(self, node: Node) -> Node | None:
        """Convert work on the groups of a value in blocks, and the reshape that merges them again."""
        if node.op is st.reshape:
            split = node.arg(0)
            whole = split.arg(0).find() if split.op is st.reshape else None
            return whole if whole in self.blocked and whole.type == node.type else None
        first, rest = self._outside_groups(node)
        moved = move_past_elementwise(first, self._splits, repeats=True) or move_past_reduction(first, self._splits)
        inner = moved.arg(0) if moved is not None else None
        found = self.convert(inner, may_start=False) if inner is not None and inner.op is node.op else None
        if not isinstance(found, Blocked):
            return None
        result = st.reshape(self.plain(found), shape=first.type.shape)
        return node.op(result, axes=rest) if rest else result

    def _outside_groups(self, node: Node) -> tuple[Node, tuple[int, ...]]:
        """Split a sum over groups of channels and other axes.

        Return the sum over the other axes, and the axes left to sum.

        sum(reshape(x, (n, 8, 4, h, w)), axes=(2, 3, 4)) becomes the sum over (3, 4), then the sum over (2,). The same
        holds for sum(reshape(x, (n, 8, 4 * h * w)), axes=(2,)).
        """
        if node.op not in (red.sum_, red.max_, red.min_) or not self._splits(node.arg(0)):
            return node, ()
        x, axes = node.arg(0).arg(0), node.attrs["axes"]
        form = self.blocked[x.find()]
        groups = regroup(x.type.shape, node.arg(0).type.shape) or []
        before, after = next((each for each in groups if each[0][0] == form.axis), ([], []))
        behind = x.type.shape[form.axis + 1 :]
        if before[1:] and before == [*range(form.axis, x.type.rank)]:  # one axis of channels and all behind them
            *outer, merged = after
            count = product(node.arg(0).type.shape[form.axis : merged])
            if not isinstance(count, int) or form.channels % count or outer != [*range(form.axis, merged)]:
                return node, ()
            if merged not in axes:
                return node, ()
            shape = (*node.arg(0).type.shape[:merged], form.channels // count, *behind)
            axes = (*[a for a in axes if a != merged], *range(merged, len(shape)))
            node = node.op(st.reshape(x, shape=shape), axes=axes)
        outside = tuple(a for a in axes if a < form.axis or a >= node.arg(0).type.rank - len(behind))
        if not outside or outside == axes:
            return node, ()
        rest = tuple(a - sum(other < a for other in outside) for a in axes if a not in outside)
        return node.op(node.arg(0), axes=outside), rest

    def _splits(self, node: Node) -> bool:
        """Tell whether a reshape splits the channels of a value in blocks."""
        form = self.blocked.get(node.arg(0).find()) if node.op is st.reshape else None
        return form is not None and node.type.shape[: form.axis] == node.arg(0).type.shape[: form.axis]

    def product_of_values(self, node: Node) -> Node | None:
        """Convert a product that keeps the channels of both operands, as the gradient of weights does."""
        *labels, out = red.parse_spec(node.attrs["spec"])
        forms = [self.blocked.get(a.find()) for a in node.args]
        free = iter(c for c in NAMES if c not in "".join(labels))
        values, lanes = [node.arg(0), node.arg(1)], dict[str, str]()
        for i in sorted((0, 1), key=lambda i: window_of(node.arg(i)) is None):  # vectors are of what is no window
            form = forms[i]
            if form is None:
                continue
            channel = labels[i][form.axis]
            if channel not in out or channel in labels[1 - i]:
                return None
            lanes[channel] = next(free)
            labels[i] = labels[i][: form.lane] + lanes[channel] + labels[i][form.lane :]
            values[i] = form.node
        if not lanes:
            return None
        long = out + "".join(lanes.values())
        result = red.contract(*values, spec=f"{labels[0]},{labels[1]}->{long}")
        result = st.in_order(result, [long.index(c) for channel in out for c in channel + lanes.get(channel, "")])
        shape = tuple(in_blocks(d) or 0 if c in lanes else d for c, d in zip(out, node.type.shape, strict=True))
        start, step = (0,) * len(out), (1,) * len(out)
        return st.slice_(st.reshape(result, shape=shape), start=start, size=node.type.shape, step=step)

    def _dense(self, b: Blocked, x: Node, w: Node, labels: str, weight_labels: str, out: str) -> Node | None:
        """Convert a product with the flattened value, whose axes from the channels on are one summed label."""
        b = b.lanes_last()
        plain = put_back(b)
        groups = regroup(plain.type.shape, x.type.shape) or []
        inner_axes = list(range(b.axis, plain.type.rank))
        merged = next((after for before, after in groups if before == inner_axes), [])
        if len(merged) != 1 or labels[merged[0]] in out or labels[merged[0]] not in weight_labels:
            return None
        sizes = b.node.type.shape[b.axis :]
        if not all(isinstance(d, int) for d in sizes):
            return None
        along = weight_labels.index(labels[merged[0]])
        shape = w.type.shape
        split = st.reshape(w, shape=(*shape[:along], *plain.type.shape[b.axis :], *shape[along + 1 :]))
        lanes = put_in_blocks(split, along)
        rank, inner = lanes.type.rank, len(sizes) - 1
        perm = (*range(along + inner), rank - 1, *range(along + inner, rank - 1))
        flat = prod(sizes)
        ordered = st.reshape(st.transpose(lanes, perm=perm), shape=(*shape[:along], flat, *shape[along + 1 :]))
        values = st.reshape(b.node, shape=tuple(flat if i == merged[0] else d for i, d in enumerate(x.type.shape)))
        return red.contract(values, self.weight(ordered), spec=f"{labels},{weight_labels}->{out}")


@dataclass
class _Convolution:
    """A contraction of a value, in blocks or not, with fixed weights."""

    layout: _Layout
    form: Blocked | None
    x: Node
    w: Node
    labels: str
    weight_labels: str
    out: str

    def result(self) -> Node | Blocked | None:
        lanes = [c for c in NAMES if c not in self.labels + self.weight_labels]
        inner, outer = lanes[:2]
        labels, out, channel, filling = self.labels, self.out, "", ZERO
        if self.form is not None:
            channel = labels[self.form.axis]
            labels = labels[: self.form.lane] + inner + labels[self.form.lane :]
            if channel not in self.weight_labels and channel not in out:
                return None
        produced = self._produced_channel(channel)
        if not produced and self.form is None:
            return None
        weights, weight_labels = self.w, self.weight_labels
        ends = ""
        for c, lane in ((channel, inner), (produced, outer)):
            if c and c in weight_labels:
                weights, ends = put_in_blocks(weights, weight_labels.index(c)), ends + lane
        weight_labels += ends
        order = self._order(weight_labels, channel, produced, ends)
        perm = tuple(weight_labels.index(c) for c in order)
        if weights is not self.w:
            weights = self.layout.weight(st.transpose(weights, perm=perm))
            weight_labels = order
        node = self.form.node if self.form is not None else self.x
        kept, lane, size = produced, outer, self._size(produced) if produced else 0
        if self.form is not None and channel in out:
            kept, lane, size = channel, inner, self.form.channels
            filling = ZERO if channel in self.weight_labels or self.form.added <= ZERO else UNKNOWN
        if not kept:
            return red.contract(node, weights, spec=f"{labels},{weight_labels}->{out}")
        product = red.contract(node, weights, spec=f"{labels},{weight_labels}->{out}{lane}")
        return Blocked(product, out.index(kept), len(out), size, filling)

    def _size(self, label: str) -> int:
        size = self.w.type.shape[self.weight_labels.index(label)]
        assert isinstance(size, int)
        return size

    def _produced_channel(self, channel: str) -> str:
        """Return the label of the channels that the weights produce, if they are blocked before image axes."""
        if channel and channel in self.out:
            return ""
        channels = [c for c in self.out if c in self.weight_labels and c not in self.labels]
        shared = [c for c in self.out if c in self.weight_labels and c in self.labels]
        if len(channels) != 1 or self.out[-1] == channels[0]:
            return ""
        size = self._size(channels[0])
        return channels[0] if in_blocks(size) and not (shared and size % LANES) else ""

    def _order(self, weight_labels: str, channel: str, produced: str, ends: str) -> str:
        """Order the labels of weights: groups, blocks of channels out and in, the window's elements, lanes."""
        shared = [c for c in weight_labels if c in self.out and c in self.labels and c != channel]
        front = dict.fromkeys(
            [*shared, produced, *[c for c in weight_labels if c in self.out and c not in ends], channel]
        )
        taps = [c for c in self.labels if c in weight_labels and c not in front]
        rest = [c for c in weight_labels if c not in front and c not in taps and c not in ends]
        return "".join([c for c in front if c and c in weight_labels] + taps + rest) + ends


def _can_meet_zeros(form: Blocked) -> bool:
    """Tell whether the products of added channels with zeros are zeros."""
    return all(map(isfinite, form.added)) or is_finite(form.node)


def _values(node: Node) -> Filling:
    """Return the possible numbers of a value that is the same for all channels."""
    value = number(node)
    return UNKNOWN if value is None else frozenset({value})


def _filling(node: Node, fillings: Sequence[Filling]) -> Filling:
    """Compute the result of an elementwise op on the filling of its arguments' added channels."""
    if any(v != v for filling in fillings for v in filling) or prod(map(len, fillings)) > KNOWN_FILLINGS:
        return UNKNOWN
    dtypes = [a.find().type.dtype for a in node.args]
    with np.errstate(all="ignore"):
        return frozenset(
            float(node.op.reference(*[d.array(v) for d, v in zip(dtypes, values, strict=True)], **node.attrs))
            for values in itertools.product(*fillings)
        )


def convert_move(node: Node, b: Blocked) -> Node | Blocked | None:
    """Convert an op that moves or reduces one blocked value, or return None if it needs the plain value."""
    if node.op.axes is None or not (node.op.moves or node.op.reduces or node.op is st.fold):
        return None
    if node.op is st.slice_ and not _cut_axes(node) and set(node.attrs["step"]) == {1}:  # of all
        return b
    if node.op is st.reshape and node.arg(0).type.shape == (1, *node.type.shape) and b.axis > 0:  # of one image
        bare = st.reshape(b.node, shape=b.node.type.shape[1:])
        return replace(b, node=bare, axis=b.axis - 1, lane=b.lane - 1)
    axes = node.op.axes.of(node)
    if b.axis in axes.whole:
        return _in_whole_blocks(node, b)
    b = b.lanes_last()
    if node.op.reduces and b.axis in node.attrs["axes"]:
        if b.added and not (node.op is red.sum_ and b.added <= ZERO):
            return None
        return node.op(b.node, axes=(*node.attrs["axes"], b.lane))
    channels, *scalars = axes.args
    operands = [Laid(b.node, (*channels, LANE)), *map(Laid, map(Node.find, node.args[1:]), scalars)]
    result = lay_out(node, operands, as_they_lie=node.op is not st.fold)  # whose windows come behind the lanes
    if result is None:
        return None
    axis, lane = result.labels.index(channels[b.axis]), result.labels.index(LANE)
    plain_axis = axis - (lane < axis)  # ``Blocked.axis`` does not count the lanes
    return Blocked(result.node, plain_axis, lane, b.channels, _filling_through(node, b))


def _filling_through(node: Node, b: Blocked) -> Filling:
    """Return the filling of added channels after an op that moves values or reduces other axes."""
    adds = node.op in (red.sum_, st.fold)
    if node.op in (red.max_, red.min_) or (adds and b.added <= ZERO):
        return b.filling
    if node.op.reduces or adds:
        return UNKNOWN
    return b.filling.union(*[_values(a.find()) for a in node.args[1:] if a.find().type.shape == ()])


def _cut_axes(node: Node) -> list[int]:
    """Return the axes along which a slice leaves elements out."""
    shapes = zip(node.arg(0).type.shape, node.type.shape, strict=True)
    return [i for i, (before, after) in enumerate(shapes) if before != after]


def _padded_to_a_block(node: Node, b: Blocked) -> Blocked | None:
    """Convert padding after the channels with zeros that the last block already has."""
    low, high, interior = (node.attrs[key] for key in ("low", "high", "interior"))
    channels = node.type.shape[b.axis]
    is_alone = not any(low) and not any(interior) and not any(d for i, d in enumerate(high) if i != b.axis)
    if not isinstance(channels, int) or channels != b.channels + -b.channels % LANES:
        return None
    if not is_alone or number(node.arg(1)) != 0 or not b.added <= ZERO:
        return None
    return replace(b, channels=channels)


def _in_whole_blocks(node: Node, b: Blocked) -> Blocked | None:
    """Convert a slice of whole blocks, or a reshape that makes groups of whole blocks."""
    b = b.lanes_last()
    if node.op is st.pad:
        return _padded_to_a_block(node, b)
    if node.op is st.slice_:
        start, size, step = ([*node.attrs[key]] for key in ("start", "size", "step"))
        channels, first = size[b.axis], start[b.axis]
        if not isinstance(channels, int) or not isinstance(first, int) or step[b.axis] != 1 or first % LANES:
            return None
        if channels % LANES:  # the last block is not filled any more
            is_alone = first == 0 and in_blocks(channels) == b.channels and _cut_axes(node) == [b.axis]
            return replace(b, channels=channels, filling=UNKNOWN) if is_alone else None
        start[b.axis], size[b.axis] = first // LANES, channels // LANES
        part = st.slice_(b.node, start=(*start, 0), size=(*size, LANES), step=(*step, 1))
        return replace(b, node=part, channels=channels)
    if node.op is not st.reshape:
        return None
    groups = regroup(node.arg(0).type.shape, node.type.shape) or []
    before, after = next((group for group in groups if b.axis in group[0]), ([-1], [-1]))
    axis, channels = after[-1], node.type.shape[after[-1]]
    if b.axis != before[-1] or not isinstance(channels, int) or channels % LANES or b.channels % LANES:
        return None
    shape = tuple(channels // LANES if i == axis else d for i, d in enumerate(node.type.shape))
    return Blocked(st.reshape(b.node, shape=(*shape, LANES)), axis, node.type.rank, channels, b.filling)
