"""The loops and register tiles of a contraction on one machine.

    for i in parallel(0, 64):                      for j in parallel(0, 512, 32):          blocks of columns
        for j in parallel(0, 512):                     for i in parallel(0, 60, 6):        blocks of rows
            acc = 0                         =>             c0_0: f32x16 = 0, ..            a variable for each of 6 x 2
            for k: acc = acc + x[i, k] * w[k, j]           for k: b0 = w[k, j:16], a0 = splat(x[i, k]), c0_0 = ..
            y[i, j] = relu(acc + bias[j])                  y[i, j:16] = relu(c0_0 + bias[j:16]), ..

Rows that fill no block come last, in tiles of their own. Within a tile every accumulator is a variable, values that
neighbours read are loaded once, and the epilogue stands for each accumulator, or in a loop over them where it is long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from mlaot.ir import DTYPES, Dim
from mlaot.ir.dims import dim
from mlaot.nest.expressions import (
    INDEX,
    Array,
    Call,
    Const,
    Expr,
    Index,
    Load,
    Panels,
    ValueType,
    Var,
    cast,
    splat,
)
from mlaot.nest.statements import (
    Alloc,
    Assign,
    Block,
    Body,
    For,
    Let,
    Mutable,
    Nest,
    Prefetch,
    Statement,
    Store,
    free,
    index_var,
    substituted,
    without_dead,
)
from mlaot.schedule.contraction import (
    DOT,
    Axis,
    Contraction,
    Operand,
    Schedule,
    block_sizes,
    column_names,
    contraction_of,
    gate_count,
    is_along_sum,
    kept_near,
    kept_next,
    lanes_of,
    nominal,
    one_by_one,
    row_names,
    schedule,
)
from mlaot.schedule.machine import LINE, Machine
from mlaot.schedule.tuning import (
    EPILOGUE_STATEMENTS,
    LONG_EPILOGUE_STATEMENTS,
    LONG_STEPS,
    PREFETCH_SHARE,
    PREFETCH_STEPS,
)
from mlaot.schedule.vectorize import vectorized

At = Mapping[str, Dim]  # where each variable is


@dataclass(frozen=True)
class Piece:
    """A part of an axis that is walked in equal blocks: of ``count`` points, or along the lanes of so many vectors.

    ``rest``: elements of the last vector, where it is partial; ``panel``: where the panel begins that a block lies in,
    and its width.
    """

    start: Dim
    end: Dim
    step: int
    count: int
    rest: Dim | None = None
    panel: tuple[Dim, int] | None = None


def tiled(nest: Nest, machine: Machine) -> Nest:
    """A contraction as ``machine`` runs it, by the schedule that is estimated or was measured to be the best."""
    kernel = contraction_of(nest)
    plan = schedule(kernel, machine)
    alone = one_by_one(kernel, plan, machine)
    tiles = _Tiles(kernel, plan, machine)
    if alone is None:
        blocks = tiles.nest(0, {}, {}, None)
    else:
        name, single = alone
        tiles.blocks, tiles.has_rest = name, True
        blocks = tiles.nest(0, {}, {}, None)
        rest = _Tiles(kernel, single, machine)
        rest.first[name], rest.has_rest = plan.counts[name], True
        blocks = (*blocks, *rest.nest(0, {}, {}, None))
    params = tuple(replace(a, panels=None) for a in nest.params)
    return replace(nest, params=params, body=without_dead((*kernel.once, *blocks)))


class _Tiles:
    """One kernel on one machine."""

    def __init__(self, kernel: Contraction, plan: Schedule, machine: Machine) -> None:
        self.kernel, self.plan, self.machine = kernel, plan, machine
        self.blocks: str | None = None  # the variable of which only whole blocks are done here
        self.has_rest = False  # whether other tiles do the rest: loops over one block stay loops, to be shared alike
        self.first: dict[str, int] = {}  # the size of the blocks along a variable that are done elsewhere
        self.lanes = lanes_of(kernel.dtype, machine)
        self.sum = ValueType(kernel.dtype, self.lanes)  # of an accumulator
        self.along_sum = is_along_sum(kernel)
        self.rows = [n for n in row_names(kernel) if n in self.plan.counts]
        self.columns = [n for n in column_names(kernel) if n in self.plan.counts]
        self.order = self._order()

    def _order(self) -> list[Axis]:
        """Loops from the outermost: what both operands move along, then rows and columns; tiled ones inside."""
        kernel, inside = self.kernel, self.plan.rows_inside
        rows, columns = row_names(kernel), [*column_names(kernel), kernel.lanes]

        def rank(axis: Axis) -> tuple[int, int]:
            group = 0 if axis.name not in rows + columns else 1 + ((axis.name in rows) == inside)
            return group, int(axis.name in self.plan.counts)

        return sorted(kernel.out, key=rank)

    def nest(self, depth: int, at: At, counts: Mapping[str, int], piece: Piece | None) -> Body:
        """The loops from ``depth`` on; ``piece``: the one along the lanes that they are in."""
        if depth == len(self.order):
            return tuple(self.tile(at, counts, piece))
        axis = self.order[depth]
        v, result = axis.name, list[Statement]()
        pieces = self.pieces(axis)
        for found in pieces:
            is_once = not self.has_rest and len(pieces) == 1 and _is_once(found)
            place = found.start if is_once else dim(v)
            along = found if v == self.kernel.lanes else piece
            inner = self.nest(depth + 1, {**at, v: place}, {**counts, v: found.count}, along)
            if is_once:
                result += inner
                continue
            result.append(_loop(v, found.start, found.end, inner, found.step, parallel=True))
        return tuple(result)

    def pieces(self, axis: Axis) -> list[Piece]:
        """The parts of an axis that are walked one after the other."""
        count = self.plan.counts.get(axis.name, 1)
        if axis.name in self.first:
            return [Piece(_done(axis.size, self.first[axis.name]), axis.size, 1, 1)]
        if axis.name != self.kernel.lanes:
            pieces = _row_pieces(axis.size, count)
            return pieces[:-1] if axis.name == self.blocks else pieces
        panels = next((o.panels for o in self.kernel.operands if o.panels), None)
        if panels is not None:
            return _panel_pieces(panels, count, self.lanes)
        return _lane_pieces(axis.size, count, self.lanes)

    def tile(self, at: At, counts: Mapping[str, int], piece: Piece | None) -> Iterator[Statement]:
        """One micro-kernel: accumulators, the summed loops, the epilogue."""
        rows = _offsets(self.rows, counts)
        columns = _offsets([*self.columns, *([] if self.along_sum else [self.kernel.lanes])], counts)
        names = [[f"c{r}_{c}" for c in range(len(columns))] for r in range(len(rows))]
        tile = _Tile(self, at, rows, columns, names, piece)
        start = splat(self.kernel.start, self.lanes)
        for s in range(self.plan.sets):
            yield from (Mutable(tile.accumulator(n, s), start) for row in names for n in row)
        yield from self._sum(0, {}, tile)
        sets = self.plan.sets
        while sets > 1:
            sets //= 2
            for s in range(sets):
                for name in (n for row in names for n in row):
                    into, other = tile.accumulator(name, s), tile.accumulator(name, s + sets)
                    yield Assign(into, Call("add", (into, other), self.sum))
        yield from tile.finish()

    def _sum(self, depth: int, at: At, tile: _Tile) -> Iterator[Statement]:
        """The loops over the summed variables from ``depth`` on."""
        summed = self.kernel.summed
        if depth == len(summed) - self.plan.unrolled or not summed:
            axes = summed[depth:]
            points = product(*[range(_known(axis.size)) for axis in axes])
            names = [axis.name for axis in axes]
            yield from tile.steps([{**at, **dict(zip(names, point, strict=True))} for point in points], None)
            return
        axis = summed[depth]
        if depth < len(summed) - 1:
            inner = tuple(self._sum(depth + 1, {**at, axis.name: dim(axis.name)}, tile))
            yield _loop(axis.name, 0, axis.size, inner)
        elif isinstance(axis.size, int):
            yield from self._sum_known(axis.name, axis.size, at, tile)
        else:
            yield from self._sum_unknown(axis.name, axis.size, at, tile)

    def _sum_known(self, v: str, size: int, at: At, tile: _Tile) -> Iterator[Statement]:
        """Whole steps of all sets of accumulators, then those that are left."""
        q, sets = (self.lanes if v == self.kernel.lanes else 1), self.plan.sets
        full, rest = divmod(size, q)
        main = full // sets * sets
        if main == sets:
            yield from tile.steps([{**at, v: s * q} for s in range(sets)], None)
        elif main:
            steps = [{**at, v: dim(v) + s * q} for s in range(sets)]
            later = [{**at, v: dim(v) + (s * q + PREFETCH_STEPS)} for s in range(sets)]
            yield _loop(v, 0, main * q, (*tile.ahead(later), *tile.steps(steps, None)), sets * q)
        if full > main:
            yield Block(tuple(tile.steps([{**at, v: s * q} for s in range(main, full)], None)))
        if rest:
            yield Block(tuple(tile.steps([{**at, v: full * q}], Index(rest), full - main)))

    def _sum_unknown(self, v: str, size: Dim, at: At, tile: _Tile) -> Iterator[Statement]:
        q, sets = (self.lanes if v == self.kernel.lanes else 1), self.plan.sets
        by = q * sets
        places = [dim(v) + s * q for s in range(sets)]
        yield _loop(v, 0, size + (1 - by), tuple(tile.steps([{**at, v: x} for x in places], None)), by)
        if q == 1:
            return
        blocks: list[Body] = []
        for s, place in enumerate(places):
            left: Expr = Index(-1 * place + size)
            if sets > 1:
                left = Call("most", (Index(0), Call("least", (left, Index(q)), INDEX)), INDEX)
            count = Let(Var("rest", INDEX), left)
            blocks.append((count, *tile.steps([{**at, v: place}], Index(dim("rest")), s)))
        body = blocks[0] if sets == 1 else tuple(map(Block, blocks))
        yield _loop(v, size // by * by, size, body, by)


class _Tile:
    """The statements of one micro-kernel."""

    def __init__(
        self,
        tiles: _Tiles,
        at: At,
        rows: Sequence[Mapping[str, int]],
        columns: Sequence[Mapping[str, int]],
        names: Sequence[Sequence[str]],
        piece: Piece | None,
    ) -> None:
        self.kernel, self.lanes, self.sum, self.machine = tiles.kernel, tiles.lanes, tiles.sum, tiles.machine
        self.along_sum, self.sets, self.gates = tiles.along_sum, tiles.plan.sets, max(gate_count(tiles.kernel), 1)
        self.tiled = [*tiles.rows, *tiles.columns, *([] if tiles.along_sum else [tiles.kernel.lanes])]
        self.at, self.rows, self.columns, self.names, self.piece = at, rows, columns, names, piece
        ends = max(point.get(tiles.kernel.lanes, 0) for point in columns)
        self.at_end = [point.get(tiles.kernel.lanes, 0) == ends for point in columns]  # along the lanes
        self.counts = [len({point[name] for point in (*rows, *columns) if name in point}) for name in self.tiled]

    def accumulator(self, name: str, s: int = 0) -> Var:
        """A variable of one of several sets."""
        return Var(f"{name}_{s}" if s else name, self.sum)

    def _moved(self, at: At, offsets: Mapping[str, int]) -> dict[str, Dim]:
        result = {**self.at, **at}
        for name, offset in offsets.items():
            result[name] = result[name] + offset * (self.lanes if name == self.kernel.lanes else 1)
        return result

    def steps(self, steps: Iterable[At], rest: Expr | None, first: int = 0) -> Iterator[Statement]:
        """Some steps of the sum; with several sets of accumulators, each into the next, from the ``first`` on."""
        loads = _Loads(self, rest)
        a, b = (self.kernel.operands[0] if len(self.kernel.operands) == 2 else None), self.kernel.operands[-1]
        for number, at in enumerate(steps, first):
            s = number % self.sets
            if a is None:
                for r, row in enumerate(self.rows):
                    for c, column in enumerate(self.columns):
                        x = loads.value(b, "b", self._moved(at, {**row, **column}), c)
                        yield from loads.new()
                        total = self.accumulator(self.names[r][c], s)
                        yield Assign(total, Call(self.kernel.combine, (total, x), self.sum))
                continue
            loaded = [loads.value(b, "b", self._moved(at, column), c) for c, column in enumerate(self.columns)]
            yield from loads.new()
            for r, row in enumerate(self.rows):
                x = loads.value(a, "a", self._moved(at, {**row, **self.columns[0]}), 0)
                for c, (name, y) in enumerate(zip(self.names[r], loaded, strict=True)):
                    if c and a.vector and not self.along_sum:
                        x = loads.value(a, "a", self._moved(at, {**row, **self.columns[c]}), c)
                    yield from loads.new()
                    yield self._added(self.accumulator(name, s), x, y)

    def _added(self, total: Var, x: Expr, y: Expr) -> Assign:
        """A product, or four of bytes, added to an accumulator."""
        if self.kernel.words:
            return Assign(total, Call(DOT, (total, x, y), self.sum))
        return Assign(total, Call("add", (total, Call("mul", (x, y), self.sum)), self.sum))

    def ahead(self, steps: Iterable[At]) -> Iterator[Statement]:
        """Ask for what some steps of a loop read from panels that do not stay in the nearest cache.

        A single row is done as fast as the next cache delivers, and asks only for what comes from behind that.
        """
        b = self.kernel.operands[-1]
        if b.panels is None:
            return
        assert self.piece is not None and self.piece.panel is not None
        itemsize, width = DTYPES[b.dtype].itemsize, self.piece.panel[1]
        size = next(axis.size for axis in self.kernel.out if axis.name == self.kernel.lanes)
        columns, kept = (
            (width, kept_near(self.machine)) if len(self.rows) > 1 else (_known(size), kept_next(self.machine))
        )
        if columns * b.panels.rows * itemsize <= kept * PREFETCH_SHARE:
            return
        line = LINE // itemsize
        for at in steps:
            for column in self.columns:
                if column.get(self.kernel.lanes, 0) * self.lanes % line == 0:
                    yield Prefetch(b.array, Index(self.index(b, self._moved(at, column))))

    def index(self, operand: Operand, at: At) -> Dim:
        """The element index at a point."""
        strides, factor, total = dict(operand.strides), 1, operand.offset
        if operand.panels is not None:
            assert self.piece is not None and self.piece.panel is not None
            begin, factor = self.piece.panel
            del strides[self.kernel.lanes]
            total = begin * (operand.panels.rows - 1) + at[self.kernel.lanes]
        for name, stride in strides.items():
            total = total + stride * factor * at[name]
        return total

    def finish(self) -> Iterator[Statement]:
        """The epilogue of every accumulator, or of the gates of every vector."""
        cells = [(r, c) for r in range(len(self.rows)) for c in range(len(self.columns) // self.gates)]
        count = len(self.kernel.epilogue) * len(cells)
        is_long = prod(nominal(axis.size) for axis in self.kernel.summed) >= LONG_STEPS
        most = LONG_EPILOGUE_STATEMENTS if is_long else EPILOGUE_STATEMENTS
        if self.along_sum or count > most or (self.kernel.gates and len(cells) > 1):
            yield from self._finish_in_loops(cells)
            return
        for r, c in cells:
            rest = self.piece.rest if self.piece is not None and self.at_end[c] else None
            at = self._moved({}, {**self.rows[r], **self.columns[c]})
            sums: list[Expr] = [self.accumulator(n) for n in self.names[r][c :: len(self.columns) // self.gates]]
            body = self._epilogue(sums, at, None if rest is None else Index(rest))
            yield from (body if len(body) < 2 else [Block(body)])

    def _epilogue(self, sums: Sequence[Expr], at: At, count: Expr | None) -> Body:
        """The epilogue for the sums of a vector, or for one number, at a point."""
        names = [f"acc{g}" for g in range(len(sums))] if self.kernel.gates else ["acc"]
        values = dict(zip(names, sums, strict=True))
        places = {name: Index(place) for name, place in at.items()}
        if self.along_sum:
            return substituted(self.kernel.epilogue, {**values, **places})
        body = vectorized(self.kernel.epilogue, self.kernel.lanes, self.lanes, count, values)
        return substituted(body, places)

    def _finish_in_loops(self, cells: Sequence[tuple[int, int]]) -> Iterator[Statement]:
        names = [name for row in self.names for name in row]
        single = len(cells) == 1
        at = dict(self.at)
        for name, count in zip(self.tiled, self.counts, strict=True):
            if count > 1 and name != self.kernel.gates:
                step = self.lanes if name == self.kernel.lanes else 1
                at[name] = self.at[name] + dim(f"d_{name}") * step
        inner: list[Statement] = []
        sums: list[Expr] = [self.accumulator(name) for name in names]
        if self.along_sum and single:
            dot = Var("dot", ValueType(self.kernel.dtype))
            inner.append(Let(dot, Call("sum_lanes", (sums[0],), dot.type)))
            sums = [dot]
        elif self.along_sum:
            dots, stores = self._folded(names)
            yield from stores
            sums = [dots[Index(self._flat())]]
        elif not single:
            array = Array("sums", self.sum.dtype, len(names) * self.lanes, "local")
            yield Alloc(array)
            yield from (Store(array, Index(i * self.lanes), x) for i, x in enumerate(sums))
            sums = [Load(array, Index(self._flat(g) * self.lanes), self.sum) for g in range(self.gates)]
        inner += self._with_count(sums, at)
        found = tuple(inner)
        for name, count in reversed([*zip(self.tiled, self.counts, strict=True)]):
            if count > 1 and name != self.kernel.gates:
                found = (_loop(f"d_{name}", 0, count, found),)
        yield from found if not single or len(found) < 2 else (Block(found),)

    def _with_count(self, sums: Sequence[Expr], at: At) -> Body:
        """The epilogue of one of several vectors, of which the last may be partial."""
        if self.along_sum or self.piece is None or self.piece.rest is None:
            return self._epilogue(sums, at, None)
        body = self._epilogue(sums, at, Index(dim("rest")))
        if "rest" not in free(body):
            return body
        size = next(axis.size for axis in self.kernel.out if axis.name == self.kernel.lanes)
        left = Index(at[self.kernel.lanes] * -1 + size)
        return (Let(Var("rest", INDEX), Call("least", (left, Index(self.lanes)), INDEX)), *body)

    def _folded(self, names: Sequence[str]) -> tuple[Array, list[Statement]]:
        """The sums of the lanes of many vectors, side by side: neighbours are added until one vector holds them all."""
        groups = [names[i : i + self.lanes] for i in range(0, len(names), self.lanes)]
        dots = Array("dots", self.kernel.dtype, len(groups) * self.lanes, "local")
        statements: list[Statement] = [Alloc(dots)]
        count = 0
        for number, group in enumerate(groups):
            size = 1 << (len(group) - 1).bit_length()
            found = [self.accumulator(n) for n in (*group, *[group[0]] * (size - len(group)))]
            half = self.lanes // 2
            while half:
                pairs = zip(found[::2], found[1::2], strict=True) if len(found) > 1 else [(found[0], found[0])]
                made: dict[tuple[Var, Var], Var] = {}
                found = [made.setdefault(pair, Var(f"h{count + len(made)}", self.sum)) for pair in pairs]
                statements += [Let(var, Call(f"fold{half}", pair, self.sum)) for pair, var in made.items()]
                count += len(made)
                half //= 2
            statements.append(Store(dots, Index(number * self.lanes), found[0]))
        return dots, statements

    def _flat(self, gate: int = 0) -> Dim:
        """The number of an accumulator in the array of them."""
        total: Dim = 0
        step = 1
        for name, count in reversed([*zip(self.tiled, self.counts, strict=True)]):
            if name == self.kernel.gates:
                total = total + gate * step
            elif count > 1:
                total = total + dim(f"d_{name}") * step
            step *= count
        return total


class _Loads:
    """The variables that hold what operands hold at points, each loaded once; ``rest`` lanes where that is given."""

    def __init__(self, tile: _Tile, rest: Expr | None) -> None:
        self.tile, self.kernel, self.rest = tile, tile.kernel, rest
        self.known: dict[Expr, Var] = {}
        self.statements: list[Statement] = []

    def new(self) -> list[Statement]:
        """The loads since the last time."""
        found, self.statements = self.statements, []
        return found

    def value(self, operand: Operand, letter: str, at: At, column: int) -> Var:
        """What an operand holds at a point, in lanes."""
        x = self.expression(operand, Index(self.tile.index(operand, at)), column)
        if x not in self.known:
            number = sum(var.name[0] == letter for var in self.known.values())
            self.known[x] = Var(f"{letter}{number}", x.type)
            self.statements.append(Let(self.known[x], x))
        return self.known[x]

    def expression(self, operand: Operand, index: Index, column: int) -> Expr:
        tile, dtype, lanes = self.tile, self.kernel.dtype, self.tile.lanes
        if dict(operand.strides).get(self.kernel.lanes) == 2:
            return self._every_second(operand, index)
        if not operand.vector:
            if self.kernel.words:
                return Call("splat_word", (operand.array[index],), tile.sum)
            return splat(cast(operand.array[index], dtype), lanes)
        partial = self.rest
        if not tile.along_sum and tile.piece is not None and tile.at_end[column]:
            partial = None if tile.piece.rest is None else Index(tile.piece.rest)
        count = None if operand.padded else partial
        vector = ValueType(operand.dtype, lanes)
        x = cast(Load(operand.array, index, vector, count=count, padded=operand.padded), dtype)
        if partial is not None and operand.padded and tile.along_sum:
            x = Call("first", (x, partial, Const(0.0, ValueType(dtype))), x.type)
        return x

    def _every_second(self, operand: Operand, index: Index) -> Expr:
        """A vector of every second element, of two loads that neighbours share."""
        number = _constant(index.value)
        start = index + -(number % 2)
        first, second = (Load(operand.array, start + n, self.tile.sum) for n in (0, self.tile.lanes))
        return Call("odd" if number % 2 else "even", (first, second), self.tile.sum)


def _constant(value: Dim) -> int:
    """The part of a polynomial that is a number."""
    return value if isinstance(value, int) else next((n for monomial, n in value.terms if not monomial), 0)


def _loop(v: str, low: Dim, high: Dim, body: Iterable[Statement], step: int = 1, parallel: bool = False) -> For:
    return For(index_var(v), Index(low), Index(high), tuple(body), step, parallel)


def _is_once(piece: Piece) -> bool:
    """Whether a piece is a single block."""
    return isinstance(piece.start, int) and isinstance(piece.end, int) and piece.start + piece.step >= piece.end


def _known(size: Dim) -> int:
    assert isinstance(size, int), f"bug in mlaot: tiles along {size}"
    return size


def _offsets(names: Sequence[str], counts: Mapping[str, int]) -> list[dict[str, int]]:
    """Every point of a tile along some variables, as offsets from its first."""
    ranges = [range(counts.get(name, 1)) for name in names]
    return [dict(zip(names, point, strict=True)) for point in product(*ranges)]


def _row_pieces(size: Dim, count: int) -> list[Piece]:
    """Blocks of ``count`` rows; of an unknown number, as many as there are, then a third as large, then single rows."""
    if isinstance(size, int):
        pieces, start = list[Piece](), 0
        for extent, step in block_sizes(size, count, True):
            pieces.append(Piece(start, start + extent, step, step))
            start += extent
        return pieces
    if count == 1:
        return [Piece(0, size, 1, 1)]
    third = max(count // 3, 1)
    pieces = [Piece(0, size + (1 - count), count, count)]
    if third > 1:
        pieces.append(Piece(size // count * count, size + (1 - third), third, third))
    return [*pieces, Piece(_done(size, count), size, 1, 1)]


def _done(size: Dim, count: int) -> Dim:
    """How many rows are in blocks of ``count`` and of a third of that."""
    whole, third = size // count * count, max(count // 3, 1)
    left = size + whole * -1
    return whole if third == 1 else whole + left // third * third


def _lane_pieces(size: Dim, count: int, lanes: int) -> list[Piece]:
    if not isinstance(size, int):
        left = dim("j") * -1 + size
        return [Piece(0, size + (1 - lanes), lanes, 1), Piece(size // lanes * lanes, size, lanes, 1, left)]
    return _vector_pieces(0, size, count, lanes, None)


def _vector_pieces(begin: int, size: int, count: int, lanes: int, panel: tuple[Dim, int] | None) -> list[Piece]:
    """From ``begin`` to ``size``, in blocks of at most ``count`` vectors, the last with what is left."""
    vectors, rest = -(-(size - begin) // lanes), (size - begin) % lanes
    pieces: list[Piece] = []
    start = begin
    for extent, step in block_sizes(vectors, count, True):
        end = start + extent * lanes
        pieces.append(Piece(start, end, step * lanes, step, None, panel))
        start = end
    if not rest:
        return pieces
    last = pieces.pop()
    block = _known(last.end) - last.step
    if block > _known(last.start):
        pieces.append(replace(last, end=block))
    return [*pieces, replace(last, start=block, end=size, rest=rest)]


def _panel_pieces(panels: Panels, count: int, lanes: int) -> list[Piece]:
    """Whole panels in blocks that divide them, then the last one, which is a multiple of its unit wide."""
    size, width, unit = panels.columns, panels.width, panels.unit
    whole, vectors = size // width * width, width // lanes
    part = next(n for n in range(min(count, vectors), 0, -1) if vectors % n == 0)
    pieces: list[Piece] = []
    if whole == width:
        pieces.append(Piece(0, width, part * lanes, part, None, (0, width)))
    elif whole and part == vectors:
        pieces.append(Piece(0, whole, width, part, None, (dim("j"), width)))
    elif whole:
        pieces.append(Piece(0, whole, part * lanes, part, None, (dim("j") // width * width, width)))
    if size > whole:
        last = (whole, -(-(size - whole) // unit) * unit)
        pieces += _vector_pieces(whole, size, count, lanes, last)
    return pieces
