"""Vectors along a loop: the same statements on as many numbers at a time as a vector of the machine holds.

    for j in vector(0, 1000):              s_all0: f32x16 = 0, ..
        s = s + x[j]                =>     for j in range(0, 960, 64): s_all0 = s_all0 + x[j:16]; s_all1 = ..
                                           for j in range(960, 992, 16): s_all0 = s_all0 + x[j:16]
                                           s_all0 = s_all0 + first(x[992:16, 8], 8, 0)
                                           s = sum_lanes((s_all0 + s_all1) + (s_all2 + s_all3))

Loads and stores along the loop are of adjacent elements, or gather and scatter with a stride. A value that does not
depend on the loop is computed once. A sum has several accumulators if it would stall on the latency of one. If the bits
must not depend on the machine, ``machine.parts`` vectors replace one of 64 bytes, each with an accumulator of its own.
Sums are then combined by halves, first of vectors, then of lanes.
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
    lanes_left,
    least,
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
    """The loop has no form in lanes and is left alone."""


def vectorize(
    body: Body,
    var: str,
    lanes: int,
    count: Expr | None = None,
    values: Mapping[str, Expr] | None = None,
    width: int = 0,
) -> Body:
    """Return statements on numbers as statements on ``lanes`` of them along the index ``var``, which is that of lane 0.

    ``count`` is the number of lanes, if not all. ``values`` has the variables that are vectors already. ``width`` is
    the number of bits of a loaded truth value.
    """
    return _Vectorizer(var, lanes, count, dict(values or {}), width).body(body)


@dataclass
class _Vectorizer:
    """A converter of expressions and statements to lanes.

    ``values`` are the variables that differ from lane to lane.
    """

    var: str
    lanes: int
    count: Expr | None
    values: dict[str, Expr]
    width: int = 0  # bits of a truth value that is loaded

    def body(self, body: Body) -> Body:
        return tuple(self.statement(s) for s in body)

    def statement(self, s: Statement) -> Statement:
        """Return a statement in lanes."""
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
            target = self.values.get(s.var.name)
            if not isinstance(target, Var):
                raise CannotVectorizeError(f"{s.var.name} is carried from one round to the next")
            return Assign(target, cast(self.spread(self.expression(s.value)), target.type.dtype))
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
        """Tell whether a vector ends within the padding of a row, which is ``LINE`` bytes of the array's own dtype."""
        return self.lanes * DTYPES[array.dtype].itemsize <= LINE

    def stride(self, index: Expr) -> Dim:
        """Return the distance between the elements of neighbouring lanes."""
        if not isinstance(index, Index) or variables(index) & self.values.keys():
            raise CannotVectorizeError("an index that differs from lane to lane otherwise than by a step")
        if self.var not in names(index.value):
            return 0
        step = step_of(index.value, self.var)
        if self.var in names(step):
            raise CannotVectorizeError("an index that is no multiple of the loop's variable")
        return step

    def spread(self, x: Expr) -> Expr:
        """Repeat a value in every lane, if it is one for all."""
        if x.type.lanes != 1:
            return x
        if x.type.dtype == "bool":
            return Call("splat", (x,), ValueType(f"m{self.width}", self.lanes))
        return splat(x, self.lanes)

    def expression(self, x: Expr) -> Expr:
        """Return ``x``, in lanes if it differs from lane to lane."""
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
        """Return the index of each lane as a number."""
        if self.stride(x) != 1 or type_.dtype not in ("f32", "f64"):
            raise CannotVectorizeError(f"numbers of lanes as {type_}")
        return Call("lane", (x,), ValueType(type_.dtype, self.lanes))

    def load(self, x: Load) -> Expr:
        """Load a vector of elements, or one element that is the same for all lanes."""
        step = self.stride(x.index)
        if step == 0:
            return x
        count = None if x.padded and step == 1 and self.in_padding(x.array) else self.count
        dtype = "m8" if x.type.dtype == "bool" else x.type.dtype
        lanes = replace(x, type=ValueType(dtype, self.lanes), step=step, count=count)
        return cast(lanes, f"m{self.width}") if dtype == "m8" else lanes

    def call(self, x: Call, args: Sequence[Expr]) -> Expr:
        """Call a function of lanes; truth values become masks as wide as the lanes."""
        if x.name in COMPARISONS:
            return Call(x.name, tuple(args), mask_of(args[0].type))
        if x.name == "select":
            return select(cast(args[0], mask_of(args[1].type).dtype), args[1], args[2])
        if x.name == "cast":
            dtype = x.type.dtype
            return cast(args[0], mask_of(args[0].type).dtype if dtype == "bool" else dtype)
        if x.name == "convert":  # integers, which become bytes as they are stored
            return args[0]
        dtype = args[0].type.dtype if x.type.dtype == "bool" else x.type.dtype
        return Call(x.name, tuple(args), ValueType(dtype, self.lanes))


def width_of(loop: For) -> int:
    """Return the bits of the widest number in lanes along a loop.

    Elements count in the dtype that they are converted to.

    Raises:
        CannotVectorizeError: The body has no form in lanes.
    """
    several = 2
    assigned = {s.var.name: s.var.type for s in walk(loop.body) if isinstance(s, Assign)}
    lanes: dict[str, Expr] = {n: Var(n, ValueType(t.dtype, several)) for n, t in assigned.items()}
    body = _Vectorizer(loop.var.name, several, None, lanes, 64).body(loop.body)
    values = [s.value for s in walk(body) if isinstance(s, Let | Mutable | Assign | Store)]
    numbers = [x for value in values for x in _numbers_in(value) if x.type.lanes == several]
    other = next((x.type.dtype for x in numbers if not _has_lanes(x)), None)
    if other is not None:
        raise CannotVectorizeError(f"{other} in lanes")
    return max((8 * DTYPES[x.type.dtype].itemsize for x in numbers), default=0)


def _has_lanes(x: Expr) -> bool:
    """Tell whether there are vectors of such numbers; integers are only copied."""
    is_moved = isinstance(x, Const | Load | Var) or (isinstance(x, Call) and x.name == "splat")
    return is_float(x.type.dtype) or (x.type.dtype in ("i32", "i64") and is_moved)


def _numbers_in(x: Expr) -> Iterator[Expr]:
    """Yield the numbers inside an expression."""
    if not x.type.dtype.startswith("m") and x.type.dtype not in ("bool", "index"):
        yield x
    is_converted = isinstance(x, Call) and x.name == "cast" and isinstance(x.args[0], Load)
    for part in () if is_converted or isinstance(x, Load) else children(x):
        yield from _numbers_in(part)


@dataclass(frozen=True)
class Accumulator:
    """A mutable variable with the initial value ``start``, into which a loop combines values by ``function``."""

    var: Var
    function: str
    start: Expr


@dataclass
class VectorLoop:
    """A loop to vectorize: ``lanes`` along it, ``parts`` vectors at a time, ``chains`` of these in a round."""

    loop: For
    accumulators: dict[str, Accumulator]
    lanes: int
    width: int
    parts: int
    chains: int
    prologue: list[Statement] = field(default_factory=list)

    def result(self) -> tuple[Body, Body, Body]:
        """Return the statements before the loops, the loops, and the statements after them."""
        self.loop = replace(self.loop, body=self.hoist_invariants(self.loop.body))
        loops = self.loops()
        before = [
            Mutable(var, splat(a.start, self.lanes)) for a in self.accumulators.values() for var in self.variables(a)
        ]
        after = [Let(a.var, self.combine(a)) for a in self.accumulators.values()]
        return (*self.prologue, *before), loops, tuple(after)

    def hoist_invariants(self, body: Body) -> Body:
        """Move values that are the same in all rounds before the loop; return the rest of the body."""
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

    def combine(self, a: Accumulator) -> Expr:
        """Combine all accumulators of a variable to a number: the chains, then the parts by halves, then the lanes."""
        values: list[Expr] = [*self.variables(a)]
        columns = [values[part :: self.parts] for part in range(self.parts)]
        while len(columns[0]) > 1:
            columns = [[_pair(a, x, y) for x, y in zip(c[::2], c[1::2], strict=True)] for c in columns]
        parts = [c[0] for c in columns]
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [_pair(a, x, y) for x, y in zip(parts[:half], parts[half:], strict=True)]
        return Call(BY_FUNCTION[a.function].of_lanes, (parts[0],), a.var.type)

    def vector_body(self, i: int, count: Expr | None, at: Expr | None = None) -> Body:
        """Return the body for the vector number ``i`` of a round, or for the one at the index ``at``."""
        name = self.loop.var.name
        values: dict[str, Expr] = {}
        for a in self.accumulators.values():
            variables_ = self.variables(a)
            values[a.var.name] = variables_[i % len(variables_)]
        lanes = _Vectorizer(name, self.lanes, count, values, self.width)
        body = tuple(self.mask(s, count) for s in lanes.body(self.loop.body))
        place = at if at is not None else Index(dim(name) + i * self.lanes)
        if place == Index(dim(name)):
            return body
        return substitute_body(body, {name: place})

    def mask(self, s: Statement, count: Expr | None) -> Statement:
        """Put the identity element into the lanes of an accumulated value that are beyond ``count``."""
        if count is None or not isinstance(s, Assign) or not isinstance(s.value, Call):
            return s
        own = [a for a in self.accumulators.values() if s.var in self.variables(a)]
        if not own:
            return s
        accumulator, x = s.value.args
        identity = Const(BY_FUNCTION[own[0].function].identity, ValueType(x.type.dtype))
        return Assign(s.var, Call(s.value.name, (accumulator, Call("first", (x, count, identity), x.type)), x.type))

    def loops(self) -> Body:
        """Return the loops over vectors: a single loop if that is shorter, else a main loop and a remainder loop."""
        low, high = self.loop.low, self.loop.high
        if low != Index(0) or not isinstance(high, Index):
            raise CannotVectorizeError("a loop that does not begin at 0")
        size = high.value
        once = self.parts == self.chains == 1
        is_whole = isinstance(size, int) and size % self.lanes == 0
        if once and not is_whole and (len(self.loop.body) > STAGE_LINES_ONCE or self.fits_padding(size)):
            return (self.single_loop(size),)
        return self.loops_of_fixed(size) if isinstance(size, int) else self.loops_of_dynamic(size)

    def single_loop(self, size: Dim) -> Statement:
        """Return one loop for full and partial vectors."""
        left = Index(-1 * dim(self.loop.var.name) + size)
        count = Var("rest", INDEX)
        body = self.vector_body(0, Index(dim("rest")))
        if "rest" in free_variables(body):
            body = (Let(count, least(left, self.lanes)), *body)
        return replace(self.loop, step=self.lanes, vector=False, body=body)

    def fits_padding(self, size: Dim) -> bool:
        """Tell whether the last vector of a short row may be whole, in padded memory, so that one body suffices."""
        lanes = self.lanes
        if not isinstance(size, int) or size % lanes == 0 or size >= 4 * lanes:
            return False
        body = self.vector_body(0, Index(dim("rest")))
        stores = [s.count for s in walk(body) if isinstance(s, Store)]
        loads = [x.count for s in walk(body) for e in expressions(s) for x in subexpressions(e) if isinstance(x, Load)]
        return all(count is None for count in (*stores, *loads))

    def main_loop(self, start: Dim, end: Dim, count: int) -> For:
        """Return the loop over full vectors from ``start`` on, ``count`` of them in a round."""
        body = _blocks([self.vector_body(i, None) for i in range(count)])
        return replace(self.loop, low=Index(start), high=Index(end), step=self.lanes * count, vector=False, body=body)

    def loops_of_fixed(self, size: int) -> Body:
        """Return the loops over a fixed size: rounds of all chains, then of one, then the unrolled last vectors."""
        result: list[Statement] = []
        start, step = 0, self.lanes * self.parts
        for count in dict.fromkeys((self.chains, 1)):
            end = size // (step * count) * (step * count)
            if end > start:
                result.append(self.main_loop(start, end, count * self.parts))
            start = max(start, end)
        if size > start:
            full, remainder = divmod(size - start, self.lanes)
            blocks = [self.vector_body(i, None, Index(start + i * self.lanes)) for i in range(full)]
            if remainder:
                blocks.append(self.vector_body(full, Index(remainder), Index(start + full * self.lanes)))
            last = _blocks(blocks) if len(blocks) > 1 else (Block(blocks[0]),)
            # As a loop, the remainder belongs to the part of a shared range in which it begins.
            result += [replace(self.main_loop(start, size, 1), body=last)] if self.loop.parallel else last
        return tuple(result)

    def loops_of_dynamic(self, size: Dim) -> Body:
        """Return the loops over a dynamic size: rounds of all chains, then of one, then a loop of at most one round."""
        result: list[Statement] = []
        start: Dim = 0
        step = self.lanes * self.parts
        for count in dict.fromkeys((self.chains, 1)):
            end = size + -(step * count - 1) if not isinstance(size, int) else size - (step * count - 1)
            result.append(self.main_loop(start, end, count * self.parts))
            start = size // (step * count) * (step * count)
        if start == size:
            return tuple(result)
        name = self.loop.var.name
        blocks = []
        for i in range(self.parts):
            left = Index(-1 * dim(name) + size + -i * self.lanes)
            count_ = left if self.parts == 1 else lanes_left(left, self.lanes)
            body = self.vector_body(i, Index(dim("rest")))
            blocks.append((Let(Var("rest", INDEX), count_), *body))
        body = blocks[0] if len(blocks) == 1 else tuple(Block(b) for b in blocks)
        rest = replace(self.loop, low=Index(start), high=Index(size), step=step, vector=False, body=body)
        return (*result, rest)


def _pair(a: Accumulator, x: Expr, y: Expr) -> Expr:
    return Call(a.function, (x, y), x.type)


def _reads(x: Expr) -> set[str]:
    return {e.array.name for e in subexpressions(x) if isinstance(e, Load)}


def _blocks(bodies: Sequence[Body]) -> Body:
    """Return bodies one after the other, each in a block of its own."""
    if len(bodies) == 1:
        return bodies[0]
    bodies = [_inline(body) for body in bodies]
    return tuple(Block(b) if len(b) > 1 else b[0] for b in bodies if b)


def _inline(body: Body) -> Body:
    """Inline the value of a body that is a load and a single statement that reads it."""
    if len(body) != 2 or not isinstance(body[0], Let) or not isinstance(body[1], Assign | Store):
        return body
    value = body[0].value
    return substitute_body(body[1:], {body[0].var.name: value}) if isinstance(value, Load) else body
