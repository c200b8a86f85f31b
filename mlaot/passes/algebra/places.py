"""Computed indices as polynomials in their positions, to find indices that read each element in order."""

from __future__ import annotations

from mlaot.ir import Dim, Node
from mlaot.ir.dims import product
from mlaot.ir.types import i64
from mlaot.ops import elementwise as ew
from mlaot.ops import structure as st

Steps = dict[int, Dim]  # by axis, how much an index grows along it; 0 where it is not there


def reads_all_in_order(index: Node, count: Dim) -> bool:
    """Tell whether indices are 0, 1, 2.. below ``count`` in order of their positions, for all values of named dims."""
    shape = index.type.shape
    if product(shape) != count or index.type.dtype is not i64:  # others may have gone round
        return False
    found = _steps(index)
    wanted = {axis: product(shape[axis + 1 :]) for axis, extent in enumerate(shape) if extent != 1}
    return found is not None and {axis: step for axis, step in found.items() if shape[axis] != 1} == wanted


def _steps(node: Node) -> Steps | None:
    """Return the steps by which indices grow from 0, or None if they have none."""
    node = node.find()
    if node.op is st.iota:
        return {node.attrs["axis"]: 1}
    if node.op is st.broadcast:
        inner, axes = _steps(node.arg(0)), node.attrs["axes"]
        return None if inner is None else {axes[axis]: step for axis, step in inner.items()}
    if node.op is ew.add:
        total: Steps = {}
        for arg in node.args:
            part = _steps(arg)
            if part is None:
                return None
            total = {axis: total.get(axis, 0) + part.get(axis, 0) for axis in {*total, *part}}
        return total
    if node.op is ew.mul and len(node.args) == 2:
        for one, other in (node.args, node.args[::-1]):
            factor, steps = _number(one), _steps(other)
            if factor is not None and steps is not None:
                return {axis: step * factor for axis, step in steps.items()}
    return {} if _number(node) == 0 else None


def _number(node: Node) -> Dim | None:
    """Return the integer that all elements of a value are, if that is known."""
    node = node.find()
    while node.op in (st.broadcast, st.reshape) or (node.op is st.stack and len(node.args) == 1):
        node = node.arg(0)
    if node.op is st.size:
        extent: Dim = node.attrs["dim"]
        return extent
    if node.op is not st.const:
        return None
    array = node.attrs["value"].array
    return int(array.flat[0]) if array.size and (array == array.flat[0]).all() else None
