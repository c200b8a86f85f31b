"""Random functions of NumPy arrays, compiled, against NumPy itself.

    python -m tests.fuzz.functions --count 20000 --seed 0
    python -m tests.fuzz.functions --count 2000 --same-bits deterministic

A function is lines of Python, each a call of NumPy with arrays computed before; it runs on NumPy's arrays, and traced.
How near results must be is found by NumPy alone: it computes the function again in a wider dtype, and of arguments
that are off by a unit in the last place. Where all of that gives one number there was no rounding, and the compiled
function must give it too; integers and bools must be equal unless such a change tips them. What fails is made smaller
by leaving lines and results out, and printed.

``--same-bits`` compiles each function with every intermediate value as one more result, with its results in another
order, and with one result alone: with ``deterministic = true`` no bit of a result depends on what else is computed.
Without it (``fast``) a product may be fused with the sum it goes into where the product itself is not stored.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend import numpy as _functions  # noqa: F401  fills the tables
from mlaot.ir.types import BY_NUMPY, Type
from mlaot.lower.lower import lower
from mlaot.lower.program import Program
from mlaot.settings.options import Options

from ..arrayapi.engines import passed
from ..compiled import AVAILABLE, Library, effort
from ..frontend.tracing import graph_of

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]

PER_FILE = 50
FLAGS = ("-Wno-error", "-w")
LARGEST = 300  # elements of a value
DTYPES = ("float32", "float32", "float64", "float64", "float16", "int64", "int32", "int8", "uint8", "uint32", "bool")
SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 6e4, 1e30, -1e30, 0.5, 1.5, 2.5)
WIDER = {"float16": np.float64, "float32": np.float64, "float64": np.longdouble}
REFUSALS = ("have no common dtype", "does not fit into", "nextafter takes", "to negative integer powers")


@dataclass
class Function:
    """Lines of Python over ``np`` and the inputs, and the names of its results."""

    seed: int
    inputs: Arrays
    lines: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    isa: str = "base"

    def __call__(self, *given: Any) -> list[Any]:
        known = {"np": np, **dict(zip(self.inputs, given, strict=True))}
        for line in self.lines:
            exec(line, known)
        return [known[name] for name in self.outputs]

    def __str__(self) -> str:
        inputs = [f"{k} = np.array({_text(v)}, {str(v.dtype)!r}).reshape({v.shape})" for k, v in self.inputs.items()]
        return "\n".join([*inputs, *self.lines, f"results: {', '.join(self.outputs)}"])


def _text(array: Array) -> str:
    return str(array.ravel().tolist()).replace("nan", "np.nan").replace("inf", "np.inf")


# Making them.


class Maker:
    """Adds random lines to a function; ``values`` are those of NumPy."""

    def __init__(self, seed: int) -> None:
        self.rng, self.numbers = random.Random(seed), np.random.default_rng(seed)
        self.function = Function(seed, {})
        self.values: Arrays = {}
        sides = [self.rng.choice((1, 2, 3, 4, 5, 7, 8, 9, 17)) for _ in range(2)]
        self.sides = [*sides, *sides, 1, self.rng.choice((0, 2, 3, 16))] if self.rng.random() < 0.3 else sides
        self.dtypes = [self.rng.choice(DTYPES), self.rng.choice(DTYPES)]
        for name in "abc"[: self.rng.randint(1, 3)]:
            self.values[name] = self.function.inputs[name] = self.array()

    def array(self) -> Array:
        shape = tuple(self.rng.choice(self.sides) for _ in range(self.rng.choice((0, 1, 1, 2, 2, 2, 3))))
        dtype = self.rng.choice(self.dtypes)
        if dtype == "bool":
            return self.numbers.random(shape) < 0.5
        if not dtype.startswith("float"):
            info = np.iinfo(dtype)
            value = np.asarray(self.numbers.integers(max(info.min, -8), 9, shape)).astype(dtype)
            ends = [info.min, info.max, info.max - 1, 0]
        else:
            whole = self.rng.random() < 0.5
            value = np.asarray(self.numbers.integers(-8, 9, shape) / 2 if whole else self.numbers.normal(size=shape))
            with np.errstate(over="ignore"):
                value, ends = value.astype(dtype), list(np.array(SPECIAL).astype(dtype))
        if value.size and self.rng.random() < 0.25:
            flat = value.reshape(-1)
            flat[self.numbers.integers(0, flat.size, 1 + flat.size // 6)] = self.rng.choice(ends)
            value = flat.reshape(shape)
        return value

    def pick(self, accept: Callable[[Array], bool] = lambda x: True) -> str:
        """The name of a value, rather one of the last."""
        found = [name for name, value in self.values.items() if accept(value)]
        if not found:
            raise LookupError
        return self.rng.choice(found[-3:] if self.rng.random() < 0.5 else found)

    def axis(self, x: str) -> int:
        rank = self.values[x].ndim
        if not rank:
            raise LookupError
        return self.rng.randrange(-rank, rank)

    def add(self) -> None:
        """One more line, if NumPy takes it."""
        rng, name = self.rng, f"v{len(self.function.lines)}"
        try:
            call = rng.choice(KINDS)(self)
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                value = eval(call, {"np": np, **self.values})
        except (LookupError, TypeError, ValueError, OverflowError, ZeroDivisionError, np.exceptions.AxisError):
            return
        if not isinstance(value, np.ndarray | np.generic) or str(value.dtype) not in BY_NUMPY or value.size > LARGEST:
            return
        self.function.lines.append(f"{name} = {call}")
        self.values[name] = np.asarray(value)


def make(seed: int) -> Function:
    """The random function of a seed."""
    maker = Maker(seed)
    for _ in range(maker.rng.randint(3, 14)):
        maker.add()
    function = maker.function
    read = {n.id for line in function.lines for n in ast.walk(ast.parse(line)) if isinstance(n, ast.Name)}
    last = [f"v{i}" for i in range(len(function.lines))]
    loads = " ".join(line.partition("=")[2] for line in function.lines)
    unread = [v for v in last if f"{v}," not in loads and f"{v})" not in loads and f"{v}[" not in loads]
    function.outputs = unread or last[-1:] or list(function.inputs)[:1]
    return function if read else make(seed + 10**9)


# Lines. Each takes a maker and gives a call.

UNARY = (
    *(
        "negative",
        "absolute",
        "sign",
        "floor",
        "ceil",
        "trunc",
        "rint",
        "fix",
        "square",
        "sqrt",
        "logical_not",
        "isnan",
    ),
    *("isinf", "isfinite", "signbit", "exp", "expm1", "exp2", "sin", "cos", "arctan", "tanh", "arcsinh", "cbrt"),
    *("reciprocal", "nan_to_num", "invert", "deg2rad", "sinc", "log1p", "log", "log2", "isposinf", "ravel", "copy"),
)
BINARY = (
    *("add", "subtract", "multiply", "divide", "maximum", "minimum", "fmax", "fmin", "floor_divide", "remainder"),
    *("fmod", "copysign", "hypot", "arctan2", "heaviside", "logaddexp", "equal", "not_equal", "less", "less_equal"),
    *("greater", "greater_equal", "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or"),
    *("bitwise_xor", "add", "subtract", "multiply", "divide", "isclose", "isin"),
)
# The sign of nan is open, and so is 1 / 0 of integers.
ACCEPTED: dict[str, Callable[[Array], bool]] = {
    "reciprocal": lambda x: x.dtype.kind == "f",
    "signbit": lambda x: not np.isnan(x).any(),
    "copysign": lambda x: not np.isnan(x).any(),
}
REDUCTIONS = (
    *("sum", "prod", "max", "min", "mean", "var", "std", "any", "all", "argmax", "argmin", "count_nonzero", "ptp"),
    *("median", "nansum", "nanmax", "nanmin", "nanmean", "nanprod"),
)
# Calls that round, and those of them of which a wider dtype tells whether they did.
EXACT = re.compile(
    r"np\.(add|subtract|multiply|divide|square|sum|prod|nansum|nanprod|cumsum|cumprod|diff|matmul|dot)\("
)
CANCELLING = re.compile(r"np\.(sum|nansum|cumsum|matmul|dot|inner|convolve|mean|nanmean|var|std|logaddexp)\(")
ROUNDING = re.compile(
    EXACT.pattern
    + r"|np\.(inner|outer|convolve|mean|var|std|nanmean|median|quantile|ptp|exp|expm1|exp2|sin|cos|arctan|"
    r"tanh|arcsinh|cbrt|reciprocal|deg2rad|sinc|log1p|log|log2|remainder|fmod|hypot|arctan2|logaddexp|power|round|sqrt|"
    r"pad)\("
)


def unary(m: Maker) -> str:
    name = m.rng.choice(UNARY)
    return f"np.{name}({m.pick(ACCEPTED.get(name, lambda x: True))})"


def binary(m: Maker) -> str:
    a = m.pick()
    b = m.pick() if m.rng.random() < 0.7 else m.rng.choice(("2", "0.5", "-1", "3", "1", "np.float32(0.1)", "0", "7"))
    a, b = (b, a) if m.rng.random() < 0.2 else (a, b)
    name = m.rng.choice(BINARY)
    return f"np.{name}({a}, {m.pick(ACCEPTED[name]) if name in ACCEPTED else b})"


def power(m: Maker) -> str:
    return f"np.power({m.pick()}, {m.rng.choice(('2', '3', '0', '1', '0.5', '1.5', '-1', '-2'))})"


def choice(m: Maker) -> str:
    kind = m.rng.randrange(4)
    if kind == 0:
        return f"np.where({m.pick(lambda x: x.dtype == bool)}, {m.pick()}, {m.pick()})"
    if kind == 1:
        return f"np.clip({m.pick()}, {m.rng.choice(('-1', '0', 'None'))}, {m.rng.choice(('1', '3', '2.5'))})"
    if kind == 2:
        return f"np.where({m.pick()}, {m.pick()}, {m.rng.choice(('0', '1.5', '-2'))})"
    return f"np.round({m.pick(lambda x: x.dtype.kind == 'f')}, {m.rng.choice((0, 1, 2, -1))})"


def reduction(m: Maker) -> str:
    x, name = m.pick(), m.rng.choice(REDUCTIONS)
    axis = m.rng.choice(("None", m.axis(x)))
    more = ", keepdims=True" if m.rng.random() < 0.3 else ""
    if name in ("max", "min", "sum") and m.rng.random() < 0.2:
        more += f", initial={m.rng.choice((0, 1, 3))}"
    return f"np.{name}({x}, axis={axis}{more})"


def scan(m: Maker) -> str:
    x = m.pick()
    name = m.rng.choice(("cumsum", "cumprod", "sort", "diff", "argsort", "cumsum"))
    return f"np.{name}({x}, axis={m.axis(x)}{', kind=' + repr('stable') if name == 'argsort' else ''})"


def quantile(m: Maker) -> str:
    x = m.pick(lambda a: a.dtype.kind == "f")
    return f"np.quantile({x}, {m.rng.choice((0.0, 0.25, 0.5, 0.9, [0.1, 0.6]))}, axis={m.axis(x)})"


def shape(m: Maker) -> str:
    x = m.pick(lambda a: a.ndim > 0)
    value, at, rng = m.values[x], m.axis(x), m.rng
    kinds: list[Callable[[], str]] = [
        lambda: f"np.reshape({x}, {rng.choice((-1, (1, -1), (-1, 1), value.shape[::-1]))})",
        lambda: f"np.transpose({x})",
        lambda: f"np.swapaxes({x}, {at}, {m.axis(x)})",
        lambda: f"np.moveaxis({x}, {at}, {m.axis(x)})",
        lambda: f"np.expand_dims({x}, {at})",
        lambda: f"np.squeeze({x})",
        lambda: f"np.flip({x}, {at})",
        lambda: f"np.roll({x}, {rng.randint(-3, 4)}, {rng.choice((at, None))})",
        lambda: f"np.repeat({x}, {rng.randint(1, 3)}, axis={at})",
        lambda: f"np.tile({x}, {rng.choice((2, (2, 1), (1, 2)))})",
        lambda: f"np.tril({x}, {rng.randint(-1, 1)})",
        lambda: f"np.triu({x}, {rng.randint(-1, 1)})",
        lambda: f"np.diagonal({x}, {rng.randint(-1, 1)})",
        lambda: f"np.rot90({x}, {rng.randint(0, 3)})",
        lambda: f"np.pad({x}, {rng.randint(0, 2)}, mode={rng.choice(PADS)!r})",
        lambda: f"np.broadcast_to({x}, {(rng.randint(1, 3), *value.shape)})",
        lambda: f"np.take({x}, {[rng.randrange(-value.shape[at], value.shape[at]) for _ in range(3)]}, axis={at})",
        lambda: f"{x}[{', '.join(cut(rng, n) for n in value.shape)}]",
        lambda: f"{x}[{', '.join(cut(rng, n) for n in value.shape[:1])}]",
        lambda: f"np.resize({x}, {rng.randint(1, 9)})",
        lambda: f"np.array_split({x}, 2, axis={at})[{rng.randint(0, 1)}]",
        lambda: f"np.take_along_axis({x}, np.argsort({x}, axis={at}, kind='stable'), axis={at})",
        lambda: f"np.searchsorted(np.sort(np.ravel({x})), {m.pick(lambda a: a.dtype == value.dtype)})",
    ]
    return rng.choice(kinds)()


PADS = ("constant", "edge", "reflect", "symmetric", "wrap", "linear_ramp", "maximum", "mean", "median")


def cut(rng: random.Random, n: int) -> str:
    """An index along an axis."""
    kind = rng.randrange(6)
    if kind == 0 and n:
        return str(rng.randrange(-n, n))
    if kind == 1:
        return "None, :"
    start, stop = sorted(rng.randint(0, n) for _ in range(2))
    return (":", f"{start}:{stop}", "::-1", f"{start}::2")[rng.randrange(4)]


def join(m: Maker) -> str:
    x = m.pick(lambda a: a.ndim > 0)
    like = m.values[x]
    y = m.pick(lambda a: a.shape == like.shape)
    at = m.axis(x)
    return m.rng.choice((f"np.concatenate([{x}, {y}], axis={at})", f"np.stack([{x}, {y}], axis={at})"))


def product(m: Maker) -> str:
    x = m.pick(lambda a: a.ndim > 0)
    n = m.values[x].shape[-1]
    kind = m.rng.randrange(6)
    if kind < 2:
        y = m.pick(lambda a: a.ndim > 0 and a.shape[-1 if a.ndim == 1 else -2] == n)
        return f"np.{('matmul', 'dot')[kind]}({x}, {y})"
    y = m.pick(lambda a: a.ndim > 0 and a.shape[-1] == n)
    if kind == 2:
        return f"np.inner({x}, {y})"
    if kind == 3:
        return f"np.outer({x}, {y})"
    if kind == 4:
        return f"np.sum(np.multiply({x}, {y}), axis=-1)"
    return f"np.convolve(np.ravel({x}), np.ravel({y})[:4], mode={m.rng.choice(('full', 'same', 'valid'))!r})"


def cast(m: Maker) -> str:
    x = m.pick(
        lambda a: a.dtype.kind != "f" or bool(np.isfinite(a).all() and (np.abs(a) < 100).all() and (a >= 0).all())
    )
    to = m.rng.choice(("float32", "float64", "float16", "int64", "int32", "bool", "uint8"))
    return f"{x}.astype({to!r})"


KINDS: tuple[Callable[[Maker], str], ...] = (
    *[binary] * 8,
    *[unary] * 5,
    *[shape] * 8,
    *[reduction] * 4,
    *[choice] * 3,
    *[scan, scan, product, product, join, join, cast, cast, power, quantile],
)


# What they should give.


@dataclass
class Wanted:
    """NumPy's number, how far a result may be from it, and where that can be said."""

    value: Array
    error: Array
    certain: Array


def computed(function: Function, change: Callable[[Array], Array] = lambda x: x) -> list[Array]:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [np.asarray(x) for x in function(*[change(x) for x in function.inputs.values()])]


def wanted(function: Function) -> list[Wanted]:
    """NumPy's results with bounds that NumPy has given itself."""
    plain, wide = computed(function), _wider(function)
    exact = wide is not None and all(_equal(w, p) and _is_wider(w, p) for w, p in zip(wide, plain, strict=True))
    if exact and not any(ROUNDING.search(line) and not EXACT.search(line) for line in function.lines):
        return [_bounded(p, [], True) for p in plain]
    others = [_nudged(function, seed) for seed in range(4)]
    others += [wide] if wide is not None and [w.shape for w in wide] == [p.shape for p in plain] else []
    return [_bounded(p, [o[i] for o in others], False) for i, p in enumerate(plain)]


def _wider(function: Function) -> list[Array] | None:
    """The results for inputs of more digits, where NumPy takes them."""
    try:
        return computed(function, lambda x: x.astype(WIDER[str(x.dtype)]) if x.dtype.kind == "f" else x)
    except (TypeError, ValueError, OverflowError, IndexError):
        return None


def _nudged(function: Function, seed: int) -> list[Array]:
    """The results where each number that was rounded is off by some units in the last place."""
    numbers = np.random.default_rng(seed)
    known: dict[str, Any] = {"np": np, **function.inputs}
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for line in function.lines:
            exec(line, known)
            name = line.partition(" =")[0]
            value = np.asarray(known[name])
            if ROUNDING.search(line) and value.dtype.kind == "f":
                size = np.abs(value)
                if CANCELLING.search(line):
                    size = np.full_like(size, size[np.isfinite(size)].max(initial=1))
                steps = numbers.integers(-2, 3, value.shape) * np.spacing(size)
                known[name] = np.where(np.isfinite(value) & (value != 0), value + steps, value).astype(value.dtype)
    return [np.asarray(known[name]) for name in function.outputs]


def _is_wider(a: Array, b: Array) -> bool:
    """Whether a float was computed with more digits, and not in the dtype that integers give."""
    return b.dtype.kind != "f" or np.finfo(a.dtype).nmant > np.finfo(b.dtype).nmant


def _equal(a: Array, b: Array) -> bool:
    return bool(np.array_equal(a, b, equal_nan=True)) if b.dtype.kind == "f" else bool((a == b).all())


def _bounded(plain: Array, others: list[Array], exact: bool) -> Wanted:
    if plain.dtype.kind != "f":
        same = np.all([np.ones(plain.shape, bool), *[o == plain for o in others]], axis=0)
        return Wanted(plain, np.zeros(plain.shape), np.broadcast_to(same, plain.shape))
    with np.errstate(all="ignore"):
        value = plain.astype(np.longdouble)
        off = [np.abs(o.astype(np.longdouble) - value) for o in others]
        odd = [np.isfinite(o.astype(np.longdouble)) != np.isfinite(value) for o in others]
        odd += [np.isinf(value) & (o != plain) for o in others]
        distance = np.max([np.where(np.isfinite(d), d, 0) for d in off], axis=0) if off else np.zeros(plain.shape)
        certain = ~np.any([np.zeros(plain.shape, bool), *odd], axis=0)
        limits = np.finfo(plain.dtype)
        unit = np.maximum(np.abs(value) * limits.eps, float(limits.smallest_subnormal))
        error = np.zeros(plain.shape) if exact else 30 * distance + 8 * unit
    return Wanted(plain, np.asarray(error, np.float64), np.broadcast_to(certain, plain.shape))


def difference(found: Array, expected: Wanted) -> str:
    """Where a result is wrong, as a line."""
    value = expected.value
    if (found.dtype, found.shape) != (value.dtype, value.shape):
        return f"{found.dtype}{list(found.shape)}, expected {value.dtype}{list(value.shape)}"
    with np.errstate(all="ignore"):
        if value.dtype.kind != "f":
            wrong = (found != value) & expected.certain
        else:
            far = np.abs(found.astype(np.float64) - value.astype(np.float64)) > expected.error
            same = (found == value) | (np.isnan(found) & np.isnan(value))
            wrong = ~same & (far | (np.isfinite(found) != np.isfinite(value))) & expected.certain
    if not wrong.any():
        return ""
    at = tuple(int(i[0]) for i in np.nonzero(wrong)) if wrong.ndim else ()
    return (
        f"{list(at)}: got {found[at]!r}, expected {value[at]!r} within {expected.error[at]:.3g};"
        f" {int(wrong.sum())} of {wrong.size} are wrong"
    )


# Compiling and running.


def program(function: Function, isa: str, deterministic: bool = False) -> Program:
    types = [Type(BY_NUMPY[str(a.dtype)], a.shape) for a in function.inputs.values()]
    return lower(passed(graph_of(function, *types)[0], Options(isas=(isa,), deterministic=deterministic)))


def programs(
    cases: Sequence[Function], isa: str, counts: Counter[str], deterministic: bool = False
) -> dict[str, Program]:
    """Those that can be traced; what is refused without need is a failure."""
    found = {}
    for i, case in enumerate(cases):
        case.isa = isa
        try:
            found[f"f{i}"] = program(case, isa, deterministic)
        except MlaotError as error:
            counts["refused"] += 1
            if not any(reason in str(error) for reason in REFUSALS):
                case.failures.append(f"refused: {error}")
        except Exception:
            case.failures.append(traceback.format_exc(limit=-3))
    return found


def library(
    found: dict[str, Program], cases: Sequence[Function], isa: str, folder: Path, flags: Sequence[str] = FLAGS
) -> dict[str, Library]:
    """All in one C file, in halves where it does not compile."""
    if not found:
        return {}
    try:
        return dict.fromkeys(found, Library(found, isa, Path(tempfile.mkdtemp(dir=folder)), flags))
    except Exception as error:
        stems = list(found)
        if len(stems) == 1:
            cases[int(stems[0][1:])].failures.append(f"does not compile: {str(error)[:2000]}")
            return {}
        parts = [{s: found[s] for s in some} for some in (stems[: len(stems) // 2], stems[len(stems) // 2 :])]
        return {k: v for part in parts for k, v in library(part, cases, isa, folder, flags).items()}


def called(built: Library, stem: str, case: Function) -> list[Array]:
    found = built.call(stem, "forward", {f"x{i}": a for i, a in enumerate(case.inputs.values())})
    return [found[str(i)] for i in range(len(case.outputs))]


def check(cases: Sequence[Function], isa: str, counts: Counter[str]) -> None:
    """Note in each function what is wrong with its results."""
    flags = (*FLAGS, effort(cases[0].seed // PER_FILE))
    with tempfile.TemporaryDirectory() as folder:
        built = library(programs(cases, isa, counts), cases, isa, Path(folder), flags)
        for stem, each in built.items():
            case = cases[int(stem[1:])]
            for name, found, expected in zip(case.outputs, called(each, stem, case), wanted(case), strict=True):
                counts["numbers"] += expected.value.size
                counts["not certain"] += int((~expected.certain).sum())
                if line := difference(found, expected):
                    case.failures.append(f"{isa} {name}{line}")


def same_nan(array: Array) -> Array:
    """An array whose nans have one sign and payload, which are left open."""
    return np.where(np.isnan(array), np.nan, array).astype(array.dtype) if array.dtype.kind == "f" else array


def check_bits(cases: Sequence[Function], isa: str, counts: Counter[str], deterministic: bool = True) -> None:
    """Note in each function whose bits depend on what else is computed."""
    variants = [v for case in cases for v in ways(case)]
    flags = (*FLAGS, "-O2", *(["-ffp-contract=off"] if deterministic else []))
    with tempfile.TemporaryDirectory() as folder:
        built = library(programs(variants, isa, counts, deterministic), variants, isa, Path(folder), flags)
        results = [
            dict(zip(v.outputs, called(built[f"f{i}"], f"f{i}", v), strict=True)) if f"f{i}" in built else {}
            for i, v in enumerate(variants)
        ]
    for n, case in enumerate(cases):
        first, *others = results[n * WAYS : (n + 1) * WAYS]
        for way, other in zip(("all values", "reversed", "one alone"), others, strict=True):
            for name in first.keys() & other.keys():
                counts["numbers"] += first[name].size
                if same_nan(first[name]).tobytes() != same_nan(other[name]).tobytes():
                    off = int((first[name] != other[name]).sum())
                    case.failures.append(f"{isa} {name}: other bits with {way}; {off} of {first[name].size}")


WAYS = 4


def ways(case: Function) -> Iterator[Function]:
    """The same function with more, reordered and fewer results."""
    values = [line.partition(" =")[0] for line in case.lines]
    yield case
    yield replace(case, outputs=[*case.outputs, *[v for v in values if v not in case.outputs]], failures=[])
    yield replace(case, outputs=case.outputs[::-1], failures=[])
    yield replace(case, outputs=case.outputs[-1:], failures=[])


Check = Callable[[Sequence[Function], str, Counter[str]], None]


def run(
    first: int, count: int, isas: Sequence[str] = AVAILABLE, judge: Check = check
) -> tuple[list[Function], Counter[str]]:
    """The functions of ``count`` seeds from ``first`` on that failed, and what was compared."""
    counts: Counter[str] = Counter()
    failed: list[Function] = []
    for start in range(first, first + count, PER_FILE):
        cases = [make(seed) for seed in range(start, min(start + PER_FILE, first + count))]
        counts["functions"] += len(cases)
        counts["calls"] += sum(len(case.lines) for case in cases)
        judge(cases, isas[start // PER_FILE % len(isas)], counts)
        failed += [case for case in cases if case.failures]
    return failed, counts


def smallest(case: Function, judge: Check = check) -> Function:
    """A function of fewer lines and results that still fails."""
    best = case
    for _ in range(8):
        candidates = list(_smaller(best))
        judge(candidates, case.isa, Counter())
        failing = [c for c in candidates if c.failures and c.failures[0][:4] == case.failures[0][:4]]
        if not failing:
            break
        best = min(failing, key=lambda c: (len(c.lines), len(c.outputs)))
    return best


def _smaller(case: Function) -> Iterator[Function]:
    """One result alone with what it needs; a line's value as an input."""
    for name in case.outputs:
        yield _needed(replace(case, outputs=[name], failures=[]))
    known: dict[str, Any] = {"np": np, **case.inputs}
    for i, line in enumerate(case.lines):
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(line, known)
        name = line.partition(" =")[0]
        inputs = {**case.inputs, name: np.asarray(known[name])}
        if name not in case.outputs:
            yield _needed(replace(case, inputs=inputs, lines=case.lines[:i] + case.lines[i + 1 :], failures=[]))
        yield _needed(replace(case, lines=case.lines[: i + 1], outputs=[name], failures=[]))


def _needed(case: Function) -> Function:
    """Without lines and inputs that nothing reads."""
    wanted_names, lines = set(case.outputs), []
    for line in reversed(case.lines):
        name, _, call = line.partition(" =")
        if name in wanted_names:
            lines.append(line)
            wanted_names |= {n.id for n in ast.walk(ast.parse(call.strip())) if isinstance(n, ast.Name)}
    return replace(case, inputs={k: v for k, v in case.inputs.items() if k in wanted_names}, lines=lines[::-1])


def report(failed: Sequence[Function], counts: Counter[str], judge: Check = check, most: int = 6) -> str:
    """A summary, and the functions that failed, made smaller."""
    lines = [", ".join(f"{n:,} {what}" for what, n in counts.items())]
    for case in failed[:most]:
        small = smallest(case, judge)
        lines += [f"\nseed {case.seed} on {case.isa}", *(small.failures or case.failures)[:2], str(small)]
    return "\n".join([*lines, f"{len(failed)} functions failed: {[case.seed for case in failed]}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--isa", choices=AVAILABLE, action="append", help="default: all of this machine, in turn")
    parser.add_argument(
        "--same-bits", choices=("deterministic", "fast"), help="no bit depends on what else is computed"
    )
    options = parser.parse_args()
    bits = partial(check_bits, deterministic=options.same_bits == "deterministic")
    started, judge = time.monotonic(), bits if options.same_bits else check
    failed, counts = run(options.seed, options.count, options.isa or AVAILABLE, judge)
    seconds = time.monotonic() - started
    print(report(failed, counts, judge), f"in {seconds:.0f} s, {1000 * seconds / options.count:.0f} ms a function")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
