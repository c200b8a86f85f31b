"""Algebra that is true for every bit pattern, nan, infinities and signed zeros included. Bit-exact.

    v2 = mul(v0, 1.0)
    v3 = mul(v1, -1.0)        =>    v2 = sub(v0, v1)
    v4 = add(v2, v3)

``x + 0`` and ``x * 0`` are kept: the first changes -0 to 0, and the second is not 0 for infinities and nan.
"""

from __future__ import annotations

import numpy as np

from mlaot.ir import Graph, Node
from mlaot.ir import dims as dims_
from mlaot.ir.types import f32, f64, holds_all
from mlaot.ops import Op
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.base import full_like
from mlaot.ops.indexing import gather
from mlaot.ops.kinds import changes_unit_axes
from mlaot.ops.nests.sorts import are_chosen
from mlaot.ops.quantized import quantize
from mlaot.ops.rounding import round_
from mlaot.ops.sorting import argsort
from mlaot.ops.trees import tree_ensemble
from mlaot.passes.algebra.places import reads_all_in_order
from mlaot.passes.base import pass_over
from mlaot.passes.rewrite import Rule, rewrite
from mlaot.schedule.tuning import SEARCHED_SHARE

ZERO_POINTS = 255  # in size: what bytes less these are is exact


def number(node: Node) -> float | None:
    """Return the value of a constant that is the same in every element, or None."""
    node = node.find()
    while node.op is st.broadcast:
        node = node.arg(0)
    if node.op is not st.const:
        return None
    array = node.attrs["value"].array
    if array.size == 0 or (array != array.flat[0]).any() or (np.signbit(array) != np.signbit(array.flat[0])).any():
        return None
    return float(array.flat[0])


def constant_on_the_right(node: Node) -> Node | None:
    """op(constant, x) => op(x, constant), so that every other rule needs one order only"""
    if len(node.args) == 2 and number(node.arg(0)) is not None and number(node.arg(1)) is None:
        return node.op(node.arg(1), node.arg(0), **node.attrs)
    return None


def one_argument(node: Node) -> Node | None:
    """add(x) => x"""
    return node.arg(0) if len(node.args) == 1 else None


def by_one(node: Node) -> Node | None:
    """x * 1 => x, x / 1 => x"""
    return node.arg(0) if number(node.arg(1)) == 1 else None


def times_minus_one(node: Node) -> Node | None:
    """x * -1 => -x"""
    return ew.neg(node.arg(0)) if number(node.arg(1)) == -1 else None


def minus_zero(node: Node) -> Node | None:
    """x - 0 => x (for +0 only: -0 - -0 is 0)"""
    value = number(node.arg(1))
    return node.arg(0) if value == 0 and not np.signbit(value) else None


def plus_minus_zero(node: Node) -> Node | None:
    """x + -0 => x (for -0 only: -0 + 0 is 0)"""
    for x, y in zip(node.args, reversed(node.args), strict=True) if len(node.args) == 2 else ():
        is_negative = y.find().op is ew.neg
        value = number(y.find().arg(0) if is_negative else y)
        if value == 0 and np.signbit(value) != is_negative:
            return x.find()
    return None


def plus_negative(node: Node) -> Node | None:
    """x + -y => x - y, for tensors: scalars are still to be found as terms of sums"""
    if len(node.args) == 2 and node.type.rank:
        for x, y in ((node.arg(0), node.arg(1)), (node.arg(1), node.arg(0))):
            inner = y.arg(0) if y.op is st.broadcast else y
            if inner.op is ew.neg:
                positive = inner.arg(0)
                return ew.sub(x, st.broadcast(positive, **y.attrs) if inner is not y else positive)
    return None


def minus_negative(node: Node) -> Node | None:
    """x - -y => x + y"""
    return ew.add(node.arg(0), node.arg(1).arg(0)) if node.arg(1).op is ew.neg else None


def double_negative(node: Node) -> Node | None:
    """-(-x) => x"""
    return node.arg(0).arg(0) if node.arg(0).op is ew.neg else None


def relu_of_relu(node: Node) -> Node | None:
    """relu(relu(x)) => relu(x)"""
    return node.arg(0) if node.arg(0).op is ew.relu else None


def maximum_with_zero(node: Node) -> Node | None:
    """maximum(x, 0) => relu(x), whose gradient at 0 is 0"""
    value = number(node.arg(1)) if len(node.args) == 2 else None
    return ew.relu(node.arg(0)) if value == 0 and not np.signbit(value) else None


def quantize_rounded(node: Node) -> Node | None:
    """quantize(round(x)) => quantize(x)"""
    return quantize(node.arg(0).arg(0), **node.attrs) if node.arg(0).op is round_ else None


def quantize_shifted(node: Node) -> Node | None:
    """quantize(round(x) + zero) => quantize(x, zero=zero), for a whole number: what is rounded is within 8 bits"""
    total = node.arg(0)
    if total.op is not ew.add or len(total.args) != 2 or total.arg(0).op is not round_ or "zero" in node.attrs:
        return None
    zero = number(total.arg(1))
    if zero is None or zero != round(zero) or abs(zero) > ZERO_POINTS:
        return None
    return quantize(total.arg(0).arg(0), **node.attrs, zero=int(zero))


def trivial_power(node: Node) -> Node | None:
    """x**1 => x, x**0 => 1 (also for nan, as IEEE 754 has it), x**-1 => 1 / x"""
    match node.attrs["exponent"]:
        case 1:
            return node.arg(0)
        case 0:
            return full_like(node, 1.0)
        case -1:
            return ew.div(full_like(node, 1.0), node.arg(0))
    return None


def part_of_sorted(node: Node) -> Node | None:
    """argsort(x)[a:b] => argsort(x, count=b)[a:b] of a few first ones, else argsort(x, places=(a, b))[a:b]"""
    order = node.arg(0)
    if order.op is not argsort or order.attrs.get("count") or order.attrs.get("places"):
        return None
    axis, attrs = order.attrs["axis"], node.attrs
    extent, start, size, step = (x[axis] for x in (order.type.shape, attrs["start"], attrs["size"], attrs["step"]))
    if step != 1 or not all(isinstance(x, int) for x in (extent, start, size)):
        return None
    stop = start + size
    if not 0 < size < SEARCHED_SHARE * extent:
        return None
    part = {"count": stop} if are_chosen(order.arg(0).type, axis, stop) else {"places": (start, stop)}
    found = argsort(order.arg(0), **order.attrs, **part)
    return found if found.type == node.type else st.slice_(found, **attrs)


def to_its_type(node: Node) -> Node | None:
    """cast to its own dtype, or broadcast that adds no axis => x"""
    return node.arg(0) if node.arg(0).type == node.type else None


def cast_twice(node: Node) -> Node | None:
    """cast(cast(x)) => cast(x), where the inner cast keeps all values (integers wrap, floats saturate)."""
    inner, dtype = node.arg(0), node.type.dtype
    if inner.op is not ew.cast:
        return None
    x = inner.arg(0)
    is_alike = dtype.kind in "fb" or dtype == x.type.dtype or inner.type.dtype.kind == x.type.dtype.kind
    if not (is_alike and holds_all(inner.type.dtype, x.type.dtype)):
        return None
    return ew.cast(x, dtype=dtype)


def trees_of_wider_rows(node: Node) -> Node | None:
    """tree_ensemble(cast(x)) => tree_ensemble(x) with results in the wider dtype: rows are compared as real numbers."""
    inner = node.arg(0)
    if inner.op is not ew.cast or (inner.arg(0).type.dtype, inner.type.dtype) != (f32, f64):
        return None
    return tree_ensemble(inner.arg(0), **{"dtype": node.type.dtype, **node.attrs})


def broadcast_twice(node: Node) -> Node | None:
    """broadcast(broadcast(x)) => broadcast(x)"""
    inner = node.arg(0)
    if inner.op is not st.broadcast:
        return None
    axes = tuple(node.attrs["axes"][a] for a in inner.attrs["axes"])
    return st.broadcast(inner.arg(0), shape=node.attrs["shape"], axes=axes)


def compute_before_broadcast(node: Node) -> Node | None:
    """f(broadcast(x), broadcast(y)) => broadcast(f(x, y)), along the axes that neither varies on"""
    if not node.op.elementwise or node.type.rank == 0:
        return None
    args = [a.find() for a in node.args]
    if any(a.op is not st.broadcast for a in args):
        return None
    kept = sorted({axis for a in args for axis in a.attrs["axes"]})
    if len(kept) == node.type.rank:
        return None
    shape = tuple(node.type.shape[i] for i in kept)
    small = [st.broadcast(a.arg(0), shape=shape, axes=tuple(kept.index(i) for i in a.attrs["axes"])) for a in args]
    return st.broadcast(node.op(*small, **node.attrs), shape=node.type.shape, axes=tuple(kept))


def compute_before_unit_axes(node: Node) -> Node | None:
    """f(reshape(x), reshape(y)) => reshape(f(x, y)), where the reshapes add axes of one element, as keepdims does"""
    if not node.op.elementwise or node.type.rank == 0:
        return None
    args = [a.find() for a in node.args]
    shapes = {a.arg(0).type.shape for a in args if _adds_unit_axes(a)}
    if len(shapes) != 1 or not all(_adds_unit_axes(a) or (a.op is st.broadcast and not a.attrs["axes"]) for a in args):
        return None
    (shape,) = shapes
    small = [a.arg(0) if _adds_unit_axes(a) else st.broadcast(a.arg(0), shape=shape, axes=()) for a in args]
    return st.reshape(node.op(*small, **node.attrs), shape=node.type.shape)


def _adds_unit_axes(node: Node) -> bool:
    return node.op is st.reshape and node.type.rank > node.arg(0).type.rank and changes_unit_axes(node)


def transpose_twice(node: Node) -> Node | None:
    """transpose(transpose(x)) => transpose(x), and none at all where nothing moves"""
    perm, inner = node.attrs["perm"], node.arg(0)
    if perm == tuple(range(len(perm))):
        return inner
    if inner.op is st.transpose:
        return st.transpose(inner.arg(0), perm=tuple(inner.attrs["perm"][p] for p in perm))
    return None


def reshape_twice(node: Node) -> Node | None:
    """reshape(reshape(x)) => reshape(x), and none at all where the shape is the same"""
    inner = node.arg(0)
    if inner.type == node.type:
        return inner
    return st.reshape(inner.arg(0), shape=node.attrs["shape"]) if inner.op is st.reshape else None


def take_everything(node: Node) -> Node | None:
    """take of all elements in their order => reshape"""
    array, x, lead = node.attrs["indices"].array, node.arg(0), node.attrs.get("lead", 0)
    rest = x.type.shape[lead:]
    if array.size == dims_.product(rest) and (array.reshape(-1) == np.arange(array.size)).all():
        return st.reshape(x, shape=node.type.shape)
    return None


def gather_windows(node: Node) -> Node | None:
    """gather by constants i * stride + k * dilation + first => window; by those of one axis => slice"""
    x, index = node.arg(0), node.arg(1)
    extent = x.type.shape[0]
    if index.op is not st.const or node.attrs["lead"] or index.type.rank not in (1, 2) or not isinstance(extent, int):
        return None
    array = index.attrs["value"].array.astype(np.int64)
    if array.size == 0 or array.min() < 0 or array.max() >= extent:
        return None
    first, reach = int(array.flat[0]), int(array.flat[-1] - array.flat[0]) + 1
    steps = [int(array.take(1, axis=a).flat[0]) - first if n > 1 else 1 for a, n in enumerate(array.shape)]
    expected = sum(step * i for step, i in zip(steps, np.indices(array.shape), strict=True))
    if min(steps) < 1 or (array - first != expected).any():
        return None
    start, rest, ones = (first, *(0,) * (x.type.rank - 1)), x.type.shape[1:], (1,) * (x.type.rank - 1)
    if array.ndim == 1:
        return st.slice_(x, start=start, size=(array.size, *rest), step=(steps[0], *ones))
    part = st.slice_(x, start=start, size=(reach, *rest), step=(1, *ones))
    tap = int(array.shape[0] >= array.shape[1])  # the shorter axis
    windows = st.window(part, axes=(0,), sizes=(array.shape[tap],), strides=(steps[1 - tap],), dilations=(steps[tap],))
    last = x.type.rank
    return st.transpose(windows, perm=(*((0, last) if tap else (last, 0)), *range(1, last)))


def gather_in_order(node: Node) -> Node | None:
    """gather of each element of an axis, in their order => reshape"""
    x, index = node.arg(0), node.arg(1)
    if node.attrs["lead"] or not reads_all_in_order(index, x.type.shape[0]):
        return None
    return st.reshape(x, shape=(*index.type.shape, *x.type.shape[1:]))


def reduce_nothing(node: Node) -> Node | None:
    """sum over no axes => x"""
    return node.arg(0) if node.attrs["axes"] == () else None


def reduce_twice(node: Node) -> Node | None:
    """max(max(x)) => max(x), over the axes of both"""
    inner = node.arg(0)
    return node.op(inner.arg(0), axes=red.both_axes(inner, node)) if inner.op is node.op else None


def window_of_one(node: Node) -> Node | None:
    """window of one element along an axis => slice in steps, where the stride is not 1"""
    axes, sizes, strides = (node.attrs[key] for key in ("axes", "sizes", "strides"))
    if 1 not in sizes:
        return None
    x, steps = node.arg(0), [1] * node.arg(0).type.rank
    for a, k, stride in zip(axes, sizes, strides, strict=True):
        steps[a] = stride if k == 1 else 1
    if any(step != 1 for step in steps):
        size = tuple(d if s == 1 else m for d, m, s in zip(x.type.shape, node.type.shape, steps, strict=False))
        x = st.slice_(x, start=(0,) * x.type.rank, size=size, step=tuple(steps))
    kept = [i for i, k in enumerate(sizes) if k != 1]
    if kept:
        x = st.window(x, **{key: tuple(value[i] for i in kept) for key, value in node.attrs.items()})
    return st.reshape(x, shape=node.type.shape)


def pad_nothing(node: Node) -> Node | None:
    """pad by nothing => x"""
    return node.arg(0) if not any(d != 0 for key in ("low", "high", "interior") for d in node.attrs[key]) else None


def pad_twice(node: Node) -> Node | None:
    """pad(pad(x)) => pad(x), with one value and nothing put between by the outer one"""
    inner = node.arg(0)
    if inner.op is not st.pad or inner.arg(1) is not node.arg(1) or any(node.attrs["interior"]):
        return None
    low, high = (
        tuple(a + b for a, b in zip(inner.attrs[key], node.attrs[key], strict=True)) for key in ("low", "high")
    )
    return st.pad(inner.arg(0), inner.arg(1), low=low, high=high, interior=inner.attrs["interior"])


RULES: dict[Op | None, tuple[Rule, ...]] = {
    ew.add: (one_argument, constant_on_the_right, plus_minus_zero, plus_negative),
    ew.mul: (constant_on_the_right, by_one, times_minus_one),
    ew.is_equal: (constant_on_the_right,),
    ew.maximum: (one_argument, constant_on_the_right, maximum_with_zero),
    ew.minimum: (one_argument, constant_on_the_right),
    ew.sub: (minus_zero, minus_negative),
    st.slice_: (part_of_sorted,),
    ew.div: (by_one,),
    ew.neg: (double_negative,),
    ew.relu: (relu_of_relu,),
    quantize: (quantize_rounded, quantize_shifted),
    ew.pow_: (trivial_power,),
    ew.cast: (to_its_type, cast_twice),
    tree_ensemble: (trees_of_wider_rows,),
    st.broadcast: (to_its_type, broadcast_twice),
    st.transpose: (transpose_twice,),
    st.reshape: (reshape_twice,),
    st.take: (take_everything,),
    gather: (gather_windows, gather_in_order),
    red.sum_: (reduce_nothing,),
    red.max_: (reduce_nothing, reduce_twice),
    red.min_: (reduce_nothing, reduce_twice),
    st.window: (window_of_one,),
    st.pad: (pad_nothing, pad_twice),
    None: (compute_before_broadcast, compute_before_unit_axes),
}


@pass_over("graphs")
def simplify(graph: Graph) -> None:
    """Apply every rule of this file to a fixed point."""
    rewrite(graph, RULES)
