"""Kernels of one node that is not fused with others: moves, gathers, scatters, scans, sorts, other reductions."""

from __future__ import annotations

from mlaot.lower.builder import Accesses, Builder, Stores
from mlaot.lower.fuse import Group
from mlaot.lower.program import Kernel
from mlaot.nest.expressions import Array, ValueType, const
from mlaot.nest.statements import Block, Body
from mlaot.ops.indexing import scatter
from mlaot.ops.nests.target import Target


def single_kernel(group: Group, accesses: Accesses, stores: Stores) -> Kernel:
    """Return the kernel of a group of kind "single"."""
    builder = Builder(group, accesses, stores)
    (node,) = group.nodes
    tables: dict[tuple[int, ...], Array] = {}
    old = accesses.get(node.arg(0)) if node.op is scatter else None
    buffers = sorted(stores[node], key=lambda b: old is not None and b is old.buffer)  # overwritten last
    targets = [Target(builder, node, buffer, tables, group.placed) for buffer in buffers]
    bodies = [_body(target) for target in targets]
    body = bodies[0] if len(bodies) == 1 else tuple(map(Block, bodies))
    return builder.kernel((*targets[0].constants(), *body), node.op.name)


def _body(target: Target) -> Body:
    """Return the statements that write one buffer; for a buffer without elements, loops without rounds."""
    if 0 in target.shape:
        return target.fill(const(0, ValueType(target.dtype)))
    nest = target.node.op.nest
    assert nest is not None, f"bug in mlaot: no nest of {target.node}"
    statements: Body = nest(target)
    return statements
