"""Attention whose mask is known: block by block of its rows, over no more columns than any row of the block may see.

    v1 = contract(q, k, ..) : f32[64,64]           v1 = contract(slice(q, 0..16), slice(k, 0..16)) : f32[16,16]
    v2 = where(mask, v1, -inf)                     v2 = where(slice(mask, ..), v1, -inf)
    v3 = softmax(v2)                        =>     v3 = softmax(v2)
    v4 = contract(v3, v, ..) : f32[64,8]           v4 = contract(v3, slice(v, 0..16)) : f32[16,8]
                                                   ..
                                                   v9 = concat(v4, v6, v8, ..) : f32[64,8]

What a mask makes -inf has no part in a maximum, and none in a sum behind the exponential: a causal mask leaves little
more than half of the work, and scores take the room of one block. Bit-exact, but for infinities and nan among what is
masked: their products with 0 are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

import numpy as np

from mlaot.ir import Dim, Graph, Node, users
from mlaot.ir.graph import topological
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.comparison import where
from mlaot.ops.layout import Laid, laid_out
from mlaot.passes.algebra.simplify import number
from mlaot.passes.base import pass_over
from mlaot.schedule.tuning import MASK_BLOCKS, MASK_ROWS, MASK_WORK

SEEN, MINUS_INFINITY, ZERO, ROW = "seen", "-inf", "0", "row"  # what a value is where the mask hides it


Axes = tuple[int | None, int | None]
Array = np.ndarray[Any, Any]


@dataclass
class _Chain:
    """From a product, the scores, by elementwise work and reductions to the product that sums over its columns.

    ``axes`` are the rows' and the columns' axis of each node in between, None where it has none; ``mask`` [rows,
    columns] is what is seen.
    """

    scores: Node
    last: Node
    side: int  # which operand of the last product is made of the scores
    nodes: list[Node]
    axes: dict[Node, Axes] = field(default_factory=dict)
    mask: Array | None = None


@pass_over("graphs", after=("contract",))
def causal_blocks(graph: Graph) -> None:
    """Compute every such chain in blocks."""
    used, roots = users(graph.nodes()), set(graph.roots())
    for last in graph.nodes():
        for side in (0, 1) if last.op is red.contract else ():
            chain = _chain(last, side, used, roots)
            if chain is not None:
                graph.forward(last, _in_blocks(chain))
                break


def _chain(last: Node, side: int, used: Mapping[Node, Sequence[Node]], roots: set[Node]) -> _Chain | None:
    *labels, out = red.parse_spec(last.attrs["spec"])
    weights, summed = last.arg(side), [i for i, c in enumerate(labels[side]) if c not in out]
    found = _between(weights)
    if found is None or len(summed) != 1:
        return None
    scores, nodes = found
    inside = {scores, *nodes}
    read_on = any(u not in inside and u is not last for n in inside for u in used[n])
    if read_on or inside & roots or last.arg(1 - side) in inside:
        return None
    for axes in permutations(range(scores.type.rank), 2):
        chain = _Chain(scores, last, side, nodes, {scores: axes})
        if _separates(scores, *axes) and _is_without_effect(chain) and chain.axes[weights][1] == summed[0]:
            blocks = _blocks(chain)
            if sum((end - start) * seen for start, end, seen in blocks) <= MASK_WORK * chain.mask.size:  # type: ignore[union-attr]
                return chain
    return None


def _between(weights: Node) -> tuple[Node, list[Node]] | None:
    """The one product that ``weights`` are made of, and the nodes in between in their order."""
    inside: dict[Node, None] = {}
    stack, products = [weights], set()
    while stack:
        node = stack.pop().find()
        if node.op is red.contract:
            products.add(node)
        elif node not in inside and node.args and _is_followed(node):
            inside[node] = None
            stack.extend(node.args)
    if len(products) != 1:
        return None
    (scores,) = products
    order = topological([weights], inside)
    varying = {scores}
    for n in order:
        if any(a.find() in varying for a in n.args):
            varying.add(n)
    return (scores, [n for n in order if n in varying]) if weights in varying and weights is not scores else None


def _is_followed(node: Node) -> bool:
    """Whether scores are followed through a node: elementwise work, one value seen otherwise, reductions."""
    return node.op.elementwise or node.op in (red.sum_, red.max_) or (node.op.moves and len(node.args) == 1)


def _separates(scores: Node, rows: int, columns: int) -> bool:
    """Whether one operand of the product has the rows, the other the columns, of known extents."""
    first, second, out = red.parse_spec(scores.attrs["spec"])
    row, column, shape = out[rows], out[columns], scores.type.shape
    apart = (row in first) != (row in second) and (column in first) != (column in second)
    return apart and (row in first) != (column in first) and isinstance(shape[columns], int) and _is_long(shape[rows])


def _is_long(rows: Dim) -> bool:
    return isinstance(rows, int) and rows >= MASK_ROWS


def _is_without_effect(chain: _Chain) -> bool:
    """Find the mask and the axes of every node; whether what is hidden has no part in the result."""
    hidden = {chain.scores: SEEN}
    for node in chain.nodes:
        axes = _axes(node, chain.axes)
        if axes is None:
            return False
        chain.axes[node] = axes
        state = _hidden(node, chain, hidden)
        if state is None:
            return False
        hidden[node] = state
    return chain.mask is not None and hidden[chain.nodes[-1]] == ZERO and chain.axes[chain.nodes[-1]][0] is not None


def _axes(node: Node, known: dict[Node, Axes]) -> Axes | None:
    """Where the rows and the columns of the scores are in a node, by where they are in its arguments."""
    assert node.op.axes is not None, f"bug in mlaot: {node} is not followed"
    map_ = node.op.axes.of(node)
    args = {a.find(): i for i, a in enumerate(node.args) if a.find() in known}
    if node.op.reduces:
        rows, columns = known[node.arg(0)]
        over_columns = rows is not None and columns is not None and node.attrs["axes"] == (columns,)
        return (map_.image(0, rows), None) if over_columns and rows is not None else None
    images = {a: tuple(None if p is None else map_.image(i, p) for p in known[a]) for a, i in args.items()}
    if any(place is not None and image is None for a in args for place, image in zip(known[a], images[a], strict=True)):
        return None
    with_columns = {image for image in images.values() if image[1] is not None}
    if len(with_columns or set(images.values())) != 1:
        return None
    (rows, columns) = next(iter(with_columns or set(images.values())))
    for a in args:  # numbers of rows, broadcast along the columns
        if images[a][1] is None and columns is not None:
            if images[a][0] != rows or a.op is not st.broadcast or columns in a.attrs["axes"]:
                return None
            known[a] = rows, columns
    return rows, columns


def _hidden(node: Node, chain: _Chain, hidden: Mapping[Node, str]) -> str | None:
    """What a node is where the mask hides the scores; None where that may have an effect."""
    args = [a.find() for a in node.args]
    states = [hidden.get(a) for a in args]
    if node.op in (red.max_, red.sum_):
        return ROW if states == [MINUS_INFINITY if node.op is red.max_ else ZERO] else None
    if set(states) <= {ROW, None}:
        return ROW  # a number of each row, made of what is seen
    if node.op is where and states == [None, SEEN, None] and number(args[2]) == -np.inf:
        return MINUS_INFINITY if _masks(chain, node, args[0], np.array(False)) else None
    if node.op is ew.add and sorted(map(str, states)) == sorted((SEEN, "None")):
        return MINUS_INFINITY if _masks(chain, node, args[states.index(None)], np.array(-np.inf)) else SEEN
    if SEEN in states:
        return SEEN if set(states) <= {SEEN, None} else None
    first, others = states[0], set(states[1:])
    if node.op is ew.cast or node.op.moves:
        return first
    if first == MINUS_INFINITY and node.op in (ew.sub, ew.add) and others <= {ROW}:
        return MINUS_INFINITY
    if first == MINUS_INFINITY and node.op is ew.exp:
        return ZERO
    if (first == ZERO and node.op is ew.div and others <= {ROW}) or (
        node.op is ew.mul and ZERO in states and set(states) <= {ZERO, ROW}
    ):
        return ZERO
    return None


def _masks(chain: _Chain, node: Node, mask: Node, hides: Array) -> bool:
    """Note what a constant along rows and columns hides."""
    inner, places = mask, tuple(range(mask.type.rank))
    if mask.op is st.broadcast:
        inner, places = mask.arg(0), mask.attrs["axes"]
    if inner.op is not st.const or places != chain.axes[node] or chain.mask is not None:
        return False
    chain.mask = inner.attrs["value"].array != hides
    return bool(chain.mask.shape == tuple(node.type.shape[a] for a in places))


def _blocks(chain: _Chain) -> list[tuple[int, int, int]]:
    """The first and the last row of each block, and how many columns it sees."""
    assert chain.mask is not None
    rows = len(chain.mask)
    step = -(-rows // MASK_BLOCKS // 16) * 16
    found = []
    for start in range(0, rows, step):
        seen = np.flatnonzero(chain.mask[start : start + step].any(0))
        found.append((start, min(start + step, rows), int(seen[-1]) + 1 if seen.size else 1))
    return found


def _in_blocks(chain: _Chain) -> Node:
    """The last product, block by block."""
    *labels, out = red.parse_spec(chain.last.attrs["spec"])
    rows, columns = chain.axes[chain.last.arg(chain.side)]
    assert rows is not None and columns is not None
    row, column = (labels[chain.side][a] for a in (rows, columns))
    parts = []
    for start, end, seen in _blocks(chain):
        made = {chain.scores: _product(chain.scores, chain.axes[chain.scores], start, end, seen)}
        for node in chain.nodes:
            args = [made.get(a.find()) or _cut(a.find(), chain.axes[node], start, end, seen) for a in node.args]
            made[node] = _of_extents(node, args, _size(node, chain.axes[node], end - start, seen))
        operands = [chain.last.arg(0), chain.last.arg(1)]
        operands[chain.side] = made[chain.last.arg(chain.side)]
        other = labels[1 - chain.side]
        place = (other.index(row) if row in other else None, other.index(column))
        operands[1 - chain.side] = _cut(operands[1 - chain.side], place, start, end, seen)
        parts.append(red.contract(*operands, spec=chain.last.attrs["spec"]))
    return st.concat(*parts, axis=out.index(row))


def _of_extents(node: Node, args: Sequence[Node], shape: tuple[Dim, ...]) -> Node:
    """A node over arguments of other extents; its own are ``shape``."""
    assert node.op.axes is not None, f"bug in mlaot: {node} is not followed"
    axes = node.op.axes.of(node)
    result = laid_out(node, list(map(Laid, args, axes.args)), extents=dict(zip(axes.result, shape, strict=True)))
    assert result is not None, f"bug in mlaot: {node} of other extents"
    return result.node


def _product(scores: Node, axes: Axes, start: int, end: int, seen: int) -> Node:
    """Some rows and the first columns of the scores."""
    *labels, out = red.parse_spec(scores.attrs["spec"])
    row, column = (out[a] for a in axes if a is not None)
    places = [tuple(some.index(c) if c in some else None for c in (row, column)) for some in labels]
    cut = [_cut(scores.arg(i), place, start, end, seen) for i, place in enumerate(places)]  # type: ignore[arg-type]
    return red.contract(*cut, spec=scores.attrs["spec"])


def _size(node: Node, axes: Axes, rows: int, columns: int) -> tuple[Dim, ...]:
    """The shape of a node for so many rows and columns."""
    return tuple(rows if i == axes[0] else columns if i == axes[1] else d for i, d in enumerate(node.type.shape))


def _cut(x: Node, axes: Axes, start: int, end: int, seen: int) -> Node:
    """Some rows and the first columns of a value."""
    if not x.type.rank:
        return x
    first = tuple(start if i == axes[0] else 0 for i in range(x.type.rank))
    return st.slice_(x, start=first, size=_size(x, axes, end - start, seen), step=(1,) * x.type.rank)
