"""Ops that make or move values without arithmetic: inputs, constants, views, stacks, slices, padding, windows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.ir import Dim, DType, Literal, Node, Type
from mlaot.ir import dims as dims_
from mlaot.ir.graph import const as const
from mlaot.ir.graph import input_ as input_
from mlaot.ir.indices import IndexRange
from mlaot.ir.types import boolean, f32, f64, i64
from mlaot.ops.axes import CONCAT, FOLD, ONE_HOT, RESHAPE, SAME, STACK, TAKE, TRANSPOSE, WINDOW, each_axis
from mlaot.ops.base import Array, Index, Op, accumulator, fill, full_like, lift, no_gradient, scalar_type, sum_
from mlaot.ops.base import broadcast as broadcast
from mlaot.ops.comparison import where
from mlaot.ops.nests.fills import iota_nest, one_hot_nest
from mlaot.ops.nests.moves import concat_nest, fold_nest, pad_nest, put_add_nest, reshape_nest, stack_nest, take_nest
from mlaot.ops.views import (
    concat_parts,
    element_view,
    fold_parts,
    pad_parts,
    reshape_parts,
    reshape_view,
    slice_view,
    stack_parts,
    transpose_view,
    whole_view,
    window_view,
)

Dims = tuple[Dim, ...]
Ints = tuple[int, ...]


def _transpose_type(x: Type, perm: tuple[int, ...]) -> Type:
    if sorted(perm) != list(range(x.rank)):
        raise MlaotError(f"cannot transpose {x} by {perm}")
    return x.with_shape(tuple(x.shape[p] for p in perm))


transpose: Op = Op(
    "transpose",
    _transpose_type,
    lambda x, perm: np.transpose(x, perm),
    lambda ct, out, x, perm: (transpose(ct, perm=tuple(int(i) for i in np.argsort(perm))),),
    TRANSPOSE,
    moves=True,
    view=transpose_view,
    linear=True,
    doc="the axes in another order; a view",
)


def in_order(x: Node, perm: Sequence[int]) -> Node:
    """Transpose, unless the order is the same."""
    return x if list(perm) == list(range(len(perm))) else transpose(x, perm=tuple(perm))


def _widen_type(x: Type) -> Type:
    if x.dtype is not f32 or not x.shape:  # kernels compute scalars themselves, of whatever dtype
        raise MlaotError(f"cannot widen {x}")
    return Type(f64, x.shape)


# Passes write it in place of a cast.
widen: Op = Op(
    "widen",
    _widen_type,
    lambda x: x.astype(np.float64),
    no_gradient,
    SAME,
    view=whole_view,
    linear=True,
    exact=True,
    doc="numbers of float32 as float64: a view, of which what reads it converts the elements",
)


def _reshape_type(x: Type, shape: tuple[Dim, ...]) -> Type:
    if dims_.product(x.shape) != dims_.product(shape):
        raise MlaotError(f"cannot reshape {x} to {list(shape)}")
    return x.with_shape(shape)


reshape: Op = Op(
    "reshape",
    _reshape_type,
    lambda x, shape: x.reshape(shape),
    lambda ct, out, x, shape: (reshape(ct, shape=x.type.shape),),
    RESHAPE,
    moves=True,
    view=reshape_view,
    linear=True,
    parts=reshape_parts,
    nest=reshape_nest,
    doc="another shape, the same elements in row-major order",
)


def _take_type(x: Type, indices: Literal, lead: int = 0) -> Type:
    rest = dims_.product(x.shape[lead:])
    if not isinstance(rest, int):
        raise MlaotError(f"cannot take from {x} along a named dim")
    if indices.array.size and not (indices.array.min() >= 0 and indices.array.max() < rest):
        raise MlaotError(f"take from {x}: index {indices.array.max()} is outside 0..{rest - 1}")
    return x.with_shape((*x.shape[:lead], *indices.array.shape))


def _take_reference(x: Array, indices: Literal, lead: int = 0) -> Array:
    return x.reshape((*x.shape[:lead], prod(x.shape[lead:])))[..., indices.array]


def _vjp_take(ct: Node, out: Node, x: Node, indices: Literal, lead: int = 0) -> tuple[Node]:
    """Add each cotangent to its element; for one element of a row, pad the cotangent with zeros."""
    if indices.array.ndim == 0 and x.type.rank == lead + 1 and isinstance(x.type.shape[-1], int):
        before, zero = int(indices.array), ct.graph.constant(0, ct.type.dtype)
        none, after = (0,) * lead, x.type.shape[-1] - 1 - before
        row = reshape(ct, shape=(*ct.type.shape, 1))
        return (pad(row, zero, low=(*none, before), high=(*none, after), interior=(*none, 0)),)
    return (put_add(ct, indices=indices, lead=lead, shape=x.type.shape[lead:]),)


# The elements of x, flat behind its first `lead` axes, that `indices` names.
take: Op = Op(
    "take",
    _take_type,
    _take_reference,
    _vjp_take,
    TAKE,
    moves=True,
    view=element_view,
    nest=take_nest,
    doc="the elements that constant indices name, flat behind the first axes",
)


def _put_add_type(x: Type, indices: Literal, lead: int, shape: tuple[int, ...]) -> Type:
    return x.with_shape((*x.shape[:lead], *shape))


def _put_add_reference(x: Array, indices: Literal, lead: int, shape: tuple[int, ...]) -> Array:
    flat = np.zeros((*x.shape[:lead], prod(shape)), x.dtype)
    np.add.at(flat, (..., indices.array), x)  # type: ignore[arg-type]
    return flat.reshape((*x.shape[:lead], *shape))


def _vjp_put_add(ct: Node, out: Node, x: Node, indices: Literal, lead: int, shape: tuple[int, ...]) -> tuple[Node]:
    """Take the cotangents at the places that were added to."""
    return (take(ct, indices=indices, lead=lead),)


# The gradient of take: each element added to the place it was taken from.
put_add: Op = Op(
    "put_add",
    _put_add_type,
    _put_add_reference,
    _vjp_put_add,
    TAKE,
    nest=put_add_nest,
    doc="the transpose of take: every element added to the place it was taken from",
)


def _item_type(x: Type, index: int) -> Type:
    return scalar_type(x.dtype)


item: Op = Op(
    "item",
    _item_type,
    lambda x, index: x.reshape(-1)[index],
    lambda ct, out, x, index: _vjp_take(ct, out, x, scalar_index(index)),
    batch=lambda node, args, batched, dim: take(args[0], indices=scalar_index(node.attrs["index"]), lead=1),
    moves=True,
    view=element_view,
    doc="one element as a scalar",
)


def scalar_index(index: int) -> Literal:
    """Make a rank-0 index."""

    return Literal(index, i64)


def indices(value: Any) -> Literal:
    """Make an attribute of an index array."""

    return Literal(value, i64)


def _stack_type(*types: Type, axis: int = 0) -> Type:
    if not 0 <= axis <= types[0].rank:
        raise MlaotError(f"cannot stack {types[0]} along axis {axis}")
    if any(t != types[0] for t in types):
        raise MlaotError(f"stack needs operands of one type, got {sorted(set(map(str, types)))}")
    shape = types[0].shape
    return types[0].with_shape((*shape[:axis], len(types), *shape[axis:]))


def _vjp_stack(ct: Node, out: Node, *args: Node, axis: int = 0) -> tuple[Node, ...]:
    """Slice the cotangent; along the last axis by ``take``, which passes on scalar graphs handle."""
    if axis == len(args[0].type.shape):
        return tuple(take(ct, indices=scalar_index(i), lead=axis) for i in range(len(args)))
    return tuple(reshape(part(ct, axis, i, 1), shape=args[0].type.shape) for i in range(len(args)))


stack: Op = Op(
    "stack",
    _stack_type,
    lambda *args, axis=0: np.stack(args, axis),
    _vjp_stack,
    STACK,
    moves=True,
    parts=stack_parts,
    nest=stack_nest,
    doc="arguments of one type along a new axis",
)


def _concat_type(*types: Type, axis: int = 0) -> Type:
    shape = types[0].shape
    total: Dim = 0
    for t in types:
        if (
            not 0 <= axis < t.rank
            or t.dtype != types[0].dtype
            or t.shape[:axis] != shape[:axis]
            or t.shape[axis + 1 :] != shape[axis + 1 :]
        ):
            raise MlaotError(f"cannot concatenate {' and '.join(map(str, types))} along axis {axis}")
        total = total + t.shape[axis]
    return types[0].with_shape((*shape[:axis], total, *shape[axis + 1 :]))


def _vjp_concat(ct: Node, out: Node, *args: Node, axis: int = 0) -> tuple[Node, ...]:
    """Slice the cotangent."""
    parts: list[Node] = []
    start: Dim = 0
    for a in args:
        parts.append(part(ct, axis, start, a.type.shape[axis]))
        start = start + a.type.shape[axis]
    return tuple(parts)


concat: Op = Op(
    "concat",
    _concat_type,
    lambda *args, axis=0: np.concatenate(args, axis),
    _vjp_concat,
    CONCAT,
    moves=True,
    parts=concat_parts,
    nest=concat_nest,
    doc="arguments one after the other along an axis",
)


def _slice_needs(x: Type, start: Dims, size: Dims, step: tuple[int, ...]) -> Iterator[Dim]:
    """Yield the dims that must not be negative so that the first and last element of each axis are within ``x``."""
    for n, first, m, s in zip(x.shape, start, size, step, strict=True):
        if m != 0:
            last = first + (m - 1) * s
            yield from (first, n - 1 - last) if s > 0 else (last, n - 1 - first)


def _slice_type(x: Type, start: Dims, size: Dims, step: tuple[int, ...]) -> Type:
    fits = len(start) == len(size) == len(step) == x.rank and 0 not in step
    if not fits or _negative(size) or _negative(_slice_needs(x, start, size, step)):
        raise MlaotError(f"cannot slice {x} from {list(start)}, {list(size)} elements, in steps of {list(step)}")
    return x.with_shape(size)


def _negative(values: Iterable[Dim]) -> bool:
    """Tell whether one of the dims is negative for all values of named dims."""
    return any(isinstance(d, int) and d < 0 for d in values)


def _slice_reference(x: Array, start: tuple[int, ...], size: tuple[int, ...], step: tuple[int, ...]) -> Array:
    return x[tuple(_run(*axis) for axis in zip(start, size, step, strict=True))]


def _run(start: int, size: int, step: int) -> slice:
    """Return the slice of ``size`` indices from ``start`` on."""
    stop = start + (size - 1) * step + (1 if step > 0 else -1)
    return slice(start, None if stop < 0 else stop, step) if size else slice(0, 0)


def _vjp_slice(ct: Node, out: Node, x: Node, start: Dims, size: Dims, step: tuple[int, ...]) -> tuple[Node]:
    """Pad the cotangent to the extents of ``x``; first reverse it where the slice went backwards."""
    backwards = [i for i, s in enumerate(step) if s < 0]
    ct = flip(ct, backwards) if backwards else ct
    low, high = [], []
    for n, first, m, s in zip(x.type.shape, start, size, step, strict=True):
        before = 0 if m == 0 else first if s > 0 else first + (m - 1) * s
        low.append(before)
        high.append(n - before - m - (m - 1) * (abs(s) - 1))
    interior = tuple(abs(s) - 1 for s in step)
    zero = ct.graph.constant(0, ct.type.dtype)
    return (pad(ct, zero, low=tuple(low), high=tuple(high), interior=interior),)


# Element i of the result is x[start + i * step], along each axis; a step may be negative.
slice_: Op = Op(
    "slice",
    _slice_type,
    _slice_reference,
    _vjp_slice,
    each_axis(start=0, size=None, step=1),
    needs=_slice_needs,
    moves=True,
    view=slice_view,
    doc="x[start + i * step] along each axis, of any step but 0; a view",
)


def part(x: Node, axis: int, start: Dim, size: Dim) -> Node:
    """Slice ``size`` neighbours along one axis, and everything along the others."""
    rank = x.type.rank
    starts: Dims = tuple(start if i == axis else 0 for i in range(rank))
    sizes = tuple(size if i == axis else d for i, d in enumerate(x.type.shape))
    return slice_(x, start=starts, size=sizes, step=(1,) * rank)


def flip(x: Node, axes: Sequence[int]) -> Node:
    """Reverse axes."""
    start = tuple(d - 1 if i in axes and d != 0 else 0 for i, d in enumerate(x.type.shape))
    step = tuple(-1 if i in axes else 1 for i in range(x.type.rank))
    return slice_(x, start=start, size=x.type.shape, step=step)


def _pad_needs(x: Type, value: Type, low: Dims, high: Dims, interior: tuple[int, ...]) -> Iterator[Dim]:
    yield from (*low, *high)


def _pad_type(x: Type, value: Type, low: Dims, high: Dims, interior: tuple[int, ...]) -> Type:
    if value.shape != () or value.dtype != x.dtype:
        raise MlaotError(f"pad of {x} needs a scalar {x.dtype} as its value, got {value}")
    if not len(low) == len(high) == len(interior) == x.rank or _negative((*low, *high, *interior)):
        raise MlaotError(f"cannot pad {x} by {list(low)} before, {list(high)} after and {list(interior)} between")
    shape = tuple(a + n + (n - 1) * i + b for n, a, b, i in zip(x.shape, low, high, interior, strict=True))
    if _negative(shape):
        raise MlaotError(f"cannot pad {x} by {list(interior)} between no elements")
    return x.with_shape(shape)


def _pad_reference(
    x: Array, value: Array, low: tuple[int, ...], high: tuple[int, ...], interior: tuple[int, ...]
) -> Array:
    axes = list(zip(x.shape, low, high, interior, strict=True))
    out = np.full([a + n + (n - 1) * i + b for n, a, b, i in axes], value, x.dtype)
    out[tuple(_run(a, n, i + 1) for n, a, _, i in axes)] = x
    return out


def _inside(x: Node, low: Dims, high: Dims, interior: tuple[int, ...]) -> Node:
    """Return a mask of the elements of a padded value that are those of ``x``."""
    false = x.graph.constant(False, boolean)
    return pad(fill(x, True, Type(boolean, x.type.shape)), false, low=low, high=high, interior=interior)


def _vjp_pad(
    ct: Node, out: Node, x: Node, value: Node, low: Dims, high: Dims, interior: tuple[int, ...]
) -> tuple[Node, Node]:
    """Return the cotangents of the elements, and for the padding value the sum of all others."""
    around = where(_inside(x, low, high, interior), full_like(ct, 0.0), ct)
    mine = slice_(ct, start=low, size=x.type.shape, step=tuple(i + 1 for i in interior))
    return mine, sum_(around, axes=tuple(range(ct.type.rank)))


def _batch_pad(node: Node, args: Sequence[Node], batched: Sequence[bool], dim: Dim) -> Node:
    """Pad all examples alike, and select the padding value of each."""
    low, high, interior = ((0, *node.attrs[key]) for key in ("low", "high", "interior"))
    x = args[0] if batched[0] else lift(args[0], dim)
    zero = x.graph.constant(0, x.type.dtype)
    padded = pad(x, zero, low=low, high=high, interior=interior)
    value = broadcast(args[1], shape=padded.type.shape, axes=(0,))
    return where(_inside(x, low, high, interior), padded, value)


# `low` values before, `high` after and `interior` between the elements of each axis. The extent is
# low + n + (n - 1) * interior + high also where n is 0.
pad: Op = Op(
    "pad",
    _pad_type,
    _pad_reference,
    _vjp_pad,
    each_axis(low=0, high=0, interior=0),
    batch=_batch_pad,
    needs=_pad_needs,
    moves=True,
    parts=pad_parts,
    nest=pad_nest,
    doc="x with a value before, after and between its elements",
)


def _window_needs(x: Type, axes: Ints, sizes: Ints, strides: Ints, dilations: Ints) -> Iterator[Dim]:
    for a, k, dilation in zip(axes, sizes, dilations, strict=True):
        yield x.shape[a] - _reach(k, dilation)


def _reach(size: int, dilation: int) -> int:
    """Return the number of elements that a window spans."""
    return (size - 1) * dilation + 1


def _window_type(x: Type, axes: Ints, sizes: Ints, strides: Ints, dilations: Ints) -> Type:
    if (
        not len(axes) == len(sizes) == len(strides) == len(dilations)
        or len(set(axes)) != len(axes)
        or any(not 0 <= a < x.rank for a in axes)
        or min((*sizes, *strides, *dilations), default=1) < 1
    ):
        raise MlaotError(
            f"cannot take windows of {x} along axes {axes}: sizes {sizes}, strides {strides}, dilations {dilations}"
        )
    if _negative(_window_needs(x, axes, sizes, strides, dilations)):
        reaches = tuple(map(_reach, sizes, dilations))
        raise MlaotError(f"windows of {reaches} elements along axes {axes} are larger than {x}; pad it first")
    shape = list(x.shape)
    for a, k, stride, dilation in zip(axes, sizes, strides, dilations, strict=True):
        shape[a] = (shape[a] - _reach(k, dilation)) // stride + 1
    return x.with_shape((*shape, *sizes))


def _window_reference(x: Array, axes: Ints, sizes: Ints, strides: Ints, dilations: Ints) -> Array:
    reaches = tuple(map(_reach, sizes, dilations))
    windows = np.lib.stride_tricks.sliding_window_view(x, reaches, axes) if axes else x
    steps = [1] * x.ndim
    for a, stride in zip(axes, strides, strict=True):
        steps[a] = stride
    return windows[tuple(slice(None, None, s) for s in (*steps, *dilations))]


def _vjp_window(ct: Node, out: Node, x: Node, **attrs: Any) -> tuple[Node]:
    """Add every window's cotangents to their places: `fold`."""
    return (fold(ct, **attrs, shape=x.type.shape),)


# Sliding windows: y[.., p, .., k] = x[.., p * stride + k * dilation, ..], the window axes last, in the order of `axes`.
window: Op = Op(
    "window",
    _window_type,
    _window_reference,
    _vjp_window,
    WINDOW,
    needs=_window_needs,
    moves=True,
    view=window_view,
    doc="sliding windows, with stride and dilation; a view",
)


def _fold_needs(y: Type, shape: Dims, **attrs: Any) -> Iterator[Dim]:
    return _window_needs(y.with_shape(shape), **attrs)


def _fold_type(y: Type, shape: Dims, **attrs: Any) -> Type:
    x = y.with_shape(shape)
    windows = _window_type(x, **attrs)
    if windows != y or y.dtype.kind == "b":
        raise MlaotError(f"cannot fold {y} to {x}, whose windows are {windows}")
    return x


def _fold_reference(y: Array, axes: Ints, sizes: Ints, strides: Ints, dilations: Ints, shape: tuple[int, ...]) -> Array:
    out = np.zeros(shape, accumulator(y.dtype))
    for offset in np.ndindex(*sizes):
        place = [slice(None)] * len(shape)
        for a, k, stride, dilation in zip(axes, offset, strides, dilations, strict=True):
            place[a] = _run(k * dilation, y.shape[a], stride)
        out[tuple(place)] += y[(..., *offset)]
    return out.astype(y.dtype)


def _vjp_fold(ct: Node, out: Node, y: Node, shape: Dims, **attrs: Any) -> tuple[Node]:
    """Take the windows of the cotangent: `window`."""
    return (window(ct, **attrs),)


# The transpose of window: every element of a window is added to the place it was seen at.
fold: Op = Op(
    "fold",
    _fold_type,
    _fold_reference,
    _vjp_fold,
    FOLD,
    needs=_fold_needs,
    parts=fold_parts,
    nest=fold_nest,
    doc="the transpose of window: every element of every window added to its place",
)


def _one_hot_type(label: Type, classes: Dim, dtype: DType) -> Type:
    if label.dtype.kind not in "iu":
        raise MlaotError(f"one_hot needs integer labels, got {label}")
    return Type(dtype, (*label.shape, classes))


one_hot: Op = Op(
    "one_hot",
    _one_hot_type,
    lambda label, classes, dtype: (label[..., None] == np.arange(classes)).astype(dtype.numpy),
    no_gradient,
    ONE_HOT,
    index=Index(0, lambda label, classes, dtype: IndexRange(classes), "a row of zeros"),
    cheap=True,
    nest=one_hot_nest,
    doc="1 where the class is the label, else 0, along a new last axis",
)


# A named dimension as a number: the divisor of a mean over a batch.
def _size_type(dim: Dim, dtype: DType) -> Type:
    if dtype.kind == "b":
        raise MlaotError(f"the size of a dimension is a number, not a {dtype}")
    return Type(dtype, ())


size: Op = Op(
    "size",
    _size_type,
    lambda dim, dtype: np.asarray(dim, dtype.numpy),
    lambda ct, out, **_: (),
    doc="the extent of a named dim as a number",
)


def _iota_type(shape: Dims, axis: int, dtype: DType) -> Type:
    if not 0 <= axis < len(shape) or dtype.kind == "b" or _negative(shape):
        raise MlaotError(f"cannot count along axis {axis} of {Type(dtype, shape)}")
    return Type(dtype, shape)


def _iota_reference(shape: tuple[int, ...], axis: int, dtype: DType) -> Array:
    counted = np.arange(shape[axis]).astype(dtype.numpy)
    return np.broadcast_to(counted.reshape([-1 if i == axis else 1 for i in range(len(shape))]), shape)


# 0, 1, 2.. along an axis.
iota: Op = Op(
    "iota", _iota_type, _iota_reference, lambda ct, out, **_: (), nest=iota_nest, doc="0, 1, 2.. along an axis"
)
