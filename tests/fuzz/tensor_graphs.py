"""Random graphs of every op, dtype and shape, with the values of one sample at hand.

``Maker`` adds ops to a graph until it has enough of them. It keeps the bounded value (``bounds.py``) of each node on
one sample, and goes on only from nodes whose values are mostly finite and certain: a comparison of two numbers that
the roundings of a kernel could tip tells nothing about the kernel.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.ir import DTYPES, Dim, DType, Graph, Node, Subgraph, TupleType, Type, dim
from mlaot.ir import dims as dims_
from mlaot.ir.types import BY_NUMPY, boolean, i64, u32
from mlaot.ops import OPS
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.base import conditions, fill
from mlaot.ops.indexing import MODES

from .bounds import Analysis, Bounded
from .random_graphs import embedding

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]

N, M = dim("n"), dim("m")
SAMPLE = {"n": 3, "m": 4}
SIDES = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33)
LARGEST = 2000  # elements of a value
FLOATS = ("f32", "f32", "f32", "f64", "f16", "bf16")
INTEGERS = ("i32", "i32", "i64", "i64", "i8", "i16", "u8", "u16", "u32", "u64")
LIMIT = {"f16": 500.0, "bf16": 1e4, "f32": 1e4, "f64": 1e4}  # larger values leave the range before long
SPECIAL = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, 1e30, -1e30, 6e4, 1e-30, 16777217.0, 0.5)

SMOOTH = (
    *("tanh", "exp", "sin", "cos", "atan", "sigmoid", "softplus", "erf", "erfc"),
    *("asinh", "expm1", "exp2", "sinh", "cosh"),
)
RESTRICTED = {  # what is taken for granted of the argument
    **dict.fromkeys(("log", "log2", "log10", "sqrt"), "positive"),
    **dict.fromkeys(("asin", "acos", "atanh", "erfinv"), "below one"),
    **{"log1p": "positive", "acosh": "above one", "tan": "below one", "normal_quantile": "probability"},
}
PIECEWISE = ("neg", "abs", "sign", "relu", "step", "floor", "ceil", "trunc", "round", "copy", "stop_gradient", "sparse")
PAIRS = ("add", "sub", "mul", "mul", "maximum", "minimum", "is_equal")
FLOAT_PAIRS = ("div", "power", "floor_divide", "remainder", "fmod", "copysign", "atan2", "hypot", "nextafter")
INTEGER_PAIRS = ("power", "floor_divide", "remainder", "fmod", "left_shift", "right_shift")
BITS = ("bitwise_and", "bitwise_or", "bitwise_xor")
COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
QUESTIONS = ("isnan", "isinf", "isfinite", "signbit")


@dataclass
class Made:
    """A random graph, what its slots start with, and what of them is trained."""

    graph: Graph
    parameters: Arrays = field(default_factory=dict)
    state: Arrays = field(default_factory=dict)
    trains: bool = False


def sized(shape: Sequence[Dim], dims: Mapping[str, int]) -> tuple[int, ...]:
    """A shape in numbers."""
    return tuple(dims_.substitute(d, dims) for d in shape)


def numbers_for(dtype: DType, shape: tuple[int, ...], numbers: np.random.Generator, *, special: bool = False) -> Array:
    """Random values: halves of small integers or a normal distribution, small integers or any bits at all."""
    if dtype is boolean:
        return numbers.integers(0, 2, shape).astype(bool)
    if dtype.kind == "f":
        whole = numbers.random() < 0.5
        value = np.asarray(numbers.integers(-8, 9, shape) / 2 if whole else numbers.normal(size=shape))
        with np.errstate(over="ignore"):
            return dtype.array(_sprinkled(value, SPECIAL, numbers) if special else value)
    info = np.iinfo(dtype.numpy)
    if numbers.random() < 0.3:
        bits = numbers.integers(0, 256, (*shape, dtype.itemsize), dtype=np.uint8)
        return np.ascontiguousarray(bits).view(dtype.numpy).reshape(shape)
    small = np.asarray(numbers.integers(-4 if dtype.kind == "i" else 0, 9, shape), dtype.numpy)
    edges = (info.min, info.max, info.min + 1, info.max // 2, 0, 1)
    return _sprinkled(small, edges, numbers) if special else small


def _sprinkled(value: Array, some: Sequence[Any], numbers: np.random.Generator) -> Array:
    """Some elements replaced."""
    if value.size:
        chosen = np.asarray([some[i] for i in numbers.integers(0, len(some), max(1, value.size // 8))], value.dtype)
        flat = value.reshape(-1)
        flat[numbers.integers(0, value.size, len(chosen))] = chosen
        return flat.reshape(value.shape)
    return value


class Maker:
    """Adds random ops to ``graph``; ``depth``: how many subgraphs it is inside of."""

    def __init__(self, rng: random.Random, numbers: np.random.Generator, graph: Graph, depth: int = 0) -> None:
        self.rng, self.numbers, self.graph, self.depth = rng, numbers, graph, depth
        self.values: dict[str, Any] = {}
        self.analysis = Analysis(self.values, SAMPLE, grained=True)
        self.pool: list[Node] = []
        self.used: set[Node] = set()
        self.names: tuple[Dim, ...] = ()
        self.sides: list[Dim] = [1, 2, 3]
        self.dtypes: list[DType] = []
        self.trains = False

    def choose(self, trains: bool = False) -> None:
        """Which dtypes and extents this graph has."""
        rng = self.rng
        self.trains = trains
        self.names = () if rng.random() < 0.5 else (N,) if rng.random() < 0.6 else (N, M)
        self.sides = [rng.choice(SIDES) for _ in range(3)] + [0] * (rng.random() < 0.06) + [*self.names] * 2
        self.dtypes = [DTYPES[rng.choice(FLOATS)]]
        if not trains or rng.random() < 0.3:
            more = (rng.choice((FLOATS, INTEGERS, INTEGERS, ("bool",))) for _ in range(rng.randint(0, 2)))
            self.dtypes += [DTYPES[rng.choice(kind)] for kind in more]
            if not trains and rng.random() < 0.2:
                self.dtypes = self.dtypes[1:] or self.dtypes

    # Leaves.

    def shape(self, most: int = 3) -> tuple[Dim, ...]:
        while True:
            shape = tuple(self.rng.choice(self.sides) for _ in range(self.rng.choice((0, 1, 1, 2, 2, 2, most))))
            if np.prod(sized(shape, SAMPLE)) <= LARGEST // 2:
                return shape

    def input(self, name: str, type_: Type, value: Any = None, **notes: Any) -> Node:
        if value is None:
            value = numbers_for(type_.dtype, sized(type_.shape, SAMPLE), self.numbers)
        self.values[name] = value
        node = self.graph.input(name, type_, **notes)
        self.analysis.of(node)
        self.pool.append(node)
        return node

    # What to go on with.

    def value(self, node: Node) -> Bounded:
        found = self.analysis.of(node)
        assert isinstance(found, Bounded)
        return found

    def add(self, op: str, *args: Node, **attrs: Any) -> Node:
        """A node; it is in the pool if its value is fit to go on with."""
        node = self.graph.add(OPS[op], args, attrs)
        needs = node.op.needs(*[a.type for a in args], **attrs) if node.op.needs else ()
        if any(dims_.substitute(d, SAMPLE) < 0 for d in needs):
            raise MlaotError("not for the sample")
        if isinstance(node.type, TupleType):
            self.analysis.of(node)
            return node
        if node not in self.pool and self.is_fit(node):
            self.pool.append(node)
            self.used |= {a.find() for a in args}
        return node

    def is_fit(self, node: Node) -> bool:
        found = self.value(node)
        if found.value.size > LARGEST:
            raise MlaotError("too large")
        vague = np.isinf(found.error)
        if node.type.dtype.kind == "f":
            with np.errstate(invalid="ignore"):
                vague = vague | (found.error > 0.02 * np.abs(found.value) + 0.01)
                huge = (np.abs(found.value) > LIMIT[node.type.dtype.name]) & np.isfinite(found.value)
            if huge.any() or np.sum(~np.isfinite(found.value)) > 0.3 * found.value.size:
                return False
        return bool(vague.sum() <= 0.02 * vague.size)

    def pick(self, *, kinds: str = "fiub", rank: int = 0) -> Node | None:
        fitting = [n for n in self.pool if n.type.dtype.kind in kinds and n.type.rank >= rank]
        if not fitting:
            return None
        return self.rng.choice(fitting[-5:] if self.rng.random() < 0.6 else fitting)

    def like(self, type_: Type) -> Node:
        """Something of a type: of the pool, broadcast or cast to it, or a constant."""
        rng = self.rng
        same = [n for n in self.pool if n.type == type_]
        if same and rng.random() < 0.5:
            return rng.choice(same)
        fitting = [(n, axes) for n in self.pool if (axes := embedding(n.type.shape, type_.shape)) is not None]
        smaller = [(n, axes) for n, axes in fitting if n.type.dtype is type_.dtype and n.type.rank < type_.rank]
        if smaller and rng.random() < 0.7:
            node, axes = rng.choice(smaller)
            return self.add("broadcast", node, shape=type_.shape, axes=axes)
        others = [n for n, _ in fitting if n.type.shape == type_.shape and n.type.dtype is not type_.dtype]
        if others and rng.random() < 0.4:
            return self.add("cast", rng.choice(others), dtype=type_.dtype)
        return self.constant(type_)

    def constant(self, type_: Type) -> Node:
        if self.rng.random() < 0.4 and all(isinstance(d, int) for d in type_.shape):
            value = numbers_for(type_.dtype, sized(type_.shape, {}), self.numbers)
            return self._known(
                self.graph.constant(np.round(value, 2) if value.dtype.kind == "f" else value, type_.dtype)
            )
        number = self.rng.choice((0, 1, 2, 3, 1, 0.5, -1, 0.25) if type_.dtype.kind == "f" else (0, 1, 2, 3, 5))
        return self._known(fill(self.graph.constant(0, i64), bool(number) if type_.dtype is boolean else number, type_))

    def _known(self, node: Node) -> Node:
        self.analysis.of(node)
        return node

    def scalar(self, dtype: DType) -> Node:
        return self.like(Type(dtype))

    # Ops.

    def steps(self, count: int) -> None:
        """Add about ``count`` ops."""
        tries = 0
        while count > 0 and tries < 60:
            tries += 1
            before = len(self.pool)
            try:
                getattr(self, f"_do_{self.rng.choice(self.families())}")()
            except (MlaotError, OverflowError):
                continue
            count -= len(self.pool) > before

    def families(self) -> tuple[str, ...]:
        if self.depth:
            return INNER if self.depth == 1 else SIMPLE
        return TRAINED if self.trains else FAMILIES

    def _do_unary(self) -> None:
        x = self.pick(kinds="fiu")
        if x is None:
            return self._do_logic()
        if x.type.dtype.kind != "f":
            ops = ("neg", "abs", "sign", "relu", "step", "bitwise_not", "copy")
            self.add(self.rng.choice(ops), x)
            return None
        op = self.rng.choice(SMOOTH + tuple(RESTRICTED) + PIECEWISE)
        if op in RESTRICTED and (op == "normal_quantile" or self.rng.random() < 0.85):
            x = getattr(self, f"_{RESTRICTED[op].replace(' ', '_')}")(x)
        elif op in ("exp", "exp2", "sinh", "cosh", "expm1", "erfc") and self._size(x) > 5:
            x = self.add("tanh", x)
        self.add(op, x)
        return None

    def _size(self, x: Node) -> float:
        return float(np.abs(self.value(x).value).max(initial=0))

    def _filled(self, x: Node, number: float) -> Node:
        return self._known(fill(x, number, x.type))

    def _positive(self, x: Node) -> Node:
        return self.add("add", self.add("abs", x), self._filled(x, 0.5))

    def _above_one(self, x: Node) -> Node:
        return self.add("add", self.add("abs", x), self._filled(x, 1.25))

    def _below_one(self, x: Node) -> Node:
        return self.add("mul", self.add("tanh", x), self._filled(x, 0.9))

    def _probability(self, x: Node) -> Node:
        return self.add("add", self.add("mul", self.add("tanh", x), self._filled(x, 0.4375)), self._filled(x, 0.5))

    def _do_binary(self) -> None:
        x = self.pick(kinds="fiu")
        if x is None:
            return self._do_logic()
        y = self.like(x.type)
        if x.type.dtype.kind != "f":
            self.add(self.rng.choice(PAIRS + INTEGER_PAIRS + BITS), *self._either(x, y))
            return None
        op = self.rng.choice(PAIRS * 2 + FLOAT_PAIRS)
        if op in ("div", "floor_divide", "remainder", "fmod") and self.rng.random() < 0.9:
            y = y if np.abs(self.value(y).value).min(initial=1) > 0.1 else self._positive(y)
        if op == "power" and self.rng.random() < 0.8:
            x, y = self._positive(self._below_one(x)), self.add("tanh", y)
        self.add(op, *(self._either(x, y) if op in PAIRS else (x, y)))
        return None

    def _either(self, x: Node, y: Node) -> tuple[Node, Node]:
        return (x, y) if self.rng.random() < 0.5 else (y, x)

    def _do_many(self) -> None:
        if (x := self.pick(kinds="fiu")) is not None:
            more = [self.like(x.type) for _ in range(self.rng.randint(2, 3))]
            self.add(self.rng.choice(("add", "maximum", "minimum")), x, *more)

    def _do_pow(self) -> None:
        x = self.pick(kinds="fiu")
        if x is None:
            return
        if x.type.dtype.kind != "f":
            self.add("pow", x, exponent=float(self.rng.choice((0, 1, 2, 3, 4, 5))))
            return
        exponent = self.rng.choice((0.0, 1.0, 2.0, 3.0, 4.0, -1.0, -2.0, -3.0, 0.5, 1.5, -0.5, 2.5))
        if exponent < 0 or exponent != int(exponent):
            x = self._positive(x)
        self.add("pow", x, exponent=exponent)

    def _do_cast(self) -> None:
        if (x := self.pick()) is not None:
            self.add("cast", x, dtype=DTYPES[self.rng.choice(FLOATS + INTEGERS + ("bool",))])

    def _do_float_cast(self) -> None:
        if (x := self.pick(kinds="f")) is not None:
            self.add("cast", x, dtype=DTYPES[self.rng.choice(FLOATS)])

    def _do_compare(self) -> None:
        if (x := self.pick(kinds="fiu")) is not None:
            if x.type.dtype.kind == "f" and self.rng.random() < 0.2:
                self.add(self.rng.choice(QUESTIONS), x)
            else:
                self.add(self.rng.choice(COMPARISONS), *self._either(x, self.like(x.type)))

    def _do_logic(self) -> None:
        x = self.pick(kinds="b") or self._truth(self.pick())
        if x is not None:
            if self.rng.random() < 0.25:
                self.add("bitwise_not", x)
            else:
                ops = (*BITS, "equal", "not_equal", "where")
                op = self.rng.choice(ops)
                y = self.like(x.type)
                self.add(op, *((x, y, self.like(x.type)) if op == "where" else (x, y)))

    def _truth(self, x: Node | None) -> Node | None:
        """A bool of the shape of x."""
        if x is None or x.type.dtype is boolean:
            return x
        return self.add(self.rng.choice(COMPARISONS), x, self.like(x.type))

    def _do_where(self) -> None:
        if (x := self.pick()) is not None:
            condition = self.like(Type(boolean, x.type.shape))
            if condition.op is st.const or (condition.op is st.broadcast and condition.arg(0).op is st.const):
                condition = self._truth(x) or condition
            self.add("where", condition, *self._either(x, self.like(x.type)))

    def _do_broadcast(self) -> None:
        if (x := self.pick()) is not None and x.type.rank < 4:
            at, side = self.rng.randint(0, x.type.rank), self.rng.choice([*self.sides, 1])
            shape = (*x.type.shape[:at], side, *x.type.shape[at:])
            self.add("broadcast", x, shape=shape, axes=tuple(i for i in range(len(shape)) if i != at))

    def _do_transpose(self) -> None:
        if (x := self.pick(rank=2)) is not None:
            self.add("transpose", x, perm=tuple(self.rng.sample(range(x.type.rank), x.type.rank)))

    def _do_reshape(self) -> None:
        if (x := self.pick()) is None:
            return
        shape = [d for d in x.type.shape if d != 1 or self.rng.random() < 0.5]
        if len(shape) > 1 and self.rng.random() < 0.6:
            at = self.rng.randrange(len(shape) - 1)
            shape[at : at + 2] = [dims_.product((shape[at], shape[at + 1]))]
        elif shape and isinstance(shape[-1], int) and shape[-1] > 3:
            k = next((k for k in (2, 3, 4, 5) if shape[-1] % k == 0), 1)
            shape[-1:] = [k, shape[-1] // k]
        if self.rng.random() < 0.2:
            self.rng.shuffle(shape)
        if len(shape) < 4 and self.rng.random() < 0.3:
            shape.insert(self.rng.randint(0, len(shape)), 1)
        self.add("reshape", x, shape=tuple(shape))

    def _axes(self, x: Node) -> tuple[int, ...]:
        return tuple(sorted(self.rng.sample(range(x.type.rank), self.rng.randint(1, x.type.rank))))

    def _do_reduce(self) -> None:
        if (x := self.pick(rank=1)) is not None:
            ops = ("max", "min") if x.type.dtype is boolean else ("sum", "sum", "max", "min", "prod")
            self.add(self.rng.choice(ops), x, axes=self._axes(x) if self.rng.random() < 0.97 else ())

    def _do_arg(self) -> None:
        if (x := self.pick(rank=1)) is not None:
            self.add(self.rng.choice(("argmax", "argmin")), x, axis=self.rng.randrange(x.type.rank))

    def _do_cumulative(self) -> None:
        x = self.pick(kinds="fiu", rank=1)
        if x is None:
            return
        axis, reverse = self.rng.randrange(x.type.rank), self.rng.random() < 0.4
        op = self.rng.choice(("cumsum", "cumsum", "cumprod", "linear_recurrence"))
        if op == "linear_recurrence":
            self.add(op, *self._either(x, self.like(x.type)), axis=axis, reverse=reverse)
        else:
            self.add(op, x, axis=axis, reverse=reverse, exclusive=self.rng.random() < 0.4)

    def _do_sort(self) -> None:
        x = self.pick(rank=1)
        if x is None:
            return
        axis = x.type.rank - 1 if self.rng.random() < 0.6 else self.rng.randrange(x.type.rank)
        extent = x.type.shape[axis]
        some = isinstance(extent, int) and extent > 0 and self.rng.random() < 0.4
        count = {"count": self.rng.randint(1, extent)} if some else {}
        descending = self.rng.random() < 0.4
        order = self.add("argsort", x, axis=axis, descending=descending, **count)
        if axis == x.type.rank - 1 and self.rng.random() < 0.7:
            self.add("gather", x, order, lead=axis)
        else:
            places = {"places": (count["count"] // 2, count["count"])} if some else {}
            self.add("sort", x, axis=axis, descending=descending, **places)

    def _do_slice(self) -> None:
        if (x := self.pick(rank=1)) is not None:
            self.add_slice(x, [self._run(d) for d in x.type.shape])

    def add_slice(self, x: Node, runs: Sequence[tuple[Dim, Dim, int]]) -> Node:
        start, size, step = (tuple(part) for part in zip(*runs, strict=True))
        return self.add("slice", x, start=start, size=size, step=step)

    def _run(self, d: Dim) -> tuple[Dim, Dim, int]:
        """Start, size and step along an axis."""
        rng = self.rng
        if rng.random() < 0.3 or d == 0:
            return 0, d, 1
        if not isinstance(d, int):
            half = (d + 1) // 2
            return rng.choice(
                ((0, d, 1), (d - 1, d, -1), (1, d - 1, 1), (0, half, 2), (d - 1, half, -2), (0, d - 1, 1))
            )
        step, first = rng.choice((1, 1, 2, 3, -1, -2, -3)), rng.randrange(d)
        room = (d - 1 - first) // step + 1 if step > 0 else first // -step + 1
        return first, rng.randint(0 if rng.random() < 0.1 else 1, room), step

    def _do_pad(self) -> None:
        x = self.pick(rank=1)
        if x is None:
            return
        low, high, interior = (
            tuple(self.rng.choice(some) for _ in x.type.shape)
            for some in ((0, 0, 1, 2, 5), (0, 0, 1, 3), (0, 0, 0, 1, 2))
        )
        self.add("pad", x, self.scalar(x.type.dtype), low=low, high=high, interior=interior)

    def _windows(self, x: Node) -> dict[str, Any]:
        axes = self.rng.sample(range(x.type.rank), self.rng.randint(1, min(2, x.type.rank)))
        sizes, strides, dilations = (
            tuple(self.rng.choice(some) for _ in axes) for some in ((1, 2, 2, 3), (1, 1, 2, 3), (1, 1, 2))
        )
        return {"axes": tuple(axes), "sizes": sizes, "strides": strides, "dilations": dilations}

    def _do_window(self) -> None:
        x = self.pick(rank=1)
        if x is None:
            return
        attrs = self._windows(x)
        y = self.add("window", x, **attrs)
        if self.rng.random() < 0.4 and y.type.dtype.kind != "b":
            self.add("fold", self.like(y.type), **attrs, shape=x.type.shape)

    def _do_pool(self) -> None:
        """Windows, reduced at once."""
        if (x := self.pick(kinds="fiu", rank=1)) is not None:
            attrs = self._windows(x)
            axes = tuple(range(x.type.rank, x.type.rank + len(attrs["axes"])))
            self.add(self.rng.choice(("max", "sum", "min")), self.add("window", x, **attrs), axes=axes)

    def _do_concat(self) -> None:
        x = self.pick(rank=1)
        if x is None:
            return
        axis = self.rng.randrange(x.type.rank)
        parts = [x]
        for _ in range(self.rng.randint(1, 2)):
            other = self.like(x.type)
            if self.rng.random() < 0.5:
                other = self.add_slice(
                    other, [self._run(d) if i == axis else (0, d, 1) for i, d in enumerate(x.type.shape)]
                )
            parts.append(other)
        self.rng.shuffle(parts)
        self.add("concat", *parts, axis=axis)

    def _do_stack(self) -> None:
        if (x := self.pick()) is not None and x.type.rank < 4:
            parts = [x, *[self.like(x.type) for _ in range(self.rng.randint(0, 2))]]
            self.add("stack", *parts, axis=self.rng.randint(0, x.type.rank))

    def _lead(self, x: Node) -> int:
        """Axes in front that a take leaves alone: at least those of named dims."""
        dynamic = [i for i, d in enumerate(x.type.shape) if not isinstance(d, int)]
        return self.rng.randint(max(dynamic, default=-1) + 1, x.type.rank)

    def _do_take(self) -> None:
        if (x := self.pick()) is None:
            return
        lead = self._lead(x)
        size = int(np.prod(sized(x.type.shape[lead:], {})))
        shape = tuple(self.rng.choice((1, 2, 3, 5)) for _ in range(self.rng.randint(0, 2)))
        if self.rng.random() < 0.2 and not lead and size:
            self.add("item", x, index=self.rng.randrange(size))
        elif self.rng.random() < 0.25 and x.type.dtype.kind != "b":
            index = self.numbers.integers(0, 4, sized(x.type.shape[lead:], {}))
            self.add("put_add", x, indices=st.indices(index), lead=lead, shape=(2, 2))
        elif size:
            self.add("take", x, indices=st.indices(self.numbers.integers(0, size, shape)), lead=lead)

    def _indices(self, shape: tuple[Dim, ...]) -> Node:
        """Integers of a shape, or of a longer one that starts like it."""
        fitting = [
            n
            for n in self.pool
            if n.type.dtype.kind in "iu" and n.type.rank > len(shape) and n.type.shape[: len(shape)] == shape
        ]
        if fitting and self.rng.random() < 0.7:
            return self.rng.choice(fitting)
        more = tuple(self.rng.choice(self.sides) for _ in range(self.rng.randint(1, 2)))
        return self.like(Type(DTYPES[self.rng.choice(INTEGERS)], (*shape, *more)))

    def _do_gather(self) -> None:
        if (x := self.pick(rank=1)) is not None:
            lead = self.rng.randrange(x.type.rank)
            self.add("gather", x, self._indices(x.type.shape[:lead]), lead=lead)

    def _do_scatter(self) -> None:
        if (x := self.pick(rank=1)) is not None:
            lead = self.rng.randrange(x.type.rank)
            indices = self._indices(x.type.shape[:lead])
            updates = self.like(Type(x.type.dtype, (*indices.type.shape, *x.type.shape[lead + 1 :])))
            self.add("scatter", x, indices, updates, lead=lead, mode=self.rng.choice(MODES))

    def _do_contract(self) -> None:
        """Labels for two operands that agree in size, some kept and some summed."""
        x = self.pick(kinds="fiu")
        if x is None:
            return
        others = [n for n in self.pool if n.type.dtype is x.type.dtype]
        y = self.rng.choice(others)
        letters = iter("abcdefghijk")
        first = dict(zip(letters, x.type.shape, strict=False))
        second, free = [], dict(first)
        for d in y.type.shape:
            match = next((c for c, e in free.items() if e == d), None)
            if match is not None and self.rng.random() < 0.8:
                free.pop(match)
                second.append(match)
            else:
                second.append(next(letters))
        labels = [*first, *[c for c in second if c not in first]]
        kept = [c for c in labels if self.rng.random() < (0.3 if c in first and c in second else 0.9)]
        self.rng.shuffle(kept)
        self.add("contract", x, y, spec=f"{''.join(first)},{''.join(second)}->{''.join(kept)}")

    def _do_softmax(self) -> None:
        if (x := self.pick(kinds="f", rank=1)) is None:
            return
        axis = self.rng.choice((x.type.rank - 1, self.rng.randrange(x.type.rank)))
        kept = red.kept_axes(x.type.rank, (axis,))

        def spread(node: Node) -> Node:
            return self.add("broadcast", node, shape=x.type.shape, axes=kept)

        e = self.add("exp", self.add("sub", x, spread(self.add("max", x, axes=(axis,)))))
        self.add("div", e, spread(self.add("sum", e, axes=(axis,))))

    def _do_leaf(self) -> None:
        """Values without arguments: a count, an extent, random bits, a constant."""
        kind = self.rng.choice(("iota", "size", "bits", "hot"))
        shape = self.shape()
        if kind == "iota" and shape:
            dtype = DTYPES[self.rng.choice(FLOATS + INTEGERS)]
            self.add("iota", shape=shape, axis=self.rng.randrange(len(shape)), dtype=dtype)
        elif kind == "size" and self.names:
            name = self.rng.choice(self.names)
            self.add("size", dim=self.rng.choice((name, name * 2, name + 3)), dtype=self.rng.choice(self.dtypes))
        elif kind == "bits":
            key = next((n for n in self.pool if n.type == u32[2]), None)
            key = key or self._known(self.graph.constant([3, 2**32 - 1], u32))
            self.add("random_bits", key, shape=shape, site=self.rng.choice((0, 1, 65535)))
        elif kind == "hot" and (label := self.pick(kinds="iu")) is not None:
            self.add("one_hot", label, classes=self.rng.choice((1, 3, 17)), dtype=DTYPES[self.rng.choice(FLOATS)])

    # Control flow.

    def _inner(self, name: str, types: Sequence[Type], values: Sequence[Bounded]) -> Maker:
        """A maker of a subgraph, whose inputs have the types and, on the sample, the values given."""
        inner = Maker(self.rng, self.numbers, Graph(name), self.depth + 1)
        inner.sides, inner.names, inner.dtypes = self.sides, self.names, self.dtypes
        for i, (type_, value) in enumerate(zip(types, values, strict=True)):
            inner.input(f"a{i}", type_, value)
        return inner

    def _results(self, types: Sequence[Type], given: Sequence[Node]) -> list[Node]:
        """Of each type the latest value, or at random the one given."""
        found = []
        for type_, fallback in zip(types, given, strict=True):
            fitting = [n for n in self.pool if n.type == type_ and n.op is not st.input_]
            found.append(fitting[-1] if fitting and self.rng.random() < 0.85 else fallback)
        return found

    def _subgraph(self, outputs: Sequence[Node]) -> Subgraph:
        self.graph.outputs = {f"r{i}": node for i, node in enumerate(outputs)}
        return Subgraph(self.graph)

    def _some(self, least: int, most: int) -> list[Node]:
        return [self.rng.choice(self.pool) for _ in range(self.rng.randint(least, most))] if self.pool else []

    def _take_results(self, node: Node) -> None:
        assert isinstance(node.type, TupleType)
        for i in range(len(node.type.items)):
            self.add("result", node, index=i)

    def _do_scan(self) -> None:
        rng = self.rng
        first = self.pick(rank=1)
        xs = [] if first is None or rng.random() < 0.15 else [first]
        length: Dim = xs[0].type.shape[0] if xs else rng.choice((0, 1, 3))
        if xs:
            same = [n for n in self.pool if n.type.rank and n.type.shape[0] == length]
            xs += [rng.choice(same) for _ in range(rng.randint(0, 1))]
        consts, carries = self._some(0, 2), self._some(0 if xs else 1, 2)
        if xs and rng.random() < 0.5:
            carries.append(self.constant(xs[0].type.with_shape(xs[0].type.shape[1:])))
        known = [self.value(x) for x in xs]
        slices = [v.map(lambda p: p[0] if len(p) else np.zeros(p.shape[1:], p.dtype)) for v in known]
        types = [n.type for n in (*consts, *carries)] + [x.type.with_shape(x.type.shape[1:]) for x in xs]
        inner = self._inner("body", types, [*[self.value(n) for n in (*consts, *carries)], *slices])
        inner.steps(rng.randint(1, 4))
        given = list(inner.graph.inputs.values())[len(consts) :][: len(carries)]
        outputs = inner._results([c.type for c in carries], given) + inner._some(0, 2)
        if not outputs:
            return
        body = inner._subgraph(outputs)
        attrs = {"consts": len(consts), "carries": len(carries), "length": length, "reverse": rng.random() < 0.4}
        self._take_results(self.add("scan", *consts, *carries, *xs, body=body, **attrs))

    def _do_while(self) -> None:
        rng = self.rng
        counter = self.constant(Type(DTYPES[rng.choice(("i32", "i64", "u8"))]))
        consts, carries = self._some(0, 2), [counter, *self._some(0, 2)]
        given = [*consts, *carries]
        types, values = [n.type for n in given], [self.value(n) for n in given]
        condition = self._inner("condition", types, values)
        more = condition.add("less", condition.pool[len(consts)], condition.constant(counter.type))
        if rng.random() < 0.3:
            condition.steps(2)
            truths = [n for n in condition.pool if n.type == Type(boolean) and n is not more]
            more = condition.add("bitwise_and", more, rng.choice(truths)) if truths else more
        inner = self._inner("body", types, values)
        fallback = inner.pool[len(consts) :][: len(carries)]
        step = inner._known(inner.graph.add(ew.add, (fallback[0], fill(fallback[0], 1, counter.type))))
        inner.steps(rng.randint(1, 3))
        outputs = [step, *inner._results([c.type for c in carries[1:]], fallback[1:])]
        attrs = {"consts": len(consts), "bound": rng.choice((0, 1, 2, 3, 5, 9))}
        self._take_results(
            self.add("while", *given, condition=condition._subgraph([more]), body=inner._subgraph(outputs), **attrs)
        )

    def _do_cond(self) -> None:
        rng = self.rng
        pred = self.like(Type(boolean))
        truths = [n for n in self.pool if n.type.dtype is boolean and n.type.rank]
        if pred.op is st.const and truths:
            mask = rng.choice(truths)
            pred = self.add(rng.choice(("max", "min")), mask, axes=tuple(range(mask.type.rank)))
        operands = self._some(1, 3)
        types, values = [n.type for n in operands], [self.value(n) for n in operands]
        branches = [self._inner(name, types, values) for name in ("then", "otherwise")]
        for branch in branches:
            branch.steps(rng.randint(0, 3))
        first = branches[0]._some(1, 2)
        second = branches[1]._results([n.type for n in first], [branches[1].like(n.type) for n in first])
        then, otherwise = branches[0]._subgraph(first), branches[1]._subgraph(second)
        self._take_results(self.add("cond", pred, *operands, then=then, otherwise=otherwise))


SIMPLE = ("unary", "binary", "binary", "logic", "where", "compare")
INNER = (
    *SIMPLE * 2,
    "reduce",
    "contract",
    "slice",
    "broadcast",
    "cumulative",
    "gather",
    "take",
    "transpose",
    "cast",
    "cond",
    "pad",
    "concat",
    "scatter",
    "many",
)
FAMILIES = (
    *("unary", "binary") * 6,
    *("cast", "compare", "where", "reduce", "contract", "broadcast", "slice") * 3,
    *("pad", "window", "gather", "scatter", "cumulative", "concat", "reshape", "transpose", "logic", "take", "stack")
    * 2,
    *("many", "pow", "arg", "sort", "pool", "softmax", "leaf", "leaf", "scan", "scan", "while", "cond"),
)
TRAINED = (
    *("unary", "binary") * 6,
    *("where", "reduce", "contract", "broadcast", "slice") * 3,
    *("pad", "window", "gather", "scatter", "cumulative", "concat", "reshape", "transpose", "take", "stack") * 2,
    *("many", "pow", "arg", "sort", "pool", "softmax", "leaf", "scan", "while", "cond", "float_cast"),
)


def make(seed: int) -> Made:
    """The random graph of a seed."""
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    trains = rng.random() < 0.25
    maker = Maker(rng, numbers, Graph("model" if trains else "forward"))
    maker.choose(trains)
    for i, dtype in enumerate([*maker.dtypes, *[rng.choice(maker.dtypes) for _ in range(rng.randint(0, 2))]]):
        shape = maker.shape()
        if not i:
            shape = (*[n for n in maker.names if n not in shape], *shape)
        maker.input(f"x{i}", Type(dtype, shape))
    made = Made(maker.graph, trains=trains)
    if trains or rng.random() < 0.25:
        for i in range(rng.randint(1, 2)):
            _slot(maker, made, f"w{i}")
    maker.steps(rng.randint(2, 9))
    if trains:
        _loss(maker, made)
    _roots(maker, made)
    return made


def _slot(maker: Maker, made: Made, name: str) -> None:
    """A parameter or a buffer: a value that the module keeps."""
    dtype = maker.dtypes[0] if made.trains else maker.rng.choice(maker.dtypes)
    if dtype.name in ("bf16",) or (made.trains and dtype.kind != "f"):
        dtype = DTYPES["f32"]
    shape = tuple(d if isinstance(d, int) else 5 for d in maker.shape(2))
    node = maker.input(name, Type(dtype, shape), parameter=True)
    value = np.asarray(maker.values[name], dtype.numpy)
    (made.parameters if made.trains else made.state)[name] = value
    assert BY_NUMPY[str(value.dtype)] is node.type.dtype


def _loss(maker: Maker, made: Made) -> None:
    """One number, from some of the graph and every parameter."""
    floats = [n for n in maker.pool if n.type.dtype.kind == "f"]
    terms = dict.fromkeys([*floats[-3:], *[made.graph.inputs[name] for name in made.parameters]])
    dtype = made.graph.inputs[next(iter(made.parameters))].type.dtype
    total = None
    for term in terms:
        bounded = maker.add("tanh", term if term.type.dtype is dtype else maker.add("cast", term, dtype=dtype))
        if term.type.rank:
            bounded = maker.add("sum", maker.add("mul", bounded, bounded), axes=tuple(range(term.type.rank)))
        total = bounded if total is None else maker.add("add", total, bounded)
    assert total is not None
    made.graph.outputs["loss"] = total


def _roots(maker: Maker, made: Made) -> None:
    """Outputs: what nothing else uses. Writes to buffers, where there is a value of their type."""
    graph, rng = made.graph, maker.rng
    if made.trains:
        return
    for name in made.state:
        fitting = [n for n in maker.pool if n.type == graph.inputs[name].type and n is not graph.inputs[name]]
        if fitting:
            graph.writes[name] = rng.choice(fitting[-3:])
    inner = [n for n in maker.pool if n.op not in (st.input_, st.const)]
    ends = [n for n in inner if n not in maker.used]
    rng.shuffle(ends)
    chosen = ends[:4] or inner[-1:] or maker.pool[-1:]
    if rng.random() < 0.2:
        chosen = [*chosen, rng.choice(maker.pool)]
    graph.outputs = {f"y{i}": node for i, node in enumerate(chosen)}


def trials(made: Made, seed: int) -> list[tuple[dict[str, int], Arrays]]:
    """Three times dims and inputs, the last with special values; dims that the graph refuses are left out."""
    needed = conditions(made.graph)
    found = []
    for trial, choices in enumerate(((2, 3, 5, 8, 17), (0, 1, 1, 2), (1, 2, 4, 6))):
        numbers = np.random.default_rng((seed, trial))
        for _ in range(8):
            dims = {name: int(numbers.choice(choices)) for name in ("n", "m")}
            if all(dims_.substitute(d, dims) >= 0 for d in needed):
                break
        else:
            continue
        found.append((dims, inputs_for(made.graph, {**made.parameters, **made.state}, dims, numbers, trial == 2)))
    return found


def inputs_for(
    graph: Graph, slots: Mapping[str, Array], dims: Mapping[str, int], numbers: np.random.Generator, special: bool
) -> Arrays:
    """Values for the inputs by name; slots have what they start with."""
    return {
        name: slots[name]
        if name in slots
        else numbers_for(n.type.dtype, sized(n.type.shape, dims), numbers, special=special)
        for name, n in graph.inputs.items()
    }
