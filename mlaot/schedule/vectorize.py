"""Vectors along a loop: the same statements on as many numbers at a time as a vector of the machine has.

    for j in vector(0, 1000):              s_all0: f32x16 = 0, ..
        s = s + x[j]                =>     for j in range(0, 960, 64): s_all0 = s_all0 + x[j:16]; s_all1 = ..
                                           for j in range(960, 992, 16): s_all0 = s_all0 + x[j:16]
                                           s_all0 = s_all0 + first(x[992:16, 8], 8, 0)
                                           s = sum_lanes((s_all0 + s_all1) + (s_all2 + s_all3))

Loads and stores along the loop are of elements side by side, or so many apart; what does not depend on it is computed
once. A sum has several accumulators where one would be waited for. Where the bits must not depend on the machine,
``machine.parts`` vectors stand for one of 64 bytes, each with an accumulator of its own; sums are then combined in
halves: of vectors, then of lanes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mlaot.ir.dims import Dim, dim, names, step_of
from mlaot.ir.types import DTYPES
from mlaot.nest.expressions import (
    COMPARISONS,
    INDEX,
    Array,
    Call,
    Const,
    Expr,
    Index,
    Load,
    ValueType,
    Var,
    cast,
    children,
    is_float,
    map_parts,
    mask_of,
    select,
    splat,
    subexpressions,
    variables,
)
from mlaot.nest.reductions import BY_FUNCTION
from mlaot.nest.statements import (
    Assign,
    Block,
    Body,
    For,
    If,
    Let,
    Mutable,
    Statement,
    Store,
    expressions,
    free_variables,
    substitute_body,
    walk,
    written_arrays,
)
from mlaot.schedule.machine import LINE
from mlaot.schedule.tuning import STAGE_LINES_ONCE


class CannotVectorizeError(Exception):
    """A loop that has no form in lanes; it stays as it is."""


def vectorized(
    body: Body, var: str, lanes: int, count: Expr | None = None, values: Mapping[str, Expr] | None = None
) -> Body:
    """Statements on numbers as statements on ``lanes`` of them, along the index ``var``, which is that of the first.

    ``count``: how many lanes there are, where not all; ``values``: of variables that are lanes already.
    """
    return _Lanes(var, lanes, count, dict(values or {})).body(body)


@dataclass
class _Lanes:
    """Takes expressions and statements to lanes; ``values`` are the variables that differ from lane to lane."""

    var: str
    lanes: int
    count: Expr | None
    values: dict[str, Expr]
    width: int = 0  # bits of a truth value that is loaded; 0: those of the widest number

    def body(self, body: Body) -> Body:
        return tuple(self.statement(s) for s in body)

    def statement(self, s: Statement) -> Statement:
        if isinstance(s, Let):
            x = self.expression(s.value)
            if x.type.lanes == 1:
                return Let(s.var, x)
            self.values[s.var.name] = var = Var(s.var.name, x.type)
            return Let(var, x)
        if isinstance(s, Mutable):
            x = self.spread(self.expression(s.value))
            self.values[s.var.name] = var = Var(s.var.name, x.type)
            return Mutable(var, x)
        if isinstance(s, Assign):
            known = self.values.get(s.var.name)
            if not isinstance(known, Var):
                raise CannotVectorizeError(f"{s.var.name} is carried from one round to the next")
            return Assign(known, cast(self.spread(self.expression(s.value)), known.type.dtype))
        if isinstance(s, Store):
            return self.store(s)
        if isinstance(s, For) and self.var not in variables(s.low) | variables(s.high):
            return replace(s, body=self.body(s.body))
        if isinstance(s, Block):
            return Block(self.body(s.body))
        if isinstance(s, If):
            condition = self.expression(s.condition)
            if condition.type.lanes == 1:
                return If(condition, self.body(s.body), self.body(s.otherwise))
        raise CannotVectorizeError(f"{type(s).__name__} along lanes")

    def store(self, s: Store) -> Store:
        step = self.stride(s.index)
        if step == 0:
            raise CannotVectorizeError(f"all lanes are stored in one element of {s.array.name}")
        value = self.spread(self.expression(s.value))
        count = None if s.padded and step == 1 and self.in_padding(s.array) else self.count
        return replace(s, value=value, step=step, count=count)

    def in_padding(self, array: Array) -> bool:
        """Whether all lanes are within the padding: that of rows whose elements are converted may be shorter."""
        return self.lanes * DTYPES[array.dtype].itemsize <= LINE

    def stride(self, index: Expr) -> Dim:
        """How far apart the elements of neighbouring lanes are."""
        if not isinstance(index, Index) or variables(index) & self.values.keys():
            raise CannotVectorizeError("an index that differs from lane to lane otherwise than by a step")
        if self.var not in names(index.value):
            return 0
        step = step_of(index.value, self.var)
        if self.var in names(step):
            raise CannotVectorizeError("an index that is no multiple of the loop's variable")
        return step

    def spread(self, x: Expr) -> Expr:
        """``x`` in every lane, where it is one value for all."""
        if x.type.lanes != 1:
            return x
        if x.type.dtype == "bool":
            return Call("splat", (x,), ValueType(f"m{self.width}", self.lanes))
        return splat(x, self.lanes)

    def expression(self, x: Expr) -> Expr:
        """``x``, in lanes where it differs from lane to lane."""
        if isinstance(x, Var):
            return self.values.get(x.name, x)
        if isinstance(x, Const):
            return x
        if isinstance(x, Index):
            if variables(x) & {self.var, *self.values}:
                raise CannotVectorizeError("an index that is computed with in lanes")
            return x
        if isinstance(x, Load):
            return self.load(x)
        if x.name == "cast" and isinstance(x.args[0], Index) and self.var in variables(x.args[0]):
            return self.numbers(x.args[0], x.type)
        args = [self.expression(a) for a in x.args]
        if all(a.type.lanes == 1 for a in args):
            return map_parts(x, self.expression)
        return self.call(x, [a if a.type == INDEX else self.spread(a) for a in args])

    def numbers(self, x: Index, type_: ValueType) -> Expr:
        """The number of each lane along the loop."""
        if self.stride(x) != 1 or type_.dtype not in ("f32", "f64"):
            raise CannotVectorizeError(f"numbers of lanes as {type_}")
        return Call("lane", (x,), ValueType(type_.dtype, self.lanes))

    def load(self, x: Load) -> Expr:
        step = self.stride(x.index)
        if step == 0:
            return x
        count = None if x.padded and step == 1 and self.in_padding(x.array) else self.count
        dtype = "m8" if x.type.dtype == "bool" else x.type.dtype
        found = replace(x, type=ValueType(dtype, self.lanes), step=step, count=count)
        return cast(found, f"m{self.width}") if dtype == "m8" else found

    def call(self, x: Call, args: Sequence[Expr]) -> Expr:
        if x.name in COMPARISONS:
            return Call(x.name, tuple(args), mask_of(args[0].type))
        if x.name == "select":
            return select(cast(args[0], mask_of(args[1].type).dtype), args[1], args[2])
        if x.name == "cast":
            dtype = x.type.dtype
            return cast(args[0], mask_of(args[0].type).dtype if dtype == "bool" else dtype)
        if x.name == "convert":  # whole numbers, which become bytes as they are stored
            return args[0]
        dtype = args[0].type.dtype if x.type.dtype == "bool" else x.type.dtype
        return Call(x.name, tuple(args), ValueType(dtype, self.lanes))


def width_of(loop: For) -> int:
    """Bits of the widest number in lanes along a loop; elements that are converted as they are loaded are none.

    Raises:
        CannotVectorizeError: The body has no form in lanes.
    """
    several = 2
    assigned = {s.var.name: s.var.type for s in walk(loop.body) if isinstance(s, Assign)}
    values: dict[str, Expr] = {n: Var(n, ValueType(t.dtype, several)) for n, t in assigned.items()}
    body = _Lanes(loop.var.name, several, None, values, 64).body(loop.body)
    found = [s.value for s in walk(body) if isinstance(s, Let | Mutable | Assign | Store)]
    numbers = [x for value in found for x in _computed(value) if x.type.lanes == several]
    other = next((x.type.dtype for x in numbers if not _has_lanes(x)), None)
    if other is not None:
        raise CannotVectorizeError(f"{other} in lanes")
    return max((8 * DTYPES[x.type.dtype].itemsize for x in numbers), default=0)


def _has_lanes(x: Expr) -> bool:
    """Whether there are vectors of such numbers: integers are only moved."""
    is_moved = isinstance(x, Const | Load | Var) or (isinstance(x, Call) and x.name == "splat")
    return is_float(x.type.dtype) or (x.type.dtype in ("i32", "i64") and is_moved)


def _computed(x: Expr) -> Iterator[Expr]:
    """The expressions that are numbers, inside an expression."""
    if not x.type.dtype.startswith("m") and x.type.dtype not in ("bool", "index"):
        yield x
    is_converted = isinstance(x, Call) and x.name == "cast" and isinstance(x.args[0], Load)
    for part in () if is_converted or isinstance(x, Load) else children(x):
        yield from _computed(part)


@dataclass(frozen=True)
class Accumulator:
    """A mutable variable that a loop combines values into: by which function, starting from what."""

    var: Var
    function: str
    start: Expr


@dataclass
class VectorLoop:
    """One loop on its way to vectors: ``lanes`` along it, ``parts`` vectors at a time, ``chains`` of these."""

    loop: For
    accumulators: dict[str, Accumulator]
    lanes: int
    width: int
    parts: int
    chains: int
    prologue: list[Statement] = field(default_factory=list)

    def result(self) -> tuple[Body, Body, Body]:
        """What stands before the loops, the loops, and what stands after them."""
        self.loop = replace(self.loop, body=self.hoisted(self.loop.body))
        loops = self.loops()
        before = [
            Mutable(var, splat(a.start, self.lanes)) for a in self.accumulators.values() for var in self.variables(a)
        ]
        after = [Let(a.var, self.combined(a)) for a in self.accumulators.values()]
        return (*self.prologue, *before), loops, tuple(after)

    def hoisted(self, body: Body) -> Body:
        """A body without what is the same in all rounds, which goes before the loop."""
        stored = written_arrays(body)
        changing = {self.loop.var.name} | {s.var.name for s in walk(body) if isinstance(s, Assign | For)}
        kept: list[Statement] = []
        for s in body:
            is_let = isinstance(s, Let) and not variables(s.value) & changing
            if is_let and isinstance(s, Let) and not _reads(s.value) & stored:
                self.prologue.append(s)
                continue
            if isinstance(s, Let | Mutable):
                changing.add(s.var.name)
            kept.append(s)
        return tuple(kept)

    def variables(self, a: Accumulator) -> list[Var]:
        count = self.chains * self.parts
        type_ = ValueType(a.var.type.dtype, self.lanes)
        return [Var(f"{a.var.name}_all{i if count > 1 else ''}", type_) for i in range(count)]

    def combined(self, a: Accumulator) -> Expr:
        """One number of all accumulators."""
        values: list[Expr] = [*self.variables(a)]
        columns = [values[part :: self.parts] for part in range(self.parts)]
        while len(columns[0]) > 1:
            columns = [[_pair(a, x, y) for x, y in zip(c[::2], c[1::2], strict=True)] for c in columns]
        whole = [c[0] for c in columns]
        while len(whole) > 1:
            half = len(whole) // 2
            whole = [_pair(a, x, y) for x, y in zip(whole[:half], whole[half:], strict=True)]
        return Call(BY_FUNCTION[a.function].of_lanes, (whole[0],), a.var.type)

    def put(self, i: int, count: Expr | None, at: Expr | None = None) -> Body:
        """The body for the vector number ``i`` of a round, or the one at an index."""
        name = self.loop.var.name
        values: dict[str, Expr] = {}
        for a in self.accumulators.values():
            variables_ = self.variables(a)
            values[a.var.name] = variables_[i % len(variables_)]
        lanes = _Lanes(name, self.lanes, count, values, self.width)
        body = tuple(self.partial(s, count) for s in lanes.body(self.loop.body))
        place = at if at is not None else Index(dim(name) + i * self.lanes)
        if place == Index(dim(name)):
            return body
        return substitute_body(body, {name: place})

    def partial(self, s: Statement, count: Expr | None) -> Statement:
        """What is combined into an accumulator, with its identity in the lanes that there are not."""
        if count is None or not isinstance(s, Assign) or not isinstance(s.value, Call):
            return s
        found = [a for a in self.accumulators.values() if s.var in self.variables(a)]
        if not found:
            return s
        accumulator, x = s.value.args
        identity = Const(BY_FUNCTION[found[0].function].identity, ValueType(x.type.dtype))
        return Assign(s.var, Call(s.value.name, (accumulator, Call("first", (x, count, identity), x.type)), x.type))

    def loops(self) -> Body:
        low, high = self.loop.low, self.loop.high
        if low != Index(0) or not isinstance(high, Index):
            raise CannotVectorizeError("a loop that does not begin at 0")
        size = high.value
        once = self.parts == self.chains == 1
        is_whole = isinstance(size, int) and size % self.lanes == 0
        if once and not is_whole and (len(self.loop.body) > STAGE_LINES_ONCE or self.fits_padding(size)):
            return (self.in_one(size),)
        return self.of_known(size) if isinstance(size, int) else self.of_unknown(size)

    def in_one(self, size: Dim) -> Statement:
        """One loop for whole and partial vectors."""
        left = Index(-1 * dim(self.loop.var.name) + size)
        count = Var("rest", INDEX)
        body = self.put(0, Index(dim("rest")))
        if "rest" in free_variables(body):
            body = (Let(count, Call("least", (left, Index(self.lanes)), INDEX)), *body)
        return replace(self.loop, step=self.lanes, vector=False, body=body)

    def fits_padding(self, size: Dim) -> bool:
        """Whether the rest may be a whole vector in padded memory, so that one body serves a short row."""
        lanes = self.lanes
        if not isinstance(size, int) or size % lanes == 0 or size >= 4 * lanes:
            return False
        body = self.put(0, Index(dim("rest")))
        stores = [s.count for s in walk(body) if isinstance(s, Store)]
        loads = [x.count for s in walk(body) for e in expressions(s) for x in subexpressions(e) if isinstance(x, Load)]
        return all(count is None for count in (*stores, *loads))

    def main(self, start: Dim, end: Dim, count: int) -> For:
        """Whole vectors from ``start`` on, ``count`` of them in a round."""
        body = _blocks([self.put(i, None) for i in range(count)])
        return replace(self.loop, low=Index(start), high=Index(end), step=self.lanes * count, vector=False, body=body)

    def of_known(self, size: int) -> Body:
        result: list[Statement] = []
        start, step = 0, self.lanes * self.parts
        for count in dict.fromkeys((self.chains, 1)):
            end = size // (step * count) * (step * count)
            if end > start:
                result.append(self.main(start, end, count * self.parts))
            start = max(start, end)
        if size > start:
            whole, rest = divmod(size - start, self.lanes)
            blocks = [self.put(i, None, Index(start + i * self.lanes)) for i in range(whole)]
            if rest:
                blocks.append(self.put(whole, Index(rest), Index(start + whole * self.lanes)))
            last = _blocks(blocks) if len(blocks) > 1 else (Block(blocks[0]),)
            # A part of a range that threads share has what is left if it begins there.
            result += [replace(self.main(start, size, 1), body=last)] if self.loop.parallel else last
        return tuple(result)

    def of_unknown(self, size: Dim) -> Body:
        result: list[Statement] = []
        start: Dim = 0
        step = self.lanes * self.parts
        for count in dict.fromkeys((self.chains, 1)):
            end = size + -(step * count - 1) if not isinstance(size, int) else size - (step * count - 1)
            result.append(self.main(start, end, count * self.parts))
            start = size // (step * count) * (step * count)
        if start == size:
            return tuple(result)
        name = self.loop.var.name
        blocks = []
        for i in range(self.parts):
            left = Index(-1 * dim(name) + size + -i * self.lanes)
            count_ = left if self.parts == 1 else self.inside(left)
            body = self.put(i, Index(dim("rest")))
            blocks.append((Let(Var("rest", INDEX), count_), *body))
        body = blocks[0] if len(blocks) == 1 else tuple(Block(b) for b in blocks)
        rest = replace(self.loop, low=Index(start), high=Index(size), step=step, vector=False, body=body)
        return (*result, rest)

    def inside(self, left: Expr) -> Expr:
        """How many lanes of one vector of several are left: none to all."""
        return Call("most", (Index(0), Call("least", (left, Index(self.lanes)), INDEX)), INDEX)


def _pair(a: Accumulator, x: Expr, y: Expr) -> Expr:
    return Call(a.function, (x, y), x.type)


def _reads(x: Expr) -> set[str]:
    return {e.array.name for e in subexpressions(x) if isinstance(e, Load)}


def _blocks(bodies: Sequence[Body]) -> Body:
    """Bodies one after the other, each with names of its own."""
    if len(bodies) == 1:
        return bodies[0]
    bodies = [_in_one(body) for body in bodies]
    return tuple(Block(b) if len(b) > 1 else b[0] for b in bodies if b)


def _in_one(body: Body) -> Body:
    """A value and the only statement, which reads it, as one statement."""
    if len(body) != 2 or not isinstance(body[0], Let) or not isinstance(body[1], Assign | Store):
        return body
    value = body[0].value
    return substitute_body(body[1:], {body[0].var.name: value}) if isinstance(value, Load) else body
