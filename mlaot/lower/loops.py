"""Elementwise work on values of any dtype: every node in a variable of its own type."""

from __future__ import annotations

from mlaot.lower.builder import Accesses, Builder, Stores
from mlaot.lower.fuse import Group
from mlaot.lower.program import NestKernel
from mlaot.nest.expressions import as_index
from mlaot.nest.statements import around, index_var


def loops_kernel(group: Group, accesses: Accesses, stores: Stores) -> NestKernel:
    """The kernel of a group of kind "loops"."""
    builder = Builder(group, accesses, stores)
    names = [f"i{i}" for i in range(len(group.rows))]
    at = [as_index(index_var(name)) for name in names]
    body = builder.elementwise(group.nodes, lambda node: at, {})
    return builder.kernel(around(zip(names, group.rows, strict=True), body, parallel=True))
