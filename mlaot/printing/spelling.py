"""Spell expressions of loop nests as C, for the templates to put into statements.

Floats and vectors use C's operators. Integers use functions that are defined for all arguments
(``templates/kernels/integers.h.j2``), and functions of vectors are named ``exp_f32v``. A ``Speller`` counts the
functions that it calls, so that their definitions can precede the calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from mlaot.ir.dims import Dim
from mlaot.ir.dims import Expr as Polynomial
from mlaot.ir.types import DTYPES
from mlaot.nest.expressions import FULL_VECTOR, HALVES, Array, Call, Const, Expr, Index, Load, ValueType, Var, is_float
from mlaot.nest.reductions import BY_LANES
from mlaot.nest.statements import Assign, Invoke, Point, Run, Sort, Store, Transpose

# C types of values; halves are converted to float when they are loaded.
C_NAMES = {
    **{"f32": "float", "f64": "double", "bool": "int"},
    **{
        f"{kind}{bits}": f"{prefix}{bits}_t"
        for bits in (8, 16, 32, 64)
        for kind, prefix in (("i", "int"), ("u", "uint"))
    },
}
# C types of elements in memory, where halves are bits.
MEMORY = {**C_NAMES, "f16": "uint16_t", "bf16": "uint16_t", "bool": "uint8_t"}
SCALARS = {**MEMORY, "bool": "int", "index": "ptrdiff_t"}
NARROW = ("i8", "i16", "u8", "u16")  # C computes these as int
# Operators with their precedence; operators as arguments are in parentheses, except in sums and products.
OPERATORS = {
    **{"mul": ("*", 13), "div": ("/", 13), "mod": ("%", 13), "add": ("+", 12), "sub": ("-", 12)},
    **{"lt": ("<", 10), "le": ("<=", 10), "gt": (">", 10), "ge": (">=", 10), "eq": ("==", 9), "ne": ("!=", 9)},
    **{"and": ("&", 8), "xor": ("^", 7), "or": ("|", 6)},
}
ARITHMETIC = ("add", "sub", "mul", "div")
CHOICES = {"least": "<", "most": ">"}  # of two indices
ATOM, UNARY, CHOICE = 100, 14, 3
NO_SUFFIX = ("first_from", "threefry", "normal_quantile")
C_FUNCTIONS = {"is_equal": "eq"}
BY_ARGUMENT = (*BY_LANES, "any")  # functions named for the type of their argument


class Speller:
    """Spell expressions for vectors of ``bytes`` bytes; ``calls`` counts the functions that they call."""

    def __init__(self, bytes_: int) -> None:
        self.bytes = bytes_
        self.calls: Counter[str] = Counter()

    def __call__(self, x: Expr) -> str:
        """Return ``x`` as C."""
        return self.bind(x)[0]

    def type(self, type_: ValueType) -> str:
        """Return the C type of a value."""
        return SCALARS[type_.dtype] if type_.lanes == 1 else self.suffix(type_).replace("m", "i")

    def suffix(self, type_: ValueType) -> str:
        """Return ``f32v`` for a vector of the machine, ``f32x4`` for another one, ``f32`` for a number."""
        dtype, lanes = type_
        if lanes == 1:
            return dtype
        itemsize = int(dtype[1:]) // 8 if dtype.startswith("m") else DTYPES[dtype].itemsize
        dtype = dtype.replace("m", "i")
        return f"{dtype}v" if lanes == FULL_VECTOR or lanes * itemsize == self.bytes else f"{dtype}x{lanes}"

    def bind(self, x: Expr) -> tuple[str, int]:
        """Return ``x`` as C, and the precedence of its outermost operator."""
        if isinstance(x, Const):
            return self.number(x)
        if isinstance(x, Var):
            return x.name, ATOM
        if isinstance(x, Index):
            text = dim_text(x.value)
            return text, ATOM if text.isalnum() or text.isidentifier() else 12 if " + " in text or " - " in text else 13
        return self.load(x) if isinstance(x, Load) else self.call(x)

    def inside(self, x: Expr, level: int) -> str:
        """Return ``x`` as an argument of an operator of precedence ``level``."""
        text, own = self.bind(x)
        return text if own > level or (own == level == 12) else f"({text})"

    def number(self, x: Const) -> tuple[str, int]:
        dtype, lanes = x.type
        if lanes != 1:
            return self.function(f"splat_{self.suffix(x.type)}", [literal(x.value, dtype)])
        text = literal(x.value, dtype)
        return text, UNARY if text.startswith("-") else ATOM

    def function(self, name: str, args: Sequence[str]) -> tuple[str, int]:
        self.calls[name] += 1
        return f"{name}({', '.join(args)})", ATOM

    def pointer(self, array: Array, index: Expr) -> str:
        """Return the address of an element."""
        text = self(index)
        return array.name if text == "0" else f"{array.name} + {text}"

    def load(self, x: Load, type_: ValueType | None = None) -> tuple[str, int]:
        """Return the load of elements, which a vector load may convert to ``type_``."""
        if x.type.lanes == 1:
            return f"{x.array.name}[{self(x.index)}]", ATOM
        target = self.suffix(type_ or x.type)
        source = x.array.dtype
        kind = target if source == (type_ or x.type).dtype else f"{source}_as_{target}"
        count = [] if x.count is None else [self(x.count)]
        steps = [] if x.step == 1 else [dim_text(x.step)]
        name = ("gather" if steps else "load") + ("_part" if count else "")
        return self.function(f"{name}_{kind}", [self.pointer(x.array, x.index), *steps, *count])

    def call(self, x: Call) -> tuple[str, int]:
        if x.name == "cast":
            return self.cast(x.args[0], x.type)
        if x.name == "splat":
            return self.splat(x.args[0], x.type)
        if x.name == "select":
            return self.select(*x.args)
        if x.name in ("neg", "not"):
            return self.unary(x)
        if x.name in OPERATORS and self.has_operator(x):
            return self.operator(x)
        if x.name == "bitcast":
            return self.bitcast(x.args[0], x.type)
        if x.name == "convert":
            return self.convert(x.args[0], x.type)
        if x.name == "lane":
            return self.function(f"lane_{self.suffix(x.type)}", [self(x.args[0])])
        if x.name == "splat_word" and isinstance(x.args[0], Load):
            return self.function(f"splat_word_{self.suffix(x.type)}", [self.pointer(x.args[0].array, x.args[0].index)])
        if x.name in CHOICES:
            a, b = (self.inside(a, 10) for a in x.args)
            return f"{a} {CHOICES[x.name]} {b} ? {a} : {b}", CHOICE
        if x.name in NO_SUFFIX:
            return self.function(x.name, [*map(self, x.args)])
        type_ = x.args[0].type if x.name in BY_ARGUMENT else x.type
        return self.function(f"{C_FUNCTIONS.get(x.name, x.name)}_{self.suffix(type_)}", [*map(self, x.args)])

    def has_operator(self, x: Call) -> bool:
        """Tell whether an operator of C computes a call."""
        dtype, lanes = x.args[0].type
        return x.name not in ARITHMETIC or dtype == "index" or is_float(dtype) or lanes != 1

    def operator(self, x: Call) -> tuple[str, int]:
        symbol, level = OPERATORS[x.name]
        a, b = x.args
        if x.name in ("and", "or", "xor"):  # compilers warn without these parentheses
            level = UNARY - 1
        left = self.inside(a, level - (x.name == "mul" and isinstance(a, Call) and a.name == "mul"))
        is_sum = level == 12 and isinstance(b, Call) and OPERATORS.get(b.name, ("", 0))[1] > 12
        right = self.inside(b, level if is_sum or level != 12 else 13)
        text = f"{left} {symbol} {right}"
        if x.type.lanes == 1 and x.type.dtype in NARROW and x.name in ("and", "or", "xor"):
            return f"({C_NAMES[x.type.dtype]})({text})", UNARY
        return text, OPERATORS[x.name][1]

    def unary(self, x: Call) -> tuple[str, int]:
        (a,) = x.args
        dtype, lanes = x.type
        if x.name == "not":
            symbol = "!" if x.type == ("bool", 1) else "~"
            text = f"{symbol}{self.inside(a, UNARY)}"
            return (f"({C_NAMES[dtype]}){text}" if lanes == 1 and dtype in NARROW else text), UNARY
        if not is_float(dtype):
            return self.function(f"neg_{self.suffix(x.type)}", [self(a)])
        return f"-{self.inside(a, UNARY)}", UNARY

    def select(self, condition: Expr, a: Expr, b: Expr) -> tuple[str, int]:
        dtype = a.type.dtype
        if dtype.startswith("m"):
            c = self.inside(condition, UNARY)
            return f"({c} & {self.inside(a, UNARY)}) | (~{c} & {self.inside(b, UNARY)})", 6
        if a.type.lanes == 1 and not is_float(dtype):
            return f"{self.inside(condition, 8)} ? {self.inside(a, 8)} : {self.inside(b, 8)}", CHOICE
        return self.function(f"select_{self.suffix(a.type)}", [*map(self, (condition, a, b))])

    def splat(self, x: Expr, type_: ValueType) -> tuple[str, int]:
        text, level = self.function(f"splat_{self.suffix(type_)}", [self(x)])
        return (f"{text} != 0", 9) if type_.dtype.startswith("m") else (text, level)

    def convert(self, x: Expr, type_: ValueType) -> tuple[str, int]:
        """Convert an integer that fits its type."""
        return f"({SCALARS[type_.dtype]}){self.inside(x, UNARY)}", UNARY

    def bitcast(self, x: Expr, type_: ValueType) -> tuple[str, int]:
        """Reinterpret bits.

        Half-precision numbers already are bits in C, and integers of one size differ only in their type.
        """
        text, own, target = self.inside(x, UNARY - 1), DTYPES[x.type.dtype], DTYPES[type_.dtype]
        if own is target and own.kind == "f" and own.itemsize > 2:
            return text, UNARY
        if (own.kind != "f" and target.kind != "f") or own.itemsize == 2:
            return f"({MEMORY[target.name]}){text}", UNARY
        bits = f"u{own.itemsize * 8}"
        if target.kind == "f":
            return self.function(f"{target.name}_of_bits", [f"({C_NAMES[bits]}){text}"])
        return f"({C_NAMES[target.name]}){self.function(f'{bits}_bits', [text])[0]}", UNARY

    def cast(self, x: Expr, type_: ValueType) -> tuple[str, int]:
        if type_.lanes != 1:
            return self.cast_lanes(x, type_)
        return self.cast_number(self.inside(x, UNARY - 1), x.type.dtype, type_.dtype)

    def cast_lanes(self, x: Expr, type_: ValueType) -> tuple[str, int]:
        """Convert lanes.

        Truth values become masks as wide as the values that they select, and loads convert their elements.
        """
        source, target = x.type.dtype, type_.dtype
        if isinstance(x, Load) and target.startswith("m"):
            return f"{self.load(x, ValueType(f'f{target[1:]}', type_.lanes))[0]} != 0", 9
        if target.startswith("m"):
            if source in ("bool", "index"):
                return f"{self.inside(x, 9)} != 0", 9
            return f"{self.inside(x, 9)} != {self.number(Const(0.0, x.type))[0]}", 9
        if source.startswith("m") and is_float(target):
            one, zero = (self.number(Const(value, type_))[0] for value in (1.0, 0.0))
            return self.function(f"select_{self.suffix(type_)}", [self(x), one, zero])
        if isinstance(x, Load):
            return self.load(x, type_)
        return f"__builtin_convertvector({self(x)}, {self.type(type_)})", ATOM

    def cast_number(self, x: str, source: str, target: str) -> tuple[str, int]:
        if source == target:
            return x, UNARY
        if source in HALVES:
            if target == "bool":
                return f"({x} & 0x7FFF) != 0", 9
            wide = self.function(f"f32_from_{source}", [x])[0]
            return self.cast_number(wide, "f32", target)
        if target == "bool":
            return f"{x} != 0", 9
        if target == "f16" and source == "f64":
            return self.function("f16_from_f64", [x])
        if target in HALVES:
            return self.function(f"{target}_from_f32", [self.cast_number(x, source, "f32")[0]])
        if is_float(source) and target != "index" and DTYPES[target].kind in "iu":
            return self.function(f"{target}_from_{source}", [x])
        return f"({SCALARS[target]}){x}", UNARY

    def element(self, s: Store) -> str:
        """Return the number that a statement stores, in its form in memory."""
        text = self.inside(s.value, UNARY - 1) if s.array.dtype == "bool" else self(s.value)
        return f"(uint8_t){text}" if s.array.dtype == "bool" else text

    def lanes(self, s: Store) -> str:
        """Return the call that stores lanes."""
        value, dtype = s.value, s.array.dtype
        place, steps = self.pointer(s.array, s.index), [] if s.step == 1 else [dim_text(s.step)]
        count = [] if s.count is None else [self(s.count)]
        if dtype == "bool":
            float_ = f"f{value.type.dtype[1:]}"
            lanes_ = self.bytes * 8 // int(float_[1:])
            vector = self.suffix(ValueType(float_, value.type.lanes))
            args = [place, dim_text(s.step), *(count or [str(lanes_)]), self(value)]
            return self.function(f"store_mask_{vector}", args)[0]
        vector = self.suffix(value.type)
        kind = vector if dtype == value.type.dtype else f"{dtype}_as_{vector}"
        name = ("scatter" if steps else "store") + ("_part" if count else "")
        return self.function(f"{name}_{kind}", [place, *steps, *count, self(value)])[0]

    def invoke(self, s: Invoke) -> str:
        """Return the call of a function that also fills an array."""
        args = [self.pointer(s.source, s.index), self(s.count), s.target.name]
        return self.function(f"{s.function}_{s.source.dtype}", args)[0]

    def sort(self, s: Sort) -> str:
        """Return the call that sorts a row."""
        rows = [self.pointer(s.target, s.place), self.pointer(s.source, s.index)]
        numbers = [*map(self, (s.step, s.count, s.low, s.high)), "-1" if s.descending else "0"]
        return self.function(f"sort_{s.target.dtype}", [*rows, *numbers])[0]

    def transpose(self, s: Transpose) -> str:
        """Return the call that transposes a square in place."""
        return self.function(f"transpose_{self.suffix(s.rows[0].type)}", [s.name])[0]

    def point(self, s: Point) -> tuple[str, str, str, str]:
        """Return the type, the name, the address and the description of an entry's array."""
        place = f"p[{s.pointer}]" if s.offset == 0 else f"(p[{s.pointer}] + {dim_text(s.offset)})"
        return ("const " if s.is_constant else "") + MEMORY[s.array.dtype], s.array.name, place, s.doc

    def join_arguments(self, values: Sequence[Expr]) -> str:
        """Join expressions by commas."""
        return ", ".join(map(self, values))

    def arguments(self, s: Run) -> list[str]:
        """Return the arguments of a call."""
        threads = ["threads"] if s.is_shared else []
        return [*threads, *[self.pointer(array, start) for array, start in s.arrays], *map(self, s.numbers)]


def increment(s: Assign) -> Expr | None:
    """Return the addend of an assignment that adds to its variable, or None for any other assignment."""
    x = s.value
    is_sum = isinstance(x, Call) and x.name == "add" and x.args[0] == s.var and is_float(x.type.dtype)
    return x.args[1] if is_sum and isinstance(x, Call) else None


def dim_text(value: Dim) -> str:
    """Return a polynomial as C, negative terms last."""
    if isinstance(value, int) or all(factor > 0 for _, factor in value.terms):
        return str(value)
    added = [Polynomial((term,)) for term in value.terms if term[1] > 0]
    taken = [Polynomial(((monomial, -factor),)) for monomial, factor in value.terms if factor < 0]
    return " + ".join(map(str, added)) + "".join(f" - {term}" for term in taken)


def literal(value: float, dtype: str) -> str:
    """Return the shortest C literal that is exact to the last bit; half-precision numbers are their stored bits."""
    if dtype in HALVES:
        return _half(value, dtype)
    if not dtype.startswith("f"):
        return _integer(int(value), dtype)
    if np.isnan(value):
        return '__builtin_nan("")' if dtype == "f64" else '__builtin_nanf("")'
    if np.isinf(value):
        sign = "-" if value < 0 else ""
        return f"{sign}__builtin_inf()" if dtype == "f64" else f"{sign}__builtin_inff()"
    if dtype == "f32":
        short = str(np.float32(value))
        return (short if any(c in short for c in ".e") else short + ".0") + "f"
    return repr(float(value))


def _integer(value: int, dtype: str) -> str:
    """Add a suffix if the type is wider than ``int``; C has no literal for the smallest number."""
    if value in (-(2**31), -(2**63)):
        return f"({_integer(value + 1, dtype)} - 1)"
    suffix = "u" if dtype in ("u32", "u64") else ""
    return f"{value}{suffix}" if -(2**31) < value < 2**31 else f"{value}{suffix if dtype == 'u32' else suffix + 'll'}"


def _half(value: float, dtype: str) -> str:
    number = DTYPES[dtype].array(np.asarray(value, np.float64))
    bits = number.view(np.uint16) if dtype == "f16" else number.view(np.uint32) >> np.uint32(16)
    return f"0x{int(bits):04X}"
