"""Gathers at constant indices read along any axis, without a transposed copy of their source. Bit-exact.

v1 = transpose(x, perm=(2, 0, 1)) : f32[w,c,h]
v2 = gather(v1, places) : f32[2w,c,h]            =>    v2 = take(x, places, lead=2) : f32[c,h,2w]
v3 = transpose(v2, perm=(1, 2, 0))

v1 = transpose(x, perm=(1, 0, 2)) : f32[h,c,w]
v2 = gather(v1, places) : f32[2h,c,w]            =>    v2 = gather(x, broadcast(places), lead=1) : f32[c,2h,w]
v3 = transpose(v2, perm=(1, 0, 2))
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mlaot.ir import Graph, Literal, Node
from mlaot.ir.types import i64
from mlaot.ops import structure as st
from mlaot.ops.indexing import gather
from mlaot.passes.algebra.simplify import transpose_twice
from mlaot.passes.base import pass_over
from mlaot.passes.rewrite import rewrite
from mlaot.schedule.tuning import KNOWN_PLACES


def take_in_place(node: Node) -> Node | None:
    """gather(transpose(x), constant) => transpose(take(x, constant)), where the axis is x's last"""
    rows, lead, places = node.arg(0), node.attrs["lead"], _places(node)
    if places is None or rows.op is not st.transpose or places.size > KNOWN_PLACES:
        return None
    x, perm = rows.arg(0), rows.attrs["perm"]
    last = x.type.rank - 1
    if perm[lead] != last or lead == last:
        return None
    return st.transpose(st.take(x, indices=Literal(places, i64), lead=last), perm=perm)


def gather_in_place(node: Node) -> Node | None:
    """gather(transpose(x), constant) => transpose(gather(x, constant)) behind the axes before"""
    rows, lead = node.arg(0), node.attrs["lead"]
    if rows.op is not st.transpose or _places(node) is None:
        return None
    x, perm = rows.arg(0), rows.attrs["perm"]
    axis = perm[lead]
    rest = [a for a in perm if a != axis]
    if axis <= lead or axis == len(perm) - 1 or rest != sorted(rest):
        return None
    places = node.arg(1).arg(0) if node.arg(1).op is st.broadcast else node.arg(1)
    every = st.broadcast(places, shape=(*x.type.shape[:axis], places.type.shape[0]), axes=(axis,))
    return st.transpose(gather(x, every, lead=axis), perm=perm)


def _places(node: Node) -> np.ndarray[Any, Any] | None:
    """Return the indices of a gather, if they are constants and the same for all leading axes."""
    lead, places = node.attrs["lead"], node.arg(1)
    length = node.arg(0).type.shape[lead]
    if places.op is st.broadcast and places.attrs["axes"] == (lead,):
        places = places.arg(0)
    if places.op is not st.const or places.type.rank != 1 or not isinstance(length, int):
        return None
    numbers = places.attrs["value"].array.astype(np.int64)
    return np.clip(np.where(numbers < 0, numbers + length, numbers), 0, length - 1) if numbers.size else None


@pass_over("graphs", after=("blocked_layout",))
def transposed_gather(graph: Graph) -> None:
    """Apply the rules of this file to a fixed point."""
    rewrite(graph, {gather: (take_in_place, gather_in_place), st.transpose: (transpose_twice,)})
