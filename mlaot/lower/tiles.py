"""The loops and register tiles of a contraction on one instruction set: ready data for its template."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from mlaot.ir import DTYPES, Dim
from mlaot.lower.emit import widened
from mlaot.lower.layout import atom, linear, times
from mlaot.lower.program import Axis, Contraction, Operand
from mlaot.schedule.contraction import (
    Schedule,
    block_sizes,
    column_names,
    gate_count,
    is_along_sum,
    kept_near,
    kept_next,
    lanes_of,
    one_by_one,
    row_names,
    schedule,
)
from mlaot.schedule.machine import LINE
from mlaot.schedule.machine import Machine as Isa
from mlaot.schedule.tuning import EPILOGUE_STATEMENTS, PREFETCH_SHARE, PREFETCH_STEPS


@dataclass(frozen=True)
class Nest:
    """A block of C: its head, and the lines and blocks inside."""

    header: str
    body: tuple[str | Nest, ...]


@dataclass(frozen=True)
class Place:
    """Where an index is: a variable (or none) and a number."""

    variable: str | None
    number: int = 0

    def __str__(self) -> str:
        if self.variable is None:
            return str(self.number)
        return f"{self.variable} + {self.number}" if self.number else self.variable


@dataclass(frozen=True)
class Piece:
    """A part of an axis that is walked in equal blocks: of ``count`` points, or along the lanes of so many vectors.

    ``rest``: elements of the last vector, where it is partial; ``panel``: where the panel begins that a block lies in,
    as a variable or a number, and the panel's width.
    """

    start: str
    end: str
    step: int
    count: int
    rest: str | None = None
    panel: tuple[str | int, int] | None = None

    @property
    def is_once(self) -> bool:
        return self.start.isdigit() and self.end.isdigit() and int(self.start) + self.step >= int(self.end)


def body(kernel: Contraction, isa: Isa, shared: str | None = None) -> tuple[str | Nest, ...]:
    """The loops of ``kernel`` around its tiles; rows that fill no block come last, in tiles of their own.

    A block of the ``shared`` variable without a loop tests whether it begins between ``begin`` and ``end``.
    """
    plan = schedule(kernel, isa)
    alone = one_by_one(kernel, plan, isa)
    blocks = _Tiles(kernel, plan, isa, alone[0] if alone else None, shared).nest(0, {}, {}, None)
    if alone is None:
        return blocks
    name, single = alone
    rest = _Tiles(kernel, single, isa, None, shared)
    rest.first[name] = plan.counts[name]
    return (*blocks, *rest.nest(0, {}, {}, None))


def loops(kernel: Contraction, isa: Isa) -> list[tuple[Axis, int]]:
    """The axes that ``kernel`` loops over around its tiles, the outermost first, each with the elements of a block."""
    tiles = _Tiles(kernel, schedule(kernel, isa), isa, None, None)
    return [(axis, max(piece.step for piece in tiles.pieces(axis))) for axis in tiles.order if axis.size != 0]


def tidy(text: str) -> str:
    """``(i) * 4`` as ``i * 4``, and nothing is added to a pointer."""
    return re.sub(r" \+ 0(?=[,)\]]| \+)", "", re.sub(r"(?<!\w)\((\w+)\) \*", r"\1 *", text))


class _Tiles:
    """One kernel on one instruction set."""

    def __init__(self, kernel: Contraction, plan: Schedule, isa: Isa, blocks: str | None, shared: str | None) -> None:
        self.kernel, self.plan, self.blocks, self.shared = kernel, plan, blocks, shared
        self.isa = isa
        self.first: dict[str, int] = {}  # the size of the blocks along a variable that are done elsewhere
        self.lanes = lanes_of(kernel.dtype, isa)
        self.sum = "i32v" if kernel.words else f"{kernel.dtype}v"  # the type of an accumulator
        self.along_sum = is_along_sum(kernel)
        self.rows = [n for n in row_names(kernel) if n in self.plan.counts]
        self.columns = [n for n in column_names(kernel) if n in self.plan.counts]
        self.axes = {axis.name: axis for axis in (*kernel.out, *kernel.summed)}
        self.order = self._order()

    def _order(self) -> list[Axis]:
        """Loops from the outermost: what both operands move along, then rows and columns; tiled ones inside."""
        kernel, inside = self.kernel, self.plan.rows_inside
        rows, columns = row_names(kernel), [*column_names(kernel), kernel.lanes]

        def rank(axis: Axis) -> tuple[int, int]:
            group = 0 if axis.name not in rows + columns else 1 + ((axis.name in rows) == inside)
            return group, int(axis.name in self.plan.counts)

        return sorted(kernel.out, key=rank)

    def nest(
        self, depth: int, at: Mapping[str, Place], counts: Mapping[str, int], piece: Piece | None
    ) -> tuple[str | Nest, ...]:
        """The loops from ``depth`` on; ``piece``: the one along the lanes that they are in."""
        if depth == len(self.order):
            return tuple(self.tile(at, counts, piece))
        axis = self.order[depth]
        result: list[str | Nest] = []
        pieces = self.pieces(axis)
        for found in pieces:
            place = Place(None, int(found.start)) if found.is_once else Place(axis.name)
            inner = self.nest(
                depth + 1,
                {**at, axis.name: place},
                {**counts, axis.name: found.count},
                found if axis.name == self.kernel.lanes else piece,
            )
            if found.is_once and axis.name == self.shared:
                result.append(Nest(f"if (begin <= {found.start} && {found.start} < end) {{", inner))
                continue
            if found.is_once:
                result += inner if len(pieces) == 1 else [Nest("{", inner)]
                continue
            v, step = axis.name, found.step
            loop = Nest(
                f"for (ptrdiff_t {v} = {found.start}; {v} < {found.end}; {v}{f' += {step}' if step > 1 else '++'}) {{",
                inner,
            )
            if found.panel is not None and found.panel[0] == "p":  # narrower tiles than a panel
                width = found.panel[1]
                whole = int(axis.size) // width * width
                loop = Nest(f"for (ptrdiff_t p = 0; p < {whole}; p += {width}) {{", (loop,))
            result.append(loop)
        return tuple(result)

    def pieces(self, axis: Axis) -> list[Piece]:
        """The parts of an axis that are walked one after the other."""
        count = self.plan.counts.get(axis.name, 1)
        if axis.name in self.first:
            return [Piece(_done(axis.size, self.first[axis.name]), atom(axis.size), 1, 1)]
        if axis.name != self.kernel.lanes:
            pieces = _row_pieces(axis.size, count)
            return pieces[:-1] if axis.name == self.blocks else pieces
        panels = next((o.panels for o in self.kernel.operands if o.panels), None)
        if panels is not None:
            assert isinstance(axis.size, int)
            unit = LINE // DTYPES[self.kernel.dtype].itemsize
            return _panel_pieces(axis.size, count, self.lanes, panels.width, unit)
        return _lane_pieces(axis.size, count, self.lanes)

    def tile(self, at: Mapping[str, Place], counts: Mapping[str, int], piece: Piece | None) -> Iterator[str | Nest]:
        """One micro-kernel: accumulators, the summed loops, the epilogue."""
        rows = _offsets(self.rows, counts)
        columns = _offsets([*self.columns, *([] if self.along_sum else [self.kernel.lanes])], counts)
        names = [[f"c{r}_{c}" for c in range(len(columns))] for r in range(len(rows))]
        tile = _Tile(self, at, rows, columns, names, piece)
        for s in range(self.plan.sets):
            for row in names:
                for name in row:
                    yield f"{self.sum} {_of_set(name, s)} = splat_{self.sum}({self.kernel.start});"
        yield from self._sum(0, {}, tile)
        sets = self.plan.sets
        while sets > 1:
            sets //= 2
            for s in range(sets):
                for row in names:
                    yield from (f"{_of_set(name, s)} += {_of_set(name, s + sets)};" for name in row)
        yield from tile.finish()

    def _sum(self, depth: int, at: Mapping[str, Place], tile: _Tile) -> Iterator[str | Nest]:
        """The loops over the summed variables from ``depth`` on."""
        summed = self.kernel.summed
        if depth == len(summed) - self.plan.unrolled or not summed:
            axes = summed[depth:]
            sizes = [range(int(axis.size)) for axis in axes]
            steps = [
                {**at, **{axis.name: Place(None, i) for axis, i in zip(axes, point, strict=True)}}
                for point in product(*sizes)
            ]
            yield from tile.steps(steps, None)
            return
        axis = summed[depth]
        v = axis.name
        if depth < len(summed) - 1:
            inner = tuple(self._sum(depth + 1, {**at, v: Place(v)}, tile))
            yield Nest(f"for (ptrdiff_t {v} = 0; {v} < {axis.size}; {v}++) {{", inner)
            return
        q, sets = (self.lanes if v == self.kernel.lanes else 1), self.plan.sets

        def step(places: Sequence[Place], rest: str | None = None, first: int = 0) -> tuple[str | Nest, ...]:
            return tuple(tile.steps([{**at, v: place} for place in places], rest, first))

        def loop(places: Sequence[Place]) -> tuple[str | Nest, ...]:
            later = [replace(place, number=place.number + PREFETCH_STEPS) for place in places]
            return (*tile.ahead([{**at, v: place} for place in later]), *step(places))

        if not isinstance(axis.size, int):
            size, by = atom(axis.size), q * sets
            end = f"{axis.size}" if by == 1 else f"{axis.size} - {by - 1}"
            places = [Place(v, s * q) for s in range(sets)]
            yield Nest(f"for (ptrdiff_t {v} = 0; {v} < {end}; {v}{f' += {by}' if by > 1 else '++'}) {{", step(places))
            if q > 1:
                head = f"for (ptrdiff_t {v} = {size} / {by} * {by}; {v} < {size}; {v} += {by}) {{"
                left = [f"{size} - {v}" + (f" - {s * q}" if s else "") for s in range(sets)]
                if sets > 1:
                    left = [f"{text} < 0 ? 0 : {text} < {q} ? {text} : {q}" for text in left]
                blocks = [step([place], text, s) for s, (place, text) in enumerate(zip(places, left, strict=True))]
                yield Nest(head, blocks[0] if sets == 1 else tuple(Nest("{", block) for block in blocks))
            return
        full, rest = divmod(axis.size, q)
        main = full // sets * sets
        if main == sets:
            yield from step([Place(None, s * q) for s in range(sets)])
        elif main:
            head = f"for (ptrdiff_t {v} = 0; {v} < {main * q}; {v}{f' += {sets * q}' if sets * q > 1 else '++'}) {{"
            yield Nest(head, loop([Place(v, s * q) for s in range(sets)]))
        if full > main:
            yield Nest("{", step([Place(None, s * q) for s in range(main, full)]))
        if rest:
            yield Nest("{", step([Place(None, full * q)], str(rest), full - main))


class _Tile:
    """The statements of one micro-kernel."""

    def __init__(
        self,
        tiles: _Tiles,
        at: Mapping[str, Place],
        rows: Sequence[Mapping[str, int]],
        columns: Sequence[Mapping[str, int]],
        names: Sequence[Sequence[str]],
        piece: Piece | None,
    ) -> None:
        self.kernel, self.lanes, self.sum = tiles.kernel, tiles.lanes, tiles.sum
        self.isa, self.vector = tiles.isa, f"{tiles.kernel.dtype}v"
        self.along_sum, self.sets, self.gates = tiles.along_sum, tiles.plan.sets, max(gate_count(tiles.kernel), 1)
        self.tiled = [*tiles.rows, *tiles.columns, *([] if tiles.along_sum else [tiles.kernel.lanes])]
        self.at, self.rows, self.columns, self.names, self.piece = at, rows, columns, names, piece
        ends = max(point.get(tiles.kernel.lanes, 0) for point in columns)
        self.at_end = [point.get(tiles.kernel.lanes, 0) == ends for point in columns]  # along the lanes
        self.counts = [len({point[name] for point in (*rows, *columns) if name in point}) for name in self.tiled]

    def _moved(self, at: Mapping[str, Place], offsets: Mapping[str, int]) -> dict[str, Place]:
        result = {**self.at, **at}
        for name, offset in offsets.items():
            step = self.lanes if name == self.kernel.lanes else 1
            result[name] = replace(result[name], number=result[name].number + offset * step)
        return result

    def steps(self, steps: Iterable[Mapping[str, Place]], rest: str | None, first: int = 0) -> Iterator[str]:
        """Some steps of the sum; with several sets of accumulators, each into the next, from the ``first`` on."""
        known: dict[str, str] = {}
        a, b = (self.kernel.operands[0] if len(self.kernel.operands) == 2 else None), self.kernel.operands[-1]
        for number, at in enumerate(steps, first):
            s = number % self.sets
            if a is None:
                for r, row in enumerate(self.rows):
                    for c, column in enumerate(self.columns):
                        lines, x = self._load(b, "b", self._moved(at, {**row, **column}), c, rest, known)
                        yield from lines
                        yield self._combined(_of_set(self.names[r][c], s), x)
                continue
            loaded = []
            for c, column in enumerate(self.columns):
                lines, y = self._load(b, "b", self._moved(at, column), c, rest, known)
                loaded.append(y)
                yield from lines
            for r, row in enumerate(self.rows):
                for c, (name, y) in enumerate(zip(self.names[r], loaded, strict=True)):
                    if c == 0 or (a.vector and not self.along_sum):
                        lines, x = self._load(a, "a", self._moved(at, {**row, **self.columns[c]}), c, rest, known)
                        yield from lines
                    sum_ = _of_set(name, s)
                    yield f"{sum_} = dot4_i32v({sum_}, {x}, {y});" if self.kernel.words else f"{sum_} += {x} * {y};"

    def ahead(self, steps: Iterable[Mapping[str, Place]]) -> Iterator[str]:
        """Ask for what some steps of a loop read from panels that do not stay in the nearest cache.

        A single row is done as fast as the next cache delivers, and asks only for what comes from behind that.
        """
        b = self.kernel.operands[-1]
        if b.panels is None:
            return
        assert self.piece is not None and self.piece.panel is not None
        itemsize, width = DTYPES[b.dtype].itemsize, self.piece.panel[1]
        size = next(axis.size for axis in self.kernel.out if axis.name == self.kernel.lanes)
        columns, kept = (width, kept_near(self.isa)) if len(self.rows) > 1 else (int(size), kept_next(self.isa))
        if columns * b.panels.rows * itemsize <= kept * PREFETCH_SHARE:
            return
        line = LINE // itemsize
        for at in steps:
            for column in self.columns:
                terms, number = self._terms(b, self._moved(at, column))
                if column.get(self.kernel.lanes, 0) * self.lanes % line == 0:
                    yield tidy(f"__builtin_prefetch({b.name} + {linear(terms, number)});")

    def _combined(self, name: str, x: str) -> str:
        if self.kernel.combine == "sum":
            return f"{name} += {x};"
        return f"{name} = {self.kernel.combine}_{self.vector}({name}, {x});"

    def _load(
        self,
        operand: Operand,
        letter: str,
        at: Mapping[str, Place],
        column: int,
        rest: str | None,
        known: dict[str, str],
    ) -> tuple[list[str], str]:
        """A variable with what an operand holds at a point, and the statement that loads it, unless one did."""
        where = self._index(operand, at)
        if dict(operand.strides).get(self.kernel.lanes) == 2:
            text = self._every_second(operand, at)
        elif self.kernel.words and not operand.vector:
            text = f"splat_word_i32v({operand.name}{'' if where == '0' else f' + {where}'})"
        elif not operand.vector:
            text = f"splat_{self.vector}({widened(f'{operand.name}[{where}]', operand.dtype, self.kernel.dtype)})"
        else:
            is_same = self.kernel.words or operand.dtype == self.kernel.dtype
            kind = self.sum if is_same else f"{operand.dtype}_as_{self.vector}"
            pointer = operand.name if where == "0" else f"{operand.name} + {where}"
            partial = rest
            if not self.along_sum and self.piece is not None and self.at_end[column]:
                partial = self.piece.rest
            if partial is None or (operand.padded and not self.along_sum):
                text = f"load_{kind}({pointer})"
            elif operand.padded:
                zero = "0.0" if self.kernel.dtype == "f64" else "0.0f"
                text = f"first_{self.vector}(load_{kind}({pointer}), {partial}, {zero})"
            else:
                text = f"load_part_{kind}({pointer}, {partial})"
        text = tidy(text)
        if text in known:
            return [], known[text]
        known[text] = name = f"{letter}{sum(n[0] == letter for n in known.values())}"
        return [f"const {self.sum} {name} = {text};"], name

    def _every_second(self, operand: Operand, at: Mapping[str, Place]) -> str:
        """A vector of every second element, of two loads that neighbours share."""
        terms, number = self._terms(operand, at)
        assert isinstance(number, int)
        start = number - number % 2
        first, second = (f"load_{self.vector}({operand.name} + {linear(terms, start + n)})" for n in (0, self.lanes))
        return f"{'odd' if number % 2 else 'even'}_{self.vector}({first}, {second})"

    def _index(self, operand: Operand, at: Mapping[str, Place]) -> str:
        """The element index at a point, as a sum of variables times numbers."""
        return linear(*self._terms(operand, at))

    def _terms(self, operand: Operand, at: Mapping[str, Place]) -> tuple[list[tuple[str, Dim]], Dim]:
        strides, number = dict(operand.strides), operand.offset
        terms: list[tuple[str, Dim]] = []
        factor = 1
        if operand.panels is not None:
            assert self.piece is not None and self.piece.panel is not None
            begin, factor = self.piece.panel
            lane, rows = at[self.kernel.lanes], operand.panels.rows
            del strides[self.kernel.lanes]
            if begin == self.kernel.lanes:  # the block is the panel
                terms.append((begin, rows))
                number = number + lane.number
            else:
                if isinstance(begin, str):
                    terms.append((begin, rows - 1))
                else:
                    number = number + begin * (rows - 1)
                if lane.variable is not None:
                    terms.append((lane.variable, 1))
                number = number + lane.number
        for name, stride in strides.items():
            place, step = at[name], times(stride, factor)
            number = number + times(step, place.number)
            if place.variable is not None:
                terms.append((place.variable, step))
        return terms, number

    def finish(self) -> Iterator[str | Nest]:
        """The epilogue of every accumulator, or of the gates of every vector."""
        cells = [(r, c) for r in range(len(self.rows)) for c in range(len(self.columns) // self.gates)]
        lines = self.kernel.epilogue if self.piece is None or self.piece.rest is None else self.kernel.rest
        if self.along_sum or len(lines) * len(cells) > EPILOGUE_STATEMENTS or (self.kernel.gates and len(cells) > 1):
            yield from self._finish_in_loops(cells, lines)
            return
        for r, c in cells:
            rest = self.piece.rest if self.piece is not None and self.at_end[c] else None
            at = self._moved({}, {**self.rows[r], **self.columns[c]})
            sums = self.names[r][c :: len(self.columns) // self.gates]
            text = self._put(self.kernel.epilogue if rest is None else self.kernel.rest, sums, at, rest)
            yield from (text if len(text) < 2 else [Nest("{", tuple(text))])

    def _finish_in_loops(self, cells: Sequence[tuple[int, int]], lines: tuple[str, ...]) -> Iterator[str | Nest]:
        names = [name for row in self.names for name in row]
        single = len(cells) == 1
        at: dict[str, str | Place] = dict(self.at)
        for name, count in zip(self.tiled, self.counts, strict=True):
            if count > 1 and name != self.kernel.gates:
                step = f" * {self.lanes}" if name == self.kernel.lanes else ""
                at[name] = f"{self.at[name]} + d_{name}{step}"
        inner: list[str | Nest] = []
        sums = names if single else [f"sums[{self._flat(g)}]" for g in range(self.gates)]
        if self.along_sum:
            ctype = "double" if self.kernel.dtype == "f64" else "float"
            if single:
                inner.append(f"const {ctype} dot = sum_lanes_{self.vector}({sums[0]});")
            else:
                yield from self._folded(names, ctype)
                inner.append(f"const {ctype} dot = dots[{self._flat()}];")
            sums = ["dot"]
        elif not single:
            yield f"const {self.sum} sums[] = {{{', '.join(names)}}};"
        rest = None
        if not self.along_sum and self.piece is not None and self.piece.rest is not None:
            j, size = at[self.kernel.lanes], self._size()
            rest = "rest"
            if any("{rest}" in line for line in lines):
                inner.append(f"const ptrdiff_t rest = {size} - ({j}) < {self.lanes} ? {size} - ({j}) : {self.lanes};")
        inner += self._put(lines, sums, at, rest)
        found: tuple[str | Nest, ...] = tuple(inner)
        for name, count in reversed([*zip(self.tiled, self.counts, strict=True)]):
            if count > 1 and name != self.kernel.gates:
                found = (Nest(f"for (ptrdiff_t d_{name} = 0; d_{name} < {count}; d_{name}++) {{", found),)
        yield from found if not single or len(found) < 2 else (Nest("{", found),)

    def _folded(self, names: Sequence[str], ctype: str) -> Iterator[str]:
        """The sums of the lanes of many vectors, side by side: neighbours are added until one vector holds them all."""
        groups = [names[i : i + self.lanes] for i in range(0, len(names), self.lanes)]
        yield f"{ctype} dots[{len(groups) * self.lanes}];"
        count = 0
        for number, group in enumerate(groups):
            size = 1 << (len(group) - 1).bit_length()
            found = [*group, *[group[0]] * (size - len(group))]
            half = self.lanes // 2
            while half:
                pairs = zip(found[::2], found[1::2], strict=True) if len(found) > 1 else [(found[0], found[0])]
                made: dict[tuple[str, str], str] = {}
                found = [made.setdefault(pair, f"h{count + len(made)}") for pair in pairs]
                for (x, y), name in made.items():
                    yield f"const {self.vector} {name} = fold{half}_{self.vector}({x}, {y});"
                count += len(made)
                half //= 2
            yield f"store_{self.vector}(dots + {number * self.lanes}, {found[0]});"

    def _size(self) -> Dim | str:
        return atom(next(axis.size for axis in self.kernel.out if axis.name == self.kernel.lanes))

    def _flat(self, gate: int = 0) -> str:
        """The number of an accumulator in the array of them."""
        terms, step, number = [], 1, 0
        for name, count in reversed([*zip(self.tiled, self.counts, strict=True)]):
            if name == self.kernel.gates:
                number = gate * step
            elif count > 1:
                terms.append((f"d_{name}", step))
            step *= count
        return linear(reversed(terms), number)

    def _put(
        self, lines: Iterable[str], sums: Sequence[str], at: Mapping[str, str | Place], rest: str | None
    ) -> list[str]:
        if self.kernel.words:
            sums = [f"__builtin_convertvector({name}, {self.vector})" for name in sums]
        result = []
        for line in lines:
            text = line.replace("{acc}", sums[0]).replace("{rest}", rest or "")
            for number, name in enumerate(sums):
                text = text.replace(f"{{acc{number}}}", name)
            for name, place in at.items():
                text = text.replace(f"{{{name}}}", str(place))
            result.append(tidy(text))
        return result


def _of_set(name: str, s: int) -> str:
    return f"{name}_{s}" if s else name


def _offsets(names: Sequence[str], counts: Mapping[str, int]) -> list[dict[str, int]]:
    """Every point of a tile along some variables, as offsets from its first."""
    ranges = [range(counts.get(name, 1)) for name in names]
    return [dict(zip(names, point, strict=True)) for point in product(*ranges)]


def _row_pieces(size: Dim, count: int) -> list[Piece]:
    """Blocks of ``count`` rows; of an unknown number, as many as there are, then a third as large, then single rows."""
    if isinstance(size, int):
        pieces, start = [], 0
        for extent, step in block_sizes(size, count, True):
            pieces.append(Piece(str(start), str(start + extent), step, step))
            start += extent
        return pieces
    text = atom(size)
    if count == 1:
        return [Piece("0", text, 1, 1)]
    third = max(count // 3, 1)
    pieces = [Piece("0", f"{text} - {count - 1}", count, count)]
    if third > 1:
        pieces.append(Piece(f"{text} / {count} * {count}", f"{text} - {third - 1}", third, third))
    return [*pieces, Piece(_done(size, count), text, 1, 1)]


def _done(size: Dim, count: int) -> str:
    """How many rows are in blocks of ``count`` and of a third of that."""
    text, third = atom(size), max(count // 3, 1)
    whole = f"{text} / {count} * {count}"
    return whole if third == 1 else f"{whole} + {text} % {count} / {third} * {third}"


def _lane_pieces(size: Dim, count: int, lanes: int) -> list[Piece]:
    if not isinstance(size, int):
        text = atom(size)
        return [
            Piece("0", f"{text} - {lanes - 1}", lanes, 1),
            Piece(f"{text} / {lanes} * {lanes}", text, lanes, 1, f"{text} - j"),
        ]
    return _vector_pieces(0, size, count, lanes, None)


def _vector_pieces(begin: int, size: int, count: int, lanes: int, panel: tuple[str | int, int] | None) -> list[Piece]:
    """From ``begin`` to ``size``, in blocks of at most ``count`` vectors, the last with what is left."""
    vectors, rest = -(-(size - begin) // lanes), (size - begin) % lanes
    pieces: list[Piece] = []
    start = begin
    for extent, step in block_sizes(vectors, count, True):
        end = start + extent * lanes
        pieces.append(Piece(str(start), str(end), step * lanes, step, None, panel))
        start = end
    if not rest:
        return pieces
    last = pieces.pop()
    block = int(last.end) - last.step
    if block > int(last.start):
        pieces.append(replace(last, end=str(block)))
    return [*pieces, replace(last, start=str(block), rest=str(rest))]


def _panel_pieces(size: int, count: int, lanes: int, width: int, unit: int) -> list[Piece]:
    """Whole panels in blocks that divide them, then the last one, which is a multiple of ``unit`` wide."""
    whole, vectors = size // width * width, width // lanes
    part = next(n for n in range(min(count, vectors), 0, -1) if vectors % n == 0)
    pieces: list[Piece] = []
    if whole == width:
        pieces.append(Piece("0", str(width), part * lanes, part, None, (0, width)))
    elif whole and part == vectors:
        pieces.append(Piece("0", str(whole), width, part, None, ("j", width)))
    elif whole:
        pieces.append(Piece("p", f"p + {width}", part * lanes, part, None, ("p", width)))
    if size > whole:
        last = (whole, -(-(size - whole) // unit) * unit)
        pieces += _vector_pieces(whole, size, count, lanes, last)
    return pieces
