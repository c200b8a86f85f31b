"""Scans along an axis: running sums and products, and the linear recurrence that their gradients are made of.

With ``reverse`` the scan runs from the last element to the first. With ``exclusive`` each result leaves out the element
itself, so that the first result is that of no elements.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np

from mlaot.errors import MlaotError
from mlaot.ir import Node, Type
from mlaot.ops.axes import along
from mlaot.ops.base import Array, Op, accumulator, same_type
from mlaot.ops.elementwise import mul
from mlaot.ops.nests.scans import cumulate_nest, recurrence_nest
from mlaot.ops.structure import pad, part


def _scan_type(x: Type, axis: int, reverse: bool = False, exclusive: bool = False) -> Type:
    if not 0 <= axis < x.rank:
        raise MlaotError(f"cannot scan {x} along axis {axis}")
    if x.dtype.kind == "b":
        raise MlaotError(f"cannot add up or multiply {x}; cast it to numbers first")
    return x


def _scan(ufunc: np.ufunc, first: int) -> Callable[..., Array]:
    """Return the reference, which accumulates ``ufunc``; ``first`` is the result of no elements."""

    def reference(x: Array, axis: int, reverse: bool = False, exclusive: bool = False) -> Array:
        leading = np.moveaxis(x, axis, 0)[:: -1 if reverse else 1]
        totals = ufunc.accumulate(leading, axis=0, dtype=accumulator(x.dtype)).astype(x.dtype)
        if exclusive:
            totals = np.concatenate([np.full_like(totals[:1], first), totals[:-1]])
        return np.moveaxis(totals[:: -1 if reverse else 1], 0, axis)

    return reference


def _shift(x: Node, axis: int, reverse: bool) -> Node:
    """Shift by one: element i of the result is the one before i in the scan, and 0 for the first."""
    low, high = ([int(i == axis and r) for i in range(x.type.rank)] for r in (not reverse, reverse))
    zero = x.graph.constant(0, x.type.dtype)
    longer = pad(x, zero, low=tuple(low), high=tuple(high), interior=(0,) * x.type.rank)
    return part(longer, axis, int(reverse), x.type.shape[axis])


def _vjp_cumsum(ct: Node, out: Node, x: Node, axis: int, reverse: bool = False, exclusive: bool = False) -> tuple[Node]:
    """Run the sum from the other end."""
    return (cumsum(ct, axis=axis, reverse=not reverse, exclusive=exclusive),)


def _vjp_cumprod(
    ct: Node, out: Node, x: Node, axis: int, reverse: bool = False, exclusive: bool = False
) -> tuple[Node]:
    """Multiply the product before i by ``s_i = ct_i + x_{i+1} s_{i+1}``, without division by elements."""
    before = cumprod(x, axis=axis, reverse=reverse, exclusive=True)
    terms = _shift(ct, axis, not reverse) if exclusive else ct
    after = linear_recurrence(_shift(x, axis, not reverse), terms, axis=axis, reverse=not reverse)
    return (mul(before, after),)


cumsum: Op = Op(
    "cumsum",
    _scan_type,
    _scan(np.add, 0),
    _vjp_cumsum,
    along("axis"),
    nest=partial(cumulate_nest, "sum"),
    doc="running sums along an axis, from either end, with or without the element itself",
)
cumprod: Op = Op(
    "cumprod",
    _scan_type,
    _scan(np.multiply, 1),
    _vjp_cumprod,
    along("axis"),
    nest=partial(cumulate_nest, "prod"),
    doc="running products along an axis, from either end, with or without the element itself",
)


def _recurrence_type(a: Type, b: Type, axis: int, reverse: bool = False) -> Type:
    return _scan_type(same_type(a, b), axis)


def _recurrence_reference(a: Array, b: Array, axis: int, reverse: bool = False) -> Array:
    factors, terms = (np.moveaxis(v, axis, 0).astype(accumulator(v.dtype)) for v in (a, b))
    sums = terms.copy()
    steps = range(len(sums))[:: -1 if reverse else 1]
    for last, i in pairwise(steps):
        sums[i : i + 1] += factors[i : i + 1] * sums[last : last + 1]
    return np.moveaxis(sums, 0, axis).astype(b.dtype)


def _vjp_recurrence(ct: Node, out: Node, a: Node, b: Node, axis: int, reverse: bool = False) -> tuple[Node, Node]:
    """Run the recurrence the other way, with the factors moved on by one."""
    adjoint = linear_recurrence(_shift(a, axis, not reverse), ct, axis=axis, reverse=not reverse)
    return mul(adjoint, _shift(out, axis, reverse)), adjoint


# s_i = b_i + a_i * s_{i-1}, from s_0 = b_0 on: the first factor has no part in it.
linear_recurrence: Op = Op(
    "linear_recurrence",
    _recurrence_type,
    _recurrence_reference,
    _vjp_recurrence,
    along("axis"),
    nest=recurrence_nest,
    doc="s_i = b_i + a_i * s_(i-1) along an axis",
)
