"""Loops along lanes around other loops: several vectors of the outer loop in one round of the inner loop.

    for j in vector(0, 32):                  s_0: f32x16 = 0; s_1: f32x16 = 0
        s: f32 = 0                           for e in range(0, n):
        for e in range(0, n):         =>         s_0 = s_0 + w[e * 32:16]
            s = s + w[e * 32 + j]                s_1 = s_1 + w[e * 32 + 16:16]
        y[j] = s                             y[0:16] = s_0; y[16:16] = s_1

The number of vectors is limited by the registers. A value that is the same in all lanes is computed once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from mlaot.ir.dims import Dim
from mlaot.nest.expressions import Expr, Index, Load, Var, substitute
from mlaot.nest.statements import (
    Assign,
    Block,
    Body,
    For,
    Let,
    Mutable,
    Statement,
    Store,
    all_expressions,
    substitute_body,
)
from mlaot.schedule.machine import Machine
from mlaot.schedule.tuning import SPARE_REGISTERS
from mlaot.schedule.vectorize import vectorize

Values = Sequence[dict[str, Expr]]  # of the variables of each copy


def is_around(loop: For) -> bool:
    """Tell whether a loop of fixed length along lanes contains loops, and only statements with a form in lanes."""
    is_known = loop.low == Index(0) and isinstance(_end(loop), int) and not loop.parallel
    return is_known and any(isinstance(s, For) for s in loop.body) and _is_plain(loop.body)


def is_strided(loop: For, lanes: int) -> bool:
    """Tell whether the lanes of a vector are read from different cache lines, which then serve the next rounds."""
    body = vectorize(loop.body, loop.var.name, lanes)
    return any(isinstance(x, Load) and x.type.lanes > 1 and x.step != 1 for x in all_expressions(body))


def _end(loop: For) -> Dim | None:
    return loop.high.value if isinstance(loop.high, Index) else None


def _is_plain(body: Body) -> bool:
    kinds = Let | Mutable | Assign | Store
    return all(isinstance(s, kinds) or (isinstance(s, For) and _is_plain(s.body)) for s in body)


def jam(loop: For, lanes: int, machine: Machine) -> Body:
    """Return the vectors along ``loop``, interleaved in blocks that fit the registers (unroll and jam).

    Raises:
        CannotVectorizeError: The body has no form in lanes.
    """
    size = _end(loop)
    assert isinstance(size, int)
    width = machine.bytes * 8 // lanes
    copies = [_vector(loop, start, lanes, size, width) for start in range(0, size, lanes)]
    count = -(-len(copies) // (machine.registers - SPARE_REGISTERS))
    blocks = [copies[i * len(copies) // count : (i + 1) * len(copies) // count] for i in range(count)]
    bodies = [tuple(_interleave(block, [{} for _ in block])) for block in blocks]
    return bodies[0] if count == 1 else tuple(map(Block, bodies))


def _vector(loop: For, start: int, lanes: int, size: int, width: int) -> Body:
    count = Index(size - start) if size - start < lanes else None
    body = vectorize(loop.body, loop.var.name, lanes, count, width=width)
    return substitute_body(body, {loop.var.name: Index(start)})


def _interleave(copies: Sequence[Body], values: Values) -> Iterator[Statement]:
    """Yield the first statement of all copies, then the second of all, and so on."""
    for statements in zip(*copies, strict=True):
        first = statements[0]
        if isinstance(first, For):
            inner = [s.body for s in statements if isinstance(s, For)]
            low, high = substitute(first.low, values[0]), substitute(first.high, values[0])
            yield replace(first, low=low, high=high, body=tuple(_interleave(inner, values)))
        else:
            yield from _rename(statements, values)


def _rename(statements: Iterable[Statement], values: Values) -> Iterator[Statement]:
    """Yield the statement of each copy with a variable of its own, or a single statement if all are equal."""
    copies = [substitute_body((s,), own)[0] for s, own in zip(statements, values, strict=True)]
    if isinstance(copies[0], Let) and len(set(copies)) == 1:
        yield copies[0]
        return
    for i, (s, own) in enumerate(zip(copies, values, strict=True)):
        if isinstance(s, Let | Mutable):
            own[s.var.name] = Var(f"{s.var.name}_{i}", s.var.type)
        if isinstance(s, Let | Mutable | Assign):
            var = own[s.var.name]
            assert isinstance(var, Var)
            s = replace(s, var=var)
        yield s
