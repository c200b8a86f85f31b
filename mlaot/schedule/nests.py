"""Nests for one machine: every loop that is marked for vectors is vectorized."""

from __future__ import annotations

from dataclasses import replace

from mlaot.nest.expressions import CHEAP_CALLS, COMPARISONS, Call, Index, subexpressions
from mlaot.nest.reductions import BY_FUNCTION
from mlaot.nest.statements import (
    Assign,
    Block,
    Body,
    For,
    Mutable,
    Nest,
    Statement,
    eliminate_dead_code,
    expressions,
    is_of_numbers,
    map_bodies,
    rounds_of,
    substitute_body,
    walk,
)
from mlaot.schedule.blocks import resolve_row_choices
from mlaot.schedule.collapse import collapse
from mlaot.schedule.jam import is_around, is_strided, jam
from mlaot.schedule.machine import Machine
from mlaot.schedule.squares import read_squares
from mlaot.schedule.tiles import tile
from mlaot.schedule.tuning import STAGE_LINES_SEVERAL, SUM_CHAINS, UNROLLED_NUMBERS
from mlaot.schedule.vectorize import Accumulator, CannotVectorizeError, VectorLoop, width_of


def schedule_nest(nest: Nest, machine: Machine) -> Nest:
    """Return ``nest`` with the schedule of ``machine``."""
    if nest.is_tiled:
        return tile(nest, machine)
    body = read_squares(collapse(resolve_row_choices(nest.body, machine)), machine)
    return replace(nest, body=eliminate_dead_code(_unroll(_vectorize_body(body, machine))))


def _unroll(body: Body, *, is_inside: bool = False) -> Body:
    """Unroll short loops over numbers inside of other loops, whose statements compilers then vectorize."""
    result: list[Statement] = []
    for s in body:
        if not isinstance(s, For):
            result.append(s if not isinstance(s, Block) else Block(_unroll(s.body, is_inside=is_inside)))
            continue
        s = replace(s, body=_unroll(s.body, is_inside=True))
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


def _vectorize_body(body: Body, machine: Machine) -> Body:
    """Vectorize the marked loops of a body."""
    result: list[Statement] = []
    for s in body:
        if isinstance(s, For) and s.vector:
            result = _vectorize_loop(result, s, machine)
        else:
            result.append(map_bodies(s, lambda body: _vectorize_body(body, machine)))
    return tuple(result)


def _vectorize_loop(before: list[Statement], loop: For, machine: Machine) -> list[Statement]:
    """Return the statements before a loop, and the loop in vectors. Its accumulators become vectors too."""
    try:
        width = width_of(loop)
        accumulators = _accumulators(before, loop)
        if width not in (32, 64):
            raise CannotVectorizeError(f"numbers of {width} bits")
        lanes = machine.bytes * 8 // width
        if not accumulators and is_around(loop) and not is_strided(loop, lanes):
            return [*before, *jam(loop, lanes, machine)]
        parts = machine.parts if accumulators else 1
        chains = SUM_CHAINS if accumulators and _waits(loop, lanes * parts) else 1
        start, loops, after = VectorLoop(loop, accumulators, lanes, width, parts, chains).result()
    except CannotVectorizeError:
        return [*before, replace(loop, body=_vectorize_body(loop.body, machine))]
    kept = [s for s in before if not (isinstance(s, Mutable) and s.var.name in accumulators)]
    return [*kept, *start, *loops, *after]


def _accumulators(before: list[Statement], loop: For) -> dict[str, Accumulator]:
    """Return the variables declared before a loop into which each round combines one value."""
    declared = {s.var.name: s for s in before if isinstance(s, Mutable)}
    accumulators: dict[str, Accumulator] = {}
    for s in walk(loop.body):
        if not (isinstance(s, Assign) and s.var.name in declared):
            continue
        x = s.value
        if not (isinstance(x, Call) and x.name in BY_FUNCTION and x.args[0] == s.var) or s.var.name in accumulators:
            raise CannotVectorizeError(f"{s.var.name} is more than combined")
        accumulators[s.var.name] = Accumulator(s.var, x.name, declared[s.var.name].value)
    return accumulators


def _waits(loop: For, lanes: int) -> bool:
    """Tell whether a long row needs so little work per element that one accumulator would stall on its latency."""
    calls = {x.name for s in walk(loop.body) for e in expressions(s) for x in subexpressions(e) if isinstance(x, Call)}
    is_light = len(loop.body) <= STAGE_LINES_SEVERAL and calls <= {*CHEAP_CALLS, *COMPARISONS}
    size = loop.high.value if isinstance(loop.high, Index) else None
    return is_light and (not isinstance(size, int) or size >= 2 * SUM_CHAINS * lanes)
