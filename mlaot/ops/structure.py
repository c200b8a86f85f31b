"""Ops that make, move or pick values without computing: inputs, constants, views, stacks, gathers."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.ir import Dim, DType, Literal, Node, Type
from mlaot.ir import dims as dims_
from mlaot.ir.types import i64
from mlaot.ops.base import Array, Op, lift, scalar_type


def _no_reference(*_: Array, **__: Any) -> Array:
    raise AssertionError("bug in mlaot: an input has no value of its own")


input_: Op = Op("input", lambda name, type, **notes: type, _no_reference)
const: Op = Op(
    "const",
    lambda value: Type(value.dtype, value.array.shape),
    lambda value: value.array,
    lambda ct, out, value: (),
)


def _broadcast_type(x: Type, shape: tuple[Dim, ...], axes: tuple[int, ...]) -> Type:
    if (
        len(axes) != x.rank
        or any(x.shape[i] != shape[a] for i, a in enumerate(axes))
        or list(axes) != sorted(set(axes))
    ):
        raise MlaotError(f"cannot broadcast {x} to {list(shape)} along axes {axes}")
    return x.with_shape(shape)


def _broadcast_reference(x: Array, shape: tuple[int, ...], axes: tuple[int, ...]) -> Array:
    index = [1] * len(shape)
    for i, a in enumerate(axes):
        index[a] = x.shape[i]
    return np.broadcast_to(x.reshape(index), shape)


def _vjp_broadcast(ct: Node, out: Node, x: Node, shape: tuple[Dim, ...], axes: tuple[int, ...]) -> tuple[Node]:
    from mlaot.ops.reduction import sum_

    return (sum_(ct, axes=tuple(i for i in range(len(shape)) if i not in axes)),)


def _batch_broadcast(node: Node, args: Sequence[Node], batched: Sequence[bool], dim: Dim) -> Node:
    shape, axes = node.attrs["shape"], node.attrs["axes"]
    return broadcast(args[0], shape=(dim, *shape), axes=(0, *[a + 1 for a in axes]))


broadcast: Op = Op("broadcast", _broadcast_type, _broadcast_reference, _vjp_broadcast, _batch_broadcast)


def _transpose_type(x: Type, perm: tuple[int, ...]) -> Type:
    if sorted(perm) != list(range(x.rank)):
        raise MlaotError(f"cannot transpose {x} by {perm}")
    return x.with_shape(tuple(x.shape[p] for p in perm))


transpose: Op = Op(
    "transpose",
    _transpose_type,
    lambda x, perm: np.transpose(x, perm),
    lambda ct, out, x, perm: (transpose(ct, perm=tuple(int(i) for i in np.argsort(perm))),),
    lambda node, args, batched, dim: transpose(args[0], perm=(0, *[p + 1 for p in node.attrs["perm"]])),
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
    lambda node, args, batched, dim: reshape(args[0], shape=(dim, *node.attrs["shape"])),
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
    return (put_add(ct, indices=indices, lead=lead, shape=x.type.shape[lead:]),)


def _batch_lead(node: Node, args: Sequence[Node], batched: Sequence[bool], dim: Dim) -> Node:
    return node.op(args[0], **{**node.attrs, "lead": node.attrs.get("lead", 0) + 1})


# The elements of x, flat behind its first `lead` axes, that `indices` names.
take: Op = Op("take", _take_type, _take_reference, _vjp_take, _batch_lead)


def _put_add_type(x: Type, indices: Literal, lead: int, shape: tuple[int, ...]) -> Type:
    return x.with_shape((*x.shape[:lead], *shape))


def _put_add_reference(x: Array, indices: Literal, lead: int, shape: tuple[int, ...]) -> Array:
    flat = np.zeros((*x.shape[:lead], prod(shape)), x.dtype)
    np.add.at(flat, (..., indices.array), x)  # type: ignore[arg-type]
    return flat.reshape((*x.shape[:lead], *shape))


def _vjp_put_add(ct: Node, out: Node, x: Node, indices: Literal, lead: int, shape: tuple[int, ...]) -> tuple[Node]:
    return (take(ct, indices=indices, lead=lead),)


# The gradient of take: each element added to the place it was taken from.
put_add: Op = Op("put_add", _put_add_type, _put_add_reference, _vjp_put_add, _batch_lead)


def _item_type(x: Type, index: int) -> Type:
    return scalar_type(x.dtype)


item: Op = Op(
    "item",
    _item_type,
    lambda x, index: x.reshape(-1)[index],
    lambda ct, out, x, index: (put_add(ct, indices=scalar_index(index), lead=0, shape=x.type.shape),),
    lambda node, args, batched, dim: take(args[0], indices=scalar_index(node.attrs["index"]), lead=1),
)


def scalar_index(index: int) -> Literal:
    """A rank-0 index."""

    return Literal(index, i64)


def indices(value: Any) -> Literal:
    """An index array as an attribute."""

    return Literal(value, i64)


def _stack_type(*types: Type, axis: int = 0) -> Type:
    if any(t != types[0] for t in types):
        raise MlaotError(f"stack needs operands of one type, got {sorted(set(map(str, types)))}")
    shape = types[0].shape
    return types[0].with_shape((*shape[:axis], len(types), *shape[axis:]))


def _vjp_stack(ct: Node, out: Node, *args: Node, axis: int = 0) -> tuple[Node, ...]:
    assert axis == out.type.rank - 1, "bug in mlaot: stack is made along the last axis"
    return tuple(take(ct, indices=scalar_index(i), lead=axis) for i in range(len(args)))


def _batch_stack(node: Node, args: Sequence[Node], batched: Sequence[bool], dim: Dim) -> Node:
    lifted = [a if b else lift(a, dim) for a, b in zip(args, batched, strict=True)]
    return stack(*lifted, axis=node.attrs.get("axis", 0) + 1)


stack: Op = Op("stack", _stack_type, lambda *args, axis=0: np.stack(args, axis), _vjp_stack, _batch_stack)


def _concat_type(*types: Type, axis: int = 0) -> Type:
    shape = types[0].shape
    total: Dim = 0
    for t in types:
        if t.dtype != types[0].dtype or t.shape[:axis] != shape[:axis] or t.shape[axis + 1 :] != shape[axis + 1 :]:
            raise MlaotError(f"cannot concatenate {' and '.join(map(str, types))} along axis {axis}")
        total = t.shape[axis] + total
    return types[0].with_shape((*shape[:axis], total, *shape[axis + 1 :]))


def _vjp_concat(ct: Node, out: Node, *args: Node, axis: int = 0) -> tuple[Node, ...]:
    assert axis == out.type.rank - 1, "bug in mlaot: concat is made along the last axis"
    parts, start = [], 0
    for a in args:
        size = a.type.shape[axis]
        assert isinstance(size, int)
        parts.append(take(ct, indices=indices(np.arange(start, start + size)), lead=axis))
        start += size
    return tuple(parts)


def _batch_concat(node: Node, args: Sequence[Node], batched: Sequence[bool], dim: Dim) -> Node:
    lifted = [a if b else lift(a, dim) for a, b in zip(args, batched, strict=True)]
    return concat(*lifted, axis=node.attrs.get("axis", 0) + 1)


concat: Op = Op("concat", _concat_type, lambda *args, axis=0: np.concatenate(args, axis), _vjp_concat, _batch_concat)


def _one_hot_type(label: Type, classes: int, dtype: DType) -> Type:
    if label.dtype.kind not in "iu":
        raise MlaotError(f"one_hot needs integer labels, got {label}")
    return Type(dtype, (*label.shape, classes))


one_hot: Op = Op(
    "one_hot",
    _one_hot_type,
    lambda label, classes, dtype: (label[..., None] == np.arange(classes)).astype(dtype.numpy),
    lambda ct, out, label, classes, dtype: (None,),
    lambda node, args, batched, dim: one_hot(args[0], **node.attrs),
)


# A named dimension as a number: the divisor of a mean over a batch.
size: Op = Op(
    "size",
    lambda dim, dtype: Type(dtype, ()),
    lambda dim, dtype: np.asarray(dim, dtype.numpy),
    lambda ct, out, **_: (),
)
