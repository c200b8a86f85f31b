"""The register tiles of a contraction on one instruction set: ready data for its template."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

from mlaot.ir import DTYPES
from mlaot.lower.isa import Isa
from mlaot.lower.program import Contraction

LIGHT = 1024  # multiply-adds


@dataclass(frozen=True)
class Tile:
    """One micro-kernel: loop headers, accumulators, a step of the summed loop, and what follows it."""

    columns: tuple[str, str, int]  # start, end, step of j
    rows: tuple[str, str, int]  # start, end, step of i
    start: tuple[str, ...]
    step: tuple[str, ...]
    rest: tuple[str, ...]  # along "k": the last, partial vector
    finish: tuple[str, ...]


def lanes_of(dtype: str, isa: Isa) -> int:
    """Elements of a vector."""
    return isa.bytes // DTYPES[dtype].itemsize


def most_rows(vectors: int, isa: Isa) -> int:
    """Rows of a tile so many vectors wide, so that accumulators and operands stay in registers."""
    if isa.registers >= 32:
        return 8 if vectors <= 2 else 5
    return {1: 8, 2: 6}.get(vectors, 3) if isa.bytes > 16 else 4


def widest(isa: Isa) -> int:
    """Vectors of a tile's width."""
    return 4 if isa.registers >= 32 else 2


def is_light(kernel: Contraction) -> bool:
    """A contraction so small that short code is worth more than the last of its speed."""
    return (
        prod(int(size) for size in (kernel.m[1], kernel.n[1], kernel.k[-1][1] if kernel.k else "1") if size.isdigit())
        < LIGHT
    )


def tiles(kernel: Contraction, isa: Isa) -> list[Tile]:
    """Every tile of ``kernel``: panels of columns, each with whole blocks of rows and what is left of them."""
    lanes = lanes_of(kernel.dtype, isa)
    result = []
    for panel in _panels(kernel, lanes, isa):
        most = most_rows(panel[3], isa) if kernel.along == "n" else isa.registers // 8
        for rows in _blocks(kernel.m[1], most // 2 if is_light(kernel) else most):
            result.append(
                _along_n(kernel, panel, rows, lanes) if kernel.along == "n" else _along_k(kernel, panel, rows, lanes)
            )
    return result


Panel = tuple[str, str, int, int, str | None]  # start, end, step, vectors (or columns), text of the last one's rest


def _panels(kernel: Contraction, lanes: int, isa: Isa) -> list[Panel]:
    size = kernel.n[1]
    if size == "0":
        return []
    if kernel.along == "k":
        width = next(w for w in (5, 4, 3, 2, 1) if int(size) % w == 0)
        return [("0", size, width, width, None)]
    if not size.isdigit():
        return [
            ("0", f"{size} - {lanes - 1}", lanes, 1, None),
            (f"{size} / {lanes} * {lanes}", size, lanes, 1, f"{size} - j"),
        ]
    n = int(size)
    whole, rest = divmod(n, lanes)
    vectors = whole + (rest > 0)
    most = 1 if is_light(kernel) else widest(isa)
    even = next((w for w in range(most, 1, -1) if vectors % w == 0), most)  # one tile for all, if it can be
    count = -(-vectors // even)
    widths = [vectors // count + (i < vectors % count) for i in range(count)]
    panels: list[Panel] = []
    start = 0
    for i, width in enumerate(widths):
        end = start + width * lanes
        last = str(rest) if rest and i == count - 1 else None
        if panels and last is None and panels[-1][3] == width:
            panels[-1] = (panels[-1][0], str(end), width * lanes, width, None)
        else:
            panels.append((str(start), str(end), width * lanes, width, last))
        start = end
    return panels


def _blocks(size: str, most: int) -> list[tuple[str, str, int]]:
    """Blocks of rows: of ``most`` each, then the rest: as one block where the size is known, else one by one."""
    if not size.isdigit():
        return (
            [("0", f"{size} - {most - 1}", most), (f"{size} / {most} * {most}", size, 1)]
            if most > 1
            else [("0", size, 1)]
        )
    m = int(size)
    if m == 0:
        return []
    most = next((k for k in range(most, max(most // 2, 1), -1) if m % k == 0), min(most, m))
    whole = m // most * most
    blocks = [("0", str(whole), most)] if whole else []
    return blocks + ([(str(whole), size, m - whole)] if m > whole else [])


def _plus(variable: str, offset: int) -> str:
    return f"{variable} + {offset}" if offset else variable


def tidy(text: str) -> str:
    """``(i) * 4`` as ``i * 4``."""
    return re.sub(r"(?<!\w)\((\w+)\) \*", r"\1 *", text)


def _put(lines: tuple[str, ...], **values: str) -> list[str]:
    result = []
    for line in lines:
        for key, value in values.items():
            line = line.replace("{" + key + "}", value)
        result.append(tidy(line))
    return result


def _along_n(kernel: Contraction, panel: Panel, rows: tuple[str, str, int], lanes: int) -> Tile:
    vector = f"{kernel.dtype}v"
    height, width = rows[2], panel[3]
    i_text = [_plus("i", r) if kernel.m[0] == "{i}" else "0" for r in range(height)]
    j_text = [_plus("j", v * lanes) for v in range(width)]
    cells = [(r, v) for r in range(height) for v in range(width)]
    start = [f"{vector} c{r}_{v} = splat_{vector}({kernel.start});" for r, v in cells]
    step: list[str] = []
    name, index = kernel.b
    for v in range(width):
        text = index.replace("{j}", j_text[v]).replace("{i}", "i")
        partial = panel[4] if v == width - 1 and not kernel.full_b else None
        load = (
            f"load_{vector}({name} + {text})" if partial is None else f"load_part_{vector}({name} + {text}, {partial})"
        )
        step.append(tidy(f"const {vector} b{v} = {load};"))
    if kernel.a is not None:
        name, index = kernel.a
        for r in range(height):
            step.append(tidy(f"const {vector} a{r} = splat_{vector}({name}[{index.replace('{i}', i_text[r])}]);"))
            step += [f"c{r}_{v} += a{r} * b{v};" for v in range(width)]
    elif kernel.combine == "sum":
        step += [f"c0_{v} += b{v};" for v in range(width)]
    else:
        step += [f"c0_{v} = {kernel.combine}_{vector}(c0_{v}, b{v});" for v in range(width)]
    finish: list[str] = []
    for r, v in cells:
        partial = panel[4] if v == width - 1 else None
        lines = kernel.epilogue if partial is None else kernel.rest
        body = _put(lines, acc=f"c{r}_{v}", i=i_text[r], j=j_text[v], rest=partial or "")
        finish += ["{", *[f"    {line}" for line in body], "}"] if len(body) > 1 else body
    return Tile(panel[:3], rows, tuple(start), tuple(step), (), tuple(finish))


def _along_k(kernel: Contraction, panel: Panel, rows: tuple[str, str, int], lanes: int) -> Tile:
    vector = f"{kernel.dtype}v"
    height, width = rows[2], panel[3]
    i_text = [_plus("i", r) if kernel.m[0] == "{i}" else "0" for r in range(height)]
    j_text = [_plus("j", c) if kernel.n[0] == "{j}" else "0" for c in range(width)]
    assert kernel.a is not None
    zero = "0.0" if kernel.dtype == "f64" else "0.0f"

    def loads(rest: int | None) -> list[str]:
        lines = []
        for letter, (name, index), texts, mark in (("a", kernel.a, i_text, "{i}"), ("b", kernel.b, j_text, "{j}")):  # type: ignore[misc]
            for position, text in enumerate(texts):
                pointer = tidy(f"{name} + {index.replace(mark, text)}")
                if rest is None:
                    value = f"load_{vector}({pointer})"
                elif kernel.full_b:
                    value = f"first_{vector}(load_{vector}({pointer}), {rest}, {zero})"
                else:
                    value = f"load_part_{vector}({pointer}, {rest})"
                lines.append(f"const {vector} {letter}{position} = {value};")
        return lines + [f"c{r}_{c} += a{r} * b{c};" for r in range(height) for c in range(width)]

    cells = [(r, c) for r in range(height) for c in range(width)]
    start = [f"{vector} c{r}_{c} = splat_{vector}({zero});" for r, c in cells]
    rest = int(kernel.k[-1][1]) % lanes
    i, j = ("i + row" if kernel.m[0] == "{i}" else "0"), ("j + column" if kernel.n[0] == "{j}" else "0")
    ctype = "double" if kernel.dtype == "f64" else "float"
    finish = [
        f"const {vector} sums[] = {{{', '.join(f'c{r}_{c}' for r, c in cells)}}};",
        f"for (ptrdiff_t row = 0; row < {height}; row++) {{",
        f"    for (ptrdiff_t column = 0; column < {width}; column++) {{",
        f"        const {ctype} dot = sum_lanes_{vector}(sums[row * {width} + column]);",
        *[f"        {line}" for line in _put(kernel.epilogue, acc="dot", i=i, j=j)],
        "    }",
        "}",
    ]
    last = tuple(loads(rest)) if rest else ()
    return Tile(panel[:3], rows, tuple(start), tuple(loads(None)), last, tuple(finish))
