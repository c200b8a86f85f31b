"""Loops along lanes around other loops: several vectors of the outer one for one round of the inner one.

    for j in vector(0, 32):                  s_0: f32x16 = 0; s_1: f32x16 = 0
        s: f32 = 0                           for e in range(0, n):
        for e in range(0, n):         =>         s_0 = s_0 + w[e * 32:16]
            s = s + w[e * 32 + j]                s_1 = s_1 + w[e * 32 + 16:16]
        y[j] = s                             y[0:16] = s_0; y[16:16] = s_1

As many vectors go along as there are registers for. What is the same in all lanes is computed once for all of them.
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
from mlaot.schedule.vectorize import vectorized

Known = Sequence[dict[str, Expr]]  # what the variables of each copy are


def is_around(loop: For) -> bool:
    """Whether a loop of known length along lanes is around others, and around nothing but these and work in lanes."""
    is_known = loop.low == Index(0) and isinstance(_end(loop), int) and not loop.parallel
    return is_known and any(isinstance(s, For) for s in loop.body) and _is_plain(loop.body)


def reads_apart(loop: For, lanes: int) -> bool:
    """Whether lanes are read from places far apart: the lines of one vector then serve the next rounds."""
    body = vectorized(loop.body, loop.var.name, lanes)
    return any(isinstance(x, Load) and x.type.lanes > 1 and x.step != 1 for x in all_expressions(body))


def _end(loop: For) -> Dim | None:
    return loop.high.value if isinstance(loop.high, Index) else None


def _is_plain(body: Body) -> bool:
    kinds = Let | Mutable | Assign | Store
    return all(isinstance(s, kinds) or (isinstance(s, For) and _is_plain(s.body)) for s in body)


def jammed(loop: For, lanes: int, machine: Machine) -> Body:
    """The vectors along ``loop``, in blocks that fit the registers.

    Raises:
        CannotVectorizeError: The body has no form in lanes.
    """
    size = _end(loop)
    assert isinstance(size, int)
    copies = [_vector(loop, start, lanes, size) for start in range(0, size, lanes)]
    count = -(-len(copies) // (machine.registers - SPARE_REGISTERS))
    blocks = [copies[i * len(copies) // count : (i + 1) * len(copies) // count] for i in range(count)]
    bodies = [tuple(_side_by_side(block, [{} for _ in block])) for block in blocks]
    return bodies[0] if count == 1 else tuple(map(Block, bodies))


def _vector(loop: For, start: int, lanes: int, size: int) -> Body:
    count = Index(size - start) if size - start < lanes else None
    return substitute_body(vectorized(loop.body, loop.var.name, lanes, count), {loop.var.name: Index(start)})


def _side_by_side(copies: Sequence[Body], known: Known) -> Iterator[Statement]:
    """The first statement of all copies, the second.."""
    for statements in zip(*copies, strict=True):
        first = statements[0]
        if isinstance(first, For):
            inner = [s.body for s in statements if isinstance(s, For)]
            low, high = substitute(first.low, known[0]), substitute(first.high, known[0])
            yield replace(first, low=low, high=high, body=tuple(_side_by_side(inner, known)))
        else:
            yield from _each(statements, known)


def _each(statements: Iterable[Statement], known: Known) -> Iterator[Statement]:
    """One statement of each copy, with a variable of its own; once where all are the same."""
    changed = [substitute_body((s,), values)[0] for s, values in zip(statements, known, strict=True)]
    if isinstance(changed[0], Let) and len(set(changed)) == 1:
        yield changed[0]
        return
    for i, (s, values) in enumerate(zip(changed, known, strict=True)):
        if isinstance(s, Let | Mutable):
            values[s.var.name] = Var(f"{s.var.name}_{i}", s.var.type)
        if isinstance(s, Let | Mutable | Assign):
            own = values[s.var.name]
            assert isinstance(own, Var)
            s = replace(s, var=own)
        yield s
