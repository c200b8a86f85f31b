"""Run loop nests in NumPy, as C would run them, so that lowering and schedules can be tested without a compiler.

A nest is compiled to Python closures once. Memory is flat arrays of the element types (``Memory``). They have exactly
the elements that a nest may access, so that any other access is an error. Rounds of parallel loops run from the last to
the first, each with variables of its own. A value that one round would leave for the next is lost, as between threads.
Memory that nothing has written holds arbitrary bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from mlaot.ir.dims import Dim, Quotient
from mlaot.ir.types import DTYPES
from mlaot.nest.expressions import COMPARISONS, HALVES, Array, Call, Const, Expr, Index, Load, ValueType, Var
from mlaot.nest.statements import (
    Alloc,
    Assign,
    Block,
    Body,
    Break,
    Choose,
    For,
    If,
    Invoke,
    Let,
    Mutable,
    Nest,
    Prefetch,
    Slice,
    Sort,
    Statement,
    Store,
    Transpose,
    While,
)

Value = Any  # a Python int for an index, else a NumPy array of lanes, or of no axis
Memory = np.ndarray[Any, Any]
Names = dict[str, Any]  # values of variables, and memory of arrays behind "@"
Evaluate = Callable[[Names], Value]
Execute = Callable[[Names], None]
Functions = Mapping[str, Callable[..., Any]]
GUARD = 0xFF  # the bytes of memory that nothing has written
# Elements in memory; halves are bits, and truth values bytes.
STORED = {name: np.dtype(dtype.numpy) for name, dtype in DTYPES.items()}
STORED |= {"f16": np.dtype(np.uint16), "bf16": np.dtype(np.uint16), "bool": np.dtype(np.uint8)}


class _BreakError(Exception):
    """The break of the innermost loop."""


def compile_nest(nest: Nest, functions: Functions) -> Callable[[Mapping[str, Memory], Mapping[str, int]], None]:
    """Return a function of the nest's arrays and dims by name, which writes to the arrays.

    ``functions`` has the functions that are not operators, for arrays of one dtype. A call of any other function raises
    ``AssertionError``.
    """
    run = Compiler(nest, functions).body(nest.body)

    def call(arrays: Mapping[str, Memory], dims: Mapping[str, int]) -> None:
        with np.errstate(all="ignore"):
            run({**dims, **{f"@{name}": memory for name, memory in arrays.items()}})

    return call


def polynomial(value: Dim) -> Callable[[Mapping[str, int]], int]:
    """Compile a polynomial into a function of the values of its names."""
    if isinstance(value, int):
        return lambda names: value
    constant = sum(factor for monomial, factor in value.terms if not monomial)
    terms = [(factor, [_atom(atom) for atom in monomial]) for monomial, factor in value.terms if monomial]
    linear = [(factor, monomial[0]) for monomial, factor in value.terms if len(monomial) == 1]
    if len(linear) == len(terms) and all(isinstance(atom, str) for _, atom in linear):
        return _linear(constant, linear)

    def evaluate(names: Mapping[str, int]) -> int:
        total = constant
        for factor, atoms in terms:
            for atom in atoms:
                factor *= atom(names)
            total += factor
        return total

    return evaluate


def _linear(constant: int, terms: Sequence[tuple[int, Any]]) -> Callable[[Mapping[str, int]], int]:
    """Compile a sum of names times factors."""

    def evaluate(names: Mapping[str, int]) -> int:
        total = constant
        for factor, name in terms:
            total += factor * names[name]
        return total

    return evaluate


def _atom(atom: str | Quotient) -> Callable[[Mapping[str, int]], int]:
    if isinstance(atom, str):
        return lambda names: names[atom]
    top, bottom = polynomial(atom.top), atom.bottom
    return lambda names: top(names) // bottom


@cache
def _converter(dtype: str) -> Callable[[Any], Value]:
    """Return a function that converts values to a dtype."""
    if dtype == "index":
        return int
    stored = np.dtype(bool) if dtype.startswith("m") or dtype == "bool" else STORED[dtype]

    def convert(value: Any) -> Value:
        if isinstance(value, np.ndarray | np.generic) and value.dtype == stored:
            return value
        return np.asarray(value).astype(stored, copy=False)

    return convert


class Compiler:
    """A compiler of the statements of a nest to closures."""

    def __init__(self, nest: Nest, functions: Functions) -> None:
        self.nest = nest
        self.functions = functions

    def need(self, holds: bool, problem: str, where: object) -> None:
        assert holds, f"bug in mlaot: {self.nest.name}: {problem} in {where}"

    # Statements.

    def body(self, body: Body) -> Execute:
        statements = [self.statement(s) for s in body]

        def run(names: Names) -> None:
            for statement in statements:
                statement(names)

        return run

    def statement(self, s: Statement) -> Execute:
        method = getattr(self, type(s).__name__.lower() + "_", None)
        assert method is not None, f"bug in mlaot: {self.nest.name}: no kernel has {s}"
        result: Execute = method(s)
        return result

    def let_(self, s: Let | Mutable | Assign) -> Execute:
        name, convert, value = s.var.name, _converter(s.var.type.dtype), self.expression(s.value)

        def run(names: Names) -> None:
            names[name] = convert(value(names))

        return run

    mutable_ = assign_ = let_

    def store_(self, s: Store) -> Execute:
        place = self.place(s.array, s.index, s.step, s.value.type.lanes, s.count, s)
        value, name, dtype = self.expression(s.value), s.array.name, STORED[s.array.dtype]

        def run(names: Names) -> None:
            at, active = place(names)
            new = np.asarray(value(names)).astype(dtype)
            names[f"@{name}"][at] = new if active is None else new[:active]

        return run

    def place(
        self, array: Array, index: Expr, step: Dim, lanes: int, count: Expr | None, where: object
    ) -> Callable[[Names], tuple[Any, int | None]]:
        """Return a function that returns the indices of elements, and the number of active lanes if not all are."""
        first, stride, name = self.expression(index), polynomial(step), f"@{array.name}"
        limit = None if count is None else self.expression(count)

        def at(names: Names) -> tuple[Any, int | None]:
            start, size = first(names), names[name].size
            if array.panels is not None:
                self.need(lanes == 1 and 0 <= start < array.panels.size, f"element {start} of {array.panels}", where)
                start = array.panels.place(start)
            if lanes == 1:
                if not 0 <= start < size:  # most of an interpreter's work: no text is made for those that hold
                    self.need(False, f"element {start} of the {size} of {array.name}", where)
                return start, None
            active = lanes if limit is None else max(0, min(lanes, limit(names)))
            last = start + (active - 1) * stride(names)
            inside = active == 0 or (min(start, last) >= 0 and max(start, last) < size)
            self.need(inside, f"elements {start} to {last} of the {size} of {array.name}", where)
            return start + np.arange(active) * stride(names), None if limit is None else active

        return at

    def for_(self, s: For) -> Execute:
        low, high, body, name = self.expression(s.low), self.expression(s.high), self.body(s.body), s.var.name

        def run(names: Names) -> None:
            rounds = range(low(names), high(names), s.step)
            try:
                for i in reversed(rounds) if s.down or s.parallel else rounds:
                    inner = dict(names) if s.parallel else names
                    inner[name] = i
                    body(inner)
            except _BreakError:
                self.need(not s.parallel, "a break", s)

        return run

    def while_(self, s: While) -> Execute:
        condition, body = self.expression(s.condition), self.body(s.body)

        def run(names: Names) -> None:
            try:
                while condition(names):
                    body(names)
            except _BreakError:
                pass

        return run

    def break_(self, s: Break) -> Execute:
        def run(names: Names) -> None:
            raise _BreakError

        return run

    def if_(self, s: If) -> Execute:
        condition, then, otherwise = self.expression(s.condition), self.body(s.body), self.body(s.otherwise)

        def run(names: Names) -> None:
            (then if condition(names) else otherwise)(names)

        return run

    def block_(self, s: Block) -> Execute:
        return self.body(s.body)

    def alloc_(self, s: Alloc) -> Execute:
        name, size, dtype = f"@{s.array.name}", polynomial(s.array.size), STORED[s.array.dtype]

        def run(names: Names) -> None:
            if s.array.values:
                names[name] = np.array(s.array.values, dtype)
            else:
                names[name] = np.full(size(names) * dtype.itemsize, GUARD, np.uint8).view(dtype)

        return run

    def behind(self, names: Names, array: Array, start: int, where: object) -> Memory:
        """Return the elements of an array from ``start`` on."""
        memory: Memory = names[f"@{array.name}"]
        self.need(0 <= start <= memory.size, f"element {start} of the {memory.size} of {array.name}", where)
        return memory[start:]

    def choose_(self, s: Choose) -> Execute:
        condition, index = self.expression(s.condition), self.expression(s.index)

        def run(names: Names) -> None:
            name = f"@{s.array.name}"
            names[name] = (
                self.behind(names, s.source, index(names), s) if condition(names) else names[f"@{s.other.name}"]
            )

        return run

    def slice_(self, s: Slice) -> Execute:
        index = self.expression(s.index)

        def run(names: Names) -> None:
            names[f"@{s.array.name}"] = self.behind(names, s.source, index(names), s)

        return run

    def invoke_(self, s: Invoke) -> Execute:
        index, count = self.expression(s.index), self.expression(s.count)
        self.need(s.function == "nonzeros", f"no function {s.function}", s)

        def run(names: Names) -> None:
            start, n = index(names), count(names)
            source, target = names[f"@{s.source.name}"], names[f"@{s.target.name}"]
            self.need(start >= 0 and start + n <= source.size, f"elements {start} to {start + n}", s)
            places = np.flatnonzero(source[start : start + n])
            self.need(places.size + 16 <= target.size, f"no room for {places.size} and 16 more", s)
            target[: places.size] = places
            names[s.var.name] = places.size

        return run

    def sort_(self, s: Sort) -> Execute:
        numbers = [*map(self.expression, (s.place, s.index, s.step, s.count, s.low, s.high))]

        def run(names: Names) -> None:
            place, start, step, n, low, high = (number(names) for number in numbers)
            source, target = names[f"@{s.source.name}"], names[f"@{s.target.name}"]
            is_inside = start >= 0 and start + (n - 1) * step < source.size and place >= 0 and place + n <= target.size
            self.need(n == 0 or is_inside, f"{n} elements from {start} and {place} on", s)
            row = source[start::step][:n]
            ranks = np.unique(row, return_inverse=True)[1]
            order = np.argsort(-ranks if s.descending else ranks, kind="stable")
            target[place + low : place + high] = row[order[low:high]]

        return run

    def transpose_(self, s: Transpose) -> Execute:
        rows, columns = [*map(self.expression, s.rows)], s.vars

        def run(names: Names) -> None:
            square = np.stack([row(names) for row in rows])
            names.update({var.name: square[:, k].copy() for k, var in enumerate(columns)})

        return run

    def prefetch_(self, s: Prefetch) -> Execute:
        return lambda names: None

    # Expressions.

    def expression(self, x: Expr) -> Evaluate:
        if isinstance(x, Const):
            value = self.constant(x)
            return lambda names: value
        if isinstance(x, Var):
            name = x.name
            return lambda names: names[name]
        if isinstance(x, Index):
            return polynomial(x.value)
        if isinstance(x, Load):
            return self.load(x)
        return self.call(x)

    def constant(self, x: Const) -> Value:
        dtype, lanes = x.type
        if dtype in HALVES:
            number = DTYPES[dtype].array(np.asarray(x.value, np.float64))
            value = number.view(np.uint16) if dtype == "f16" else (number.view(np.uint32) >> np.uint32(16))
            return np.asarray(value, np.uint16)
        value = _converter(dtype)(np.array(x.value) if DTYPES[dtype].kind != "f" else np.float64(x.value))
        return value if lanes == 1 else np.full(lanes, value)

    def load(self, x: Load) -> Evaluate:
        name, lanes = f"@{x.array.name}", x.type.lanes
        place = self.place(x.array, x.index, x.step, lanes, x.count, x)

        def run(names: Names) -> Value:
            at, active = place(names)
            values = names[name][at]
            if active is None:
                return values != 0 if x.array.dtype == "bool" else values
            full = np.zeros(lanes, values.dtype)
            full[:active] = values
            return full != 0 if x.array.dtype == "bool" else full

        return run

    def call(self, x: Call) -> Evaluate:
        if x.name == "splat_word":
            return self.splat_word(x)
        args = [self.expression(a) for a in x.args]
        compute = self.function(x)

        def run(names: Names) -> Value:
            return compute(*[a(names) for a in args])

        return run

    def splat_word(self, x: Call) -> Evaluate:
        load = x.args[0]
        assert isinstance(load, Load), f"bug in mlaot: {self.nest.name}: four bytes of {load}"
        place = self.place(load.array, load.index, 1, 4 // DTYPES[load.array.dtype].itemsize, None, x)
        lanes = x.type.lanes if x.type.lanes > 1 else ()
        return lambda names: np.full(lanes, names[f"@{load.array.name}"][place(names)[0]].view(np.int32)[0])

    def function(self, x: Call) -> Callable[..., Value]:
        """Return the function that computes a call from the values of its arguments."""
        name, type_, source = x.name, x.type, x.args[0].type
        if source.dtype == "index" and name in OF_INDICES:
            return OF_INDICES[name]
        if name in CONVERSIONS:
            return CONVERSIONS[name](source, type_)
        if name in SPECIAL:
            compute, convert = SPECIAL[name], _converter(type_.dtype)
            return lambda *args: convert(compute(type_, *args))
        if name in COMPARISONS:
            compare = OPERATORS[name]
            return lambda a, b: np.asarray(compare(a, b))
        if source.dtype in ("bool", "m32", "m64") and name in OF_TRUTHS:
            return OF_TRUTHS[name]
        other = OPERATORS.get(name) or self.functions.get(name)
        assert other is not None, f"bug in mlaot: {self.nest.name}: nothing computes {x}"
        operator: Callable[..., Any] = other
        convert = _converter(type_.dtype)
        return lambda *args: convert(operator(*args))


def _cast(source: ValueType, target: ValueType) -> Callable[..., Value]:
    dtype = target.dtype

    def cast(x: Any) -> Value:
        if source.dtype in HALVES:
            x = upcast(np.asarray(x, np.uint16), source.dtype)
        if dtype.startswith("m") or dtype == "bool":
            return np.asarray(x) != 0
        if dtype == "index":
            return int(x)
        x = np.asarray(x)
        if dtype in HALVES:
            return downcast(x, dtype)
        if x.dtype.kind == "f" and DTYPES[dtype].kind in "iu":
            return saturate(x, STORED[dtype])
        return x.astype(STORED[dtype])

    return cast


def upcast(bits: Memory, dtype: str) -> Memory:
    """Return float16 or bfloat16 numbers, passed as their bits, as float32."""
    if dtype == "f16":
        return bits.view(np.float16).astype(np.float32)
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def downcast(x: Memory, dtype: str) -> Memory:
    """Return the bits of the nearest float16 or bfloat16 numbers."""
    rounded = DTYPES[dtype].array(x)
    if dtype == "f16":
        return rounded.view(np.uint16)
    bits: Memory = (rounded.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return bits


def saturate(x: Memory, dtype: np.dtype[Any]) -> Memory:
    """Convert floats to integers: truncate them, clamp them to the range of ``dtype``, and turn nan into 0."""
    info = np.iinfo(dtype)
    integers = np.trunc(x.astype(np.float64))
    low, end = float(info.min), float(info.max // 2 + 1) * 2
    result = np.where((integers >= low) & (integers < end), integers, 0.0).astype(dtype)
    result = np.where(integers < low, dtype.type(info.min), result)
    return np.asarray(np.where(integers >= end, dtype.type(info.max), result))


def _bitcast(source: ValueType, target: ValueType) -> Callable[..., Value]:
    return lambda x: np.asarray(x).view(STORED[target.dtype])


def _convert(source: ValueType, target: ValueType) -> Callable[..., Value]:
    return lambda x: int(x) if target.dtype == "index" else np.asarray(x).astype(STORED[target.dtype])


def _splat(source: ValueType, target: ValueType) -> Callable[..., Value]:
    return lambda x: np.full(target.lanes, _converter(target.dtype)(x))


CONVERSIONS = {"cast": _cast, "bitcast": _bitcast, "convert": _convert, "splat": _splat}
OF_INDICES: dict[str, Callable[..., Value]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: int(a / b) if a < 0 else a // b,
    "mod": lambda a, b: a - b * int(a / b) if a < 0 else a % b,
    "least": min,
    "most": max,
    "in_lanes": lambda rows, *_: rows > 1,  # both branches are right
    "and": lambda a, b: a & b,
    "first_from": lambda start, step, begin: (
        start + (begin - start + step - 1) // step * step if begin > start else start
    ),
    **{"lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b},
    **{"eq": lambda a, b: a == b, "ne": lambda a, b: a != b},
}
OF_TRUTHS: dict[str, Callable[..., Value]] = {
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
    "not": np.logical_not,
    "max": np.logical_or,
    "min": np.logical_and,
}
OPERATORS: dict[str, Callable[..., Any]] = {
    **{"add": np.add, "sub": np.subtract, "mul": np.multiply, "neg": np.negative, "not": np.invert},
    **{"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "div": np.divide},
    **{"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal},
    **{"eq": np.equal, "ne": np.not_equal, "max": np.maximum, "min": np.minimum},
    "greater": lambda a, b: np.where(a > b, a, b),
    "lesser": lambda a, b: np.where(a < b, a, b),
    **dict.fromkeys(("rounded", "held"), lambda x: x),
    "relu": lambda x: np.maximum(x, 0),
}


def _nearest_inside(type_: ValueType, x: Any, low: Any, high: Any) -> Any:
    low, high = (np.asarray(limit).astype(x.dtype) for limit in (low, high))
    inside = np.where(x > low, x, low)
    return np.rint(np.where(inside < high, inside, high))


def _dot4(type_: ValueType, total: Any, x: Any, w: Any) -> Any:
    unsigned, signed = (np.ascontiguousarray(v).view(d).astype(np.int32) for v, d in ((x, np.uint8), (w, np.int8)))
    return total + (unsigned * signed).reshape(*np.shape(total), 4).sum(axis=-1, dtype=np.int32)


def _dot2(type_: ValueType, total: Any, x: Any, w: Any) -> Any:
    x, w = (np.ascontiguousarray(v).view(np.int16).astype(np.int32) for v in (x, w))
    return total + (x * w).reshape(*np.shape(total), 2).sum(axis=-1, dtype=np.int32)


def _halves(type_: ValueType, x: Any, up: Any, down: Any) -> Any:
    """Shift both halves of words up, then down again, which extends their signs."""
    moved = np.ascontiguousarray(x).view(np.int16) << np.int16(up) >> np.int16(down)
    return moved.view(np.int32).reshape(np.shape(x))


def _fold(half: int) -> Callable[..., Any]:
    def fold(type_: ValueType, x: Any, y: Any) -> Any:
        groups = np.concatenate([x, y]).reshape(-1, 2, half)
        return (groups[:, 0] + groups[:, 1]).reshape(-1)

    return fold


def _fold_lanes(combine: Callable[..., Any]) -> Callable[..., Any]:
    """Combine all lanes, one half with the other at a time, as the C does."""

    def fold(type_: ValueType, x: Any) -> Any:
        x = np.asarray(x)
        while x.size > 1:
            half = x.size // 2
            x = combine(x[:half], x[half:])
        return x[0]

    return fold


SPECIAL: dict[str, Callable[..., Any]] = {
    "select": lambda type_, condition, a, b: np.where(condition, a, b),
    "first": lambda type_, x, n, fill: np.where(np.arange(type_.lanes) < n, x, np.asarray(fill).astype(x.dtype)),
    "lane": lambda type_, start: start + np.arange(type_.lanes),
    "nearest_inside": _nearest_inside,
    "dot4": _dot4,
    "dot4_pairs": _dot4,
    "dot2": _dot2,
    "halves": _halves,
    "nibbles": lambda type_, x, down: np.asarray(x) >> np.int32(down) & np.int32(0x0F0F0F0F),
    "even": lambda type_, x, y: np.concatenate([x, y])[::2],
    "odd": lambda type_, x, y: np.concatenate([x, y])[1::2],
    "any": lambda type_, x: np.any(x),
    "sum_lanes": _fold_lanes(np.add),
    "prod_lanes": _fold_lanes(np.multiply),
    "max_lanes": _fold_lanes(np.maximum),
    "min_lanes": _fold_lanes(np.minimum),
    **{f"fold{half}": _fold(half) for half in (1, 2, 4, 8)},
}
