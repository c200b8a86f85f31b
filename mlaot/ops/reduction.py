"""Reductions over axes, and the contraction of two tensors (a sum of products)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlaot.errors import MlaotError
from mlaot.ir import Dim, Node, Type
from mlaot.ops.base import Array, Op, lift
from mlaot.ops.elementwise import div, is_equal, mul
from mlaot.ops.structure import broadcast, transpose


def kept_axes(rank: int, axes: Sequence[int]) -> tuple[int, ...]:
    """The axes of a value of ``rank`` that a reduction over ``axes`` keeps."""
    return tuple(i for i in range(rank) if i not in axes)


def _reduced(x: Type, axes: tuple[int, ...]) -> Type:
    if any(not 0 <= a < x.rank for a in axes) or len(set(axes)) != len(axes):
        raise MlaotError(f"cannot reduce {x} over axes {axes}")
    return x.with_shape(tuple(x.shape[i] for i in kept_axes(x.rank, axes)))


def _spread(value: Node, like: Node, axes: tuple[int, ...]) -> Node:
    return broadcast(value, shape=like.type.shape, axes=kept_axes(like.type.rank, axes))


def _vjp_extreme(ct: Node, out: Node, x: Node, axes: tuple[int, ...]) -> tuple[Node]:
    """To the extreme elements, shared evenly between equal ones, as ``torch.amax`` does."""
    mask = is_equal(x, _spread(out, x, axes))
    share = div(ct, sum_(mask, axes=axes))
    return (mul(mask, _spread(share, x, axes)),)


def _batch_reduction(node: Node, args: Sequence[Node], batched: Sequence[bool], dim: Dim) -> Node:
    return node.op(args[0], axes=tuple(a + 1 for a in node.attrs["axes"]))


sum_: Op = Op(
    "sum",
    _reduced,
    lambda x, axes: np.sum(x, axis=axes, dtype=x.dtype) if axes else x,  # NumPy's sum over no axes adds 0 to -0
    lambda ct, out, x, axes: (_spread(ct, x, axes),),
    _batch_reduction,
)
max_: Op = Op("max", _reduced, lambda x, axes: np.max(x, axis=axes), _vjp_extreme, _batch_reduction)
min_: Op = Op("min", _reduced, lambda x, axes: np.min(x, axis=axes), _vjp_extreme, _batch_reduction)


def parse_spec(spec: str) -> tuple[str, str, str]:
    """``"bi,ji->bj"`` as its three label strings."""
    operands, out = spec.split("->")
    a, b = operands.split(",")
    return a, b, out


def _contract_type(a: Type, b: Type, spec: str) -> Type:
    first, second, out = parse_spec(spec)
    sizes: dict[str, Dim] = {}
    for labels, operand in ((first, a), (second, b)):
        if len(labels) != operand.rank or len(set(labels)) != len(labels):
            raise MlaotError(f"contract '{spec}' does not fit {a} and {b}")
        for label, size in zip(labels, operand.shape, strict=True):
            if sizes.setdefault(label, size) != size:
                raise MlaotError(
                    f"contract '{spec}' needs one size for {label}, got {sizes[label]} and {size} in {a} and {b}"
                )
    if a.dtype != b.dtype or not set(out) <= set(sizes) or len(set(out)) != len(out):
        raise MlaotError(f"contract '{spec}' does not fit {a} and {b}")
    return Type(a.dtype, tuple(sizes[label] for label in out))


def _vjp_contract(ct: Node, out: Node, a: Node, b: Node, spec: str) -> tuple[Node, Node]:
    """A contraction again, with the cotangent in the place of the operand; summed-out labels are broadcast back."""
    first, second, result = parse_spec(spec)

    def towards(labels: str, like: Node, other: str, value: Node) -> Node:
        reachable = "".join(c for c in labels if c in result or c in other)
        grad = contract(ct, value, spec=f"{result},{other}->{reachable}")
        if reachable == labels:
            return grad
        return broadcast(grad, shape=like.type.shape, axes=tuple(labels.index(c) for c in reachable))

    return towards(first, a, second, b), towards(second, b, first, a)


def _batch_contract(node: Node, args: Sequence[Node], batched: Sequence[bool], dim: Dim) -> Node:
    first, second, out = parse_spec(node.attrs["spec"])
    new = next(c for c in "bnzyxwvutsrqp" + "BNZYXWVUTSRQP" if c not in node.attrs["spec"])
    a, b = (new if flag else "" for flag in batched)
    return contract(*args, spec=f"{a}{first},{b}{second}->{new}{out}")


def _contract_reference(a: Array, b: Array, spec: str) -> Array:
    result: Array = np.einsum(spec, a, b, optimize=True)
    return result


contract: Op = Op("contract", _contract_type, _contract_reference, _vjp_contract, _batch_contract)

__all__ = ["contract", "kept_axes", "lift", "max_", "min_", "parse_spec", "sum_", "transpose"]
