"""Sink reshapes towards the outputs: axes of one element vanish, and work after a product becomes its epilogue.

    v2 = reshape(v1, shape=(b, 1, 8, 8)) : f32[b,1,8,8]         v2 = pad(v1, ..) : f32[b,10,10]
    v3 = pad(v2, ..) : f32[b,1,10,10]                     =>    v3 = relu(v2) : f32[b,10,10]
    v4 = relu(v3) : f32[b,1,10,10]                              v4 = reshape(v3, shape=(b, 1, 10, 10))

    v1 = contract(x, w) : f32[b,2,16,h,w]                       v1 = contract(x, w) : f32[b,2,16,h,w]
    v2 = reshape(v1, shape=(b, 32, h, w))                 =>    v2 = reshape(s, shape=(2, 16))
    v3 = broadcast(s, shape=(b, 32, h, w), axes=(1,))           v3 = mul(v1, broadcast(v2))
    v4 = mul(v2, v3)                                            v4 = reshape(v3, shape=(b, 32, h, w))

Any reshape of a computed value moves past elementwise ops, and past sums and maxima over axes that it does not change.
Past other ops, only reshapes of axes of one element move. Inputs that have such axes are read without them. Bit-exact.
"""

from __future__ import annotations

from collections.abc import Callable

from mlaot.ir import Dim, Graph, Node
from mlaot.ir.dims import product
from mlaot.ops import Op
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.axes import Label, axes_of, regroup, without
from mlaot.ops.kinds import changes_unit_axes, is_stored, is_view, only_splits
from mlaot.ops.relayout import Laid, lay_out
from mlaot.passes.algebra.simplify import reshape_twice, transpose_twice
from mlaot.passes.base import pass_over
from mlaot.passes.rewrite import Rule, rewrite


def past_elementwise(node: Node) -> Node | None:
    """f(reshape(x), y) => reshape(f(x, y')), where y' holds the element of ``y`` for each of ``x``"""
    return move_past_elementwise(node, _moves)


def move_past_elementwise(node: Node, moves: Callable[[Node], bool], *, repeats: bool = False) -> Node | None:
    """Apply ``past_elementwise`` to the reshapes that ``moves`` selects.

    With ``repeats`` a number for a group, such as a group of channels, may be repeated for each member.
    """
    if not node.op.elementwise:
        return None
    for a in (a.find() for a in node.args):
        if moves(a) and (args := _reshape_operands(node, a, repeats=repeats)) is not None:
            return st.reshape(node.op(*args, **node.attrs), shape=node.type.shape)
    return None


def _moves(node: Node) -> bool:
    if node.op is not st.reshape:
        return False
    inner = node.arg(0)
    if changes_unit_axes(node):
        return inner.type.rank < node.type.rank
    return not (is_view(inner) or is_stored(inner))


def _reshape_operands(node: Node, like: Node, *, repeats: bool) -> list[Node] | None:
    """Reshape the arguments of an elementwise node to the shape that ``like``, one of them, had before."""
    inner = like.arg(0)
    groups = regroup(inner.type.shape, like.type.shape)
    if groups is None:
        return None
    operands: list[Node] = []
    for a in (a.find() for a in node.args):
        spread = _reshape_broadcast(a, inner, groups, repeats=repeats) if a.op is st.broadcast else None
        if a.op is st.reshape and a.arg(0).type.shape == inner.type.shape:
            operands.append(a.arg(0))
        elif spread is not None:
            operands.append(spread)
        elif only_splits((a.arg(0) if a.op is st.reshape else a).type.shape, inner.type.shape):
            operands.append(st.reshape(a, shape=inner.type.shape))
        else:
            return None
    return operands


def past_reduction(node: Node) -> Node | None:
    """sum(reshape(x)) => reshape(sum(x)), where the reshape divides or merges other axes than those of the sum"""
    return move_past_reduction(node, _moves)


def move_past_reduction(node: Node, moves: Callable[[Node], bool]) -> Node | None:
    """Apply ``past_reduction`` to the reshapes that ``moves`` selects."""
    if not node.op.reduces or not moves(a := node.arg(0)):
        return None
    inner, axes = a.arg(0), node.attrs["axes"]
    groups = regroup(inner.type.shape, a.type.shape)
    if groups is None or any(a.type.shape[i] == 1 for i in axes):
        return None
    summed: list[int] = []
    for before, after in groups:
        inside = [i in axes for i in after]
        if any(inside) and (len(before), len(after)) != (1, 1):
            return None
        summed += before if any(inside) else []
    return st.reshape(node.op(inner, **{**node.attrs, "axes": tuple(summed)}), shape=node.type.shape)


def of_slots(node: Node) -> Node | None:
    """reshape(f(w, c)) => f(reshape(w), c), where the reshape splits axes of a parameter or a state: a view"""
    is_split = only_splits(node.arg(0).type.shape, node.type.shape) and not changes_unit_axes(node)
    return _of_slots(node.arg(0), node.type.shape) if is_split and node.arg(0).op.elementwise else None


def _of_slots(node: Node, shape: tuple[Dim, ...]) -> Node | None:
    """Compute elementwise work on slots and single numbers in another shape; None for other values."""
    if node.attrs.get("parameter", False):
        return st.reshape(node, shape=shape)
    if node.op is st.broadcast and node.arg(0).type.shape == ():
        return st.broadcast(node.arg(0), shape=shape, axes=())
    if not node.op.elementwise:
        return None
    args = [_of_slots(a.find(), shape) for a in node.args]
    return None if None in args else node.op(*args, **node.attrs)  # type: ignore[arg-type]


def _reshape_broadcast(
    node: Node, inner: Node, groups: list[tuple[list[int], list[int]]], *, repeats: bool
) -> Node | None:
    """Broadcast to the shape of ``inner``, if all axes of each group vary or none does.

    With ``repeats`` only the leading axes of a group may vary. Their numbers are repeated along the first axis of
    ``inner``.
    """
    small, axes, spread, repeated = node.arg(0), list[int](), node.attrs["axes"], 0
    for before, after in groups:
        varying = [a for a in after if a in spread]
        if varying == after:
            axes += before
        elif varying:
            extent, count = inner.type.shape[before[0]], product(tuple(node.type.shape[a] for a in varying))
            is_leading = repeats and varying == after[: len(varying)]
            if not is_leading or not isinstance(extent, int) or not isinstance(count, int) or extent % count:
                return None
            end = spread.index(varying[-1]) + 1 + repeated
            small = _repeat(small, end, extent // count)
            axes.append(before[0])
            repeated += 1
    small = st.reshape(small, shape=tuple(inner.type.shape[a] for a in axes))
    return st.broadcast(small, shape=inner.type.shape, axes=tuple(axes))


def _repeat(x: Node, axis: int, times: int) -> Node:
    """Repeat each number along a new axis."""
    shape = (*x.type.shape[:axis], times, *x.type.shape[axis:])
    return st.broadcast(x, shape=shape, axes=tuple(i for i in range(len(shape)) if i != axis))


def _is_bare(node: Node) -> bool:
    """Tell whether the value without axes of one element exists: a reshape added them, or the value is stored."""
    return node.op is st.reshape or is_stored(node)


def past_one_element(node: Node) -> Node | None:
    """f(reshape(x), ..) => reshape(f(x, ..)), where the reshape has axes of one element that the result has as well"""
    if node.op.axes is None or node.op.elementwise or node.op in (red.contract, st.reshape):
        return None
    args, axes = [a.find() for a in node.args], node.op.axes.of(node)
    units = {
        label
        for labels, a in zip(axes.args, args, strict=True)
        for label, extent in zip(labels, a.type.shape, strict=True)
        if extent == 1 and _is_bare(a)
    }
    for dropped in (units, units - axes.whole):
        better = _drop_axes(node, args, dropped) if dropped else None
        if better is not None:
            return better if better.type == node.type else st.reshape(better, shape=node.type.shape)
    return None


def _drop_axes(node: Node, args: list[Node], dropped: set[Label]) -> Node | None:
    """Make a node without its arguments' axes of one element, or None if its result would lack other axes."""
    axes = axes_of(node)
    bare = []
    for a, labels in zip(args, axes.args, strict=True):
        extents = dict(zip(labels, a.type.shape, strict=True))
        if any(extents.get(label, 1) != 1 for label in dropped):
            return None
        shape = tuple(d for label, d in extents.items() if label not in dropped)
        source = a.arg(0) if a.op is st.reshape and a.arg(0).type.shape == shape else a
        small = source if source.type.shape == shape else st.reshape(source, shape=shape)
        bare.append(Laid(small, without(labels, dropped)))
    result = lay_out(node, bare)
    if result is None or result.labels != tuple(label for label in axes.result if label in result.labels):
        return None
    missing = [d for d, label in zip(node.type.shape, axes.result, strict=True) if label not in result.labels]
    return result.node if all(d == 1 for d in missing) else None


def unit_labels(node: Node) -> Node | None:
    """contract(x, w) without the labels of axes of one element, but for one that is summed"""
    first, second, out = red.parse_spec(node.attrs["spec"])
    sizes = {
        c: d for i, labels in enumerate((first, second)) for c, d in zip(labels, node.arg(i).type.shape, strict=True)
    }
    summed = [c for c in sizes if c not in out]
    dropped = {c for c, d in sizes.items() if d == 1}
    if summed and dropped.issuperset(summed):
        dropped.remove(next((c for c in summed if c in first and c in second), summed[0]))
    if not dropped:
        return None
    operands, labels = [], []
    for i, each in enumerate((first, second)):
        labels.append("".join(c for c in each if c not in dropped))
        operands.append(st.reshape(node.arg(i), shape=tuple(sizes[c] for c in labels[i])))
    kept = "".join(c for c in out if c not in dropped)
    result = red.contract(*operands, spec=f"{labels[0]},{labels[1]}->{kept}")
    return st.reshape(result, shape=node.type.shape)


RULES: dict[Op | None, tuple[Rule, ...]] = {
    st.reshape: (reshape_twice, of_slots),
    st.transpose: (transpose_twice,),
    red.contract: (unit_labels,),
    None: (past_elementwise, past_reduction, past_one_element),
}


@pass_over("graphs", after=("contract",))
def sink_reshapes(graph: Graph) -> None:
    """Apply the rules of this file to a fixed point."""
    rewrite(graph, RULES)
