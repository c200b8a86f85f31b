"""Reductions over axes, and the contraction of two tensors (a sum of products)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.ir import Dim, Node, Type
from mlaot.ir import dims as dims_
from mlaot.ir.types import i64
from mlaot.ops.axes import REDUCTION, along, contraction
from mlaot.ops.axes import parse_spec as parse_spec
from mlaot.ops.base import Array, Op, accumulate, accumulator, broadcast, no_gradient, reduced_type, spread, sum_type
from mlaot.ops.base import kept_axes as kept_axes
from mlaot.ops.base import sum_ as sum_
from mlaot.ops.cumulative import cumprod
from mlaot.ops.elementwise import add, div, is_equal, mul, neg, sign, sub
from mlaot.ops.nests.reductions import extreme_nest, reduce_nest
from mlaot.ops.structure import reshape, transpose

PART = 1 << 25  # elements of a contraction's operand that the reference works on at a time


def both_axes(inner: Node, outer: Node) -> tuple[int, ...]:
    """Return the axes of a single reduction that replaces a reduction of another's result."""
    kept = kept_axes(inner.arg(0).type.rank, inner.attrs["axes"])
    return tuple(sorted((*inner.attrs["axes"], *[kept[a] for a in outer.attrs["axes"]])))


def _extreme_type(x: Type, axes: tuple[int, ...]) -> Type:
    result = reduced_type(x, axes)
    if any(x.shape[a] == 0 for a in axes):
        raise MlaotError(f"{x} has no elements along axes {axes}, so none is the largest or smallest")
    return result


def _extreme(ufunc: np.ufunc, sign: int) -> Callable[..., Array]:
    """Return the reference. For no elements, as a named dim may be 0, it is the least extreme value."""

    def reference(x: Array, axes: tuple[int, ...]) -> Array:
        return np.asarray(ufunc.reduce(x, axes, initial=None if x.size else _limit(x.dtype, sign)))

    return reference


def _limit(dtype: np.dtype[Any], sign: int) -> Any:
    """Return the largest value of a dtype, or for a negative sign the smallest."""
    if dtype.kind == "b":
        return sign > 0
    if dtype.kind == "f":
        return sign * np.inf
    return np.iinfo(dtype).max if sign > 0 else np.iinfo(dtype).min


def _vjp_extreme(ct: Node, out: Node, x: Node, axes: tuple[int, ...]) -> tuple[Node]:
    """Share the cotangent evenly between equal extremes, as ``torch.amax`` does."""
    mask = is_equal(x, spread(out, x, axes))
    share = div(ct, sum_(mask, axes=axes))
    return (mul(mask, spread(share, x, axes)),)


def _vjp_prod(ct: Node, out: Node, x: Node, axes: tuple[int, ...]) -> tuple[Node]:
    """Multiply by the product of all other elements, those before times those after, without division by an element."""
    kept = kept_axes(x.type.rank, axes)
    k, perm = len(kept), (*kept, *axes)
    transposed = transpose(x, perm=perm)
    row = reshape(transposed, shape=(*transposed.type.shape[:k], dims_.product(transposed.type.shape[k:])))
    before, after = (cumprod(row, axis=k, reverse=reverse, exclusive=True) for reverse in (False, True))
    grad = mul(broadcast(ct, shape=row.type.shape, axes=tuple(range(k))), mul(before, after))
    back = tuple(int(i) for i in np.argsort(perm))
    return (transpose(reshape(grad, shape=transposed.type.shape), perm=back),)


prod: Op = Op(
    "prod",
    sum_type,
    accumulate(np.multiply),
    _vjp_prod,
    REDUCTION,
    repeats="mul",
    nest=reduce_nest,
    doc="the product over axes",
)
max_: Op = Op(
    "max",
    _extreme_type,
    _extreme(np.maximum, -1),
    _vjp_extreme,
    REDUCTION,
    exact=True,
    repeats="maximum",
    nest=reduce_nest,
    doc="the largest over axes (any, of bools); nan where one is",
)
min_: Op = Op(
    "min",
    _extreme_type,
    _extreme(np.minimum, 1),
    _vjp_extreme,
    REDUCTION,
    exact=True,
    repeats="minimum",
    nest=reduce_nest,
    doc="the smallest over axes (all, of bools); nan where one is",
)


def _arg_type(x: Type, axis: int) -> Type:
    return Type(i64, _extreme_type(x, (axis,)).shape)


def _arg(pick: Callable[..., Array]) -> Callable[..., Array]:
    """Return the reference, which is 0 for an axis without elements, as a named dim may be 0."""

    def reference(x: Array, axis: int) -> Array:
        if x.shape[axis] == 0:
            return np.zeros(x.shape[:axis] + x.shape[axis + 1 :], np.int64)
        return np.asarray(pick(x, axis)).astype(np.int64)

    return reference


# The first of equal ones; nan counts as the extreme.
argmax: Op = Op(
    "argmax",
    _arg_type,
    _arg(np.argmax),
    no_gradient,
    along("axis", removed=True),
    nest=partial(extreme_nest, "max"),
    doc="the index of the largest along an axis, the first of equals; of nan where there is one",
)
argmin: Op = Op(
    "argmin",
    _arg_type,
    _arg(np.argmin),
    no_gradient,
    along("axis", removed=True),
    nest=partial(extreme_nest, "min"),
    doc="the index of the smallest along an axis, the first of equals; of nan where there is one",
)


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
    if a.dtype != b.dtype or a.dtype.kind == "b" or not set(out) <= set(sizes) or len(set(out)) != len(out):
        raise MlaotError(f"contract '{spec}' does not fit {a} and {b}")
    return Type(a.dtype, tuple(sizes[label] for label in out))


def _vjp_contract(ct: Node, out: Node, a: Node, b: Node, spec: str) -> tuple[Node, Node]:
    """Contract the cotangent with the other operand, and broadcast along labels that only this operand has and sums."""
    first, second, result = parse_spec(spec)

    def towards(labels: str, like: Node, other: str, value: Node) -> Node:
        reachable = "".join(c for c in labels if c in result or c in other)
        grad = contract(ct, value, spec=f"{result},{other}->{reachable}")
        if reachable == labels:
            return grad
        return broadcast(grad, shape=like.type.shape, axes=tuple(labels.index(c) for c in reachable))

    return towards(first, a, second, b), towards(second, b, first, a)


def _in_parts(a: Array, b: Array, spec: str, size: int, contract: Callable[[Array, Array], Array]) -> Array:
    """Contract part by part along an axis of the result if NumPy would make a temporary array of a large ``size``."""
    sum_dtype = accumulator(a.dtype)
    first, second, out = parse_spec(spec)
    labels, larger = (first, a) if a.size >= b.size else (second, b)
    along = max((c for c in labels if c in out), key=lambda c: larger.shape[labels.index(c)], default="")
    parts = max(1, min(1 + size // PART, larger.shape[labels.index(along)])) if along else 1

    def cut(x: Array, own: str) -> list[Array]:
        return np.array_split(x, parts, own.index(along)) if along in own and parts > 1 else [x] * parts

    results = [
        contract(a_part.astype(sum_dtype, copy=False), b_part.astype(sum_dtype, copy=False))
        for a_part, b_part in zip(cut(a, first), cut(b, second), strict=True)
    ]
    result = results[0] if parts == 1 else np.concatenate(results, axis=out.index(along))
    return np.asarray(result.astype(a.dtype))


def _contract_reference(a: Array, b: Array, spec: str) -> Array:
    size = max(a.size, b.size)  # it copies the windows of an image
    return _in_parts(a, b, spec, size, lambda x, y: np.asarray(np.einsum(spec, x, y, optimize=True)))


contract: Op = Op(
    "contract",
    _contract_type,
    _contract_reference,
    _vjp_contract,
    contraction(),
    doc="a sum of products by labels, such as ab,bc->ac: matrix products, with any batch axes",
)


def _differences_type(a: Type, b: Type, spec: str, power: int) -> Type:
    first, second, out = parse_spec(spec)
    if power not in (1, 2) or not {*first, *second} - {*out} <= {*first} & {*second}:
        raise MlaotError(f"contract_differences '{spec}' with power {power} does not fit {a} and {b}")
    return _contract_type(a, b, spec)


def _differences_reference(a: Array, b: Array, spec: str, power: int) -> Array:
    first, second, out = parse_spec(spec)
    labels = out + "".join(c for c in first if c not in out)

    def spread_over(x: Array, own: str) -> Array:
        places = [own.index(c) for c in labels if c in own]
        return np.expand_dims(x.transpose(places), tuple(i for i, c in enumerate(labels) if c not in own))

    def distances(x: Array, y: Array) -> Array:
        terms = np.abs(spread_over(x, first) - spread_over(y, second)) ** power
        return np.asarray(np.sum(terms, axis=tuple(range(len(out), len(labels)))))

    extents = dict(zip(first + second, a.shape + b.shape, strict=True))
    return _in_parts(a, b, spec, int(np.prod([*extents.values()], dtype=np.int64)), distances)


def _vjp_differences(ct: Node, out: Node, a: Node, b: Node, spec: str, power: int) -> tuple[Node, Node]:
    """Multiply the cotangent of each sum by the derivatives of its terms, and add up the terms of each element."""
    first, second, result = parse_spec(spec)
    sizes = dict(zip(first + second, a.type.shape + b.type.shape, strict=True))
    labels = "".join(sizes)

    def over_all(x: Node, own: str) -> Node:
        ordered = transpose(x, perm=tuple(own.index(c) for c in labels if c in own))
        places = tuple(i for i, c in enumerate(labels) if c in own)
        return broadcast(ordered, shape=tuple(sizes.values()), axes=places)

    def towards(own: str, terms: Node) -> Node:
        total = sum_(terms, axes=tuple(i for i, c in enumerate(labels) if c not in own))
        kept = "".join(c for c in labels if c in own)
        return transpose(total, perm=tuple(kept.index(c) for c in own))

    difference = sub(over_all(a, first), over_all(b, second))
    slope = add(difference, difference) if power == 2 else sign(difference)
    terms = mul(over_all(ct, result), slope)
    return towards(first, terms), neg(towards(second, terms))


# Distances of all pairs.
contract_differences: Op = Op(
    "contract_differences",
    _differences_type,
    _differences_reference,
    _vjp_differences,
    contraction(),
    doc="a sum by labels, as in contract, of absolute differences (power 1) or of their squares (power 2)",
)
