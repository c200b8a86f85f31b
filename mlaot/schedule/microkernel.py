"""A micro-kernel: one register tile of accumulators, and the loads and multiply-adds of each step of its sum.

    c0_0, c0_1           b0 b1        for k in range(0, 784):
    c1_0, c1_1   +=  a0  .  .             b0 = w[k * 512 + j:16]; b1 = w[k * 512 + j + 16:16]
    c2_0, c2_1       a1  .  .             a0 = splat(x[i * 784 + k]); c0_0 = c0_0 + a0 * b0; c0_1 = c0_1 + a0 * b1
                     a2  .  .             a1 = splat(x[i * 784 + 784 + k]); ..

A step is an outer product: a column of the broadcast operand times a row of vectors of the other operand (Goto and van
de Geijn, Anatomy of High-Performance Matrix Multiplication, 2008, section 4). Accumulators are variables, never an
array, so that compilers keep them in registers. Every vector is loaded once for all rows of the tile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from mlaot.ir import DTYPES, Dim
from mlaot.nest.expressions import Call, Const, Expr, Index, Load, ValueType, Var, cast, splat
from mlaot.nest.statements import Assign, Let, Mutable, Prefetch, Statement
from mlaot.schedule.contraction import DOTS, FIELD, Contraction, Operand, gate_count, is_along_sum, lanes_of
from mlaot.schedule.cost import Schedule, operand_bytes
from mlaot.schedule.machine import LINE, Machine
from mlaot.schedule.segments import Segment
from mlaot.schedule.traffic import first_level_bytes, second_level_bytes
from mlaot.schedule.tuning import PREFETCH_LINES, PREFETCH_SHARE

Point = Mapping[str, Dim]  # the value of each variable
Offsets = Mapping[str, int]  # of a row or a column of the tile, from the tile's first point


class Tile:
    """The accumulators of one micro-kernel: ``names[row][column]``, at the point ``at``.

    ``segment`` is the segment of the axis along the lanes. ``counts`` has the number of points along each of ``axes``.
    ``first`` is the number of the first column, for a part of a tile.
    """

    def __init__(
        self,
        kernel: Contraction,
        plan: Schedule,
        machine: Machine,
        at: Point,
        rows: Sequence[Offsets],
        columns: Sequence[Offsets],
        segment: Segment | None,
        first: int = 0,
    ) -> None:
        self.kernel, self.plan, self.machine, self.at, self.segment = kernel, plan, machine, at, segment
        self.rows, self.columns, self.sets = rows, columns, plan.sets
        self.lanes, self.gates = lanes_of(kernel.dtype, machine), max(gate_count(kernel), 1)
        self.type = ValueType(kernel.dtype, self.lanes)
        self.along_sum = is_along_sum(kernel)
        self.names = [[f"c{r}_{c}" for c in range(first, first + len(columns))] for r in range(len(rows))]
        self.axes = [*rows[0], *columns[0]]
        last = max(point.get(kernel.lanes, 0) for point in columns)
        self.is_last_vector = [point.get(kernel.lanes, 0) == last for point in columns]
        self.counts = [len({point[name] for point in (*rows, *columns) if name in point}) for name in self.axes]

    def part(self, first: int, count: int) -> Tile:
        """Return the tile of ``count`` columns from the number ``first`` on."""
        columns = self.columns[first : first + count]
        return Tile(self.kernel, self.plan, self.machine, self.at, self.rows, columns, self.segment, first)

    def of(self, kernel: Contraction) -> Tile:
        """Return the same tile of a kernel with other operands."""
        return Tile(kernel, self.plan, self.machine, self.at, self.rows, self.columns, self.segment)

    def load(self, operand: Operand, index: Index, column: int) -> Load:
        """Return the load of a vector of a column, which is partial where lanes are missing."""
        return _Loads(self, None).load(operand, index, column)

    def accumulator(self, name: str, s: int = 0) -> Var:
        """Return the variable of an accumulator in the set number ``s``."""
        return Var(f"{name}_{s}" if s else name, self.type)

    def group_sum(self, row: int, column: int) -> Var:
        """Return the variable of the sum of a group of weights, of integers."""
        return Var(f"part{row}_{column}", ValueType("i32", self.lanes))

    def point(self, at: Point, offsets: Offsets) -> dict[str, Dim]:
        """Return the point of the tile at which the summed variables are ``at``, for a row, a column or both."""
        result = {**self.at, **at}
        for name, offset in offsets.items():
            result[name] = result[name] + offset * (self.lanes if name == self.kernel.lanes else 1)
        return result

    def steps(self, points: Iterable[Point], count: Expr | None, first: int = 0) -> Iterator[Statement]:
        """Yield steps of the sum, each into the next set of accumulators, from the set ``first`` on.

        ``count`` is the number of lanes of a vector along the sum, if not all.
        """
        loads = _Loads(self, count)
        a, b = (self.kernel.operands[0] if len(self.kernel.operands) == 2 else None), self.kernel.operands[-1]
        for number, at in enumerate(points, first):
            s = number % self.sets
            if a is None:
                for r, row in enumerate(self.rows):
                    for c, column in enumerate(self.columns):
                        x = loads.value(b, "b", self.point(at, {**row, **column}), c)
                        yield from loads.take()
                        total = self.accumulator(self.names[r][c], s)
                        yield Assign(total, Call(self.kernel.combine, (total, x), self.type))
                continue
            vectors = [loads.value(b, "b", self.point(at, column), c) for c, column in enumerate(self.columns)]
            yield from loads.take()
            for r, row in enumerate(self.rows):
                x = loads.value(a, "a", self.point(at, {**row, **self.columns[0]}), 0)
                for c, (name, y) in enumerate(zip(self.names[r], vectors, strict=True)):
                    if c and a.vector and not self.along_sum:
                        x = loads.value(a, "a", self.point(at, {**row, **self.columns[c]}), c)
                    yield from loads.take()
                    total = self.group_sum(r, c) if self.kernel.groups else self.accumulator(name, s)
                    yield self._multiply_add(total, x, y)

    def _multiply_add(self, total: Var, x: Expr, y: Expr) -> Assign:
        if self.kernel.dot:
            return Assign(total, Call(self.kernel.dot, (total, x, y), self.type))
        if self.kernel.groups and total.type.dtype != self.kernel.dtype:
            dot = self.kernel.groups.dot
            return Assign(total, Call(dot, (total, y, x) if dot in DOTS else (total, x, y), total.type))
        if self.kernel.power:
            x = y = Call("sub", (x, y), self.type)
        if self.kernel.power == 1:
            return Assign(total, Call("add", (total, Call("abs", (x,), self.type)), self.type))
        return Assign(total, Call("add", (total, Call("mul", (x, y), self.type)), self.type))

    def group_starts(self, at: Point) -> Iterator[Statement]:
        """Yield the accumulators of a group."""
        assert self.kernel.groups is not None
        start = self.kernel.groups.start
        for r, row in enumerate(self.rows):
            number: Expr = Const(0, ValueType("i32"))
            if start is not None:
                number = start.array[self.index(start, self.point(at, {**row, **self.columns[0]}))]
            yield from (Mutable(self.group_sum(r, c), splat(number, self.lanes)) for c in range(len(self.columns)))

    def group_ends(self, at: Point) -> Iterator[Statement]:
        """Yield the statements that add the scaled sums of a group to the sums of all groups."""
        assert self.kernel.groups is not None
        scale, row_scale = self.kernel.groups.scale, self.kernel.groups.row_scale
        scales = [Var(f"scale{c}", self.type) for c in range(len(self.columns))]
        for c, column in enumerate(self.columns):
            index = Index(self.index(scale, self.point(at, {**self.rows[0], **column})))
            yield Let(scales[c], cast(self.load(scale, index, c), self.kernel.dtype))
        for r, row in enumerate(self.rows):
            number = row_scale.array[self.index(row_scale, self.point(at, {**row, **self.columns[0]}))]
            own = Var(f"row_scale{r}", self.type)
            yield Let(own, splat(number, self.lanes))
            for c, (name, other) in enumerate(zip(self.names[r], scales, strict=True)):
                part = cast(self.group_sum(r, c), self.kernel.dtype)
                yield self._multiply_add(self.accumulator(name), part, Call("mul", (other, own), self.type))

    def prefetch(self, points: Iterable[Point], later: Iterable[Point]) -> Iterator[Statement]:
        """Prefetch the data of later steps from panels, or from further rows of an array, that no near cache holds.

        A tile of several panels reads as many streams, which hardware prefetches early enough from the second level.
        """
        b = self.kernel.operands[-1]
        if b.panels is None:
            yield from self._prefetch_rows(b, points)
            return
        is_far = LINE * b.panels.rows > first_level_bytes(self.machine) * PREFETCH_SHARE
        if len(self.columns) * self.lanes > b.panels.width:
            is_far = operand_bytes(self.kernel, b) > second_level_bytes(self.machine)
        if is_far:
            for at in later:
                yield from self.prefetch_panels(at)

    def prefetch_panels(self, later: Point) -> Iterator[Statement]:
        """Prefetch the elements of each panel that a later step reads."""
        b = self.kernel.operands[-1]
        of_panels = self.columns[:: max(b.panels.width // self.lanes, 1)] if b.panels else ()
        for column in of_panels:
            yield Prefetch(b.array, Index(self.index(b, self.point(later, column))))

    def _prefetch_rows(self, b: Operand, points: Iterable[Point]) -> Iterator[Statement]:
        """Prefetch rows that tiles read line by line from the next page, where hardware prefetching stops."""
        line = LINE // DTYPES[b.dtype].itemsize
        firsts = [column for column in self.columns if column.get(self.kernel.lanes, 0) == 0]  # one of each stream
        is_dense = len(self.columns) * self.lanes == len(firsts) * line
        if not is_dense or self.along_sum or not b.vector or dict(b.strides).get(self.kernel.summed[-1].name) != line:
            return
        size = operand_bytes(self.kernel, b)
        if isinstance(b.array.size, int):  # windows read elements several times
            size = min(size, b.array.size * DTYPES[b.dtype].itemsize)
        if len(self.rows) > 1 and size > second_level_bytes(self.machine):
            for at in points:
                places = (self.index(b, self.point(at, first)) + PREFETCH_LINES * line for first in firsts)
                yield from (Prefetch(b.array, Index(place)) for place in places)

    def index(self, operand: Operand, at: Point) -> Dim:
        """Return the element index of an operand at a point.

        In panels, whose strides count rows, it is ``begin * rows + row * width + (column - begin)`` for the panel of
        that width that begins at column ``begin``.
        """
        strides, width, total = dict(operand.strides), 1, operand.offset
        if operand.panels is not None:
            assert self.segment is not None and self.segment.panel is not None
            width, lanes = operand.panels.width, self.kernel.lanes
            del strides[lanes]
            behind = at[lanes] - self.at[lanes]  # columns behind those of the tile's first vector
            assert isinstance(behind, int), f"bug in mlaot: {behind} columns within a tile"
            begin = self.segment.panel + behind // width * width
            total = begin * (operand.panels.rows - 1) + at[lanes]
        for name, stride in strides.items():
            total = total + stride * width * at[name]
        return total


class _Loads:
    """The variables that hold elements of operands; a value that several accumulators need is loaded once."""

    def __init__(self, tile: Tile, count: Expr | None) -> None:
        self.tile, self.kernel, self.count = tile, tile.kernel, count
        self.variables: dict[Expr, Var] = {}
        self.words: dict[Expr, Var] = {}
        self.statements: list[Statement] = []

    def take(self) -> list[Statement]:
        """Return the loads since the last call."""
        statements, self.statements = self.statements, []
        return statements

    def value(self, operand: Operand, letter: str, at: Point, column: int) -> Var:
        """Return the variable of an operand's value at a point, in lanes; load it if it is new."""
        index = Index(self.tile.index(operand, at))
        if self.kernel.groups is not None and operand.vector:
            load = self.load(operand, index, column)
            x: Expr = self._fields(load, int(at[FIELD]), self.kernel.groups.bits)
        else:
            x = self._expression(operand, index, column)
            if operand.vector and self._is_shared(letter):
                x = Call("held", (x,), x.type)
        if x not in self.variables:
            number = sum(var.name[0] == letter for var in self.variables.values())
            self.variables[x] = Var(f"{letter}{number}", x.type)
            self.statements.append(Let(self.variables[x], x))
        return self.variables[x]

    def _is_shared(self, letter: str) -> bool:
        """Tell whether two products of floats along the sum need a vector."""
        others = self.tile.columns if letter == "a" else self.tile.rows
        return self.tile.along_sum and len(others) > 1 and not self.kernel.has_integer_sums

    def _expression(self, operand: Operand, index: Index, column: int) -> Expr:
        """Return the expression of a load: a vector, perhaps partial or converted, or one element in every lane."""
        tile, dtype, lanes = self.tile, self.kernel.dtype, self.tile.lanes
        if dict(operand.strides).get(self.kernel.lanes) == 2:
            return self._every_second(operand, index, column)
        if not operand.vector:
            if self.kernel.dot or self.kernel.groups:
                return Call("splat_word", (operand.array[index],), ValueType("i32", lanes))
            return splat(cast(operand.array[index], dtype), lanes)
        load = self.load(operand, index, column)
        x, partial = cast(load, dtype), self._partial(column)
        if partial is not None and operand.padded and tile.along_sum:
            # A whole vector is loaded, and the lanes that are no elements of the sum become zeros.
            x = Call("first", (x, partial, Const(0.0, ValueType(dtype))), x.type)
        return x

    def load(self, operand: Operand, index: Index, column: int) -> Load:
        """Return the load of a vector, which is partial where lanes are missing and there is no padding."""
        count = None if operand.padded else self._partial(column)
        return Load(operand.array, index, ValueType(operand.dtype, self.tile.lanes), count=count, padded=operand.padded)

    def _partial(self, column: int) -> Expr | None:
        """Return the number of lanes of a vector, if not all."""
        tile = self.tile
        if not tile.along_sum and tile.segment is not None and tile.is_last_vector[column]:
            return None if tile.segment.partial is None else Index(tile.segment.partial)
        return self.count

    def _fields(self, load: Load, number: int, bits: int) -> Expr:
        """Return the fields with a number in a vector of words: four halves of bytes, or two signed bytes."""
        if load not in self.words:
            self.words[load] = Var(f"word{len(self.words)}", load.type)
            self.statements.append(Let(self.words[load], load))
        if bits == 4:
            return Call("nibbles", (self.words[load], Index(4 * number)), load.type)
        return Call("halves", (self.words[load], Index(8 * (1 - number)), Index(8)), load.type)

    def _every_second(self, operand: Operand, index: Index, column: int) -> Expr:
        """Return a vector of every second element, if there is room from two loads that begin at an even element.

        So the vectors at ``2 j`` and ``2 j + 1``, which neighbouring taps of a window read, share both loads.
        """
        if not operand.padded:
            return replace(self.load(operand, index, column), step=2)
        value = index.value
        number = value if isinstance(value, int) else next((n for monomial, n in value.terms if not monomial), 0)
        start = index + -(number % 2)
        first, second = (Load(operand.array, start + n, self.tile.type) for n in (0, self.tile.lanes))
        return Call("odd" if number % 2 else "even", (first, second), self.tile.type)
