"""Compute attention with a constant mask in blocks of rows, each over the columns that its rows may attend to.

    v1 = contract(q, k, ..) : f32[64,64]           v1 = contract(slice(q, 0..16), slice(k, 0..16)) : f32[16,16]
    v2 = where(mask, v1, -inf)                     v2 = where(slice(mask, ..), v1, -inf)
    v3 = softmax(v2)                        =>     v3 = softmax(v2)
    v4 = contract(v3, v, ..) : f32[64,8]           v4 = contract(v3, slice(v, 0..16)) : f32[16,8]
                                                   ..
                                                   v9 = concat(v4, v6, v8, ..) : f32[64,8]

Scores that a mask makes -inf have no effect on a maximum, nor on a sum after the exponential. So with a causal mask
little more than half of the work remains, and scores need the memory of one block. The pass is bit-exact, except for
infinities and nan among masked values, whose products with 0 are left out.
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
from mlaot.ops.axes import axes_of
from mlaot.ops.comparison import where
from mlaot.ops.relayout import Laid, lay_out
from mlaot.passes.algebra.simplify import number
from mlaot.passes.base import pass_over
from mlaot.schedule.tuning import MASK_BLOCKS, MASK_ROWS, MASK_WORK

# The values of a node where the mask hides the scores: any value, if it is masked again, or one of two numbers. A node
# without columns has one number per row.
ANYTHING, MINUS_INFINITY, ZERO, ROW = "anything", "-inf", "0", "row"
HIDDEN: dict[float | None, str] = {-np.inf: MINUS_INFINITY, 0.0: ZERO}
Axes = tuple[int | None, int | None]
Array = np.ndarray[Any, Any]


@dataclass
class _Chain:
    """The nodes of an attention: ``scores``, elementwise work, reductions, and ``last``, which sums over the columns.

    ``axes`` maps each node to its axes of the rows and of the columns, or None. ``mask`` [rows, columns] is true for
    the scores that a row attends to.
    """

    scores: Node
    last: Node
    side: int  # the operand of the last product that is computed from the scores
    nodes: list[Node]
    axes: dict[Node, Axes] = field(default_factory=dict)
    mask: Array | None = None


@pass_over("graphs", after=("contract",))
def causal_blocks(graph: Graph) -> None:
    """Compute every chain from scores to weighted sum block by block, where its mask is a constant."""
    used, roots = users(graph.nodes()), set(graph.roots())
    for last in graph.nodes():
        for side in (0, 1) if last.op is red.contract else ():
            chain = _chain(last, side, used, roots)
            if chain is not None:
                graph.forward(last, _compute_in_blocks(chain))
                break


def _chain(last: Node, side: int, used: Mapping[Node, Sequence[Node]], roots: set[Node]) -> _Chain | None:
    *labels, out = red.parse_spec(last.attrs["spec"])
    weights, summed = last.arg(side), [i for i, c in enumerate(labels[side]) if c not in out]
    between = _trace_to_product(weights)
    if between is None or len(summed) != 1:
        return None
    scores, nodes = between
    inside = {scores, *nodes}
    read_on = any(u not in inside and u is not last for n in inside for u in used[n])
    if read_on or inside & roots or last.arg(1 - side) in inside:
        return None
    for axes in permutations(range(scores.type.rank), 2):
        chain = _Chain(scores, last, side, nodes, {scores: axes})
        if _separates(scores, *axes) and _is_without_effect(chain) and chain.axes[weights][1] == summed[0]:
            work = sum((end - start) * visible for start, end, visible in _blocks(chain))
            if work <= MASK_WORK * chain.mask.size:  # type: ignore[union-attr]
                return chain
    return None


def _trace_to_product(weights: Node) -> tuple[Node, list[Node]] | None:
    """Find the one product that ``weights`` are computed from, and the nodes on the way, arguments first."""
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
    """Tell whether a chain may pass through a node: elementwise work, moves of one value, reductions."""
    return node.op.elementwise or node.op in (red.sum_, red.max_) or (node.op.moves and len(node.args) == 1)


def _separates(scores: Node, rows: int, columns: int) -> bool:
    """Tell whether one operand of the product has the rows, the other the columns, of known extents."""
    first, second, out = red.parse_spec(scores.attrs["spec"])
    row, column, shape = out[rows], out[columns], scores.type.shape
    is_split = (row in first) != (row in second) and (column in first) != (column in second)
    return (
        is_split and (row in first) != (column in first) and isinstance(shape[columns], int) and _is_long(shape[rows])
    )


def _is_long(rows: Dim) -> bool:
    return isinstance(rows, int) and rows >= MASK_ROWS


def _is_without_effect(chain: _Chain) -> bool:
    """Find the mask and the axes of every node; tell whether hidden scores have no part in the result."""
    hidden = {chain.scores: ANYTHING}
    for node in chain.nodes:
        axes = _axes(node, chain.axes)
        if axes is None:
            return False
        chain.axes[node] = axes
        state = _hidden_state(node, chain, hidden)
        if state is None:
            return False
        hidden[node] = state
    return chain.mask is not None and hidden[chain.nodes[-1]] == ZERO and chain.axes[chain.nodes[-1]][0] is not None


def _axes(node: Node, places: dict[Node, Axes]) -> Axes | None:
    """Map the rows and the columns of the scores to axes of a node, from their ``places`` in its arguments."""
    map_ = axes_of(node)
    if _takes_first_column(node, places):
        return map_.image(0, places[node.arg(0)][0] or 0), None
    args = {a.find(): i for i, a in enumerate(node.args) if a.find() in places}
    if node.op.reduces:
        rows, columns = places[node.arg(0)]
        over_columns = rows is not None and columns is not None and node.attrs["axes"] == (columns,)
        return (map_.image(0, rows), None) if over_columns and rows is not None else None
    images = {a: tuple(None if p is None else map_.image(i, p) for p in places[a]) for a, i in args.items()}
    if any(
        place is not None and image is None for a in args for place, image in zip(places[a], images[a], strict=True)
    ):
        return None
    with_columns = {image for image in images.values() if image[1] is not None}
    if len(with_columns or set(images.values())) != 1:
        return None
    (rows, columns) = next(iter(with_columns or set(images.values())))
    for a in args:  # a number of each row, broadcast along the columns
        if images[a][1] is None and columns is not None:
            if images[a][0] != rows or a.op is not st.broadcast or columns in a.attrs["axes"]:
                return None
            places[a] = rows, columns
    return rows, columns


def _hidden_state(node: Node, chain: _Chain, hidden: Mapping[Node, str]) -> str | None:
    """Classify what a node holds where the mask hides the scores; None where that may have an effect."""
    args = [a.find() for a in node.args]
    states = [hidden.get(a) for a in args]
    if node.op in (red.max_, red.sum_):
        return ROW if states == [MINUS_INFINITY if node.op is red.max_ else ZERO] else None
    if set(states) <= {ROW, None} or _takes_first_column(node, chain.axes):
        return ROW  # a number of each row, computed from what it sees
    fill = HIDDEN.get(number(args[2])) if node.op is where and states[2] is None else None
    if fill and (states[1] == fill or (states[0] is None and _masks(chain, node, args[0], np.array(False)))):
        return fill
    if node.op is ew.add and sorted(map(str, states)) == sorted((ANYTHING, "None")):
        hides = _masks(chain, node, args[states.index(None)], np.array(-np.inf))
        return MINUS_INFINITY if hides else ANYTHING
    if ANYTHING in states:
        return ANYTHING
    first, rest = states[0], set(states[1:])
    if node.op is ew.cast or node.op.moves:
        return first
    if first == MINUS_INFINITY and node.op in (ew.sub, ew.add) and rest <= {ROW}:
        return MINUS_INFINITY
    if first == MINUS_INFINITY and node.op is ew.exp:
        return ZERO
    if (first == ZERO and node.op is ew.div and rest <= {ROW}) or (
        node.op is ew.mul and ZERO in states and set(states) <= {ZERO, ROW}
    ):
        return ZERO
    return None


def _takes_first_column(node: Node, places: Mapping[Node, Axes]) -> bool:
    """Tell whether a node is the first column of each row, which every block computes."""
    if node.op is not st.slice_ or node.arg(0) not in places or places[node.arg(0)][1] is None:
        return False
    shape, column = node.arg(0).type.shape, places[node.arg(0)][1]
    size = tuple(1 if axis == column else d for axis, d in enumerate(shape))
    return (node.attrs["start"], node.attrs["size"]) == ((0,) * len(shape), size)


def _masks(chain: _Chain, node: Node, mask: Node, hides: Array) -> bool:
    """Set the mask of the chain to a constant along rows and columns.

    Tell whether the node is one, and the only one.
    """
    inner, places = mask, tuple(range(mask.type.rank))
    if mask.op is st.broadcast:
        inner, places = mask.arg(0), mask.attrs["axes"]
    if inner.op is not st.const or places != chain.axes[node]:
        return False
    seen = inner.attrs["value"].array != hides
    if chain.mask is None and seen.shape == tuple(node.type.shape[a] for a in places):
        chain.mask = seen
    return np.array_equal(seen, chain.mask) if chain.mask is not None else False


def _blocks(chain: _Chain) -> list[tuple[int, int, int]]:
    """List for each block of rows its first row, its end, and how many columns its rows see."""
    assert chain.mask is not None
    rows = len(chain.mask)
    step = -(-rows // MASK_BLOCKS // 16) * 16  # ceil(rows / MASK_BLOCKS), rounded up to a multiple of 16
    blocks = []
    for start in range(0, rows, step):
        visible = np.flatnonzero(chain.mask[start : start + step].any(0))
        blocks.append((start, min(start + step, rows), int(visible[-1]) + 1 if visible.size else 1))
    return blocks


def _compute_in_blocks(chain: _Chain) -> Node:
    """Compute the last product of a chain block by block and concatenate the results."""
    *labels, out = red.parse_spec(chain.last.attrs["spec"])
    rows, columns = chain.axes[chain.last.arg(chain.side)]
    assert rows is not None and columns is not None
    row, column = (labels[chain.side][a] for a in (rows, columns))
    parts = []
    for start, end, visible in _blocks(chain):
        copies = {chain.scores: _product(chain.scores, chain.axes[chain.scores], start, end, visible)}
        for node in chain.nodes:
            args = [copies.get(a.find()) or _cut(a.find(), chain.axes[node], start, end, visible) for a in node.args]
            copies[node] = _resize(node, args, _size(node, chain.axes[node], end - start, visible))
        operands = [chain.last.arg(0), chain.last.arg(1)]
        operands[chain.side] = copies[chain.last.arg(chain.side)]
        other = labels[1 - chain.side]
        place = (other.index(row) if row in other else None, other.index(column))
        operands[1 - chain.side] = _cut(operands[1 - chain.side], place, start, end, visible)
        parts.append(red.contract(*operands, spec=chain.last.attrs["spec"]))
    return st.concat(*parts, axis=out.index(row))


def _resize(node: Node, args: Sequence[Node], shape: tuple[Dim, ...]) -> Node:
    """Make the node again over arguments of other extents; its result has the shape ``shape``."""
    axes = axes_of(node)
    result = lay_out(node, list(map(Laid, args, axes.args)), extents=dict(zip(axes.result, shape, strict=True)))
    assert result is not None, f"bug in mlaot: {node} of other extents"
    return result.node


def _product(scores: Node, axes: Axes, start: int, end: int, visible: int) -> Node:
    """Compute rows ``start`` to ``end`` and the first columns of the scores."""
    *labels, out = red.parse_spec(scores.attrs["spec"])
    row, column = (out[a] for a in axes if a is not None)
    places = [tuple(names.index(c) if c in names else None for c in (row, column)) for names in labels]
    cut = [_cut(scores.arg(i), place, start, end, visible) for i, place in enumerate(places)]  # type: ignore[arg-type]
    return red.contract(*cut, spec=scores.attrs["spec"])


def _size(node: Node, axes: Axes, rows: int, columns: int) -> tuple[Dim, ...]:
    """Return the shape of a node for the given numbers of rows and columns."""
    return tuple(rows if i == axes[0] else columns if i == axes[1] else d for i, d in enumerate(node.type.shape))


def _cut(x: Node, axes: Axes, start: int, end: int, visible: int) -> Node:
    """Slice rows ``start`` to ``end`` and the first columns of a value."""
    if not x.type.rank:
        return x
    first = tuple(start if i == axes[0] else 0 for i in range(x.type.rank))
    return st.slice_(x, start=first, size=_size(x, axes, end - start, visible), step=(1,) * x.type.rank)
