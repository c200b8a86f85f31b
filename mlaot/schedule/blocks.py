"""Rows in lanes or one by one: which is faster depends on how many there are, and on the machine's vectors.

if in_lanes(end, 63, 6, 32):              if end >= 15:
    for i in vector(0, 32): ..      =>        for i_part in range(0, 32, 16): for i in vector(0, 16): ..
else:                                     else:
    for i in range(0, end): ..                for i in range(0, end): ..
"""

from __future__ import annotations

import math
from dataclasses import replace

from mlaot.ir.dims import dim
from mlaot.nest.expressions import BOOL, Call, Expr, Index, compare
from mlaot.nest.statements import Block, Body, For, If, Statement, While, index_var, substitute_body
from mlaot.schedule.jam import is_around
from mlaot.schedule.machine import LINE, Machine
from mlaot.schedule.tuning import FEATURE_BLOCK_BYTES, NODE_BY_VECTOR

IN_LANES = "in_lanes"


def in_lanes(rows: Expr, nodes: int, steps: int, block: int) -> Expr:
    """Whether ``nodes`` vector operations for a block of rows are faster than ``steps`` steps for each of ``rows``.

    ``block``: the rows of a block, which are as long as the vectors of ``FEATURE_BLOCK_BYTES``.
    """
    return Call(IN_LANES, (rows, Index(nodes), Index(steps), Index(block)), BOOL)


def with_blocks(body: Body, machine: Machine) -> Body:
    """A body in which it is decided for each number of rows whether they are in lanes."""
    return tuple(inner for s in body for inner in _decided(s, machine))


def _decided(s: Statement, machine: Machine) -> Body:
    if isinstance(s, If) and isinstance(s.condition, Call) and s.condition.name == IN_LANES:
        return _chosen(s, s.condition, machine)
    if isinstance(s, If):
        return (If(s.condition, with_blocks(s.body, machine), with_blocks(s.otherwise, machine)),)
    return (replace(s, body=with_blocks(s.body, machine)),) if isinstance(s, For | While | Block) else (s,)


def _chosen(s: If, condition: Call, machine: Machine) -> Body:
    rows, *numbers = condition.args
    nodes, steps, block = (x.value for x in numbers if isinstance(x, Index) and isinstance(x.value, int))
    lanes = block * machine.bytes // FEATURE_BLOCK_BYTES
    vectors = min(block // lanes, 2 if machine.bytes == LINE else 4)
    least = max(2, math.ceil(nodes * vectors * NODE_BY_VECTOR / steps))
    known = rows.value if isinstance(rows, Index) and isinstance(rows.value, int) else None
    if least > 0.8 * lanes * vectors or (known is not None and known < least):
        return s.otherwise
    body = tuple(_in_parts(inner, lanes * vectors) for inner in s.body)
    return body if known is not None else (If(compare("ge", rows, Index(least)), body, s.otherwise),)


def _in_parts(s: Statement, part: int) -> Statement:
    """Loops along lanes around others in parts of so many rows, whose vectors go side by side."""
    if not isinstance(s, For):
        return s
    if not (s.vector and is_around(s) and isinstance(s.high, Index) and s.high.value != part):
        return replace(s, body=tuple(_in_parts(inner, part) for inner in s.body))
    name = s.var.name
    whole = index_var(f"{name}1")
    body = substitute_body(s.body, {name: Index(dim(whole.name) + dim(name))})
    inner = replace(s, high=Index(part), body=body)
    return For(whole, s.low, s.high, (inner,), step=part)
