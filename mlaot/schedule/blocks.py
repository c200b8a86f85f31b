"""Choose between rows in lanes and single rows, by the number of rows and the machine's vectors.

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
from mlaot.nest.statements import Body, For, If, Statement, index_var, map_bodies, substitute_body
from mlaot.schedule.jam import is_around
from mlaot.schedule.machine import LINE, Machine
from mlaot.schedule.tuning import FEATURE_BLOCK_BYTES, NODE_BY_VECTOR

IN_LANES = "in_lanes"


def in_lanes(rows: Expr, nodes: int, steps: int, block: int) -> Expr:
    """Tell whether ``nodes`` vector operations on a block are faster than ``steps`` steps for each of ``rows``.

    ``block`` is the number of rows of a block, which fill the vectors of ``FEATURE_BLOCK_BYTES``.
    """
    return Call(IN_LANES, (rows, Index(nodes), Index(steps), Index(block)), BOOL)


def resolve_row_choices(body: Body, machine: Machine) -> Body:
    """Decide, for one machine, the number of rows from which on rows are in lanes."""
    return tuple(inner for s in body for inner in _resolve(s, machine))


def _resolve(s: Statement, machine: Machine) -> Body:
    if isinstance(s, If) and isinstance(s.condition, Call) and s.condition.name == IN_LANES:
        return _choose(s, s.condition, machine)
    return (map_bodies(s, lambda body: resolve_row_choices(body, machine)),)


def _choose(s: If, condition: Call, machine: Machine) -> Body:
    """Return the branch for rows in lanes, the branch for single rows, or a test of ``rows`` that selects one.

    ``nodes`` operations on each of ``vectors`` vectors take as long as ``nodes * vectors * NODE_BY_VECTOR`` steps of a
    row, and ``rows`` single rows take ``rows * steps``. So lanes are faster from ``least`` rows on.
    """
    rows, *numbers = condition.args
    nodes, steps, block = (x.value for x in numbers if isinstance(x, Index) and isinstance(x.value, int))
    lanes = block * machine.bytes // FEATURE_BLOCK_BYTES
    vectors = min(block // lanes, 2 if machine.bytes == LINE else 4)
    least = max(2, math.ceil(nodes * vectors * NODE_BY_VECTOR / steps))
    count = rows.value if isinstance(rows, Index) and isinstance(rows.value, int) else None
    if least > 0.8 * lanes * vectors or (count is not None and count < least):
        return s.otherwise
    body = tuple(_split(inner, lanes * vectors) for inner in s.body)
    return body if count is not None else (If(compare("ge", rows, Index(least)), body, s.otherwise),)


def _split(s: Statement, part: int) -> Statement:
    """Cut loops along lanes around other loops into parts of ``part`` rows, whose vectors are interleaved."""
    if not isinstance(s, For):
        return s
    if not (s.vector and is_around(s) and isinstance(s.high, Index) and s.high.value != part):
        return replace(s, body=tuple(_split(inner, part) for inner in s.body))
    name = s.var.name
    outer = index_var(f"{name}1")
    body = substitute_body(s.body, {name: Index(dim(outer.name) + dim(name))})
    inner = replace(s, high=Index(part), body=body)
    return For(outer, s.low, s.high, (inner,), step=part)
