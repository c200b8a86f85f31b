"""Spell expressions of loop nests as Python, for the template to put into statements.

A number is a float of Python, whatever its dtype is; it is rounded when it is stored as float32. An integer is reduced
to the bits of its dtype if it may exceed them. Operations for which Python raises an error, such as a division by zero,
use functions of ``templates/python/functions.py.j2``, whose names begin with ``_``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlaot.ir.dims import Dim, Quotient, nonnegative
from mlaot.ir.types import DTYPES
from mlaot.nest.expressions import (
    HALVES,
    Array,
    Call,
    Const,
    Expr,
    Index,
    Load,
    Var,
    arithmetic,
    is_float,
)
from mlaot.nest.statements import For, Invoke, Point, Run, Sort
from mlaot.printing.python.loops import Elements, Loop, is_same
from mlaot.printing.spelling import NO_SUFFIX, literal

# Letters of memoryview.cast; halves are bits, truth values bytes.
FORMATS = {
    **{"f16": "H", "bf16": "H", "f32": "f", "f64": "d", "bool": "B"},
    **{"i8": "b", "i16": "h", "i32": "i", "i64": "q", "u8": "B", "u16": "H", "u32": "I", "u64": "Q"},
}
# Operators with their precedence.
OPERATORS = {
    **{"mul": ("*", 11), "div": ("//", 11), "mod": ("%", 11), "add": ("+", 10), "sub": ("-", 10)},
    **{"and": ("&", 8), "xor": ("^", 7), "or": ("|", 6)},
    **{"lt": ("<", 5), "le": ("<=", 5), "gt": (">", 5), "ge": (">=", 5), "eq": ("==", 5), "ne": ("!=", 5)},
}
ATOM, UNARY, TERM, SUM, COMPARISON, NOT, CHOICE = 20, 12, 11, 10, 5, 4, 1
# What may leave the bits of an integer.
WRAPPED = (
    *("add", "sub", "mul", "neg", "abs", "left_shift", "pow", "floor_divide"),
    *("dot4", "dot4_pairs", "dot2", "halves", "nibbles", "splat_word"),
)
OF_MATH = ("tanh", "erf", "erfc", "atan", "atan2", "asinh", "hypot", "copysign")  # refuse no number
OF_DTYPE = ("nextafter",)  # differ from one dtype of floats to the other
BUILTINS = {"least": "min", "most": "max"}  # of indices
SAME_FUNCTION = {"dot4_pairs": "dot4"}  # one may be faster where machines have it


class Speller:
    """Spell expressions; ``calls`` has the functions of the file that they call, in order."""

    def __init__(self) -> None:
        self.calls: dict[str, None] = {}

    def __call__(self, x: Expr) -> str:
        """Return ``x`` as Python."""
        return self.bind(x)[0]

    def bind(self, x: Expr) -> tuple[str, int]:
        """Return ``x`` as Python, and the precedence of its outermost operator."""
        if isinstance(x, Const):
            text = self.number(x.value, x.type.dtype)
            return text, UNARY if text.startswith("-") else ATOM
        if isinstance(x, Var):
            return x.name, ATOM
        if isinstance(x, Index):
            return index_text(x.value)
        return self.load(x) if isinstance(x, Load) else self.call(x)

    def inside(self, x: Expr, level: int) -> str:
        """Return ``x`` as an argument of an operator of precedence ``level``."""
        text, own = self.bind(x)
        return text if own > level else f"({text})"

    def function(self, name: str, args: Sequence[str]) -> tuple[str, int]:
        self.calls[name] = None
        return f"{name}({', '.join(args)})", ATOM

    def number(self, value: float, dtype: str) -> str:
        """Return a number, exact to the last bit. A half-precision number is the bits that are stored."""
        if dtype in HALVES:
            return literal(value, dtype)
        if not is_float(dtype):
            return str(bool(value)) if dtype == "bool" else str(int(value))
        if value - value != 0:
            return "_math.nan" if value != value else "_math.inf" if value > 0 else "-_math.inf"
        return repr(float(np.float32(value)) if dtype == "f32" else float(value))

    def load(self, x: Load) -> tuple[str, int]:
        return f"{x.array.name}[{self(x.index)}]", ATOM

    def behind(self, array: Array, index: Expr) -> str:
        """Return the elements of an array from one on, which may be before the first if only later ones are read."""
        if isinstance(index, Index) and not nonnegative(index.value):
            return self.function("_behind", [array.name, self(index)])[0]
        return part(array.name, self(index))

    def call(self, x: Call) -> tuple[str, int]:
        dtype = x.args[0].type.dtype
        if is_same(x):
            return self.bind(x.args[0])
        if x.name == "cast":
            return self.cast(x.args[0], x.type.dtype)
        if x.name == "bitcast":
            return self.bitcast(x.args[0], x.type.dtype)
        if x.name == "convert":
            return self.convert(x.args[0], x.type.dtype)
        if x.name == "select":
            condition, a, b = (self.inside(arg, CHOICE) for arg in x.args)
            return f"{a} if {condition} else {b}", CHOICE
        text, level = self.operation(x, dtype)
        if x.name in WRAPPED and DTYPES.get(x.type.dtype, DTYPES["f64"]).kind in "iu":
            return self.wrap(text, level, x.type.dtype)
        return text, level

    def operation(self, x: Call, dtype: str) -> tuple[str, int]:
        """Return an operator or a function with its arguments, before the result is reduced to a dtype."""
        if x.name in OPERATORS and (x.name not in ("div", "mod") or dtype == "index"):  # of indices, never negative
            return self.operator(x)
        if x.name == "not":
            (a,) = x.args
            if dtype == "bool":
                return f"not {self.inside(a, NOT)}", NOT
            return (f"~{self.inside(a, UNARY)}", UNARY) if dtype[0] == "i" else self.complement(a, dtype)
        if x.name == "neg":
            return f"-{self.inside(x.args[0], UNARY)}", UNARY
        if x.name == "div" and is_float(dtype):
            return self.quotient(*x.args)
        if x.name == "abs":
            return f"abs({self(x.args[0])})", ATOM
        return self.named(x, dtype)

    def operator(self, x: Call) -> tuple[str, int]:
        symbol, level = OPERATORS[x.name]
        a, b = x.args
        if x.name == "add" and Index(0) in (a, b):
            return self.bind(b if a == Index(0) else a)
        is_chain = level == COMPARISON  # Python would join two of them
        return f"{self.inside(a, level if is_chain else level - 1)} {symbol} {self.inside(b, level)}", level

    def complement(self, x: Expr, dtype: str) -> tuple[str, int]:
        return f"{self.inside(x, OPERATORS['xor'][1])} ^ {mask(dtype)}", OPERATORS["xor"][1]

    def quotient(self, a: Expr, b: Expr) -> tuple[str, int]:
        """Return a quotient of floats. For a divisor that is a number and not zero, it is the operator."""
        if isinstance(b, Const) and b.value != 0:
            return f"{self.inside(a, TERM - 1)} / {self.inside(b, TERM)}", TERM
        return self.function("_divide", [self(a), self(b)])

    def named(self, x: Call, dtype: str) -> tuple[str, int]:
        """Return the call of a function that has no operator."""
        if x.name == "splat_word" and isinstance(x.args[0], Load):
            array, index = x.args[0].array, x.args[0].index
            return self.function("_word", [array.name, self(index), str(8 * DTYPES[array.dtype].itemsize)])
        args = [*map(self, x.args)]
        if x.name in NO_SUFFIX:
            return self.function(f"_{x.name}", args)
        if dtype == "index" or DTYPES[dtype].kind in "iu":
            if x.name in ("least", "most", "max", "min"):
                return f"{BUILTINS.get(x.name, x.name)}({', '.join(args)})", ATOM
            return self.function(f"_{SAME_FUNCTION.get(x.name, x.name)}_integer", self.with_bits(x, args))
        if dtype == "bool":
            assert x.name in ("max", "min", "is_equal"), f"bug in mlaot: {x.name} of truth values"
            name = {"max": "or", "min": "and", "is_equal": "eq"}[x.name]
            return self.operator(Call(name, x.args, x.type))
        if x.name in OF_MATH:
            return f"_math.{x.name}({', '.join(args)})", ATOM
        return self.function(f"_{x.name}" + f"_{dtype}" * (x.name in OF_DTYPE), args)

    def with_bits(self, x: Call, args: list[str]) -> list[str]:
        """Return the arguments of a function of integers. A shift gets the number of bits too."""
        return [*args, str(8 * DTYPES[x.type.dtype].itemsize)] if x.name.endswith("_shift") else args

    def wrap(self, text: str, level: int, dtype: str) -> tuple[str, int]:
        """Return the low bits of an integer as a number of its dtype."""
        if dtype[0] == "u":
            return f"{text if level > 8 else f'({text})'} & {mask(dtype)}", 8
        return self.function(f"_{dtype}", [text])

    def cast(self, x: Expr, target: str) -> tuple[str, int]:
        """Convert a value, as ``mlaot/ops/conversion.py`` defines it."""
        source = x.type.dtype
        if source == target:
            return self.bind(x)
        if source in HALVES:
            if target == "bool":
                return f"{self.inside(x, 8)} & 0x7FFF != 0", COMPARISON
            return self.cast_number(*self.function(f"_f32_from_{source}", [self(x)]), "f32", target)
        return self.cast_number(*self.bind(x), source, target)

    def cast_number(self, text: str, level: int, source: str, target: str) -> tuple[str, int]:
        if source == target:
            return text, level
        if target == "bool":
            return f"{text if level > COMPARISON else f'({text})'} != 0", COMPARISON
        if target == "f32" and source == "f64":
            return self.function("_f32", [text])
        if target in HALVES:
            return self.function(f"_{target}_bits", [text if is_float(source) else f"float({text})"])
        if is_float(target):
            return f"float({text})", ATOM
        if is_float(source):
            if target == "index":
                return f"int({text})", ATOM
            low, high = limits(target)
            return self.function("_saturate", [text, str(low), str(high)])
        if target == "index" or source == "bool" or fits(source, target):
            return (f"int({text})", ATOM) if source == "bool" else (text, level)
        return self.wrap(text, level, target)

    def convert(self, x: Expr, target: str) -> tuple[str, int]:
        """Convert a whole number that fits its type."""
        return (f"int({self(x)})", ATOM) if is_float(x.type.dtype) else self.bind(x)

    def bitcast(self, x: Expr, target: str) -> tuple[str, int]:
        """Reinterpret bits. Half-precision numbers already are bits, and integers of one size differ in their range."""
        source = x.type.dtype
        if source == target:
            return self.bind(x)
        text, level = self.bind(x)
        if is_float(source):
            text, level = self.function(f"_{source}_bits", [text])
            source = f"u{8 * DTYPES[source].itemsize}"
        if is_float(target):
            unsigned = f"u{8 * DTYPES[target].itemsize}"
            return self.function(
                f"_{target}_of_bits", [text if source == unsigned else self.wrap(text, level, unsigned)[0]]
            )
        kind = "u16" if source in HALVES else source
        wanted = "u16" if target in HALVES else target
        return (text, level) if kind == wanted else self.wrap(text, level, wanted)

    def factor(self, value: Dim) -> str:
        """Return a polynomial as a factor."""
        text, level = index_text(value)
        return text if level > TERM else f"({text})"

    def targets(self, loop: Loop) -> str:
        """Return the variables that a loop binds in each round."""
        own = [loop.loop.var.name] if loop.has_range else []
        return ", ".join([*own, *(each.var.name for each in loop.elements)])

    def iterables(self, loop: Loop) -> str:
        """Return the iterables of a loop: a range, and slices."""
        own = [self.range_of(loop.loop)] if loop.has_range else []
        parts = [*own, *(self.slice_of(each, loop.count) for each in loop.elements)]
        return parts[0] if len(parts) == 1 else f"zip({', '.join(parts)})"

    def range_of(self, loop: For) -> str:
        """Return the range of a loop."""
        if loop.down:
            return f"range({self(arithmetic('sub', loop.high, 1))}, {self(arithmetic('sub', loop.low, 1))}, -1)"
        low = [] if loop.low == Index(0) and loop.step == 1 else [self(loop.low)]
        return f"range({', '.join([*low, self(loop.high), *([str(loop.step)] if loop.step != 1 else [])])})"

    def slice_of(self, elements: Elements, count: Dim) -> str:
        """Return the elements that a loop reads."""
        end = arithmetic("add", elements.start, Index(count * elements.step))
        if (elements.start, end, elements.step) == (Index(0), Index(elements.array.size), 1):
            return elements.array.name
        return part(elements.array.name, self(elements.start), self(end), elements.step)

    def as_list(self, array: Array) -> str:
        """Return the elements of an array as a list."""
        return f"{part(array.name, '', self(Index(array.size)))}.tolist()"

    def invoke(self, s: Invoke) -> str:
        """Return the call of a function that also fills an array."""
        return self.function(f"_{s.function}", [s.source.name, self(s.index), self(s.count), s.target.name])[0]

    def sort(self, s: Sort) -> str:
        """Return the call that sorts a row."""
        numbers = [*map(self, (s.step, s.count, s.low, s.high)), str(s.descending)]
        return self.function("_sort", [s.target.name, self(s.place), s.source.name, self(s.index), *numbers])[0]

    def point(self, s: Point) -> str:
        """Return an array of an entry as elements of its dtype."""
        end = s.offset + s.array.size * DTYPES[s.array.dtype].itemsize
        memory = part(f"p[{s.pointer}]", index_text(s.offset)[0], index_text(end)[0])
        return f'{memory}.cast("{FORMATS[s.array.dtype]}")'

    def passed(self, s: Run) -> list[str]:
        """Return the arguments of a call."""
        return [*(self.behind(array, start) for array, start in s.arrays), *map(self, s.numbers)]


def part(name: str, start: str, end: str = "", step: int = 1) -> str:
    """Return a slice of an array, or its name if that is all of it."""
    start, by = "" if start == "0" else start, "" if step == 1 else str(step)
    if not (start or end or by):
        return name
    is_simple = all(text.isalnum() or text.isidentifier() for text in (start, end, by) if text)
    colon = ":" if is_simple else f"{' ' * bool(start)}:{' ' * bool(end)}"
    return f"{name}[{start}{colon}{end}{(':' if is_simple else ' : ') + by if by else ''}]"


def mask(dtype: str) -> str:
    """Return the number that has all bits of a dtype."""
    return f"0x{2 ** (8 * DTYPES[dtype].itemsize) - 1:X}"


def limits(dtype: str) -> tuple[int, int]:
    """Return the smallest and the largest number of an integer dtype."""
    info = np.iinfo(DTYPES[dtype].numpy)
    return int(info.min), int(info.max)


def fits(source: str, target: str) -> bool:
    """Tell whether an integer dtype can hold every number of another one. An index counts elements, which fit."""
    if source == "index":
        return DTYPES[target].itemsize == 8
    (low, high), (least, most) = limits(source), limits(target)
    return least <= low and high <= most


def index_text(value: Dim) -> tuple[str, int]:
    """Return a polynomial as Python, negative terms last, and the precedence of its outermost operator."""
    if isinstance(value, int):
        return str(value), UNARY if value < 0 else ATOM
    text = ""
    for monomial, factor in sorted(value.terms, key=lambda term: (term[1] < 0, not term[0])):
        size = [str(abs(factor))] if abs(factor) != 1 or not monomial else []
        atoms = [*map(_atom_text, monomial)]
        term = " * ".join([*atoms, *size]) if len(atoms) + len(size) != 1 else (atoms + size)[0]
        sign = (" + ", " - ") if text else ("", "-")
        text += sign[factor < 0] + term
    if len(value.terms) > 1:
        return text, SUM
    if text.startswith("-"):
        return text, UNARY if text[1:].isidentifier() else SUM
    return text, ATOM if text.isidentifier() else TERM


def _atom_text(atom: str | Quotient) -> str:
    if isinstance(atom, str):
        return atom
    top, level = index_text(atom.top)
    return f"({top if level > TERM else f'({top})'} // {atom.bottom})"
