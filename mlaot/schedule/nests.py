"""Nests for one machine: every loop that is marked for it in vectors."""

from __future__ import annotations

from dataclasses import replace

from mlaot.nest.expressions import TRANSCENDENTAL, Call, Index, subexpressions
from mlaot.nest.reductions import BY_FUNCTION
from mlaot.nest.statements import (
    Assign,
    Block,
    Body,
    For,
    If,
    Mutable,
    Nest,
    Statement,
    While,
    eliminate_dead_code,
    expressions,
    is_of_numbers,
    rounds_of,
    substitute_body,
    walk,
)
from mlaot.schedule.blocks import with_blocks
from mlaot.schedule.collapse import collapsed
from mlaot.schedule.jam import is_around, jammed, reads_apart
from mlaot.schedule.machine import Machine
from mlaot.schedule.tiles import tile
from mlaot.schedule.tuning import STAGE_LINES_SEVERAL, SUM_CHAINS, UNROLLED_NUMBERS
from mlaot.schedule.vectorize import Accumulator, CannotVectorizeError, VectorLoop, width_of


def scheduled(nest: Nest, machine: Machine) -> Nest:
    """``nest`` as ``machine`` runs it."""
    if nest.is_tiled:
        return tile(nest, machine)
    return replace(
        nest, body=eliminate_dead_code(_unrolled(_body(collapsed(with_blocks(nest.body, machine)), machine)))
    )


def _unrolled(body: Body, *, is_inside: bool = False) -> Body:
    """Short loops over numbers inside of others as statements, of which the compiler then makes vectors."""
    result: list[Statement] = []
    for s in body:
        if not isinstance(s, For):
            result.append(s if not isinstance(s, Block) else Block(_unrolled(s.body, is_inside=is_inside)))
            continue
        s = replace(s, body=_unrolled(s.body, is_inside=True))
        count = rounds_of(s)
        is_plain = is_of_numbers(s) and s.low == Index(0) and not s.down
        statements = sum(not isinstance(inner, Block) for inner in walk(s.body))
        if is_inside and is_plain and count is not None and count * statements <= UNROLLED_NUMBERS:
            for k in range(count):
                own = substitute_body(s.body, {s.var.name: Index(k)})
                result += own if len(own) == 1 else (Block(own),)
        else:
            result.append(s)
    return tuple(result)


def _body(body: Body, machine: Machine) -> Body:
    result: list[Statement] = []
    for s in body:
        if isinstance(s, For) and s.vector:
            result = _with_vectors(result, s, machine)
        elif isinstance(s, For | While | Block):
            result.append(replace(s, body=_body(s.body, machine)))
        elif isinstance(s, If):
            result.append(If(s.condition, _body(s.body, machine), _body(s.otherwise, machine)))
        else:
            result.append(s)
    return tuple(result)


def _with_vectors(before: list[Statement], loop: For, machine: Machine) -> list[Statement]:
    """The statements before a loop, and the loop in vectors; its accumulators are declared as vectors."""
    try:
        width = width_of(loop)
        accumulators = _accumulators(before, loop)
        if width not in (32, 64):
            raise CannotVectorizeError(f"numbers of {width} bits")
        lanes = machine.bytes * 8 // width
        if not accumulators and is_around(loop) and not reads_apart(loop, lanes):
            return [*before, *jammed(loop, lanes, machine)]
        parts = machine.parts if accumulators else 1
        chains = SUM_CHAINS if accumulators and _waits(loop, lanes * parts) else 1
        start, loops, after = VectorLoop(loop, accumulators, lanes, width, parts, chains).result()
    except CannotVectorizeError:
        return [*before, replace(loop, body=_body(loop.body, machine))]
    kept = [s for s in before if not (isinstance(s, Mutable) and s.var.name in accumulators)]
    return [*kept, *start, *loops, *after]


def _accumulators(before: list[Statement], loop: For) -> dict[str, Accumulator]:
    """The variables declared before a loop that it combines one value a round into."""
    declared = {s.var.name: s for s in before if isinstance(s, Mutable)}
    found: dict[str, Accumulator] = {}
    for s in walk(loop.body):
        if not (isinstance(s, Assign) and s.var.name in declared):
            continue
        x = s.value
        if not (isinstance(x, Call) and x.name in BY_FUNCTION and x.args[0] == s.var) or s.var.name in found:
            raise CannotVectorizeError(f"{s.var.name} is more than combined")
        found[s.var.name] = Accumulator(s.var, x.name, declared[s.var.name].value)
    return found


def _waits(loop: For, lanes: int) -> bool:
    """Whether so little is done for an element of a long row that one accumulator would be waited for."""
    calls = {x.name for s in walk(loop.body) for e in expressions(s) for x in subexpressions(e) if isinstance(x, Call)}
    is_light = len(loop.body) <= STAGE_LINES_SEVERAL and not calls & TRANSCENDENTAL
    size = loop.high.value if isinstance(loop.high, Index) else None
    return is_light and (not isinstance(size, int) or size >= 2 * SUM_CHAINS * lanes)
