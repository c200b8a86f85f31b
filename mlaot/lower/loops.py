"""Elementwise work on values of any dtype: plain loops, with every node in a variable of its own type."""

from __future__ import annotations

from mlaot.ir.dims import Dim
from mlaot.lower.builder import Accesses, Builder, Stores
from mlaot.lower.fuse import Group
from mlaot.lower.program import Kernel
from mlaot.nest.expressions import as_index
from mlaot.nest.statements import Body, For, around, index_var, loop_in_block
from mlaot.ops.kinds import base_of, is_free
from mlaot.ops.nests.target import ZERO

TILE = 64  # rows and columns whose cache lines fit the first-level cache together


def loops_kernel(group: Group, accesses: Accesses, stores: Stores) -> Kernel:
    """Return the kernel of a group of kind "loops"."""
    builder = Builder(group, accesses, stores)
    names = [f"i{i}" for i in range(len(group.shape))]
    at = [as_index(index_var(name)) for name in names]
    body = builder.elementwise(group.nodes, lambda node: at, {})
    loops = [*zip(names, group.shape, strict=True)]
    axis = _transposed_axis(builder)
    if axis is None:
        return builder.kernel(around(loops, body, parallel=True))
    pair = [loops.pop(), loops.pop(axis)][::-1]
    return builder.kernel(around(loops, _tile(pair, body), parallel=True))


def _transposed_axis(builder: Builder) -> int | None:
    """Return an axis along which a value that is read is contiguous, if the value is not contiguous along the rows."""
    rows = builder.group.shape
    nodes = [a.find() for n in builder.group.nodes for a in n.args if base_of(a) not in builder.inside]
    accesses = [builder.access(a).strides for a in nodes if not is_free(base_of(a)) and a.type.rank == len(rows)]
    for strides in accesses:
        if 1 in strides[:-1] and strides[-1] not in (0, 1):
            axis = strides.index(1)
            sizes = rows[axis], rows[-1]
            if all(isinstance(size, int) and size >= 2 * TILE for size in sizes):
                return axis
    return None


def _tile(loops: list[tuple[str, Dim]], body: Body) -> Body:
    """Wrap ``body`` in two loops, a tile of rows and columns at a time, so that whole cache lines are used."""
    for name, extent in reversed(loops):
        body = (loop_in_block(name, as_index(index_var(f"{name}_first")), TILE, extent, body),)
    for i, (name, extent) in reversed([*enumerate(loops)]):
        body = (For(index_var(f"{name}_first"), ZERO, as_index(extent), body, TILE, parallel=i == 0),)
    return body
