"""Reshapes move towards the outputs, so that axes of one element vanish and what follows a product is its epilogue.

    v2 = reshape(v1, shape=(b, 1, 8, 8)) : f32[b,1,8,8]         v2 = pad(v1, ..) : f32[b,10,10]
    v3 = pad(v2, ..) : f32[b,1,10,10]                     =>    v3 = relu(v2) : f32[b,10,10]
    v4 = relu(v3) : f32[b,1,10,10]                              v4 = reshape(v3, shape=(b, 1, 10, 10))

    v1 = contract(x, w) : f32[b,2,16,h,w]                       v1 = contract(x, w) : f32[b,2,16,h,w]
    v2 = reshape(v1, shape=(b, 32, h, w))                 =>    v2 = reshape(s, shape=(2, 16))
    v3 = broadcast(s, shape=(b, 32, h, w), axes=(1,))           v3 = mul(v1, broadcast(v2))
    v4 = mul(v2, v3)                                            v4 = reshape(v3, shape=(b, 32, h, w))

Past elementwise ops any reshape of a computed value moves; past others
only axes of one element. Inputs that have such axes are read without them. Bit-exact.
"""

from __future__ import annotations

from collections.abc import Callable

from mlaot.ir import Graph, Node
from mlaot.ops import Op
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.indexing import gather
from mlaot.ops.kinds import is_stored, is_view, puts_in_ones, regrouped, without_ones
from mlaot.passes.algebra.simplify import reshape_twice, transpose_twice
from mlaot.passes.base import pass_over
from mlaot.passes.rewrite import rewrite

Places = list[int | None]  # for each axis of a value, the axis without those of one element


def past_elementwise(node: Node) -> Node | None:
    """f(reshape(x), y) => reshape(f(x, y')), where y' is what of ``y`` belongs to each element of ``x``"""
    if node.op.batch is not ew.add.batch:
        return None
    for a in (a.find() for a in node.args):
        if _moves(a) and (args := _all_as(node, a)) is not None:
            return st.reshape(node.op(*args, **node.attrs), shape=node.type.shape)
    return None


def _moves(node: Node) -> bool:
    if node.op is not st.reshape:
        return False
    inner = node.arg(0)
    if puts_in_ones(node):
        return inner.type.rank < node.type.rank
    return not (is_view(inner) or is_stored(inner))


def _all_as(node: Node, like: Node) -> list[Node] | None:
    """The arguments of an elementwise node in the shape that ``like``, one of them, is a reshape of."""
    inner = like.arg(0)
    groups = regrouped(inner.type.shape, like.type.shape)
    if groups is None:
        return None
    found: list[Node] = []
    for a in (a.find() for a in node.args):
        if a.op is st.reshape and a.arg(0).type.shape == inner.type.shape:
            found.append(a.arg(0))
        elif a.op is st.broadcast and (spread := _broadcast_as(a, inner, groups)) is not None:
            found.append(spread)
        elif _only_splits(a.arg(0) if a.op is st.reshape else a, inner):
            found.append(st.reshape(a, shape=inner.type.shape))
        else:
            return None
    return found


def _only_splits(node: Node, like: Node) -> bool:
    """Whether a reshape to the shape of ``like`` makes several axes of one, which is a view."""
    groups = regrouped(node.type.shape, like.type.shape)
    return groups is not None and all(len(axes) == 1 for axes, _ in groups)


def _broadcast_as(node: Node, inner: Node, groups: list[tuple[list[int], list[int]]]) -> Node | None:
    """A broadcast to the shape of ``inner``, where all of a group of axes vary or none does."""
    axes: list[int] = []
    for before, after in groups:
        varying = [a in node.attrs["axes"] for a in after]
        if any(varying) != all(varying):
            return None
        axes += before if any(varying) else []
    small = st.reshape(node.arg(0), shape=tuple(inner.type.shape[a] for a in axes))
    return st.broadcast(small, shape=inner.type.shape, axes=tuple(axes))


def _bare(node: Node) -> tuple[Node, Places] | None:
    """A value without its axes of one element, where it is a reshape or an input."""
    node, shape = node.find(), without_ones(node.find().type.shape)
    if len(shape) == node.type.rank or not (node.op is st.reshape or is_stored(node)):
        return None
    source = node.arg(0) if node.op is st.reshape else node
    bare = source if source.type.shape == shape else st.reshape(source, shape=shape)
    numbers = iter(range(len(shape)))
    return bare, [None if d == 1 else next(numbers) for d in node.type.shape]


def _kept(values: tuple[int, ...], places: Places) -> tuple[int, ...]:
    """Of attributes an axis those of the axes that stay."""
    return tuple(v for v, place in zip(values, places, strict=True) if place is not None)


def _transposed(node: Node, x: Node, places: Places) -> Node | None:
    return st.transpose(x, perm=tuple(p for a in node.attrs["perm"] if (p := places[a]) is not None))


def _padded(node: Node, x: Node, places: Places) -> Node | None:
    attrs = {key: node.attrs[key] for key in ("low", "high", "interior")}
    grown = zip(places, attrs["low"], attrs["high"], strict=True)
    if any(place is None and (low != 0 or high != 0) for place, low, high in grown):
        return None
    return st.pad(x, node.arg(1), **{key: _kept(value, places) for key, value in attrs.items()})


def _sliced(node: Node, x: Node, places: Places) -> Node | None:
    if any(place is None and size != 1 for place, size in zip(places, node.attrs["size"], strict=True)):
        return None
    return st.slice_(x, **{key: _kept(value, places) for key, value in node.attrs.items()})


def _windows(node: Node, x: Node, places: Places) -> Node | None:
    kept = [i for i, a in enumerate(node.attrs["axes"]) if places[a] is not None]
    attrs = {key: tuple(node.attrs[key][i] for i in kept) for key in ("sizes", "strides", "dilations")}
    return st.window(x, axes=tuple(places[node.attrs["axes"][i]] for i in kept), **attrs) if kept else x


def _reduced(node: Node, x: Node, places: Places) -> Node | None:
    axes = tuple(p for a in node.attrs["axes"] if (p := places[a]) is not None)
    return node.op(x, axes=axes) if axes else x


def _gathered(node: Node, x: Node, places: Places) -> Node | None:
    return None if node.attrs["lead"] or places[0] is None else gather(x, node.arg(1), lead=0)


PAST: dict[Op, Callable[[Node, Node, Places], Node | None]] = {
    st.transpose: _transposed,
    st.pad: _padded,
    st.slice_: _sliced,
    st.window: _windows,
    gather: _gathered,
    **dict.fromkeys((red.sum_, red.prod, red.max_, red.min_), _reduced),
}


def past_one_element(node: Node) -> Node | None:
    """f(reshape(x)) => reshape(f(x)), where the result of the reshape has axes of one element"""
    found = _bare(node.arg(0))
    better = PAST[node.op](node, *found) if found is not None else None
    return None if better is None else st.reshape(better, shape=node.type.shape)


def broadcast_of_reshape(node: Node) -> Node | None:
    """broadcast(reshape(x)) => broadcast(x), where the result of the reshape has axes of one element"""
    found = _bare(node.arg(0))
    if found is None:
        return None
    axes = tuple(a for a, place in zip(node.attrs["axes"], found[1], strict=True) if place is not None)
    return st.broadcast(found[0], shape=node.type.shape, axes=axes)


def concat_of_reshapes(node: Node) -> Node | None:
    """concat(reshape(x), reshape(y)) => reshape(concat(x, y)), where their results have axes of one element"""
    axis, args = node.attrs.get("axis", 0), [a.find() for a in node.args]
    found = [_bare(a) for a in args]
    places = next((f[1] for f in found if f is not None), None)
    if places is None or any(a.type.shape[axis] == 1 for a in args):
        return None
    shapes = [without_ones(a.type.shape) for a in args]
    bare = [f[0] if f else st.reshape(a, shape=s) for f, a, s in zip(found, args, shapes, strict=True)]
    return st.reshape(st.concat(*bare, axis=places[axis]), shape=node.type.shape)


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
    reached = "".join(c for c in out if c not in dropped)
    result = red.contract(*operands, spec=f"{labels[0]},{labels[1]}->{reached}")
    return st.reshape(result, shape=node.type.shape)


@pass_over("graphs", after=("contract",))
def sink_reshapes(graph: Graph) -> None:
    """Apply the rules of this file to a fixed point."""
    rewrite(
        graph,
        {
            st.reshape: (reshape_twice,),
            st.transpose: (transpose_twice, past_one_element),
            **{op: (past_one_element,) for op in PAST if op is not st.transpose},
            st.broadcast: (broadcast_of_reshape,),
            st.concat: (concat_of_reshapes,),
            red.contract: (unit_labels,),
            None: (past_elementwise,),
        },
    )
