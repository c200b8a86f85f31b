"""The vector loops of a row kernel on one instruction set: ready data for its template.

    for (j = 0; j < 960; j += 64)       four vectors at a time, where additions would wait for each other
    for (j = 960; j < 992; j += 16)     the whole vectors that are left
    for (j = 992; j < 1000; j += 16)    the rest of the row, a part of a vector

Where the bits must not depend on the instruction set, ``isa.parts`` vectors stand for one of 64 bytes, each with an
accumulator of its own; sums are then combined in halves: of vectors, then of lanes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from mlaot.lower.program import Rows, Stage, Total
from mlaot.lower.tiles import tidy
from mlaot.lower.vectors import MATH
from mlaot.schedule.contraction import lanes_of
from mlaot.schedule.machine import Machine as Isa
from mlaot.schedule.tuning import STAGE_LINES_ONCE, STAGE_LINES_SEVERAL, SUM_CHAINS

Lines = tuple[str, ...]
Loop = tuple[str, Lines]  # its header and its body

_VALUE = re.compile(r"const \w+ (\w+) = (\w+\(.*\));")
_FUNCTION = re.compile(rf"\b({'|'.join(sorted(MATH))})_f\d\dv\(")


def stages(kernel: Rows, isa: Isa) -> list[dict[str, object]]:
    """The loops of each stage, with what stands before and after them."""
    result: list[dict[str, object]] = []
    for stage in kernel.stages:
        lanes, size = lanes_of(kernel.dtype, isa), str(kernel.columns)
        parts = isa.parts if stage.totals else 1
        chains = SUM_CHAINS if _waits(stage, size, lanes * parts) else 1
        vector = f"{kernel.dtype}v"
        start = [
            f"{vector} {name} = splat_{vector}({total.start});"
            for total in stage.totals
            for name in _accumulators(total, chains * parts)
        ]
        result.append(
            {
                "before": (*start, *stage.before),
                "loops": list(_loops(stage, size, lanes, parts, chains)),
                "after": (*[_combined(total, vector, chains, parts) for total in stage.totals], *stage.after),
            }
        )
    return result


def _waits(stage: Stage, size: str, lanes: int) -> bool:
    """Whether so little is done for an element of a long row that one accumulator would be waited for."""
    light = len(stage.full) <= STAGE_LINES_SEVERAL and not any(_FUNCTION.search(line) for line in stage.full)
    long = not size.isdigit() or int(size) >= 2 * SUM_CHAINS * lanes
    return bool(stage.totals) and light and long


def _accumulators(total: Total, count: int) -> list[str]:
    return [f"{total.name}_all{i if count > 1 else ''}" for i in range(count)]


def _combined(total: Total, vector: str, chains: int, parts: int) -> str:
    """The statement that makes one number of all accumulators."""
    values = _accumulators(total, chains * parts)

    def pair(a: str, b: str) -> str:
        return f"({a} + {b})" if total.combine == "sum" else f"{total.combine}_{vector}({a}, {b})"

    columns = [values[part::parts] for part in range(parts)]
    while len(columns[0]) > 1:
        columns = [[pair(a, b) for a, b in zip(c[::2], c[1::2], strict=True)] for c in columns]
    whole = [c[0] for c in columns]
    while len(whole) > 1:
        half = len(whole) // 2
        whole = [pair(a, b) for a, b in zip(whole[:half], whole[half:], strict=True)]
    text = whole[0].removeprefix("(").removesuffix(")") if whole[0].startswith("(") else whole[0]
    return f"const {total.ctype} {total.name} = {total.combine}_lanes_{vector}({text});"


def _loops(stage: Stage, size: str, lanes: int, parts: int, chains: int) -> Iterator[Loop]:
    """``parts`` vectors at a time; before that as many times ``chains``."""

    def copies(count: int) -> Lines:
        return _blocks([_put(stage.full, i, lanes, chains * parts) for i in range(count)])

    def one(declaration: str) -> Lines:
        return _with_rest(declaration, _put(stage.rest, 0, lanes, chains))

    step = lanes * parts
    if parts == chains == 1 and (len(stage.full) > STAGE_LINES_ONCE or _fits_padding(size, lanes, stage.rest)):
        yield _header("0", size, lanes), one(f"const ptrdiff_t rest = {size} - j < {lanes} ? {size} - j : {lanes};")
    elif size.isdigit():
        n, start = int(size), 0
        for count in dict.fromkeys((chains, 1)):
            end = n // (step * count) * (step * count)
            if end > start:
                yield _header(start, end, step * count), copies(count * parts)
            start = end
        if n > start:
            yield _header(start, n, step), _partial(stage, n - start, lanes, chains * parts)
    else:
        start_text = "0"
        for count in dict.fromkeys((chains, 1)):
            yield _header(start_text, f"{size} - {step * count - 1}", step * count), copies(count * parts)
            start_text = f"{size} / {step * count} * {step * count}"
        yield _header(start_text, size, step), _unknown(stage, size, lanes, parts, chains)


def _header(start: int | str, end: int | str, step: int) -> str:
    return f"for (ptrdiff_t j = {start}; j < {end}; j += {step}) {{"


def _partial(stage: Stage, count: int, lanes: int, accumulators: int) -> Lines:
    """The last ``count`` elements: whole vectors, and a part of one."""
    whole, rest = divmod(count, lanes)
    blocks = [_put(stage.full, i, lanes, accumulators) for i in range(whole)]
    if rest:
        blocks.append(_with_rest(f"enum {{ rest = {rest} }};", _put(stage.rest, whole, lanes, accumulators)))
    return _blocks(blocks)


def _unknown(stage: Stage, size: str, lanes: int, parts: int, chains: int) -> Lines:
    """As many elements as are left: fewer than ``parts`` vectors."""
    if parts == 1:
        return _with_rest(f"const ptrdiff_t rest = {size} - j;", _put(stage.rest, 0, lanes, chains))
    blocks = []
    for i in range(parts):
        left = f"{size} - j" + (f" - {i * lanes}" if i else "")
        declaration = f"const ptrdiff_t rest = {left} < 0 ? 0 : {left} < {lanes} ? {left} : {lanes};"
        blocks.append(_with_rest(declaration, _put(stage.rest, i, lanes, chains * parts)))
    return _blocks(blocks)


def _put(lines: Sequence[str], i: int, lanes: int, accumulators: int) -> Lines:
    """The lines for the vector number ``i`` of an iteration."""
    j = f"j + {i * lanes}" if i else "j"
    number = str(i) if accumulators > 1 else ""
    return tuple(tidy(line.replace("{j}", j).replace("{all}", f"_all{number}")) for line in lines)


def _blocks(bodies: Sequence[Lines]) -> Lines:
    """Bodies one after the other, each with names of its own."""
    if len(bodies) == 1:
        return bodies[0]
    bodies = [_in_one(body) for body in bodies]
    if all(len(body) == 1 for body in bodies):
        return tuple(line for body in bodies for line in body)
    return tuple(line for body in bodies for line in ("{", *[f"    {line}" for line in body], "}"))


def _in_one(body: Lines) -> Lines:
    """A value and the only statement that reads it, once, as one statement."""
    if len(body) == 2 and (found := _VALUE.fullmatch(body[0])) and len(re.findall(rf"\b{found[1]}\b", body[1])) == 1:
        return (re.sub(rf"\b{found[1]}\b", lambda _: found[2], body[1]),)
    return body


def _fits_padding(size: str, lanes: int, rest: Lines) -> bool:
    """Whether the rest may be a whole vector in padded memory, so that one body serves a short row."""
    return size.isdigit() and int(size) % lanes > 0 and int(size) < 4 * lanes and not any("_part_" in x for x in rest)


def _with_rest(declaration: str, lines: Lines) -> Lines:
    return (declaration, *lines) if any(re.search(r"\brest\b", line) for line in lines) else lines
